"""Seconds and peak memory of a piece of work, measured where it runs."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PeakMemory", "Stopwatch", "peak_memory", "stopwatch"]

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"


@dataclass
class Stopwatch:
    """Seconds by the wall clock and of CPU time of all threads of this process; filled when the block ends."""

    seconds: float = float("nan")
    cpu_seconds: float = float("nan")


@dataclass
class PeakMemory:
    """Bytes by which the resident memory of this process rose at its highest; filled when the block ends."""

    bytes: float = float("nan")


@contextmanager
def stopwatch() -> Iterator[Stopwatch]:
    """Time a block.

    Examples
    --------
    >>> with stopwatch() as watch:
    ...     total = sum(range(1000))
    >>> watch.seconds >= 0
    True
    """
    watch = Stopwatch()
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        yield watch
    finally:
        watch.seconds = time.perf_counter() - wall
        watch.cpu_seconds = time.process_time() - cpu


@contextmanager
def peak_memory() -> Iterator[PeakMemory]:
    """Measure the peak of resident memory in a block, above what was resident at its start.

    On Linux the kernel's own high-water mark is reset first, so that earlier peaks don't hide this one and short peaks
    aren't missed. Elsewhere the mark can't be reset: then the figure is right only in a process of its own. Memory that
    was freed to the allocator before the block and is used again in it isn't seen; a process of its own has least of
    it.
    """
    peak = PeakMemory()
    reset = _reset_peak()
    before = _status_bytes("VmRSS") if reset else _max_rss_bytes()
    try:
        yield peak
    finally:
        after = _status_bytes("VmHWM") if reset else _max_rss_bytes()
        peak.bytes = float(max(0, after - before))


def _reset_peak() -> bool:
    try:
        _CLEAR_REFS.write_text(_RESET_PEAK)
    except OSError:
        return False
    return True


def _status_bytes(name: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"{_STATUS} has no {name}")


def _max_rss_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
