"""Poisson arrivals over gRPC: `python -m benchmarks.poisson_load ADDRESS RATE SECONDS SEED BATCHED BEAM < sentences`.

An open loop: a request leaves when it is due, and its latency counts from then. The same code loads both servers;
they only differ in the shape of TEXT (a server with dynamic batching has a batch axis) and in how the beam is asked for.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from dataclasses import dataclass

import numpy as np
from tritonclient.grpc import InferInput
from tritonclient.grpc.aio import InferenceServerClient
from tritonclient.utils import InferenceServerException

WARM_UP_S = 1.0
PATIENCE_S = 20.0


def inputs(text: str, batched: bool, beam: int) -> list[InferInput]:
    shape = (1, 1) if batched else (1,)
    tensors = [InferInput("TEXT", shape, "BYTES")]
    tensors[0].set_data_from_numpy(np.array([text.encode()], dtype=np.object_).reshape(shape))
    if not batched:
        options = InferInput("OPTIONS", (1,), "BYTES")
        options.set_data_from_numpy(np.array([json.dumps({"beam_size": beam, "cache": False}).encode()], dtype=np.object_))
        tensors.append(options)
    return tensors


@dataclass(frozen=True, slots=True)
class Load:
    """What to send, where, how often and for how long."""

    address: str
    rate: float
    seconds: float
    seed: int
    batched: bool
    beam: int


async def send(load: Load, texts: list[str]) -> dict[str, float]:
    """Latencies and failures of the requests that were due after the warm-up."""
    draw = random.Random(load.seed)
    latencies: list[float] = []
    failed = 0

    async def one(client: InferenceServerClient, due: float, measured: bool) -> None:
        nonlocal failed
        try:
            await client.infer("translate", inputs(draw.choice(texts), load.batched, load.beam), client_timeout=PATIENCE_S)
        except InferenceServerException:
            failed += measured
            return
        if measured:
            latencies.append(time.perf_counter() - due)

    async with InferenceServerClient(load.address) as client:
        running = set()
        began = due = time.perf_counter()
        while due - began < WARM_UP_S + load.seconds:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            task = asyncio.create_task(one(client, due, due - began >= WARM_UP_S))
            running.add(task)
            task.add_done_callback(running.discard)
            due += draw.expovariate(load.rate)
        await asyncio.gather(*running)
    sent = len(latencies) + failed
    p50, p99 = np.quantile(latencies, [0.5, 0.99]) * 1000 if latencies else (float("inf"), float("inf"))
    return {"rate": load.rate, "sent": sent, "failed": failed, "p50_ms": float(p50), "p99_ms": float(p99)}


if __name__ == "__main__":
    target, per_second, duration_s, number, has_batch_axis, width = sys.argv[1:]
    lines = [line for line in sys.stdin.read().splitlines() if line]
    asked = Load(target, float(per_second), float(duration_s), int(number), has_batch_axis == "1", int(width))
    print(json.dumps(asyncio.run(send(asked, lines))))
