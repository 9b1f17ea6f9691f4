"""Hugging Face `generate` on torch: `python -m benchmarks.workers.hugging_face_side` in the peers' environment."""

from __future__ import annotations

from typing import Any

import torch
import transformers

from benchmarks.workers.protocol import Ids, Side, serve


class HuggingFaceSide(Side):
    """MarianMTModel with torch's own kernels; sorted by length, as any careful user of it would."""

    def load(self, request: dict[str, Any]) -> dict[str, Any]:
        torch.set_num_threads(request["threads"])
        self._device = request.get("device", "cpu")
        if (request["precision"], self._device) not in (("fp32", "cpu"), ("fp16", "cuda"), ("fp32", "cuda")):
            raise ValueError("the torch peer is measured in fp32, and in fp16 on a GPU")
        model = self._open(request["model"])
        self._model = (model.half() if request["precision"] == "fp16" else model).to(self._device)
        return {"version": f"transformers {transformers.__version__}, torch {torch.__version__}"}

    def _open(self, model: str) -> Any:  # noqa: ANN401 - transformers is not typed
        return transformers.MarianMTModel.from_pretrained(model).eval()

    @torch.inference_mode()
    def run(self, sources: Ids, batch: int, beam: int, target_tokens: int | None) -> Ids:
        order = sorted(range(len(sources)), key=lambda number: len(sources[number]))
        outputs: Ids = [[] for _ in sources]
        # counts the start token, which is not one of target_tokens
        lengths = {} if target_tokens is None else {"min_length": target_tokens, "max_length": target_tokens + 1}
        config = self._model.config
        for start in range(0, len(order), batch):
            chosen = order[start : start + batch]
            width = max(len(sources[number]) for number in chosen)
            ids = torch.tensor([sources[n] + [config.pad_token_id] * (width - len(sources[n])) for n in chosen]).to(
                self._device
            )
            found = self._model.generate(
                input_ids=ids, attention_mask=(ids != config.pad_token_id).long(), num_beams=beam, **lengths
            )
            for number, row in zip(chosen, found.tolist(), strict=True):
                outputs[number] = [token for token in row[1:] if token != config.pad_token_id]
        return outputs


if __name__ == "__main__":
    serve(HuggingFaceSide())
