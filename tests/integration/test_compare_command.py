"""`dragoman compare` with a real server and the real CTranslate2, on the reference model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REFERENCE_MODEL = ROOT / "models" / "tatoeba-en-de"
SENTENCES = ("Where is the station?", "Tom has never been there before.", "It is raining.", "She lives in this house.")


def test_a_bundle_and_the_same_model_in_ctranslate2_agree(reference_bundle: Path, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed")
    model, text, page = tmp_path / "ct2", tmp_path / "text.txt", tmp_path / "page.html"
    converter = [sys.executable, "-W", "ignore", "-m", "benchmarks.workers.convert_to_ctranslate2"]
    subprocess.run(
        [*converter, str(REFERENCE_MODEL), str(model), "fp32"], cwd=ROOT, check=True, capture_output=True, timeout=600
    )
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
    assert figures["theirs"]["name"].endswith("float32")
    assert figures["speed_ratio"] > 0
    assert figures["ours"]["peak_bytes"] > figures["theirs"]["peak_bytes"] > 10e6
    assert figures["ours"]["bleu"] is not None
    assert "CTranslate2" in page.read_text(encoding="utf-8")
