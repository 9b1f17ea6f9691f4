"""Memory of the device that a model runs on, and how rows of tensors are moved within it.

ONNX Runtime can't copy a part of a tensor within a GPU, so graphs of two operators do it where the tensors are: `picked`
selects rows and positions (Gather twice), `joined` appends rows (Concat). They are the same for every model, so they are
generated here and not part of a bundle.
"""

# ruff: noqa: ANN401 - onnxruntime has no types

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from dragoman.serving.runtime.portable.tiny_graph import Node, Value, graph

__all__ = ["Arranger", "DeviceMemory", "Tensors"]

Tensors = list[Any]
"""OrtValues on a device, all of one shape."""


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Where tensors stay between steps; `put` copies an array there."""

    kind: str
    id: int
    put: Callable[[npt.NDArray[Any]], Any]

    def hold(self, tensors: Sequence[Any]) -> Tensors:
        """These tensors on the device; those that are already there are not copied."""
        return [self.put(tensor) if isinstance(tensor, np.ndarray) else tensor for tensor in tensors]

    def arranger(self, model: Any, count: int, dtype: str) -> Arranger:
        """For `count` caches of `model`, an arranger on this device; decoders share it, because opening a session takes
        milliseconds.
        """
        if model not in _arrangers:
            _arrangers[model] = Arranger(model, self, count, dtype)
        return _arrangers[model]

    @property
    def providers(self) -> list[tuple[str, dict[str, str]]]:
        """The execution providers that run graphs on this memory."""
        cpu: tuple[str, dict[str, str]] = ("CPUExecutionProvider", {})
        cuda = ("CUDAExecutionProvider", {"device_id": str(self.id), "arena_extend_strategy": "kSameAsRequested"})
        return [cuda, cpu] if self.kind == "cuda" else [cpu]


class Arranger:
    """Rearranges `count` tensors of `dtype` in the same way, (rows, heads, length, head_dim) each."""

    def __init__(self, model: Any, device: DeviceMemory, count: int, dtype: str) -> None:
        """`model` is a session on that device: ours are of its kind and compute with as many threads."""
        self._device, self._count = device, count

        def opened(written: bytes) -> Any:
            return type(model)(written, model.get_session_options(), providers=device.providers)

        self._pick, self._join = opened(_picking(count, dtype)), opened(_joining(count, dtype))

    def picked(self, tensors: Tensors, rows: Sequence[int] | npt.NDArray[np.int64], length: int) -> Tensors:
        """These rows in this order, with `length` positions. Positions that did not exist repeat the last one.

        Their contents do not matter as long as they are numbers: nothing beyond the tokens of a row is read.
        """
        held, _, old, _ = tensors[0].shape()
        if length == old and np.array_equal(rows, np.arange(held)):
            return tensors
        binding = self._pick.io_binding()
        binding.bind_cpu_input("rows", np.ascontiguousarray(rows, np.int64))
        binding.bind_cpu_input("positions", np.minimum(np.arange(length), old - 1))
        return self._run(self._pick, binding, {"in": tensors})

    def joined(self, tensors: Tensors, more: Tensors) -> Tensors:
        """The rows of both, which are of one length."""
        return self._run(self._join, self._join.io_binding(), {"in": tensors, "more": more})

    def _run(self, session: Any, binding: Any, inputs: dict[str, Tensors]) -> Tensors:
        for role, tensors in inputs.items():
            for name, tensor in zip(_names(role, self._count), tensors, strict=True):
                binding.bind_ortvalue_input(name, tensor)
        for name in _names("out", self._count):
            binding.bind_output(name, self._device.kind, self._device.id)
        binding.synchronize_inputs()
        session.run_with_iobinding(binding)
        outputs: Tensors = binding.get_outputs()
        return outputs


def _picking(count: int, dtype: str) -> bytes:
    nodes = []
    for name, kept, out in zip(*(_names(role, count) for role in ("in", "kept", "out")), strict=True):
        nodes += [Node("Gather", (name, "rows"), kept, axis=0), Node("Gather", (kept, "positions"), out, axis=2)]
    chosen = [Value("rows", "int64", 1), Value("positions", "int64", 1)]
    return graph(nodes, [*_values("in", count, dtype), *chosen], _values("out", count, dtype))


def _joining(count: int, dtype: str) -> bytes:
    names = zip(*(_names(role, count) for role in ("in", "more", "out")), strict=True)
    nodes = [Node("Concat", (name, more), out, axis=0) for name, more, out in names]
    return graph(nodes, [*_values("in", count, dtype), *_values("more", count, dtype)], _values("out", count, dtype))


def _values(role: str, count: int, dtype: str) -> list[Value]:
    return [Value(name, dtype, 4) for name in _names(role, count)]


_arrangers: WeakKeyDictionary[Any, Arranger] = WeakKeyDictionary()


def _names(role: str, count: int) -> list[str]:
    return [f"{role}_{number}" for number in range(count)]
