"""Layers without time: linear maps, normalisation, the feed-forward network."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812 - as all of torch's users write it
from torch import Tensor, nn

from dragoman.export.transformer.config import Activation, Norm, TransformerConfig

__all__ = ["FeedForward", "LayerNorm", "Linear", "Map", "RMSNorm", "make_norm"]

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "gelu_sigmoid": lambda x: x * torch.sigmoid(1.702 * x),
    "silu": F.silu,
}


class Map(nn.Module):
    """A module that makes one tensor of one tensor; torch itself does not say what a call returns."""

    if TYPE_CHECKING:

        def __call__(self, x: Tensor) -> Tensor: ...


class Linear(Map):
    """xW + b, with W stored (inputs, outputs): the order MatMul wants, so that no graph ever transposes a weight.

    It computes in the type of its weights, whatever comes in.
    """

    def __init__(self, inputs: int, outputs: int, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs), requires_grad=False)
        self.bias = nn.Parameter(torch.empty(outputs), requires_grad=False) if bias else None

    def forward(self, x: Tensor) -> Tensor:  # (…, inputs) -> (…, outputs)
        product = torch.matmul(x.to(self.weight.dtype), self.weight)
        return product if self.bias is None else product + self.bias


class LayerNorm(Map):
    """(x − mean(x)) / sqrt(var(x) + ε) · γ + β, over the last dimension.

    It computes in the type of what comes in and answers in the type of its weights: the sum of a float16 stream and
    of a layer kept in float32 is float32, and only here, where it is small again, becomes float16.
    """

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width), requires_grad=False)  # γ
        self.bias = nn.Parameter(torch.empty(width), requires_grad=False)  # β
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = self.weight.to(x.dtype), self.bias.to(x.dtype)
        return F.layer_norm(x, weight.shape, weight, bias, self.epsilon).to(self.weight.dtype)


class RMSNorm(Map):
    """x / sqrt(mean(x²) + ε) · γ: a layer norm that neither centres nor shifts."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width), requires_grad=False)  # γ
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        mean_square = x.float().square().mean(-1, keepdim=True)  # float32: squares overflow float16
        return (x * torch.rsqrt(mean_square + self.epsilon)).to(self.weight.dtype) * self.weight


def make_norm(kind: Norm, width: int, epsilon: float) -> LayerNorm | RMSNorm:
    """The normalisation the configuration names."""
    return LayerNorm(width, epsilon) if kind == "layer" else RMSNorm(width, epsilon)


class FeedForward(Map):
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
