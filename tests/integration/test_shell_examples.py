"""The commands that README.md, the guides and `--help` show for a running server, pasted into bash as they are."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from served import Server
from shown_commands import shown_commands

PAGES = ("README.md", "docs/client.md", "docs/markup.md", "docs/deploy.md")
COMMANDS = ("translate", "score", "status", "probe", "completion")
FILES = {
    "book.en": "It is raining.\nThank you!\n",
    "book.de": "Es regnet.\nDanke!\n",
    "page.html": "<p>Where is the <b>station</b>?</p>\n",
    "README.md": "# Where is the station?\n\n- It is *late*.\n",
    "strings.xml": "<strings><string>It is late.</string></strings>\n",
    "film.en.srt": "1\n00:00:01,000 --> 00:00:02,000\nIt is late.\n",
    "terms.tsv": "station\tHaltestelle\n",
    "pairs.tsv": "It is late.\tEs ist spät.\n",
}


EXAMPLES = shown_commands(COMMANDS, PAGES)


@pytest.fixture(scope="module")
def server(reference_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    terms = tmp_path_factory.mktemp("terms") / "terms.tsv"
    terms.write_text(FILES["terms.tsv"], encoding="utf-8")
    with Server.of(["--bundle", f"en-de={reference_bundle}", "--glossary", f"travel={terms}"]) as started:
        yield started


@pytest.mark.parametrize(
    "line", [line for line in EXAMPLES if "completion zsh" not in line and "completion fish" not in line]
)
def test_the_command_works_when_it_is_pasted(server: Server, tmp_path: Path, line: str) -> None:
    for name, text in FILES.items():
        if name != "book.de" or "paste" in line:  # else the command writes it
            (tmp_path / name).write_text(text, encoding="utf-8")
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line.replace("localhost:8001", server.grpc)],
        cwd=tmp_path,
        env={**os.environ, "PATH": programs, "DRAGOMAN_SERVER": server.grpc},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_there_are_examples() -> None:
    assert len(EXAMPLES) > 20
