"""Native plans for Triton's tensorrt backend: the configuration, parsed by Triton's own description of it."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from dragoman.bundle.integrity import record_file
from dragoman.bundle.manifest import MANIFEST_NAME, Engine, Profile, read_manifest
from dragoman.errors import ServeError
from dragoman.serving.triton.plan_repository import main, write_plan_repository


@pytest.fixture
def bundle(reference_bundle: Path, tmp_path: Path) -> Path:
    """The reference bundle as a GPU machine would have written it: portable graphs, and plans with two profiles."""
    copied = tmp_path / "bundle"
    copied.mkdir()
    manifest = read_manifest(reference_bundle)
    for name in manifest.files:
        shutil.copyfile(reference_bundle / name, copied / name)
    engines = []
    for role in ("encoder", "decoder"):
        (copied / f"{role}.plan").write_bytes(b"plan of " + role.encode())
        profiles = tuple(Profile(name, {}, {}, {}) for name in ("short", "long"))
        engines.append(Engine(role, f"{role}.plan", "tensorrt", "11.2", "fp16", ("8.6",), profiles, 1.0))
    files = {**manifest.files, **{engine.file: record_file(copied / engine.file) for engine in engines}}
    graphs = tuple(
        dataclasses.replace(graph, lowering="portable", in_place_cache=False)
        for graph in {graph.role: graph for graph in manifest.graphs}.values()
    )
    changed = dataclasses.replace(manifest, graphs=graphs, engines=tuple(engines), files=files)
    (copied / MANIFEST_NAME).write_text(changed.to_json(), encoding="utf-8")
    return copied


def test_triton_reads_the_configuration_and_finds_every_tensor_of_the_graph(bundle: Path, tmp_path: Path) -> None:
    write_plan_repository(bundle, tmp_path / "models")
    manifest = read_manifest(bundle)
    for role in ("encoder", "decoder"):
        text = (tmp_path / "models" / f"{role}_plan" / "config.pbtxt").read_text(encoding="utf-8")
        config = text_format.Parse(text, model_config_pb2.ModelConfig())
        graph = manifest.graph(role, "portable")
        assert (config.platform, config.max_batch_size) == ("tensorrt_plan", 0)
        assert [tensor.name for tensor in config.input] == [spec.name for spec in graph.inputs]
        assert [tensor.name for tensor in config.output] == [spec.name for spec in graph.outputs]
        assert all(tensor.data_type != model_config_pb2.TYPE_INVALID for tensor in [*config.input, *config.output])
        assert list(config.instance_group[0].profile) == ["0", "1"]
        assert (tmp_path / "models" / f"{role}_plan" / "1" / "model.plan").read_bytes() == b"plan of " + role.encode()


def test_a_bundle_without_plans_says_how_to_get_them(reference_bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(ServeError, match="--target tensorrt"):
        write_plan_repository(reference_bundle, tmp_path / "models")
    assert not (tmp_path / "models").exists()


def test_nothing_is_overwritten(bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "models").mkdir()
    assert main([str(bundle), str(tmp_path / "models")]) == 1
    assert "exists" in capsys.readouterr().err
