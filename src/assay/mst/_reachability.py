"""Mutual reachability: max(core(a), core(b), d(a, b)), the metric behind HDBSCAN.

It is a metric whenever d is one, so every bound of this package holds for its trees.
Source: Campello, Moulavi and Sander, "Density-Based Clustering Based on Hierarchical Density Estimates" (2013).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit
from numpy.typing import NDArray

from assay.core.errors import InputError
from assay.mst._contract import Indices, Metric, as_array

if TYPE_CHECKING:
    from assay.mst._contract import CountedMetric

__all__ = ["MutualReachability", "core_distances"]

BLOCK = 1 << 18
"""Distances in a block of the search for core distances (2 MiB)."""


class MutualReachability(Metric):
    """max(core(a), core(b), d(a, b)) for a != b, and 0 for an object and itself.

    Parameters
    ----------
    metric : Metric
        The distance d.
    core : ndarray of float64, shape (n,)
        Core distances, see :func:`core_distances`.
    exact_core : bool
        Whether they are exact. Upper bounds give a metric as well, whose tree weighs at least as much.

    Raises
    ------
    InputError
        Where `core` has another length, or holds a value that is no distance.

    Examples
    --------
    >>> import numpy as np
    >>> from assay.mst.metrics import make_metric
    >>> line = make_metric(np.array([[0.0], [1.0], [3.0]]))
    >>> MutualReachability(line, core_distances(line, 1)).pairs(np.array([0]), np.array([2])).tolist()
    [3.0]
    """

    trusted = True

    def __init__(self, metric: Metric, core: NDArray[np.float64], *, exact_core: bool = True) -> None:
        self.metric, self.exact_core = metric, exact_core
        self.core = np.ascontiguousarray(core, dtype=np.float64)
        if self.core.shape != (len(metric),):
            raise InputError(f"core has shape {self.core.shape}", expected=f"({len(metric)},)")
        bad = np.flatnonzero(~((self.core >= 0) & (self.core < np.inf)))
        if bad.size:
            raise InputError(f"core[{bad[0]}] is {self.core[bad[0]]}", expected="a finite number >= 0")
        self.name = f"mutual reachability of {metric.name}" + (
            "" if exact_core else " (core distances are upper bounds)"
        )
        self.is_metric = metric.is_metric

    def __len__(self) -> int:
        return len(self.metric)

    def block(self, queries: Indices, targets: Indices) -> NDArray[np.float64]:
        """Return the distances from every query to every target; see :meth:`Metric.block`."""
        rows, columns = as_array(queries, len(self)), as_array(targets, len(self))
        values = np.ascontiguousarray(self.metric.block(queries, targets))
        _raise_to_core(values, rows, columns, self.core)
        return values

    def square(self, members: Indices) -> NDArray[np.float64]:
        """Return all distances among `members`; see :meth:`Metric.square`."""
        values = self.metric.square(members)
        index = as_array(members, len(self))
        _raise_to_core(values, index, index, self.core)
        return values

    def pairs(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the distances of pairs; see :meth:`Metric.pairs`."""
        reach = np.maximum(np.maximum(self.core[first], self.core[second]), self.metric.pairs(first, second))
        return np.where(first == second, 0.0, reach)

    def subset(self, members: NDArray[np.int64]) -> MutualReachability:
        """Return the metric among `members`, with the core distances of the whole; see :meth:`Metric.subset`."""
        return MutualReachability(self.metric.subset(members), self.core[members], exact_core=self.exact_core)


@njit(cache=True, nogil=True)
def _raise_to_core(values, rows, columns, core):  # type: ignore[no-untyped-def]
    for a in range(len(rows)):
        own = core[rows[a]]
        for b in range(len(columns)):
            values[a, b] = max(max(own, core[columns[b]]), values[a, b])
        for b in range(len(columns)):
            if columns[b] == rows[a]:
                values[a, b] = 0.0


def core_distances(
    metric: Metric | CountedMetric,
    min_samples: int,
    *,
    labels: NDArray[np.int64] | None = None,
    visited: NDArray[np.int64] | None = None,
) -> NDArray[np.float64]:
    """Return the distance of every object to its `min_samples`-th nearest other object, or an upper bound on it.

    Parameters
    ----------
    metric : Metric
    min_samples : int
        Which neighbour counts; the object itself is not one of them.
    labels : ndarray of int64, shape (n,), optional
        Components. Given, neighbours are sought only in an object's own component and among `visited`: the result is an
        upper bound and takes the sum of squared component sizes plus n times ``len(visited)`` evaluations, not n^2.
    visited : ndarray of int64, shape (v,), optional
        Objects that every object is compared with, for example centres. At least ``min_samples + 1`` of them, or
        components of more than `min_samples` objects, are needed.

    Returns
    -------
    ndarray of float64, shape (n,)

    Raises
    ------
    InputError
        Where `min_samples` is below 1 or not below n, or an object has too few candidates.
    """
    size = len(metric)
    if not 1 <= min_samples < size:
        raise InputError(f"min_samples is {min_samples}", expected=f"1 to {size - 1} for {size} objects")
    everything = np.arange(size, dtype=np.int64)
    if labels is None:
        return _nearest(metric, everything, everything, min_samples)
    core = np.empty(size)
    common = np.empty(0, dtype=np.int64) if visited is None else np.unique(visited)
    order = np.argsort(labels, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(labels[order])) + 1):
        candidates = np.union1d(members, common)
        if len(candidates) <= min_samples:
            raise InputError(
                f"object {members[0]} has {len(candidates) - 1} candidates for its {min_samples} neighbours",
                expected="larger components or more visited objects",
            )
        core[members] = _nearest(metric, members, candidates, min_samples)
    return core


def _nearest(metric: Metric, rows: NDArray[np.int64], columns: NDArray[np.int64], rank: int) -> NDArray[np.float64]:
    height = max(1, BLOCK // len(columns))
    found = np.empty(len(rows))
    for start in range(0, len(rows), height):
        part = rows[start : start + height]
        values = metric.block(part, columns)
        # An object is at distance 0 of itself whatever rounding says, so that it always fills rank 0.
        values[part[:, None] == columns] = -1.0
        found[start : start + height] = np.partition(values, rank, axis=1)[:, rank]
    return found
