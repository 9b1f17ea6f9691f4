"""Which tokens a model may generate, from a text in its target language."""

from __future__ import annotations

from pathlib import Path

from dragoman.bundle.tokenizer import Tokenizer
from dragoman.errors import UsageError
from dragoman.export.checkpoint import Checkpoint

__all__ = ["read_shortlist"]


def read_shortlist(path: Path, tokenizer: Tokenizer, checkpoint: Checkpoint) -> tuple[int, ...]:
    """The tokens of the text, the special ones, and all single characters, so that every word can still be spelt."""
    tokens, generation = checkpoint.tokens, checkpoint.generation
    listed = {*tokens.ends, tokens.unknown, generation.forced_bos, generation.forced_eos} - {None}
    in_text = {token for line in _lines(path) for token in tokenizer.encode_target(line)}
    spelt = {token for token in range(checkpoint.config.target_vocabulary) if len(tokenizer.decode([token])) == 1}
    return tuple(sorted(token for token in listed | in_text | spelt if token is not None))


def _lines(path: Path) -> list[str]:
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except OSError as error:
        raise UsageError(f"--shortlist {path} can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"--shortlist {path} is not UTF-8 (byte {error.start})") from error
    if not lines:
        raise UsageError(f"--shortlist {path} is empty; put sentences in the target language there, one on each line")
    return lines
