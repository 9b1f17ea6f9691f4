"""A checkpoint and the graphs made of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dragoman.bundle.manifest import Graph, Lowering, Precision, Role
from dragoman.export.checkpoint import Checkpoint, read_checkpoint
from dragoman.export.graphs import build_graphs
from forced_steps import Stepper


@dataclass(frozen=True)
class Exported:
    """A tiny checkpoint and its graphs."""

    checkpoint: Checkpoint
    directory: Path
    graphs: tuple[Graph, ...]

    def graph(self, role: Role, lowering: Lowering) -> Graph:
        return next(graph for graph in self.graphs if (graph.role, graph.lowering) == (role, lowering))

    def stepper(self, lowering: Lowering) -> Stepper:
        return Stepper(self.directory, self.graph("encoder", lowering), self.graph("decoder", lowering))


def export(
    directory: Path,
    checkpoint: Path,
    lowerings: tuple[Lowering, ...],
    precision: Precision = "fp32",
    keep_in_fp32: Sequence[str] = (),
) -> Exported:
    """The graphs of `checkpoint`, written to the new `directory`."""
    directory.mkdir()
    read = read_checkpoint(checkpoint)
    graphs = build_graphs(read, lowerings, precision, directory, lambda _share: None, keep_in_fp32=keep_in_fp32)
    return Exported(read, directory, graphs)
