"""Given translations scored by a real server: the figures are those of Hugging Face's loss, and no request harms another."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from pathlib import Path

import grpc
import pytest

from dragoman.cli import main
from dragoman.client import AsyncTranslator, Score, Translator
from dragoman.errors import InvalidRequest, UsageError
from dragoman.wire import SCORED_FIELDS, TEXT_FIELDS
from served import CALL_TIMEOUT_S, Caller, Server, add_bytes, eventually, request

REFERENCE_MODEL = Path(__file__).resolve().parents[2] / "models" / "tatoeba-en-de"
PAIRS = [
    ("Where is the station?", "Wo ist der Bahnhof?"),
    ("Where is the station?", "Das Haus ist rot, und der Hund schläft."),
    ("It is raining.", "Es regnet."),
    ("My brother lives in a small house near the river.", "Mein Bruder wohnt in einem kleinen Haus am Fluss. " * 3),
    ("Nobody believed him.", "日本語 🙂 ihm!"),
]
SOURCES, TARGETS = [source for source, _ in PAIRS], [target for _, target in PAIRS]
ONE = "INVALID_REQUEST: "


@pytest.fixture(scope="module")
def losses() -> list[list[float]]:
    """Log-probabilities of the tokens, from the checkpoint in Hugging Face; their mean is checked to be its loss."""
    import torch
    from transformers import MarianMTModel, MarianTokenizer

    model, tokenizer = (
        MarianMTModel.from_pretrained(REFERENCE_MODEL).eval(),
        MarianTokenizer.from_pretrained(REFERENCE_MODEL),
    )
    found = []
    for source, target in PAIRS:
        given = tokenizer(source, text_target=target, return_tensors="pt")
        with torch.inference_mode():
            output = model(**given)
        log_probs = output.logits[0].log_softmax(-1).gather(1, given["labels"][0][:, None])[:, 0]
        assert output.loss.item() == pytest.approx(-log_probs.mean().item(), abs=1e-5)
        found.append(log_probs.tolist())
    return found


def assert_equal(score: Score, expected: list[float]) -> None:
    assert [token.log_probability for token in score.tokens] == pytest.approx(expected, abs=1e-4)
    assert score.total == pytest.approx(sum(expected), abs=1e-4 * len(expected))
    assert score.mean == score.total / len(expected)


def test_scores_are_hugging_faces_loss_alone_and_in_a_batch(translator: Translator, losses: list[list[float]]) -> None:
    for (source, target), expected in zip(PAIRS, losses, strict=True):
        assert_equal(translator.score(source, target), expected)
    together = translator.score(SOURCES * 9, TARGETS * 9)
    assert len(together) == 45
    for score, expected in zip(together, losses * 9, strict=True):
        assert_equal(score, expected)


def test_the_same_while_others_translate(server: Server, losses: list[list[float]]) -> None:
    async def everything() -> list[Score]:
        async with AsyncTranslator(server.grpc) as translator:
            others = [translator.translate(f"Tom has {number} books.", cache=False, beam_size=4) for number in range(20)]
            scores = translator.score(SOURCES, TARGETS)
            return (await asyncio.gather(scores, *others))[0]

    for score, expected in zip(asyncio.run(everything()), losses, strict=True):
        assert_equal(score, expected)


def test_tokens_are_the_target_and_its_end(translator: Translator) -> None:
    score = translator.score(*PAIRS[0])
    assert "".join(token.text for token in score.tokens) == PAIRS[0][1]
    assert score.tokens[-1].text == ""
    assert [token.text for token in score.tokens][:2] == ["Wo", " ist"]
    assert (score.model, score.source_tokens > 4, score.timings.total_ms > 0) == ("en-de", True, True)
    long = translator.score(*PAIRS[3])
    assert "".join(token.text for token in long.tokens) == PAIRS[3][1].strip()


def test_what_the_model_would_generate_is_more_probable(translator: Translator) -> None:
    best = translator.translate(SOURCES[0], beam_size=4, length_penalty=0.0, cache=False)
    right, wrong = translator.score([SOURCES[0]] * 2, [best.text, TARGETS[1]])
    assert right.total == pytest.approx(best.score, abs=1e-3)
    assert right.total > wrong.total + 5


def scored(texts: list[str | bytes], targets: list[str | bytes], options: dict[str, object] | bytes = b""):  # noqa: ANN201
    message = request("translate", texts, options)
    add_bytes(message, "TARGET", [one if isinstance(one, bytes) else one.encode() for one in targets])
    return message


def refusal(caller: Caller, message: object) -> str:
    with pytest.raises(grpc.RpcError) as refused:
        caller.stub.ModelInfer(message, timeout=CALL_TIMEOUT_S)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    return str(refused.value.details())


def test_the_answer_is_what_the_contract_lists(caller: Caller) -> None:
    answer = caller.answer(caller.stub.ModelInfer(scored(list(SOURCES), list(TARGETS)), timeout=CALL_TIMEOUT_S))
    assert answer.best == TARGETS
    assert [tuple(text) for text in answer.details["texts"]] == [(*TEXT_FIELDS, *SCORED_FIELDS)] * len(PAIRS)
    for text, (total,), (count,) in zip(answer.details["texts"], answer.scores, answer.token_counts, strict=True):
        assert text["target_tokens"] == count == len(text["tokens"])
        assert text["score"] == pytest.approx(total, abs=1e-4)
        assert sum(each for _, each in text["tokens"]) == pytest.approx(total, abs=1e-4)
        assert (text["parts"], text["cached"], text["finish"]) == (1, False, "eos")


@pytest.mark.parametrize(
    ("texts", "targets", "options", "complaint"),
    [
        (["a"], [], b"", "TARGET has 0 elements for 1 texts; send one target for each text"),
        (["a", "b"], ["c"], b"", "TARGET has 1 elements for 2 texts; send one target for each text"),
        (["a"], ["c"] * 257, b"", "257 targets are too many; this server takes 256"),
        (["a"], ["x" * 100_001], b"", "the target has 100001 bytes; this server takes 100000"),
        (["a", "b"], ["c", "x" * 100_001], b"", "target 1 has 100001 bytes; this server takes 100000"),
        (["a" * 50_000] * 90, ["b" * 50_000] * 90, b"", "this server takes 8388608"),
        (["a"], [""], b"", "the target is empty"),
        (["a"], [" \n "], b"", "the target is empty"),
        (["a", "b"], ["c", ""], b"", "target 1 is empty"),
        (["a"], [b"\xed\xa0\x80"], b"", "the target is not UTF-8"),
        (["a", "b"], ["c", b"\xff\xfe"], b"", "target 1 is not UTF-8"),
        (["a"], ["x\0y"], b"", "the target has the control character U+0000"),
        (["a"], ["Haus " * 600], b"", "one by one"),
        (["a"], ["x" * 99_000], b"", "the target has 99000 characters, which are too many tokens"),
        (["house " * 600], ["Haus"], b"", "send its sentences one by one"),
        (["a"], ["b"], {"beam_size": 4}, "beam_size makes no sense with TARGET"),
        (["a"], ["b"], {"split": "line", "glossary": [["a", "b"]]}, "glossary, split makes no sense with TARGET"),
        (["a"], ["b"], {"format": "html"}, "format makes no sense with TARGET"),
        (["a"], ["b"], {"target_language": "fr"}, "target_language"),
    ],
)
def test_what_can_not_be_scored_is_refused_by_name(
    caller: Caller, texts: list[str | bytes], targets: list[str | bytes], options: dict[str, object], complaint: str
) -> None:
    found = refusal(caller, scored(texts, targets, options))
    assert found.startswith(ONE)
    assert complaint in found


@pytest.mark.parametrize("model", ["translate_stream", "encoder"])
def test_other_models_have_no_target(caller: Caller, model: str) -> None:
    message = scored(["a"], ["b"])
    message.model_name = model
    with pytest.raises(grpc.RpcError):
        if model == "encoder":
            caller.stub.ModelInfer(message, timeout=CALL_TIMEOUT_S)
        else:
            for response in caller.stub.ModelStreamInfer(iter([message]), timeout=CALL_TIMEOUT_S):
                assert response.error_message
                raise grpc.RpcError


def test_many_long_targets_delay_no_other_request(caller: Caller) -> None:
    source, target = "My brother lives in a small house. " * 4, "Mein Bruder wohnt in einem kleinen Haus am Fluss. " * 8
    neighbour = "It is raining."
    caller.translate([neighbour], cache=False)
    later = caller.stub.ModelInfer.future(scored([source] * 256, [target] * 256), timeout=CALL_TIMEOUT_S)
    answered = 0
    while not later.done() and answered < 10:
        assert caller.translate([neighbour], cache=False).best == ["Es regnet."]
        answered += 1
    assert answered >= 5, "the targets were read before a neighbour was answered"
    answer = caller.answer(later.result())
    assert len({tuple(map(tuple, text["tokens"])) for text in answer.details["texts"]}) == 1


def test_a_caller_that_disconnects_stops_the_work(server: Server, caller: Caller) -> None:
    def cancelled() -> float:
        return server.metrics().get('dragoman_requests_total{model="en-de",outcome="cancelled"}', 0)

    before = cancelled()
    later = caller.stub.ModelInfer.future(scored(["It is raining."] * 256, ["Es regnet. " * 30] * 256))
    # It has begun when a request that came after it is answered.
    caller.translate(["It is raining."], cache=False)
    later.cancel()
    eventually(lambda: cancelled() > before)


def test_calls_that_can_not_be_right(server: Server, translator: Translator) -> None:
    with pytest.raises(UsageError, match="2 sources and 1 targets"):
        translator.score(["a", "b"], ["c"])
    with pytest.raises(TypeError, match="a source and a target, or a list of each"):
        translator.score(["a"], "c")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="score\\(\\) has no option 'beam_size'"):
        translator.score("a", "b", beam_size=2)  # type: ignore[call-overload]
    with pytest.raises(InvalidRequest, match="the target has a lone surrogate"):
        translator.score("a", "b\ud800")
    with pytest.raises(InvalidRequest, match="pair 3: the target is empty"):
        translator.score(["a"] * 4, ["b", "b", "", "b"])
    with Translator(server.grpc, decoding="client") as client_driven, pytest.raises(UsageError, match="decoding='client'"):
        client_driven.score("a", "b")


def test_the_command(
    server: Server,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    losses: list[list[float]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pairs, scores = tmp_path / "pairs.tsv", tmp_path / "scores.tsv"
    pairs.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS * 8), encoding="utf-8")
    assert main(["score", "--server", server.grpc, "--input", str(pairs), "--output", str(scores)]) == 0
    lines = [line.split("\t") for line in scores.read_text().splitlines()]
    for (total, tokens), expected in zip(lines, losses * 8, strict=True):
        assert [float(one) for one in tokens.split()] == pytest.approx(expected, abs=1e-4)
        assert float(total) == pytest.approx(sum(expected), abs=1e-4 * len(expected))
    typed = f"{SOURCES[0]}\t{TARGETS[0]}\n".encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed)))
    assert main(["score", "--server", server.grpc, "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert "".join(token["text"] for token in json.loads(line)["tokens"]) == TARGETS[0]


@pytest.mark.parametrize(
    ("line", "code", "complaint"),
    [
        ("no tab here", 2, "line 35 has no tab"),
        ("a\tb\tc", 2, "line 35 has more than one tab"),
        ("a\t ", 2, "line 35 has no translation"),
        ("\tb", 2, "line 35 has no text"),
        ("a\tb\x01", 1, "line 35: the target has the control character U+0001"),
    ],
)
def test_the_command_names_a_bad_line_and_scores_those_before(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, code: int, complaint: str
) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("a house\tein Haus\n" * 34 + line + "\na\tb\n", encoding="utf-8")
    assert main(["score", "--server", server.grpc, "--input", str(pairs)]) == code
    found = capsys.readouterr()
    assert f"{pairs} {complaint}" in found.err
    assert len(found.out.splitlines()) == 34
    output = tmp_path / "scores.tsv"
    assert main(["score", "--server", server.grpc, "--input", str(pairs), "--output", str(output)]) == code
    assert list(tmp_path.iterdir()) == [pairs]
