"""Every family from its checkpoint to a translation: exported by the command, served by one server, asked by the client."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dragoman.bundle.languages import language_resolver
from dragoman.bundle.manifest import read_manifest
from dragoman.bundle.tokenizer import open_tokenizer
from dragoman.cli import main
from dragoman.client import Translator
from dragoman.errors import InvalidRequest
from dragoman.export.verification.original import HuggingFaceModel
from dragoman.serving.engine import Sequence
from dragoman.serving.in_process import open_model
from random_families import FAMILIES, PIECES
from served import Server, eventually

ONE = {"encoder_layers": 1, "decoder_layers": 1}
ONE_T5 = {"num_layers": 1, "num_decoder_layers": 1}
TASKS = {
    "summarization": {"num_beams": 3, "min_length": 6, "prefix": "summarize: "},
    "translation_en_to_de": {"prefix": "translate English to German: "},
}
TEXTS = ("Where is the station?", "It is raining.", "My sister has lived here for ten years.")


@dataclass(frozen=True)
class Served:
    """A family, what is special about its checkpoint here, and the options of a request for it."""

    family: str
    shape: dict[str, Any] = field(default_factory=dict)
    asked: dict[str, Any] = field(default_factory=dict)
    precision: str = "fp32"
    seed: int = 0


SERVED = {
    "nllb": Served("NLLB", ONE, {"source_language": "en", "target_language": "de"}),
    "small-100": Served("SMALL-100", ONE, {"target_language": "fr"}),
    "bart": Served("BART", {**ONE, "eos_token_id": [2, 130, 210]}),
    "mbart": Served(
        "mBART", {**ONE, "decoder_start_token_id": PIECES + 3}, {"source_language": "en", "target_language": "ro_RO"}
    ),
    "pegasus": Served("Pegasus", ONE),
    "t5": Served("T5", {**ONE_T5, "task_specific_params": TASKS, "eos_token_id": [1, 163, 147]}, seed=11),
    "madlad": Served("MADLAD", ONE_T5, {"target_language": "zh"}),
    "byt5": Served("ByT5", ONE_T5, precision="int8"),
}
EXACT = [name for name, served in SERVED.items() if served.precision == "fp32"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`NAME/model` and `NAME/bundle` of each."""
    directory = tmp_path_factory.mktemp("families")
    (directory / "few.txt").write_text("Tom is here.\nI don't know.\n", encoding="utf-8")
    for name, served in SERVED.items():
        checkpoint = FAMILIES[served.family].write(directory / name / "model", seed=served.seed, **served.shape)
        settings = json.loads((checkpoint / "generation_config.json").read_text())
        (checkpoint / "generation_config.json").write_text(json.dumps({**settings, "max_length": 20}))
        ask = ["export", str(checkpoint), "--output", str(directory / name / "bundle"), "--precision", served.precision]
        # Random weights translate nothing; int8 changes their output at will.
        loss = ["--max-quality-loss", "100"] if served.precision == "int8" else []
        assert main([*ask, *loss, "--verify-file", str(directory / "few.txt"), "--json"]) == 0
    return directory


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with Server.start([f"{name}={folder / name / 'bundle'}" for name in SERVED]) as started:
        yield started


def expected(folder: Path, name: str, text: str, *, task: str = "", task_prefix: str = "", **search: Any) -> str:
    """What Hugging Face `generate` makes of the text and the tokens of the bundle around it."""
    served, manifest = SERVED[name], read_manifest(folder / name / "bundle")
    tokenizer = open_tokenizer(folder / name / "bundle", manifest.tokenizer, manifest.tokens)
    chosen = language_resolver(manifest).tokens(served.asked.get("source_language"), served.asked.get("target_language"))
    prefix, usual = (manifest.tasks.named[task].prefix, manifest.tasks.named[task].generation) if task else ("", None)
    source = chosen.wrap(tokenizer.encode((task_prefix or prefix) + text))
    options = chosen.apply(dataclasses.replace(usual or manifest.generation, **search))
    (generated,) = HuggingFaceModel(folder / name / "model", manifest.tokens).generate([source], options)
    return tokenizer.decode(generated)


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("search", [{}, {"beam_size": 3, "length_penalty": 0.6}], ids=str)
def test_a_family_translates_as_hugging_face(server: Server, folder: Path, name: str, search: dict[str, Any]) -> None:
    options = {"max_length": 16, **search}
    with Translator(server.grpc, model=name) as translator:
        answers = translator.translate(list(TEXTS), **SERVED[name].asked, **options)
    assert [answer.text for answer in answers] == [expected(folder, name, text, **options) for text in TEXTS]


def hugging_face_loss(folder: Path, name: str, text: str, target: str) -> list[float]:
    """Log-probabilities of the target's tokens, behind the forced first token if there is one, and of the end token."""
    import torch
    from transformers import AutoModelForSeq2SeqLM

    served, manifest = SERVED[name], read_manifest(folder / name / "bundle")
    tokenizer = open_tokenizer(folder / name / "bundle", manifest.tokenizer, manifest.tokens)
    chosen = language_resolver(manifest).tokens(served.asked.get("source_language"), served.asked.get("target_language"))
    options = chosen.apply(manifest.generation)
    first = [] if options.forced_bos is None else [options.forced_bos]
    start = manifest.tokens.decoder_start if options.decoder_start is None else options.decoder_start
    tokens = [*first, *tokenizer.encode_target(target), manifest.tokens.eos]
    model = AutoModelForSeq2SeqLM.from_pretrained(folder / name / "model").eval()
    source = torch.tensor([chosen.wrap(tokenizer.encode(text))])
    with torch.inference_mode():
        logits = model(input_ids=source, decoder_input_ids=torch.tensor([[start, *tokens[:-1]]])).logits[0]
    return [float(row[token]) for row, token in zip(logits.log_softmax(-1), tokens, strict=True)]


@pytest.mark.parametrize("name", EXACT)
def test_a_family_scores_as_hugging_face(server: Server, folder: Path, name: str) -> None:
    targets = ["Tom is here.", "I have never been there, and I don't know why.", "Where?"]
    with Translator(server.grpc, model=name) as translator:
        scores = translator.score(list(TEXTS), targets, **SERVED[name].asked)
        alone = translator.score(TEXTS[1], targets[1], **SERVED[name].asked)
    assert [one.log_probability for one in alone.tokens] == pytest.approx(
        [one.log_probability for one in scores[1].tokens], abs=1e-5
    )
    for score, text, target in zip(scores, TEXTS, targets, strict=True):
        expected_log_probs = hugging_face_loss(folder, name, text, target)
        assert [one.log_probability for one in score.tokens] == pytest.approx(expected_log_probs, abs=1e-4)


PAIRS: dict[str, tuple[tuple[str | None, str], ...]] = {
    "nllb": (("en", "de"), ("fr", "en"), ("zh-Hans", "fr"), ("pt", "zu")),
    "mbart": (("en", "ro"), ("ro", "en"), ("de", "fr"), ("fr", "ja")),
    "small-100": ((None, "de"), (None, "en"), (None, "fr"), (None, "zu")),
    "madlad": ((None, "de"), (None, "en"), (None, "pt"), (None, "zh")),
}
"""Languages are a forced first token, a start token, and tokens before the source."""


@pytest.mark.parametrize("name", PAIRS)
def test_requests_of_different_languages_share_a_batch(folder: Path, name: str) -> None:
    model, pairs = open_model(folder / name / "bundle"), PAIRS[name]
    languages = language_resolver(model.manifest)
    search = dataclasses.replace(model.manifest.generation, beam_size=2, max_length=12, min_length=12)
    source, chosen = model.tokenizer.encode(TEXTS[0]), [languages.tokens(*pair) for pair in pairs]

    def sequences() -> list[Sequence]:
        return [Sequence(tokens.wrap(source), tokens.apply(search)) for tokens in chosen]

    together, alone, before = sequences(), sequences(), model.engine.counters.steps
    model.run(together)
    steps = model.engine.counters.steps - before
    for sequence in alone:
        model.run([sequence])
    assert steps == 12
    answers = [one.hypotheses[0].tokens for one in together]
    assert answers == [one.hypotheses[0].tokens for one in alone]
    original = HuggingFaceModel(folder / name / "model", model.manifest.tokens)
    assert answers == [original.generate([tokens.wrap(source)], tokens.apply(search))[0] for tokens in chosen]
    assert len(set(answers)) == len(pairs)


@pytest.mark.parametrize("name", sorted(SERVED.keys() - set(EXACT)))
def test_in_int8_a_text_is_translated_alone_as_in_a_batch(server: Server, name: str) -> None:
    with Translator(server.grpc, model=name) as translator:
        answers = translator.translate(list(TEXTS), max_length=16, beam_size=2)
        alone = [translator.translate(text, max_length=16, beam_size=2, cache=False) for text in TEXTS]
    assert [answer.text for answer in answers] == [answer.text for answer in alone]
    assert all(answer.tokens for answer in answers)


@pytest.mark.parametrize("name", ["bart", "t5"])
def test_several_end_tokens_end_a_translation_that_the_client_drives(server: Server, folder: Path, name: str) -> None:
    with Translator(server.grpc, model=name, decoding="client") as translator:
        answers = translator.translate(list(TEXTS), max_length=40, beam_size=3)
    assert [answer.text for answer in answers] == [
        expected(folder, name, text, max_length=40, beam_size=3) for text in TEXTS
    ]
    assert any(answer.finish == "eos" for answer in answers)


@pytest.mark.parametrize("decoding", ["server", "client"])
@pytest.mark.parametrize("asked", [{"task": "summarization"}, {"task_prefix": "say again: "}], ids=str)
def test_a_task_is_its_prefix_and_its_search(server: Server, folder: Path, asked: dict[str, str], decoding: Any) -> None:
    with Translator(server.grpc, model="t5", decoding=decoding) as translator:
        answer = translator.translate(TEXTS[0], max_length=16, **asked)
        assert answer.text == expected(folder, "t5", TEXTS[0], max_length=16, **asked)
        assert answer.text != translator.translate(TEXTS[0], max_length=16).text
        with pytest.raises(InvalidRequest, match="it has summarization, translation_en_to_de"):
            translator.translate(TEXTS[0], task="poetry")
        with pytest.raises(InvalidRequest, match=r"task_prefix has .* tokens"):
            translator.translate(TEXTS[0], task_prefix="go " * 170)


def test_the_shell_names_languages_and_tasks(
    server: Server, folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    common = ["translate", "--server", server.grpc, "--max-length", "16", TEXTS[0]]
    assert main([*common, "--model", "nllb", "--from", "en", "--to", "de"]) == 0
    assert main([*common, "--model", "t5", "--task", "summarization"]) == 0
    nllb = expected(folder, "nllb", TEXTS[0], max_length=16)
    t5 = expected(folder, "t5", TEXTS[0], task="summarization", max_length=16)
    assert capsys.readouterr().out == f"{' '.join(nllb.splitlines())}\n{' '.join(t5.splitlines())}\n"
    assert main(["inspect", str(folder / "t5" / "bundle")]) == 0
    assert "summarization, translation_en_to_de" in capsys.readouterr().out
    assert main(["inspect", str(folder / "nllb" / "bundle")]) == 0
    shown = capsys.readouterr().out
    assert "202, each into each" in shown
    assert shown.count("zu-Latn") == 1
    (tmp_path / "load.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    load = ["loadtest", "--server", server.grpc, "--workload", str(tmp_path / "load.txt"), "--metrics", "off"]
    load += ["--warm-up", "0s", "--duration", "1s"]
    ask = ["--model", "nllb", "--from", "en", "--to", "fra_Latn", "--beam", "1", "--output", str(tmp_path / "run")]
    assert main([*load, *ask]) == 0


def test_languages_are_listed_in_errors_and_by_the_server(server: Server) -> None:
    with Translator(server.grpc, model="madlad") as translator:
        with pytest.raises(InvalidRequest, match=r"target_language='fr' .* it has en, de, pt, zh-Latn"):
            translator.translate(TEXTS[0], target_language="fr")
        with pytest.raises(InvalidRequest, match=r"needs a target_language; it has en, de, pt, zh-Latn"):
            translator.translate(TEXTS[0])
    with Translator(server.grpc, model="bart") as translator, pytest.raises(InvalidRequest, match="leave it out"):
        translator.translate(TEXTS[0], target_language="de")
    bundles = {bundle["name"]: bundle for bundle in server.caller().status()["bundles"]}
    assert bundles["madlad"]["target_languages"] == ["en", "de", "pt", "zh-Latn"]
    assert len(bundles["nllb"]["target_languages"]) == 202


def test_the_metrics_count_texts_by_their_languages(server: Server) -> None:
    def count() -> float:
        found = server.metrics().items()
        return sum(value for name, value in found if name.startswith("dragoman_pair_texts") and 'pair="und>de"' in name)

    before = count()
    with Translator(server.grpc, model="small-100") as translator:
        translator.translate(list(TEXTS), target_language="de", max_length=4)
    assert eventually(lambda: count() == before + len(TEXTS))


@pytest.mark.parametrize(
    ("name", "targets"),
    [
        ("nllb", ("deu_Latn", "fra_Latn")),
        ("mbart", ("de_DE", "fr_XX")),
        ("small-100", ("de", "fr")),
        ("madlad", ("de", "pt")),
    ],
)
def test_a_bundle_is_verified_with_several_languages(folder: Path, name: str, targets: tuple[str, str]) -> None:
    verification = read_manifest(folder / name / "bundle").verification
    assert verification is not None
    cases = " ".join(case.name for case in verification.cases)
    assert f"greedy to {targets[0]}, batch 32" in cases
    assert f" to {targets[1]}, batch 32" in cases
