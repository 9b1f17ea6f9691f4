"""Finds a tritonserver and lays out what it needs beside it.

Embedded, the binary comes from the `nvidia-pytriton` wheel. With the door (`dragoman.door`) it needs nothing else. Python
models need a stub, of which the wheel ships one for every Python version. The server looks for it beside the backend
library, and the stub starts an isolated interpreter that reads neither PYTHONPATH nor PYTHONHOME but asks the first
`python3` on PATH where it lives. So a private directory brings stub and backend together and holds a small virtual
environment that imports from where this interpreter does. In the official container everything is in place already.
"""

from __future__ import annotations

import ctypes.util
import os
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from dragoman.errors import ServeError

__all__ = [
    "Installation",
    "check_libpython",
    "check_numpy",
    "embedded",
    "embedded_alone",
    "find_installation",
    "model_repository",
    "official",
]

OFFICIAL_ROOT = Path("/opt/tritonserver")
_BACKEND_FILES = ("libtriton_python.so", "triton_python_backend_utils.py")
_STUB = "triton_python_backend_stub"


@dataclass(frozen=True, slots=True)
class Installation:
    """A tritonserver that can run our models with this interpreter."""

    kind: str
    binary: Path
    backend_directory: Path
    environment: dict[str, str] = field(default_factory=dict)


def find_installation(private_directory: Path, with_stubs: bool = True) -> Installation:
    """The official container's server where there is one, else the embedded one laid out in `private_directory`."""
    if (OFFICIAL_ROOT / "bin" / "tritonserver").is_file():
        return official(OFFICIAL_ROOT)
    if not with_stubs:
        return embedded_alone(_wheel_root(), private_directory)
    check_numpy(version("numpy"))
    check_libpython(Path(sysconfig.get_config_var("LIBDIR") or ""), ctypes.util.find_library)
    return embedded(_wheel_root(), private_directory)


def official(root: Path) -> Installation:
    """The server of the official container, whose stub is built for the container's own Python."""
    return Installation(
        kind="official",
        binary=root / "bin" / "tritonserver",
        backend_directory=root / "backends",
    )


def embedded_alone(wheel_root: Path, private_directory: Path) -> Installation:
    """The server of the wheel unpacked at `wheel_root`, for models that bring their backend."""
    backends = private_directory / "backends"
    backends.mkdir(parents=True)
    libraries = _first(str(_libraries(wheel_root)), "LD_LIBRARY_PATH")
    return Installation("embedded", wheel_root / "bin" / "tritonserver", backends, {"LD_LIBRARY_PATH": libraries})


def embedded(
    wheel_root: Path, private_directory: Path, python: tuple[int, int] = (sys.version_info[0], sys.version_info[1])
) -> Installation:
    """The same with the stub for `python`."""
    stub = wheel_root / "python_backend_stubs" / f"{python[0]}.{python[1]}" / _STUB
    if not stub.is_file():
        held = ", ".join(sorted((path.name for path in stub.parent.parent.glob("3.*")), key=lambda name: int(name[2:])))
        raise ServeError(f"the embedded Triton has no stub for Python {python[0]}.{python[1]}; use one of {held}")
    backend = private_directory / "backends" / "python"
    backend.mkdir(parents=True)
    for source in (stub, *(wheel_root / "backends" / "python" / name for name in _BACKEND_FILES)):
        (backend / source.name).symlink_to(source)
    libraries = [str(_libraries(wheel_root)), sysconfig.get_config_var("LIBDIR") or ""]
    return Installation(
        kind="embedded",
        binary=wheel_root / "bin" / "tritonserver",
        backend_directory=backend.parent,
        environment={
            "PATH": _first(str(_mirror_interpreter(private_directory / "python")), "PATH"),
            # libpython must be this interpreter's, which the system's may not be.
            "LD_LIBRARY_PATH": _first(os.pathsep.join(filter(None, libraries)), "LD_LIBRARY_PATH"),
        },
    )


def _libraries(wheel_root: Path) -> Path:
    return wheel_root.parent.parent / "nvidia_pytriton.libs"


def _mirror_interpreter(home: Path) -> Path:
    """A virtual environment at `home` that imports from this interpreter's own `sys.path`; returns its `bin`."""
    base = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    packages = home / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    packages.mkdir(parents=True)
    (home / "pyvenv.cfg").write_text(f"home = {base.parent}\ninclude-system-site-packages = false\n", encoding="utf-8")
    (home / "bin").mkdir()
    (home / "bin" / "python3").symlink_to(base)
    paths = [path for path in sys.path if path and Path(path).is_dir()]
    (packages / "imports.pth").write_text("".join(f"{path}\n" for path in paths), encoding="utf-8")
    return home / "bin"


def _first(value: str, variable: str) -> str:
    return os.pathsep.join(filter(None, [value, os.environ.get(variable, "")]))


def check_numpy(installed: str) -> None:
    """The embedded stub reads numpy 1 memory layouts; under numpy 2 it corrupts tensors without a word."""
    if int(installed.partition(".")[0]) >= 2:
        raise ServeError(
            f"numpy {installed} is installed, but the embedded Triton needs numpy 1 (with numpy 2 its Python stub corrupts "
            "tensors); run: pip install 'numpy<2'"
        )


def check_libpython(directory: Path, find_library: Callable[[str], str | None]) -> None:
    """The stub is an executable of its own that loads Python as a library; some Pythons are built without one."""
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    if not any(directory.glob(f"lib{name}.so*")) and find_library(name) is None:
        raise ServeError(
            f"the embedded Triton needs Python as a shared library, and there is no lib{name}.so; "
            f"install it (Debian: apt install lib{name}) or use a Python that was built with --enable-shared"
        )


def model_repository() -> Path:
    """Our Triton models: inside the package when installed, at the top of the source tree otherwise."""
    packaged = Path(__file__).resolve().parent.parent / "model_repository"
    source_tree = Path(__file__).resolve().parents[4] / "model_repository"
    for candidate in (packaged, source_tree):
        if candidate.is_dir():
            return candidate
    raise ServeError(f"the Triton models are missing (looked in {packaged} and {source_tree}); install dragoman again")


def _wheel_root() -> Path:
    spec = find_spec("pytriton")
    root = Path(spec.submodule_search_locations[0]) / "tritonserver" if spec and spec.submodule_search_locations else None
    if root is None or not (root / "bin" / "tritonserver").is_file():
        try:
            found = f"nvidia-pytriton {version('nvidia-pytriton')} has no tritonserver for this machine"
        except PackageNotFoundError:
            found = "nvidia-pytriton is not installed"
        raise ServeError(f"there is no Triton to start: {found}; run: pip install 'dragoman[serving]' (Linux only)")
    return root
