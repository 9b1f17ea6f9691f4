"""A state dict of `torch.nn.Transformer`, described by a dragoman.json beside it."""

from dragoman.export.checkpoint.formats.torch_transformer.format import TorchTransformerFormat

__all__ = ["TorchTransformerFormat"]
