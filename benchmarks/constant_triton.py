"""A Triton that answers every `translate` request at once with its own texts: what is left to measure is the client.

python -m benchmarks.constant_triton        # prints its address and serves until it is ended
"""

from __future__ import annotations

import contextlib
import json
import struct
import subprocess
import sys
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc

from dragoman.wire import WIRE_VERSION

ABOUT: dict[str, object] = {"source_tokens": 9, "queue_ms": 0.1, "first_token_ms": 1.0, "total_ms": 9.0, "steps": 9}
ABOUT |= {"target_tokens": 9, "score": -0.5, "parts": 1, "cached": False, "finish": "eos"}


class ConstantTriton(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """Sends the raw TEXT tensor back as TRANSLATION."""

    def ModelReady(self, request: Any, context: Any) -> Any:  # noqa: N802, ANN401, ARG002
        return service_pb2.ModelReadyResponse(ready=True)

    def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802, ANN401, ARG002
        texts = request.inputs[0].shape[0]
        about = {"wire_version": WIRE_VERSION, "model": "en-de", "version": "1", "request_id": "x"}
        details = json.dumps({**about, "texts": [ABOUT] * texts}).encode()
        response = service_pb2.ModelInferResponse(model_name="translate", model_version="1")
        for name, datatype, shape, raw in (
            ("TRANSLATION", "BYTES", (texts, 1), request.raw_input_contents[0]),
            ("SCORE", "FP32", (texts, 1), np.full(texts, -0.5, "<f4").tobytes()),
            ("TOKEN_COUNT", "INT32", (texts, 1), np.full(texts, 9, "<i4").tobytes()),
            ("DETAILS", "BYTES", (1,), struct.pack("<I", len(details)) + details),
        ):
            response.outputs.add(name=name, datatype=datatype, shape=shape)
            response.raw_output_contents.append(raw)
        return response


@contextlib.contextmanager
def constant_triton() -> Iterator[str]:
    """Its address; it runs in a separate process, so that its CPU time is not counted."""
    command = [sys.executable, "-m", "benchmarks.constant_triton"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            if process.stdout is None:
                raise AssertionError("it was started with a pipe")
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def main() -> None:
    server = grpc.server(futures.ThreadPoolExecutor(8))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(ConstantTriton(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(f"127.0.0.1:{port}", flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    main()
