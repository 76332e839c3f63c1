"""Initial forests: a partition of the objects, and a spanning tree of every part.

The guarantees of forest completion hold for any forest, so it may come from anywhere: Gonzalez' k-center (the paper's
choice), random centres, a clustering, edges that the user has, a neighbour graph, or an exact range join.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from assay.core.errors import InputError, MissingPackageError
from assay.mst._arguments import random_generator, require_number
from assay.mst._graph import components, first_cycle, grow_tree, minimum_spanning_forest, prim_matrix
from assay.mst._tiles import TILE_ENTRIES, interruptible, ordered_map, resolve_jobs, tiles
from assay.mst.metrics import CountedMetric, make_metric

__all__ = ["Centers", "Forest", "build_forest", "kcenter", "resolve_components"]

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

BLOCK_BYTES = 32 << 20
MATRIX_MEMBERS = math.isqrt(BLOCK_BYTES // 8)
"""Largest component whose distances are held as a matrix rather than computed row by row: 2048."""

KCENTER_TILE = 1 << 16
"""Points of a tile in a k-center pass, whose blocks have one row."""

TASK_PAIRS = 1 << 21
"""Pairs of a task of small components, so that a task outweighs its own overhead."""

WEIGHT_SLACK = 1e-6
"""Relative difference between a user's edge weight and the distance that text or float32 can explain."""


NOISE = -1
"""The label of objects that a clusterer puts into no cluster."""


class CallsExceeded(InputError):
    """The next step would take more distances than `max_distance_calls` leaves."""

    def __init__(self, counted: CountedMetric, needed: int, *, what: str) -> None:
        self.needed = needed
        super().__init__(
            f"max_distance_calls is {counted.max_calls}, of which {counted.remaining} are left",
            expected=f"{needed} more for {what}",
        )


@dataclass(frozen=True, eq=False)
class Centers:
    """Centres among n objects, and the nearest one of each object.

    Attributes
    ----------
    indices : ndarray of int64, shape (t,)
        The centres, in the order in which they were chosen.
    labels : ndarray of int64, shape (n,)
        Position in `indices` of the nearest centre; ties: the earliest.
    distances : ndarray of float64, shape (n,)
        Distance to it.
    radii : ndarray of float64, shape (t,)
        For a k-center: how far the i-th centre was from the earlier ones when it was chosen, infinite for the first.
        For random centres: empty.
    """

    indices: IntArray
    labels: IntArray
    distances: FloatArray
    radii: FloatArray


@dataclass(frozen=True, eq=False)
class Forest:
    """A partition of n objects into t non-empty components, with a spanning tree of each.

    Attributes
    ----------
    labels : ndarray of int64, shape (n,)
        Component of every object, 0 … t-1.
    edges : ndarray of int64, shape (n - t, 2)
        All trees' edges, the lower end first.
    weights : ndarray of float64, shape (n - t,)
        Their lengths.
    kind : str
        How it was made: "kcenter", "random", "labels", "edges", "estimator", "knn" or "threshold".
    centers : ndarray of int64, shape (t,), or None
        A member of each component that is its centre, where the way it was made has centres.
    in_mst : bool
        Whether the edges are known to be part of some minimum spanning tree, so that gamma is 1.

    Examples
    --------
    >>> import numpy as np
    >>> forest = build_forest(np.arange(10.0)[:, None], n_components=3)
    >>> forest.n_components, forest.weight
    (3, 7.0)
    """

    labels: IntArray
    edges: IntArray
    weights: FloatArray
    kind: str
    centers: IntArray | None = None
    in_mst: bool = False

    @property
    def n(self) -> int:
        """Number of objects."""
        return len(self.labels)

    @property
    def n_components(self) -> int:
        """Number of components t."""
        return len(self.sizes)

    @cached_property
    def sizes(self) -> IntArray:
        """Objects of each component, shape (t,)."""
        return np.bincount(self.labels).astype(np.int64)

    @cached_property
    def order(self) -> IntArray:
        """The objects sorted by component, and by index inside a component, shape (n,)."""
        return np.argsort(self.labels, kind="stable")

    @cached_property
    def offsets(self) -> IntArray:
        """Where each component starts in `order`, shape (t + 1,)."""
        return np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)

    @cached_property
    def weight(self) -> float:
        """Total length of the edges."""
        return float(self.weights.sum())

    @property
    def largest_component(self) -> int:
        """Objects of the largest component."""
        return int(self.sizes.max())

    def members(self, component: int) -> IntArray:
        """Return the objects of a component, ascending."""
        return self.order[self.offsets[component] : self.offsets[component + 1]]


def resolve_components(n_components: int | float | str, n: int) -> int:
    """Return the number of components t that is meant for `n` objects.

    Parameters
    ----------
    n_components : int, float or "sqrt"
        A number from 1 to n, a share of n between 0 and 1, or the paper's choice, the integer square root of n.
    n : int

    Raises
    ------
    InputError
        It is none of these, or larger than n.

    Examples
    --------
    >>> resolve_components("sqrt", 1000), resolve_components(0.1, 1000), resolve_components(7, 1000)
    (31, 100, 7)
    """
    expected = f'"sqrt", a whole number from 1 to {n} (the number of objects), or a share between 0 and 1'
    if isinstance(n_components, str):
        if n_components != "sqrt":
            raise InputError(f"n_components is {n_components!r}", expected=expected)
        return max(1, math.isqrt(n))
    if isinstance(n_components, (int, np.integer)) and not isinstance(n_components, bool):
        if not 1 <= n_components <= n:
            raise InputError(f"n_components is {n_components}", expected=expected)
        return int(n_components)
    if isinstance(n_components, (float, np.floating)) and 0 < n_components < 1:
        return max(1, round(float(n_components) * n))
    raise InputError(f"n_components is {n_components!r}", expected=expected)


def as_counted(X: Any, metric: Any, **options: Any) -> CountedMetric:
    """Return `X` itself when it is a counted metric, else the counted metric on `X`."""
    return X if isinstance(X, CountedMetric) else CountedMetric(make_metric(X, metric, **options))


@interruptible()
def kcenter(
    X: Any,
    n_components: int | float | str = "sqrt",
    *,
    metric: Any = "euclidean",
    start: int | None = None,
    n_jobs: int | None = None,
) -> Centers:
    """Choose centres by farthest-first traversal, a 2-approximation of the smallest radius.

    Exactly n * t distances: nearest centre and distance are kept in the pass that finds the next centre. It stops
    early when every object coincides with a centre.

    Parameters
    ----------
    X : objects of the metric, or a Metric
    n_components : int, float or "sqrt"
        Number of centres, see :func:`resolve_components`.
    metric : str, callable or Metric
        See :func:`assay.mst.make_metric`.
    start : int, optional
        First centre; n // 2 by default.
    n_jobs : int, optional
        Threads.

    Returns
    -------
    Centers

    Raises
    ------
    InputError
        More centres than objects, or a start that is none.

    References
    ----------
    Gonzalez, Clustering to minimize the maximum intercluster distance, Theoretical Computer Science 38, 1985.

    Examples
    --------
    >>> import numpy as np
    >>> kcenter(np.array([[0.0], [1.0], [10.0], [11.0], [4.0]]), 3).indices
    array([2, 0, 4])
    """
    counted = as_counted(X, metric)
    n = len(counted)
    count = resolve_components(n_components, n)
    first = n // 2 if start is None else start
    if not 0 <= first < n:
        raise InputError(f"start is {start}", expected=f"an index from 0 to {n - 1}")
    jobs = resolve_jobs(n_jobs)
    nearest = np.full(n, np.inf)
    labels = np.zeros(n, dtype=np.int64)
    indices, radii = [first], [np.inf]
    ranges = list(tiles(n, KCENTER_TILE))

    def visit(part: tuple[int, int]) -> tuple[float, int]:
        low, high = part
        row = counted.block(np.array([indices[-1]]), slice(low, high))[0]
        farthest, at = _visit_center(row, len(indices) - 1, nearest[low:high], labels[low:high])
        return farthest, low + at

    while True:
        farthest, candidate = -1.0, -1
        for distance, at in ordered_map(visit, ranges, n_jobs=jobs):
            if distance > farthest:
                farthest, candidate = distance, at
        if len(indices) == count or farthest == 0.0:
            return Centers(np.array(indices, dtype=np.int64), labels, nearest, np.array(radii))
        indices.append(candidate)
        radii.append(farthest)


@njit(cache=True, nogil=True)
def _visit_center(row, label, nearest, labels):  # type: ignore[no-untyped-def]
    farthest, at = -1.0, 0
    for point in range(len(row)):
        if row[point] < nearest[point]:
            nearest[point] = row[point]
            labels[point] = label
        if nearest[point] > farthest:
            farthest, at = nearest[point], point
    return farthest, at


def random_centers(counted: CountedMetric, count: int, *, rng: np.random.Generator, n_jobs: int) -> Centers:
    """Draw `count` of n objects as centres, and assign every object to the nearest: n * count distances.

    Centres that coincide with an earlier one keep no object and are dropped.
    """
    indices = np.sort(rng.choice(len(counted), size=count, replace=False)).astype(np.int64)
    if counted.reducing is not None:
        labels, nearest = counted.reducing.nearest(indices)
        counted.book(len(counted) * count)
    else:
        labels, nearest = nearest_centers(counted, len(counted), indices, n_jobs=n_jobs)
    used, labels = np.unique(labels, return_inverse=True)
    return Centers(indices[used], labels.astype(np.int64), nearest, np.empty(0))


def nearest_centers(
    counted: CountedMetric, stop: int, centers: IntArray, *, n_jobs: int
) -> tuple[IntArray, FloatArray]:
    """Return which of `centers` is nearest to each of the objects 0 … stop - 1 (ties: the earliest), and how near."""
    labels = np.empty(stop, dtype=np.int64)
    nearest = np.empty(stop)

    def assign(part: tuple[int, int]) -> None:
        low, high = part
        _row_minima(counted.block(slice(low, high), centers), labels[low:high], nearest[low:high])

    for _ in ordered_map(assign, list(tiles(stop, max(1, TILE_ENTRIES // len(centers)))), n_jobs=n_jobs):
        pass
    return labels, nearest


@njit(cache=True, nogil=True, fastmath={"nnan", "nsz"})
def _row_minima(block, arguments, minima):  # type: ignore[no-untyped-def]
    for row in range(block.shape[0]):
        values = block[row]
        smallest = np.inf
        for column in range(len(values)):
            smallest = min(smallest, values[column])
        column = 0
        while values[column] != smallest:
            column += 1
        arguments[row] = column
        minima[row] = smallest


@interruptible()
def build_forest(
    X: Any,
    *,
    forest: str = "kcenter",
    n_components: int | float | str = "sqrt",
    metric: Any = "euclidean",
    labels: Any = None,
    edges: Any = None,
    weights: Any = None,
    estimator: Any = None,
    threshold: float | None = None,
    n_neighbors: int = 15,
    start: int | None = None,
    max_component: int | None = None,
    random_state: int | np.random.Generator | np.random.RandomState | None = None,
    n_jobs: int | None = None,
    vectors: Any = None,
    block_bytes: int = BLOCK_BYTES,
) -> Forest:
    """Make an initial forest.

    Parameters
    ----------
    X : objects of the metric, or a Metric
    forest : {"kcenter", "random", "knn", "threshold"}
        Farthest-first centres; random centres (components of more even size); Kruskal on an approximate neighbour
        graph; all pairs within `threshold` of each other, whose forest is part of a minimum spanning tree.
        Not used with `labels`, `edges` or `estimator`.
    n_components : int, float or "sqrt"
        Number of centres. For "knn" and "threshold" the largest number of components that is left as it is.
    metric : str, callable or Metric
        See :func:`assay.mst.make_metric`.
    labels : array-like, shape (n,), optional
        Any clustering of the objects. The label -1 is noise, as scikit-learn's clusterers write it: each such object
        is a component of its own.
    edges : array-like of int, shape (m, 2), optional
        A forest that the user has. Its components are what it connects.
    weights : array-like of float, shape (m,), optional
        Lengths of `edges`, checked against the distances.
    estimator : object with fit_predict, optional
        Clusters `X` (or `vectors`), which has to be something it takes; its labels are read as `labels`.
    threshold : float, optional
        The distance up to which ``forest="threshold"`` joins.
    n_neighbors : int
        Neighbours of a point in ``forest="knn"``.
    start : int, optional
        First centre of "kcenter"; n // 2 by default.
    max_component : int, optional
        Components larger than this are split by the same procedure and their tree is completed instead of exact;
        8 * n / t by default.
    random_state : int, Generator or RandomState, optional
        Source of random centres.
    n_jobs : int, optional
        Threads; the result does not depend on it.
    vectors : array, optional
        What "knn" and `estimator` see, where `X` is a Metric.
    block_bytes : int
        Largest matrix of distances that is held at once, for each thread.

    Returns
    -------
    Forest

    Raises
    ------
    InputError
        A cycle, an end out of range or a wrong weight in `edges` (it names the edge), labels of another length, or an
        unknown `forest`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0], [1.0], [5.0], [7.0]])
    >>> build_forest(X, labels=[0, 0, 1, 1]).edges
    array([[0, 1],
           [2, 3]])
    """
    counted = as_counted(X, metric)
    given = [
        name for name, value in (("labels", labels), ("edges", edges), ("estimator", estimator)) if value is not None
    ]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} are given", expected="one of them")
    if weights is not None and edges is None:
        raise InputError("weights are given without edges", expected="edges=, whose weights they are")
    n = len(counted)
    count = resolve_components(n_components, n)
    rng = random_generator(random_state)
    if threshold is not None and (given or forest != "threshold"):
        raise InputError(f"threshold is {threshold!r} with another forest", expected='forest="threshold" with it')
    seen = X if vectors is None else vectors
    grower = _Grower(
        counted,
        rng=rng,
        n_jobs=resolve_jobs(n_jobs),
        max_component=max_component,
        matrix_members=math.isqrt(block_bytes // 8),
    )
    if edges is not None:
        return forest_of_edges(counted, edges, weights=weights)
    if labels is not None:
        return grower.on_labels(labels, kind="labels")
    if estimator is not None:
        if not hasattr(estimator, "fit_predict"):
            raise InputError(f"estimator is {estimator!r}", expected="an object with fit_predict")
        return grower.on_labels(estimator.fit_predict(seen), kind="estimator")
    if forest in ("kcenter", "random"):
        if counted.remaining is not None and n * count > counted.remaining:
            raise CallsExceeded(counted, n * count, what=f"{count} centres")
        with counted.stage("forest"):
            if forest == "kcenter":
                centers = kcenter(counted, count, start=start, n_jobs=grower.n_jobs)
            else:
                centers = random_centers(counted, count, rng=rng, n_jobs=grower.n_jobs)
        return grower.on_centers(centers, kind=forest)
    if forest == "knn":
        return _neighbour_forest(counted, seen, count=count, n_neighbors=n_neighbors, rng=rng, n_jobs=grower.n_jobs)
    if forest == "threshold":
        require_number("threshold", threshold, least=0, expected='a distance >= 0 for forest="threshold"')
        assert threshold is not None
        return _threshold_forest(counted, float(threshold), count=count, n_jobs=grower.n_jobs)
    raise InputError(f"forest is {forest!r}", expected='"kcenter", "random", "knn" or "threshold"')


@dataclass
class _Grower:
    """Grows a spanning tree of every component of a partition."""

    counted: CountedMetric
    rng: np.random.Generator
    n_jobs: int
    max_component: int | None
    matrix_members: int = MATRIX_MEMBERS

    def on_labels(self, labels: Any, *, kind: str) -> Forest:
        given = np.asarray(labels)
        n = len(self.counted)
        if given.shape != (n,):
            raise InputError(f"labels have shape {given.shape}", expected=f"({n},), one label per object")
        if given.dtype.kind == "f" and not np.isfinite(given).all():
            raise InputError(
                f"label {int(np.argmin(np.isfinite(given)))} is {given[np.argmin(np.isfinite(given))]}",
                expected="a finite label",
            )
        clusters, compact = np.unique(given, return_inverse=True)
        compact = compact.astype(np.int64)
        if given.dtype.kind in "if":
            noise = np.flatnonzero(given == NOISE)
            compact[noise] = len(clusters) + np.arange(len(noise))
            # The noise's own number is free again.
            compact = np.unique(compact, return_inverse=True)[1].astype(np.int64)
        return self._grow(_bare_forest(compact, kind=kind), None)

    def on_centers(self, centers: Centers, *, kind: str) -> Forest:
        return self._grow(_bare_forest(centers.labels, kind=kind, centers=centers.indices), centers.distances)

    def _grow(self, bare: Forest, to_center: FloatArray | None) -> Forest:
        limit = self.max_component
        if limit is None:
            limit = max(8 * bare.n // bare.n_components, MATRIX_MEMBERS)
        edges = np.empty((bare.n - bare.n_components, 2), dtype=np.int64)
        weights = np.empty(len(edges))
        # Component i has sizes[i] - 1 edges, so its edges start at offsets[i] - i.
        starts = bare.offsets[:-1] - np.arange(bare.n_components)

        def grow(batch: IntArray) -> None:
            for component in batch.tolist():
                members = bare.members(component)
                tree, lengths = prim(self.counted, members, matrix_members=self.matrix_members)
                at = slice(starts[component], starts[component] + len(lengths))
                edges[at], weights[at] = tree, lengths

        large = bare.sizes > limit
        if to_center is not None:
            # Copies of a centre are no work; where they can be many, they are taken out before the tree is made.
            copies = np.bincount(bare.labels[to_center == 0.0], minlength=bare.n_components)
            large |= (bare.sizes > MATRIX_MEMBERS) & (copies > 1)
        exact = bare.sizes[~large]
        needed = int((exact * (exact - 1) // 2).sum())
        if self.counted.remaining is not None and needed > self.counted.remaining:
            raise CallsExceeded(
                self.counted,
                needed,
                what=f"the trees of the components (the largest has {bare.largest_component} objects)",
            )
        with self.counted.stage("subtrees"):
            for component in np.flatnonzero(large).tolist():
                members = bare.members(component)
                near = None if to_center is None or bare.centers is None else to_center[members]
                tree, lengths = self._split(
                    members, near, None if bare.centers is None else int(bare.centers[component]), limit
                )
                at = slice(starts[component], starts[component] + len(lengths))
                edges[at], weights[at] = tree, lengths
            small = np.flatnonzero((bare.sizes > 1) & ~large)
            batches = _batches(small, bare.sizes)
            if self.counted.reducing is not None:
                members_of = [[bare.members(component) for component in batch.tolist()] for batch in batches]
                grown = self.counted.reducing.trees(members_of, matrix_members=self.matrix_members)
                for component, (tree, lengths) in zip(
                    chain.from_iterable(batch.tolist() for batch in batches), chain.from_iterable(grown), strict=True
                ):
                    at = slice(starts[component], starts[component] + len(lengths))
                    edges[at], weights[at] = tree, lengths
                self.counted.book(int((bare.sizes[small] * (bare.sizes[small] - 1) // 2).sum()))
            else:
                for _ in ordered_map(grow, batches, n_jobs=self.n_jobs):
                    pass
        edges.sort(axis=1)
        return replace(bare, edges=edges, weights=weights)

    def _split(
        self, members: IntArray, to_center: FloatArray | None, center: int | None, limit: int
    ) -> tuple[IntArray, FloatArray]:
        """Return a spanning tree of a component that is too large for an exact one."""
        from assay.mst.completion import complete  # completion builds on this module

        star = np.empty((0, 2), dtype=np.int64)
        if to_center is not None and center is not None:
            # Copies of the centre hang on it by edges of length 0, which belong to a minimum spanning tree.
            copies = members[(to_center == 0.0) & (members != center)]
            star = np.column_stack([np.full(len(copies), center), copies])
            members = members[(to_center > 0.0) | (members == center)]
        size = len(members)
        if size <= limit:
            tree, lengths = prim(self.counted, members, matrix_members=self.matrix_members)
        else:
            # Wrapped once more, so that all it spends is booked here under "subtrees" and its stages stay its own.
            inner = CountedMetric(self.counted.subset(members))
            part = random_centers(inner, math.isqrt(size), rng=self.rng, n_jobs=self.n_jobs)
            sizes = np.bincount(part.labels)
            copies_left = int(sizes.max()) - int((part.distances[part.labels == sizes.argmax()] == 0.0).sum()) + 1
            if copies_left == size:
                tree, lengths = prim(self.counted, members, matrix_members=self.matrix_members)
            else:
                grower = _Grower(
                    inner, rng=self.rng, n_jobs=self.n_jobs, max_component=limit, matrix_members=self.matrix_members
                )
                completed = complete(inner, grower.on_centers(part, kind="random"), n_jobs=self.n_jobs)
                tree, lengths = members[completed.edges], completed.weights
        return np.concatenate([star, tree]), np.concatenate([np.zeros(len(star)), lengths])


def _bare_forest(labels: IntArray, *, kind: str, centers: IntArray | None = None) -> Forest:
    return Forest(labels, np.empty((0, 2), dtype=np.int64), np.empty(0), kind, centers)


def _batches(chosen: IntArray, sizes: IntArray) -> list[IntArray]:
    """Return the components in batches of similar work, the largest first."""
    by_size = chosen[np.argsort(-sizes[chosen], kind="stable")]
    pairs = sizes[by_size] * (sizes[by_size] - 1) // 2
    ends = np.flatnonzero(np.diff(np.cumsum(pairs) // TASK_PAIRS)) + 1
    return np.split(by_size, ends) if len(by_size) else []


def prim(counted: CountedMetric, members: IntArray, *, matrix_members: int) -> tuple[IntArray, FloatArray]:
    """Return a minimum spanning tree of `members` (ascending): s(s-1)/2 distances, each evaluated once."""
    size = len(members)
    if size < 2:
        return np.empty((0, 2), dtype=np.int64), np.empty(0)
    if size <= matrix_members:
        tree, lengths = prim_matrix(counted.square(members))
        return members[tree], lengths
    remaining, nearest = members[1:].copy(), np.full(size - 1, np.inf)
    anchor = np.zeros(size - 1, dtype=np.int64)
    current = members[:1]
    for count in range(size - 1, 0, -1):
        row = counted.block(current, remaining[:count])[0]
        grow_tree(row, remaining, count, nearest, anchor, current[0])
        current = remaining[count - 1 : count]
    # Each vertex was moved to the end of what remained when it was chosen, so the growth reads backwards.
    return np.column_stack([anchor, remaining])[::-1], nearest[::-1]


def forest_of_edges(counted: CountedMetric, edges: Any, *, weights: Any = None, kind: str = "edges") -> Forest:
    """Return the forest that a user's edges are, with its weights from the metric: one distance an edge."""
    n = len(counted)
    pairs = np.asarray(edges)
    if pairs.size == 0:
        pairs = np.empty((0, 2), dtype=np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise InputError(f"edges have shape {pairs.shape}", expected="(m, 2), two objects per edge")
    if pairs.dtype.kind not in "iu":
        whole = pairs.astype(np.float64)
        fraction = np.flatnonzero((whole != np.floor(whole)).any(axis=1))
        if fraction.size:
            raise InputError(f"edge {fraction[0]} joins {tuple(pairs[fraction[0]].tolist())}", expected="whole numbers")
    pairs = np.ascontiguousarray(pairs, dtype=np.int64)
    outside = np.flatnonzero(((pairs < 0) | (pairs >= n)).any(axis=1))
    if outside.size:
        u, v = pairs[outside[0]]
        raise InputError(f"edge {outside[0]} ({u}, {v}) has an end out of range", expected=f"objects 0 to {n - 1}")
    cycle = first_cycle(n, pairs)
    if cycle >= 0:
        u, v = pairs[cycle]
        raise InputError(f"edge {cycle} ({u}, {v}) closes a cycle", expected="a forest")
    with counted.stage("forest"):
        lengths = counted.pairs(pairs[:, 0].copy(), pairs[:, 1].copy())
    if weights is not None:
        require_weights(pairs, weights, lengths)
    pairs = np.sort(pairs, axis=1)
    return Forest(components(n, pairs), pairs, lengths, kind)


def require_weights(edges: IntArray, weights: Any, lengths: FloatArray) -> None:
    """Raise an InputError that names the first edge whose weight is not the distance of its ends."""
    given = np.asarray(weights, dtype=np.float64)
    if given.shape != (len(edges),):
        raise InputError(f"weights have shape {given.shape}", expected=f"({len(edges)},), one per edge")
    wrong = np.flatnonzero(~(np.abs(given - lengths) <= WEIGHT_SLACK * np.maximum(np.abs(lengths), 1e-300)))
    if wrong.size:
        at = int(wrong[0])
        u, v = edges[at]
        raise InputError(
            f"edge {at} ({u}, {v}) has weight {given[at]:.12g}", expected=f"the distance {lengths[at]:.12g}"
        )


EXACT_NEIGHBOURS = 4096
"""Up to so many objects, all distances take less time than an approximate index, on any metric."""

PYNNDESCENT_NAMES = {
    "euclidean": "euclidean",
    "cityblock": "manhattan",
    "chebyshev": "chebyshev",
    "haversine": "haversine",
    "hamming": "hamming",
    "cosine": "cosine",
}


def _neighbour_forest(
    counted: CountedMetric, X: Any, *, count: int, n_neighbors: int, rng: np.random.Generator, n_jobs: int
) -> Forest:
    """Return Kruskal's forest on a neighbour graph; the evaluations of an approximate index are not counted."""
    n = len(counted)
    if n < 3:
        return forest_of_edges(counted, [], kind="knn")
    with counted.stage("forest"):
        if n <= EXACT_NEIGHBOURS:
            neighbours = _exact_neighbours(counted, min(n_neighbors, n - 1), n_jobs=n_jobs)
        else:
            neighbours = _approximate_neighbours(counted, X, n_neighbors, rng=rng, n_jobs=n_jobs)
        first = np.repeat(np.arange(n), neighbours.shape[1])
        pairs = np.sort(np.column_stack([first, neighbours.ravel()]), axis=1)
        pairs = np.unique(pairs[(pairs[:, 0] >= 0) & (pairs[:, 0] != pairs[:, 1])], axis=0)
        lengths = counted.pairs(pairs[:, 0].copy(), pairs[:, 1].copy())
    kept = minimum_spanning_forest(n, pairs, lengths)
    return _merge_components(counted, _joined(n, pairs[kept], lengths[kept], "knn"), count=count, n_jobs=n_jobs)


def _exact_neighbours(counted: CountedMetric, count: int, *, n_jobs: int) -> IntArray:
    """Return the nearest objects of every object, shape (n, count), from all distances."""
    n = len(counted)

    def search(part: tuple[int, int]) -> IntArray:
        block = counted.block(slice(*part), slice(0, n))
        block[np.arange(len(block)), np.arange(*part)] = np.inf
        return np.argpartition(block, count - 1, axis=1)[:, :count].astype(np.int64)

    return np.concatenate(list(ordered_map(search, list(tiles(n, max(1, TILE_ENTRIES // n))), n_jobs=n_jobs)))


def _approximate_neighbours(
    counted: CountedMetric, X: Any, count: int, *, rng: np.random.Generator, n_jobs: int
) -> IntArray:
    """Return nearest neighbours of vectors by pynndescent, shape (n, count + 1), the vectors themselves among them."""
    name = PYNNDESCENT_NAMES.get(counted.name)
    if name is None or not isinstance(X, np.ndarray):
        raise InputError(
            f'forest="knn" on {len(counted)} objects with {counted.name} distances',
            expected=f"at most {EXACT_NEIGHBOURS} objects, or vectors with one of {', '.join(PYNNDESCENT_NAMES)}",
        )
    try:
        from pynndescent import NNDescent
    except ImportError as error:
        raise MissingPackageError("pynndescent", what='forest="knn"', extra="mst") from error
    seed = np.random.RandomState(int(rng.integers(2**31)))
    index = NNDescent(X, metric=name, n_neighbors=count + 1, random_state=seed, n_jobs=n_jobs)
    return np.asarray(index.neighbor_graph[0], dtype=np.int64)


def _threshold_forest(counted: CountedMetric, threshold: float, *, count: int, n_jobs: int) -> Forest:
    """Return Kruskal's forest on all pairs within the threshold, which is part of a minimum spanning tree."""
    from assay.mst.range_join import range_pairs

    n = len(counted)
    with counted.stage("forest"):
        first, second, lengths = range_pairs(counted, threshold)
    pairs = np.column_stack([first, second]).astype(np.int64)
    kept = minimum_spanning_forest(n, pairs, lengths)
    joined = replace(_joined(n, pairs[kept], lengths[kept], "threshold"), in_mst=True)
    return _merge_components(counted, joined, count=count, n_jobs=n_jobs)


def _joined(n: int, edges: IntArray, lengths: FloatArray, kind: str) -> Forest:
    pairs = np.sort(edges, axis=1)
    return Forest(components(n, pairs), pairs, np.asarray(lengths, dtype=np.float64), kind)


def _merge_components(counted: CountedMetric, forest: Forest, *, count: int, n_jobs: int) -> Forest:
    """Merge components until `count` are left: k-center on their lowest members, and a tree of these in each group.

    What was part of a minimum spanning tree may not be afterwards.
    """
    if forest.n_components <= count:
        return forest
    lowest = forest.order[forest.offsets[:-1]]
    with counted.stage("forest"):
        inner = CountedMetric(counted.subset(lowest))
        groups = kcenter(inner, count, n_jobs=n_jobs)
        bridges = _Grower(inner, rng=np.random.default_rng(0), n_jobs=n_jobs, max_component=None).on_centers(
            groups, kind="kcenter"
        )
    edges = np.concatenate([forest.edges, np.sort(lowest[bridges.edges], axis=1)])
    weights = np.concatenate([forest.weights, bridges.weights])
    return Forest(components(forest.n, edges), edges, weights, forest.kind)
