"""Checkpoints of other families in the sizes that people use, with random weights: speed does not depend on the weights.

Tokenizers are the reference model's pieces or bytes with dummy entries appended, so that the product's own export takes
the directory; both sides are measured on token ids.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.random_checkpoint import REFERENCE

__all__ = ["BUILT_SHAPES", "FAMILY_SHAPES", "FamilyShape", "write_random_family"]

COMPLETE = "complete.txt"
_NEVER = -1000.0
"""The score of a dummy piece: no text is segmented with it."""


@dataclass(frozen=True, slots=True)
class FamilyShape:
    """A family's classes in Hugging Face, the sizes of its configuration, and a tokenizer of as many words."""

    name: str
    classes: str
    sizes: dict[str, Any]
    write_tokenizer: Callable[[Path, FamilyShape], None]

    @property
    def vocabulary(self) -> int:
        return int(self.sizes["vocab_size"])

    @property
    def eos(self) -> int:
        return int(self.sizes["eos_token_id"])


def write_random_family(shape: FamilyShape, directory: Path, seed: int = 1) -> Path:
    """`directory` with the checkpoint in it; an existing one is kept, because the same seed gives the same weights."""
    if (directory / COMPLETE).is_file():
        return directory
    import torch
    import transformers

    torch.manual_seed(seed)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    config = getattr(transformers, f"{shape.classes}Config")(**shape.sizes)
    model = getattr(transformers, f"{shape.classes}ForConditionalGeneration")(config).eval()
    model.generation_config.max_length = 200
    model.save_pretrained(directory)
    shape.write_tokenizer(directory, shape)
    (directory / COMPLETE).touch()
    return directory


def _with_dummies(source: Path, target: Path, count: int) -> None:
    """A sentencepiece model with dummy pieces up to `count`."""
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto.FromString(source.read_bytes())
    for number in range(len(model.pieces), count):
        model.pieces.add(piece=f"▁dummy{number}", score=_NEVER)
    target.write_bytes(model.SerializeToString())


def _fairseq_tokenizer(kind: str, languages: int) -> Callable[[Path, FamilyShape], None]:
    """Ids of pieces are one higher than in the file; languages and <mask> follow them."""

    def write(directory: Path, shape: FamilyShape) -> None:
        pieces = shape.vocabulary - 1 - languages - 1 - (2 if kind == "NllbTokenizer" else 0)
        _with_dummies(REFERENCE / "source.spm", directory / "sentencepiece.bpe.model", pieces)
        (directory / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind}))

    return write


def _google_tokenizer(directory: Path, shape: FamilyShape) -> None:
    """<pad> 0, </s> 1, <unk> 2, and a hundred <extra_id_…> after the pieces."""
    import sentencepiece

    sentences = (REFERENCE.parents[1] / "export" / "dragoman" / "export" / "sentences.txt").read_text(encoding="utf-8")
    small = directory / "small"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences.splitlines()),
        model_prefix=str(small),
        vocab_size=300,
        hard_vocab_limit=False,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        minloglevel=2,
    )
    _with_dummies(small.with_suffix(".model"), directory / "spiece.model", shape.vocabulary - 128)
    for suffix in (".model", ".vocab"):
        small.with_suffix(suffix).unlink()
    (directory / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "T5Tokenizer", "extra_ids": 100}))


def _pegasus_tokenizer(directory: Path, shape: FamilyShape) -> None:
    """103 tokens of its own stand before the pieces."""
    _google_tokenizer(directory, shape)
    _with_dummies(directory / "spiece.model", directory / "spiece.model", shape.vocabulary - 103)
    (directory / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PegasusTokenizer"}))


def _byte_level_tokenizer(directory: Path, shape: FamilyShape) -> None:
    from tokenizers import pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = ["<s>", "<pad>", "</s>", "<unk>", *letters]
    words += [f"Ġdummy{number}" for number in range(len(words), shape.vocabulary - 1)]
    (directory / "vocab.json").write_text(json.dumps({word: at for at, word in enumerate([*words, "<mask>"])}))
    (directory / "merges.txt").write_text("#version: 0.2\n")
    (directory / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BartTokenizer"}))


_LARGE: dict[str, Any] = {
    "d_model": 1024,
    "encoder_layers": 12,
    "decoder_layers": 12,
    "encoder_attention_heads": 16,
    "decoder_attention_heads": 16,
    "encoder_ffn_dim": 4096,
    "decoder_ffn_dim": 4096,
    "max_position_embeddings": 1024,
    "bos_token_id": 0,
    "pad_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "init_std": 0.05,
}
_SCALED_RELU = {"scale_embedding": True, "activation_function": "relu"}
_T5_BASE: dict[str, Any] = {
    "d_model": 768,
    "d_kv": 64,
    "num_heads": 12,
    "d_ff": 2048,
    "num_layers": 12,
    "num_decoder_layers": 12,
    "feed_forward_proj": "gated-gelu",
    "tie_word_embeddings": False,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "decoder_start_token_id": 0,
}

FAMILY_SHAPES = {
    shape.name: shape
    for shape in (
        FamilyShape(
            "random-nllb-600m",
            "M2M100",
            {**_LARGE, **_SCALED_RELU, "vocab_size": 256_206},
            _fairseq_tokenizer("NllbTokenizer", 202),
        ),
        FamilyShape(
            "random-t5-base",
            "T5",
            {**_T5_BASE, "vocab_size": 32_128},
            _google_tokenizer,
        ),
        FamilyShape(
            "random-bart-large",
            "Bart",
            {**_LARGE, "activation_function": "gelu", "vocab_size": 50_265},
            _byte_level_tokenizer,
        ),
        FamilyShape(
            "random-mbart-50",
            "MBart",
            {**_LARGE, **_SCALED_RELU, "vocab_size": 250_054},
            _fairseq_tokenizer("MBart50Tokenizer", 52),
        ),
    )
}

_GOOGLES_TOKENS = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}

BUILT_SHAPES = FAMILY_SHAPES | {
    shape.name: shape
    for shape in (
        FamilyShape("random-umt5-base", "UMT5", {**_T5_BASE, "vocab_size": 256_384}, _google_tokenizer),
        FamilyShape(
            "random-pegasus-large",
            "Pegasus",
            {**_LARGE, **_SCALED_RELU, **_GOOGLES_TOKENS, "encoder_layers": 16, "decoder_layers": 16, "vocab_size": 96_103},
            _pegasus_tokenizer,
        ),
    )
}
"""With those that no other library of the comparison runs."""
