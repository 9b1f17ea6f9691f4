"""Bundles of the measured models, through the product's own export."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.peers import CACHE
from benchmarks.random_checkpoint import REFERENCE
from dragoman.bundle.manifest import MANIFEST_NAME, Precision

__all__ = ["bundle_of"]


def bundle_of(checkpoint: Path, precision: Precision) -> Path:
    """The checkpoint's bundle in this precision; exported when there is none in the cache yet."""
    output = CACHE / "bundles" / f"{checkpoint.name}-{precision}"
    if not (output / MANIFEST_NAME).is_file():
        from dragoman.export.pipeline import ExportOptions, export_bundle

        print(f"exporting {checkpoint.name} in {precision} …", file=sys.stderr)
        # Random weights answer at random: how near int8 comes to fp32 there says nothing, and takes minutes to say.
        export_bundle(ExportOptions(checkpoint, output, precision=precision, verify=checkpoint == REFERENCE))
    return output
