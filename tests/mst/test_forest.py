from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans

from assay.core.errors import InputError
from assay.mst.forest import Forest, build_forest, kcenter, resolve_components
from assay.mst.metrics import CountedMetric, make_metric
from tests.mst.oracles import KINDS, is_spanning_tree, random_metric, tree_weight


def counted(X: object, metric: str = "euclidean") -> CountedMetric:
    return CountedMetric(make_metric(X, metric))


def assert_minimum_trees(forest: Forest, distances: np.ndarray) -> None:
    for component in range(forest.n_components):
        members = forest.members(component)
        own = np.isin(forest.edges[:, 0], members)
        edges = np.searchsorted(members, forest.edges[own])
        assert is_spanning_tree(edges, len(members))
        assert forest.weights[own].sum() == pytest.approx(tree_weight(distances[np.ix_(members, members)]), rel=1e-12)


@given(st.sampled_from(KINDS), st.integers(2, 12), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_kcenter_radius_is_within_twice_the_optimum(kind: str, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    distances = random_metric(kind, n, rng)
    t = int(rng.integers(1, min(n, 4) + 1))
    centers = kcenter(distances, t, metric="precomputed")
    optimum = min(distances[:, list(chosen)].min(axis=1).max() for chosen in itertools.combinations(range(n), t))
    assert centers.distances.max() <= 2 * optimum + 1e-12
    assert (np.diff(centers.radii) <= 0).all()
    apart = distances[np.ix_(centers.indices, centers.indices)][np.triu_indices(len(centers.indices), 1)]
    assert (apart >= centers.radii[-1] - 1e-12).all() or len(apart) == 0
    # Nearest centre; of equally near ones the earliest.
    np.testing.assert_array_equal(centers.labels, distances[:, centers.indices].argmin(axis=1))
    np.testing.assert_array_equal(centers.distances, distances[:, centers.indices].min(axis=1))


def test_kcenter_starts_in_the_middle_and_costs_n_times_t() -> None:
    metric = counted(np.random.default_rng(0).normal(size=(101, 3)))
    centers = kcenter(metric, 7)
    assert centers.indices[0] == 50
    assert metric.total == 101 * 7


def test_kcenter_stops_when_every_object_coincides_with_a_centre() -> None:
    metric = counted(np.repeat([[0.0], [1.0], [5.0]], 4, axis=0))
    centers = kcenter(metric, 10)
    assert len(centers.indices) == 3
    assert metric.total == 12 * 3
    assert np.bincount(centers.labels).tolist() == [4, 4, 4]


@pytest.mark.parametrize("kind", ["kcenter", "random"])
@pytest.mark.parametrize("n_jobs", [1, 3])
def test_components_have_minimum_trees_and_calls_are_as_counted(kind: str, n_jobs: int) -> None:
    X = np.random.default_rng(3).normal(size=(240, 3))
    metric = counted(X)
    forest = build_forest(metric, forest=kind, n_components=9, random_state=1, n_jobs=n_jobs)
    assert forest.n_components == 9
    assert_minimum_trees(forest, cdist(X, X))
    assert metric.calls == {"forest": 240 * 9, "subtrees": int((forest.sizes * (forest.sizes - 1) // 2).sum())}
    centers = forest.centers
    assert centers is not None
    np.testing.assert_array_equal(forest.labels[centers], np.arange(9))
    np.testing.assert_array_equal(forest.labels, cdist(X, X[centers]).argmin(axis=1))


def test_random_centres_that_coincide_leave_no_empty_component() -> None:
    forest = build_forest(np.repeat([[0.0], [1.0]], 10, axis=0), forest="random", n_components=8, random_state=0)
    assert sorted(forest.sizes.tolist()) == [10, 10]
    assert forest.weight == 0.0


def test_labels_may_be_anything_that_names_a_cluster() -> None:
    X = np.array([[0.0], [1.0], [5.0], [7.0], [20.0]])
    forest = build_forest(X, labels=["b", "b", "a", "a", "c"])
    assert forest.labels.tolist() == [1, 1, 0, 0, 2]
    assert sorted(map(tuple, forest.edges.tolist())) == [(0, 1), (2, 3)]
    assert forest.weight == 3.0


def test_an_estimators_clusters_become_components() -> None:
    X = np.random.default_rng(0).normal(size=(50, 2)) + 10 * (np.arange(50)[:, None] // 25)
    forest = build_forest(X, estimator=KMeans(2, n_init=1, random_state=0))
    assert sorted(forest.sizes.tolist()) == [25, 25]
    assert_minimum_trees(forest, cdist(X, X))


def test_a_users_edges_are_kept_and_weighed() -> None:
    X = np.array([[0.0], [1.0], [5.0], [7.0]])
    metric = counted(X)
    forest = build_forest(metric, edges=[[3, 2], [1, 0]], weights=[2.0, 1.0])
    assert forest.edges.tolist() == [[2, 3], [0, 1]]
    assert forest.weights.tolist() == [2.0, 1.0]
    assert forest.labels.tolist() == [0, 0, 1, 1]
    assert metric.total == 2
    assert build_forest(X, edges=[]).n_components == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"edges": [[0, 1], [1, 2], [2, 0]]}, r"edge 2 \(2, 0\) closes a cycle; expected a forest"),
        ({"edges": [[0, 1], [1, 4]]}, r"edge 1 \(1, 4\) has an end out of range; expected objects 0 to 3"),
        ({"edges": [[0, 1], [-1, 2]]}, r"edge 1 \(-1, 2\) has an end out of range"),
        ({"edges": [[0, 1], [1, 2]], "weights": [1.0, 3.0]}, r"edge 1 \(1, 2\) has weight 3; expected the distance 4"),
        ({"edges": [[0, 1]], "weights": [np.nan]}, r"edge 0 \(0, 1\) has weight nan"),
        ({"edges": [[0, 1]], "weights": [1.0, 2.0]}, r"weights have shape \(2,\)"),
        ({"edges": [[0.5, 1]]}, r"edge 0 joins \(0.5, 1.0\); expected whole numbers"),
        ({"edges": [0, 1]}, r"edges have shape \(2,\)"),
        ({"weights": [1.0]}, "weights are given without edges"),
        ({"labels": [0, 1]}, r"labels have shape \(2,\); expected \(4,\)"),
        ({"labels": [0, 1, np.nan, 0]}, "label 2 is nan"),
        ({"labels": [0, 1, 0, 0], "edges": [[0, 1]]}, "labels and edges are given"),
        ({"forest": "kruskal"}, "forest is 'kruskal'"),
        ({"forest": "threshold"}, "threshold is None"),
        ({"n_components": 5}, "n_components is 5; expected .* from 1 to 4"),
        ({"n_components": 0}, "n_components is 0"),
        ({"n_components": "many"}, "n_components is 'many'"),
        ({"n_components": 1.5}, "n_components is 1.5"),
        ({"estimator": 3}, "estimator is 3; expected an object with fit_predict"),
        ({"start": 9}, "start is 9; expected an index from 0 to 3"),
    ],
)
def test_bad_input_is_named_in_one_line(arguments: dict, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        build_forest(np.array([[0.0], [1.0], [5.0], [7.0]]), **arguments)
    assert "\n" not in str(error.value)


def test_numbers_of_components() -> None:
    assert [resolve_components(value, 1000) for value in ("sqrt", 5, 0.25, np.int64(3))] == [31, 5, 250, 3]
    assert resolve_components("sqrt", 1) == 1


def test_threshold_forest_is_part_of_a_minimum_spanning_tree() -> None:
    X = np.random.default_rng(2).normal(size=(120, 2))
    distances = cdist(X, X)
    forest = build_forest(X, forest="threshold", threshold=0.4, n_components=120)
    assert forest.in_mst
    assert forest.weights.max() <= 0.4
    # Closest pairs of its components are farther apart than the threshold, and completing it exactly is optimal.
    apart = forest.labels[:, None] != forest.labels[None]
    assert distances[apart].min() > 0.4
    from assay.mst.completion import exact_mfc

    assert exact_mfc(X, forest=forest).total_weight == pytest.approx(tree_weight(distances), rel=1e-12)


def test_a_threshold_forest_merged_to_fewer_components_claims_no_gamma() -> None:
    X = np.random.default_rng(2).normal(size=(120, 2))
    forest = build_forest(X, forest="threshold", threshold=0.2, n_components=6)
    assert forest.n_components == 6
    assert not forest.in_mst
    assert len(forest.edges) == 114
    np.testing.assert_allclose(forest.weights, np.linalg.norm(X[forest.edges[:, 0]] - X[forest.edges[:, 1]], axis=1))


def test_threshold_forest_of_strings() -> None:
    words = ["cat", "cut", "cot", "house", "mouse", "zebra"]
    forest = build_forest(make_metric(words, "levenshtein"), forest="threshold", threshold=1, n_components=6)
    assert sorted(forest.sizes.tolist()) == [1, 2, 3]
    assert forest.weight == 3.0


@pytest.mark.parametrize(
    "neighbours",
    [
        "exact",
        # The index compiles for longer than all other tests of this file take.
        pytest.param("approximate", marks=pytest.mark.slow),
    ],
)
def test_neighbour_graph_forest_joins_neighbours(neighbours: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if neighbours == "approximate":
        monkeypatch.setattr("assay.mst.forest.EXACT_NEIGHBOURS", 0)
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(60, 4)), 50 + rng.normal(size=(60, 4))])
    forest = build_forest(X, forest="knn", n_neighbors=8, random_state=0)
    assert forest.n_components == 2
    assert len({*forest.labels[:60]}) == len({*forest.labels[60:]}) == 1
    exact = sum(tree_weight(cdist(half, half)) for half in (X[:60], X[60:]))
    assert exact <= forest.weight * (1 + 1e-9) <= 1.02 * exact


def test_neighbour_graph_of_strings_needs_few_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["cat", "cut", "cot", "house", "mouse", "louse"]
    assert build_forest(words, metric="levenshtein", forest="knn", n_neighbors=2, n_components=6).n_components == 2
    monkeypatch.setattr("assay.mst.forest.EXACT_NEIGHBOURS", 5)
    with pytest.raises(
        InputError, match=r'forest="knn" on 6 objects with levenshtein distances; expected at most 5 objects'
    ):
        build_forest(words, metric="levenshtein", forest="knn")


@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_noise_stays_single(dtype: type) -> None:
    labels = np.array([4, -1, 4, 7, -1, 7, 7], dtype=dtype)
    forest = build_forest(np.arange(7.0)[:, None], labels=labels)
    assert forest.n_components == 4
    assert sorted(forest.sizes.tolist()) == [1, 1, 2, 3]
    assert forest.labels[0] == forest.labels[2]
    assert forest.weight == 2 + 3

    class Clusterer:
        def fit_predict(self, X: np.ndarray) -> np.ndarray:
            return labels

    assert build_forest(np.arange(7.0)[:, None], estimator=Clusterer()).labels.tolist() == forest.labels.tolist()
    named = build_forest(np.arange(7.0)[:, None], labels=["-1", "-1", "a", "a", "-1", "a", "b"])
    assert named.n_components == 3


def test_components_that_are_too_large_are_split_and_still_spanned() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    metric = counted(X)
    forest = build_forest(metric, labels=np.zeros(600), max_component=50, random_state=0)
    exact = tree_weight(cdist(X, X))
    assert is_spanning_tree(forest.edges, 600)
    assert exact <= forest.weight <= 1.2 * exact
    assert set(metric.calls) == {"subtrees"}
    assert metric.total < 600 * 599 // 2
    np.testing.assert_allclose(forest.weights, np.linalg.norm(X[forest.edges[:, 0]] - X[forest.edges[:, 1]], axis=1))


def test_many_copies_of_few_points_need_no_quadratic_work() -> None:
    X = np.repeat(np.arange(3.0), 30_000)[:, None]
    metric = counted(X)
    forest = build_forest(metric, forest="kcenter", n_components=5)
    assert forest.n_components == 3
    assert forest.weight == 0.0
    assert metric.total < 10 * len(X)


def test_the_forest_does_not_depend_on_the_number_of_threads() -> None:
    X = np.random.default_rng(0).normal(size=(3000, 5))
    for kind in ("kcenter", "random"):
        one, two, four = (
            build_forest(X, forest=kind, random_state=5, n_jobs=jobs, max_component=400) for jobs in (1, 2, 4)
        )
        for other in (two, four):
            np.testing.assert_array_equal(one.edges, other.edges)
            np.testing.assert_array_equal(one.weights, other.weights)
            np.testing.assert_array_equal(one.labels, other.labels)


def test_rows_and_matrix_give_the_same_tree() -> None:
    X = np.random.default_rng(0).integers(0, 4, size=(300, 6)).astype(float)
    by_matrix = build_forest(X, n_components=2)
    by_rows = build_forest(X, n_components=2, block_bytes=800)
    np.testing.assert_array_equal(by_matrix.edges, np.sort(by_rows.edges, axis=1))
    np.testing.assert_array_equal(by_matrix.weights, by_rows.weights)
