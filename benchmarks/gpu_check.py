"""Acceptance on a machine with a GPU: what could not be tried where dragoman was written, tried and reported.

make gpu-check                                      exports, runs, writes gpu-report.md and gpu-report.json
python -m benchmarks.gpu_check --device cuda        ONNX Runtime's CUDA provider instead of TensorRT's

The report names processor, GPU and versions, no host names, paths or texts: send it back with an issue.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.cells import read_sentences
from benchmarks.gpu_facts import gpu_facts, gpu_memory_bytes, version_remarks
from benchmarks.machine import describe_machine
from benchmarks.peers import CACHE, CTRANSLATE2, EnvironmentUnavailable, converted_to_ctranslate2
from benchmarks.quality import scores
from benchmarks.random_checkpoint import REFERENCE
from benchmarks.results import machine_line
from benchmarks.worker_process import Worker, WorkerFailed, worker
from dragoman.bundle.manifest import read_manifest
from dragoman.bundle.tokenizer import open_tokenizer

__all__ = ["Finding", "Report", "Setup", "check"]

SAME_SENTENCES = 0.99  # fp32 on another device adds in another order: a tie may fall the other way, seldom
QUALITY_LOSS = 0.1  # BLEU points that fp16 may lose
BATCHES = (1, 8, 32, 128)


@dataclass(frozen=True, slots=True)
class Setup:
    """What is compared. `exact` is the fp32 bundle for the device, `fast` the one that would be deployed there."""

    device: str
    reference: Path
    exact: Path
    fast: Path
    sentences: int = 500
    batches: tuple[int, ...] = BATCHES
    rounds: int = 3
    peer: Path | None = None
    """The checkpoint, for CTranslate2 to convert; None leaves it out."""
    peer_precision: str = "fp16"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was asked for: `holds` is None where it could not be measured, and `measured` says why."""

    name: str
    goal: str
    measured: str
    holds: bool | None


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that was found, for people and for machines."""

    device: str
    machine: dict[str, Any]
    gpu: dict[str, str]
    remarks: tuple[str, ...]
    findings: tuple[Finding, ...]
    throughput: tuple[dict[str, float], ...] = field(default=())

    @property
    def accepted(self) -> bool:
        return all(finding.holds is not False for finding in self.findings)

    def to_markdown(self) -> str:
        gpu = ", ".join(f"{name} {value}" for name, value in self.gpu.items()) or "no GPU"
        signs = {True: "yes", False: "**no**", None: "not measured"}
        lines = [f"# dragoman on {self.device}", "", machine_line(self.machine), "", f"GPU: {gpu}.", ""]
        lines += ["| what | goal | found | holds |", "|---|---|---|---|"]
        lines += [f"| {one.name} | {one.goal} | {one.measured} | {signs[one.holds]} |" for one in self.findings]
        if self.throughput:
            lines += ["", "| batch | beam | tokens/s | CTranslate2 tokens/s | ratio |", "|---|---|---|---|---|"]
            lines += [
                f"| {one['batch']:.0f} | {one['beam']:.0f} | {one['ours']:,.0f} "
                + (f"| {one['peer']:,.0f} | {one['ours'] / one['peer']:.2f} |" if one.get("peer") else "| – | – |")
                for one in self.throughput
            ]
        return "\n".join([*lines, *(f"\n! {remark}" for remark in self.remarks), ""])


def check(setup: Setup, say: Callable[[str], None] = print) -> Report:
    """Run everything; a part that fails is a finding, not the end of the rest."""
    manifest = read_manifest(setup.reference)
    tokenizer = open_tokenizer(setup.reference, manifest.tokenizer, manifest.tokens)
    texts, references = read_sentences(setup.sentences)
    sources = [tokenizer.encode(text) for text in texts]
    before_bytes = gpu_memory_bytes()
    with ExitStack() as stack:
        say("opening the reference on the CPU …")
        reference = _ours(stack, setup.reference, "cpu")
        expected = {beam: _outputs(reference, sources, beam) for beam in (1, 4)}
        say(f"fp32 on {setup.device} …")
        parity = _attempt("same tokens in fp32", lambda: _parity(_ours(stack, setup.exact, setup.device), sources, expected))
        say(f"the bundle to deploy on {setup.device} …")
        fast: list[Worker] = []
        opened = _attempt("the bundle opens", lambda: _open(stack, setup, fast))
        findings = [*parity, *opened]
        throughput: list[dict[str, float]] = []
        if fast:

            def decoded(outputs: list[list[int]]) -> list[str]:
                return [tokenizer.decode(output) for output in outputs]

            spoken = {beam: decoded(outputs) for beam, outputs in expected.items()}
            findings += _attempt("quality", lambda: _quality(fast[0], sources, decoded, spoken, references))
            say("throughput …")
            findings += _attempt("throughput", lambda: _throughput(stack, setup, fast[0], sources, throughput))
            findings += _memory(before_bytes)
    return Report(
        setup.device, describe_machine(), gpu_facts(), tuple(version_remarks()), tuple(findings), tuple(throughput)
    )


def _attempt(name: str, measure: Callable[[], list[Finding]]) -> list[Finding]:
    try:
        return measure()
    except (WorkerFailed, EnvironmentUnavailable, subprocess.CalledProcessError) as error:
        reason = str(error).strip().splitlines()[-1][:200]
        return [Finding(name, "to work at all", reason.replace("|", "/"), holds=False)]


def _ours(stack: ExitStack, bundle: Path, device: str) -> Worker:
    side = stack.enter_context(worker(Path(sys.executable), "dragoman_side", 2))
    side.ask("load", model=str(bundle), threads=2, settings={"device": device})
    return side


def _open(stack: ExitStack, setup: Setup, fast: list[Worker]) -> list[Finding]:
    side = stack.enter_context(worker(Path(sys.executable), "dragoman_side", 2))
    loaded = side.ask("load", model=str(setup.fast), threads=2, settings={"device": setup.device})
    fast.append(side)
    return [Finding("the bundle opens", "it does", f"after {loaded['seconds']:.1f} s, {loaded['version']}", holds=True)]


def _outputs(side: Worker, sources: Sequence[Sequence[int]], beam: int) -> list[list[int]]:
    answer = side.ask("run", sources=list(map(list, sources)), batch=32, beam=beam, target_tokens=None, keep=True)
    outputs: list[list[int]] = answer["outputs"]
    return outputs


def _parity(exact: Worker, sources: Sequence[Sequence[int]], expected: dict[int, list[list[int]]]) -> list[Finding]:
    findings = []
    for beam, wanted in expected.items():
        found = _outputs(exact, sources, beam)
        same = statistics.fmean(one == other for one, other in zip(found, wanted, strict=True))
        name = "same tokens in fp32, " + ("greedy" if beam == 1 else f"beam {beam}")
        findings.append(Finding(name, f"≥ {SAME_SENTENCES:.0%} of sentences", f"{same:.2%}", same >= SAME_SENTENCES))
    return findings


def _quality(
    fast: Worker,
    sources: Sequence[Sequence[int]],
    decoded: Callable[[list[list[int]]], list[str]],
    expected: dict[int, list[str]],
    references: list[list[str]],
) -> list[Finding]:
    """BLEU lost against fp32 on the CPU; against its output where there are no references."""
    findings = []
    judges = references if all(references) else None
    for beam, wanted in expected.items():
        said = decoded(_outputs(fast, sources, beam))
        judged = judges or [[text] for text in wanted]
        lost = scores(wanted, judged)["bleu"] - scores(said, judged)["bleu"]
        goal = f"loses ≤ {QUALITY_LOSS} BLEU" if judges else "loses ≤ 5 BLEU of fp32's own output"
        holds = lost <= (QUALITY_LOSS if judges else 5.0)
        findings.append(Finding(f"quality of the deployed precision, beam {beam}", goal, f"{lost:+.2f}", holds))
    return findings


def _throughput(
    stack: ExitStack, setup: Setup, fast: Worker, sources: Sequence[Sequence[int]], cells: list[dict[str, float]]
) -> list[Finding]:
    peer = _peer(stack, setup) if setup.peer is not None else None
    for batch in setup.batches:
        for beam in (1, 4):
            cell: dict[str, float] = {"batch": batch, "beam": beam, "ours": _tokens_per_s(setup, fast, sources, batch, beam)}
            if peer is not None:
                cell["peer"] = _tokens_per_s(setup, peer, sources, batch, beam)
            cells.append(cell)
    ratios = [cell["ours"] / cell["peer"] for cell in cells if "peer" in cell]
    goal = f"≥ CTranslate2 {setup.peer_precision}"
    if not ratios:
        return [Finding("throughput", goal, "CTranslate2 was left out", holds=None)]
    typical = statistics.median(ratios)
    return [Finding("throughput", goal, f"{typical:.2f}x in the median, {min(ratios):.2f}x at worst", typical >= 1)]


def _peer(stack: ExitStack, setup: Setup) -> Worker:
    side = stack.enter_context(worker(CTRANSLATE2.python(), "ctranslate2_side", 2))
    device = "cpu" if setup.device == "cpu" else "cuda"
    model = converted_to_ctranslate2(setup.peer) if setup.peer is not None else Path()
    side.ask("load", model=str(model), precision=setup.peer_precision, threads=2, device=device)
    return side


def _tokens_per_s(setup: Setup, side: Worker, sources: Sequence[Sequence[int]], batch: int, beam: int) -> float:
    """The median of several rounds after one that is not counted; small batches get fewer sentences."""
    some = [list(source) for source in sources[: max(8, min(len(sources), 8 * batch))]]
    rounds = [side.ask("run", sources=some, batch=batch, beam=beam, target_tokens=None) for _ in range(setup.rounds + 1)]
    return statistics.median(float(one["tokens"]) / float(one["wall_s"]) for one in rounds[1:])


def _memory(before_bytes: int | None) -> list[Finding]:
    now_bytes = gpu_memory_bytes()
    if before_bytes is None or now_bytes is None:
        return [Finding("GPU memory of both models together", "reported", "nvidia-smi does not say", holds=None)]
    taken = f"{(now_bytes - before_bytes) / 2**20:,.0f} MiB"
    return [Finding("GPU memory of both models together", "reported", taken, holds=True)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["tensorrt", "cuda", "cpu"], default="tensorrt")
    parser.add_argument("--model", type=Path, default=REFERENCE, help="a checkpoint (default: the bundled model)")
    parser.add_argument("--sentences", type=int, default=500)
    parser.add_argument("--without-ctranslate2", action="store_true")
    parser.add_argument("--output", type=Path, default=Path("gpu-report"), help="prefix of the .md and .json files")
    arguments = parser.parse_args()
    if arguments.device != "cpu" and not gpu_facts():
        print("no GPU here (nvidia-smi does not answer); `--device cpu` tries out the check itself", file=sys.stderr)
        return 2
    fast = "fp32" if arguments.device == "cpu" else "fp16"
    setup = Setup(
        device=arguments.device,
        reference=exported(arguments.model, "cpu", "fp32"),
        exact=exported(arguments.model, arguments.device, "fp32"),
        fast=exported(arguments.model, arguments.device, fast),
        sentences=arguments.sentences,
        peer=None if arguments.without_ctranslate2 else arguments.model,
        peer_precision=fast,
    )
    report = check(setup)
    arguments.output.with_suffix(".json").write_text(json.dumps(asdict(report), indent=1) + "\n", encoding="utf-8")
    arguments.output.with_suffix(".md").write_text(report.to_markdown(), encoding="utf-8")
    print(report.to_markdown())
    print(f"written: {arguments.output.with_suffix('.md')}, {arguments.output.with_suffix('.json')}", file=sys.stderr)
    return 0 if report.accepted else 1


def exported(model: Path, device: str, precision: str) -> Path:
    """The bundle for a device, exported when the cache has none."""
    output = CACHE / "gpu-bundles" / f"{model.name}-{device}-{precision}"
    if not output.is_dir():
        output.parent.mkdir(parents=True, exist_ok=True)
        program = shutil.which("dragoman", path=str(Path(sys.executable).parent)) or "dragoman"
        command = [program, "export", str(model), "--output", str(output), "--precision", precision, "--target", device]
        subprocess.run(command, check=True)
    return output


if __name__ == "__main__":
    sys.exit(main())
