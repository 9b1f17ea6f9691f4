"""Requests to Triton's HTTP endpoint that are almost right, written by hand on sockets."""

from __future__ import annotations

import json
import random
import socket
import time
from collections import Counter

from hostile.deaths import Deaths
from hostile.grammar import DATATYPES, SIZES, TEXTS, VALUES, Grammar
from hostile.outcomes import REVEALING
from hostile.report import Row, judged
from served import eventually

PATHS = (
    "/v2/models/{model}/infer",
    "/v2/models/{model}/versions/1/infer",
    "/v2/models/{model}/generate",
    "/v2/models/{model}/generate_stream",
    "/v2/models/{model}",
    "/v2/models/{model}/config",
    "/v2/models/{model}/stats",
    "/v2/models/{model}/trace/setting",
    "/v2/repository/index",
    "/v2/repository/models/{model}/load",
    "/v2/repository/models/{model}/unload",
    "/v2/systemsharedmemory/region/x/register",
    "/v2/cudasharedmemory/status",
    "/v2/trace/setting",
    "/v2/logging",
    "/v2/health/ready",
    "/v2",
    "/metrics",
    "/../../etc/passwd",
    "/%00",
    "//",
)
CLOSED = ("/v2/repository", "/v2/systemsharedmemory", "/v2/cudasharedmemory", "/v2/trace", "/v2/logging")
MODELS = ("translate", "translate_stream", "encoder", "decoder", "server_status", "x", "%2e%2e", "x" * 3000)
METHODS = ("GET", *["POST"] * 16, "PUT", "DELETE", "OPTIONS", "HEAD", "TRACE", "XXX")
LONGEST_S = 30.0


def http_fuzzed(address: str, deaths: Deaths, count: int, seed: int, until_s: float = float("inf")) -> Row:
    """A row for `count` HTTP requests: an answer with a status, or a closed connection for what is not HTTP."""
    before, dice, seen, wrong = deaths.counted(), random.Random(seed), Counter[str](), list[str]()
    grammar, number = Grammar(seed), 0
    eventually(lambda: _listens(address))
    while number < count and time.monotonic() < until_s:
        number += 1
        path, raw = _request(dice, grammar)
        began_s = time.monotonic()
        try:
            answer = _exchange(address, raw)
        except OSError as error:
            wrong.append(f"{type(error).__name__} after {time.monotonic() - began_s:.1f} s for {raw[:200]!r}")
            deaths.whole()
            continue
        status = answer[9:12].decode(errors="replace") or "closed"
        seen[status] += 1
        if path.startswith(CLOSED) and status.startswith("2") and not raw.startswith((b"OPTIONS", b"HEAD")):
            wrong.append(f"{status} from an endpoint that is closed: {raw[:100]!r}")
        if REVEALING.search(answer.decode(errors="replace")):
            wrong.append(f"the answer gives too much away: {answer[:300]!r} for {raw[:200]!r}")
    deaths.whole()
    figures: dict[str, float | int | str] = {"seed": seed, **dict(seen.most_common(5))}
    return judged("fuzzed HTTP requests", number, deaths.counted() - before, wrong, figures)


def many_chunks(address: str, deaths: Deaths) -> Row:
    """A row for one body in very many tiny chunks, which releases before 25.07 keep on the stack: only reported."""
    before, count = deaths.counted(), 700_000
    eventually(lambda: _listens(address))
    head = b"POST /v2/models/translate/infer HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    try:
        answer = _exchange(address, head + b"1\r\n \r\n" * count + b"0\r\n\r\n")[9:12].decode(errors="replace") or "closed"
    except TimeoutError:
        answer = f"none within {LONGEST_S:g} s"
    deaths.whole()
    figures: dict[str, float | int | str] = {"chunks": count, "answer": answer}
    return judged("an HTTP body in tiny chunks", 1, deaths.counted() - before, [], figures, only_reported=True)


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as connection:
        return connection.connect_ex((host, int(port))) == 0


def _exchange(address: str, raw: bytes) -> bytes:
    """Send it; what comes back until the server closes, at most some kilobytes."""
    host, _, port = address.rpartition(":")
    received = b""
    with socket.create_connection((host, int(port)), timeout=LONGEST_S) as connection:
        try:
            connection.sendall(raw)
            connection.shutdown(socket.SHUT_WR)
            while len(received) < 1 << 16 and (more := connection.recv(1 << 14)):
                received += more
        except TimeoutError:
            raise
        except OSError:
            pass  # it was refused, and the connection closed, before all of it was read
    return received


def _request(dice: random.Random, grammar: Grammar) -> tuple[str, bytes]:
    path = dice.choice(PATHS[:4]) if dice.random() < 0.7 else dice.choice(PATHS)
    path = path.format(model=dice.choice(MODELS[:5]) if dice.random() < 0.9 else dice.choice(MODELS))
    body = _body(dice, grammar)
    headers = {"Host": "x", "Connection": "close", "Content-Length": str(len(body))}
    if dice.random() < 0.25:
        headers["Inference-Header-Content-Length"] = dice.choice(
            ("0", "1", str(len(body)), str(len(body) + 9), "-1", "x", "9" * 30)
        )
    if dice.random() < 0.1:
        headers["Content-Encoding"] = dice.choice(("gzip", "deflate", "br", ""))
    if dice.random() < 0.1:
        headers["Content-Length"] = dice.choice(("0", "-1", "x", str(len(body) + 1), "9" * 30))
    if dice.random() < 0.05:
        headers |= {f"X-{number}": "y" * 50 for number in range(dice.choice((1, 100)))}
    if dice.random() < 0.1:
        del headers["Content-Length"]
        headers["Transfer-Encoding"] = "chunked"
        body = _chunked(dice, body)
    lines = [f"{dice.choice(METHODS)} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    raw = ("\r\n".join(lines) + "\r\n\r\n").encode() + body
    return path, raw[: dice.randint(1, len(raw))] if dice.random() < 0.05 else raw


def _chunked(dice: random.Random, body: bytes) -> bytes:
    """In a few chunks."""
    size = dice.choice((7, 100, 4096))
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    end = dice.choice((b"0\r\n\r\n", b"0\r\n\r\n", b"", b"ffffffffffffffff\r\n", b"-1\r\n\r\n"))
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + end


def _body(dice: random.Random, grammar: Grammar) -> bytes:
    if dice.random() < 0.1:
        return dice.choice(
            (b"", b"[", b"[" * 5000, b"null", b"{}", b'{"inputs": 1}', b"\xff\xfe", b'{"inputs": [' + b"{}," * 3000)
        )
    inputs = [_tensor(dice, "TEXT", [dice.choice(TEXTS).decode(errors="replace") for _ in range(dice.choice((1, 1, 2, 5)))])]
    if dice.random() < 0.6:
        inputs.append(_tensor(dice, "OPTIONS", [grammar.options().decode(errors="replace")]))
    if dice.random() < 0.2:
        inputs.append(_tensor(dice, dice.choice(("MODEL", "SESSION", "COMMAND", "STEP", "QUERY", "X")), ["x"]))
    if dice.random() < 0.1:
        inputs.append(dice.choice(inputs))
    document: dict[str, object] = {"inputs": inputs}
    if dice.random() < 0.3:
        document["outputs"] = [
            {
                "name": dice.choice(("TRANSLATION", "CHUNK", "STATUS", "X")),
                "parameters": {"binary_data": dice.random() < 0.5},
            }
        ]
    if dice.random() < 0.3:
        document |= {"TEXT": "Hello.", "OPTIONS": "{}", "id": dice.choice(("1", "x" * 500))}
    text = json.dumps(document)
    if dice.random() < 0.15:
        text = text.replace("[1]", dice.choice(VALUES), 1)
    if dice.random() < 0.1:
        at = dice.randrange(len(text))
        text = text[:at] + text[at + 1 :]
    return text.encode()


def _tensor(dice: random.Random, name: str, values: list[str]) -> dict[str, object]:
    tensor: dict[str, object] = {"name": name, "datatype": "BYTES", "shape": [len(values)], "data": values}
    if dice.random() < 0.15:
        tensor["shape"] = [dice.choice(SIZES) for _ in range(dice.choice((0, 1, 2, 40)))]
    if dice.random() < 0.1:
        tensor["datatype"] = dice.choice(DATATYPES)
    if dice.random() < 0.1:
        del tensor[dice.choice(("name", "datatype", "shape", "data"))]
    if dice.random() < 0.1:
        tensor["data"] = dice.choice((None, 1, [1], [[1]], [None], {"a": 1}, [[["x"]]]))
    if dice.random() < 0.1:
        tensor["parameters"] = {"binary_data_size": dice.choice((0, 1, -1, 2**40, "x"))}
    return tensor
