"""Decoding in the client: the search runs here, the model's steps and its cache in the server.

`ClientDecode` knows nothing of gRPC: it yields the calls it needs and is sent their replies. It decides with
dragoman.search, like the engine: the same options give the same tokens.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dragoman.client.hooks import Best, Processor, Step, average, processed
from dragoman.client.hypotheses import joined
from dragoman.client.messages import Reply, foreign_answer
from dragoman.client.options import CheckedOptions
from dragoman.client.results import Alternative, Timings, Translation
from dragoman.errors import InvalidRequest, ServerError
from dragoman.search import DecodingOptions, Hypothesis, SearchBatch, search_batch
from dragoman.search.options import from_mapping
from dragoman.wire import DECODER, ENCODER, TritonModel

__all__ = ["Call", "ClientDecode", "ClientDecoding"]


@dataclass(frozen=True, slots=True)
class ClientDecoding:
    """How to decode in the client.

    `processor` may change the scores of every step; `ensemble` names further models of the same server whose
    probabilities are averaged with the first one's (they must share its target vocabulary). `candidates` is how many
    best tokens each step gives them: "all" is exact, a number is faster. The default is what the search itself needs,
    and "all" for an ensemble.
    """

    processor: Processor | None = None
    ensemble: Sequence[str] = ()
    candidates: int | Literal["all"] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.candidates, int) and self.candidates < 1:
            raise InvalidRequest(f"candidates={self.candidates} must be at least 1, or 'all'")


@dataclass(frozen=True, slots=True)
class Call:
    """One inference that the decoding needs."""

    model: TritonModel
    inputs: dict[str, list[bytes]]


@dataclass(frozen=True, slots=True)
class _Tokens:
    ends: tuple[int, ...]
    decoder_start: int


@dataclass(frozen=True, slots=True)
class _Opened:
    """One model's session, as the encoder described it."""

    session: bytes
    model: str
    version: str
    tokens: _Tokens
    generation: DecodingOptions
    source_tokens: list[int]
    prefix: list[list[int]]
    gaps: list[list[str]]
    target_vocabulary: int
    choices: int
    max_target_tokens: int


Steps = Generator[list[Call], list[Reply], list[Translation]]


class ClientDecode:
    """One batch of texts, decoded together; every source leaves when its own search is done."""

    def __init__(self, texts: Sequence[bytes], options: CheckedOptions, plan: ClientDecoding) -> None:
        self._texts, self._options, self._plan = list(texts), options, plan
        self._sessions: list[bytes] = []
        self._began_at = time.perf_counter()
        self._first_token_ms = 0.0

    def steps(self) -> Steps:
        """Yields the calls of each round (one a model of the ensemble), is sent their replies, returns the results."""
        replies = yield self._opening()
        opened = [_read_opened(reply, len(self._texts)) for reply in replies]
        first = _agreed(opened)
        hypotheses = yield from self._search(first)
        token_lists = [list(one.tokens) for found in hypotheses for one in found]
        command = json.dumps({"do": "text", "tokens": token_lists}).encode()
        (reply,) = yield [Call(DECODER, {"SESSION": [first.session], "COMMAND": [command]})]
        return self._translations(first, hypotheses, reply.strings("DECODED"))

    def note_sessions(self, replies: Sequence[Reply]) -> None:
        """Those that were opened, to be closed whatever happens: another call of the same round may have failed."""
        if not self._sessions:
            self._sessions = [reply.strings("SESSION")[0].encode() for reply in replies if reply.has("SESSION")]

    def closing(self) -> list[Call]:
        """Calls that free the caches in the server, whatever has happened; once."""
        sessions, self._sessions = self._sessions, []
        return [Call(DECODER, {"SESSION": [session], "COMMAND": [b'{"do": "close"}']}) for session in sessions]

    def _opening(self) -> list[Call]:
        """An encoder call for each model of the ensemble, the translator's own first."""
        calls = []
        for model in (self._options.model, *self._plan.ensemble):
            options = dataclasses.replace(self._options, model=model)
            calls.append(Call(ENCODER, options.inputs(self._texts, options.timeout_s)))
        return calls

    def _search(self, first: _Opened) -> Generator[list[Call], list[Reply], list[tuple[Hypothesis, ...]]]:
        options = from_mapping(self._options.decoding(), first.generation)
        batch = search_batch(options.beam_size, first.tokens, first.target_vocabulary, first.choices)
        prefixes = [tuple(forced) for forced in first.prefix]
        for prefix in prefixes:
            batch.join(_bounded(dataclasses.replace(options, prefix=prefix), first.max_target_tokens))
        rows = _Rows(len(prefixes), options.beam_size)
        found: list[tuple[Hypothesis, ...]] = [()] * len(prefixes)
        while len(batch):
            replies = yield self._step(batch, rows)
            if not self._first_token_ms:
                self._first_token_ms = self._elapsed_ms()
            best = self._best([_read_best(reply, batch) for reply in replies], batch, rows, prefixes)
            for group in batch.advance(best.tokens, best.log_probs, best.logits):
                found[rows.sources[group]] = batch.hypotheses(group)
                batch.leave(group)
                rows.leave(group)
        return found

    def _step(self, batch: SearchBatch, rows: _Rows) -> list[Call]:
        candidates = self._plan.candidates or ("all" if self._plan.ensemble else batch.candidates)
        wanted = batch.choices if candidates == "all" else min(max(candidates, batch.candidates), batch.choices)
        command = json.dumps({"do": "step", "candidates": wanted}).encode()
        step = rows.feed(batch.parents, batch.tokens).astype("<i4").tobytes()
        return [Call(DECODER, {"SESSION": [session], "COMMAND": [command], "STEP": [step]}) for session in self._sessions]

    def _best(self, answers: list[Best], batch: SearchBatch, rows: _Rows, prefixes: list[tuple[int, ...]]) -> Best:
        """The answers of the models averaged, and changed by the processor."""
        best = answers[0] if len(answers) == 1 else average(answers, batch.candidates)
        if self._plan.processor is None:
            return best
        fed = rows.history.shape[1] - 1  # without the start token
        live = np.repeat([fed >= len(prefixes[source]) for source in rows.sources], batch.width)
        step = Step(np.repeat(rows.sources, batch.width), rows.history[:, 1:], best)
        return processed(self._plan.processor, step, live)

    def _translations(self, first: _Opened, found: list[tuple[Hypothesis, ...]], texts: list[str]) -> list[Translation]:
        if len(texts) != sum(map(len, found)):
            raise ServerError(f"{sum(map(len, found))} hypotheses were sent to be detokenised and {len(texts)} came back")
        detokenised = iter(texts)
        timings = Timings(0.0, self._first_token_ms, self._elapsed_ms(), self._elapsed_ms())
        parts = [
            ([Alternative(next(detokenised), one.score, len(one.tokens)) for one in hypotheses], hypotheses[0].finish)
            for hypotheses in found
        ]
        results, start = [], 0
        for gaps in first.gaps:
            end = start + len(gaps) - 1
            best, *others = joined(gaps, [hypotheses for hypotheses, _ in parts[start:end]])
            results.append(
                Translation(
                    *(best.text, best.score, best.tokens, tuple(others), timings),
                    source_tokens=sum(first.source_tokens[start:end]),
                    finish="length" if any(finish == "length" for _, finish in parts[start:end]) else "eos",
                    parts=end - start,
                    cached=False,
                    model=first.model,
                    version=first.version,
                )
            )
            start = end
        return results

    def _elapsed_ms(self) -> float:
        return (time.perf_counter() - self._began_at) * 1000


class _Rows:
    """Where each source's rows stood at the previous step, and the tokens every row was fed so far."""

    def __init__(self, sources: int, width: int) -> None:
        self.sources = np.arange(sources)  # (groups,): which text a group of the batch is
        self.history: NDArray[np.int64] = np.empty((sources * width, 0), np.int64)  # (rows, steps)
        self._previous: NDArray[np.int64] | None = None  # (groups,): a group's first row at the previous step
        self._width = width

    def feed(self, parents: NDArray[np.int64], tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        """(rows, 3) of source, parent and token; parents and tokens are (groups, width)."""
        if self._previous is None:
            rows = np.arange(tokens.size)
            came_from = np.full(tokens.size, -1)
        else:
            rows = came_from = (self._previous[:, None] + parents).ravel()
        self.history = np.concatenate([self.history[rows], tokens.reshape(-1, 1)], axis=1)
        self._previous = np.arange(len(tokens)) * self._width
        return np.stack([np.repeat(self.sources, self._width), came_from, tokens.ravel()], axis=1)

    def leave(self, group: int) -> None:
        """The last group takes the number of one that is done, as in the batch."""
        if self._previous is None:
            raise AssertionError("a search can't be done before its first step")
        for name in ("sources", "_previous"):
            column = getattr(self, name)
            column[group] = column[-1]
            setattr(self, name, column[:-1])


def _read_opened(reply: Reply, texts: int) -> _Opened:
    info = reply.about("MODEL_INFO")
    try:
        opened = _Opened(
            session=reply.strings("SESSION")[0].encode(),
            model=str(info["model"]),
            version=str(info["version"]),
            tokens=_read_tokens(info["tokens"]),
            generation=from_mapping(info["generation"], DecodingOptions()),
            source_tokens=[int(count) for count in info["source_tokens"]],
            prefix=[[int(token) for token in prefix] for prefix in info["prefix"]],
            gaps=[[str(gap) for gap in gaps] for gaps in info["gaps"]],
            target_vocabulary=int(info["target_vocabulary"]),
            choices=int(info.get("choices", info["target_vocabulary"])),
            max_target_tokens=int(info["max_target_tokens"]),
        )
    except (KeyError, TypeError, ValueError, IndexError, InvalidRequest) as error:
        raise foreign_answer(f"its MODEL_INFO can't be read ({error!r})") from None
    sources = sum(len(gaps) - 1 for gaps in opened.gaps)
    if len(opened.gaps) != texts or not all(opened.gaps) or not len(opened.source_tokens) == len(opened.prefix) == sources:
        raise ServerError(f"{texts} texts were sent, and {len(opened.source_tokens)} sources of {len(opened.gaps)} encoded")
    return opened


def _read_tokens(tokens: dict[str, Any]) -> _Tokens:
    return _Tokens((int(tokens["eos"]), *map(int, tokens.get("other_eos", ()))), int(tokens["decoder_start"]))


def _bounded(options: DecodingOptions, target_tokens: int) -> DecodingOptions:
    """The model's limit applies beside `max_length`, as in the engine: the lower one."""
    room = target_tokens - len(options.prefix)
    if room < max(options.min_length, 1):
        raise InvalidRequest(
            f"a prefix of {len(options.prefix)} tokens and min_length={options.min_length} are more than the "
            f"model's {target_tokens} target tokens"
        )
    return dataclasses.replace(options, max_length=min(options.max_length, room))


def _agreed(opened: list[_Opened]) -> _Opened:
    """The first model, whose options apply; InvalidRequest when another has a different target vocabulary."""
    first = opened[0]
    for other in opened[1:]:
        if (other.target_vocabulary, other.tokens) != (first.target_vocabulary, first.tokens):
            raise InvalidRequest(
                f"{first.model} and {other.model} can't be an ensemble: their target vocabularies differ "
                f"({first.target_vocabulary} and {other.target_vocabulary} tokens)"
            )
        if other.gaps != first.gaps:
            raise InvalidRequest(
                f"{first.model} and {other.model} split these texts differently; give both the same with split='sentence'"
            )
        if other.choices != first.choices:
            raise InvalidRequest(
                f"{first.model} and {other.model} can't be an ensemble: their shortlists differ "
                f"({first.choices} and {other.choices} tokens)"
            )
    return first


def _read_best(reply: Reply, batch: SearchBatch) -> Best:
    arrays: list[NDArray[Any]] = [reply.array(name) for name in ("BEST_TOKENS", "BEST_LOG_PROBS", "BEST_LOGITS")]
    if any(array.shape[:1] != (len(batch) * batch.width,) or array.shape != arrays[0].shape for array in arrays):
        raise ServerError("a step's answer does not have a row for each row that was sent")
    return Best(*arrays)
