from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from assay.core.errors import InputError
from assay.mst.forest import build_forest
from assay.mst.metrics import CountedMetric, make_metric
from assay.mst.representatives import (
    Prefixes,
    allocate,
    allocate_dp,
    allocate_fixed,
    allocate_greedy,
    allocate_hull,
    parse_budget,
)

costs_of_components = st.lists(
    st.lists(st.floats(0, 10), min_size=1, max_size=7).map(lambda values: sorted(values, reverse=True)),
    min_size=1,
    max_size=4,
)


def total(costs: list[list[float]], extra: np.ndarray) -> float:
    return sum(cost[k] for cost, k in zip(costs, extra.tolist(), strict=True))


def brute_force(costs: list[list[float]], budget: int) -> float:
    choices = itertools.product(*(range(len(cost)) for cost in costs))
    return min(total(costs, np.array(choice)) for choice in choices if sum(choice) <= budget)


@given(costs_of_components, st.integers(0, 6))
@settings(max_examples=150, deadline=None)
def test_dynamic_programming_is_optimal_and_the_others_are_not_better(costs: list[list[float]], budget: int) -> None:
    best = brute_force(costs, budget)
    dp = allocate_dp(costs, budget)
    assert dp.sum() <= budget
    assert total(costs, dp) == pytest.approx(best, rel=1e-12, abs=1e-12)
    for allocation in (allocate_greedy, allocate_hull, allocate_fixed):
        extra = allocation(costs, budget)
        assert extra.sum() <= budget
        assert (extra >= 0).all()
        assert all(k < len(cost) for cost, k in zip(costs, extra.tolist(), strict=True))
        assert total(costs, extra) >= best - 1e-12


def test_dynamic_programming_prefers_fewer_representatives_among_equals() -> None:
    assert allocate_dp([[2.0, 2.0, 1.0, 1.0], [1.0, 1.0]], 5).tolist() == [2, 0]


def test_greedy_stalls_where_two_steps_are_needed() -> None:
    costs = [[5.0, 5.0, 0.0], [1.0, 0.9, 0.8]]
    assert allocate_greedy(costs, 2).tolist() == [0, 2]
    assert allocate_dp(costs, 2).tolist() == [2, 0]
    assert allocate_hull(costs, 2).tolist() == [2, 0]


def test_hull_is_nearly_dp_on_real_costs() -> None:
    X = np.random.default_rng(0).normal(size=(900, 4))
    prefixes = Prefixes(CountedMetric(make_metric(X)), build_forest(X, n_components=30), rng=np.random.default_rng(0))
    for budget in (60, 300):
        dp, hull = (total(prefixes.costs, allocate(prefixes, budget, allocation=name)) for name in ("dp", "hull"))
        assert dp <= hull <= 1.02 * dp


def test_prefixes_are_farthest_first_traversals() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(80, 3))
    forest = build_forest(X, n_components=5)
    metric = CountedMetric(make_metric(X))
    prefixes = Prefixes(metric, forest, rng=rng)
    prefixes.grow(np.array([3, 0, 6, 100, 1]))
    for i in range(5):
        members = forest.members(i)
        points = prefixes.points[i]
        assert points[0] == members[0]
        for j in range(1, len(points)):
            to_chosen = cdist(X[members], X[points[:j]]).min(axis=1)
            assert points[j] == members[to_chosen.argmax()]
        for j in range(1, len(points) + 1):
            assert prefixes.costs[i][j - 1] == pytest.approx(
                cdist(X[members], X[points[:j]]).min(axis=1).max(), abs=1e-12
            )
    explored = prefixes.explored()
    assert explored.tolist() == [3, 0, 6, forest.sizes[3] - 1, 1]
    assert metric.calls == {"representatives": int((forest.sizes * (1 + explored)).sum())}


def test_assignments_of_shorter_prefixes_need_no_distances() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(80, 3))
    forest = build_forest(X, n_components=4)
    metric = CountedMetric(make_metric(X))
    prefixes = Prefixes(metric, forest, rng=rng)
    prefixes.grow(np.array([5, 5, 5, 5]))
    before = metric.total
    extra = np.array([2, 0, 5, 1])
    nearest, owners = prefixes.assignment(extra)
    assert metric.total == before
    for i in range(4):
        members = forest.members(i)
        to_chosen = cdist(X[members], X[prefixes.points[i][: extra[i] + 1]])
        np.testing.assert_allclose(nearest[members], to_chosen.min(axis=1), atol=1e-12)
        np.testing.assert_array_equal(owners[members], to_chosen.argmin(axis=1))


def test_copies_exhaust_a_component_early() -> None:
    X = np.repeat([[0.0], [1.0]], 5, axis=0)
    prefixes = Prefixes(
        CountedMetric(make_metric(X)), build_forest(X, labels=np.zeros(10)), rng=np.random.default_rng(0)
    )
    assert allocate(prefixes, 9, allocation="dp").tolist() == [1]
    assert prefixes.costs == [[1.0, 0.0]]


@pytest.mark.parametrize("first", ["lowest", "random", "center", "medoid"])
def test_first_representatives_are_members_of_their_components(first: str) -> None:
    X = np.random.default_rng(0).normal(size=(200, 2))
    forest = build_forest(X, n_components=6)
    metric = CountedMetric(make_metric(X))
    prefixes = Prefixes(metric, forest, first=first, rng=np.random.default_rng(0))
    chosen = np.array([points[0] for points in prefixes.points])
    np.testing.assert_array_equal(forest.labels[chosen], np.arange(6))
    sampling = int((np.minimum(32, forest.sizes) * forest.sizes).sum()) if first == "medoid" else 0
    assert metric.total == 200 + sampling
    if first == "medoid":
        # In components of at most 32 members it is the member of the least radius.
        for i in np.flatnonzero(forest.sizes <= 32):
            members = forest.members(int(i))
            assert prefixes.costs[i][0] == pytest.approx(cdist(X[members], X[members]).max(axis=1).min())
    if first == "center":
        np.testing.assert_array_equal(chosen, forest.centers)


def test_greedy_explores_one_step_ahead_only() -> None:
    X = np.random.default_rng(0).normal(size=(300, 3))
    forest = build_forest(X, n_components=10)
    prefixes = Prefixes(CountedMetric(make_metric(X)), forest, rng=np.random.default_rng(0))
    extra = allocate(prefixes, 25, allocation="greedy")
    assert extra.sum() == 25
    np.testing.assert_array_equal(prefixes.explored(), np.minimum(extra + 1, forest.sizes - 1))
    np.testing.assert_array_equal(allocate_greedy(prefixes.costs, 25), extra)


def test_lookahead_limits_what_is_explored() -> None:
    X = np.random.default_rng(0).normal(size=(300, 3))
    forest = build_forest(X, n_components=10)
    prefixes = Prefixes(CountedMetric(make_metric(X)), forest, rng=np.random.default_rng(0))
    allocate(prefixes, 40, allocation="dp", lookahead=1.5)
    assert (prefixes.explored() <= np.ceil(1.5 * 40 * forest.sizes / 300)).all()


def test_budgets() -> None:
    assert [parse_budget(value, 50) for value in (0, 7, "2t", "t", "0.5t", " 10 t ")] == [0, 7, 100, 50, 25, 500]
    for bad in (-1, 1.5, "2", "xt", "-1t", None, True):
        with pytest.raises(InputError, match="budget is"):
            parse_budget(bad, 50)


def test_bad_options_are_named() -> None:
    X = np.arange(6.0)[:, None]
    forest = build_forest(X, labels=[0, 0, 0, 1, 1, 1])
    with pytest.raises(InputError, match="first is 'best'"):
        Prefixes(CountedMetric(make_metric(X)), forest, first="best", rng=np.random.default_rng(0))
    with pytest.raises(InputError, match="a forest of kind 'labels' has no centres"):
        Prefixes(CountedMetric(make_metric(X)), forest, first="center", rng=np.random.default_rng(0))
    prefixes = Prefixes(CountedMetric(make_metric(X)), forest, rng=np.random.default_rng(0))
    with pytest.raises(InputError, match="allocation is 'even'"):
        allocate(prefixes, 2, allocation="even")
    with pytest.raises(InputError, match="lookahead is 0"):
        allocate(prefixes, 2, lookahead=0)
