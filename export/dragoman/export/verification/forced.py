"""Runs the graph of forced decoding in the simplest way: one source and its whole target at a time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dragoman.bundle.languages import NO_LANGUAGE_TOKENS, LanguageTokens
from dragoman.bundle.manifest import Graph, SpecialTokens
from dragoman.export.verification.answers import FloatArray, IntArray
from dragoman.export.verification.sessions import opened

__all__ = ["ForcedModel", "ForcedOutput"]

Feed = dict[str, NDArray[np.generic]]


class ForcedOutput(NamedTuple):
    """The results for a target."""

    log_probs: FloatArray  # (target,) of its tokens
    alignment: FloatArray  # (target, source)
    best_tokens: IntArray  # (target, k)
    best_log_probs: FloatArray  # (target, k)


class ForcedModel:
    """An encoder graph and the graph of forced decoding of the same lowering."""

    def __init__(self, directory: Path, encoder: Graph, forced: Graph, tokens: SpecialTokens) -> None:
        self._encoder, self._forced = opened(directory / encoder.file), opened(directory / forced.file)
        self._inputs, self._start = {spec.name: spec for spec in forced.inputs}, tokens.decoder_start

    def __call__(
        self,
        source: Sequence[int],
        target: Sequence[int],
        candidates: int = 1,
        scored: int | None = None,
        language: LanguageTokens = NO_LANGUAGE_TOKENS,
    ) -> ForcedOutput:
        """`target` with its end token; `scored`: how many of its first tokens get log-probabilities, with native graphs."""
        start = self._start if language.decoder_start is None else language.decoder_start
        fed = np.array([start, *target[:-1]], np.int64)
        wanted = np.array(target[:scored], np.int64)
        if "self_cache" in self._inputs:
            return self._flat(source, fed, wanted, candidates, language.shortlist)
        return self._padded(source, fed, wanted)

    def _flat(self, source: Sequence[int], fed: IntArray, wanted: IntArray, candidates: int, shortlist: int) -> ForcedOutput:
        length, layers_and_size = len(source), self._inputs["self_cache"].shape
        memories = self._encoded(
            {
                "source_ids": np.array(source, np.int64),
                "source_positions": np.arange(length, dtype=np.int32),
                "source_starts": np.zeros(1, np.int32),
                "source_lengths": np.array([length], np.int32),
            }
        )
        lists: Feed = {"shortlists": np.array([shortlist], np.int32)} if "shortlists" in self._inputs else {}
        return self._run(
            {
                **lists,
                "tokens": fed,
                "targets": wanted,
                "positions": np.arange(len(fed), dtype=np.int32),
                "self_cache": np.zeros((int(layers_and_size[0]), len(fed), int(layers_and_size[2])), np.float32),
                "candidates": np.array([candidates], np.int64),
                **memories,
            }
        )

    def _padded(self, source: Sequence[int], fed: IntArray, wanted: IntArray) -> ForcedOutput:
        lengths = np.array([len(source)], np.int32)
        memories = self._encoded({"source_ids": np.array([source], np.int64), "source_lengths": lengths})
        targets = {"tokens": fed[None], "targets": wanted[None], "target_positions": np.arange(len(wanted))}
        forced = self._run({**targets, "source_lengths": lengths, **memories})
        return ForcedOutput(*(array[0] for array in forced))

    def _encoded(self, feed: Feed) -> Feed:
        names = [output.name for output in self._encoder.get_outputs()]
        return dict(zip(names, self._encoder.run(names, feed), strict=True))

    def _run(self, feed: Feed) -> ForcedOutput:
        binding = self._forced.io_binding()
        for name, array in feed.items():  # where they lie: the graph may write to its cache
            place = np.ascontiguousarray(array)
            feed[name] = place
            binding.bind_input(name, "cpu", 0, place.dtype.type, place.shape, place.ctypes.data)
        for name in ForcedOutput._fields:
            binding.bind_output(name)
        self._forced.run_with_iobinding(binding)
        found = ForcedOutput(*binding.copy_outputs_to_cpu())
        if "candidates" not in feed:
            return found
        most = int(np.asarray(feed["candidates"])[0])  # behind them stand the targets
        return found._replace(best_tokens=found.best_tokens[:, :most], best_log_probs=found.best_log_probs[:, :most])
