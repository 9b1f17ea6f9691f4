"""CTranslate2 as a Triton Python model: what its users would write. Triton batches, one call translates the batch."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils


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
        checkpoint = Path(given["checkpoint"])
        self._source = sentencepiece.SentencePieceProcessor(model_file=str(checkpoint / "source.spm"))
        self._target = sentencepiece.SentencePieceProcessor(model_file=str(checkpoint / "target.spm"))

    def execute(self, requests: list[Any]) -> list[Any]:
        inputs = [pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy().ravel() for request in requests]
        texts = [text.decode() for one in inputs for text in one]
        pieces = [[*self._source.encode(text, out_type=str), "</s>"] for text in texts]
        results = self._translator.translate_batch(pieces, beam_size=self._beam, max_decoding_length=127)
        said = iter(self._target.decode_pieces(result.hypotheses[0]) for result in results)
        responses = []
        for one in inputs:
            answers = np.array([[next(said).encode()] for _ in one], dtype=np.object_)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("TRANSLATION", answers)]))
        return responses
