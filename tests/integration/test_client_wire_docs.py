"""The examples of docs/wire.md, run as they are written."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from served import Server

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "wire.md"


def example(language: str, having: str) -> str:
    """The code block of that language with `having` in it."""
    blocks = re.findall(rf"```{language}\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    (found,) = [block for block in blocks if having in block]
    return found


def run(command: list[str], folder: Path, **environment: str) -> str:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=600, check=False, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With the descriptor set and the request of the shell example."""
    (tmp_path / "describe.py").write_text(example("python", "FileDescriptorSet"))
    run([sys.executable, "describe.py"], tmp_path)
    (tmp_path / "request.json").write_text(example("json", "model_name"))
    return tmp_path


@pytest.fixture(scope="session")
def npm_modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """@grpc/grpc-js, @grpc/proto-loader and buf."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("node and npm are not installed")
    place = tmp_path_factory.mktemp("npm")
    packages = ["@grpc/grpc-js", "@grpc/proto-loader", "@bufbuild/buf"]
    command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(place), *packages]
    installed = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if installed.returncode != 0:
        pytest.skip(f"npm can't install here: {installed.stderr.strip()[-200:]}")
    return place / "node_modules"


def check_json_answer(answer: str) -> None:
    """The answer that grpcurl and buf print for the request of the document."""
    (raw,) = json.loads(answer)["rawOutputContents"]
    content = base64.b64decode(raw)
    assert int.from_bytes(content[:4], "little") == len(content) - 4
    assert content[4:].decode()


def test_the_python_example_translates(server: Server, tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(example("python", "InferInput"))
    assert run([sys.executable, "example.py", server.grpc], tmp_path) == "Wo ist der Bahnhof?\n"


def test_the_javascript_example_translates(server: Server, folder: Path, npm_modules: Path) -> None:
    (folder / "example.js").write_text(example("js", "grpc-js"))
    shown = run(["node", "example.js", server.grpc], folder, NODE_PATH=str(npm_modules))
    assert shown.splitlines() == ["Wo ist der Bahnhof?", "Es regnet."]


def test_the_buf_example_translates(server: Server, folder: Path, npm_modules: Path) -> None:
    path = f"{npm_modules / '.bin'}:{os.environ['PATH']}"
    check_json_answer(run(["sh", "-c", example("sh", "buf curl")], folder, SERVER=server.grpc, PATH=path))


GRPCURL = """#!/bin/sh
test "$1 $2 $4 $5" = "-plaintext -protoset -d @" && test $# = 7 || exit 64
exec buf curl --protocol grpc --http2-prior-knowledge --schema "$3" --data @- "http://$6/$7"
"""
"""Takes the flags of the example as grpcurl does, and sends the request with buf: grpcurl itself is on no package index."""


def test_the_grpcurl_example_translates(server: Server, folder: Path, npm_modules: Path) -> None:
    path = f"{npm_modules / '.bin'}:{os.environ['PATH']}"
    if shutil.which("grpcurl") is None:
        (folder / "grpcurl").write_text(GRPCURL)
        (folder / "grpcurl").chmod(0o755)
        path = f"{folder}:{path}"
    check_json_answer(run(["sh", "-c", example("sh", "grpcurl")], folder, SERVER=server.grpc, PATH=path))


def test_the_document_names_every_tensor_option_and_code() -> None:
    from dragoman.client.options import RequestOptions
    from dragoman.wire import BUNDLE_FIELDS, ERROR_FIELDS, MODELS, STATUS_FIELDS, ErrorCode

    text = DOCUMENT.read_text(encoding="utf-8")
    names = {tensor.name for model in MODELS for tensor in (*model.inputs, *model.outputs)} | set(ErrorCode.__members__)
    names |= {model.name for model in MODELS} | set(RequestOptions.__annotations__) - {"timeout_s"}
    names |= {*BUNDLE_FIELDS, *ERROR_FIELDS, *STATUS_FIELDS}
    assert [name for name in sorted(names) if name not in text] == []
