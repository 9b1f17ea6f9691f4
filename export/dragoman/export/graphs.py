"""The graphs of a bundle: traced, written beside their common weights, and described as they were written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx
import onnx_ir as ir

from dragoman.bundle.manifest import Graph, Precision, Role, TensorSpec
from dragoman.bundle.manifest import Lowering as LoweringName
from dragoman.export.checkpoint import Checkpoint
from dragoman.export.lowering import CpuLowering, Lowering, PortableLowering
from dragoman.export.lowering.portable import MAX_CANDIDATES
from dragoman.export.progress import Advance
from dragoman.export.tracing import OPSET, trace
from dragoman.export.transformer import TransformerConfig
from dragoman.export.weights import WeightsFile

__all__ = ["build_graphs", "describe"]

ROLES: tuple[Role, ...] = ("encoder", "decoder")


def build_graphs(
    checkpoint: Checkpoint,
    lowerings: Sequence[LoweringName],
    precision: Precision,
    directory: Path,
    progress: Advance,
) -> tuple[Graph, ...]:
    """Write `encoder.<lowering>.onnx`, `decoder.<lowering>.onnx` and one `weights.bin` for all into `directory`."""
    wanted = [(_lowering(name, checkpoint.config), role) for name in lowerings for role in ROLES]
    graphs = []
    with WeightsFile(directory) as weights:
        for done, (lowering, role) in enumerate(wanted):
            progress(done / len(wanted))
            model = trace(checkpoint.model, role, lowering)
            weights.take(model)
            path = directory / f"{role}.{lowering.name}.onnx"
            ir.save(model, path)
            graphs.append(describe(path, role, lowering))
    progress(1.0)
    return tuple(graphs)


def describe(path: Path, role: Role, lowering: Lowering) -> Graph:
    """The manifest's entry for a graph, read back from its file."""
    graph = onnx.load(path, load_external_data=False).graph
    decoder = role == "decoder"
    return Graph(
        role=role,
        lowering=lowering.name,
        file=path.name,
        opset=OPSET,
        inputs=tuple(map(_spec, graph.input)),
        outputs=tuple(map(_spec, graph.output)),
        in_place_cache=decoder and not lowering.gathers_parents,
        max_candidates=lowering.max_candidates if decoder else None,
    )


def _lowering(name: LoweringName, config: TransformerConfig) -> Lowering:
    return CpuLowering() if name == "cpu" else PortableLowering(min(MAX_CANDIDATES, config.target_vocabulary))


def _spec(value: onnx.ValueInfoProto) -> TensorSpec:
    tensor = value.type.tensor_type
    return TensorSpec(
        name=value.name,
        dtype=onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type).name,
        shape=tuple(size.dim_param or size.dim_value for size in tensor.shape.dim),
    )
