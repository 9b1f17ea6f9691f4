"""The interface of a lowering: one way of writing the Transformer as ONNX graphs, with its signature, modules and passes."""

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
    """The results of a run on real text: the modules to keep in fp32, and the input range of every linear layer by name."""

    keep_in_fp32: tuple[str, ...] = ()
    ranges: Mapping[str, float] = field(default_factory=dict)


class Lowering(Protocol):
    """One way of writing the same mathematics as ONNX operators."""

    @property
    def name(self) -> LoweringName:
        """Its name in the manifest."""

    @property
    def max_candidates(self) -> int | None:
        """How many best tokens a step returns; None when its `candidates` input is the number."""

    def needs_calibration(self, precision: Precision) -> bool:
        """Whether `prepared` and `finish` need the ranges of activations on real text."""

    def prepared(self, source: WeightSource, precision: Precision, calibration: Calibration, keep: Keep) -> Transformer:
        """The model in the form that the graphs of this precision compute; the source itself is not changed.

        `keep` stores a large weight where the graphs will have it, and returns it as a tensor that takes no memory.
        """

    def signature(self, role: Role, config: TransformerConfig) -> Signature:
        """The inputs and outputs of the graph."""

    def module(self, role: Role, prepared: Transformer) -> nn.Module:
        """The module that is traced."""

    def arguments(self, role: Role, by_name: Mapping[str, Any]) -> dict[str, Any]:
        """Inputs by their name in the graph to arguments of the module's `forward`."""

    def finish(self, traced: ir.Model, role: Role, precision: Precision, calibration: Calibration) -> None:
        """The passes over the traced graph."""
