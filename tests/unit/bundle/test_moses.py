"""Texts of models that learned from Moses's words: cut as fairseq cuts them, put together again, in linear time."""

from __future__ import annotations

import json
import string
import sys
import time
from pathlib import Path

import pytest

from dragoman.bundle.manifest import SpecialTokens, TokenizerFiles
from dragoman.bundle.moses import Moses, moses_settings
from dragoman.bundle.tokenizer import Tokenizer, open_tokenizer
from dragoman.errors import BundleError

ENGLISH = moses_settings("en", "en", split_hyphens=True, escape=True)
FRENCH = moses_settings("fr", "fr", split_hyphens=False, escape=False)

TEXTS = [
    ('It isn\'t a "well-known" word.', "It isn &apos;t a &quot; well @-@ known &quot; word ."),
    ("Mr. Smith paid 5,300.50 dollars on Jan. 5.", "Mr. Smith paid 5,300.50 dollars on Jan. 5 ."),
    ("a < b & [c] | d...", "a &lt; b &amp; &#91; c &#93; &#124; d ..."),
    ("\tspaces   and\x01control ", "spaces andcontrol"),
    ("", ""),
]
"""What the Perl script with -a gives."""


@pytest.mark.parametrize(("text", "words"), TEXTS)
def test_words_and_marks_are_set_apart(text: str, words: str) -> None:
    assert " ".join(Moses(ENGLISH).source_words(text)) == words


@pytest.mark.parametrize("text", [text for text, _ in TEXTS[:2]])
def test_words_become_the_text_again(text: str) -> None:
    moses = Moses(ENGLISH)
    assert moses.text_of(moses.target_words(text)) == text


def test_languages_and_switches_have_an_effect() -> None:
    moses = Moses(FRENCH)
    assert moses.source_words("C'est peut-être l'ami.") == ["C'", "est", "peut-être", "l'", "ami", "."]
    assert moses.text_of(["C'", "est", "l'", "ami", "."]) == "C'est l'ami."


@pytest.mark.parametrize("language", ["cs", "de", "fi", "zh", "xx"])
def test_no_words_of_any_language_fail(language: str) -> None:
    moses = Moses(moses_settings(language, language, split_hyphens=True, escape=True))
    assert moses.text_of(["m\u00e1m'", "-", "li", "e", "&apos;", ":", "\u201e", "n", "@-@"])


@pytest.mark.parametrize("repeated", [".", "a.b. ", "' ", "DOTMULTI.", "-a", "\u4e2d", "&amp;", "@-@ ", "\u00a0.x"])
def test_hostile_texts_take_linear_time(repeated: str) -> None:
    moses, text = Moses(ENGLISH), repeated * (16_000 // len(repeated))
    began_s = time.process_time()
    moses.text_of(moses.source_words(text))
    assert time.process_time() - began_s < 3


WRONG = [{"moses_source": "EN"}, {"moses_target": ""}, {"moses_escape": "yes"}, {"moses_split_hyphens": "true"}]


@pytest.mark.parametrize("wrong", WRONG)
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(BundleError, match=r"Moses|must be on or off"):
        Moses({**ENGLISH, **wrong})


def test_a_missing_sacremoses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    with pytest.raises(BundleError, match="pip install 'sacremoses"):
        Moses(ENGLISH)


PIECES = ["It", "is@@", "n", "&apos;t", "well", "@-@", "known", ".", "&quot;"]


def subwords(directory: Path, **settings: str) -> Tokenizer:
    specials = ["<pad>", "<s>", "</s>", "<unk>"]
    (directory / "vocab.json").write_text(json.dumps({piece: at for at, piece in enumerate([*specials, *PIECES])}))
    (directory / "codes").write_text("#version: 0.2\ni s\nI t</w>\n" + merges("well", "known", "&apos;t", "&quot;", "@-@"))
    files = {"source_vocabulary": "vocab.json", "source_codes": "codes"}
    entry = TokenizerFiles("subword_nmt", files, {**ENGLISH, **settings}, (), (2,), (0, 1, 2, 3))
    return open_tokenizer(directory, entry, SpecialTokens(pad=0, eos=2, decoder_start=1, unknown=3))


def merges(*words: str) -> str:
    lines = []
    for word in words:
        whole = word[0]
        for at, character in enumerate(word[1:], start=1):
            end = "</w>" if at == len(word) - 1 else ""
            lines.append(f"{whole} {character}{end}\n")
            whole += character
    return "".join(lines)


def test_subwords_are_cut_from_the_words(tmp_path: Path) -> None:
    tokenizer = subwords(tmp_path)
    ids = tokenizer.encode("It isn't well-known.")
    assert ids == [*range(4, 12), 2]
    assert tokenizer.decode(ids) == "It isn't well-known."
    assert tokenizer.encode_target("It isn't well-known.") == ids[:-1]


def test_spans_are_those_of_the_text(tmp_path: Path) -> None:
    text, tokenizer = 'It  isn\'t\x01 "well-known".', subwords(tmp_path)
    pieces = [text[begin:end] for begin, end in tokenizer.source_spans(text)]
    assert pieces == ["It", "is", "n", "'t", '"', "well", "-", "known", '"', ".", ""]
    ids = tokenizer.encode_target(text)
    answer = tokenizer.decode(ids)
    assert [answer[begin:end] for begin, end in tokenizer.target_spans(ids)] == pieces[:-1]


def test_a_stream_of_a_text_only_grows(tmp_path: Path) -> None:
    characters = [*string.ascii_lowercase, *string.digits, *"&#;-@.,"]
    pieces = list(dict.fromkeys([*PIECES, *(f"{one}@@" for one in characters), *characters]))
    (tmp_path / "vocab.json").write_text(json.dumps({piece: at for at, piece in enumerate(["<unk>", *pieces])}))
    (tmp_path / "codes").write_text("#version: 0.2\n")
    files = {"source_vocabulary": "vocab.json", "source_codes": "codes"}
    entry = TokenizerFiles("subword_nmt", files, ENGLISH, (), (), (0,))
    tokenizer = open_tokenizer(tmp_path, entry, SpecialTokens(pad=0, eos=0, decoder_start=0, unknown=0))
    text = 'she isn\'t "well-known" [a | b & c], or is she.'
    ids = tokenizer.encode_target(text)
    assert tokenizer.decode(ids) == text
    for count in range(len(ids)):
        assert text.startswith(tokenizer.decode(ids[:count]))


def test_each_side_has_an_unknown_token_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "source.json").write_text(json.dumps({"a": 5}))
    (tmp_path / "target.json").write_text(json.dumps({"b": 6}))
    files = {"source_vocabulary": "source.json", "target_vocabulary": "target.json"}
    for named, ids in (("7", [5, 7]), ("none", [5])):
        entry = TokenizerFiles("vocabulary", files, {"unit": "word", "source_unknown": named}, (), (), ())
        tokenizer = open_tokenizer(tmp_path, entry, SpecialTokens(pad=0, eos=2, decoder_start=1, unknown=3))
        assert (tokenizer.encode("a b"), tokenizer.encode_target("a b")) == (ids, [3, 6])
        assert len(tokenizer.source_spans("a b")) == len(ids)
    entry = TokenizerFiles("vocabulary", files, {"unit": "word", "source_unknown": "-1"}, (), (), ())
    with pytest.raises(BundleError, match="source_unknown"):
        open_tokenizer(tmp_path, entry, SpecialTokens(pad=0, eos=2, decoder_start=1, unknown=3))
