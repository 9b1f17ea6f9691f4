"""The peers' environments, made once under the cache, and their copies of the models."""

from __future__ import annotations

import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

from benchmarks.random_families import FAMILY_SHAPES

__all__ = ["CACHE", "CTRANSLATE2", "OPTIMUM", "Environment", "EnvironmentUnavailable", "converted_to_ctranslate2"]

ROOT = Path(__file__).parent.parent
CACHE = ROOT / ".cache" / "benchmarks"


class EnvironmentUnavailable(Exception):
    """A peer's packages cannot be installed together here; the report says so instead of a figure."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment of its own and what is in it."""

    name: str
    requirements: tuple[str, ...]

    def python(self) -> Path:
        """Its interpreter; the first call installs it (minutes)."""
        home = CACHE / "environments" / self.name
        python, complete = home / "bin" / "python", home / "complete.txt"
        wanted = "\n".join(self.requirements)
        if complete.is_file() and complete.read_text(encoding="utf-8") == wanted:
            return python
        print(f"installing the peer environment {self.name} …", file=sys.stderr)
        venv.create(home, with_pip=True, clear=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *self.requirements]
        installed = subprocess.run(command, capture_output=True, text=True, check=False)
        if installed.returncode != 0:
            reason = [line for line in installed.stderr.splitlines() if line.startswith("ERROR")]
            raise EnvironmentUnavailable(f"{self.name}: {' '.join(reason[:3]) or 'pip failed'}")
        complete.write_text(wanted, encoding="utf-8")
        return python


CTRANSLATE2 = Environment(
    "ctranslate2",
    (
        "ctranslate2==4.8.4",
        "transformers==5.22.2",
        "sentencepiece==0.2.2",
        "sacremoses==0.2.0",
        "torch==2.13.0",
        "numpy==1.26.4",
        "matplotlib==3.10.8",  # the plots are drawn here, too: the product's own environment stays without
    ),
)
OPTIMUM = Environment("optimum", ("optimum-onnx[onnxruntime]", "sentencepiece==0.2.2", "sacremoses", "torch==2.13.0"))


def converted_to_ctranslate2(checkpoint: Path, precision: str) -> Path:
    """The checkpoint as a CTranslate2 model of this precision: one that is quantised when it is loaded takes more memory."""
    output = CACHE / "ctranslate2-models" / f"{checkpoint.name}-{precision}"
    if not (output / "model.bin").is_file():
        kind = "convert_family_to_ctranslate2" if checkpoint.name in FAMILY_SHAPES else "convert_to_ctranslate2"
        module = f"benchmarks.workers.{kind}"
        command = [str(CTRANSLATE2.python()), "-W", "ignore", "-m", module, str(checkpoint), str(output), precision]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return output
