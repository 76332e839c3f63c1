"""Jaccard distance among sets: 1 - |A ∩ B| / |A ∪ B|, and 0 for two empty sets.

Sets are rows of a sorted compressed sparse matrix. Few items are shared by a random pair, so a block is computed
from an inverted index of its targets: each item of a query visits only the targets that hold it, and pairs that share
nothing cost a division and no look-up.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import sparse

from assay.core.errors import InputError
from assay.mst._contract import Indices, Metric, as_array, square_in_strips

__all__ = ["JaccardMetric", "set_rows"]

SQUARE_ROWS = 128
TILE = 4096
"""Targets indexed at a time: their counters take 16 KiB."""

INDEXED_FROM = 4
"""From so many queries on, an index of the block's targets pays for itself."""


class JaccardMetric(Metric):
    """The Jaccard distance among sets.

    Parameters
    ----------
    starts : ndarray of int64, shape (n + 1,)
    items : ndarray of int32, shape (entries,)
        Items of set i are ``items[starts[i]:starts[i + 1]]``, increasing, below `vocabulary`.
    vocabulary : int
    """

    name = "jaccard"
    trusted = True

    def __init__(self, starts: NDArray[np.int64], items: NDArray[np.int32], *, vocabulary: int) -> None:
        self.starts, self.items, self.vocabulary = starts, items, vocabulary
        self._holder_starts, self._holders = _invert(starts, items, vocabulary)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def block(self, queries: Indices, targets: Indices) -> NDArray[np.float64]:
        """Return the distances from every query to every target; see :meth:`Metric.block`."""
        rows, columns = as_array(queries, len(self)), as_array(targets, len(self))
        if len(rows) < INDEXED_FROM:
            return _rows(  # type: ignore[no-any-return]
                self.starts, self.items, self._holder_starts, self._holders, rows, columns, self.vocabulary
            )
        return _block(self.starts, self.items, rows, columns, self.vocabulary)  # type: ignore[no-any-return]

    def square(self, members: Indices) -> NDArray[np.float64]:
        """Return all distances among `members`; see :meth:`Metric.square`."""
        return square_in_strips(self, members, rows=SQUARE_ROWS)

    def pairs(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the distances of pairs; see :meth:`Metric.pairs`."""
        size = len(self)
        return _pairs(self.starts, self.items, as_array(first, size), as_array(second, size))  # type: ignore[no-any-return]

    def subset(self, members: NDArray[np.int64]) -> JaccardMetric:
        """Return the metric on a copy of the sets `members`; see :meth:`Metric.subset`."""
        starts, items = _take(self.starts, self.items, as_array(members, len(self)))
        return JaccardMetric(starts, items, vocabulary=self.vocabulary)


@njit(cache=True, nogil=True)
def _invert(starts, items, vocabulary):  # type: ignore[no-untyped-def]
    """Return, as compressed rows, the increasing list of sets that hold each item."""
    holder_starts = np.zeros(vocabulary + 1, dtype=np.int64)
    for item in items:
        holder_starts[item + 1] += 1
    for item in range(vocabulary):
        holder_starts[item + 1] += holder_starts[item]
    place = holder_starts[:-1].copy()
    holders = np.empty(len(items), dtype=np.int32)
    for i in range(len(starts) - 1):
        for at in range(starts[i], starts[i + 1]):
            holders[place[items[at]]] = i
            place[items[at]] += 1
    return holder_starts, holders


@njit(cache=True, nogil=True)
def _take(starts, items, members):  # type: ignore[no-untyped-def]
    taken = np.zeros(len(members) + 1, dtype=np.int64)
    for a in range(len(members)):
        taken[a + 1] = taken[a] + starts[members[a] + 1] - starts[members[a]]
    out = np.empty(taken[-1], dtype=np.int32)
    for a in range(len(members)):
        out[taken[a] : taken[a + 1]] = items[starts[members[a]] : starts[members[a] + 1]]
    return taken, out


@njit(cache=True, nogil=True, inline="always")
def _distance(shared: int, size_a: int, size_b: int) -> float:
    union = size_a + size_b - shared
    return (union - shared) / union if union else 0.0


@njit(cache=True, nogil=True)
def _pairs(starts, items, first, second):  # type: ignore[no-untyped-def]
    out = np.empty(len(first))
    for at in range(len(first)):
        a, a_end = starts[first[at]], starts[first[at] + 1]
        b, b_end = starts[second[at]], starts[second[at] + 1]
        size_a, size_b = a_end - a, b_end - b
        shared = 0
        while a < a_end and b < b_end:
            x, y = items[a], items[b]
            shared += x == y
            a += x <= y
            b += y <= x
        out[at] = _distance(shared, size_a, size_b)
    return out


@njit(cache=True, nogil=True)
def _rows(starts, items, holder_starts, holders, queries, targets, vocabulary):  # type: ignore[no-untyped-def]
    """Return a block of few queries, each by the cheaper of two ways: marks on its items, or everybody's holders."""
    out = np.empty((len(queries), len(targets)))
    sizes = np.empty(len(targets), dtype=np.int64)
    entries = 0
    for b in range(len(targets)):
        sizes[b] = starts[targets[b] + 1] - starts[targets[b]]
        entries += sizes[b]
    marks = np.zeros(vocabulary, dtype=np.uint8)
    counts = np.zeros(len(starts) - 1, dtype=np.int32)
    for a in range(len(queries)):
        own = items[starts[queries[a]] : starts[queries[a] + 1]]
        visits = len(targets)
        for item in own:
            visits += holder_starts[item + 1] - holder_starts[item]
        if visits < entries:
            for item in own:
                for at in range(holder_starts[item], holder_starts[item + 1]):
                    counts[holders[at]] += 1
            for b in range(len(targets)):
                out[a, b] = _distance(counts[targets[b]], len(own), sizes[b])
            for item in own:
                for at in range(holder_starts[item], holder_starts[item + 1]):
                    counts[holders[at]] = 0
        else:
            for item in own:
                marks[item] = 1
            for b in range(len(targets)):
                begin = starts[targets[b]]
                shared = 0
                for at in range(begin, begin + sizes[b]):
                    shared += marks[items[at]]
                out[a, b] = _distance(shared, len(own), sizes[b])
            for item in own:
                marks[item] = 0
    return out


@njit(cache=True, nogil=True)
def _block(starts, items, queries, targets, vocabulary):  # type: ignore[no-untyped-def]
    out = np.empty((len(queries), len(targets)))
    counts = np.zeros(TILE, dtype=np.int32)
    sizes = np.zeros(TILE, dtype=np.int32)
    for start in range(0, len(targets), TILE):
        length = min(TILE, len(targets) - start)
        taken, part = _take(starts, items, targets[start : start + length])
        holder_starts, holders = _invert(taken, part, vocabulary)
        for b in range(length):
            sizes[b] = taken[b + 1] - taken[b]
        for a in range(len(queries)):
            own = items[starts[queries[a]] : starts[queries[a] + 1]]
            for item in own:
                for at in range(holder_starts[item], holder_starts[item + 1]):
                    counts[holders[at]] += 1
            size = np.int32(len(own))
            line = out[a, start : start + length]
            for b in range(length):
                shared = counts[b]
                union = size + sizes[b] - shared
                # With a union of 0 both sets are empty, and 0 / 1 is their distance.
                line[b] = np.float64(union - shared) / np.float64(max(union, np.int32(1)))
                counts[b] = 0
    return out


def set_rows(X: Any) -> tuple[NDArray[np.int64], NDArray[np.int32], int]:
    """Return sets as sorted compressed rows: starts (n + 1,), items (entries,) and the size of the vocabulary.

    Parameters
    ----------
    X : sequence of sets or iterables of hashable items, sparse matrix, or bool or 0/1 matrix
        A row of a matrix is the set of its non-zero columns. Repeated items count once.

    Raises
    ------
    InputError
        For anything else, naming the element.
    """
    if sparse.issparse(X):
        matrix = sparse.csr_matrix(X, copy=True)
        matrix.eliminate_zeros()
        matrix.sum_duplicates()
        return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.shape[1]
    if isinstance(X, np.ndarray) and X.ndim == 2:
        if X.dtype != bool and not ((X == 0) | (X == 1)).all():
            raise InputError(
                "X is a matrix with values other than 0 and 1", expected="a membership matrix or a list of sets"
            )
        rows, columns = np.nonzero(X)
        starts = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=len(X)))))
        return starts.astype(np.int64), columns.astype(np.int32), X.shape[1]
    if hasattr(X, "to_pylist"):
        X = X.to_pylist()
    if isinstance(X, str | bytes) or not isinstance(X, Iterable):
        raise InputError(f"X is a {type(X).__name__}", expected="a list of sets for metric='jaccard'")
    ranks: dict[Any, int] = {}
    lengths, flat = [0], []
    for at, row in enumerate(X):
        if isinstance(row, str | bytes) or not isinstance(row, Iterable):
            raise InputError(
                f"X[{at}] is a {type(row).__name__}", expected="a set or list of items for metric='jaccard'"
            )
        try:
            ids = sorted({ranks.setdefault(item, len(ranks)) for item in row})
        except TypeError as error:
            raise InputError(
                f"X[{at}] holds an item that cannot be hashed ({error})", expected="hashable items"
            ) from error
        flat.extend(ids)
        lengths.append(len(ids))
    return np.cumsum(lengths, dtype=np.int64), np.array(flat, dtype=np.int32), max(1, len(ranks))
