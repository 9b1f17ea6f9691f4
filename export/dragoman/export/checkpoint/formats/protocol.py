"""The interface of a source format, and the result of opening a checkpoint of any format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from torch import Tensor

from dragoman.bundle.manifest import SpecialTokens, Task
from dragoman.export.checkpoint.limits import TokenLimits
from dragoman.export.checkpoint.tokenizer_plan import TokenizerPlan
from dragoman.export.checkpoint.weights import WeightNames
from dragoman.export.transformer import TransformerConfig
from dragoman.search.options import DecodingOptions

__all__ = ["CompanionFiles", "OpenedSource", "Reference", "SourceFormat"]


@dataclass(frozen=True, slots=True)
class CompanionFiles:
    """Files that belong to a checkpoint but are not part of it; a format that finds its own needs none.

    `dictionaries`: a directory with dict.*.txt. `sentencepiece`: one model for both sides, or the source's and the target's.
    `moses`: the languages in which texts went through Moses's tokenizer ("en-de"), or "none".
    """

    dictionaries: Path | None = None
    bpe_codes: Path | None = None
    sentencepiece: tuple[Path, ...] = ()
    moses: str | None = None


@dataclass(frozen=True, slots=True)
class Reference:
    """An independent implementation that runs the same files: the reference of the verification."""

    library: Literal["transformers", "ctranslate2", "torch"]
    path: Path


@dataclass(frozen=True, slots=True)
class OpenedSource:
    """A trained model as its format describes it. No tensor of `weights` is in memory until it is requested."""

    name: str
    architecture: str
    config: TransformerConfig
    weights: Mapping[str, Tensor]
    weight_names: WeightNames
    tokens: SpecialTokens
    generation: DecodingOptions
    tokenizer_plan: TokenizerPlan
    tasks: Mapping[str, Task] = field(default_factory=dict)
    reference: Reference | None = None  # None: dragoman's own module is the reference
    files: object = None  # holds temporary files, deleted with it


class SourceFormat(Protocol):
    """One way of storing a trained model."""

    name: str
    """As --format spells it."""
    looks_for: str
    """What it is recognised by, for whoever has a path that no format recognises."""

    def recognises(self, source: Path) -> bool:
        """Whether `source`, a file or a directory that exists, has this format. It reads no more than a header."""

    def open(self, source: Path, limits: TokenLimits, companions: CompanionFiles) -> OpenedSource:
        """The model in `source`; CheckpointError says what is wrong with it."""
