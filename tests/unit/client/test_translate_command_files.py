"""`dragoman translate` with files, and as a process: interruptions, a full disk, a terminal."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from fake_triton import Outputs, Received, ScriptedTriton, translated, until_cancelled

from dragoman.cli import main

COMMAND = [sys.executable, "-c", "import sys; from dragoman.cli import main; sys.exit(main())"]


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


def test_a_file_can_be_printed(triton: ScriptedTriton, book: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["translate", "--input", str(book), "--server", triton.url]) == 0
    assert capsys.readouterr().out == book.read_text().upper()


def test_a_file_goes_to_a_file(
    triton: ScriptedTriton, book: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["translate", "--input", str(book), "--output", str(tmp_path / "book.de"), "--server", triton.url]) == 0
    assert (tmp_path / "book.de").read_text() == book.read_text().upper()
    out, err = capsys.readouterr()
    assert out == ""
    assert "200 lines" in err


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


def test_a_reader_that_closes_the_pipe_is_no_error(triton: ScriptedTriton, book: Path) -> None:
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
