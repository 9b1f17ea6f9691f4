"""The Python examples of docs/client.md, docs/markup.md, README.md and Translator's docstrings, run as they are written."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from dragoman.client import Translator
from served import Server

ROOT = Path(__file__).resolve().parents[2]
TEXT = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in ("docs/client.md", "docs/markup.md", "README.md"))
MARKUP = (ROOT / "docs/markup.md").read_text(encoding="utf-8")
DOCUMENTED = (Translator, Translator.translate, Translator.score, Translator.stream)
DOCUMENTED += (Translator.translate_lines, Translator.translate_file)


def in_docstring(documented: object) -> str:
    """The example of a class, or of a method, which uses `translator`."""
    (block,) = re.findall(r"(?:^    .*\n?)+", inspect.getdoc(documented) or "", re.MULTILINE)
    opened = 'with Translator("localhost:8001") as translator:\n'
    block = textwrap.dedent(block) if opened in block else opened + block
    return f"from dragoman.client import Translator\n\n{block}"


EXAMPLES = [
    *re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL),
    *map(in_docstring, DOCUMENTED),
]


@pytest.mark.parametrize("example", EXAMPLES, ids=[re.sub(r"\W+", "-", one.strip().splitlines()[-1]) for one in EXAMPLES])
def test_the_example_runs(server: Server, tmp_path: Path, example: str) -> None:
    (tmp_path / "book.en").write_text("It is raining.\n\nThank you!\n", encoding="utf-8")
    (tmp_path / "example.py").write_text(example.replace("localhost:8001", server.grpc), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", "example.py"], cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    if example in MARKUP:  # what the page says of it is what it prints
        assert done.stdout.splitlines() == re.findall(r"print\(.*\)  # (.+)", example)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 6
