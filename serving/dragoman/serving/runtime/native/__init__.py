"""A bundle's graphs with custom operators on the CPU."""

from dragoman.serving.runtime.native.runtime import NativeRuntime

__all__ = ["NativeRuntime"]
