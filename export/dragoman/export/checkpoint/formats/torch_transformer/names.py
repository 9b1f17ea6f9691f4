"""torch's names for the weights of its Transformer, and the errors of descriptions that do not fit a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor

from dragoman.errors import CheckpointError
from dragoman.export.checkpoint.formats.description import Description, closest
from dragoman.export.checkpoint.renaming import Rules, renamed

__all__ = ["TorchNames", "read_names"]

RENAMED: Rules = (
    (r"^encoder\.layers\.(\d+)\.feed_forward_norm", r"encoder.layers.\1.norm2"),
    (r"\.self_attention_norm\b", ".norm1"),
    (r"\.cross_attention_norm\b", ".norm2"),
    (r"\.feed_forward_norm\b", ".norm3"),
    (r"\.final_norm\b", ".norm"),
    (r"\.self_attention\b", ".self_attn"),
    (r"\.cross_attention\b", ".multihead_attn"),
    (r"\.feed_forward\.inner\b", ".linear1"),
    (r"\.feed_forward\.outer\b", ".linear2"),
    (r"_attn\.output\b", "_attn.out_proj"),
    (r"\.(query|key|value)\.", lambda match: f".{match[1][0]}_proj."),
)
LISTED = 12


@dataclass(frozen=True, slots=True)
class TorchNames:
    """The names that a description gives; those of the layers are torch's own."""

    encoder: str  # prefixes, with their dot
    decoder: str
    source_embedding: str
    target_embedding: str
    output_weight: str
    output_bias: str | None
    source_positions: str  # made up where positions are computed
    target_positions: str
    ignored: frozenset[str]

    def weight_names(self, ours: str) -> tuple[str, ...]:
        """The one name of our weight."""
        special = {
            "source_embedding.weight": self.source_embedding,
            "target_embedding.weight": self.target_embedding,
            "output.weight": self.output_weight,
            "output.bias": self.output_bias or "",
            "encoder.positions.weight": self.source_positions,
            "decoder.positions.weight": self.target_positions,
        }
        if ours in special:
            return (special[ours],)
        name = renamed(ours, RENAMED)
        side, _, rest = name.partition(".")
        return ((self.encoder if side == "encoder" else self.decoder) + rest,)

    def is_optional(self, ours: str) -> bool:
        """A Transformer made with bias=False has norms without biases; ours are zero then."""
        return "norm" in ours and ours.endswith(".bias")

    def is_ignored(self, theirs: str) -> bool:
        """Whether the description leaves it out."""
        return theirs in self.ignored

    def named(self) -> dict[str, str]:
        """The keys that the description names, with the settings that name them."""
        named = {
            "source_embedding": self.source_embedding,
            "target_embedding": self.target_embedding,
            "output.weight": self.output_weight,
            "positions": self.source_positions,
            "target_positions": self.target_positions,
        }
        return named | ({"output.bias": self.output_bias} if self.output_bias is not None else {})

    def check(self, tensors: Mapping[str, Tensor], where: str, file: str) -> None:
        """CheckpointError: keys of the description that the file lacks, keys of the file that nothing names, the closest."""
        matched = {key for key in tensors if self._matches(key) or key in self.ignored}
        left = sorted(set(tensors) - matched)
        problems = list(self._missing(tensors, left))
        if not problems and not left:
            return
        problems += [f"not matched: {key} {list(tensors[key].shape)}" for key in left[:LISTED]]
        problems += [f"… and {len(left) - LISTED} more"] if len(left) > LISTED else []
        raise CheckpointError(
            f"{where} does not describe {file}; correct the names, or list what the model does not use in 'ignored':\n  "
            + "\n  ".join(problems)
        )

    def _matches(self, key: str) -> bool:
        return key.startswith((self.encoder, self.decoder)) or key in self.named().values()

    def _missing(self, tensors: Mapping[str, Tensor], left: list[str]) -> Iterator[str]:
        for setting, key in self.named().items():
            if key not in tensors:
                yield f"missing: {key} ({setting}){closest(key, left or tensors)}"
        for setting, prefix in (("encoder", self.encoder), ("decoder", self.decoder)):
            first = f"{prefix}layers.0.linear1.weight"
            if first not in tensors:
                yield f"missing: {first} (prefix or {setting}){closest(first, self._firsts(tensors))}"

    @staticmethod
    def _firsts(tensors: Iterable[str]) -> list[str]:
        return [key for key in tensors if key.endswith("layers.0.linear1.weight")]


def read_names(description: Description) -> TorchNames:
    """The names in a description."""
    prefix = _dotted(description.text("prefix", "") or "")
    source = description.required("source_embedding")
    target = description.text("target_embedding", source) or source
    output = description.section("output")
    positions = description.section("positions", required=False)
    stored = positions.text("weight")
    ignored = description.raw("ignored", [])
    if not isinstance(ignored, list) or not all(isinstance(key, str) for key in ignored):
        raise CheckpointError(f"{description.where} must give 'ignored' as a list of names")
    return TorchNames(
        encoder=_dotted(description.text("encoder") or f"{prefix}encoder"),
        decoder=_dotted(description.text("decoder") or f"{prefix}decoder"),
        source_embedding=source,
        target_embedding=target,
        output_weight=output.required("weight"),
        output_bias=output.text("bias"),
        source_positions=stored or COMPUTED,
        target_positions=positions.text("target_weight", stored) or COMPUTED,
        ignored=frozenset(ignored),
    )


COMPUTED = "(computed positions)"


def _dotted(prefix: str) -> str:
    return prefix if not prefix or prefix.endswith(".") else f"{prefix}."
