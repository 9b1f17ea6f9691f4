"""The command as a shell sees it: output, files, exit codes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from known_results import result_of
from scripted_triton import Script, serving

from calm import on_a_calm_machine
from dragoman.cli import main
from dragoman.loadtest.result import read_result

COMMAND = [sys.executable, "-c", "import sys; from dragoman.cli import main; sys.exit(main())", "loadtest"]


@pytest.fixture
def sentences(tmp_path: Path) -> Path:
    path = tmp_path / "words.tsv"
    path.write_text("".join(f"a b c d e {number}\tA B C D E {number}\n" for number in range(20)))
    return path


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serving(Script(delay_s=lambda _: 0.02)) as address:
        yield address


def loadtest(*arguments: object) -> int:
    return main(["loadtest", *map(str, arguments)])


def test_a_run_shows_its_figures_and_writes_both_files(
    server: str, sentences: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    load = ("--rate", "40/s", "--duration", "1s", "--warm-up", "0.3s")
    code = loadtest("--server", server, "--workload", sentences, *load, "--slo", "p99<5s,bleu>99", "--output", out)
    assert code == 0
    result = read_result(tmp_path / "run.json")
    assert result.figures.requests == 40
    assert result.quality.bleu == pytest.approx(100)
    assert json.loads((tmp_path / "run.json").read_text())["objectives"][0]["holds"] is True
    assert "Latency over time" in (tmp_path / "run.html").read_text()
    printed = capsys.readouterr()
    assert "sentences/s" in printed.out
    assert "✓ p99<5s" in printed.out
    assert str(tmp_path / "run.html") in printed.err.replace("\n", "")


@pytest.fixture
def mutual_tls(certificates: Path) -> Iterator[str]:
    """A server that asks for a certificate of its clients, too."""
    key, certificate, roots = ((certificates / name).read_bytes() for name in ("server.key", "server.pem", "authority.pem"))
    credentials = grpc.ssl_server_credentials([(key, certificate)], roots, require_client_auth=True)
    with serving(Script(), credentials) as address:
        yield f"grpcs://{address}"


@pytest.mark.parametrize("stream", [[], ["--stream"]])
def test_load_goes_over_mutual_tls(
    mutual_tls: str, certificates: Path, sentences: Path, tmp_path: Path, stream: list[str]
) -> None:
    tls = ("--tls-ca", certificates / "authority.pem")
    tls += ("--tls-cert", certificates / "client.pem", "--tls-key", certificates / "client.key")
    load = ("--workload", sentences, "--rate", "20/s", "--duration", "0.5s", "--warm-up", "0s", "--workers", "2")
    assert loadtest("--server", mutual_tls, *tls, *load, *stream, "--metrics", "off", "--output", tmp_path / "run") == 0
    result = read_result(tmp_path / "run.json")
    assert result.tally.latency.count == 10
    assert not result.tally.errors


def test_load_over_untrusted_tls_is_one_line_and_exit_code_1(mutual_tls: str, sentences: Path, tmp_path: Path) -> None:
    command = [*COMMAND, "--server", mutual_tls, "--workload", str(sentences), "--rate", "5/s"]
    done = subprocess.run(
        [*command, "--output", str(tmp_path / "run")], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 1
    assert "not signed by a trusted authority" in done.stderr
    assert done.stderr.count("\n") == 1


@on_a_calm_machine
def test_a_broken_objective_is_exit_code_1(server: str, sentences: Path, tmp_path: Path) -> None:
    load = ("--concurrency", "2", "--duration", "0.5s", "--warm-up", "0s")
    assert (
        loadtest("--server", server, "--workload", sentences, *load, "--slo", "p50<1ms", "--output", tmp_path / "run") == 1
    )
    assert read_result(tmp_path / "run.json").figures.requests > 10


@on_a_calm_machine
def test_the_capacity_of_a_server_is_found(sentences: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Below 50/s every answer takes 20 ms; what comes faster than that waits for its turn, so that the queue grows.
    free_at = [0.0]

    def delay_s(_: int) -> float:
        now = time.monotonic()
        free_at[0] = max(now, free_at[0]) + 0.02
        return free_at[0] - now

    out = tmp_path / "capacity"
    with serving(Script(delay_s=delay_s)) as address:
        search = ("--find-capacity", "--rate", "30/s", "--duration", "1.5s", "--warm-up", "0.2s", "--slo", "p90<150ms")
        code = loadtest("--server", address, "--workload", sentences, *search, "--output", out)
    assert code == 0
    found = json.loads((tmp_path / "capacity.json").read_text())["capacity"]
    assert 40 < found["rate"] < 60
    assert len(found["probes"]) <= 12
    assert "Rates tried" in (tmp_path / "capacity.html").read_text()
    assert "capacity:" in capsys.readouterr().out


@pytest.fixture
def two_results(tmp_path: Path) -> tuple[Path, Path]:
    for name, latency_s in (("fast", 0.1), ("slow", 0.2)):
        requests = [(number / 20, latency_s + number % 5 / 1000) for number in range(600)]
        (tmp_path / f"{name}.json").write_text(json.dumps(result_of(requests, 30.0).to_json()))
    return tmp_path / "fast.json", tmp_path / "slow.json"


def test_a_comparison_shows_the_difference(two_results: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert loadtest("--compare", *two_results) == 0
    assert "+98.0%" in capsys.readouterr().out


def test_a_regression_beyond_the_limit_is_exit_code_1(two_results: tuple[Path, Path]) -> None:
    fast, slow = two_results
    assert loadtest("--compare", fast, slow, "--regression-limit", "5%") == 1
    assert loadtest("--compare", fast, slow, "--regression-limit", "150%") == 0
    assert loadtest("--compare", slow, fast, "--regression-limit", "5%") == 0
    assert loadtest("--compare", fast, fast, "--regression-limit", "0%") == 0


def test_a_comparison_holds_the_second_run_against_the_objectives(two_results: tuple[Path, Path]) -> None:
    assert loadtest("--compare", *two_results, "--slo", "p50<150ms") == 1
    assert loadtest("--compare", *reversed(two_results), "--slo", "p50<150ms") == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rate", "5/s"], "--workload"),
        (["--server", "localhost:1", "--workload", "WORDS", "--tls-ca", "nowhere.pem"], "nowhere.pem"),
        (["--server", "localhost:1", "--workload", "WORDS", "--tls-cert", "some.pem"], "key"),
        (["--server", "localhost:1", "--workload", "nowhere.txt"], "nowhere.txt"),
        (["--server", "localhost:1", "--workload", "WORDS", "--rate", "fast"], "50/s"),
        (["--server", "localhost:1", "--workload", "WORDS", "--rate", "5/s", "--duration", "soon"], "60s"),
        (["--server", "localhost:1", "--workload", "WORDS", "--rate", "5/s", "--duration", "0s"], "above 0"),
        (["--server", "localhost:1", "--workload", "WORDS", "--concurrency", "0"], "at least 1"),
        (["--server", "localhost:1", "--workload", "WORDS", "--concurrency", "2", "--workers", "3"], "more than"),
        (["--server", "localhost:1", "--workload", "WORDS", "--concurrency", "2", "--shape", "ramp"], "--rate"),
        (["--server", "localhost:1", "--workload", "WORDS", "--rate", "0.001/s"], "less than one request"),
        (["--server", "localhost:1", "--workload", "WORDS", "--find-capacity"], "--slo"),
        (["--server", "localhost:1", "--workload", "WORDS", "--slo", "p99=3s"], "p99<500ms"),
        (["--server", "localhost:1", "--workload", "WORDS", "--metrics", "ftp://x"], "http"),
        (["--server", "localhost:1", "--workload", "WORDS", "--output", "no/such/folder/x"], "no/such/folder"),
        (["--server", ",", "--workload", "WORDS"], "address"),
        (["--server", "localhost:1", "--workload", "WORDS", "--regression-limit", "5%"], "--compare"),
        (["--compare", "WORDS", "WORDS"], "JSON"),
    ],
)
def test_impossible_usage_is_one_line_and_exit_code_2(
    arguments: list[str],
    said: str,
    sentences: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert loadtest(*(str(sentences) if one == "WORDS" else one for one in arguments)) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == [sentences]


def test_an_impossible_beam_is_refused_before_any_load(sentences: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        loadtest("--server", "localhost:1", "--workload", sentences, "--beam", "-3", "--output", sentences.parent / "x") != 0
    )
    assert "beam_size" in capsys.readouterr().err


def test_a_server_that_is_down_is_one_line_and_exit_code_1(
    sentences: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    assert loadtest("--server", address, "--workload", sentences, "--rate", "5/s", "--output", tmp_path / "run") == 1
    error = capsys.readouterr().err
    assert address in error
    assert error.count("\n") == 1
    assert not (tmp_path / "run.json").exists()


def test_ctrl_c_reports_what_was_measured_and_leaves_no_process(sentences: Path, tmp_path: Path) -> None:
    script, seen = Script(delay_s=lambda _: 0.02), tmp_path / "seen.txt"
    command = [*COMMAND, "--workload", str(sentences), "--rate", "20/s", "--warm-up", "0s", "--workers", "2"]
    with serving(script) as address, seen.open("w") as file:
        # A process group of its own, as a shell would make it: Ctrl-C reaches the parent and its workers alike.
        arguments = [*command, "--server", address, "--output", str(tmp_path / "run")]
        process = subprocess.Popen(arguments, start_new_session=True, stdout=file, stderr=file)
        _wait_for_requests(script, process, 30)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(timeout=600) == 130
    result = read_result(tmp_path / "run.json")
    assert result.info.interrupted
    assert result.figures.requests > 20
    assert "interrupted after" in seen.read_text()
    assert "Traceback" not in seen.read_text()
    _wait_until_gone(process.pid)


def _wait_for_requests(script: Script, process: subprocess.Popen[bytes], count: int) -> None:
    deadline = time.monotonic() + 120
    while len(script.received) < count:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _wait_until_gone(group: int) -> None:
    deadline = time.monotonic() + 60
    with pytest.raises(ProcessLookupError):
        while time.monotonic() < deadline:
            os.killpg(group, 0)
            time.sleep(0.02)
