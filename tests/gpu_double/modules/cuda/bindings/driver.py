"""The double's CUDA driver as a module."""

from cuda.bindings.runtime import DOUBLE

cuuint64_t = DOUBLE.cuuint64_t
