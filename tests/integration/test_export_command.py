"""`dragoman export` as a user runs it, on a tiny random checkpoint and on the reference model."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dragoman import native
from dragoman.bundle.integrity import check_files
from dragoman.bundle.manifest import Manifest, read_manifest
from dragoman.cli import main
from dragoman.errors import UsageError
from dragoman.export import pipeline
from dragoman.export.checkpoint import Checkpoint
from dragoman.export.pipeline import ExportOptions, export_bundle
from random_marian import write_marian

DRAGOMAN = str(Path(sys.executable).with_name("dragoman"))
REFERENCE_MODEL = Path(__file__).resolve().parents[2] / "models" / "tatoeba-en-de"
TIMEOUT_S = 600


def dragoman(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [DRAGOMAN, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_marian(tmp_path_factory.mktemp("checkpoints") / "tiny")


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Few sentences, so that a test takes seconds."""
    path = tmp_path_factory.mktemp("text") / "few.txt"
    path.write_text("Tom is here.\nI don't know.\nWhere have you been all this time, my friend?\n", encoding="utf-8")
    return path


def test_a_bundle_of_every_target_is_whole_verified_and_inspected(
    tiny: Path, few: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    (bundle / "manifest.json").write_text("old")
    ask = ["export", str(tiny), "--output", str(bundle), "--target", "cpu", "--target", "cuda", "--verify-file", str(few)]
    assert main([*ask, "--json"]) == 1
    assert "--force" in capsys.readouterr().err
    assert (bundle / "manifest.json").read_text() == "old"

    assert main([*ask, "--json", "--force"]) == 0
    manifest = read_manifest(bundle)
    assert Manifest.from_json(capsys.readouterr().out) == manifest
    check_files(bundle, manifest)
    assert {path.name for path in bundle.iterdir()} == {*manifest.files, "manifest.json"}
    assert manifest.targets == ("cpu", "cuda")
    assert manifest.verification is not None
    assert manifest.verification.reference.startswith("transformers")
    cases = manifest.verification.cases
    assert {case.lowering for case in cases} == {"native", "portable"} if native.ops_library() else {"portable"}
    assert all(case.identical + case.ties == case.sentences for case in cases)
    assert main(["inspect", str(bundle)]) == 0


def test_graphs_that_differ_from_the_original_are_never_written(
    tiny: Path, few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One weight matrix comes out wrong, as a bug in a lowering would have it."""
    real = pipeline.build_graphs

    def damaged(
        checkpoint: Checkpoint, lowerings: object, precision: object, directory: Path, *rest: Any, **more: Any
    ) -> Any:
        graphs = real(checkpoint, lowerings, precision, directory, *rest, **more)
        with (directory / "weights.bin").open("r+b") as weights:
            weights.write(np.random.default_rng(0).normal(size=512).astype(np.float32).tobytes())
        return graphs

    monkeypatch.setattr(pipeline, "build_graphs", damaged)
    assert main(["export", str(tiny), "--output", str(tmp_path / "bundle"), "--verify-file", str(few)]) == 1
    assert "the fp32 graphs differ from transformers" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_without_transformers_graphs_are_compared_with_the_transformer_in_torch(
    tiny: Path, few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    report = export_bundle(ExportOptions(tiny, tmp_path / "bundle", verify_file=few))
    assert report.manifest.verification is not None
    assert report.manifest.verification.reference == "dragoman's torch module"
    assert all(case.identical + case.ties == case.sentences for case in report.manifest.verification.cases)
    assert report.peak_memory_bytes > 0


def test_the_manifest_of_an_unverified_export_has_no_verification(tiny: Path, tmp_path: Path) -> None:
    report = export_bundle(ExportOptions(tiny, tmp_path / "bundle", precision="int8", verify=False))
    assert report.manifest.verification is None
    assert read_manifest(report.bundle) == report.manifest
    assert not any("verify" in stage for stage in report.seconds)


def test_a_file_to_verify_with_and_no_verification_exclude_each_other(tiny: Path, few: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="verify=False"):
        ExportOptions(tiny, tmp_path / "bundle", verify_file=few, verify=False)


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (["nowhere", "--output", "b"], "no such directory", 1),
        (["{model}", "--output", "b", "--verify-file", "missing.txt"], "--verify-file missing.txt can't be read", 2),
        (["{model}", "--output", "b", "--verify-file", "{empty}"], "holds no sentence", 2),
        (["{model}", "--output", "b", "--verify-file", "{latin}"], "is not UTF-8 (byte 3)", 2),
        (["{model}", "--output", "b", "--max-quality-loss", "-1"], "must not be negative", 2),
        (["{model}", "--output", "b", "--compute-capability", "8.6"], "--target tensorrt", 2),
        (["{model}", "--output", "b", "--tensorrt", "--compute-capability", "ampere"], "'ampere' is not a number", 2),
    ],
)
def test_impossible_arguments_are_one_line_of_error(
    tmp_path: Path, arguments: list[str], said: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.txt").write_text("\n\n")
    (tmp_path / "latin.txt").write_bytes("caf\xe9".encode("latin-1"))
    places = {"model": REFERENCE_MODEL, "empty": tmp_path / "empty.txt", "latin": tmp_path / "latin.txt"}
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        assert main(["export", *(argument.format(**places) for argument in arguments)]) == code
    finally:
        os.chdir(before)
    error = capsys.readouterr().err.strip()
    assert said in error.splitlines()[-1]
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_an_export_that_is_ended_leaves_no_bundle_and_no_half_of_one(tmp_path: Path, ending: signal.Signals) -> None:
    command = [DRAGOMAN, "export", str(REFERENCE_MODEL), "--output", str(tmp_path / "bundle")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + TIMEOUT_S
        while not list(tmp_path.glob(".bundle.*.part/weights.bin")):  # in the middle of its work
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(ending)
        _, said = process.communicate(timeout=600)
    assert process.returncode == 130
    assert said.strip().splitlines()[-1] == "dragoman export: interrupted"
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)], check=False, capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("mounting a small file system takes root")
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_is_an_error_and_leaves_nothing(small_disk: Path) -> None:
    done = dragoman("export", REFERENCE_MODEL, "--output", small_disk / "bundle")
    assert done.returncode == 1
    assert "is full" in done.stderr
    assert list(small_disk.iterdir()) == []
