"""Metric forest completion: the lightest edges that make a forest a spanning tree, from representatives only.

MultiRepMFC, its guarantee alpha (Theorem 1) and its special case of one representative with alpha <= 2 (Corollary 2)
are from Veldt et al., Better Learning-Augmented Spanning Tree Algorithms via Metric Forest Completion, ICLR 2026. The
tighter certificate beta and the exact completion by lazy closest pairs are this project's own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from assay.core.errors import InputError
from assay.mst._arguments import random_generator, require_flag, require_number
from assay.mst._graph import prim_matrix, require_tree
from assay.mst._tiles import TILE_ENTRIES, interruptible, ordered_map, resolve_jobs, tiles
from assay.mst.forest import CallsExceeded, Forest, as_counted, build_forest
from assay.mst.metrics import CountedMetric
from assay.mst.representatives import Prefixes, allocate, parse_budget

__all__ = ["Completion", "complete_forest", "exact_mfc"]

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

COMPONENT_LIMIT = 10_000
"""Most components whose t x t matrices are made: at 64 bytes an entry, 6.4 GB."""

MODES = ("mfc", "exact_mfc")


@dataclass(frozen=True, eq=False)
class Completion:
    """A spanning tree that keeps a forest, with what is known of its quality.

    Attributes
    ----------
    forest : Forest
    completion_edges : ndarray of int64, shape (t - 1, 2)
        The added edges, the lower end first.
    completion_weights : ndarray of float64, shape (t - 1,)
    representatives : ndarray of int64, shape (t + b,)
        All representatives, by component and in the order of choice.
    representative_counts : ndarray of int64, shape (t,)
    component_costs : ndarray of float64, shape (t,)
        cost(P_i, R_i): the largest distance of a member to its nearest representative.
    alpha : float
        1 + cost(P, R) / w(E_t): the tree weighs at most alpha times the best completion of this forest.
    beta : float
        The same promise by lower bounds on every pair of components; 1 <= beta <= alpha.
    lower_bound : float
        No completion of this forest weighs less: w(E_t) + the weight of a minimum spanning tree of the lower bounds.
    exact : bool
        Whether the completion is the best there is.
    certified : bool
        Whether alpha, beta and the lower bound are guarantees: the distance is a metric.
    n_distance_calls : dict of str to int
        Evaluations by stage, every (representative, object) pair counted once for each order in which it occurs.
    timings : dict of str to float
        Wall-clock seconds by stage.
    """

    forest: Forest
    completion_edges: IntArray
    completion_weights: FloatArray
    representatives: IntArray
    representative_counts: IntArray
    component_costs: FloatArray
    alpha: float
    beta: float
    lower_bound: float
    exact: bool
    certified: bool
    n_distance_calls: dict[str, int] = field(default_factory=dict)
    timings: dict[str, float] = field(default_factory=dict)

    @property
    def total_weight(self) -> float:
        """Weight of the tree."""
        return self.forest.weight + float(self.completion_weights.sum())

    # The tree is put together when asked for: at a million objects, a copy of the forest's edges is 24 MB.
    @property
    def edges(self) -> IntArray:
        """The forest's edges, then the added ones; shape (n - 1, 2)."""
        return np.concatenate([self.forest.edges, self.completion_edges])

    @property
    def weights(self) -> FloatArray:
        """Lengths of `edges`, shape (n - 1,)."""
        return np.concatenate([self.forest.weights, self.completion_weights])

    @property
    def budget_used(self) -> int:
        """Representatives beyond one a component."""
        return int((self.representative_counts - 1).sum())


@interruptible()
def complete_forest(
    X: Any,
    *,
    forest: Forest | None = None,
    edges: Any = None,
    weights: Any = None,
    labels: Any = None,
    metric: Any = "euclidean",
    budget: int | str = 0,
    allocation: str = "dp",
    first: str = "lowest",
    lookahead: float | None = None,
    extra_edge: bool = True,
    mode: str = "mfc",
    target_alpha: float | None = None,
    target_beta: float | None = None,
    max_distance_calls: int | None = None,
    max_component: int | None = None,
    random_state: int | np.random.Generator | np.random.RandomState | None = None,
    n_jobs: int | None = None,
) -> Completion:
    """Complete a forest that you have to a spanning tree: the paper's problem alone.

    Parameters
    ----------
    X : objects of the metric, or a Metric
    forest : Forest, optional
        The forest; or `edges` or `labels`:
    edges : array-like of int, shape (m, 2), optional
        Edges of a forest.
    weights : array-like of float, shape (m,), optional
        Their lengths, checked against the metric.
    labels : array-like, shape (n,), optional
        A clustering, whose clusters get exact minimum spanning trees first. Objects with the label -1, noise, stay
        single.
    metric : str, callable or Metric
        See :func:`assay.mst.make_metric`.
    budget : int or str
        Representatives beyond one a component; ``"2t"`` is twice the number of components.
    allocation : {"dp", "hull", "greedy", "fixed"}
        How the budget is spent on components.
    first : {"lowest", "random", "center", "medoid"}
        The first representative of a component.
    lookahead : float, optional
        Explore no component of size s beyond ``lookahead * budget * s / n`` representatives.
    extra_edge : bool
        Also try, for each pair of components, the edge between the two objects found nearest to the other side's
        representatives: t(t-1)/2 more distances, and never a heavier tree.
    mode : {"mfc", "exact_mfc"}
        "exact_mfc" goes on to the best completion, by closest pairs where the bounds leave a doubt.
    target_alpha, target_beta : float, optional
        Double the budget until alpha (beta) is at most this, the budget is exhausted, or `max_distance_calls` is.
    max_distance_calls : int, optional
        No further doubling that would exceed it.
    max_component : int, optional
        See :func:`assay.mst.build_forest`; for `labels`.
    random_state : int, Generator or RandomState, optional
        For ``first="random"`` and "medoid".
    n_jobs : int, optional
        Threads; the result does not depend on it.

    Returns
    -------
    Completion

    Raises
    ------
    InputError
        An edge that closes a cycle, is out of range or has a wrong weight; labels of another length; too many
        components; a value that is none of the options.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0], [1.0], [5.0], [7.0]])
    >>> tree = complete_forest(X, labels=[0, 0, 1, 1])
    >>> tree.completion_edges, tree.total_weight
    (array([[1, 2]]), 7.0)
    """
    counted = as_counted(X, metric)
    if max_distance_calls is not None:
        counted.max_calls = max_distance_calls
    given = [name for name, value in (("forest", forest), ("edges", edges), ("labels", labels)) if value is not None]
    if len(given) != 1:
        raise InputError(
            f"{' and '.join(given) or 'neither forest, edges nor labels'} given", expected="exactly one of them"
        )
    started = time.perf_counter()
    if forest is None:
        if isinstance(labels, str):
            raise InputError(f"labels is {labels!r}", expected="one label per object")
        forest = build_forest(
            counted,
            edges=edges,
            weights=weights,
            labels=labels,
            max_component=max_component,
            n_jobs=n_jobs,
            n_components=1,
            random_state=random_state,
        )
    elif forest.n != len(counted):
        raise InputError(f"the forest has {forest.n} objects", expected=f"{len(counted)}, as X")
    built = time.perf_counter() - started
    completion = complete(
        counted,
        forest,
        budget=budget,
        allocation=allocation,
        first=first,
        lookahead=lookahead,
        extra_edge=extra_edge,
        mode=mode,
        target_alpha=target_alpha,
        target_beta=target_beta,
        rng=random_generator(random_state),
        n_jobs=resolve_jobs(n_jobs),
    )
    completion.timings["forest"] = built
    return completion


def exact_mfc(
    X: Any,
    *,
    forest: Forest | None = None,
    edges: Any = None,
    labels: Any = None,
    metric: Any = "euclidean",
    **options: Any,
) -> Completion:
    """Return the best completion of a forest: :func:`complete_forest` with ``mode="exact_mfc"`` and its options.

    Parameters
    ----------
    X : objects of the metric, or a Metric
    forest : Forest, optional
        The forest; or `edges` or `labels`:
    edges : array-like of int, shape (m, 2), optional
        Edges of a forest.
    labels : array-like, shape (n,), optional
        A clustering, whose clusters get exact minimum spanning trees first.
    metric : str, callable or Metric
        See :func:`assay.mst.make_metric`.
    **options
        Further options of :func:`complete_forest`.

    Returns
    -------
    Completion
        With ``exact`` true: no completion of the forest is lighter.

    Raises
    ------
    InputError
        As :func:`complete_forest`.

    Examples
    --------
    >>> import numpy as np
    >>> exact_mfc(np.array([[0.0], [1.0], [5.0], [7.0]]), labels=[0, 0, 1, 1]).exact
    True
    """
    return complete_forest(X, forest=forest, edges=edges, labels=labels, metric=metric, mode="exact_mfc", **options)


def complete(
    counted: CountedMetric,
    forest: Forest,
    *,
    budget: int | str = 0,
    allocation: str = "dp",
    first: str = "lowest",
    lookahead: float | None = None,
    extra_edge: bool = True,
    mode: str = "mfc",
    target_alpha: float | None = None,
    target_beta: float | None = None,
    rng: np.random.Generator | None = None,
    n_jobs: int = 1,
    progress: Callable[[str], None] | None = None,
    prefixes: Prefixes | None = None,
) -> Completion:
    """Complete a forest on a counted metric; see :func:`complete_forest`.

    `prefixes` that were explored before are used instead of new ones, which take `first`, and cost no distances again.
    """
    t = forest.n_components
    if t > COMPONENT_LIMIT:
        raise InputError(
            f"the forest has {t} components, whose {t} x {t} matrices take {64 * t * t / 1e9:.0f} GB",
            expected=f"at most {COMPONENT_LIMIT}",
        )
    if mode not in MODES:
        raise InputError(f"mode is {mode!r}", expected=f"one of {', '.join(MODES)}")
    for name, target in (("target_alpha", target_alpha), ("target_beta", target_beta)):
        if target is not None:
            require_number(name, target, least=1, expected="a number >= 1")
    if lookahead is not None:
        require_number("lookahead", lookahead, least=0, expected="a number > 0")
    require_flag("extra_edge", extra_edge)
    rng = np.random.default_rng(0) if rng is None else rng
    clock = _Clock(progress)
    calls_before = dict(counted.calls)
    with clock.stage("representatives"):
        prefixes = prefixes or Prefixes(counted, forest, first=first, rng=rng, n_jobs=n_jobs)
    bounds = _Bounds(counted, forest, prefixes, extra_edge=extra_edge, n_jobs=n_jobs)
    spent = parse_budget(budget, t)
    state: _Tree | None = None
    while True:
        with clock.stage("representatives"):
            wanted = allocate(prefixes, spent, allocation=allocation, lookahead=lookahead)
        if counted.remaining is not None and bounds.calls(wanted) > counted.remaining:
            if state is None:
                raise CallsExceeded(counted, bounds.calls(wanted), what="the completion")
            break
        extra = wanted
        with clock.stage("completion"):
            bounds.update(extra)
            state = bounds.tree()
        if _met(state, target_alpha, target_beta):
            break
        larger = _next_budget(counted, forest, spent, extra)
        if larger is None:
            break
        spent = larger
    exact = t == 1
    if mode == "exact_mfc":
        with clock.stage("completion"):
            state = _close_pairs(bounds)
        exact = True
    edges = np.sort(state.edges, axis=1)
    with clock.stage("completion"), counted.stage("weights"):
        # Blocks may be rounded (a matrix product, single precision); what is returned is evaluated pair by pair.
        added = evaluate_edges(counted, edges, n_jobs=n_jobs)
    require_tree(
        len(counted),
        np.concatenate((forest.edges, edges)),
        np.concatenate((forest.weights, added)),
        what="the completion",
    )
    total = forest.weight + float(added.sum())
    floor = min(total, forest.weight + (float(added.sum()) if exact else state.lower))
    costs = prefixes.component_costs(extra)
    alpha, beta = 1.0 + _ratio(float(costs.sum()), forest.weight), 1.0 + _ratio(total - floor, floor)
    return Completion(
        forest=forest,
        completion_edges=edges,
        completion_weights=added,
        representatives=np.concatenate(
            [np.array(p[: k + 1], dtype=np.int64) for p, k in zip(prefixes.points, extra.tolist(), strict=True)]
        ),
        representative_counts=extra + 1,
        component_costs=costs,
        alpha=1.0 if exact else alpha,
        beta=1.0 if exact else min(beta, alpha),
        lower_bound=floor,
        exact=exact,
        certified=counted.is_metric,
        n_distance_calls={stage: count - calls_before.get(stage, 0) for stage, count in counted.calls.items()},
        timings=clock.seconds,
    )


class _Clock:
    """Wall-clock seconds by stage."""

    def __init__(self, progress: Callable[[str], None] | None) -> None:
        self.seconds: dict[str, float] = {}
        self.progress = progress

    def stage(self, name: str) -> _Running:
        if self.progress is not None:
            self.progress(name)
        return _Running(self, name)


class _Running:
    def __init__(self, clock: _Clock, name: str) -> None:
        self.clock, self.name = clock, name

    def __enter__(self) -> None:
        self.started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        seconds = time.perf_counter() - self.started
        self.clock.seconds[self.name] = self.clock.seconds.get(self.name, 0.0) + seconds


def _ratio(excess: float, whole: float) -> float:
    if excess <= 0:
        return 0.0
    return excess / whole if whole > 0 else float("inf")


def evaluate_edges(counted: CountedMetric, edges: IntArray, *, n_jobs: int) -> FloatArray:
    """Return the lengths of edges, evaluated pair by pair, shape (k,)."""

    def part(ends: tuple[int, int]) -> FloatArray:
        chosen = edges[ends[0] : ends[1]]
        return counted.pairs(np.ascontiguousarray(chosen[:, 0]), np.ascontiguousarray(chosen[:, 1]))

    parts = list(ordered_map(part, list(tiles(len(edges), TILE_ENTRIES)), n_jobs=n_jobs))
    return np.concatenate(parts) if parts else np.empty(0)


def _met(state: _Tree, target_alpha: float | None, target_beta: float | None) -> bool:
    return (target_alpha is None or state.alpha <= target_alpha) and (target_beta is None or state.beta <= target_beta)


def _next_budget(counted: CountedMetric, forest: Forest, budget: int, extra: IntArray) -> int | None:
    """Return the doubled budget, or what the calls left allow of it; None when nothing more can be spent."""
    t, n = forest.n_components, forest.n
    if int(extra.sum()) >= n - t or budget >= n - t:
        return None
    larger = min(max(2 * budget, t), n - t)
    if counted.remaining is not None:
        # An extra representative is measured against the other components, at most n distances. To place it, dp looks
        # one step further in every component, n more. The shortcuts may all change, and t - 1 weights come last.
        affordable = (counted.remaining - t * (t + 1) // 2) // (2 * n)
        larger = min(larger, budget + affordable)
    return larger if larger > budget else None


@dataclass(frozen=True, eq=False)
class _Tree:
    """A spanning tree of the components: its point pairs, and the certificates that go with it."""

    edges: IntArray
    lower: float
    alpha: float
    beta: float


class _Bounds:
    """Distances between components, bounded from above and below through representatives.

    Parameters
    ----------
    counted : CountedMetric
    forest : Forest
    prefixes : Prefixes
    extra_edge : bool
    n_jobs : int
    """

    def __init__(
        self, counted: CountedMetric, forest: Forest, prefixes: Prefixes, *, extra_edge: bool, n_jobs: int
    ) -> None:
        self.counted, self.forest, self.prefixes = counted, forest, prefixes
        self.extra_edge, self.n_jobs = extra_edge, n_jobs
        t = forest.n_components
        # One row per representative measured so far: nearest distance to every component, and the object there.
        self.minima = np.empty((0, t))
        self.objects = np.empty((0, t), dtype=np.int32 if forest.n < 2**31 else np.int64)
        self.rank = np.empty(0, dtype=np.int64)
        self.component = np.empty(0, dtype=np.int64)
        self.measured = np.zeros(t, dtype=np.int64)
        self.shortcut = np.full((t, t), np.inf)
        self.shortcut_ends = np.full((2, t, t), -1, dtype=self.objects.dtype)

    def calls(self, extra: IntArray) -> int:
        """Return how many distances `update` takes at most, and the weights of the edges that follow."""
        t, sizes = self.forest.n_components, self.forest.sizes
        fresh = np.maximum(extra + 1 - self.measured, 0)
        return int((fresh * (self.forest.n - sizes)).sum()) + (t * (t - 1) // 2 if self.extra_edge else 0) + t - 1

    def update(self, extra: IntArray) -> None:
        """Measure the representatives that the allocation adds, and bound every pair of components."""
        fresh = [
            (i, k)
            for i, (done, k) in enumerate(zip(self.measured.tolist(), (extra + 1).tolist(), strict=True))
            for k in range(done, k)
        ]
        if fresh:
            component = np.array([i for i, _ in fresh], dtype=np.int64)
            rank = np.array([k for _, k in fresh], dtype=np.int64)
            points = np.array([self.prefixes.points[i][k] for i, k in fresh], dtype=np.int64)
            with self.counted.stage("completion"):
                minima, objects = segmented_minima(self.counted, self.forest, points, component, n_jobs=self.n_jobs)
            self.minima = np.concatenate([self.minima, minima])
            self.objects = np.concatenate([self.objects, objects.astype(self.objects.dtype, copy=False)])
            self.rank, self.component = np.concatenate([self.rank, rank]), np.concatenate([self.component, component])
            self.measured = np.maximum(self.measured, extra + 1)
        chosen = np.flatnonzero(self.rank <= extra[self.component])
        self.rows = chosen[np.lexsort((self.rank[chosen], self.component[chosen]))]
        self.row_starts = np.concatenate([[0], np.cumsum(extra + 1)]).astype(np.int64)
        self.points = np.array(
            [self.prefixes.points[i][k] for i, k in zip(self.component.tolist(), self.rank.tolist(), strict=True)],
            dtype=np.int64,
        )
        self.nearest, owners = self.prefixes.assignment(extra)
        self.owner_rows = self.rows[self.row_starts[self.forest.labels] + owners]
        radii = np.zeros(len(self.rank))
        np.maximum.at(radii, self.owner_rows, self.nearest)
        self.between, self.best_row, below = _combine(self.minima, self.component, self.rows, radii)
        self.lower = np.maximum(below, below.T)
        np.maximum(self.lower, 0.0, out=self.lower)
        self.cost = float(self.prefixes.component_costs(extra).sum())
        if self.extra_edge:
            self._try_shortcuts()
        self.upper = np.minimum(np.minimum(self.between, self.between.T), np.minimum(self.shortcut, self.shortcut.T))

    def _try_shortcuts(self) -> None:
        """Evaluate the pair of nearest objects of every pair of components, unless it was evaluated before."""
        t = self.forest.n_components

        def rows(part: tuple[int, int]) -> None:
            low, high = part
            i = np.repeat(np.arange(low, high), t - 1 - np.arange(low, high))
            j = np.concatenate([np.arange(row + 1, t) for row in range(low, high)])
            x, y = self._object(j, i), self._object(i, j)
            new = (self.shortcut_ends[0, i, j] != x) | (self.shortcut_ends[1, i, j] != y)
            i, j, x, y = i[new], j[new], x[new], y[new]
            if len(i):
                self.shortcut[i, j] = self.counted.pairs(x, y)
                self.shortcut_ends[0, i, j], self.shortcut_ends[1, i, j] = x, y

        with self.counted.stage("completion"):
            for _ in ordered_map(rows, list(tiles(t - 1, max(1, TILE_ENTRIES // t))), n_jobs=self.n_jobs):
                pass

    def _object(self, i: IntArray, j: IntArray) -> IntArray:
        """Return the objects of components `j` that are nearest to the representatives of `i`."""
        return np.asarray(self.objects[self.best_row[i, j], j], dtype=np.int64)

    def ends(self, i: IntArray, j: IntArray) -> IntArray:
        """Return the pairs of objects whose distances are ``upper[i, j]``, shape (k, 2)."""
        i, j = np.minimum(i, j), np.maximum(i, j)
        there, back = self.between[i, j], self.between[j, i]
        first = np.where(there <= back, self.points[self.best_row[i, j]], self._object(j, i))
        second = np.where(there <= back, self._object(i, j), self.points[self.best_row[j, i]])
        shorter = self.shortcut[i, j] < np.minimum(there, back)
        first = np.where(shorter, self.shortcut_ends[0, i, j], first)
        second = np.where(shorter, self.shortcut_ends[1, i, j], second)
        return np.column_stack([first, second]).astype(np.int64)

    def tree(self) -> _Tree:
        """Return the minimum spanning tree of the upper bounds, with its certificates."""
        pairs, lengths = prim_matrix(self.upper)
        _, below = prim_matrix(self.lower)
        inside, added, lower = self.forest.weight, float(lengths.sum()), float(below.sum())
        alpha = 1.0 + _ratio(self.cost, inside)
        beta = 1.0 + _ratio(added - lower, inside + lower)
        return _Tree(self.ends(pairs[:, 0], pairs[:, 1]), lower, alpha, min(alpha, beta))


@njit(cache=True, nogil=True)
def _combine(minima, component, rows, radii):  # type: ignore[no-untyped-def]
    """Return the least of i's rows at j, which row it is, and the least of row minus radius; all of shape (t, t)."""
    t = minima.shape[1]
    between, below = np.full((t, t), np.inf), np.full((t, t), np.inf)
    best = np.full((t, t), -1, dtype=np.int32)
    for row in rows:
        i = component[row]
        for j in range(t):
            value = minima[row, j]
            if value < between[i, j]:
                between[i, j] = value
                best[i, j] = row
            if value - radii[row] < below[i, j]:
                below[i, j] = value - radii[row]
    return between, best, below


QUERY_ROWS = 512
"""Representatives of a tile, which leaves it 256 objects."""


def segmented_minima(
    counted: CountedMetric, forest: Forest, points: IntArray, component: IntArray, *, n_jobs: int
) -> tuple[FloatArray, IntArray]:
    """Return the distance from representatives to every other component, and the object there that attains it.

    Exactly n * r - sum over representatives of the size of their component distances.

    Parameters
    ----------
    counted : CountedMetric
    forest : Forest
    points, component : ndarray of int64, shape (r,)
        The representatives and their components, which ascend.
    n_jobs : int
        Threads.

    Returns
    -------
    minima : ndarray of float64, shape (r, t)
        Infinite at a representative's own component.
    objects : ndarray of int32 or int64, shape (r, t)
        Ties: the lowest object. -1 at a representative's own component.
    """
    if counted.reducing is not None:
        counted.book(int(forest.n * len(points) - forest.sizes[component].sum()))
        return counted.reducing.minima(forest.labels, forest.n_components, points, component)
    t, order, offsets = forest.n_components, forest.order, forest.offsets
    minima = np.full((len(points), t), np.inf)
    objects = np.full((len(points), t), -1, dtype=np.int32 if forest.n < 2**31 else np.int64)
    row_of = np.searchsorted(component, np.arange(t + 1))
    width = max(1, TILE_ENTRIES // min(len(points), QUERY_ROWS))
    groups = _groups(forest.sizes, width)

    def reduce(rows: slice | IntArray, first: int, last: int) -> None:
        """Measure representatives against components first … last - 1, piece by piece."""
        queries = points[rows]
        for low, high in tiles(int(offsets[last] - offsets[first]), width):
            members = order[offsets[first] + low : offsets[first] + high]
            cuts = np.clip(offsets[first : last + 1] - offsets[first] - low, 0, high - low)
            block = counted.block(queries, members)
            if isinstance(rows, slice):
                _reduce_segments(block, cuts, members, minima[rows, first:last], objects[rows, first:last])
            else:
                some, where = minima[rows, first:last], objects[rows, first:last]
                _reduce_segments(block, cuts, members, some, where)
                minima[rows, first:last], objects[rows, first:last] = some, where

    def outside(task: tuple[int, int, int, int]) -> None:
        first, last, low, high = task
        for rows in (slice(low, min(high, row_of[first])), slice(max(low, row_of[last]), high)):
            if rows.start < rows.stop:
                reduce(rows, first, last)

    def inside(group: tuple[int, int]) -> None:
        # Components that share a tile see each other's representatives, but never their own.
        first, last = group
        for own in range(first, last):
            rows = np.r_[row_of[first] : row_of[own], row_of[own + 1] : row_of[last]]
            if len(rows):
                reduce(rows, own, own + 1)

    tasks = [(first, last, low, high) for first, last in groups for low, high in tiles(len(points), QUERY_ROWS)]
    for _ in ordered_map(outside, tasks, n_jobs=n_jobs):
        pass
    for _ in ordered_map(inside, [group for group in groups if group[1] - group[0] > 1], n_jobs=n_jobs):
        pass
    return minima, objects


def _groups(sizes: IntArray, width: int) -> list[tuple[int, int]]:
    """Return ranges (first, last) of components whose sizes add up to at most `width`, or that are single."""
    groups, first, total = [], 0, 0
    for component, size in enumerate(sizes.tolist()):
        if component > first and total + size > width:
            groups.append((first, component))
            first, total = component, 0
        total += size
    groups.append((first, len(sizes)))
    return groups


@njit(cache=True, nogil=True, fastmath={"nnan", "nsz"})
def _reduce_segments(block, cuts, members, minima, objects):  # type: ignore[no-untyped-def]
    for row in range(block.shape[0]):
        values = block[row]
        for segment in range(len(cuts) - 1):
            smallest = np.inf
            for column in range(cuts[segment], cuts[segment + 1]):
                smallest = min(smallest, values[column])
            if smallest < minima[row, segment]:
                column = cuts[segment]
                while values[column] != smallest:
                    column += 1
                minima[row, segment] = smallest
                objects[row, segment] = members[column]


BOUND_SLACK = 1e-12
"""Relative rounding of a lower bound m_r[j] - d(x, r), which must not exclude a closest pair."""


def _close_pairs(bounds: _Bounds) -> _Tree:
    """Replace lower bounds by closest pairs until a minimum spanning tree of them holds no other weight.

    Every weight is at most the true distance of the two components, and those chosen equal it: so the tree is a
    minimum spanning tree of the true distances.
    """
    counted = bounds.counted
    lower = bounds.lower.copy() if counted.is_metric else np.zeros_like(bounds.lower)
    found: dict[tuple[int, int], tuple[int, int, float]] = {}

    def closest(pair: tuple[int, int]) -> tuple[int, int, float]:
        i, j = pair
        ends = bounds.ends(np.array([i]), np.array([j]))[0]
        best = (int(ends[0]), int(ends[1]), float(bounds.upper[i, j]))
        if lower[i, j] >= best[2]:
            return best
        here, floor_here = _candidates(bounds, i, j, best[2], pruned=counted.is_metric)
        there, floor_there = _candidates(bounds, j, i, best[2], pruned=counted.is_metric)
        at = 0
        while at < len(here) and floor_here[at] < best[2]:
            there = there[floor_there < best[2]]
            floor_there = floor_there[floor_there < best[2]]
            if not len(there):
                break
            rows = here[at : at + max(1, TILE_ENTRIES // (8 * len(there)))]
            at += len(rows)
            for low, high in tiles(len(there), TILE_ENTRIES):
                block = counted.block(rows, there[low:high])
                row, column = divmod(int(np.argmin(block)), block.shape[1])
                if block[row, column] < best[2]:
                    best = (int(rows[row]), int(there[low + column]), float(block[row, column]))
        return best

    with counted.stage("completion"):
        while True:
            pairs, lengths = prim_matrix(lower)
            chosen = [(min(i, j), max(i, j)) for i, j in pairs.tolist()]
            doubtful = [pair for pair in chosen if pair not in found]
            if not doubtful:
                ends = np.array([found[pair][:2] for pair in chosen], dtype=np.int64).reshape(-1, 2)
                return _Tree(ends, float(lengths.sum()), 1.0, 1.0)
            for pair, result in zip(doubtful, ordered_map(closest, doubtful, n_jobs=bounds.n_jobs), strict=True):
                found[pair] = result
                lower[pair] = lower[pair[::-1]] = result[2]


def _candidates(bounds: _Bounds, i: int, j: int, ceiling: float, *, pruned: bool) -> tuple[IntArray, FloatArray]:
    """Return the members of component i that may be nearer than `ceiling` to component j, the most promising first."""
    members = bounds.forest.members(i)
    if not pruned:
        return members, np.zeros(len(members))
    reach = bounds.minima[bounds.owner_rows[members], j]
    near = bounds.nearest[members]
    floor = (reach - near) - BOUND_SLACK * (reach + near)
    kept = np.flatnonzero(floor < ceiling)
    kept = kept[np.argsort(floor[kept], kind="stable")]
    return members[kept], floor[kept]
