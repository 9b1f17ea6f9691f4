"""From a module to an ONNX graph: torch's exporter, then the names of the bundle contract."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator
from functools import cache, cached_property

import onnx_ir as ir
import torch
from torch import Tensor
from torch.export import Dim

from dragoman.bundle.manifest import Role
from dragoman.errors import ExportError
from dragoman.export.lowering.protocol import Lowering
from dragoman.export.lowering.signature import Signature
from dragoman.export.transformer import Transformer

__all__ = ["OPSET", "trace"]

OPSET = 18

EXAMPLE = {
    **{"batch": 3, "source": 11, "groups": 2, "width": 3, "rows": 6, "past_rows": 5, "cache": 7},
    **{
        "target": 6,
        "piece": 5,
        "tokens": 13,
        "sources": 4,
        "room": 8,
        "self_slots": 48,
        "cross_slots": 22,
        "scored_tokens": 9,
        "scored": 10,
    },
}
"""Sizes to trace with: all different where they may differ, none 0 or 1, which the exporter would take for constants."""

_INT32 = {"positions", "slots", "source_lengths", "source_starts", "source_positions", "shortlists"}


def trace(prepared: Transformer, role: Role, lowering: Lowering) -> ir.Model:
    """The ONNX graph of one role in one lowering; weights are still the module's own memory."""
    described = lowering.signature(role, prepared.config)
    examples = _examples(described, prepared.dtype)
    dynamic = {name: _varying(shape) for name, shape in described.inputs.items()}
    _remember_operators()
    with torch.inference_mode(), _quiet():
        program = torch.export.export(
            lowering.module(role, prepared),
            (),
            lowering.arguments(role, examples),
            dynamic_shapes=lowering.arguments(role, dynamic),
            strict=False,
            # rows = groups · width can't be expressed in dynamic shapes; deferred, it is not specialised away
            prefer_deferred_runtime_asserts_over_guards=True,
        )
        exported = torch.onnx.export(program, dynamo=True, opset_version=OPSET, verbose=False)
    if exported is None:  # pragma: no cover - only with other arguments
        raise ExportError("the ONNX exporter returned nothing")
    _rename(exported.model, described)
    return exported.model


@cache
def _remember_operators() -> None:
    """Let the exporter parse the source of its 500 operators once, not again for each graph."""
    from onnxscript import TracedOnnxFunction

    parsed = TracedOnnxFunction.function_ir
    if isinstance(parsed, property) and parsed.fget is not None:  # other releases may do without
        remembered = cached_property(parsed.fget)
        remembered.__set_name__(TracedOnnxFunction, "function_ir")
        TracedOnnxFunction.function_ir = remembered


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


def _rename(model: ir.Model, described: Signature) -> None:
    """The contract's names on inputs and outputs, the module's names on the weights, and no guesses about the rest."""
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
        node.metadata_props.clear()  # stack traces of the exporting machine


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
