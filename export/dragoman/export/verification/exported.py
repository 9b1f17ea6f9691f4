"""The exported graphs in ONNX Runtime, with the search of the engine and the client.

Slower than the server's runtime on purpose: without bound buffers and reuse, only the graphs are verified.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dragoman.bundle.languages import NO_LANGUAGE_TOKENS, LanguageTokens
from dragoman.bundle.manifest import Dimensions, Graph, Lowering, Role, SpecialTokens
from dragoman.errors import VerificationError
from dragoman.export.verification.answers import Answers, FloatArray, IntArray
from dragoman.export.verification.decoding import Stepper, TopTokens, decode, force
from dragoman.export.verification.forced import ForcedModel
from dragoman.export.verification.native_stepper import NativeStepper
from dragoman.export.verification.sessions import opened
from dragoman.search import DecodingOptions

__all__ = ["GraphModel", "PortableStepper", "stepper_of"]

_CACHE_STEP = 32
"""The self-attention cache grows by so many positions at a time."""


class GraphModel:
    """The graphs of one lowering, run on the same inputs as the original.

    Each session maps the weights anew, so the decoder step and the graph of forced decoding are never open together.
    """

    def __init__(self, directory: Path, graphs: Mapping[Role, Graph], tokens: SpecialTokens, dimensions: Dimensions) -> None:
        self._directory, self._graphs = directory, graphs
        self._tokens, self._vocabulary, self._choices = tokens, dimensions.target_vocabulary, dimensions.choices
        self._stepper: Stepper | None = None
        self._scorer: ForcedModel | None = None

    def generate(
        self,
        sources: Sequence[Sequence[int]],
        options: DecodingOptions,
        language: LanguageTokens = NO_LANGUAGE_TOKENS,
    ) -> Answers:
        lists = {"choices": self._choices, "shortlist": language.shortlist}
        return decode(self._steps(), sources, options, self._tokens, self._vocabulary, **lists)

    def forced(
        self, source: Sequence[int], target: Sequence[int], language: LanguageTokens = NO_LANGUAGE_TOKENS
    ) -> tuple[IntArray, FloatArray]:
        start = self._tokens.decoder_start if language.decoder_start is None else language.decoder_start
        return force(self._steps(), source, [start, *target[:-1]], min(8, self._choices), language.shortlist)

    def scored(
        self, source: Sequence[int], target: Sequence[int], language: LanguageTokens = NO_LANGUAGE_TOKENS
    ) -> FloatArray:
        if self._scorer is None:
            self._stepper = None
            self._scorer = ForcedModel(self._directory, self._graphs["encoder"], self._graphs["forced"], self._tokens)
        return self._scorer(source, target, language=language).log_probs

    def _steps(self) -> Stepper:
        if self._stepper is None:
            self._scorer = None
            self._stepper = stepper_of(self._directory, self._graphs["encoder"], self._graphs["decoder"])
        return self._stepper


def stepper_of(directory: Path, encoder: Graph, decoder: Graph) -> Stepper:
    """What runs these graphs, of whichever lowering."""
    return STEPPERS[decoder.lowering](directory, encoder, decoder)


def _native_stepper(directory: Path, encoder: Graph, decoder: Graph) -> NativeStepper:
    return NativeStepper(opened(directory / encoder.file), opened(directory / decoder.file), decoder)


class PortableStepper:
    """Two sessions and the caches of one batch, in plain arrays."""

    def __init__(self, directory: Path, encoder: Graph, decoder: Graph) -> None:
        self._most = decoder.max_candidates or 0
        self._encoder, self._decoder = opened(directory / encoder.file), opened(directory / decoder.file)
        inputs = {spec.name: spec for spec in decoder.inputs}
        self._self_names = [name for name in inputs if name.startswith(("self_key_", "self_value_"))]
        _, heads, _, head_dim = inputs[self._self_names[0]].shape
        dtype = inputs[self._self_names[0]].dtype
        kept_in = "float32" if dtype == "bfloat16" else dtype  # as `opened` takes them
        self._empty_row = np.zeros((1, int(heads), _CACHE_STEP, int(head_dim)), kept_in)
        self._cross: dict[str, NDArray[np.generic]] = {}
        self._self: dict[str, NDArray[np.generic]] = {}
        self._lengths = np.zeros(0, np.int32)

    def start(self, sources: Sequence[Sequence[int]], shortlist: int = 0) -> None:  # noqa: ARG002 - there are none
        self._lengths = np.array([len(source) for source in sources], np.int32)
        ids = np.zeros((len(sources), int(self._lengths.max())), np.int64)
        for row, source in enumerate(sources):
            ids[row, : len(source)] = source
        names = [output.name for output in self._encoder.get_outputs()]
        out = self._encoder.run(names, {"source_ids": ids, "source_lengths": self._lengths})
        self._cross = dict(zip(names, out, strict=True))
        self._self = dict.fromkeys(self._self_names, np.repeat(self._empty_row, len(sources), axis=0))

    def step(self, tokens: IntArray, positions: IntArray, groups: IntArray, parents: IntArray, candidates: int) -> TopTokens:
        count, width = tokens.shape
        if candidates > self._most:
            raise VerificationError(f"the search needs {candidates} candidates per step, but the graph returns {self._most}")
        if count != len(self._lengths):
            self._cross = {name: array[groups] for name, array in self._cross.items()}
            self._lengths = self._lengths[groups]
        first = bool((positions == 0).all())
        # At the first step there is one past row a group; afterwards there is one for each of its beams.
        rows = np.repeat(groups, width) if first else (groups[:, None] * width + parents).reshape(-1)
        self._grow(int(positions.max()) + 1)
        feed: dict[str, NDArray[np.generic]] = {
            "tokens": np.ascontiguousarray(tokens, np.int64),
            "positions": np.repeat(positions[:, None], width, 1).astype(np.int32),
            "source_lengths": self._lengths,
            "parents": rows.astype(np.int64),
            "scored_tokens": np.zeros((len(rows), 1), np.int64),
            **self._cross,
            **self._self,
        }
        presents = [f"present_{name}" for name in self._self_names]
        best_tokens, log_probs, logits, *caches = self._decoder.run(
            ["best_tokens", "best_log_probs", "best_logits", *presents], feed
        )
        self._self = dict(zip(self._self_names, caches, strict=True))
        return TopTokens(best_tokens, log_probs, logits)

    def _grow(self, needed: int) -> None:
        have = next(iter(self._self.values())).shape[2]
        if needed > have:
            more = ((0, 0), (0, 0), (0, _CACHE_STEP), (0, 0))
            self._self = {name: np.pad(array, more) for name, array in self._self.items()}


STEPPERS: dict[Lowering, Callable[[Path, Graph, Graph], Stepper]] = {"native": _native_stepper, "portable": PortableStepper}
"""What runs the encoder and the decoder of each lowering."""
