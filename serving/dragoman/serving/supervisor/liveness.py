"""Notices within seconds that Triton has stopped answering, without mistaking a loaded one for a hung one."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from dragoman.serving.triton.probe import Probe

__all__ = ["AnswerTimes", "until_silent"]

_INTERVAL_S = 0.5
"""A call costs about a millisecond of CPU time here, which a busy machine could use."""


@dataclass(slots=True)
class AnswerTimes:
    """How long recent answers took; the limit is a multiple of the longest, within bounds."""

    shortest_limit_s: float = 2.0
    longest_limit_s: float = 10.0
    factor: float = 10.0
    recent_s: deque[float] = field(default_factory=lambda: deque(maxlen=120))
    """The answers of about the last minute."""

    @property
    def limit_s(self) -> float:
        """A server that is silent for longer is hung."""
        longest_s = max(self.recent_s, default=0.0)
        return min(max(self.shortest_limit_s, self.factor * longest_s), self.longest_limit_s)


async def until_silent(probe: Probe) -> float:
    """Call ServerLive, which computes nothing, twice a second; return the length of the silence that was too long.

    At least two calls must fail, the second over a new connection: a supervisor that was itself stopped sees one fail.
    """
    clock = asyncio.get_running_loop().time
    times = AnswerTimes()
    answered_s, failures = clock(), 0
    channel = probe.channel()
    try:
        while failures < 2 or clock() - answered_s < times.limit_s:
            began_s = clock()
            if await _is_live(channel, times.limit_s / 2):
                answered_s, failures = clock(), 0
                times.recent_s.append(answered_s - began_s)
                await asyncio.sleep(_INTERVAL_S)
                continue
            failures += 1
            await channel.close()
            channel = probe.channel()
            await asyncio.sleep(max(0.0, began_s + _INTERVAL_S - clock()))  # refused at once: call again a little later
        return clock() - answered_s
    finally:
        await channel.close()


async def _is_live(channel: grpc.aio.Channel, timeout_s: float) -> bool:
    try:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        return bool((await stub.ServerLive(service_pb2.ServerLiveRequest(), timeout=timeout_s)).live)
    except grpc.aio.AioRpcError:
        return False
