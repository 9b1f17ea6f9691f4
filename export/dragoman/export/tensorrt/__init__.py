"""TensorRT engines from the portable graphs, built ahead of time for GPUs that need not be present."""

from dragoman.export.tensorrt.engines import build_engines
from dragoman.export.tensorrt.options import BuildOptions, ProfileLimits, parse_capabilities
from dragoman.export.tensorrt.rebuild import rebuild_engines
from dragoman.export.tensorrt.toolchain import Toolchain, find_toolchain

__all__ = [
    "BuildOptions",
    "ProfileLimits",
    "Toolchain",
    "build_engines",
    "find_toolchain",
    "parse_capabilities",
    "rebuild_engines",
]
