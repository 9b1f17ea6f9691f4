"""The custom operators of `native/ops`: tokens without padding, caches in which a row's past may lie anywhere."""

from dragoman.export.lowering.native.lowering import NativeLowering

__all__ = ["NativeLowering"]
