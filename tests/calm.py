"""Tests of what takes how long: a machine that is busy with other things lets them try again, not fail."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

ATTEMPTS = 5
CALM_S = 0.04
"""Whoever wakes up so much too late may have been kept from the processor as long at any other place."""
_NAP_S = 0.005

Test = TypeVar("Test", bound=Callable[..., Any])


class Lateness:
    """By how much a thread that only sleeps woke up too late, at worst."""

    def __enter__(self) -> Lateness:
        self.worst_s = 0.0
        self._over = threading.Event()
        self._sleeper = threading.Thread(target=self._sleep)
        self._sleeper.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._sleeper.join()

    def _sleep(self) -> None:
        while not self._over.is_set():
            slept_at = time.monotonic()
            time.sleep(_NAP_S)
            self.worst_s = max(self.worst_s, time.monotonic() - slept_at - _NAP_S)


def on_a_calm_machine(test: Test) -> Test:
    """Of attempts that fail only those count during which the machine was calm."""

    @functools.wraps(test)
    def attempted(*arguments: Any, **named: Any) -> None:
        for _ in range(ATTEMPTS):
            with Lateness() as lateness:
                try:
                    return test(*arguments, **named)
                except AssertionError as error:
                    failure = error
            if lateness.worst_s < CALM_S:
                raise failure
        pytest.skip(f"at each of {ATTEMPTS} attempts the machine was too busy to measure")

    return attempted  # type: ignore[return-value]
