"""Axes of the charts: where a value lies in pixels, and which values are marked."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count

from assay.core.report.wording import MINUS, format_number

__all__ = ["Axis", "fit_axis"]

LOG_FROM_SPREAD = 30.0
"""From this ratio of largest to smallest value on, positive values are drawn on a logarithmic axis."""

TINIEST, HUGEST = 1e-150, 1e150
"""Sizes beyond these are drawn as zero and at the edge, so that differences and ratios stay within floating point."""


@dataclass(frozen=True)
class Axis:
    """A linear or logarithmic map from values to pixels.

    Parameters
    ----------
    low, high : float
        The values at `start` and `end`; ``low < high``, both positive on a logarithmic axis.
    start, end : float
        Pixels; `start` may lie beyond `end`, as on a vertical axis.
    log : bool
        Whether equal ratios have equal lengths.

    Examples
    --------
    >>> Axis(1.0, 100.0, 0.0, 200.0, log=True).place(10.0)
    100.0
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def place(self, value: float) -> float:
        """The pixel of `value`; values beyond the axis lie at its end."""
        if self.log:
            part = math.log(value / self.low) / math.log(self.high / self.low) if value > 0 else 0.0
        elif math.isinf(value):
            part = math.copysign(math.inf, value)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.start + min(1.0, max(0.0, part)) * (self.end - self.start)

    def ticks(self, *, most: int = 5) -> list[tuple[float, str]]:
        """Round values on the axis with their labels, at most `most` of them."""
        if self.log:
            values = self._log_ticks(most)
            if len(values) >= 2:
                return [(value, format_number(value)) for value in values]
        for step in _round_steps((self.high - self.low) / most):
            first = math.ceil(self.low / step - 1e-9)
            last = math.floor(self.high / step + 1e-9)
            if last - first < most:
                break
        return [(number * step, _label(number * step, step)) for number in range(first, last + 1)]

    def _log_ticks(self, most: int) -> list[float]:
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        for factors in ((1, 2, 3, 5), (1, 2, 5), (1, 3), (1,)):
            values = [factor * 10.0**power for power in range(first, last + 1) for factor in factors]
            inside = [value for value in values if self.low * (1 - 1e-9) <= value <= self.high * (1 + 1e-9)]
            if len(inside) <= most:
                return inside
        stride = math.ceil(len(inside) / most)
        return inside[::stride]


def fit_axis(values: Iterable[float], *, start: float, end: float, log: bool | None = None) -> Axis:
    """Make the axis that spans the finite ones of some values.

    Parameters
    ----------
    values : iterable of float
        What has to be on the axis; NaN and infinities are passed over.
    start, end : float
        Pixels.
    log : bool, optional
        Force the kind of axis; a logarithmic one passes over values that aren't positive. Left out, the axis is
        logarithmic when all values are positive and spread by a factor of `LOG_FROM_SPREAD`.
    """
    sizable = (0.0 if abs(value) < TINIEST else value for value in values if abs(value) <= HUGEST)
    finite = [value for value in sizable if value > 0 or not log]
    if not finite:
        return Axis(1.0, 10.0, start, end, log=True) if log else Axis(0.0, 1.0, start, end)
    low, high = min(finite), max(finite)
    if log is None:
        log = low > 0 and high / low >= LOG_FROM_SPREAD
    if low == high or (log and high / low < 1 + 1e-9) or (not log and high - low < 1e-12 * max(abs(low), abs(high))):
        if log:
            return Axis(low / 2, low * 2, start, end, log=True)
        margin = abs(low) * 0.1 or 1.0
        return Axis(low - margin, high + margin, start, end)
    return Axis(low, high, start, end, log=log)


def _round_steps(least: float) -> Iterator[float]:
    """1, 2 and 5 times powers of ten, from `least` on."""
    for power in count(math.floor(math.log10(least))):
        for factor in (1.0, 2.0, 5.0):
            step = factor * 10.0**power
            if step >= least * (1 - 1e-9):
                yield step


def _label(value: float, step: float) -> str:
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    if abs(value) < step / 2:
        return "0"
    if decimals > 4 or abs(value) >= 1e6:
        return format_number(value)
    if decimals == 0:
        return format_number(float(round(value)))
    return f"{value:.{decimals}f}".replace("-", MINUS)
