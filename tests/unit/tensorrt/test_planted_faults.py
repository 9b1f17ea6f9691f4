"""The double catches the mistakes that a GPU would answer with garbage: each is planted in the real runtime."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

from dragoman.errors import ServerError
from dragoman.serving.engine.kv_cache import CacheShape
from dragoman.serving.runtime.settings import RuntimeSettings
from dragoman.serving.runtime.tensorrt import TensorRtRuntime
from dragoman.serving.runtime.tensorrt.decoder import TensorRtDecoder
from dragoman.serving.runtime.tensorrt.device import Gpu, Rows
from dragoman.serving.runtime.tensorrt.kv_cache import DeviceKVCache
from gpu_double import CudaDouble, Fault, importing_doubles
from gpu_machine import Machine, step

MakeMachine = Callable[[CudaDouble], Machine]


def test_without_a_fault_the_steps_go_well(machine: Machine) -> None:
    decoder = machine.decoder()
    assert step(decoder, 1).min() >= 0
    assert step(decoder, 2, [[1, 0], [0, 0]]).min() >= 0


def test_results_read_before_the_stream_was_waited_for_are_poison(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = machine.decoder()
    with monkeypatch.context() as planted:
        planted.setattr(decoder._device, "synchronise", lambda: None)
        found = step(decoder, 1)
    assert (found == -1).all()


def test_host_memory_that_changes_under_its_copy_is_caught(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = machine.decoder()
    staging, send = decoder._staging, decoder._staging.send

    def send_and_write() -> None:
        send()
        staging._views["tokens"][:] = 3

    monkeypatch.setattr(staging, "send", send_and_write)
    with pytest.raises(Fault, match="changed while a copy"):
        step(decoder, 1)


def test_a_second_encoder_call_waits_for_the_copy_of_the_first(machine: Machine) -> None:
    """Both have the same shape, and so the same page-locked memory."""
    runtime = machine.open()
    first, second = runtime.encode([[5, 6, 7]]), runtime.encode([[9, 8]])
    decoder = runtime.decoder(2, 2)
    decoder.join(first, [0], [4])
    decoder.join(second, [0], [4])
    together = step(decoder, 0)
    other = runtime.decoder(2, 2)
    other.join(runtime.encode([[5, 6, 7], [9, 8]]), [0, 1], [4, 4])
    assert np.array_equal(together, step(other, 0))


def test_a_wrong_pitch_is_caught(machine: Machine) -> None:
    runtime = machine.open()
    buffer = runtime.device.allocate(4096)
    with runtime.device, pytest.raises(Fault, match="overlap at a pitch"):
        runtime.device.copy_rows(Rows(buffer.address, 16), Rows(buffer.address + 2048, 64), 64, 4)
    with runtime.device, pytest.raises(Fault, match="do not fit"):
        runtime.device.copy_rows(Rows(buffer.address, 1024), Rows(buffer.address, 64), 64, 8)


def test_a_cache_that_is_laid_out_with_the_old_pitch_gives_other_tokens(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tokens() -> list[list[int]]:
        decoder = machine.decoder()
        found = [step(decoder, position).tolist() for position in range(1, 8)]
        decoder.reserve(25)
        return [*found, *(step(decoder, position).tolist() for position in range(8, 16))]

    right = tokens()
    monkeypatch.setattr(DeviceKVCache, "_rows", wrong_pitch)
    with pytest.raises((Fault, AssertionError)):
        assert tokens() == right


def wrong_pitch(cache: DeviceKVCache, blocks: tuple) -> Rows:
    buffer, _, first = blocks
    pitch = 16 * cache._token_bytes
    return Rows(buffer.address + first * cache._heads * pitch, pitch)


def test_memory_that_nobody_wrote_is_caught(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Gpu, "zero", lambda _self, _buffer: None)
    with pytest.raises(Fault, match="nobody wrote"):
        machine.decoder()


def test_stale_rows_give_other_tokens(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sequence leaves, and the last one takes its number: its keys must follow."""

    def tokens() -> list[int]:
        runtime = machine.open()
        decoder = runtime.decoder(2, 3)
        decoder.join(runtime.encode([[5, 6, 7], [8, 9], [11, 30, 31, 40]]), [0, 1, 2], [4, 4, 4])
        step(decoder, 0)
        decoder.leave(0)
        return step(decoder, 1).tolist()

    right = tokens()
    monkeypatch.setattr(DeviceKVCache, "move", lambda *_: None)
    assert tokens() != right


def test_a_past_that_does_not_swap_gives_other_tokens(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def tokens() -> list[list[int]]:
        decoder = machine.decoder()
        return [step(decoder, position, [[1, 0], [0, 0]]).tolist() for position in range(1, 6)]

    right = tokens()
    decoder = machine.decoder()
    monkeypatch.setattr(decoder._cache, "stepped", lambda: None)
    assert [step(decoder, position, [[1, 0], [0, 0]]).tolist() for position in range(1, 6)] != right


def test_a_buffer_that_was_given_back_is_caught(machine: Machine) -> None:
    decoder = machine.decoder()
    decoder._told.clear()
    with pytest.raises((Fault, KeyError)):
        step(decoder, 1)


def test_caches_that_were_given_back_are_caught(machine: Machine) -> None:
    decoder = machine.decoder()
    decoder._cache.resize(CacheShape(0, 0, 0), 0, [])
    with pytest.raises(Fault, match="was freed"):
        step(decoder, 1)


def test_writing_the_present_over_the_past_is_caught(machine: Machine) -> None:
    decoder = machine.decoder()
    side = decoder._cache.side
    for index, buffer in enumerate(decoder._cache._own[side]):
        decoder._cache._own[1 - side][index] = buffer
    decoder._executions = None
    with pytest.raises(Fault, match="overlaps"):
        step(decoder, 1)


def test_a_shape_beyond_every_profile_is_refused(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = machine.decoder()
    monkeypatch.setattr(decoder, "_lengths_limit", (64, 64))
    decoder.reserve(40)
    with pytest.raises(ServerError, match="no profile"):
        step(decoder, 1)


def test_a_shape_beyond_the_chosen_profile_is_refused(machine: Machine) -> None:
    runtime = machine.open()
    execution = runtime.encoder.execution(0)
    with pytest.raises(ServerError, match="takes no source_ids"):
        execution.scratch_bytes({"source_ids": (1, 500), "source_lengths": (1,)})


def test_too_little_scratch_memory_is_caught(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = machine.decoder()
    scratch = decoder._engine._scratch
    scratch.buffer = decoder._device.allocate(256)
    with pytest.raises(Fault, match="scratch"):
        step(decoder, 1)


def test_a_thread_that_names_no_gpu_is_caught(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = machine.decoder()
    found: list[BaseException] = []

    def work() -> None:
        try:
            step(decoder, 1)
        except Fault as fault:
            found.append(fault)

    run_in_a_thread(work)
    assert not found
    monkeypatch.setattr(machine.cuda, "cudaSetDevice", lambda device: (0,))
    run_in_a_thread(work)
    assert "which GPU" in str(found[0])


def run_in_a_thread(work: object) -> None:
    thread = threading.Thread(target=work)  # type: ignore[arg-type]
    thread.start()
    thread.join()


def test_the_double_is_poisoned_where_it_was_not_written() -> None:
    cuda = CudaDouble()
    cuda.cudaSetDevice(0)
    device = Gpu(cuda, cuda, 0)
    assert np.isnan(device.pinned((4,), np.float32).array).all()


def test_a_decoder_holds_no_memory_when_no_sequence_is_left(machine: Machine) -> None:
    decoder: TensorRtDecoder = machine.decoder()
    decoder.leave(1)
    decoder.leave(0)
    decoder.release(1)
    assert sum(decoder.held_slots) == 0
    with decoder._device:
        decoder._device.synchronise()
    assert not decoder._cache._cross


# Execution contexts.


def test_contexts_are_made_once_however_often_caches_grow(machine: Machine) -> None:
    """On a GPU a new one means compiling: two a profile, one a side of the caches, serve decoder after decoder."""
    runtime = machine.open()

    def decoded() -> None:
        decoder = runtime.decoder(2, 4)
        for newcomers in (1, 2):
            decoder.join(runtime.encode([[5, 6, 7]] * newcomers), range(newcomers), [4] * newcomers)
            step(decoder, 0)
            decoder.reserve(30)
            step(decoder, 1)

    decoded()
    made = {role: len(engine.contexts) for role, engine in machine.trt.engines.items()}
    profiles = len(machine.manifest.engines[1].profiles)
    assert made["encoder"] == 1
    assert made["decoder"] <= 2 * profiles
    for _ in range(5):
        decoded()
    assert {role: len(engine.contexts) for role, engine in machine.trt.engines.items()} == made


def test_decoders_at_the_same_time_have_contexts_of_their_own(machine: Machine) -> None:
    runtime = machine.open()
    decoders = [runtime.decoder(2, 1) for _ in range(2)]
    for decoder, source in zip(decoders, ([5, 6, 7], [8, 9]), strict=True):
        decoder.join(runtime.encode([source]), [0], [4])
    together = [[step(decoder, position).tolist() for decoder in decoders] for position in range(3)]
    alone = []
    for source in ([5, 6, 7], [8, 9]):
        decoder = runtime.decoder(2, 1)
        decoder.join(runtime.encode([source]), [0], [4])
        alone.append([step(decoder, position).tolist() for position in range(3)])
    assert [list(one) for one in zip(*together, strict=True)] == alone


def test_scratch_memory_that_was_laid_out_anew_and_not_given_again_is_caught(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = machine.open()
    runtime.encode([[5, 6, 7]])
    context = machine.trt.engines["encoder"].contexts[0]
    monkeypatch.setattr(context, "set_device_memory", lambda memory, size: None)
    with pytest.raises(Fault, match="no allocation"):
        runtime.encode([[5] * 20])


def test_another_gpu_than_the_first_is_named_before_anything_is_made_there(make_machine: MakeMachine) -> None:
    machine = make_machine(CudaDouble((9, 0), (8, 6)))
    settings = RuntimeSettings(device="tensorrt", device_id=1)
    runtime = TensorRtRuntime(
        machine.bundle, machine.manifest, settings, importing=importing_doubles(machine.cuda, machine.trt)
    )
    assert {engine.device for engine in machine.trt.engines.values()} == {1}
    machine.cuda.cudaSetDevice(0)  # whatever this thread did in between
    assert runtime.encode([[5, 6, 7]]).lengths.tolist() == [3]
    decoder = runtime.decoder(2, 1)
    decoder.join(runtime.encode([[5, 6, 7]]), [0], [4])
    assert step(decoder, 0).min() >= 0


def test_work_for_another_gpu_than_the_threads_is_caught(make_machine: MakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = make_machine(CudaDouble((8, 6), (8, 6)))
    decoder = machine.decoder()
    machine.cuda.cudaSetDevice(1)
    with monkeypatch.context() as planted, pytest.raises(Fault, match="GPU 1"):
        planted.setattr(machine.cuda, "cudaSetDevice", lambda device: (0,))
        step(decoder, 1)
