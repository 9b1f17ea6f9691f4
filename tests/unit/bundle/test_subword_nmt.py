"""Words fall into the pieces that subword-nmt gives them; tokens of a plain vocabulary are never special."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.bundle.manifest import SpecialTokens, TokenizerFiles
from dragoman.bundle.subword_nmt import SubwordCodes
from dragoman.bundle.tokenizer import Tokenizer, open_tokenizer
from dragoman.errors import BundleError

Pair = tuple[str, str]
SYMBOLS = st.sampled_from(["a", "b", "aa", "ab", "ba", "aab", "a</w>", "b</w>", "ab</w>", "</w>"])


def searched_anew(word: str, ranks: dict[Pair, int], version: str) -> list[str]:
    """The definition: the earliest merge that fits anywhere, at all its places from left to right, again and again."""
    symbols = [*word, "</w>"] if version == "0.1" else [*word[:-1], word[-1] + "</w>"]
    while found := [ranks[pair] for pair in itertools.pairwise(symbols) if pair in ranks]:
        best = next(pair for pair, rank in ranks.items() if rank == min(found))
        merged, at = [], 0
        while at < len(symbols):
            both = tuple(symbols[at : at + 2]) == best
            merged.append("".join(best) if both else symbols[at])
            at += 2 if both else 1
        symbols = merged
    if symbols[-1] == "</w>":
        return symbols[:-1]
    return [*symbols[:-1], symbols[-1].removesuffix("</w>")]


@settings(max_examples=300, deadline=None)
@given(
    st.text("ab", min_size=2, max_size=12),
    st.lists(st.tuples(SYMBOLS, SYMBOLS), unique=True),
    st.sampled_from(["0.1", "0.2"]),
)
def test_merges_are_those_of_the_definition(word: str, merges: list[Pair], version: str) -> None:
    codes = SubwordCodes([f"#version: {version}\n", *(f"{a} {b}\n" for a, b in merges)], "codes")
    assert codes.pieces(word) == searched_anew(word, {pair: rank for rank, pair in enumerate(merges)}, version)


def test_a_repeated_merge_counts_where_it_stands_first() -> None:
    codes = SubwordCodes(["#version: 0.2", "a b", "b c</w>", "a b"], "codes")
    assert codes.pieces("abc") == ["ab", "c"]


def test_codes_of_fast_bpe_are_read() -> None:
    assert SubwordCodes(["a b</w> 31", "c ab</w> 7"], "codes").pieces("cab") == ["cab"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [(["#version: 0.9"], "version '0.9'"), (["a b", "abc"], "line 2"), (["a b c d"], "line 1"), (["{"], "line 1")],
)
def test_other_files_are_refused_by_line(lines: list[str], message: str) -> None:
    with pytest.raises(BundleError, match=message):
        SubwordCodes(lines, "codes")


def test_a_very_long_word_takes_seconds_not_hours() -> None:
    codes = SubwordCodes(["#version: 0.2", "a a", "aa aa", "aaaa aaaa"], "codes")
    began_s = time.process_time()
    assert len(codes.pieces("a" * 200_000)) == 24_999 + 4
    assert time.process_time() - began_s < 10


def written(directory: Path, kind: str, words: list[str], **settings: str) -> Tokenizer:
    specials = ["<pad>", "<s>", "</s>", "<unk>"]
    (directory / "vocab.json").write_text(json.dumps({word: at for at, word in enumerate([*specials, *words])}))
    files = {"source_vocabulary": "vocab.json"}
    if kind == "subword_nmt":
        (directory / "codes").write_text("#version: 0.2\nl o\nlo w</w>\n")
        files["source_codes"] = "codes"
    entry = TokenizerFiles(kind, files, settings, (1,), (2,), (0, 1, 2, 3))  # type: ignore[arg-type]
    return open_tokenizer(directory, entry, SpecialTokens(pad=0, eos=2, decoder_start=1, unknown=3))


def test_characters_are_tokens(tmp_path: Path) -> None:
    tokenizer = written(tmp_path, "vocabulary", ["a", "b", " "], unit="character")
    assert tokenizer.encode("b a?") == [1, 5, 6, 4, 3, 2]
    assert tokenizer.decode([5, 6, 4, 3, 2]) == "b a"


def test_words_are_tokens_and_special_words_are_unknown(tmp_path: Path) -> None:
    tokenizer = written(tmp_path, "vocabulary", ["hello", "world"], unit="word", case="lower")
    assert tokenizer.encode(" Hello </s>\tworld ") == [1, 4, 3, 5, 2]
    assert tokenizer.decode([4, 1, 5]) == "hello world"


def test_marked_pieces_are_joined_again(tmp_path: Path) -> None:
    tokenizer = written(tmp_path, "subword_nmt", ["lo@@", "low", "w", "e@@", "r"])
    assert tokenizer.encode("low lower </s>") == [1, 5, 4, 3, 7, 8, 3, 3, 3, 3, 2]
    assert tokenizer.decode([5, 4, 6, 8, 4]) == "low low r lo"


@pytest.mark.parametrize("wrong", [{"unit": "syllable"}, {"case": "upper"}])
def test_unknown_settings_are_refused(tmp_path: Path, wrong: dict[str, str]) -> None:
    with pytest.raises(BundleError, match=next(iter(wrong.values()))):
        written(tmp_path, "vocabulary", ["a"], **wrong)
