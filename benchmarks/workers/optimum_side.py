"""Optimum's ONNX Runtime pipeline: `python -m benchmarks.workers.optimum_side` in an environment of its own."""

from __future__ import annotations

from typing import Any

import onnxruntime
from optimum.onnxruntime import ORTModelForSeq2SeqLM
from optimum.version import __version__

from benchmarks.workers.hugging_face_side import HuggingFaceSide
from benchmarks.workers.protocol import serve


class OptimumSide(HuggingFaceSide):
    """The same `generate`, its forward passes in ONNX Runtime."""

    def load(self, request: dict[str, Any]) -> dict[str, Any]:
        self._threads = request["threads"]
        super().load(request)
        return {"version": f"optimum {__version__}, onnxruntime {onnxruntime.__version__}"}

    def _open(self, model: str) -> Any:  # noqa: ANN401 - optimum is not typed
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self._threads
        return ORTModelForSeq2SeqLM.from_pretrained(model, export=True, session_options=options)


if __name__ == "__main__":
    serve(OptimumSide())
