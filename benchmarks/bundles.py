"""Bundles of the measured models, exported once with the product's own pipeline."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.peers import CACHE

__all__ = ["bundle_of"]


def bundle_of(checkpoint: Path, precision: str) -> Path:
    """The checkpoint's bundle in this precision; exported when there is none in the cache yet."""
    from dragoman.bundle.manifest import MANIFEST_NAME
    from dragoman.export.pipeline import ExportOptions, export_bundle

    output = CACHE / "bundles" / f"{checkpoint.name}-{precision}"
    if not (output / MANIFEST_NAME).is_file():
        print(f"exporting {checkpoint.name} in {precision} …", file=sys.stderr)
        output.parent.mkdir(parents=True, exist_ok=True)
        # random weights answer at random: how far int8 is from fp32 there says nothing about quality
        allowed = 100.0 if checkpoint.name.startswith("random") and precision != "fp32" else None
        export_bundle(ExportOptions(checkpoint, output, precision=precision, max_quality_loss=allowed))  # type: ignore[arg-type]
    return output
