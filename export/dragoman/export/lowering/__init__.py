"""Three ways of writing one Transformer as ONNX operators."""

from dragoman.export.lowering.cpu import CpuLowering
from dragoman.export.lowering.fused import FusedLowering, can_be_fused
from dragoman.export.lowering.portable import PortableLowering
from dragoman.export.lowering.protocol import Best, Cells, KeyValue, Lowering, Sources

__all__ = [
    "Best",
    "Cells",
    "CpuLowering",
    "FusedLowering",
    "KeyValue",
    "Lowering",
    "PortableLowering",
    "Sources",
    "can_be_fused",
]
