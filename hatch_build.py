"""Compiles the native libraries while a wheel is built, and names the wheel's platform.

On Linux x86-64 a wheel has the libraries inside; elsewhere, or with DRAGOMAN_PURE_WHEEL=1, it is pure Python: no serving.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ZIG = "ziglang==0.17.0"
"""Compiles libraries for an old glibc on any machine, and needs nothing but this package."""
OLDEST_GLIBC = (2, 28)
"""No wheel claims to run on an older one: nobody has tried it."""


class LibrariesHook(BuildHookInterface[Any]):
    """Puts each library where its Python package looks for it."""

    def dependencies(self) -> list[str]:
        """A wheel for other machines is compiled with ziglang, unless $CXX names a compiler."""
        return [ZIG] if self._with_libraries() and not os.environ.get("CXX") else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile: for this machine in an editable install, otherwise for others too."""
        if not self._with_libraries():
            return
        build, glibc = self._module("build"), self._module("glibc")
        try:
            command = build.compiler() if version == "editable" else build.portable_compiler()
            libraries = build.build_all(command=command)
        except build.CannotBuild as error:
            self.app.abort(
                f"{error}\nWith DRAGOMAN_PURE_WHEEL=1 the package is built without serving, which needs no compiler."
            )
        needed = max(OLDEST_GLIBC, *map(glibc.oldest_glibc, libraries))
        build_data["artifacts"] += [library.relative_to(self.root).as_posix() for library in libraries]
        build_data["pure_python"], build_data["infer_tag"] = False, False
        build_data["tag"] = f"py3-none-manylinux_{needed[0]}_{needed[1]}_x86_64"

    def _with_libraries(self) -> bool:
        return os.environ.get("DRAGOMAN_PURE_WHEEL") != "1" and bool(self._module("build").supported())

    def _module(self, name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"dragoman_{name}", Path(self.root) / "native" / f"{name}.py")
        assert spec is not None  # noqa: S101 - it is a file of ours
        assert spec.loader is not None  # noqa: S101
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
