"""CTranslate2, in process: `python -m benchmarks.workers.ctranslate2_side` in its own environment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ctranslate2

from benchmarks.workers.protocol import Ids, Side, serve

COMPUTE_TYPE = {"fp32": "float32", "int8": "int8_float32", "fp16": "float16"}


class CTranslate2Side(Side):
    """One Translator; ids become its token strings once, outside the timed calls where they repeat."""

    def load(self, request: dict[str, Any]) -> dict[str, Any]:
        """`threads` in all, `inter` of them as workers of their own that take batches in parallel."""
        model, inter = request["model"], request.get("inter", 1)
        self._inter = inter
        self._translator = ctranslate2.Translator(
            model,
            device=request.get("device", "cpu"),
            compute_type=COMPUTE_TYPE[request["precision"]],
            inter_threads=inter,
            intra_threads=max(1, request["threads"] // inter),
        )
        self._pieces = json.loads((Path(model) / "shared_vocabulary.json").read_text(encoding="utf-8"))
        self._ids = {piece: index for index, piece in enumerate(self._pieces)}
        return {"version": ctranslate2.__version__, "compute_type": self._translator.compute_type}

    def run(self, sources: Ids, batch: int, beam: int, target_tokens: int | None) -> Ids:
        if batch < self._inter:  # all workers at once would have more sentences in flight than were asked for
            return [answer for source in sources for answer in self._translated([source], 1, beam, target_tokens)]
        # the same number of sentences is in flight whether one worker or several hold them
        return self._translated(sources, batch // self._inter, beam, target_tokens)

    def _translated(self, sources: Ids, batch: int, beam: int, target_tokens: int | None) -> Ids:
        pieces = self._pieces
        lengths = {"max_decoding_length": target_tokens or 127, "min_decoding_length": target_tokens or 1}
        results = self._translator.translate_batch(
            [[pieces[token] for token in source] for source in sources],
            max_batch_size=batch,
            batch_type="examples",
            beam_size=beam,
            return_scores=False,
            **lengths,
        )
        return [[self._ids[piece] for piece in result.hypotheses[0]] for result in results]


if __name__ == "__main__":
    serve(CTranslate2Side())
