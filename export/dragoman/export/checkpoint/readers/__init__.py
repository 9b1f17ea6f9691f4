"""One small module for each architecture: its names for settings, weights and tokens."""

from __future__ import annotations

from dragoman.export.checkpoint.readers.bart import BartReader
from dragoman.export.checkpoint.readers.m2m100 import M2M100Reader
from dragoman.export.checkpoint.readers.marian import MarianReader
from dragoman.export.checkpoint.readers.mbart import MBartReader
from dragoman.export.checkpoint.readers.pegasus import PegasusReader
from dragoman.export.checkpoint.readers.protocol import Reader
from dragoman.export.checkpoint.readers.t5 import T5Reader

__all__ = ["READERS", "REFUSED", "Reader"]

READERS: dict[str, type[Reader]] = {
    name: reader
    for reader in (MarianReader, M2M100Reader, MBartReader, BartReader, PegasusReader, T5Reader)
    for name in reader.architectures
}

REFUSED = {
    "NllbMoeForConditionalGeneration": "its layers are mixtures of experts (54 billion parameters); export "
    "nllb-200-3.3B or nllb-200-distilled-1.3B instead",
    "SwitchTransformersForConditionalGeneration": "its layers are mixtures of experts; export a T5 or Flan-T5 instead",
    "LEDForConditionalGeneration": "its encoder attends within windows; export a BART summariser instead",
    "BigBirdPegasusForConditionalGeneration": "its encoder's attention is block-sparse; export a Pegasus instead",
    "LongT5ForConditionalGeneration": "its encoder attends within windows; export a T5, which has no limit of its own",
    "PegasusXForConditionalGeneration": "its encoder's attention is block-sparse; export a Pegasus instead",
    "FSMTForConditionalGeneration": "its tokenizer is not supported; export the corresponding OPUS-MT or NLLB model instead",
    "ProphetNetForConditionalGeneration": "it predicts several tokens at a time; export a BART instead",
    "BlenderbotForConditionalGeneration": "it is a dialogue model that truncates on the left; no export is planned",
}
"""Architectures that people try, with the reason and what to use instead."""
