from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dragoman.cli import command_modules, main


def test_without_a_command_the_commands_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in ("export", "inspect", "serve", "translate", "status", "loadtest"))


def test_every_command_has_a_summary(capsys: pytest.CaptureFixture[str]) -> None:
    main([])
    lines = [line.split(None, 1) for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    assert [line[0] for line in lines] == list(command_modules())
    assert all(len(line) == 2 for line in lines)


def test_a_reader_that_closes_the_pipe_is_no_crash() -> None:
    command = [str(Path(sys.executable).with_name("dragoman")), "completion", "zsh"]
    reader, writer = os.pipe()
    os.close(reader)  # before anything is written: a pipe would hold all of it, and nobody would notice
    try:
        ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, timeout=300, check=False)
    finally:
        os.close(writer)
    assert ended.returncode == 1
    assert ended.stderr == b""


def test_an_unknown_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exprot"]) == 2
    assert capsys.readouterr().err.startswith("dragoman: there is no command 'exprot'; did you mean 'export'?\n")


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="no /dev/full here")
@pytest.mark.parametrize("arguments", [["--version"], ["completion", "zsh"], []])
def test_a_full_disk_is_reported_in_one_line(arguments: list[str]) -> None:
    program = str(Path(sys.executable).with_name("dragoman"))
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([program, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert done.stderr == "dragoman: the output can't be written: No space left on device\n"


@pytest.mark.parametrize("command", ["export", "inspect", "serve", "translate", "status", "probe", "loadtest", "plan"])
def test_an_unknown_flag_is_one_line_that_points_to_the_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "x", "--frobnicate"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"dragoman {command}: ")
    assert f"dragoman {command} --help" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("when", ["the command is loaded", "it runs"])
def test_the_error_for_a_missing_part_names_its_installation(
    when: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def gone(*_: object) -> None:
        raise ModuleNotFoundError("No module named 'onnx_ir'", name="onnx_ir")

    if when == "it runs":
        monkeypatch.setattr("dragoman.export.command.run", gone)
    else:
        monkeypatch.delitem(sys.modules, "dragoman.export.command", raising=False)
        monkeypatch.setattr("importlib.import_module", gone)
    assert main(["export", "model", "--output", "bundle"]) == 2
    assert capsys.readouterr().err == "dragoman export: this command needs 'onnx_ir': pip install 'dragoman[export]'\n"


def test_a_missing_module_of_dragoman_is_a_bug_and_shown_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ModuleNotFoundError("No module named 'dragoman.lost'", name="dragoman.lost")

    monkeypatch.setattr("dragoman.export.command.run", broken)
    with pytest.raises(ModuleNotFoundError):
        main(["export", "model", "--output", "bundle"])


def test_ctrl_c_ends_with_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dragoman.export.command.run", interrupted)
    assert main(["export", "model", "--output", "bundle"]) == 130
    assert capsys.readouterr().err == "dragoman export: interrupted\n"
