"""Finds out why CUDA can not use a GPU here, and what to do about it."""

# ruff: noqa: ANN401 - cuda.bindings has no types

from __future__ import annotations

from typing import Any

__all__ = ["diagnosis"]

_CAUSES = {
    "cudaErrorNoDevice": (
        "the driver shows this process no GPU: containers need --gpus, CUDA_VISIBLE_DEVICES must name one that is there, "
        "and in MIG mode there must be an instance"
    ),
    "cudaErrorDevicesUnavailable": (
        "another process has the GPU for itself (nvidia-smi --compute-mode=DEFAULT), or the GPU has failed"
    ),
    "cudaErrorSystemNotReady": "the NVSwitches are not set up: start nvidia-fabricmanager, of the driver's release",
    "cudaErrorSystemDriverMismatch": (
        "libcuda and the kernel's driver are of different releases: reboot after an update of the driver, and start "
        "containers anew"
    ),
    "cudaErrorCompatNotSupportedOnDevice": (
        "a cuda-compat package that this GPU does not support is in the way: leave it out, or update the driver"
    ),
}


def diagnosis(cuda: Any, error: Any) -> str:
    """A cause and the way out in one sentence."""
    name = getattr(error, "name", str(error))
    if name != "cudaErrorInsufficientDriver":
        return _CAUSES.get(name, f"{name}; nvidia-smi may say more")
    _, driver = cuda.cudaDriverGetVersion()  # 1000 · major + 10 · minor
    _, needed = cuda.cudaRuntimeGetVersion()
    if not driver:
        return "there is no driver: install NVIDIA's; containers need its container toolkit and --gpus"
    return (
        f"the driver supports CUDA {driver // 1000}.{driver % 1000 // 10}, and these libraries need CUDA "
        f"{needed // 1000}: update the driver"
    )
