"""Poisson arrivals over gRPC: `python -m benchmarks.poisson_load ADDRESS RATE SECONDS SEED OPTIONS < sentences`.

An open loop: a request leaves when it is due, and its latency counts from then. The same code loads both servers: OPTIONS
are a request's in JSON; "-" is a server with dynamic batching, whose TEXT has a batch axis and which has no options.
Both are asked for the translations alone.

The load shares its cores with the server that it measures, so that it does as little as it can while the clock runs:
requests are bytes before it starts, and answers stay bytes.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import grpc
import grpc.aio
import numpy as np
from tritonclient.grpc import service_pb2

METHOD = "/inference.GRPCInferenceService/ModelInfer"
WARM_UP_S = 1.0
PATIENCE_S = 20.0


def request(text: str, options: str | None) -> bytes:
    """One request as it goes over the wire."""
    message = service_pb2.ModelInferRequest(model_name="translate")
    message.outputs.add(name="TRANSLATION")
    inputs = {"TEXT": text} if options is None else {"TEXT": text, "OPTIONS": options}
    for name, value in inputs.items():
        tensor = message.inputs.add(name=name, datatype="BYTES", shape=(1, 1) if options is None else (1,))
        tensor.contents.bytes_contents.append(value.encode())
    return bytes(message.SerializeToString())


@dataclass(frozen=True, slots=True)
class Load:
    """What to send, where, how often and for how long."""

    address: str
    rate: float
    seconds: float
    seed: int
    options: str | None


async def send(load: Load, texts: Sequence[str]) -> dict[str, float]:
    """Latencies and failures of the requests that were due after the warm-up."""
    draw = random.Random(load.seed)
    requests = [request(text, load.options) for text in texts]
    latencies: list[float] = []
    failed = 0

    async def one(infer: grpc.aio.UnaryUnaryMultiCallable, due: float, measured: bool) -> None:
        nonlocal failed
        try:
            await infer(draw.choice(requests), timeout=PATIENCE_S)
        except grpc.aio.AioRpcError:
            failed += measured
            return
        if measured:
            latencies.append(time.perf_counter() - due)

    async with grpc.aio.insecure_channel(load.address) as channel:
        infer = channel.unary_unary(METHOD)  # without serialisers: bytes go out and come in
        running = set()
        began = due = time.perf_counter()
        while due - began < WARM_UP_S + load.seconds:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            task = asyncio.create_task(one(infer, due, due - began >= WARM_UP_S))
            running.add(task)
            task.add_done_callback(running.discard)
            due += draw.expovariate(load.rate)
        await asyncio.gather(*running)
    sent = len(latencies) + failed
    p50, p99 = np.quantile(latencies, [0.5, 0.99]) * 1000 if latencies else (float("inf"), float("inf"))
    return {"rate": load.rate, "sent": sent, "failed": failed, "p50_ms": float(p50), "p99_ms": float(p99)}


if __name__ == "__main__":
    target, per_second, duration_s, number, wishes = sys.argv[1:]
    lines = [line for line in sys.stdin.read().splitlines() if line]
    asked = Load(target, float(per_second), float(duration_s), int(number), None if wishes == "-" else wishes)
    print(json.dumps(asyncio.run(send(asked, lines))))
