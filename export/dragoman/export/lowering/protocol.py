"""A lowering: one way of writing the Transformer as ONNX graphs. It owns its signature, its modules and its passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import onnx_ir as ir
from torch import nn

from dragoman.bundle.manifest import Lowering as LoweringName
from dragoman.bundle.manifest import Precision, Role
from dragoman.export.lowering.signature import Signature
from dragoman.export.transformer import Transformer, TransformerConfig, WeightSource
from dragoman.export.weights import Keep

__all__ = ["Attributes", "Calibration", "Lowering"]

Attributes = dict[str, int | float | str | bool | Sequence[int] | Sequence[float] | Sequence[str] | Sequence[bool]]
"""All that torch's symbolic operators take."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """What a run on real text found: the modules to keep in fp32, and the input range of every linear layer by name."""

    keep_in_fp32: tuple[str, ...] = ()
    ranges: Mapping[str, float] = field(default_factory=dict)


class Lowering(Protocol):
    """One way of writing the same mathematics as ONNX operators."""

    @property
    def name(self) -> LoweringName:
        """As the manifest spells it."""

    @property
    def max_candidates(self) -> int | None:
        """How many best tokens a step returns; None when its `candidates` input is the number."""

    def needs_calibration(self, precision: Precision) -> bool:
        """Whether `prepared` and `finish` need the ranges of activations on real text."""

    def prepared(self, source: WeightSource, precision: Precision, calibration: Calibration, keep: Keep) -> Transformer:
        """The model as the graphs of this precision compute it; the source itself is left as it was.

        `keep` puts a large weight where the graphs will have it, and gives it back as a tensor that takes no memory.
        """

    def signature(self, role: Role, config: TransformerConfig) -> Signature:
        """What the graph takes and gives."""

    def module(self, role: Role, prepared: Transformer) -> nn.Module:
        """What is traced."""

    def arguments(self, role: Role, by_name: Mapping[str, Any]) -> dict[str, Any]:
        """Inputs by their name in the graph to arguments of the module's `forward`."""

    def finish(self, traced: ir.Model, role: Role, precision: Precision, calibration: Calibration) -> None:
        """What is left to do in the traced graph."""
