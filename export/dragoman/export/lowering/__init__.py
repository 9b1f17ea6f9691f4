"""Two ways of writing one Transformer as ONNX operators."""

from dragoman.export.lowering.cpu import CpuLowering
from dragoman.export.lowering.portable import PortableLowering
from dragoman.export.lowering.protocol import Best, KeyValue, Lowering

__all__ = ["Best", "CpuLowering", "KeyValue", "Lowering", "PortableLowering"]
