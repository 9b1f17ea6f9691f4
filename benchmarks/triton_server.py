"""A separate Triton with one Python model, for comparisons: started on a free port, gone at the end."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import tritonclient.grpc

from benchmarks.peers import ROOT
from benchmarks.triton_python import with_python_backend
from dragoman.serving.supervisor.ports import free_port
from dragoman.serving.triton.flags import Address, TritonFlags
from dragoman.serving.triton.installation import find_installation

__all__ = ["HOST", "running", "triton_with"]

HOST = "127.0.0.1"
START_TIMEOUT_S = 90.0


@contextlib.contextmanager
def triton_with(model: Path, config: str, environment: dict[str, str] | None = None) -> Iterator[str]:
    """The address of a server whose model `translate` is this `model.py` with this `config.pbtxt`."""
    port = free_port(HOST)
    with tempfile.TemporaryDirectory() as scratch:
        repository = Path(scratch) / "models"
        (repository / "translate" / "1").mkdir(parents=True)
        shutil.copyfile(model, repository / "translate" / "1" / "model.py")
        (repository / "translate" / "config.pbtxt").write_text(config, encoding="utf-8")
        installation = with_python_backend(find_installation(Path(scratch) / "triton"), Path(scratch))
        flags = TritonFlags(repository, installation.backend_directory, Address(HOST, port), None, secrets.token_hex(8))
        variables = {**os.environ, **installation.environment, **(environment or {})}
        with running([str(installation.binary), *flags.argv()], variables, f"{HOST}:{port}"):
            yield f"{HOST}:{port}"


@contextlib.contextmanager
def running(command: list[str], environment: dict[str, str], address: str) -> Iterator[None]:
    """A server until the block ends; ready when its model is."""
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
    try:
        _wait_until_ready(process, address)
        yield
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], address: str) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    with tritonclient.grpc.InferenceServerClient(address) as client:
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise RuntimeError(f"{process.args!r} ended with {process.returncode} while starting")
            with contextlib.suppress(tritonclient.grpc.InferenceServerException):
                if client.is_model_ready("translate", client_timeout=1.0):
                    return
            time.sleep(0.1)
    raise RuntimeError(f"the server at {address} was not ready within {START_TIMEOUT_S:.0f} s")
