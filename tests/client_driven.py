"""Decoding as the wire contract lets a client do it: name the rows, take the best tokens, search for yourself."""

from __future__ import annotations

import numpy as np

from dragoman.search import DecodingOptions, Hypothesis, start_search
from dragoman.serving.in_process import LoadedModel


def client_driven(
    model: LoadedModel, sources: list[tuple[int, ...]], options: DecodingOptions
) -> list[tuple[Hypothesis, ...]]:
    """The hypotheses of each source, the caches in a session of the engine."""
    sessions = model.engine.sessions
    name = sessions.open(sources)
    searches = [start_search(options, model.manifest.tokens, model.manifest.dimensions.target_vocabulary) for _ in sources]
    first_row: dict[int, int] = {}
    while going := [number for number, search in enumerate(searches) if not search.done]:
        rows: list[tuple[int, int, int]] = []
        starts = {}
        for number in going:
            starts[number], search = len(rows), searches[number]
            before = first_row.get(number)
            for parent, token in zip(search.parents.tolist(), search.tokens.tolist(), strict=True):
                rows.append((number, -1 if before is None else before + parent, token))
        best = sessions.step(name, np.array(rows, np.int32), max(searches[number].candidates for number in going))
        for number in going:
            own = slice(starts[number], starts[number] + options.beam_size)
            searches[number].advance(best.tokens[own], best.log_probs[own], best.logits[own])
        first_row = starts
    sessions.close(name)
    return [search.hypotheses() for search in searches]
