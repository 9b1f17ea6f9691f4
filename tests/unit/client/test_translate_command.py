from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import grpc
import pytest
from fake_triton import Outputs, Refuse, ScriptedTriton

from dragoman.cli import main


class Typed(io.TextIOWrapper):
    """Standard input with these bytes in it."""

    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content), encoding="utf-8")


def test_a_text_is_translated(triton: ScriptedTriton, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["translate", "Hello.", "--server", triton.url]) == 0
    assert capsys.readouterr() == ("HELLO.\n", "")


def test_several_texts_are_as_many_lines(triton: ScriptedTriton, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["translate", "one", "two", "--server", triton.url]) == 0
    assert capsys.readouterr().out == "ONE\nTWO\n"


def test_standard_input_is_translated_line_by_line(
    triton: ScriptedTriton, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Typed(b"one\n\ntwo"))
    assert main(["translate", "--server", triton.url]) == 0
    assert capsys.readouterr().out == "ONE\n\nTWO\n"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--beam", "x"], "--beam: 'x' must be a whole number, at least 1"),
        (["--timeout", "soon"], "--timeout: 'soon' must be a number above 0"),
        (["--alternatives-at", "1,x"], "--alternatives-at: '1,x' must be whole numbers from 0"),
        (["--glossary", "missing.tsv"], "--glossary missing.tsv can't be read: No such file or directory"),
        (["--glossary", "./terms"], "--glossary ./terms can't be read: No such file or directory"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_right(
    flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["translate", "hi", *flags]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_flags_become_options(triton: ScriptedTriton) -> None:
    flags = ["--beam", "4", "--n-best", "3", "--length-penalty", "0.6", "--max-length", "9", "--prefix", "Hallo"]
    flags += ["--from", "en", "--to", "de"]
    assert main(["translate", "hi", "--server", triton.url, "--model", "en-de", "--timeout", "7", *flags]) == 0
    sent = triton.received[0].options
    assert 6000 < sent.pop("timeout_ms") <= 7000
    assert sent == {
        "beam_size": 4,
        "num_hypotheses": 3,
        "length_penalty": 0.6,
        "max_length": 9,
        "prefix_text": "Hallo",
        "source_language": "en",
        "target_language": "de",
    }
    assert triton.received[0].bundle == "en-de"


def test_json_holds_everything_known(triton: ScriptedTriton, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["translate", "hi", "--server", triton.url, "--json", "--n-best", "2"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["text"], found["score"], found["tokens"]) == ("HI", -0.5, 4)
    assert found["alternatives"] == [{"text": "HI!", "score": -1.5, "tokens": 4, "alignment": []}]


def test_hypotheses_are_tab_separated_for_scripts(triton: ScriptedTriton, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["translate", "hi", "--server", triton.url, "--n-best", "2"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "rank\tscore\ttokens\ttranslation",
        "1\t-0.5000\t4\tHI",
        "2\t-1.5000\t4\tHI!",
    ]


def test_hypotheses_of_several_texts_are_labelled_with_their_text(
    triton: ScriptedTriton, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["translate", "hi", "ho", "--server", triton.url, "--n-best", "2"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "text\trank\tscore\ttokens\ttranslation",
        "1\t1\t-0.5000\t4\tHI",
        "1\t2\t-1.5000\t4\tHI!",
        "2\t1\t-0.5000\t4\tHO",
        "2\t2\t-1.5000\t4\tHO!",
    ]


def test_a_stream_is_printed_as_it_comes(triton: ScriptedTriton, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["translate", "hi", "--server", triton.url, "--stream"]) == 0
    assert capsys.readouterr().out == "Wo ist der Bahnhof?\n"


def test_the_search_can_run_in_the_client(triton: ScriptedTriton, capsys: pytest.CaptureFixture[str]) -> None:
    from pseudo_model import PseudoModel

    model = PseudoModel({None: 1})
    triton.models |= {"encoder": model.encoder, "decoder": model.decoder}
    assert main(["translate", "one", "--server", triton.url, "--decoding", "client", "--beam", "3"]) == 0
    assert capsys.readouterr().out.strip()
    assert model.steps > 0


@pytest.mark.parametrize(
    "flags",
    [
        ["hi", "--input", "x"],
        ["hi", "--output", "x"],
        ["hi", "--restart"],
        ["hi", "--stream", "--json"],
        ["hi", "--stream", "--n-best", "2"],
        ["--input", "x", "--stream", "--output", "y"],
        ["--input", "x", "--output", "y", "--n-best", "2"],
        ["hi", "--beam", "2", "--n-best", "3"],
        ["hi", "--stream", "--decoding", "client"],
        ["hi", "--length-penalty", "nan"],
        ["hi", "--server", "http://localhost"],
        ["hi", "--tls-cert", "x.pem"],
        ["hi", "--tls-ca", "no-such-file.pem"],
    ],
)
def test_flags_that_make_no_sense_together_are_a_usage_error(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["translate", *flags]) == 2
    said = capsys.readouterr().err
    assert said.startswith("dragoman translate: ")
    assert said.count("\n") == 1


@pytest.mark.parametrize("flags", [["--beam", "0"], ["--n-best", "x"], ["--timeout", "-1"], ["--timeout", "nan"]])
def test_a_value_that_is_none_is_a_usage_error_in_one_line(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["translate", "hi", *flags]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"dragoman translate: argument {flags[0]}: ")
    assert said.count("\n") == 1


def test_a_pipe_that_is_not_utf8_is_a_usage_error(
    triton: ScriptedTriton, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Typed(b"sch\xf6n"))
    assert main(["translate", "--server", triton.url]) == 2
    assert "standard input line 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Refuse(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST: there is no model 'x' here"), "there is no model 'x'"),
        (Refuse(grpc.StatusCode.INTERNAL, "INTERNAL: request 17 failed"), "request 17 failed"),
        (Refuse(grpc.StatusCode.UNIMPLEMENTED, ""), "does not serve dragoman"),
        ({}, "same dragoman release"),
    ],
)
def test_a_failure_is_one_line_and_exit_code_1(
    triton: ScriptedTriton, answer: Refuse | Outputs, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    triton.answers.append(answer)
    assert main(["translate", "hi", "--server", triton.url]) == 1
    err = capsys.readouterr().err
    assert said in err
    assert err.startswith("dragoman translate: ")
    assert err.count("\n") == 1


def test_a_server_that_is_down_is_one_line_and_exit_code_1(
    triton: ScriptedTriton, book: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    triton.stop()
    flags = ["--input", str(book), "--output", str(tmp_path / "out"), "--server", triton.url]
    assert main(["translate", *flags]) == 1
    said = capsys.readouterr().err
    assert "dragoman serve" in said
    assert said.count("\n") == 1
