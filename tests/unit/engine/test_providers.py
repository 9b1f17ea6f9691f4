"""Devices: the execution providers and options that ONNX Runtime is given."""

from __future__ import annotations

from dragoman.serving.runtime.providers import providers_for
from dragoman.serving.runtime.settings import RuntimeSettings


def test_a_cpu_needs_nothing_else() -> None:
    assert providers_for(RuntimeSettings()) == [("CPUExecutionProvider", {})]


def test_cuda_comes_before_the_cpu_on_the_device_that_was_named() -> None:
    (cuda, options), (cpu, _) = providers_for(RuntimeSettings(device="cuda", device_id=3))
    assert (cuda, cpu, options["device_id"]) == ("CUDAExecutionProvider", "CPUExecutionProvider", "3")
