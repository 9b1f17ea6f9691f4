"""The Triton that benchmarks compare with: a peer that is a Python model, asked as the online benchmark asks."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
from benchmarks.online import CONFIG
from benchmarks.poisson_load import Load, send
from benchmarks.triton_server import triton_with
from tritonclient.grpc import InferenceServerClient, InferInput

UPPER = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        texts = [pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy() for request in requests]
        answers = [np.array([[one.decode().upper().encode()] for one in rows.ravel()], dtype=object) for rows in texts]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("TRANSLATION", answer)]) for answer in answers]
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "upper.py"
    path.write_text(UPPER, encoding="utf-8")
    return path


def test_a_python_model_answers_behind_the_same_triton(model: Path) -> None:
    config = CONFIG.format(delay_us=0, instances=1, parameters="")
    with triton_with(model, config) as address:
        with InferenceServerClient(address) as client:
            text = InferInput("TEXT", [1, 1], "BYTES")
            text.set_data_from_numpy(np.array([[b"where is it?"]], dtype=object))
            assert client.infer("translate", [text]).as_numpy("TRANSLATION").tolist() == [[b"WHERE IS IT?"]]
        figures = asyncio.run(send(Load(address, rate=20.0, seconds=1.0, seed=1, options=None), ["one", "two"]))
    assert (figures["sent"] > 0, figures["failed"]) == (True, 0)
