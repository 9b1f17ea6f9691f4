"""Everything about engines that needs no TensorRT: options, profiles, flavours, progress."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path

import pytest

from dragoman.bundle.manifest import Dimensions, Graph, TensorSpec
from dragoman.errors import EngineBuildError, UsageError
from dragoman.export.tensorrt import BuildOptions, ProfileLimits, Toolchain, find_toolchain, parse_capabilities, toolchain
from dragoman.export.tensorrt.compilation import Job
from dragoman.export.tensorrt.options import Flavour
from dragoman.export.tensorrt.phases import Phases
from dragoman.export.tensorrt.profiles import profiles_of
from dragoman.export.tensorrt.toolchain import choose_flavour, chosen_capabilities, import_flavour

DIMENSIONS = Dimensions(
    d_model=8,
    heads=2,
    head_dim=4,
    encoder_layers=1,
    decoder_layers=1,
    source_vocabulary=11,
    target_vocabulary=11,
    max_source_tokens=100,
    max_target_tokens=200,
)
ENCODER = Graph(
    role="encoder",
    lowering="portable",
    file="encoder.portable.onnx",
    opset=18,
    inputs=(TensorSpec("source_ids", "int64", ("batch", "source")), TensorSpec("source_lengths", "int32", ("batch",))),
    outputs=(),
)
DECODER = Graph(
    role="decoder",
    lowering="portable",
    file="decoder.portable.onnx",
    opset=18,
    inputs=(
        TensorSpec("tokens", "int64", ("groups", "width")),
        TensorSpec("cross_key_0", "float32", ("groups", 2, "source", 4)),
        TensorSpec("self_key_0", "float32", ("past_rows", 2, "cache", 4)),
        TensorSpec("parents", "int64", ("rows",)),
        TensorSpec("scored_tokens", "int64", ("rows", "scored_tokens")),
    ),
    outputs=(),
)
FORCED = Graph(
    role="forced",
    lowering="portable",
    file="forced.portable.onnx",
    opset=18,
    inputs=(
        TensorSpec("tokens", "int64", ("batch", "target")),
        TensorSpec("targets", "int64", ("batch", "piece")),
        TensorSpec("cross_key_0", "float32", ("batch", 2, "source", 4)),
    ),
    outputs=(),
)
RTX = Toolchain("tensorrt_rtx", "1.7", ("7.5", "8.6", "12.0"))


def test_an_encoder_has_one_profile_up_to_the_limits() -> None:
    (profile,) = profiles_of(ENCODER, DIMENSIONS, ProfileLimits(max_batch=16))
    assert profile.minimum == {"source_ids": (1, 1), "source_lengths": (1,)}
    assert profile.maximum == {"source_ids": (16, 100), "source_lengths": (16,)}


def test_a_decoder_has_profiles_for_each_cache_bucket_and_for_the_longest_target() -> None:
    profiles = profiles_of(DECODER, DIMENSIONS, ProfileLimits(cache_buckets=(32, 64, 512)))
    lengths = [(profile.minimum["self_key_0"][2], profile.maximum["self_key_0"][2]) for profile in profiles]
    assert lengths == [(1, 32), (1, 64), (1, 200)] * 2


def test_greedy_rows_and_beams_have_profiles_of_their_own() -> None:
    greedy, beams = profiles_of(DECODER, DIMENSIONS, ProfileLimits(max_batch=64, max_beams=8, cache_buckets=()))
    assert (greedy.minimum["tokens"], greedy.maximum["tokens"]) == ((1, 1), (64, 1))
    assert (beams.minimum["tokens"], beams.maximum["tokens"]) == ((1, 2), (32, 8))


def test_greedy_rows_score_no_chosen_tokens_and_beams_do() -> None:
    greedy, beams = profiles_of(DECODER, DIMENSIONS, ProfileLimits(cache_buckets=()))
    assert greedy.maximum["scored_tokens"][1] == 1
    assert beams.minimum["scored_tokens"][1] == beams.usual["scored_tokens"][1] == 1
    assert beams.maximum["scored_tokens"][1] == 128


def test_forced_decoding_reads_whole_targets_and_returns_a_piece() -> None:
    (profile,) = profiles_of(FORCED, DIMENSIONS, ProfileLimits())
    assert profile.maximum == {"tokens": (1, 200), "targets": (1, 64), "cross_key_0": (1, 2, 100, 4)}


@pytest.mark.parametrize("which", ["minimum", "usual", "maximum"])
def test_a_profile_has_as_many_rows_as_groups_times_beams(which: str) -> None:
    for profile in profiles_of(DECODER, DIMENSIONS, ProfileLimits(max_batch=3, max_beams=5)):
        shapes = getattr(profile, which)
        groups, width = shapes["tokens"]
        assert shapes["parents"] == (groups * width,)
        assert shapes["self_key_0"][0] == groups * width


def test_the_usual_shape_lies_within_small_limits() -> None:
    limits = ProfileLimits(max_batch=1, max_beams=1, max_source_tokens=5, cache_buckets=())
    (profile,) = profiles_of(DECODER, DIMENSIONS, limits)
    assert profile.usual["cross_key_0"] == (1, 2, 5, 4)


def test_engines_can_not_be_longer_than_the_model() -> None:
    with pytest.raises(UsageError, match=r"max_source_tokens=101.*100"):
        profiles_of(ENCODER, DIMENSIONS, ProfileLimits(max_source_tokens=101))


def test_a_dimension_without_limits_is_named() -> None:
    graph = Graph("encoder", "portable", "e.onnx", 18, (TensorSpec("pixels", "float32", ("batch", "height")),), ())
    with pytest.raises(EngineBuildError, match="'height' of pixels"):
        profiles_of(graph, DIMENSIONS, ProfileLimits())


@pytest.mark.parametrize(
    "wrong", [{"max_batch": 0}, {"max_beams": -1}, {"cache_buckets": (64, 32)}, {"cache_buckets": (0, 32)}]
)
def test_impossible_limits_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        ProfileLimits(**wrong)


def test_capabilities_are_read_as_people_write_them() -> None:
    assert parse_capabilities(["12.0", "8.6, 7.5", "8.6"]) == ("7.5", "8.6", "12.0")


@pytest.mark.parametrize("text", ["86", "sm_86", "8.6.1", "", "8,6"])
def test_what_is_not_a_capability_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="compute capability"):
        parse_capabilities([text])


def test_standard_tensorrt_is_used_where_it_is_asked_for_and_a_gpu_is_present() -> None:
    assert choose_flavour("tensorrt", installed={"tensorrt"}.__contains__, gpu=lambda: "9.0") == "tensorrt"


@pytest.mark.parametrize(
    ("wanted", "installed", "way_out"),
    [
        ("tensorrt_rtx", set(), r"pip install 'dragoman\[tensorrt\]'"),
        ("tensorrt", {"tensorrt_rtx"}, r"pip install 'dragoman\[tensorrt-standard\]'"),
        ("tensorrt", {"tensorrt"}, "use the flavour tensorrt_rtx"),
    ],
)
def test_the_error_for_an_impossible_flavour_has_a_remedy(wanted: Flavour, installed: set[str], way_out: str) -> None:
    with pytest.raises(EngineBuildError, match=way_out):
        choose_flavour(wanted, installed=installed.__contains__, gpu=lambda: None)


@pytest.fixture
def standard_tensorrt(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with standard TensorRT and an 8.9 GPU, as far as its choice is concerned."""
    module = types.ModuleType("tensorrt")
    module.__version__ = "10.9.0"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tensorrt", module)
    monkeypatch.setattr(toolchain, "_installed", {"tensorrt"}.__contains__)
    monkeypatch.setattr(toolchain, "present_compute_capability", lambda: "8.9")


@pytest.mark.usefixtures("standard_tensorrt")
def test_standard_tensorrt_builds_for_the_gpu_that_is_there() -> None:
    assert find_toolchain(BuildOptions("tensorrt")) == Toolchain("tensorrt", "10.9.0", ("8.9",))


@pytest.mark.usefixtures("standard_tensorrt")
def test_standard_tensorrt_can_not_build_for_another_gpu() -> None:
    with pytest.raises(EngineBuildError, match=r"tensorrt 10\.9\.0 can't build for compute capability 9\.0 .*it can: 8\.9"):
        find_toolchain(BuildOptions("tensorrt", compute_capabilities=("9.0",)))


def test_a_package_whose_library_is_broken_is_a_build_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_name: str) -> types.ModuleType:
        raise OSError("libcudart.so.12: cannot open shared object file")

    monkeypatch.setattr(toolchain.importlib, "import_module", broken)
    with pytest.raises(EngineBuildError, match=r"tensorrt can't be loaded: libcudart"):
        import_flavour("tensorrt")


def test_fp32_products_leave_turing_out() -> None:
    assert chosen_capabilities(RTX, BuildOptions(), wide_products=["fp32"]) == ("8.6", "12.0")


def test_fp16_engines_are_built_for_every_gpu() -> None:
    assert chosen_capabilities(RTX, BuildOptions()) == ("7.5", "8.6", "12.0")


def test_asking_for_fp32_on_turing_is_refused() -> None:
    with pytest.raises(EngineBuildError, match=r"7\.5 can't multiply matrices in fp32"):
        chosen_capabilities(RTX, BuildOptions(compute_capabilities=("7.5", "8.6")), wide_products=["fp32"])


@pytest.mark.parametrize("wide", ["fp32", "bfloat16"])
def test_standard_tensorrt_multiplies_in_fp32_on_turing_and_never_in_bfloat16(wide: str) -> None:
    turing = Toolchain("tensorrt", "11.4", ("7.5",))
    if wide == "fp32":
        assert chosen_capabilities(turing, BuildOptions("tensorrt"), wide_products=[wide]) == ("7.5",)
        return
    with pytest.raises(EngineBuildError, match=r"7\.5 can't multiply matrices in bfloat16 with tensorrt "):
        chosen_capabilities(turing, BuildOptions("tensorrt"), wide_products=[wide])


def test_the_shares_of_nested_phases_add_up() -> None:
    phases = Phases()
    phases.start("build", None, 4)
    phases.step("build", 0)
    assert phases.share == 0.25
    phases.start("optimise", "build", 2)
    phases.step("optimise", 0)
    assert phases.share == 0.375
    phases.finish("optimise")
    assert phases.share == 0.375  # it never goes back
    phases.step("build", 1)
    assert phases.share == 0.5


def test_a_job_survives_its_way_to_the_worker() -> None:
    profiles = profiles_of(DECODER, DIMENSIONS, ProfileLimits())
    job = Job("tensorrt_rtx", Path("a/decoder.onnx"), Path("a/decoder.engine"), ("8.6",), profiles)
    text = job.to_json()
    assert json.loads(text)["engine"] == "a/decoder.engine"
    assert Job.from_json(text) == job
