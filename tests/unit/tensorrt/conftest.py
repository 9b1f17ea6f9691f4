"""A small bundle on the double of a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dragoman.bundle.manifest import Manifest
from exported_graphs import Exported
from gpu_bundles import with_engines
from gpu_double import CudaDouble, TensorRtDouble
from gpu_machine import Machine


@pytest.fixture(scope="session")
def tiny_gpu_bundle(tiny_fp32: Exported, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Manifest]:
    bundle = tmp_path_factory.mktemp("gpu") / "bundle"
    return bundle, with_engines(tiny_fp32, bundle)


@pytest.fixture
def make_machine(tiny_gpu_bundle: tuple[Path, Manifest]) -> Callable[[CudaDouble], Machine]:
    def make(cuda: CudaDouble) -> Machine:
        bundle, manifest = tiny_gpu_bundle
        trt = TensorRtDouble(cuda)
        trt.know(bundle, manifest)
        return Machine(bundle, manifest, cuda, trt)

    return make


@pytest.fixture
def machine(make_machine: Callable[[CudaDouble], Machine]) -> Iterator[Machine]:
    machine = make_machine(CudaDouble())
    yield machine
    machine.cuda.queue.clear()  # a planted fault in it would come up when the runtime is collected, in another test
