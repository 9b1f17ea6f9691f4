"""Values that no option can have are the caller's mistake, and only that: nobody else notices, by no way in."""

from __future__ import annotations

import itertools

import pytest

from hostile.outcomes import Outcome, stream, unary
from hostile.poisons import COMMANDS, NAMES, OPTIONS, command, named, poisons
from served import Caller

pytestmark = pytest.mark.usefixtures("server_is_unimpressed")

POISONS = {name: list(group) for name, group in itertools.groupby(poisons(), lambda poison: poison.name.partition(":")[0])}


def refused(outcome: Outcome) -> bool:
    return outcome.code == "INVALID_REQUEST" and outcome.is_answer


@pytest.mark.parametrize("option", [*OPTIONS, "OPTIONS"])
def test_a_poisoned_option_is_an_invalid_request(caller: Caller, option: str) -> None:
    found = {}
    for poison in POISONS[option]:
        found[poison.name] = unary(caller.stub, poison.request("translate"))
        found[f"{poison.name}, encoder"] = unary(caller.stub, poison.request("encoder"))
        found[f"{poison.name}, streamed"] = stream(caller.stub, poison.request("translate_stream"))
    assert {name: outcome for name, outcome in found.items() if not refused(outcome)} == {}


def test_a_poisoned_command_is_an_invalid_request(caller: Caller) -> None:
    session, info = caller.encode(["Hello."])
    step = b"".join(number.to_bytes(4, "little", signed=True) for number in (0, -1, info["tokens"]["decoder_start"]))
    found = {name: unary(caller.stub, command(raw, session, step)) for name, raw in COMMANDS.items()}
    caller.decode(session, {"do": "close"})
    assert {name: outcome for name, outcome in found.items() if not refused(outcome)} == {}


@pytest.mark.parametrize("name", NAMES)
def test_a_poisoned_model_name_is_an_invalid_request(caller: Caller, name: str) -> None:
    assert refused(unary(caller.stub, named(NAMES[name])))
    assert refused(unary(caller.stub, named(NAMES[name], "encoder")))
    assert refused(stream(caller.stub, named(NAMES[name], "translate_stream")))


def test_a_poison_that_is_retried_stays_an_invalid_request(caller: Caller) -> None:
    """What is refused at once never becomes a suspect."""
    (poison, *_) = POISONS["length_penalty"]
    assert [unary(caller.stub, poison.request("translate")).code for _ in range(20)] == ["INVALID_REQUEST"] * 20
