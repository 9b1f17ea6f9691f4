"""A Triton Python model that takes a while and does nothing: what Triton itself adds to a request."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """TEXT is a number of milliseconds."""

    def execute(self, requests: list[Any]) -> list[Any]:
        responses = []
        for request in requests:
            (milliseconds,) = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()
            time.sleep(float(milliseconds) / 1000)
            answer = pb_utils.Tensor("TRANSLATIONS", np.array([milliseconds], dtype=np.object_))
            responses.append(pb_utils.InferenceResponse([answer]))
        return responses
