"""Three servers on one machine: how throughput adds up, what a rolling restart loses, how long a hung server is asked.

python -m benchmarks.rolling_restart --bundle bundles/tatoeba-en-de
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.machine import describe_machine, load_average
from benchmarks.replicas import Balancer, Replica, SteadyLoad, nginx_version, start_replicas, wait_until
from benchmarks.results import write_results
from dragoman.client import Translator

WORKLOAD = Path(__file__).resolve().parents[1] / "deploy" / "workload.txt"
REPLICAS = 3
SLOW_S = 1.5
USERS = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each throughput measurement")
    parser.add_argument("--rounds", type=int, default=2, help="rolling restarts and hangs")
    arguments = parser.parse_args()
    began_load = load_average()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="replicas-")))
        replicas = start_replicas(arguments.bundle.resolve(), directory, REPLICAS)
        for replica in replicas:
            stack.callback(replica.kill)
        addresses = [replica.grpc for replica in replicas]
        with Translator(addresses[0]) as one:
            expected = {text: one.translate(text).text for text in WORKLOAD.read_text(encoding="utf-8").splitlines()}
        throughput = {
            count: measure_throughput(addresses[:count], expected, arguments.seconds) for count in range(1, REPLICAS + 1)
        }
        ways = {"client round robin": stack.enter_context(Translator(addresses))}
        balancer = None
        if nginx_version() is not None:
            balancer = Balancer(addresses)
            stack.callback(balancer.stop)
            ways[f"nginx {nginx_version()}"] = stack.enter_context(Translator(balancer.address))
        rounds = [
            {
                "hang": hang(replicas[number % REPLICAS], ways, expected),
                "restart": restart_all(replicas, balancer, ways, expected),
            }
            for number in range(arguments.rounds)
        ]
    report(throughput, rounds, list(ways), arguments.seconds, began_load)


def measure_throughput(addresses: list[str], expected: dict[str, str], seconds: float) -> float:
    """Translations a second with more users than servers."""
    with Translator(addresses) as translator:
        with SteadyLoad(translator, expected, users=4 * USERS) as load:
            wait_until(lambda: load.answered_after(0) > 4 * USERS, 60, "the first answers")
            began_at = time.monotonic()
            time.sleep(seconds)
        return sum(began_at <= fate.began_at + fate.took_s < began_at + seconds for fate in load.fates) / seconds


def hang(replica: Replica, ways: dict[str, Translator], expected: dict[str, str]) -> dict[str, Any]:
    """Seconds after a server hung until the last request that it held up was answered by another."""
    with ExitStack() as stack:
        loads = {way: stack.enter_context(SteadyLoad(each, expected, USERS)) for way, each in ways.items()}
        wait_until(lambda: all(load.answered_after(0) > 20 for load in loads.values()), 60, "the first answers")
        frozen_at = time.monotonic()
        replica.freeze()
        stack.callback(replica.thaw)
        time.sleep(12)  # three times nginx's timeout: every request to the hung server has been moved
    return {
        way: {
            "left_out_after_s": load.recovered_after_s(frozen_at, SLOW_S),
            "lost": len(load.lost),
            "asked": len(load.fates),
        }
        for way, load in loads.items()
    }


def restart_all(
    replicas: list[Replica], balancer: Balancer | None, ways: dict[str, Translator], expected: dict[str, str]
) -> dict[str, Any]:
    """Drain and start every server anew, one after another, under load."""
    with ExitStack() as stack:
        loads = {way: stack.enter_context(SteadyLoad(each, expected, USERS)) for way, each in ways.items()}
        for replica in replicas:
            if balancer is not None:
                balancer.send_to([other.grpc for other in replicas if other is not replica])
            replica.stop()
            replica.start()
            replica.wait_until_ready()
            if balancer is not None:
                balancer.send_to([other.grpc for other in replicas])
            time.sleep(2)  # the one that is back takes its share before the next one goes
    return {
        way: {
            "lost": len(load.lost),
            "asked": len(load.fates),
            "longest_s": max(fate.took_s for fate in load.fates),
            "problems": sorted({str(fate.problem) for fate in load.lost})[:3],
        }
        for way, load in loads.items()
    }


def report(
    throughput: dict[int, float], rounds: list[dict[str, Any]], ways: list[str], seconds: float, began_load: float
) -> None:
    figures = {
        "machine": describe_machine(),
        "load_average_before": began_load,
        "seconds": seconds,
        "throughput_per_s": throughput,
        "rounds": rounds,
    }
    lines = ["| servers (one thread each) | translations/s |", "|---|---|"]
    lines += [f"| {count} | {rate:.0f} |" for count, rate in throughput.items()]
    lines += [
        "",
        "| way | hung server left out after | lost in it | rolling restart: lost | longest answer |",
        "|---|---|---|---|---|",
    ]
    for way in ways:
        hangs, restarts = [each["hang"][way] for each in rounds], [each["restart"][way] for each in rounds]
        lines.append(
            f"| {way} | {', '.join(format(one['left_out_after_s'], '.1f') + ' s' for one in hangs)} "
            f"| {sum(one['lost'] for one in hangs)} of {sum(one['asked'] for one in hangs):,} "
            f"| {sum(one['lost'] for one in restarts)} of {sum(one['asked'] for one in restarts):,} "
            f"| {max(one['longest_s'] for one in restarts):.1f} s |"
        )
    lines.append(f"\nOther programs kept the machine busy too (load average before the run: {began_load:.1f}).")
    write_results("rolling_restart", figures, "\n".join(lines))


if __name__ == "__main__":
    main()
