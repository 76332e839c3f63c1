"""Distances that the user brings: a matrix, its upper triangle, or a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numba.core.errors import NumbaError
from numba.core.registry import CPUDispatcher
from numpy.typing import NDArray

from assay.core.errors import InputError
from assay.mst._contract import Indices, Metric, as_array, require_distances

__all__ = ["CallableMetric", "CondensedMetric", "PrecomputedMetric", "given_distances"]

TILE = 1024
"""Side of the squares in which a matrix is checked: a square and its mirror image take 16 MiB at most."""

SHOWN = 60
"""Characters of a value in a message."""

SLACK = {np.dtype(np.float32): 1e-5, np.dtype(np.float16): 1e-2}
"""Relative asymmetry of a matrix that rounding in its own type explains; 1e-9 for all other types."""


class PrecomputedMetric(Metric):
    """Distances read from a square array or memmap, which is neither copied nor converted.

    Parameters
    ----------
    matrix : ndarray, shape (n, n)
    """

    name = "precomputed"
    trusted = True

    def __init__(self, matrix: NDArray[Any], members: NDArray[np.int64] | None = None) -> None:
        self.matrix, self._members = matrix, members

    def __len__(self) -> int:
        return len(self.matrix) if self._members is None else len(self._members)

    def _at(self, indices: Indices) -> Indices:
        return indices if self._members is None else self._members[indices]

    def block(self, queries: Indices, targets: Indices) -> NDArray[np.float64]:
        """Return the distances from every query to every target; see :meth:`Metric.block`."""
        rows, columns = self._at(queries), self._at(targets)
        if isinstance(rows, slice) or isinstance(columns, slice):
            values = self.matrix[rows, columns]
        else:
            values = self.matrix[rows[:, None], columns]
        return np.array(values, dtype=np.float64)

    def pairs(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the distances of pairs; see :meth:`Metric.pairs`."""
        return np.asarray(self.matrix[self._at(first), self._at(second)], dtype=np.float64)

    def square(self, members: Indices) -> NDArray[np.float64]:
        """Return all distances among `members`; see :meth:`Metric.square`."""
        values = self.block(members, members)
        upper = np.triu_indices(len(values), 1)
        values.T[upper] = values[upper]
        np.fill_diagonal(values, 0.0)
        return values

    def subset(self, members: NDArray[np.int64]) -> PrecomputedMetric:
        """Return a view on `members` that reads from the same matrix; see :meth:`Metric.subset`."""
        return PrecomputedMetric(self.matrix, np.asarray(self._at(members), dtype=np.int64))


class CondensedMetric(Metric):
    """Distances read from the upper triangle of their matrix, by rows, as :func:`scipy.spatial.distance.pdist` has it.

    Parameters
    ----------
    condensed : ndarray, shape (n(n-1)/2,)
    size : int
        The number of objects n.
    """

    name = "precomputed"
    trusted = True

    def __init__(self, condensed: NDArray[Any], size: int, members: NDArray[np.int64] | None = None) -> None:
        self.condensed, self._size = condensed, size
        self._members = np.arange(size, dtype=np.int64) if members is None else members

    def __len__(self) -> int:
        return len(self._members)

    def _look_up(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.float64]:
        low, high = np.minimum(first, second), np.maximum(first, second)
        # The diagonal is not stored: there, position 0 stands in and is masked.
        same = low == high
        place = np.where(same, 0, low * (2 * self._size - low - 1) // 2 + high - low - 1)
        if not len(self.condensed):
            return np.zeros(place.shape)
        return np.where(same, 0.0, np.asarray(self.condensed[place], dtype=np.float64))

    def block(self, queries: Indices, targets: Indices) -> NDArray[np.float64]:
        """Return the distances from every query to every target; see :meth:`Metric.block`."""
        return self._look_up(self._members[queries][:, None], self._members[targets][None, :])

    def pairs(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the distances of pairs; see :meth:`Metric.pairs`."""
        return self._look_up(self._members[first], self._members[second])

    def subset(self, members: NDArray[np.int64]) -> CondensedMetric:
        """Return a view on `members` that reads from the same array; see :meth:`Metric.subset`."""
        return CondensedMetric(self.condensed, self._size, self._members[members])


class CallableMetric(Metric):
    """Distances from a function of two objects.

    Parameters
    ----------
    objects : sequence or ndarray, length n
    function : callable
        ``function(a, b) -> float``; or, with `vectorized`, ``function(A, B) -> (q, m)`` on two collections of objects
        of the type of `objects` (arrays of rows, or lists). A function compiled by numba is called from compiled code
        when `objects` is an array.
    vectorized : bool
    is_metric : bool
        Whether the caller vouches for the triangle inequality.
    """

    trusted = True

    def __init__(
        self, objects: Any, function: Callable[..., Any], *, vectorized: bool = False, is_metric: bool = True
    ) -> None:
        self.objects, self.function, self.vectorized, self.is_metric = objects, function, vectorized, is_metric
        self.name = getattr(function, "__name__", type(function).__name__)
        self._compiled = isinstance(function, CPUDispatcher) and isinstance(objects, np.ndarray) and not vectorized

    def __len__(self) -> int:
        return len(self.objects)

    def _take(self, index: NDArray[np.int64]) -> Any:
        return self.objects[index] if isinstance(self.objects, np.ndarray) else [self.objects[i] for i in index]

    def block(self, queries: Indices, targets: Indices) -> NDArray[np.float64]:
        """Return the distances from every query to every target; see :meth:`Metric.block`."""
        rows, columns = as_array(queries, len(self)), as_array(targets, len(self))
        if self.vectorized:
            values = self._numbers(self.function(self._take(rows), self._take(columns)), rows, columns)
            if values.shape != (len(rows), len(columns)):
                raise InputError(
                    f"{self.name} returned shape {values.shape} for {len(rows)} and {len(columns)} objects",
                    expected=f"({len(rows)}, {len(columns)})",
                )
        else:
            first, second = np.repeat(rows, len(columns)), np.tile(columns, len(rows))
            values = self._each(first, second).reshape(len(rows), len(columns))
        require_distances(values, rows, columns, name=self.name)
        return values

    def pairs(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the distances of pairs; see :meth:`Metric.pairs`."""
        first, second = as_array(first, len(self)), as_array(second, len(self))
        if not self.vectorized:
            values = self._each(first, second)
            bad = np.flatnonzero(~((values >= 0) & (values < np.inf)))
            if bad.size:
                at = slice(int(bad[0]), int(bad[0]) + 1)
                require_distances(values[at, None], first[at], second[at], name=self.name)
            return values
        values = np.empty(len(first))
        for group in _groups(first):
            values[group] = self.block(first[group[:1]], second[group])[0]
        return values

    def _numbers(self, returned: Any, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return what a vectorised function returned as float64, its own memory."""
        try:
            array = np.asarray(returned)
        except ValueError as error:
            raise InputError(f"{self.name} returned rows of different lengths", expected="an array (q, m)") from error
        if array.dtype.kind in "fiub":
            return array.astype(np.float64)
        if array.dtype == object and array.shape == (len(rows), len(columns)):
            pairs = [(i, j) for i in rows.tolist() for j in columns.tolist()]
            flat = [self._number(value, *pair) for value, pair in zip(array.ravel().tolist(), pairs, strict=True)]
            return np.array(flat).reshape(array.shape)
        raise InputError(f"{self.name} returned dtype {array.dtype}", expected="real numbers")

    def _number(self, value: Any, i: int, j: int) -> float:
        try:
            if isinstance(value, str | bytes | complex | np.complexfloating):
                raise TypeError
            return float(value)
        except (TypeError, ValueError, OverflowError) as error:
            shown = "beyond the largest float64" if isinstance(value, int) else repr(value)[:SHOWN]
            raise InputError(
                f"{self.name}: the distance of objects {i} and {j} is {shown}", expected="a number"
            ) from error

    def _each(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.float64]:
        if self._compiled:
            try:
                return _call_each(self.function, self.objects, first, second)  # type: ignore[no-any-return]
            except NumbaError as error:
                raise InputError(
                    f"{self.name} can't be compiled for rows of dtype {self.objects.dtype} and a number as result",
                    expected="a function of two rows that returns a number",
                ) from error
        values = np.empty(len(first))
        for at, (i, j) in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
            values[at] = self._number(self.function(self.objects[i], self.objects[j]), i, j)
        return values

    def subset(self, members: NDArray[np.int64]) -> CallableMetric:
        """Return the metric on the objects `members`; see :meth:`Metric.subset`."""
        taken = self._take(as_array(members, len(self)))
        view = CallableMetric(taken, self.function, vectorized=self.vectorized, is_metric=self.is_metric)
        view.name = self.name
        return view


@njit(nogil=True)
def _call_each(function, objects, first, second):  # type: ignore[no-untyped-def]
    out = np.empty(len(first))
    for at in range(len(first)):
        out[at] = function(objects[first[at]], objects[second[at]])
    return out


def _groups(values: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return the positions of each distinct value."""
    if not len(values):
        return []
    order = np.argsort(values, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(values[order])) + 1)


def given_distances(X: Any) -> PrecomputedMetric | CondensedMetric:
    """Return the metric that a square or condensed array of distances holds.

    Raises
    ------
    InputError
        Where the array is neither, or not symmetric, finite, non-negative with a zero diagonal; it names the pair.
        Where it has first to be made into an array and memory does not suffice, it names the size.
    """
    try:
        matrix = np.asarray(X)
    except MemoryError as error:
        size = len(X)
        raise InputError(
            f"metric='precomputed': a {size} x {size} float64 matrix needs {size * size * 8 / 2**30:.1f} GiB of memory",
            expected="an array or a memmap, or a metric that computes distances when they are needed",
        ) from error
    except ValueError as error:
        raise InputError("metric='precomputed': X has rows of different lengths", expected="(n, n)") from error
    if matrix.dtype.kind not in "fiub":
        raise InputError(f"metric='precomputed': X has dtype {matrix.dtype}", expected="real numbers")
    if matrix.ndim == 1:
        return _condensed(matrix)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise InputError(
            f"metric='precomputed': X has shape {matrix.shape}", expected="(n, n), or (n(n-1)/2,) condensed"
        )
    _require_distance_matrix(matrix)
    return PrecomputedMetric(matrix)


def _condensed(values: NDArray[Any]) -> CondensedMetric:
    size = round((1 + np.sqrt(1 + 8 * len(values))) / 2)
    if size * (size - 1) // 2 != len(values):
        raise InputError(f"metric='precomputed': X has shape {values.shape}", expected="n(n-1)/2 distances, or (n, n)")
    for start in range(0, len(values), TILE * TILE):
        part = np.asarray(values[start : start + TILE * TILE])
        bad = np.flatnonzero(~((part >= 0) & (part < np.inf)))
        if bad.size:
            at = start + int(bad[0])
            row = int(size - 2 - np.floor((np.sqrt(4 * size * (size - 1) - 8 * at - 7) - 1) / 2))
            column = at - row * (2 * size - row - 1) // 2 + row + 1
            require_distances(
                part[bad[:1], None].astype(np.float64), np.array([row]), np.array([column]), name="precomputed"
            )
    return CondensedMetric(values, size)


def _require_distance_matrix(matrix: NDArray[Any]) -> None:
    size = len(matrix)
    slack = SLACK.get(matrix.dtype, 1e-9)
    diagonal = np.asarray(matrix.diagonal())
    if (diagonal != 0).any():
        at = int(np.argmax(diagonal != 0))
        raise InputError(f"metric='precomputed': X[{at}, {at}] is {diagonal[at]}", expected="a zero diagonal")
    for start in range(0, size, TILE):
        for other in range(start, size, TILE):
            rows, columns = slice(start, min(size, start + TILE)), slice(other, min(size, other + TILE))
            upper = np.asarray(matrix[rows, columns], dtype=np.float64)
            lower = np.asarray(matrix[columns, rows], dtype=np.float64).T
            require_distances(upper, rows, columns, name="precomputed")
            require_distances(np.ascontiguousarray(lower.T), columns, rows, name="precomputed")
            unequal = np.abs(upper - lower) > slack * np.maximum(upper, lower)
            if unequal.any():
                a, b = np.unravel_index(int(np.argmax(unequal)), upper.shape)
                i, j = int(a) + start, int(b) + other
                raise InputError(
                    f"metric='precomputed': X[{i}, {j}] is {upper[a, b]:.17g} and X[{j}, {i}] is {lower[a, b]:.17g}",
                    expected="a symmetric matrix",
                )
