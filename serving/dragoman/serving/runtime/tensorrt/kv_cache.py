"""The KV caches of a batch in the GPU's memory.

A step reads the self-attention caches and writes them anew, in the new order of beams, so they exist twice: what one step
wrote the next one reads. Tensors are (sequences · width, heads, target, head_dim) and, for the cross-attention, (sequences,
heads, source, head_dim), with the sizes of `shape` however much is in use: shapes and addresses seldom change. Unused parts
must hold numbers: a masked position counts 0 times its value, and 0 times NaN is NaN.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dragoman.bundle.consistency import ITEM_BYTES
from dragoman.serving.engine.kv_cache import EMPTY, CacheLayout, CacheShape
from dragoman.serving.runtime.tensorrt.device import Buffer, Gpu, Rows

__all__ = ["DeviceKVCache", "EncodedTensor"]


@dataclass(frozen=True, slots=True)
class EncodedTensor:
    """A key or a value that the encoder left on the GPU: (sources, heads, length, head_dim)."""

    buffer: Buffer
    length: int


class _Blocks(NamedTuple):
    """Blocks (heads, length, head_dim) of a tensor, from number `first` on."""

    buffer: Buffer
    length: int
    first: int = 0


class DeviceKVCache:
    """Both caches of a batch of `width` rows a sequence. `own` and `cross` name the decoder's inputs, in layer order."""

    def __init__(self, device: Gpu, layout: CacheLayout, width: int, own: Sequence[str], cross: Sequence[str]) -> None:
        self._device, self._width, self._heads = device, width, layout.heads
        self._token_bytes = layout.head_dim * ITEM_BYTES[layout.dtype]  # of one head
        self._own_names, self._cross_names = list(own), list(cross)
        self.shape, self.side = EMPTY, 0
        self._own: tuple[list[Buffer], list[Buffer]] = ([], [])
        self._cross: list[Buffer] = []

    def addresses(self) -> dict[str, int]:
        """Where a step reads and writes."""
        past, present = self._own[self.side], self._own[1 - self.side]
        return {
            **{name: buffer.address for name, buffer in zip(self._cross_names, self._cross, strict=True)},
            **{name: buffer.address for name, buffer in zip(self._own_names, past, strict=True)},
            **{f"present_{name}": buffer.address for name, buffer in zip(self._own_names, present, strict=True)},
        }

    def stepped(self) -> None:
        """After a step: the next one reads what it wrote."""
        self.side = 1 - self.side

    def resize(self, shape: CacheShape, sequences: int, pasts: Sequence[tuple[int, int]]) -> None:
        """Lay everything out anew, a tensor after the other.

        `sequences` of the cross-attention stay where they are; `pasts` are pairs of sequences, to and from, for the rows.
        """
        if shape == EMPTY:
            self.shape, self.side, self._own, self._cross = EMPTY, 0, ([], []), []
            return
        old, self.shape = self.shape, shape
        if (shape.sequences, shape.target) != (old.sequences, old.target) or _moves(pasts):
            self._resize_own(old.target, shape, pasts)
        if (shape.sequences, shape.source) != (old.sequences, old.source):
            row = self._heads * shape.source * self._token_bytes
            for index in range(len(self._cross_names)):
                new = self._zeros(shape.sequences * row)
                if sequences:
                    self._copy(_Blocks(new, shape.source), _Blocks(self._cross[index], old.source), sequences)
                _put(self._cross, index, new)

    def join(self, first: int, encoded: Sequence[EncodedTensor], indices: Sequence[int]) -> None:
        """Store the cross-attention of sequences from number `first` on."""
        for index, tensor in enumerate(encoded):
            for at, source, count in _runs(zip(itertools.count(first), indices)):
                self._copy(
                    _Blocks(self._cross[index], self.shape.source, at), _Blocks(tensor.buffer, tensor.length, source), count
                )

    def move(self, to: int, source: int) -> None:
        """The cross-attention of one sequence to another place; its rows follow in the next step, by their parents."""
        length = self.shape.source
        for buffer in self._cross:
            self._copy(_Blocks(buffer, length, to), _Blocks(buffer, length, source), 1)

    def _resize_own(self, old_target: int, shape: CacheShape, pasts: Sequence[tuple[int, int]]) -> None:
        row = self._heads * shape.target * self._token_bytes
        self._own[1 - self.side].clear()  # what the next step writes has nothing to keep
        runs = [(to * self._width, at * self._width, count * self._width) for to, at, count in _runs(pasts)]
        for index in range(len(self._own_names)):
            new = self._zeros(shape.sequences * self._width * row)
            for to, at, count in runs:
                self._copy(_Blocks(new, shape.target, to), _Blocks(self._own[self.side][index], old_target, at), count)
            _put(self._own[self.side], index, new)
            self._own[1 - self.side].append(self._device.allocate(new.bytes))

    def _copy(self, target: _Blocks, source: _Blocks, count: int) -> None:
        """`count` blocks (heads, length, head_dim), as many tokens of each as both have."""
        to, at = (self._rows(blocks) for blocks in (target, source))
        self._device.copy_rows(to, at, min(to.pitch, at.pitch), count * self._heads)

    def _rows(self, blocks: _Blocks) -> Rows:
        """A row is what one head has of one block."""
        pitch = blocks.length * self._token_bytes
        return Rows(blocks.buffer.address + blocks.first * self._heads * pitch, pitch)

    def _zeros(self, count: int) -> Buffer:
        buffer = self._device.allocate(count)
        self._device.zero(buffer)
        return buffer


def _put(buffers: list[Buffer], index: int, buffer: Buffer) -> None:
    if index < len(buffers):
        buffers[index] = buffer
    else:
        buffers.append(buffer)


def _moves(pasts: Sequence[tuple[int, int]]) -> bool:
    return any(to != at for to, at in pasts)


def _runs(pairs: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """Pairs (to, at) that both rise by one, together: first to, first at, how many."""
    run: tuple[int, int, int] | None = None
    for to, at in pairs:
        if run is not None and (to, at) == (run[0] + run[2], run[1] + run[2]):
            run = run[0], run[1], run[2] + 1
            continue
        if run is not None:
            yield run
        run = to, at, 1
    if run is not None:
        yield run
