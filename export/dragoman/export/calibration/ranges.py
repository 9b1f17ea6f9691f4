"""The range of every linear layer's input on real text."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from dragoman.bundle.manifest import SpecialTokens
from dragoman.export.calibration.histogram import Magnitudes
from dragoman.export.calibration.text import Batch, CalibrationText
from dragoman.export.progress import Advance
from dragoman.export.transformer import Transformer
from dragoman.export.transformer.linear import Linear
from dragoman.export.transformer.model import OutputProjection

__all__ = ["activation_ranges"]

LEVELS = 127
"""Signed 8-bit and symmetric, because TensorRT knows no zero point: −127 … 127."""


def activation_ranges(
    model: Transformer, tokens: SpecialTokens, text: CalibrationText, advance: Advance
) -> dict[str, float]:
    """The largest input to represent of each linear layer, by module name ("decoder.layers.0.feed_forward.inner")."""
    observer = _RangeObserver(model)
    with torch.inference_mode(), observer:
        text.run(model, tokens, advance, begins=observer.begin)
    return {name: magnitudes.range_for(LEVELS) for name, magnitudes in observer.observed.items()}


class _RangeObserver:
    """Records the inputs of all linear layers while it is entered."""

    def __init__(self, model: Transformer) -> None:
        self._model, self._hooks = model, list[RemovableHandle]()
        self._real = torch.ones(0, 0, dtype=torch.bool)  # (batch, source): not padding
        linear = (Linear, OutputProjection)
        self.observed = {name: Magnitudes() for name, module in model.named_modules() if isinstance(module, linear)}

    def begin(self, batch: Batch) -> None:
        """Set which source tokens of the next batch are real."""
        lengths = torch.tensor([len(source) for source in batch])
        self._real = torch.arange(int(lengths.max())) < lengths[:, None]

    def __enter__(self) -> None:
        for name in self.observed:
            observe = partial(self._observe, self.observed[name])
            self._hooks.append(self._model.get_submodule(name).register_forward_pre_hook(observe))

    def __exit__(self, *_exception: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def _observe(self, magnitudes: Magnitudes, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        x = inputs[0]
        if x.shape[:-1] == self._real.shape:  # the source side; a finished target has left its batch already
            x = x[self._real]
        magnitudes.add(x * module.scale if isinstance(module, OutputProjection) else x)
