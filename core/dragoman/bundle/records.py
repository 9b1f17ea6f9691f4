"""The parts of a manifest, as frozen dataclasses. The allowed ranges are part of the types."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from dragoman.bundle.schema import FILE_NAME, SHA256, Pattern, Range
from dragoman.search.options import DecodingOptions

__all__ = [
    "Alignment",
    "Dimensions",
    "EngineFile",
    "FileRecord",
    "Graph",
    "Languages",
    "Lowering",
    "ModelCard",
    "Name",
    "Precision",
    "Profile",
    "Role",
    "Segmentation",
    "SpecialTokens",
    "StoredTensor",
    "Target",
    "Task",
    "Tasks",
    "TensorSpec",
    "TokenizerFiles",
    "Verification",
    "VerificationCase",
    "Vocabulary",
]

Precision = Literal["fp32", "fp16", "bf16", "int8"]
"""The precision of weights and products. bf16 is for TensorRT: no CPU runtime supports it."""
Lowering = Literal["native", "portable"]
Role = Literal["encoder", "decoder", "forced"]
Target = Literal["cpu", "cuda", "tensorrt"]
Segmentation = Literal["sentence", "line", "none"]
"""What a model takes at a time, as it was trained: sentences, lines, or texts as they are."""
TokenizerKind = Literal["marian", "m2m100", "sentencepiece", "tokenizers", "bytes", "vocabulary", "subword_nmt"]

Width = Annotated[int, Range(1, 1 << 16)]
Layers = Annotated[int, Range(1, 1024)]
Vocabulary = Annotated[int, Range(2, 1 << 24)]
TokenLimit = Annotated[int, Range(1, 1 << 20)]
Token = Annotated[int, Range(0, 1 << 24)]
Count = Annotated[int, Range(0, 1 << 48)]
Bytes = Annotated[int, Range(0, 1 << 48)]
Dimension = Annotated[int, Range(0, 1 << 40)]
Amount = Annotated[float, Range(0.0, 1e12)]
FileName = Annotated[str, FILE_NAME]
Name = Annotated[str, Pattern(r"[^/\\\x00-\x1f\x7f]{1,200}", "a name without slashes and control characters")]
ModelName = Annotated[str, Pattern(r"[^\\\x00-\x1f\x7f]{1,200}", "a name such as owner/model, without control characters")]
DataType = Literal["float32", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "bool"]


@dataclass(frozen=True, slots=True)
class ModelCard:
    """The model's name, architecture, size and languages."""

    name: ModelName
    architecture: str
    parameters: Count
    source_language: str | None = None
    target_language: str | None = None


@dataclass(frozen=True, slots=True)
class Dimensions:
    """The sizes that a runtime needs to lay out its caches.

    `shortlist`: how many tokens of the target vocabulary the model may generate; None when it may generate all.
    """

    d_model: Width
    heads: Width
    head_dim: Width
    encoder_layers: Layers
    decoder_layers: Layers
    source_vocabulary: Vocabulary
    target_vocabulary: Vocabulary
    max_source_tokens: TokenLimit
    max_target_tokens: TokenLimit
    shortlist: Vocabulary | None = None

    @property
    def choices(self) -> int:
        """How many tokens a step chooses among."""
        return self.target_vocabulary if self.shortlist is None else self.shortlist


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """Ids that mean something to the search. `other_eos`: tokens that end a translation as `eos` does."""

    pad: Token
    eos: Token
    decoder_start: Token
    unknown: Token | None = None
    other_eos: tuple[Token, ...] = ()

    @property
    def ends(self) -> tuple[int, ...]:
        """Every token that ends a translation."""
        return self.eos, *self.other_eos


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """How text becomes ids: the kind of tokenizer, its files in the bundle, and the ids around every source.

    `silent`: ids that have no text: special tokens, languages, rows of the embedding that no piece names.
    """

    kind: TokenizerKind
    files: dict[str, FileName]
    settings: dict[str, str] = field(default_factory=dict)
    source_prefix: tuple[Token, ...] = ()
    source_suffix: tuple[Token, ...] = ()
    silent: tuple[Token, ...] = ()


@dataclass(frozen=True, slots=True)
class Languages:
    """The languages of a multilingual model, and what their tokens do.

    `source_place`: where the source language's token stands in the source. `target_place`: the target language's token is
    the forced first token of the target, the token that the decoder starts from, or stands before the source text.
    """

    tokens: dict[Name, Token]
    source_place: Literal["before", "after", "none"]
    target_place: Literal["forced_bos", "decoder_start", "source_before"]
    default_source: Name | None = None
    default_target: Name | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """One task of a model: the prefix of each text, and the search settings."""

    prefix: str
    generation: DecodingOptions


@dataclass(frozen=True, slots=True)
class Tasks:
    """`default_prefix` stands before the text of every request that asks for nothing else."""

    default_prefix: str = ""
    named: dict[Name, Task] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output: a dimension is a number, or a name when it varies."""

    name: str
    dtype: DataType
    shape: tuple[Dimension | Name, ...]


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A weight and where it lies: `shape` and `dtype` give its length."""

    name: str
    dtype: DataType
    shape: tuple[Dimension, ...]
    file: FileName
    offset: Bytes


@dataclass(frozen=True, slots=True)
class Graph:
    """One ONNX file.

    `max_candidates`: the most next tokens that a step may request; None when the graph takes any `candidates`,
    else the number is fixed in the graph and the input does not exist.
    `large_weights`: the weights of a megabyte and more. What several graphs hold, a runtime needs in memory only once.
    """

    role: Role
    lowering: Lowering
    file: FileName
    opset: Annotated[int, Range(1, 1000)]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    max_candidates: Vocabulary | None = None
    large_weights: tuple[StoredTensor, ...] = ()


@dataclass(frozen=True, slots=True)
class Alignment:
    """How the graphs of forced decoding align: the average attention of some heads of the cross-attention.

    `when`: a token's attention is that of the row in which it is fed, or of the row before, in which it is predicted.
    `agreement`: the share of `links`, a source and a target token that depends on it, that the heads find on real text;
    None when there was too little text to choose by.
    """

    heads: tuple[tuple[Count, ...], ...]  # (layer, head) each
    when: Literal["fed", "predicted"]
    agreement: float | None = None
    links: Count = 0


@dataclass(frozen=True, slots=True)
class Profile:
    """The smallest, usual and largest shape of each input an engine was built for."""

    name: str
    minimum: dict[str, tuple[Dimension, ...]]
    usual: dict[str, tuple[Dimension, ...]]
    maximum: dict[str, tuple[Dimension, ...]]


@dataclass(frozen=True, slots=True)
class EngineFile:
    """One TensorRT engine file."""

    role: Role
    file: FileName
    flavour: Literal["tensorrt", "tensorrt_rtx"]
    version: str
    precision: Precision
    compute_capabilities: tuple[str, ...]
    profiles: tuple[Profile, ...]
    build_seconds: Amount


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A file of the bundle and what it must hash to."""

    sha256: Annotated[str, SHA256]
    bytes: Bytes


@dataclass(frozen=True, slots=True)
class VerificationCase:
    """One way the exported graphs were run beside the original.

    `ties`: sentences that differ only where the original itself finds both answers equally good to fp32 rounding.
    """

    name: str
    lowering: Lowering
    sentences: Count
    identical: Count
    tokens: Count
    worst_log_prob_difference: Amount
    ties: Count = 0
    bleu: float | None = None
    chrf: float | None = None
    quality_loss: float = 0.0


@dataclass(frozen=True, slots=True)
class Verification:
    """What the check against the original model found."""

    reference: str
    scored_against: Literal["references", "original"]
    max_quality_loss: float
    quality_loss: float
    cases: tuple[VerificationCase, ...]
