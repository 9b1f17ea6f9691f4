"""Compiles the kernels while the package is built or installed; where it can't, the package is built without them."""

from __future__ import annotations

import importlib.util
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class KernelsHook(BuildHookInterface[Any]):
    """Puts the library where its Python package looks for it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        package = Path(self.root) / "kernels" / "dragoman" / "kernels"
        spec = importlib.util.spec_from_file_location("dragoman_kernels_build", package / "build.py")
        assert spec is not None  # noqa: S101 - it is a file of ours
        assert spec.loader is not None  # noqa: S101
        kernels = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(kernels)
        try:
            kernels.build()
        except kernels.CannotBuild as error:
            self.app.display_warning(f"dragoman is built without its kernels, and will be slower: {error}")
            if version != "editable":  # so that `python -m dragoman.kernels.build` can make up for it
                build_data["force_include"][str(package / "src")] = "dragoman/kernels/src"
            return
        build_data["artifacts"].append(f"{package.relative_to(self.root).as_posix()}/{kernels.NAME}")
        build_data["pure_python"], build_data["infer_tag"] = False, False
        build_data["tag"] = f"py3-none-{_platform()}"


def _platform() -> str:
    """The library needs this system and processor, but no particular Python."""
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")
