"""The machine in words: what a figure is worth depends on it. No names, no addresses."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = ["describe_machine", "load_average"]

LIBRARIES = ("dragoman", "onnxruntime", "numpy", "torch", "transformers")
VECTOR_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8")


def describe_machine() -> dict[str, object]:
    """Processor, memory, system and our libraries' versions."""
    cpu = _cpu()
    flags = set(cpu.get("flags", "").split())
    return {
        "processor": cpu.get("model name", platform.processor() or "unknown"),
        "cores": os.cpu_count(),
        "vector_instructions": [flag for flag in VECTOR_FLAGS if flag in flags],
        "l3_cache": cpu.get("cache size", "unknown"),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {name: found for name in LIBRARIES if (found := _version(name)) is not None},
    }


def load_average() -> float:
    """Processes that wanted to run in the last minute: above about 1 the figures include other work."""
    return os.getloadavg()[0]


def _cpu() -> dict[str, str]:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return {}
    first = text.split("\n\n", maxsplit=1)[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
