"""New engines for a bundle that is there already: for another release of TensorRT, another GPU or other limits."""

from __future__ import annotations

import dataclasses
import os
import shutil
import tempfile
from pathlib import Path

from dragoman.bundle.integrity import check_files, record_file
from dragoman.bundle.manifest import MANIFEST_NAME, EngineFile, Manifest, read_manifest
from dragoman.errors import EngineBuildError
from dragoman.export.progress import Stages
from dragoman.export.tensorrt.engines import build_engines
from dragoman.export.tensorrt.options import BuildOptions
from dragoman.export.tensorrt.toolchain import find_toolchain

__all__ = ["rebuild_engines"]


def rebuild_engines(bundle: Path, options: BuildOptions, stages: Stages) -> Manifest:
    """Build engines from the bundle's portable graphs; its manifest then lists them in the place of the old ones.

    The bundle is whole at every moment: new engines come under new names, then the manifest is replaced, then the old
    engines go. Whatever ends this before leaves the bundle as it was. A server that runs has its engines in memory.
    """
    manifest = read_manifest(bundle)
    portable = manifest.graphs_of("portable")
    if not portable:
        raise EngineBuildError(
            f"{bundle} has no portable graphs to build engines from (targets: {', '.join(manifest.targets)}); export the "
            "checkpoint with --target tensorrt"
        )
    find_toolchain(options)
    with stages.stage("check the bundle"):
        check_files(bundle, manifest)
    try:
        staging = Path(tempfile.mkdtemp(prefix=".engines.", suffix=".part", dir=bundle))
    except OSError as error:
        raise EngineBuildError(f"{bundle} can't be written: {error.strerror}; copy it to where it can") from error
    try:
        built = build_engines(
            bundle,
            portable,
            dimensions=manifest.dimensions,
            precision=manifest.precision,
            options=options,
            stages=stages,
            output=staging,
        )
        return _replaced(bundle, manifest, staging, built)
    except OSError as error:
        raise EngineBuildError(f"the engines can't be written to {bundle}: {error.strerror}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _replaced(bundle: Path, manifest: Manifest, staging: Path, built: tuple[EngineFile, ...]) -> Manifest:
    records = {engine.file: record_file(staging / engine.file) for engine in built}
    names = {name: _own_name(name, record.sha256) for name, record in records.items()}
    engines = tuple(dataclasses.replace(engine, file=names[engine.file]) for engine in built)
    old = {engine.file for engine in manifest.engines} - set(names.values())
    files = {name: record for name, record in manifest.files.items() if name not in old}
    files |= {names[name]: record for name, record in records.items()}
    targets = (*manifest.targets, *(() if "tensorrt" in manifest.targets else ("tensorrt",)))
    new = dataclasses.replace(manifest, engines=engines, files=files, targets=targets)
    (staging / MANIFEST_NAME).write_text(new.to_json(), encoding="utf-8")
    for path in staging.iterdir():
        path.chmod(0o644)  # a server under another user reads bundles
        _flush(path)
    for name, renamed in names.items():
        (staging / name).replace(bundle / renamed)
    (staging / MANIFEST_NAME).replace(bundle / MANIFEST_NAME)
    for name in old:
        (bundle / name).unlink(missing_ok=True)
    return new


def _own_name(name: str, digest: str) -> str:
    """decoder.engine to decoder-1a2b3c4d.engine: never the name of an engine with other contents."""
    path = Path(name)
    return f"{path.stem}-{digest[:8]}{path.suffix}"


def _flush(path: Path) -> None:
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
