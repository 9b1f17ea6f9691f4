"""The bundle's tokenizers give the ids and the text of Hugging Face on awkward strings, and never a special token."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import transformers
from bundled_tokenizer import bundled_tokenizer

from dragoman.bundle.tokenizer import Tokenizer, open_tokenizer
from dragoman.errors import CheckpointError
from dragoman.export.checkpoint import Checkpoint, read_checkpoint
from random_families import FAMILIES, PIECES
from random_marian import REFERENCE_MODEL

AWKWARD = [
    "Where is the station?",
    "",
    " ",
    "   ",
    "  two  spaces  everywhere  ",
    "tab\tand\nnewline\r\n",
    "no\u00a0break\u2003em\u3000ideographic",
    "ﬁne ﬂigatures ½ ①",
    "Ｆｕｌｌ　ｗｉｄｔｈ",
    "🙂 emoji 👩‍👩‍👧 family",
    "control\x00\x01\x07\x7fcharacters",
    "e\u0301 combining and é composed",
    "日本語 and Ελληνικά and עברית",
    "zero\u200bwidth\ufeffbom",
    "a" * 200,
    "1,234.56 $ % @ # <> [] {}",
    "▁ the mark itself ▁▁",
    "Zoë paid – “really”?",
    "don't  can't; semi:colon",
    "…",
]
LITERAL = [
    "a </s> b",
    "</s>",
    "<pad><unk><s>",
    "eng_Latn hello",
    "en_XX deu_Latn __de__",
    "<2de> <2pt>Hello",
    "<extra_id_0> <mask> <mask_1>",
]


@dataclass(frozen=True)
class Pair:
    checkpoint: Checkpoint
    ours: Tokenizer
    theirs: Any

    @property
    def sentencepiece(self) -> sentencepiece.SentencePieceProcessor:
        """The checkpoint's own model."""
        name = self.checkpoint.tokenizer.files.get("model", "spiece.model")
        return sentencepiece.SentencePieceProcessor(model_file=str(self.checkpoint.source / name))

    @property
    def spells_in_bytes(self) -> bool:
        """Newer versions of Hugging Face neither write nor read the pieces for bytes."""
        return self.checkpoint.source.name == "MADLAD"


def as_json(directory: Path, kind: type) -> None:
    """Let transformers write tokenizer.json, as most public checkpoints have it."""
    settings = (directory / "tokenizer_config.json").read_text()
    kind.from_pretrained(directory).save_pretrained(directory)  # type: ignore[attr-defined]
    (directory / "tokenizer_config.json").write_text(settings)


KINDS: dict[str, tuple[str, str, bool]] = {
    "T5, sentencepiece": ("T5", "T5Tokenizer", False),
    "T5, tokenizer.json": ("T5", "T5Tokenizer", True),
    "MADLAD, sentencepiece": ("MADLAD", "T5Tokenizer", False),
    "MADLAD, tokenizer.json": ("MADLAD", "T5Tokenizer", True),
    "Pegasus, sentencepiece": ("Pegasus", "PegasusTokenizer", False),
    "Pegasus, tokenizer.json": ("Pegasus", "PegasusTokenizer", True),
    "mBART-50, sentencepiece": ("mBART-50", "MBart50Tokenizer", False),
    "mBART-50, tokenizer.json": ("mBART-50", "MBart50Tokenizer", True),
    "mT5, sentencepiece": ("mT5", "T5Tokenizer", False),
    "UMT5, tokenizer.json": ("UMT5", "T5Tokenizer", True),
    "Marian": ("Marian", "MarianTokenizer", False),
    "SMALL-100": ("SMALL-100", "M2M100Tokenizer", False),
    "mBART, sentencepiece": ("mBART", "MBartTokenizer", False),
    "M2M100": ("M2M100", "M2M100Tokenizer", False),
    "BART, merges": ("BART", "BartTokenizer", False),
    "BART, tokenizer.json": ("BART", "BartTokenizer", True),
    "ByT5": ("ByT5", "ByT5Tokenizer", False),
}


@pytest.fixture(scope="module", params=KINDS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    family, kind, with_json = KINDS[request.param]
    if family == "Marian":
        directory = REFERENCE_MODEL
    else:
        directory = FAMILIES[family].write(tmp_path_factory.mktemp("checkpoints") / family)
    theirs = getattr(transformers, kind)
    if with_json:
        as_json(directory, theirs)
    checkpoint = read_checkpoint(directory)
    assert checkpoint.tokenizer.kind == {True: "tokenizers"}.get(with_json, checkpoint.tokenizer.kind)
    written = tmp_path_factory.mktemp("written")
    ours = bundled_tokenizer(checkpoint, written)
    return Pair(checkpoint, ours, theirs.from_pretrained(directory))


def plain(pair: Pair, text: str) -> list[int]:
    """The ids of the text alone, from sentencepiece itself where we have no other file, else from Hugging Face.

    Its newer versions rebuild what they do from a sentencepiece file, without some of the normalisation and without
    stripping white space on the right.
    """
    entry, unknown = pair.checkpoint.tokenizer, pair.checkpoint.tokens.unknown
    if entry.kind == "sentencepiece" or pair.spells_in_bytes:
        model = pair.sentencepiece
        offset = {"PegasusTokenizer": 103, "T5Tokenizer": 0}.get(type(pair.theirs).__name__, 1)
        return [unknown if piece == model.unk_id() else piece + offset for piece in model.encode(text)]
    strips = entry.kind != "bytes" and not isinstance(pair.theirs, transformers.BartTokenizer)
    ids: list[int] = pair.theirs(text.rstrip() if strips else text, add_special_tokens=False)["input_ids"]
    return ids


@pytest.mark.parametrize("text", AWKWARD, ids=ascii)
def test_source_ids_are_those_of_hugging_face(pair: Pair, text: str) -> None:
    assert pair.ours.encode(text, prefix=(), suffix=()) == plain(pair, text)


@pytest.mark.parametrize("text", AWKWARD, ids=ascii)
def test_text_comes_back_as_in_hugging_face(pair: Pair, text: str) -> None:
    ids = pair.ours.encode_target(text)
    tokens = pair.checkpoint.tokens
    if pair.spells_in_bytes:
        theirs = pair.sentencepiece.decode(ids)
    else:
        theirs = pair.theirs.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    assert pair.ours.decode([tokens.decoder_start, *ids, tokens.eos, tokens.pad]).strip() == theirs.strip()


@pytest.mark.parametrize("text", LITERAL, ids=ascii)
def test_a_literal_special_token_is_text(pair: Pair, text: str) -> None:
    special = set(pair.checkpoint.tokenizer.silent) - {pair.checkpoint.tokens.unknown}
    assert not special & set(pair.ours.encode(text, prefix=(), suffix=()))
    assert not special & set(pair.ours.encode_target(text))


def test_the_tokens_around_a_source_are_those_of_the_family(pair: Pair) -> None:
    if pair.checkpoint.languages is None:
        assert pair.ours.encode("Hello.") == pair.theirs("Hello.")["input_ids"]
    else:
        assert pair.ours.encode("Hello.", prefix=(9,), suffix=(2, 8)) == [9, *plain(pair, "Hello."), 2, 8]


def test_language_tokens_leave_no_trace_in_a_text(pair: Pair) -> None:
    languages = pair.checkpoint.languages
    ids = pair.ours.encode_target("Hello.")
    first = [] if languages is None else list(languages.tokens.values())[:1]
    assert pair.ours.decode([*first, *ids]) == pair.ours.decode(ids)


def test_nllb_ids_are_the_public_ones(tmp_path: Path) -> None:
    """Built from the sentencepiece file alone, Hugging Face 4.57 and 5 put <mask> before the languages."""
    checkpoint = read_checkpoint(FAMILIES["NLLB"].write(tmp_path / "model"))
    assert checkpoint.languages is not None
    public_first, public_pieces = 256001, 256000  # ace_Arab in facebook/nllb-200-distilled-600M
    assert checkpoint.languages.tokens["ace_Arab"] - (PIECES + 1) == public_first - (public_pieces + 1)


def test_a_tokenizer_json_without_languages_gives_way_to_the_sentencepiece_file(tmp_path: Path) -> None:
    """As transformers 5 writes it for NLLB where it had no tokenizer.json itself."""
    directory = FAMILIES["NLLB"].write(tmp_path / "model")
    languages = read_checkpoint(directory).languages
    as_json(directory, transformers.NllbTokenizer)
    checkpoint = read_checkpoint(directory)
    assert (checkpoint.tokenizer.kind, checkpoint.languages) == ("sentencepiece", languages)
    (directory / "sentencepiece.bpe.model").unlink()
    with pytest.raises(CheckpointError, match=r"tokenizer\.json with the language tokens"):
        read_checkpoint(directory)


def test_a_piece_that_the_target_model_does_not_know_becomes_a_word(tmp_path: Path) -> None:
    """Two sentencepiece models share one vocabulary: the source's pieces can be generated, too."""
    from dragoman.bundle.manifest import SpecialTokens, TokenizerFiles
    from random_marian import REFERENCE_MODEL

    for name in ("source.spm", "target.spm"):
        (tmp_path / name).write_bytes((REFERENCE_MODEL / name).read_bytes())
    pieces = {"</s>": 0, "<unk>": 1, "▁Tom": 2, "▁qqqzzz": 3, "<pad>": 4}
    (tmp_path / "vocab.json").write_text(json.dumps(pieces))
    files = {"source_model": "source.spm", "target_model": "target.spm", "source_vocabulary": "vocab.json"}
    tokens = SpecialTokens(pad=4, eos=0, decoder_start=4, unknown=1)
    tokenizer = open_tokenizer(tmp_path, TokenizerFiles("marian", files, source_suffix=(0,)), tokens)
    assert tokenizer.decode([2, 3, 2, 0]) == "Tom qqqzzz Tom"
