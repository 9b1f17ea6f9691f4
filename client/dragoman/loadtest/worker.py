"""One worker process: sends its share of the load and counts what comes back.

Several of them make the load, so that Python is not the limit. Each computes its own arrivals (every n-th of the common
schedule), so nothing is exchanged while the load runs but counts, twice a second.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import selectors
import signal
import time
from collections.abc import Coroutine
from multiprocessing.connection import Connection
from typing import Any

from dragoman.errors import DragomanError, RequestError
from dragoman.loadtest.answers import Answers
from dragoman.loadtest.plan import ClosedLoop, OpenLoop, Plan
from dragoman.loadtest.sender import OpenSender, Outcome, Sender, Unread
from dragoman.loadtest.worker_messages import Done, Failed, Progress, Ready, Start, Stop

__all__ = ["work"]

# A worker that shares its processors with the server takes from it whatever it does beside sending.
_REPORT_EVERY_S = 0.5
_HEARTBEAT_S = 0.1
_PAUSE_AFTER_ERROR_S = 0.1
_GRACE_S = 2.0
_READ_TOGETHER = 16  # so few that an answer that comes meanwhile waits 0.2 ms at most


def work(connection: Connection, plan: Plan, worker: int, open_sender: OpenSender) -> None:
    """The process's main function."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's: it sends Stop and still gets the counts
    # select() wakes with microseconds, epoll only on whole milliseconds: an arrival would leave up to 1 ms late.
    loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(_work(connection, plan, worker, open_sender))
    except DragomanError as error:
        connection.send(Failed(error))
    except (EOFError, BrokenPipeError):
        pass  # the parent is gone; there is no one to report to
    finally:
        _close(loop)
        connection.close()


def _close(loop: asyncio.AbstractEventLoop) -> None:
    """End what gRPC has left running, so that it does not complain at the interpreter's exit."""
    for task in (left := asyncio.all_tasks(loop)):
        task.cancel()
    loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
    loop.close()


async def _work(connection: Connection, plan: Plan, worker: int, open_sender: OpenSender) -> None:
    sender = await open_sender(plan.target, plan.settings)
    try:
        first = _read(await sender.send(plan.workload.items[0].source))
        if first.error is not None:
            raise RequestError(f"the first request failed, so no load was sent: {first.error}: {first.message}")
        started, orders = _listen(connection)
        connection.send(Ready())
        gc.freeze()
        start_at = await started
        await _WorkerLoad(connection, plan, worker, sender, start_at).run(orders)
    finally:
        await sender.close()


def _listen(connection: Connection) -> tuple[asyncio.Future[float], asyncio.Event]:
    """The start's moment, and an event that is set when the parent sends Stop or ends."""
    loop = asyncio.get_running_loop()
    started: asyncio.Future[float] = loop.create_future()
    stopped = asyncio.Event()

    def receive() -> None:
        try:
            order = connection.recv()
        except (EOFError, OSError) as error:
            loop.remove_reader(connection.fileno())
            stopped.set()
            if not started.done():
                started.set_exception(EOFError(str(error)))
            return
        if isinstance(order, Start):
            started.set_result(order.at)
        elif isinstance(order, Stop):
            stopped.set()
            if not started.done():
                started.set_exception(EOFError("stopped before the start"))

    loop.add_reader(connection.fileno(), receive)
    return started, stopped


def _read(came: Outcome | Unread) -> Outcome:
    return came.read() if isinstance(came, Unread) else came


class _WorkerLoad:
    """The requests of one worker, in flight and done."""

    def __init__(self, connection: Connection, plan: Plan, worker: int, sender: Sender, start_at: float) -> None:
        self._connection, self._plan, self._worker, self._sender = connection, plan, worker, sender
        self._start_at = start_at
        self._measure_at = start_at + plan.warm_up_s
        self._end_at = self._measure_at + plan.duration_s
        self._tally = plan.new_tally()
        self._answers = Answers(plan.keeps_texts)
        self._came: list[tuple[int, float, Outcome | Unread]] = []
        self._in_flight: set[asyncio.Task[None]] = set()
        self._broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._busy = 0
        self._slots = asyncio.Semaphore(plan.max_in_flight_per_worker)
        self._held_until = 0.0
        self._cpu_at_start_s = time.process_time()

    async def run(self, stopped: asyncio.Event) -> None:
        load = self._plan.load
        asyncio.get_running_loop().call_at(self._measure_at, self._begin_measuring)  # its clock is time.monotonic
        drive = self._drive_open(load) if isinstance(load, OpenLoop) else self._drive_closed(load)
        driver: asyncio.Future[None] = asyncio.ensure_future(drive)
        reporter = asyncio.ensure_future(self._report_always())
        stop: asyncio.Future[bool] = asyncio.ensure_future(stopped.wait())
        try:
            ends: set[asyncio.Future[Any]] = {driver, stop, self._broken}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if self._broken.done():
                self._broken.result()
            await self._settle(driver)
        finally:
            for task in (reporter, stop, self._broken):
                task.cancel()
        self._report()
        self._connection.send(Done(self._worker, self._answers))

    async def _drive_open(self, load: OpenLoop) -> None:
        """Send each request when it is due, whether or not those before it were answered."""
        shape = load.shape.after_warm_up(self._plan.warm_up_s)
        mine = itertools.islice(enumerate(shape.arrivals(self._plan.seed)), self._worker, None, self._plan.workers)
        for number, due_s in mine:
            due_at = self._start_at + due_s
            await asyncio.sleep(max(0.0, due_at - time.monotonic()))
            await self._leave_to_send(due_at)
            self._launch(self._request(number, due_at))
        await self._all_in_flight()

    async def _leave_to_send(self, due_at: float) -> None:
        """Wait where too many requests are open already; and note why a request leaves late, when it does."""
        measured = due_at >= self._measure_at
        if not self._slots.locked() and due_at >= self._held_until:
            if measured:
                self._tally.lag.record(time.monotonic() - due_at)
            await self._slots.acquire()
            return
        await self._slots.acquire()
        self._held_until = time.monotonic()  # what was due until now waited behind this one
        self._tally.held_back += measured

    async def _drive_closed(self, load: ClosedLoop) -> None:
        """Keep this worker's share of the requests in flight: a new one when, and only when, one was answered."""
        await asyncio.sleep(max(0.0, self._start_at - time.monotonic()))
        numbers = itertools.count(self._worker, self._plan.workers)
        for _ in range(load.share_of(self._worker, self._plan.workers)):
            self._launch(self._user(numbers))
        while (now := time.monotonic()) < self._end_at:
            await asyncio.sleep(_HEARTBEAT_S)
            if now >= self._measure_at:
                self._tally.lag.record(time.monotonic() - now - _HEARTBEAT_S)
        await self._all_in_flight()

    async def _user(self, numbers: itertools.count[int]) -> None:
        while (now := time.monotonic()) < self._end_at:
            outcome = await self._send(next(numbers), now)
            if isinstance(outcome, Outcome) and outcome.error is not None:
                await asyncio.sleep(_PAUSE_AFTER_ERROR_S)  # a server that refuses at once would get a storm

    async def _request(self, number: int, due_at: float) -> None:
        try:
            await self._send(number, due_at)
        finally:
            self._slots.release()

    async def _send(self, number: int, due_at: float) -> Outcome | Unread:
        item = number % len(self._plan.workload)
        self._busy += 1
        try:
            outcome = await self._sender.send(self._plan.workload.items[item].source)
        except asyncio.CancelledError:
            unfinished = Outcome(time.monotonic(), "Unfinished", "the run was stopped before the answer")
            self._tally.record(due_at, unfinished, self._measure_at)
            raise
        finally:
            self._busy -= 1
        self._came.append((item, due_at, outcome))
        if len(self._came) >= _READ_TOGETHER:
            self._count()
        return outcome

    def _count(self) -> None:
        """Read and count what has come since the last time."""
        for item, due_at, came in self._came:
            outcome = _read(came)
            self._tally.record(due_at, outcome, self._measure_at)
            if outcome.error is None:
                self._answers.record(item, outcome.text)
        self._came.clear()

    def _launch(self, request: Coroutine[object, object, None]) -> None:
        task = asyncio.ensure_future(request)
        self._in_flight.add(task)
        task.add_done_callback(self._landed)

    def _landed(self, task: asyncio.Task[None]) -> None:
        self._in_flight.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self._broken.done():
            self._broken.set_exception(
                error
            )  # a request that fails is an outcome: this is a bug of the load test, so end the run

    async def _all_in_flight(self) -> None:
        while self._in_flight:
            await asyncio.wait(set(self._in_flight))

    async def _settle(self, driver: asyncio.Future[None]) -> None:
        """After a stop: no new requests, a moment for those under way, then they are counted as unfinished."""
        if driver.done():
            return driver.result()
        self._end_at = 0.0
        driver.cancel()
        await asyncio.wait({driver})
        if self._in_flight:
            _, late = await asyncio.wait(set(self._in_flight), timeout=_GRACE_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        return None

    async def _report_always(self) -> None:
        while True:
            await asyncio.sleep(_REPORT_EVERY_S)
            self._report()

    def _begin_measuring(self) -> None:
        self._cpu_at_start_s = time.process_time()

    def _report(self) -> None:
        self._count()
        wall_s = max(0.0, time.monotonic() - self._measure_at)
        cpu_s = time.process_time() - self._cpu_at_start_s
        self._connection.send(Progress(self._worker, self._tally, cpu_s, wall_s, self._busy))
        self._tally = self._plan.new_tally()
