"""A server under every kind of request for minutes: every call must be answered, and no process may grow.

    python -m benchmarks.soak --bundle bundles/tatoeba-en-de [--minutes 10]

Callers translate, stream, decode by themselves, send what is refused, and disconnect in the middle. Ends with 1 when
something was lost, or when a process holds more than a few megabytes more at the end than after its first quarter.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import psutil
from tritonclient.grpc import service_pb2

from benchmarks.caller_threads import CallerThreads
from benchmarks.cells import read_sentences
from benchmarks.poisson_load import METHOD
from benchmarks.triton_server import HOST, running
from dragoman.client import Translator
from dragoman.errors import InvalidRequest
from dragoman.serving.supervisor.ports import free_port

ALLOWED_GROWTH_BYTES = 12 << 20
SETTLED = 0.25  # of the time: caches are laid out, arenas are filled
EVERY_S = 2.0


class Callers:
    """One thread for each kind of request; a kind that fails ends its thread."""

    def __init__(self, address: str, texts: list[str]) -> None:
        self.ended: Counter[str] = Counter()
        self.surprises: list[str] = []
        self._address, self._texts = address, texts
        kinds = (self._translate, self._translate_in_beams, self._stream, self._drive, self._send_rubbish, self._go_away)
        self._threads = CallerThreads(functools.partial(self._ask, kind, itertools.count(1)) for kind in kinds)

    def __enter__(self) -> Callers:
        self._threads.__enter__()
        return self

    def __exit__(self, *_error: object) -> None:
        self._threads.__exit__()
        self.surprises += ["a caller is still waiting for its answer"] * self._threads.unfinished

    def _ask(self, kind: Callable[[str], None], numbers: Iterator[int]) -> None:
        number = next(numbers)
        try:
            kind(f"{self._texts[number % len(self._texts)]} {number}")
            self.ended[kind.__name__.strip("_")] += 1
        except Exception as error:  # whatever it is, it is reported
            self.surprises.append(f"{kind.__name__}: {error!r}")
            sys.exit()  # of this thread

    def _translate(self, text: str) -> None:
        self._asked("translator").translate([text, text[:20]], beam_size=1)

    def _translate_in_beams(self, text: str) -> None:
        self._asked("translator").translate(text, beam_size=4)

    def _stream(self, text: str) -> None:
        for _ in self._asked("translator").stream(text, beam_size=1):
            pass

    def _drive(self, text: str) -> None:
        self._asked("driven").translate(text[:40], beam_size=2)

    def _send_rubbish(self, text: str) -> None:
        with contextlib.suppress(InvalidRequest):
            self._asked("translator").translate(f"\x07{text}")
            raise AssertionError("a control character was taken")

    def _go_away(self, text: str) -> None:
        """A call that is cancelled before it can be answered, or just after."""
        message = service_pb2.ModelInferRequest(model_name="translate")
        message.inputs.add(name="TEXT", datatype="BYTES", shape=[1]).contents.bytes_contents.append(text.encode())
        with grpc.insecure_channel(self._address) as channel:
            call = channel.unary_unary(METHOD).future(message.SerializeToString(), timeout=30)
            self._threads.stopped.wait(0.002)
            call.cancel()

    def _asked(self, kind: str) -> Translator:
        """A translator of this thread's own."""
        opened = vars(threading.current_thread())
        if kind not in opened:
            opened[kind] = Translator(self._address, decoding="client" if kind == "driven" else "server")
        found: Translator = opened[kind]
        return found


@contextlib.contextmanager
def served(bundle: Path) -> Iterator[tuple[str, psutil.Process]]:
    address = f"{HOST}:{free_port(HOST)}"
    command = [str(Path(sys.executable).with_name("dragoman")), "serve", f"--bundle={bundle}", f"--grpc-address={address}"]
    command += ["--metrics-address=127.0.0.1:0", "--response-cache=0"]  # a cache that fills is no leak
    with running(command, dict(os.environ), address):
        (server,) = psutil.Process().children()
        yield address, server


def held_bytes(server: psutil.Process) -> dict[str, int]:
    """What each process of the server holds, by its name and id."""
    processes = [server, *server.children(recursive=True)]
    return {f"{process.name()} {process.pid}": process.memory_info().rss for process in processes}


def soak(bundle: Path, minutes: float) -> list[str]:
    """What was wrong."""
    texts, _ = read_sentences(1000)
    with served(bundle) as (address, server), Callers(address, texts) as callers:
        began, settled, now = time.monotonic(), dict[str, int](), held_bytes(server)
        while (share := (time.monotonic() - began) / 60 / minutes) < 1 and not callers.surprises:
            time.sleep(EVERY_S)
            now = held_bytes(server)
            if share >= SETTLED and not settled:
                settled = now
            shown = ", ".join(f"{name.split()[0]} {bytes_ >> 20} MiB" for name, bytes_ in now.items())
            print(f"{share:4.0%} {sum(callers.ended.values()):8} requests; {shown}", flush=True)
    print(dict(callers.ended))
    wrong = list(callers.surprises)
    for name in settled.keys() | now.keys():
        if name not in now or name not in settled:
            wrong.append(f"{name} was not there all the time")
        elif (grown := now[name] - settled[name]) > ALLOWED_GROWTH_BYTES:
            wrong.append(f"{name} has grown by {grown >> 20} MiB")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=10.0)
    given = parser.parse_args()
    wrong = soak(given.bundle, given.minutes)
    print("\n".join(wrong) or "all were answered, and nothing has grown")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
