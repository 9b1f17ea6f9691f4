"""The `dragoman` command: finds the command, parses, runs it, and turns an error into a sentence.

A command is a module named by the entry-point group `dragoman.commands` with three things: `HELP`, one line;
`configure(parser)`; and `run(arguments) -> int`, the exit code. It is imported only when it is asked for, so that
`dragoman translate` never pays for torch.
"""

from __future__ import annotations

import argparse
import difflib
import errno
import importlib
import os
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points, version
from types import ModuleType
from typing import Any, NoReturn

from dragoman.errors import DragomanError, UsageError

__all__ = ["build_parser", "command_modules", "main"]

_EXTRA = {"dragoman.export": "export", "dragoman.serving": "serving"}
_SUMMARY = {
    "export": "turn a checkpoint into a verified bundle",
    "build-engines": "build a bundle's TensorRT engines again",
    "inspect": "show and check a bundle",
    "serve": "serve bundles behind Triton",
    "translate": "translate text over gRPC",
    "score": "score given translations",
    "status": "show what a server serves and how busy it is",
    "probe": "health check: one real translation",
    "loadtest": "load-test a deployment",
    "plan": "compute how many servers a request rate needs",
    "compare": "compare a bundle with CTranslate2 on your text",
    "completion": "print a completion script for bash, zsh or fish",
}
_OWN_COMMANDS = {"completion": "dragoman.completion_command"}
FAILURE, USAGE, INTERRUPTED = 1, 2, 130
_FULL = (errno.ENOSPC, errno.EFBIG, errno.EIO, *([errno.EDQUOT] if hasattr(errno, "EDQUOT") else []))
"""Errors of writing that are not a bug of ours."""


def main(argv: list[str] | None = None) -> int:
    """Run one command; 0 for success, 1 for failure, 2 for wrong usage, 130 after Ctrl-C."""
    arguments = sys.argv[1:] if argv is None else argv
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader of the output has ended: `| head`
        _leave_output()
        return FAILURE
    except OSError as error:
        if error.errno not in _FULL or error.filename is not None:
            raise
        _leave_output()
        print(f"dragoman: the output can't be written: {error.strerror}", file=sys.stderr)
        return FAILURE


def _dispatch(arguments: list[str]) -> int:
    commands = command_modules()
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_overview(commands))
        return 0
    if arguments[0] in ("-V", "--version"):
        print(f"dragoman {version('dragoman')}")
        return 0
    name = arguments[0]
    if name not in commands:
        near = difflib.get_close_matches(name, commands, n=1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        print(f"dragoman: there is no command {name!r}{meant}\n\n{_overview(commands)}", file=sys.stderr)
        return USAGE
    try:
        command = importlib.import_module(commands[name])
        parser = _Parser(prog=f"dragoman {name}", **_presentation(command))
        command.configure(parser)
        return int(command.run(parser.parse_args(arguments[1:])))
    except ModuleNotFoundError as error:
        way_out = _missing_part(commands[name], error)
        if way_out is None:
            raise
        print(f"dragoman {name}: {way_out}", file=sys.stderr)
        return USAGE
    except UsageError as error:
        print(f"dragoman {name}: {error}", file=sys.stderr)
        return USAGE
    except DragomanError as error:
        print(f"dragoman {name}: {error}", file=sys.stderr)
        return FAILURE
    except KeyboardInterrupt:
        print(f"dragoman {name}: interrupted", file=sys.stderr)
        return INTERRUPTED


def command_modules() -> dict[str, str]:
    """The module of each installed command, in the order of the overview."""
    found = {entry.name: entry.value for entry in entry_points(group="dragoman.commands")} | _OWN_COMMANDS
    return {name: found[name] for name in sorted(found, key=_order)}


def _leave_output() -> None:
    """Discard what is still buffered; otherwise Python reports the broken pipe again when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def build_parser(names: Iterable[str] | None = None) -> argparse.ArgumentParser:
    """The parser of the commands `names`, of all by default: also for documentation and tab completion.

    ModuleNotFoundError when one needs a part that is not installed.
    """
    modules = command_modules()
    parser = _Parser(prog="dragoman", description="Put a trained translation model in production.")
    parser.add_argument("-V", "--version", action="version", version=f"dragoman {version('dragoman')}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name in modules if names is None else names:
        command = importlib.import_module(modules[name])
        command.configure(commands.add_parser(name, help=_SUMMARY.get(name, command.HELP), **_presentation(command)))
    return parser


def _presentation(command: ModuleType) -> dict[str, Any]:
    return {"description": command.HELP, "formatter_class": argparse.RawDescriptionHelpFormatter}


class _Parser(argparse.ArgumentParser):
    """Prints a usage error in one line, as every other error; argparse would print all flags before it."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")


def _missing_part(command: str, error: ModuleNotFoundError) -> str | None:
    """How to install what `command` needs; None when the missing module is one of dragoman's."""
    extra = _EXTRA.get(".".join(command.split(".")[:2]))
    if extra is None or (error.name or "").startswith("dragoman"):
        return None
    return f"this command needs {error.name!r}: pip install 'dragoman[{extra}]'"


def _overview(commands: Mapping[str, str]) -> str:
    lines = [f"  {name:<13} {_SUMMARY.get(name, '')}" for name in commands]
    return "\n".join(
        [
            "usage: dragoman COMMAND …",
            "",
            "Puts a trained translation model in production: export it, serve it, call it, load-test it.",
            "",
            *lines,
            "",
            "`dragoman COMMAND --help` explains a command with examples, `dragoman --version` prints the version.",
        ]
    )


def _order(name: str) -> int:
    return list(_SUMMARY).index(name) if name in _SUMMARY else len(_SUMMARY)


if __name__ == "__main__":
    raise SystemExit(main())
