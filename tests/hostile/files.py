"""Bundles and checkpoints that somebody has tampered with: a line that says what is wrong, little time, little memory.

python -m hostile.files        (the worker: reads command lines as JSON, runs them, tells how they ended)
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hostile.report import Row, judged

MEMORY_BYTES = 6 << 30
"""Address space a command may have: torch and its libraries need some of it, a matrix of 10^9 columns far more."""
LONGEST_S = 20.0
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**62, 10**9, 10**309, -(2**63), 0.5, -0.0, 1e308, float("nan"), float("inf")),
    *("", "x", "../../../../etc/passwd", "/etc/passwd", "/dev/zero", "a/../../b", "\x00", "\ud800", "x" * 10_000),
    *([], {}, [[]], [1], {"a": 1}, [None] * 1000),
)
WHOLE = (
    "truncated",
    "nested",
    "random",
    "empty",
    "long number",
    "not UTF-8",
    "duplicate",
    "not an object",
    "directory",
    "link",
)


def mutated_json(dice: random.Random, document: dict[str, Any]) -> str:
    """The document with one to three values changed, left out, or moved."""
    changed = json.loads(json.dumps(document))
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        places = list(_places(changed))
        if not places:
            break
        holder, key = dice.choice(places)
        match dice.randrange(6):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, dict):
                holder["unknown field"] = copy.deepcopy(dice.choice(VALUES))
            case _:
                holder[key] = copy.deepcopy(dice.choice(VALUES))  # the next change may be one of a list's own
    return json.dumps(changed)


def spoil(path: Path, dice: random.Random) -> str:
    """Spoil a JSON file in place, mostly inside, sometimes as a whole; in words what was done."""
    if dice.random() < 0.8:
        path.write_text(mutated_json(dice, json.loads(path.read_text(encoding="utf-8"))), encoding="utf-8")
        return "values"
    how, raw = dice.choice(WHOLE), path.read_bytes()
    path.unlink()
    match how:
        case "truncated":
            path.write_bytes(raw[: dice.randrange(len(raw))])
        case "nested":
            path.write_bytes(b"[" * 100_000)
        case "random":
            path.write_bytes(dice.randbytes(2000))
        case "empty":
            path.write_bytes(b"")
        case "long number":
            path.write_bytes(b'{"schema_version": ' + b"9" * 5000 + b"}")
        case "not UTF-8":
            path.write_bytes(b"\xff" + raw)
        case "duplicate":
            path.write_bytes(raw[:-2] + b"," + raw[1:])
        case "not an object":
            path.write_bytes(b"[" + raw + b"]")
        case "directory":
            path.mkdir()
        case "link":
            path.symlink_to("/dev/zero")
    return how


def spoil_weights(path: Path, dice: random.Random) -> str:
    """Spoil the header of a safetensors file."""
    raw = bytearray(path.read_bytes())
    length = int.from_bytes(raw[:8], "little")
    match dice.randrange(4):
        case 0:
            raw[:8] = dice.choice((0, 1, 2**31, 2**62, 2**64 - 1, length - 1, length + 1)).to_bytes(8, "little")
        case 1:
            header = mutated_json(dice, json.loads(raw[8 : 8 + length])).encode()
            raw[: 8 + length] = len(header).to_bytes(8, "little") + header
        case 2:
            del raw[dice.randrange(len(raw)) :]
        case _:
            for _ in range(20):
                raw[dice.randrange(8 + length)] = dice.randrange(256)
    path.write_bytes(raw)
    return "weights"


class Commands:
    """A process that runs commands of ours one after another, and is started again when one of them ends it."""

    def __init__(self) -> None:
        self.deaths = 0
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Commands:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def run(self, arguments: list[str]) -> dict[str, Any]:
        """Its `code`, `said` (standard error), `seconds`; `code` None when it took the process with it."""
        if self._process is None or self._process.poll() is not None:
            environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1]), "OMP_NUM_THREADS": "1"}
            command = [sys.executable, "-m", "hostile.files"]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(arguments) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self.deaths += 1
            return {"code": None, "said": f"the process ended with {self._process.wait()}", "seconds": 0.0}
        found: dict[str, Any] = json.loads(line)
        return found


def bundles_spoilt(bundle: Path, directory: Path, count: int, seed: int, until_s: float = float("inf")) -> Row:
    """A row for `dragoman inspect` on so many spoilt manifests (and files beside them)."""
    dice, outcomes, wrong, number = random.Random(seed), Counter[str](), list[str](), 0
    with Commands() as commands:
        while number < count and time.monotonic() < until_s:
            number += 1
            copy = _linked(bundle, directory / "bundle", {"manifest.json", "vocab.json"})
            name = "manifest.json" if dice.random() < 0.9 else "vocab.json"
            how = spoil(copy / name, dice)
            found = commands.run(["inspect", str(copy)])
            outcomes[f"exit {found['code']}"] += 1
            if problem := problem_of(found):
                wrong.append(f"inspect, {name} ({how}, number {number} of seed {seed}): {problem}")
    figures: dict[str, float | int | str] = {"seed": seed, **dict(outcomes.most_common(3))}
    return judged("spoilt bundles", number, {}, wrong, figures)


def checkpoints_spoilt(checkpoint: Path, directory: Path, count: int, seed: int, until_s: float = float("inf")) -> Row:
    """A row for `dragoman export` of so many spoilt checkpoints."""
    dice, outcomes, wrong, number = random.Random(seed), Counter[str](), list[str](), 0
    names = sorted(path.name for path in checkpoint.glob("*.json"))
    sentences = directory / "sentences.txt"
    sentences.write_text("Where is the station?\nIt is raining.\n", encoding="utf-8")
    with Commands() as commands:
        while number < count and time.monotonic() < until_s:
            number += 1
            copy = _linked(checkpoint, directory / "checkpoint", {*names, "model.safetensors"})
            name = dice.choice(("config.json", "config.json", "config.json", "model.safetensors", *names))
            how = (spoil if name.endswith(".json") else spoil_weights)(copy / name, dice)
            output = directory / "exported"
            found = commands.run(["export", str(copy), "--output", str(output), "--verify-file", str(sentences)])
            outcomes[f"exit {found['code']}"] += 1
            if problem := problem_of(found):
                wrong.append(f"export, {name} ({how}, number {number} of seed {seed}): {problem}")
            if found["code"] != 0 and output.exists():
                wrong.append(f"export, {name} ({how}): a bundle appeared though the export failed")
            shutil.rmtree(output, ignore_errors=True)
    figures: dict[str, float | int | str] = {"seed": seed, **dict(outcomes.most_common(3))}
    return judged("spoilt checkpoints", number, {}, wrong, figures)


def problem_of(found: dict[str, Any]) -> str | None:
    """What is wrong with the way a command ended."""
    if found["code"] is None:
        return str(found["said"])
    if "Traceback" in found["said"]:
        return str(found["said"])[-600:]
    if found["seconds"] > LONGEST_S:
        return f"it took {found['seconds']:.1f} s"
    if found["code"] not in (0, 1):
        return f"exit code {found['code']}: {found['said'][:300]}"
    lines = [line for line in found["said"].splitlines() if line.strip()]
    said = next((at for at, line in enumerate(lines) if line.startswith("dragoman ")), len(lines))
    is_said = said < len(lines) and all(line.startswith("  ") for line in lines[said + 1 :])  # a list below it
    if found["code"] == 1 and (not is_said or len(found["said"]) > 8000):
        return f"not a line that says what is wrong: {found['said'][:300]!r}"
    return None


def _linked(source: Path, target: Path, copied: set[str]) -> Path:
    """A copy of a directory in which only `copied` are files of their own."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for path in source.iterdir():
        if path.name in copied:
            shutil.copyfile(path, target / path.name)
        else:
            try:
                os.link(path.resolve(), target / path.name)
            except OSError:  # another file system
                shutil.copyfile(path, target / path.name)
    return target


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every holder and key in a document."""
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in list(keys):
        yield value, key
        yield from _places(value[key])


def _read(source: str, format_name: str | None = None) -> int:
    """Open a checkpoint as `dragoman export` does first."""
    from dragoman.errors import DragomanError
    from dragoman.export.checkpoint import read_checkpoint

    try:
        _ = read_checkpoint(Path(source), format_name=format_name).tokenizer_plan
    except DragomanError as error:
        sys.stderr.write(f"dragoman export: {error}\n")
        return 1
    return 0


def _worker() -> None:
    """Run what standard input says, each as if in a process of its own."""
    import warnings

    from dragoman.cli import main

    warnings.simplefilter("ignore")  # of libraries, about files that nobody should trust
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        said, began_s, code = io.StringIO(), time.monotonic(), 70
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            try:
                arguments = json.loads(line)
                code = _read(*arguments[1:]) if arguments[0] == "read" else main(arguments)
            except SystemExit as error:
                code = int(error.code or 0)
            except BaseException:  # whatever a user would see as a trace
                said.write(traceback.format_exc())
        answers.write(json.dumps({"code": code, "said": said.getvalue(), "seconds": time.monotonic() - began_s}) + "\n")
        answers.flush()


if __name__ == "__main__":
    _worker()
