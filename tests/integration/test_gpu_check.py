"""The acceptance for GPU machines, its logic tried with the CPU provider."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks import gpu_check
from benchmarks.gpu_check import Setup, check
from benchmarks.gpu_facts import gpu_facts, gpu_memory_bytes, known_versions, version_remarks
from benchmarks.gpu_report import Finding, Report

from gpu_bundles import add_engines

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"


@pytest.fixture(scope="module")
def setup(reference_bundle: Path) -> Setup:
    return Setup(
        "cpu",
        reference_bundle,
        reference_bundle,
        reference_bundle,
        sentences=12,
        batches=(4,),
        rounds=1,
        peer_precision="fp32",
    )


@pytest.fixture(scope="module")
def report(setup: Setup) -> Report:
    return check(setup, say=lambda _: None)


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that knows an old GPU."""
    script = tmp_path / "nvidia-smi"
    script.write_text(
        '#!/bin/sh\ncase "$1" in *memory.used*) echo "512 MiB";; *) echo "Old One, 470.1, 8192 MiB, 7.0";; esac\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


def named(report: Report, start: str) -> list[Finding]:
    return [finding for finding in report.findings if finding.name.startswith(start)]


def test_the_same_bundle_on_the_same_device_is_accepted(report: Report) -> None:
    assert report.accepted
    assert [finding.measured for finding in named(report, "same tokens")] == ["100.00%", "100.00%"]
    assert [finding.measured for finding in named(report, "quality")] == ["+0.00", "+0.00"]


def test_given_targets_are_scored_on_both_sides(report: Report) -> None:
    (finding,) = named(report, "log-probabilities of given targets")
    assert finding.holds
    assert finding.measured == "0.0e+00"


def test_a_gpu_without_fp32_products_is_not_held_against_the_bundle(setup: Setup) -> None:
    report = check(dataclasses.replace(setup, exact=None, sentences=4), say=lambda _: None)
    assert report.accepted
    assert [finding.holds for finding in named(report, "same tokens")] == [None]


def test_throughput_is_measured_and_not_judged_without_the_peer(report: Report) -> None:
    assert [(cell["batch"], cell["beam"]) for cell in report.throughput] == [(4, 1), (4, 4)]
    assert all(cell["ours"] > 0 for cell in report.throughput)
    assert [finding.holds for finding in named(report, "throughput")] == [None, None]


def test_the_verdict_names_what_does_not_hold_and_what_was_not_measured(report: Report) -> None:
    assert report.verdict.startswith("ACCEPTED: everything that was measured holds")
    assert report.verdict.endswith("throughput, ctranslate2; throughput, hugging_face.")
    broken = dataclasses.replace(report, findings=(*report.findings, Finding("speed", "≥ 1", "0.5x", holds=False)))
    assert broken.verdict == f"NOT ACCEPTED: 1 of {len(broken.findings)} do not hold: speed."
    assert f"**{broken.verdict}**" in broken.to_markdown()


def test_a_report_without_findings_is_not_an_acceptance(report: Report) -> None:
    assert not dataclasses.replace(report, findings=()).accepted


def test_without_a_gpu_the_check_ends_with_that_verdict(tmp_path: Path) -> None:
    if gpu_facts():
        pytest.skip("this machine has a GPU")
    command = [sys.executable, "-m", "benchmarks.gpu_check", "--output", str(tmp_path / "report")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, cwd=ROOT)
    assert done.returncode == 2
    assert done.stdout.splitlines()[-1].startswith("verdict: NO GPU: ")
    written = json.loads((tmp_path / "report.json").read_text())
    assert written["verdict"].startswith("NO GPU")
    assert written["findings"] == []
    assert "**NO GPU" in (tmp_path / "report.md").read_text()


def test_the_report_has_every_result_and_no_local_path(report: Report, reference_bundle: Path) -> None:
    text = report.to_markdown() + json.dumps(dataclasses.asdict(report))
    assert all(finding.name in text for finding in report.findings)
    assert str(reference_bundle) not in text
    assert str(Path.home()) not in text


def test_a_device_that_is_not_there_is_a_finding_and_not_the_end(setup: Setup) -> None:
    if gpu_facts():
        pytest.skip("this machine has a GPU")
    report = check(dataclasses.replace(setup, device="cuda"), say=lambda _: None)
    assert not report.accepted
    assert {finding.name for finding in report.findings if finding.holds is False} == {
        "same tokens in fp32",
        "the bundle opens",
    }
    reason = named(report, "the bundle opens")[0].measured
    # A bundle for the cpu alone is refused before the provider is looked for.
    assert "CUDAExecutionProvider" in reason or "no portable encoder graph" in reason


def test_a_gpu_is_described_by_the_output_of_nvidia_smi(nvidia_smi: None) -> None:
    assert gpu_facts() == {"name": "Old One", "driver": "470.1", "memory": "8192 MiB", "compute capability": "7.0"}
    assert gpu_memory_bytes() == 512 << 20


def test_a_gpu_that_is_too_old_for_the_image_is_remarked_on(nvidia_smi: None) -> None:
    assert any("7.0" in remark and known_versions()["triton.compute_capability"] in remark for remark in version_remarks())


def test_the_whole_check_runs_on_the_double_of_a_gpu(
    stock_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every part but the other libraries and the exports, with CUDA and TensorRT replaced."""
    bundle = Path(shutil.copytree(stock_bundle, tmp_path / "bundle"))
    add_engines(bundle)
    double = {
        "PYTHONPATH": os.pathsep.join(map(str, (TESTS / "gpu_double" / "modules", TESTS, ROOT))),
        "DRAGOMAN_TEST_GPU_BUNDLE": str(bundle),
    }
    monkeypatch.setattr(gpu_check, "worker", functools.partial(gpu_check.worker, environment=double))
    setup = Setup("tensorrt", stock_bundle, bundle, bundle, sentences=4, batches=(2,), rounds=1, others={"int8": bundle})
    report = dataclasses.replace(check(setup, say=lambda _: None), gpu={"name": "double"})
    assert report.verdict.startswith("ACCEPTED")
    assert [finding.measured for finding in named(report, "same tokens")] == ["100.00%", "100.00%"]
    assert [finding.holds for finding in named(report, "log-probabilities of given targets")] == [True]
    assert len(named(report, "quality")) == 4
    assert named(report, "throughput, without_graphs")[0].holds
