from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fake_triton import OVERLOADED, ScriptedTriton
from pseudo_model import VOCABULARY, PseudoModel, log_softmax, logits_of, solo, spell

from dragoman.client import AsyncTranslator, ClientDecoding, RetryPolicy, Step, Translator
from dragoman.errors import InvalidRequest, Overloaded, ServerError, UsageError
from dragoman.search import DecodingOptions

TEXTS = ["one", "another text", "a third", "four", "five five"]


@pytest.fixture
def model(triton: ScriptedTriton) -> PseudoModel:
    model = PseudoModel({None: 1, "second": 2})
    triton.models |= {"encoder": model.encoder, "decoder": model.decoder}
    return model


@pytest.fixture
def decoder(triton: ScriptedTriton, model: PseudoModel, eager: RetryPolicy) -> Iterator[Translator]:
    with Translator(triton.url, decoding="client", retry=eager) as translator:
        yield translator


def alone(text: str, **options: object) -> list[tuple[str, float]]:
    wanted = DecodingOptions(**{"max_length": 30, **options})  # type: ignore[arg-type]
    return [
        (spell(list(one.tokens)), pytest.approx(one.score, abs=1e-5))
        for one in solo(text, wanted, lambda text, fed: logits_of(1, text, fed))
    ]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"beam_size": 4, "num_hypotheses": 4},
        {"beam_size": 3, "length_penalty": 0.2, "early_stopping": "first"},
        {"no_repeat_ngram_size": 2, "beam_size": 2},
        {"repetition_penalty": 1.3},
        {"sampling": True, "top_k": 5, "seed": 11},
        {"max_length": 4},
        {"min_length": 8, "beam_size": 2},
        {"prefix": (3, 4), "beam_size": 2},
    ],
)
def test_it_finds_what_the_search_finds_alone(decoder: Translator, options: dict[str, object]) -> None:
    found = decoder.translate(TEXTS, **options)  # type: ignore[call-overload]
    spoken = [[(one.text, one.score), *((other.text, other.score) for other in one.alternatives)] for one in found]
    assert spoken == [alone(text, **options) for text in TEXTS]


@pytest.mark.parametrize(
    "options",
    [
        {"format": "html"},
        {"glossary": {"a": "b"}},
        {"glossary": "travel"},
        {"alignment": True},
        {"alternatives_at": [0]},
        {"on_suspicion": "retry"},
    ],
)
def test_what_needs_the_search_of_the_server_is_refused_before_anything_is_sent(
    decoder: Translator, triton: ScriptedTriton, options: dict[str, object], tmp_path: Path
) -> None:
    (name,) = options
    complaint = f"{name} needs the search of the server.*leave {name} out, or use a translator without decoding='client'"
    page = tmp_path / "page.txt"
    page.write_text("a\n", encoding="utf-8")

    async def in_asyncio() -> None:
        async with AsyncTranslator(triton.url, decoding=ClientDecoding()) as translator:
            await translator.translate("a", **options)

    for call in (
        lambda: decoder.translate("a", **options),
        lambda: list(decoder.translate_lines(["a"], **options)),
        lambda: decoder.translate_file(page, tmp_path / "out.txt", **options),
        lambda: asyncio.run(in_asyncio()),
    ):
        with pytest.raises(UsageError, match=complaint):
            call()
    assert not triton.received
    assert [path.name for path in tmp_path.iterdir()] == ["page.txt"]


def test_pages_need_the_search_of_the_server(decoder: Translator, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<p>a</p>", encoding="utf-8")
    with pytest.raises(UsageError, match="format needs the search of the server"):
        decoder.translate_file(page, tmp_path / "out.html")


def test_options_that_ask_for_nothing_are_taken(decoder: Translator) -> None:
    nothing = {"format": "text", "alignment": False, "alternatives_at": [], "on_suspicion": "ignore", "glossary": None}
    assert decoder.translate(TEXTS[0], **nothing).text == alone(TEXTS[0])[0][0]  # type: ignore[call-overload]


def test_the_caches_are_freed_at_the_end(decoder: Translator, model: PseudoModel) -> None:
    decoder.translate(TEXTS)
    assert (model.opened, model.open) == (1, {})


def test_the_version_of_the_model_is_known(decoder: Translator) -> None:
    assert decoder.translate("one").version == "7"


def test_a_server_of_another_wire_version_is_not_guessed_at(decoder: Translator, model: PseudoModel) -> None:
    model.wire_version += 1
    with pytest.raises(ServerError, match=f"its MODEL_INFO is of version {model.wire_version}"):
        decoder.translate("one")


def test_a_session_that_was_lost_is_begun_again(decoder: Translator, model: PseudoModel) -> None:
    model.lose_sessions_at_step = 3
    assert [one.text for one in decoder.translate(TEXTS)] == [alone(text)[0][0] for text in TEXTS]
    assert model.opened == 2


@pytest.mark.parametrize("step", [None, 0, 3])
def test_a_server_that_is_overloaded_is_asked_again_and_keeps_no_session(
    decoder: Translator, triton: ScriptedTriton, model: PseudoModel, step: int | None
) -> None:
    if step is None:  # already when the session is opened
        triton.answers.append(OVERLOADED)
    model.overloaded_at_step = step
    assert [one.text for one in decoder.translate(TEXTS)] == [alone(text)[0][0] for text in TEXTS]
    assert (model.opened, model.open) == (1 if step is None else 2, {})


def test_a_server_that_stays_overloaded_is_an_error_with_its_hint(triton: ScriptedTriton, model: PseudoModel) -> None:
    model.overloaded_at_step = 2
    retry = RetryPolicy.never()
    with Translator(triton.url, decoding="client", retry=retry) as translator, pytest.raises(Overloaded) as caught:
        translator.translate("one")
    assert caught.value.retry_after_s == 0.001
    assert model.open == {}


def test_an_ensemble_of_which_one_model_is_overloaded_leaves_no_session_of_the_other(
    triton: ScriptedTriton, model: PseudoModel, eager: RetryPolicy
) -> None:
    triton.answers.append(OVERLOADED)
    with Translator(triton.url, decoding=ClientDecoding(ensemble=["second"]), retry=eager) as translator:
        translator.translate("one")
    assert (model.opened, model.open) == (3, {})


def test_a_forced_prefix_in_words_is_kept(decoder: Translator) -> None:
    assert decoder.translate("one", prefix_text="uvw").text.startswith("uvw")


def test_async_decoding_finds_the_same(triton: ScriptedTriton, model: PseudoModel) -> None:
    async def main() -> list[str]:
        async with AsyncTranslator(triton.url, decoding="client") as translator:
            return [one.text for one in await translator.translate(TEXTS, beam_size=3)]

    assert asyncio.run(main()) == [alone(text, beam_size=3)[0][0] for text in TEXTS]
    assert model.open == {}


def test_lines_are_decoded_in_the_client_too(decoder: Translator) -> None:
    lines = [f"line {number}" for number in range(40)]
    assert [one.text for one in decoder.translate_lines(lines)] == [alone(line)[0][0] for line in lines]


def test_a_processor_can_forbid_tokens(triton: ScriptedTriton, model: PseudoModel) -> None:
    banned = np.arange(1, 20)

    def only_late_letters(step: Step) -> np.ndarray:
        return np.where(np.isin(step.best.tokens, banned), -np.inf, step.best.log_probs)

    plan = ClientDecoding(processor=only_late_letters, candidates="all")
    with Translator(triton.url, decoding=plan) as translator:
        for options in ({}, {"beam_size": 3}):
            texts = [one.text for one in translator.translate(TEXTS, **options)]  # type: ignore[call-overload]
            assert set("".join(texts)) <= set("uvwxy")


def test_a_processor_sees_the_tokens_of_each_row(triton: ScriptedTriton, model: PseudoModel) -> None:
    """Constrained decoding: every sentence must spell its own word."""
    words = {"one": [5, 6, 7], "another text": [8, 9]}

    def spell_the_word(step: Step) -> np.ndarray:
        scores = np.full_like(step.best.log_probs, -np.inf)
        for row, source in enumerate(step.sources):
            word = words[list(words)[source]]
            said = step.history.shape[1]
            wanted = word[said] if said < len(word) else 0
            scores[row, step.best.tokens[row] == wanted] = 0.0
        return scores

    plan = ClientDecoding(processor=spell_the_word, candidates="all")
    with Translator(triton.url, decoding=plan) as translator:
        assert [one.text for one in translator.translate(list(words), beam_size=2)] == ["fgh", "ij"]


def test_a_forced_prefix_is_not_shown_to_the_processor(triton: ScriptedTriton, model: PseudoModel) -> None:
    lengths = []

    def watch(step: Step) -> np.ndarray:
        lengths.append(step.history.shape[1])
        return step.best.log_probs

    with Translator(triton.url, decoding=ClientDecoding(processor=watch)) as translator:
        translator.translate("one", prefix_text="uvw", max_length=5)
    assert min(lengths) == 3


@pytest.mark.parametrize("wrong", [np.zeros((1, 1), np.float32), None])
def test_a_processor_that_returns_wrong_shapes_is_an_error(
    triton: ScriptedTriton, model: PseudoModel, wrong: np.ndarray | None
) -> None:
    plan = ClientDecoding(processor=lambda step: step.best.log_probs * np.nan if wrong is None else wrong)
    with Translator(triton.url, decoding=plan) as translator, pytest.raises(UsageError, match="processor"):
        translator.translate(["one", "two"])
    assert model.open == {}


@pytest.mark.parametrize("beam_size", [1, 3])
def test_an_ensemble_averages_probabilities(triton: ScriptedTriton, model: PseudoModel, beam_size: int) -> None:
    def mean(text: str, fed: tuple[int, ...]) -> np.ndarray:
        both = [log_softmax(logits_of(seed, text, fed)) for seed in (1, 2)]
        return np.logaddexp(*both) - np.float32(np.log(2))

    with Translator(triton.url, decoding=ClientDecoding(ensemble=["second"])) as translator:
        found = [one.text for one in translator.translate(TEXTS, beam_size=beam_size)]
    options = DecodingOptions(beam_size=beam_size, max_length=30)
    assert found == [spell(list(solo(text, options, mean)[0].tokens)) for text in TEXTS]
    assert found != [alone(text, beam_size=beam_size)[0][0] for text in TEXTS]
    assert model.open == {}


def test_models_of_different_vocabularies_are_no_ensemble(triton: ScriptedTriton, model: PseudoModel) -> None:
    model.vocabulary["second"] = VOCABULARY + 1
    plan = ClientDecoding(ensemble=["second"])
    with Translator(triton.url, decoding=plan) as translator, pytest.raises(InvalidRequest, match="ensemble"):
        translator.translate("one")
    assert model.open == {}


def test_the_models_limit_is_a_limit_beside_max_length(triton: ScriptedTriton, model: PseudoModel) -> None:
    model.max_target_tokens = 4
    with Translator(triton.url, decoding="client") as translator:
        assert translator.translate("one", min_length=4).tokens == 4
        with pytest.raises(InvalidRequest, match="4 target tokens"):
            translator.translate("one", prefix=[3, 4, 5, 6])
    assert model.open == {}


def test_candidates_must_be_some() -> None:
    with pytest.raises(InvalidRequest, match="candidates"):
        ClientDecoding(candidates=0)
