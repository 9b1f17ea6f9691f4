"""Work in slices: fair turns, a bounded time, and failures that stay with their job."""

from __future__ import annotations

from collections.abc import Iterator

from dragoman.serving.process.job_queue import Job, JobQueue, Yield


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Work:
    """Jobs that write down their steps, each of which takes a millisecond if nothing else is said."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.queue = JobQueue(self.clock)
        self.steps: list[str] = []
        self.errors: list[Exception] = []

    def add(
        self, name: str, steps: int, *, then: Exception | None = None, parks: bool = False, takes_s: float = 0.001
    ) -> Job:
        def run() -> Iterator[Yield]:
            for _ in range(steps):
                self.steps.append(name)
                self.clock.now_s += takes_s
                yield Yield.PARK if parks else Yield.PAUSE
            if then is not None:
                raise then

        job = Job(run(), self.errors.append)
        self.queue.add(job)
        return job


def test_jobs_take_turns() -> None:
    work = Work()
    work.add("long", 3)
    work.add("short", 1)
    work.queue.run(1.0)
    assert work.steps == ["long", "short", "long", "long"]


def test_short_jobs_go_before_long_ones() -> None:
    work = Work()
    for number in range(100):
        work.add(f"long {number}", 50)
    for _ in range(100):
        work.queue.run(0.0015)
    done = len(work.steps)
    work.add("new", 1)
    work.queue.run(0.0015)
    assert "new" in work.steps[done : done + 2]


def test_long_jobs_have_a_step_in_every_turn() -> None:
    work = Work()
    work.add("long", 100)
    work.queue.run(0.0015)
    for number in range(20):
        for each in range(5):
            work.add(f"short {number}.{each}", 1, takes_s=0.0004)
        work.queue.run(0.0015)
    assert work.steps.count("long") >= 20


def test_a_run_ends_when_its_time_is_up() -> None:
    work = Work()
    work.add("long", 100)
    work.queue.run(0.0055)
    assert len(work.steps) == 6
    assert len(work.queue) == 1


def test_a_new_sequence_waits_for_one_step_of_the_others() -> None:
    work = Work()
    work.add("long", 100)
    work.queue.run(0.0015)
    work.add("new", 1)
    work.queue.run(0.0025)
    assert work.steps.index("new") <= 3


def test_a_parked_job_goes_on_when_it_is_added_again() -> None:
    work = Work()
    job = work.add("parked", 2, parks=True)
    work.queue.run(1.0)
    assert (work.steps, len(work.queue)) == (["parked"], 0)
    work.queue.add(job)
    work.queue.run(1.0)
    assert work.steps == ["parked", "parked"]


def test_a_failure_ends_its_job_and_the_others_continue() -> None:
    work = Work()
    failure = RecursionError()
    work.add("bad", 1, then=failure)
    work.add("worse", 0, then=MemoryError())
    work.add("good", 3)
    work.queue.run(1.0)
    assert work.steps.count("good") == 3
    assert failure in work.errors
    assert len(work.errors) == 2


def test_a_cancelled_job_does_no_more() -> None:
    work = Work()
    job = work.add("cancelled", 5)
    job.cancelled = True
    work.queue.run(1.0)
    assert work.steps == []
