"""Checkpoint to bundle, stage by stage; also what to call from Python.

report = export_bundle(ExportOptions(Path("opus-mt-en-de"), Path("bundles/en-de"), precision="int8"))
"""

from __future__ import annotations

import gc
import importlib.util
import resource
import shutil
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from dragoman.bundle.integrity import record_file
from dragoman.bundle.manifest import (
    MANIFEST_NAME,
    SCHEMA_VERSION,
    Engine,
    Graph,
    Lowering,
    Manifest,
    Precision,
    Target,
    Verification,
)
from dragoman.bundle.tokenizer import open_tokenizer
from dragoman.errors import UsageError
from dragoman.export.checkpoint import Checkpoint, read_checkpoint
from dragoman.export.graphs import build_graphs
from dragoman.export.progress import QuietStages, Stages
from dragoman.export.staging import staged_directory
from dragoman.export.tensorrt import EngineOptions, build_engines
from dragoman.export.verification.answers import Original
from dragoman.export.verification.comparison import Judge
from dragoman.export.verification.corpus import Corpus, bundled_corpus, read_corpus
from dragoman.export.verification.exported import GraphModel

__all__ = ["ExportOptions", "ExportReport", "export_bundle"]

_LOWERING: dict[Target, Lowering] = {"cpu": "cpu", "cuda": "portable", "tensorrt": "portable"}


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """What to export, how, and where to."""

    checkpoint: Path
    output: Path
    precision: Precision = "fp32"
    targets: tuple[Target, ...] = ("cpu",)
    compute_capabilities: tuple[str, ...] | None = None
    verify_file: Path | None = None
    max_quality_loss: float | None = None
    force: bool = False

    def __post_init__(self) -> None:
        if self.max_quality_loss is not None and not self.max_quality_loss >= 0:
            raise UsageError(f"--max-quality-loss {self.max_quality_loss:g} must not be negative")
        if self.compute_capabilities and "tensorrt" not in self.targets:
            raise UsageError("--compute-capability only means something with --target tensorrt")

    @property
    def lowerings(self) -> tuple[Lowering, ...]:
        """The graphs that the targets need, each once."""
        return tuple(dict.fromkeys(_LOWERING[target] for target in self.targets))


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What came out and what it cost."""

    bundle: Path
    manifest: Manifest
    seconds: dict[str, float]
    peak_memory_bytes: int


def export_bundle(options: ExportOptions, stages: Stages | None = None) -> ExportReport:
    """Export `options.checkpoint`; an ExportError or a Ctrl-C leaves no bundle, and an old one as it was."""
    stages = stages or QuietStages()
    corpus = read_corpus(options.verify_file) if options.verify_file else bundled_corpus()
    with staged_directory(options.output, force=options.force) as staging:
        with stages.stage("read the checkpoint"):
            checkpoint = read_checkpoint(options.checkpoint)
        graphs, kept_in_fp32 = _graphs(checkpoint, options, corpus, staging, stages)
        engines = _engines(checkpoint, graphs, options, staging, stages) if "tensorrt" in options.targets else ()
        for name, path in checkpoint.tokenizer_paths.items():
            shutil.copyfile(path, staging / name)
        verification = _verification(checkpoint, graphs, options, corpus, staging, stages)
        with stages.stage("write the manifest"):
            files = {path.name: record_file(path) for path in sorted(staging.iterdir())}
            manifest = Manifest(
                schema_version=SCHEMA_VERSION,
                dragoman_version=version("dragoman"),
                model=checkpoint.card,
                dimensions=checkpoint.dimensions,
                tokens=checkpoint.tokens,
                generation=checkpoint.generation,
                tokenizer=checkpoint.tokenizer,
                precision=options.precision,
                targets=options.targets,
                graphs=graphs,
                files=files,
                verification=verification,
                kept_in_fp32=kept_in_fp32,
                engines=engines,
            )
            (staging / MANIFEST_NAME).write_text(manifest.to_json(), encoding="utf-8")
    return ExportReport(options.output, manifest, dict(stages.seconds), _peak_memory_bytes())


def _graphs(
    checkpoint: Checkpoint, options: ExportOptions, corpus: Corpus, staging: Path, stages: Stages
) -> tuple[tuple[Graph, ...], tuple[str, ...]]:
    with stages.stage("build the graphs") as advance:
        return build_graphs(checkpoint, options.lowerings, options.precision, staging, advance), ()


def _engines(
    checkpoint: Checkpoint, graphs: tuple[Graph, ...], options: ExportOptions, staging: Path, stages: Stages
) -> tuple[Engine, ...]:
    chosen = EngineOptions(compute_capabilities=options.compute_capabilities)
    return build_engines(
        staging, graphs, dimensions=checkpoint.dimensions, precision=options.precision, options=chosen, stages=stages
    )


def _verification(
    checkpoint: Checkpoint,
    graphs: tuple[Graph, ...],
    options: ExportOptions,
    corpus: Corpus,
    staging: Path,
    stages: Stages,
) -> Verification:
    tokenizer = open_tokenizer(staging, checkpoint.tokenizer, checkpoint.tokens)
    with stages.stage("load the original"):
        original = _original(checkpoint)
    judge = Judge(original, tokenizer, corpus, checkpoint.generation, checkpoint.dimensions.max_source_tokens)
    cases = []
    for lowering in options.lowerings:
        with stages.stage(f"verify the {lowering} graphs") as advance:
            encoder, decoder = (
                next(graph for graph in graphs if (graph.role, graph.lowering) == (role, lowering))
                for role in ("encoder", "decoder")
            )
            exported = GraphModel(staging, encoder, decoder, checkpoint.tokens, checkpoint.dimensions)
            cases += judge.cases(exported, lowering, advance)
            del exported
            gc.collect()  # the sessions of one lowering are gone before those of the next come
    return judge.verdict(cases, options.precision, options.max_quality_loss)


def _original(checkpoint: Checkpoint) -> Original:
    """Hugging Face where it is installed: it shares no code with us. Else our own module."""
    if importlib.util.find_spec("transformers") is not None:
        from dragoman.export.verification.original import HuggingFaceModel

        return HuggingFaceModel(checkpoint.directory, checkpoint.tokens)
    from dragoman.export.verification.eager import EagerModel

    return EagerModel(checkpoint.model, checkpoint.tokens)


def _peak_memory_bytes() -> int:
    """The most this process has held; Linux counts in kB, macOS in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
