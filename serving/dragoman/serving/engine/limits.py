"""How much the engine may hold at once, and what that costs in memory: known before it starts."""

from __future__ import annotations

from dataclasses import dataclass

from dragoman.errors import ServeError
from dragoman.serving.engine.cache import CacheLayout
from dragoman.serving.engine.shapes import bucket

__all__ = ["EngineLimits", "MemoryContract", "ModelFacts", "memory_contract"]


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What the engine must know of the model."""

    eos: int
    decoder_start: int
    source_vocabulary: int
    target_vocabulary: int
    max_source_tokens: int
    max_target_tokens: int
    shortlist: int | None = None
    """How many tokens of the target vocabulary can be said, where not all can."""

    @property
    def choices(self) -> int:
        """How many tokens a step chooses among."""
        return self.target_vocabulary if self.shortlist is None else self.shortlist


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Bounds of one engine. Rows are what a step decodes: a greedy request is one, a beam search of 4 is four."""

    max_rows: int = 128
    max_beam_size: int = 16
    max_queue_requests: int = 1024
    max_queue_tokens: int = 65_536
    encode_tokens_per_step: int = 1024
    """Padded source tokens that may be encoded between two decoding steps."""
    target_tokens_per_row: int = 128
    """The self-attention cache has room for `max_rows` rows of so many tokens; a longer row takes others' room."""
    source_tokens_per_row: int = 128
    """The same for the cross-attention cache."""
    max_sessions: int = 64
    max_session_rows: int = 64
    session_idle_timeout_s: float = 60.0

    def self_cells(self, model: ModelFacts) -> int:
        """Token positions of the self-attention cache: at least one row-hungry request of full length fits."""
        usual = self.max_rows * bucket(min(self.target_tokens_per_row, model.max_target_tokens))
        return max(usual, self.max_beam_size * bucket(model.max_target_tokens))

    def session_cells(self, model: ModelFacts) -> tuple[int, int]:
        """Token positions of the self- and cross-attention caches of all client-driven sessions together."""
        target, source = (
            bucket(min(usual, most))
            for usual, most in (
                (self.target_tokens_per_row, model.max_target_tokens),
                (self.source_tokens_per_row, model.max_source_tokens),
            )
        )
        return self.max_session_rows * target, self.max_session_rows * source

    def cross_cells(self, model: ModelFacts) -> int:
        """Token positions of the cross-attention cache."""
        usual = self.max_rows * bucket(min(self.source_tokens_per_row, model.max_source_tokens))
        return max(usual, bucket(model.max_source_tokens))


@dataclass(frozen=True, slots=True)
class MemoryContract:
    """The most memory the engine takes for each purpose; `str()` prints it."""

    weights_bytes: int
    self_cache_bytes: int
    cross_cache_bytes: int
    session_cache_bytes: int
    growth_bytes: int
    """One layer of a cache is there twice while it is laid out anew."""
    workspace_bytes: int
    """Logits and probabilities of a full step, and the encoder's largest batch."""
    process_bytes: int = 80 * 2**20
    """Python and its libraries."""

    @property
    def total_bytes(self) -> int:
        caches = self.self_cache_bytes + self.cross_cache_bytes + self.session_cache_bytes
        return self.process_bytes + self.weights_bytes + caches + self.growth_bytes + self.workspace_bytes

    def check(self, allowed_bytes: int) -> None:
        """ServeError when the engine might need more than `allowed_bytes`."""
        if self.total_bytes > allowed_bytes:
            raise ServeError(
                f"the model needs up to {_mib(self.total_bytes)} ({self}), more than the {_mib(allowed_bytes)} allowed; "
                "allow more memory or fewer rows"
            )

    def __str__(self) -> str:
        caches = self.self_cache_bytes + self.cross_cache_bytes + self.growth_bytes
        return (
            f"weights {_mib(self.weights_bytes)}, caches {_mib(caches)}, client-driven sessions "
            f"{_mib(self.session_cache_bytes)}, workspace {_mib(self.workspace_bytes)}, process {_mib(self.process_bytes)}"
        )


def memory_contract(
    limits: EngineLimits,
    model: ModelFacts,
    layout: CacheLayout,
    weights_bytes: int,
    widest_layer: int,
    *,
    cache_copies: int = 1,
) -> MemoryContract:
    """What an engine with these limits may take.

    `widest_layer`: numbers a token has in the feed-forward layer. `cache_copies`: 2 where a step reads one copy of the
    caches and writes another.
    """
    cell_bytes = cache_copies * layout.cell_bytes
    own, cross = (cells * cell_bytes for cells in (limits.self_cells(model), limits.cross_cells(model)))
    rows = max(limits.max_rows, limits.max_session_rows)
    logits = 3 * rows * model.choices * 4  # logits, log-probabilities and the sort of the best
    encoded = limits.encode_tokens_per_step * (4 * widest_layer * 4 + layout.cell_bytes)
    sessions = sum(limits.session_cells(model))
    return MemoryContract(
        weights_bytes=weights_bytes,
        self_cache_bytes=own,
        cross_cache_bytes=cross,
        session_cache_bytes=sessions * cell_bytes,
        growth_bytes=max(own, cross) // layout.layers,
        workspace_bytes=logits + encoded,
    )


def _mib(number: int) -> str:
    return f"{number / 2**20:,.0f} MiB"
