from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from assay.core.errors import InputError
from assay.mst._graph import prim_matrix
from assay.mst.certificate import certify, check_tree, mean_upper_limit
from assay.mst.completion import complete_forest
from assay.mst.forest import build_forest
from assay.mst.metrics import CountedMetric, make_metric
from tests.mst.oracles import KINDS, is_spanning_tree, random_metric, tree_weight


def rough_tree(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    tree = complete_forest(X, forest=build_forest(X, n_components=20))
    return tree.edges, tree.weights


@pytest.mark.parametrize("ci", ["normal", "bernstein"])
def test_the_bound_covers_the_minimum_as_often_as_it_says(ci: str) -> None:
    """99 %, over 200 samples of a tree that is not minimal."""
    X = np.random.default_rng(0).normal(size=(1200, 6))
    edges, weights = rough_tree(X)
    optimum = prim_matrix(cdist(X, X))[1].sum()
    metric = CountedMetric(make_metric(X))
    bounds = [
        certify(metric, edges, weights, rows=100, ci=ci, rng=np.random.default_rng(seed)).mst_lower_bound
        for seed in range(200)
    ]
    assert np.mean(np.array(bounds) <= optimum) >= 0.99
    if ci == "normal":
        assert np.median(bounds) > 0.6 * optimum


@pytest.mark.parametrize("kind", KINDS)
def test_sampling_everything_gives_the_nearest_neighbour_bound_and_a_minimum_tree(kind: str) -> None:
    for seed in range(15):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(3, 25))
        distances = random_metric(kind, n, rng)
        edges = np.array([(rng.integers(i), i) for i in range(1, n)])
        result = certify(
            CountedMetric(make_metric(distances, "precomputed")),
            edges,
            distances[edges[:, 0], edges[:, 1]],
            rows=n,
            rng=rng,
        )
        nearest = np.where(np.eye(n, dtype=bool), np.inf, distances).min(axis=1)
        optimum = tree_weight(distances)
        assert result.confidence == 1.0
        assert result.mst_lower_bound <= optimum + 1e-9
        shortest_edge = distances[edges[:, 0], edges[:, 1]].min()
        assert result.mst_lower_bound == pytest.approx(max(0.0, nearest.sum() - shortest_edge), abs=1e-9)
        # Every edge was seen, so all that improve have been inserted.
        assert is_spanning_tree(result.edges, n)
        assert result.weights.sum() == pytest.approx(optimum, rel=1e-9)


def test_rows_cost_n_distances_each_and_improve_the_tree() -> None:
    X = np.random.default_rng(0).normal(size=(900, 5))
    edges, weights = rough_tree(X)
    metric = CountedMetric(make_metric(X))
    result = certify(metric, edges, weights, rows=50, rng=np.random.default_rng(0))
    better = result.weights.sum()
    assert better < weights.sum()
    assert prim_matrix(cdist(X, X))[1].sum() <= better
    assert metric.calls["certificate"] >= 50 * 900
    assert result.mst_ratio_upper == pytest.approx(better / result.mst_lower_bound)
    assert 0 < result.improvable <= 50
    assert result.improvable_rate <= result.improvable_upper <= 1
    for jobs in (2, 4):
        other = certify(
            CountedMetric(make_metric(X)),
            edges,
            weights,
            rows=50,
            rng=np.random.default_rng(0),
            n_jobs=jobs,
            block_bytes=40_000,
        )
        np.testing.assert_array_equal(other.edges, result.edges)
        assert other.mst_lower_bound == result.mst_lower_bound


def test_a_minimum_tree_has_no_improving_edge_and_the_rule_of_three() -> None:
    X = np.random.default_rng(0).normal(size=(500, 5))
    edges, weights = prim_matrix(cdist(X, X))
    result = certify(CountedMetric(make_metric(X)), edges, weights, rows=100, rng=np.random.default_rng(0))
    assert result.improvable == 0
    assert result.improvable_upper == pytest.approx(1 - 0.05 ** (1 / 100), rel=1e-9)
    assert result.improvable_upper < 3 / 100
    np.testing.assert_array_equal(result.edges, edges)


def test_confidence_limits_cover_a_skewed_mean() -> None:
    population = np.random.default_rng(0).pareto(3, size=3000).clip(max=20)
    for ci, least in (("normal", 0.9), ("bernstein", 0.99)):
        limits = [
            mean_upper_limit(
                np.random.default_rng(seed).choice(population, 200, replace=False),
                population=3000,
                confidence=0.99,
                ci=ci,
                largest=20.0,
            )
            for seed in range(300)
        ]
        assert np.mean(np.array(limits) >= population.mean()) >= least
    assert mean_upper_limit(population, population=3000, confidence=0.9, ci="normal", largest=20.0) == population.mean()


def test_a_right_tree_is_right() -> None:
    X = np.random.default_rng(0).normal(size=(300, 3))
    edges, weights = prim_matrix(cdist(X, X))
    report = check_tree(X, edges, weights)
    assert report.ok
    assert report.spanning
    assert report.weights_right
    assert report.certificate is not None
    assert report.certificate.improvable == 0
    assert report.total_weight == pytest.approx(weights.sum())


def test_what_is_wrong_with_a_tree_is_said() -> None:
    X = np.array([[0.0], [1.0], [3.0], [6.0]])
    forest = check_tree(X, [[0, 1], [2, 3]], [1.0, 3.0])
    assert (forest.ok, forest.spanning, forest.n_components, forest.cycle) == (False, False, 2, None)
    cycle = check_tree(X, [[0, 1], [1, 2], [2, 0]])
    assert (cycle.spanning, cycle.cycle, cycle.n_components) == (False, 2, 2)
    wrong = check_tree(X, [[0, 1], [1, 2], [2, 3]], [1.0, 2.5, 3.0])
    assert wrong.spanning
    assert not wrong.weights_right
    assert wrong.wrong_weights.tolist() == [1]
    assert wrong.worst_error == pytest.approx(0.25)
    assert wrong.certificate is None
    assert not check_tree(X, [[0, 1], [1, 2], [2, 3]], [1.0, np.nan, 3.0]).weights_right
    assert check_tree(X[:1], []).ok
    for arguments, message in (
        (([[0, 4]],), r"edge 0 \(0, 4\) has an end out of range"),
        (([[0.5, 1]],), "whole numbers"),
        (([[0, 1]], [1.0, 2.0]), r"weights have shape \(2,\)"),
    ):
        with pytest.raises(InputError, match=message):
            check_tree(X, *arguments)
    for options, message in (
        ({"samples": 1}, "samples is 1"),
        ({"confidence": 1.0}, "confidence is 1.0"),
        ({"ci": "t"}, "ci is 't'"),
    ):
        with pytest.raises(InputError, match=message):
            check_tree(X, [[0, 1], [1, 2], [2, 3]], **options)
