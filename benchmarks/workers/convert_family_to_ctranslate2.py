"""A checkpoint that is not Marian's to CTranslate2: `python -m …convert_family_to_ctranslate2 CHECKPOINT OUTPUT PRECISION`.

CTranslate2's own loaders convert the weights. The words are named after their ids, for both sides are measured on ids:
the vocabulary of a random checkpoint means nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import transformers
from ctranslate2.converters.transformers import _MODEL_LOADERS

from benchmarks.workers.ctranslate2_side import COMPUTE_TYPE

EOS = "</s>"
NORMS_BEFORE = {"BartConfig": False, "MBartConfig": True}


def convert(checkpoint: Path, output: Path, precision: str) -> None:
    """Write the CTranslate2 model in this precision."""
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(checkpoint, dtype=torch.float32)
    config = model.config
    if type(config).__name__ in NORMS_BEFORE:  # the loader asks for names that newer releases no longer write
        config.normalize_before, config.normalize_embedding = NORMS_BEFORE[type(config).__name__], True
    spec = _MODEL_LOADERS[type(config).__name__].get_model_spec(model)
    words = [f"w{number}" for number in range(config.vocab_size)]
    words[config.eos_token_id] = EOS
    start = words[config.decoder_start_token_id]
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = start, EOS, words[3]
    spec.config.decoder_start_token = start
    spec.config.add_source_bos = spec.config.add_source_eos = False
    spec.validate()
    spec.optimize(quantization=COMPUTE_TYPE[precision])
    output.mkdir(parents=True, exist_ok=True)
    spec.save(str(output))


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
