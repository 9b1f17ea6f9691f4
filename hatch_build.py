"""Compiles the kernels while the package is built or installed; without a compiler the package is built without them."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class KernelsHook(BuildHookInterface[Any]):
    """Puts the library where its Python package looks for it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's interface
        if self.target_name != "wheel":
            return
        path = Path(self.root) / "kernels" / "dragoman" / "kernels" / "build.py"
        spec = importlib.util.spec_from_file_location("dragoman_kernels_build", path)
        assert spec is not None  # noqa: S101 - it is a file of ours
        assert spec.loader is not None  # noqa: S101
        kernels = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(kernels)
        try:
            kernels.build()
        except (kernels.CompilerMissing, subprocess.CalledProcessError) as error:
            self.app.display_warning(f"dragoman is built without its kernels, and will be slower: {error}")
            return
        build_data["artifacts"].append("*.so")
        build_data["pure_python"], build_data["infer_tag"] = False, False
        build_data["tag"] = f"py3-none-{_platform()}"


def _platform() -> str:
    """The library needs this system and processor, but no particular Python."""
    import sysconfig

    return sysconfig.get_platform().replace("-", "_").replace(".", "_")
