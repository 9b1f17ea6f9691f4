"""One run: starts the workers, gathers what they count, and makes a result of it."""

from __future__ import annotations

import contextlib
import datetime
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FrameType

from dragoman.loadtest.answers import Answers
from dragoman.loadtest.client_use import ClientUse, MachineClock
from dragoman.loadtest.fleet import Fleet
from dragoman.loadtest.plan import Plan
from dragoman.loadtest.result import RunInfo, RunResult
from dragoman.loadtest.scraper import Scraper
from dragoman.loadtest.sender import OpenSender
from dragoman.loadtest.tally import Tally
from dragoman.loadtest.transport_sender import open_sender as open_transport_sender
from dragoman.loadtest.worker_messages import Done, Progress

__all__ = ["Observer", "Snapshot", "run"]

_LOOK_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A run seen while it runs; `elapsed_s` is negative during the warm-up."""

    plan: Plan
    elapsed_s: float
    tally: Tally
    in_flight: int


Observer = Callable[[Snapshot], None]


def run(
    plan: Plan,
    metrics_url: str | None = None,
    observe: Observer = lambda _: None,
    open_sender: OpenSender = open_transport_sender,
) -> RunResult:
    """Put the planned load on the server and return the result. Ctrl-C ends it early, with a result."""
    started = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    scraper = Scraper(metrics_url) if metrics_url else None
    with contextlib.ExitStack() as stack:
        fleet = stack.enter_context(Fleet(plan, open_sender))
        if scraper is not None:
            stack.enter_context(scraper)
        interrupted = stack.enter_context(_interrupts())
        measure_at = fleet.start() + plan.warm_up_s
        gathered = _Gathered(plan)
        gathered.follow(fleet, measure_at, observe, interrupted)
        if interrupted.is_set():
            if gathered.ended_at <= measure_at:
                raise KeyboardInterrupt  # in the warm-up: nothing was measured
            gathered.tally.cut_at(gathered.ended_at - measure_at)
    server = tuple(scraper.samples(measure_at)) if scraper else ()
    problem = scraper.problem if scraper and not server else None
    return RunResult(
        _info(plan, started, interrupted.is_set(), problem),
        gathered.tally,
        gathered.client_use(),
        gathered.answers.quality(plan.workload),
        tuple(sample for sample in server if sample.at_s <= gathered.tally.duration_s + 1),
    )


@dataclass(slots=True)
class _Gathered:
    """What the workers have reported so far."""

    plan: Plan
    tally: Tally = field(init=False)
    answers: Answers = field(init=False)
    ended_at: float = field(init=False, default=0.0)
    _machine: MachineClock = field(init=False, default_factory=MachineClock)
    _machine_cpu: float | None = field(init=False, default=None)
    _cpu: dict[int, float] = field(init=False, default_factory=dict)
    _in_flight: dict[int, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.tally = self.plan.new_tally()
        self.answers = Answers(self.plan.keeps_texts)

    def follow(self, fleet: Fleet, measure_at: float, observe: Observer, interrupted: threading.Event) -> None:
        """Gather until every worker has sent its last message."""
        measuring = False
        while fleet.running:
            now = time.monotonic()
            if now >= measure_at and not measuring:
                measuring = True
                self._machine.restart()
            if interrupted.is_set() and not self.ended_at:
                self.ended_at = now
                fleet.stop()
            for report in fleet.reports(_LOOK_EVERY_S):
                self._take(report, measure_at)
            observe(Snapshot(self.plan, time.monotonic() - measure_at, self.tally, sum(self._in_flight.values())))

    def _take(self, report: Progress | Done, measure_at: float) -> None:
        if isinstance(report, Done):
            self.answers.add(report.answers)
            return
        self.tally.add(report.tally)
        self._in_flight[report.worker] = report.in_flight
        if report.wall_s > 0:
            self._cpu[report.worker] = report.cpu_s / report.wall_s
        if time.monotonic() <= measure_at + self.plan.duration_s or self._machine_cpu is None:
            self._machine_cpu = self._machine.busy_share()

    def client_use(self) -> ClientUse:
        lag = self.tally.lag
        return ClientUse(
            tuple(self._cpu[worker] for worker in sorted(self._cpu)),
            self._machine_cpu,
            lag.percentile_s(50) if lag.count else 0.0,
            lag.percentile_s(99) if lag.count else 0.0,
            self.tally.latency.percentile_s(50) if self.tally.latency.count else 0.0,
        )


@contextlib.contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """An event that Ctrl-C sets. A second Ctrl-C is a KeyboardInterrupt.

    A plain KeyboardInterrupt could strike in the middle of a worker's message and lose the run.
    """
    seen = threading.Event()

    def note(signum: int, frame: FrameType | None) -> None:
        if seen.is_set():
            signal.default_int_handler(signum, frame)
        seen.set()

    if threading.current_thread() is not threading.main_thread():
        yield seen
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)


def _info(plan: Plan, started: str, interrupted: bool, metrics_problem: str | None) -> RunInfo:
    return RunInfo(
        target=str(plan.target),
        workload=plan.workload.name,
        sentences=len(plan.workload),
        load=plan.load.describe(),
        model=plan.settings.model,
        beam_size=plan.settings.beam_size,
        stream=plan.settings.stream,
        workers=plan.workers,
        warm_up_s=plan.warm_up_s,
        seed=plan.seed,
        started=started,
        interrupted=interrupted,
        metrics_problem=metrics_problem,
    )
