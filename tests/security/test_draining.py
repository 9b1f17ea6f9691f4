"""A server that is told to stop says so to everybody who still comes: never that it does not know its own models."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from pathlib import Path

from hostile.outcomes import LOST, Outcome, stream, unary
from served import CALL_TIMEOUT_S, Server, eventually, request

ALLOWED = {"ok", "DRAINING", LOST}


def test_new_callers_of_a_draining_server_get_an_answer_or_draining(reference_bundle: Path) -> None:
    with Server.start([f"en-de={reference_bundle}"], "--threads", "1") as server:
        outcomes: list[Outcome] = []
        stop = threading.Event()

        def call(number: int) -> None:
            caller = server.caller()
            while not stop.is_set():
                text = [f"Tom has {number} books, and he has read {len(outcomes)} of them."]
                if number % 2:
                    outcomes.append(unary(caller.stub, request("translate", text, {"cache": False})))
                else:
                    outcomes.append(stream(caller.stub, request("translate_stream", text, {"cache": False})))
            caller.close()

        threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        try:
            eventually(lambda: len(outcomes) > 40)
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(CALL_TIMEOUT_S) == 0
            eventually(lambda: outcomes[-1].code == LOST)
        finally:
            stop.set()
            for thread in threads:
                thread.join(CALL_TIMEOUT_S)
    codes = Counter(outcome.code for outcome in outcomes)
    surprises = [outcome for outcome in outcomes if outcome.code not in ALLOWED]
    assert surprises == [], codes
    assert codes["ok"] > 0
