"""The portable graphs opened and run as a server does it, so that ONNX Runtime leaves its engines in the cache.

In this process; `filling_worker` gives it one of its own.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper

from dragoman.bundle.gpu_providers import CPU, TENSORRT, Provider, engine_cache_prefix, tensorrt_providers, usual_shapes
from dragoman.bundle.manifest import Graph, Manifest, Role, read_manifest
from dragoman.errors import EngineBuildError
from dragoman.export.progress import Advance

__all__ = ["OpenSession", "Session", "fill", "open_session", "try_out"]

ROLES: tuple[Role, ...] = typing.get_args(Role)


class Session(Protocol):
    """What is used of an onnxruntime.InferenceSession."""

    def get_providers(self) -> list[str]: ...

    def run(self, names: None, feed: Mapping[str, NDArray[Any]], /) -> object: ...


OpenSession = Callable[[Path | bytes, list[Provider]], Session]
"""Opens a graph, a file or the bytes of one, with these providers."""


def open_session(graph: Path | bytes, providers: list[Provider]) -> Session:
    """A session that tells what went wrong; left alone, ONNX Runtime prints it and goes on without TensorRT."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # What rewrites a graph stays as a server has it, at ONNX Runtime's defaults: an engine is named after the result.
    session: Session = onnxruntime.InferenceSession(graph, options, providers=providers, enable_fallback=0)
    return session


def try_out(opened: OpenSession = open_session) -> None:
    """EngineBuildError unless TensorRT builds and runs a graph of one node here."""
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "trial", value[:1], value[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=onnx.IR_VERSION_2023_5_5)
    session = _opened(opened, "a graph of one node", model.SerializeToString(), [(TENSORRT, {"device_id": "0"}), CPU])
    _run(session, "a graph of one node", {"x": np.zeros(1, np.float32)})


def fill(bundle: Path, cache: Path, advance: Advance, opened: OpenSession = open_session) -> None:
    """Have ONNX Runtime build its engines for both graphs of `bundle`; EngineBuildError names the graph and the reason."""
    manifest = read_manifest(bundle)
    for done, role in enumerate(ROLES):
        advance(done / len(ROLES))
        _fill_for(manifest.graph(role, "portable"), manifest, bundle, cache, opened)
    advance(1.0)


def _fill_for(graph: Graph, manifest: Manifest, bundle: Path, cache: Path, opened: OpenSession) -> None:
    providers = tensorrt_providers(manifest, graph.role, engine_cache=cache)
    # With a range for every input ONNX Runtime builds when it opens the graph; the run proves that the engine works.
    session = _opened(opened, graph.file, bundle / graph.file, providers)
    shapes = usual_shapes(manifest, graph.role)
    _run(session, graph.file, {spec.name: np.zeros(shapes[spec.name], spec.dtype) for spec in graph.inputs})
    prefix = engine_cache_prefix(manifest, graph.role)
    # It does not look whether a file could be written, nor does it mind when TensorRT takes no node of a graph.
    if not any(path.name.startswith(prefix) and path.stat().st_size for path in cache.glob("*.engine")):
        raise EngineBuildError(
            f"ONNX Runtime ran {graph.file} but left no engine {prefix}* in {cache}: the disk is full, or TensorRT took "
            "no part of the graph"
        )


def _opened(opened: OpenSession, name: str, graph: Path | bytes, providers: list[Provider]) -> Session:
    try:
        session = opened(graph, providers)
    except Exception as error:
        raise EngineBuildError(f"ONNX Runtime can't build {name} with TensorRT: {error}") from error
    # A provider that does not find its libraries or its device is left out with a warning, and the CPU takes its place.
    if TENSORRT not in session.get_providers():
        raise EngineBuildError(
            f"ONNX Runtime ({onnxruntime.__version__}) could not start {TENSORRT} for {name}: its libraries "
            "(docs/gpu.md) or the GPU are not found"
        )
    return session


def _run(session: Session, name: str, feed: Mapping[str, NDArray[Any]]) -> None:
    try:
        session.run(None, feed)
    except Exception as error:
        raise EngineBuildError(f"ONNX Runtime can't run {name} with TensorRT: {error}") from error
