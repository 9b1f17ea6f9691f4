"""The Python backend beside the embedded Triton, for peers that are Python models: dragoman itself has none.

The server looks for a stub for this version of Python beside the backend, and the stub starts an isolated interpreter
that reads neither PYTHONPATH nor PYTHONHOME but asks the first `python3` on PATH where it lives. So a private
directory brings both together and holds a small virtual environment that imports from where this interpreter does.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from dataclasses import replace
from pathlib import Path

from dragoman.serving.triton.installation import Installation

__all__ = ["with_python_backend"]

BACKEND_FILES = ("libtriton_python.so", "triton_python_backend_utils.py")
VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"


def with_python_backend(installation: Installation, directory: Path) -> Installation:
    """The same server, which also finds Python models' backend; the official container has it in place."""
    backend = installation.backend_directory / "python"
    root = installation.binary.parent.parent
    if installation.kind == "official":
        backend.symlink_to(root / "backends" / "python")
        return installation
    backend.mkdir()
    stub = root / "python_backend_stubs" / VERSION / "triton_python_backend_stub"
    for source in (stub, *(root / "backends" / "python" / name for name in BACKEND_FILES)):
        (backend / source.name).symlink_to(source)
    libraries = [installation.environment["LD_LIBRARY_PATH"], sysconfig.get_config_var("LIBDIR") or ""]
    environment = {
        **installation.environment,
        "PATH": os.pathsep.join([str(_interpreter(directory / "python")), os.environ.get("PATH", "")]),
        "LD_LIBRARY_PATH": os.pathsep.join(filter(None, libraries)),
    }
    return replace(installation, environment=environment)


def _interpreter(home: Path) -> Path:
    """The `bin` of a virtual environment at `home`."""
    base = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    packages = home / "lib" / f"python{VERSION}" / "site-packages"
    packages.mkdir(parents=True)
    (home / "pyvenv.cfg").write_text(f"home = {base.parent}\ninclude-system-site-packages = false\n", encoding="utf-8")
    (home / "bin").mkdir()
    (home / "bin" / "python3").symlink_to(base)
    paths = [path for path in sys.path if path and Path(path).is_dir()]
    (packages / "imports.pth").write_text("".join(f"{path}\n" for path in paths), encoding="utf-8")
    return home / "bin"
