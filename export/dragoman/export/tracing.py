"""From the torch module to an ONNX graph: torch's exporter, then our names."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import onnx_ir as ir
import torch
from torch import Tensor, nn
from torch.export import Dim

from dragoman.bundle.manifest import Role
from dragoman.errors import ExportError
from dragoman.export.contract import Signature, signature
from dragoman.export.lowering import Cells, KeyValue, Lowering, Sources
from dragoman.export.transformer import Transformer

__all__ = ["OPSET", "DecoderGraph", "EncoderGraph", "trace"]

OPSET = 18

T = TypeVar("T")

EXAMPLE = {
    **{"batch": 3, "source": 11, "groups": 2, "width": 3, "rows": 6, "past_rows": 5, "cache": 7},
    **{"tokens": 13, "sources": 4, "room": 8, "self_cells": 48, "cross_cells": 22},
}
"""Sizes to trace with: all different where they may differ, none 0 or 1, which the exporter would take for constants."""


_INT32 = {"positions", "cells", "source_lengths", "source_starts", "source_positions"}


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
        *,
        parents: Tensor | None = None,  # (rows,)
        candidates: Tensor | None = None,  # (1,)
    ) -> list[Tensor]:
        if parents is not None:
            pasts = [past.index_select(0, parents) for past in pasts]
        logits, presents = self.model.step(tokens, positions, source_lengths, _pairs(memories), _pairs(pasts), self.lowering)
        return [*_best(self.model, self.lowering, logits, candidates), *_flat(presents)]


class FlatEncoderGraph(nn.Module):
    """Sources without padding to the cells of every decoder layer."""

    def __init__(self, model: Transformer, lowering: Lowering) -> None:
        super().__init__()
        self.model, self.lowering = model, lowering

    def forward(
        self, source_ids: Tensor, source_positions: Tensor, source_starts: Tensor, source_lengths: Tensor
    ) -> list[Tensor]:
        sources = Sources(source_starts, source_lengths)
        return self.model.encode_flat(source_ids, source_positions, sources, self.lowering)


class CellsDecoderGraph(nn.Module):
    """One step: one token a row, and caches that the step itself writes to, to the best next tokens."""

    def __init__(self, model: Transformer, lowering: Lowering) -> None:
        super().__init__()
        self.model, self.lowering = model, lowering

    def forward(  # noqa: PLR0917 - the graph's inputs
        self,
        tokens: Tensor,  # (rows,)
        positions: Tensor,  # (rows,)
        cells: Tensor,  # (rows, room)
        self_cache: Tensor,  # (layers, self_cells, 2 · width)
        source_starts: Tensor,  # (groups,)
        source_lengths: Tensor,  # (groups,)
        cross_cache: Tensor,  # (layers, cross_cells, 2 · width)
        candidates: Tensor,  # (1,)
    ) -> list[Tensor]:
        layers = range(self.model.config.decoder_layers)
        memories = [Cells(cross_cache, source_starts, layer) for layer in layers]
        pasts = [Cells(self_cache, cells, layer) for layer in layers]
        logits, _ = self.model.step(tokens, positions, source_lengths, memories, pasts, self.lowering)
        return _best(self.model, self.lowering, logits, candidates)


def _best(model: Transformer, lowering: Lowering, logits: Tensor, candidates: Tensor | None) -> list[Tensor]:
    """The best tokens, their log-probabilities and their logits, (rows, k) each."""
    places, log_probs, best_logits = lowering.best(logits, candidates)
    return [model.output.tokens(places), log_probs, best_logits]


_GRAPHS: dict[tuple[Role, bool], Callable[[Transformer, Lowering], nn.Module]] = {
    ("encoder", False): EncoderGraph,
    ("decoder", False): DecoderGraph,
    ("encoder", True): FlatEncoderGraph,
    ("decoder", True): CellsDecoderGraph,
}


def trace(model: Transformer, role: Role, lowering: Lowering) -> ir.Model:
    """The ONNX graph of one role in one lowering; weights are still the module's own memory."""
    described = signature(role, model.config, lowering)
    fused = lowering.name == "fused"
    module = _GRAPHS[role, fused](model, lowering)
    examples = _examples(described, model.dtype)
    dynamic = {name: _varying(shape) for name, shape in described.inputs.items()}
    with torch.inference_mode(), _quiet():
        program = torch.export.export(
            module,
            (),
            examples if fused else _arguments(role, examples),
            dynamic_shapes=dynamic if fused else _arguments(role, dynamic),
            strict=False,
            # rows = groups · width can't be said in dynamic shapes; deferred, it is not specialised away
            prefer_deferred_runtime_asserts_over_guards=True,
        )
        exported = torch.onnx.export(program, dynamo=True, opset_version=OPSET, verbose=False)
    if exported is None:  # pragma: no cover - only with other arguments
        raise ExportError("the ONNX exporter returned nothing")
    _rename(exported.model, described)
    return exported.model


def _examples(described: Signature, dtype: torch.dtype) -> dict[str, Tensor]:
    """Inputs to trace with."""

    def kind(name: str) -> torch.dtype:
        if name.startswith(("cross_", "self_")):
            return dtype
        return torch.int32 if name in _INT32 else torch.int64

    return {
        name: torch.ones([EXAMPLE[size] if isinstance(size, str) else size for size in shape], dtype=kind(name))
        for name, shape in described.inputs.items()
    }


def _varying(shape: tuple[int | str, ...]) -> dict[int, Dim]:
    """Which dimensions vary; the bounds are those of the trace only, ONNX has none."""
    return {axis: Dim(size, min=4 if size == "rows" else 2) for axis, size in enumerate(shape) if isinstance(size, str)}


def _arguments(role: Role, by_name: Mapping[str, T]) -> dict[str, T | list[T]]:
    """Inputs by their name in the graph to arguments by their name in `forward`, where layers are lists."""
    if role == "encoder":
        return dict(by_name)
    stacks = {"memories": "cross_", "pasts": "self_"}
    arguments: dict[str, T | list[T]] = {}
    for argument in ("tokens", "positions", "source_lengths", "memories", "pasts", "parents", "candidates"):
        if argument in stacks:
            arguments[argument] = [value for name, value in by_name.items() if name.startswith(stacks[argument])]
        elif argument in by_name:
            arguments[argument] = by_name[argument]
    return arguments


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
