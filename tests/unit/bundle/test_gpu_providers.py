"""What export and server both ask ONNX Runtime for on a GPU: an engine is found again only under the same name."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from dragoman.bundle.gpu_providers import engine_cache_prefix, tensorrt_providers, usual_shapes
from dragoman.bundle.manifest import Engine, FileRecord, Manifest, Profile
from dragoman.errors import BundleError


@pytest.fixture
def bundled(manifest: Manifest) -> Manifest:
    names = ("decoder.portable.onnx", "weights.bin", "source.spm", "d.engine")
    files = {name: FileRecord("0" * 64, 1) for name in names}
    shapes = [{"tokens": (n, n)} for n in (1, 8, 64)]
    engine = Engine("decoder", "d.engine", "tensorrt_rtx", "1.7", "fp32", ("8.6",), (Profile("all", *shapes),), 1.0)
    return dataclasses.replace(manifest, files=files, engines=(engine,))


def changed(manifest: Manifest, name: str) -> Manifest:
    """The same bundle with other bytes in the file `name`."""
    return dataclasses.replace(manifest, files={**manifest.files, name: FileRecord("f" * 64, 1)})


@pytest.mark.parametrize("name", ["weights.bin", "decoder.portable.onnx"])
def test_a_model_with_other_weights_or_graphs_never_gets_the_engines_of_this_one(bundled: Manifest, name: str) -> None:
    assert engine_cache_prefix(changed(bundled, name), "decoder") != engine_cache_prefix(bundled, "decoder")


@pytest.mark.parametrize("name", ["source.spm", "d.engine"])
def test_files_that_no_engine_is_built_from_leave_the_cache_valid(bundled: Manifest, name: str) -> None:
    assert engine_cache_prefix(changed(bundled, name), "decoder") == engine_cache_prefix(bundled, "decoder")


def test_encoder_and_decoder_keep_their_engines_apart(bundled: Manifest) -> None:
    assert engine_cache_prefix(bundled, "encoder") != engine_cache_prefix(bundled, "decoder")


def test_where_the_cache_lies_is_no_part_of_an_engines_name(bundled: Manifest) -> None:
    here, there = (
        tensorrt_providers(bundled, "decoder", engine_cache=Path(place))[0][1] for place in ("/here", "/elsewhere/there")
    )
    assert {key for key in here if here[key] != there[key]} == {"trt_engine_cache_path", "trt_timing_cache_path"}


def test_the_usual_shapes_are_the_ones_that_the_engine_is_tuned_for(bundled: Manifest) -> None:
    (_, options), *_ = tensorrt_providers(bundled, "decoder")
    assert options["trt_profile_opt_shapes"] == "tokens:8x8"
    assert usual_shapes(bundled, "decoder") == {"tokens": (8, 8)}


def test_a_bundle_without_shapes_says_how_to_get_them(bundled: Manifest) -> None:
    with pytest.raises(BundleError, match=r"no shapes for a TensorRT encoder; .*--target tensorrt"):
        usual_shapes(bundled, "encoder")
