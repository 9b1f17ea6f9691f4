"""ONNX Runtime's fused operators, in place."""

from dragoman.export.lowering.cpu.lowering import CpuLowering

__all__ = ["CpuLowering"]
