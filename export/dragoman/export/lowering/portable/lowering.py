"""The portable lowering: plain torch, traced as it is. The past is gathered by parent, candidates are a constant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir
from torch import Tensor, nn

from dragoman.bundle.manifest import Lowering as LoweringName
from dragoman.bundle.manifest import Precision, Role
from dragoman.errors import ExportError
from dragoman.export.lowering.half import computed_in_half
from dragoman.export.lowering.portable.qdq import insert_qdq
from dragoman.export.lowering.protocol import Calibration
from dragoman.export.lowering.signature import Signature, padded_encoder, step_decoder
from dragoman.export.lowering.step_modules import DecoderGraph, EncoderGraph, step_arguments
from dragoman.export.transformer import TorchOperators, Transformer, TransformerConfig

__all__ = ["MAX_CANDIDATES", "PortableLowering"]

MAX_CANDIDATES = 64
"""TensorRT wants the k of a TopK to be a constant."""


@dataclass(frozen=True, slots=True)
class PortableLowering:
    """Attention as MatMul and Softmax, cache writes as Where, the past gathered by parent."""

    max_candidates: int = MAX_CANDIDATES
    name: LoweringName = "portable"
    in_place_cache: bool = False

    def needs_calibration(self, precision: Precision) -> bool:
        return precision != "fp32"

    def prepared(self, model: Transformer, precision: Precision, calibration: Calibration) -> Transformer:
        """int8 leaves float16 between the linear layers: GPUs of compute capability 7.5 multiply nothing in float32."""
        return model if precision == "fp32" else computed_in_half(model, calibration.keep_in_fp32)

    def signature(self, role: Role, config: TransformerConfig) -> Signature:
        if role == "encoder":
            return padded_encoder(config)
        return step_decoder(config, gathers_parents=True, max_candidates=self.max_candidates)

    def module(self, role: Role, prepared: Transformer) -> nn.Module:
        if role == "encoder":
            return EncoderGraph(prepared, TorchOperators())
        return DecoderGraph(prepared, TorchOperators(), self.best)

    def arguments(self, role: Role, by_name: Mapping[str, Any]) -> dict[str, Any]:
        return step_arguments(role, by_name)

    def finish(self, traced: ir.Model, role: Role, precision: Precision, calibration: Calibration) -> None:  # noqa: ARG002
        if precision == "int8":
            if not calibration.ranges:
                raise ExportError("portable int8 graphs need calibrated activation ranges")
            insert_qdq(traced, calibration.ranges)

    def best(self, logits: Tensor, candidates: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:  # noqa: ARG002 - a constant
        logits = logits.float()
        log_probs, places = logits.log_softmax(-1).topk(self.max_candidates, dim=-1)
        return places, log_probs, logits.gather(-1, places)
