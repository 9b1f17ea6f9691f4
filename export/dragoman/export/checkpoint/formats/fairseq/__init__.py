"""Checkpoints of fairseq's Transformer."""

from dragoman.export.checkpoint.formats.fairseq.format import FairseqFormat

__all__ = ["FairseqFormat"]
