"""The modules that graphs with caches of keys and values are traced from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from torch import Tensor, nn

from dragoman.bundle.manifest import Role
from dragoman.export.transformer import KeyValue, Operators, Transformer

__all__ = ["Best", "DecoderGraph", "EncoderGraph", "step_arguments"]

T = TypeVar("T")

Best = Callable[[Tensor, Tensor | None], tuple[Tensor, Tensor, Tensor]]
"""The best of logits (rows, vocabulary): places, log-probabilities and logits, each (rows, k)."""


class EncoderGraph(nn.Module):
    """Sources to the cross-attention keys and values of every decoder layer."""

    def __init__(self, model: Transformer, operators: Operators) -> None:
        super().__init__()
        self.model, self.operators = model, operators

    def forward(self, source_ids: Tensor, source_lengths: Tensor) -> list[Tensor]:
        return _flat(self.model.encode(source_ids, source_lengths, self.operators))


class DecoderGraph(nn.Module):
    """One step: past and one token a row to the best next tokens and the present."""

    def __init__(self, model: Transformer, operators: Operators, best: Best) -> None:
        super().__init__()
        self.model, self.operators, self.best = model, operators, best

    def forward(
        self,
        tokens: Tensor,  # (groups, width)
        positions: Tensor,  # (groups, width)
        source_lengths: Tensor,  # (groups,)
        memories: Sequence[Tensor],  # key, value, key, value … (groups, heads, source, head_dim)
        pasts: Sequence[Tensor],  # key, value, key, value … (past_rows, heads, cache, head_dim)
        *,
        parents: Tensor | None = None,  # (rows,)
        candidates: Tensor | None = None,  # (1,)
    ) -> list[Tensor]:
        if parents is not None:
            pasts = [past.index_select(0, parents) for past in pasts]
        logits, presents = self.model.step(
            tokens, positions, source_lengths, _pairs(memories), _pairs(pasts), self.operators
        )
        places, log_probs, best_logits = self.best(logits, candidates)
        return [self.model.output.tokens(places), log_probs, best_logits, *_flat(presents)]


def step_arguments(role: Role, by_name: Mapping[str, T]) -> dict[str, T | list[T]]:
    """Inputs by their name in the graph to arguments by their name in `forward`, where layers are lists."""
    if role == "encoder":
        return dict(by_name)
    stacks = {"memories": "cross_", "pasts": "self_"}
    arguments: dict[str, T | list[T]] = {}
    for argument in ("tokens", "positions", "source_lengths", "memories", "pasts", "parents", "candidates"):
        if argument in stacks:
            arguments[argument] = [value for name, value in by_name.items() if name.startswith(stacks[argument])]
        elif argument in by_name:
            arguments[argument] = by_name[argument]
    return arguments


def _pairs(tensors: Sequence[Tensor]) -> list[KeyValue]:
    return [KeyValue(key, value) for key, value in zip(tensors[::2], tensors[1::2], strict=True)]


def _flat(pairs: Sequence[KeyValue]) -> list[Tensor]:
    return [tensor for pair in pairs for tensor in pair]
