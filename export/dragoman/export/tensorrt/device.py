"""Is there an NVIDIA GPU here, and which one? Asked of the driver itself, so that no CUDA library is needed."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

__all__ = ["present_compute_capability"]

_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*


def present_compute_capability() -> str | None:
    """The compute capability of GPU 0, such as "8.6"; None where there is no GPU or no driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    calls: tuple[Callable[[], int], ...] = (
        lambda: driver.cuInit(0),
        lambda: driver.cuDeviceGet(ctypes.byref(device), 0),
        lambda: driver.cuDeviceGetAttribute(ctypes.byref(major), _MAJOR, device),
        lambda: driver.cuDeviceGetAttribute(ctypes.byref(minor), _MINOR, device),
    )
    if any(call() != 0 for call in calls):  # stops at the first that fails: the others need it
        return None
    return f"{major.value}.{minor.value}"
