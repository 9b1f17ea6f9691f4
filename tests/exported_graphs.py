"""A checkpoint and the graphs made of it."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from dragoman import native
from dragoman.bundle.manifest import Graph, Lowering, Precision, Role
from dragoman.export.checkpoint import Checkpoint, read_checkpoint
from dragoman.export.graphs import build_graphs
from dragoman.export.lowering import Calibration
from dragoman.export.transformer import KeyValue, Transformer
from forced_steps import STEPPERS, Workload
from once import made_once

LOWERINGS: tuple[Lowering, ...] = ("portable",) if native.ops_library() is None else ("native", "portable")
"""Those that can be run here."""

needs_operators = pytest.mark.skipif(native.ops_library() is None, reason="the custom operators are not built")
EACH_LOWERING = [pytest.param("native", marks=needs_operators), "portable"]


@dataclass(frozen=True)
class Exported:
    """A tiny checkpoint and its graphs."""

    checkpoint: Checkpoint
    directory: Path
    graphs: tuple[Graph, ...]

    def graph(self, role: Role, lowering: Lowering) -> Graph:
        return next(graph for graph in self.graphs if (graph.role, graph.lowering) == (role, lowering))

    def stepper(self, lowering: Lowering) -> Any:
        return STEPPERS[lowering](self.directory, self.graph("encoder", lowering), self.graph("decoder", lowering))


def export(
    directory: Path,
    checkpoint: Path,
    lowerings: tuple[Lowering, ...],
    precision: Precision = "fp32",
    keep_in_fp32: Sequence[str] = (),
    shortlist: Sequence[int] = (),
    alignment_heads: Sequence[tuple[int, int]] = (),
    shortlists: Mapping[str, Sequence[int]] | None = None,
) -> Exported:
    """The graphs of `checkpoint`, written to the new `directory`."""
    directory.mkdir()
    read = read_checkpoint(checkpoint)
    if shortlist:
        read = dataclasses.replace(read, shortlist=tuple(shortlist))
    if shortlists:
        read = dataclasses.replace(read, shortlists={code: tuple(tokens) for code, tokens in shortlists.items()})
    if alignment_heads:
        read = dataclasses.replace(read, alignment_heads=tuple(alignment_heads))
    graphs = build_graphs(
        read, lowerings, precision, directory, lambda _share: None, calibration=Calibration(tuple(keep_in_fp32))
    )
    return Exported(read, directory, graphs)


def exported_once(
    factory: pytest.TempPathFactory,
    name: str,
    checkpoint: Path,
    lowerings: tuple[Lowering, ...],
    precision: Precision = "fp32",
) -> Exported:
    """The same, made by one worker of a run for all."""

    def make(directory: Path) -> None:
        graphs = export(directory / "graphs", checkpoint, lowerings, precision).graphs
        (directory / "graphs.pickle").write_bytes(pickle.dumps(graphs))

    directory = made_once(factory, f"graphs-{name}", make)
    graphs = pickle.loads((directory / "graphs.pickle").read_bytes())  # noqa: S301 - another worker's of this run
    return Exported(read_checkpoint(checkpoint), directory / "graphs", graphs)


def eager_logits(model: Transformer, work: Workload) -> NDArray[np.float32]:
    """(rows, steps, vocabulary): the Transformer run in torch."""
    lengths, shape = torch.from_numpy(work.lengths), model.config.decoder_attention
    with torch.inference_mode():
        memories = model.encode(torch.from_numpy(work.sources), lengths)
        empty = torch.zeros(work.rows, shape.heads, 8, shape.head_dim)
        pasts = [KeyValue(empty, empty)] * len(memories)
        steps = []
        for step in range(work.targets.shape[1]):
            tokens = torch.from_numpy(work.targets[:, step]).reshape(work.groups, work.width)
            logits, pasts = model.step(tokens, torch.full_like(tokens, step).int(), lengths, memories, pasts)
            steps.append(logits)
    return torch.stack(steps, dim=1).numpy()


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    return torch.from_numpy(logits).log_softmax(-1).numpy()
