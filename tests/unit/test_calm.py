from __future__ import annotations

import time

import pytest

import calm


def test_a_failure_on_a_calm_machine_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calm, "CALM_S", 1e9)
    attempts = []

    @calm.on_a_calm_machine
    def fails() -> None:
        attempts.append(1)
        raise AssertionError("too slow")

    with pytest.raises(AssertionError, match="too slow"):
        fails()
    assert attempts == [1]


def test_a_failure_on_a_busy_machine_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calm, "CALM_S", 0.0)
    attempts = []

    @calm.on_a_calm_machine
    def succeeds_at_last() -> None:
        attempts.append(1)
        time.sleep(0.02)  # as long as it takes to notice that it is busy
        assert len(attempts) == 3

    succeeds_at_last()
    assert attempts == [1, 1, 1]


def test_without_a_calm_moment_nothing_is_concluded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calm, "CALM_S", 0.0)

    @calm.on_a_calm_machine
    def fails() -> None:
        time.sleep(0.02)
        raise AssertionError

    with pytest.raises(pytest.skip.Exception, match="too busy"):
        fails()
