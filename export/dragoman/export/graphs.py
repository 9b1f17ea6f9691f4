"""The graphs of a bundle: traced, converted to their precision, written beside their common weights, and described."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import onnx
import onnx_ir as ir

from dragoman.bundle.manifest import Graph, Precision, Role, StoredTensor, TensorSpec
from dragoman.bundle.manifest import Lowering as LoweringName
from dragoman.bundle.records import DataType
from dragoman.export.checkpoint import Checkpoint
from dragoman.export.lowering import Calibration, Lowering, lowering_named, trace
from dragoman.export.progress import Advance
from dragoman.export.weights import WeightsFile

__all__ = ["build_graphs", "describe"]

ROLES: tuple[Role, ...] = ("encoder", "decoder", "forced")

LARGE_BYTES = 1 << 20
"""Weights of this size the manifest lists: it is worth a runtime's while to hold them once for several graphs."""

NOTHING_KNOWN = Calibration()


def build_graphs(
    checkpoint: Checkpoint,
    lowerings: Sequence[LoweringName],
    precision: Precision,
    directory: Path,
    progress: Advance,
    *,
    calibration: Calibration = NOTHING_KNOWN,
) -> tuple[Graph, ...]:
    """Write `encoder.<lowering>.onnx`, `decoder.<lowering>.onnx` and one `weights.bin` for all into `directory`."""
    graphs: list[Graph] = []
    with WeightsFile(directory) as weights:
        for done, name in enumerate(lowerings):
            source = checkpoint.source_of_weights
            lowering = lowering_named(name, source.structure.choices)
            prepared = lowering.prepared(source, precision, calibration, weights.keep)
            for at, role in enumerate(ROLES):
                progress((done + at / len(ROLES)) / len(lowerings))
                traced = trace(prepared, role, lowering)
                lowering.finish(traced, role, precision, calibration)
                weights.take(traced)
                path = directory / f"{role}.{name}.onnx"
                ir.save(traced, path)
                graphs.append(describe(path, role, lowering))
    progress(1.0)
    return tuple(graphs)


def describe(path: Path, role: Role, lowering: Lowering) -> Graph:
    """The manifest's entry for a graph, read back from its file."""
    model = onnx.load(path, load_external_data=False)
    graph, opsets = model.graph, {opset.domain: opset.version for opset in model.opset_import}
    return Graph(
        role=role,
        lowering=lowering.name,
        file=path.name,
        opset=opsets[""],
        inputs=tuple(map(_spec, graph.input)),
        outputs=tuple(map(_spec, graph.output)),
        max_candidates=None if role == "encoder" else lowering.max_candidates,
        large_weights=tuple(_stored(tensor) for tensor in graph.initializer if _is_large(tensor)),
    )


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
