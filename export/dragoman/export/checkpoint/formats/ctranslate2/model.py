"""Maps the variables of a CTranslate2 model to the Transformer: its configuration, and the place of each weight."""

from __future__ import annotations

import re
from typing import Any

from dragoman.errors import CheckpointError, ExportError
from dragoman.export.checkpoint.formats.ctranslate2.binary import ModelBinary, Variable
from dragoman.export.checkpoint.formats.ctranslate2.weights import Place
from dragoman.export.checkpoint.limits import DEFAULT_TOKENS, TokenLimits
from dragoman.export.transformer import TransformerConfig
from dragoman.export.transformer.config import Activation

__all__ = ["CTranslate2Model"]

ACTIVATIONS: dict[int, Activation] = {0: "relu", 1: "gelu_tanh", 2: "silu", 3: "gelu", 4: "gelu_sigmoid"}
SIDES = ("encoder", "decoder")

SETTINGS = re.compile(
    r"(en|de)coder/(num_heads|pre_norm|activation|scale_embeddings|embeddings_merge|scale_outputs|alibi|multi_query_attention"
    r"|alibi_use_positive_positions|scale_alibi|alignment_layer|alignment_heads|start_from_zero_embedding)"
    r"|(en|de)coder/layer_\d+/(self_)?attention/(queries_scale|relative_attention_max_distance)"
)
"""Variables that are settings. Any other variable that is no known weight is refused: it would change the mathematics."""

LAYER = (
    (r"self_attention/layer_norm/", "self_attention_norm."),
    (r"attention/layer_norm/", "cross_attention_norm."),
    (r"ffn/layer_norm/", "feed_forward_norm."),
    (r"self_attention/linear_1/", "self_attention.output."),
    (r"attention/linear_0/", "cross_attention.query."),
    (r"attention/linear_2/", "cross_attention.output."),
    (r"ffn/linear_1/", "feed_forward.outer."),
)
STACKED: dict[str, tuple[str, tuple[str, ...]]] = {
    "self_attention/linear_0/": ("self_attention", ("query", "key", "value")),
    "attention/linear_1/": ("cross_attention", ("key", "value")),
}
LEAVES = {"weight": "weight", "bias": "bias", "gamma": "weight", "beta": "bias"}


class CTranslate2Model:
    """Reads the settings of a model.bin; an unsupported setting is refused by name."""

    def __init__(self, binary: ModelBinary, layer_norm_epsilon: float | None) -> None:
        self._binary, self._epsilon = binary, layer_norm_epsilon
        if binary.scalar("decoder/alibi", 0):
            raise CheckpointError("decoder/alibi is not supported: positions as a slope of the attention scores")
        self.starts_from_zero = bool(binary.scalar("decoder/start_from_zero_embedding", 0))
        self._source, self._target = self._embedding("encoder"), self._embedding("decoder")
        self._projection = self._need("decoder/projection/weight")
        self._layers = [self._count(side) for side in SIDES]

    @property
    def source_rows(self) -> int:
        """Words that the source vocabulary must name."""
        return self._source.shape[0]

    @property
    def target_rows(self) -> int:
        """Words that the target vocabulary must name."""
        return self._target.shape[0]

    @property
    def shares_embeddings(self) -> bool:
        """Source and target have one table."""
        return self._source is self._target

    def config(self, limits: TokenLimits) -> TransformerConfig:
        """The TransformerConfig of the model."""
        find = self._binary.find
        extra = int(self.starts_from_zero)  # the decoder starts from a row of zeros at the end of its embedding
        first = [f"{side}/layer_0" for side in SIDES]
        width = self._source.shape[1]
        fused = self._need("encoder/layer_0/self_attention/linear_0/weight")
        norm = find("encoder/layer_0/self_attention/layer_norm/beta")
        has_bias = [find(f"{one}/self_attention/linear_0/bias") is not None for one in first]
        ffn_bias = [find(f"{one}/ffn/linear_0/bias") is not None for one in first]
        try:
            return TransformerConfig(
                d_model=width,
                encoder_layers=self._layers[0],
                decoder_layers=self._layers[1],
                encoder_heads=self._setting("encoder", "num_heads", 8),
                decoder_heads=self._setting("decoder", "num_heads", 8),
                encoder_feed_forward=self._need("encoder/layer_0/ffn/linear_0/weight").shape[0],
                decoder_feed_forward=self._need("decoder/layer_0/ffn/linear_0/weight").shape[0],
                source_vocabulary=self.source_rows + (extra if self.shares_embeddings else 0),
                target_vocabulary=self.target_rows + extra,
                attention_width=fused.shape[0] // 3,
                pre_norm=bool(self._common("pre_norm", 1)),
                norm="rms" if norm is None else "layer",
                norm_epsilon=self._epsilon or (1e-6 if norm is None else 1e-5),
                embedding_norm=self._both("layernorm_embedding/gamma"),
                final_norm=self._both("layer_norm/gamma"),
                activation=self._activation(),
                gated=find("encoder/layer_0/ffn/linear_0_noact/weight") is not None,
                attention_bias=any(has_bias),
                feed_forward_bias=any(ffn_bias),
                attention_scale=self._attention_scale(),
                embedding_scale=self._embedding_scale(width),
                shared_embeddings=self.shares_embeddings,
                tied_output=self._projection is self._target,
                output_bias=bool(extra) or find("decoder/projection/bias") is not None,
                output_scale=self._binary.scalar("decoder/scale_outputs") or 1.0,
                **self._positions(limits),
            )
        except CheckpointError:
            raise
        except (ExportError, ZeroDivisionError) as error:
            raise CheckpointError(f"model.bin describes a model that can't be: {error}") from error

    def places(self) -> dict[str, Place]:
        """Where each weight is; CheckpointError names variables that are no weights."""
        extra, relative = self.starts_from_zero, self._relative_tables()
        found = {"source_embedding.weight": Place(self._source, zero_row=extra and self.shares_embeddings)}
        if not self.shares_embeddings:
            found["target_embedding.weight"] = Place(self._target, zero_row=extra)
        if self._projection is not self._target:
            found["output.weight"] = Place(self._projection, zero_row=extra)
        if (bias := self._binary.find("decoder/projection/bias")) is not None:
            found["output.bias"] = Place(bias, closed_row=extra)
        for side in SIDES:
            for at, table in enumerate(relative[side]):
                found[f"{side}.relative_biases.{at}.weight"] = Place(table)
        for name in (*self._binary.variables, *self._binary.aliases):
            found.update(self._weights_in(name))
        return found

    def _weights_in(self, name: str) -> dict[str, Place]:
        variable = self._need(name)
        side, _, rest = name.partition("/")
        if name.endswith("_scale") and name.removesuffix("_scale") in self._binary.variables:
            return {}
        if re.fullmatch(r"(embeddings(_0)?|projection)/\w+", rest) or rest.endswith("/relative_attention_bias"):
            return {}
        if SETTINGS.fullmatch(name):
            return {}
        top = {"layernorm_embedding": "embedding_norm", "layer_norm": "final_norm"}
        module, _, leaf = rest.rpartition("/")
        if rest == "position_encodings/encodings":
            return {f"{side}.positions.weight": Place(variable)}
        if module in top and leaf in LEAVES:
            return {f"{side}.{top[module]}.{LEAVES[leaf]}": Place(variable)}
        match = re.fullmatch(r"layer_(\d+)/(.+)/(\w+)", rest)
        if side not in SIDES or match is None or match[3] not in LEAVES:
            raise CheckpointError(f"{name} in model.bin is not supported: dragoman has no such weight")
        return self._layer_weights(f"{side}.layers.{int(match[1])}", f"{match[2]}/", LEAVES[match[3]], variable)

    def _layer_weights(self, layer: str, module: str, leaf: str, variable: Variable) -> dict[str, Place]:
        if module in STACKED:
            attention, names = STACKED[module]
            return {f"{layer}.{attention}.{name}.{leaf}": Place(variable, at, len(names)) for at, name in enumerate(names)}
        gated = self._binary.find("encoder/layer_0/ffn/linear_0_noact/weight") is not None
        renamed = dict(LAYER) | {"ffn/linear_0/": f"feed_forward.{'gate' if gated else 'inner'}."}
        renamed["ffn/linear_0_noact/"] = "feed_forward.inner."
        if module not in renamed:
            raise CheckpointError(f"{variable.name} in model.bin is not supported: dragoman has no such weight")
        return {f"{layer}.{renamed[module]}{leaf}": Place(variable)}

    def _need(self, name: str) -> Variable:
        variable = self._binary.find(name)
        if variable is None or (name.endswith("/weight") and len(variable.shape) != 2):
            what = "missing" if variable is None else f"{list(variable.shape)}, not a matrix"
            raise CheckpointError(f"model.bin is not a whole Transformer: {name} is {what}")
        return variable

    def _embedding(self, side: str) -> Variable:
        if self._binary.find(f"{side}/embeddings_1/weight") is not None:
            raise CheckpointError(f"{side}/embeddings_1 in model.bin is not supported: dragoman has no source features")
        old = f"{side}/embeddings/weight"
        return self._need(old if self._binary.find(old) is not None else f"{side}/embeddings_0/weight")

    def _count(self, side: str) -> int:
        names = (*self._binary.variables, *self._binary.aliases)
        layers = {int(match[1]) for name in names if (match := re.match(rf"{side}/layer_(\d{{1,6}})/", name))}
        if layers != set(range(len(layers))):
            raise CheckpointError(f"model.bin is not a whole Transformer: layers of the {side} are missing")
        return len(layers)

    def _setting(self, side: str, name: str, default: int) -> int:
        """Older revisions have it once for both sides."""
        value = self._binary.scalar(f"{side}/{name}", self._binary.scalar(name, default))
        return default if value is None else int(value)

    def _common(self, name: str, default: int) -> int:
        values = {self._setting(side, name, default) for side in SIDES}
        if len(values) > 1:
            raise CheckpointError(f"model.bin is not supported: encoder and decoder have different {name}")
        return values.pop()

    def _both(self, name: str) -> bool:
        there = [self._binary.find(f"{side}/{name}") is not None for side in SIDES]
        if any(there) != all(there):
            raise CheckpointError(f"model.bin is not supported: only one of encoder and decoder has {name}")
        return all(there)

    def _activation(self) -> Activation:
        code = self._common("activation", 0)
        if code not in ACTIVATIONS:
            raise CheckpointError(f"the activation {code} in model.bin is not supported (supported: {sorted(ACTIVATIONS)})")
        return ACTIVATIONS[code]

    def _attention_scale(self) -> float | None:
        scales = {
            self._binary.scalar(name)
            for name in (*self._binary.variables, *self._binary.aliases)
            if name.endswith("attention/queries_scale")
        }
        if len(scales) > 1:
            raise CheckpointError("model.bin is not supported: its layers have different queries_scale")
        return scales.pop() if scales else None

    def _embedding_scale(self, width: int) -> float:
        """A flag, or the factor itself; without either it is scaled."""
        scales = set()
        for side in SIDES:
            variable = self._binary.find(f"{side}/scale_embeddings") or self._binary.find(
                f"{side}/embeddings/multiply_by_sqrt_depth"
            )
            value = 1.0 if variable is None else self._binary.scalar(variable.name, 0.0) or 0.0
            if variable is None or variable.dtype == "int8":
                scales.add(width**0.5 if value else 1.0)
            else:
                scales.add(value)
        if len(scales) > 1:
            raise CheckpointError("model.bin is not supported: encoder and decoder scale their embeddings differently")
        return scales.pop()

    def _positions(self, limits: TokenLimits) -> dict[str, Any]:
        """A stored table begins at the first position; where none is stored they are fairseq's sinusoids from 1 on."""
        source, target = (self._binary.find(f"{side}/position_encodings/encodings") for side in SIDES)
        open_ended = {
            "max_source_positions": limits.max_source_tokens or DEFAULT_TOKENS,
            "max_target_positions": limits.max_target_tokens or DEFAULT_TOKENS,
        }
        tables = [table for one in self._relative_tables().values() for table in one]
        if tables:
            distances = {
                self._binary.scalar(f"{side}/layer_0/self_attention/relative_attention_max_distance") for side in SIDES
            }
            if len({table.shape for table in tables}) > 1 or len(distances) > 1 or None in distances:
                raise CheckpointError(
                    "model.bin is not supported: its relative positions differ between encoder and decoder"
                )
            return {
                **open_ended,
                "positions": "relative",
                "relative_buckets": tables[0].shape[0],
                "relative_max_distance": int(distances.pop() or 0),
                "relative_per_layer": all(len(one) > 1 for one in self._relative_tables().values()),
            }
        if source is None and target is None:
            return {**open_ended, "positions": "fairseq_sinusoidal", "position_offset": 1}
        if source is None or target is None:
            raise CheckpointError("model.bin is not supported: only one of encoder and decoder has position_encodings")
        rows = {"max_source_positions": source.shape[0], "max_target_positions": target.shape[0]}
        return {**rows, "positions": "learned"}

    def _relative_tables(self) -> dict[str, list[Variable]]:
        """One table for all layers of a side, or one for each."""
        found: dict[str, list[Variable]] = {}
        for side, layers in zip(SIDES, self._layers, strict=True):
            names = [f"{side}/layer_{at}/self_attention/relative_attention_bias" for at in range(layers)]
            tables = [table for name in names if (table := self._binary.find(name)) is not None]
            distinct = len({table.name for table in tables})
            found[side] = tables if distinct > 1 else tables[:1]
        return found
