"""Where a decoding step's time goes, by ONNX Runtime's own profile: linear layers and everything else.

Where one operator multiplies with the vocabulary and looks for the best tokens, both count as a linear layer.

python -m benchmarks.step_profile BUNDLE [--groups 32] [--width 1] [--cache 16] [--source 16]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from dragoman import native
from dragoman.bundle.manifest import Manifest, read_manifest

__all__ = ["StepShape", "bound", "feeds", "linear_share", "profile_step", "step_session"]

LINEAR = ("BestOutputs", "FloatBestOutputs", "FloatLinear", "Linear")


class StepShape:
    """How large a step is measured."""

    def __init__(self, groups: int, width: int, cache: int, source: int, candidates: int = 8) -> None:
        self.groups, self.width, self.cache, self.source, self.candidates = groups, width, cache, source, candidates


def feeds(manifest: Manifest, shape: StepShape) -> dict[str, Any]:
    """Random inputs of a decoder step, as the bundle's graph takes them."""
    draw, sizes = np.random.default_rng(1), manifest.dimensions
    rows = shape.groups * shape.width
    own, cross = rows * shape.cache, shape.groups * shape.source
    slot = 2 * sizes.heads * sizes.head_dim
    return {
        "tokens": draw.integers(2, sizes.target_vocabulary - 1, rows),
        "positions": np.full(rows, shape.cache - 1, np.int32),
        "source_lengths": np.full(shape.groups, shape.source, np.int32),
        "candidates": np.array([shape.candidates]),
        "scored_tokens": np.zeros((rows, 0), np.int64),
        "slots": np.arange(own, dtype=np.int32).reshape(rows, shape.cache),
        "self_cache": draw.standard_normal((sizes.decoder_layers, own, slot), np.float32),
        "source_starts": np.arange(0, cross, shape.source, dtype=np.int32),
        "cross_cache": draw.standard_normal((sizes.decoder_layers, cross, slot), np.float32),
    }


def step_session(bundle: Path, manifest: Manifest, options: Any) -> Any:  # noqa: ANN401 - onnxruntime has no types
    """The decoder, opened."""
    if (library := native.ops_library()) is not None:
        options.register_custom_ops_library(str(library))
    return onnxruntime.InferenceSession(str(bundle / manifest.graph("decoder", "native").file), options)


def bound(session: Any, fed: dict[str, Any]) -> Any:  # noqa: ANN401
    """A binding of these inputs, which must outlive it; what a step writes lies where the engine would have it."""
    binding = session.io_binding()
    for name, array in fed.items():
        binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
    for name in ("best_tokens", "best_log_probs", "best_logits"):
        binding.bind_output(name)
    return binding


def profile_step(bundle: Path, shape: StepShape, threads: int = 1, steps: int = 60) -> dict[str, float]:
    """Microseconds a step of each operator: the lower quartile of each node's times, which a busy machine disturbs least."""
    manifest = read_manifest(bundle)
    with tempfile.TemporaryDirectory() as scratch:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.enable_profiling, options.profile_file_prefix = True, f"{scratch}/step"
        session, fed = step_session(bundle, manifest, options), feeds(manifest, shape)
        binding = bound(session, fed)
        for _ in range(steps):
            session.run_with_iobinding(binding)
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    return _per_operator(events)


def _per_operator(events: list[dict[str, Any]]) -> dict[str, float]:
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            times[event["name"], event["args"]["op_name"]].append(event["dur"])
    totals: dict[str, float] = defaultdict(float)
    for (_, operator), durations in times.items():
        totals[operator] += float(np.quantile(durations, 0.25))
    return dict(sorted(totals.items(), key=lambda pair: -pair[1]))


def linear_share(operators: dict[str, float]) -> float:
    """The part of the step that is spent in linear layers."""
    return sum(time for name, time in operators.items() if name in LINEAR) / sum(operators.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    for name, default in (("groups", 32), ("width", 1), ("cache", 16), ("source", 16), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    operators = profile_step(given.bundle, StepShape(given.groups, given.width, given.cache, given.source), given.threads)
    for name, microseconds in operators.items():
        print(f"{microseconds:9.1f} µs  {name}")
    print(f"{sum(operators.values()):9.1f} µs in kernels, {linear_share(operators):.0%} of it in linear layers")


if __name__ == "__main__":
    main()
