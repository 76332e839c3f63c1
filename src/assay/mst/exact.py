"""Exact minimum spanning trees.

Prim's algorithm on distances that are computed when needed takes any metric, n(n-1)/2 evaluations and O(n) memory. For
distances that increase with a Euclidean distance, tree codes on kd-trees are faster in few dimensions; their trees are
taken, and weighed here.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import InputError, MissingPackageError
from assay.mst._graph import grow_tree, prim_matrix, require_tree
from assay.mst._tiles import resolve_jobs
from assay.mst._vectors import VectorMetric
from assay.mst.metrics import CountedMetric, Metric

__all__ = ["METHODS", "cheapest_method", "exact_mst"]

METHODS = ("auto", "prim", "quitefastmst", "mlpack")

MATRIX_OBJECTS = 2048
"""Up to so many objects, all distances at once (32 MiB) are faster than row after row."""

PART = 1 << 14
"""Distances that a thread computes at least: below, waking it costs more than it does."""

QUITEFASTMST_DIMS, MLPACK_DIMS = 24, 16
"""Up to so many dimensions the codes took less time than Prim on 10 000 to 30 000 clustered points."""

_EUCLIDEAN = ("euclidean", "sqeuclidean", "cosine", "haversine")


def cheapest_method(metric: Metric) -> str:
    """Return the method that ``exact_mst(metric, method="auto")`` takes.

    Parameters
    ----------
    metric : Metric

    Returns
    -------
    {"prim", "quitefastmst", "mlpack"}
        Of those that are installed.
    """
    vectors = _euclidean_like(metric)
    if vectors is None or len(vectors) <= MATRIX_OBJECTS:
        return "prim"
    if vectors.X.shape[1] <= QUITEFASTMST_DIMS and find_spec("quitefastmst"):
        return "quitefastmst"
    if vectors.X.shape[1] <= MLPACK_DIMS and find_spec("mlpack"):
        return "mlpack"
    return "prim"


def exact_mst(
    metric: Metric, *, method: str = "auto", n_jobs: int | None = 1
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return a minimum spanning tree of all objects of a metric.

    Parameters
    ----------
    metric : Metric
        n objects. In a :class:`CountedMetric`, Prim books n(n-1)/2 evaluations; the other methods book the n-1 of the
        weights, because they evaluate distances of their own.
    method : {"auto", "prim", "quitefastmst", "mlpack"}
        "auto" takes the cheapest, see :func:`cheapest_method`. The last two need a distance that increases with a
        Euclidean one: euclidean, sqeuclidean, cosine (the chord) or haversine.
    n_jobs : int
        Threads; -1 for all cores. The tree is the same for every number.

    Returns
    -------
    edges : ndarray of int64, shape (n - 1, 2)
        Lower object first, ordered by weight, then by objects.
    weights : ndarray of float64, shape (n - 1,)
        From ``metric.pairs``. Duplicates are joined by edges of weight 0.

    Raises
    ------
    InputError
        Where the method is unknown or does not fit the metric.
    MissingPackageError
        Where its package is not installed.
    AssayError
        Where a package returned something else than a spanning tree.

    Notes
    -----
    R. C. Prim, "Shortest connection networks and some generalizations" (1957). Ties are won by the lowest object.

    Examples
    --------
    >>> from assay.mst.metrics import make_metric
    >>> edges, weights = exact_mst(make_metric([[0.0], [3.0], [1.0]]))
    >>> edges.tolist(), weights.tolist()
    ([[0, 2], [1, 2]], [1.0, 2.0])
    """
    if method not in METHODS:
        raise InputError(f"method is {method!r}", expected=", ".join(METHODS))
    jobs = resolve_jobs(n_jobs)
    if len(metric) < 2:
        return np.empty((0, 2), dtype=np.int64), np.empty(0)
    chosen = cheapest_method(metric) if method == "auto" else method
    if chosen == "prim":
        edges = _prim(metric, jobs)
    else:
        vectors = _euclidean_like(metric)
        if vectors is None:
            raise InputError(
                f"method={method!r} got the metric {metric.name}", expected=f"one of {', '.join(_EUCLIDEAN)}"
            )
        edges = _delegates[chosen](vectors.embedded(), jobs)
        require_tree(len(metric), edges, what=f"method={chosen!r}")
        weights = metric.pairs(edges[:, 0].copy(), edges[:, 1].copy())
        # Squares of distances below the floor may have underflowed there: duplicates may be told apart by nothing else.
        floor = np.ldexp(vectors.scaling.floor, vectors.scaling.exponent)
        if ((weights > 0) & (weights < floor)).any():
            chosen = "prim"
            edges = _prim(metric, jobs)
    edges = np.sort(edges, axis=1)
    if chosen == "prim":
        weights = _weights(metric, edges)
    require_tree(len(metric), edges, weights, what=f"method={chosen!r}")
    order = np.lexsort((edges[:, 1], edges[:, 0], weights))
    return edges[order], weights[order]


def _weights(metric: Metric, edges: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the weights of a tree whose edges have been counted already."""
    plain = metric.metric if isinstance(metric, CountedMetric) else metric
    return plain.pairs(edges[:, 0].copy(), edges[:, 1].copy())


def _prim(metric: Metric, jobs: int) -> NDArray[np.int64]:
    size = len(metric)
    if size <= MATRIX_OBJECTS:
        tree, _ = prim_matrix(metric.square(slice(0, size)))
        return np.asarray(tree, dtype=np.int64)
    remaining = np.arange(1, size, dtype=np.int64)
    nearest = np.full(size - 1, np.inf)
    anchor = np.zeros(size - 1, dtype=np.int64)
    row = np.empty(size - 1)
    current = np.zeros(1, dtype=np.int64)
    with ThreadPoolExecutor(jobs) as pool:
        for count in range(size - 1, 0, -1):
            parts = min(jobs, max(1, count // PART))
            if parts == 1:
                row[:count] = metric.block(current, remaining[:count])[0]
            else:
                ends = np.linspace(0, count, parts + 1, dtype=np.int64)
                tasks = [pool.submit(metric.block, current, remaining[start:stop]) for start, stop in pairwise(ends)]
                for start, stop, task in zip(ends[:-1], ends[1:], tasks, strict=True):
                    row[start:stop] = task.result()[0]
            grow_tree(row, remaining, count, nearest, anchor, int(current[0]))
            current = remaining[count - 1 : count].copy()
    return np.column_stack((anchor, remaining))


def _euclidean_like(metric: Metric) -> VectorMetric | None:
    """Return `metric` without its count where it increases with a Euclidean distance of rows."""
    plain = metric.metric if isinstance(metric, CountedMetric) else metric
    return plain if isinstance(plain, VectorMetric) and plain.euclidean else None


def _quitefastmst(rows: NDArray[np.float64], jobs: int) -> NDArray[np.int64]:
    try:
        import quitefastmst
    except ImportError as error:
        raise MissingPackageError("quitefastmst", what="method='quitefastmst'", extra="mst") from error
    if rows.shape[1] == 1:
        # It takes no points on a line; a constant coordinate changes no distance.
        rows = np.column_stack((rows, np.zeros(len(rows))))
    before = quitefastmst.omp_get_max_threads()
    quitefastmst.omp_set_num_threads(jobs)
    try:
        return np.asarray(quitefastmst.mst_euclid(rows, 0)[1], dtype=np.int64)
    finally:
        quitefastmst.omp_set_num_threads(before)


def _mlpack(rows: NDArray[np.float64], jobs: int) -> NDArray[np.int64]:
    try:
        from mlpack import emst
    except ImportError as error:
        raise MissingPackageError("mlpack", what="method='mlpack'", extra="peers") from error
    return np.asarray(emst(input_=rows, copy_all_inputs=True)["output"][:, :2], dtype=np.int64)


_delegates: dict[str, Callable[[NDArray[np.float64], int], NDArray[np.int64]]] = {
    "quitefastmst": _quitefastmst,
    "mlpack": _mlpack,
}
