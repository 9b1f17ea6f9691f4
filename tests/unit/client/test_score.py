"""Scores as the client asks for them and reads them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import grpc
import pytest
from fake_triton import OVERLOADED, RESTARTING, Outputs, Received, Refuse, ScriptedTriton, details, packed, translated

from dragoman.cli import main
from dragoman.client import AsyncTranslator, RetryPolicy, Translator
from dragoman.errors import InvalidRequest, ServerError


def scored(request: Received, _: object) -> Outputs:
    """Each token is a character of the target."""
    targets = [target.decode() for target in request.inputs["TARGET"]]
    about = details(targets)
    tokens = [[*([letter, -1.0] for letter in target), ["", -0.5]] for target in targets]
    about["texts"] = [{**one, "tokens": each} for one, each in zip(about["texts"], tokens, strict=True)]
    return {
        **translated(targets),
        "SCORE": ("FP32", (len(targets), 1), b"\0\0\xc0\xbf" * len(targets)),
        "DETAILS": ("BYTES", (1,), packed(json.dumps(about))),
    }


@pytest.fixture(autouse=True)
def scores(triton: ScriptedTriton) -> None:
    triton.models["translate"] = scored


def test_a_pair_and_lists(triton: ScriptedTriton, translator: Translator) -> None:
    score = translator.score("one", "ab", target_language="de", request_id="7")
    assert (score.total, [token.text for token in score.tokens]) == (-1.5, ["a", "b", ""])
    request = triton.received[-1]
    assert (request.inputs["TARGET"], request.options["target_language"]) == ([b"ab"], "de")
    found = translator.score(["x"] * 70, tuple("y" * at for at in range(1, 71)))
    assert [len(one.tokens) for one in found] == list(range(2, 72))
    assert [len(request.texts) for request in triton.received[1:]] == [32, 32, 6]
    assert translator.score([], []) == []


def test_busy_and_restarting_servers_are_asked_again(triton: ScriptedTriton, translator: Translator) -> None:
    triton.answers.extend([OVERLOADED, RESTARTING])
    assert translator.score("one", "ab").total == -1.5
    assert len(triton.received) == 3


def test_another_server_takes_over(triton: ScriptedTriton, other_triton: ScriptedTriton, eager: RetryPolicy) -> None:
    other_triton.models["translate"] = scored
    triton.stop()
    with Translator([triton.url, other_triton.url], retry=eager, timeout_s=60) as translator:
        assert [translator.score("one", "ab").total for _ in range(3)] == [-1.5] * 3


def test_a_server_that_translates_instead_is_an_error(triton: ScriptedTriton, translator: Translator) -> None:
    triton.answers.append(translated(["one"]))
    with pytest.raises(ServerError, match="does not score targets"):
        translator.score("one", "two")


def test_the_bad_pair_is_named(triton: ScriptedTriton, translator: Translator) -> None:
    refusal = Refuse(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST: the target is empty")
    triton.answers.extend([refusal, scored, scored, refusal])

    with pytest.raises(InvalidRequest, match="line 3: the target is empty"):
        list(translator.score_lines([("a", "b")] * 4))


def test_blank_pairs_have_scores_without_tokens(triton: ScriptedTriton, translator: Translator) -> None:
    pairs = [("", " "), ("a", "b"), ("\t", ""), *[("", "")] * 40, ("c", "de")]
    assert [len(one.tokens) for one in translator.score_lines(pairs)] == [0, 2, *[0] * 41, 3]
    assert [request.inputs["TARGET"] for request in triton.received] == [[b"b"], [b"de"]]
    assert translator.score(" ", "").mean == 0.0
    refusal = Refuse(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST: the target is empty")
    triton.answers.extend([refusal, refusal])
    with pytest.raises(InvalidRequest, match="line 2: the target is empty"):
        list(translator.score_lines([("", ""), ("a", "")]))


def test_parallel_texts_with_blank_lines_keep_their_rows(
    triton: ScriptedTriton, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("a\tb\n\t\n\n \t \nc\td\n", encoding="utf-8")
    assert main(["score", "--server", triton.url, "--input", str(pairs)]) == 0
    scored_line = "-1.500000\t-1.000000 -0.500000"
    assert capsys.readouterr().out == f"{scored_line}\n\n\n\n{scored_line}\n"
    assert main(["score", "--server", triton.url, "--input", str(pairs), "--json"]) == 0
    assert [json.loads(line)["total"] for line in capsys.readouterr().out.splitlines()] == [-1.5, 0.0, 0.0, 0.0, -1.5]
    for line, complaint in (("a\t", "no translation"), (" \tb", "no text"), ("\t\t", "more than one tab")):
        pairs.write_text(f"\t\n{line}\n", encoding="utf-8")
        assert main(["score", "--server", triton.url, "--input", str(pairs)]) == 2
        assert f"line 2 has {complaint}" in capsys.readouterr().err


def test_the_same_in_asyncio(triton: ScriptedTriton) -> None:
    async def everything() -> None:
        async with AsyncTranslator(triton.url) as translator:
            assert (await translator.score("one", "ab")).total == -1.5
            assert [len(one.tokens) async for one in translator.score_lines([("a", "b")] * 3)] == [2, 2, 2]
            assert len(await translator.score(["a"] * 2, ["b"] * 2)) == 2

    asyncio.run(everything())
    assert len(triton.received) == 3


def test_flags_become_options_and_files_are_whole_or_not_there(triton: ScriptedTriton, tmp_path: Path) -> None:
    pairs, output = tmp_path / "pairs.tsv", tmp_path / "scores.tsv"
    pairs.write_text("\ufeffone\tab\r\ntwo\tb\n", encoding="utf-8")
    flags = ["--server", triton.url, "--model", "en-de", "--from", "en", "--to", "de", "--timeout", "7"]
    assert main(["score", *flags, "--input", str(pairs), "--output", str(output)]) == 0
    assert output.read_text() == "-1.500000\t-1.000000 -1.000000 -0.500000\n-1.500000\t-1.000000 -0.500000\n"
    request = triton.received[-1]
    assert (request.texts, request.inputs["TARGET"], request.bundle) == (["one", "two"], [b"ab", b"b"], "en-de")
    assert (request.options["source_language"], request.options["target_language"]) == ("en", "de")
    assert main(["score", *flags, "--input", str(tmp_path / "none.tsv"), "--output", str(output)]) == 2
    assert output.read_text().startswith("-1.5")
    assert sorted(tmp_path.iterdir()) == [pairs, output]
