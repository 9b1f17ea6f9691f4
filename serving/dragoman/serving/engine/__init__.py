"""Continuous batching: requests, scheduler, caches and the step loop, without Triton and ONNX Runtime."""

from dragoman.serving.engine.counters import Counters, Gauges
from dragoman.serving.engine.engine import Engine
from dragoman.serving.engine.limits import EngineLimits, MemoryContract, ModelFacts, memory_contract
from dragoman.serving.engine.request import Event, Finished, Priority, Progress, Request, Started, Timings

__all__ = [
    "Counters",
    "Engine",
    "EngineLimits",
    "Event",
    "Finished",
    "Gauges",
    "MemoryContract",
    "ModelFacts",
    "Priority",
    "Progress",
    "Request",
    "Started",
    "Timings",
    "memory_contract",
]
