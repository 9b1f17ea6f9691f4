"""The pages about deployment: their versions are the version file's, their links lead somewhere, their commands exist."""

from __future__ import annotations

import argparse
import importlib
import re
import shlex
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from compose_files import ROOT, versions

PAGES = [ROOT / "docs" / f"{name}.md" for name in ("gpu", "deploy", "capacity")]


@pytest.fixture(params=PAGES, ids=lambda path: path.stem)
def page(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


def commands(text: str) -> list[list[str]]:
    """Every `dragoman …` line of the shell examples."""
    blocks = re.findall(r"^\s*```sh\n(.*?)^\s*```", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [shlex.split(line, comments=True) for line in lines if line.strip().startswith("dragoman ")]


def test_the_gpu_page_has_the_version_files_versions() -> None:
    text = (ROOT / "docs/gpu.md").read_text(encoding="utf-8")
    known = versions()
    assert f"`{known['triton']['image']}:{known['triton']['tag']}`" in text
    for row in (
        f"| CUDA | {known['triton']['cuda']},",
        f"| Python | {known['triton']['python']},",
        f"| GPU | compute capability {known['triton']['compute_capability']} ",
        f"| ONNX Runtime | {known['runtime']['onnxruntime']} ",
        f"| TensorRT of route 1 | {known['runtime']['tensorrt']}:",
        f"| TensorRT of route 2 | {known['triton']['tensorrt']},",
        f"pip install 'tensorrt=={known['triton']['tensorrt']}.*'",
        f"| TensorRT-RTX | {known['runtime']['tensorrt_rtx']},",
    ):
        assert row in text, row


def test_links_to_files_of_the_project_lead_to_them(page: Path) -> None:
    linked = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))
    local = [link for link in linked if "://" not in link]
    assert local
    missing = [link for link in local if not (page.parent / link).exists()]
    assert missing == []


def test_the_commands_shown_take_the_options_shown(page: Path) -> None:
    modules = {entry.name: entry.value for entry in entry_points(group="dragoman.commands")}
    shown = commands(page.read_text(encoding="utf-8"))
    assert shown
    for _, name, *arguments in shown:
        parser = argparse.ArgumentParser(exit_on_error=False)
        importlib.import_module(modules[name]).configure(parser)
        parser.parse_args(arguments)


def test_the_capacity_page_shows_every_run_of_the_last_measurement() -> None:
    page = (ROOT / "docs/capacity.md").read_text(encoding="utf-8")
    block = re.search(r"<!-- planner_error: begin -->\n(.*?)\n<!-- planner_error: end -->", page, re.DOTALL)
    assert block is not None
    measured = (ROOT / "benchmarks/results/planner_error.md").read_text(encoding="utf-8")
    assert measured.rstrip().endswith(block[1])
    assert block[1].startswith("| round |")


def test_the_embedded_triton_is_the_version_files() -> None:
    wheel = versions()["embedded"]["nvidia_pytriton"]
    assert f'"nvidia-pytriton=={wheel}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
