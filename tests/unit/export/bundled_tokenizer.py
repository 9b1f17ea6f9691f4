"""The tokenizer that a checkpoint's bundle has."""

from __future__ import annotations

from pathlib import Path

from dragoman.bundle.tokenizer import Tokenizer, open_tokenizer
from dragoman.export.checkpoint import Checkpoint


def bundled_tokenizer(checkpoint: Checkpoint, directory: Path) -> Tokenizer:
    """Written to `directory`, as an export does, and opened again, as a server does."""
    directory.mkdir(exist_ok=True)
    checkpoint.tokenizer_plan.write(directory)
    return open_tokenizer(directory, checkpoint.tokenizer, checkpoint.tokens)
