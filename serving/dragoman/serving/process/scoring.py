"""Scores of given translations: the model reads them and returns how probable they are."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence

from dragoman.errors import InvalidRequest, ServerError
from dragoman.search import DecodingOptions, Hypothesis
from dragoman.serving import engine
from dragoman.serving.engine import ForcedTarget, Forcing
from dragoman.serving.process.loaded_bundle import LoadedBundle
from dragoman.serving.process.options import RequestOptions
from dragoman.serving.text.alternatives import token_texts
from dragoman.serving.text.document import Document, Restored
from dragoman.serving.text.fitting import longest_text

__all__ = ["Scoring", "options_of_scores"]

_OPTIONS = frozenset(
    {
        *("request_id", "timeout_ms", "priority", "cache", "source_language", "target_language", "task", "task_prefix"),
        *("decoder_start", "forced_bos"),
    }
)
"""The options that apply to scoring."""
_JSON = json.JSONEncoder(ensure_ascii=False)


def options_of_scores(options: RequestOptions) -> RequestOptions:
    """The options of a request with targets; InvalidRequest for options that do not apply to them. Scores are not cached."""
    if senseless := sorted(options.named - _OPTIONS):
        raise InvalidRequest(
            f"{', '.join(senseless)} makes no sense with TARGET: a target is scored as it is, nothing is searched or split"
        )
    return dataclasses.replace(options, cache=False)


class Scoring:
    """Sources and targets of one bundle."""

    def __init__(self, bundle: LoadedBundle) -> None:
        self._bundle, self._tokenizer = bundle, bundle.tokenizer
        self._end = bundle.manifest.tokens.eos
        self._most = bundle.manifest.dimensions.max_target_tokens

    def plan(self, text: str, target: str, options: RequestOptions) -> Document:
        """The text as one part; its "translation" is the target as the caller wrote it."""
        document = self._bundle.plan_whole(text, options)
        (part,) = document.parts
        return document._replace(parts=(part._replace(restore=lambda *_: Restored(target, ())),))

    def forcing(self, target: str, which: str, options: RequestOptions) -> tuple[DecodingOptions, Forcing]:
        """The forced decoding of a target. A forced first token is a part of the target, as in the training loss."""
        first, decoding = options.decoding.forced_bos, DecodingOptions(decoder_start=options.decoding.decoder_start)
        # Longer texts have more tokens than the model accepts, so they are not tokenised.
        own = [] if len(target) > longest_text(self._most) else self._tokenizer.encode_target(target)
        tokens = (*(() if first is None else (first,)), *own, self._end)
        if not own and len(target) <= longest_text(self._most):
            raise InvalidRequest(f"{which} has no tokens")
        if not own or len(tokens) > self._most:
            size = f"{len(tokens)} tokens" if own else f"{len(target)} characters, which are too many tokens"
            raise InvalidRequest(f"{which} has {size}; the model takes {self._most} tokens: score its sentences one by one")
        return decoding, Forcing(targets=(tokens,))

    def take(self, sequence: engine.Sequence, which: str) -> str:
        """A target has been read: make it the hypothesis of `sequence`. Returns its tokens for DETAILS, as JSON."""
        if len(sequence.forced) != 1:
            raise ServerError(f"{len(sequence.forced)} scores of one target")
        (found,) = sequence.forced
        log_probs = [float(one) for one in found.log_probs]
        texts = token_texts(self._tokenizer, found.tokens)
        self._check(found, log_probs, texts, which)
        sequence.hypotheses = (Hypothesis(found.tokens, math.fsum(log_probs), "eos"),)
        return _JSON.encode([[text, round(one, 6)] for text, one in zip(texts, log_probs, strict=True)])

    @staticmethod
    def _check(found: ForcedTarget, log_probs: Sequence[float], texts: Sequence[str], which: str) -> None:
        for at, one in enumerate(log_probs):
            if not math.isfinite(one):
                raise InvalidRequest(
                    f"{which} has token {found.tokens[at]} ({texts[at]!r}), which this bundle can't generate: it is not in "
                    "the bundle's shortlist"
                )
