"""CTranslate2 as a Triton Python model: what its users would write. Triton batches, one call translates the batch."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

FAIRSEQ_MODEL = "sentencepiece.bpe.model"


class TritonPythonModel:
    """TEXT (batch, 1) to TRANSLATION (batch, 1)."""

    def initialize(self, args: dict[str, Any]) -> None:
        given = {name: value["string_value"] for name, value in json.loads(args["model_config"])["parameters"].items()}
        sys.path.append(given["packages"])  # after our own: the stub needs numpy 1
        import ctranslate2
        import sentencepiece

        self._beam = int(given["beam"])
        self._translator = ctranslate2.Translator(
            given["model"], compute_type=given["compute_type"], inter_threads=1, intra_threads=int(given["threads"])
        )
        wanted = int(given["target_tokens"])
        self._lengths = {"max_decoding_length": wanted or 127, "min_decoding_length": wanted or 1}
        checkpoint = Path(given["checkpoint"])
        # a random checkpoint's words are named after their ids, which are one higher than in fairseq's model
        self._named_by_id = (checkpoint / FAIRSEQ_MODEL).is_file()
        names = (FAIRSEQ_MODEL, FAIRSEQ_MODEL) if self._named_by_id else ("source.spm", "target.spm")
        self._source, self._target = (
            sentencepiece.SentencePieceProcessor(model_file=str(checkpoint / name)) for name in names
        )

    def execute(self, requests: list[Any]) -> list[Any]:
        inputs = [pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy().ravel() for request in requests]
        pieces = [[*self._pieces(text.decode()), "</s>"] for one in inputs for text in one]
        results = self._translator.translate_batch(pieces, beam_size=self._beam, **self._lengths)
        said = iter(self._text(result.hypotheses[0]) for result in results)
        responses = []
        for one in inputs:
            answers = np.array([[next(said).encode()] for _ in one], dtype=np.object_)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("TRANSLATION", answers)]))
        return responses

    def _pieces(self, text: str) -> list[str]:
        if self._named_by_id:
            return [f"w{token + 1}" for token in self._source.encode(text)]
        pieces: list[str] = self._source.encode(text, out_type=str)
        return pieces

    def _text(self, pieces: list[str]) -> str:
        if not self._named_by_id:
            return str(self._target.decode_pieces(pieces))
        ids = [int(piece[1:]) - 1 for piece in pieces if piece[1:].isdigit()]
        return str(self._target.decode([token for token in ids if 0 <= token < len(self._target)]))
