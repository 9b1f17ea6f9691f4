"""The reference model, exported whole with int8 engines: calibration, graphs, engines and verification in one go."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.bundle.integrity import check_files
from dragoman.bundle.manifest import Manifest, read_manifest
from dragoman.export.pipeline import ExportOptions, export_bundle
from dragoman.export.progress import QuietStages

pytest.importorskip("tensorrt_rtx_bindings")
pytestmark = pytest.mark.timeout(1800)  # the first test of the module waits for the whole export

REFERENCE_MODEL = Path(__file__).resolve().parents[2] / "models" / "tatoeba-en-de"
SENTENCES = (
    "Where is the station?",
    "I have never been to Berlin, but my brother lives there.",
    "She asked him whether he could help her carry the boxes upstairs.",
    "Please close the window.",
)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("tensorrt")
    (place / "sentences.txt").write_text("\n".join(SENTENCES), encoding="utf-8")
    stages = QuietStages()
    options = ExportOptions(
        REFERENCE_MODEL,
        place / "bundle",
        precision="int8",
        targets=("tensorrt",),
        compute_capabilities=("7.5", "8.6"),
        verify_file=place / "sentences.txt",
    )
    export_bundle(options, stages)
    assert {"calibrate on real text", "TensorRT encoder", "TensorRT decoder"} <= set(stages.seconds)
    return place / "bundle"


@pytest.fixture(scope="module")
def manifest(bundle: Path) -> Manifest:
    return read_manifest(bundle)


def test_the_manifest_lists_every_engine_with_its_hash(bundle: Path, manifest: Manifest) -> None:
    assert {engine.role: engine.file for engine in manifest.engines} == {
        "encoder": "encoder.engine",
        "decoder": "decoder.engine",
        "forced": "forced.engine",
    }
    assert {engine.file for engine in manifest.engines} <= set(manifest.files)
    check_files(bundle, manifest)


def test_the_engines_were_built_for_the_chosen_gpus(manifest: Manifest) -> None:
    assert {engine.compute_capabilities for engine in manifest.engines} == {("7.5", "8.6")}


def test_the_decoder_has_a_profile_for_every_cache_length_up_to_the_longest(manifest: Manifest) -> None:
    decoder = next(engine for engine in manifest.engines if engine.role == "decoder")
    for kind in ("greedy", "beams"):
        profiles = [profile for profile in decoder.profiles if profile.name.startswith(kind)]
        assert {profile.minimum["self_key_0"][2] for profile in profiles} == {1}
        assert [profile.maximum["self_key_0"][2] for profile in profiles] == [32, 128, manifest.dimensions.max_target_tokens]


def test_quantised_graphs_stay_close_to_the_original(manifest: Manifest) -> None:
    assert manifest.verification is not None
    greedy = next(case for case in manifest.verification.cases if case.name == "greedy, batch 32")
    assert greedy.sentences == len(SENTENCES)
    assert greedy.chrf is not None
    assert greedy.chrf > 85


def test_an_int8_bundle_keeps_no_layer_of_this_model_in_fp32(manifest: Manifest) -> None:
    assert manifest.kept_in_fp32 == ()
