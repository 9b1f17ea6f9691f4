"""A small bundle, and a double of a GPU to open it on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dragoman.bundle.manifest import Manifest
from dragoman.serving.engine import EngineLimits
from dragoman.serving.in_process import model_facts
from dragoman.serving.runtime.tensorrt import TensorRtRuntime
from dragoman.serving.runtime.tensorrt.decoder import TensorRtDecoder
from gpu_double import CudaDouble, StandardDouble, importing_doubles


@dataclass
class Machine:
    """A bundle and a double of a GPU to open it on."""

    bundle: Path
    manifest: Manifest
    cuda: CudaDouble
    trt: StandardDouble

    def open(self, manifest: Manifest | None = None) -> TensorRtRuntime:
        importing = importing_doubles(self.cuda, self.trt)
        runtime = TensorRtRuntime(self.bundle, manifest or self.manifest, importing=importing)
        runtime.contract(EngineLimits(), model_facts(self.manifest))
        return runtime

    def decoder(self) -> TensorRtDecoder:
        """Two sentences in beams of two, one step done."""
        runtime = self.open()
        decoder = runtime.decoder(2, 2)
        decoder.join(runtime.encode([[5, 6, 7], [8, 9]]), [0, 1], [4, 4])
        step(decoder, 0)
        return decoder


def step(decoder: TensorRtDecoder, position: int, parents: list[list[int]] | None = None) -> np.ndarray:
    """Feed every row the same token; the best next tokens."""
    sequences = len(decoder._lengths)
    given = np.array(parents or [[0, 1]] * sequences)
    best = decoder.step(np.full((sequences, 2), 52 - position), np.full(sequences, position), given, 4)
    return best.tokens.copy()
