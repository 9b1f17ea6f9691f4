"""The shell commands that README.md, the pages of docs/ and `--help` show."""

from __future__ import annotations

import argparse
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

__all__ = ["shown_commands"]

ROOT = Path(__file__).resolve().parents[1]


def shown_commands(commands: tuple[str, ...], pages: tuple[str, ...]) -> list[str]:
    """The lines with one of these commands of dragoman, in `pages` and in its own help; each once, without its comment."""
    lines = [line.strip() for page in pages for line in _in_page(page)]
    lines += [line.strip() for command in commands for line in _in_help(command)]
    wanted = re.compile(rf"(^|[|(] ?)dragoman ({'|'.join(commands)})\b")
    return list(dict.fromkeys(re.sub(r"\s+# .*", "", line) for line in lines if wanted.search(line)))


def _in_page(page: str) -> Iterator[str]:
    for block in re.findall(r"^ *```sh\n(.*?)^ *```", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        yield from block.replace("\\\n", " ").splitlines()


def _in_help(command: str) -> Iterator[str]:
    modules = importlib.import_module("dragoman.cli").command_modules()
    parser = argparse.ArgumentParser()
    importlib.import_module(modules[command]).configure(parser)
    yield from re.findall(r"^  (\S.*)$", parser.epilog or "", re.MULTILINE)
