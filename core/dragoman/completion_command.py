"""`dragoman completion`: a script for the shell that completes commands, flags and file names."""

from __future__ import annotations

import argparse
import re
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
    _prepare(parser)
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


def _prepare(parser: argparse.ArgumentParser) -> None:
    """Let arguments that are paths complete file names, and give all of them names that zsh can read."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                _prepare(command)
            continue
        if action.type is Path:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        if action.metavar is not None:  # shtab copies it into a zsh string without quoting
            name = action.metavar if isinstance(action.metavar, str) else " ".join(action.metavar)
            action.metavar = re.sub(r"[^\w.-]+", " ", name).strip()
