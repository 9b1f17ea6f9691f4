"""The parsers of all commands, as documentation and tab completion read them."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from dragoman.cli import build_parser, command_modules, main

COMMANDS = ("export", "inspect", "serve", "translate", "score", "status", "probe", "loadtest", "plan", "completion")


def parser_of(command: str) -> argparse.ArgumentParser:
    (commands,) = [action for action in build_parser([command])._actions if isinstance(action, argparse._SubParsersAction)]
    found: argparse.ArgumentParser = commands.choices[command]
    return found


def test_every_command_has_a_parser() -> None:
    assert set(COMMANDS) <= set(command_modules())
    (commands,) = [action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction)]
    assert list(commands.choices) == list(command_modules())


@pytest.mark.parametrize("command", COMMANDS)
def test_the_examples_of_its_help_can_be_pasted(command: str) -> None:
    shown = parser_of(command)
    lines = re.findall(r"^ +(?:.*[|(] ?)?(dragoman .*)$", f"{shown.description}\n{shown.epilog}", re.MULTILINE)
    assert lines, "a command without an example"
    for line in lines:
        words = shlex.split(re.split(r"[|>)]", re.sub(r'"p99.*?"', "SLO", line))[0], comments=True)
        assert words[1] in COMMANDS
        build_parser([words[1]]).parse_args(words[1:])


@pytest.mark.parametrize("command", ["translate", "status", "probe", "loadtest"])
def test_the_server_is_named_by_flag_or_environment(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_SERVER", "elsewhere:9001")
    assert build_parser([command]).parse_args([command]).server == "elsewhere:9001"
    assert build_parser([command]).parse_args([command, "--server", "here:1"]).server == "here:1"


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_the_release_is_printed(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([flag]) == 0
    assert capsys.readouterr().out == f"dragoman {version('dragoman')}\n"


def completions(script: Path, *words: str) -> list[str]:
    """What bash offers for the last of `words`."""
    typed = f"COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}"
    program = f"source {script}; {typed}; _shtab_dragoman; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, timeout=600, check=True)
    return done.stdout.split()


def test_bash_completes_commands_flags_and_choices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "dragoman.bash"
    script.write_text(capsys.readouterr().out, encoding="utf-8")
    assert completions(script, "dragoman", "tr") == ["translate"]
    assert "--server" in completions(script, "dragoman", "status", "--s")
    assert completions(script, "dragoman", "loadtest", "--shape", "po") == ["poisson"]


ZSH = r"""
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PS1=; fpath=($1 \$fpath); autoload -Uz compinit; compinit -u -D; echo REA''DY"
zpty -r shell shown '*READY*'
zpty -w -n shell $'dragoman stat\t --serv\t'
zpty -r shell shown '*(--server|error)*'
print -r -- "$shown"
"""


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed (make deploy-tools)")
def test_zsh_completes_commands_and_flags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "zsh"]) == 0
    (tmp_path / "_dragoman").write_text(capsys.readouterr().out, encoding="utf-8")
    done = subprocess.run(["zsh", "-f", "-c", ZSH, "zsh", tmp_path], capture_output=True, text=True, timeout=600, check=True)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|[\b\r]", "", done.stdout)
    assert re.search(r"dragoman status +--server", shown), done.stdout


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed (make deploy-tools)")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [("dragoman tr", "translate"), ("dragoman status --s", "--server"), ("dragoman loadtest --shape po", "poisson")],
)
def test_fish_completes_commands_flags_and_choices(
    typed: str, offered: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", "fish"]) == 0
    script = tmp_path / "dragoman.fish"
    script.write_text(capsys.readouterr().out, encoding="utf-8")
    program = ["fish", "--no-config", "-c", f"source {script}; complete -C {shlex.quote(typed)}"]
    done = subprocess.run(
        program, env={**os.environ, "HOME": str(tmp_path)}, capture_output=True, text=True, timeout=600, check=True
    )
    assert offered in {line.partition("\t")[0] for line in done.stdout.splitlines()}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_the_same_commands(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(command in script for command in COMMANDS)


def test_a_shell_that_is_not_known_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "cmd"]) == 2
    assert "bash" in capsys.readouterr().err
