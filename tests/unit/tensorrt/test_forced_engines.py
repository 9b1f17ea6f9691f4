"""Scores, alignments and scored tokens on the double of a GPU: the numbers of the CPU, in pieces of any size."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dragoman.bundle.manifest import Manifest
from dragoman.errors import BundleError, InvalidRequest
from dragoman.serving.engine import Engine, EngineLimits, Sequence
from dragoman.serving.engine.forced_decoding import Forcing
from dragoman.serving.engine.runtime import Encoded, ForcedPiece, Runtime
from dragoman.serving.in_process import model_facts
from dragoman.serving.runtime.portable import PortableRuntime
from dragoman.serving.runtime.settings import RuntimeSettings
from dragoman.serving.runtime.tensorrt import TensorRtRuntime
from dragoman.serving.runtime.tensorrt.decoder import TensorRtDecoder
from dragoman.serving.runtime.tensorrt.kv_cache import EncodedTensor
from dragoman.serving.runtime.tensorrt.staging import Staging
from gpu_double import Fault
from gpu_machine import Machine, step

SOURCE, TARGET = [5, 9, 11, 6, 20, 3], [7, 30, 8, 12, 25, 4, 7, 9, 41, 0]


def with_maxima(manifest: Manifest, **maxima: int) -> Manifest:
    """Engines whose profiles end at these sizes of the last axis of these inputs."""

    def changed(profile: Any) -> Any:
        shapes = {
            name: (*shape[:-1], min(shape[-1], maxima[name]) if name in maxima else shape[-1])
            for name, shape in profile.maximum.items()
        }
        return dataclasses.replace(profile, maximum=shapes)

    engines = tuple(
        dataclasses.replace(engine, profiles=tuple(map(changed, engine.profiles))) for engine in manifest.engines
    )
    return dataclasses.replace(manifest, engines=engines)


@pytest.fixture
def in_pieces(machine: Machine) -> TensorRtRuntime:
    """An engine that tells four tokens at a time."""
    manifest = with_maxima(machine.manifest, targets=4, target_positions=4)
    machine.trt.know(machine.bundle, manifest)
    return machine.open(manifest)


@pytest.fixture
def cpu(machine: Machine) -> PortableRuntime:
    return PortableRuntime(machine.bundle, machine.manifest, RuntimeSettings(threads=1))


def read(runtime: Runtime, source: list[int], target: list[int], pieces: int, candidates: int = 3) -> ForcedPiece:
    forced = runtime.forced
    assert forced is not None
    reader = forced.reader(runtime.encode([source]), len(target))
    fed = [52, *target[:-1]]
    found = [
        reader.read(fed[begin : begin + pieces], target[begin : begin + pieces], candidates)
        for begin in range(0, len(fed), pieces)
    ]
    return ForcedPiece(*(np.concatenate(parts) for parts in zip(*found, strict=True)))


def assert_equal(found: ForcedPiece, wanted: ForcedPiece) -> None:
    np.testing.assert_array_equal(found.best_tokens, wanted.best_tokens)
    for one, other in ((found[at], wanted[at]) for at in (0, 1, 3)):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("length", [1, 4, 5, 10])
def test_a_target_scores_and_aligns_as_on_the_cpu(in_pieces: TensorRtRuntime, cpu: PortableRuntime, length: int) -> None:
    assert in_pieces.forced is not None
    assert in_pieces.forced.tokens_at_once == 4
    wanted = read(cpu, SOURCE, TARGET[:length], 64)
    found = read(in_pieces, SOURCE, TARGET[:length], 4)
    assert found.alignment.shape == (length, len(SOURCE))
    assert_equal(found, wanted)


def test_readers_of_different_targets_do_not_disturb_each_other(in_pieces: TensorRtRuntime, cpu: PortableRuntime) -> None:
    work = [(SOURCE[:length], TARGET[length:]) for length in range(1, 7)] * 4
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda one: read(in_pieces, *one, 4), work))
    for one, (source, target) in zip(found, work, strict=True):
        assert_equal(one, read(cpu, source, target, 64))


def test_the_engine_scores_targets_and_hypotheses(machine: Machine, cpu: PortableRuntime) -> None:
    answers = []
    for runtime in (machine.open(), cpu):
        engine = Engine(runtime, model_facts(machine.manifest), EngineLimits())
        asked = Sequence(tuple(SOURCE), forcing=Forcing(targets=((7, 9, 0), tuple(TARGET)), alternatives=2))
        own = Sequence(tuple(SOURCE), forcing=Forcing())
        for sequence in (asked, own):
            engine.submit(sequence)
        while engine.busy:
            engine.wait()
            engine.step()
        assert asked.error is own.error is None
        answers.append([*asked.forced, *own.forced])
    for found, wanted in zip(*answers, strict=True):
        assert found.tokens == wanted.tokens
        np.testing.assert_allclose(found.log_probs, wanted.log_probs, atol=1e-5)
        np.testing.assert_allclose(found.alignment, wanted.alignment, atol=1e-5)
        np.testing.assert_array_equal(found.best_tokens, wanted.best_tokens)


def test_engines_without_forced_decoding_translate_and_say_what_is_missing(machine: Machine) -> None:
    engines = tuple(engine for engine in machine.manifest.engines if engine.role != "forced")
    runtime = machine.open(dataclasses.replace(machine.manifest, engines=engines))
    engine = Engine(runtime, model_facts(machine.manifest), EngineLimits())
    with pytest.raises(InvalidRequest, match=r"nothing to score and align with.*build-engines"):
        engine.submit(Sequence(tuple(SOURCE), forcing=Forcing(targets=((7, 0),))))
    assert runtime.encode([SOURCE]).lengths.tolist() == [len(SOURCE)]


def test_graphs_of_an_earlier_version_are_refused(machine: Machine) -> None:
    graphs = tuple(
        dataclasses.replace(graph, inputs=tuple(spec for spec in graph.inputs if spec.name != "scored_tokens"))
        for graph in machine.manifest.graphs
    )
    with pytest.raises(BundleError, match="export the checkpoint again"):
        machine.open(dataclasses.replace(machine.manifest, graphs=graphs))


@pytest.mark.parametrize("at_once", [128, 4])
def test_scored_tokens_have_the_log_probabilities_of_the_candidates(machine: Machine, at_once: int) -> None:
    """53 candidates are the whole vocabulary; with few tokens at a time, the step is repeated."""
    manifest = with_maxima(machine.manifest, scored_tokens=at_once)
    machine.trt.know(machine.bundle, manifest)
    runtime = machine.open(manifest)

    def decoder() -> TensorRtDecoder:
        made = runtime.decoder(2, 2)
        made.join(runtime.encode([SOURCE, [8, 9]]), [0, 1], [4, 4])
        step(made, 0)
        return made

    given = np.full((2, 2), 50), np.full(2, 1), np.array([[1, 0], [0, 0]])
    scored = np.random.default_rng(3).integers(-1, 53, (2, 2, 11))
    other, ours = decoder(), decoder()
    every = other.step(*given, 53)
    by_token = np.take_along_axis(every.log_probs, np.argsort(every.tokens, axis=1), axis=1)
    logits = np.take_along_axis(every.logits, np.argsort(every.tokens, axis=1), axis=1)
    found = ours.step_scoring(*given, 4, scored)
    np.testing.assert_array_equal(found.tokens[:, :4], every.tokens[:, :4])
    flat = scored.reshape(4, 11)
    for numbers, wanted in ((found.log_probs, by_token), (found.logits, logits)):
        expected = np.where(flat < 0, -np.inf, np.take_along_axis(wanted, np.maximum(flat, 0), axis=1))
        np.testing.assert_allclose(numbers[:, 4:], expected, atol=1e-6)
    following = [each.step(given[0], np.full(2, 2), given[2], 4).log_probs for each in (ours, other)]
    np.testing.assert_allclose(*following, atol=1e-6)


# Planted faults.


def test_scores_read_before_the_stream_was_waited_for_are_poison(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = machine.open()
    assert runtime.forced is not None
    reader = runtime.forced.reader(runtime.encode([SOURCE]), 3)
    with monkeypatch.context() as planted:
        planted.setattr(runtime.device, "synchronise", lambda: None)
        assert np.isnan(reader.read([52, 7], [7, 9], 2).log_probs).all()
    with runtime.device:
        runtime.device.synchronise()


def test_a_source_that_was_given_back_is_caught(machine: Machine) -> None:
    runtime = machine.open()
    assert runtime.forced is not None
    places = [(tensor.buffer.address, tensor.length) for tensor in runtime.encode([SOURCE]).cross]
    stale = Encoded(
        [EncodedTensor(SimpleNamespace(address=address), length) for address, length in places],  # type: ignore[arg-type]
        np.array([len(SOURCE)], np.int32),
    )
    with pytest.raises(Fault, match=r"was freed|no allocation"):
        runtime.forced.reader(stale, 3).read([52, 7], [7, 9], 2)


def test_scored_tokens_that_were_never_sent_are_caught(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = machine.decoder()
    decoder._make_columns(8)
    decoder._ready()
    monkeypatch.setattr(decoder._scored_staging, "send", lambda: None)
    poisoned = machine.cuda.memory(decoder._scored_staging._buffer.address, 8, "device")
    with decoder._device:
        decoder._device.synchronise()
    poisoned.poison()
    given = np.full((2, 2), 50), np.full(2, 1), np.array([[1, 0], [0, 0]])
    with pytest.raises(Fault, match="scored_tokens holds numbers that nobody wrote"):
        decoder.step_scoring(*given, 4, np.zeros((2, 2, 8), np.int64))


def test_a_position_that_was_not_fed_is_caught(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = machine.open()
    assert runtime.forced is not None
    send = Staging.send

    def send_beyond(staging: Staging) -> None:
        if "target_positions" in staging._views:
            staging._views["target_positions"][:] = 99
        send(staging)

    reader = runtime.forced.reader(runtime.encode([SOURCE]), 3)
    monkeypatch.setattr(Staging, "send", send_beyond)
    with pytest.raises(AssertionError, match="a position that was not fed"):
        reader.read([52, 7], [7, 9], 2)
