"""Exact trees against other codes, published sums and brute force."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import fastcluster
import mlpack
import numpy as np
import pytest
import quitefastmst
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree
from sklearn.preprocessing import MultiLabelBinarizer

from assay.core.errors import InputError
from assay.mst import exact
from assay.mst.exact import cheapest_method, exact_mst
from assay.mst.metrics import CountedMetric, MutualReachability, core_distances, make_metric


def gaussian_mixture(n: int, *, dims: int = 16, centres: int = 50) -> NDArray[np.float32]:
    rng = np.random.default_rng(0)
    noise, middles = rng.standard_normal((n, dims)), rng.standard_normal((centres, dims))
    return (noise + 5 * middles[rng.integers(0, centres, n)]).astype(np.float32)


def is_spanning_tree(n: int, edges: NDArray[np.int64]) -> bool:
    graph = coo_array((np.ones(len(edges)), edges.T), shape=(n, n))
    return len(edges) == n - 1 and connected_components(graph, directed=False)[0] == 1


def lightest_by_brute_force(D: NDArray[np.float64]) -> float:
    n = len(D)
    pairs = list(combinations(range(n), 2))
    return min(
        sum(D[pair] for pair in tree)
        for tree in combinations(pairs, n - 1)
        if is_spanning_tree(n, np.array(tree, dtype=np.int64))
    )


def test_the_gaussian_mixture_has_its_known_weight() -> None:
    X = gaussian_mixture(20_000)
    edges, weights = exact_mst(make_metric(X), method="quitefastmst", n_jobs=2)
    assert weights.sum() == pytest.approx(64_501.637, abs=5e-4)
    assert is_spanning_tree(len(X), edges)


@pytest.mark.parametrize(("n", "dims"), [(2, 2), (3, 1), (100, 40), (2100, 1), (2100, 16)])
def test_all_codes_agree_on_distinct_points(n: int, dims: int) -> None:
    X = np.random.default_rng(n + dims).normal(size=(n, dims))
    weights = [exact_mst(make_metric(X), method=method)[1] for method in ("prim", "quitefastmst", "mlpack", "auto")]
    for other in weights[1:]:
        np.testing.assert_allclose(other, weights[0], rtol=1e-12)
    np.testing.assert_allclose(np.sort(fastcluster.linkage_vector(X, "single")[:, 2]), weights[0], rtol=1e-9)
    np.testing.assert_allclose(np.sort(mlpack.emst(input_=X)["output"][:, 2]), weights[0], rtol=1e-9)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), n=st.integers(2, 5))
def test_prim_finds_the_lightest_of_all_spanning_trees(seed: int, n: int) -> None:
    X = np.random.default_rng(seed).integers(0, 3, size=(n, 2)).astype(float)
    D = make_metric(X).square(slice(0, n))
    assert exact_mst(make_metric(D, "precomputed"))[1].sum() == pytest.approx(lightest_by_brute_force(D))


def test_cooking_agrees_with_scipy_on_its_first_1500_sets() -> None:
    places = (folder / "shared" / "data" / "mst" / "cooking.txt" for folder in Path(__file__).resolve().parents)
    path = next((place for place in places if place.exists()), None)
    if path is None:
        pytest.skip("shared/data/mst/cooking.txt is not beside the repository")
    lines = path.read_text().split()[:1500]
    metric = make_metric([set(line.split(",")) for line in lines], "jaccard")
    # scipy reads zeros, and values near zero, as missing edges: repeated sets, which add no weight, are left out.
    distinct = list(dict.fromkeys(frozenset(line.split(",")) for line in lines))
    membership = MultiLabelBinarizer().fit_transform(distinct).astype(np.float32)
    shared = (membership @ membership.T).astype(np.float64)
    sizes = np.diag(shared)
    reference = minimum_spanning_tree(1 - shared / (sizes[:, None] + sizes[None, :] - shared)).sum()
    edges, weights = exact_mst(metric)
    assert weights.sum() == pytest.approx(reference, rel=1e-12)
    assert is_spanning_tree(len(metric), edges)


@pytest.mark.parametrize(
    ("metric", "objects"),
    [
        ("cosine", np.random.default_rng(0).normal(size=(2100, 4))),
        ("haversine", np.random.default_rng(0).uniform(-1.5, 1.5, size=(2100, 2))),
        ("sqeuclidean", np.random.default_rng(0).normal(size=(2100, 4)).astype(np.float32)),
    ],
)
def test_distances_that_increase_with_a_euclidean_one_are_delegated_and_weighed_in_their_own_unit(
    metric: str, objects: NDArray[Any]
) -> None:
    assert cheapest_method(make_metric(objects, metric)) == "quitefastmst"
    np.testing.assert_allclose(
        exact_mst(make_metric(objects, metric), method="quitefastmst")[1],
        exact_mst(make_metric(objects, metric), method="prim")[1],
        rtol=1e-9,
    )


@pytest.mark.parametrize("method", ["prim", "quitefastmst", "mlpack"])
@pytest.mark.parametrize("n", [300, 2100])
def test_duplicates_are_joined_by_edges_of_weight_zero(method: str, n: int) -> None:
    distinct = np.random.default_rng(0).normal(size=(n // 3, 5))
    edges, weights = exact_mst(make_metric(np.repeat(distinct, 3, axis=0)), method=method)
    assert is_spanning_tree(n, edges)
    assert (weights == 0).sum() == n - n // 3
    np.testing.assert_allclose(weights[weights > 0], exact_mst(make_metric(distinct))[1], rtol=1e-12)


@pytest.mark.parametrize("method", ["prim", "quitefastmst", "mlpack"])
def test_all_points_equal_make_a_tree_of_weight_zero(method: str) -> None:
    edges, weights = exact_mst(make_metric(np.ones((2100, 3))), method=method)
    assert is_spanning_tree(2100, edges)
    assert (weights == 0).all()


def test_row_by_row_and_matrix_prim_return_the_same_tree_under_massive_ties(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = np.random.default_rng(0).integers(0, 2, size=(400, 8))
    by_matrix = exact_mst(make_metric(codes, "hamming"))
    monkeypatch.setattr(exact, "MATRIX_OBJECTS", 10)
    by_row = exact_mst(make_metric(codes, "hamming"))
    np.testing.assert_array_equal(by_row[1], by_matrix[1])
    assert is_spanning_tree(400, by_row[0])


def test_every_number_of_threads_gives_the_same_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "PART", 100)
    metric = make_metric(np.random.default_rng(0).integers(0, 4, size=(2100, 6)).astype(float))
    trees = [exact_mst(metric, method="prim", n_jobs=jobs) for jobs in (1, 2, 4)]
    for edges, weights in trees[1:]:
        np.testing.assert_array_equal(edges, trees[0][0])
        np.testing.assert_array_equal(weights, trees[0][1])


@pytest.mark.parametrize("n", [1, 2, 50, 2100])
def test_prim_evaluates_each_pair_once(n: int) -> None:
    counted = CountedMetric(make_metric(np.random.default_rng(0).normal(size=(n, 20))))
    exact_mst(counted, method="prim")
    assert counted.total == n * (n - 1) // 2


def test_scaling_distances_scales_the_weights_and_permuting_objects_leaves_them() -> None:
    X = np.random.default_rng(0).normal(size=(500, 20))
    weights = exact_mst(make_metric(X))[1]
    np.testing.assert_allclose(exact_mst(make_metric(X * 3))[1], 3 * weights, rtol=1e-12)
    np.testing.assert_array_equal(exact_mst(make_metric(X[np.random.default_rng(1).permutation(500)]))[1], weights)


def test_the_tree_of_mutual_reachability_agrees_with_quitefastmst() -> None:
    X = np.random.default_rng(0).normal(size=(800, 3))
    plain = make_metric(X)
    weights = exact_mst(MutualReachability(plain, core_distances(plain, 5)))[1]
    np.testing.assert_allclose(weights, np.sort(quitefastmst.mst_euclid(X, 5)[0]), rtol=1e-12)


def test_what_does_not_fit_is_refused_in_one_line() -> None:
    with pytest.raises(InputError, match="method is 'boruvka'; expected auto, prim, quitefastmst, mlpack"):
        exact_mst(make_metric([[0.0], [1.0]]), method="boruvka")
    with pytest.raises(InputError, match="method='mlpack' got the metric levenshtein; expected one of euclidean, "):
        exact_mst(make_metric(["a", "b"], "levenshtein"), method="mlpack")
    with pytest.raises(InputError, match="n_jobs is 0"):
        exact_mst(make_metric([[0.0], [1.0]]), n_jobs=0)
