"""Marian as Hugging Face stores it: any Helsinki-NLP/opus-mt directory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dragoman.bundle.manifest import SpecialTokens, TokenizerFiles
from dragoman.errors import CheckpointError
from dragoman.export.checkpoint.files import read_json, require_file
from dragoman.export.checkpoint.generation import single_token
from dragoman.export.checkpoint.vocabulary import check_vocabulary
from dragoman.export.transformer import TransformerConfig
from dragoman.export.transformer.config import Activation

__all__ = ["MarianReader"]

ACTIVATIONS: dict[str, Activation] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
}

RENAMED = (
    (r"\.self_attention_norm\.", ".self_attn_layer_norm."),
    (r"\.cross_attention_norm\.", ".encoder_attn_layer_norm."),
    (r"\.feed_forward_norm\.", ".final_layer_norm."),
    (r"\.self_attention\.", ".self_attn."),
    (r"\.cross_attention\.", ".encoder_attn."),
    (r"\.feed_forward\.inner\.", ".fc1."),
    (r"\.feed_forward\.outer\.", ".fc2."),
    (r"\.(query|key|value)\.", lambda match: f".{match[1][0]}_proj."),
    (r"\.output\.", ".out_proj."),
    (r"\.positions\.", ".embed_positions."),
    (r"^", "model."),
)


class MarianReader:
    """Names and settings of MarianMTModel; everything else is common to all readers."""

    architectures = ("MarianMTModel",)

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self._raw = raw
        self._one_vocabulary = raw.get("share_encoder_decoder_embeddings", True)
        self._tied = raw.get("tie_word_embeddings", True)
        self._shared = self._one_vocabulary and self._tied  # transformers unties all embeddings or none

    def config(self) -> TransformerConfig:
        raw = self._raw
        activation = raw.get("activation_function", "gelu")
        if activation not in ACTIVATIONS:
            raise CheckpointError(f"activation_function {activation!r} is not known (known: {', '.join(ACTIVATIONS)})")
        return TransformerConfig(
            d_model=self._number("d_model"),
            encoder_layers=self._number("encoder_layers"),
            decoder_layers=self._number("decoder_layers"),
            encoder_heads=self._number("encoder_attention_heads"),
            decoder_heads=self._number("decoder_attention_heads"),
            encoder_feed_forward=self._number("encoder_ffn_dim"),
            decoder_feed_forward=self._number("decoder_ffn_dim"),
            source_vocabulary=self._number("vocab_size"),
            target_vocabulary=self._number("vocab_size" if self._one_vocabulary else "decoder_vocab_size"),
            max_positions=self._number("max_position_embeddings"),
            activation=ACTIVATIONS[activation],
            embedding_scale=self._number("d_model") ** 0.5 if raw.get("scale_embedding", False) else 1.0,
            shared_embeddings=self._shared,
            tied_output=self._tied,
        )

    def weight_names(self, ours: str) -> tuple[str, ...]:
        common = ("model.shared.weight",) if self._one_vocabulary else ()
        source = ("model.encoder.embed_tokens.weight", *common)
        target = ("model.decoder.embed_tokens.weight", *common, *(("lm_head.weight",) if self._tied else ()))
        special = {
            "source_embedding.weight": tuple(dict.fromkeys((*common, *source, *target))) if self._shared else source,
            "target_embedding.weight": target,
            "output.weight": ("lm_head.weight",),
            "output.bias": ("final_logits_bias",),
        }
        if ours in special:
            return special[ours]
        name = ours
        for pattern, replacement in RENAMED:
            name = re.sub(pattern, replacement, name)
        return (name,)

    def is_optional(self, ours: str) -> bool:
        return ours == "output.bias"

    def tokens(self, directory: Path, generation: Mapping[str, Any]) -> SpecialTokens:
        found = {}
        for name in ("pad_token_id", "eos_token_id", "decoder_start_token_id"):
            token = single_token(generation, name)
            found[name] = single_token(self._raw, name) if token is None else token
        pad, eos, start = found["pad_token_id"], found["eos_token_id"], found["decoder_start_token_id"]
        if pad is None or eos is None:
            raise CheckpointError(f"{directory / 'config.json'} must name pad_token_id and eos_token_id")
        unknown = read_json(require_file(directory / "vocab.json", "the vocabulary")).get("<unk>")
        return SpecialTokens(pad=pad, eos=eos, decoder_start=pad if start is None else start, unknown=unknown)

    def tokenizer(self, directory: Path, config: TransformerConfig) -> TokenizerFiles:
        files = {"source_model": "source.spm", "target_model": "target.spm", "source_vocabulary": "vocab.json"}
        sizes = {"vocab.json": config.source_vocabulary}
        there = (directory / "target_vocab.json").is_file()
        if self._settings(directory).get("separate_vocabs", there) or config.target_vocabulary != config.source_vocabulary:
            files["target_vocabulary"] = "target_vocab.json"
            sizes["target_vocab.json"] = config.target_vocabulary
        for role, name in files.items():
            require_file(directory / name, f"the tokenizer's {role.replace('_', ' ')}")
        for name, rows in sizes.items():
            check_vocabulary(directory / name, rows)
        return TokenizerFiles(kind="marian", files=files)

    def languages(self, directory: Path) -> tuple[str | None, str | None]:
        settings = self._settings(directory)
        return settings.get("source_lang"), settings.get("target_lang")

    def _settings(self, directory: Path) -> Mapping[str, Any]:
        path = directory / "tokenizer_config.json"
        return read_json(path) if path.is_file() else {}

    def _number(self, name: str) -> int:
        value = self._raw.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise CheckpointError(f"config.json must give {name} as a positive whole number, not {value!r}")
        return value
