"""Option values by hypothesis: huge, tiny, not numbers, deep, of every category of Unicode."""

from __future__ import annotations

import json
from collections import Counter

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

from hostile.deaths import Deaths
from hostile.outcomes import LOST, Outcome, stream, unary
from hostile.poisons import OPTIONS
from hostile.report import Row, judged
from served import Caller, request

WHOLE_NUMBERS = st.one_of(
    st.integers(-3, 20),
    st.integers(),
    st.sampled_from([2**31, 2**32, 2**53, 2**63, 2**64, -(2**63), 10**308, 10**309, -(10**309), 10**4000]),
)
NUMBERS = st.one_of(
    st.floats(),
    st.sampled_from([5e-324, 1.7976931348623157e308, -0.0, float("nan"), float("inf"), float("-inf")]),
)
TEXT = st.text(st.characters(), max_size=40)  # every category, lone surrogates too
LEAVES = st.one_of(st.none(), st.booleans(), WHOLE_NUMBERS, NUMBERS, TEXT)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=6) | st.dictionaries(TEXT, inner, max_size=4), max_leaves=20
)
NAMES = st.one_of(st.sampled_from(OPTIONS), st.sampled_from(OPTIONS), TEXT)
ASKED = st.dictionaries(NAMES, VALUES, min_size=1, max_size=4)

ALLOWED = {"ok", "INVALID_REQUEST", "DEADLINE_EXCEEDED", "OVERLOADED"}


def option_values(address: str, deaths: Deaths, count: int, seed: int) -> Row:
    """A row for `count` sets of options."""
    before, codes, wrong, caller = deaths.counted(), Counter[str](), list[str](), Caller(address)

    @settings(
        max_examples=count, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(ASKED, st.booleans())
    def send(asked: dict[str, object], streamed: bool) -> None:
        outcome = sent(caller, asked, streamed=streamed)
        codes[outcome.code] += 1
        if outcome.code not in ALLOWED or not outcome.is_answer:
            wrong.append(f"{outcome.code} {outcome.message[:100]!r} for {json.dumps(asked)[:200]}")
        if outcome.code == LOST:
            deaths.whole()

    seeded(seed)(send)()
    caller.close()
    deaths.whole()
    figures: dict[str, float | int | str] = {"seed": seed, **dict(codes.most_common(4))}
    return judged("option values (hypothesis)", codes.total(), deaths.counted() - before, wrong, figures)


def sent(caller: Caller, asked: dict[str, object], *, streamed: bool) -> Outcome:
    """One request with these options; what may take long is bounded unless `timeout_ms` is among them."""
    options = json.dumps({"timeout_ms": 5000, **asked}).encode()
    if streamed:
        return stream(caller.stub, request("translate_stream", ["Hello."], options))
    return unary(caller.stub, request("translate", ["Hello."], options))
