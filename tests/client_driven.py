"""Decoding as the wire contract lets a client do it: name the rows, take the best tokens, search for yourself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dragoman.search import DecodingOptions, Hypothesis
from dragoman.serving.engine import Engine, OpenSession, SessionCall, SessionReply, StepSession
from dragoman.serving.engine.runtime import TopTokens
from dragoman.serving.in_process import LoadedModel
from single_search import Search


def run_call(engine: Engine, call: SessionCall) -> None:
    """Give the call to the engine and let it step until the reply; raises the call's error."""
    engine.sessions.submit(call)
    while not any(isinstance(event, SessionReply) and event.call is call for event in engine.step()):
        engine.wait()
    if call.error is not None:
        raise call.error


def open_session(engine: Engine, sources: Sequence[Sequence[int]]) -> str:
    call = OpenSession(sources)
    run_call(engine, call)
    return call.name


def step_session(engine: Engine, name: str, rows: np.ndarray, candidates: int) -> TopTokens:
    call = StepSession(name, rows, candidates)
    run_call(engine, call)
    assert call.top is not None
    return call.top


def client_driven(
    model: LoadedModel, sources: list[tuple[int, ...]], options: DecodingOptions
) -> list[tuple[Hypothesis, ...]]:
    """The hypotheses of each source, the caches in a session of the engine."""
    engine = model.engine
    name = open_session(engine, sources)
    searches = [Search(options, model.manifest.tokens, model.manifest.dimensions.target_vocabulary) for _ in sources]
    first_row: dict[int, int] = {}
    while going := [number for number, search in enumerate(searches) if not search.done]:
        rows: list[tuple[int, int, int]] = []
        starts = {}
        for number in going:
            starts[number], search = len(rows), searches[number]
            before = first_row.get(number)
            for parent, token in zip(search.parents.tolist(), search.tokens.tolist(), strict=True):
                rows.append((number, -1 if before is None else before + parent, token))
        candidates = max(searches[number].candidates for number in going)
        best = step_session(engine, name, np.array(rows, np.int32), candidates)
        for number in going:
            own = slice(starts[number], starts[number] + options.beam_size)
            searches[number].advance(best.tokens[own], best.log_probs[own], best.logits[own])
        first_row = starts
    engine.sessions.close(name)
    return [search.hypotheses() for search in searches]
