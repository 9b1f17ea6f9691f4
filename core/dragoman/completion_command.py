"""`dragoman completion`: a script for the shell that completes commands, flags and file names."""

from __future__ import annotations

import argparse
from pathlib import Path

import shtab

from dragoman.cli import build_parser, command_modules

__all__ = ["HELP", "configure", "run"]

HELP = "Print a script that lets the shell complete dragoman's commands and flags with the tab key."

_EXAMPLES = """
examples:
  source <(dragoman completion bash)                                                # for this shell; in ~/.bashrc for all
  dragoman completion zsh > "${fpath[1]}/_dragoman"
  dragoman completion fish > ~/.config/fish/completions/dragoman.fish
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The argument."""
    parser.epilog = _EXAMPLES
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell to write the script for")


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    parser = build_parser(_installed())
    _complete_paths(parser)
    print(shtab.complete(parser, arguments.shell))
    return 0


def _installed() -> list[str]:
    """The commands whose part is installed: a script for the client alone completes the client's."""
    found = []
    for name in command_modules():
        try:
            build_parser([name])
        except ModuleNotFoundError:
            continue
        found.append(name)
    return found


def _complete_paths(parser: argparse.ArgumentParser) -> None:
    """Let arguments that are paths complete file names."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                _complete_paths(command)
        elif action.type is Path:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
