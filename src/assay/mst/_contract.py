"""What a metric is to the algorithms, how its evaluations are counted, and how its axioms are checked.

The algorithms of this package see distances only through :class:`Metric`, and they see it only wrapped in
:class:`CountedMetric`, so that no evaluation escapes the count.
"""

from __future__ import annotations

import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import InputError

__all__ = ["CountedMetric", "Indices", "Metric", "MetricCheck", "MetricWarning", "check_metric"]

Indices = NDArray[np.int64] | slice
"""Objects of a metric: an array of indices, or a contiguous ``slice(start, stop)``, which is never gathered."""

TRIANGLE_SLACK = 1e-9
"""Relative excess of d(a, c) over d(a, b) + d(b, c) that rounding alone can explain."""

SYMMETRY_SLACK = 1e-9
"""Relative difference of d(a, b) and d(b, a) that rounding alone can explain."""


class MetricWarning(UserWarning):
    """A distance breaks the triangle inequality, so bounds that rest on it are not certified."""


def count_of(indices: Indices, size: int) -> int:
    """Return how many of `size` objects `indices` names."""
    return len(range(*indices.indices(size))) if isinstance(indices, slice) else len(indices)


def as_array(indices: Indices, size: int) -> NDArray[np.int64]:
    """Return `indices` as an int64 array."""
    if isinstance(indices, slice):
        return np.arange(*indices.indices(size), dtype=np.int64)
    return np.asarray(indices, dtype=np.int64)


class Metric(ABC):
    """Distances among n objects.

    Attributes
    ----------
    name : str
        How messages and saved trees call it.
    is_metric : bool
        Whether the triangle inequality is guaranteed. Where it is not, the bounds alpha and beta are not certified.
    trusted : bool
        Whether values are known to be finite and non-negative. :class:`CountedMetric` inspects the values of others.
    """

    name: str = "metric"
    is_metric: bool = True
    trusted: bool = False

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of objects n."""

    @abstractmethod
    def block(self, queries: Indices, targets: Indices) -> NDArray[np.float64]:
        """Return the distances from every query to every target.

        Parameters
        ----------
        queries : ndarray of int64, shape (q,), or slice
        targets : ndarray of int64, shape (m,), or slice

        Returns
        -------
        ndarray of float64, shape (q, m)
            Entry (a, b) depends on the two objects only, not on what else is in the block.
        """

    @abstractmethod
    def pairs(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the distances of k pairs in full float64 precision.

        Parameters
        ----------
        first, second : ndarray of int64, shape (k,)

        Returns
        -------
        ndarray of float64, shape (k,)
        """

    @abstractmethod
    def subset(self, members: NDArray[np.int64]) -> Metric:
        """Return the same distances among `members`, which are renumbered 0, 1, … in the given order."""

    def square(self, members: Indices) -> NDArray[np.float64]:
        """Return all distances among `members`, each unordered pair evaluated once.

        Parameters
        ----------
        members : ndarray of int64, shape (s,), or slice

        Returns
        -------
        ndarray of float64, shape (s, s)
            Symmetric, with a zero diagonal.
        """
        index = as_array(members, len(self))
        square = np.zeros((len(index), len(index)))
        for row in range(len(index) - 1):
            square[row, row + 1 :] = self.block(index[row : row + 1], index[row + 1 :])[0]
            square[row + 1 :, row] = square[row, row + 1 :]
        return square


class ReducingMetric(Metric):
    """A metric whose objects lie elsewhere, so that what reduces over all of them is done where they lie.

    Each reduction returns what the same function of this package returns on objects in memory.
    """

    @abstractmethod
    def nearest(self, centers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return each object's nearest centre and its distance, as ``forest.nearest_centers``: n * t evaluations."""

    @abstractmethod
    def trees(
        self, batches: Sequence[Sequence[NDArray[np.int64]]], *, matrix_members: int
    ) -> Iterator[list[tuple[NDArray[np.int64], NDArray[np.float64]]]]:
        """Yield, for each batch, a minimum spanning tree of each of its components, as ``forest.prim``."""

    @abstractmethod
    def minima(
        self, labels: NDArray[np.int64], count: int, points: NDArray[np.int64], component: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return nearest distances from representatives to other components, as ``completion.segmented_minima``."""


def square_in_strips(metric: Metric, members: Indices, *, rows: int) -> NDArray[np.float64]:
    """Return ``metric.square(members)`` from blocks of `rows` queries.

    For compiled metrics, whose blocks are symmetric bit for bit: a strip that starts at its own first row computes only
    the small squares on the diagonal twice, and costs far less than row after row.
    """
    index = as_array(members, len(metric))
    square = np.empty((len(index), len(index)))
    for start in range(0, len(index), rows):
        stop = min(start + rows, len(index))
        square[start:stop, start:] = metric.block(index[start:stop], index[start:])
        square[stop:, start:stop] = square[start:stop, stop:].T
    np.fill_diagonal(square, 0.0)
    return square


class CountedMetric(Metric):
    """A metric that counts its evaluations by stage.

    Parameters
    ----------
    metric : Metric
        The metric to count.
    max_calls : int, optional
        The evaluations that an algorithm may spend; see `remaining`.

    Attributes
    ----------
    calls : dict of str to int
        Evaluations by stage. One pair is one evaluation; ``square`` of s members is s(s-1)/2.

    Examples
    --------
    >>> import numpy as np
    >>> from assay.mst.metrics import make_metric
    >>> counted = CountedMetric(make_metric(np.zeros((5, 2))))
    >>> with counted.stage("forest"):
    ...     _ = counted.square(slice(0, 5))
    >>> counted.calls
    {'forest': 10}
    """

    def __init__(self, metric: Metric, *, max_calls: int | None = None) -> None:
        self.metric = metric
        self.name = metric.name
        self.is_metric = metric.is_metric
        self.max_calls = max_calls
        self.calls: dict[str, int] = {}
        self._ledger = _Ledger(self.calls)

    def __len__(self) -> int:
        return len(self.metric)

    @property
    def total(self) -> int:
        """Evaluations so far, all stages together."""
        return sum(self.calls.values())

    @property
    def remaining(self) -> int | None:
        """Evaluations left of `max_calls`, at least 0; None where there is no limit."""
        return None if self.max_calls is None else max(0, self.max_calls - self.total)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Book every evaluation made inside the context, by any thread, under `name`."""
        before, self._ledger.stage = self._ledger.stage, name
        try:
            yield
        finally:
            self._ledger.stage = before

    def book(self, evaluations: int) -> None:
        """Count evaluations that the metric made inside a reduction."""
        self._ledger.add(evaluations)
        if isinstance(self.metric, CountedMetric):
            self.metric.book(evaluations)

    @property
    def reducing(self) -> ReducingMetric | None:
        """The metric itself where it reduces elsewhere; what it evaluates is told to `book`."""
        if isinstance(self.metric, CountedMetric):
            return self.metric.reducing
        return self.metric if isinstance(self.metric, ReducingMetric) else None

    def block(self, queries: Indices, targets: Indices) -> NDArray[np.float64]:
        """Return ``metric.block`` and count q * m evaluations."""
        values = self.metric.block(queries, targets)
        self._ledger.add(values.size)
        if not self.metric.trusted:
            require_distances(values, queries, targets, name=self.name)
        return values

    def square(self, members: Indices) -> NDArray[np.float64]:
        """Return ``metric.square`` and count s(s-1)/2 evaluations."""
        values = self.metric.square(members)
        self._ledger.add(len(values) * (len(values) - 1) // 2)
        if not self.metric.trusted:
            require_distances(values, members, members, name=self.name)
        return values

    def pairs(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return ``metric.pairs`` and count k evaluations."""
        values = self.metric.pairs(first, second)
        self._ledger.add(values.size)
        if not self.metric.trusted:
            bad = np.flatnonzero(~(values >= 0) | np.isinf(values))
            if bad.size:
                raise bad_distance(self.name, int(first[bad[0]]), int(second[bad[0]]), float(values[bad[0]]))
        return values

    def subset(self, members: NDArray[np.int64]) -> CountedMetric:
        """Return a counted view on `members` that books into the same counts."""
        view = CountedMetric(self.metric.subset(members), max_calls=self.max_calls)
        view.calls, view._ledger = self.calls, self._ledger
        return view


class _Ledger:
    """Counts by stage, shared by a metric, its subsets and its threads."""

    def __init__(self, calls: dict[str, int]) -> None:
        self.calls = calls
        self.stage = "other"
        self._lock = threading.Lock()

    def add(self, evaluations: int) -> None:
        with self._lock:
            self.calls[self.stage] = self.calls.get(self.stage, 0) + int(evaluations)


def bad_distance(name: str, first: int, second: int, value: float) -> InputError:
    """Return the error for a value that is no distance."""
    return InputError(
        f"{name}: the distance of objects {first} and {second} is {value!r}", expected="a finite number >= 0"
    )


def require_distances(values: NDArray[np.float64], queries: Indices, targets: Indices, *, name: str) -> None:
    """Raise an InputError naming the first pair of a block whose value is NaN, infinite or negative."""
    # NaN and negative values both fail ">= 0"; the common case is one pass without a temporary of indices.
    fine = (values >= 0) & (values < np.inf)
    if fine.all():
        return
    row, column = np.unravel_index(int(np.argmin(fine)), values.shape)
    first = row + (queries.start or 0) if isinstance(queries, slice) else queries[row]
    second = column + (targets.start or 0) if isinstance(targets, slice) else targets[column]
    raise bad_distance(name, int(first), int(second), float(values[row, column]))


@dataclass(frozen=True)
class MetricCheck:
    """What sampling found about the axioms of a metric.

    Attributes
    ----------
    samples : int
        Triples that were tested.
    violations : int
        Triples that break the triangle inequality by more than rounding explains.
    worst_triple : tuple of 3 int, or None
        The triple (a, b, c) with the largest d(a, c) / (d(a, b) + d(b, c)).
    worst_ratio : float
        That ratio: at most 1 for a metric, infinite where d(a, b) = d(b, c) = 0 < d(a, c).
    """

    samples: int
    violations: int
    worst_triple: tuple[int, int, int] | None
    worst_ratio: float

    @property
    def passed(self) -> bool:
        """Whether no sampled triple breaks the triangle inequality."""
        return self.violations == 0


def check_metric(metric: Metric, *, samples: int = 2000, rng: np.random.Generator | int | None = 0) -> MetricCheck:
    """Test d(x, x) = 0, symmetry and the triangle inequality on random triples.

    Five evaluations a triple: d(a, b), d(b, c), d(a, c), d(c, a) and d(a, a).

    Parameters
    ----------
    metric : Metric
    samples : int
        Triples to draw.
    rng : numpy.random.Generator or int, optional
        Source of the triples.

    Returns
    -------
    MetricCheck

    Raises
    ------
    InputError
        Where d(x, x) is not 0, d(a, b) differs from d(b, a), or a value is NaN, infinite or negative; it names the
        pair.

    Warns
    -----
    MetricWarning
        Where the triangle inequality fails; it names the worst triple and its ratio.

    Examples
    --------
    >>> import numpy as np
    >>> from assay.mst.metrics import make_metric
    >>> check_metric(make_metric(np.random.default_rng(0).normal(size=(50, 3))), samples=100).passed
    True
    """
    if samples < 1:
        raise InputError(f"samples is {samples}", expected="at least 1")
    size = len(metric)
    if size == 0:
        raise InputError("the metric has no objects", expected="at least 1")
    triples = np.random.default_rng(rng).integers(0, size, size=(samples, 3))
    a, b, c = (np.ascontiguousarray(column) for column in triples.T)
    ab, bc, ac, ca, aa = (metric.pairs(x, y) for x, y in ((a, b), (b, c), (a, c), (c, a), (a, a)))
    for x, y, values in ((a, b, ab), (b, c, bc), (a, c, ac), (c, a, ca), (a, a, aa)):
        bad = np.flatnonzero(~((values >= 0) & (values < np.inf)))
        if bad.size:
            raise bad_distance(metric.name, int(x[bad[0]]), int(y[bad[0]]), float(values[bad[0]]))
    if (aa > 0).any():
        at = int(np.argmax(aa > 0))
        raise InputError(f"{metric.name}: the distance of object {a[at]} to itself is {aa[at]}", expected="0")
    asymmetric = np.abs(ac - ca) > SYMMETRY_SLACK * np.maximum(ac, ca)
    if asymmetric.any():
        at = int(np.argmax(asymmetric))
        raise InputError(
            f"{metric.name}: the distance of objects {a[at]} and {c[at]} is {ac[at]}, and {ca[at]} in the other order",
            expected="a symmetric distance",
        )
    path = ab + bc
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(path > 0, ac / path, np.where(ac > 0, np.inf, 0.0))
    worst = int(np.argmax(ratio))
    violations = int(np.count_nonzero(ratio > 1 + TRIANGLE_SLACK))
    triple = (int(a[worst]), int(b[worst]), int(c[worst]))
    check = MetricCheck(samples, violations, triple if ratio[worst] > 0 else None, float(ratio[worst]))
    if violations:
        warnings.warn(
            f"{metric.name} breaks the triangle inequality in {violations} of {samples} sampled triples; worst: "
            f"d({triple[0]}, {triple[2]}) is {check.worst_ratio:.6g} times d({triple[0]}, {triple[1]}) + "
            f"d({triple[1]}, {triple[2]}); alpha and beta are not certified",
            MetricWarning,
            stacklevel=2,
        )
    return check
