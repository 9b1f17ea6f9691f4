"""A bundle whose model may generate the tokens of a text only: exported, decoded, served, driven by the client."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.bundle.manifest import read_manifest
from dragoman.bundle.tokenizer import Tokenizer, open_tokenizer
from dragoman.cli import main
from dragoman.client import ClientDecoding, Translator
from dragoman.errors import InvalidRequest
from dragoman.search import DecodingOptions
from dragoman.serving.in_process import LoadedModel, open_model
from served import Server

REFERENCE_MODEL = Path(__file__).resolve().parents[2] / "models" / "tatoeba-en-de"
TEXT = "Wo ist der Bahnhof?\nTom war noch nie dort.\nEs regnet.\n"


def tokenizer_of(bundle: Path) -> Tokenizer:
    manifest = read_manifest(bundle)
    return open_tokenizer(bundle, manifest.tokenizer, manifest.tokens)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("short")
    (directory / "text.de").write_text(TEXT, encoding="utf-8")
    (directory / "check.tsv").write_text(
        "Where is the station?\tWo ist der Bahnhof?\nIt rains.\tEs regnet.\n", encoding="utf-8"
    )
    ask = ["export", str(REFERENCE_MODEL), "--output", str(directory / "bundle"), "--shortlist", str(directory / "text.de")]
    assert main([*ask, "--verify-file", str(directory / "check.tsv"), "--json"]) == 0
    return directory / "bundle"


@pytest.fixture(scope="module")
def model(bundle: Path) -> LoadedModel:
    return open_model(bundle)


@pytest.fixture(scope="module")
def listed(bundle: Path) -> set[int]:
    """What the text is made of."""
    tokenizer = tokenizer_of(bundle)
    return {token for line in TEXT.splitlines() for token in tokenizer.encode_target(line)}


def test_the_manifest_has_the_number_of_tokens_that_can_be_generated(
    bundle: Path, listed: set[int], capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = read_manifest(bundle)
    shortlist = manifest.dimensions.shortlist
    assert shortlist is not None
    assert len(listed) < shortlist < manifest.dimensions.target_vocabulary / 4
    assert manifest.verification is not None
    assert main(["inspect", str(bundle)]) == 0
    assert f"{shortlist:,} tokens can be generated" in capsys.readouterr().out


@pytest.mark.parametrize("beam_size", [1, 4])
def test_translations_with_words_of_the_text_are_unchanged(model: LoadedModel, beam_size: int) -> None:
    options = DecodingOptions(beam_size=beam_size, max_length=30)
    assert model.translate(["Where is the station?"], options) == ["Wo ist der Bahnhof?"]


def test_only_tokens_of_the_text_and_single_characters_are_generated(model: LoadedModel, listed: set[int]) -> None:
    source = tuple(model.tokenizer.encode("The president visited the new bridge yesterday."))
    for beam_size in (1, 4):
        ((best, *_),) = model.decode([source], DecodingOptions(beam_size=beam_size, max_length=20))
        others = set(best.tokens) - listed - {model.manifest.tokens.eos, model.manifest.tokens.unknown}
        assert all(len(model.tokenizer.decode([token])) == 1 for token in others)


def test_sampling_draws_from_all_tokens_of_the_shortlist(model: LoadedModel) -> None:
    source = tuple(model.tokenizer.encode("Where is the station?"))
    options = DecodingOptions(beam_size=1, sampling=True, top_k=0, temperature=3.0, seed=3, max_length=20)
    ((best, *_),) = model.decode([source], options)
    assert best.tokens


def test_client_driven_decoding_sees_all_tokens_of_the_shortlist(bundle: Path) -> None:
    with Server.start([f"en-de={bundle}"]) as server:
        with Translator(server.grpc, decoding=ClientDecoding(candidates="all")) as ours, Translator(server.grpc) as theirs:
            sentence = "Where is the station?"
            assert ours.translate(sentence).text == theirs.translate(sentence).text == "Wo ist der Bahnhof?"
        caller = server.caller()
        session, info = caller.encode(["Where is the station?"])
        assert info["choices"] == read_manifest(bundle).dimensions.shortlist
        caller.decode(session, {"do": "close"})
        caller.close()


def test_a_loss_beyond_the_limit_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.de").write_text("Ja.\n", encoding="utf-8")
    (tmp_path / "check.tsv").write_text("Where is the station?\tWo ist der Bahnhof?\n", encoding="utf-8")
    ask = ["export", str(REFERENCE_MODEL), "--output", str(tmp_path / "bundle"), "--shortlist", str(tmp_path / "text.de")]
    assert main([*ask, "--verify-file", str(tmp_path / "check.tsv")]) == 1
    assert "fp32 with this shortlist loses" in (said := " ".join(capsys.readouterr().err.split()))
    assert "give --shortlist more text" in said
    assert not (tmp_path / "bundle").exists()


@pytest.mark.parametrize(
    ("content", "complaint"), [(None, "can't be read"), (b"\xff\xfe", "is not UTF-8"), (b" \n\n", "is empty; put sentences")]
)
def test_an_empty_shortlist_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, complaint: str
) -> None:
    text = tmp_path / "text.de"
    if content is not None:
        text.write_bytes(content)
    ask = ["export", str(REFERENCE_MODEL), "--output", str(tmp_path / "bundle"), "--shortlist", str(text)]
    assert main(ask) != 0
    assert complaint in " ".join(capsys.readouterr().err.split())


def test_models_with_other_shortlists_are_no_ensemble(bundle: Path, reference_bundle: Path) -> None:
    names = [f"short={bundle}", f"long={reference_bundle}"]
    decoding = ClientDecoding(ensemble=["long"])
    with (
        Server.start(names) as server,
        Translator(server.grpc, model="short", decoding=decoding) as translator,
        pytest.raises(InvalidRequest, match="their shortlists differ"),
    ):
        translator.translate("Where is the station?")
