"""Bundles of the measured models: trained ones through the product's own export, random ones without its verification."""

from __future__ import annotations

import shutil
import sys
from importlib.metadata import version
from pathlib import Path

from benchmarks.peers import CACHE
from dragoman.bundle.integrity import record_file
from dragoman.bundle.manifest import MANIFEST_NAME, SCHEMA_VERSION, Manifest, Precision

__all__ = ["bundle_of"]


def bundle_of(checkpoint: Path, precision: Precision) -> Path:
    """The checkpoint's bundle in this precision; exported when there is none in the cache yet."""
    output = CACHE / "bundles" / f"{checkpoint.name}-{precision}"
    if not (output / MANIFEST_NAME).is_file():
        print(f"exporting {checkpoint.name} in {precision} …", file=sys.stderr)
        output.parent.mkdir(parents=True, exist_ok=True)
        if checkpoint.name.startswith("random"):
            _unverified(checkpoint, precision, output)
        else:
            from dragoman.export.pipeline import ExportOptions, export_bundle

            export_bundle(ExportOptions(checkpoint, output, precision=precision))
    return output


def _unverified(checkpoint_path: Path, precision: Precision, output: Path) -> None:
    """Random weights answer at random: how near int8 comes to fp32 there says nothing, and takes minutes to say."""
    from dragoman.export.checkpoint import read_checkpoint
    from dragoman.export.graphs import build_graphs

    shutil.rmtree(output, ignore_errors=True)
    output.mkdir()
    checkpoint = read_checkpoint(checkpoint_path)
    graphs = build_graphs(checkpoint, ("cpu",), precision, output, lambda _: None)
    for name, path in checkpoint.tokenizer_paths.items():
        shutil.copyfile(path, output / name)
    manifest = Manifest(
        schema_version=SCHEMA_VERSION,
        dragoman_version=version("dragoman"),
        model=checkpoint.card,
        dimensions=checkpoint.dimensions,
        tokens=checkpoint.tokens,
        generation=checkpoint.generation,
        tokenizer=checkpoint.tokenizer,
        precision=precision,
        targets=("cpu",),
        graphs=graphs,
        files={path.name: record_file(path) for path in sorted(output.iterdir())},
        verification=None,
    )
    (output / MANIFEST_NAME).write_text(manifest.to_json(), encoding="utf-8")
