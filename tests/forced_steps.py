"""Runs a decoder graph over given target tokens, one step at a time, so that every step can be compared."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from dragoman.bundle.manifest import Graph, Lowering

Arrays = dict[str, NDArray[np.generic]]


class Best(NamedTuple):
    """Of every row, best first, each (rows, k)."""

    tokens: NDArray[np.int64]
    log_probs: NDArray[np.float32]
    logits: NDArray[np.float32]


@dataclass(frozen=True)
class Workload:
    """Sources (groups, source) with lengths (groups,), and targets (rows, steps) with `width` rows a group."""

    sources: NDArray[np.int64]
    lengths: NDArray[np.int32]
    targets: NDArray[np.int64]
    width: int

    @property
    def groups(self) -> int:
        return len(self.sources)

    @property
    def mask(self) -> NDArray[np.int64]:
        """(groups, source): 0 where a source is padded."""
        return (np.arange(self.sources.shape[1]) < self.lengths[:, None]).astype(np.int64)

    @property
    def rows(self) -> int:
        return self.groups * self.width


def random_workload(source_vocabulary: int, target_vocabulary: int, start: int, width: int = 2) -> Workload:
    """Three sources of different lengths; every row begins with the start token and goes on at random."""
    random = np.random.default_rng(7)
    targets = random.integers(0, target_vocabulary, (3 * width, 6))
    targets[:, 0] = start
    return Workload(random.integers(0, source_vocabulary, (3, 9)), np.array([9, 4, 6], np.int32), targets, width)


def session(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


class PortableStepper:
    """An encoder and a decoder graph in ONNX Runtime; the cache is longer than needed and starts full of garbage."""

    def __init__(self, directory: Path, encoder: Graph, decoder: Graph) -> None:
        self.encoder, self.decoder = session(directory / encoder.file), session(directory / decoder.file)
        self.caches = [spec for spec in decoder.inputs if spec.name.startswith("self_")]

    def encode(self, work: Workload) -> Arrays:
        names = [output.name for output in self.encoder.get_outputs()]
        feed = {"source_ids": work.sources, "source_lengths": work.lengths}
        return dict(zip(names, self.encoder.run(names, feed), strict=True))

    def garbage(self, rows: int, cache: int = 8) -> Arrays:
        random = np.random.default_rng(3)
        return {
            spec.name: random.standard_normal((rows, int(spec.shape[1]), cache, int(spec.shape[3]))).astype(spec.dtype)
            for spec in self.caches
        }

    def feed(self, work: Workload, cross: Arrays, at: NDArray[np.int64]) -> Arrays:
        """Row r is at step at[r]."""
        shape = (work.groups, work.width)
        return {
            "tokens": work.targets[np.arange(work.rows), at].reshape(shape),
            "positions": at.astype(np.int32).reshape(shape),
            "source_lengths": work.lengths,
            **cross,
        }

    def run(self, work: Workload, candidates: int = 64) -> list[Best]:
        """All rows together; of each step the first of the candidates that the graph returns."""
        cross, past = self.encode(work), self.garbage(work.rows)
        steps = []
        for step in range(work.targets.shape[1]):
            feed = self.feed(work, cross, np.full(work.rows, step))
            best, past = self.step({**feed, **past, "parents": np.arange(work.rows)})
            steps.append(Best(*(part[:, :candidates] for part in best)))
        return steps

    def step(self, feed: Arrays) -> tuple[Best, Arrays]:
        names = ["best_tokens", "best_log_probs", "best_logits", *(f"present_{spec.name}" for spec in self.caches)]
        out = self.decoder.run(names, {**feed, "scored_tokens": np.zeros((len(feed["parents"]), 1), np.int64)})
        present = {spec.name: array for spec, array in zip(self.caches, out[3:], strict=True)}
        return Best(*out[:3]), present

    def run_shuffled(self, work: Workload) -> list[tuple[NDArray[np.int64], NDArray[np.int64], Best]]:
        """The graph gathers its past: groups change places every tick, rows stand apart, and the first past is larger."""
        random = np.random.default_rng(5)
        cross, past = self.encode(work), self.garbage(work.rows + 2)
        where, steps = np.arange(work.rows) + 1, []  # where each row's past lies
        for tick in range(work.targets.shape[1] + work.rows - 1):
            order = random.permutation(work.groups)
            rows = (order[:, None] * work.width + np.arange(work.width)).reshape(-1)
            at = np.clip(tick - rows, 0, work.targets.shape[1] - 1)
            moved = Workload(work.sources[order], work.lengths[order], work.targets[rows], work.width)
            feed = self.feed(moved, {name: array[order] for name, array in cross.items()}, at)
            best, past = self.step({**feed, **past, "parents": where[rows]})
            where = np.argsort(rows)
            steps.append((rows, at, best))
        return steps


class NativeStepper:
    """The same for graphs with custom operators: sources without padding, pasts in KV slots."""

    def __init__(self, directory: Path, encoder: Graph, decoder: Graph) -> None:
        from dragoman.export.verification.exported import stepper_of

        self._stepper = stepper_of(directory, encoder, decoder)

    def run(self, work: Workload, candidates: int = 5) -> list[Best]:
        self._stepper.start([row[:length].tolist() for row, length in zip(work.sources, work.lengths, strict=True)])
        groups, shape = np.arange(work.groups), (work.groups, work.width)
        own = np.broadcast_to(np.arange(work.width), shape)
        steps = [work.targets[:, step].reshape(shape) for step in range(work.targets.shape[1])]
        return [
            Best(*self._stepper.step(tokens, np.full(work.groups, step), groups, own, candidates))
            for step, tokens in enumerate(steps)
        ]


STEPPERS: dict[Lowering, type[PortableStepper | NativeStepper]] = {"native": NativeStepper, "portable": PortableStepper}


def worst_difference(best: Best, log_probs: NDArray[np.float32], logits: NDArray[np.float32]) -> float:
    """Against whole distributions (rows, vocabulary): values at the named tokens, and that these are the best ones."""
    k = best.tokens.shape[1]
    ideal = -np.sort(-log_probs, axis=-1)[:, :k]
    return max(
        float(np.abs(np.take_along_axis(log_probs, best.tokens, -1) - best.log_probs).max()),
        float(np.abs(np.take_along_axis(logits, best.tokens, -1) - best.logits).max()),
        float(np.abs(ideal - best.log_probs).max()),
    )
