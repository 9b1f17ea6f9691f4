"""`manifest.json`: what a bundle holds, as frozen dataclasses that read and write themselves.

Export writes it, serving and the client read it. A manifest is not trusted: sizes have ranges, every file that anybody
opens must be listed with its hash, and whatever is wrong is one BundleError.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from dragoman.bundle.consistency import contradictions
from dragoman.bundle.records import (
    Alignment,
    Dimensions,
    EngineFile,
    FileName,
    FileRecord,
    Graph,
    Languages,
    Lowering,
    ModelCard,
    Name,
    Precision,
    Profile,
    Role,
    Segmentation,
    SpecialTokens,
    StoredTensor,
    Target,
    Task,
    Tasks,
    TensorSpec,
    TokenizerFiles,
    Verification,
    VerificationCase,
    Vocabulary,
)
from dragoman.bundle.schema import Range, build
from dragoman.bundle.strict_json import parse_json, read_text
from dragoman.errors import BundleError
from dragoman.search.options import DecodingOptions

__all__ = [
    "MANIFEST_NAME",
    "SCHEMA_VERSION",
    "Alignment",
    "Dimensions",
    "EngineFile",
    "FileRecord",
    "Graph",
    "Languages",
    "Lowering",
    "Manifest",
    "ModelCard",
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
    "read_manifest",
]

MANIFEST_NAME = "manifest.json"
SCHEMA_VERSION = 2
MAX_MANIFEST_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything about a bundle but its bytes."""

    schema_version: Annotated[int, Range(1, 1 << 16)]
    dragoman_version: str
    model: ModelCard
    dimensions: Dimensions
    tokens: SpecialTokens
    generation: DecodingOptions
    tokenizer: TokenizerFiles
    precision: Precision
    targets: tuple[Target, ...]
    graphs: tuple[Graph, ...]
    files: dict[FileName, FileRecord]
    verification: Verification | None = None
    kept_in_fp32: tuple[str, ...] = ()
    engines: tuple[EngineFile, ...] = ()
    languages: Languages | None = None
    tasks: Tasks = field(default_factory=Tasks)
    segmentation: Segmentation = "sentence"
    alignment: Alignment | None = None
    shortlists: dict[Name, Vocabulary] = field(default_factory=dict)
    """How many tokens can be generated into a target language, by the model's own code, where that is not all of them. The
    graphs know a list by its number: that of its place here, from 1 on; 0 stands for all tokens."""

    @property
    def aligns_when_fed(self) -> bool:
        """Whether a token's alignment is that of the step in which it is fed, not of the step that predicts it."""
        return self.alignment is not None and self.alignment.when == "fed"

    def graphs_of(self, lowering: Lowering) -> tuple[Graph, ...]:
        """The graphs of that lowering; none when the bundle was exported without it."""
        return tuple(graph for graph in self.graphs if graph.lowering == lowering)

    def graph(self, role: Role, lowering: Lowering) -> Graph:
        """The graph of that role and lowering; BundleError when the bundle was exported without it."""
        for graph in self.graphs_of(lowering):
            if graph.role == role:
                return graph
        held = ", ".join(sorted({graph.lowering for graph in self.graphs})) or "none"
        raise BundleError(
            f"the bundle has no {lowering} {role} graph (it has: {held}); export it again with the right --target"
        )

    def to_json(self) -> str:
        """The text of `manifest.json`."""
        return json.dumps(dataclasses.asdict(self), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Read `manifest.json`; BundleError names the field that is wrong."""
        try:
            raw = parse_json(text)
        except ValueError as error:
            raise BundleError(f"{MANIFEST_NAME} is not acceptable JSON: {error}") from error
        version = raw.get("schema_version") if isinstance(raw, dict) else None
        if not isinstance(version, int) or isinstance(version, bool):
            raise BundleError(f"{MANIFEST_NAME} has no schema_version; this is not a dragoman bundle")
        if version != SCHEMA_VERSION:
            way_out = "upgrade dragoman" if version > SCHEMA_VERSION else "export the checkpoint again"
            raise BundleError(f"the bundle has schema version {version}, this dragoman reads {SCHEMA_VERSION}; {way_out}")
        manifest = build(cls, raw, "manifest")
        if problems := contradictions(manifest):
            raise BundleError(f"{MANIFEST_NAME} contradicts itself: {'; '.join(problems[:5])}; export the checkpoint again")
        return manifest


def read_manifest(bundle: Path) -> Manifest:
    """The manifest of the bundle directory `bundle`."""
    path = bundle / MANIFEST_NAME
    if not bundle.is_dir():
        raise BundleError(f"{bundle} is not a bundle: no such directory; make one with `dragoman export`")
    if not path.is_file():
        raise BundleError(f"{bundle} is not a bundle: it has no {MANIFEST_NAME}; make one with `dragoman export`")
    try:
        text = read_text(path, MAX_MANIFEST_BYTES)
    except (OSError, ValueError) as error:
        raise BundleError(f"{path} can't be read: {error}") from error
    try:
        return Manifest.from_json(text)
    except BundleError as error:
        raise BundleError(f"{bundle} can't be used: {error}") from error
