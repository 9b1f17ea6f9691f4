"""Marian's Transformer as a TransformerConfig, and its weights under the names of the Transformer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch
from torch import Tensor

from dragoman.errors import CheckpointError, ExportError
from dragoman.export.checkpoint.formats.marian.arrays import SETTINGS, MarianArrays
from dragoman.export.checkpoint.formats.marian.yaml import MarianSettings
from dragoman.export.checkpoint.limits import DEFAULT_TOKENS, TokenLimits
from dragoman.export.checkpoint.renaming import Rules, renamed
from dragoman.export.transformer import TransformerConfig
from dragoman.export.transformer.config import Activation

__all__ = ["MarianNames", "MarianWeights", "model_config"]

ACTIVATIONS: Mapping[str, Activation] = {"relu": "relu", "swish": "silu", "gelu": "gelu_sigmoid"}
NORMS = {("", "an", ""): (False, False), ("n", "a", "n"): (True, True), ("n", "a", ""): (True, False)}
"""(preprocess, postprocess, top) without dropout: pre-norm, and a norm after the last layer."""
REFUSED: Mapping[str, tuple[str, ...]] = {
    "transformer-no-projection": ("", "false"),
    "transformer-aan": ("", "false"),
    "transformer-train-position-embeddings": ("", "false"),
    "transformer-no-bias": ("", "false"),
    "transformer-no-affine": ("", "false"),
    "transformer-disable-position-embeddings": ("", "false"),
    "factors-combine": ("", "sum"),
    "lemma-dim-emb": ("", "0"),
    "ulr": ("", "false"),
}
SSRU = (
    "is an SSRU: its decoder keeps a state instead of a cache, which dragoman does not have. Such students of Bergamot and "
    "Firefox can't be exported; use the model that it was trained from (a Marian Transformer with "
    "transformer-decoder-autoreg: self-attention, e.g. OPUS-MT), which an int8 export makes fast"
)

RENAMED: Rules = (
    (r"^(en|de)coder\.layers\.(\d+)\.", lambda found: f"{found[1]}coder_l{int(found[2]) + 1}_"),
    (r"self_attention_norm\.", "self_Wo_ln_"),
    (r"cross_attention_norm\.", "context_Wo_ln_"),
    (r"feed_forward_norm\.", "ffn_ffn_ln_"),
    (r"self_attention\.", "self_"),
    (r"cross_attention\.", "context_"),
    (r"feed_forward\.inner\.(weight|bias)", lambda found: f"ffn_{found[1][0]}1"),
    (r"feed_forward\.outer\.(weight|bias)", lambda found: f"ffn_{found[1][0]}2"),
    (r"(query|key|value|output)\.(weight|bias)", lambda found: f"{found[2][0]}{found[1][0]}"),
    (r"coder\.final_norm\.", "coder_top_ln_"),
)


def model_config(settings: MarianSettings, arrays: MarianArrays, limits: TokenLimits) -> TransformerConfig:
    """The TransformerConfig; CheckpointError for unsupported computations."""
    kind = settings.text("type")
    if kind != "transformer":
        raise CheckpointError(f"type {kind!r} in {settings.file} is not supported; transformer is")
    autoregression = settings.text("transformer-decoder-autoreg", "self-attention")
    if autoregression == "rnn":
        raise CheckpointError(f"{arrays.path} {SSRU}")
    if autoregression != "self-attention":
        raise CheckpointError(f"transformer-decoder-autoreg {autoregression!r} in {settings.file} is not supported")
    for name, neutral in REFUSED.items():
        if (value := settings.text(name)) not in neutral:
            raise CheckpointError(f"{name}: {value[:60]} in {settings.file} is not supported")
    if settings.texts("transformer-tied-layers"):
        raise CheckpointError(f"transformer-tied-layers in {settings.file} is not supported")
    pre_norm, final_norm = _norms(settings)
    width, heads = settings.number("dim-emb"), settings.number("transformer-heads", 8)
    inner = settings.number("transformer-dim-ffn", 2048)
    for name in ("transformer-ffn-depth", "transformer-decoder-ffn-depth"):
        if settings.text(name, "2") not in ("2", "0"):
            raise CheckpointError(f"{name}: {settings.text(name)[:20]} in {settings.file} is not supported; 2 is")
    shared = "Wemb" in arrays
    source, target = (_rows(arrays, "Wemb" if shared else f"{side}_Wemb") for side in ("encoder", "decoder"))
    try:
        return TransformerConfig(
            d_model=width,
            encoder_layers=settings.number("enc-depth"),
            decoder_layers=settings.number("dec-depth"),
            encoder_heads=heads,
            decoder_heads=settings.number("transformer-decoder-heads", heads),
            encoder_feed_forward=inner,
            decoder_feed_forward=int(settings.text("transformer-decoder-dim-ffn", "0") or 0) or inner,
            source_vocabulary=source + shared,
            target_vocabulary=target + 1,  # the last row is the zeros that the decoder starts from
            max_source_positions=max(DEFAULT_TOKENS, limits.max_source_tokens or 0),
            max_target_positions=max(DEFAULT_TOKENS, limits.max_target_tokens or 0),
            positions="fairseq_sinusoidal",
            pre_norm=pre_norm,
            final_norm=final_norm,
            norm_epsilon=1e-6,
            activation=_activation(settings),
            embedding_scale=width**0.5,
            shared_embeddings=shared,
            tied_output=not any(name in arrays for name in ("decoder_ff_logit_out_W", "decoder_ff_logit_out_Wt")),
        )
    except CheckpointError:
        raise
    except (ExportError, ValueError) as error:
        raise CheckpointError(f"{settings.file} describes a model that can't be: {error}") from error


def _norms(settings: MarianSettings) -> tuple[bool, bool]:
    names = ("transformer-preprocess", "transformer-postprocess", "transformer-postprocess-top")
    before, after, top = (
        settings.text(name, default).replace("d", "") for name, default in zip(names, ("", "dan", ""), strict=True)
    )
    if settings.text("transformer-postprocess-emb", "d").replace("d", ""):
        raise CheckpointError(f"transformer-postprocess-emb in {settings.file} is not supported, except d")
    if (before, after, top) not in NORMS:
        listed = ", ".join(f"{name}: {settings.text(name) or '(none)'}" for name in names)
        raise CheckpointError(
            f"the norms in {settings.file} are not supported ({listed}); post-norm (dan) and pre-norm (n, da) are"
        )
    return NORMS[before, after, top]


def _activation(settings: MarianSettings) -> Activation:
    name = settings.text("transformer-ffn-activation", "swish")
    if name not in ACTIVATIONS:
        raise CheckpointError(
            f"transformer-ffn-activation {name[:20]!r} in {settings.file} is not known ({', '.join(ACTIVATIONS)})"
        )
    return ACTIVATIONS[name]


def _rows(arrays: MarianArrays, name: str) -> int:
    if name not in arrays or arrays[name].ndim != 2:
        raise CheckpointError(f"{arrays.path} has no embedding {name}")
    return int(arrays[name].shape[0])


class MarianNames:
    """Where our weights are in the file."""

    def __init__(self, config: TransformerConfig) -> None:
        self._pre = config.pre_norm
        self._shared = config.shared_embeddings

    def weight_names(self, ours: str) -> tuple[str, ...]:
        """Names of the file."""
        special = {
            "source_embedding.weight": ("Wemb" if self._shared else "encoder_Wemb",),
            "target_embedding.weight": ("decoder_Wemb",),
            "output.weight": ("decoder_ff_logit_out_Wt", "decoder_ff_logit_out_W"),
            "output.bias": ("decoder_ff_logit_out_b",),
        }
        if ours in special:
            return special[ours]
        name = renamed(ours, RENAMED)
        if "_ln_" in name:
            name = name.replace("_ln_weight", "_ln_scale")
            return (f"{name}_pre" if self._pre and "_top_" not in name else name,)
        return (re.sub(r"_w(\w)$", r"_W\1", name),)

    def is_optional(self, ours: str) -> bool:  # noqa: ARG002 - the bias of the logits is made up where it is missing
        """Nothing is."""
        return False

    def is_ignored(self, theirs: str) -> bool:
        """Settings, and the scales that int8 activations were calibrated to."""
        return theirs.startswith("special:") or theirs.endswith(("_QuantMultA", "_QuantMultB"))


class MarianWeights(Mapping[str, Tensor]):
    """Linear weights (outputs, inputs), vectors without their first dimension, and the row of zeros to start from."""

    def __init__(self, arrays: MarianArrays, config: TransformerConfig) -> None:
        self._arrays = arrays
        self._zeros = {"Wemb", "decoder_Wemb"} if not config.shared_embeddings else {"Wemb"}
        self._vocabulary = config.target_vocabulary
        self._special: dict[str, Callable[[str], Tensor]] = {"decoder_ff_logit_out_b": self._logit_bias}
        self._names = [*arrays, *([] if "decoder_ff_logit_out_b" in arrays else ["decoder_ff_logit_out_b"])]

    def __getitem__(self, name: str) -> Tensor:
        if name in self._special:
            return self._special[name](name)
        tensor = self._tensor(name)
        if name in self._zeros or name == "decoder_ff_logit_out_Wt":
            return torch.cat([tensor, tensor.new_zeros(1, tensor.shape[-1])])
        if tensor.dim() == 2 and tensor.shape[0] == 1 and not name.startswith("special:"):
            return tensor[0]
        if re.search(r"_W[qkvo12]?$", name) is not None and tensor.dim() == 2:
            turned = tensor if self._arrays.is_transposed(name) else tensor.t()
            is_output = name == "decoder_ff_logit_out_W"
            return torch.cat([turned, turned.new_zeros(1, turned.shape[-1])]) if is_output else turned
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def _tensor(self, name: str) -> Tensor:
        array = self._arrays[name]
        return torch.from_numpy(array if name == SETTINGS else np.asarray(array, dtype=np.float32))

    def _logit_bias(self, name: str) -> Tensor:
        """The row that is never a token has −∞."""
        stored = self._tensor(name).reshape(-1) if name in self._arrays else torch.zeros(self._vocabulary - 1)
        return torch.cat([stored, torch.full((1,), -torch.inf)])
