"""Chooses the reference of an export: an independent implementation if it is installed, else dragoman's own module."""

from __future__ import annotations

import importlib.util

from dragoman.export.checkpoint import Checkpoint
from dragoman.export.verification.answers import Original

__all__ = ["open_reference"]


def open_reference(checkpoint: Checkpoint) -> Original:
    """The checkpoint's reference. Its name says which it is, and goes to the report and the manifest."""
    reference = checkpoint.reference
    if reference is None or importlib.util.find_spec(reference.library) is None:
        from dragoman.export.verification.eager import EagerModel

        return EagerModel(checkpoint.model, checkpoint.tokens)
    if reference.library == "torch":
        from dragoman.export.verification.torch_transformer import TorchTransformerModel

        return TorchTransformerModel(reference.path, checkpoint.tokens)
    if reference.library == "ctranslate2":
        from dragoman.export.verification.ctranslate2_model import CTranslate2Original

        return CTranslate2Original(reference.path, checkpoint.config, checkpoint.tokens)
    from dragoman.export.verification.original import HuggingFaceModel

    return HuggingFaceModel(reference.path, checkpoint.tokens)
