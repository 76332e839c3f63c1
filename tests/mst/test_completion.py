from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from assay.core.errors import InputError
from assay.mst._graph import minimum_spanning_forest
from assay.mst.completion import _Bounds, complete_forest, exact_mfc, segmented_minima
from assay.mst.forest import Forest, build_forest
from assay.mst.metrics import CountedMetric, make_metric
from assay.mst.representatives import ALLOCATIONS, Prefixes, allocate
from tests.mst.oracles import (
    KINDS,
    best_completion,
    between_components,
    is_spanning_tree,
    random_metric,
    tight_instance,
    tree_weight,
)

ROUNDING = 1e-9


def instance(kind: str, seed: int, *, largest: int = 24) -> tuple[np.ndarray, Forest, np.random.Generator]:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, largest))
    distances = random_metric(kind, n, rng)
    way = rng.integers(3)
    metric = make_metric(distances, "precomputed")
    if way == 0:
        forest = build_forest(metric, n_components=int(rng.integers(1, n + 1)))
    elif way == 1:
        forest = build_forest(metric, labels=rng.integers(0, int(rng.integers(1, n + 1)), size=n))
    else:
        # Any spanning trees will do: here random ones.
        parents = np.array([[i, rng.integers(i)] for i in range(1, n)]).reshape(-1, 2)
        forest = build_forest(metric, edges=parents[rng.random(n - 1) < 0.7])
    return distances, forest, rng


@pytest.mark.parametrize("kind", KINDS)
def test_one_representative_stays_within_beta_alpha_and_two(kind: str) -> None:
    """Corollary 2 and both certificates, on 1000 random metrics in all, without a violation."""
    for seed in range(250):
        distances, forest, _ = instance(kind, seed)
        tree = complete_forest(distances, forest=forest, metric="precomputed", extra_edge=bool(seed % 2))
        optimum = best_completion(distances, forest)
        assert is_spanning_tree(tree.edges, len(distances))
        assert tree.total_weight <= tree.beta * optimum * (1 + ROUNDING)
        assert 1 <= tree.beta <= tree.alpha <= 2 + ROUNDING
        assert tree.lower_bound <= optimum * (1 + ROUNDING) <= tree.total_weight * (1 + 2 * ROUNDING)
        np.testing.assert_array_equal(tree.weights, distances[tree.edges[:, 0], tree.edges[:, 1]])


@given(st.sampled_from(KINDS), st.integers(0, 10**6), st.sampled_from(ALLOCATIONS), st.integers(0, 12), st.booleans())
@settings(max_examples=120, deadline=None)
def test_certificates_hold_for_any_budget_and_allocation(
    kind: str, seed: int, allocation: str, budget: int, extra: bool
) -> None:
    distances, forest, _ = instance(kind, seed, largest=18)
    tree = complete_forest(
        distances,
        forest=forest,
        metric="precomputed",
        budget=budget,
        allocation=allocation,
        extra_edge=extra,
        random_state=seed,
    )
    optimum = best_completion(distances, forest)
    assert is_spanning_tree(tree.edges, len(distances))
    assert tree.total_weight <= tree.beta * optimum * (1 + ROUNDING)
    assert 1 <= tree.beta <= tree.alpha
    assert tree.lower_bound <= optimum * (1 + ROUNDING)
    assert tree.budget_used <= budget
    assert (
        tree.alpha == pytest.approx(1 + tree.component_costs.sum() / forest.weight if forest.weight else 1.0)
        or tree.exact
    )


@given(st.sampled_from(KINDS), st.integers(0, 10**6), st.integers(0, 6))
@settings(max_examples=60, deadline=None)
def test_bounds_enclose_the_closest_pairs_entry_by_entry(kind: str, seed: int, budget: int) -> None:
    distances, forest, rng = instance(kind, seed, largest=18)
    counted = CountedMetric(make_metric(distances, "precomputed"))
    prefixes = Prefixes(counted, forest, rng=rng)
    bounds = _Bounds(counted, forest, prefixes, extra_edge=True, n_jobs=1)
    bounds.update(allocate(prefixes, budget))
    closest = between_components(distances, forest.labels)
    apart = ~np.eye(forest.n_components, dtype=bool)
    assert (bounds.lower[apart] <= closest[apart] + 1e-9).all()
    assert (closest[apart] <= bounds.upper[apart] + 1e-9).all()
    i, j = np.nonzero(apart)
    ends = bounds.ends(i, j)
    np.testing.assert_array_equal(distances[ends[:, 0], ends[:, 1]], bounds.upper[i, j])


@given(st.sampled_from(KINDS), st.integers(0, 10**6))
@settings(max_examples=100, deadline=None)
def test_exact_completion_is_brute_force(kind: str, seed: int) -> None:
    distances, forest, _ = instance(kind, seed)
    tree = exact_mfc(distances, forest=forest, metric="precomputed")
    assert tree.exact
    assert tree.alpha == tree.beta == 1.0
    assert is_spanning_tree(tree.edges, len(distances))
    assert tree.total_weight == pytest.approx(best_completion(distances, forest), rel=1e-12)
    assert tree.lower_bound == pytest.approx(tree.total_weight, rel=1e-12)


def test_exact_completion_needs_no_triangle_inequality() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        distances = rng.random((15, 15)) ** 4
        distances = np.triu(distances, 1) + np.triu(distances, 1).T
        metric = make_metric(distances, "precomputed", is_metric=False)
        forest = build_forest(metric, n_components=5)
        tree = exact_mfc(metric, forest=forest)
        assert tree.total_weight == pytest.approx(best_completion(distances, forest), rel=1e-12)
        assert not complete_forest(metric, forest=forest).certified


def test_exact_completion_is_lazy() -> None:
    X = np.random.default_rng(0).normal(size=(2000, 3)) + 6 * np.random.default_rng(1).integers(0, 3, size=(2000, 1))
    metric = CountedMetric(make_metric(X))
    forest = build_forest(metric, n_components=40)
    before = metric.total
    tree = exact_mfc(metric, forest=forest)
    assert tree.exact
    assert metric.total - before < 0.25 * 2000 * 1999 / 2


@given(st.sampled_from(KINDS), st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_all_objects_as_representatives_give_the_best_completion(kind: str, seed: int) -> None:
    distances, forest, _ = instance(kind, seed)
    tree = complete_forest(distances, forest=forest, metric="precomputed", budget=len(distances))
    assert tree.total_weight == pytest.approx(best_completion(distances, forest), rel=1e-12)
    assert tree.beta == pytest.approx(1.0, abs=1e-12)


@given(st.sampled_from(KINDS), st.integers(2, 20), st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_extreme_forests_and_stopped_kruskal_give_the_minimum_spanning_tree(kind: str, n: int, seed: int) -> None:
    distances = random_metric(kind, n, np.random.default_rng(seed))
    optimum = tree_weight(distances)
    i, j = np.triu_indices(n, 1)
    kruskal = np.column_stack([i, j])[minimum_spanning_forest(n, np.column_stack([i, j]), distances[i, j])]
    for given_forest in ({"labels": np.zeros(n)}, {"labels": np.arange(n)}, {"edges": kruskal[: n // 2]}):
        tree = complete_forest(distances, metric="precomputed", budget=n, **given_forest)
        assert tree.total_weight == pytest.approx(optimum, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize(("p", "members", "epsilon"), [(2, 1, 1.0), (3, 2, 0.5), (10, 4, 0.01), (1000, 3, 0.001)])
def test_the_tight_instance_meets_its_closed_form(p: int, members: int, epsilon: float) -> None:
    """Theorem 3: the bound 2 is attained in the limit."""
    distances, _ = tight_instance(p, members, epsilon)
    size = members + 1
    # The instance's spanning trees: the representatives in a path, and the further object at their end.
    edges = np.array([(size * i + k, size * i + k + 1) for i in range(p) for k in range(members)])
    metric = make_metric(distances, "precomputed") if p < 1000 else unchecked(distances)
    tree = complete_forest(metric, edges=edges, budget=p * (members - 1), allocation="fixed", extra_edge=False)
    optimum = (1 + members * epsilon) * p - epsilon
    weight = (2 + members * epsilon - epsilon) * p - 1
    # Any number of the representatives of a component costs the same 1 to serve the further object, so one will do;
    # farthest-first would take the further object itself second, and escape.
    single = complete_forest(metric, edges=edges, extra_edge=False)
    assert single.total_weight / optimum == pytest.approx(weight / optimum, rel=1e-12)
    assert single.component_costs.sum() == pytest.approx(p, rel=1e-12)
    assert single.alpha == pytest.approx(1 + p / (p * ((members - 1) * epsilon + 1)), rel=1e-12)
    assert tree.total_weight <= single.total_weight + 1e-9
    if p == 1000:
        assert single.total_weight / optimum >= 1.99
        assert single.total_weight / optimum == pytest.approx(1.99502, abs=5e-6)


def unchecked(distances: np.ndarray) -> CountedMetric:
    from assay.mst._given import PrecomputedMetric

    return CountedMetric(PrecomputedMetric(distances))


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("allocation", ALLOCATIONS)
def test_calls_are_what_the_formulas_say(allocation: str, n_jobs: int) -> None:
    X = np.random.default_rng(0).normal(size=(700, 4))
    calls: list[int] = []

    def distance(a: np.ndarray, b: np.ndarray) -> float:
        calls.append(1)
        return float(np.abs(a - b).sum())

    X = X[:150]
    metric = CountedMetric(make_metric(list(X), distance))
    forest = build_forest(metric, n_components=12)
    formula = {"forest": 150 * 12, "subtrees": int((forest.sizes * (forest.sizes - 1) // 2).sum())}
    assert metric.calls == formula
    tree = complete_forest(metric, forest=forest, budget="2t", allocation=allocation, n_jobs=n_jobs)
    counts = tree.representative_counts
    steps = {"fixed": counts - 1, "greedy": np.minimum(counts, forest.sizes - 1)}.get(
        allocation, np.minimum(24, forest.sizes - 1)
    )
    formula["representatives"] = int((forest.sizes * (1 + steps)).sum())
    formula["completion"] = 150 * int(counts.sum()) - int((forest.sizes * counts).sum()) + 12 * 11 // 2
    formula["weights"] = 11
    assert metric.calls == formula
    assert sum(formula.values()) == len(calls)
    assert {stage: tree.n_distance_calls[stage] for stage in ("representatives", "completion", "weights")} == {
        stage: formula[stage] for stage in ("representatives", "completion", "weights")
    }


def test_segmented_minima_are_minima_over_components_whatever_their_sizes() -> None:
    rng = np.random.default_rng(0)
    X = rng.integers(0, 5, size=(1500, 3)).astype(float)
    # One component that spans several tiles, and many that share one.
    labels = np.minimum(rng.integers(0, 400, size=1500), 60)
    metric = CountedMetric(make_metric(X))
    forest = build_forest(metric, labels=labels)
    component = np.sort(rng.integers(0, forest.n_components, size=600))
    points = np.array([rng.choice(forest.members(int(i))) for i in component])
    metric.calls.clear()
    minima, objects = segmented_minima(metric, forest, points, component, n_jobs=1)
    assert metric.total == 1500 * 600 - int(forest.sizes[component].sum())
    distances = cdist(X[points], X)
    for j in range(forest.n_components):
        members = forest.members(j)
        foreign = component != j
        np.testing.assert_allclose(minima[foreign, j], distances[np.ix_(foreign, members)].min(axis=1))
        np.testing.assert_array_equal(objects[foreign, j], members[distances[np.ix_(foreign, members)].argmin(axis=1)])
        assert np.isinf(minima[~foreign, j]).all()
    four = segmented_minima(metric, forest, points, component, n_jobs=4)
    np.testing.assert_array_equal(four[0], minima)
    np.testing.assert_array_equal(four[1], objects)


def test_more_representatives_never_cost_more_and_dp_has_the_least_alpha() -> None:
    X = np.random.default_rng(4).normal(size=(800, 5))
    forest = build_forest(X, n_components=28)
    weights = [complete_forest(X, forest=forest, budget=f"{k}t").alpha for k in (0, 1, 2, 4, 8)]
    assert weights == sorted(weights, reverse=True)
    for budget in ("1t", "3t"):
        alpha = {name: complete_forest(X, forest=forest, budget=budget, allocation=name).alpha for name in ALLOCATIONS}
        assert min(alpha, key=alpha.__getitem__) == "dp" or alpha["dp"] == min(alpha.values())


def test_the_extra_edge_never_makes_the_tree_heavier() -> None:
    for seed in range(30):
        distances, forest, _ = instance(KINDS[seed % 4], seed)
        plain, more = (
            complete_forest(distances, forest=forest, metric="precomputed", extra_edge=extra).total_weight
            for extra in (False, True)
        )
        assert more <= plain + 1e-12


@pytest.mark.parametrize("target", [{"target_alpha": 1.05}, {"target_beta": 1.02}])
def test_the_budget_grows_until_the_target_is_met(target: dict[str, float]) -> None:
    X = np.random.default_rng(4).normal(size=(600, 4))
    forest = build_forest(X, n_components=24)
    metric = CountedMetric(make_metric(X))
    tree = complete_forest(metric, forest=forest, **target)
    name, value = next(iter(target.items()))
    assert getattr(tree, name.removeprefix("target_")) <= value
    assert tree.budget_used > 0
    # What was explored for smaller budgets is not paid again: the same tree at once costs as much or more.
    at_once = CountedMetric(make_metric(X))
    same = complete_forest(at_once, forest=forest, budget=tree.budget_used)
    assert same.total_weight == pytest.approx(tree.total_weight, rel=1e-12)
    assert metric.calls["representatives"] == at_once.calls["representatives"]


def test_a_limit_of_calls_is_never_exceeded() -> None:
    X = np.random.default_rng(4).normal(size=(600, 4))
    forest = build_forest(X, n_components=24)
    for limit in (20_000, 60_000, 200_000):
        metric = CountedMetric(make_metric(X))
        tree = complete_forest(metric, forest=forest, target_alpha=1.0, max_distance_calls=limit)
        assert metric.total <= limit
        assert tree.alpha > 1.0


def test_copies_and_a_weightless_forest_need_no_completion_cost() -> None:
    tree = complete_forest(np.zeros((6, 2)), labels=[0, 0, 1, 1, 2, 2])
    assert tree.total_weight == 0.0
    assert tree.alpha == tree.beta == 1.0
    assert is_spanning_tree(tree.edges, 6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "neither forest, edges nor labels given"),
        ({"labels": [0, 0, 1], "edges": [[0, 1]]}, "edges and labels given; expected exactly one of them"),
        ({"labels": [0, 1]}, r"labels have shape \(2,\)"),
        ({"labels": [0, 0, 1], "mode": "best"}, "mode is 'best'"),
        ({"labels": [0, 0, 1], "budget": -1}, "budget is -1"),
        ({"labels": [0, 0, 1], "budget": 1, "allocation": "even"}, "allocation is 'even'"),
        ({"labels": [0, 0, 1], "target_alpha": 0.5}, "target_alpha is 0.5"),
        ({"labels": [0, 0, 1], "first": "last"}, "first is 'last'"),
        ({"edges": [[0, 1], [1, 0]]}, r"edge 1 \(1, 0\) closes a cycle"),
    ],
)
def test_bad_input_is_named(arguments: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        complete_forest(np.arange(3.0)[:, None], **arguments)


def test_too_many_components_are_refused_with_their_memory() -> None:
    with pytest.raises(InputError, match=r"20000 components, whose 20000 x 20000 matrices take 26 GB"):
        complete_forest(np.arange(20_000.0)[:, None], edges=[])
