"""The demo: serve a bundle with the real Triton, translate over gRPC greedily and with beams, show the results.

python examples/demo.py --bundle bundles/tatoeba-en-de
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from dragoman.client import Translation, Translator

SENTENCES = [
    "Where is the station?",
    "I would like a cup of coffee, please.",
    "My sister has been living in this house for ten years.",
    "If it rains tomorrow, we will stay at home.",
    "He asked me whether I could help him with his work.",
]
START_TIMEOUT_S = 120.0
READY = re.compile(r"^ready: .* at (\S+:\d+)")


def main() -> int:
    """Run the demo; 0 when every sentence was translated."""
    parser = argparse.ArgumentParser(description="Serve a bundle, translate a few sentences, show them.")
    parser.add_argument("--bundle", type=Path, required=True)
    console = Console()
    with serving(parser.parse_args().bundle, console) as address, Translator(address) as translator:
        greedy = translator.translate(SENTENCES, beam_size=1, cache=False)
        beams = translator.translate(SENTENCES, beam_size=4, cache=False)
        console.print(table(greedy, beams))
        console.print("Streamed: ", end="")
        for piece in translator.stream(SENTENCES[2], beam_size=1, target_language="de"):
            console.print(piece, end="", style="cyan")
        console.print()
    console.print("[dim]The server has finished all accepted requests and stopped.[/]")
    return 0


def table(greedy: list[Translation], beams: list[Translation]) -> Table:
    """Both searches side by side with their times."""
    shown = Table("English", "greedy", "ms", "beam 4", "ms", title="Translated over gRPC by Triton", title_justify="left")
    for sentence, one, four in zip(SENTENCES, greedy, beams, strict=True):
        shown.add_row(sentence, one.text, f"{one.timings.total_ms:.0f}", four.text, f"{four.timings.total_ms:.0f}")
    return shown


@contextmanager
def serving(bundle: Path, console: Console) -> Iterator[str]:
    """A server on a free port while the block runs; its address."""
    command = [sys.executable, "-m", "dragoman.cli", "serve", "--bundle", f"demo={bundle}"]
    command += ["--grpc-address", "127.0.0.1:0", "--metrics-address", "127.0.0.1:0", "--log-level", "error"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        watchdog = threading.Timer(START_TIMEOUT_S, server.kill)
        watchdog.start()
        try:
            yield ready_address(server, console)
        finally:
            watchdog.cancel()
            server.terminate()
            server.wait(timeout=30)


def ready_address(server: subprocess.Popen[str], console: Console) -> str:
    """Show the server's lines until it is ready."""
    if server.stdout is None:
        raise RuntimeError("the server was started without a pipe")
    for line in server.stdout:
        console.print(line.rstrip(), highlight=False, markup=False)
        if found := READY.match(line):
            return found[1]
    raise SystemExit(f"the server ended before it was ready (exit code {server.wait()})")


if __name__ == "__main__":
    raise SystemExit(main())
