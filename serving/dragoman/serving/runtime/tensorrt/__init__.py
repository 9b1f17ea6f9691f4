"""Runs the TensorRT engines of a bundle on a GPU. Caches stay in the GPU's memory from the encoder to the last token."""

from dragoman.serving.runtime.tensorrt.runtime import TensorRtRuntime

__all__ = ["TensorRtRuntime"]
