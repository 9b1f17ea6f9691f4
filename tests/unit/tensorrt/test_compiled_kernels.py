"""Kernels that TensorRT-RTX has compiled outlive the process that compiled them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.serving.engine import EngineLimits
from dragoman.serving.in_process import model_facts
from dragoman.serving.runtime.settings import RuntimeSettings
from dragoman.serving.runtime.tensorrt import TensorRtRuntime
from gpu_double import importing_doubles
from gpu_machine import Machine


def compilations(machine: Machine, kernels: Path | None) -> dict[str, int]:
    """Of each engine, until a new process is ready."""
    settings = RuntimeSettings(device="tensorrt", kernels=kernels)
    importing = importing_doubles(machine.cuda, machine.trt)
    runtime = TensorRtRuntime(machine.bundle, machine.manifest, settings, importing=importing)
    runtime.contract(EngineLimits(), model_facts(machine.manifest))
    return {role: engine.compilations for role, engine in machine.trt.engines.items()}


def test_the_next_process_compiles_nothing(machine: Machine, tmp_path: Path) -> None:
    first = compilations(machine, tmp_path)
    assert all(count >= 1 for count in first.values())
    assert len(list(tmp_path.glob("*.kernels"))) == len(first)
    assert set(compilations(machine, tmp_path).values()) == {0}
    assert set(compilations(machine, tmp_path).values()) == {0}
    assert compilations(machine, None) == first


def test_kernels_that_do_not_fit_are_compiled_anew(machine: Machine, tmp_path: Path) -> None:
    first = compilations(machine, tmp_path)
    for path in tmp_path.iterdir():
        path.write_bytes(b"\xff of another driver")
    assert compilations(machine, tmp_path) == first
    assert set(compilations(machine, tmp_path).values()) == {0}


def test_a_process_that_crashes_on_its_kernels_leaves_none(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compilations(machine, tmp_path)
    with monkeypatch.context() as planted, pytest.raises(KeyboardInterrupt):
        planted.setattr(TensorRtRuntime, "contract", dies)
        compilations(machine, tmp_path)
    assert not list(tmp_path.iterdir())


def dies(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_full_disk_is_no_reason_not_to_serve(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(_path: Path, _data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    assert all(count >= 1 for count in compilations(machine, tmp_path).values())
    assert "No space left" in caplog.text
    assert not list(tmp_path.iterdir())
