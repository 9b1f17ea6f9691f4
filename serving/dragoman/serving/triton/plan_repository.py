"""A Triton model repository of a bundle's native TensorRT plans, for Triton's own `tensorrt` backend.

python -m dragoman.serving.triton.plan_repository BUNDLE OUTPUT

Two models, `encoder_plan` and `decoder_plan`: the graphs as they are, tensors in and tensors out, for callers who run the
search themselves and keep the cache where they want it (docs/bundle.md names every tensor).
`dragoman serve` needs none of it.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from dragoman.bundle.integrity import check_files
from dragoman.bundle.manifest import Engine, Graph, Manifest, TensorSpec, read_manifest
from dragoman.errors import DragomanError, ServeError

__all__ = ["config_of", "main", "write_plan_repository"]

_TYPES = {
    "float32": "TYPE_FP32",
    "float16": "TYPE_FP16",
    "int64": "TYPE_INT64",
    "int32": "TYPE_INT32",
    "bool": "TYPE_BOOL",
}


def write_plan_repository(bundle: Path, output: Path) -> list[str]:
    """Write the repository, whole or not at all; the names of its models."""
    manifest = read_manifest(bundle)
    check_files(bundle, manifest)
    plans = [engine for engine in manifest.engines if engine.flavour == "tensorrt"]
    if not plans:
        held = sorted({str(engine.flavour) for engine in manifest.engines}) or ["no engines"]
        raise ServeError(
            f"{bundle} has no native TensorRT plan ({', '.join(held)}): export it on the machine with the GPU, with the "
            "`tensorrt` package installed: dragoman export … --target tensorrt"
        )
    if output.exists():
        raise ServeError(f"{output} exists; give a new directory")
    staging = Path(tempfile.mkdtemp(dir=output.parent, prefix=f".{output.name}."))
    try:
        for plan in plans:
            version = staging / f"{plan.role}_plan" / "1"
            version.mkdir(parents=True)
            shutil.copyfile(bundle / plan.file, version / "model.plan")
            (version.parent / "config.pbtxt").write_text(config_of(manifest, plan), encoding="utf-8")
        staging.chmod(0o755)
        staging.rename(output)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    return [f"{plan.role}_plan" for plan in plans]


def config_of(manifest: Manifest, plan: Engine) -> str:
    """config.pbtxt of one plan: the tensors of the graph it was built from, and every profile a context of its own."""
    graph: Graph = manifest.graph(plan.role, "portable")
    profiles = "\n".join(f'  profile: "{index}"' for index in range(len(plan.profiles)))
    return (
        f'name: "{plan.role}_plan"\n'
        'platform: "tensorrt_plan"\n'
        "max_batch_size: 0\n"
        f"{_tensors('input', graph.inputs)}"
        f"{_tensors('output', graph.outputs)}"
        f"instance_group {{\n  count: 1\n  kind: KIND_GPU\n{profiles}\n}}\n"
    )


def _tensors(kind: str, specs: Sequence[TensorSpec]) -> str:
    return "".join(
        f'{kind} {{ name: "{spec.name}" data_type: {_type(spec)} dims: [ {", ".join(_dims(spec))} ] }}\n' for spec in specs
    )


def _type(spec: TensorSpec) -> str:
    if spec.dtype not in _TYPES:
        raise ServeError(f"tensor {spec.name} is {spec.dtype}, which Triton's tensorrt backend does not take")
    return _TYPES[spec.dtype]


def _dims(spec: TensorSpec) -> list[str]:
    return [str(size) if isinstance(size, int) else "-1" for size in spec.shape] or ["1"]


def main(arguments: Sequence[str]) -> int:
    """The command."""
    if len(arguments) != 2:
        print(f"usage: {__doc__.splitlines()[2] if __doc__ else ''}", file=sys.stderr)
        return 2
    try:
        models = write_plan_repository(Path(arguments[0]), Path(arguments[1]))
    except DragomanError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"written: {arguments[1]} with {', '.join(models)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
