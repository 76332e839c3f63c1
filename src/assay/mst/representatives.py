"""Representatives of components: farthest-first prefixes, and how a budget is spent on them.

Best representatives (BESTREPS) is NP-hard. Farthest-first traversal inside every component gives costs within twice
the best, and dynamic programming over these costs allocates a budget within twice the best (Theorem 4 of Veldt et al.,
Better Learning-Augmented Spanning Tree Algorithms via Metric Forest Completion, ICLR 2026).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from assay.core.errors import InputError
from assay.mst._tiles import ordered_map, tiles
from assay.mst.forest import Forest
from assay.mst.metrics import CountedMetric

__all__ = [
    "ALLOCATIONS",
    "FIRST",
    "Prefixes",
    "allocate",
    "allocate_dp",
    "allocate_fixed",
    "allocate_greedy",
    "allocate_hull",
]

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

ALLOCATIONS = ("fixed", "greedy", "dp", "hull")
FIRST = ("lowest", "random", "center", "medoid")

PAIR_TILE = 1 << 15
"""Pairs of one evaluation of a farthest-first step."""

MEDOID_SAMPLE = 32
"""Members of a component among which its medoid is sought."""


class Prefixes:
    """Farthest-first traversals of all components, grown as far as an allocation asks.

    Component i has representatives r_1, r_2, … and costs c_i(1) >= c_i(2) >= …, where c_i(j) is the largest distance of
    a member to the nearest of the first j. A step costs one distance for each member, so K extra representatives of a
    component cost size * (1 + K) in all. What is explored is kept when the budget grows.

    Parameters
    ----------
    counted : CountedMetric
    forest : Forest
    first : {"lowest", "random", "center", "medoid"}
        First representative: the lowest index, a random member, the centre of the component, or the best of 32 sampled
        members by radius, which costs min(32, size) * size distances a component.
    rng : numpy.random.Generator
        Source of "random" and "medoid".
    n_jobs : int
        Threads.
    """

    def __init__(
        self,
        counted: CountedMetric,
        forest: Forest,
        *,
        first: str = "lowest",
        rng: np.random.Generator,
        n_jobs: int = 1,
    ) -> None:
        if first not in FIRST:
            raise InputError(f"first is {first!r}", expected=f"one of {', '.join(FIRST)}")
        self.counted, self.forest, self.n_jobs = counted, forest, n_jobs
        t = forest.n_components
        with counted.stage("representatives"):
            start = self._first(first, rng)
            self.points: list[list[int]] = [[int(point)] for point in start]
            self.costs: list[list[float]] = [[] for _ in range(t)]
            self._farthest = np.zeros(t, dtype=np.int64)
            self._nearest = np.full(forest.n, np.inf)
            # Per step and call: the positions in forest.order whose nearest representative it became, and how near.
            self._compact = np.int32 if forest.n < 2**31 else np.int64
            self._won: list[tuple[int, NDArray[Any], FloatArray]] = []
            self._step(np.arange(t))

    def _first(self, first: str, rng: np.random.Generator) -> IntArray:
        forest = self.forest
        if first == "lowest":
            return np.asarray(forest.order[forest.offsets[:-1]])
        if first == "random":
            return np.asarray(forest.order[forest.offsets[:-1] + rng.integers(0, forest.sizes)])
        if first == "center":
            if forest.centers is None:
                raise InputError(
                    f'first is "center", and a forest of kind {forest.kind!r} has no centres', expected="another first"
                )
            return forest.centers
        return self._medoids(rng)

    def _medoids(self, rng: np.random.Generator) -> IntArray:
        forest = self.forest
        # A random key per object orders every component at random: the first 32 of each are its sample.
        shuffled = np.lexsort((rng.random(forest.n), forest.labels))

        def medoid(component: int) -> int:
            low, high = forest.offsets[component], forest.offsets[component + 1]
            sample = np.sort(shuffled[low : min(high, low + MEDOID_SAMPLE)])
            radius = np.zeros(len(sample))
            for start, stop in tiles(int(high - low), PAIR_TILE // MEDOID_SAMPLE):
                block = self.counted.block(sample, forest.order[low + start : low + stop])
                np.maximum(radius, block.max(axis=1), out=radius)
            return int(sample[np.argmin(radius)])

        return np.fromiter(ordered_map(medoid, range(forest.n_components), n_jobs=self.n_jobs), dtype=np.int64)

    def _step(self, active: IntArray) -> None:
        """Evaluate the newest representative of every active component against its members."""
        forest = self.forest
        sizes = forest.sizes[active]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        positions = np.repeat(forest.offsets[active] - starts[:-1], sizes) + np.arange(starts[-1])
        newest = np.array([self.points[component][-1] for component in active], dtype=np.int64)
        first = np.repeat(newest, sizes)

        def evaluate(part: tuple[int, int]) -> FloatArray:
            low, high = part
            return self.counted.pairs(first[low:high], forest.order[positions[low:high]])

        parts = list(tiles(len(positions), PAIR_TILE))
        distances = np.concatenate(list(ordered_map(evaluate, parts, n_jobs=self.n_jobs)))
        won = np.flatnonzero(distances < self._nearest[positions])
        self._nearest[positions[won]] = distances[won]
        largest, at = _segment_maxima(self._nearest, forest.offsets, active)
        self._farthest[active] = forest.order[at]
        ranks = np.array([len(self.costs[component]) for component in active])
        for component, cost in zip(active.tolist(), largest.tolist(), strict=True):
            self.costs[component].append(cost)
        won_rank = np.repeat(ranks, sizes)[won]
        for step in np.unique(ranks):
            mine = won[won_rank == step]
            self._won.append((int(step), positions[mine].astype(self._compact), distances[mine]))

    def explored(self) -> IntArray:
        """Return how many extra representatives each component has beyond its first, shape (t,)."""
        return np.array([len(cost) - 1 for cost in self.costs], dtype=np.int64)

    def grow(self, extra: IntArray) -> None:
        """Explore up to `extra` representatives beyond the first of each component, shape (t,).

        A component is exhausted when its cost is 0: all members coincide with representatives.
        """
        with self.counted.stage("representatives"):
            while True:
                active = np.array(
                    [i for i, cost in enumerate(self.costs) if len(cost) <= extra[i] and cost[-1] > 0.0], dtype=np.int64
                )
                if not len(active):
                    return
                self._extend(active)

    def grow_one(self, component: int) -> None:
        """Explore one more representative of a component that is not exhausted."""
        with self.counted.stage("representatives"):
            self._extend(np.array([component]))

    def _extend(self, active: IntArray) -> None:
        for component in active.tolist():
            self.points[component].append(int(self._farthest[component]))
        self._step(active)

    def component_costs(self, extra: IntArray) -> FloatArray:
        """Return cost(P_i, R_i) of the first ``1 + extra[i]`` representatives of each component, shape (t,)."""
        return np.array([cost[k] for cost, k in zip(self.costs, extra.tolist(), strict=True)])

    def assignment(self, extra: IntArray) -> tuple[FloatArray, IntArray]:
        """Return which of the first ``1 + extra[i]`` representatives serves each object, without new distances.

        Returns
        -------
        nearest : ndarray of float64, shape (n,)
            Distance of each object to its nearest representative in its component.
        owners : ndarray of int64, shape (n,)
            The rank of that representative in its component; ties: the earliest.
        """
        forest = self.forest
        nearest, owners = np.full(forest.n, np.inf), np.zeros(forest.n, dtype=np.int64)
        allowed = extra[forest.labels]
        for rank, positions, distances in self._won:
            objects = forest.order[positions]
            kept = allowed[objects] >= rank
            nearest[objects[kept]], owners[objects[kept]] = distances[kept], rank
        return nearest, owners


@njit(cache=True, nogil=True)
def _segment_maxima(values, offsets, chosen):  # type: ignore[no-untyped-def]
    largest, at = np.empty(len(chosen)), np.empty(len(chosen), dtype=np.int64)
    for slot in range(len(chosen)):
        best = offsets[chosen[slot]]
        for position in range(best, offsets[chosen[slot] + 1]):
            if values[position] > values[best]:
                best = position
        largest[slot], at[slot] = values[best], best
    return largest, at


def allocate(prefixes: Prefixes, budget: int, *, allocation: str = "dp", lookahead: float | None = None) -> IntArray:
    """Spend a budget of extra representatives.

    Parameters
    ----------
    prefixes : Prefixes
        Explored further as the allocation needs.
    budget : int
        Extra representatives b, over all components.
    allocation : {"fixed", "greedy", "dp", "hull"}
        The same number for every component; always to the component whose cost drops most; the least total cost by
        dynamic programming; or the lower convex hulls of the costs, which is dp but for one segment and far cheaper.
    lookahead : float, optional
        "dp" and "hull" explore no component of size s further than ``lookahead * budget * s / n``.

    Returns
    -------
    ndarray of int64, shape (t,)
        Extra representatives of each component; their sum is at most `budget`.
    """
    if allocation not in ALLOCATIONS:
        raise InputError(f"allocation is {allocation!r}", expected=f"one of {', '.join(ALLOCATIONS)}")
    if isinstance(budget, bool) or not isinstance(budget, (int, np.integer)) or budget < 0:
        raise InputError(f"budget is {budget!r}", expected="a whole number >= 0")
    if lookahead is not None and not lookahead > 0:
        raise InputError(f"lookahead is {lookahead}", expected="a number > 0")
    sizes = prefixes.forest.sizes
    if budget == 0:
        return np.zeros(len(sizes), dtype=np.int64)
    if allocation == "greedy":
        return _greedy_exploring(prefixes, budget)
    if allocation == "fixed":
        most = np.full(len(sizes), budget // len(sizes))
    else:
        most = np.full(len(sizes), budget)
        if lookahead is not None:
            most = np.minimum(most, np.ceil(lookahead * budget * sizes / sizes.sum()).astype(np.int64))
    prefixes.grow(np.minimum(most, sizes - 1))
    if allocation == "fixed":
        return allocate_fixed(prefixes.costs, budget)
    # A component may be explored further than its share, by an earlier and larger call: the budget still binds.
    return (allocate_dp if allocation == "dp" else allocate_hull)(prefixes.costs, budget)


def allocate_fixed(costs: Sequence[Sequence[float]], budget: int) -> IntArray:
    """Return ``budget // t`` extra representatives for each of t components, or all that it has."""
    share = budget // len(costs)
    return np.array([min(share, len(cost) - 1) for cost in costs], dtype=np.int64)


def allocate_greedy(costs: Sequence[Sequence[float]], budget: int) -> IntArray:
    """Return the allocation that gives one more, `budget` times, where the cost drops most; ties: the lowest component.

    It stops early when no known step lowers a cost.
    """
    extra = np.zeros(len(costs), dtype=np.int64)
    heap = [(cost[1] - cost[0], i) for i, cost in enumerate(costs) if len(cost) > 1 and cost[1] < cost[0]]
    heapq.heapify(heap)
    while heap and budget > 0:
        _, i = heapq.heappop(heap)
        extra[i] += 1
        budget -= 1
        at = int(extra[i])
        if at + 1 < len(costs[i]) and costs[i][at + 1] < costs[i][at]:
            heapq.heappush(heap, (costs[i][at + 1] - costs[i][at], i))
    return extra


def _greedy_exploring(prefixes: Prefixes, budget: int) -> IntArray:
    """Return the greedy allocation, looking one step ahead only where greedy wants to go."""
    sizes, costs = prefixes.forest.sizes, prefixes.costs
    extra = np.zeros(len(sizes), dtype=np.int64)
    prefixes.grow(np.minimum(1, sizes - 1))
    heap = [(cost[1] - cost[0], i) for i, cost in enumerate(costs) if len(cost) > 1 and cost[1] < cost[0]]
    heapq.heapify(heap)
    while heap and budget > 0:
        _, i = heapq.heappop(heap)
        extra[i] += 1
        budget -= 1
        at = int(extra[i])
        if len(costs[i]) == at + 1 and costs[i][-1] > 0.0:
            prefixes.grow_one(i)
        if at + 1 < len(costs[i]) and costs[i][at + 1] < costs[i][at]:
            heapq.heappush(heap, (costs[i][at + 1] - costs[i][at], i))
    return extra


def allocate_dp(costs: Sequence[Sequence[float]], budget: int) -> IntArray:
    """Return an allocation of least total cost, by dynamic programming (Theorem 4).

    f_i(x) = min over k <= min(K_i, x) of f_{i-1}(x - k) + c_i(1 + k), with K_i the steps that are known of component i,
    so the time is budget * sum of K_i. Ties: the smaller k.

    Parameters
    ----------
    costs : sequence of t sequences of float
        c_i(1), c_i(2), …, non-increasing.
    budget : int

    Returns
    -------
    ndarray of int64, shape (t,)

    Examples
    --------
    >>> allocate_dp([[3.0, 2.9, 0.0], [2.0, 1.0]], 2)
    array([2, 0])
    """
    flat, starts = _flatten(costs)
    # More than every known step cannot be spent.
    return np.asarray(_dynamic_program(flat, starts, min(budget, len(flat) - len(costs))))


def _flatten(costs: Sequence[Sequence[float]]) -> tuple[FloatArray, IntArray]:
    starts = np.concatenate([[0], np.cumsum([len(cost) for cost in costs])]).astype(np.int64)
    return np.concatenate([np.asarray(cost, dtype=np.float64) for cost in costs]), starts


@njit(cache=True, nogil=True)
def _dynamic_program(flat, starts, budget):  # type: ignore[no-untyped-def]
    t = len(starts) - 1
    choice = np.zeros((t, budget + 1), dtype=np.int32)
    best = np.zeros(budget + 1)
    following = np.empty(budget + 1)
    for i in range(t):
        cost = flat[starts[i] : starts[i + 1]]
        chosen = choice[i]
        for x in range(budget + 1):
            following[x] = best[x] + cost[0]
        for k in range(1, min(len(cost), budget + 1)):
            for x in range(k, budget + 1):
                total = best[x - k] + cost[k]
                if total < following[x]:
                    following[x] = total
                    chosen[x] = k
        best, following = following, best
    extra = np.zeros(t, dtype=np.int64)
    left = budget
    for i in range(t - 1, -1, -1):
        extra[i] = choice[i, left]
        left -= extra[i]
    return extra


def allocate_hull(costs: Sequence[Sequence[float]], budget: int) -> IntArray:
    """Return an allocation along the lower convex hulls of the costs, O(total length * log) time.

    Whole hull segments are bought by steepness while they fit; what is left goes to the single best use, repeatedly.
    It equals dynamic programming but for about one segment.
    """
    flat, starts = _flatten(costs)
    first, last, slope = _hull_segments(flat, starts)
    owner = np.searchsorted(starts, first, side="right") - 1
    order = np.lexsort((first, slope))
    return np.asarray(
        _buy(
            flat, starts, first[order] - starts[owner[order]], last[order] - starts[owner[order]], owner[order], budget
        )
    )


@njit(cache=True, nogil=True)
def _hull_segments(flat, starts):  # type: ignore[no-untyped-def]
    first, last = np.empty(len(flat), dtype=np.int64), np.empty(len(flat), dtype=np.int64)
    slope = np.empty(len(flat))
    hull = np.empty(len(flat), dtype=np.int64)
    count = 0
    for i in range(len(starts) - 1):
        top = 0
        for position in range(starts[i], starts[i + 1]):
            while top >= 2:
                a, b = hull[top - 2], hull[top - 1]
                if (flat[b] - flat[a]) * (position - a) < (flat[position] - flat[a]) * (b - a):
                    break
                top -= 1
            hull[top] = position
            top += 1
        for corner in range(top - 1):
            a, b = hull[corner], hull[corner + 1]
            if flat[b] < flat[a]:
                first[count], last[count], slope[count] = a, b, (flat[b] - flat[a]) / (b - a)
                count += 1
    return first[:count], last[:count], slope[:count]


@njit(cache=True, nogil=True)
def _buy(flat, starts, first, last, owner, budget):  # type: ignore[no-untyped-def]
    t = len(starts) - 1
    extra = np.zeros(t, dtype=np.int64)
    left = budget
    for segment in range(len(first)):
        i = owner[segment]
        if extra[i] == first[segment] and last[segment] - first[segment] <= left:
            left -= last[segment] - first[segment]
            extra[i] = last[segment]
    while left > 0:
        best, gain = -1, 0.0
        for i in range(t):
            reach = min(extra[i] + left, starts[i + 1] - starts[i] - 1)
            drop = flat[starts[i] + extra[i]] - flat[starts[i] + reach]
            if drop > gain:
                best, gain = i, drop
        if best < 0:
            break
        reach = min(extra[best] + left, starts[best + 1] - starts[best] - 1)
        left -= reach - extra[best]
        extra[best] = reach
    return extra


def parse_budget(budget: Any, t: int) -> int:
    """Return the number of extra representatives that a budget means: a whole number, or a multiple of t as in "2t"."""
    if isinstance(budget, str):
        factor = budget.strip().removesuffix("t").removesuffix("*").strip() if budget.strip().endswith("t") else ""
        try:
            value = float(factor) if factor else 1.0 if budget.strip() == "t" else -1.0
        except ValueError:
            value = -1.0
        if value >= 0:
            return round(value * t)
    elif isinstance(budget, (int, np.integer)) and not isinstance(budget, bool) and budget >= 0:
        return int(budget)
    raise InputError(
        f"budget is {budget!r}", expected='a whole number >= 0, or a multiple of the number of components such as "2t"'
    )
