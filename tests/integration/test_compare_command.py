"""`dragoman compare` with a real server and the real CTranslate2, on the reference model."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
REFERENCE_MODEL = ROOT / "models" / "tatoeba-en-de"
SENTENCES = ("Where is the station?", "Tom has never been there before.", "It is raining.", "She lives in this house.")


def converted(directory: Path) -> Path:
    converter = [sys.executable, "-W", "ignore", "-m", "benchmarks.workers.convert_to_ctranslate2"]
    command = [*converter, str(REFERENCE_MODEL), str(directory), "fp32"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=600)
    return directory


def test_a_bundle_and_the_same_model_in_ctranslate2_agree(reference_bundle: Path, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed")
    model, text, page = converted(tmp_path / "ct2"), tmp_path / "text.txt", tmp_path / "page.html"
    text.write_text("".join(f"{line}\n" for line in SENTENCES), encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "dragoman.cli",
        "compare",
        "--bundle",
        str(reference_bundle),
        "--ctranslate2",
        str(model),
    ]
    command += ["--text", str(text), "--references", str(text), "--spm", str(REFERENCE_MODEL / "source.spm")]
    command += ["--rounds", "2", "--threads", "1", "--json", "--html", str(page)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert (figures["lines"], figures["rounds"]) == (len(SENTENCES), 2)
    assert figures["agreement"] >= 0.75  # the two end a beam search at different times
    assert figures["ctranslate2"]["name"].endswith("float32")
    assert figures["speed_ratio"] > 0
    assert figures["dragoman"]["peak_bytes"] > figures["ctranslate2"]["peak_bytes"] > 10e6
    assert figures["dragoman"]["bleu"] is not None
    assert "CTranslate2" in page.read_text(encoding="utf-8")


def is_client(process: psutil.Process) -> bool:
    try:
        return "translate" in process.cmdline()
    except psutil.NoSuchProcess:  # it has ended since
        return False


def test_a_comparison_that_is_ended_leaves_no_process(reference_bundle: Path, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed")
    model, text = converted(tmp_path / "ct2"), tmp_path / "text.txt"
    text.write_text("Where is the station?\n" * 20_000, encoding="utf-8")
    flags = ["--bundle", str(reference_bundle), "--ctranslate2", str(model), "--text", str(text), "--threads", "1"]
    command = [sys.executable, "-m", "dragoman.cli", "compare", *flags, "--spm", str(REFERENCE_MODEL / "source.spm")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        started: list[psutil.Process] = []
        deadline = time.monotonic() + 120
        while not any(map(is_client, started)) and time.monotonic() < deadline:
            time.sleep(0.05)
            started = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
        _, said = process.communicate(timeout=120)
    assert said.splitlines()[-1] == "dragoman compare: interrupted"
    _, left = psutil.wait_procs(started, timeout=60)
    assert len(started) >= 4  # CTranslate2, the server and Triton, the client
    assert left == []
