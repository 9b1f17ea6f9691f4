"""The engine cache of a server with ONNX Runtime's TensorRT provider, filled on the GPU that it will have."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import onnxruntime

from dragoman.bundle.gpu_providers import TENSORRT
from dragoman.errors import EngineBuildError, EngineCacheError
from dragoman.export.progress import Advance
from dragoman.export.tensorrt.apart import Ended, run_apart
from dragoman.export.tensorrt.device import present_compute_capability

__all__ = ["check_engine_cache", "fill_engine_cache"]

_WORKER = (sys.executable, "-m", "dragoman.export.tensorrt.filling_worker")
_WITHOUT = "or leave --engine-cache out: a server that is given it fills the cache at its first start"


def check_engine_cache(directory: Path) -> None:
    """EngineBuildError where no engine can be built or kept. Seconds: an export asks it before the long work starts."""
    if TENSORRT not in onnxruntime.get_available_providers():
        raise EngineBuildError(
            f"this ONNX Runtime ({onnxruntime.__version__}) has no {TENSORRT}, which --engine-cache needs; install "
            f"onnxruntime-gpu in the place of onnxruntime (docs/gpu.md), {_WITHOUT}"
        )
    if present_compute_capability() is None:
        raise EngineBuildError(
            f"--engine-cache {directory} is filled on the GPU that the server will have, and this machine has none or no "
            f"NVIDIA driver; export on that machine, {_WITHOUT}"
        )
    if why := _complaint(run_apart(_WORKER, json.dumps({}), lambda _share: None)):
        raise EngineBuildError(f"--engine-cache {directory} can't be filled here: {why}; mend that, {_WITHOUT}")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise EngineBuildError(
            f"--engine-cache {directory} can't be written: {error.strerror}; choose another directory"
        ) from error


def fill_engine_cache(bundle: Path, directory: Path, advance: Advance) -> None:
    """Leave ONNX Runtime's engines for the finished `bundle` in `directory`; EngineCacheError leaves the bundle as it is."""
    order = {"bundle": str(bundle.resolve()), "cache": str(directory.resolve())}
    if why := _complaint(run_apart(_WORKER, json.dumps(order), advance)):
        raise EngineCacheError(
            f"{bundle} is complete and can be served, but --engine-cache {directory} could not be filled: {why}; mend that "
            "and export again with --force, or start a server with this --engine-cache, which builds what is missing"
        )


def _complaint(ended: Ended) -> str | None:
    """What went wrong, with what ONNX Runtime itself printed: it names the library that is missing."""
    if ended.complaint is None and ended.crash is None:
        return None
    why = ended.complaint or f"ONNX Runtime {ended.crash}"
    return f"{why} (it printed: {ended.last_words(3)})" if ended.noise.strip() else why
