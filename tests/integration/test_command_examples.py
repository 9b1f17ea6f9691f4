"""The commands that README.md, the guides and `--help` show for models, servers and load, pasted into bash as they are.

What they name is there: a small random model in the place of a checkpoint, bundles, texts. A load lasts a second, and a
server listens at free ports.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from served import Server
from shown_commands import shown_commands

PAGES = (
    "README.md",
    *(f"docs/{page}.md" for page in ("capacity", "export", "formats", "loadtest", "markup", "serving", "train")),
)
CHECKPOINTS = ("models/tatoeba-en-de", "opus-mt-en-fr", "my-model")
"""Names in the examples that stand for any Marian checkpoint; the others are of other families and formats."""
SENTENCES = ("Where is the station?", "It is raining.", "Tom has never been there before.")


def flags(line: str) -> set[str]:
    return {word for word in line.split() if word.startswith("--")}


def exports() -> list[str]:
    """Exports take long: those whose flags another one has, too, are left out."""
    lines = [line for line in shown_commands(("export",), PAGES) if line.split()[2] in CHECKPOINTS]
    lines = [line for line in lines if "tensorrt" not in line]
    return [line for line in lines if not any(flags(line) < flags(other) for other in lines)]


EXPORTS = [*exports(), *shown_commands(("inspect",), PAGES)]
SERVERS = shown_commands(("serve",), PAGES)
LOADS = [line for line in shown_commands(("loadtest",), PAGES) if "--find-capacity" not in line]


def paste(line: str, directory: Path) -> subprocess.CompletedProcess[str]:
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", line],
        cwd=directory,
        env={**os.environ, "PATH": programs},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def write_texts(directory: Path) -> None:
    for name in ("book.en", "news.fr", "news.de", "test.txt"):
        (directory / name).write_text("".join(f"{line}\n" for line in SENTENCES), encoding="utf-8")
    for name in ("dev.tsv", "test.tsv", "held-out.tsv"):
        (directory / name).write_text("".join(f"{line}\t{line}\n" for line in SENTENCES), encoding="utf-8")
    (directory / "terms.tsv").write_text("station\tHaltestelle\n", encoding="utf-8")


@pytest.fixture(scope="module")
def checkpoint(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model's directory with texts beside its files, as the examples have it."""
    directory = tmp_path_factory.mktemp("checkpoint")
    for file in tiny_checkpoint.iterdir():
        (directory / file.name).symlink_to(file)
    write_texts(directory)
    return directory


@pytest.mark.parametrize("line", EXPORTS)
def test_the_export_works_when_it_is_pasted(line: str, checkpoint: Path, reference_bundle: Path, tmp_path: Path) -> None:
    write_texts(tmp_path)
    (tmp_path / "models").mkdir()
    for name in CHECKPOINTS:
        (tmp_path / name).symlink_to(checkpoint)
    words = shlex.split(line)
    if words[1] == "inspect":
        (tmp_path / words[2]).parent.mkdir()
        (tmp_path / words[2]).symlink_to(reference_bundle)
    done = paste(line, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    if words[1] == "export":
        assert (tmp_path / words[words.index("--output") + 1] / "manifest.json").is_file()


@pytest.mark.parametrize("line", SERVERS)
def test_the_server_translates_when_its_command_is_pasted(
    line: str, reference_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_texts(tmp_path)
    (tmp_path / "bundles").mkdir()
    for name in ("en-de", "de-en", "en-fr", "mine"):
        (tmp_path / "bundles" / name).symlink_to(reference_bundle)
    monkeypatch.chdir(tmp_path)
    with Server.of(shlex.split(line.replace("127.0.0.1:9001", "127.0.0.1:0"))[2:]) as server:
        caller = server.caller()
        for bundle in caller.status()["bundles"]:
            answer = caller.translate(["Where is the station?"], model=bundle["name"])
            assert answer.best == ["Wo ist der Bahnhof?"]
        caller.close()


@pytest.mark.parametrize("line", LOADS)
def test_the_load_test_reports_when_it_is_pasted(line: str, server: Server, tmp_path: Path) -> None:
    """On a busy machine an objective may be missed: the exit code is 1 then, and the report is the same."""
    write_texts(tmp_path)
    (tmp_path / "my-model").symlink_to(tmp_path)
    short = f"--server {server.grpc} --duration 1s --warm-up 100ms"
    if "--compare" in line:
        for name in re.findall(r"(\w+)\.json", line):
            paste(f"dragoman loadtest --workload test.txt {short} --output {name}", tmp_path)
            assert (tmp_path / f"{name}.json").is_file()
    else:
        line += f" {short}"
    done = paste(line, tmp_path)
    assert done.returncode in (0, 1), done.stderr
    assert done.stdout
    assert "Traceback" not in done.stderr


def test_there_are_examples_of_each() -> None:
    assert [len(lines) > 2 for lines in (EXPORTS, SERVERS, LOADS)] == [True] * 3
