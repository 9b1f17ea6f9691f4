"""The GPU in words, and how what is installed differs from deploy/versions.toml."""

from __future__ import annotations

import re
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = ["gpu_facts", "gpu_memory_bytes", "known_versions", "version_remarks"]

VERSIONS = Path(__file__).resolve().parents[1] / "deploy" / "versions.toml"
_QUERY = {"name": "name", "driver": "driver_version", "memory": "memory.total", "compute capability": "compute_cap"}
_PACKAGES = {
    "onnxruntime-gpu": "runtime.onnxruntime",
    "onnxruntime": "runtime.onnxruntime",
    "tensorrt_rtx_cu13_bindings": "runtime.tensorrt_rtx",
}


def gpu_facts() -> dict[str, str]:
    """The first GPU; empty without one."""
    said = _nvidia_smi(",".join(_QUERY.values()))
    return dict(zip(_QUERY, said[0], strict=False)) if said else {}


def gpu_memory_bytes() -> int | None:
    """What is taken of the first GPU's memory; None when nvidia-smi does not report it."""
    said = _nvidia_smi("memory.used")
    found = re.match(r"(\d+) MiB", said[0][0]) if said else None
    return int(found[1]) << 20 if found else None


def known_versions() -> dict[str, str]:
    """`table.name` of the version file to what it says."""
    known, table = {}, ""
    for line in VERSIONS.read_text(encoding="utf-8").splitlines():
        if heading := re.match(r"\[(\w+)\]", line):
            table = heading[1]
        elif entry := re.match(r'(\w+) = "([^"]*)"', line):
            known[f"{table}.{entry[1]}"] = entry[2]
    return known


def version_remarks() -> list[str]:
    """What is installed in another version than the one that was planned with."""
    known = known_versions()
    remarks = []
    for package, key in _PACKAGES.items():
        try:
            installed = version(package)
        except PackageNotFoundError:
            continue
        if not f"{installed}.".startswith(f"{known[key]}."):
            remarks.append(f"{package} {installed} is installed; deploy/versions.toml says {known[key]}.")
    capability = gpu_facts().get("compute capability", "")
    oldest = known["triton.compute_capability"]
    if capability and tuple(map(int, capability.split("."))) < tuple(map(int, oldest.split("."))):
        remarks.append(f"this GPU has compute capability {capability}; the Triton image supports {oldest} and newer.")
    return remarks


def _nvidia_smi(query: str) -> list[list[str]]:
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [[cell.strip() for cell in line.split(",")] for line in said.splitlines() if line.strip()]
