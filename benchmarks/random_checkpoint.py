"""Marian checkpoints of a chosen size with random weights, in the Hugging Face layout: speed does not depend on the weights.

The tokenizer is the reference model's with dummy pieces appended, so that every reader accepts the directory.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import GenerationConfig, MarianConfig

__all__ = [
    "OPUS_MT",
    "OPUS_MT_32K",
    "ModelSize",
    "configuration",
    "generation",
    "write_random_checkpoint",
    "write_tokenizer",
]

REFERENCE = Path(__file__).parent.parent / "models" / "tatoeba-en-de"


@dataclass(frozen=True, slots=True)
class ModelSize:
    """The sizes of a Marian model; OPUS-MT's by default."""

    name: str
    vocabulary: int
    d_model: int = 512
    heads: int = 8
    encoder_layers: int = 6
    decoder_layers: int = 6
    feed_forward: int = 2048


OPUS_MT = ModelSize("random-58k", 58_101)
OPUS_MT_32K = ModelSize("random-32k", 32_000)


def write_random_checkpoint(size: ModelSize, directory: Path, seed: int = 1) -> Path:
    """`directory` with the checkpoint in it; an existing one is kept, because the same seed gives the same weights."""
    if (directory / "vocab.json").is_file():
        return directory
    import torch
    from transformers import MarianMTModel

    torch.manual_seed(seed)
    directory.mkdir(parents=True, exist_ok=True)
    # wide enough that the best token is not a matter of rounding, and the output not one token repeated
    MarianMTModel(configuration(size, init_std=0.05)).eval().save_pretrained(directory)
    # random weights hardly ever generate the end token: a trained model's translations of the bundled sentences are so long
    generation(size, max_length=32).save_pretrained(directory)
    write_tokenizer(size.vocabulary, directory)
    return directory


def configuration(size: ModelSize, init_std: float = 0.02) -> MarianConfig:
    """A Marian model of this size; pad is the last word, the end the first."""
    from transformers import MarianConfig

    pad = size.vocabulary - 1
    return MarianConfig(
        architectures=["MarianMTModel"],
        vocab_size=size.vocabulary,
        d_model=size.d_model,
        encoder_layers=size.encoder_layers,
        decoder_layers=size.decoder_layers,
        encoder_attention_heads=size.heads,
        decoder_attention_heads=size.heads,
        encoder_ffn_dim=size.feed_forward,
        decoder_ffn_dim=size.feed_forward,
        max_position_embeddings=512,
        scale_embedding=True,
        activation_function="swish",
        pad_token_id=pad,
        decoder_start_token_id=pad,
        eos_token_id=0,
        forced_eos_token_id=0,
        init_std=init_std,
    )


def generation(size: ModelSize, max_length: int) -> GenerationConfig:
    """Default decoding options."""
    from transformers import GenerationConfig

    pad = size.vocabulary - 1
    return GenerationConfig(
        bad_words_ids=[[pad]],
        decoder_start_token_id=pad,
        eos_token_id=0,
        forced_eos_token_id=0,
        pad_token_id=pad,
        num_beams=4,
        max_length=max_length,
    )


def write_tokenizer(vocabulary: int, directory: Path) -> None:
    """The reference model's, with dummy pieces appended."""
    for name in ("source.spm", "target.spm"):
        shutil.copyfile(REFERENCE / name, directory / name)
    settings = json.loads((REFERENCE / "tokenizer_config.json").read_text(encoding="utf-8"))
    added = settings.pop("added_tokens_decoder")
    pieces = json.loads((REFERENCE / "vocab.json").read_text(encoding="utf-8"))
    pad = pieces.pop("<pad>")
    added[str(vocabulary - 1)] = added.pop(str(pad))
    settings["added_tokens_decoder"] = added
    (directory / "tokenizer_config.json").write_text(json.dumps(settings, indent=2), encoding="utf-8")
    kept = {piece: index for piece, index in pieces.items() if index < vocabulary - 1}
    dummies = {f"▁dummy{index}": index for index in range(len(kept), vocabulary - 1)}
    complete = {**kept, **dummies, "<pad>": vocabulary - 1}
    # last: its presence says that the directory is complete
    (directory / "vocab.json").write_text(json.dumps(complete, ensure_ascii=False), encoding="utf-8")
