"""Bundles for the double of a GPU: real portable graphs, and engine files that stand for them."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

from dragoman.bundle.integrity import record_file
from dragoman.bundle.manifest import MANIFEST_NAME, SCHEMA_VERSION, Engine, Manifest, Precision
from dragoman.export.tensorrt.options import EngineLimits
from dragoman.export.tensorrt.profiles import profiles_of
from exported_graphs import Exported
from gpu_double.tensorrt import VERSION


def with_engines(
    exported: Exported, bundle: Path, precision: Precision = "fp32", limits: EngineLimits | None = None
) -> Manifest:
    """A bundle of the portable graphs with its tokenizer's files, in the new directory `bundle`; its manifest."""
    shutil.copytree(exported.directory, bundle)
    read = exported.checkpoint
    graphs = tuple(graph for graph in exported.graphs if graph.lowering == "portable")
    engines = []
    for graph in graphs:
        (bundle / f"{graph.role}.engine").write_bytes(f"stands for {graph.file}".encode())
        profiles = profiles_of(graph, read.dimensions, limits or EngineLimits())
        engine = Engine(
            graph.role, f"{graph.role}.engine", "tensorrt_rtx", VERSION, precision, ("8.0", "8.6"), profiles, 1.0
        )
        engines.append(engine)
    for name, path in read.tokenizer_plan.copied.items():
        (bundle / name).write_bytes(path.read_bytes())
    files = {path.name: record_file(path) for path in bundle.iterdir() if path.name != MANIFEST_NAME}
    facts = (read.card, read.dimensions, read.tokens, read.generation, read.tokenizer)
    manifest = Manifest(SCHEMA_VERSION, "test", *facts, precision, ("tensorrt",), graphs, files)
    manifest = dataclasses.replace(manifest, engines=tuple(engines))
    (bundle / MANIFEST_NAME).write_text(manifest.to_json())
    return manifest
