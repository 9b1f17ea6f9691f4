"""`manifest.json`: what a bundle holds, as frozen dataclasses that read and write themselves.

Export writes it, serving and the client read it; this module is the only place that knows its spelling.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, Union

from dragoman.errors import BundleError
from dragoman.search.options import DecodingOptions

__all__ = [
    "MANIFEST_NAME",
    "SCHEMA_VERSION",
    "Dimensions",
    "Engine",
    "FileRecord",
    "Graph",
    "Lowering",
    "Manifest",
    "ModelCard",
    "Precision",
    "Profile",
    "Role",
    "SpecialTokens",
    "StoredTensor",
    "Target",
    "TensorSpec",
    "TokenizerFiles",
    "Verification",
    "VerificationCase",
    "read_manifest",
]

MANIFEST_NAME = "manifest.json"
SCHEMA_VERSION = 1

Precision = Literal["fp32", "fp16", "int8"]
Lowering = Literal["fused", "cpu", "portable"]
Role = Literal["encoder", "decoder"]
Target = Literal["cpu", "cuda", "tensorrt"]


@dataclass(frozen=True, slots=True)
class ModelCard:
    """Who the model is."""

    name: str
    architecture: str
    parameters: int
    source_language: str | None = None
    target_language: str | None = None


@dataclass(frozen=True, slots=True)
class Dimensions:
    """The sizes that a runtime needs to lay out its caches.

    `shortlist`: how many tokens of the target vocabulary the model may say; None when it may say all.
    """

    d_model: int
    heads: int
    head_dim: int
    encoder_layers: int
    decoder_layers: int
    source_vocabulary: int
    target_vocabulary: int
    max_source_tokens: int
    max_target_tokens: int
    shortlist: int | None = None

    @property
    def choices(self) -> int:
        """How many tokens a step chooses among."""
        return self.target_vocabulary if self.shortlist is None else self.shortlist


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """Ids that mean something to the search."""

    pad: int
    eos: int
    decoder_start: int
    unknown: int | None = None


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """How text becomes ids: the kind of tokenizer and its files in the bundle."""

    kind: str
    files: dict[str, str]
    settings: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output: a dimension is a number, or a name when it varies."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A weight and where it lies: `shape` and `dtype` say how long it is."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    offset: int


@dataclass(frozen=True, slots=True)
class Graph:
    """One ONNX file.

    `in_place_cache`: present outputs may be bound to the past inputs' memory, and the caller reorders beams;
    otherwise the graph gathers the past rows named by its `parents` input.
    `max_candidates`: the most next tokens a step may ask for; None when the graph takes any `candidates`,
    else the number is fixed in the graph and the input does not exist.
    `large_weights`: the weights of a megabyte and more. What several graphs hold, a runtime needs in memory only once.
    """

    role: Role
    lowering: Lowering
    file: str
    opset: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    in_place_cache: bool = False
    max_candidates: int | None = None
    large_weights: tuple[StoredTensor, ...] = ()


@dataclass(frozen=True, slots=True)
class Profile:
    """The smallest, usual and largest shape of each input an engine was built for."""

    name: str
    minimum: dict[str, tuple[int, ...]]
    usual: dict[str, tuple[int, ...]]
    maximum: dict[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Engine:
    """One TensorRT engine file."""

    role: Role
    file: str
    flavour: Literal["tensorrt", "tensorrt_rtx"]
    version: str
    precision: Precision
    compute_capabilities: tuple[str, ...]
    profiles: tuple[Profile, ...]
    build_seconds: float


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A file of the bundle and what it must hash to."""

    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True)
class VerificationCase:
    """One way the exported graphs were run beside the original.

    `ties`: sentences that differ only where the original itself finds both answers equally good to fp32 rounding.
    """

    name: str
    lowering: Lowering
    sentences: int
    identical: int
    tokens: int
    worst_log_prob_difference: float
    ties: int = 0
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


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything about a bundle but its bytes."""

    schema_version: int
    dragoman_version: str
    model: ModelCard
    dimensions: Dimensions
    tokens: SpecialTokens
    generation: DecodingOptions
    tokenizer: TokenizerFiles
    precision: Precision
    targets: tuple[Target, ...]
    graphs: tuple[Graph, ...]
    files: dict[str, FileRecord]
    verification: Verification | None = None
    kept_in_fp32: tuple[str, ...] = ()
    engines: tuple[Engine, ...] = ()

    def graph(self, role: Role, lowering: Lowering) -> Graph:
        """The graph of that role and lowering; BundleError when the bundle was exported without it."""
        for graph in self.graphs:
            if (graph.role, graph.lowering) == (role, lowering):
                return graph
        held = ", ".join(sorted({graph.lowering for graph in self.graphs})) or "none"
        raise BundleError(
            f"the bundle has no {lowering} {role} graph (it has: {held}); export it again with the right --target"
        )

    def to_json(self) -> str:
        """The text of `manifest.json`."""
        return json.dumps(dataclasses.asdict(self), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Read `manifest.json`; BundleError names the field that is wrong."""
        try:
            raw = json.loads(text)
        except ValueError as error:
            raise BundleError(f"{MANIFEST_NAME} is not JSON: {error}") from error
        if not isinstance(raw, dict) or not isinstance(raw.get("schema_version"), int):
            raise BundleError(f"{MANIFEST_NAME} has no schema_version; this is not a dragoman bundle")
        if raw["schema_version"] != SCHEMA_VERSION:
            newer = raw["schema_version"] > SCHEMA_VERSION
            raise BundleError(
                f"the bundle has schema version {raw['schema_version']}, this dragoman reads {SCHEMA_VERSION}; "
                + ("upgrade dragoman" if newer else "export the checkpoint again")
            )
        return _built(cls, raw, "manifest")


def read_manifest(bundle: Path) -> Manifest:
    """The manifest of the bundle directory `bundle`."""
    path = bundle / MANIFEST_NAME
    if not bundle.is_dir():
        raise BundleError(f"{bundle} is not a bundle: no such directory; make one with `dragoman export`")
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BundleError(f"{bundle} is not a bundle: it has no {MANIFEST_NAME}; make one with `dragoman export`") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BundleError(f"{path} can't be read: {error}") from error
    return Manifest.from_json(text)


_T = TypeVar("_T")


def _built(kind: type[_T], raw: object, where: str) -> _T:
    """A dataclass from parsed JSON, every field checked against its annotation."""
    if not isinstance(raw, Mapping):
        raise BundleError(f"{where} must be an object")
    hints = typing.get_type_hints(kind)
    names = {spec.name for spec in dataclasses.fields(kind)}  # type: ignore[arg-type]
    required = {
        spec.name
        for spec in dataclasses.fields(kind)  # type: ignore[arg-type]
        if spec.default is dataclasses.MISSING and spec.default_factory is dataclasses.MISSING
    }
    if missing := sorted(required - set(raw)):
        raise BundleError(f"{where} lacks {', '.join(missing)}")
    if unknown := sorted(set(raw) - names):
        raise BundleError(f"{where} has unknown fields {', '.join(map(str, unknown))}")
    return kind(**{name: _value(hints[name], value, f"{where}.{name}") for name, value in raw.items()})


def _value(hint: Any, raw: object, where: str) -> object:  # noqa: ANN401 - annotations have no common type
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        return _built(typing.cast(type, hint), raw, where)
    if origin in (Union, types.UnionType):
        return _one_of(arguments, raw, where)
    if origin is Literal:
        return _checked(raw in arguments, raw, where, f"one of {arguments}")
    if origin is tuple:
        values = typing.cast("list[object]", _checked(isinstance(raw, list), raw, where, "a list"))
        return tuple(_value(arguments[0], value, f"{where}[{index}]") for index, value in enumerate(values))
    if origin is dict:
        mapping = typing.cast("dict[str, object]", _checked(isinstance(raw, dict), raw, where, "an object"))
        return {key: _value(arguments[1], value, f"{where}.{key}") for key, value in mapping.items()}
    if hint is float:
        return float(typing.cast(float, _checked(_is_number(raw), raw, where, "a number")))
    exact = isinstance(raw, hint) and not (hint is int and isinstance(raw, bool))
    return _checked(exact, raw, where, f"a {hint.__name__}")


def _one_of(choices: tuple[Any, ...], raw: object, where: str) -> object:
    if raw is None and type(None) in choices:
        return None
    for choice in choices:
        if choice is type(None):
            continue
        try:
            return _value(choice, raw, where)
        except BundleError as error:
            refused = error
    raise refused


def _is_number(raw: object) -> bool:
    return isinstance(raw, (int, float)) and not isinstance(raw, bool)


def _checked(holds: bool, raw: object, where: str, wanted: str) -> object:
    if not holds:
        raise BundleError(f"{where} is {str(raw)[:60]!r} but must be {wanted}")
    return raw
