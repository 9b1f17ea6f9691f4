"""What paragraphs keep of the quality of their sentences, and what they cost, through the engine process's request handler.

python -m benchmarks.paragraphs                                (the whole Tatoeba test set; --sentences 200 for a quick look)
python -m benchmarks.paragraphs --only single --rounds 5       (microseconds of handling a short sentence, decoding included)
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from benchmarks.bundles import bundle_of
from benchmarks.cells import TATOEBA
from benchmarks.random_checkpoint import REFERENCE
from dragoman.serving.engine import SessionReply
from dragoman.serving.ipc.channel import Channel
from dragoman.serving.ipc.frames import Frame, Kind
from dragoman.serving.metrics import Recorder
from dragoman.serving.process.answers import Replies
from dragoman.serving.process.job_queue import JobQueue
from dragoman.serving.process.loaded_bundle import load_bundle
from dragoman.serving.process.request_handler import RequestHandler
from dragoman.serving.process.settings import EngineSettings, ProcessSettings

_CHANNEL = cast("Channel", "benchmark")
_SENTENCES_EACH = 5
_AT_ONCE = 64
_LONG = 10
_CLOCKS = {"elapsed": time.perf_counter, "CPU time": time.process_time}


class Handler:
    """The request handler of a bundle with its engine, and nothing between it and the caller."""

    def __init__(self, bundle: Path, threads: int) -> None:
        options = EngineSettings(threads=threads, response_cache_bytes=0)
        self._bundle = load_bundle(ProcessSettings("benchmark", bundle, options))
        self._jobs, self._answers = JobQueue(), dict[int, Frame]()
        self._handler = RequestHandler(self._bundle, Recorder(), Replies(self._send), self._jobs)
        self._number = 0

    def _send(self, _: Channel, frame: Frame) -> None:
        self._answers[frame.request] = frame

    def translate(self, texts: Sequence[str], **options: object) -> list[str]:
        """Each text in a request of its own, all of them at once."""
        numbers = [self._ask(text, options) for text in texts]
        while len(self._jobs) or self._bundle.engine.busy:
            self._jobs.run(0.002)
            if self._bundle.engine.busy:
                events = self._bundle.engine.step()
                for event in events:
                    if not isinstance(event, SessionReply):
                        self._handler.handle(event)
                if not events and not len(self._jobs):
                    self._bundle.engine.wait()  # for its threads, if it has some
            self._handler.resume_parked()
        return [self._text(self._answers.pop(number)) for number in numbers]

    def _ask(self, text: str, options: dict[str, Any]) -> int:
        self._number += 1
        parts = (struct.pack("<d", time.monotonic()), json.dumps(options).encode(), text.encode())
        self._handler.translate(_CHANNEL, Frame(Kind.TRANSLATE, self._number, parts))
        return self._number

    @staticmethod
    def _text(answer: Frame) -> str:
        if answer.kind is not Kind.ANSWER:
            raise SystemExit(answer.parts[1].decode())
        return answer.parts[4].decode()


def quality(handler: Handler, rows: Sequence[Sequence[str]], beam_size: int) -> None:
    """BLEU of paragraphs: from their sentences one by one, as one text, and as one text that is not split."""
    import sacrebleu

    sources, references = [row[0] for row in rows], [row[1] for row in rows]
    last = len(sources) - len(sources) % _SENTENCES_EACH

    def joined(texts: Sequence[str]) -> list[str]:
        return [" ".join(texts[at : at + _SENTENCES_EACH]) for at in range(0, last, _SENTENCES_EACH)]

    def translated(texts: Sequence[str], **options: object) -> list[str]:
        batches = [texts[at : at + _AT_ONCE] for at in range(0, len(texts), _AT_ONCE)]
        return [one for batch in batches for one in handler.translate(batch, beam_size=beam_size, **options)]

    expected = [joined(references)]

    def bleu(paragraphs: list[str]) -> float:
        return float(sacrebleu.corpus_bleu(paragraphs, expected).score)

    one_by_one = bleu(joined(translated(sources[:last], split="none")))
    print(f"{last // _SENTENCES_EACH} paragraphs of {_SENTENCES_EACH} sentences, beam {beam_size}:")
    for name, options in (("split", {}), ("not split", {"split": "none"})):
        found = bleu(translated(joined(sources), **options))
        print(f"  {name:10} BLEU {found:.2f}, {found / one_by_one:.1%} of the sentences one by one ({one_by_one:.2f})")


def speed(handler: Handler, rows: Sequence[Sequence[str]], rounds: int) -> None:
    """A paragraph of ten sentences beside each of its sentences alone."""
    for beam_size, (name, clock) in itertools.product((1, 4), _CLOCKS.items()):
        ratios = []
        for start in range(0, rounds * _LONG, _LONG):
            sentences = [row[0] for row in rows[start : start + _LONG]]
            ones = [_seconds(handler, sentence, beam_size, clock=clock) for sentence in sentences]
            ratios.append(_seconds(handler, " ".join(sentences), beam_size, clock=clock) / max(ones))
        low, high = min(ratios), max(ratios)
        print(
            f"beam {beam_size}, {name}: ten sentences take {statistics.median(ratios):.2f} ({low:.2f} to {high:.2f}) "
            f"times as long as the longest of them; {rounds} paragraphs, the best of 5 each"
        )


def guard(handler: Handler, rows: Sequence[Sequence[str]], rounds: int) -> None:
    """What looking at every sentence costs: CPU time with the omission guard over that without, in turn."""
    texts = [row[0] for row in rows[:_AT_ONCE]]
    for beam_size in (1, 4):
        for option in ("report", "retry"):
            ratios = []
            for _ in range(rounds + 1):
                began_s = time.process_time()
                handler.translate(texts, beam_size=beam_size)
                between_s = time.process_time()
                handler.translate(texts, beam_size=beam_size, on_suspicion=option)
                ratios.append((time.process_time() - between_s) / (between_s - began_s))
            low, middle, high = statistics.quantiles(ratios[1:], n=4)
            print(
                f"beam {beam_size}, {option}: {middle:.2f} ({low:.2f} to {high:.2f}) times the CPU time of plain translation"
            )


def single(handler: Handler, rounds: int) -> None:
    """What a short sentence costs from request to answer; the median of many, the best of some rounds."""
    text, times = "Where is the station?", []
    for _ in range(rounds):
        taken = sorted(_seconds(handler, text, 1, tries=1) for _ in range(300))
        times.append(1e6 * taken[len(taken) // 2])
    print(f"a short sentence: {min(times):.0f} µs (medians of 300: {', '.join(f'{each:.0f}' for each in times)})")


def _seconds(
    handler: Handler, text: str, beam_size: int, tries: int = 5, clock: Callable[[], float] = time.perf_counter
) -> float:
    best = float("inf")
    for _ in range(tries):
        began_s = clock()
        handler.translate([text], beam_size=beam_size)
        best = min(best, clock() - began_s)
    return best


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundle", type=Path, help="default: the reference model in fp32")
    parser.add_argument("--data", type=Path, default=TATOEBA, help="sentences and references after tabs")
    parser.add_argument("--sentences", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", choices=("quality", "speed", "guard", "single"))
    arguments = parser.parse_args()
    handler = Handler(arguments.bundle or bundle_of(REFERENCE, "fp32"), arguments.threads)
    lines = arguments.data.read_text(encoding="utf-8").splitlines()[: arguments.sentences]
    rows = [line.split("\t") for line in lines]
    if arguments.only in (None, "single"):
        single(handler, arguments.rounds)
    if arguments.only in (None, "speed"):
        speed(handler, rows, arguments.rounds)
    if arguments.only in (None, "guard"):
        guard(handler, rows, arguments.rounds)
    if arguments.only in (None, "quality"):
        for beam_size in (1, 4):
            quality(handler, rows, beam_size)


if __name__ == "__main__":
    main()
