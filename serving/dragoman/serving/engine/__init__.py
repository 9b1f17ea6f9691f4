"""Continuous batching: sequences, scheduler, batches and the step loop, without Triton and ONNX Runtime."""

from dragoman.serving.engine.counters import Counters, Gauges
from dragoman.serving.engine.engine import Engine
from dragoman.serving.engine.events import Event, Finished, Progress, SessionReply
from dragoman.serving.engine.forced_decoding import ForcedTarget, Forcing
from dragoman.serving.engine.limits import EngineLimits, MemoryContract, ModelFacts, memory_contract
from dragoman.serving.engine.sequence import Priority, Sequence, Timings
from dragoman.serving.engine.session_call import OpenSession, SessionCall, StepSession

__all__ = [
    "Counters",
    "Engine",
    "EngineLimits",
    "Event",
    "Finished",
    "ForcedTarget",
    "Forcing",
    "Gauges",
    "MemoryContract",
    "ModelFacts",
    "OpenSession",
    "Priority",
    "Progress",
    "Sequence",
    "SessionCall",
    "SessionReply",
    "StepSession",
    "Timings",
    "memory_contract",
]
