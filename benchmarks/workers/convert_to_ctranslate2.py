"""A Marian checkpoint to CTranslate2: `python -m benchmarks.workers.convert_to_ctranslate2 CHECKPOINT OUTPUT PRECISION`.

CTranslate2's own converter starts the decoder from a zero vector, which is what OPUS-MT's pad row holds. A model that was
trained with another pad row (ours) would translate worse than it can, so for such a model the row is kept.
"""

from __future__ import annotations

import sys
from typing import Any

from ctranslate2.converters import TransformersConverter
from ctranslate2.converters.transformers import BartLoader, MarianMTLoader, register_loader

from benchmarks.workers.ctranslate2_side import COMPUTE_TYPE

NEVER = -1e9


class KeepPadLoader(MarianMTLoader):  # type: ignore[misc]
    """Starts from the pad row, and never generates it."""

    def get_model_spec(self, model: Any) -> Any:  # noqa: ANN401 - the converter is not typed
        pad = model.config.pad_token_id
        if not model.model.shared.weight[pad].any():
            self._starts_from_zero = True
            return super().get_model_spec(model)
        self._starts_from_zero = False
        model.config.normalize_before = model.config.normalize_embedding = False
        model.final_logits_bias[..., pad] = NEVER
        return BartLoader.get_model_spec(self, model)

    def set_config(self, config: Any, model: Any, tokenizer: Any) -> None:  # noqa: ANN401
        super().set_config(config, model, tokenizer)
        if not self._starts_from_zero:
            config.decoder_start_token = tokenizer.pad_token

    def set_decoder(self, spec: Any, decoder: Any) -> None:  # noqa: ANN401
        super().set_decoder(spec, decoder)
        spec.start_from_zero_embedding = self._starts_from_zero

    def get_vocabulary(self, model: Any, tokenizer: Any) -> Any:  # noqa: ANN401
        if self._starts_from_zero:
            return super().get_vocabulary(model, tokenizer)
        return BartLoader.get_vocabulary(self, model, tokenizer)


register_loader("MarianConfig")(KeepPadLoader)

if __name__ == "__main__":
    TransformersConverter(sys.argv[1]).convert(sys.argv[2], quantization=COMPUTE_TYPE[sys.argv[3]], force=True)
