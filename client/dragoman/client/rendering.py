"""A translation as a line of output."""

from __future__ import annotations

import dataclasses
import json
from typing import Literal

from dragoman.client.results import Translation

__all__ = ["OutputFormat", "as_json", "as_line"]

OutputFormat = Literal["text", "json"]
"""The text alone, or one JSON object per line with everything else that is known."""


def as_json(translation: Translation) -> str:
    """One JSON object on one line."""
    return json.dumps(dataclasses.asdict(translation), ensure_ascii=False)


def as_line(translation: Translation, output_format: OutputFormat) -> str:
    """The translation as `output_format` wants it, never more than one line."""
    return as_json(translation) if output_format == "json" else " ".join(translation.text.splitlines())
