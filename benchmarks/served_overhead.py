"""What serving costs over the engine in one process.

    python -m benchmarks.served_overhead --workload test.tsv --bundle bundles/tatoeba-en-de [--only latency start …]

latency     what gRPC, Triton and the engine process add to one sentence at a time
floor       what gRPC and Triton add to a Python model that only waits as long: no server behind Triton can add less
throughput  64 requests open at a time, as a share of the engine's own throughput with as many
start       from the command to the ready line
memory      all processes of the server, at rest and under load
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import grpc
from tritonclient.grpc import InferResult, service_pb2, service_pb2_grpc

from benchmarks.machine import describe_machine, load_average
from benchmarks.results import Line, write_results
from benchmarks.served_process import ServedProcess, serving
from benchmarks.statistics import ratios, spread
from benchmarks.triton_server import triton_with
from dragoman.search import DecodingOptions
from dragoman.serving.engine import Finished
from dragoman.serving.engine import Sequence as EngineSequence
from dragoman.serving.in_process import LoadedModel, open_model
from dragoman.serving.runtime.settings import RuntimeSettings

PARTS = ("latency", "floor", "throughput", "start", "memory")
FLOOR_CONFIG = """
backend: "python"
max_batch_size: 0
input { name: "TEXT" data_type: TYPE_STRING dims: [ 1 ] }
input { name: "OPTIONS" data_type: TYPE_STRING dims: [ 1 ] optional: true }
output { name: "TRANSLATIONS" data_type: TYPE_STRING dims: [ 1 ] }
instance_group { kind: KIND_CPU count: 1 }
"""
CONCURRENCY = 64
BLOCK = 25


class Served:
    """A separate server on a free port, asked with raw gRPC."""

    def __init__(self, server: ServedProcess) -> None:
        self.server = server
        self._channel = grpc.insecure_channel(server.address)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    def translate(self, text: str, beam_size: int) -> tuple[float, float]:
        """Seconds that the caller waited, and those from the arrival at our model to its answer."""
        begun = time.perf_counter()
        response = self._stub.ModelInfer(_request(text, beam_size), timeout=60)
        waited_s = time.perf_counter() - begun
        told = json.loads(InferResult(response).as_numpy("DETAILS").item())
        return waited_s, float(told["texts"][0]["total_ms"]) / 1000

    def translate_all(self, texts: Sequence[str], beam_size: int, in_flight: int = CONCURRENCY) -> None:
        """Every text, so many of them open at a time."""
        room, failures = threading.Semaphore(in_flight), []

        def done(future: grpc.Future) -> None:
            if future.exception() is not None:
                failures.append(future.exception())
            room.release()

        for text in texts:
            room.acquire()
            self._stub.ModelInfer.future(_request(text, beam_size), timeout=60).add_done_callback(done)
        for _ in range(in_flight):
            room.acquire()
        if failures:
            raise SystemExit(f"{len(failures)} requests failed: {failures[0]}")

    def close(self) -> None:
        self._channel.close()


def main() -> int:
    arguments = _arguments()
    sentences = _sentences(arguments.workload, arguments.sentences)
    lines: list[Line] = []
    if "start" in arguments.only:
        lines.append(measure_start(arguments))
    if set(arguments.only) & {"latency", "throughput", "memory"}:
        with served(arguments.bundle, arguments.threads) as server:
            rest_bytes = server.server.memory_bytes()
            model = open_model(arguments.bundle, RuntimeSettings(threads=arguments.threads))
            model.warm_up()
            for beam_size in arguments.beam_size:
                if "latency" in arguments.only:
                    lines.append(measure_latency(server, model, sentences[:200], beam_size, arguments.rounds))
                if "throughput" in arguments.only:
                    lines.append(measure_throughput(server, model, sentences, beam_size, arguments.rounds))
            if "memory" in arguments.only:
                lines.append(measure_memory(server, rest_bytes, sentences))
    if "floor" in arguments.only:
        lines.append(measure_floor(arguments.rounds))
    report(lines, arguments)
    return 0


def measure_latency(server: Served, model: LoadedModel, texts: Sequence[str], beam_size: int, rounds: int) -> Line:
    """Each sentence on both sides, a block of them at a time; the median of what the server added to each.

    In blocks, because a sentence on one side empties the processor's caches of what the other side had there: taking
    turns sentence by sentence would measure that, twice.
    """
    options = DecodingOptions(beam_size=beam_size)
    added, path, own = [], [], []
    for _ in range(rounds):
        ours: list[float] = []
        theirs: list[tuple[float, float]] = []
        for start in range(0, len(texts), BLOCK):
            block = texts[start : start + BLOCK]
            ours += [_timed(functools.partial(model.translate, [text], options)) for text in block]
            theirs += [server.translate(text, beam_size) for text in block]
        added.append(statistics.median(served - alone for alone, (served, _) in zip(ours, theirs, strict=True)) * 1000)
        path.append(statistics.median(served - engine for served, engine in theirs) * 1000)
        own.append(statistics.median(ours) * 1000)
    what = f"added latency, one request at a time, beam {beam_size}"
    figure = f"{spread(added)} ms p50 over {spread(own).median:.2f} ms in process; {spread(path)} ms of it on the way"
    return Line(what, figure, "< 1.5 ms", {"added_ms": added, "on_the_way_ms": path, "in_process_ms": own})


def measure_floor(rounds: int, busy_ms: float = 10.0) -> Line:
    """One request at a time to a model that sleeps: the threads on the way sleep too, and have to be woken."""
    model = Path(__file__).parent / "triton_waiting" / "model.py"
    with triton_with(model, FLOOR_CONFIG) as address, grpc.insecure_channel(address) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        added = []
        for _ in range(rounds):
            seconds = [_timed(lambda: stub.ModelInfer(_request(str(busy_ms), 1), timeout=60)) for _ in range(200)]
            added.append(statistics.median(seconds) * 1000 - busy_ms)
    return Line(
        "added by Triton alone", f"{spread(added)} ms p50 to a Python model that sleeps {busy_ms:.0f} ms", "", {"ms": added}
    )


def measure_throughput(server: Served, model: LoadedModel, texts: Sequence[str], beam_size: int, rounds: int) -> Line:
    """The same sentences with 64 open on both sides, in turns."""
    ours, theirs = [], []
    for _ in range(rounds):
        theirs.append(_timed(lambda: run_in_process(model, texts, beam_size)))
        ours.append(_timed(lambda: server.translate_all(texts, beam_size)))
    share = ratios(theirs, ours)
    rate, own = len(texts) / spread(ours).median, len(texts) / spread(theirs).median
    figure = f"{share} of the engine alone ({rate:.0f} of {own:.0f} sentences/s)"
    what = f"throughput with {CONCURRENCY} open, beam {beam_size}"
    return Line(what, figure, "≥ 0.90", {"served_s": ours, "in_process_s": theirs, "sentences": len(texts)})


def run_in_process(model: LoadedModel, texts: Sequence[str], beam_size: int) -> None:
    """A closed loop of 64, as the server sees it: one comes when one has gone, tokenised and detokenised here."""
    waiting, options = list(texts)[::-1], DecodingOptions(beam_size=beam_size)
    opened = 0
    while waiting or model.engine.busy:
        while waiting and opened < CONCURRENCY:
            text = waiting.pop()
            model.engine.submit(EngineSequence(tuple(model.tokenizer.encode(text)), options))
            opened += 1
        for happened in model.engine.step():
            if isinstance(happened, Finished):
                model.tokenizer.decode(happened.sequence.hypotheses[0].tokens)
                opened -= 1


def measure_start(arguments: argparse.Namespace) -> Line:
    """Start and stop, several times."""
    seconds = []
    for _ in range(arguments.rounds):
        with served(arguments.bundle, arguments.threads) as server:
            seconds.append(server.server.ready_s)
    return Line("from the command to ready", f"{spread(seconds)} s", "< 5 s", {"seconds": seconds})


def measure_memory(server: Served, rest_bytes: int, texts: Sequence[str]) -> Line:
    """The most memory seen while 64 requests are open."""
    peak, stop = [rest_bytes], threading.Event()

    def watch() -> None:
        while not stop.wait(0.1):
            peak[0] = max(peak[0], server.server.memory_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    server.translate_all(texts, beam_size=4)
    stop.set()
    watcher.join()
    figure = f"{rest_bytes / 2**20:.0f} MiB at rest, {peak[0] / 2**20:.0f} MiB with {CONCURRENCY} beams of 4 open"
    return Line("memory of all processes", figure, "", {"rest_bytes": rest_bytes, "peak_bytes": peak[0]})


@contextlib.contextmanager
def served(bundle: Path, threads: int, environment: Mapping[str, str] | None = None) -> Iterator[Served]:
    """`dragoman serve` without its response cache, gone at the end."""
    flags = "--threads", str(threads), "--response-cache", "0"
    with serving(bundle, *flags, environment=environment) as server, contextlib.closing(Served(server)) as asked:
        yield asked


def report(lines: Sequence[Line], arguments: argparse.Namespace) -> None:
    rows = [f"| {line.what} | {line.figure} | {line.aim} |" for line in lines]
    note = (
        f"{arguments.rounds} interleaved rounds of {arguments.sentences} sentences, {arguments.threads} thread(s) on both "
        f"sides; median (lowest to highest). Load average: {load_average():.1f}."
    )
    figures = {
        "machine": describe_machine(),
        "command": f"python -m benchmarks.served_overhead {' '.join(sys.argv[1:])}".strip(),
        "load_average": load_average(),
        "lines": [asdict(line) for line in lines],
    }
    write_results("served_overhead", figures, "\n".join([note, "", "| what | figure | aim |", "|---|---|---|", *rows]))


def _request(text: str, beam_size: int) -> service_pb2.ModelInferRequest:
    request = service_pb2.ModelInferRequest(model_name="translate")
    options = json.dumps({"beam_size": beam_size, "max_length": 128, "length_penalty": 1.0, "bad_words": []})
    for name, value in (("TEXT", text), ("OPTIONS", options)):
        tensor = request.inputs.add(name=name, datatype="BYTES", shape=[1])
        tensor.contents.bytes_contents.append(value.encode())
    return request


def _timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _sentences(path: Path, count: int) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line.split("\t")[0] for line in lines if line.strip()][:count]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", type=Path, required=True, help="sentences, one a line; what follows a tab is ignored")
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="which parts")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--beam-size", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sentences", type=int, default=1000)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
