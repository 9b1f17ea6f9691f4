"""Whatever comes and goes on a GPU, every request gets the tokens that the CPU gives it alone.

The GPU is the double: it computes with ONNX Runtime, but only when it is waited for, in memory that holds poison.
"""

from __future__ import annotations

import gc
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.bundle.manifest import Manifest
from dragoman.errors import Cancelled, DeadlineExceeded, InvalidRequest, Overloaded
from dragoman.search import DecodingOptions
from dragoman.serving.engine import EngineLimits, Finished, Sequence
from dragoman.serving.engine.forced_decoding import Forcing
from dragoman.serving.engine.runtime import Runtime
from dragoman.serving.in_process import model_facts
from dragoman.serving.runtime.portable import PortableRuntime
from dragoman.serving.runtime.settings import RuntimeSettings
from dragoman.serving.runtime.tensorrt import TensorRtRuntime
from exported_graphs import Exported, export
from gpu_bundles import with_engines
from gpu_double import CudaDouble, TensorRtDouble, importing_doubles
from stepped_engine import SteppedEngine

TIGHT = EngineLimits(max_rows=10, max_beam_size=4, max_queue_requests=6, encode_tokens_per_step=24, target_tokens_per_row=8)


class Gpu:
    """A bundle, open on the double and on the CPU."""

    def __init__(self, bundle: Path, manifest: Manifest) -> None:
        self.cuda = CudaDouble()
        self.trt = TensorRtDouble(self.cuda)
        self.trt.know(bundle, manifest)
        self.runtime = TensorRtRuntime(bundle, manifest, importing=importing_doubles(self.cuda, self.trt))
        self.model = model_facts(manifest)
        self.runtime.contract(TIGHT, self.model)
        self.cpu = PortableRuntime(bundle, manifest, RuntimeSettings(threads=1))
        self.alone = cache(self._alone)

    def _alone(self, source: tuple[int, ...], options: DecodingOptions, forcing: Forcing | None) -> Sequence:
        world = World(self, self.cpu, EngineLimits())
        sequence = Sequence(source, options, forcing=forcing)
        world.engine.submit(sequence)
        world.finish()
        assert sequence.error is None
        return sequence


class World(SteppedEngine):
    """A stepped engine on the GPU, or beside it."""

    def __init__(self, gpu: Gpu, runtime: Runtime, limits: EngineLimits = TIGHT) -> None:
        super().__init__(runtime, gpu.model, limits)

    @property
    def finished(self) -> list[Sequence]:
        return [event.sequence for event in self.events if isinstance(event, Finished)]


SHORTLIST = (0, *range(3, 50, 2))


@pytest.fixture(scope="module")
def gpu(tiny_fp32: Exported, tmp_path_factory: pytest.TempPathFactory) -> Gpu:
    bundle = tmp_path_factory.mktemp("gpu") / "bundle"
    return Gpu(bundle, with_engines(tiny_fp32, bundle))


@pytest.fixture(scope="module")
def short_gpu(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Gpu:
    """With a shortlist."""
    directory = tmp_path_factory.mktemp("gpu")
    return Gpu(
        directory / "bundle",
        with_engines(
            export(directory / "graphs", tiny_checkpoint, ("portable",), shortlist=SHORTLIST), directory / "bundle"
        ),
    )


@st.composite
def some_options(draw: st.DrawFn) -> DecodingOptions:
    width = draw(st.sampled_from([1, 1, 2, 3, 4]))
    longest = draw(st.integers(1, 31))
    return DecodingOptions(
        beam_size=width,
        num_hypotheses=draw(st.integers(1, width)),
        max_length=longest,
        min_length=draw(st.integers(0, longest)),
        no_repeat_ngram_size=draw(st.sampled_from([0, 0, 2])),
        phrases=draw(st.sampled_from([(), (), (((9, 2),),), (((4,), (5, 6)), ((7,),))])) if width > 1 else (),
        bad_words=draw(st.sampled_from([((52,),), ((52,), (3, 4))])),
        prefix=draw(st.sampled_from([(), (), (5,)])),
        sampling=width == 1 and draw(st.booleans()),
        top_k=5,
        seed=draw(st.integers(0, 3)),
    )


SOURCES = st.lists(st.integers(1, 51), min_size=1, max_size=31).map(tuple)
ARRIVAL = st.tuples(
    st.just("submit"),
    st.tuples(
        SOURCES,
        some_options(),
        st.sampled_from(["interactive", "batch"]),
        st.none() | st.integers(0, 20),
        st.sampled_from([None, None, Forcing(), Forcing(targets=((7, 9, 0), (5,)))]),
    ),
)
ACTIONS = st.lists(
    ARRIVAL | st.tuples(st.just("step"), st.integers(1, 6)) | st.tuples(st.just("cancel"), st.integers(0, 30)), max_size=30
)


@settings(max_examples=60, deadline=None)
@given(actions=ACTIONS)
def test_every_sequence_gets_the_tokens_and_scores_of_the_cpu(gpu: Gpu, actions: list) -> None:
    play(gpu, actions)


@settings(max_examples=20, deadline=None)
@given(actions=ACTIONS)
def test_every_sequence_gets_the_tokens_and_scores_of_the_cpu_with_a_shortlist(short_gpu: Gpu, actions: list) -> None:
    play(short_gpu, actions)


def play(gpu: Gpu, actions: list) -> None:
    world = World(gpu, gpu.runtime)
    accepted: dict[int, Sequence] = {}
    cancelled: set[Sequence] = set()
    for number, (kind, what) in enumerate(actions):
        if kind == "submit":
            source, options, priority, patience, forcing = what
            deadline_s = None if patience is None else world.now_s + patience
            sequence = Sequence(
                source, options, priority=priority, deadline_s=deadline_s, forcing=forcing, owner=(options, forcing)
            )
            try:
                world.engine.submit(sequence)
            except (Overloaded, InvalidRequest):
                continue
            accepted[number] = sequence
        elif kind == "cancel":
            if what in accepted:
                cancelled.add(accepted[what])
                world.engine.cancel(accepted[what])
        else:
            for _ in range(what):
                world.step()
    world.finish()
    assert set(world.finished) == set(accepted.values())
    for sequence in world.finished:
        if isinstance(sequence.error, (Cancelled, DeadlineExceeded)):
            assert sequence in cancelled or sequence.deadline_s is not None
            continue
        assert sequence.error is None
        alone = gpu.alone(sequence.source, *sequence.owner)
        for ours, wanted in zip(sequence.hypotheses, alone.hypotheses, strict=True):
            assert ours.tokens == wanted.tokens
            assert ours.score == pytest.approx(wanted.score, abs=1e-4)
        for read, expected in zip(sequence.forced, alone.forced, strict=True):
            assert read.tokens == expected.tokens
            np.testing.assert_allclose(read.log_probs, expected.log_probs, atol=1e-4)
            np.testing.assert_allclose(read.alignment, expected.alignment, atol=1e-4)
    world.engine.close()


def test_an_engine_that_is_gone_has_given_all_memory_back(gpu: Gpu) -> None:
    before = held(gpu)
    world = World(gpu, gpu.runtime)
    for length in (3, 20, 9):
        world.engine.submit(Sequence(tuple(range(1, length)), DecodingOptions(beam_size=2, max_length=25)))
    world.finish()
    world.engine.close()
    del world
    assert held(gpu) == before


def held(gpu: Gpu) -> int:
    """Allocations of decoders; what the encoder is sent its sources with stays."""
    gc.collect()
    with gpu.runtime.device:
        gpu.runtime.device.synchronise()
    return len(gpu.cuda.memories) - 2 * len(gpu.runtime._staging)


def test_a_step_that_changes_nothing_repeats_its_cuda_graph_and_sends_no_cache(gpu: Gpu) -> None:
    world = World(gpu, gpu.runtime)
    for start in (1, 4, 9):
        world.engine.submit(Sequence(tuple(range(start, start + 5)), DecodingOptions(max_length=30, min_length=30)))
    for _ in range(3):
        world.step()
    decoder = gpu.trt.engines["decoder"]
    replays, launches = decoder.replays, gpu.cuda.launches
    del gpu.cuda.copied[:]
    while world.engine.busy:
        world.engine.wait()
        world.step()
    steps = gpu.cuda.launches - launches
    assert steps > 10
    assert decoder.replays - replays >= steps - 4  # the target's bucket grows once: a graph a side, and its first runs
    moved = [count for direction, count in gpu.cuda.copied if direction != "within"]
    assert max(moved) <= 1024
    assert sum(moved) / steps < 2048
