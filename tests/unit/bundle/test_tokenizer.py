from __future__ import annotations

from pathlib import Path

import pytest
import transformers

from dragoman.bundle.manifest import SpecialTokens, TokenizerFiles
from dragoman.bundle.tokenizer import open_tokenizer
from dragoman.bundle.tokenizer_bytes import ByteTokenizer
from dragoman.bundle.tokenizer_pieces import MarianTokenizer
from dragoman.bundle.tokenizer_vocabulary import VocabularyTokenizer
from dragoman.errors import BundleError

MODEL = Path(__file__).parents[3] / "models" / "tatoeba-en-de"
FILES = TokenizerFiles(
    "marian",
    {"source_model": "source.spm", "target_model": "target.spm", "source_vocabulary": "vocab.json"},
    source_suffix=(0,),
)
TOKENS = SpecialTokens(pad=8000, eos=0, decoder_start=8000, unknown=1)

SENTENCES = [
    "Hello.",
    "  spaces   everywhere ",
    'Zoë paid $14.75 – "really"?',
    "日本語 and Ελληνικά",
    "a" * 300,
    "🙂",
    "tab\tand\u00a0nbsp",
]


@pytest.fixture(scope="module")
def tokenizer() -> MarianTokenizer:
    return MarianTokenizer(MODEL, FILES, TOKENS)


@pytest.fixture(scope="module")
def original() -> transformers.MarianTokenizer:
    return transformers.MarianTokenizer.from_pretrained(MODEL, local_files_only=True)


@pytest.mark.parametrize("text", SENTENCES)
def test_source_ids_are_those_of_hugging_face(
    tokenizer: MarianTokenizer, original: transformers.MarianTokenizer, text: str
) -> None:
    assert tokenizer.encode(text) == original(text)["input_ids"]


@pytest.mark.parametrize("text", ["Wo ist der Bahnhof?", "Das hat 3,50 Euro gekostet.", "Ja"])
def test_target_text_survives_a_round_trip_as_in_hugging_face(
    tokenizer: MarianTokenizer, original: transformers.MarianTokenizer, text: str
) -> None:
    ids = tokenizer.encode_target(text)
    assert ids == original(text_target=text)["input_ids"][:-1]
    assert tokenizer.decode([8000, *ids, 0, 8000]) == original.decode(ids, skip_special_tokens=True) == text


def test_text_that_looks_like_a_special_token_stays_text(tokenizer: MarianTokenizer) -> None:
    assert tokenizer.encode("a</s>b").count(0) == 1


@pytest.mark.parametrize(("text", "is_read"), [("Hello", True), ("Erdős", True), ("שלום", False), ("日", False)])
def test_a_text_is_read_if_the_vocabulary_has_a_letter_of_it(tokenizer: MarianTokenizer, text: str, is_read: bool) -> None:
    assert tokenizer.reads(text) == is_read
    assert ByteTokenizer(TokenizerFiles("bytes", {})).reads(text)


def test_pieces_that_are_left_out_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "vocabulary.json").write_text('{"good": 2, "morning": 3}', encoding="utf-8")
    files = TokenizerFiles("vocabulary", {"source_vocabulary": "vocabulary.json"})
    for unknown in (None, 1):
        words = VocabularyTokenizer(tmp_path, files, SpecialTokens(pad=0, eos=0, decoder_start=0, unknown=unknown))
        assert words.reads("a good evening")
        assert not words.reads("an evening")


def test_a_language_token_is_one_id_and_an_unknown_one_is_refused(tmp_path: Path) -> None:
    for name in ("source.spm", "target.spm"):
        (tmp_path / name).write_bytes((MODEL / name).read_bytes())
    (tmp_path / "vocab.json").write_text('{"</s>": 0, "<unk>": 1, "▁Tom": 2, ">>deu<<": 3, "<pad>": 4}')
    tokenizer = MarianTokenizer(tmp_path, FILES, SpecialTokens(pad=4, eos=0, decoder_start=4, unknown=1))
    assert tokenizer.encode(">>deu<< Tom") == [3, 2, 0]
    with pytest.raises(Exception, match=r">>fra<<.*it has >>deu<<"):
        tokenizer.encode(">>fra<< Tom")


def test_a_broken_file_and_an_unknown_kind_are_bundle_errors(tmp_path: Path) -> None:
    (tmp_path / "source.spm").write_bytes(b"not a model")
    with pytest.raises(BundleError, match=r"source\.spm"):
        MarianTokenizer(tmp_path, FILES, TOKENS)
    with pytest.raises(BundleError, match="'bpe' is not known"):
        open_tokenizer(MODEL, TokenizerFiles("bpe", {}), TOKENS)
