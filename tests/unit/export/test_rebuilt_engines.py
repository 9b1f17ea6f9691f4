"""`dragoman build-engines`: engines really rebuilt in an existing bundle, which is whole at every moment."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from dragoman.bundle.integrity import check_files
from dragoman.bundle.manifest import Manifest, read_manifest
from dragoman.cli import main
from dragoman.errors import BundleError, EngineBuildError, UsageError
from dragoman.export.progress import Advance, QuietStages
from dragoman.export.tensorrt import BuildOptions, ProfileLimits, rebuild, rebuild_engines
from exported_graphs import Exported
from gpu_bundles import with_engines

trt = pytest.importorskip("tensorrt_rtx_bindings")

SMALL = BuildOptions(compute_capabilities=("8.6",), limits=ProfileLimits(max_batch=8, max_beams=4, cache_buckets=()))


@pytest.fixture
def bundle(tiny_fp32: Exported, tmp_path: Path) -> Path:
    """With engines that another release built."""
    manifest = with_engines(tiny_fp32, tmp_path / "bundle")
    engines = tuple(dataclasses.replace(engine, version="1.0.0.1") for engine in manifest.engines)
    (tmp_path / "bundle/manifest.json").write_text(dataclasses.replace(manifest, engines=engines).to_json())
    return tmp_path / "bundle"


def contents(bundle: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in bundle.iterdir()}


def test_rebuilt_engines_take_the_place_of_the_old_ones(bundle: Path) -> None:
    before = read_manifest(bundle)
    rebuilt = rebuild_engines(bundle, SMALL, QuietStages())
    assert read_manifest(bundle) == rebuilt
    check_files(bundle, rebuilt)
    assert {engine.role: engine.version for engine in rebuilt.engines} == dict.fromkeys(
        ("encoder", "decoder", "forced"), trt.__version__
    )
    assert {path.name for path in bundle.iterdir()} == {*rebuilt.files, "manifest.json"}
    assert not {engine.file for engine in before.engines} & set(rebuilt.files)
    graphs = {graph.file for graph in before.graphs} | {"weights.bin"}
    assert {name: rebuilt.files[name] for name in graphs} == {name: before.files[name] for name in graphs}
    decoder = next(engine for engine in rebuilt.engines if engine.role == "decoder")
    assert decoder.profiles[0].maximum["tokens"] == (8, 1)
    assert decoder.profiles[1].maximum["tokens"] == (4, 4)


def test_a_rebuilt_engine_is_one_that_tensorrt_reads(bundle: Path) -> None:
    """Its header names this release: without a GPU nothing else can be wrong with it but the GPU."""
    rebuilt = rebuild_engines(bundle, SMALL, QuietStages())
    runtime = trt.Runtime(trt.Logger(trt.Logger.ERROR))
    for engine in rebuilt.engines:
        validity, why = runtime.get_engine_validity((bundle / engine.file).read_bytes())
        diagnostics = trt.EngineInvalidityDiagnostics
        found = int(why)
        assert not found & int(diagnostics.VERSION_MISMATCH)
        assert not found & int(diagnostics.MALFORMED_ENGINE)
        assert validity in (trt.EngineValidity.VALID, trt.EngineValidity.SUBOPTIMAL, trt.EngineValidity.INVALID)


class Interrupted(QuietStages):
    def _advance(self, _name: str) -> Advance:
        def interrupt(_share: float) -> None:
            raise KeyboardInterrupt

        return interrupt


def test_an_interrupted_rebuild_leaves_the_bundle_as_it_was(bundle: Path) -> None:
    before = contents(bundle)
    with pytest.raises(KeyboardInterrupt):
        rebuild_engines(bundle, SMALL, Interrupted())
    assert contents(bundle) == before


def test_a_crash_between_two_renames_leaves_a_bundle_that_can_be_served(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, rename = read_manifest(bundle), Path.replace

    def full(self: Path, target: Path) -> Path:
        if target.name == "manifest.json":
            raise OSError(28, "No space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(EngineBuildError, match="No space left"):
        rebuild_engines(bundle, SMALL, QuietStages())
    assert read_manifest(bundle) == before
    check_files(bundle, before)


def test_a_bundle_that_was_tampered_with_is_not_built_from(bundle: Path) -> None:
    with (bundle / "weights.bin").open("r+b") as stream:
        stream.write(b"\xff\xff\xff\xff")
    with pytest.raises(BundleError, match=r"weights\.bin was changed"):
        rebuild_engines(bundle, SMALL, QuietStages())


def test_a_bundle_without_portable_graphs_must_be_exported_again(bundle: Path) -> None:
    manifest = read_manifest(bundle)
    native = tuple(dataclasses.replace(graph, lowering="native") for graph in manifest.graphs)
    (bundle / "manifest.json").write_text(dataclasses.replace(manifest, graphs=native).to_json())
    with pytest.raises(EngineBuildError, match=r"no portable graphs .*--target tensorrt"):
        rebuild_engines(bundle, SMALL, QuietStages())


def test_a_builder_that_fails_leaves_the_bundle_as_it_was(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(bundle)

    def fail(*_arguments: object, **_options: object) -> None:
        raise EngineBuildError("the builder died")

    monkeypatch.setattr(rebuild, "build_engines", fail)
    with pytest.raises(EngineBuildError, match="the builder died"):
        rebuild_engines(bundle, SMALL, QuietStages())
    assert contents(bundle) == before


def test_the_command_rebuilds_and_says_how_to_serve(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["build-engines", str(bundle), "--compute-capability", "8.9", "--max-batch", "4", "--max-beam-size", "2"]) == 0
    )
    said = capsys.readouterr().out
    assert "--device tensorrt" in said
    assert trt.__version__ in said
    manifest: Manifest = read_manifest(bundle)
    assert {engine.compute_capabilities for engine in manifest.engines} == {("8.9",)}
    assert "tensorrt" in json.loads((bundle / "manifest.json").read_text())["targets"]


def test_engines_without_scores_are_two(bundle: Path) -> None:
    with_scores = rebuild_engines(bundle, SMALL, QuietStages())
    assert {engine.role for engine in with_scores.engines} == {"encoder", "decoder", "forced"}
    command = ["build-engines", str(bundle), "--compute-capability", "8.6", "--max-batch", "4", "--max-beam-size", "2"]
    assert main([*command, "--without-scores"]) == 0
    manifest = read_manifest(bundle)
    assert {engine.role for engine in manifest.engines} == {"encoder", "decoder"}
    assert len(list(bundle.glob("*.engine"))) == 2
    check_files(bundle, manifest)


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(UsageError, match="max_batch=0"):
        ProfileLimits(max_batch=0)
