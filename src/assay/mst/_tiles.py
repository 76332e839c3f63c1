"""How block work is cut and spread over threads, so that no result depends on the number of threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from assay.core.errors import InputError

__all__ = ["TILE_ENTRIES", "interruptible", "ordered_map", "resolve_jobs", "tiles"]

Task = TypeVar("Task")
Result = TypeVar("Result")

TILE_ENTRIES = 1 << 17
"""Entries of a tile of distances: 1 MiB of float64, which stays in a core's cache until it is reduced."""


def tiles(stop: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of consecutive ranges of at most `size` that cover 0 … `stop`."""
    for start in range(0, stop, size):
        yield start, min(start + size, stop)


def resolve_jobs(n_jobs: int | None) -> int:
    """Return the number of threads that `n_jobs` means: None is 1, -1 all cores, -2 all but one, …, at least one."""
    if n_jobs is None:
        return 1
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, (int, np.integer)) or n_jobs == 0:
        raise InputError(f"n_jobs is {n_jobs!r}", expected="a positive number of threads, or -1 for all cores")
    return int(n_jobs) if n_jobs > 0 else max(1, (os.cpu_count() or 1) + 1 + int(n_jobs))


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise the KeyboardInterrupt that Ctrl-C in compiled code is: there it comes out as the cause of a SystemError."""
    try:
        yield
    except SystemError as error:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, KeyboardInterrupt):
                raise KeyboardInterrupt from error
            cause = cause.__cause__ or cause.__context__
        raise


def ordered_map(function: Callable[[Task], Result], tasks: Sequence[Task], *, n_jobs: int) -> Iterator[Result]:
    """Yield ``function(task)`` in the order of `tasks`, computed by `n_jobs` threads with single-threaded BLAS.

    The threads help where `function` spends its time in compiled code that releases the GIL.
    """
    if n_jobs == 1 or len(tasks) < 2:
        for task in tasks:
            with interruptible():
                result = function(task)
            yield result
        return
    with threadpool_limits(limits=1), ThreadPoolExecutor(n_jobs) as pool:
        futures = [pool.submit(function, task) for task in tasks]
        try:
            for future in futures:
                yield future.result()
        finally:
            # On an error or Ctrl-C, what has not started never does.
            for future in futures:
                future.cancel()
