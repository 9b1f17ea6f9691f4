"""OpenNMT-py: a file of torch.save with `model`, `generator`, `opt` and `vocab`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dragoman.bundle.manifest import SpecialTokens
from dragoman.errors import CheckpointError, ExportError
from dragoman.export.checkpoint.files import require_file
from dragoman.export.checkpoint.formats.described_tokenizer import Vocabularies, pieces_plan
from dragoman.export.checkpoint.formats.moses import moses_of
from dragoman.export.checkpoint.formats.opennmt_vocabulary import read_vocabularies
from dragoman.export.checkpoint.formats.pickles import load_pickle, pickled_names, plain, state_dict
from dragoman.export.checkpoint.formats.protocol import CompanionFiles, OpenedSource
from dragoman.export.checkpoint.formats.torch_transformer.positions import interleaved_sinusoids
from dragoman.export.checkpoint.limits import TokenLimits
from dragoman.export.checkpoint.renaming import Rules, renamed
from dragoman.export.checkpoint.settings import JsonSettings, shown
from dragoman.export.checkpoint.tokenizer_plan import TokenizerPlan
from dragoman.export.transformer import TransformerConfig
from dragoman.search.options import DecodingOptions

__all__ = ["OpenNMTFormat"]

PAD, BEGIN, END, UNKNOWN = "<blank>", "<s>", "</s>", "<unk>"
ACTIVATIONS = {"relu": "relu", "gelu": "gelu"}
LENGTH = 1024  # positions of a model that has none stored
MOST_POSITIONS = 5000
SAID = {"encoder_type": "transformer", "decoder_type": "transformer", "self_attn_type": "scaled-dot"}
REFUSED: Mapping[str, tuple[Any, ...]] = {
    "max_relative_positions": (0,),
    "layer_norm": ("standard",),
    "parallel_residual": (False,),
    "multiquery": (False,),
    "num_kv": (0,),
    "sliding_window": (0,),
    "copy_attn": (False,),
    "aan_useffn": (False,),
    "num_experts": (0,),
    "use_ckpting": ([],),
    "lora_layers": ([],),
    "full_context_alignment": (False,),
    "generator_function": ("softmax",),
    "feat_merge": ("concat",),
}
TRAINING_ONLY = {"use_ckpting", "full_context_alignment", "feat_merge"}

RENAMED: Rules = (
    (r"^encoder\.layers\.(\d+)\.self_attention_norm\.", r"encoder.transformer.\1.layer_norm."),
    (r"^encoder\.layers\.", "encoder.transformer."),
    (r"^decoder\.layers\.", "decoder.transformer_layers."),
    (r"\.self_attention_norm\.", ".layer_norm_1."),
    (r"\.cross_attention_norm\.", ".layer_norm_2."),
    (r"\.feed_forward_norm\.", ".feed_forward.layer_norm."),
    (r"\.self_attention\.", ".self_attn."),
    (r"\.cross_attention\.", ".context_attn."),
    (r"\.feed_forward\.inner\.", ".feed_forward.w_1."),
    (r"\.feed_forward\.outer\.", ".feed_forward.w_2."),
    (r"_attn\.query\.", "_attn.linear_query."),
    (r"_attn\.key\.", "_attn.linear_keys."),
    (r"_attn\.value\.", "_attn.linear_values."),
    (r"_attn\.output\.", "_attn.final_linear."),
    (r"\.final_norm\.", ".layer_norm."),
)
EMBEDDING, POSITIONS = "embeddings.make_embedding.emb_luts.0.weight", "embeddings.make_embedding.pe.pe"


class OpenNMTFormat:
    """Transformers with absolute positions, of version 1 to 3."""

    name = "opennmt-py"
    looks_for = "a file of torch.save with `model`, `generator`, `opt` and `vocab`"

    def recognises(self, source: Path) -> bool:
        """By what the file holds."""
        return source.is_file() and {"generator", "opt", "vocab"} <= pickled_names(source)

    def open(self, source: Path, limits: TokenLimits, companions: CompanionFiles) -> OpenedSource:
        loaded = load_pickle(require_file(source, "the checkpoint"))
        if not isinstance(loaded, Mapping) or not {"model", "generator", "opt", "vocab"} <= set(loaded):
            raise CheckpointError(f"{source} is not an OpenNMT-py checkpoint: it must have model, generator, opt and vocab")
        options = plain(loaded["opt"])
        if not isinstance(options, dict):
            raise CheckpointError(f"{source} has no settings in `opt`")
        settings = JsonSettings(options, f"`opt` of {source.name}")
        _refuse_variants(settings)
        weights = _weights(loaded, settings, str(source))
        config = _config(settings, weights)
        source_ids, target_ids = read_vocabularies(loaded["vocab"], source.name)
        vocabularies = Vocabularies(
            source_ids, target_ids, is_shared=source_ids == target_ids, source_unknown=source_ids.get(UNKNOWN)
        )
        vocabularies.check(config, ("the source vocabulary", "the target vocabulary"))
        tokens = _tokens(target_ids, source.name)
        plan = _tokenizer(companions, source, vocabularies, tokens)
        return OpenedSource(
            name=source.stem,
            architecture="OpenNMT-py transformer",
            config=config,
            weights=weights,
            weight_names=_OpenNMTNames(),
            tokens=dataclasses.replace(tokens, unknown=plan.unknown),
            generation=DecodingOptions(beam_size=5, max_length=min(100, limits.target(config)), early_stopping="first"),
            tokenizer_plan=plan,
        )


class _OpenNMTNames:
    def weight_names(self, ours: str) -> tuple[str, ...]:
        special = {
            "source_embedding.weight": f"encoder.{EMBEDDING}",
            "target_embedding.weight": f"decoder.{EMBEDDING}",
            "encoder.positions.weight": f"encoder.{POSITIONS}",
            "decoder.positions.weight": f"decoder.{POSITIONS}",
            "output.weight": "generator.weight",
            "output.bias": "generator.bias",
        }
        if ours in special:
            return (special[ours],)
        return (renamed(ours, RENAMED),)

    def is_optional(self, ours: str) -> bool:
        """Version 3 has attention without biases by default, all or some of them."""
        return "attention." in ours and ours.endswith(".bias")

    def is_ignored(self, theirs: str) -> bool:  # noqa: ARG002 - everything in the file computes
        return False


def _refuse_variants(settings: JsonSettings) -> None:
    for name, needed in SAID.items():
        if (value := settings.raw(name, needed)) not in (needed, "scaled-dot-flash"):
            raise CheckpointError(f"{name}={shown(value)} in {settings.file} is not supported; {needed} is")
    for name, neutral in REFUSED.items():
        value = settings.raw(name)
        if value is None or value in neutral or name in TRAINING_ONLY:
            continue
        reason = " (relative or rotary positions)" if name == "max_relative_positions" else ""
        raise CheckpointError(f"{name}={shown(value)} in {settings.file} is not supported{reason}")


def _weights(loaded: Mapping[Any, Any], settings: JsonSettings, where: str) -> dict[str, Tensor]:
    """All under one naming: the generator's too, whose name changed, and a table of positions for each side."""
    weights = state_dict(loaded["model"], f"`model` of {where}")
    for name, tensor in state_dict(loaded["generator"], f"`generator` of {where}").items():
        weights[f"generator.{name.rpartition('.')[2]}"] = tensor
    for side in ("encoder", "decoder"):
        table = weights.get(f"{side}.{EMBEDDING}")
        if table is None or table.dim() != 2:
            raise CheckpointError(f"{where} has no table {side}.{EMBEDDING}")
        weights[f"{side}.{POSITIONS}"] = _positions(weights.get(f"{side}.{POSITIONS}"), settings, table.shape[1])
    return weights


def _positions(stored: Tensor | None, settings: JsonSettings, width: int) -> Tensor:
    """(positions, width): as stored, (5000, 1, width), or as OpenNMT-py computes them."""
    if not settings.flag("position_encoding", False):
        return torch.zeros(LENGTH, width)
    if settings.raw("position_encoding_type", "SinusoidalInterleaved") != "SinusoidalInterleaved":
        raise CheckpointError(
            f"{settings.file} has position_encoding_type={shown(settings.raw('position_encoding_type'))}; "
            "SinusoidalInterleaved is supported"
        )
    if stored is None:
        return interleaved_sinusoids(MOST_POSITIONS, width)
    if stored.dim() != 3 or stored.shape[1:] != (1, width):
        raise CheckpointError(f"{POSITIONS} {list(stored.shape)} is not a table of positions of {width} numbers each")
    return stored[:, 0]


def _config(settings: JsonSettings, weights: Mapping[str, Tensor]) -> TransformerConfig:
    source, width = weights[f"encoder.{EMBEDDING}"].shape
    target = weights[f"decoder.{EMBEDDING}"].shape[0]
    heads, inner = settings.number("heads", 8), settings.number("transformer_ff", 2048)
    layers = settings.raw("layers", -1)
    both = layers if isinstance(layers, int) and layers > 0 else None
    try:
        return TransformerConfig(
            d_model=width,
            encoder_layers=both or settings.number("enc_layers", 2),
            decoder_layers=both or settings.number("dec_layers", 2),
            encoder_heads=heads,
            decoder_heads=heads,
            encoder_feed_forward=inner,
            decoder_feed_forward=inner,
            source_vocabulary=source,
            target_vocabulary=target,
            max_source_positions=len(weights[f"encoder.{POSITIONS}"]),
            max_target_positions=len(weights[f"decoder.{POSITIONS}"]),
            positions="learned",
            pre_norm=True,
            final_norm=True,
            norm_epsilon=settings.real("norm_eps", 1e-6),
            activation=settings.choice("pos_ffn_activation_fn", ACTIVATIONS, "relu"),  # type: ignore[arg-type]
            attention_bias=any(name.endswith("attn.linear_query.bias") for name in weights),
            feed_forward_bias="encoder.transformer.0.feed_forward.w_1.bias" in weights,
            embedding_scale=width**0.5 if settings.flag("position_encoding", False) else 1.0,
            shared_embeddings=False,
            tied_output=False,
            output_bias="generator.bias" in weights,
        )
    except CheckpointError:
        raise
    except ExportError as error:
        raise CheckpointError(f"{settings.file} is of a model that can't be: {error}") from error


def _tokens(target: dict[str, int], file: str) -> SpecialTokens:
    if lost := [name for name in (PAD, BEGIN, END) if name not in target]:
        raise CheckpointError(f"the target vocabulary in {file} lacks {', '.join(lost)}")
    return SpecialTokens(pad=target[PAD], eos=target[END], decoder_start=target[BEGIN], unknown=target.get(UNKNOWN))


def _tokenizer(companions: CompanionFiles, source: Path, vocabularies: Vocabularies, tokens: SpecialTokens) -> TokenizerPlan:
    """The pieces tell how a text was cut. OpenNMT-py itself splits at spaces, and adds no tokens to sources."""
    pieces = [*vocabularies.source, *vocabularies.target]
    around: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    if companions.sentencepiece or sum(piece.startswith("▁") for piece in pieces) > len(pieces) // 10:
        if not companions.sentencepiece:
            raise CheckpointError(f"the vocabulary in {source.name} has pieces of sentencepiece; name its model: --spm")
        files = dict(zip(("source_model", "target_model"), companions.sentencepiece, strict=False))
        return pieces_plan("m2m100", vocabularies, tokens, around, files, {})
    moses = moses_of(companions.moses, set(pieces), source.name)
    if companions.bpe_codes is not None or any(piece.endswith("@@") for piece in pieces):
        if companions.bpe_codes is None:
            raise CheckpointError(f"the vocabulary in {source.name} has pieces of subword-nmt; name its codes: --bpe-codes")
        return pieces_plan("subword_nmt", vocabularies, tokens, around, {"source_codes": companions.bpe_codes}, moses)
    if any("￭" in piece for piece in pieces):
        raise CheckpointError(
            f"the vocabulary in {source.name} has pieces of the OpenNMT Tokenizer (￭), which is not supported"
        )
    return pieces_plan("vocabulary", vocabularies, tokens, around, {}, {"unit": "word", **moses})
