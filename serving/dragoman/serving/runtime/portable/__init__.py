"""A bundle's graphs of standard operators, on a CPU or on a GPU through CUDA."""

from dragoman.serving.runtime.portable.runtime import PortableRuntime

__all__ = ["PortableRuntime"]
