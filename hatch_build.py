"""Compiles what is in C++ while the package is built or installed; where it can't, the package is built without it."""

from __future__ import annotations

import importlib.util
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class LibrariesHook(BuildHookInterface[Any]):
    """Puts each library where its Python package looks for it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        build = _module(Path(self.root) / "native" / "build.py")
        for name, make in (
            ("operators", build.build_ops),
            ("Triton backend", build.build_backend),
            ("fixes of the embedded Triton", build.build_fixes),
        ):
            try:
                library: Path = make()
            except build.CannotBuild as error:
                self.app.display_warning(f"dragoman is built without its {name}: {error}")
                continue
            build_data["artifacts"].append(library.relative_to(self.root).as_posix())
            build_data["pure_python"], build_data["infer_tag"] = False, False
            build_data["tag"] = f"py3-none-{_platform()}"


def _module(path: Path) -> Any:  # noqa: ANN401 - a module of ours that is not installed yet
    spec = importlib.util.spec_from_file_location("dragoman_build", path)
    assert spec is not None  # noqa: S101 - it is a file of ours
    assert spec.loader is not None  # noqa: S101
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _platform() -> str:
    """A library needs this system and processor, but no particular Python."""
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")
