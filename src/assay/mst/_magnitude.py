"""How large coordinates are, and how distances among them are kept from overflow and underflow.

Squares and p-th powers leave float64 long before distances do: a square overflows from 1e154 on, and loses its digits
below 1e-154. Coordinates that are too large or too small as a whole are multiplied by a power of two, which rounds
nothing. Pairs that are far closer than the largest coordinate, which happens when magnitudes are mixed, are found by
their value and summed again on a scale of their own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from assay.core.errors import InputError

__all__ = ["PLAIN", "Scaling", "extent", "scaled", "scaling"]

LARGEST = 1000
"""Sums of powers stay below 2**1000, so that whatever is made of one or two of them is finite."""

SMALL = -400
"""Coordinates whose largest has a power below 2**-400 are scaled: their sums then lie far above what underflows."""

FULL = -960
"""A sum of powers of at least 2**-960 has all its digits: parts of it that underflow lie below the last one."""

SPACING = -53
"""Two different float64 numbers of magnitude m differ by at least 2**-53 m."""

TREE = 1021
"""Sums of all weights of a tree stay below 2**1021."""


@dataclass(frozen=True)
class Scaling:
    """What is done to coordinates before, and to distances after a sum of powers.

    Attributes
    ----------
    exponent : int
        Coordinates are multiplied by ``2 ** -exponent``, and distances by ``2 ** exponent``.
    floor : float
        Distances of scaled coordinates below it may have lost digits, 0 where none can.
    """

    exponent: int = 0
    floor: float = 0.0


PLAIN = Scaling()


# Values are finite, so comparisons may assume that none is NaN, and the loop becomes vector instructions.
@njit(cache=True, nogil=True, fastmath={"nnan", "nsz"})
def extent(values):  # type: ignore[no-untyped-def]
    """Return the largest magnitude of a flat array of finite numbers and the smallest that is not 0.

    An array of zeros has the extent (0, infinity).
    """
    largest, smallest = 0.0, np.inf
    for value in values:
        magnitude = abs(np.float64(value))
        largest = max(largest, magnitude)
        smallest = min(smallest, magnitude if magnitude > 0 else np.inf)
    return largest, smallest


def scaling(largest: float, smallest: float, *, power: float, shape: tuple[int, int], name: str) -> Scaling:
    """Return how coordinates of a given extent are scaled.

    Parameters
    ----------
    largest, smallest : float
        Magnitudes, see :func:`extent`.
    power : float
        Of the coordinates' differences in the sum: 1 where there is none.
    shape : tuple of 2 int
        Number of rows and coordinates.
    name : str
        The metric.

    Raises
    ------
    InputError
        Where distances, or a tree's sum of them, are beyond float64; it names the largest coordinate.
    """
    if largest == 0:
        return PLAIN
    rows, dims = shape
    _, top = math.frexp(largest)
    squared = name == "sqeuclidean"
    limit = TREE - math.log2(max(2, rows) * dims)
    if top + 1 > limit:
        raise InputError(
            f"X reaches {largest:.3g}, and sums of its distances overflow float64",
            expected=f"coordinates below {2.0 ** math.floor(limit - 1):.0e}: divide X by a constant",
        )
    too_large = power * (top + 1) + math.log2(dims) > LARGEST
    if squared and power > 1 and (too_large or power * top < FULL):
        raise InputError(
            f"X reaches {largest:.3g}, and squares of its distances {'over' if too_large else 'under'}flow float64",
            expected="metric='euclidean', or X times a constant",
        )
    if power == 1 or squared:
        return PLAIN
    # Half of the range is left for differences, which are at most twice the largest coordinate.
    exponent = top + 1 if too_large or power * top < SMALL else 0
    floor = 2.0 ** (FULL / power)
    closest = math.frexp(smallest)[1] - 1 + SPACING - exponent
    return Scaling(exponent, floor if closest < math.log2(floor) else 0.0)


def scaled(rows: NDArray[Any], exponent: int) -> NDArray[Any]:
    """Return `rows` times ``2 ** -exponent``: themselves where that is nothing, else a float64 copy."""
    return np.ldexp(rows.astype(np.float64), -exponent) if exponent else rows
