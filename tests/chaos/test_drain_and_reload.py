"""A server that stops or changes its model breaks no promise: what it admitted it finishes, and nothing of it stays."""

from __future__ import annotations

import json
import shutil
import signal
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grpc
import psutil
import pytest

from served import CALL_TIMEOUT_S, Caller, Server, eventually, launch
from shared_sentences import LONG


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the server of this test puts its private directory."""
    short = Path(tempfile.mkdtemp(prefix="t-"))
    monkeypatch.setenv("TMPDIR", str(short))
    yield short
    shutil.rmtree(short, ignore_errors=True)


def everything_of(server: Server) -> list[psutil.Process]:
    return psutil.Process(server.process.pid).children(recursive=True)


class TestDrain:
    def test_finishes_what_was_admitted_refuses_the_rest_and_leaves_nothing(
        self, reference_bundle: Path, temporary: Path
    ) -> None:
        arguments = ("--max-batch", "4", "--threads", "1", "--drain-timeout", "600")
        with Server.start([f"en-de={reference_bundle}"], *arguments) as server:
            caller = server.caller()
            processes = everything_of(server)
            admitted = [caller.translate_later([LONG] * 20, cache=False, beam_size=4) for _ in range(12)]
            queued = 'dragoman_queued_requests{model="en-de"}'
            eventually(lambda: server.metrics().get(queued, 0) > 8)  # a few texts of each are in the engine at a time
            stream = caller.stream("\n".join([LONG] * 8), cache=False, beam_size=1)
            next(stream)
            server.process.send_signal(signal.SIGTERM)
            eventually(lambda: refusal(caller) == "DRAINING")
            assert [future.exception(timeout=CALL_TIMEOUT_S) for future in admitted] == [None] * 12
            *_, last = stream
            assert last["final"]
            assert server.process.wait(CALL_TIMEOUT_S) == 0
            caller.close()
        eventually(lambda: not any(process.is_running() for process in processes))
        assert list(temporary.glob("dragoman-*")) == []

    def test_callers_get_answers_or_draining_until_their_connection_is_closed(self, reference_bundle: Path) -> None:
        """Never NOT_FOUND, as if there were no such model, nor CANCELLED: neither says that another server may answer."""
        with Server.start([f"en-de={reference_bundle}"], "--threads", "1") as server:
            callers = [server.caller() for _ in range(8)]
            ended: list[list[str]] = [[] for _ in callers]
            threads = [
                threading.Thread(target=call_until_refused, args=(caller, outcomes))
                for caller, outcomes in zip(callers, ended, strict=True)
            ]
            for thread in threads:
                thread.start()
            eventually(lambda: all(outcomes for outcomes in ended))
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(CALL_TIMEOUT_S) == 0
            for thread in threads:
                thread.join(CALL_TIMEOUT_S)
            for caller in callers:
                caller.close()
        seen = Counter(outcome for outcomes in ended for outcome in outcomes)
        assert set(seen) <= {"ok", "DRAINING", "no connection"}, seen
        assert seen["DRAINING"] >= len(callers), "every caller is told before its connection is closed"

    def test_a_second_signal_ends_at_once(self, reference_bundle: Path) -> None:
        arguments = ("--max-batch", "4", "--threads", "1", "--drain-timeout", "600")
        with Server.start([f"en-de={reference_bundle}"], *arguments) as server:
            caller = server.caller()
            waiting = [caller.translate_later([f"{LONG} {n}"] * 64, cache=False, beam_size=1) for n in range(20)]
            eventually(lambda: server.metrics().get('dragoman_queued_requests{model="en-de"}', 0) > 0)
            server.process.send_signal(signal.SIGINT)
            eventually(lambda: any(line.startswith("draining") for line in server.lines))
            server.process.send_signal(signal.SIGINT)
            assert server.process.wait(CALL_TIMEOUT_S) == 0
            assert any(future.exception(timeout=CALL_TIMEOUT_S) is not None for future in waiting)
            caller.close()

    def test_a_server_that_is_stopped_while_it_starts_leaves_nothing(self, reference_bundle: Path, temporary: Path) -> None:
        process = launch(["--bundle", f"en-de={reference_bundle}"])
        supervisor = psutil.Process(process.pid)
        family = eventually(lambda: supervisor.children() if len(supervisor.children()) >= 2 else None)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=CALL_TIMEOUT_S)
        assert process.returncode == 0
        assert not any(child.is_running() for child in family)
        assert list(temporary.glob("dragoman-*")) == []

    def test_a_killed_supervisor_leaves_no_process(self, reference_bundle: Path, temporary: Path) -> None:
        with Server.start([f"en-de={reference_bundle}"]) as server:
            processes = everything_of(server)
            server.process.kill()
            eventually(lambda: not any(process.is_running() for process in processes))


class TestReload:
    def test_a_new_version_is_served_without_a_failed_request(self, reference_bundle: Path, tmp_path: Path) -> None:
        bundle = tmp_path / "bundle"
        shutil.copytree(reference_bundle, bundle)
        with Server.start([f"en-de={bundle}"], "--threads", "1") as server:
            caller = server.caller()
            old = version(caller)
            rewrite_manifest(bundle)
            server.process.send_signal(signal.SIGHUP)
            seen = []
            while not seen or seen[-1] == old:
                futures = [caller.translate_later([f"{LONG} {n}"], cache=False) for n in range(4)]
                seen += [caller.answer(future.result(CALL_TIMEOUT_S)).details["version"] for future in futures]
            after = [version(caller) for _ in range(5)]
            assert len(set(seen)) == 2
            assert set(after) == {seen[-1]}
            eventually(lambda: len(server.children()["engine"]) == 1)
            caller.close()

    def test_a_reload_follows_a_symbolic_link_to_its_new_target(self, reference_bundle: Path, tmp_path: Path) -> None:
        for release in ("1", "2"):
            shutil.copytree(reference_bundle, tmp_path / release)
        rewrite_manifest(tmp_path / "2")
        current = tmp_path / "current"
        current.symlink_to("1")
        with Server.start([f"en-de={current}"], "--threads", "1") as server:
            caller = server.caller()
            old = version(caller)
            (tmp_path / "next").symlink_to("2")
            (tmp_path / "next").replace(current)
            server.process.send_signal(signal.SIGHUP)
            eventually(lambda: version(caller) != old)
            caller.close()

    def test_streams_and_sessions_outlive_a_reload_too(self, reference_bundle: Path, tmp_path: Path) -> None:
        """What was begun ends where it began; what begins later says that the new version answers."""
        bundle = tmp_path / "bundle"
        shutil.copytree(reference_bundle, bundle)
        document = "\n".join(f"{LONG} {number}" for number in range(24))  # seconds of work for four rows
        slow = {"cache": False, "beam_size": 1, "min_length": 100, "max_length": 100}
        with Server.start([f"en-de={bundle}"], "--threads", "1", "--max-batch", "4") as server:
            caller = server.caller()
            session, before = caller.encode([LONG])
            streams = [caller.stream(document, **slow) for _ in range(2)]
            begun = [next(stream)["chunk"] for stream in streams]
            rewrite_manifest(bundle)
            server.process.send_signal(signal.SIGHUP)
            steps = 0
            while (now := fresh_version(caller)) == before["version"] or steps < 3:
                row = (0, 0 if steps else -1, 5)
                assert caller.decode(session, {"do": "step", "candidates": 2}, [row])["BEST_TOKENS"].shape == (1, 2)
                steps += 1
            for first, stream in zip(begun, streams, strict=True):
                *rest, last = stream
                assert (last["final"], last["details"]["version"]) == (True, before["version"])
                whole = first + "".join(response["chunk"] for response in (*rest, last))
                assert whole.count("\n") == 23
            assert now == version(caller) != before["version"]
            caller.close()

    def test_a_bundle_that_was_tampered_with_is_not_taken_over(self, reference_bundle: Path, tmp_path: Path) -> None:
        bundle = tmp_path / "bundle"
        shutil.copytree(reference_bundle, bundle)
        with Server.start([f"en-de={bundle}"], "--threads", "1") as server:
            caller = server.caller()
            old = version(caller)
            weights = bundle / "weights.bin"
            weights.write_bytes(b"\x00" * 64 + weights.read_bytes()[64:])
            server.process.send_signal(signal.SIGHUP)
            eventually(lambda: server.events("reload failed"))
            assert version(caller) == old
            caller.close()

    def test_a_glossary_is_read_again_unless_it_is_broken(self, reference_bundle: Path, tmp_path: Path) -> None:
        terms, question = tmp_path / "terms.tsv", ["Where is the station?"]
        terms.write_text("station\tHaltestelle\n", encoding="utf-8")
        with Server.start([f"en-de={reference_bundle}"], "--threads", "1", "--glossary", f"traffic={terms}") as server:
            caller = server.caller()

            def answer() -> str:
                return caller.translate(question, glossary="traffic").best[0]

            assert "Haltestelle" in answer()
            terms.write_text("station\tWache\n", encoding="utf-8")
            server.process.send_signal(signal.SIGHUP)
            eventually(lambda: "Wache" in answer())
            terms.write_text("station\n", encoding="utf-8")
            server.process.send_signal(signal.SIGHUP)
            failed = eventually(lambda: server.events("reload failed"))
            assert "line 1" in failed[0]["reason"]
            assert "Wache" in answer()
            with pytest.raises(grpc.RpcError, match="this server has: traffic"):
                caller.translate(question, glossary="other")
            caller.close()


def refusal(caller: Caller) -> str:
    try:
        caller.translate(["Hello."])
    except grpc.RpcError as error:
        return error.details().partition(":")[0]
    return ""


def call_until_refused(caller: Caller, outcomes: list[str]) -> None:
    """Call again and again until the connection is refused."""
    while not outcomes or outcomes[-1] != "no connection":
        future = caller.translate_later(["Is anybody there?"], cache=False, beam_size=1)
        error = future.exception()
        outcomes.append("ok" if error is None else kind_of(error))


def kind_of(error: grpc.RpcError) -> str:
    """What a client may conclude from an error: our code, or that there is no connection, or the error itself."""
    if error.code() is not grpc.StatusCode.UNAVAILABLE:
        return f"{error.code().name}: {error.details()}"
    code = error.details().partition(":")[0]
    return "DRAINING" if code == "DRAINING" else "no connection" if is_lost_connection(error.details()) else error.details()


def is_lost_connection(details: str) -> bool:
    words = ("socket closed", "connection reset", "connection refused", "failed to connect", "broken pipe", "goaway")
    return any(each in details.lower() for each in words)


def version(caller: Caller) -> str:
    return caller.translate(["Which version is this?"]).details["version"]


def fresh_version(caller: Caller) -> str:
    """The version that a new session's MODEL_INFO names."""
    session, info = caller.encode(["Which version is this?"])
    caller.decode(session, {"do": "close"})
    return info["version"]


def rewrite_manifest(bundle: Path) -> None:
    """The same model under another name: a new version to everyone who looks at the manifest."""
    path = bundle / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    manifest["model"]["name"] += "-next"
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(manifest), encoding="utf-8")
    fresh.replace(path)
