"""Prometheus text, read."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Sample", "parse", "total"]

_LINE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?")
_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of the format."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


def parse(text: str) -> list[Sample]:
    """Every sample; comments and lines that are none are left out."""
    samples = []
    for line in text.splitlines():
        match = None if line.startswith("#") else _LINE.fullmatch(line.strip())
        if match is None:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        samples.append(Sample(match[1], tuple(_labels(match[2] or "")), value))
    return samples


def _labels(text: str) -> list[tuple[str, str]]:
    return [(name, _ESCAPED.sub(_unescaped, value)) for name, value in _LABEL.findall(text)]


def _unescaped(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]


def total(samples: list[Sample], name: str) -> float | None:
    """The sum over all label sets of a metric; None when the server does not have it."""
    values = [sample.value for sample in samples if sample.name == name]
    return sum(values) if values else None
