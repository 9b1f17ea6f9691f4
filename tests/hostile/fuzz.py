"""Sends what the grammar makes, by every way in: unary, in streams, several in one stream, half-written frames."""

from __future__ import annotations

import contextlib
import random
import socket
import time
from collections import Counter
from dataclasses import dataclass, field

import grpc

from hostile.deaths import Deaths
from hostile.grammar import Grammar, Request
from hostile.http2 import PREFACE, frame
from hostile.outcomes import LOST, Outcome, stream, unary
from hostile.processes import spread
from hostile.report import Row, judged
from served import Caller, outputs

LONGEST_S = 30.0
STRICT = 0.5
"""How often a stream has the metadata that asks for strict errors."""


@dataclass
class Found:
    """What came back."""

    codes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    last: str = ""

    def note(self, outcome: Outcome, message: Request) -> None:
        self.last = outcome.code
        self.codes[outcome.code] += 1
        if not outcome.is_answer or outcome.seconds > LONGEST_S or outcome.code == "INTERNAL":
            shown = " ".join(str(message).split())
            self.wrong.append(f"{outcome.code} after {outcome.seconds:.1f} s {outcome.message[:100]!r} for {shown[:300]}")

    def add(self, other: Found) -> None:
        self.codes += other.codes
        self.wrong += other.wrong


def fuzzed(address: str, deaths: Deaths, count: int, seed: int, *, processes: int = 2, until_s: float = float("inf")) -> Row:
    """A row for `count` requests of the grammar."""
    before, total = deaths.counted(), Found()
    share = -(-count // processes)
    for each in spread(send, [(address, share, seed + number, until_s) for number in range(processes)]):
        total.add(each)
    deaths.whole()
    answered = dict(total.codes.most_common(4))
    figures: dict[str, float | int | str] = {"seed": seed, **answered}
    return judged("fuzzed requests", total.codes.total(), deaths.counted() - before, total.wrong, figures)


def send(address: str, count: int, seed: int, until_s: float = float("inf")) -> Found:
    """`count` requests, one after another."""
    grammar, dice, found, caller = Grammar(seed), random.Random(seed), Found(), Caller(address)
    for number in range(count):
        if time.monotonic() > until_s:
            break
        if number % 50 == 0:
            with contextlib.suppress(grpc.RpcError):  # sessions may all be taken: refused, and noted elsewhere
                grammar.remember(caller.encode(["Hello."])[0])
        message = grammar.request()
        if message.model_name == "translate_stream" or dice.random() < 0.1:
            several = [message, *(grammar.request() for _ in range(dice.choice((0, 0, 0, 2))))]
            strict = (("triton_grpc_error", "true"),) if dice.random() < STRICT else ()
            found.note(_stream_of_anything(caller, several, strict), message)
        else:
            found.note(unary(caller.stub, message, LONGEST_S * 2), message)
        if found.last == LOST:
            time.sleep(0.5)  # the server is being replaced; one death should not be seen a thousand times
    caller.close()
    return found


def _stream_of_anything(caller: Caller, messages: list[Request], metadata: tuple[tuple[str, str], ...]) -> Outcome:
    if len(messages) == 1 and messages[0].model_name == "translate_stream" and not messages[0].outputs:
        return stream(caller.stub, messages[0], timeout_s=LONGEST_S * 2, metadata=metadata)
    # Several requests or another model in one stream: responses of any kind may come, but the stream has to end.
    began_s, code = time.monotonic(), "stream ended"
    try:
        for response in caller.stub.ModelStreamInfer(iter(messages), timeout=LONGEST_S * 2, metadata=metadata):
            if not response.error_message:
                outputs(response.infer_response)
    except grpc.RpcError as error:
        lost = error.code() is grpc.StatusCode.UNAVAILABLE and not (error.details() or "").startswith(
            ("OVERLOADED", "DRAINING")
        )
        code = LOST if lost else f"stream {error.code().name}"
        return Outcome(code, error.details() or "", time.monotonic() - began_s)
    return Outcome(code, seconds=time.monotonic() - began_s)


def frames(address: str, deaths: Deaths, count: int, seed: int, until_s: float = float("inf")) -> Row:
    """A row for connections that speak HTTP/2 badly: random frames after a good beginning, cut off anywhere."""
    before, dice, sent = deaths.counted(), random.Random(seed), 0
    host, _, port = address.rpartition(":")
    wrong = []
    while sent < count and time.monotonic() < until_s:
        sent += 1
        try:
            with socket.create_connection((host, int(port)), timeout=5) as connection:
                connection.sendall(badly_spoken(dice))
                if dice.random() < 0.3:
                    connection.settimeout(0.02)
                    with contextlib.suppress(OSError):
                        connection.recv(4096)
        except (ConnectionResetError, BrokenPipeError):
            continue  # it may hang up on us
        except OSError as error:
            wrong.append(f"a connection was not taken: {error}")
    deaths.whole()
    return judged("fuzzed HTTP/2 frames", sent, deaths.counted() - before, wrong, {"seed": seed})


def badly_spoken(dice: random.Random) -> bytes:
    """Bytes for one connection."""
    written = PREFACE if dice.random() < 0.9 else dice.randbytes(dice.randint(0, 60))
    written += frame(4, 0, 0, b"") if dice.random() < 0.8 else b""
    for _ in range(dice.randint(0, 8)):
        body = dice.randbytes(dice.choice((0, 0, 4, 5, 8, 9, 40, 400)))
        kind, flags = dice.choice((*range(10), 255)), dice.choice((0, 1, 4, 5, 8, 32, 255))
        written += frame(
            kind, flags, dice.choice((0, 1, 1, 3, 2, 2**31 - 1)), body, dice.choice((None, None, None, 0, 2**24 - 1))
        )
    return written[: dice.randint(0, len(written))] if dice.random() < 0.3 else written
