"""How block work is cut and spread over threads, so that no result depends on the number of threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from threadpoolctl import threadpool_limits

from assay.core.errors import InputError

__all__ = ["TILE_ENTRIES", "ordered_map", "resolve_jobs", "tiles"]

Task = TypeVar("Task")
Result = TypeVar("Result")

TILE_ENTRIES = 1 << 17
"""Entries of a tile of distances: 1 MiB of float64, which stays in a core's cache until it is reduced."""


def tiles(stop: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of consecutive ranges of at most `size` that cover 0 … `stop`."""
    for start in range(0, stop, size):
        yield start, min(start + size, stop)


def resolve_jobs(n_jobs: int | None) -> int:
    """Return the number of threads that `n_jobs` means: None is 1, -1 all cores, -2 all but one, and so on."""
    if n_jobs is None:
        return 1
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, int) or n_jobs == 0:
        raise InputError(f"n_jobs is {n_jobs!r}", expected="a positive number of threads, or -1 for all cores")
    return n_jobs if n_jobs > 0 else max(1, (os.cpu_count() or 1) + 1 + n_jobs)


def ordered_map(function: Callable[[Task], Result], tasks: Sequence[Task], *, n_jobs: int) -> Iterator[Result]:
    """Yield ``function(task)`` in the order of `tasks`, computed by `n_jobs` threads with single-threaded BLAS.

    The threads help where `function` spends its time in compiled code that releases the GIL.
    """
    if n_jobs == 1 or len(tasks) < 2:
        yield from map(function, tasks)
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
