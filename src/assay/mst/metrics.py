"""Distances on vectors, codes, sets, strings, matrices and callables behind one contract."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from assay.core.errors import InputError
from assay.mst._contract import (
    CountedMetric,
    Indices,
    Metric,
    MetricCheck,
    MetricWarning,
    as_array,
    check_metric,
)

__all__ = ["CountedMetric", "Indices", "Metric", "MetricCheck", "MetricWarning", "check_metric", "make_metric"]


class _Pairwise(Metric):
    def __init__(self, X: Any, name: str, pairwise: Callable[[Any, Any], NDArray[np.float64]]) -> None:
        self.X, self.name, self.pairwise = X, name, pairwise

    def __len__(self) -> int:
        return len(self.X)

    def _take(self, index: Indices) -> Any:
        if isinstance(self.X, np.ndarray) or isinstance(index, slice):
            return self.X[index]
        return [self.X[i] for i in index]

    def block(self, queries: Indices, targets: Indices) -> NDArray[np.float64]:
        return np.asarray(self.pairwise(self._take(queries), self._take(targets)), dtype=np.float64)

    def pairs(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.array([self.block(as_array(slice(i, i + 1), len(self)), as_array(slice(j, j + 1), len(self)))[0, 0]
                         for i, j in zip(first, second, strict=True)], dtype=np.float64)

    def subset(self, members: NDArray[np.int64]) -> Metric:
        return _Pairwise(self._take(members), self.name, self.pairwise)


def make_metric(X: Any, metric: Any = "euclidean", *, p: float | None = None, unit: str = "codepoint") -> Metric:
    """Return the metric on `X`."""
    if isinstance(X, Metric):
        return X
    if isinstance(metric, Metric):
        return metric
    if callable(metric):
        return _Pairwise(X, "callable", lambda A, B: np.array([[metric(a, b) for b in B] for a in A]).reshape(len(A), len(B)))
    if metric == "levenshtein":
        from rapidfuzz.distance import Levenshtein
        from rapidfuzz.process import cdist as strings
        return _Pairwise(list(X), metric, lambda A, B: strings(A, B, scorer=Levenshtein.distance))
    if metric == "jaccard":
        def jaccard(A: Sequence[Any], B: Sequence[Any]) -> NDArray[np.float64]:
            return np.array([[1 - len(a & b) / len(a | b) if a | b else 0.0 for b in B] for a in A]).reshape(len(A), len(B))
        return _Pairwise([set(x) for x in X], metric, jaccard)
    X = np.asarray(X)
    if X.ndim != 2:
        raise InputError(f"X has shape {X.shape}", expected="(n, d)")
    if metric == "hamming":
        return _Pairwise(X, metric, lambda A, B: (A[:, None, :] != B[None]).sum(-1))
    if metric == "precomputed":
        return _Precomputed(X)
    options = {"p": p} if metric == "minkowski" else {}
    return _Pairwise(X, metric, lambda A, B: cdist(A, B, metric, **options))


class _Precomputed(Metric):
    name = "precomputed"

    def __init__(self, D: NDArray[Any]) -> None:
        self.D = D

    def __len__(self) -> int:
        return len(self.D)

    def block(self, queries: Indices, targets: Indices) -> NDArray[np.float64]:
        return np.asarray(self.D[np.ix_(as_array(queries, len(self)), as_array(targets, len(self)))], dtype=np.float64)

    def pairs(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.asarray(self.D[first, second], dtype=np.float64)

    def subset(self, members: NDArray[np.int64]) -> Metric:
        return _Precomputed(self.D[np.ix_(members, members)])
