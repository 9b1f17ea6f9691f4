"""Calls that end badly, in large numbers: refused, cancelled, too late, hung up.

What they find is counted by the server's own processes (`Deaths`); a caller only sees that something was lost.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import grpc
from tritonclient.grpc import service_pb2_grpc
from tritonclient.grpc.service_pb2 import ModelInferRequest as Request

from hostile.deaths import Deaths
from hostile.outcomes import LOST, Outcome, failed, stream, unary
from hostile.processes import spread
from hostile.report import Row, judged
from served import request

KINDS = (
    "bad-unary",
    "bad-stream",
    "bad-stream-plain",
    "bad-call-in-stream",
    "mixed-stream",
    "good-stream",
    "cancel-unary",
    "cancel-stream",
    "deadline",
    "hang-up",
)
EXPECTED = {
    "bad-unary": {"INVALID_REQUEST"},
    "bad-stream": {"INVALID_REQUEST"},
    "bad-stream-plain": {"INVALID_REQUEST"},
    "bad-call-in-stream": {"refused"},
    "mixed-stream": {"answered", "triton NOT_FOUND", "triton INVALID_ARGUMENT"},
    "good-stream": {"ok"},
    "cancel-unary": {"left"},
    "cancel-stream": {"left"},
    "deadline": {"ok", "triton DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED", "CANCELLED", "triton CANCELLED"},
    "hang-up": {"left"},
}
CANCELS = ("cancel-unary", "deadline", "hang-up")
"""Kinds that end a unary call early. Under load the embedded Triton 2.51 falls over one of them now and then, in its own
code (docs/operations.md): there the figure is reported."""
STRICT = (("triton_grpc_error", "true"),)
STRICT_PART = 0.2
MODELS = ("translate_stream", "translate_stream", "translate", "decoder", "nobody", "translate/x", "translate/-1")
"""Of `mixed-stream`, with a version behind the slash."""
LONGEST_PAUSE_S = 0.010
BUSY_LOOPS = 3


def hammered(
    address: str,
    deaths: Deaths,
    kind: str,
    count: int,
    *,
    processes: int = 2,
    until_s: float = float("inf"),
    busy: bool = False,
) -> Row:
    """A row for `count` calls of `kind`, or as many as are made before `until_s` (monotonic)."""
    before, began_s = deaths.counted(), time.monotonic()
    with _busy_loops() if busy else contextlib.nullcontext():
        found = _spread(address, kind, count, processes, until_s)
    deaths.whole()
    died = deaths.counted() - before
    wrong = [f"{number} ended with: {code}" for code, number in found.items() if code not in EXPECTED[kind]]
    rate = found.total() / (time.monotonic() - began_s)
    name = f"{kind} beside {BUSY_LOOPS} busy loops" if busy else kind
    reported = busy and kind in CANCELS
    return judged(f"hammer: {name}", found.total(), died, wrong, {"calls/s": round(rate)}, only_reported=reported)


def _spread(address: str, kind: str, count: int, processes: int, until_s: float) -> Counter[str]:
    total: Counter[str] = Counter()
    share = -(-count // processes)
    for found in spread(_calls, [(address, kind, share, seed, until_s) for seed in range(processes)]):
        total += found
    return total


def _calls(address: str, kind: str, count: int, seed: int, until_s: float) -> Counter[str]:
    """How `count` calls ended; in a process of its own."""
    dice, found = random.Random(seed), Counter[str]()
    hand = _Hand(address)
    for number in range(count):
        if time.monotonic() > until_s:
            break
        outcome = hand.call(kind, number, dice)
        found[outcome.code if outcome.code != LOST else f"{LOST} ({outcome.message[:60]})"] += 1
        if outcome.code == LOST:
            time.sleep(0.5)  # the server is being replaced; one death should not be seen a thousand times
    hand.close()
    return found


class _Hand:
    """A channel, and one call after another."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._connect()

    def _connect(self) -> None:
        self._channel = grpc.insecure_channel(self._address, options=[("grpc.use_local_subchannel_pool", 1)])
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    def close(self) -> None:
        self._channel.close()

    def call(self, kind: str, number: int, dice: random.Random) -> Outcome:
        text = [f"My sister has been living in this house for {number % 90 + 2} years."]
        good, bad = {"cache": False}, {"top_k": -1}
        match kind:
            case "bad-unary":
                return unary(self._stub, request("translate", ["Hello."], bad))
            case "bad-stream":
                return stream(self._stub, request("translate_stream", ["Hello."], bad))
            case "bad-stream-plain":
                return stream(self._stub, request("translate_stream", ["Hello."], bad), metadata=())
            case "bad-call-in-stream":
                return self._call_in_stream(request("translate", ["Hello."], bad))
            case "mixed-stream":
                models = dice.choices(MODELS, k=dice.randint(2, 4))
                asked = [_request_of(model, text, good | {"max_length": 4}) for model in models]
                return self._mixed(asked, STRICT if dice.random() < STRICT_PART else ())
            case "good-stream":
                return stream(self._stub, request("translate_stream", text, good))
            case "deadline":
                seconds = dice.uniform(0.001, LONGEST_PAUSE_S)
                return unary(self._stub, request("translate", text, good), timeout_s=seconds)
            case "cancel-stream":
                call = self._stub.ModelStreamInfer(iter([request("translate_stream", text, good)]), timeout=30)
            case _:
                call = self._stub.ModelInfer.future(request("translate", text, good), timeout=30)
        time.sleep(dice.uniform(0, LONGEST_PAUSE_S))
        return self._hang_up() if kind == "hang-up" else _cancelled(call)

    def _call_in_stream(self, message: Request) -> Outcome:
        """A model of one answer, called by the streaming method: whatever form its refusal has, Triton must outlive it."""
        try:
            for _ in self._stub.ModelStreamInfer(iter([message]), timeout=30, metadata=STRICT):
                pass
        except grpc.RpcError as error:
            lost = failed(error)
            return lost if lost.code == LOST else Outcome("refused")
        return Outcome("refused")

    def _mixed(self, messages: list[Request], metadata: tuple[tuple[str, str], ...]) -> Outcome:
        """Models of one answer, of several and of none in one stream: each request has an answer, and the stream an end."""
        count = 0
        try:
            for _ in self._stub.ModelStreamInfer(iter(messages), timeout=30, metadata=metadata):
                count += 1
        except grpc.RpcError as error:
            return failed(error)
        return Outcome("answered" if count >= len(messages) else f"{count} answers to {len(messages)} requests")

    def _hang_up(self) -> Outcome:
        self._channel.close()
        self._connect()
        return Outcome("left")


def _request_of(model: str, text: list[str], options: dict[str, Any]) -> Request:
    name, _, version = model.partition("/")
    message = request(name, text, options)
    message.model_version = version
    return message


def _cancelled(call: grpc.Future) -> Outcome:
    call.cancel()
    if call.code() is grpc.StatusCode.UNAVAILABLE:
        return failed(call)
    return Outcome("left")


@contextlib.contextmanager
def _busy_loops() -> Iterator[None]:
    """Processes that want every core; they end with us."""
    program = f"import os\nwhile os.getppid() == {os.getpid()}: sum(range(100000))"
    loops = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(BUSY_LOOPS)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
