"""What a sample of rows says about a spanning tree: how far from the minimum it can be, and which edges improve it.

Nearest-neighbour distances bound the minimum spanning tree from below: rooted anywhere, every other vertex has its
own edge to its parent. A tree knows an upper bound of each such distance, the shortest of its edges at the vertex,
so only the mean difference has to be estimated from a sample. None of it uses the triangle inequality.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri

from assay.core.errors import InputError
from assay.mst._arguments import random_generator, require_share
from assay.mst._graph import RootedTree, components, first_cycle, minimum_spanning_forest, shortest_incident
from assay.mst._tiles import TILE_ENTRIES, interruptible, ordered_map, resolve_jobs, tiles
from assay.mst.completion import evaluate_edges
from assay.mst.forest import WEIGHT_SLACK, as_counted
from assay.mst.metrics import CountedMetric

__all__ = ["Certificate", "TreeReport", "certify", "check_tree", "mean_upper_limit"]

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

INTERVALS = ("normal", "bernstein")

ROW_BYTES = 32 << 20
"""Distances that a thread holds at once."""

CYCLE_SLACK = 1e-9
"""Relative difference of two lengths that the rounding of blocks can explain."""

CYCLE_CONFIDENCE = 0.95
"""Confidence of the bound on the share of points with an improving edge."""


@dataclass(frozen=True, eq=False)
class Certificate:
    """What a sample of rows says about a tree.

    Attributes
    ----------
    rows : int
        Sampled objects m, each compared with all n.
    confidence : float
        Probability with which the lower bound holds; 1 when every object was sampled.
    ci : {"normal", "bernstein"}
        Kind of confidence limit.
    mst_lower_bound : float
        No spanning tree weighs less, with that confidence.
    mst_ratio_upper : float
        Weight of the returned tree over that bound; infinite where the bound is 0 and the weight is not.
    improvable : int
        Sampled objects at which some edge is shorter than the heaviest edge on the given tree's path between its ends.
    improvable_upper : float
        95 % upper limit of the share of all objects that are like that.
    edges : ndarray of int64, shape (n - 1, 2)
        The given tree with all improving edges inserted.
    weights : ndarray of float64, shape (n - 1,)
    """

    rows: int
    confidence: float
    ci: str
    mst_lower_bound: float
    mst_ratio_upper: float
    improvable: int
    improvable_upper: float
    edges: IntArray
    weights: FloatArray

    @property
    def improvable_rate(self) -> float:
        """Share of the sampled objects at which an edge improves the tree."""
        return self.improvable / self.rows if self.rows else 0.0


def certify(
    counted: CountedMetric,
    edges: IntArray,
    weights: FloatArray,
    *,
    rows: int = 200,
    confidence: float = 0.99,
    ci: str = "normal",
    rng: np.random.Generator,
    n_jobs: int = 1,
    block_bytes: int = ROW_BYTES,
) -> Certificate:
    """Bound a spanning tree's weight against the minimum, and insert the improving edges that the sample shows.

    The bound uses the tree as it was given: edges inserted at sampled objects would make these look better than the
    rest. It divides the weight of the improved tree.

    Parameters
    ----------
    counted : CountedMetric
    edges : ndarray of int64, shape (n - 1, 2)
        A spanning tree.
    weights : ndarray of float64, shape (n - 1,)
    rows : int
        Objects to sample without replacement; all when there are fewer. Each costs n distances.
    confidence : float
        Between 0 and 1.
    ci : {"normal", "bernstein"}
        See :func:`mean_upper_limit`.
    rng : numpy.random.Generator
    n_jobs : int
        Threads.
    block_bytes : int
        Distances that a thread holds at once; at least one row of n.

    Returns
    -------
    Certificate
    """
    n = len(counted)
    _require_interval(rows, confidence, ci)
    total = float(weights.sum())
    sampled = min(rows, n)
    if n < 2:
        return Certificate(sampled, 1.0, ci, 0.0, 1.0, 0, 0.0, edges, weights)
    sample = np.sort(rng.choice(n, size=sampled, replace=False)).astype(np.int64)
    shortest = shortest_incident(n, edges, weights)
    tree = RootedTree(n, edges, weights)
    nearest = np.empty(sampled)
    improvable = 0
    fresh: list[IntArray] = []
    width = max(1, block_bytes // (8 * n))

    def scan(part: tuple[int, int]) -> tuple[FloatArray, list[IntArray]]:
        low, high = part
        block = np.empty((high - low, n))
        for start, stop in tiles(n, max(1, TILE_ENTRIES // (high - low))):
            block[:, start:stop] = counted.block(sample[low:high], slice(start, stop))
        nearest_here, better = np.empty(high - low), []
        for row, vertex in enumerate(sample[low:high].tolist()):
            nearest_here[row], ends = _scan_row(block[row], vertex, tree.heaviest_from(vertex))
            better.append(np.column_stack([np.full(len(ends), vertex), ends]))
        return nearest_here, better

    with counted.stage("certificate"):
        parts = list(tiles(sampled, width))
        for (low, high), (nearest_here, better) in zip(parts, ordered_map(scan, parts, n_jobs=n_jobs), strict=True):
            nearest[low:high] = nearest_here
            improvable += sum(1 for ends in better if len(ends))
            fresh.extend(better)
            if sum(map(len, fresh)) > 4 * n:
                edges, weights = _insert(counted, edges, weights, fresh)
                fresh = []
        edges, weights = _insert(counted, edges, weights, fresh)
    gaps = np.maximum(shortest[sample] - nearest, 0.0)
    limit = mean_upper_limit(gaps, population=n, confidence=confidence, ci=ci, largest=float(shortest.max()))
    # The root goes without a parent edge; rooted at the object with the least nearest-neighbour distance, that costs
    # no more than the tree's shortest edge.
    bound = max(0.0, float(shortest.sum()) - n * limit - float(shortest.min()))
    improved = float(weights.sum())
    bound = min(bound, improved, total)
    ratio = improved / bound if bound > 0 else (1.0 if improved == 0 else math.inf)
    upper = (
        improvable / n
        if sampled == n
        else 1.0
        if improvable == sampled
        else float(betaincinv(improvable + 1, sampled - improvable, CYCLE_CONFIDENCE))
    )
    return Certificate(
        sampled, 1.0 if sampled == n else confidence, ci, bound, ratio, improvable, upper, edges, weights
    )


def _require_interval(rows: int, confidence: float, ci: str) -> None:
    if isinstance(rows, bool) or not isinstance(rows, (int, np.integer)) or rows < 2:
        raise InputError(f"samples is {rows!r}", expected="0, or at least 2 objects to sample")
    require_share("confidence", confidence)
    if ci not in INTERVALS:
        raise InputError(f"ci is {ci!r}", expected=f"one of {', '.join(INTERVALS)}")


@njit(cache=True, nogil=True)
def _scan_row(row, vertex, heaviest):  # type: ignore[no-untyped-def]
    nearest = np.inf
    count = 0
    for other in range(len(row)):
        if other != vertex:
            nearest = min(nearest, row[other])
            if row[other] < heaviest[other] * (1.0 - CYCLE_SLACK):
                count += 1
    ends = np.empty(count, dtype=np.int64)
    count = 0
    for other in range(len(row)):
        if other != vertex and row[other] < heaviest[other] * (1.0 - CYCLE_SLACK):
            ends[count] = other
            count += 1
    return nearest, ends


def _insert(
    counted: CountedMetric, edges: IntArray, weights: FloatArray, fresh: list[IntArray]
) -> tuple[IntArray, FloatArray]:
    """Return the minimum spanning tree of a tree and further edges, whose weights are evaluated."""
    pairs = np.concatenate([np.empty((0, 2), dtype=np.int64), *fresh])
    if not len(pairs):
        return edges, weights
    pairs.sort(axis=1)
    lengths = evaluate_edges(counted, pairs, n_jobs=1)
    return merge_trees(len(counted), edges, weights, pairs, lengths)


def merge_trees(
    n: int, edges: IntArray, weights: FloatArray, more: IntArray, lengths: FloatArray
) -> tuple[IntArray, FloatArray]:
    """Return a minimum spanning tree of a tree's edges and more of them; ties: the tree's."""
    pairs, both = np.concatenate([edges, more]), np.concatenate([weights, lengths])
    kept = minimum_spanning_forest(n, pairs, both)
    return pairs[kept], both[kept]


def mean_upper_limit(values: FloatArray, *, population: int, confidence: float, ci: str, largest: float) -> float:
    """Return an upper confidence limit of a finite population's mean from a sample without replacement.

    Parameters
    ----------
    values : ndarray of float64, shape (m,)
        The sample; all values lie between 0 and `largest`.
    population : int
        Its size n. With m = n the mean itself is returned.
    confidence : float
        Probability with which the limit is at least the mean.
    ci : {"normal", "bernstein"}
        Normal quantile with the finite-population correction, which is asymptotic; or the empirical
        Bernstein-Serfling inequality, which holds for every population and is looser.
    largest : float
        Range of the values.

    References
    ----------
    Bardenet and Maillard, Concentration inequalities for sampling without replacement, Bernoulli 21(3), 2015,
    Theorem 4.3.

    Examples
    --------
    >>> import numpy as np
    >>> mean_upper_limit(np.array([0.0, 1.0]), population=2, confidence=0.99, ci="normal", largest=1.0)
    0.5
    """
    m = len(values)
    mean = float(values.mean())
    if m >= population:
        return mean
    if ci == "normal":
        deviation = _deviation(values, degrees=1)
        return mean + float(ndtri(confidence)) * deviation * math.sqrt((1 - m / population) / m)
    share = 1 - (m - 1) / population if 2 * m <= population else (1 - m / population) * (1 + 1 / m)
    log_term = math.log(5 / (1 - confidence))
    kappa = 7 / 3 + 3 / math.sqrt(2)
    return mean + _deviation(values, degrees=0) * math.sqrt(2 * share * log_term / m) + kappa * largest * log_term / m


def _deviation(values: FloatArray, *, degrees: int) -> float:
    """Return the standard deviation, whose squares would over- or underflow for huge and tiny values as they are."""
    _, exponent = math.frexp(float(values.max(initial=0.0)))
    return math.ldexp(float(np.ldexp(values, -exponent).std(ddof=degrees)), exponent)


@dataclass(frozen=True, eq=False)
class TreeReport:
    """What :func:`check_tree` found.

    Attributes
    ----------
    n : int
        Objects.
    n_components : int
        Components that the edges leave; 1 when they connect everything.
    cycle : int or None
        The first edge that closes a cycle.
    wrong_weights : ndarray of int64, shape (k,)
        Edges whose weight differs from the distance by more than a millionth of it.
    worst_error : float
        The largest relative difference of a weight and the distance.
    total_weight : float
        Sum of the true distances of the edges.
    certificate : Certificate or None
        For a spanning tree with right weights, when rows were asked for.
    """

    n: int
    n_components: int
    cycle: int | None
    wrong_weights: IntArray
    worst_error: float
    total_weight: float
    certificate: Certificate | None

    @property
    def spanning(self) -> bool:
        """Whether the edges are a spanning tree."""
        return self.n_components == 1 and self.cycle is None

    @property
    def weights_right(self) -> bool:
        """Whether every weight is the distance of its ends."""
        return len(self.wrong_weights) == 0

    @property
    def ok(self) -> bool:
        """Whether it is a spanning tree with right weights."""
        return self.spanning and self.weights_right


@interruptible()
def check_tree(
    X: Any,
    edges: Any,
    weights: Any = None,
    *,
    metric: Any = "euclidean",
    samples: int = 200,
    confidence: float = 0.99,
    ci: str = "normal",
    random_state: int | np.random.Generator | np.random.RandomState | None = 0,
    n_jobs: int | None = None,
) -> TreeReport:
    """Check a tree that somebody made: does it span, are its weights right, how far from the minimum can it be.

    Parameters
    ----------
    X : objects of the metric, or a Metric
    edges : array-like of int, shape (m, 2)
    weights : array-like of float, shape (m,), optional
        Lengths to check.
    metric : str, callable or Metric
        See :func:`assay.mst.make_metric`.
    samples : int
        Objects to sample for the certificate and the cycle test; 0 leaves them out.
    confidence : float
        Of the certificate.
    ci : {"normal", "bernstein"}
        Kind of its confidence limit.
    random_state : int, Generator or RandomState, optional
        Source of the sample.
    n_jobs : int, optional
        Threads.

    Returns
    -------
    TreeReport

    Raises
    ------
    InputError
        Edges of another shape or with an end that is no object, or weights of another length.

    Examples
    --------
    >>> import numpy as np
    >>> report = check_tree(np.array([[0.0], [1.0], [3.0]]), [[0, 1], [1, 2]], [1.0, 2.0])
    >>> report.ok, report.certificate.mst_ratio_upper
    (True, 1.0)
    """
    counted = as_counted(X, metric)
    n = len(counted)
    pairs = np.asarray(edges, dtype=np.int64).reshape(-1, 2) if np.size(edges) == 0 else np.asarray(edges)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise InputError(
            f"edges have shape {pairs.shape} and type {pairs.dtype}", expected="whole numbers of shape (m, 2)"
        )
    pairs = np.ascontiguousarray(pairs, dtype=np.int64)
    outside = np.flatnonzero(((pairs < 0) | (pairs >= n)).any(axis=1))
    if outside.size:
        u, v = pairs[outside[0]]
        raise InputError(f"edge {outside[0]} ({u}, {v}) has an end out of range", expected=f"objects 0 to {n - 1}")
    jobs, rng = resolve_jobs(n_jobs), random_generator(random_state)
    if samples != 0 or isinstance(samples, bool):
        _require_interval(samples, confidence, ci)
    with counted.stage("weights"):
        lengths = evaluate_edges(counted, pairs, n_jobs=jobs)
    error = np.zeros(len(pairs))
    if weights is not None:
        given = np.asarray(weights, dtype=np.float64)
        if given.shape != (len(pairs),):
            raise InputError(f"weights have shape {given.shape}", expected=f"({len(pairs)},), one per edge")
        with np.errstate(divide="ignore", invalid="ignore"):
            error = np.where(given == lengths, 0.0, np.abs(given - lengths) / lengths)
        error[np.isnan(error)] = np.inf
    cycle = first_cycle(n, pairs)
    parts = int(components(n, pairs).max()) + 1
    certificate = None
    if parts == 1 and cycle < 0 and not (error > WEIGHT_SLACK).any() and samples:
        certificate = certify(
            counted,
            pairs,
            lengths,
            rows=samples,
            confidence=confidence,
            ci=ci,
            rng=rng,
            n_jobs=jobs,
        )
    return TreeReport(
        n,
        parts,
        None if cycle < 0 else cycle,
        np.flatnonzero(error > WEIGHT_SLACK),
        float(error.max(initial=0.0)),
        float(lengths.sum()),
        certificate,
    )
