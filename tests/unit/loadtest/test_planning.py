"""The planner: its simulation against queueing theory, its fit against known numbers, and its answers."""

from __future__ import annotations

import dataclasses
import json
import shlex
from pathlib import Path

import numpy as np
import pytest

from dragoman.cli import main
from dragoman.errors import UsageError
from dragoman.loadtest.answers import Quality
from dragoman.loadtest.client_use import ClientUse
from dragoman.loadtest.planning.profile import ServerProfile, StepTimes, profile_of
from dragoman.loadtest.planning.simulator import Server, simulate
from dragoman.loadtest.planning.sizing import fitted_profile, poisson, size_for
from dragoman.loadtest.result import RunInfo, RunResult
from dragoman.loadtest.scraper import ServerSample
from dragoman.loadtest.slo import parse_objectives
from dragoman.loadtest.tally import Slice, Tally
from shown_commands import shown_commands

BASE_S, ROW_S, LENGTH, OVERHEAD_S = 0.002, 0.0005, 10, 0.004


def a_profile(base_s: float = BASE_S, row_s: float = ROW_S, lengths: tuple[int, ...] = (LENGTH,)) -> ServerProfile:
    return ServerProfile(StepTimes(base_s, row_s, (1.0,), 64.0), lengths, steps_per_token=1.0, rows_per_request=1)


def a_run(rows: list[float], beam_size: int | None = 1) -> RunResult:
    """A load test of a server whose steps take exactly BASE_S + rows * ROW_S; twice the rows come from twice the rate."""
    tally = Tally(float(len(rows)), 1.0)
    for second, each in enumerate(rows):
        slot, count = tally.slices.setdefault(second, Slice()), round(10 * each)
        slot.due, slot.answered, slot.target_tokens = count, count, count * LENGTH
        for _ in range(count):
            slot.latency.record(LENGTH * (BASE_S + ROW_S) + OVERHEAD_S)
    tally.target_lengths = {LENGTH: round(10 * sum(rows))}
    server = tuple(
        ServerSample(second + 1.0, 0.0, each, 0.1, 0.0, step_mean_s=BASE_S + ROW_S * each, steps=10.0 * LENGTH)
        for second, each in enumerate(rows)
    )
    info = RunInfo("a:8001", "w.txt", 10, "open loop", None, beam_size, False, 1, 1.0, 0, "2026-01-01T00:00:00")
    return RunResult(info, tally, ClientUse((0.1,), None, 0.0, 0.0, 0.03), Quality(10, 0, None, None), server)


def test_what_a_busy_server_does_between_steps_is_paid_at_every_step() -> None:
    between_s = 0.0004
    quiet = a_run([2.0, 4.0, 6.0, 8.0, 10.0])
    # In the last second one step came after the other.
    last = quiet.server[-1]
    assert last.step_mean_s is not None
    busy = dataclasses.replace(last, steps=1.0 / (last.step_mean_s + between_s))
    profile = profile_of(dataclasses.replace(quiet, server=(*quiet.server[:-1], busy)))
    assert profile.steps.base_s == pytest.approx(BASE_S + between_s)
    assert profile.steps.row_s == pytest.approx(ROW_S)


def test_an_idle_server_gives_no_estimate_of_the_time_between_steps() -> None:
    assert profile_of(a_run([2.0, 3.0, 4.0, 5.0, 6.0])).steps.base_s == pytest.approx(BASE_S)


def test_a_server_of_one_row_behaves_as_queueing_theory_predicts() -> None:
    """M/D/1: Poisson arrivals, one at a time, always the same service time s; mean wait = u · s / 2(1 − u)."""
    service_s, rate = LENGTH * (BASE_S + ROW_S), 24.0
    utilisation = rate * service_s
    result = simulate(a_profile(), Server(max_rows=1, max_queue=10**9), poisson(rate, seed=3))
    assert result.queue_s.mean() == pytest.approx(utilisation * service_s / (2 * (1 - utilisation)), rel=0.1)
    assert result.busy == pytest.approx(utilisation, rel=0.05)


def test_a_server_of_two_calls_at_once_carries_twice_as_much() -> None:
    """Each call has a row: twice the M/D/1 rate, a wait like that of one server at the same utilisation or shorter."""
    service_s, rate = LENGTH * (BASE_S + ROW_S), 48.0
    two = dataclasses.replace(a_profile(), calls_at_once=2)
    result = simulate(two, Server(max_rows=2, max_queue=10**9), poisson(rate, seed=3))
    utilisation = rate * service_s / 2
    assert result.busy == pytest.approx(utilisation, rel=0.05)
    assert 0 < result.queue_s.mean() < utilisation * service_s / (2 * (1 - utilisation))
    assert result.rows_per_step == pytest.approx(1.0)
    assert simulate(two, Server(), np.arange(100) * 10.0).percentile_s(99) == pytest.approx(service_s)


def test_two_that_come_together_have_a_call_each() -> None:
    two = dataclasses.replace(a_profile(), calls_at_once=2)
    result = simulate(two, Server(max_rows=64), np.repeat(np.arange(50) * 10.0, 2), warm_up=0.0)
    assert result.percentile_s(99) == pytest.approx(LENGTH * (BASE_S + ROW_S))


def test_the_plan_uses_the_number_of_parallel_calls_of_the_server() -> None:
    one = a_run([2.0, 4.0, 6.0, 8.0, 10.0])
    two = dataclasses.replace(one, server=tuple(dataclasses.replace(sample, calls_at_once=2.0) for sample in one.server))
    assert (profile_of(one).calls_at_once, profile_of(two).calls_at_once) == (1, 2)
    objectives = parse_objectives(["p99<1s"])
    sizes = [size_for(profile_of(run), Server(max_rows=8), 2000.0, objectives).replicas for run in (one, two)]
    assert sizes[1] < sizes[0]


def test_a_request_that_is_alone_takes_its_own_steps() -> None:
    result = simulate(a_profile(), Server(), np.arange(100) * 10.0)
    assert result.percentile_s(99) == pytest.approx(LENGTH * (BASE_S + ROW_S))
    assert result.rows_per_step == pytest.approx(1.0)


def test_requests_that_come_together_share_their_steps() -> None:
    result = simulate(a_profile(), Server(max_rows=64), np.zeros(64) + np.linspace(0, 1e-9, 64), warm_up=0.0)
    # The first joins alone; a step later all the others do.
    assert result.percentile_s(100) == pytest.approx(
        BASE_S + ROW_S + (LENGTH - 1) * (BASE_S + 64 * ROW_S) + BASE_S + 63 * ROW_S
    )


def test_a_full_queue_refuses() -> None:
    result = simulate(a_profile(), Server(max_rows=1, max_queue=2), np.linspace(0, 1e-6, 100), warm_up=0.0)
    assert result.refused == pytest.approx(0.97, abs=0.01)


def test_more_load_is_never_faster() -> None:
    latencies = [simulate(a_profile(), Server(), poisson(rate)).percentile_s(99) for rate in (5, 50, 500)]
    assert latencies == sorted(latencies)


def test_the_fit_finds_what_a_step_and_a_row_cost() -> None:
    profile = profile_of(a_run([1, 2, 4, 8, 16, 24]))
    assert profile.steps.base_s == pytest.approx(BASE_S)
    assert profile.steps.row_s == pytest.approx(ROW_S)
    assert profile.rows_per_request == 1
    assert profile.mean_steps == pytest.approx(LENGTH)


def test_the_overhead_makes_the_simulated_median_the_measured_one() -> None:
    assert fitted_profile(a_run([1, 1, 1, 2, 2, 2]), Server()).overhead_s == pytest.approx(OVERHEAD_S, abs=0.0005)


def test_a_run_whose_batches_were_all_alike_is_refused() -> None:
    with pytest.raises(UsageError, match="--shape step"):
        profile_of(a_run([4.0] * 8))


def test_a_run_without_the_servers_metrics_is_refused() -> None:
    with pytest.raises(UsageError, match="--metrics"):
        profile_of(a_run([]))


def test_the_plan_is_the_fewest_that_hold() -> None:
    objectives = parse_objectives(["p99<100ms"])
    plan = size_for(a_profile(), Server(), 2000.0, objectives)
    assert plan.holds(objectives)
    assert plan.replicas > 1
    fewer = size_for(a_profile(), Server(), 2000.0, objectives, plan.replicas - 1)
    assert not fewer.holds(objectives)


def test_an_objective_that_no_number_of_servers_keeps_is_a_clear_error() -> None:
    with pytest.raises(UsageError, match="no number of servers"):
        size_for(a_profile(), Server(), 100.0, parse_objectives(["p99<10ms"]))


def test_an_objective_that_no_simulation_knows_is_refused() -> None:
    with pytest.raises(UsageError, match="bleu"):
        size_for(a_profile(), Server(), 100.0, parse_objectives(["bleu>30"]))


class TestCommand:
    @pytest.fixture
    def report(self, tmp_path: Path) -> str:
        path = tmp_path / "step.json"
        path.write_text(json.dumps(a_run([1, 2, 4, 8, 16, 24]).to_json()), encoding="utf-8")
        return str(path)

    def test_the_plan_has_the_number_of_replicas(self, report: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["plan", report, "--rate", "2000/s", "--slo", "p99<100ms", "--spare", "1", "--json"]) == 0
        said = json.loads(capsys.readouterr().out)
        assert said["replicas"] == said["serving"] + 1
        assert said["latency_s"]["p99"] < 0.1

    def test_too_few_replicas_are_exit_code_1(self, report: str) -> None:
        assert main(["plan", report, "--rate", "2000/s", "--slo", "p99<100ms", "--replicas", "1"]) == 1

    @pytest.mark.parametrize("line", shown_commands(("plan",), ("README.md", "docs/capacity.md")))
    def test_a_plan_is_made_as_it_is_shown(self, report: str, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(Path(report).parent)
        assert main(shlex.split(line)[1:]) == 0

    def test_nothing_to_plan_for_is_impossible_usage(self, report: str) -> None:
        assert main(["plan", report, "--rate", "2000/s"]) == 2
