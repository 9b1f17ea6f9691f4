"""Small random CTranslate2 models, converted by CTranslate2's own converters from random checkpoints of each family."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
import sentencepiece

from dragoman.export.checkpoint.language_codes import M2M100, MBART, MBART50, NLLB
from random_families import FAMILIES
from random_marian import write_marian

__all__ = ["CTRANSLATE2_FAMILIES", "write_ctranslate2"]

CTRANSLATE2_FAMILIES = ("Marian", *(name for name in FAMILIES if name not in ("SMALL-100", "ByT5")))
LANGUAGES = {"NLLB": NLLB, "mBART": MBART, "mBART-50": MBART50}
TOKENIZER_FILES = ("source.spm", "target.spm", "sentencepiece.bpe.model", "spiece.model", "merges.txt", "vocab.json")


def write_ctranslate2(
    directory: Path,
    family: str,
    quantization: str | None = None,
    *,
    shape: dict[str, Any] | None = None,
    unbiased: tuple[str, ...] = (),
    **config: object,
) -> Path:
    """A directory as `ct2-transformers-converter --copy_files` leaves it; `config` overrides settings of config.json.

    `unbiased`: linear layers that have no bias, by their names in Hugging Face's model.
    """
    pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed")
    import transformers
    from ctranslate2.converters.transformers import _MODEL_LOADERS

    source = directory.with_name(f"{directory.name}-source")
    if family == "Marian":
        write_marian(source, **{"vocab_size": 253, **(shape or {})})
    else:
        FAMILIES[family].write(source, **(shape or {}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = transformers.AutoModelForSeq2SeqLM.from_pretrained(source, local_files_only=True, dtype="float32").eval()
    for name in unbiased:
        model.get_submodule(name).bias = None
    model.config.normalize_before = family in ("mBART", "mBART-50", "Pegasus")
    model.config.normalize_embedding = family != "Pegasus"
    loader = _MODEL_LOADERS[type(model.config).__name__]
    spec = loader.get_model_spec(model)
    words = _words(family, source, model.config.vocab_size - (family == "Marian"))
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    start = {"mBART": None, "Pegasus": "<pad>", "T5": "<pad>", "T5 1.1": "<pad>", "mT5": "<pad>", "UMT5": "<pad>"}
    spec.config.decoder_start_token = start.get(family, "</s>")
    for name, value in config.items():
        setattr(spec.config, name, value)
    spec.validate()
    spec.optimize(quantization)
    directory.mkdir(parents=True)
    spec.save(str(directory))
    for name in TOKENIZER_FILES:
        if (source / name).is_file() and not (name == "vocab.json" and family == "Marian"):
            shutil.copyfile(source / name, directory / name)
    return directory


def _words(family: str, source: Path, rows: int) -> list[str]:
    """What the converted tokenizer calls its ids."""
    if family in ("Marian", "BART", "M2M100"):
        words = list(json.loads((source / "vocab.json").read_text()))[:rows]
        if family == "M2M100":
            words += [f"__{code}__" for code in M2M100]
    elif family in LANGUAGES:
        words = [
            "<s>",
            "<pad>",
            "</s>",
            "<unk>",
            *_pieces(source / "sentencepiece.bpe.model", 3),
            *LANGUAGES[family],
            "<mask>",
        ]
    elif family == "Pegasus":
        words = ["<pad>", "</s>", "<mask_1>", "<mask_2>", *(f"<unk_{at}>" for at in range(2, 103))]
        words += _pieces(source / "spiece.model", 2)
    else:
        words = _pieces(source / "spiece.model", 0)
    return [*words, *(f"<spare_{at}>" for at in range(len(words), rows))]


def _pieces(model: Path, first: int) -> list[str]:
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    return [processor.id_to_piece(at) for at in range(first, processor.get_piece_size())]
