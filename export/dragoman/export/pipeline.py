"""Checkpoint to bundle, stage by stage; also what to call from Python.

report = export_bundle(ExportOptions(Path("opus-mt-en-de"), Path("bundles/en-de"), precision="int8"))
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path

from dragoman.bundle.integrity import record_file
from dragoman.bundle.manifest import (
    MANIFEST_NAME,
    SCHEMA_VERSION,
    Alignment,
    EngineFile,
    Graph,
    Lowering,
    Manifest,
    Precision,
    Segmentation,
    Target,
    Tasks,
    Verification,
    VerificationCase,
)
from dragoman.bundle.tasks import TASK_PREFIX, longest_prefix
from dragoman.bundle.tokenizer import Tokenizer, open_tokenizer
from dragoman.errors import InvalidRequest, UsageError
from dragoman.export.calibration import CalibrationText, calibrate
from dragoman.export.calibration.alignment import find_alignment
from dragoman.export.checkpoint import Checkpoint, CompanionFiles, TokenLimits, read_checkpoint
from dragoman.export.graphs import build_graphs
from dragoman.export.lowering import Calibration, lowering_named, lowerings_for
from dragoman.export.progress import QuietStages, Stages, peak_memory_bytes
from dragoman.export.shortlist import with_shortlists
from dragoman.export.staging import staged_directory
from dragoman.export.tensorrt import BuildOptions, build_engines, find_toolchain
from dragoman.export.verification.comparison import Judge, Output
from dragoman.export.verification.corpus import bundled_corpus, read_corpus
from dragoman.export.verification.exported import GraphModel
from dragoman.export.verification.languages import VerifiedLanguages, requested_languages
from dragoman.export.verification.references import open_reference

__all__ = ["ExportOptions", "ExportReport", "export_bundle"]

MOST_SENTENCES = 256
"""The most sentences of a corpus that heads are chosen with."""


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """What to export, how, and where to.

    `lowering` is what the CPU runs: "native" (custom operators; the default where they are built) or "portable" (standard
    operators, slower, for a server without them).
    `shortlist` is text in the target language: tokens that are not in it are never generated. `shortlists` are such texts by
    target language: requests into other languages choose from the whole vocabulary.
    `verify=False` leaves the comparison with the original out, and the manifest says so by having no verification: for
    random weights, whose translations mean nothing.
    `segmentation` is what the model translates at a time, where its family's usual is not right.
    `task_prefix` stands before every text of a request that names no other task ("summarize: ").
    `format_name` says what `checkpoint` is where it is not recognised; `companions` are files that do not lie beside it.
    """

    checkpoint: Path
    output: Path
    precision: Precision = "fp32"
    targets: tuple[Target, ...] = ("cpu",)
    compute_capabilities: tuple[str, ...] | None = None
    shortlist: Path | None = None
    shortlists: Mapping[str, Path] = field(default_factory=dict)
    verify_file: Path | None = None
    max_quality_loss: float | None = None
    limits: TokenLimits = field(default_factory=TokenLimits)
    force: bool = False
    lowering: Lowering | None = None
    verify: bool = True
    segmentation: Segmentation | None = None
    task_prefix: str = ""
    format_name: str | None = None
    companions: CompanionFiles = field(default_factory=CompanionFiles)

    def __post_init__(self) -> None:
        if not self.verify and (self.verify_file is not None or self.max_quality_loss is not None):
            raise UsageError("verify_file and max_quality_loss mean nothing with verify=False")
        if self.max_quality_loss is not None and not self.max_quality_loss >= 0:
            raise UsageError(f"--max-quality-loss {self.max_quality_loss:g} must not be negative")
        if self.shortlist is not None and self.shortlists:
            raise UsageError("shortlist and shortlists: give one text for all languages, or texts of single languages")
        if self.shortlists and "portable" in self.lowerings:
            raise UsageError(
                "shortlists of single languages need the custom operators, which choose weights for each row: export for "
                "--target cpu alone, or give --shortlist one FILE for all languages"
            )
        try:
            TASK_PREFIX.read("task_prefix", self.task_prefix)
        except InvalidRequest as error:
            raise UsageError(f"--task-prefix can't be used: {error}") from None
        if self.precision == "bf16" and set(self.targets) != {"tensorrt"}:
            raise UsageError(
                "--precision bf16 is for TensorRT (--target tensorrt alone); "
                f"{', '.join(self.targets)} can run fp32, fp16 and int8"
            )
        _ = self.lowerings
        if self.compute_capabilities and "tensorrt" not in self.targets:
            raise UsageError("--compute-capability only means something with --target tensorrt")

    @property
    def lowerings(self) -> tuple[Lowering, ...]:
        """The graphs that the targets need, each once."""
        return lowerings_for(self.targets, self.lowering)


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What came out and what it cost."""

    bundle: Path
    manifest: Manifest
    seconds: dict[str, float]
    peak_memory_bytes: int


def export_bundle(options: ExportOptions, stages: Stages | None = None) -> ExportReport:
    """Export `options.checkpoint`; an ExportError or a Ctrl-C leaves no bundle, and an old one as it was."""
    return _Export(options, stages or QuietStages()).run()


class _Export:
    """One export: the state that its stages share."""

    def __init__(self, options: ExportOptions, stages: Stages) -> None:
        self._options, self._stages = options, stages
        corpus = read_corpus(options.verify_file) if options.verify_file else bundled_corpus()
        self._corpus = corpus.prefixed(options.task_prefix)
        self._engine_options = BuildOptions(compute_capabilities=options.compute_capabilities)
        if "tensorrt" in options.targets:
            find_toolchain(self._engine_options)  # a missing builder is an error before the long work, not after it

    def run(self) -> ExportReport:
        with staged_directory(self._options.output, force=self._options.force) as staging:
            with self._stages.stage("read the checkpoint"):
                original = read_checkpoint(
                    self._options.checkpoint, self._options.limits, self._options.companions, self._options.format_name
                )
            original.tokenizer_plan.write(staging)
            tokenizer = open_tokenizer(staging, original.tokenizer, original.tokens)
            self._check_prefixes(original, tokenizer)
            alignment = self._alignment(original, tokenizer) if self._options.verify else None
            original.weights.release()
            checkpoint = self._shortened(original, tokenizer)
            if alignment is not None:
                heads = tuple((layer, head) for layer, head in alignment.heads)
                checkpoint = replace(checkpoint, alignment_heads=heads)
            graphs, kept_in_fp32 = self._graphs(original, checkpoint, tokenizer, staging)
            engines = self._engines(checkpoint, graphs, staging) if "tensorrt" in self._options.targets else ()
            verification = None
            if self._options.verify:
                verification = self._verification(original, checkpoint, graphs, tokenizer, staging)
            with self._stages.stage("write the manifest"):
                files = {path.name: record_file(path) for path in sorted(staging.iterdir())}
                manifest = Manifest(
                    schema_version=SCHEMA_VERSION,
                    dragoman_version=version("dragoman"),
                    model=checkpoint.card,
                    dimensions=checkpoint.dimensions,
                    tokens=checkpoint.tokens,
                    generation=checkpoint.generation,
                    tokenizer=checkpoint.tokenizer,
                    precision=self._options.precision,
                    targets=self._options.targets,
                    graphs=graphs,
                    files=files,
                    verification=verification,
                    kept_in_fp32=kept_in_fp32,
                    engines=engines,
                    languages=checkpoint.languages,
                    tasks=Tasks(self._options.task_prefix, dict(checkpoint.tasks)),
                    segmentation=self._options.segmentation or checkpoint.segmentation,
                    alignment=alignment,
                    shortlists={code: len(tokens) for code, tokens in checkpoint.shortlists.items()},
                )
                (staging / MANIFEST_NAME).write_text(manifest.to_json(), encoding="utf-8")
        return ExportReport(self._options.output, manifest, dict(self._stages.seconds), peak_memory_bytes())

    def _check_prefixes(self, checkpoint: Checkpoint, tokenizer: Tokenizer) -> None:
        """A text must have room behind what always stands before it."""
        most = longest_prefix(checkpoint.dimensions)
        prefixes = {"--task-prefix": self._options.task_prefix}
        prefixes |= {f"the prefix of task {name}": task.prefix for name, task in checkpoint.tasks.items()}
        for name, prefix in prefixes.items():
            if (tokens := len(tokenizer.encode(prefix))) > most and prefix:
                raise UsageError(
                    f"{name} has {tokens} tokens; with {checkpoint.dimensions.max_source_tokens} source tokens "
                    f"it may have {most}"
                )

    def _shortened(self, checkpoint: Checkpoint, tokenizer: Tokenizer) -> Checkpoint:
        if self._options.shortlist is None and not self._options.shortlists:
            return checkpoint
        with self._stages.stage("choose the shortlist"):
            return with_shortlists(checkpoint, tokenizer, self._options.shortlist, self._options.shortlists)

    def _alignment(self, checkpoint: Checkpoint, tokenizer: Tokenizer) -> Alignment:
        """Chosen with the whole vocabulary: the layers of a model with a shortlist are the same."""
        languages, tokens = VerifiedLanguages(tokenizer, requested_languages(checkpoint, tokenizer)), checkpoint.tokens
        target = languages.targets(is_one=True)[0]
        silent = {tokens.pad, tokens.eos, *checkpoint.tokenizer.silent}
        silent |= {*target.tokens.source_prefix, *target.tokens.source_suffix}
        if target.tokens.decoder_start is not None:
            tokens = replace(tokens, decoder_start=target.tokens.decoder_start)
        silent |= {*checkpoint.tokenizer.source_prefix, *checkpoint.tokenizer.source_suffix}
        with self._stages.stage("choose the heads that align") as advance:
            return find_alignment(
                checkpoint.model,
                tokens,
                languages.encode(self._corpus.sentences[:MOST_SENTENCES], target),
                target.tokens.apply(checkpoint.generation),
                silent=frozenset(silent),
                advance=advance,
            )

    def _graphs(
        self, original: Checkpoint, checkpoint: Checkpoint, tokenizer: Tokenizer, staging: Path
    ) -> tuple[tuple[Graph, ...], tuple[str, ...]]:
        """The graphs, and the modules that fp16 can't hold: those of the original's, whose layers are the same."""
        lowerings, precision = self._options.lowerings, self._options.precision
        asked = any(
            lowering_named(name, original.weights.structure.choices).needs_calibration(precision) for name in lowerings
        )
        calibration = self._calibration(original, tokenizer) if asked else Calibration()
        with self._stages.stage("build the graphs") as advance:
            graphs = build_graphs(checkpoint, lowerings, precision, staging, advance, calibration=calibration)
        return graphs, calibration.keep_in_fp32

    def _calibration(self, checkpoint: Checkpoint, tokenizer: Tokenizer) -> Calibration:
        text = CalibrationText.of(self._corpus.sentences, tokenizer, checkpoint.dimensions.max_source_tokens)
        with self._stages.stage("calibrate on real text") as advance:
            return calibrate(checkpoint.model, checkpoint.tokens, text, self._options.precision, advance)

    def _engines(self, checkpoint: Checkpoint, graphs: tuple[Graph, ...], staging: Path) -> tuple[EngineFile, ...]:
        return build_engines(
            staging,
            graphs,
            dimensions=checkpoint.dimensions,
            precision=self._options.precision,
            options=self._engine_options,
            stages=self._stages,
        )

    def _verification(
        self,
        original: Checkpoint,
        checkpoint: Checkpoint,
        graphs: tuple[Graph, ...],
        tokenizer: Tokenizer,
        staging: Path,
    ) -> Verification:
        judge = Judge(
            lambda: open_reference(original),
            tokenizer,
            self._corpus,
            checkpoint.generation,
            checkpoint.dimensions.max_source_tokens,
            vocabulary=original.dimensions.target_vocabulary,
            languages=requested_languages(checkpoint, tokenizer),
        )
        original.weights.release()  # the graphs hold the weights now
        outputs = [self._run(judge, checkpoint, graphs, lowering, staging) for lowering in self._options.lowerings]
        with self._stages.stage("load the original"):
            _ = judge.original
        cases: list[VerificationCase] = []
        for one in outputs:
            with self._stages.stage(f"verify the {one.lowering} graphs") as advance:
                cases += judge.cases(one, advance)
        return judge.verdict(
            cases,
            self._options.precision,
            self._options.max_quality_loss,
            checkpoint.shortlist is not None or bool(checkpoint.shortlists),
        )

    def _run(
        self, judge: Judge, checkpoint: Checkpoint, graphs: tuple[Graph, ...], lowering: Lowering, staging: Path
    ) -> Output:
        with self._stages.stage(f"run the {lowering} graphs") as advance:
            of_lowering = {graph.role: graph for graph in graphs if graph.lowering == lowering}
            exported = GraphModel(staging, of_lowering, checkpoint.tokens, checkpoint.dimensions)
            output = judge.run(exported, lowering, advance)
            del exported
            gc.collect()  # the sessions are gone before the next graphs, or the original, come
            return output
