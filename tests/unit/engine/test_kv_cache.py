"""Slots, the padded cache, and the memory contract."""

from __future__ import annotations

import numpy as np
import pytest

from dragoman.errors import ServeError
from dragoman.serving.engine import EngineLimits, ModelFacts, memory_contract
from dragoman.serving.engine.kv_cache import EMPTY, CacheLayout, CacheShape, KVCache, fitted, grown
from dragoman.serving.engine.runtime import Encoded
from dragoman.serving.engine.slots import KVSlots, Usage, bucket

LAYOUT = CacheLayout(layers=2, heads=3, head_dim=4)


def encoded(lengths: list[int]) -> Encoded:
    shape = (len(lengths), 3, max(lengths), 4)
    return Encoded(
        [np.random.default_rng(n).normal(size=shape).astype(np.float32) for n in range(4)], np.array(lengths, np.int32)
    )


def filled_cache() -> tuple[KVCache, Encoded]:
    """Three sequences of two rows, whose rows hold their own number at 2, 5 and 4 positions."""
    cache, sources = KVCache(LAYOUT, width=2), encoded([3, 7, 5])
    cache.resize(CacheShape(4, 8, 8))
    cache.join(sources, [0, 1, 2])
    cache.filled[:3] = 2, 5, 4
    for tensor in cache.own:
        tensor[:6] = np.arange(6)[:, None, None, None]
    return cache, sources


def test_the_slices_that_a_graph_gets_are_contiguous() -> None:
    cache, _ = filled_cache()
    assert all(tensor[: cache.rows].flags.c_contiguous for tensor in cache.own)
    assert all(tensor[: cache.sequences].flags.c_contiguous for tensor in cache.cross)


def test_the_last_sequence_moves_into_the_hole_with_all_it_has() -> None:
    cache, sources = filled_cache()
    cache.leave(0)
    assert (cache.sequences, cache.lengths[:2].tolist(), cache.filled[:2].tolist()) == (2, [5, 7], [4, 5])
    for kept, source in zip(cache.cross, sources.cross, strict=True):
        np.testing.assert_array_equal(kept[0, :, :5], source[2, :, :5])
    for tensor in cache.own:
        assert tensor[:2, :, :4].min(axis=(1, 2)).tolist() == [[4.0] * 4, [5.0] * 4]


def test_rows_take_over_what_their_parents_hold() -> None:
    cache, _ = filled_cache()
    places = cache.follow(np.array([[0, 1], [1, 0], [1, 1]]))
    for tensor in cache.own:
        assert tensor[places, 0, 0, 0].tolist() == [0, 1, 3, 2, 5, 5]
        assert tensor[places, 0, 3, 0].tolist() == [0, 1, 3, 2, 5, 5]


def test_rows_that_only_change_their_order_are_not_copied() -> None:
    cache, _ = filled_cache()
    before = [tensor.copy() for tensor in cache.own]
    places = cache.follow(np.array([[1, 0], [1, 0], [0, 1]]))
    assert places.tolist() == [1, 0, 3, 2, 4, 5]
    assert cache.follow(np.array([[1, 0], [0, 1], [0, 1]])).tolist() == [0, 1, 3, 2, 4, 5]
    for tensor, old in zip(cache.own, before, strict=True):
        np.testing.assert_array_equal(tensor, old)


@pytest.mark.parametrize("shape", [CacheShape(8, 16, 24), CacheShape(3, 7, 5), CacheShape(4, 8, 40)])
def test_another_shape_holds_the_same(shape: CacheShape) -> None:
    cache, sources = filled_cache()
    cache.resize(shape)
    assert cache.own[0].shape == (shape.sequences * 2, 3, shape.target, 4)
    assert cache.cross[0].shape == (shape.sequences, 3, shape.source, 4)
    for kept, source in zip(cache.cross, sources.cross, strict=True):
        np.testing.assert_array_equal(kept[1, :, :7], source[1, :, :7])
    assert cache.own[3][2:4, 0, 4, 0].tolist() == [2, 3]


def test_a_shape_that_is_too_small_is_refused() -> None:
    cache, _ = filled_cache()
    with pytest.raises(ValueError, match="no room for 3 sequences"):
        cache.resize(CacheShape(2, 8, 8))


def test_some_of_an_encoded_batch_may_join() -> None:
    cache, sources = KVCache(LAYOUT, width=1), encoded([3, 7, 5, 2])
    cache.resize(CacheShape(2, 8, 8))
    cache.join(sources, [0, 3])
    assert cache.lengths.tolist() == [3, 2]
    np.testing.assert_array_equal(cache.cross[1][1, :, :2], sources.cross[1][3, :, :2])


def test_buckets_hold_what_they_must_and_waste_little() -> None:
    for length in range(1, 600):
        assert length <= bucket(length) < length + max(16, length / 2)


def test_a_shape_grows_at_once_and_shrinks_late() -> None:
    shape = fitted(EMPTY, 5, 20, 9)
    assert shape == CacheShape(8, 32, 16)
    assert fitted(shape, 2, 8, 8) == shape
    assert fitted(shape, 1, 40, 17) == CacheShape(1, 48, 32)
    assert fitted(shape, 0, 0, 0) == EMPTY


def test_where_room_is_free_a_shape_only_grows() -> None:
    assert grown(CacheShape(8, 32, 16), 2, 40, 8) == CacheShape(8, 48, 16)


MODEL = ModelFacts((0,), 1, 32_000, 32_000, max_source_tokens=512, max_target_tokens=512)


def test_the_memory_contract_is_the_sum_of_what_the_limits_allow() -> None:
    limits = EngineLimits(max_rows=64, target_tokens_per_row=128, source_tokens_per_row=64, max_beam_size=4)
    layout = CacheLayout(layers=6, heads=8, head_dim=64)
    contract = memory_contract(limits, MODEL, layout, weights_bytes=10**8, widest_layer=2048)
    slot_bytes = 2 * 6 * 8 * 64 * 4
    assert contract.self_cache_bytes == 64 * 128 * slot_bytes
    assert contract.cross_cache_bytes == 64 * 64 * slot_bytes
    assert contract.growth_bytes == 64 * 128 * slot_bytes // 6  # a layer
    assert contract.total_bytes > 10**8 + contract.self_cache_bytes + contract.cross_cache_bytes


def test_caches_that_are_read_in_one_place_and_written_in_another_are_promised_twice() -> None:
    once, twice = (
        memory_contract(EngineLimits(), MODEL, LAYOUT, weights_bytes=0, widest_layer=1024, cache_copies=copies)
        for copies in (1, 2)
    )
    caches = once.self_cache_bytes + once.cross_cache_bytes + once.session_cache_bytes + once.growth_bytes
    assert twice.total_bytes - once.total_bytes == caches


def test_a_wide_beam_of_full_length_always_fits() -> None:
    limits = EngineLimits(max_rows=16, target_tokens_per_row=8, max_beam_size=16)
    assert limits.kv_slots(MODEL).own == 16 * 512


def test_paged_sequences_take_their_own_slots_and_padded_ones_those_of_the_longest() -> None:
    usage = Usage.of([(3, 10), (20, 30), (7, 5)])
    assert usage == Usage().plus(3, 10).plus(20, 30).plus(7, 5)
    assert usage.slots(width=2, padded=False) == KVSlots(2 * 45, 30)
    assert usage.slots(width=2, padded=True) == KVSlots(2 * 4 * 32, 4 * 32)


def test_more_memory_than_allowed_is_said_with_the_figures() -> None:
    contract = memory_contract(EngineLimits(), MODEL, LAYOUT, weights_bytes=300 * 2**20, widest_layer=1024)
    contract.check(contract.total_bytes)
    with pytest.raises(ServeError, match=r"weights 300 MiB.*more than the 100 MiB allowed"):
        contract.check(100 * 2**20)
