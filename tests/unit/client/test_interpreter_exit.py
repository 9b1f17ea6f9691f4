"""What an open iterator does when the interpreter ends: daemon threads stand still then, and nothing may wait for one."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import threading
from dragoman.client import blocking

async def forever():
    threading.Event().wait()

task = blocking._ThreadTask(forever(), threading.Condition())
threading.Thread(target=task.run, args=(threading.local(),), daemon=True).start()

async def items():
    try:
        yield 1
    finally:
        await task.ended()

held = blocking.iterate(items())
next(held)
"""


def test_an_iterator_that_is_still_open_does_not_hold_up_the_end_of_the_program() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
