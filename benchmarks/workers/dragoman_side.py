"""dragoman's engine, in process: `python -m benchmarks.workers.dragoman_side` in our own environment."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from benchmarks.workers.protocol import Ids, serve
from dragoman.search import DecodingOptions
from dragoman.serving.engine import Engine, EngineLimits
from dragoman.serving.in_process import LoadedModel, contract_of, model_facts, open_model
from dragoman.serving.runtime.onnxruntime import OnnxRuntime
from dragoman.serving.runtime.settings import RuntimeSettings

OFFLINE_ENCODE_TOKENS = 4096  # nobody waits for a first word here, so newcomers need not come in small portions


class DragomanSide:
    """One runtime; an engine for each number of rows, because that is its configuration and not a request's."""

    def load(self, request: dict[str, Any]) -> dict[str, Any]:
        import onnxruntime

        settings = RuntimeSettings(threads=request["threads"], **request.get("settings", {}))
        self._bundle = Path(request["model"])
        self._model: LoadedModel = open_model(self._bundle, settings)
        self._runtime = OnnxRuntime(self._bundle, self._model.manifest, settings)
        self._engines: dict[int, LoadedModel] = {}
        self._base = dataclasses.replace(self._model.manifest.generation, **request.get("options", {}))
        return {"version": f"onnxruntime {onnxruntime.__version__}"}

    def run(self, sources: Ids, batch: int, beam: int, target_tokens: int | None) -> Ids:
        model = self._with_rows(batch * beam)
        hypotheses = model.decode([tuple(source) for source in sources], self._options(beam, target_tokens))
        return [list(best[0].tokens) for best in hypotheses]

    def _with_rows(self, rows: int) -> LoadedModel:
        if rows not in self._engines:
            limits = EngineLimits(max_rows=rows, encode_tokens_per_step=OFFLINE_ENCODE_TOKENS)
            facts = model_facts(self._model.manifest)
            contract = contract_of(self._model.manifest, limits, self._runtime)
            engine = Engine(self._runtime, facts, limits)
            self._engines[rows] = LoadedModel(self._model.manifest, self._model.tokenizer, engine, contract)
        return self._engines[rows]

    def _options(self, beam: int, target_tokens: int | None) -> DecodingOptions:
        if target_tokens is None:
            return dataclasses.replace(self._base, beam_size=beam, max_length=127)
        return dataclasses.replace(self._base, beam_size=beam, min_length=target_tokens, max_length=target_tokens)


if __name__ == "__main__":
    serve(DragomanSide())
