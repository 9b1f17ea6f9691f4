"""The graphs of a bundle: traced, brought to their precision, written beside their common weights, and described."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import cast

import onnx
import onnx_ir as ir

from dragoman.bundle.manifest import Graph, Precision, Role, StoredTensor, TensorSpec
from dragoman.bundle.manifest import Lowering as LoweringName
from dragoman.bundle.records import DataType
from dragoman.errors import ExportError
from dragoman.export.checkpoint import Checkpoint
from dragoman.export.fusing import fuse_activations, fuse_best_tokens, take_bias_out
from dragoman.export.half import computed_in_half, stored_in_half
from dragoman.export.lowering import CpuLowering, FusedLowering, Lowering, PortableLowering
from dragoman.export.lowering.fused import DOMAIN
from dragoman.export.lowering.portable import MAX_CANDIDATES
from dragoman.export.progress import Advance
from dragoman.export.quantise import quantise_dynamically
from dragoman.export.tiles import put_in_tiles, quantise_in_tiles
from dragoman.export.tracing import trace
from dragoman.export.transformer import Transformer
from dragoman.export.weights import WeightsFile

__all__ = ["GraphPass", "build_graphs", "describe"]

ROLES: tuple[Role, ...] = ("encoder", "decoder")

LARGE_BYTES = 1 << 20
"""Weights of this size the manifest lists: it is worth a runtime's while to hold them once for several graphs."""

GraphPass = Callable[[ir.Model, Role], None]
"""Rewrites a traced graph in place before it is written."""


def build_graphs(
    checkpoint: Checkpoint,
    lowerings: Sequence[LoweringName],
    precision: Precision,
    directory: Path,
    progress: Advance,
    *,
    keep_in_fp32: Collection[str] = (),
    quantise_portable: GraphPass | None = None,
) -> tuple[Graph, ...]:
    """Write `encoder.<lowering>.onnx`, `decoder.<lowering>.onnx` and one `weights.bin` for all into `directory`.

    `keep_in_fp32` names modules that portable fp16 and int8 graphs compute in float32. `quantise_portable` makes a portable
    graph int8: that takes calibration, which the cpu graphs, quantised as they run, do without.
    """
    wanted = [(_lowering(name, checkpoint.model.choices), role) for name in lowerings for role in ROLES]
    if precision == "int8" and "portable" in lowerings and quantise_portable is None:
        raise ExportError("portable int8 graphs need calibrated activation ranges")
    graphs = []
    with WeightsFile(directory) as weights:
        models = {lowering: _model(checkpoint.model, lowering, precision, keep_in_fp32) for lowering, _ in wanted}
        for done, (lowering, role) in enumerate(wanted):
            progress(done / len(wanted))
            traced = trace(models[lowering], role, lowering)
            if lowering.name == "fused":
                _fuse(traced.graph, role, precision)
            if lowering.name != "portable" and precision == "fp16":
                stored_in_half(traced.graph)
            elif lowering.name == "cpu" and precision == "int8":
                quantise_dynamically(traced.graph)
            elif precision == "int8" and quantise_portable is not None:
                quantise_portable(traced, role)
            weights.take(traced)
            path = directory / f"{role}.{lowering.name}.onnx"
            ir.save(traced, path)
            graphs.append(describe(path, role, lowering))
    progress(1.0)
    return tuple(graphs)


def describe(path: Path, role: Role, lowering: Lowering) -> Graph:
    """The manifest's entry for a graph, read back from its file."""
    model = onnx.load(path, load_external_data=False)
    graph, opsets = model.graph, {opset.domain: opset.version for opset in model.opset_import}
    decoder = role == "decoder"
    return Graph(
        role=role,
        lowering=lowering.name,
        file=path.name,
        opset=opsets[""],
        inputs=tuple(map(_spec, graph.input)),
        outputs=tuple(map(_spec, graph.output)),
        in_place_cache=decoder and not lowering.gathers_parents,
        max_candidates=lowering.max_candidates if decoder else None,
        large_weights=tuple(_stored(tensor) for tensor in graph.initializer if _is_large(tensor)),
    )


def _lowering(name: LoweringName, choices: int) -> Lowering:
    if name == "portable":
        return PortableLowering(min(MAX_CANDIDATES, choices))
    return FusedLowering() if name == "fused" else CpuLowering()


def _fuse(graph: ir.Graph, role: Role, precision: Precision) -> None:
    graph.opset_imports[DOMAIN] = 1
    fuse_activations(graph)
    if role == "decoder":
        take_bias_out(graph)
    if precision == "int8":
        quantise_in_tiles(graph)
    else:
        put_in_tiles(graph)
    if role == "decoder":
        fuse_best_tokens(graph)


def _model(model: Transformer, lowering: Lowering, precision: Precision, keep_in_fp32: Collection[str]) -> Transformer:
    """The module to trace. On the CPU float16 is slower than float32: there it is only a way of storing.

    What int8 leaves between the linear layers is float16: GPUs of compute capability 7.5 multiply nothing in float32.
    """
    halved = precision != "fp32" and lowering.name == "portable"
    return computed_in_half(model, keep_in_fp32) if halved else model


def _spec(value: onnx.ValueInfoProto) -> TensorSpec:
    tensor = value.type.tensor_type
    return TensorSpec(
        name=value.name,
        dtype=_dtype(tensor.elem_type),
        shape=tuple(size.dim_param or size.dim_value for size in tensor.shape.dim),
    )


def _dtype(code: int) -> DataType:
    return cast(DataType, onnx.helper.tensor_dtype_to_np_dtype(code).name)


def _is_large(tensor: onnx.TensorProto) -> bool:
    return tensor.data_location == onnx.TensorProto.EXTERNAL and _bytes(tensor) >= LARGE_BYTES


def _bytes(tensor: onnx.TensorProto) -> int:
    count: int = math.prod(tensor.dims)
    return count * int(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)


def _stored(tensor: onnx.TensorProto) -> StoredTensor:
    place = {entry.key: entry.value for entry in tensor.external_data}
    dtype = _dtype(tensor.data_type)
    return StoredTensor(tensor.name, dtype, tuple(tensor.dims), place["location"], int(place.get("offset", 0)))
