"""Finds a tritonserver and provides a backend directory for it.

Triton looks for a backend in its backend directory, as `<name>/libtriton_<name>.so`. dragoman's is in the package, so Triton
is given a private directory with a link to it, both embedded (the binary of the `nvidia-pytriton` wheel) and in the official
container. `model_repository/` is the same for both.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from dragoman import native
from dragoman.errors import ServeError

__all__ = ["BACKEND", "SUPERVISOR_VARIABLE", "Installation", "embedded", "find_installation", "model_repository", "official"]

BACKEND = "dragoman"
"""The name of the backend in `model_repository/*/config.pbtxt`."""
SUPERVISOR_VARIABLE = "DRAGOMAN_SUPERVISOR"
"""Names the unix socket at which the supervisor publishes its routing tables."""
OFFICIAL_ROOT = Path("/opt/tritonserver")


@dataclass(frozen=True, slots=True)
class Installation:
    """A tritonserver with a backend directory that holds dragoman's backend."""

    kind: str
    binary: Path
    backend_directory: Path
    environment: dict[str, str] = field(default_factory=dict)


def find_installation(private_directory: Path) -> Installation:
    """The official container's server where there is one, else the embedded one; `private_directory` is made."""
    backends = _backend_directory(private_directory / "backends")
    if (OFFICIAL_ROOT / "bin" / "tritonserver").is_file():
        return official(OFFICIAL_ROOT, backends)
    return embedded(_wheel_root(), backends)


def official(root: Path, backends: Path) -> Installation:
    """The server of the official container."""
    return Installation("official", root / "bin" / "tritonserver", backends)


def embedded(wheel_root: Path, backends: Path) -> Installation:
    """The server of the wheel unpacked at `wheel_root`."""
    environment = {
        "LD_LIBRARY_PATH": _with(wheel_root.parent.parent / "nvidia_pytriton.libs", "LD_LIBRARY_PATH"),
        "LD_PRELOAD": _with(native.FIXES_LIBRARY, "LD_PRELOAD"),
    }
    return Installation("embedded", wheel_root / "bin" / "tritonserver", backends, environment)


def model_repository() -> Path:
    """The Triton models: inside the package when installed, at the top of the source tree otherwise."""
    packaged = Path(__file__).resolve().parent.parent / "model_repository"
    source_tree = Path(__file__).resolve().parents[4] / "model_repository"
    for candidate in (packaged, source_tree):
        if candidate.is_dir():
            return candidate
    raise ServeError(f"the Triton models are missing (looked in {packaged} and {source_tree}); install dragoman again")


def _backend_directory(directory: Path) -> Path:
    library = native.backend_library()
    if library is None:
        raise ServeError(
            f"the Triton backend is not built ({native.BACKEND_LIBRARY} is missing): serving needs Linux x86-64 and a wheel "
            "that has it inside or, in a checkout, `python native/build.py` with a C++ compiler (g++, clang++ or $CXX)"
        )
    (directory / BACKEND).mkdir(parents=True)
    (directory / BACKEND / library.name).symlink_to(library)
    return directory


def _with(path: Path, variable: str) -> str:
    """The variable's value with `path` before what it is already."""
    return os.pathsep.join(filter(None, [str(path), os.environ.get(variable, "")]))


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
