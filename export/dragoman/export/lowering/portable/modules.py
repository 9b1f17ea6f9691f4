"""The modules that portable graphs are traced from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from torch import Tensor, nn

from dragoman.bundle.manifest import Role
from dragoman.export.transformer import KeyValue, TorchOperators, Transformer

__all__ = ["DecoderGraph", "EncoderGraph", "pairs", "step_arguments"]

T = TypeVar("T")


class EncoderGraph(nn.Module):
    """Sources to the cross-attention keys and values of every decoder layer."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, source_ids: Tensor, source_lengths: Tensor) -> list[Tensor]:
        return _flat(self.model.encode(source_ids, source_lengths, TorchOperators()))


class DecoderGraph(nn.Module):
    """One step: past and one token a row to the best next tokens and the present."""

    def __init__(self, model: Transformer, candidates: int) -> None:
        super().__init__()
        self.model, self.candidates = model, candidates

    def forward(  # noqa: PLR0917 - the graph's inputs
        self,
        tokens: Tensor,  # (groups, width)
        positions: Tensor,  # (groups, width)
        source_lengths: Tensor,  # (groups,)
        memories: Sequence[Tensor],  # key, value, key, value … (groups, heads, source, head_dim)
        pasts: Sequence[Tensor],  # key, value, key, value … (past_rows, heads, cache, head_dim)
        parents: Tensor,  # (rows,)
    ) -> list[Tensor]:
        pasts = [past.index_select(0, parents) for past in pasts]
        logits, presents = self.model.step(
            tokens, positions, source_lengths, pairs(memories), pairs(pasts), TorchOperators()
        )
        logits = logits.float()
        log_probs, places = logits.log_softmax(-1).topk(self.candidates, dim=-1)
        return [self.model.output.tokens(places), log_probs, logits.gather(-1, places), *_flat(presents)]


def step_arguments(role: Role, by_name: Mapping[str, T]) -> dict[str, T | list[T]]:
    """Inputs by their name in the graph to arguments by their name in `forward`, where layers are lists."""
    if role == "encoder":
        return dict(by_name)
    layers = {
        prefix: [value for name, value in by_name.items() if name.startswith(prefix)] for prefix in ("cross_", "self_")
    }
    if role == "forced":
        return {name: by_name[name] for name in ("tokens", "targets", "source_lengths")} | {"memories": layers["cross_"]}
    arguments: dict[str, T | list[T]] = {name: by_name[name] for name in ("tokens", "positions", "source_lengths")}
    arguments |= {"memories": layers["cross_"], "pasts": layers["self_"], "parents": by_name["parents"]}
    return arguments


def pairs(tensors: Sequence[Tensor]) -> list[KeyValue]:
    """Key, value, key, value … by layer."""
    return [KeyValue(key, value) for key, value in zip(tensors[::2], tensors[1::2], strict=True)]


def _flat(pairs: Sequence[KeyValue]) -> list[Tensor]:
    return [tensor for pair in pairs for tensor in pair]
