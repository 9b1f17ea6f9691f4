"""Triton looks here for a class of this name; what it does is in the package."""

from dragoman.serving.triton.models import TranslateModel as TritonPythonModel

__all__ = ["TritonPythonModel"]
