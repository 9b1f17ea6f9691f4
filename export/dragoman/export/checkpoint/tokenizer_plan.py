"""Plans the bundle's tokenizer from a checkpoint's files, family by family, with the tokens of its languages."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from dragoman.bundle.language_codes import parse_tag
from dragoman.bundle.manifest import Languages, SpecialTokens, TokenizerFiles
from dragoman.errors import CheckpointError
from dragoman.export.checkpoint.files import read_json, read_settings, require_file
from dragoman.export.checkpoint.sentencepiece_model import without_pieces
from dragoman.export.checkpoint.tokenizer_json import AddedTokens, prepare_tokenizer_json, tokenizer_json_of_bpe
from dragoman.export.checkpoint.vocabulary import check_pieces, check_vocabulary
from dragoman.export.transformer import TransformerConfig

__all__ = [
    "LanguageScheme",
    "TokenizerPlan",
    "byte_level_plan",
    "bytes_plan",
    "fairseq_plan",
    "google_plan",
    "json_plan",
    "languages_of",
    "m2m100_plan",
    "marian_plan",
    "open_sentencepiece_model",
]

TOKENIZER_JSON = "tokenizer.json"
SENTENCEPIECE, GOOGLE_SENTENCEPIECE = "sentencepiece.bpe.model", "spiece.model"
LANGUAGE_PIECE = re.compile(r"<2([A-Za-z_]+)>")
"""MADLAD-400's way of naming the target language: a piece before the text."""


@dataclass(frozen=True, slots=True)
class LanguageScheme:
    """A family's languages in the order of their ids, and what their tokens do (see Languages)."""

    codes: tuple[str, ...]
    source: Literal["before", "after", "none"]
    target: Literal["forced_bos", "decoder_start", "source_before"]
    form: str = "{}"


@dataclass(frozen=True, slots=True)
class TokenizerPlan:
    """The manifest's entry, and the files: copied from the checkpoint, or made from what is there."""

    entry: TokenizerFiles
    unknown: int | None = None
    languages: Languages | None = None
    source_language: str | None = None
    target_language: str | None = None
    copied: dict[str, Path] = field(default_factory=dict)
    made: Mapping[str, str | bytes] = field(default_factory=dict)

    def write(self, directory: Path) -> None:
        """Put the tokenizer's files into `directory`."""
        for name, path in self.copied.items():
            shutil.copyfile(path, directory / name)
        for name, made in self.made.items():
            (directory / name).write_bytes(made if isinstance(made, bytes) else made.encode())


def marian_plan(directory: Path, config: TransformerConfig, tokens: SpecialTokens) -> TokenizerPlan:
    """Two sentencepiece models, and pieces looked up in vocab.json."""
    settings = read_settings(directory / "tokenizer_config.json")
    files = {"source_model": "source.spm", "target_model": "target.spm", "source_vocabulary": "vocab.json"}
    sizes = {"vocab.json": config.source_vocabulary}
    separate = settings.flag("separate_vocabs", (directory / "target_vocab.json").is_file())
    if separate or config.target_vocabulary != config.source_vocabulary:
        files["target_vocabulary"] = "target_vocab.json"
        sizes["target_vocab.json"] = config.target_vocabulary
    copied = {
        name: require_file(directory / name, f"the tokenizer's {role.replace('_', ' ')}") for role, name in files.items()
    }
    for name, rows in sizes.items():
        check_vocabulary(directory / name, rows)
    unknown = read_json(directory / "vocab.json").get("<unk>")
    silent = {tokens.pad, tokens.eos, tokens.decoder_start, *([] if unknown is None else [unknown])}
    return TokenizerPlan(
        TokenizerFiles("marian", files, source_suffix=(tokens.eos,), silent=tuple(sorted(silent))),
        unknown=unknown,
        source_language=settings.text("source_lang"),
        target_language=settings.text("target_lang"),
        copied=copied,
    )


def byte_level_plan(directory: Path, config: TransformerConfig, tokens: SpecialTokens, begin: int) -> TokenizerPlan:
    """BART: `<s> text </s>` in a byte-level vocabulary."""
    if (directory / TOKENIZER_JSON).is_file():
        text, added = prepare_tokenizer_json(directory / TOKENIZER_JSON)
    else:
        vocabulary, merges = (
            require_file(directory / name, f"the tokenizer's {what}; or {TOKENIZER_JSON}")
            for name, what in (("vocab.json", "pieces"), ("merges.txt", "merges"))
        )
        text, added = tokenizer_json_of_bpe(vocabulary, merges)
    return json_plan(text, added, config, tokens, prefix=(begin,), suffix=(tokens.eos,))


def fairseq_plan(directory: Path, config: TransformerConfig, tokens: SpecialTokens, scheme: LanguageScheme) -> TokenizerPlan:
    """NLLB and mBART: sentencepiece's ids moved by one, then a token for each language, then the mask."""
    settings = read_settings(directory / "tokenizer_config.json")
    defaults = settings.text("src_lang"), settings.text("tgt_lang")
    if (directory / TOKENIZER_JSON).is_file():
        text, added = prepare_tokenizer_json(directory / TOKENIZER_JSON)
        languages = languages_of({code: added.ids[code] for code in scheme.codes if code in added.ids}, scheme, *defaults)
        if languages is not None:
            return json_plan(text, added, config, tokens, suffix=(tokens.eos,), languages=languages)
    # transformers 5 can write a tokenizer.json without the languages: their ids follow from the sentencepiece model
    model = require_file(directory / SENTENCEPIECE, f"the tokenizer's model; or {TOKENIZER_JSON} with the language tokens")
    count = _piece_count(model)
    ids = {code: count + 1 + at for at, code in enumerate(scheme.codes)}
    check_pieces(model.name, count + 1 + len(ids) + 1, config.source_vocabulary)
    languages = languages_of(ids, scheme, *defaults)
    silent = (0, 1, 2, 3, *range(count + 1, config.target_vocabulary))
    return _sentencepiece_plan(model, languages, tokens, offset=1, unknown=3, silent=silent)


def google_plan(
    directory: Path, config: TransformerConfig, tokens: SpecialTokens, *, offset: int, unknown: int | None
) -> TokenizerPlan:
    """T5, mT5, UMT5, MADLAD-400 and Pegasus: `text </s>` with sentencepiece's ids, moved by `offset`."""
    if (directory / TOKENIZER_JSON).is_file():
        text, added = prepare_tokenizer_json(directory / TOKENIZER_JSON, LANGUAGE_PIECE)
        languages = _prefix_languages(added.matched)
        return json_plan(text, added, config, tokens, suffix=(tokens.eos,), languages=languages)
    model = require_file(directory / GOOGLE_SENTENCEPIECE, f"the tokenizer's model; or {TOKENIZER_JSON}")
    processor = open_sentencepiece_model(model)
    count = processor.get_piece_size()
    check_pieces(model.name, count + offset, config.source_vocabulary)
    pieces = {processor.id_to_piece(at): at + offset for at in range(count)}
    languages = _prefix_languages({piece: at for piece, at in pieces.items() if LANGUAGE_PIECE.fullmatch(piece)})
    control = [at + offset for at in range(count) if processor.is_control(at)]
    unknown = processor.unk_id() if unknown is None else unknown
    beyond = range(count + offset, config.target_vocabulary)
    silent = (*range(offset), *control, unknown, tokens.pad, tokens.eos, *beyond)
    plan = _sentencepiece_plan(model, languages, tokens, offset=offset, unknown=unknown, silent=silent)
    if languages is None:
        return plan
    hidden = [token - offset for token in languages.tokens.values()]
    return replace(plan, copied={}, made={model.name: without_pieces(model.read_bytes(), hidden)})


def m2m100_plan(directory: Path, config: TransformerConfig, tokens: SpecialTokens, scheme: LanguageScheme) -> TokenizerPlan:
    """One sentencepiece model, pieces looked up in vocab.json; then a token for each language, and made-up words."""
    settings = read_settings(directory / "tokenizer_config.json")
    files = {"source_model": SENTENCEPIECE, "source_vocabulary": "vocab.json"}
    copied = {
        name: require_file(directory / name, f"the tokenizer's {role.replace('_', ' ')}") for role, name in files.items()
    }
    pieces = read_json(directory / "vocab.json")
    ids = {code: len(pieces) + at for at, code in enumerate(scheme.codes)}
    check_vocabulary(directory / "vocab.json", config.source_vocabulary, more=config.source_vocabulary - len(pieces))
    check_pieces("vocab.json with its languages", len(pieces) + len(ids), config.source_vocabulary)
    unknown = pieces.get("<unk>", 3)
    specials = (pieces.get("<s>", 0), tokens.pad, tokens.eos, unknown)
    silent = tuple(sorted({*specials, *range(len(pieces), config.target_vocabulary)}))
    return TokenizerPlan(
        TokenizerFiles("m2m100", files, source_suffix=(tokens.eos,), silent=silent),
        unknown=unknown,
        languages=languages_of(ids, scheme, settings.text("src_lang"), settings.text("tgt_lang")),
        copied=copied,
    )


def bytes_plan(config: TransformerConfig, tokens: SpecialTokens) -> TokenizerPlan:
    """ByT5: a byte is its own value plus three."""
    check_pieces("the bytes with their special tokens", 259, config.source_vocabulary)
    silent = (0, 1, 2, *range(259, config.target_vocabulary))
    entry = TokenizerFiles("bytes", {}, source_suffix=(tokens.eos,), silent=silent)
    return TokenizerPlan(entry, unknown=2)


def json_plan(  # noqa: PLR0917 - one call for all that goes into the entry
    text: str,
    added: AddedTokens,
    config: TransformerConfig,
    tokens: SpecialTokens,
    prefix: Sequence[int] = (),
    suffix: Sequence[int] = (),
    languages: Languages | None = None,
) -> TokenizerPlan:
    """A prepared tokenizer.json, with `prefix` and `suffix` around every source."""
    check_pieces(TOKENIZER_JSON, added.text_size, config.source_vocabulary)
    if languages is not None and max(languages.tokens.values()) >= config.target_vocabulary:
        raise CheckpointError(f"{TOKENIZER_JSON} has languages beyond the {config.target_vocabulary} rows of the embedding")
    spare = range(added.size, config.target_vocabulary)
    silent = {tokens.pad, tokens.eos, *added.special, *spare, *(languages.tokens.values() if languages else ())}
    silent = {token for token in silent if token < config.target_vocabulary}  # some models have no row for <mask>
    entry = TokenizerFiles(
        "tokenizers",
        {"tokenizer": TOKENIZER_JSON},
        {} if added.is_byte_level else {"strip": "right"},  # sentencepiece does; not every version of the files says so
        source_prefix=tuple(prefix),
        source_suffix=tuple(suffix),
        silent=tuple(sorted(silent)),
    )
    return TokenizerPlan(entry, unknown=added.unknown, languages=languages, made={TOKENIZER_JSON: text})


def _sentencepiece_plan(
    model: Path, languages: Languages | None, tokens: SpecialTokens, *, offset: int, unknown: int, silent: Iterable[int]
) -> TokenizerPlan:
    entry = TokenizerFiles(
        "sentencepiece",
        {"model": model.name},
        {"offset": str(offset)},
        source_suffix=(tokens.eos,),
        silent=tuple(sorted({*silent, *(languages.tokens.values() if languages else ())})),
    )
    return TokenizerPlan(entry, unknown=unknown, languages=languages, copied={model.name: model})


def languages_of(ids: dict[str, int], scheme: LanguageScheme, source: str | None, target: str | None) -> Languages | None:
    """Languages whose tokens have these ids; None if there are none. `source` and `target` are the defaults."""
    if not ids:
        return None
    known = [code if code in ids else None for code in (source, target)]
    return Languages(ids, scheme.source, scheme.target, default_source=known[0], default_target=known[1])


def _prefix_languages(pieces: dict[str, int]) -> Languages | None:
    matched = {match[1]: at for piece, at in pieces.items() if (match := LANGUAGE_PIECE.fullmatch(piece))}
    ids = {code: at for code, at in matched.items() if parse_tag(code) is not None}  # <2translate> is none
    return Languages(ids, "none", "source_before") if ids else None


def _piece_count(model: Path) -> int:
    count: int = open_sentencepiece_model(model).get_piece_size()
    return count


def open_sentencepiece_model(model: Path) -> Any:  # noqa: ANN401 - sentencepiece has no types
    """The sentencepiece model in a file of a checkpoint."""
    import sentencepiece

    try:
        return sentencepiece.SentencePieceProcessor(model_file=str(model))
    except (OSError, RuntimeError) as error:
        raise CheckpointError(f"{model} is not a sentencepiece model: {error}") from error
