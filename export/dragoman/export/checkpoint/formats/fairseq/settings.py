"""How a fairseq model was made: `args` of old checkpoints, or hydra's `cfg`, as one set of plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from dragoman.errors import CheckpointError, ExportError
from dragoman.export.checkpoint.formats.pickles import plain
from dragoman.export.checkpoint.settings import JsonSettings, shown
from dragoman.export.transformer import TransformerConfig

__all__ = ["FairseqSettings", "read_settings"]

ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_accurate": "gelu_tanh", "gelu_fast": "gelu_tanh", "swish": "silu"}
TASK = "translation"
REFUSED: Mapping[str, tuple[Any, ...]] = {
    "adaptive_softmax_cutoff": (None, "", []),
    "adaptive_input": (None, False),
    "no_cross_attention": (None, False),
    "cross_self_attention": (None, False),
    "no_token_positional_embeddings": (None, False),
    "encoder_layers_to_keep": (None, ""),
    "decoder_layers_to_keep": (None, ""),
    "char_inputs": (None, False),
    "num_experts": (None, 0),
    "moe_freq": (None, 0),
    "scale_attn": (None, False),
    "scale_fc": (None, False),
    "scale_heads": (None, False),
    "normformer": (None, False),
    "alibi": (None, False),
}
"""Variants that compute something else, with the values that do not ask for them."""


@dataclass(frozen=True, slots=True)
class FairseqSettings:
    """`model` has what describes the Transformer; the others are sections of hydra's configuration, empty in old files."""

    model: JsonSettings
    task: Mapping[str, Any]
    tokenizer: Mapping[str, Any]
    bpe: Mapping[str, Any]
    generation: Mapping[str, Any]

    @property
    def languages(self) -> tuple[str | None, str | None]:
        """Source and target as the training named them."""
        found = (self.task.get("source_lang") or self.model.raw("source_lang"), self.task.get("target_lang"))
        source, target = found[0], found[1] or self.model.raw("target_lang")
        return (source if isinstance(source, str) else None, target if isinstance(target, str) else None)

    @property
    def data(self) -> str:
        """The directory that the training read, on the machine of the training."""
        data = self.task.get("data") or self.model.raw("data", "")
        return data if isinstance(data, str) else ""

    def config(self, tensors: Mapping[str, Tensor]) -> TransformerConfig:
        """The TransformerConfig; vocabulary sizes and optional parts are read from the weights."""
        raw = self.model
        for name, neutral in REFUSED.items():
            if (value := raw.raw(name)) not in neutral:
                raise CheckpointError(f"{name}={shown(value)} in the fairseq checkpoint is not supported")
        _equal(raw, "normalize_before", False)
        _equal(raw, "learned_pos", False)
        width = _equal(raw, "embed_dim", 512)
        source, target = (_rows(tensors, f"{side}.embed_tokens.weight") for side in ("encoder", "decoder"))
        shared = raw.flag("share_all_embeddings", False)
        pre_norm = raw.flag("encoder_normalize_before", False)
        final = "encoder.layer_norm.weight" in tensors
        if final != ("decoder.layer_norm.weight" in tensors):
            raise CheckpointError("one of encoder and decoder has a norm after its last layer; dragoman needs both or none")
        learned = raw.flag("encoder_learned_pos", False)
        lengths = {
            side: _rows(tensors, f"{coder}.embed_positions.weight") - 2
            if learned
            else raw.number(f"max_{side}_positions", 1024)
            for side, coder in (("source", "encoder"), ("target", "decoder"))
        }
        try:
            return TransformerConfig(
                d_model=width,
                encoder_layers=raw.number("encoder_layers", 6),
                decoder_layers=raw.number("decoder_layers", 6),
                encoder_heads=raw.number("encoder_attention_heads", 8),
                decoder_heads=raw.number("decoder_attention_heads", 8),
                encoder_feed_forward=raw.number("encoder_ffn_embed_dim", 2048),
                decoder_feed_forward=raw.number("decoder_ffn_embed_dim", 2048),
                source_vocabulary=source,
                target_vocabulary=target,
                max_source_positions=lengths["source"],
                max_target_positions=lengths["target"],
                positions="learned" if learned else "fairseq_sinusoidal",
                position_offset=2,
                pre_norm=pre_norm,
                final_norm=final,
                embedding_norm=raw.flag("layernorm_embedding", False),
                activation=raw.choice("activation_fn", ACTIVATIONS, "relu"),  # type: ignore[arg-type]
                embedding_scale=1.0 if raw.flag("no_scale_embedding", False) else width**0.5,
                shared_embeddings=shared,
                tied_output=shared or raw.flag("share_decoder_input_output_embed", False),
                output_bias=False,
            )
        except CheckpointError:
            raise
        except ExportError as error:
            raise CheckpointError(f"the settings in the fairseq checkpoint are of a model that can't be: {error}") from error


def read_settings(loaded: Mapping[str, Any], where: str) -> FairseqSettings:
    """The settings of a loaded file; CheckpointError for what is no Transformer that translates."""
    old, new = plain(loaded.get("args")), plain(loaded.get("cfg"))
    sections = new if isinstance(new, dict) else {}
    model = sections.get("model") if sections else old
    if not isinstance(model, dict):
        raise CheckpointError(f"{where} has neither `args` nor `cfg`: it is not a fairseq checkpoint that can be read")
    architecture = model.get("_name") or model.get("arch")
    if not isinstance(architecture, str) or not architecture.startswith("transformer") or "_lm" in architecture:
        raise CheckpointError(f"{where} is of the architecture {shown(architecture)}; supported is fairseq's transformer")
    task = _section(sections, "task")
    kind = task.get("_name") or model.get("task") or TASK
    if kind != TASK:
        raise CheckpointError(f"{where} was trained on the task {shown(kind)}; supported is {TASK}")
    return FairseqSettings(
        model=JsonSettings(model, "the fairseq checkpoint"),
        task=task,
        tokenizer=_tokenizer(_section(sections, "tokenizer"), model),
        bpe=_section(sections, "bpe"),
        generation=_section(sections, "generation"),
    )


def _tokenizer(section: Mapping[str, Any], model: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of Moses; nothing for texts that are only split at spaces."""
    found = section or (model if model.get("tokenizer") else {})
    name = found.get("_name") or found.get("tokenizer")
    if name not in (None, "space", "moses"):
        raise CheckpointError(f"the tokenizer {shown(name)} of the fairseq checkpoint is not supported; moses and space are")
    return found if name == "moses" else {}


def _section(sections: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = sections.get(name)
    return {"_name": value} if isinstance(value, str) else value if isinstance(value, dict) else {}


def _equal(raw: JsonSettings, name: str, default: bool | int) -> Any:  # noqa: ANN401
    """A setting that must be the same on both sides."""
    read = raw.flag if isinstance(default, bool) else raw.number
    encoder, decoder = (read(f"{side}_{name}", default) for side in ("encoder", "decoder"))  # type: ignore[arg-type]
    if encoder != decoder:
        raise CheckpointError(f"encoder_{name}={encoder} and decoder_{name}={decoder} must be the same")
    return encoder


def _rows(tensors: Mapping[str, Tensor], name: str) -> int:
    if name not in tensors or tensors[name].dim() != 2:
        raise CheckpointError(f"the fairseq checkpoint has no table {name}")
    return int(tensors[name].shape[0])
