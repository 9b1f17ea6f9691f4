"""Devices: the execution providers and options that ONNX Runtime is given."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from dragoman.bundle.manifest import (
    Dimensions,
    Engine,
    Manifest,
    ModelCard,
    Precision,
    Profile,
    SpecialTokens,
    TokenizerFiles,
)
from dragoman.search import DecodingOptions
from dragoman.serving.runtime.providers import providers_for
from dragoman.serving.runtime.settings import RuntimeSettings


def manifest(precision: Precision = "fp16", engines: tuple[Engine, ...] = ()) -> Manifest:
    return Manifest(
        1,
        "0",
        ModelCard("en-de", "MarianMTModel", 1),
        Dimensions(8, 2, 4, 1, 1, 10, 10, 16, 16),
        SpecialTokens(1, 0, 1),
        DecodingOptions(),
        TokenizerFiles("marian", {}),
        precision,
        ("tensorrt",),
        (),
        {},
        engines=engines,
    )


def test_a_cpu_needs_nothing_else() -> None:
    assert providers_for(RuntimeSettings(), manifest(), "decoder") == [("CPUExecutionProvider", {})]


def test_cuda_comes_before_the_cpu_on_the_device_that_was_named() -> None:
    (cuda, options), (cpu, _) = providers_for(RuntimeSettings(device="cuda", device_id=3), manifest(), "encoder")
    assert (cuda, cpu, options["device_id"]) == ("CUDAExecutionProvider", "CPUExecutionProvider", "3")


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_tensorrt_takes_its_precision_from_the_graph_alone(precision: Precision) -> None:
    (name, options), *others = providers_for(RuntimeSettings(device="tensorrt"), manifest(precision), "decoder")
    assert name == "TensorrtExecutionProvider"
    assert (options["trt_fp16_enable"], options["trt_int8_enable"]) == ("False", "False")
    assert [other for other, _ in others] == ["CUDAExecutionProvider", "CPUExecutionProvider"]
    assert "trt_engine_cache_enable" not in options


def test_tensorrt_keeps_its_engines_where_it_is_told() -> None:
    settings = RuntimeSettings(device="tensorrt", engine_cache=Path("/engines"))
    (_, options), *_ = providers_for(settings, manifest(), "encoder")
    assert options["trt_engine_cache_path"] == "/engines"
    assert options["trt_engine_cache_prefix"].startswith("en-de-encoder-")


def test_tensorrt_takes_the_shapes_of_the_role_from_the_manifest() -> None:
    shapes = [{"tokens": (n, n + 1), "positions": (n, n + 1)} for n in (1, 8, 64)]
    decoder = Engine("decoder", "d.engine", "tensorrt", "10", "fp16", ("8.0",), (Profile("all", *shapes),), 1.0)
    encoder = dataclasses.replace(decoder, role="encoder", profiles=())
    (_, options), *_ = providers_for(RuntimeSettings(device="tensorrt"), manifest(engines=(encoder, decoder)), "decoder")
    assert options["trt_profile_min_shapes"] == "tokens:1x2,positions:1x2"
    assert options["trt_profile_opt_shapes"] == "tokens:8x9,positions:8x9"
    assert options["trt_profile_max_shapes"] == "tokens:64x65,positions:64x65"
    (_, plain), *_ = providers_for(RuntimeSettings(device="tensorrt"), manifest(engines=(encoder, decoder)), "encoder")
    assert "trt_profile_min_shapes" not in plain


def test_tensorrt_has_one_range_over_all_profiles_of_the_manifest() -> None:
    short = Profile("short", {"tokens": (1, 1)}, {"tokens": (8, 16)}, {"tokens": (32, 32)})
    long = Profile("long", {"tokens": (1, 33)}, {"tokens": (8, 64)}, {"tokens": (32, 128)})
    decoder = Engine("decoder", "d.engine", "tensorrt", "10", "fp16", ("8.0",), (short, long), 1.0)
    (_, options), *_ = providers_for(RuntimeSettings(device="tensorrt"), manifest(engines=(decoder,)), "decoder")
    assert (options["trt_profile_min_shapes"], options["trt_profile_max_shapes"]) == ("tokens:1x1", "tokens:32x128")
