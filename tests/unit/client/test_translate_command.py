from __future__ import annotations

import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import grpc
import pytest
from fake_triton import Outputs, Received, Refuse, ScriptedTriton, translated, until_cancelled

from dragoman.cli import main

COMMAND = [sys.executable, "-c", "import sys; from dragoman.cli import main; sys.exit(main())"]


class Typed(io.TextIOWrapper):
    """Standard input with these bytes in it."""

    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content), encoding="utf-8")


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "book.en"
    path.write_text("".join(f"line {number}\n" for number in range(1, 201)), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", "one\n", "1 line → "),
        ("a.txt", "one\ntwo\n", "2 lines → "),
        ("a.html", "<p>one</p>", "1 piece → "),
        ("a.srt", "1\n00:00:01,000 --> 00:00:02,000\nOne.\n", "1 paragraph → "),
    ],
)
def test_what_was_done_is_counted(
    triton: ScriptedTriton, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: str, said: str
) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    output = tmp_path / f"out-{name}"
    command = ["translate", "--input", str(tmp_path / name), "--output", str(output), "--server", triton.url]
    assert main(command) == 0
    assert f"{said}{output}" in capsys.readouterr().err


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


def test_a_file_can_be_printed(triton: ScriptedTriton, book: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["translate", "--input", str(book), "--server", triton.url]) == 0
    assert capsys.readouterr().out == book.read_text().upper()


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


def test_a_file_goes_to_a_file(
    triton: ScriptedTriton, book: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["translate", "--input", str(book), "--output", str(tmp_path / "book.de"), "--server", triton.url]) == 0
    assert (tmp_path / "book.de").read_text() == book.read_text().upper()
    out, err = capsys.readouterr()
    assert out == ""
    assert "200 lines" in err


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


@pytest.mark.parametrize("source", ["nowhere.en", "."])
def test_an_unreadable_input_is_a_usage_error_in_one_line(
    triton: ScriptedTriton, tmp_path: Path, source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--input", str(tmp_path / source), "--output", str(tmp_path / "out"), "--server", triton.url]
    assert main(["translate", *flags]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_input_that_is_not_utf8_is_a_usage_error_that_keeps_what_was_translated(
    triton: ScriptedTriton, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").write_bytes(b"good\n" * 500 + b"\xff\n")
    flags = ["--input", str(tmp_path / "in"), "--output", str(tmp_path / "out"), "--server", triton.url]
    assert main(["translate", *flags]) == 2
    assert "line 501" in capsys.readouterr().err
    assert (tmp_path / "out.part").read_text() == "GOOD\n" * 480  # all complete requests before it


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


def test_ctrl_c_keeps_what_was_translated_and_the_same_command_goes_on(
    triton: ScriptedTriton, book: Path, tmp_path: Path
) -> None:
    def hold_at_the_middle(request: Received, context: object) -> Outputs:
        return until_cancelled(request, context) if "line 97" in request.texts else translated(request.texts)

    triton.models["translate"] = hold_at_the_middle
    output = tmp_path / "book.de"
    command = [*COMMAND, "translate", "--input", str(book), "--output", str(output), "--server", triton.url]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 30
        part = tmp_path / "book.de.part"
        while not part.exists() or len(part.read_bytes().splitlines()) < 96:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=600)
    assert process.returncode == 130
    assert "goes on where it stopped" in said
    assert not output.exists()
    triton.models.clear()
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=600, check=True)
    assert "96 of them earlier" in done.stderr
    assert output.read_text() == book.read_text().upper()


def test_a_full_disk_loses_nothing_of_what_was_translated(triton: ScriptedTriton, book: Path, tmp_path: Path) -> None:
    output = tmp_path / "book.de"
    command = [*COMMAND, "translate", "--input", str(book), "--output", str(output), "--server", triton.url]
    full = subprocess.run(  # a limit on the size of files fails a write just as a full disk does
        ["bash", "-c", 'ulimit -f 1; exec "$@"', "bash", *command],
        stderr=subprocess.PIPE,
        text=True,
        timeout=600,
        check=False,
    )
    assert full.returncode == 1
    assert full.stderr.count("\n") == 1
    kept = (tmp_path / "book.de.part").read_text().splitlines()
    assert len(kept) > 100
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=600, check=True)
    assert f"({len(kept) - 1} of them earlier)" in done.stderr  # the last one was torn
    assert output.read_text() == book.read_text().upper()


def test_a_reader_that_has_had_enough_is_no_error(triton: ScriptedTriton, book: Path) -> None:
    command = [*COMMAND, "translate", "--input", str(book), "--server", triton.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"LINE 1\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(120) == 0


def on_a_terminal(*arguments: str) -> str:
    """What the command shows when both its output streams are a terminal."""
    terminal, ours = pty.openpty()
    shown = b""
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen([*COMMAND, *arguments], stdin=ours, stdout=ours, stderr=ours, env=environment) as process:
        os.close(ours)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if not select.select([terminal], [], [], 0.5)[0]:
                continue
            try:
                shown += os.read(terminal, 65536)
            except OSError:  # the last holder of the other end is gone
                break
        assert process.wait(120) == 0
    os.close(terminal)
    return shown.decode()


def test_a_terminal_sees_progress_with_rate_and_time_left(triton: ScriptedTriton, book: Path, tmp_path: Path) -> None:
    slow = threading.Event()

    def slowly(request: Received, context: object) -> Outputs:
        slow.wait(0.05)
        return translated(request.texts)

    triton.models["translate"] = slowly
    shown = on_a_terminal("translate", "--input", str(book), "--output", str(tmp_path / "o"), "--server", triton.url)
    assert "lines/s" in shown
    assert "/200" in shown


def test_a_terminal_sees_hypotheses_as_a_table(triton: ScriptedTriton) -> None:
    shown = on_a_terminal("translate", "hi", "--n-best", "2", "--server", triton.url)
    assert "translation" in shown
    assert "\t" not in shown
