"""A tiny model exported whole with `--engine-cache`: the bundle comes first, and stays when the cache can't be filled."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import onnxruntime
import pytest
from rich.console import Console

from dragoman.bundle.gpu_providers import TENSORRT, engine_cache_prefix
from dragoman.bundle.integrity import check_files
from dragoman.bundle.manifest import Engine, Manifest, read_manifest
from dragoman.errors import EngineCacheError
from dragoman.export import pipeline
from dragoman.export.pipeline import ExportOptions, export_bundle
from dragoman.export.progress import Advance, QuietStages
from dragoman.export.report import print_report

pytest.importorskip("tensorrt_rtx_bindings")
pytestmark = pytest.mark.skipif(
    TENSORRT in onnxruntime.get_available_providers(), reason="is about an ONNX Runtime without TensorRT"
)


@dataclass(frozen=True)
class Unfilled:
    """An export whose last stage failed."""

    place: Path
    stages: list[str]
    said: str


def options(checkpoint: Path, place: Path) -> ExportOptions:
    return ExportOptions(
        checkpoint,
        place / "bundle",
        targets=("tensorrt",),
        compute_capabilities=("8.6",),
        engine_cache=place / "engines",
        verify=False,
    )


@pytest.fixture(scope="module")
def unfilled(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Unfilled:
    """As when the GPU is lost after the first look: the real worker then meets the real ONNX Runtime."""
    place, stages = tmp_path_factory.mktemp("unfilled"), QuietStages()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pipeline, "check_engine_cache", lambda _directory: None)
        with pytest.raises(EngineCacheError) as failed:
            export_bundle(options(tiny_checkpoint, place), stages)
    return Unfilled(place, list(stages.seconds), str(failed.value))


def test_a_cache_that_can_not_be_filled_leaves_a_complete_bundle_and_says_so(unfilled: Unfilled) -> None:
    bundle = unfilled.place / "bundle"
    assert f"{bundle} is complete and can be served" in unfilled.said
    assert f"could not start {TENSORRT}" in unfilled.said
    assert unfilled.stages[-2:] == ["write the manifest", "fill the engine cache"]
    check_files(bundle, read_manifest(bundle))
    assert [path.name for path in unfilled.place.iterdir()] == ["bundle"]


def test_the_cache_is_filled_from_the_finished_bundle_and_the_report_says_how_to_serve_it(
    tiny_checkpoint: Path,
    tmp_path: Path,
    unfilled: Unfilled,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    seen = []

    def filled(bundle: Path, directory: Path, advance: Advance) -> None:
        check_files(bundle, read_manifest(bundle))
        seen.append((bundle, directory))
        advance(1.0)

    monkeypatch.setattr(pipeline, "check_engine_cache", lambda _directory: None)
    monkeypatch.setattr(pipeline, "fill_engine_cache", filled)
    built = read_manifest(unfilled.place / "bundle").engines  # building them once more would take seconds and say nothing

    def copied(directory: Path, *_args: object, **_named: object) -> tuple[Engine, ...]:
        for engine in built:
            shutil.copy(unfilled.place / "bundle" / engine.file, directory)
        return built

    monkeypatch.setattr(pipeline, "build_engines", copied)
    report = export_bundle(options(tiny_checkpoint, tmp_path))
    assert seen == [(tmp_path / "bundle", tmp_path / "engines")]
    print_report(report, Console(width=500))
    assert f"--bundle {tmp_path}/bundle --device tensorrt --engine-cache {tmp_path}/engines" in capsys.readouterr().out
    # Exported again, a model finds the engines it has.
    assert prefixes(report.manifest) == prefixes(read_manifest(unfilled.place / "bundle"))


def prefixes(manifest: Manifest) -> list[str]:
    return [engine_cache_prefix(manifest, role) for role in ("encoder", "decoder")]
