"""The portable lowering: plain torch, traced as it is. The past is gathered by parent, candidates are a constant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir
import torch
from torch import nn

from dragoman.bundle.manifest import Lowering as LoweringName
from dragoman.bundle.manifest import Precision, Role
from dragoman.errors import ExportError
from dragoman.export.lowering.portable.forced import ForcedGraph
from dragoman.export.lowering.portable.modules import DecoderGraph, EncoderGraph, step_arguments
from dragoman.export.lowering.portable.narrow import computed_in
from dragoman.export.lowering.portable.qdq import insert_qdq
from dragoman.export.lowering.portable.signature import padded_encoder, padded_forced, step_decoder
from dragoman.export.lowering.protocol import Calibration
from dragoman.export.lowering.signature import Signature
from dragoman.export.transformer import Transformer, TransformerConfig, WeightSource
from dragoman.export.weights import Keep

__all__ = ["MAX_CANDIDATES", "PortableLowering"]

MAX_CANDIDATES = 64
"""TensorRT wants the k of a TopK to be a constant."""

_DTYPES: dict[Precision, torch.dtype] = {"fp16": torch.float16, "bf16": torch.bfloat16, "int8": torch.float16}


@dataclass(frozen=True, slots=True)
class PortableLowering:
    """Attention as MatMul and Softmax, cache writes as Where, the past gathered by parent."""

    max_candidates: int = MAX_CANDIDATES
    name: LoweringName = "portable"

    def needs_calibration(self, precision: Precision) -> bool:
        return precision in ("fp16", "int8")  # bfloat16 reaches as far as float32 does

    def prepared(
        self,
        source: WeightSource,
        precision: Precision,
        calibration: Calibration,
        keep: Keep,  # noqa: ARG002
    ) -> Transformer:
        """int8 leaves float16 between the linear layers: GPUs of compute capability 7.5 multiply nothing in float32."""
        if precision == "fp32":
            return source.model
        return computed_in(_DTYPES[precision], source.model, calibration.keep_in_fp32)

    def signature(self, role: Role, config: TransformerConfig) -> Signature:
        if role == "encoder":
            return padded_encoder(config)
        return (padded_forced if role == "forced" else step_decoder)(config, self.max_candidates)

    def module(self, role: Role, prepared: Transformer) -> nn.Module:
        if role == "encoder":
            return EncoderGraph(prepared)
        return (ForcedGraph if role == "forced" else DecoderGraph)(prepared, self.max_candidates)

    def arguments(self, role: Role, by_name: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        return step_arguments(by_name)

    def finish(self, traced: ir.Model, role: Role, precision: Precision, calibration: Calibration) -> None:  # noqa: ARG002
        if precision == "int8":
            if not calibration.ranges:
                raise ExportError("portable int8 graphs need calibrated activation ranges")
            insert_qdq(traced, calibration.ranges)
