"""Forced decoding on a GPU: a piece of a target and everything before it are sent, and the results of the piece fetched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dragoman.bundle.consistency import ITEM_BYTES
from dragoman.serving.engine.kv_cache import CacheLayout
from dragoman.serving.engine.runtime import Encoded, ForcedPiece
from dragoman.serving.engine.slots import bucket
from dragoman.serving.runtime.tensorrt.device import Buffer, Gpu, Pinned, Rows
from dragoman.serving.runtime.tensorrt.engine import Execution, LoadedEngine
from dragoman.serving.runtime.tensorrt.kv_cache import EncodedTensor
from dragoman.serving.runtime.tensorrt.staging import Staging

__all__ = ["TensorRtForced", "forced_shapes"]

_SENT = ("tokens", "targets", "target_positions", "source_lengths")
_TOLD = ForcedPiece._fields

Shapes = dict[str, tuple[int, ...]]


def forced_shapes(engine: LoadedEngine, layout: CacheLayout, target: int, source: int) -> Shapes:
    """Of every input and output, for a target of at most so many tokens and a source that is padded to `source`."""
    target = min(bucket(target), engine.largest("tokens", 1))
    piece = min(target, engine.largest("targets", 1))
    best = (1, piece, engine.graph.max_candidates or 1)
    shapes: Shapes = {
        "tokens": (1, target),
        "targets": (1, piece),
        "target_positions": (piece,),
        "source_lengths": (1,),
        "log_probs": (1, piece),
        "alignment": (1, piece, source),
        "best_tokens": best,
        "best_log_probs": best,
    }
    cross = [spec.name for spec in engine.graph.inputs if spec.name.startswith("cross_")]
    return shapes | dict.fromkeys(cross, (1, layout.heads, source, layout.head_dim))


@dataclass(frozen=True, slots=True)
class _Room:
    """What goes up and comes down, for one set of shapes."""

    shapes: Shapes
    staging: Staging
    told: dict[str, Buffer]
    fetched: dict[str, Pinned]


class TensorRtForced:
    """The engine of forced decoding. Shapes are padded to a few, as those of sources and caches are."""

    def __init__(self, engine: LoadedEngine, device: Gpu, layout: CacheLayout, aligns_when_fed: bool) -> None:
        self.engine, self.aligns_when_fed = engine, aligns_when_fed
        self.tokens_at_once = engine.largest("targets", 1)
        self.max_candidates = engine.graph.max_candidates
        self._device, self._layout = device, layout
        self._execution: Execution | None = None
        self._room: _Room | None = None

    def reader(self, encoded: Encoded, target_tokens: int) -> TensorRtReader:  # noqa: ARG002 - it is read as far as it is fed
        return TensorRtReader(self, encoded)

    def run(self, encoded: Encoded, given: dict[str, npt.NDArray[Any]]) -> ForcedPiece:
        """`given`: tokens (target,), targets (piece,), target_positions (piece,), source_lengths (1,)."""
        piece, source = len(given["targets"]), int(encoded.lengths[0])
        memories: Sequence[EncodedTensor] = encoded.cross
        with self._device:
            room = self._room_for(forced_shapes(self.engine, self._layout, len(given["tokens"]), memories[0].length))
            sent = room.staging.writable()
            for name, array in given.items():  # what is padded names tokens and places that there are
                sent[name][...] = 0
                sent[name].reshape(-1)[: len(array)] = array
            room.staging.send()
            cross = [name for name in room.shapes if name.startswith("cross_")]
            addresses = {name: memory.buffer.address for name, memory in zip(cross, memories, strict=True)}
            addresses |= room.staging.addresses | {name: buffer.address for name, buffer in room.told.items()}
            inputs = {name: shape for name, shape in room.shapes.items() if name not in _TOLD}
            if self._execution is None:
                self._execution = self.engine.execution(self.engine.profile_of(inputs))
            self._execution.bind(inputs, addresses)
            self._execution.run()
            found = [self._fetch(room, name, piece) for name in _TOLD]
            self._device.synchronise()
            log_probs, alignment, best, best_log_probs = (array.copy() for array in found)  # the next call's come here, too
        return ForcedPiece(log_probs[:, 0], alignment[:, :source], best, best_log_probs)

    def _room_for(self, shapes: Shapes) -> _Room:
        """The last one again, if the shapes are the same."""
        if self._room is None or self._room.shapes != shapes:
            self._room = None  # the old one is given back first
            kinds = {spec.name: spec.dtype for spec in (*self.engine.graph.inputs, *self.engine.graph.outputs)}
            sizes = {name: int(np.prod(shapes[name])) for name in _TOLD}
            self._room = _Room(
                shapes,
                Staging(self._device, {name: (shapes[name], kinds[name]) for name in _SENT}),
                {name: self._device.allocate(size * ITEM_BYTES[kinds[name]]) for name, size in sizes.items()},
                {name: self._device.pinned((size,), kinds[name]) for name, size in sizes.items()},
            )
        return self._room

    def _fetch(self, room: _Room, name: str, piece: int) -> npt.NDArray[Any]:
        """Ask for the rows of the piece: (piece, …); they are there when the stream has been waited for."""
        host, (_, rows, *rest) = room.fetched[name].array, room.shapes[name]
        columns = int(np.prod(rest))
        width = columns * host.itemsize
        self._device.download_rows(room.fetched[name].address, Rows(room.told[name].address, width), width, piece)
        return host.reshape(rows, columns)[:piece]


class TensorRtReader:
    """One target of one source."""

    def __init__(self, forced: TensorRtForced, encoded: Encoded) -> None:
        self._forced, self._encoded = forced, encoded
        self._fed: list[int] = []

    def read(self, tokens: Sequence[int], targets: Sequence[int] | None, candidates: int) -> ForcedPiece:
        begin = len(self._fed)
        self._fed += tokens
        given = {
            "tokens": np.array(self._fed, np.int64),
            "targets": np.array(tokens if targets is None else targets, np.int64),
            "target_positions": np.arange(begin, len(self._fed)),
            "source_lengths": self._encoded.lengths[:1],
        }
        told = self._forced.run(self._encoded, given)
        return told._replace(
            best_tokens=told.best_tokens[:, :candidates], best_log_probs=told.best_log_probs[:, :candidates]
        )
