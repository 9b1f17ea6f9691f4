from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """authority.pem, and a server's and a client's key and certificate signed by it."""
    if shutil.which("openssl") is None:
        pytest.skip("makes its certificates with openssl, which is not installed")
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *new_key, "-keyout", "authority.key", "-out", "authority.pem", "-days", "2", "-subj", "/CN=test")
    (folder / "names").write_text("subjectAltName=DNS:translator.test,IP:127.0.0.1")
    for who in ("server", "client"):
        openssl("req", *new_key, "-keyout", f"{who}.key", "-out", f"{who}.csr", "-subj", f"/CN={who}")
        signing = ("-CA", "authority.pem", "-CAkey", "authority.key", "-CAcreateserial", "-days", "2")
        openssl("x509", "-req", "-in", f"{who}.csr", *signing, "-extfile", "names", "-out", f"{who}.pem")
    return folder
