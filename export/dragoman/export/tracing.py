"""From the torch module to an ONNX graph: torch's exporter, then our names."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator, Sequence

import onnx_ir as ir
import torch
from torch import Tensor, nn
from torch.export import Dim

from dragoman.bundle.manifest import Role
from dragoman.errors import ExportError
from dragoman.export.contract import Signature, signature
from dragoman.export.lowering import KeyValue, Lowering
from dragoman.export.transformer import Transformer

__all__ = ["OPSET", "DecoderGraph", "EncoderGraph", "trace"]

OPSET = 18

EXAMPLE = {"batch": 3, "source": 11, "groups": 2, "width": 3, "rows": 6, "past_rows": 5, "cache": 7}
"""Sizes to trace with: all different where they may differ, none 0 or 1, which the exporter would take for constants."""


class EncoderGraph(nn.Module):
    """Sources to the cross-attention keys and values of every decoder layer."""

    def __init__(self, model: Transformer, lowering: Lowering) -> None:
        super().__init__()
        self.model, self.lowering = model, lowering

    def forward(self, source_ids: Tensor, source_lengths: Tensor) -> list[Tensor]:
        return _flat(self.model.encode(source_ids, source_lengths, self.lowering))


class DecoderGraph(nn.Module):
    """One step: past and one token a row to the best next tokens and the present."""

    def __init__(self, model: Transformer, lowering: Lowering) -> None:
        super().__init__()
        self.model, self.lowering = model, lowering

    def forward(
        self,
        tokens: Tensor,  # (groups, width)
        positions: Tensor,  # (groups, width)
        source_lengths: Tensor,  # (groups,)
        memories: Sequence[Tensor],  # key, value, key, value … (groups, heads, source, head_dim)
        pasts: Sequence[Tensor],  # key, value, key, value … (past_rows, heads, cache, head_dim)
        parents: Tensor | None,  # (rows,)
        candidates: Tensor | None,  # (1,)
    ) -> list[Tensor]:
        if parents is not None:
            pasts = [past.index_select(0, parents) for past in pasts]
        logits, presents = self.model.step(tokens, positions, source_lengths, _pairs(memories), _pairs(pasts), self.lowering)
        return [*self.lowering.best(logits, candidates), *_flat(presents)]


def trace(model: Transformer, role: Role, lowering: Lowering) -> ir.Model:
    """The ONNX graph of one role in one lowering; weights are still the module's own memory."""
    described = signature(role, model.config, lowering)
    module = EncoderGraph(model, lowering) if role == "encoder" else DecoderGraph(model, lowering)
    examples, dynamic = _examples(role, described, model.dtype)
    with torch.inference_mode(), _quiet():
        program = torch.export.export(
            module,
            examples,
            dynamic_shapes=dynamic,
            strict=False,
            # rows = groups · width can't be said in dynamic shapes; deferred, it is not specialised away
            prefer_deferred_runtime_asserts_over_guards=True,
        )
        exported = torch.onnx.export(program, dynamo=True, opset_version=OPSET, verbose=False)
    if exported is None:  # pragma: no cover - only with other arguments
        raise ExportError("the ONNX exporter returned nothing")
    _rename(exported.model, described)
    return exported.model


def _examples(role: Role, described: Signature, dtype: torch.dtype) -> tuple[tuple[object, ...], tuple[object, ...]]:
    """Inputs to trace with and, in the same structure, which of their dimensions vary."""
    dims = {name: Dim(name, min=4 if name == "rows" else 2) for name in EXAMPLE}  # of the trace only: ONNX has no bounds
    tensors: dict[str, Tensor] = {}
    varying: dict[str, dict[int, Dim]] = {}
    for name, shape in described.inputs.items():
        kind = dtype if name.startswith(("cross", "self")) else torch.int32
        kind = torch.int64 if name in {"source_ids", "tokens", "parents", "candidates"} else kind
        tensors[name] = torch.ones([EXAMPLE[size] if isinstance(size, str) else size for size in shape], dtype=kind)
        varying[name] = {axis: dims[size] for axis, size in enumerate(shape) if isinstance(size, str)}
    if role == "encoder":
        return tuple(tensors.values()), tuple(varying.values())
    plain = ("tokens", "positions", "source_lengths")
    stacks = [[name for name in tensors if name.startswith(prefix)] for prefix in ("cross", "self")]
    optional = ("parents", "candidates")
    examples = (
        *(tensors[name] for name in plain),
        *([tensors[name] for name in stack] for stack in stacks),
        *(tensors.get(name) for name in optional),
    )
    dynamic = (
        *(varying[name] for name in plain),
        *([varying[name] for name in stack] for stack in stacks),
        *(varying.get(name) for name in optional),
    )
    return examples, dynamic


def _rename(model: ir.Model, described: Signature) -> None:
    """Our names on the surface, the module's own names on the weights, and no guesses about what is between."""
    for node in model.graph:
        for value in node.outputs:
            value.shape = None  # the exporter's symbols; runtimes infer better ones from the inputs
    for values, named in ((model.graph.inputs, described.inputs), (model.graph.outputs, described.outputs)):
        for value, (name, shape) in zip(values, named.items(), strict=True):
            value.name, value.shape = name, ir.Shape(shape)
    for name in [name for name in model.graph.initializers if name.startswith("model.")]:
        model.graph.initializers[name].name = name.removeprefix("model.")
    model.graph.name = "dragoman"
    model.metadata_props.clear()
    for node in model.graph:
        node.metadata_props.clear()  # stack traces of whoever exported


def _pairs(tensors: Sequence[Tensor]) -> list[KeyValue]:
    return [KeyValue(key, value) for key, value in zip(tensors[::2], tensors[1::2], strict=True)]


def _flat(pairs: Sequence[KeyValue]) -> list[Tensor]:
    return [tensor for pair in pairs for tensor in pair]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The exporter warns about packages it could use and about torch's own deprecations; neither concerns the user."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
