"""Work in several processes at once, which end when we do."""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


@contextlib.contextmanager
def begun(work: Callable[..., Result], arguments: Iterable[Sequence[object]]) -> Iterator[list[Future[Result]]]:
    """`work` with each of the arguments, one process for each; interrupted, it leaves none of them."""
    each = list(arguments)
    pool = ProcessPoolExecutor(len(each), multiprocessing.get_context("spawn"))
    try:
        yield [pool.submit(work, *these) for these in each]
    except BaseException:
        for process in multiprocessing.active_children():
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def spread(work: Callable[..., Result], arguments: Iterable[Sequence[object]]) -> list[Result]:
    """What `work` returns for each of the arguments."""
    with begun(work, arguments) as futures:
        return [future.result() for future in futures]
