from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from dragoman.client import AsyncTranslator, Translator

HEAVY = ("torch", "onnx", "onnxruntime", "transformers", "sentencepiece", "tensorrt_rtx", "pytriton")


def test_the_client_needs_nothing_heavy() -> None:
    program = "import sys, dragoman.client, dragoman.client.translate_command, dragoman.client.status_command\n"
    program += f"print(*(name for name in {HEAVY} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=False)
    assert (done.stdout, done.stderr) == ("\n", "")


@pytest.mark.parametrize("method", ["translate", "stream", "translate_lines", "translate_file"])
@pytest.mark.parametrize("kind", [Translator, AsyncTranslator])
def test_help_shows_every_option_as_a_keyword_argument(kind: type, method: str) -> None:
    parameters = inspect.signature(getattr(kind, method)).parameters
    assert {"beam_size", "length_penalty", "prefix_text", "timeout_s"} <= set(parameters)
    assert all(one.kind is not one.VAR_KEYWORD for one in parameters.values())
