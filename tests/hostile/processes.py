"""Work in several processes at once, which end when we do."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


def spread(work: Callable[..., Result], arguments: Iterable[Sequence[object]]) -> list[Result]:
    """What `work` returns for each of the arguments, one process for each; interrupted, it leaves none of them."""
    each = list(arguments)
    pool = ProcessPoolExecutor(len(each), multiprocessing.get_context("spawn"))
    try:
        futures = [pool.submit(work, *these) for these in each]
        return [future.result() for future in futures]
    except BaseException:
        for process in multiprocessing.active_children():
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
