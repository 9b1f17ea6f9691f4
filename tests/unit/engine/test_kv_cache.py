"""KV slots, the shapes of padded caches, and the memory contract."""

from __future__ import annotations

import pytest

from dragoman.errors import ServeError
from dragoman.serving.engine import EngineLimits, ModelFacts, memory_contract
from dragoman.serving.engine.kv_cache import EMPTY, CacheLayout, CacheShape, fitted
from dragoman.serving.engine.slots import KVSlots, Usage, bucket

LAYOUT = CacheLayout(layers=2, heads=3, head_dim=4)


def test_buckets_hold_what_they_must_and_waste_little() -> None:
    for length in range(1, 600):
        assert length <= bucket(length) < length + max(16, length / 2)


def test_a_shape_grows_at_once_and_shrinks_late() -> None:
    shape = fitted(EMPTY, 5, 20, 9)
    assert shape == CacheShape(8, 32, 16)
    assert fitted(shape, 2, 8, 8) == shape
    assert fitted(shape, 1, 40, 17) == CacheShape(1, 48, 32)
    assert fitted(shape, 0, 0, 0) == EMPTY


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


def test_the_error_for_too_much_memory_has_the_figures() -> None:
    contract = memory_contract(EngineLimits(), MODEL, LAYOUT, weights_bytes=300 * 2**20, widest_layer=1024)
    contract.check(contract.total_bytes)
    with pytest.raises(ServeError, match=r"weights 300 MiB.*more than the 100 MiB allowed"):
        contract.check(100 * 2**20)
