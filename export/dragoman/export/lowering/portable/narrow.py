"""float16 and bfloat16 for GPUs: a copy of a model that computes in them."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor, nn

from dragoman.errors import ExportError
from dragoman.export.transformer import ShortOutputProjection, Transformer

__all__ = ["computed_in"]


def computed_in(dtype: torch.dtype, model: Transformer, keep_in_fp32: Collection[str] = ()) -> Transformer:
    """A copy of `model` that computes in `dtype`, but for the modules named in `keep_in_fp32` and all inside them.

    Nothing is inserted around a module that stays: every layer computes in the type of its own weights, and torch's
    promotion of float16 + float32 carries the residual safely to the next norm. `model` itself is left as it was.
    """
    modules = {name for name, _ in model.named_modules()}
    if unknown := sorted(set(keep_in_fp32) - modules):
        raise ExportError(f"can't keep {', '.join(unknown)} in fp32: the model has no such modules")
    with torch.device("meta"):
        copy = Transformer(model.config)
        if isinstance(model.output, ShortOutputProjection):
            copy = copy.shortened(range(model.choices))
    narrowed: dict[int, Tensor] = {}  # tied weights stay tied

    def narrow(tensor: Tensor, kept: bool) -> Tensor:
        if kept or not tensor.is_floating_point():
            return tensor
        if id(tensor) not in narrowed:
            narrowed[id(tensor)] = tensor.detach().to(dtype)
        return narrowed[id(tensor)]

    for path, module in model.named_modules():
        kept = any(path == name or path.startswith(f"{name}.") for name in keep_in_fp32)
        target = copy.get_submodule(path)
        for name, tensor in module.named_parameters(recurse=False):
            target.register_parameter(name, nn.Parameter(narrow(tensor, kept), requires_grad=False))
        for name, tensor in module.named_buffers(recurse=False):
            target.register_buffer(name, narrow(tensor, kept), persistent=False)
    return copy.eval()
