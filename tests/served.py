"""A real `dragoman serve` and the plainest client that can talk to it."""

from __future__ import annotations

import json
import queue
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc

from dragoman.serving.supervisor.parent_watch import watching_parent

# Limits for what hangs: on a machine that does other things, too, everything may take ten times as long.
START_TIMEOUT_S = 300.0
CALL_TIMEOUT_S = 120.0


def eventually(what: Callable[[], Any], timeout_s: float = CALL_TIMEOUT_S) -> Any:
    """The first true value of `what`; fails when there is none in time."""
    deadline_s = time.monotonic() + timeout_s
    while not (value := what()):
        assert time.monotonic() < deadline_s, f"not within {timeout_s} s"
        threading.Event().wait(0.02)
    return value


@dataclass
class Answer:
    """The answer of `translate`."""

    texts: list[list[str]]
    scores: list[list[float]]
    token_counts: list[list[int]]
    details: dict[str, Any]

    @property
    def best(self) -> list[str]:
        return [hypotheses[0] for hypotheses in self.texts]


class Caller:
    """Speaks Triton's protocol with generated code only, without dragoman's client."""

    def __init__(self, address: str, credentials: grpc.ChannelCredentials | None = None, name: str = "localhost") -> None:
        self.address = address
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        if credentials is None:
            self.channel = grpc.insecure_channel(address, options)
        else:
            self.channel = grpc.secure_channel(address, credentials, [*options, ("grpc.ssl_target_name_override", name)])
        self.stub = service_pb2_grpc.GRPCInferenceServiceStub(self.channel)

    def translate(
        self, texts: Sequence[str | bytes], timeout_s: float = CALL_TIMEOUT_S, *, model: str | None = None, **options: object
    ) -> Answer:
        return self.answer(self.stub.ModelInfer(request("translate", texts, options, model), timeout=timeout_s))

    def translate_later(
        self, texts: Sequence[str | bytes], timeout_s: float = CALL_TIMEOUT_S, *, model: str | None = None, **options: object
    ) -> grpc.Future:
        return self.stub.ModelInfer.future(request("translate", texts, options, model), timeout=timeout_s)

    @staticmethod
    def answer(response: service_pb2.ModelInferResponse) -> Answer:
        tensors = outputs(response)
        texts = [[text.decode() for text in row] for row in tensors["TRANSLATION"]]
        return Answer(texts, tensors["SCORE"].tolist(), tensors["TOKEN_COUNT"].tolist(), json.loads(tensors["DETAILS"][0]))

    def stream(
        self, text: str, timeout_s: float = CALL_TIMEOUT_S, *, model: str | None = None, **options: object
    ) -> Iterator[dict[str, Any]]:
        """Each response's CHUNK, FINAL and DETAILS; a refusal is raised."""
        message = request("translate_stream", [text], options, model)
        for piece in stream_pieces(self.stub.ModelStreamInfer(iter([message]), timeout=timeout_s)):
            if error := piece["details"].get("error"):
                raise StreamError(f"{error['code']}: {error['message']}")
            yield piece

    def encode(self, texts: Sequence[str], model: str | None = None, **options: object) -> tuple[bytes, dict[str, Any]]:
        tensors = outputs(self.stub.ModelInfer(request("encoder", texts, options, model), timeout=CALL_TIMEOUT_S))
        return tensors["SESSION"][0], json.loads(tensors["MODEL_INFO"][0])

    def decode(self, session: bytes, command: dict[str, Any], step: Sequence[Sequence[int]] = ()) -> dict[str, Any]:
        message = service_pb2.ModelInferRequest(model_name="decoder")
        add_bytes(message, "SESSION", [session])
        add_bytes(message, "COMMAND", [json.dumps(command).encode()])
        if step:
            add_bytes(message, "STEP", [np.array(step, "<i4").tobytes()])
        return outputs(self.stub.ModelInfer(message, timeout=CALL_TIMEOUT_S))

    def status(self) -> dict[str, Any]:
        """What `server_status` tells."""
        message = service_pb2.ModelInferRequest(model_name="server_status")
        return json.loads(outputs(self.stub.ModelInfer(message, timeout=CALL_TIMEOUT_S))["STATUS"][0])

    def close(self) -> None:
        self.channel.close()


class StreamError(Exception):
    """A stream was refused, failed, or ended as no stream may: with an error response."""


def stream_pieces(responses: Iterator[service_pb2.ModelStreamInferResponse]) -> Iterator[dict[str, Any]]:
    """Each response's CHUNK, FINAL and DETAILS; refusals are among them, as DETAILS.error."""
    for response in responses:
        if response.error_message:
            raise StreamError(f"error response: {response.error_message}")
        tensors = outputs(response.infer_response)
        yield {
            "chunk": tensors["CHUNK"][0].decode(),
            "final": bool(tensors["FINAL"][0]),
            "details": json.loads(tensors["DETAILS"][0]),
        }


def request(
    model: str, texts: Sequence[str | bytes], options: dict[str, Any] | bytes, bundle: str | None = None
) -> service_pb2.ModelInferRequest:
    """A call of the Triton model `model`; `bundle` is needed where a server has several."""
    message = service_pb2.ModelInferRequest(model_name=model)
    add_bytes(message, "TEXT", [text if isinstance(text, bytes) else text.encode() for text in texts])
    if bundle is not None:
        add_bytes(message, "MODEL", [bundle.encode()])
    if options:
        add_bytes(message, "OPTIONS", [options if isinstance(options, bytes) else json.dumps(options).encode()])
    return message


def add_bytes(message: service_pb2.ModelInferRequest, name: str, values: Sequence[bytes]) -> None:
    tensor = message.inputs.add(name=name, datatype="BYTES", shape=[len(values)])
    tensor.contents.bytes_contents.extend(values)


def outputs(response: service_pb2.ModelInferResponse) -> dict[str, Any]:
    """Tensors by name as numpy arrays."""
    kinds = {"FP32": "<f4", "INT32": "<i4", "BOOL": "?"}
    tensors: dict[str, Any] = {}
    for tensor, raw in zip(response.outputs, response.raw_output_contents, strict=True):
        shape = tuple(tensor.shape)
        values = strings(raw) if tensor.datatype == "BYTES" else np.frombuffer(raw, kinds[tensor.datatype])
        tensors[tensor.name] = values.reshape(shape)
    return tensors


def strings(raw: bytes) -> Any:
    found, at = [], 0
    while at < len(raw):
        length = int.from_bytes(raw[at : at + 4], "little")
        found.append(raw[at + 4 : at + 4 + length])
        at += 4 + length
    array = np.empty(len(found), object)
    array[:] = found
    return array


@dataclass
class Server:
    """A running `dragoman serve`."""

    process: subprocess.Popen[str]
    grpc: str
    metrics_url: str
    lines: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    readers: list[threading.Thread] = field(default_factory=list)

    @classmethod
    def start(cls, bundles: Sequence[str], *arguments: str) -> Server:
        return cls.of([*(part for bundle in bundles for part in ("--bundle", bundle)), *arguments])

    @classmethod
    def of(cls, arguments: Sequence[str], program: str = str(Path(sys.executable).with_name("dragoman"))) -> Server:
        """The server that `program serve arguments` starts, when it is ready."""
        server = cls(launch(arguments, program), "", "")
        ready: queue.Queue[str] = queue.Queue()
        server.readers = [
            threading.Thread(target=server._read_output, args=(ready,)),
            threading.Thread(target=server._read_log),
        ]
        for reader in server.readers:
            reader.start()
        try:
            line = ready.get(timeout=START_TIMEOUT_S)
        except queue.Empty:
            line = ""
        found = re.match(r"ready: .* at (\S+) after", line)
        if found is None:
            server.kill()
            raise AssertionError("the server did not get ready:\n" + "\n".join([*server.lines, *server.log]))
        server.grpc = found[1]
        metrics = [line.split()[-1] for line in server.lines if line.strip().startswith("metrics")]
        server.metrics_url = metrics[0] if metrics else ""
        return server

    def caller(self) -> Caller:
        return Caller(self.grpc)

    def metrics(self) -> dict[str, float]:
        """Every series of ours by its name and labels."""
        with urllib.request.urlopen(self.metrics_url, timeout=CALL_TIMEOUT_S) as page:  # noqa: S310 - our own loopback address
            lines = page.read().decode().splitlines()
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line.startswith("dragoman_")}

    def children(self) -> dict[str, list[int]]:
        """Pids of the server's processes: engines, triton, stubs."""
        import psutil

        found: dict[str, list[int]] = {"engine": [], "triton": [], "stub": []}
        for child in psutil.Process(self.process.pid).children(recursive=True):
            try:
                command = child.cmdline()
            except psutil.NoSuchProcess:
                continue
            if "dragoman.serving.process" in command:
                found["engine"].append(child.pid)
            elif command and command[0].endswith("tritonserver"):
                found["triton"].append(child.pid)
            elif command and command[0].endswith("triton_python_backend_stub"):
                found["stub"].append(child.pid)
        return found

    def events(self, name: str) -> list[dict[str, Any]]:
        """Log lines of that event."""
        parsed = [json.loads(line) for line in list(self.log) if line.startswith("{")]
        return [line for line in parsed if line["event"] == name]

    def stop(self, timeout_s: float = CALL_TIMEOUT_S) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.stop()
        finally:
            self.kill()

    def kill(self) -> None:
        """End whatever is left; its children end with it."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(CALL_TIMEOUT_S)
        for reader in self.readers:
            reader.join(CALL_TIMEOUT_S)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    def _read_output(self, ready: queue.Queue[str]) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            if line.startswith("ready: "):
                ready.put(line)
        ready.put("")

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line.rstrip())


def launch(
    arguments: Sequence[str], program: str = str(Path(sys.executable).with_name("dragoman"))
) -> subprocess.Popen[str]:
    """`dragoman serve` on free loopback ports. It ends with the thread that called this, however that ends."""
    command = [program, "serve", *arguments]
    for option in ("--grpc-address", "--metrics-address"):
        if not any(argument.partition("=")[0] == option for argument in arguments):
            command += [option, "127.0.0.1:0"]
    return subprocess.Popen(watching_parent(command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
