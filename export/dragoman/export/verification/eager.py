"""The torch module as the reference, if transformers is not installed: it checks the graphs, not the reader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from dragoman.bundle.languages import NO_LANGUAGE_TOKENS, LanguageTokens
from dragoman.bundle.manifest import SpecialTokens
from dragoman.export.transformer import KeyValue, Transformer
from dragoman.export.verification.answers import FloatArray, IntArray, Tokens
from dragoman.export.verification.decoding import TopTokens, decode
from dragoman.search import DecodingOptions

__all__ = ["EagerModel", "threads_for"]

_CACHE_STEP = 32
_WIDTH_FOR_THREADS = 512
"""Narrower models have products so small that threads wait longer than they compute, above all on a busy CPU."""


@contextmanager
def threads_for(width: int) -> Iterator[None]:
    """torch computes a narrow model on one thread, and goes on with as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if width < _WIDTH_FOR_THREADS else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class EagerModel:
    """The Transformer that was exported, run in torch."""

    name = "dragoman's torch module"

    def __init__(self, transformer: Transformer, tokens: SpecialTokens) -> None:
        self._tokens, self._vocabulary = tokens, transformer.config.target_vocabulary
        self._width, self._stepper = transformer.config.d_model, _EagerStepper(transformer)

    def generate(self, sources: Sequence[Sequence[int]], options: DecodingOptions) -> list[Tokens]:
        with threads_for(self._width):
            answers = decode(self._stepper, sources, options, self._tokens, self._vocabulary)
        return [answer.tokens for answer in answers]

    def log_probs(
        self, source: Sequence[int], target: Sequence[int], language: LanguageTokens = NO_LANGUAGE_TOKENS
    ) -> FloatArray:
        alone = np.zeros(1, np.int64)
        rows = []
        start = self._tokens.decoder_start if language.decoder_start is None else language.decoder_start
        with threads_for(self._width):
            self._stepper.start([source])
            for position, token in enumerate([start, *target[:-1]]):
                logits = self._stepper.logits(np.array([[token]]), np.array([position]), alone, alone[None])
                rows.append(logits.log_softmax(-1).numpy())
        return np.concatenate(rows)


class _EagerStepper:
    def __init__(self, transformer: Transformer) -> None:
        self._transformer = transformer
        self._lengths = torch.zeros(0, dtype=torch.int32)
        self._memories: list[KeyValue] = []
        self._pasts: list[KeyValue] = []

    @torch.inference_mode()
    def start(self, sources: Sequence[Sequence[int]], shortlist: int = 0) -> None:  # noqa: ARG002 - there are none
        self._lengths = torch.tensor([len(source) for source in sources], dtype=torch.int32)
        ids = torch.zeros(len(sources), int(self._lengths.max()), dtype=torch.int64)
        for row, source in enumerate(sources):
            ids[row, : len(source)] = torch.tensor(source)
        self._memories = self._transformer.encode(ids, self._lengths)
        shape = self._transformer.config.decoder_attention
        empty = torch.zeros(len(sources), shape.heads, _CACHE_STEP, shape.head_dim)
        self._pasts = [KeyValue(empty, empty)] * len(self._memories)

    def step(self, tokens: IntArray, positions: IntArray, groups: IntArray, parents: IntArray, candidates: int) -> TopTokens:
        logits = self.logits(tokens, positions, groups, parents)
        best = logits.log_softmax(-1).topk(candidates, dim=-1)
        return TopTokens(best.indices.numpy(), best.values.numpy(), logits.gather(-1, best.indices).numpy())

    @torch.inference_mode()
    def logits(self, tokens: IntArray, positions: IntArray, groups: IntArray, parents: IntArray) -> Tensor:
        """(rows, vocabulary) of one step; the arguments are those of `step`."""
        count, width = tokens.shape
        kept = torch.from_numpy(groups)
        if count != len(self._lengths):
            self._lengths = self._lengths[kept]
            self._memories = [KeyValue(memory.key[kept], memory.value[kept]) for memory in self._memories]
        first = bool((positions == 0).all())
        rows = kept.repeat_interleave(width) if first else (kept[:, None] * width + torch.from_numpy(parents)).flatten()
        places = torch.from_numpy(np.repeat(positions[:, None], width, 1).astype(np.int32))
        self._grow(int(positions.max()) + 1)
        pasts = [KeyValue(past.key[rows], past.value[rows]) for past in self._pasts]
        logits, self._pasts = self._transformer.step(
            torch.from_numpy(np.ascontiguousarray(tokens)), places, self._lengths, self._memories, pasts
        )
        return logits

    def _grow(self, needed: int) -> None:
        if needed > self._pasts[0].key.shape[2]:
            more = (0, 0, 0, _CACHE_STEP)
            pad = torch.nn.functional.pad
            self._pasts = [KeyValue(pad(past.key, more), pad(past.value, more)) for past in self._pasts]
