"""Acceptance on a machine with a GPU: what could not be tried where dragoman was written, tried and reported.

make gpu-check                                      exports, runs, writes gpu-report.md and .json, ends with a verdict
python -m benchmarks.gpu_check --device cuda        ONNX Runtime's CUDA provider instead of TensorRT's

The report names processor, GPU and versions, no host names, paths or texts: send it back with an issue.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from benchmarks.cells import read_sentences
from benchmarks.gpu_facts import gpu_facts, gpu_memory_bytes, version_remarks
from benchmarks.gpu_report import Finding, Report
from benchmarks.gpu_setup import Setup, prepared
from benchmarks.machine import describe_machine
from benchmarks.peers import CTRANSLATE2, EnvironmentUnavailable, converted_to_ctranslate2
from benchmarks.quality import scores
from benchmarks.random_checkpoint import REFERENCE
from benchmarks.worker_process import Worker, WorkerFailed, worker
from dragoman.bundle.manifest import read_manifest
from dragoman.bundle.tokenizer import open_tokenizer

__all__ = ["Finding", "Report", "Setup", "check"]

SAME_SENTENCES = 0.99  # fp32 on another device adds in another order: a tie may fall the other way, seldom
QUALITY_LOSS = 0.1  # BLEU points that fp16 may lose
SCORED, SCORE_DIFFERENCE = 50, 1e-3


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
        parity = _attempt("same tokens in fp32", lambda: _exactness(stack, setup, reference, sources, expected))
        say(f"the bundle to deploy on {setup.device} …")
        fast: list[Worker] = []
        opened = _attempt("the bundle opens", lambda: _open(stack, setup, fast, sources[0]))
        findings = [*parity, *opened]
        throughput: list[dict[str, float]] = []

        def decoded(outputs: list[list[int]]) -> list[str]:
            return [tokenizer.decode(output) for output in outputs]

        spoken = {beam: decoded(outputs) for beam, outputs in expected.items()}

        def quality(name: str, side: Callable[[], Worker]) -> list[Finding]:
            say(f"quality of {name} …")
            found = _attempt(f"quality of {name}", lambda: _quality(side(), sources, decoded, spoken, references))
            return [replace(one, name=f"{one.name} ({name})") for one in found]

        if fast:
            findings += quality("the precision to deploy", lambda: fast[0])
            findings += _memory(before_bytes)
            say("throughput …")
            findings += _attempt("throughput", lambda: _throughput(stack, setup, fast[0], sources, throughput))
        for precision, bundle in setup.others.items():

            def opened_one(bundle: Path = bundle) -> Worker:
                return _ours(stack, bundle, setup.device)

            findings += quality(precision, opened_one)
    return Report(
        setup.device, describe_machine(), gpu_facts(), tuple(version_remarks()), tuple(findings), tuple(throughput)
    )


def _attempt(name: str, measure: Callable[[], list[Finding]]) -> list[Finding]:
    try:
        return measure()
    except (WorkerFailed, EnvironmentUnavailable, subprocess.CalledProcessError) as error:
        reason = str(error).strip().splitlines()[-1][:400]
        return [Finding(name, "to work at all", reason.replace("|", "/"), holds=False)]


def _ours(stack: ExitStack, bundle: Path, device: str, **settings: object) -> Worker:
    side = stack.enter_context(worker(Path(sys.executable), "dragoman_side", 2))
    side.ask("load", model=str(bundle), threads=2, settings={"device": device, **settings})
    return side


def _open(stack: ExitStack, setup: Setup, fast: list[Worker], source: Sequence[int]) -> list[Finding]:
    """Cold start: the engines loaded, and then the first sentence, for which kernels may still have to be compiled."""
    side = stack.enter_context(worker(Path(sys.executable), "dragoman_side", 2))
    loaded = side.ask("load", model=str(setup.fast), threads=2, settings={"device": setup.device})
    first, second = (side.ask("run", sources=[list(source)], batch=1, beam=1, target_tokens=None) for _ in range(2))
    fast.append(side)
    return [
        Finding("the bundle opens", "it does", f"after {loaded['seconds']:.1f} s, {loaded['version']}", holds=True),
        Finding(
            "first sentence after the start",
            "reported",
            f"{first['wall_s']:.2f} s, then {second['wall_s']:.2f} s",
            holds=True,
        ),
    ]


def _outputs(side: Worker, sources: Sequence[Sequence[int]], beam: int) -> list[list[int]]:
    answer = side.ask("run", sources=list(map(list, sources)), batch=32, beam=beam, target_tokens=None, keep=True)
    outputs: list[list[int]] = answer["outputs"]
    return outputs


def _exactness(
    stack: ExitStack,
    setup: Setup,
    reference: Worker,
    sources: Sequence[Sequence[int]],
    expected: dict[int, list[list[int]]],
) -> list[Finding]:
    if setup.exact is None:
        return [Finding("same tokens in fp32", "reported", "TensorRT-RTX has no fp32 products for this GPU", holds=None)]
    exact = _ours(stack, setup.exact, setup.device)
    scores = _attempt("log-probabilities of given targets in fp32", lambda: _scored(exact, reference, sources, expected[1]))
    return [*_parity(exact, sources, expected), *scores]


def _scored(exact: Worker, reference: Worker, sources: Sequence[Sequence[int]], targets: list[list[int]]) -> list[Finding]:
    """Forced decoding: what scores, alignments and markup rest on."""
    work = {"sources": list(map(list, sources[:SCORED])), "targets": targets[:SCORED]}
    found, wanted = (side.ask("score", **work)["log_probs"] for side in (exact, reference))
    pairs = zip(found, wanted, strict=True)
    worst = max(abs(one - other) for ours, theirs in pairs for one, other in zip(ours, theirs, strict=True))
    name = "log-probabilities of given targets in fp32"
    return [Finding(name, f"differ by ≤ {SCORE_DIFFERENCE:g}", f"{worst:.1e}", worst <= SCORE_DIFFERENCE)]


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
        output = decoded(_outputs(fast, sources, beam))
        judged = judges or [[text] for text in wanted]
        lost = scores(wanted, judged)["bleu"] - scores(output, judged)["bleu"]
        goal = f"loses ≤ {QUALITY_LOSS} BLEU" if judges else "loses ≤ 5 BLEU of fp32's own output"
        holds = lost <= (QUALITY_LOSS if judges else 5.0)
        findings.append(Finding(f"quality of the deployed precision, beam {beam}", goal, f"{lost:+.2f}", holds))
    return findings


def _throughput(
    stack: ExitStack, setup: Setup, fast: Worker, sources: Sequence[Sequence[int]], cells: list[dict[str, float]]
) -> list[Finding]:
    sides: dict[str, Worker] = {"ours": fast}
    if setup.device == "tensorrt":
        sides["without_graphs"] = _ours(stack, setup.fast, setup.device, cuda_graphs=False)
    findings = []
    for name, opened in (("ctranslate2", _ctranslate2), ("hugging_face", _hugging_face)):
        if setup.peer is None:
            findings.append(Finding(f"throughput, {name}", f"≥ {name} {setup.peer_precision}", "left out", holds=None))
            continue

        def add_peer(name: str = name, opened: Callable[[ExitStack, Setup], Worker] = opened) -> list[Finding]:
            sides[name] = opened(stack, setup)
            return []

        failed = _attempt(f"{name} runs", add_peer)
        findings += [replace(one, holds=None) for one in failed]  # failures of the peer do not count
    for batch in setup.batches:
        for beam in (1, 4):
            cell: dict[str, float] = {"batch": batch, "beam": beam}
            cell |= {name: _tokens_per_s(setup, side, sources, batch, beam) for name, side in sides.items()}
            cells.append(cell)
    for name in ("ctranslate2", "hugging_face", "without_graphs"):
        if name in sides:
            ratios = [cell["ours"] / cell[name] for cell in cells]
            typical = statistics.median(ratios)
            goal = "reported" if name == "without_graphs" else f"≥ {name} {setup.peer_precision}"
            found = f"{typical:.2f}x in the median, {min(ratios):.2f}x at worst"
            findings.append(Finding(f"throughput, {name}", goal, found, typical >= 1 or name == "without_graphs"))
    return findings


def _ctranslate2(stack: ExitStack, setup: Setup) -> Worker:
    side = stack.enter_context(worker(CTRANSLATE2.python(), "ctranslate2_side", 2))
    model = converted_to_ctranslate2(setup.peer, setup.peer_precision) if setup.peer is not None else Path()
    side.ask("load", model=str(model), precision=setup.peer_precision, threads=2, device=_torch_device(setup))
    return side


def _hugging_face(stack: ExitStack, setup: Setup) -> Worker:
    side = stack.enter_context(worker(CTRANSLATE2.python(), "hugging_face_side", 2))
    side.ask("load", model=str(setup.peer), precision=setup.peer_precision, threads=2, device=_torch_device(setup))
    return side


def _torch_device(setup: Setup) -> str:
    return "cpu" if setup.device == "cpu" else "cuda"


def _tokens_per_s(setup: Setup, side: Worker, sources: Sequence[Sequence[int]], batch: int, beam: int) -> float:
    """The median of several rounds after one that is not counted; small batches get fewer sentences."""
    some = [list(source) for source in sources[: max(8, min(len(sources), 8 * batch))]]
    rounds = [side.ask("run", sources=some, batch=batch, beam=beam, target_tokens=None) for _ in range(setup.rounds + 1)]
    return statistics.median(float(one["tokens"]) / float(one["wall_s"]) for one in rounds[1:])


def _memory(before_bytes: int | None) -> list[Finding]:
    now_bytes = gpu_memory_bytes()
    if before_bytes is None or now_bytes is None:
        return [
            Finding(
                "GPU memory of the fp32 and the deployed model together", "reported", "nvidia-smi does not say", holds=None
            )
        ]
    taken = f"{(now_bytes - before_bytes) / 2**20:,.0f} MiB"
    return [Finding("GPU memory of the fp32 and the deployed model together", "reported", taken, holds=True)]


def main() -> int:
    """0: accepted, 1: something does not hold, 2: there is no GPU."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["tensorrt", "cuda", "cpu"], default="tensorrt")
    parser.add_argument("--model", type=Path, default=REFERENCE, help="a checkpoint (default: the bundled model)")
    parser.add_argument("--sentences", type=int, default=500)
    parser.add_argument("--without-peers", action="store_true", help="leave CTranslate2 and Hugging Face out")
    parser.add_argument("--output", type=Path, default=Path("gpu-report"), help="prefix of the .md and .json files")
    arguments = parser.parse_args()
    if arguments.device != "cpu" and not gpu_facts():
        report = Report(arguments.device, describe_machine(), {}, ("`--device cpu` tries out the check itself.",), ())
        report.write(arguments.output)
        return 2
    try:
        report = check(prepared(arguments))
    except subprocess.CalledProcessError as error:  # of an export or a build, which has said why
        what = " ".join(error.cmd[1:2])
        finding = Finding(f"dragoman {what}", "to work at all", f"ended with code {error.returncode}", holds=False)
        remarks = tuple(version_remarks())
        report = Report(arguments.device, describe_machine(), gpu_facts(), remarks, (finding,))
    report.write(arguments.output)
    return 0 if report.accepted else 1


if __name__ == "__main__":
    sys.exit(main())
