"""The figures, the page and the refusals of `dragoman compare`; no server and no CTranslate2."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from dragoman.compare.figures import Comparison, compared
from dragoman.compare.memory import tree_bytes
from dragoman.compare.page import as_page
from dragoman.compare.sides import PeerSettings, PeerSide, Run
from dragoman.errors import ServeError, UsageError

SOURCES = ("eins", "zwei", "drei <b>")


def found(references: tuple[str, ...] | None = None) -> Comparison:
    dragoman = [Run(("one", "two", "three"), seconds, 200) for seconds in (1.0, 2.0, 4.0)]
    ctranslate2 = [Run(("one", "two", "<i>3</i>"), seconds, 100) for seconds in (2.0, 2.0, 4.0)]
    return compared(
        ("dragoman", "ctranslate2"), list(zip(dragoman, ctranslate2, strict=True)), SOURCES, references, {"beam": "4"}
    )


def test_figures_are_medians_of_interleaved_rounds() -> None:
    result = found()
    assert (result.lines, result.rounds, result.identical) == (3, 3, 2)
    assert result.agreement == pytest.approx(2 / 3)
    assert (result.speed_ratio, result.speed_ratios) == (1.0, (2.0, 1.0, 1.0))
    assert (result.dragoman.seconds, result.dragoman.lines_per_s) == (2.0, 1.5)
    assert result.memory_ratio == 2.0
    assert [(one.line, one.dragoman) for one in result.differences] == [(3, "three")]
    assert json.loads(result.to_json())["agreement"] == pytest.approx(2 / 3)


def test_quality_is_measured_against_references_only_where_there_are_some() -> None:
    assert found().dragoman.bleu is None
    with_references = found(("one", "two", "three"))
    assert with_references.dragoman.chrf == pytest.approx(100.0)
    assert with_references.dragoman.bleu == pytest.approx(100.0)  # of single words, too
    assert with_references.ctranslate2.chrf is not None
    assert with_references.ctranslate2.chrf < 100.0


def test_the_page_shows_the_lines_that_differ_and_no_markup_of_theirs() -> None:
    page = as_page(found(("one", "two", "tr<o>is")))
    assert "<mark>three</mark>" in page
    assert "<mark>&lt;i&gt;3&lt;/i&gt;</mark>" in page
    assert "<i>" not in page
    assert all(text in page for text in ("drei &lt;b&gt;", "tr&lt;o&gt;is", "1.00x", "66.7%"))
    assert "http" not in page  # it needs nothing but itself


def test_a_long_line_is_shown_without_comparing_its_words() -> None:
    runs = [(Run(("a " * 5000,), 1.0, None), Run(("b " * 5000,), 1.0, None))]
    page = as_page(compared(("dragoman", "ctranslate2"), runs, ("x",), None, {}))
    assert "<mark>" not in page
    assert "a a a" in page


def test_the_memory_of_a_process_includes_its_children() -> None:
    if tree_bytes(os.getpid()) is None:
        pytest.skip("this system does not tell the memory of processes")
    child = "x = b'x' * (80 << 20); print(1, flush=True); input()"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        held = tree_bytes(process.pid)
        assert held is not None
        process.communicate(b"\n")
    assert 80 << 20 < held < 400 << 20


def settings(tmp_path: Path, python: Path) -> PeerSettings:
    return PeerSettings(tmp_path, python, "float32", threads=1, beam_size=1, length_penalty=1.0, max_length=20)


def test_a_python_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere"):
        PeerSide(settings(tmp_path, tmp_path / "nowhere"))


def script(path: Path, line: str) -> Path:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("exit 3", "ended with code 3.*needs ctranslate2 and sentencepiece"),
        ("kill -9 $$", "ended with code -9.*enough memory"),
        ("echo not a Python", "says 'not a Python.*must be a Python"),
    ],
)
def test_the_error_for_a_process_without_ctranslate2_says_what_it_needs(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(ServeError, match=message):
        PeerSide(settings(tmp_path, script(tmp_path / "python", line)))


def test_the_error_for_a_python_without_ctranslate2_says_what_it_needs(tmp_path: Path) -> None:
    bare = script(tmp_path / "python", f'exec {sys.executable} -I -S "$1"')  # without installed packages
    with pytest.raises(UsageError, match=r"needs ctranslate2 and sentencepiece: No module named"):
        PeerSide(settings(tmp_path, bare))


def test_what_ctranslate2_refuses_is_reported_in_a_line(tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "source.spm").write_text("not a model")
    with pytest.raises(UsageError, match=r"^CTranslate2 failed: .*source\.spm"):
        PeerSide(settings(tmp_path, Path(sys.executable)))


def test_a_peer_that_is_interrupted_while_it_loads_leaves_no_process(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    waiting = script(tmp_path / "python", f"echo $$ > {pid}.part; mv {pid}.part {pid}; exec cat > /dev/null")

    def interrupt() -> None:
        deadline = time.monotonic() + 60
        while not pid.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)  # to the thread that waits

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        PeerSide(settings(tmp_path, waiting))
    thread.join()
    assert not psutil.pid_exists(int(pid.read_text()))


def test_the_error_for_a_missing_tokenizer_says_how_to_name_it(tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UsageError, match="--spm"):
        PeerSide(settings(tmp_path, Path(sys.executable)))


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ((), "must be a directory"),
        (("--rounds", "0"), "--rounds 0"),
        (("--text", "blank.txt"), "blank lines (2)"),
        (("--text", "nowhere.txt"), "nowhere.txt can't be read"),
        (("--references", "short.txt"), "must be parallel"),
        (("--html", "nowhere/page.html"), "nowhere/page.html can't be written"),
    ],
)
def test_what_can_not_be_compared_is_refused_before_anything_starts(
    reference_bundle: Path, tmp_path: Path, flags: tuple[str, ...], said: str
) -> None:
    (tmp_path / "text.txt").write_text("eins\nzwei\n", encoding="utf-8")
    (tmp_path / "short.txt").write_text("one\n", encoding="utf-8")
    (tmp_path / "blank.txt").write_text("eins\n\nzwei\n", encoding="utf-8")
    command = [sys.executable, "-m", "dragoman.cli", "compare", "--bundle", str(reference_bundle), "--text", "text.txt"]
    command += ["--ctranslate2", "no-model", *flags]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 2
    assert said in done.stderr
