"""`dragoman serve`: what it refuses to start, and what it says."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2

from served import Caller, Server, eventually, launch


def attempt(*arguments: str) -> tuple[int, str]:
    """Exit code and the complaint of a server that must not start."""
    process = launch(arguments)
    try:
        output, complaint = process.communicate(timeout=600)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    assert "ready:" not in output
    return process.returncode, complaint


@pytest.fixture
def bundle(reference_bundle: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(reference_bundle, tmp_path / "bundle"))


@pytest.fixture
def taken() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


class TestRefusesToStart:
    def test_without_a_bundle(self) -> None:
        code, complaint = attempt()
        assert code == 2
        assert "give --bundle PATH" in complaint

    def test_with_a_bundle_that_was_changed(self, bundle: Path) -> None:
        weights = bundle / "weights.bin"
        weights.write_bytes(b"\x01" + weights.read_bytes()[1:])
        code, complaint = attempt("--bundle", str(bundle))
        assert code == 1
        assert "weights.bin was changed after the export" in complaint

    def test_on_a_port_in_use(self, reference_bundle: Path, taken: str) -> None:
        code, complaint = attempt("--bundle", str(reference_bundle), "--grpc-address", taken)
        assert code == 1
        assert f"can't listen at {taken}: Address already in use; choose another address with --grpc-address" in complaint

    def test_a_model_that_needs_more_memory_than_allowed(self, reference_bundle: Path) -> None:
        code, complaint = attempt("--bundle", str(reference_bundle), "--max-memory", "20M")
        assert code == 1
        assert "more than the 20 MiB allowed" in complaint

    def test_a_batch_smaller_than_the_models_own_beam(self, reference_bundle: Path) -> None:
        code, complaint = attempt("--bundle", str(reference_bundle), "--max-batch", "1")
        assert code == 1
        assert "raise --max-batch or --max-beam-size" in complaint

    @pytest.mark.parametrize("option", ["--grpc-address", "--http-address"])
    def test_the_embedded_triton_to_other_machines(self, reference_bundle: Path, option: str) -> None:
        code, complaint = attempt("--bundle", str(reference_bundle), option, "0.0.0.0:0")
        assert code == 1
        assert f"{option} 0.0.0.0:" in complaint
        assert "bring the embedded Triton 2.51 down" in complaint
        assert "--allow-remote" in complaint

    def test_with_a_bundle_of_a_newer_schema(self, bundle: Path) -> None:
        manifest = json.loads((bundle / "manifest.json").read_text(encoding="utf-8"))
        (bundle / "manifest.json").write_text(json.dumps({**manifest, "schema_version": 99}), encoding="utf-8")
        code, complaint = attempt("--bundle", str(bundle))
        assert code == 1
        assert "99" in complaint
        assert "Traceback" not in complaint


def test_a_server_is_ready_only_when_it_translates(reference_bundle: Path) -> None:
    """Whoever asks Triton itself must not be told so before: the first time it says yes, a translation works."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    process = launch(["--bundle", f"en-de={reference_bundle}", "--threads", "1", "--grpc-address", address])
    caller = Caller(address)
    try:
        eventually(lambda: says_ready(caller), timeout_s=60)
        assert caller.translate(["It is raining."]).best
    finally:
        caller.close()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=600)
    assert process.returncode == 0


def says_ready(caller: Caller) -> bool:
    try:
        return bool(caller.stub.ServerReady(service_pb2.ServerReadyRequest(), timeout=1).ready)
    except grpc.RpcError:
        return False


@pytest.fixture(scope="module")
def twins(reference_bundle: Path) -> Iterator[Server]:
    bundles = [f"en-de={reference_bundle}", f"twin={reference_bundle}"]
    with Server.start(bundles, "--threads", "1", "--log-requests", "--http-address", "127.0.0.1:0") as server:
        yield server


class TestSeveralBundles:
    def test_the_request_chooses(self, twins: Server) -> None:
        caller = twins.caller()
        for name in ("en-de", "twin"):
            assert caller.translate(["It is raining."], model=name).details["model"] == name
        caller.close()

    @pytest.mark.parametrize(
        ("options", "complaint"),
        [({}, "has several models; set the input MODEL"), ({"model": "fr-en"}, "no model 'fr-en' here; this server has")],
    )
    def test_a_request_that_chooses_none_is_refused(self, twins: Server, options: dict[str, str], complaint: str) -> None:
        caller = twins.caller()
        with pytest.raises(grpc.RpcError) as error:
            caller.translate(["It is raining."], **options)
        caller.close()
        assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert complaint in error.value.details()

    def test_a_session_goes_back_to_its_own_engine(self, twins: Server) -> None:
        caller = twins.caller()
        sessions = [caller.encode(["It is raining."], model=name)[0] for name in ("en-de", "twin")]
        for session in sessions:
            best = caller.decode(session, {"do": "step", "candidates": 1}, [(0, -1, 0)])
            assert best["BEST_TOKENS"].shape == (1, 1)
            caller.decode(session, {"do": "close"})
        caller.close()

    def test_the_summary_names_models_memory_and_addresses(self, twins: Server) -> None:
        summary = "\n".join(twins.lines)
        assert "en-de" in summary
        assert "twin" in summary
        assert "MiB" in summary
        assert f"gRPC       {twins.grpc}" in summary

    def test_requests_are_logged_with_their_ids(self, twins: Server) -> None:
        caller = twins.caller()
        caller.translate(["It is raining."], model="twin", request_id="find-me")
        caller.close()
        (line,) = eventually(lambda: [line for line in twins.events("request") if line["request_id"] == "find-me"])
        assert (line["outcome"], line["process"]) == ("ok", "engine twin")


class TestHttp:
    def ask(self, twins: Server, path: str, body: dict[str, object]) -> tuple[int, dict[str, Any]]:
        (address,) = [line.split()[-1] for line in twins.lines if line.strip().startswith("HTTP")]
        request = urllib.request.Request(f"{address}{path}", json.dumps(body).encode(), method="POST")  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=600) as answer:  # noqa: S310 - our own loopback address
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    def test_http_is_served_when_requested(self, twins: Server) -> None:
        model = {"name": "MODEL", "datatype": "BYTES", "shape": [1], "data": ["twin"]}
        text = {"name": "TEXT", "datatype": "BYTES", "shape": [1], "data": ["It is raining."]}
        status, answer = self.ask(twins, "/v2/models/translate/infer", {"inputs": [text, model]})
        assert status == 200
        (said,) = [output["data"][0] for output in answer["outputs"] if output["name"] == "TRANSLATION"]
        caller = twins.caller()
        assert [said] == caller.translate(["It is raining."], model="twin").best
        caller.close()

    @pytest.mark.parametrize("shape", [[1 << 40], [257, 1 << 62]], ids=["a terabyte", "overflow"])
    def test_memory_is_not_allocated_by_declaration(self, twins: Server, shape: list[int]) -> None:
        before = twins.children()["triton"]
        numbers = {"name": "TEXT", "datatype": "BOOL", "shape": shape, "data": [True]}
        status, answer = self.ask(twins, "/v2/models/translate/infer", {"inputs": [numbers]})
        assert (status, "BYTES" in answer["error"]) == (400, True)
        assert twins.children()["triton"] == before

    def test_keeps_its_admin_endpoints_closed(self, twins: Server) -> None:
        status, answer = self.ask(twins, "/v2/repository/index", {})
        assert status == 403
        assert "restricted" in answer["error"]
