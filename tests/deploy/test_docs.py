"""The documentation: links lead somewhere, commands exist, generated pages are current, versions are the version file's."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import re
import shlex
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

import pytest
from compose_files import ROOT, versions

DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), *ROOT.glob("*.md")])
GUIDES = ("client", "deploy", "export", "gpu", "loadtest", "serving")
HISTORY = ("CHANGELOG", "engineering-log")
GENERATED = ("cli.md", "api.md", "metrics.md")
OBSOLETE = (  # words that the pages have better ones for
    *(r"of our own", r"who leaves", r"says? a token", r"be kind"),
    *(r"\bthe door\b", r"--no-door", r"\bstubs?\b", r"kernels\.md"),
    *(r"DRAGOMAN_TO\b", r"--to [\w.]*:\d", r"--to (?:localhost|dns:|grpcs:)"),
)


@pytest.fixture(params=PAGES, ids=lambda path: path.stem)
def page(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


def commands(text: str) -> list[list[str]]:
    """Every `dragoman …` line of the shell examples."""
    blocks = re.findall(r"^\s*```sh\n(.*?)^\s*```", text, re.MULTILINE | re.DOTALL)
    lines = [line.strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    shown = [line.split(" | ")[-1].split(" > ")[0] for line in lines]
    return [shlex.split(line, comments=True) for line in shown if line.startswith("dragoman ")]


def anchors(path: Path) -> set[str]:
    """The fragments that a page's headings can be linked by, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_gpu_page_has_the_version_files_versions() -> None:
    text = (ROOT / "docs/gpu.md").read_text(encoding="utf-8")
    known = versions()
    assert f"`{known['triton']['image']}:{known['triton']['tag']}`" in text
    for row in (
        f"| CUDA | {known['triton']['cuda']},",
        f"| Python | {known['triton']['python']},",
        f"| GPU | compute capability {known['triton']['compute_capability']} ",
        f"| ONNX Runtime | {known['runtime']['onnxruntime']} ",
        f"| TensorRT | {known['runtime']['tensorrt_standard']}, ",
        f"| TensorRT-RTX | {known['runtime']['tensorrt_rtx']}, built for CUDA {known['runtime']['tensorrt_rtx_cuda']}:",
    ):
        assert row in text, row


def test_links_lead_to_files_and_headings_of_the_project(page: Path) -> None:
    for link in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
        name, _, fragment = link.partition("#")
        if "://" in link:
            continue
        target = page.parent / name if name else page
        assert target.exists(), link
        assert not fragment or fragment in anchors(target), link


def test_every_page_is_in_the_index() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    assert [path.name for path in DOCS.glob("*.md") if f"]({path.name})" not in index and path.name != "index.md"] == []


def test_the_commands_shown_take_the_options_shown(page: Path) -> None:
    modules = {entry.name: entry.value for entry in entry_points(group="dragoman.commands")}
    for _, name, *arguments in commands(page.read_text(encoding="utf-8")):
        parser = argparse.ArgumentParser(exit_on_error=False)
        importlib.import_module(modules[name]).configure(parser)
        parser.parse_args(arguments)


@pytest.mark.parametrize("name", ["README.md", *(f"docs/{guide}.md" for guide in GUIDES)])
def test_the_guides_show_commands(name: str) -> None:
    assert commands((ROOT / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", GENERATED)
def test_the_generated_page_is_current(name: str) -> None:
    generate = [sys.executable, "-c", f"import generate; print(generate.pages()[{name!r}], end='')"]
    done = subprocess.run(generate, cwd=DOCS, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (DOCS / name).read_text(encoding="utf-8"), "run `make docs`"


@pytest.fixture(scope="module")
def wrap() -> ModuleType:
    spec = importlib.util.spec_from_file_location("wrap", DOCS / "wrap.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in GENERATED], ids=lambda page: page.stem)
def test_prose_is_wrapped(page: Path, wrap: ModuleType) -> None:
    written = [line for prose, block in wrap.blocks(page.read_text(encoding="utf-8")) if prose for line in block]
    assert [line for line in written if len(line) > wrap.WIDTH] == [], "run `make docs`"


def test_wrapping_changes_line_breaks_only(wrap: ModuleType) -> None:
    page = (
        "# Title\n\nA paragraph with `a code span` and\na number at the end of this line\n1. of a list, "
        + "word " * 30
        + "- \n\n- an item\n  that goes on\n\n    indented code   stays\n\n```sh\nas   it is\n```\n| a | b |\n"
    )
    filled = wrap.wrapped(page)
    assert filled.split() == page.split()
    assert "    indented code   stays\n\n```sh\nas   it is\n```\n| a | b |\n" in filled
    assert "- an item that goes on\n" in filled
    assert wrap.wrapped(filled) == filled
    assert not [line for line in filled.splitlines() if line.startswith("- ") and "item" not in line]


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem not in HISTORY], ids=lambda page: page.stem)
def test_no_page_uses_words_that_were_replaced(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert [found[0] for word in OBSOLETE for found in re.finditer(word, text, re.IGNORECASE)] == []


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
