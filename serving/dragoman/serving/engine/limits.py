"""How much the engine may hold at once, and the memory that this takes: known before it starts."""

from __future__ import annotations

from dataclasses import dataclass

from dragoman.errors import ServeError
from dragoman.search import Words
from dragoman.serving.engine.kv_cache import CacheLayout
from dragoman.serving.engine.slots import KVSlots, bucket

__all__ = ["EngineLimits", "MemoryContract", "ModelFacts", "memory_contract"]


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What the engine must know of the model."""

    ends: tuple[int, ...]
    decoder_start: int
    source_vocabulary: int
    target_vocabulary: int
    max_source_tokens: int
    max_target_tokens: int
    shortlist: int | None = None
    """How many tokens of the target vocabulary can be generated, where not all can."""
    words: Words | None = None
    """Of the target vocabulary; terms that must occur need them."""

    @property
    def choices(self) -> int:
        """How many tokens a step chooses among."""
        return self.target_vocabulary if self.shortlist is None else self.shortlist


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Bounds of one engine. Rows are what a step decodes: a greedy request is one, a beam search of 4 is four."""

    max_rows: int = 128
    max_beam_size: int = 16
    row_candidates: int = 64
    """Next tokens per row that a search may consider in every step; sequences that need more take turns."""
    max_queue_requests: int = 1024
    max_queue_tokens: int = 65_536
    encode_tokens_per_step: int = 1024
    """Padded source tokens that may be encoded between two decoding steps; fewer where that would take too long."""
    target_tokens_per_row: int = 128
    """The self-attention cache has room for `max_rows` rows of so many tokens; a longer row takes the slots of others."""
    source_tokens_per_row: int = 128
    """The same for the cross-attention cache."""
    max_sessions: int = 64
    max_session_rows: int = 64
    max_step_candidates: int = 4 << 20
    """The limit for all rows of a session's step together: its answer has twelve bytes for each candidate."""
    session_idle_timeout_s: float = 60.0

    @property
    def step_candidates(self) -> int:
        """How many candidates the sequences of a step may have together; more only for one sequence that needs more by
        itself.
        """
        return self.max_rows * self.row_candidates

    @property
    def small_rows(self) -> int:
        """A sequence with more rows is large: small ones must not have to wait for it."""
        return max(self.max_rows // 16, 1)

    @property
    def small_slots(self) -> int:
        """The same for the KV slots that a sequence probably needs."""
        return max(4 * self.max_rows, 512)

    def kv_slots(self, model: ModelFacts) -> KVSlots:
        """KV slots of all batches together: at least one sequence of the widest beam and full length fits."""
        target = bucket(min(self.target_tokens_per_row, model.max_target_tokens))
        source = bucket(min(self.source_tokens_per_row, model.max_source_tokens))
        return KVSlots(
            max(self.max_rows * target, self.max_beam_size * bucket(model.max_target_tokens)),
            max(self.max_rows * source, bucket(model.max_source_tokens)),
        )

    def session_slots(self, model: ModelFacts) -> KVSlots:
        """KV slots of all client-driven sessions together."""
        target = bucket(min(self.target_tokens_per_row, model.max_target_tokens))
        source = bucket(min(self.source_tokens_per_row, model.max_source_tokens))
        return KVSlots(self.max_session_rows * target, self.max_session_rows * source)


@dataclass(frozen=True, slots=True)
class MemoryContract:
    """The most memory the engine takes for each purpose; `str()` prints it."""

    weights_bytes: int
    self_cache_bytes: int
    cross_cache_bytes: int
    session_cache_bytes: int
    growth_bytes: int
    """One layer of a cache exists twice while it is copied to a new shape."""
    workspace_bytes: int
    """Logits and probabilities of a full step, and the encoder's largest batch."""
    process_bytes: int = 240 * 2**20
    """Python and its libraries, 80 MiB, and texts, their parts and their answers."""

    @property
    def total_bytes(self) -> int:
        caches = self.self_cache_bytes + self.cross_cache_bytes + self.session_cache_bytes
        return self.process_bytes + self.weights_bytes + caches + self.growth_bytes + self.workspace_bytes

    def check(self, allowed_bytes: int) -> None:
        """ServeError when the engine might need more than `allowed_bytes`."""
        if self.total_bytes > allowed_bytes:
            raise ServeError(
                f"the model needs up to {_mib(self.total_bytes)} ({self}), more than the {_mib(allowed_bytes)} allowed; "
                "allow more (--max-memory) or decode fewer rows together (--max-batch)"
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
    """The memory that an engine with these limits may take.

    `widest_layer`: numbers per token in the feed-forward layer. `cache_copies`: 2 if a step reads one copy of the caches and
    writes another.
    """
    slot_bytes = cache_copies * layout.slot_bytes
    slots, sessions = limits.kv_slots(model), limits.session_slots(model)
    rows = max(limits.max_rows, limits.max_session_rows)
    logits = 3 * rows * model.choices * 4  # logits, log-probabilities and the sort of the best
    # Sources that are encoded, and others that were and wait for forced decoding.
    encoded = limits.encode_tokens_per_step * (4 * widest_layer * 4 + 2 * layout.slot_bytes)
    return MemoryContract(
        weights_bytes=weights_bytes,
        self_cache_bytes=slots.own * slot_bytes,
        cross_cache_bytes=slots.cross * slot_bytes,
        session_cache_bytes=sum(sessions) * slot_bytes,
        growth_bytes=max(slots) * slot_bytes // layout.layers,
        workspace_bytes=logits + encoded,
    )


def _mib(number: int) -> str:
    return f"{number / 2**20:,.0f} MiB"
