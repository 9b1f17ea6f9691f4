"""What the client costs.

    python -m benchmarks.client_overhead --workload test.tsv --bundle bundles/tatoeba-en-de [--only calls file search memory]

calls   CPU time of the client's process a call, beside the same call written with tritonclient; the server answers at once
file    translate_file on a real server, as a share of the engine's own throughput in one process
search  decoding in the client beside decoding in the server, target tokens a second
memory  the client's memory while it translates a file of a million lines; the server answers at once
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import psutil
import tritonclient.grpc
import tritonclient.grpc.aio

from benchmarks.constant_triton import constant_triton
from benchmarks.machine import describe_machine, load_average
from benchmarks.results import Line, write_results
from benchmarks.served_process import ServedProcess, serving
from benchmarks.statistics import ratios, spread
from dragoman.client import AsyncTranslator, Translator, Window

TEXT = "I have never seen such a beautiful city in my whole life."
OPTIONS = {"beam_size": 4, "timeout_ms": 30_000}
PARTS = ("calls", "file", "search", "memory")


def main() -> int:
    arguments = _arguments()
    lines: list[Line] = []
    if "calls" in arguments.only:
        lines += measure_calls(arguments.rounds, arguments.calls)
    if "file" in arguments.only or "search" in arguments.only:
        sentences = _sentences(arguments.workload, arguments.sentences)
        with serving(arguments.bundle) as server:
            if "file" in arguments.only:
                lines += measure_file(server, arguments.bundle, sentences, arguments.rounds)
            if "search" in arguments.only:
                lines += measure_search(server.address, sentences[:256], arguments.rounds)
    if "memory" in arguments.only:
        lines += measure_memory(arguments.lines)
    rows = [f"| {line.what} | {line.figure} | {line.aim} |" for line in lines]
    note = f"{arguments.rounds} interleaved rounds; median (lowest to highest). Load average: {load_average():.1f}."
    figures = {
        "machine": describe_machine(),
        "command": " ".join(["python -m benchmarks.client_overhead", *(Path(word).name for word in sys.argv[1:])]),
        "load_average": load_average(),
        "lines": [asdict(line) for line in lines],
    }
    write_results("client_overhead", figures, "\n".join([note, "", "| what | figure | aim |", "|---|---|---|", *rows]))
    return 0


def measure_calls(rounds: int, calls: int) -> list[Line]:
    """CPU microseconds a call of four ways to ask the same."""
    with constant_triton() as address:
        sync = _interleaved(rounds, _cpu_of(_raw_call(address), calls), _cpu_of(_our_call(address), calls))
        awaited = asyncio.run(_awaited_calls(address, rounds, calls))
    return [
        _calls_line("a blocking call", *sync),
        _calls_line("an awaited call", *awaited),
    ]


def _calls_line(what: str, raw: list[float], ours: list[float]) -> Line:
    ratio = ratios(ours, raw)
    figure = f"{spread(ours).median:.0f} µs CPU, tritonclient {spread(raw).median:.0f} µs, ratio {ratio}"
    return Line(what, figure, "ratio ≤ 1.15", {"ours_us": ours, "tritonclient_us": raw, "ratio": asdict(ratio)})


def _raw_call(address: str) -> Callable[[], object]:
    client = tritonclient.grpc.InferenceServerClient(address)
    return lambda: _raw_read(client.infer("translate", _raw_inputs(), client_timeout=30))


def _our_call(address: str) -> Callable[[], object]:
    translator = Translator(address)
    return lambda: translator.translate(TEXT, beam_size=4)


async def _awaited_calls(address: str, rounds: int, calls: int) -> tuple[list[float], list[float]]:
    client = tritonclient.grpc.aio.InferenceServerClient(address)

    async def raw() -> None:
        _raw_read(await client.infer("translate", _raw_inputs(), client_timeout=30))

    found: tuple[list[float], list[float]] = [], []
    async with AsyncTranslator(address) as translator:

        async def ours() -> None:
            await translator.translate(TEXT, beam_size=4)

        for number in range(rounds + 1):
            for side, call in ((0, raw), (1, ours)) if number % 2 else ((1, ours), (0, raw)):
                figure = await _awaited_cpu(call, calls)
                if number:  # the first round warms up
                    found[side].append(figure)
    await client.close()
    return found


async def _awaited_cpu(call: Callable[[], Awaitable[None]], calls: int) -> float:
    began = time.process_time()
    for _ in range(calls):
        await call()
    return (time.process_time() - began) / calls * 1e6


def _cpu_of(call: Callable[[], object], calls: int) -> Callable[[], float]:
    def measure() -> float:
        began = time.process_time()
        for _ in range(calls):
            call()
        return (time.process_time() - began) / calls * 1e6

    return measure


def _raw_inputs() -> list[tritonclient.grpc.InferInput]:
    """What a careful user of tritonclient writes: text and options as BYTES tensors."""
    inputs = []
    for name, content in (("TEXT", TEXT.encode()), ("OPTIONS", json.dumps(OPTIONS).encode())):
        tensor = tritonclient.grpc.InferInput(name, [1], "BYTES")
        tensor.set_data_from_numpy(np.array([content], dtype=object))
        inputs.append(tensor)
    return inputs


def _raw_read(answer: tritonclient.grpc.InferResult) -> object:
    """The same outputs that a Translation has."""
    text = answer.as_numpy("TRANSLATION")[0][0].decode()
    details = json.loads(answer.as_numpy("DETAILS")[0])
    return text, answer.as_numpy("SCORE")[0][0], answer.as_numpy("TOKEN_COUNT")[0][0], details


def measure_file(server: ServedProcess, bundle: Path, sentences: list[str], rounds: int) -> list[Line]:
    """Sentences a second of translate_file, and of the engine fed in its own process; and what both cost in CPU time."""
    from dragoman.serving.in_process import open_model

    model = open_model(bundle)
    model.warm_up()
    cpu: dict[str, list[float]] = {"in process": [], "client": [], "server": []}
    with Translator(server.address) as translator, tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder) / "source", Path(folder) / "output"
        source.write_text("".join(f"{sentence}\n" for sentence in sentences), encoding="utf-8")

        def engine() -> float:
            began, cpu_began = time.perf_counter(), time.process_time()
            model.translate(sentences)
            cpu["in process"].append(time.process_time() - cpu_began)
            return len(sentences) / (time.perf_counter() - began)

        def file() -> float:
            began, cpu_began, server_began = time.perf_counter(), time.process_time(), server.cpu_s()
            translator.translate_file(source, output, cache=False)
            cpu["client"].append(time.process_time() - cpu_began)
            cpu["server"].append(server.cpu_s() - server_began)
            return len(sentences) / (time.perf_counter() - began)

        in_process, over_grpc = _interleaved(rounds, engine, file)
    share = ratios(over_grpc, in_process)
    figure = f"{spread(over_grpc).median:.0f} sentences/s, in process {spread(in_process).median:.0f}, share {share}"
    values = {"file": over_grpc, "in_process": in_process, "share": asdict(share), "sentences": len(sentences)}
    costs = {name: [1000 * seconds / len(sentences) for seconds in found[1:]] for name, found in cpu.items()}
    cost = ", ".join(f"{name} {spread(found).median:.2f} ms" for name, found in costs.items())
    return [
        Line("translate_file on a served model", figure, "share ≥ 0.90", values),
        Line("its CPU time a sentence", cost, "–", {"cpu_ms": costs}),
    ]


def measure_search(address: str, sentences: list[str], rounds: int) -> list[Line]:
    """Target tokens a second with the search in the client and in the server, one batch at a time."""
    lines = []
    with Translator(address) as server, Translator(address, decoding="client") as client:
        for beam_size in (1, 4):

            def tokens(translator: Translator, beam_size: int = beam_size) -> float:
                began, total = time.perf_counter(), 0
                for start in range(0, len(sentences), 16):
                    batch = sentences[start : start + 16]
                    total += sum(one.tokens for one in translator.translate(batch, beam_size=beam_size, cache=False))
                return total / (time.perf_counter() - began)

            theirs, ours = _interleaved(rounds, lambda: tokens(server), lambda: tokens(client))
            share = ratios(ours, theirs)
            figure = f"{spread(ours).median:.0f} tokens/s, in the server {spread(theirs).median:.0f}, ratio {share}"
            values: dict[str, object] = {"client": ours, "server": theirs, "ratio": asdict(share)}
            lines.append(Line(f"decoding in the client, beam {beam_size}, batches of 16", figure, "–", values))
    return lines


def measure_memory(lines: int) -> list[Line]:
    """The process's resident memory, a hundred times during the job."""
    process, found = psutil.Process(), []
    every = max(lines // 100, 1)

    def look(done: int) -> None:
        if done % every == 0:
            found.append(process.memory_info().rss / 1e6)

    with constant_triton() as address, tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder) / "source", Path(folder) / "output"
        with source.open("w", encoding="utf-8") as stream:
            for number in range(lines):
                stream.write(f"Sentence number {number}: {TEXT}\n")
        with Translator(address) as translator:
            began = time.perf_counter()
            translator.translate_file(source, output, on_progress=look, window=Window())
            rate = lines / (time.perf_counter() - began)
        with source.open("rb") as sent, output.open("rb") as came:
            whole = all(one == other for one, other in zip(sent, came, strict=True))
    after_tenth = found[len(found) // 10 :]
    growth = max(after_tenth) - after_tenth[0]
    figure = f"{after_tenth[0]:.0f} MB after a tenth, {growth:+.1f} MB at most later; {rate:.0f} lines/s; complete: {whole}"
    return [Line(f"memory over {lines:,} lines", figure, "flat", {"rss_mb": found, "lines_per_s": rate})]


def _interleaved(rounds: int, *measures: Callable[[], float]) -> tuple[list[float], ...]:
    """Each measure once a round, in turn the first; the first round warms up and is not counted."""
    found: tuple[list[float], ...] = tuple([] for _ in measures)
    for number in range(rounds + 1):
        sides = range(len(measures)) if number % 2 else reversed(range(len(measures)))
        for side in sides:
            figure = measures[side]()
            if number:
                found[side].append(figure)
    return found


def _sentences(path: Path, count: int) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line.split("\t")[0] for line in lines if line.strip()][:count]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="which parts")
    parser.add_argument("--workload", type=Path, help="sentences, one a line; .tsv: the first column (file, search)")
    parser.add_argument("--bundle", type=Path, help="what to serve (file, search)")
    parser.add_argument("--sentences", type=int, default=1000, help="how many of the workload")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=500, help="calls a round")
    parser.add_argument("--lines", type=int, default=1_000_000, help="lines of the memory part")
    arguments = parser.parse_args()
    if {"file", "search"} & set(arguments.only) and not (arguments.workload and arguments.bundle):
        parser.error("file and search need --workload and --bundle")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
