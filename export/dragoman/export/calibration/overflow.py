"""Finds the layers that fp16 can not hold, from all values of a run on real text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from dragoman.bundle.manifest import SpecialTokens
from dragoman.export.calibration.text import CalibrationText
from dragoman.export.progress import Advance
from dragoman.export.transformer import Transformer
from dragoman.export.transformer.linear import Linear
from dragoman.export.transformer.model import OutputProjection

__all__ = ["FP16_LIMIT", "find_overflowing"]

FP16_LIMIT = torch.finfo(torch.float16).max / 2
"""Half of what fp16 can hold: other text than the calibration's reaches further."""


def find_overflowing(model: Transformer, tokens: SpecialTokens, text: CalibrationText, advance: Advance) -> tuple[str, ...]:
    """The modules to keep in fp32, such as "decoder.layers.1.feed_forward", and no more than those.

    A number beyond FP16_LIMIT is blamed on the module whose operation made it out of smaller ones, and on every linear
    layer that takes it, because a linear layer brings its input to the type of its weights. Sums and norms after a
    module in fp32 need no help: they compute in the larger type of what they get.
    """
    watch = _Watch()
    with torch.inference_mode(), _scopes(model, watch), watch:
        text.run(model, tokens, advance)
    weights = model.named_parameters(remove_duplicate=False)  # a tied weight is blamed on all its modules
    heavy = {name.rpartition(".")[0] for name, weight in weights if _too_large(weight)}
    return _outermost({_sublayer(name) for name in watch.overflowing | heavy if name})


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the inputs and outputs of every operation, and which module runs it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.scope: list[str] = [""]
        self.overflowing: set[str] = set()

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401
        types: Any,  # noqa: ANN401
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        result = func(*args, **(kwargs or {}))
        if any(map(_too_large, _tensors([result]))) and not any(map(_too_large, _tensors(args))):
            self.overflowing.add(self.scope[-1])
        return result

    def enter(self, name: str, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        """The module called `name` begins."""
        self.scope.append(name)
        if isinstance(module, (Linear, OutputProjection)) and any(map(_too_large, _tensors(inputs))):
            self.overflowing.add(name)

    def leave(self, *_call: object) -> None:
        """The module that began last is done."""
        self.scope.pop()


@contextmanager
def _scopes(model: nn.Module, watch: _Watch) -> Iterator[None]:
    """While it lasts, `watch.scope` ends with the name of the module that is running."""
    hooks = []
    for name, module in model.named_modules():
        hooks.append(module.register_forward_pre_hook(partial(watch.enter, name)))
        hooks.append(module.register_forward_hook(watch.leave, always_call=True))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def _too_large(tensor: Tensor) -> bool:
    if not tensor.is_floating_point() or tensor.numel() == 0:
        return False
    least, most = tensor.aminmax()
    if least == -torch.inf:  # a mask on the logits: float16 holds it as well as float32 does
        finite = tensor[tensor != -torch.inf]
        least = finite.min() if finite.numel() else most.new_zeros(())
        most = finite.max() if finite.numel() else least
    return not (float(least) >= -FP16_LIMIT and float(most) <= FP16_LIMIT)  # NaN is too large, too


def _sublayer(name: str) -> str:
    """What can be kept in fp32 by itself: "decoder.layers.1.feed_forward" of "decoder.layers.1.feed_forward.inner"."""
    parts = name.split(".")
    return ".".join(parts[:4] if parts[1:2] == ["layers"] else parts[:2])


def _outermost(names: set[str]) -> tuple[str, ...]:
    """Without the names that are inside another one."""
    return tuple(sorted(name for name in names if not any(name.startswith(f"{other}.") for other in names)))
