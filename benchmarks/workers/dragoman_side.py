"""dragoman's engine, in process: `python -m benchmarks.workers.dragoman_side` in our own environment."""

from __future__ import annotations

import dataclasses
import gc
from pathlib import Path
from typing import Any

from benchmarks.workers.protocol import Ids, serve
from dragoman.bundle.manifest import Manifest, read_manifest
from dragoman.search import DecodingOptions
from dragoman.serving.engine import Engine, EngineLimits, Sequence
from dragoman.serving.engine.forced_decoding import Forcing
from dragoman.serving.in_process import decode, model_facts, run
from dragoman.serving.runtime.opening import open_runtime
from dragoman.serving.runtime.settings import RuntimeSettings

OFFLINE_ENCODE_TOKENS = 1024  # full matrix products; more at once only takes more memory


class DragomanSide:
    """One runtime; a new engine when the number of rows changes: that is its configuration and not a request's.

    It has no tokenizer, as the other side has none: both are given token ids.
    """

    def load(self, request: dict[str, Any]) -> dict[str, Any]:
        settings = RuntimeSettings(threads=request["threads"], **request.get("settings", {}))
        bundle = Path(request["model"])
        self._manifest = read_manifest(bundle)
        self._runtime = open_runtime(bundle, self._manifest, settings)
        self._engines: dict[int, Engine] = {}  # one at a time, as in a server
        self._base = dataclasses.replace(self._manifest.generation, **request.get("options", {}))
        return {"version": _version(self._manifest, settings)}

    def run(  # noqa: PLR0917 - a cell
        self,
        sources: Ids,
        batch: int,
        beam: int,
        target_tokens: int | None,
        shortlists: list[int] | None = None,
        apart: bool = False,
    ) -> Ids:
        """`shortlists`: that of each source; `apart`: the sources of one list after those of another."""
        engine, options = self._with_rows(batch * beam), self._options(beam, target_tokens)
        numbers = shortlists or [0] * len(sources)
        parts = [[at for at, one in enumerate(numbers) if one == number] for number in dict.fromkeys(numbers)]
        found: dict[int, list[int]] = {}
        for part in parts if apart else [range(len(sources))]:
            best = decode(engine, [tuple(sources[at]) for at in part], options, [numbers[at] for at in part])
            found |= {at: list(one[0].tokens) for at, one in zip(part, best, strict=True)}
        return [found[at] for at in range(len(sources))]

    def score(self, sources: Ids, targets: Ids) -> list[list[float]]:
        work = [
            Sequence(tuple(source), forcing=Forcing(targets=(tuple(target),)))
            for source, target in zip(sources, targets, strict=True)
        ]
        run(self._with_rows(8), work)
        if failed := next((one.error for one in work if one.error is not None), None):
            raise failed
        return [one.forced[0].log_probs.tolist() for one in work]

    def _with_rows(self, rows: int) -> Engine:
        if rows not in self._engines:
            self._engines.clear()
            gc.collect()  # its parts know each other: without this its caches would stay beside those of the next
            limits = EngineLimits(max_rows=rows, encode_tokens_per_step=OFFLINE_ENCODE_TOKENS)
            self._engines = {rows: Engine(self._runtime, model_facts(self._manifest), limits)}
        return self._engines[rows]

    def _options(self, beam: int, target_tokens: int | None) -> DecodingOptions:
        if target_tokens is None:
            return dataclasses.replace(self._base, beam_size=beam, max_length=127)
        return dataclasses.replace(self._base, beam_size=beam, min_length=target_tokens, max_length=target_tokens)


def _version(manifest: Manifest, settings: RuntimeSettings) -> str:
    if settings.device == "tensorrt":  # the runtime has refused every other one
        return f"{manifest.engines[0].flavour} {manifest.engines[0].version}"
    import onnxruntime

    return f"onnxruntime {onnxruntime.__version__}"


if __name__ == "__main__":
    serve(DragomanSide())
