"""Small random checkpoints of every family, in the layout that Hugging Face saves: any shape, no training, no network."""

from __future__ import annotations

import functools
import io
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import ByteLevelBPETokenizer
from torch import nn

from random_marian import REFERENCE_MODEL

PIECES = 8000
"""Of the reference model's sentencepiece file, which begins with <unk>, <s>, </s> as fairseq's files do."""
GOOGLE_PIECES = 300
M2M100_WORDS = 400
"""Pieces that M2M100's vocab.json names here; the others are unknown to it."""

BART_LIKE: dict[str, Any] = {
    "d_model": 24,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 28,
    "max_position_embeddings": 64,
    "pad_token_id": 1,
    "eos_token_id": 2,
    "bos_token_id": 0,
    "decoder_start_token_id": 2,
}
T5_LIKE: dict[str, Any] = {
    "d_model": 24,
    "d_kv": 6,
    "num_heads": 3,
    "d_ff": 40,
    "num_layers": 2,
    "num_decoder_layers": 2,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 12,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "decoder_start_token_id": 0,
}


def fairseq_files(directory: Path, **settings: object) -> None:
    shutil.copyfile(REFERENCE_MODEL / "source.spm", directory / "sentencepiece.bpe.model")
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))


def m2m100_files(directory: Path, **settings: object) -> None:
    import sentencepiece

    fairseq_files(directory, **settings)
    model = sentencepiece.SentencePieceProcessor(model_file=str(directory / "sentencepiece.bpe.model"))
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *(model.id_to_piece(at) for at in range(3, M2M100_WORDS - 1))]
    (directory / "vocab.json").write_text(json.dumps({piece: at for at, piece in enumerate(pieces)}))


def sentencepiece_model(**settings: object) -> bytes:
    """Trained on the corpus."""
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus()), model_writer=model, minloglevel=2, num_threads=1, **settings
    )
    return model.getvalue()


@functools.cache
def google_model() -> bytes:
    """A sentencepiece model in T5's layout: <pad> 0, </s> 1, <unk> 2."""
    return sentencepiece_model(vocab_size=GOOGLE_PIECES, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)


MADLAD_LANGUAGES = ("en", "de", "pt", "zh_Latn")
MADLAD_PIECES = 600


@functools.cache
def madlad_model() -> bytes:
    """A sentencepiece model in MADLAD-400's layout: <unk> 0, <s> 1, </s> 2, bytes for what it does not know."""
    return sentencepiece_model(
        vocab_size=MADLAD_PIECES,
        unk_id=0,
        bos_id=1,
        eos_id=2,
        pad_id=-1,
        byte_fallback=True,
        user_defined_symbols=["<2translate>", *(f"<2{code}>" for code in MADLAD_LANGUAGES)],
    )


def madlad_files(directory: Path, **settings: object) -> None:
    (directory / "spiece.model").write_bytes(madlad_model())
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))


def corpus() -> list[str]:
    lines = (files("dragoman.export") / "sentences.txt").read_text(encoding="utf-8").splitlines()
    return [word for line in lines for word in (line, *line.split())]


def google_files(directory: Path, **settings: object) -> None:
    (directory / "spiece.model").write_bytes(google_model())
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))


def bart_files(directory: Path, **settings: object) -> None:
    trained = ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    trained.train_from_iterator(corpus(), vocab_size=380, min_frequency=2, special_tokens=special, show_progress=False)
    trained.save_model(str(directory))
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))


def no_files(directory: Path, **settings: object) -> None:
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))


@dataclass(frozen=True)
class Family:
    """How to make a checkpoint: Hugging Face's classes, sizes, and tokenizer files."""

    name: str
    sizes: dict[str, Any]
    tokenizer_files: Callable[..., None]
    tokenizer: dict[str, Any] = field(default_factory=dict)
    untied: bool = False

    def write(self, directory: Path, *, seed: int = 0, **overrides: object) -> Path:
        directory.mkdir(parents=True)
        config = getattr(transformers, f"{self.name}Config")(**{**self.sizes, **overrides})
        model = getattr(transformers, f"{self.name}ForConditionalGeneration")(config)
        if self.untied:
            model.lm_head.weight = nn.Parameter(torch.empty_like(model.lm_head.weight))
        randomise(model, seed)
        model.save_pretrained(directory)
        self.tokenizer_files(directory, **self.tokenizer)
        return directory


def randomise(model: nn.Module, seed: int) -> None:
    """Weights large enough that every layer matters to the answer."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:  # sinusoids stay what they are
                continue
            if "norm" in name and name.endswith("weight"):
                nn.init.normal_(parameter, mean=1.0, std=0.2)
            else:
                nn.init.normal_(parameter, std=0.3 if parameter.dim() > 1 else 0.1)
        if hasattr(model, "final_logits_bias"):
            nn.init.normal_(model.final_logits_bias, std=0.3)


def fairseq(name: str, languages: int, activation: str, **tokenizer: object) -> Family:
    sizes = {**BART_LIKE, "vocab_size": PIECES + 1 + languages + 1, "activation_function": activation}
    return Family(name, {**sizes, "scale_embedding": True}, fairseq_files, tokenizer)


def t5(name: str, activation: str, *, untied: bool = False, **tokenizer: object) -> Family:
    sizes = {**T5_LIKE, "vocab_size": GOOGLE_PIECES + 28, "feed_forward_proj": activation}
    return Family(name, sizes, google_files, tokenizer or {"tokenizer_class": "T5Tokenizer", "extra_ids": 0}, untied)


M2M100_SIZES = {**BART_LIKE, "vocab_size": M2M100_WORDS + 108, "activation_function": "relu", "scale_embedding": True}

FAMILIES = {
    "NLLB": fairseq("M2M100", 202, "relu", tokenizer_class="NllbTokenizer", src_lang="eng_Latn"),
    "M2M100": Family("M2M100", M2M100_SIZES, m2m100_files, {"tokenizer_class": "M2M100Tokenizer"}),
    "SMALL-100": Family("M2M100", M2M100_SIZES, m2m100_files, {"tokenizer_class": "SMALL100Tokenizer"}),
    "BART": Family("Bart", {**BART_LIKE, "vocab_size": 384}, bart_files, {"tokenizer_class": "BartTokenizer"}),
    "mBART": fairseq("MBart", 25, "gelu", tokenizer_class="MBartTokenizer"),
    "mBART-50": fairseq("MBart", 52, "relu", tokenizer_class="MBart50Tokenizer"),
    "Pegasus": Family(
        "Pegasus",
        {**BART_LIKE, "vocab_size": GOOGLE_PIECES + 103, "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
        | {"activation_function": "relu", "scale_embedding": True},
        google_files,
        {"tokenizer_class": "PegasusTokenizer"},
    ),
    "T5": t5("T5", "relu"),
    "T5 1.1": t5("T5", "gated-gelu", untied=True),
    "mT5": t5("MT5", "gated-gelu", untied=True),
    "UMT5": t5("UMT5", "gated-gelu", untied=True),
    "MADLAD": Family(
        "T5",
        {**T5_LIKE, "vocab_size": MADLAD_PIECES, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
        | {"pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 0},
        madlad_files,
        {"tokenizer_class": "T5Tokenizer", "extra_ids": 0},
        untied=True,
    ),
    "ByT5": Family(
        "T5",
        {**T5_LIKE, "vocab_size": 384, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        no_files,
        {"tokenizer_class": "ByT5Tokenizer"},
        untied=True,
    ),
}
