"""A lane for graphs that take the past and give back the present: caches stay on the device between steps.

Whatever happened to the rows since the last step, groups that came, left or moved and beams that were reordered, reaches
the graph as one `parents` input: row r continues row parents[r] of the past.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dragoman.serving.engine.cache import CacheLayout, LaneCache
from dragoman.serving.engine.runtime import Best, Encoded
from dragoman.serving.engine.shapes import LaneShape

__all__ = ["DeviceMemory", "PortableLane"]

_FRESH = -1


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Where tensors stay between steps; `put` copies an array there."""

    kind: str
    id: int
    put: Callable[[npt.NDArray[Any]], Any]


class PortableLane:
    """Self-attention caches live on the device; cross-attention caches are kept here and sent when they change."""

    def __init__(
        self,
        session: Any,  # noqa: ANN401 - onnxruntime has no types
        layout: CacheLayout,
        width: int,
        device: DeviceMemory,
    ) -> None:
        self.width = width
        self._session, self._layout, self._device = session, layout, device
        self._binding = session.io_binding()
        self._cross = LaneCache(layout, width)
        self._cross_sent = False
        self._past: list[Any] = []  # device tensors (past rows, heads, target, head_dim)
        self._target = 0
        self._past_group: list[int] = []  # which group of the past each group is

    def resize(self, shape: LaneShape) -> None:
        self._cross.resize(LaneShape(shape.groups, shape.source, 0))
        self._cross_sent = False
        if shape.target != self._target:
            self._past = [self._device.put(_stretched(past.numpy(), shape.target)) for past in self._past]
            self._target = shape.target

    def join(self, encoded: Encoded, indices: Sequence[int]) -> None:
        self._cross.join(encoded, indices)
        self._past_group += [_FRESH] * len(indices)
        self._cross_sent = False

    def leave(self, group: int) -> None:
        self._cross.leave(group)
        self._past_group[group] = self._past_group[-1]
        self._past_group.pop()
        self._cross_sent = False

    def step(
        self,
        tokens: npt.NDArray[np.int64],
        positions: npt.NDArray[np.int64],
        parents: npt.NDArray[np.int64],
        candidates: int,
    ) -> Best:
        binding, groups = self._binding, self._cross.groups
        if not self._past:
            self._past = [self._device.put(self._nothing()) for _ in range(2 * self._layout.layers)]
        if not self._cross_sent:
            self._send_cross()
        # A fresh row may name any past row: its position, 0, hides all of it.
        past = np.maximum(np.array(self._past_group, np.int64), 0)
        binding.bind_cpu_input("parents", (past[:, None] * self.width + parents).ravel())
        binding.bind_cpu_input("tokens", np.ascontiguousarray(tokens))
        binding.bind_cpu_input("positions", np.repeat(positions.astype(np.int32)[:, None], self.width, axis=1))
        for index, tensor in enumerate(self._past):
            binding.bind_ortvalue_input(f"self_{_name(index)}", tensor)
        binding.clear_binding_outputs()
        for name in ("best_tokens", "best_log_probs", "best_logits"):
            binding.bind_output(name, "cpu", 0)
        for index in range(len(self._past)):
            binding.bind_output(f"present_self_{_name(index)}", self._device.kind, self._device.id)
        self._session.run_with_iobinding(binding)
        best, self._past = _split(binding.get_outputs())
        self._past_group = list(range(groups))
        self._cross.filled[:groups] = positions + 1
        return Best(*(part[:, :candidates] for part in best))

    def _send_cross(self) -> None:
        groups = self._cross.groups
        for index, tensor in enumerate(self._cross.cross):
            self._binding.bind_ortvalue_input(f"cross_{_name(index)}", self._device.put(tensor[:groups]))
        self._binding.bind_cpu_input("source_lengths", self._cross.lengths[:groups].copy())
        self._cross_sent = True

    def _nothing(self) -> npt.NDArray[Any]:
        return np.zeros((self.width, self._layout.heads, self._target, self._layout.head_dim), self._layout.dtype)


def _name(index: int) -> str:
    return f"{('key', 'value')[index % 2]}_{index // 2}"


def _split(outputs: list[Any]) -> tuple[list[npt.NDArray[Any]], list[Any]]:
    return [output.numpy() for output in outputs[:3]], outputs[3:]


def _stretched(past: npt.NDArray[Any], target: int) -> npt.NDArray[Any]:
    """(rows, heads, target, head_dim) with another number of positions; those in use fit."""
    rows, heads, old, head_dim = past.shape
    stretched = np.zeros((rows, heads, target, head_dim), past.dtype)
    kept = min(old, target)
    stretched[:, :, :kept] = past[:, :, :kept]
    return stretched
