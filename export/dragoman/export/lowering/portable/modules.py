"""The modules that portable graphs are traced from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from dragoman.export.transformer import KeyValue, TorchOperators, Transformer
from dragoman.export.transformer.forced import places_of

__all__ = ["DecoderGraph", "EncoderGraph", "pairs", "picked", "step_arguments"]

T = TypeVar("T")


class EncoderGraph(nn.Module):
    """Sources to the cross-attention keys and values of every decoder layer."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, source_ids: Tensor, source_lengths: Tensor) -> list[Tensor]:
        return _flat(self.model.encode(source_ids, source_lengths, TorchOperators()))


class DecoderGraph(nn.Module):
    """One step: the past and one token per row to the best next tokens, the scores of chosen tokens, and the present."""

    def __init__(self, model: Transformer, candidates: int) -> None:
        super().__init__()
        self.model, self.candidates = model, candidates
        self.register_buffer("places", places_of(model.output), persistent=False)

    places: Tensor | None

    def forward(  # noqa: PLR0917 - the graph's inputs
        self,
        tokens: Tensor,  # (groups, width)
        positions: Tensor,  # (groups, width)
        source_lengths: Tensor,  # (groups,)
        memories: Sequence[Tensor],  # key, value, key, value … (groups, heads, source, head_dim)
        pasts: Sequence[Tensor],  # key, value, key, value … (past_rows, heads, cache, head_dim)
        parents: Tensor,  # (rows,)
        scored_tokens: Tensor,  # (rows, any number)
    ) -> list[Tensor]:
        pasts = [past.index_select(0, parents) for past in pasts]
        logits, presents = self.model.step(
            tokens, positions, source_lengths, pairs(memories), pairs(pasts), TorchOperators()
        )
        logits = logits.float()
        of_all = logits.log_softmax(-1)
        log_probs, places = of_all.topk(self.candidates, dim=-1)
        best = [self.model.output.tokens(places), log_probs, logits.gather(-1, places)]
        return [*best, *(picked(numbers, scored_tokens, self.places) for numbers in (of_all, logits)), *_flat(presents)]


def step_arguments(by_name: Mapping[str, T]) -> dict[str, T | list[T]]:
    """Inputs by their name in the graph to arguments by their name in `forward`, where layers are lists.

    In the same order, which is that of the graph's inputs.
    """
    arguments: dict[str, T | list[T]] = {}
    layers: dict[str, list[T]] = {"cross": [], "self": []}
    for name, value in by_name.items():
        kind = name.partition("_")[0]
        if kind in layers:
            layers[kind].append(value)
            arguments["memories" if kind == "cross" else "pasts"] = layers[kind]
        else:
            arguments[name] = value
    return arguments


def picked(numbers: Tensor, tokens: Tensor, places: Tensor | None) -> Tensor:
    """Of `numbers` (rows, choices), those of `tokens` (rows, any number); -inf for what the model does not choose among.

    `places` of the tokens among the choices; None where a token is its own place.
    """
    if places is not None:
        tokens = places[tokens]
    found = numbers.gather(-1, tokens.clamp(min=0))
    return found if places is None else torch.where(tokens < 0, torch.full((), -torch.inf), found)


def pairs(tensors: Sequence[Tensor]) -> list[KeyValue]:
    """Key, value, key, value … by layer."""
    return [KeyValue(key, value) for key, value in zip(tensors[::2], tensors[1::2], strict=True)]


def _flat(pairs: Sequence[KeyValue]) -> list[Tensor]:
    return [tensor for pair in pairs for tensor in pair]
