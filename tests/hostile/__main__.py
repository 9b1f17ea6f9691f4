"""Every known kind of hostile request, against a real server on loopback; one table at the end.

    make hostile                                     (about fifteen minutes)
    PYTHONPATH=tests python -m hostile --bundle bundles/en-de --quick
    make hammer                                      (20,000 calls of each kind, quiet and beside three busy loops)
    PYTHONPATH=tests python -m hostile --bundle bundles/en-de --only "hammer bad-stream" --calls 20000

Ends with 1 when a process fell that must not, or when a caller got an answer that nobody may get. Ctrl-C ends it, shows
what was found so far and leaves nothing running. Two things are only reported, because the embedded Triton 2.51 can't take
them and no backend can help: unary calls that end early while the machine is busy, and HTTP bodies in very many tiny chunks.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import platform
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from dragoman.serving.supervisor.ports import free_port
from hostile.deaths import Deaths
from hostile.report import Row, judged, show, write
from hostile.rounds import DEFAULT, QUICK, Stage, rounds
from served import Server

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m hostile", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--checkpoint", type=Path, default=ROOT / "models" / "tatoeba-en-de")
    parser.add_argument("--quick", action="store_true", help="at most three minutes")
    parser.add_argument("--only", action="append", metavar="ROUND", help="rounds whose name begins so; may be given again")
    parser.add_argument("--calls", type=int, help="of each kind")
    parser.add_argument("--hammer-seconds", type=float, help="at most, for each kind; without limit where --calls is given")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--json", type=Path, default=ROOT / "reports" / "hostile.json")
    given = parser.parse_args()
    plan = QUICK if given.quick else DEFAULT
    seconds = math.inf if given.hammer_seconds is None and given.calls is not None else given.hammer_seconds
    changed = {"calls": given.calls, "hammer_seconds": seconds}
    plan = dataclasses.replace(plan, **{name: value for name, value in changed.items() if value is not None})
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell starts background jobs with SIGINT ignored
        signal.signal(number, signal.default_int_handler)
    console, rows, began_s = Console(width=None if sys.stdout.isatty() else 160), list[Row](), time.monotonic()
    http = f"127.0.0.1:{free_port('127.0.0.1')}"
    try:
        with Server.start([f"en-de={given.bundle}"], "--http-address", http) as server, Deaths(server) as deaths:
            stage = Stage(server, deaths, http, given.bundle, given.checkpoint, given.seed)
            for name, work in rounds(stage, plan):
                if not given.only or name.startswith(tuple(given.only)):
                    console.print(f"{time.monotonic() - began_s:6.0f} s  {name} …", highlight=False)
                    rows += _tried(name, work, deaths)
    except KeyboardInterrupt:
        console.print("interrupted; what was found so far:")
        rows.append(Row("interrupted", 0, verdict="WRONG"))
    show(rows, console)
    about = {
        "command": " ".join(sys.argv),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "seed": given.seed,
        "seconds": round(time.monotonic() - began_s),
    }
    write(rows, given.json, about)
    console.print(f"seed {given.seed}; {about['seconds']} s; {about['machine']}; also in {given.json}", highlight=False)
    return 1 if any(row.failed for row in rows) else 0


def _tried(name: str, work: Callable[[], list[Row]], deaths: Deaths) -> list[Row]:
    """The rows of a round; one that can't go on is a row, too, and the others still run."""
    before = deaths.counted()
    try:
        return work()
    except Exception as error:  # whatever it is, it is in the table and fails the run
        return [judged(f"{name} (given up)", 0, deaths.counted() - before, [f"{type(error).__name__}: {error}"])]


if __name__ == "__main__":
    raise SystemExit(main())
