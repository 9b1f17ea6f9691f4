"""The tokenizer that a dragoman.json describes: its kind, its files, and the special tokens by name or by id."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

from dragoman.bundle.manifest import SpecialTokens, TokenizerFiles
from dragoman.bundle.tokenizer_base import open_sentencepiece
from dragoman.errors import BundleError, CheckpointError
from dragoman.export.checkpoint.files import require_file
from dragoman.export.checkpoint.formats.description import Description
from dragoman.export.checkpoint.formats.moses import NO_MOSES, moses_of
from dragoman.export.checkpoint.formats.vocabularies import check_rows, read_vocabulary_file
from dragoman.export.checkpoint.tokenizer_plan import TokenizerPlan
from dragoman.export.transformer import TransformerConfig

__all__ = ["DescribedTokenizer", "Vocabularies", "pieces_plan", "sentencepiece_ids"]

UNITS = {"characters": "character", "words": "word"}
KINDS = (*UNITS, "subword-nmt", "sentencepiece")


@dataclass(frozen=True, slots=True)
class Vocabularies:
    """Pieces and ids of both sides. `is_shared`: one file serves both. The target's unknown id is a special token."""

    source: dict[str, int]
    target: dict[str, int]
    is_shared: bool
    source_unknown: int | None = None

    def check(self, config: TransformerConfig, names: tuple[str, str]) -> None:
        """CheckpointError when an id has no row in its embedding."""
        check_rows(self.source, names[0], config.source_vocabulary)
        check_rows(self.target, names[1], config.target_vocabulary)


def pieces_plan(  # noqa: PLR0917 - all that goes into the entry
    kind: str,
    vocabularies: Vocabularies,
    tokens: SpecialTokens,
    around: tuple[tuple[int, ...], tuple[int, ...]],
    files: dict[str, Path],
    settings: dict[str, str],
    languages: tuple[str | None, str | None] = (None, None),
    silent: tuple[int, ...] = (),
) -> TokenizerPlan:
    """A tokenizer with vocabularies: special tokens are taken out of them, so that no text becomes one."""
    special = {tokens.pad, tokens.eos, tokens.decoder_start, *silent}
    if tokens.unknown is not None:
        special.add(tokens.unknown)
    own = vocabularies.source_unknown
    if own != tokens.unknown:
        settings = {**settings, "source_unknown": "none" if own is None else str(own)}
    unheard: set[int | None] = {*special} if vocabularies.is_shared else {*around[0], *around[1], own}
    names = {piece for piece, index in vocabularies.target.items() if index in special}
    unheard |= {index for piece, index in vocabularies.source.items() if piece in names}
    made = {"source_vocabulary.json": _without(vocabularies.source, unheard)}
    named = {"source_vocabulary": "source_vocabulary.json"}
    if not vocabularies.is_shared:
        made["target_vocabulary.json"] = _without(vocabularies.target, special)
        named["target_vocabulary"] = "target_vocabulary.json"
    copied = {f"{role}{path.suffix or '.txt'}": path for role, path in files.items()}
    named |= {role: f"{role}{path.suffix or '.txt'}" for role, path in files.items()}
    entry = TokenizerFiles(
        kind,  # type: ignore[arg-type]
        named,
        settings,
        source_prefix=around[0],
        source_suffix=around[1],
        silent=tuple(sorted(special)) if vocabularies.is_shared else (),
    )
    return TokenizerPlan(
        entry,
        unknown=tokens.unknown,
        source_language=languages[0],
        target_language=languages[1],
        copied=copied,
        made=made,
    )


def _without(pieces: dict[str, int], special: AbstractSet[int | None]) -> str:
    return json.dumps({piece: index for piece, index in pieces.items() if index not in special}, ensure_ascii=False)


class DescribedTokenizer:
    """`tokenizer` and `tokens` of a description, with the files beside it."""

    def __init__(self, description: Description, directory: Path) -> None:
        self._described = description.section("tokenizer")
        self._tokens = description.section("tokens")
        self._directory = directory
        self._languages = (description.text("source_language"), description.text("target_language"))
        self.kind = self._described.one_of("kind", KINDS)
        read = self._vocabularies()
        self.vocabularies = dataclasses.replace(read, source_unknown=self._unknown(read.source))

    def special_tokens(self) -> SpecialTokens:
        """pad, end, start and unknown; a model that was trained without padding may leave pad out."""
        eos = self._required("end")
        return SpecialTokens(
            pad=self._token("pad", self.vocabularies.target, default=eos),
            eos=eos,
            decoder_start=self._required("start"),
            unknown=self._unknown(self.vocabularies.target),
        )

    def plan(self, config: TransformerConfig) -> TokenizerPlan:
        """What goes into the bundle."""
        self.vocabularies.check(config, (self._name("vocabulary", "model"), self._name("target_vocabulary", "model")))
        tokens = self.special_tokens()
        around = (self._around("source_prefix"), self._around("source_suffix"))
        moses = self._moses()
        if self.kind in UNITS:
            settings = {"unit": UNITS[self.kind], **self._case(), **moses}
            return pieces_plan("vocabulary", self.vocabularies, tokens, around, {}, settings, self._languages)
        if self.kind == "subword-nmt":
            files = self._both("codes", "source_codes", "target_codes", required=True)
            settings = {**self._case(), **moses}
            return pieces_plan("subword_nmt", self.vocabularies, tokens, around, files, settings, self._languages)
        files = self._both("model", "source_model", "target_model", required=True)
        return pieces_plan("m2m100", self.vocabularies, tokens, around, files, {}, self._languages)

    def _case(self) -> dict[str, str]:
        return {"case": "lower"} if self._described.flag("lowercase", False) else {}

    def _moses(self) -> dict[str, str]:
        languages = self._described.text("moses")
        if languages is None or languages == NO_MOSES:
            return {}
        if self.kind not in ("words", "subword-nmt"):
            raise CheckpointError(f"moses in {self._described.where} means nothing with {self.kind}; leave it out")
        pieces = {*self.vocabularies.source, *self.vocabularies.target}
        return moses_of(languages, pieces, self._described.where)

    def _vocabularies(self) -> Vocabularies:
        for role in ("codes", "target_codes", "model", "target_model", "lowercase", "moses"):
            self._described.raw(role)  # read by the plan
        if self.kind == "sentencepiece" and "vocabulary" not in self._described:
            models = self._both("model", "source_model", "target_model", required=True)
            source = sentencepiece_ids(models["source_model"])
            if "target_model" not in models:
                return Vocabularies(source, source, is_shared=True)
            return Vocabularies(source, sentencepiece_ids(models["target_model"]), is_shared=False)
        files = self._both("vocabulary", "source", "target", required=True)
        source = read_vocabulary_file(files["source"])
        if "target" not in files:
            return Vocabularies(source, source, is_shared=True)
        return Vocabularies(source, read_vocabulary_file(files["target"]), is_shared=False)

    def _both(self, role: str, source: str, target: str, *, required: bool) -> dict[str, Path]:
        found = {}
        for key, name in ((source, role), (target, f"target_{role}")):
            file = self._described.text(name)
            if file is None:
                if key == source and required:
                    raise CheckpointError(f"{self._described.where} must name the file of its {role}: {self.kind} needs one")
                continue
            found[key] = require_file(self._described.beside(self._directory, file, name), f"the tokenizer's {name}")
        return found

    def _name(self, *roles: str) -> str:
        names = [self._described.text(role) for role in roles]
        return next((name for name in names if name), self._described.text("vocabulary") or "the vocabulary")

    def _required(self, role: str) -> int:
        token = self._token(role, self.vocabularies.target, default=None)
        if token is None:
            raise CheckpointError(f"{self._tokens.where} must name the token {role!r}, as a piece or as an id")
        return token

    def _unknown(self, vocabulary: dict[str, int]) -> int | None:
        if "unknown" not in self._tokens:
            return None
        return self._lookup(self._tokens.raw("unknown"), "unknown", vocabulary)

    def _token(self, role: str, vocabulary: dict[str, int], default: int | None) -> int:
        value = self._tokens.raw(role)
        return default if value is None else self._lookup(value, role, vocabulary)  # type: ignore[return-value]

    def _around(self, role: str) -> tuple[int, ...]:
        named = self._tokens.raw(role, [])
        named = named if isinstance(named, list) else [named]
        return tuple(self._lookup(token, role, self.vocabularies.source) for token in named)

    def _lookup(self, token: object, role: str, vocabulary: dict[str, int]) -> int:
        if type(token) is int and token >= 0:
            return token
        if not isinstance(token, str) or token not in vocabulary:
            self._tokens.refuse(role, token, vocabulary, "in the vocabulary")
        return vocabulary[token]


def sentencepiece_ids(model: Path) -> dict[str, int]:
    """The pieces of a sentencepiece model and its own ids."""
    try:
        processor = open_sentencepiece(model)
    except BundleError as error:
        raise CheckpointError(str(error)) from error
    return {processor.id_to_piece(at): at for at in range(processor.get_piece_size())}
