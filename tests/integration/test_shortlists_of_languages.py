"""Bundles with shortlists of single target languages: exported by the command, decoded in mixed batches, served, scored."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from dragoman.bundle.languages import language_resolver
from dragoman.bundle.manifest import read_manifest
from dragoman.bundle.tokenizer import literal_tokens_of
from dragoman.cli import main
from dragoman.client import ClientDecoding, Translator
from dragoman.errors import InvalidRequest
from dragoman.export.checkpoint import read_checkpoint
from dragoman.export.shortlist import read_shortlists
from dragoman.serving.engine import Sequence
from dragoman.serving.in_process import LoadedModel, open_model
from random_families import FAMILIES
from random_marian import REFERENCE_MODEL, write_marian
from served import Server

GERMAN, FRENCH = (
    "Where is the station?\nTom is here.\n",
    "I have never been there.\nMy sister has lived here for ten years.\n",
)
TEXTS = ("Where is the station?", "It is raining.", "My sister has lived here for ten years.")
ONE_LAYER = {"encoder_layers": 1, "decoder_layers": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundles `listed` and `opus` (whose texts may begin with `>>deu<<`), with lists of German and French."""
    directory = tmp_path_factory.mktemp("lists")
    for name, text in (("text.de", GERMAN), ("text.fr", FRENCH), ("few.txt", "Tom is here.\nI don't know.\n")):
        (directory / name).write_text(text, encoding="utf-8")
    FAMILIES["M2M100"].write(directory / "m2m100", **ONE_LAYER)
    write_marian(directory / "marian", vocab_size=8001, eos_token_id=0)
    vocabulary = json.loads((REFERENCE_MODEL / "vocab.json").read_text(encoding="utf-8"))
    renamed = {7000: ">>deu<<", 7001: ">>fra<<"}
    vocabulary = {renamed.get(token, piece): token for piece, token in vocabulary.items()}
    (directory / "marian" / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    german, french = str(directory / "text.de"), str(directory / "text.fr")
    for name, model, lists in (
        ("listed", "m2m100", [f"de={german}", f"fr={french}"]),
        ("opus", "marian", [f"deu={german}", f"fr={french}"]),
    ):
        ask = ["export", str(directory / model), "--output", str(directory / name), "--json", "--max-quality-loss", "100"]
        ask += ["--verify-file", str(directory / "few.txt"), *(word for one in lists for word in ("--shortlist", one))]
        assert main(ask) == 0
    return directory


@pytest.fixture(scope="module")
def listed(folder: Path, model: LoadedModel) -> dict[str | None, tuple[int, ...]]:
    """The tokens of each list."""
    texts = {"de": folder / "text.de", "fr": folder / "text.fr"}
    return read_shortlists(texts, model.tokenizer, read_checkpoint(folder / "m2m100"))


@pytest.fixture(scope="module")
def model(folder: Path) -> LoadedModel:
    return open_model(folder / "listed")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with Server.start([f"listed={folder / 'listed'}", f"opus={folder / 'opus'}"]) as started:
        yield started


def sequences(model: LoadedModel, targets: tuple[str, ...], **search: int) -> list[Sequence]:
    languages = language_resolver(model.manifest, literal_tokens_of(model.tokenizer))
    options = dataclasses.replace(model.manifest.generation, **{"max_length": 12, **search})
    found = []
    for at, code in enumerate(targets):
        tokens = languages.tokens("en" if model.manifest.languages else None, code)
        source = tokens.wrap(model.tokenizer.encode(TEXTS[at % len(TEXTS)]))
        found.append(Sequence(source, tokens.apply(options), shortlist=tokens.shortlist))
    return found


def test_every_list_is_recorded_shown_and_verified(
    folder: Path, listed: dict[str | None, tuple[int, ...]], capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = read_manifest(folder / "listed")
    assert list(manifest.shortlists) == ["de", "fr"]
    assert manifest.dimensions.shortlist is None
    assert manifest.shortlists == {code: len(tokens) for code, tokens in listed.items()}
    assert manifest.verification is not None
    named = {case.name for case in manifest.verification.cases}
    searches = [name.removesuffix(", batch 32") for name in named if name.endswith("batch 32")]
    beam = max(manifest.generation.beam_size, 4)
    assert {f"{search} to {code}" for search in ("greedy", f"beam {beam}") for code in ("de", "fr")} == set(searches)
    assert main(["inspect", str(folder / "listed")]) == 0
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert f"de {manifest.shortlists['de']:,}, fr {manifest.shortlists['fr']:,} tokens; all 508 into other languages" in said
    assert list(read_manifest(folder / "opus").shortlists) == ["deu", "fra"]


@pytest.mark.parametrize("beam_size", [1, 3])
def test_rows_of_different_lists_share_a_step_and_change_nothing(
    model: LoadedModel, listed: dict[str | None, tuple[int, ...]], beam_size: int
) -> None:
    targets = ("de", "fr", "pt", "fr", "de", "zu", "de")
    together, alone = (sequences(model, targets, beam_size=beam_size, min_length=12) for _ in range(2))
    before = model.engine.counters.steps
    model.run(together)
    assert model.engine.counters.steps - before == 12
    for sequence in alone:
        model.run([sequence])
    assert [one.hypotheses for one in together] == [one.hypotheses for one in alone]
    for code, sequence in zip(targets, together, strict=True):
        if code in listed:
            assert set(sequence.hypotheses[0].tokens) <= set(listed[code])


def test_sampling_draws_from_the_list_only(model: LoadedModel, listed: dict[str | None, tuple[int, ...]]) -> None:
    found = sequences(model, ("de", "pt", "de"), sampling=True, top_k=0, temperature=3.0, seed=5, max_length=30)
    model.run(found)
    assert all(one.error is None for one in found)
    assert set(found[0].hypotheses[0].tokens) <= set(listed["de"])
    assert not set(found[1].hypotheses[0].tokens) <= set(listed["de"])


def expected(folder: Path, bundle: str, code: str, text: str) -> str:
    model = open_model(folder / bundle)
    languages = language_resolver(model.manifest, literal_tokens_of(model.tokenizer))
    tokens = languages.tokens("en" if bundle == "listed" else None, code)
    options = tokens.apply(dataclasses.replace(model.manifest.generation, max_length=12))
    sequence = Sequence(tokens.wrap(model.tokenizer.encode(text)), options, shortlist=tokens.shortlist)
    model.run([sequence])
    return model.tokenizer.decode(sequence.hypotheses[0].tokens)


def test_the_language_of_a_request_chooses_its_list(server: Server, folder: Path) -> None:
    """Also where the response cache has the same text in another language."""
    with Translator(server.grpc, model="listed") as translator:
        for _ in range(2):
            for code in ("de", "fr", "pt"):
                answer = translator.translate(TEXTS[0], source_language="en", target_language=code, max_length=12)
                assert answer.text == expected(folder, "listed", code, TEXTS[0])


def test_a_text_that_begins_with_its_language_has_its_list(server: Server, folder: Path) -> None:
    with Translator(server.grpc, model="opus") as translator:
        for code, token in (("de", ">>deu<<"), ("fr", ">>fra<<")):
            named = translator.translate(TEXTS[0], target_language=code, max_length=12).text
            assert named == translator.translate(f"{token} {TEXTS[0]}", max_length=12).text
            assert named == expected(folder, "opus", code, TEXTS[0])


def test_decoding_driven_by_the_client_chooses_from_the_list(server: Server, folder: Path) -> None:
    manifest = read_manifest(folder / "listed")
    asked = {"source_language": "en", "target_language": "de", "max_length": 12}
    with (
        Translator(server.grpc, model="listed", decoding=ClientDecoding(candidates="all")) as ours,
        Translator(server.grpc, model="listed") as theirs,
    ):
        for beam_size in (1, 3):
            text = theirs.translate(TEXTS[0], **asked, beam_size=beam_size).text
            assert ours.translate(TEXTS[0], **asked, beam_size=beam_size).text == text
    caller = server.caller()
    for code, choices in (("de", manifest.shortlists["de"]), ("pt", manifest.dimensions.target_vocabulary)):
        session, info = caller.encode([TEXTS[0]], model="listed", source_language="en", target_language=code)
        assert info["choices"] == choices
        caller.decode(session, {"do": "close"})
    caller.close()


def test_a_target_with_other_tokens_than_its_list_has_no_score(server: Server) -> None:
    asked = {"source_language": "en", "target_language": "de"}
    with Translator(server.grpc, model="listed") as translator:
        assert translator.score(TEXTS[0], "Tom is here.", **asked).tokens
        with pytest.raises(InvalidRequest, match="not in the bundle's shortlist"):
            translator.score(TEXTS[0], "My sister has lived here for ten years.", **asked)
        assert translator.score(TEXTS[0], "My sister has lived here for ten years.", **{**asked, "target_language": "fr"})


def test_the_server_tells_which_languages_have_lists(
    server: Server, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = read_manifest(folder / "listed")
    bundles = {bundle["name"]: bundle for bundle in server.caller().status()["bundles"]}
    assert bundles["listed"]["shortlists"] == manifest.shortlists
    assert list(bundles["opus"]["shortlists"]) == ["de", "fr"]
    assert main(["status", "--server", server.grpc, "--watch", "0.1"]) == 0
    assert f"(shortlists: de {manifest.shortlists['de']:,}, fr {manifest.shortlists['fr']:,})" in capsys.readouterr().out


def test_a_request_can_not_name_a_list_itself(server: Server) -> None:
    caller = server.caller()
    for option in ({"shortlist": 1}, {"shortlists": [1]}, {"language_tokens": {"shortlist": 2}}):
        with pytest.raises(grpc.RpcError, match=f"unknown option '{next(iter(option))}'"):
            caller.translate([TEXTS[0]], model="listed", source_language="en", target_language="de", **option)
    caller.close()
