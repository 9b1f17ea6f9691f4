"""Runs a command that ends when its parent does, however the parent ends: `python parent_watch.py PARENT_PID COMMAND …`.

Run as a file by a bare interpreter, so it imports nothing of dragoman.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

__all__ = ["watching_parent"]

_PR_SET_PDEATHSIG = 1


def watching_parent(command: list[str]) -> list[str]:
    """`command`, made to watch this process: it is killed when this process ends."""
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def main(parent: int, command: list[str]) -> None:
    """Become `command`."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL)) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        sys.exit("the parent ended while its child was starting")
    os.execv(command[0], command)  # noqa: S606 - the command comes from the supervisor


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
