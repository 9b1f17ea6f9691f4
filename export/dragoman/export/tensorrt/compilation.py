"""Compiles one graph to one engine in this process; `worker` runs it in a separate process."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragoman.bundle.manifest import Profile
from dragoman.errors import EngineBuildError
from dragoman.export.tensorrt.options import Flavour
from dragoman.export.tensorrt.phases import Phases
from dragoman.export.tensorrt.toolchain import import_flavour

__all__ = ["Job", "compile_engine"]

KeepGoing = Callable[[float], bool]
"""Called with the share that is done; False ends the build."""


@dataclass(frozen=True, slots=True)
class Job:
    """Everything one build needs to know."""

    flavour: Flavour
    graph: Path
    engine: Path
    compute_capabilities: tuple[str, ...]
    profiles: tuple[Profile, ...]

    @property
    def part(self) -> Path:
        """Where the engine is written before it is whole."""
        return self.engine.with_name(self.engine.name + ".part")

    def to_json(self) -> str:
        """The job as text, on its way to another process."""
        return json.dumps({**dataclasses.asdict(self), "graph": str(self.graph), "engine": str(self.engine)})

    @classmethod
    def from_json(cls, text: str) -> Job:
        """The job that `to_json` wrote."""
        raw: dict[str, Any] = json.loads(text)

        def shapes(profile: dict[str, Any], which: str) -> dict[str, tuple[int, ...]]:
            return {name: tuple(shape) for name, shape in profile[which].items()}

        profiles = tuple(
            Profile(profile["name"], *(shapes(profile, which) for which in ("minimum", "usual", "maximum")))
            for profile in raw["profiles"]
        )
        return cls(raw["flavour"], Path(raw["graph"]), Path(raw["engine"]), tuple(raw["compute_capabilities"]), profiles)


def compile_engine(job: Job, keep_going: KeepGoing) -> None:
    """Parse, optimise and write the engine; EngineBuildError names the node, or what TensorRT complained about."""
    trt = import_flavour(job.flavour)
    logger = _collecting_logger(trt)
    builder = trt.Builder(logger)
    network = _parsed(trt, builder, logger, job.graph)
    config = builder.create_builder_config()
    config.clear_flag(trt.BuilderFlag.TF32)  # a product in TF32 keeps 10 bits of each factor: fp32 means fp32
    stopped = threading.Event()
    config.progress_monitor = _monitor(trt, keep_going, stopped)
    if job.flavour == "tensorrt_rtx":  # the standard flavour builds for the GPU that it finds
        _set_capabilities(trt, config, job.compute_capabilities)
        # The server gives every run its memory: contexts share it, and runs can be captured as CUDA graphs.
        config.set_flag(trt.BuilderFlag.REQUIRE_USER_ALLOCATION)
    for profile in job.profiles:
        _add_profile(builder, config, profile)
    plan = builder.build_serialized_network(network, config)
    if stopped.is_set():
        raise KeyboardInterrupt
    if plan is None:
        complaints = "; ".join(logger.errors) or "TensorRT gave no reason"
        raise EngineBuildError(f"{job.graph.name} does not build for {', '.join(job.compute_capabilities)}: {complaints}")
    job.part.write_bytes(plan)
    job.part.replace(job.engine)


def _parsed(trt: Any, builder: Any, logger: Any, graph: Path) -> Any:  # noqa: ANN401
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger)
    if parser.parse_from_file(str(graph)):  # from the file, because the weights lie beside it
        return network
    errors = [parser.get_error(index) for index in range(parser.num_errors)]
    listed = "; ".join(_told(error) for error in errors) or "; ".join(logger.errors)
    raise EngineBuildError(f"TensorRT can't parse {graph.name}: {listed}")


def _told(error: Any) -> str:  # noqa: ANN401
    node = f"node {error.node_name()!r} ({error.node_operator()}): " if error.node_operator() else ""
    return f"{node}{error.code().name.lower().replace('_', ' ')}: {error.desc()}"


def _set_capabilities(trt: Any, config: Any, capabilities: tuple[str, ...]) -> None:  # noqa: ANN401
    config.num_compute_capabilities = len(capabilities)
    for index, capability in enumerate(capabilities):
        member = getattr(trt.ComputeCapability, f"SM{capability.replace('.', '')}")
        if not config.set_compute_capability(member, index):
            raise EngineBuildError(f"TensorRT refuses compute capability {capability} beside {', '.join(capabilities)}")


def _add_profile(builder: Any, config: Any, profile: Profile) -> None:  # noqa: ANN401
    native = builder.create_optimization_profile()
    for name, minimum in profile.minimum.items():
        native.set_shape(name, minimum, profile.usual[name], profile.maximum[name])
    if config.add_optimization_profile(native) < 0:
        raise EngineBuildError(f"TensorRT refuses the profile {profile.name!r} with maximum shapes {profile.maximum}")


def _collecting_logger(trt: Any) -> Any:  # noqa: ANN401
    class CollectingLogger(trt.ILogger):  # type: ignore[misc]
        """Collects warnings and errors; the rest is output of a normal build."""

        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.errors: list[str] = []

        def log(self, severity: Any, message: str) -> None:  # noqa: ANN401
            if severity in (trt.ILogger.ERROR, trt.ILogger.INTERNAL_ERROR):
                self.errors.append(message.strip())

    return CollectingLogger()


def _monitor(trt: Any, keep_going: KeepGoing, stopped: threading.Event) -> Any:  # noqa: ANN401
    class Monitor(trt.IProgressMonitor):  # type: ignore[misc]
        """TensorRT may call it from several threads at once."""

        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)
            self._phases, self._lock = Phases(), threading.Lock()

        def phase_start(self, name: str, parent: str | None, steps: int) -> None:
            with self._lock:
                self._phases.start(name, parent, steps)

        def phase_finish(self, name: str) -> None:
            with self._lock:
                self._phases.finish(name)

        def step_complete(self, name: str, index: int) -> bool:
            with self._lock:
                self._phases.step(name, index)
                if not keep_going(self._phases.share):
                    stopped.set()
            return not stopped.is_set()

    return Monitor()
