"""Forced decoding of many tokens of a target at once: the log-probability of each token, and its attention to the source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from dragoman.export.lowering.native import operators
from dragoman.export.lowering.native.modules import TiledOutput
from dragoman.export.lowering.native.native_operators import LayerCache, NativeOperators
from dragoman.export.lowering.signature import Signature
from dragoman.export.transformer import AttentionShape, Transformer, TransformerConfig
from dragoman.export.transformer.forced import head_weights
from dragoman.export.transformer.layers import Step
from dragoman.export.transformer.operators import Norm

__all__ = ["ForcedGraph", "forced_arguments", "forced_signature"]


class Memory(NamedTuple):
    """A layer's keys and values of the source, and the weights of its heads in the alignment if it contributes to it."""

    source: Tensor  # (source, 2 · width)
    heads: Tensor | None  # (heads,)


class TargetOperators(NativeOperators):
    """The rows of a step are consecutive tokens of one target; alignments are summed over the layers.

    After the last layer that contributes to them only the scored tokens continue: none, if only alignments are requested.
    """

    def __init__(self, scored: Tensor, positions: Tensor, aligning_layers: int) -> None:
        """`scored` (scored,): which of the tokens."""
        self.alignment: Tensor | None = None  # (tokens, source)
        self._scored, self._positions, self._layers_left = scored, positions, aligning_layers
        self._stream_is_whole = True  # the residual stream has a row for each token

    def step_attention(
        self,
        packed: Tensor,
        past: LayerCache,
        positions: Tensor,  # noqa: ARG002 - of all tokens
        shape: AttentionShape,
        bias: Tensor | None,
    ) -> tuple[Tensor, LayerCache]:
        return operators.target_attention(packed, past.cache, self._positions, past.layer, shape, bias), past

    def cross_attention(  # type: ignore[override]
        self,
        query: Tensor,
        memory: Memory,
        lengths: None,  # noqa: ARG002
        shape: AttentionShape,
    ) -> Tensor:
        seen, alignment = operators.aligned_attention(query, memory.source, shape, memory.heads)
        if alignment is not None:
            self.alignment = alignment if self.alignment is None else self.alignment + alignment
            self._layers_left -= 1
            if self._layers_left == 0:
                seen, self._positions = self._of_scored(seen), self._of_scored(self._positions)
        return seen

    def add_norm(self, x: Tensor, update: Tensor, norm: Norm) -> Tensor:
        return super().add_norm(self._stream(x), update, norm)

    def add_then_norm(self, x: Tensor, update: Tensor, norm: Norm) -> tuple[Tensor, Tensor]:
        return super().add_then_norm(self._stream(x), update, norm)

    def _stream(self, x: Tensor) -> Tensor:
        """The residual stream, as many rows as the update has that it is added to."""
        if self._layers_left or not self._stream_is_whole:
            return x
        self._stream_is_whole = False
        return self._of_scored(x)

    def _of_scored(self, rows: Tensor) -> Tensor:
        return rows.index_select(0, self._scored)


class ForcedGraph(nn.Module):
    """One encoded source, and tokens of its target, whose keys and values join those of earlier ones."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model
        for layer, weights in head_weights(model.config).items():
            self.register_buffer(f"heads_{layer}", weights, persistent=False)

    def forward(  # noqa: PLR0917 - the graph's inputs
        self,
        tokens: Tensor,  # (tokens,)
        targets: Tensor,  # (scored,): what follows each of the first tokens; none where only the alignment is asked.
        # Later pieces of the target can be scored only if all of these are: the others have no keys in the last layers.
        positions: Tensor,  # (tokens,)
        self_cache: Tensor,  # (layers, self_slots, 2 · width)
        candidates: Tensor,  # (1,)
        memories: Sequence[Tensor],  # of each layer (source, 2 · width)
        shortlists: Tensor | None = None,  # (1,), where languages have lists
    ) -> list[Tensor]:
        model, scored = self.model, torch.arange(targets.shape[0])
        target_operators = TargetOperators(scored, positions, len(head_weights(model.config)))
        seen = [Memory(memory, getattr(self, f"heads_{layer}", None)) for layer, memory in enumerate(memories)]
        pasts = [LayerCache(self_cache, positions, layer) for layer in range(len(memories))]
        hidden, _ = model.decoder(
            model.target_embedding,
            tokens,
            seen,
            pasts,
            Step(positions, None, target_operators),  # type: ignore[arg-type]
        )
        # The scored tokens come behind the best; the caller leaves them out there.
        best, log_probs, _ = cast(TiledOutput, model.output).best(hidden, candidates, targets[:, None], shortlists)
        return [log_probs[:, -1], cast(Tensor, target_operators.alignment), best, log_probs]


def forced_signature(config: TransformerConfig) -> Signature:
    """One source and some consecutive tokens of its target; the slot of a token in the cache is its position."""
    layers, slot = config.decoder_layers, 2 * config.decoder_attention.width
    return Signature(
        inputs={
            "tokens": ("tokens",),
            "targets": ("scored",),
            "positions": ("tokens",),
            "self_cache": (layers, "self_slots", slot),
            "candidates": (1,),
            **({"shortlists": (1,)} if config.shortlists else {}),
            **{f"cross_{layer}": ("source", slot) for layer in range(layers)},
        },
        outputs={
            "log_probs": ("scored",),
            "alignment": ("tokens", "source"),
            "best_tokens": ("scored", "k"),
            "best_log_probs": ("scored", "k"),
        },
    )


def forced_arguments(by_name: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs by their name in the graph to arguments of `forward`, where layers are a list."""
    memories = [value for name, value in by_name.items() if name.startswith("cross_")]
    return {name: value for name, value in by_name.items() if not name.startswith("cross_")} | {"memories": memories}
