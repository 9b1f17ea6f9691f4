"""Layers without time: linear maps, normalisation, the feed-forward network."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812 - as all of torch's users write it
from torch import Tensor, nn

from dragoman.export.transformer.config import Activation, Norm, TransformerConfig

__all__ = ["FeedForward", "LayerNorm", "Linear", "RMSNorm", "make_norm"]

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}


class Linear(nn.Module):
    """xW + b, with W stored (inputs, outputs): the order MatMul wants, so that no graph ever transposes a weight."""

    def __init__(self, inputs: int, outputs: int, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs), requires_grad=False)
        self.bias = nn.Parameter(torch.empty(outputs), requires_grad=False) if bias else None

    def forward(self, x: Tensor) -> Tensor:  # (…, inputs) -> (…, outputs)
        product = torch.matmul(x, self.weight)
        return product if self.bias is None else product + self.bias


class LayerNorm(nn.Module):
    """(x − mean(x)) / sqrt(var(x) + ε) · γ + β, over the last dimension."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width), requires_grad=False)  # γ
        self.bias = nn.Parameter(torch.empty(width), requires_grad=False)  # β
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.epsilon)


class RMSNorm(nn.Module):
    """x / sqrt(mean(x²) + ε) · γ: a layer norm that neither centres nor shifts."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width), requires_grad=False)  # γ
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        mean_square = x.float().square().mean(-1, keepdim=True)  # float32: squares overflow float16
        return (x * torch.rsqrt(mean_square + self.epsilon)).to(x.dtype) * self.weight


def make_norm(kind: Norm, width: int, epsilon: float) -> LayerNorm | RMSNorm:
    """The normalisation the configuration names."""
    return LayerNorm(width, epsilon) if kind == "layer" else RMSNorm(width, epsilon)


class FeedForward(nn.Module):
    """act(xW₁ + b₁)W₂ + b₂, or with a gate (act(xW_g) ⊙ xW₁)W₂, at every position alike."""

    def __init__(self, config: TransformerConfig, hidden: int) -> None:
        super().__init__()
        bias = config.feed_forward_bias
        self.inner = Linear(config.d_model, hidden, bias)
        self.gate = Linear(config.d_model, hidden, bias) if config.gated else None
        self.outer = Linear(hidden, config.d_model, bias)
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x: Tensor) -> Tensor:  # (…, d_model) -> (…, d_model)
        if self.gate is None:
            return self.outer(self.activation(self.inner(x)))
        return self.outer(self.activation(self.gate(x)) * self.inner(x))
