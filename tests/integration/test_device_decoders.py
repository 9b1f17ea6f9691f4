"""Caches that stay on a device, whatever joins and leaves: the code of CUDA and TensorRT decoders on the CPU's memory.

Every step is compared with the decoder for graphs with custom operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman import native as operators
from dragoman.serving.engine.kv_cache import CacheLayout
from dragoman.serving.engine.runtime import Decoder, Encoded, TopTokens
from dragoman.serving.runtime.native.decoder import NativeDecoder
from dragoman.serving.runtime.native.runtime import flat
from dragoman.serving.runtime.portable.decoder import PortableDecoder
from dragoman.serving.runtime.portable.device import Arranger, DeviceMemory
from dragoman.serving.runtime.portable.encoder import DeviceEncoder
from dragoman.serving.runtime.portable.tiny_graph import Node, Value, graph
from exported_graphs import Exported

VOCABULARY, START, LAYERS = 53, 52, 1
TOLERANCE = {"fp32": 2e-5, "fp16": 0.03}
DTYPE = {"fp32": "float32", "fp16": "float16"}


@dataclass
class CountingMemory:
    """The CPU's memory as a device, and how often the host sent it a tensor."""

    sent: int = 0
    memory: DeviceMemory = field(init=False)

    def __post_init__(self) -> None:
        self.memory = DeviceMemory("cpu", 0, self._put)

    def _put(self, array: np.ndarray) -> Any:
        self.sent += 1
        return onnxruntime.OrtValue.ortvalue_from_numpy(array, "cpu", 0)


class Pair:
    """The same model twice: graphs with custom operators, and portable ones on a device."""

    def __init__(self, exported: Exported, precision: str) -> None:
        self.precision = precision
        self.sessions = {
            (graph.role, graph.lowering): onnxruntime.InferenceSession(
                exported.directory / graph.file, _one_thread(), providers=["CPUExecutionProvider"]
            )
            for graph in exported.graphs
        }
        self.cross_names = [spec.name for spec in exported.graph("encoder", "portable").outputs]
        self.native_cross_names = [spec.name for spec in exported.graph("encoder", "native").outputs]
        self.device = CountingMemory()
        self.encoder = DeviceEncoder(self.sessions["encoder", "portable"], self.cross_names, self.device.memory)

    def decoders(self, width: int) -> tuple[NativeDecoder, PortableDecoder]:
        native = NativeDecoder(self.sessions["decoder", "native"], CacheLayout(LAYERS, 2, 8), width, 16, (64, 64))
        layout = CacheLayout(LAYERS, 2, 8, DTYPE[self.precision])
        return native, PortableDecoder(self.sessions["decoder", "portable"], layout, width, self.device.memory)

    def encoded(self, sources: Sequence[Sequence[int]]) -> tuple[Encoded, Encoded]:
        feeds, lengths = flat(sources)
        native = self.sessions["encoder", "native"].run(self.native_cross_names, feeds)
        return Encoded(native, lengths), self.encoder.encode(sources)


def _one_thread() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.register_custom_ops_library(str(operators.ops_library()))
    return options


@pytest.fixture(scope="module")
def pairs(tiny_fp32: Exported, tiny_fp16: Exported) -> dict[str, Pair]:
    if operators.ops_library() is None:
        pytest.skip("the custom operators are not built")
    return {"fp32": Pair(tiny_fp32, "fp32"), "fp16": Pair(tiny_fp16, "fp16")}


class Play:
    """Sequences that join, leave and reorder their beams in both decoders alike; every step is compared."""

    def __init__(self, pair: Pair, width: int) -> None:
        self.pair, self.width = pair, width
        self.decoders: tuple[Decoder, Decoder] = pair.decoders(width)
        self.positions: list[int] = []
        self.lengths: list[int] = []

    def join(self, sources: Sequence[Sequence[int]], chosen: Sequence[int]) -> None:
        room = max(self.positions, default=0) + 1
        for decoder, encoded in zip(self.decoders, self.pair.encoded(sources), strict=True):
            decoder.join(encoded, chosen, [room] * len(chosen))
        self.lengths += [len(sources[index]) for index in chosen]
        self.positions += [0] * len(chosen)

    def leave(self, group: int) -> None:
        for decoder in self.decoders:
            decoder.leave(group)
        for column in (self.lengths, self.positions):
            column[group] = column[-1]
            column.pop()

    def step(self, tokens: np.ndarray, parents: np.ndarray) -> None:
        for decoder in self.decoders:
            decoder.reserve(max(self.positions) + 1)
        positions = np.array(self.positions)
        native, portable = (_by_token(decoder.step(tokens, positions, parents, VOCABULARY)) for decoder in self.decoders)
        np.testing.assert_allclose(portable, native, rtol=0, atol=TOLERANCE[self.pair.precision])
        self.positions = [position + 1 for position in self.positions]


def _by_token(best: TopTokens) -> np.ndarray:
    """(rows, vocabulary): the log-probability of each token."""
    return np.take_along_axis(best.log_probs, np.argsort(best.tokens, axis=1), axis=1)


@pytest.mark.parametrize("precision", TOLERANCE)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_device_decoders_equal_native_ones(pairs: dict[str, Pair], precision: str, data: st.DataObject) -> None:
    width = data.draw(st.integers(1, 3), "width")
    rng = np.random.default_rng(data.draw(st.integers(0, 999), "seed"))
    play = Play(pairs[precision], width)
    actions = st.lists(st.sampled_from(["join", "leave", "step", "step", "step"]), min_size=4, max_size=30)
    for action in ["join", *data.draw(actions)]:
        if action == "join" and len(play.positions) < 9:
            count = int(rng.integers(1, 4))
            sources = [rng.integers(1, START, int(rng.integers(1, 20))).tolist() for _ in range(count)]
            play.join(sources, sorted(rng.permutation(count)[: rng.integers(1, count + 1)].tolist()))
        elif action == "leave" and play.positions:
            play.leave(int(rng.integers(len(play.positions))))
        elif action == "step" and play.positions and max(play.positions) < 30:
            shape = (len(play.positions), width)
            play.step(rng.integers(0, START, shape), rng.integers(0, width, shape))


def test_a_step_neither_sends_nor_moves_a_cache_while_the_batch_is_unchanged(
    pairs: dict[str, Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = pairs["fp32"]
    play = Play(pair, width=2)
    play.join([[5, 6, 7], [8, 9], [10] * 12], [0, 1, 2])
    play.step(np.full((3, 2), START), np.zeros((3, 2), np.int64))
    sent = pair.device.sent
    monkeypatch.setattr(Arranger, "_run", lambda *_: pytest.fail("a cache was moved"))
    for _ in range(5):
        play.step(np.full((3, 2), 7), np.array([[1, 0], [0, 0], [1, 1]]))
    assert pair.device.sent == sent


def test_caches_never_leave_the_device_when_groups_come_and_go(pairs: dict[str, Pair]) -> None:
    pair = pairs["fp32"]
    play = Play(pair, width=1)
    play.join([[5, 6, 7]], [0])
    play.step(np.array([[START]]), np.array([[0]]))
    sent = pair.device.sent
    for number in range(6):  # the source's bucket grows, and the target's
        play.join([[9] * (3 * number + 2), [4, 5]], [0, 1])
        for _ in range(3):
            groups = len(play.positions)
            play.step(np.full((groups, 1), 8), np.zeros((groups, 1), np.int64))
        play.leave(0)
    assert pair.device.sent == sent, "what the encoder computed and what the decoder keeps was sent again"


def test_an_idle_decoder_keeps_no_memory(pairs: dict[str, Pair]) -> None:
    _, decoder = pairs["fp32"].decoders(1)
    _, encoded = pairs["fp32"].encoded([[5, 6, 7]])
    decoder.join(encoded, [0], [1])
    decoder.step(np.array([[START]]), np.array([0]), np.array([[0]]), 4)
    decoder.leave(0)
    decoder.release(1)
    assert not decoder._cross
    assert not decoder._past


def test_a_tiny_graph_is_onnx() -> None:
    long = "c" * 200  # takes two bytes to say how long it is
    inputs = [Value("a", "float16", 4), Value("b", "float16", 4)]
    written = graph([Node("Concat", ("a", "b"), long, axis=1)], inputs, [Value(long, "float16", 4)])
    model = onnx.load_from_string(written)
    onnx.checker.check_model(model)
    (node,) = model.graph.node
    assert (node.op_type, list(node.input), list(node.output), node.attribute[0].i) == ("Concat", ["a", "b"], [long], 1)


def test_gpu_memory_is_arranged_by_cuda_and_not_by_tensorrt() -> None:
    providers = DeviceMemory("cuda", 3, lambda array: array).providers
    assert [name for name, _ in providers] == ["CUDAExecutionProvider", "CPUExecutionProvider"]
    assert providers[0][1]["device_id"] == "3"


@pytest.mark.parametrize("precision", TOLERANCE)
def test_the_encoder_leaves_on_the_device_what_it_computes(pairs: dict[str, Pair], precision: str) -> None:
    _, encoded = pairs[precision].encoded([[5, 6], [7, 8, 9]])
    assert encoded.cross[0].device_name() == "cpu"
    assert encoded.cross[0].shape() == [2, 2, 3, 8]
    assert encoded.cross[0].numpy().dtype == DTYPE[precision]
