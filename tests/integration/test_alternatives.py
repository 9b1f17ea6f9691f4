"""What else could stand at a place of a translation, from a real server: the figures are those of Hugging Face."""

from __future__ import annotations

import json
import re
from pathlib import Path

import grpc
import pytest

from dragoman.cli import main
from dragoman.client import Alternatives, Translator
from dragoman.errors import InvalidRequest, UsageError
from served import Caller, Server, request

REFERENCE_MODEL = Path(__file__).resolve().parents[2] / "models" / "tatoeba-en-de"
SOURCE, OTHER = "My brother lives in a small house near the river.", "Where is the station?"


def alternatives(translator: Translator, text: str, *places: int, **options: object) -> list[Alternatives]:
    found = translator.translate(text, alternatives_at=places, cache=False, **options).alternatives_at  # type: ignore[arg-type]
    assert len(found) == len(places)
    return [one for one in found if one is not None]


def of_hugging_face(prefix: tuple[int, ...], count: int) -> list[tuple[int, float]]:
    """The best tokens behind a prefix."""
    import torch
    from transformers import MarianMTModel, MarianTokenizer

    model, tokenizer = (
        MarianMTModel.from_pretrained(REFERENCE_MODEL).eval(),
        MarianTokenizer.from_pretrained(REFERENCE_MODEL),
    )
    fed = torch.tensor([[model.config.decoder_start_token_id, *prefix]])
    with torch.inference_mode():
        logits = model(**tokenizer(SOURCE, return_tensors="pt"), decoder_input_ids=fed).logits[0, -1]
    best = logits.log_softmax(-1).topk(count)
    return list(zip(best.indices.tolist(), best.values.tolist(), strict=True))


@pytest.mark.parametrize("beam_size", [1, 4])
def test_alternatives_have_the_log_probabilities_of_hugging_face(translator: Translator, beam_size: int) -> None:
    text = translator.translate(SOURCE, beam_size=beam_size, cache=False).text
    for found in alternatives(translator, SOURCE, 0, 12, len(text), beam_size=beam_size, num_alternatives=7):
        expected = of_hugging_face(found.prefix, 7)
        assert [one.token for one in found.tokens] == [token for token, _ in expected]
        assert [one.log_probability for one in found.tokens] == pytest.approx([each for _, each in expected], abs=1e-4)
        chosen = [one.log_probability for one in found.tokens if one.text == text[found.start : found.end]]
        assert found.log_probability in chosen


def test_a_sentence_goes_on_after_any_alternative(translator: Translator) -> None:
    text = translator.translate(SOURCE, cache=False).text
    place = text.index("Haus") - 1
    (found,) = alternatives(translator, SOURCE, place)
    assert found.start <= place < found.end
    assert found.text == text[found.start : found.end]
    for one in found.tokens:
        completed = translator.translate(SOURCE, prefix=[*found.prefix, one.token], cache=False).text
        assert completed.startswith((text[: found.start] + one.text).strip())
        assert (completed == text) or one.text != found.text
    assert len({one.text for one in found.tokens}) == 5


def test_the_same_alone_in_a_batch_and_in_a_text(translator: Translator, caller: Caller) -> None:
    (alone,) = alternatives(translator, SOURCE, 20)
    batch = caller.translate([OTHER, SOURCE, OTHER] * 6, alternatives_at=[20], cache=False).details["texts"]
    for text in batch[1::3]:
        (found,) = text["alternatives_at"]
        assert [one["text"] for one in found["tokens"]] == [one.text for one in alone.tokens]
        figures = [one["log_probability"] for one in found["tokens"]]
        assert figures == pytest.approx([one.log_probability for one in alone.tokens], abs=1e-5)
    before = len(translator.translate(OTHER, cache=False).text) + 1
    (later,) = alternatives(translator, f"{OTHER} {SOURCE}", 20 + before)
    assert (later.start - before, later.prefix) == (alone.start, alone.prefix)
    assert f"{OTHER} {SOURCE}"[later.source_start : later.source_end] == SOURCE
    assert [one.text for one in later.tokens] == [one.text for one in alone.tokens]


def test_with_other_options(translator: Translator) -> None:
    text = "See https://example.org/a.b now."
    assert len(alternatives(translator, text, 0)) == 1
    assert alternatives(translator, text, text.index("now")) == [], "a link stands before it"
    assert len(alternatives(translator, text, text.index("now"), placeholders=False)) == 1
    assert len(alternatives(translator, OTHER, 0, glossary={"station": "Haltestelle"})) == 1
    moved = "The treaty did not ban nuclear tests under the ground."
    assert alternatives(translator, moved, 0, glossary={"treaty": "Vertrag", "tests": "Atomversuche"}) == []
    aligned = translator.translate(
        OTHER, alternatives_at=[4], alignment=True, on_suspicion="retry", beam_size=2, cache=False
    )
    assert aligned.alignment
    assert aligned.alternatives_at[0] is not None
    assert aligned.sentences[0].coverage is not None
    stream = translator.stream(OTHER, alternatives_at=[4], cache=False)
    assert "".join(stream) == stream.result.text
    assert stream.result.alternatives_at[0] is not None
    assert translator.translate(OTHER, alternatives_at=[]).alternatives_at == ()


@pytest.mark.parametrize(
    ("source", "options"),
    [
        ("<p>My <b>brother</b> lives in a <i>small house</i> near the river.</p>", {"format": "html"}),
        ("- It is late.\n- My *brother* lives in a **small [house](a)** near the river.", {"format": "markdown"}),
        ("MY BROTHER LIVES IN A SMALL HOUSE NEAR THE RIVER.", {}),
    ],
)
def test_a_sentence_with_tags_or_in_capitals_goes_on_after_any_alternative(
    translator: Translator, source: str, options: dict[str, object]
) -> None:
    text = translator.translate(source, cache=False, **options).text  # type: ignore[call-overload]
    place = text.lower().index("haus")
    (found,) = alternatives(translator, source, place, **options)
    assert found.start <= place < found.end
    assert re.sub(r"</?\w>|\W", "", text[found.start : found.end]).lower() == found.text.strip().lower()
    sentence = source[found.source_start : found.source_end]
    chosen = found.tokens[0] if found.tokens[0].text != found.text else found.tokens[1]
    other = translator.translate(sentence, prefix=[*found.prefix, chosen.token], cache=False, **options).text  # type: ignore[call-overload]
    words = [re.sub(r"</?\w>|[^\w ]", "", each).lower().split() for each in (text[: found.start], other)]
    behind = [word for word in words[0] if word != "p"]
    before = len(behind) - len(translator.translate("It is late.").text.split()) * ("late" in source)
    assert words[1][:before] == behind[len(behind) - before :]
    assert words[1][before].startswith(chosen.text.strip().lower())


def test_the_response_cache_keeps_them_apart(translator: Translator) -> None:
    for options in ({"alternatives_at": [0]}, {"alternatives_at": [5]}, {}, {"alternatives_at": [0], "num_alternatives": 3}):
        first, again = (translator.translate("It is cold.", **options) for _ in range(2))  # type: ignore[arg-type]
        assert again.cached
        assert again.alternatives_at == first.alternatives_at
        assert len(first.alternatives_at) == len(options.get("alternatives_at", []))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"alternatives_at": 3}, "alternatives_at=3 has the wrong type: it must be a list of at most 16 whole numbers"),
        ({"alternatives_at": "0"}, "alternatives_at='0' has the wrong type"),
        ({"alternatives_at": [0] * 17}, "alternatives_at=(a list of 17) must be a list of at most 16"),
        ({"alternatives_at": [-1]}, "alternatives_at has -1"),
        ({"alternatives_at": [True]}, "alternatives_at has True"),
        ({"alternatives_at": [1.5]}, "alternatives_at has 1.5"),
        ({"alternatives_at": [[[1]]]}, "alternatives_at has (a list of 1)"),
        ({"alternatives_at": [10**40]}, "alternatives_at has"),
        ({"alternatives_at": [None]}, "alternatives_at has None"),
        ({"alternatives_at": [0], "num_alternatives": 0}, "num_alternatives=0 must be a whole number between 1 and 16"),
        ({"alternatives_at": [0], "num_alternatives": 17}, "num_alternatives=17 must be"),
    ],
)
def test_what_is_no_place_is_refused_by_name(caller: Caller, options: dict[str, object], complaint: str) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        caller.translate([OTHER], **options)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert complaint in str(refused.value.details())


def test_a_long_text_with_all_places_delays_no_other_request(caller: Caller) -> None:
    text = f"{SOURCE} " * 150
    places = list(range(0, 1600, 100))
    later = caller.stub.ModelInfer.future(
        request("translate", [text] * 4, {"alternatives_at": places, "num_alternatives": 16, "cache": False}), timeout=600
    )
    assert caller.translate([OTHER], cache=False).best == ["Wo ist der Bahnhof?"]
    answer = caller.answer(later.result())
    for told in answer.details["texts"]:
        found = [one for one in told["alternatives_at"] if one is not None]
        assert len(found) >= 14
        assert all(len(one["tokens"]) == 16 for one in found)


def test_calls_that_can_not_be_right(server: Server, translator: Translator) -> None:
    with pytest.raises(InvalidRequest, match="alternatives_at=5 must be a list of characters of the translation"):
        translator.translate(OTHER, alternatives_at=5)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="score\\(\\) has no option 'alternatives_at'"):
        translator.score("a", "b", alternatives_at=[1])  # type: ignore[call-overload]
    with Translator(server.grpc, decoding="client") as own, pytest.raises((InvalidRequest, UsageError)):
        own.translate(OTHER, alternatives_at=[1])


def test_the_command(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    text = "Where is the station?"
    assert main(["translate", text, "--server", server.grpc, "--alternatives-at", "11", "--num-alternatives", "3"]) == 0
    translation, header, *rows = capsys.readouterr().out.splitlines()
    assert translation == "Wo ist der Bahnhof?"
    assert header.split("\t") == ["at", "rank", "log-probability", "translation up to there"]
    assert [row.split("\t")[1] for row in rows] == ["1", "2", "3"]
    assert rows[0].split("\t")[3].startswith("Wo ist der ")
    assert main(["translate", text, "--server", server.grpc, "--alternatives-at", "11", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["alternatives_at"]
    assert len(found["tokens"]) == 5
    for flags in (["--stream"], ["--n-best", "2"], ["--decoding", "client"], ["--align"]):
        assert main(["translate", text, "--server", server.grpc, "--alternatives-at", "1", *flags]) == 2
    assert main(["translate", text, "--server", server.grpc, "--num-alternatives", "3"]) == 2
