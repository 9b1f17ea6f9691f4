"""What to build engines for: the flavour, the GPUs and the largest shapes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from dragoman.errors import UsageError

__all__ = ["BuildOptions", "Flavour", "ProfileLimits", "parse_capabilities"]

Flavour: TypeAlias = Literal["tensorrt", "tensorrt_rtx"]
"""`tensorrt`: plans for the GPU of this machine. `tensorrt_rtx`: engines for many GPUs, built on any machine."""

_CAPABILITY = re.compile(r"\d{1,2}\.\d")


@dataclass(frozen=True, slots=True)
class ProfileLimits:
    """The largest shapes an engine takes, at first those of a server's defaults; None leaves it to the model's own limit.

    `max_batch` rows are decoded together: so many sequences greedily, fewer as beams. Each cache bucket is an optimisation
    profile of the decoder: short caches get kernels of their own instead of those that were chosen for the longest one.
    """

    max_batch: int = 128
    max_beams: int = 16
    max_source_tokens: int | None = None
    cache_buckets: tuple[int, ...] = (32, 128)

    def __post_init__(self) -> None:
        for name in ("max_batch", "max_beams", "max_source_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name}={value} must be at least 1")
        if any(bucket < 1 for bucket in self.cache_buckets) or list(self.cache_buckets) != sorted(set(self.cache_buckets)):
            raise UsageError(f"cache_buckets={self.cache_buckets} must rise, and start at 1 or more")


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """How engines are built; None leaves the choice to what is installed and what the graphs need."""

    flavour: Flavour | None = None
    compute_capabilities: tuple[str, ...] | None = None
    limits: ProfileLimits = field(default_factory=ProfileLimits)
    scores: bool = True
    """Whether the graph of forced decoding gets an engine, which holds the decoder's weights a second time."""

    def __post_init__(self) -> None:
        if (
            self.compute_capabilities is not None
            and parse_capabilities(self.compute_capabilities) != self.compute_capabilities
        ):
            raise UsageError(f"compute_capabilities={self.compute_capabilities} must rise and name each GPU generation once")


def parse_capabilities(texts: Iterable[str]) -> tuple[str, ...]:
    """Compute capabilities as a person writes them, "8.6" or "8.6,12.0", in rising order and each once."""
    found = {part.strip() for text in texts for part in text.split(",")} - {""}
    if not found:
        raise UsageError("no compute capability was given; name at least one, such as 8.6")
    if wrong := sorted(part for part in found if not _CAPABILITY.fullmatch(part)):
        raise UsageError(f"compute capability {', '.join(map(repr, wrong))} is not a number such as 8.6")
    return tuple(sorted(found, key=float))
