"""Distances among rows of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import InputError
from assay.mst._contract import Indices, Metric, as_array, square_in_strips
from assay.mst._distances import (
    ABSOLUTE,
    ANGLE,
    DOT,
    IDENTITY,
    MAXIMUM,
    POWER,
    ROOT,
    SQRT,
    SQUARED,
    below,
    centred_squares,
    close_pairs,
    vector_block,
    vector_pairs,
)
from assay.mst._magnitude import PLAIN, SPACING, Scaling, extent, scaled, scaling

__all__ = ["VECTOR_METRICS", "VectorMetric", "chord_to_cosine", "dense_rows"]

VECTOR_METRICS = ("euclidean", "sqeuclidean", "cityblock", "chebyshev", "minkowski", "cosine", "haversine")

EXPANDED_FROM = 33
"""From this dimension on, |x|^2 + |y|^2 - 2xy, with half the arithmetic, is faster than differences."""

ROWS_AT_ONCE = 1 << 16
"""Rows inspected at a time, so that a check of a large input needs little memory."""

SQUARE_ROWS = 128
"""Rows of a square computed at a time: enough to fill tiles, and few enough that little is computed twice."""

LISTED = 5
"""How many offending rows a message lists."""

ORDINARY = 1e-250, 1e300
"""Squared lengths of rows between which nothing has overflowed, and all their digits are there."""

_NOTHING = np.empty(0)


class VectorMetric(Metric):
    """A distance among the rows of a dense array, computed in float64 without overflow or underflow.

    Parameters
    ----------
    X : ndarray, shape (n, d)
        float32, float64 or uint8, in C order; kept as it is, without a copy unless powers of its coordinates leave
        float64.
    name : str
        One of `VECTOR_METRICS`.
    p : float
        Exponent of minkowski, at least 1.
    shift : ndarray of float64, shape (d,), optional
        What euclidean distances in many dimensions subtract first; the column means when left out. Rows that are part
        of a larger array are given that one's, so that their distances are the same bit for bit.

    Raises
    ------
    InputError
        Where distances, or a tree's sum of them, are beyond float64.
    """

    trusted = True

    def __init__(self, X: NDArray[Any], name: str, *, p: float = 2.0, shift: NDArray[np.float64] | None = None) -> None:
        self.X, self.name, self.p = _read_only(X), name, float(p)
        self.is_metric = name != "sqeuclidean"
        self._scale = self._shift = self._squares = _NOTHING
        self._kind, self._finish = _sum_and_finish(name, p=self.p)
        dims = X.shape[1]
        self._shift = np.zeros(dims)
        if name == "cosine":
            self._rows, self._scale, self.scaling = _directions(self.X)
        else:
            power = {POWER: self.p, SQUARED: 2.0}.get(self._kind, 1.0)
            self.scaling = _scaling(self.X, power=power, name=name)
            self._rows = _read_only(scaled(self.X, self.scaling.exponent))
        if self._kind == SQUARED and dims >= EXPANDED_FROM:
            self._kind = DOT
            if name != "cosine":
                self._shift = _column_means(self._rows) if shift is None else self._scaled_shift(shift)
            self._squares = centred_squares(self._rows, self._shift, self._scale)

    def _scaled_shift(self, shift: NDArray[np.float64]) -> NDArray[np.float64]:
        # Sums of huge coordinates may have overflowed where means were taken; any shift serves if all take the same.
        return np.ldexp(np.where(np.isfinite(shift), shift, 0.0), -self.scaling.exponent)

    def __len__(self) -> int:
        return len(self.X)

    def block(self, queries: Indices, targets: Indices) -> NDArray[np.float64]:
        """Return the distances from every query to every target; see :meth:`Metric.block`."""
        size = len(self.X)
        rows, columns = as_array(queries, size), as_array(targets, size)
        values = vector_block(
            self._rows,
            rows,
            columns,
            shift=self._shift,
            scale=self._scale,
            squares=self._squares,
            kind=self._kind,
            p=self.p,
            finish=self._finish,
        )
        if self.scaling == PLAIN:
            return values
        close = below(values.reshape(-1), self.scaling.floor)
        at = np.divmod(close, max(1, len(columns)))
        return self._restored(values, close, rows[at[0]], columns[at[1]])

    def _restored(
        self,
        values: NDArray[np.float64],
        close: NDArray[np.int64],
        first: NDArray[np.int64],
        second: NDArray[np.int64],
    ) -> NDArray[np.float64]:
        """Return distances of scaled rows in their own unit; those of the pairs at the flat positions `close` anew."""
        if self.scaling.exponent:
            values = np.ldexp(values, self.scaling.exponent)
        if len(close):
            X = self._rows if self.name == "cosine" else self.X
            kind = POWER if self._kind == POWER else SQUARED
            values.reshape(-1)[close] = close_pairs(X, first, second, self._scale, kind, self.p, self._finish)
        return values

    def pairs(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the distances of pairs, differences taken directly; see :meth:`Metric.pairs`."""
        kind = SQUARED if self._kind == DOT else self._kind
        first, second = as_array(first, len(self.X)), as_array(second, len(self.X))
        values: NDArray[np.float64] = vector_pairs(self._rows, first, second, self._scale, kind, self.p, self._finish)
        if self.scaling == PLAIN:
            return values
        close = below(values, self.scaling.floor)
        return self._restored(values, close, first[close], second[close])

    def square(self, members: Indices) -> NDArray[np.float64]:
        """Return all distances among `members`; see :meth:`Metric.square`."""
        return square_in_strips(self, members, rows=SQUARE_ROWS)

    @property
    def euclidean(self) -> bool:
        """Whether the distance increases with a Euclidean one, that of the `embedded` rows."""
        return self._kind in (DOT, SQUARED)

    def embedded(self) -> NDArray[np.float64]:
        """Return points whose Euclidean distances order the pairs as this distance does.

        Returns
        -------
        ndarray of float64, shape (n, d)
            A copy, unless the rows are float64 already; for `euclidean` metrics only. The Euclidean distances are those
            of these rows times ``2 ** scaling.exponent``, and those below ``scaling.floor`` may have lost digits.
        """
        rows = np.asarray(self._rows, dtype=np.float64)
        return rows * self._scale[:, None] if self._scale.size else rows

    def subset(self, members: NDArray[np.int64]) -> VectorMetric:
        """Return the metric on a copy of the rows `members`; see :meth:`Metric.subset`."""
        view = object.__new__(VectorMetric)
        view.__dict__.update(self.__dict__)
        view.X = _read_only(self.X[members])
        view._rows = view.X if self._rows is self.X else _read_only(self._rows[members])
        view._scale = self._scale[members] if self._scale.size else _NOTHING
        view._squares = self._squares[members] if self._squares.size else _NOTHING
        return view


def chord_to_cosine(chords: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return cosine distances 1 - cos for chords sqrt(2 - 2 cos), the metric behind ``metric="cosine"``.

    Parameters
    ----------
    chords : ndarray of float64
        Distances, or the weights of a tree, under ``metric="cosine"``.

    Returns
    -------
    ndarray of float64, the same shape
        The map is increasing, so a minimum spanning tree stays one; sums of cosine distances carry no guarantee,
        because 1 - cos breaks the triangle inequality.

    Examples
    --------
    >>> import numpy as np
    >>> chord_to_cosine(np.array([0.0, 2.0])).tolist()
    [0.0, 2.0]
    """
    return np.asarray(chords, dtype=np.float64) ** 2 / 2


def dense_rows(X: Any, name: str) -> NDArray[Any]:
    """Return `X` as a C-ordered 2-D array of finite float32, float64 or uint8.

    For haversine, latitudes and longitudes in radians become points on the unit sphere.

    Raises
    ------
    InputError
        For other shapes and types, and for NaN or infinite values; it lists the first rows that hold one.
    """
    try:
        array = np.asarray(X)
    except ValueError as error:
        raise InputError("X has rows of different lengths", expected=f"an array (n, d) for metric={name!r}") from error
    if array.dtype.kind not in "fiub":
        raise InputError(f"X has dtype {array.dtype}", expected=f"real numbers for metric={name!r}")
    if array.ndim != 2 or array.shape[1] == 0:
        raise InputError(f"X has shape {array.shape}", expected=f"(n, d) with d >= 1 for metric={name!r}")
    if array.dtype == np.float16:
        array = array.astype(np.float32)
    elif array.dtype not in (np.float32, np.float64, np.uint8):
        array = array.astype(np.float64)
    array = np.ascontiguousarray(array)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype.kind == "f":
        finite = np.empty(len(array), dtype=bool)
        for start in range(0, len(array), ROWS_AT_ONCE):
            finite[start : start + ROWS_AT_ONCE] = np.isfinite(array[start : start + ROWS_AT_ONCE]).all(axis=1)
        _require(finite, "X holds NaN or infinite values")
    return _on_sphere(array) if name == "haversine" else array


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a view that cannot be written: memory maps often cannot, and compiled code is made for one of the two."""
    view = array.view(np.ndarray)
    view.flags.writeable = False
    return view


def _scaling(X: NDArray[Any], *, power: float, name: str) -> Scaling:
    if X.dtype == np.uint8:
        largest, smallest = 255.0, 2.0**-SPACING
    elif X.dtype == np.float32 and power <= 2:
        # Squares of all float32 numbers and of all their differences are ordinary float64 numbers.
        return PLAIN
    else:
        largest, smallest = extent(X.reshape(-1))
    return scaling(largest, smallest, power=power, shape=(X.shape[0], X.shape[1]), name=name)


def _directions(X: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.float64], Scaling]:
    """Return rows, what they are multiplied by to have length 1, and the scaling of the result.

    The rows are X itself unless squared lengths leave float64: then those of a copy that was scaled row by row.
    """
    squares = centred_squares(X, np.zeros(X.shape[1]), _NOTHING)
    if ((squares < ORDINARY[0]) | (squares > ORDINARY[1])).any():
        largest = np.abs(X).max(axis=1)
        _require(largest > 0, "metric='cosine': X has rows of zeros, which have no direction")
        _, exponents = np.frexp(largest)
        X = _read_only(np.ldexp(X.astype(np.float64), -exponents[:, None]))
        squares = centred_squares(X, np.zeros(X.shape[1]), _NOTHING)
    lengths = np.sqrt(squares)
    if X.dtype != np.float64:
        return X, 1.0 / lengths, PLAIN
    # The smallest coordinate of a direction is not below the smallest of all over the longest row.
    smallest = extent(X.reshape(-1))[1] / lengths.max(initial=1.0)
    return X, 1.0 / lengths, scaling(1.0, smallest, power=2.0, shape=(len(X), X.shape[1]), name="cosine")


def _on_sphere(array: NDArray[Any]) -> NDArray[np.float64]:
    if array.shape[1] != 2:
        raise InputError(f"X has {array.shape[1]} columns", expected="2 for metric='haversine': latitude and longitude")
    latitude, longitude = (column.astype(np.float64) for column in array.T)
    _require(
        np.abs(latitude) <= np.pi / 2 + 1e-9,
        "metric='haversine': X has latitudes beyond pi/2; give radians, not degrees",
    )
    across = np.cos(latitude)
    return np.column_stack((across * np.cos(longitude), across * np.sin(longitude), np.sin(latitude)))


def _require(fine: NDArray[np.bool_], message: str) -> None:
    if not fine.all():
        rows = np.flatnonzero(~fine)
        listed = ", ".join(map(str, rows[:LISTED])) + (", ..." if len(rows) > LISTED else "")
        raise InputError(f"{message} (rows counted from 0: {listed}; {len(rows)} in all)")


def _column_means(X: NDArray[Any]) -> NDArray[np.float64]:
    total = np.zeros(X.shape[1])
    for start in range(0, len(X), ROWS_AT_ONCE):
        total += X[start : start + ROWS_AT_ONCE].sum(axis=0, dtype=np.float64)
    return total / max(1, len(X))


def _sum_and_finish(name: str, *, p: float) -> tuple[int, int]:
    if name == "minkowski":
        if p == 1:
            return ABSOLUTE, IDENTITY
        if p == 2:
            return SQUARED, SQRT
        return (MAXIMUM, IDENTITY) if np.isinf(p) else (POWER, ROOT)
    return {
        "euclidean": (SQUARED, SQRT),
        "sqeuclidean": (SQUARED, IDENTITY),
        "cosine": (SQUARED, SQRT),
        "haversine": (SQUARED, ANGLE),
        "cityblock": (ABSOLUTE, IDENTITY),
        "chebyshev": (MAXIMUM, IDENTITY),
    }[name]
