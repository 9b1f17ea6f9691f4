"""A model without weights behind the `encoder` and `decoder` of a ScriptedTriton.

The logits of a row are a hash of its source and of the tokens it was fed, so a row that was given another row's cache,
or a token too many, ends in another translation. Token n is written as the n-th letter.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np
from fake_triton import OVERLOADED, Outputs, Received, packed

from dragoman.search import DecodingOptions, Hypothesis
from dragoman.wire import WIRE_VERSION
from single_search import Search

VOCABULARY, EOS, START = 26, 0, 25


@dataclass(frozen=True)
class Tokens:
    pad: int = START
    ends: tuple[int, ...] = (EOS,)
    decoder_start: int = START


def logits_of(seed: int, text: str, fed: tuple[int, ...]) -> np.ndarray:
    digest = hashlib.sha256(f"{seed}|{text}|{fed}".encode()).digest()
    logits = np.random.default_rng(int.from_bytes(digest[:8], "little")).normal(0, 2, VOCABULARY).astype(np.float32)
    logits[EOS] += 0.4 * len(fed)  # or random sentences would hardly ever end
    logits[START] = -30.0
    return logits


def log_softmax(logits: np.ndarray) -> np.ndarray:
    return logits - np.float32(np.log(np.exp(logits.astype(np.float64)).sum()))


def best_of(logits: np.ndarray, candidates: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    order = np.argsort(-logits, kind="stable")[:candidates]
    return order.astype(np.int32), log_softmax(logits)[order], logits[order]


def spell(tokens: list[int]) -> str:
    return "".join(chr(ord("a") + token) for token in tokens if token not in (EOS, START))


def solo(
    text: str, options: DecodingOptions, logits: Callable[[str, tuple[int, ...]], np.ndarray]
) -> tuple[Hypothesis, ...]:
    """What the search finds for `text` alone, with the model in this process."""
    search = Search(options, Tokens(), VOCABULARY)
    rows: list[tuple[int, ...]] = [()] * search.width
    while not search.done:
        rows = [(*rows[parent], int(token)) for parent, token in zip(search.parents, search.tokens, strict=True)]
        said = [best_of(logits(text, row), max(search.candidates, 1)) for row in rows]
        search.advance(*(np.stack(column) for column in zip(*said, strict=True)))
    return search.hypotheses()


@dataclass
class Session:
    """The caches of one decoding: what each row of the last step was fed."""

    texts: list[str]
    seed: int
    rows: list[tuple[int, ...]] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)


class PseudoModel:
    """Seeds of the models it plays, by name; None is the server's own."""

    def __init__(self, models: dict[str | None, int]) -> None:
        self._models = models
        self.open: dict[str, Session] = {}
        self.opened = 0
        self.wire_version = WIRE_VERSION
        self.max_target_tokens = 40
        self.steps = 0
        self.vocabulary = dict.fromkeys(models, VOCABULARY)
        self.lose_sessions_at_step: int | None = None
        self.overloaded_at_step: int | None = None

    def encoder(self, request: Received, context: grpc.ServicerContext) -> Outputs:
        name = request.bundle
        self.opened += 1
        session = f"session-{self.opened}"
        self.open[session] = Session(request.texts, self._models[name])
        letters = request.options.get("prefix_text", "")
        prefix = [*request.options.get("prefix", []), *(ord(letter) - ord("a") for letter in letters)]
        info: dict[str, Any] = {
            "wire_version": self.wire_version,
            "model": name or "own",
            "version": "7",
            "tokens": {"pad": START, "eos": EOS, "decoder_start": START},
            "generation": {"max_length": 30},
            "source_tokens": [len(text) for text in request.texts],
            "prefix": [prefix for _ in request.texts],
            "gaps": [["", ""] for _ in request.texts],
            "target_vocabulary": self.vocabulary[name],
            "max_target_tokens": self.max_target_tokens,
            "idle_timeout_s": 30,
        }
        return {"SESSION": ("BYTES", (1,), packed(session)), "MODEL_INFO": ("BYTES", (1,), packed(json.dumps(info)))}

    def decoder(self, request: Received, context: grpc.ServicerContext) -> Outputs:
        name = request.inputs["SESSION"][0].decode()
        command = json.loads(request.inputs["COMMAND"][0])
        if self.steps == self.lose_sessions_at_step:
            self.lose_sessions_at_step = None
            self.open.clear()
        if name not in self.open:
            context.abort(grpc.StatusCode.NOT_FOUND, "SESSION_LOST: the engine was restarted")
        if self.steps == self.overloaded_at_step:
            self.overloaded_at_step = None
            context.abort(OVERLOADED.code, OVERLOADED.message)
        if command["do"] == "step":
            return self._step(self.open[name], request.inputs["STEP"][0], command["candidates"])
        texts = [spell(tokens) for tokens in command.get("tokens", [])]
        if command["do"] == "close":
            del self.open[name]
        nothing = ((0, 0), b"")
        return {
            "BEST_TOKENS": ("INT32", *nothing),
            "BEST_LOG_PROBS": ("FP32", *nothing),
            "BEST_LOGITS": ("FP32", *nothing),
            "DECODED": ("BYTES", (len(texts),), packed(*texts)),
        }

    def _step(self, session: Session, step: bytes, candidates: int) -> Outputs:
        self.steps += 1
        triples = np.frombuffer(step, "<i4").reshape(-1, 3).tolist()
        for source, parent, _ in triples:
            assert parent == -1 or session.sources[parent] == source, "a row continues another source's row"
        session.rows = [(*(session.rows[parent] if parent >= 0 else ()), token) for _, parent, token in triples]
        session.sources = [source for source, _, _ in triples]
        said = [
            best_of(logits_of(session.seed, session.texts[source], row), candidates)
            for source, row in zip(session.sources, session.rows, strict=True)
        ]
        tokens, log_probs, logits = (np.stack(column) for column in zip(*said, strict=True))
        return {
            "BEST_TOKENS": ("INT32", tokens.shape, tokens.astype("<i4").tobytes()),
            "BEST_LOG_PROBS": ("FP32", log_probs.shape, log_probs.astype("<f4").tobytes()),
            "BEST_LOGITS": ("FP32", logits.shape, logits.astype("<f4").tobytes()),
            "DECODED": ("BYTES", (0,), b""),
        }
