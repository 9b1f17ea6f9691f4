"""Compares a checkpoint's module in torch with the original implementation."""

from __future__ import annotations

import dataclasses

import numpy as np

from dragoman.export.checkpoint import Checkpoint
from dragoman.export.verification.answers import Original, Tokens
from dragoman.export.verification.eager import EagerModel


def sources(checkpoint: Checkpoint) -> list[list[int]]:
    generator = np.random.default_rng(5)
    most = min(checkpoint.config.source_vocabulary, 250)
    return [[*generator.integers(110, most, length).tolist(), checkpoint.tokens.eos] for length in (3, 7, 12, 25)]


def assert_same_searches(original: Original, ours: EagerModel, checkpoint: Checkpoint) -> list[Tokens]:
    """Greedy and beam search, alone and in a padded batch; the last answers to `sources`."""
    batch, languages = sources(checkpoint), checkpoint.languages
    first = 300 if languages is not None and languages.target_place == "forced_bos" else None
    expected: list[Tokens] = []
    for beams, penalty in ((1, 1.0), (4, 0.6)):
        options = dataclasses.replace(
            checkpoint.generation, beam_size=beams, max_length=24, forced_bos=first, length_penalty=penalty
        )
        expected = original.generate(batch, options)
        assert ours.generate(batch, options) == expected
        assert [ours.generate([source], options)[0] for source in batch] == expected
    return expected
