"""Three servers behind nginx and, separately, behind the client's own round robin: nothing is lost when they change."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from benchmarks.replicas import Balancer, Replica, SteadyLoad, nginx_version, start_replicas

from dragoman.client import Translator
from dragoman.client.prometheus import scrape
from served import eventually

SENTENCES = ["Where is the station?", "It is raining.", "Thank you!", "I have never seen such a beautiful city."]
LEFT_OUT_S = 10.0
WAYS = ["client", pytest.param("nginx", marks=pytest.mark.skipif(nginx_version() is None, reason="apt install nginx"))]


@dataclass
class Fleet:
    """The servers, and the translators that reach them, each in its own way."""

    replicas: list[Replica]
    balancer: Balancer | None
    translators: dict[str, Translator]
    expected: dict[str, str]

    def route_around(self, resting: Replica | None) -> None:
        """Only nginx has to be told; clients find out for themselves."""
        if self.balancer is not None:
            self.balancer.send_to([replica.grpc for replica in self.replicas if replica is not resting])

    def loads(self, stack: ExitStack) -> dict[str, SteadyLoad]:
        return {
            way: stack.enter_context(SteadyLoad(translator, self.expected, users=2))
            for way, translator in self.translators.items()
        }


@pytest.fixture(scope="module")
def fleet(reference_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with ExitStack() as stack:
        replicas = start_replicas(reference_bundle, tmp_path_factory.mktemp("replicas"), 3)
        for replica in replicas:
            stack.callback(replica.kill)
        addresses = [replica.grpc for replica in replicas]
        translators = {"client": stack.enter_context(Translator(addresses))}
        balancer = None
        if nginx_version() is not None:
            balancer = Balancer(addresses)
            stack.callback(balancer.stop)
            translators["nginx"] = stack.enter_context(Translator(balancer.address))
        with Translator(addresses[0]) as one:
            expected = {text: one.translate(text).text for text in SENTENCES}
        yield Fleet(replicas, balancer, translators, expected)


@pytest.fixture(scope="module")
def hung(fleet: Fleet) -> tuple[float, dict[str, SteadyLoad]]:
    """One server hangs under load until every user has been answered by the others for a while; then it comes back."""
    with ExitStack() as stack:
        loads = fleet.loads(stack)
        eventually(lambda: all(load.answered_after(0) > 10 for load in loads.values()))
        frozen_at = time.monotonic()
        fleet.replicas[0].freeze()
        stack.callback(fleet.replicas[0].thaw)
        # Each user has met the silent server at most once; then nobody is sent there.
        settled = frozen_at + LEFT_OUT_S
        eventually(lambda: all(load.answered_after(settled) > 20 for load in loads.values()), timeout_s=240)
    return frozen_at, loads


@pytest.fixture(scope="module")
def rolled(fleet: Fleet, hung: object) -> dict[str, SteadyLoad]:
    """Every server is drained and started anew, one after another, under load."""
    with ExitStack() as stack:
        loads = fleet.loads(stack)
        for replica in fleet.replicas:
            fleet.route_around(replica)
            replica.stop()
            replica.start()
            replica.wait_until_ready()
            fleet.route_around(None)
            back_at = time.monotonic()
            eventually(lambda since=back_at: all(load.answered_after(since) > 5 for load in loads.values()))
    return loads


def texts_decoded(replica: Replica) -> float:
    return scrape(f"http://{replica.metrics}/metrics").total("dragoman_texts_total")


@pytest.mark.parametrize("way", WAYS)
def test_every_server_takes_its_share_so_that_throughput_adds_up(fleet: Fleet, way: str) -> None:
    before = [texts_decoded(replica) for replica in fleet.replicas]
    for number in range(30):
        fleet.translators[way].translate(SENTENCES[number % len(SENTENCES)], cache=False)

    def smallest_share() -> float:
        return min(texts_decoded(replica) - earlier for replica, earlier in zip(fleet.replicas, before, strict=True))

    # Metrics are published a moment later, and the fleet's first questions may shift a turn: ten each, or nearly.
    eventually(lambda: smallest_share() >= 8)


@pytest.mark.parametrize("way", WAYS)
def test_a_hung_server_costs_no_translation(hung: tuple[float, dict[str, SteadyLoad]], way: str) -> None:
    _, loads = hung
    assert [fate.problem for fate in loads[way].lost] == []


@pytest.mark.parametrize("way", WAYS)
def test_a_hung_server_is_left_out_within_seconds(hung: tuple[float, dict[str, SteadyLoad]], way: str) -> None:
    frozen_at, loads = hung
    # The client takes a server for hung after two seconds of silence, nginx after four; then the request is sent again.
    later = [fate for fate in loads[way].fates if fate.began_at > frozen_at + LEFT_OUT_S]
    assert sum(fate.took_s > 1.9 for fate in later) < len(later) / 6  # it would have been asked for a third of them


@pytest.mark.parametrize("way", WAYS)
def test_a_rolling_restart_under_load_loses_no_translation(rolled: dict[str, SteadyLoad], way: str) -> None:
    assert len(rolled[way].fates) > 50
    assert [fate.problem for fate in rolled[way].lost] == []
