"""Bundles for the double of a GPU: real portable graphs, and engine files that stand for them."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

from dragoman.bundle.integrity import record_file
from dragoman.bundle.manifest import MANIFEST_NAME, SCHEMA_VERSION, EngineFile, Manifest, Precision, read_manifest
from dragoman.export.tensorrt.options import ProfileLimits
from dragoman.export.tensorrt.profiles import profiles_of
from exported_graphs import Exported
from gpu_double.tensorrt import VERSION


def with_engines(exported: Exported, bundle: Path, precision: Precision = "fp32") -> Manifest:
    """A bundle of the portable graphs with its tokenizer's files, in the new directory `bundle`; its manifest."""
    shutil.copytree(exported.directory, bundle)
    read = exported.checkpoint
    graphs = tuple(graph for graph in exported.graphs if graph.lowering == "portable")
    read.tokenizer_plan.write(bundle)
    files = {path.name: record_file(path) for path in bundle.iterdir() if path.name != MANIFEST_NAME}
    facts = (read.card, read.dimensions, read.tokens, read.generation, read.tokenizer)
    manifest = Manifest(SCHEMA_VERSION, "test", *facts, precision, ("tensorrt",), graphs, files)
    (bundle / MANIFEST_NAME).write_text(manifest.to_json())
    return add_engines(bundle)


def add_engines(bundle: Path) -> Manifest:
    """Give a bundle of portable graphs engines of the double; its new manifest."""
    manifest = read_manifest(bundle)
    engines, files = [], dict(manifest.files)
    for graph in manifest.graphs:
        if graph.lowering != "portable":
            continue
        name = f"{graph.role}.engine"
        (bundle / name).write_bytes(f"stands for {graph.file}".encode())
        files[name] = record_file(bundle / name)
        profiles = profiles_of(graph, manifest.dimensions, ProfileLimits())
        facts = ("tensorrt_rtx", VERSION, manifest.precision, ("8.0", "8.6"))
        engines.append(EngineFile(graph.role, name, *facts, profiles, 1.0))
    manifest = dataclasses.replace(manifest, engines=tuple(engines), files=files)
    (bundle / MANIFEST_NAME).write_text(manifest.to_json())
    return manifest
