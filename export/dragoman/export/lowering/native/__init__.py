"""The custom operators of `native/ops`: tokens without padding, caches whose slots are named by the inputs."""

from dragoman.export.lowering.native.lowering import NativeLowering

__all__ = ["NativeLowering"]
