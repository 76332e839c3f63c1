"""Seconds and memory are those of the block and of nothing before it."""

from __future__ import annotations

import time

import numpy as np
import pytest

from assay.core.measure import peak_memory, stopwatch

MEGABYTE = 2**20


def test_stopwatch_tells_waiting_from_working():
    with stopwatch() as waiting:
        time.sleep(0.2)
    with stopwatch() as working:
        deadline = time.process_time() + 0.2
        while time.process_time() < deadline:
            pass
    assert waiting.seconds >= 0.2 > 10 * waiting.cpu_seconds
    assert working.cpu_seconds >= 0.2


def test_peak_is_that_of_the_block_and_no_earlier_one():
    np.ones(80 * MEGABYTE // 8)
    with peak_memory() as peak:
        np.ones(40 * MEGABYTE // 8)
    assert peak.bytes == pytest.approx(40 * MEGABYTE, rel=0.2)


def test_short_peak_inside_the_block_is_seen():
    with peak_memory() as peak:
        np.ones(60 * MEGABYTE // 8)
        np.ones(10 * MEGABYTE // 8)
    assert peak.bytes >= 55 * MEGABYTE


def test_measure_is_filled_when_the_block_raises():
    with pytest.raises(ValueError, match="x"), stopwatch() as watch, peak_memory() as peak:
        raise ValueError("x")
    assert watch.seconds >= 0 and peak.bytes >= 0
