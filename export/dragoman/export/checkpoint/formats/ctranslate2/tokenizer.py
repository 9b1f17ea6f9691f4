"""The tokenizer of a CTranslate2 model: its files are those of the model it was converted from, its ids the model's own.

Languages are recognised by the tokens that name them in the vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from dragoman.bundle.manifest import Languages, SpecialTokens, TokenizerFiles
from dragoman.errors import CheckpointError
from dragoman.export.checkpoint.files import require_file
from dragoman.export.checkpoint.formats.ctranslate2.vocabulary import Vocabularies
from dragoman.export.checkpoint.formats.protocol import CompanionFiles
from dragoman.export.checkpoint.language_codes import M2M100, MBART, MBART50, NLLB
from dragoman.export.checkpoint.tokenizer_json import AddedTokens, prepare_tokenizer_json, tokenizer_json_of_bpe
from dragoman.export.checkpoint.tokenizer_plan import (
    LanguageScheme,
    TokenizerPlan,
    json_plan,
    languages_of,
    open_sentencepiece_model,
)
from dragoman.export.transformer import TransformerConfig

__all__ = ["SENTENCEPIECE_FILES", "special_tokens", "tokenizer_plan"]

SENTENCEPIECE_FILES = ("sentencepiece.model", "sentencepiece.bpe.model", "spiece.model", "source.spm", "spm.model")
SCHEMES = (
    LanguageScheme(NLLB, source="before", target="forced_bos"),
    LanguageScheme(M2M100, source="before", target="forced_bos", form="__{}__"),
    LanguageScheme(MBART50, source="before", target="forced_bos"),
)
TRAINED_BY_OPENNMT = "<blank>"
"""The padding of OpenNMT's vocabularies. Its sources end where the settings say; those of all other trainers with the end
token, which Hugging Face's tokenizers add and CTranslate2 therefore need not."""


LOOKED_AT = 1000
"""Of a sentencepiece model's pieces; the most frequent come first."""


def special_tokens(words: Vocabularies, *, starts_from_zero: bool) -> SpecialTokens:
    """The ids that the search must know. A decoder that starts from a zero embedding starts from the row after the last."""
    ids, last = words.target_ids, len(words.target)
    eos = _id(ids, words.eos, "eos_token")
    if starts_from_zero:
        return SpecialTokens(pad=last, eos=eos, decoder_start=last, unknown=ids.get(words.unknown))
    pad = next((ids[name] for name in ("<pad>", "[PAD]", TRAINED_BY_OPENNMT) if name in ids), eos)
    start = eos if words.start is None else _id(ids, words.start, "decoder_start_token")
    return SpecialTokens(pad=pad, eos=eos, decoder_start=start, unknown=ids.get(words.unknown))


def tokenizer_plan(
    directory: Path,
    words: Vocabularies,
    config: TransformerConfig,
    tokens: SpecialTokens,
    companions: CompanionFiles,
    *,
    literal: bool = False,
) -> TokenizerPlan:
    """`literal`: the settings alone say what surrounds a source."""
    ids = words.source_ids
    ends = words.adds_eos or not (literal or TRAINED_BY_OPENNMT in ids)
    prefix = (_id(ids, words.bos, "bos_token"),) if words.adds_bos else ()
    suffix = (_id(ids, words.eos, "eos_token"),) if ends else ()
    languages = _languages(words)
    if not companions.sentencepiece and (prepared := _json(directory)) is not None:
        text, added = prepared
        _check_same_ids(text, ids)
        return json_plan(text, added, config, tokens, prefix=prefix, suffix=suffix, languages=languages)
    source_model, target_model = _models(directory, companions)
    _check_belongs(source_model, ids)
    if target_model is not None:
        _check_belongs(target_model, words.target_ids)
    files, copied = {"source_model": "source.spm", "source_vocabulary": "vocab.json"}, {"source.spm": source_model}
    made = {"vocab.json": json.dumps(ids, ensure_ascii=False)}
    if target_model is not None:
        files["target_model"], copied["target.spm"] = "target.spm", target_model
    if not words.is_shared:
        files["target_vocabulary"] = "target_vocab.json"
        made["target_vocab.json"] = json.dumps(words.target_ids, ensure_ascii=False)
    spare = range(len(words.target), config.target_vocabulary)
    special = {tokens.pad, tokens.eos, tokens.decoder_start, *spare, *(languages.tokens.values() if languages else ())}
    special |= {words.target_ids[name] for name in (words.bos, words.unknown) if name in words.target_ids}
    entry = TokenizerFiles(
        "marian" if any(word.startswith(">>") and word.endswith("<<") for word in words.source) else "m2m100",
        files,
        source_prefix=prefix,
        source_suffix=suffix,
        silent=tuple(sorted(special)),
    )
    return TokenizerPlan(entry, unknown=tokens.unknown, languages=languages, copied=copied, made=made)


def _models(directory: Path, companions: CompanionFiles) -> tuple[Path, Path | None]:
    if len(companions.sentencepiece) > 2:
        raise CheckpointError("--spm can be given twice: the source's model and the target's")
    if companions.sentencepiece:
        source, *target = (require_file(path, "named by --spm") for path in companions.sentencepiece)
        return source, target[0] if target else None
    found = next((directory / name for name in SENTENCEPIECE_FILES if (directory / name).is_file()), None)
    if found is None:
        raise CheckpointError(
            f"{directory} has no tokenizer: neither {', '.join(SENTENCEPIECE_FILES)} nor tokenizer.json. CTranslate2 "
            "stores none: copy it from the model that was converted, or name it with --spm"
        )
    target_model = directory / "target.spm"
    return found, target_model if target_model.is_file() else None


def _check_belongs(model: Path, ids: Mapping[str, int]) -> None:
    """Another model's pieces would all be unknown."""
    processor = open_sentencepiece_model(model)
    count = min(processor.get_piece_size(), LOOKED_AT)
    if not any(processor.id_to_piece(at) in ids for at in range(count) if not processor.is_control(at)):
        raise CheckpointError(f"{model} does not belong to this model: none of its pieces is in the vocabulary")


def _json(directory: Path) -> tuple[str, AddedTokens] | None:
    if any((directory / name).is_file() for name in SENTENCEPIECE_FILES):
        return None
    if (directory / "tokenizer.json").is_file():
        return prepare_tokenizer_json(directory / "tokenizer.json")
    pieces, merges = directory / "vocab.json", directory / "merges.txt"
    return tokenizer_json_of_bpe(pieces, merges) if pieces.is_file() and merges.is_file() else None


def _check_same_ids(text: str, ids: Mapping[str, int]) -> None:
    """The file must have been the converted model's. Hidden pieces have other names in it, so a few may differ."""
    from tokenizers import Tokenizer

    pieces = Tokenizer.from_str(text).get_vocab(with_added_tokens=False)
    moved = [piece for piece, at in pieces.items() if piece in ids and ids[piece] != at]
    if moved or sum(piece in ids for piece in pieces) < 0.5 * len(pieces):
        raise CheckpointError(
            f"tokenizer.json does not belong to this model: {len(moved)} of its {len(pieces)} pieces have other ids, "
            f"{sum(piece not in ids for piece in pieces)} are not in the model's vocabulary"
        )


def _languages(words: Vocabularies) -> Languages | None:
    known = words.source_ids
    schemes = SCHEMES if words.start is not None else (LanguageScheme(MBART, source="after", target="decoder_start"),)
    for scheme in schemes:
        ids = {code: known[name] for code in scheme.codes if (name := scheme.form.format(code)) in known}
        if len(ids) > len(scheme.codes) // 2:  # a vocabulary may have an "is_IS" of its own, but not half of a family's
            if not words.is_shared:
                raise CheckpointError("a multilingual model with two vocabularies is not supported")
            return languages_of(ids, scheme, None, None)
    if words.start is None:
        raise CheckpointError("config.json has no decoder_start_token, and the vocabulary has no languages to start from")
    return None


def _id(ids: Mapping[str, int], word: str, setting: str) -> int:
    if word not in ids:
        raise CheckpointError(f"{setting} {word!r} of config.json is not in the vocabulary")
    return ids[word]
