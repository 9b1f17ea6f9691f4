"""An engine of the bundle, ready to run, and the execution contexts that run it."""

# ruff: noqa: ANN401 - the bindings have no types

from __future__ import annotations

import math
import weakref
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dragoman.bundle.consistency import ITEM_BYTES
from dragoman.bundle.manifest import EngineFile, Graph, Profile
from dragoman.errors import BundleError, ServerError
from dragoman.serving.runtime.tensorrt.bindings import Bindings
from dragoman.serving.runtime.tensorrt.device import Buffer, Gpu

__all__ = ["Execution", "LoadedEngine", "Scratch", "Shapes"]

Shapes = Mapping[str, tuple[int, ...]]


class Scratch:
    """Memory for intermediate results of engines. One for all: on one stream they run one after the other."""

    def __init__(self, device: Gpu) -> None:
        self._device = device
        self.buffer: Buffer | None = None

    def reserve(self, count: int) -> None:
        """Ensure a size; contexts use the new address when they run next."""
        if self.buffer is None or self.buffer.bytes < count:
            self.buffer = None  # the old one is given back first
            self.buffer = self._device.allocate(count)


class LoadedEngine:
    """One engine file on the GPU."""

    def __init__(
        self,
        bindings: Bindings,
        device: Gpu,
        scratch: Scratch,
        *,
        bundle: Path,
        entry: EngineFile,
        graph: Graph,
        capture: bool,
        kernels: Path | None = None,
    ) -> None:
        """`capture`: whether its runs come again and again with the same shapes and addresses, and a CUDA graph pays.
        `kernels`: a directory for what is compiled."""
        self._bindings, self._device, self._scratch = bindings, device, scratch
        self.entry, self.graph = entry, graph
        self.native = bindings.load(bundle, entry, device)
        if self.native.num_optimization_profiles != len(entry.profiles):
            raise BundleError(
                f"{entry.file} has {self.native.num_optimization_profiles} profiles and the manifest lists "
                f"{len(entry.profiles)}; {bindings.rebuild(bundle)}"
            )
        for spec in (*graph.inputs, *graph.outputs):
            bindings.check_tensor(self.native, spec, f"{entry.file}: {bindings.rebuild(bundle)}")
        file = None if kernels is None else kernels / f"{entry.file}-{device.number}.kernels"
        self._config, self.kernels = bindings.runtime_config(self.native, capture=capture, kernels=file)
        self._idle = defaultdict[int, list[Context]](list)  # by profile: contexts that are not in use

    def profile_of(self, shapes: Shapes) -> int:
        """The profile that these shapes are within; ServerError when there is none."""
        for index, profile in enumerate(self.entry.profiles):
            if _holds(profile, shapes):
                return index
        raise ServerError(f"{self.entry.file} has no profile for {dict(shapes)}")

    def largest(self, name: str, axis: int) -> int:
        """The largest size of that input's axis in any profile."""
        return max(profile.maximum[name][axis] for profile in self.entry.profiles)

    def execution(self, profile: int) -> Execution:
        """A context for this profile: an unused one if possible, because a new one makes TensorRT-RTX compile."""
        idle = self._idle[profile]
        if not idle:
            native = self._bindings.context(self.native, self._config, profile, self._device)
            idle.append(Context(native, self._scratch, self.entry.file, int(self._device.stream)))
        return Execution(idle)

    def scratch_bytes(self, shapes: Shapes) -> int:
        """The memory for intermediate results of a run with these shapes."""
        return self.execution(self.profile_of(shapes)).scratch_bytes(shapes)

    def output_bytes(self, name: str, shape: tuple[int, ...]) -> int:
        spec = next(spec for spec in self.graph.outputs if spec.name == name)
        return math.prod(shape) * ITEM_BYTES[spec.dtype]


class Execution:
    """The right to run a context, which is returned to the unused ones when the last reference to this is gone."""

    __slots__ = ("__weakref__", "bind", "run", "scratch_bytes")

    def __init__(self, idle: list[Context]) -> None:
        context = idle.pop()
        self.bind, self.run, self.scratch_bytes = context.bind, context.run, context.scratch_bytes
        weakref.finalize(self, idle.append, context).atexit = False


class Context:
    """An execution context. Bindings persist: a run that differs in nothing repeats its captured CUDA graph."""

    def __init__(self, native: Any, scratch: Scratch, file: str, stream: int) -> None:
        self._native, self._scratch, self._file, self._stream = native, scratch, file, stream
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._addresses: dict[str, int] = {}
        self._scratch_address = 0

    def bind(self, shapes: Shapes, addresses: Mapping[str, int]) -> None:
        """The shape of every input, and the address of every input and output."""
        if shapes != self._shapes:
            self._scratch.reserve(self.scratch_bytes(shapes))
        for name, address in addresses.items():
            if self._addresses.get(name) != address:
                if not self._native.set_tensor_address(name, address):
                    raise ServerError(f"TensorRT knows no tensor {name}")
                self._addresses[name] = address

    def run(self) -> None:
        """Enqueue one run."""
        buffer = self._scratch.buffer
        if buffer is not None and self._scratch_address != buffer.address:
            self._native.set_device_memory(buffer.address, buffer.bytes)
            self._scratch_address = buffer.address
        if not self._native.execute_async_v3(self._stream):
            raise ServerError(f"TensorRT could not run {self._file}; its own message stands in the log")

    def scratch_bytes(self, shapes: Shapes) -> int:
        """What a run with these shapes needs in between; the next one has them."""
        known, self._shapes, self._scratch_address = self._shapes, {}, 0  # whatever goes wrong, they are set anew
        for name, shape in shapes.items():
            if known.get(name) != shape and not self._native.set_input_shape(name, shape):
                raise ServerError(f"{self._file} takes no {name} of shape {shape}")
        if missing := self._native.infer_shapes():
            raise ServerError(f"{self._file}: TensorRT does not know {missing}")
        needed = int(self._native.update_device_memory_size_for_shapes())
        self._shapes = dict(shapes)
        return needed


def _holds(profile: Profile, shapes: Shapes) -> bool:
    return all(
        least <= size <= most
        for name, shape in shapes.items()
        for least, size, most in zip(profile.minimum[name], shape, profile.maximum[name], strict=True)
    )
