"""The double's CUDA as a module."""

from gpu_double.cuda import CudaDouble

DOUBLE = CudaDouble()
globals().update({name: getattr(DOUBLE, name) for name in dir(DOUBLE) if name.startswith("cuda")})
