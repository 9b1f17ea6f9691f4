"""What a search must know of words, from tokenizers that mark the beginnings of words, their ends, or neither."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dragoman.bundle.manifest import SpecialTokens, TokenizerFiles
from dragoman.bundle.tokenizer import Tokenizer, open_tokenizer
from dragoman.bundle.words import VocabularyWords

MODEL = Path(__file__).parents[3] / "models" / "tatoeba-en-de"
TOKENS = SpecialTokens(pad=0, eos=1, decoder_start=0, unknown=2)


def beginnings(_: Path) -> Tokenizer:
    files = {"source_model": "source.spm", "target_model": "target.spm", "source_vocabulary": "vocab.json"}
    return open_tokenizer(
        MODEL, TokenizerFiles("marian", files), SpecialTokens(pad=8000, eos=0, decoder_start=8000, unknown=1)
    )


def ends(directory: Path) -> Tokenizer:
    pieces = [
        "<pad>",
        "</s>",
        "<unk>",
        *(f"{letter}{mark}" for letter in "abcdefghijklmnopqrstuvwxyz.,!?" for mark in ("", "@@")),
    ]
    (directory / "vocabulary.json").write_text(json.dumps({piece: at for at, piece in enumerate(pieces)}), encoding="utf-8")
    (directory / "codes").write_text("#version: 0.2\n", encoding="utf-8")
    files = TokenizerFiles(
        "subword_nmt", {"source_vocabulary": "vocabulary.json", "source_codes": "codes"}, silent=(0, 1, 2)
    )
    return open_tokenizer(directory, files, TOKENS)


def neither(directory: Path) -> Tokenizer:
    return open_tokenizer(directory, TokenizerFiles("bytes", {}, silent=(0, 1, 2)), TOKENS)


@pytest.mark.parametrize("opener", [beginnings, ends, neither])
@pytest.mark.parametrize(
    ("before", "behind", "is_whole"),
    [("", "", True), ("den ", " dort", True), ("", ".", True), ("den ", ", dort", True), ("", "s", False), ("u", "", False)],
)
def test_a_term_in_a_text_is_whole_where_no_letter_is_beside_it(
    tmp_path: Path, opener: Callable[[Path], Tokenizer], before: str, behind: str, is_whole: bool
) -> None:
    tokenizer = opener(tmp_path)
    words = VocabularyWords(tokenizer)
    term, text = tokenizer.encode_target("zug"), f"{before}zug{behind}"
    if opener is ends and behind in (".", ", dort"):
        text = text.replace("zug", "zug ")  # its texts have spaces between all tokens
    ids = tokenizer.encode_target(text)
    found = []
    for start in range(len(ids) - len(term) + 1):
        if ids[start : start + len(term)] == term:
            begins, ends_in_letter = words.edges(term)
            in_word = start > 0 and begins and words.is_open(ids[start - 1])
            following = ids[start + len(term) :]
            found.append(not in_word and not (following and ends_in_letter and words.goes_on(following[0])))
    assert any(found) == is_whole


@pytest.mark.parametrize("opener", [beginnings, neither])
def test_signs_may_follow_any_word(tmp_path: Path, opener: Callable[[Path], Tokenizer]) -> None:
    tokenizer = opener(tmp_path)
    words = VocabularyWords(tokenizer)
    assert {tokenizer.decode([sign]) for sign in words.signs} == set(".,?!")


def test_scripts_without_spaces_have_no_letters_that_go_on(tmp_path: Path) -> None:
    tokenizer = neither(tmp_path)
    words = VocabularyWords(tokenizer)
    assert words.edges(tokenizer.encode_target("火车")) == (False, False)
    assert words.edges(tokenizer.encode_target("C++")) == (True, False)
    assert words.edges(tokenizer.encode_target("(हिन्दी")) == (False, True)  # it ends with a vowel sign
    assert words.edges(()) == (False, False)
    assert words.goes_on(tokenizer.encode_target("é")[0])
