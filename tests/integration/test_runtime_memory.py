"""The memory contract holds: a real engine under the heaviest load it admits stays within what it promised."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY_LOAD = """
import dataclasses, pathlib, sys
from dragoman.serving.engine import EngineLimits
from dragoman.serving.in_process import open_model
from dragoman.serving.runtime.settings import RuntimeSettings

limits = EngineLimits(max_rows=64, target_tokens_per_row=64, source_tokens_per_row=64, max_session_rows=16)
model = open_model(pathlib.Path(sys.argv[1]), RuntimeSettings(threads=int(sys.argv[2])), limits)
assert (model.engine.wakeup_fd is None) == (sys.argv[2] == "1")
usual = model.manifest.generation
short, long = tuple(model.tokenizer.encode("Where is the station?")), (5,) * 400 + (0,)
model.decode([short] * 64, dataclasses.replace(usual, beam_size=1, min_length=100))
model.decode([short] * 16, dataclasses.replace(usual, beam_size=4, min_length=100))
model.decode([long] * 12, dataclasses.replace(usual, beam_size=1, max_length=12))
assert not model.engine.busy
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]
print(int(peak) * 1024, model.contract.total_bytes)
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_the_heaviest_load_stays_within_the_memory_contract(reference_bundle: Path, threads: int) -> None:
    command = [sys.executable, "-c", HEAVY_LOAD, str(reference_bundle), str(threads)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    peak_bytes, promised_bytes = map(int, ran.stdout.split())
    assert promised_bytes / 3 < peak_bytes <= promised_bytes
