"""Triton looks here for a class of this name; what it does is in the package."""

from dragoman.serving.triton.models import DecoderModel as TritonPythonModel

__all__ = ["TritonPythonModel"]
