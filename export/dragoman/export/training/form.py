"""The same module that is exported, run over whole targets: what step t sees is masked instead of not yet there."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812 - as all of torch's users write it
from torch import Tensor, nn

from dragoman.export.checkpoint.weights import JOINED
from dragoman.export.transformer import AttentionShape, KeyValue, TorchOperators, Transformer, TransformerConfig
from dragoman.export.transformer.attention import attention, join_heads, split_heads
from dragoman.export.transformer.linear import LayerNorm, Linear, Map, RMSNorm
from dragoman.export.transformer.model import Embedding
from dragoman.export.transformer.operators import Past
from dragoman.export.transformer.positions import PositionTable, RelativeBias

__all__ = ["TrainingForm", "initialise", "label_smoothed_loss", "warm_up"]


class TrainingForm(nn.Module):
    """A Transformer that learns: `form(source, lengths, target)` gives the logits of every target position."""

    def __init__(self, config: TransformerConfig, dropout: float = 0.1) -> None:
        super().__init__()
        self.model = Transformer(config)
        self._operators = _WholeTargets(nn.Dropout(dropout))
        self.dropout = self._operators.dropout  # registered here, so that train() and eval() reach it
        initialise(self.model)

    def forward(self, source: Tensor, source_lengths: Tensor, target: Tensor) -> Tensor:
        """source (batch, source), lengths (batch,), target (batch, target), from the start token on.

        The result (batch, target, vocabulary) has at place t the logits of the token that follows target[t].
        """
        batch, length = target.shape
        positions = torch.arange(length, dtype=torch.int32).expand(batch, length)
        memories = self.model.encode(source, source_lengths, self._operators)
        pasts = [None] * len(memories)
        logits, _ = self.model.step(target, positions, source_lengths, memories, pasts, self._operators)
        return logits.reshape(batch, length, -1)


class _WholeTargets(TorchOperators):
    """A decoder "step" of all tokens of a target at once: what are a group's beams while decoding are its places here.

    Dropout as in the paper: on the embeddings and on the output of every sublayer.
    """

    def __init__(self, dropout: nn.Dropout) -> None:
        self.dropout = dropout

    def embed(self, embedding: Map, tokens: Tensor, scale: float, table: PositionTable | None, positions: Tensor) -> Tensor:
        dropped: Tensor = self.dropout(super().embed(embedding, tokens, scale, table, positions))
        return dropped

    def step_bias(self, bias: RelativeBias, past: Past, positions: Tensor) -> Tensor:  # noqa: ARG002
        """(1, heads, target, target)."""
        return bias(positions[:1].long(), positions[0].long())

    def step_attention(
        self,
        packed: Tensor,
        past: Past,
        positions: Tensor,  # noqa: ARG002 - they are 0, 1, 2, …
        shape: AttentionShape,
        bias: Tensor | None,
    ) -> tuple[Tensor, Past]:
        """packed (batch, target, 3·inner): each token sees those before it, and itself."""
        query, key, value = (split_heads(part, shape) for part in packed.chunk(3, dim=-1))
        place = torch.arange(packed.shape[1])
        visible = place <= place[:, None]  # (target, target)
        return join_heads(attention(query, KeyValue(key, value), shape.scale, visible, bias)), past

    def add_norm(self, x: Tensor, update: Tensor, norm: LayerNorm | RMSNorm) -> Tensor:
        return super().add_norm(x, self.dropout(update), norm)

    def add_then_norm(self, x: Tensor, update: Tensor, norm: LayerNorm | RMSNorm) -> tuple[Tensor, Tensor]:
        return super().add_then_norm(x, self.dropout(update), norm)


def initialise(model: Transformer) -> None:
    """Random weights that can learn: Glorot's uniform for matrices, d^(−1/2) for embeddings, norms that change nothing."""
    for parameter in model.parameters():
        parameter.requires_grad_(True)
    for name, module in model.named_modules():
        if isinstance(module, Linear):
            joined = len(JOINED.get(name.rpartition(".")[2], ("one",)))
            inputs, outputs = module.weight.shape
            bound = math.sqrt(6 / (inputs + outputs / joined))  # queries, keys and values are matrices of their own
            nn.init.uniform_(module.weight, -bound, bound)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, (LayerNorm, RMSNorm)):
            nn.init.ones_(module.weight)
            if isinstance(module, LayerNorm):
                nn.init.zeros_(module.bias)
        elif isinstance(module, (Embedding, PositionTable, RelativeBias)) and isinstance(module.weight, nn.Parameter):
            nn.init.normal_(module.weight, 0.0, module.weight.shape[-1] ** -0.5)
    if not model.config.tied_output:
        nn.init.normal_(model.output.weight, 0.0, model.config.d_model**-0.5)
    if isinstance(model.output.bias, nn.Parameter):
        nn.init.zeros_(model.output.bias)


def warm_up(step: int, d_model: int, warm_up_steps: int) -> float:
    """The paper's learning rate: d^(−1/2) · min(step^(−1/2), step · warm_up^(−3/2)), with steps from 1."""
    return float(d_model**-0.5 * min(step**-0.5, step * warm_up_steps**-1.5))


def label_smoothed_loss(logits: Tensor, expected: Tensor, pad: int, smoothing: float = 0.1) -> Tensor:
    """Cross-entropy per token; logits (batch, target, vocabulary), expected (batch, target) with `pad` where nothing is."""
    return F.cross_entropy(logits.flatten(0, 1), expected.flatten(), ignore_index=pad, label_smoothing=smoothing)
