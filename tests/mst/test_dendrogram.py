from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, is_valid_linkage
from scipy.cluster.hierarchy import linkage as scipy_linkage
from scipy.spatial.distance import cdist, pdist, squareform
from sklearn.metrics import adjusted_rand_score

from assay.core.errors import InputError
from assay.mst._graph import prim_matrix
from assay.mst.dendrogram import cut, hdbscan, linkage, single_linkage
from tests.mst.oracles import KINDS, random_metric


def same_partition(first: np.ndarray, second: np.ndarray) -> bool:
    return (
        len(set(zip(first.tolist(), second.tolist(), strict=True)))
        == len(set(first.tolist()))
        == len(set(second.tolist()))
    )


@given(st.sampled_from(KINDS), st.integers(2, 30), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_heights_are_scipys_single_linkage(kind: str, n: int, seed: int) -> None:
    distances = random_metric(kind, n, np.random.default_rng(seed))
    merges = single_linkage(distances, "precomputed")
    assert is_valid_linkage(merges)
    np.testing.assert_allclose(
        merges[:, 2], scipy_linkage(squareform(distances, checks=False), "single")[:, 2], rtol=1e-12
    )


def test_single_linkage_is_scipys_where_heights_are_distinct() -> None:
    X = np.random.default_rng(0).normal(size=(120, 3))
    np.testing.assert_allclose(single_linkage(X), scipy_linkage(X, "single"), rtol=1e-12)
    np.testing.assert_allclose(
        single_linkage(X, "cityblock"), scipy_linkage(pdist(X, "cityblock"), "single"), rtol=1e-12
    )


def test_cuts_agree_with_fcluster() -> None:
    X = np.random.default_rng(1).normal(size=(90, 2))
    edges, weights = prim_matrix(cdist(X, X))
    expected = scipy_linkage(X, "single")
    for k in (1, 2, 5, 30, 90):
        assert same_partition(cut(edges, weights, n_clusters=k), fcluster(expected, k, "maxclust"))
    for height in (0.0, 0.2, float(weights[7]), 10.0):
        assert same_partition(cut(edges, weights, height=height), fcluster(expected, height, "distance"))


def test_a_cut_gives_the_number_asked_for_even_among_equal_edges() -> None:
    edges = np.array([[0, 1], [1, 2], [2, 3]])
    assert cut(edges, np.ones(3), n_clusters=2).tolist() == [0, 0, 0, 1]
    assert cut(np.empty((0, 2), dtype=np.int64), np.empty(0), n_clusters=1).tolist() == [0]


def test_bad_cuts_are_named() -> None:
    edges, weights = np.array([[0, 1]]), np.ones(1)
    for options, message in (
        ({}, "n_clusters is None and height is None"),
        ({"n_clusters": 1, "height": 1.0}, "exactly one of them"),
        ({"n_clusters": 3}, "n_clusters is 3; expected a whole number from 1 to 2"),
        ({"n_clusters": 0}, "n_clusters is 0"),
        ({"height": float("nan")}, "height is nan"),
    ):
        with pytest.raises(InputError, match=message):
            cut(edges, weights, **options)


def test_linkage_of_one_object_is_empty() -> None:
    assert linkage(np.empty((0, 2), dtype=np.int64), np.empty(0)).shape == (0, 4)
    assert single_linkage(np.zeros((1, 2))).shape == (0, 4)


def test_approximate_single_linkage_is_close_and_never_below() -> None:
    X = np.random.default_rng(0).normal(size=(1500, 8))
    exact = scipy_linkage(X, "single")[:, 2].sum()
    near = single_linkage(X, exact=False, n_forests=4, random_state=0)
    assert is_valid_linkage(near)
    assert exact <= near[:, 2].sum() <= 1.02 * exact
    with pytest.raises(InputError, match="n_forests given with exact=True"):
        single_linkage(X, n_forests=2)


def test_hdbscan_finds_what_scikit_learns_finds() -> None:
    from sklearn.cluster import HDBSCAN

    rng = np.random.default_rng(0)
    X = np.concatenate(
        [rng.normal(size=(80, 2)), np.array([12, 0]) + rng.normal(size=(60, 2)), rng.uniform(-8, 20, size=(15, 2))]
    )
    distances = cdist(X, X)
    core = np.sort(distances, axis=1)[:, 4]
    reach = np.maximum(distances, np.maximum(core[:, None], core[None]))
    np.fill_diagonal(reach, 0.0)
    edges, weights = prim_matrix(reach)
    labels, probabilities = hdbscan(edges, weights, min_cluster_size=10)
    expected = HDBSCAN(min_cluster_size=10, min_samples=5, copy=True).fit_predict(X)
    assert adjusted_rand_score(labels, expected) > 0.97
    assert labels.max() == 1
    assert ((probabilities >= 0) & (probabilities <= 1)).all()
    assert (probabilities[labels < 0] == 0).all()
    # Raising a plain tree to core distances changes nothing in a tree that has them in its weights.
    again, _ = hdbscan(edges, weights, min_cluster_size=10, core_distances=core)
    np.testing.assert_array_equal(again, labels)


def test_hdbscan_of_few_objects_is_noise() -> None:
    labels, probabilities = hdbscan(np.array([[0, 1]]), np.ones(1), min_cluster_size=5)
    assert labels.tolist() == [-1, -1]
    assert probabilities.tolist() == [0.0, 0.0]
    for options, message in (
        ({"min_cluster_size": 1}, "min_cluster_size is 1"),
        ({"cluster_selection_method": "best"}, "cluster_selection_method is 'best'"),
        ({"min_cluster_size": 2, "core_distances": np.ones(3)}, r"core_distances have shape \(3,\)"),
    ):
        with pytest.raises(InputError, match=message):
            hdbscan(np.array([[0, 1], [1, 2], [2, 3]]), np.ones(3), **options)


def test_single_linkage_takes_known_distances() -> None:
    X = np.random.default_rng(3).normal(size=(40, 3))
    expected = scipy_linkage(X, "single")
    for known in (pdist(X), squareform(pdist(X))):
        np.testing.assert_allclose(single_linkage(known, "precomputed")[:, 2], expected[:, 2])
    with pytest.raises(InputError, match=r'X has shape \(780,\); .* metric="precomputed"'):
        single_linkage(pdist(X))


@pytest.mark.parametrize("height", ["a", None, [1.0], float("nan"), True])
def test_a_height_is_a_number(height: object) -> None:
    with pytest.raises(InputError, match="height is "):
        cut(np.array([[0, 1]]), np.array([1.0]), height=height)  # type: ignore[arg-type]
