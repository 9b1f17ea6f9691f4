"""Optimisation profiles: the shapes of a graph's inputs, from its tensor specifications and the limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from dragoman.bundle.manifest import Dimensions, Graph, Profile
from dragoman.errors import EngineBuildError, UsageError
from dragoman.export.tensorrt.options import ProfileLimits

__all__ = ["profiles_of"]

USUAL_BATCH = 8
USUAL_BEAMS = 4
USUAL_SOURCE_TOKENS = 32
USUAL_TARGET_TOKENS = 32

MOST_SCORED_TOKENS = 128
"""Tokens of a row whose log-probabilities a step of a beam gives besides the best ones; the step is repeated for more."""

FORCED_TOKENS = 64
"""How many tokens of a target one run returns: logits of whole targets are large."""


class _Range(NamedTuple):
    """The values of one named dimension; the engine is tuned for the usual one."""

    minimum: int
    usual: int
    maximum: int

    def times(self, other: _Range) -> _Range:
        return _Range(*(one * two for one, two in zip(self, other, strict=True)))


ONE = _Range(1, 1, 1)
SCORED = _Range(1, 1, MOST_SCORED_TOKENS)


def profiles_of(graph: Graph, dimensions: Dimensions, limits: ProfileLimits) -> tuple[Profile, ...]:
    """One profile for an encoder and for forced decoding; for a decoder one a cache bucket and width: greedy rows, and
    beams."""
    source_tokens = _allowed_source_tokens(dimensions, limits)
    source = _up_to(source_tokens, USUAL_SOURCE_TOKENS)
    batch = _up_to(limits.max_batch, USUAL_BATCH)
    if graph.role == "encoder":
        return (_profile(graph, "all", {"batch": batch, "source": source}),)
    if graph.role == "forced":
        target = _up_to(dimensions.max_target_tokens, USUAL_TARGET_TOKENS)
        piece = _up_to(min(FORCED_TOKENS, dimensions.max_target_tokens), USUAL_TARGET_TOKENS)
        return (_profile(graph, "all", {"batch": ONE, "target": target, "piece": piece, "source": source}),)
    profiles: list[Profile] = []
    for kind, groups, width in _widths(limits):
        rows = groups.times(width)
        ranges = {"groups": groups, "width": width, "rows": rows, "past_rows": rows, "source": source}
        ranges["scored_tokens"] = ONE if width == ONE else SCORED  # a greedy search has no phrases
        profiles += [
            _profile(graph, f"{kind}, cache {cache.maximum}", {**ranges, "cache": cache})
            for cache in _cache_ranges(dimensions, limits)
        ]
    return tuple(profiles)


def _widths(limits: ProfileLimits) -> Iterator[tuple[str, _Range, _Range]]:
    """How many sequences of how many rows: `max_batch` rows of one sequence each; beams of two take half as many."""
    yield "greedy", _up_to(limits.max_batch, USUAL_BATCH), ONE
    if limits.max_beams > 1:
        most = max(limits.max_batch // 2, 1)
        width = _Range(2, min(USUAL_BEAMS, limits.max_beams), limits.max_beams)
        yield "beams", _up_to(most, USUAL_BATCH), width


def _up_to(most: int, usual: int) -> _Range:
    return _Range(1, min(usual, most), most)


def _allowed_source_tokens(dimensions: Dimensions, limits: ProfileLimits) -> int:
    wanted, held = limits.max_source_tokens, dimensions.max_source_tokens
    if wanted is not None and wanted > held:
        raise UsageError(f"max_source_tokens={wanted} is more than the model's {held}; engines can't be longer")
    return wanted if wanted is not None else held


def _cache_ranges(dimensions: Dimensions, limits: ProfileLimits) -> list[_Range]:
    """The buckets shorter than the model's longest target, and that one; the first that is long enough is meant.

    Each begins at 1, not where the one before ended: TensorRT-RTX crashes on beams whose caches begin elsewhere.
    """
    longest = dimensions.max_target_tokens
    ends = [*(bucket for bucket in limits.cache_buckets if bucket < longest), longest]
    # The caller rounds a cache up to its bucket, so that the longest length is also the usual one.
    return [_Range(1, end, end) for end in ends]


def _profile(graph: Graph, name: str, ranges: Mapping[str, _Range]) -> Profile:
    unknown = {
        dimension: tensor.name
        for tensor in graph.inputs
        for dimension in tensor.shape
        if isinstance(dimension, str) and dimension not in ranges
    }
    if unknown:
        listed = ", ".join(f"{dimension!r} of {tensor}" for dimension, tensor in unknown.items())
        raise EngineBuildError(f"{graph.file} has dimensions no profile knows: {listed} (known: {', '.join(ranges)})")

    def shapes(which: int) -> dict[str, tuple[int, ...]]:
        return {
            tensor.name: tuple(ranges[size][which] if isinstance(size, str) else size for size in tensor.shape)
            for tensor in graph.inputs
        }

    return Profile(name, minimum=shapes(0), usual=shapes(1), maximum=shapes(2))
