"""Standard operators only: for TensorRT, CUDA and any other runtime."""

from dragoman.export.lowering.portable.lowering import MAX_CANDIDATES, PortableLowering

__all__ = ["MAX_CANDIDATES", "PortableLowering"]
