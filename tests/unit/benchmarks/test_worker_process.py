from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.worker_process import Worker, WorkerFailed

ROOT = Path(__file__).parents[3]

ECHO = """
import sys
from benchmarks.workers.protocol import serve
class Reverse:
    def load(self, request):
        print("noise that must not reach the parent")
        return {"version": request["model"]}
    def run(self, sources, batch, beam, target_tokens):
        if beam > 4:
            raise ValueError("too wide")
        return [source[::-1] for source in sources]
serve(Reverse())
"""


@pytest.fixture
def reverse() -> Worker:
    process = subprocess.Popen(
        [sys.executable, "-c", ECHO], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    worker = Worker(process, "reverse")
    yield worker
    worker.close()
    process.stdout.close()


def test_a_worker_answers_with_outputs_and_times(reverse: Worker) -> None:
    assert reverse.ask("load", model="m")["version"] == "m"
    answer = reverse.ask("run", sources=[[1, 2], [3]], batch=1, beam=1, target_tokens=None, keep=True)
    assert answer["outputs"] == [[2, 1], [3]]
    assert answer["tokens"] == 3
    assert answer["wall_s"] >= 0 <= answer["cpu_s"]
    assert reverse.ask("memory")["peak_bytes"] > 1_000_000


def test_a_failure_reaches_the_parent_whole_and_the_worker_lives_on(reverse: Worker) -> None:
    with pytest.raises(WorkerFailed, match="too wide"):
        reverse.ask("run", sources=[[1]], batch=1, beam=5, target_tokens=None)
    assert reverse.ask("run", sources=[[1]], batch=1, beam=4, target_tokens=None)["tokens"] == 1
