"""fairseq's names for the weights of its Transformer; old versions stacked the projections and numbered the norms."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from dragoman.export.checkpoint.formats.stacked import unstacked
from dragoman.export.checkpoint.renaming import BART, renamed

__all__ = ["FairseqNames", "modernised"]

IGNORED = re.compile(r"(en|de)coder\.(version|embed_positions\._float_tensor)")
OLD_NORMS = {
    "encoder": ("self_attn_layer_norm", "final_layer_norm"),
    "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}


@dataclass(frozen=True, slots=True)
class FairseqNames:
    """One embedding or two, and an output projection that may be the target's."""

    shared_embeddings: bool
    tied_output: bool

    def weight_names(self, ours: str) -> tuple[str, ...]:
        """Where fairseq keeps our weight; the copies of a shared one must agree."""
        output = ("decoder.output_projection.weight", "decoder.embed_out")
        target = ("decoder.embed_tokens.weight", *(output if self.tied_output else ()))
        if ours == "source_embedding.weight":
            return ("encoder.embed_tokens.weight", *(target if self.shared_embeddings else ()))
        if ours == "target_embedding.weight":
            return target
        if ours == "output.weight":
            return output
        return (renamed(ours, BART),)

    def is_optional(self, ours: str) -> bool:  # noqa: ARG002 - fairseq writes everything
        """Nothing is."""
        return False

    def is_ignored(self, theirs: str) -> bool:
        """Numbers of versions, and a buffer that only knows the type of the weights."""
        return IGNORED.fullmatch(theirs) is not None


def modernised(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights of any version under the current names."""
    return {_norm_named(name): tensor for name, tensor in unstacked(tensors).items()}


def _norm_named(name: str) -> str:
    found = re.fullmatch(r"(encoder|decoder)(\.layers\.\d+\.)layer_norms\.(\d)(\..*)", name)
    if found is None or int(found[3]) >= len(OLD_NORMS[found[1]]):
        return name
    return f"{found[1]}{found[2]}{OLD_NORMS[found[1]][int(found[3])]}{found[4]}"
