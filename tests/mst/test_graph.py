from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform

from assay.mst._graph import (
    RootedTree,
    components,
    first_cycle,
    grow_tree,
    merge_heights,
    minimum_spanning_forest,
    prim_matrix,
    shortest_incident,
)
from tests.mst.oracles import is_spanning_tree, tree_weight


def symmetric(n: int, seed: int, *, values: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    upper = rng.integers(0, values, size=(n, n)).astype(float) if values else rng.random((n, n))
    upper = np.triu(upper, 1)
    return upper + upper.T


def all_edges(distances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    i, j = np.triu_indices(len(distances), 1)
    return np.column_stack([i, j]), distances[i, j]


@given(st.integers(1, 14), st.integers(0, 10**6), st.sampled_from([0, 3]))
@settings(max_examples=80, deadline=None)
def test_prim_and_kruskal_give_a_minimum_spanning_tree(n: int, seed: int, values: int) -> None:
    distances = symmetric(n, seed, values=values)
    tree, lengths = prim_matrix(distances)
    edges, weights = all_edges(distances)
    chosen = minimum_spanning_forest(n, edges, weights)
    assert is_spanning_tree(tree, n)
    assert is_spanning_tree(edges[chosen], n)
    assert lengths.sum() == pytest.approx(tree_weight(distances), rel=1e-12)
    assert weights[chosen].sum() == pytest.approx(tree_weight(distances), rel=1e-12)
    np.testing.assert_array_equal(lengths, distances[tree[:, 0], tree[:, 1]])


@pytest.mark.parametrize("values", [0, 3])
def test_prim_by_rows_is_prim_on_the_matrix(values: int) -> None:
    distances = symmetric(40, 1, values=values)
    remaining, nearest, anchor = np.arange(1, 40), np.full(39, np.inf), np.zeros(39, dtype=np.int64)
    current = 0
    for count in range(39, 0, -1):
        grow_tree(distances[current, remaining[:count]], remaining, count, nearest, anchor, current)
        current = int(remaining[count - 1])
    tree, lengths = prim_matrix(distances)
    np.testing.assert_array_equal(np.column_stack([anchor, remaining])[::-1], tree)
    np.testing.assert_array_equal(nearest[::-1], lengths)


def test_zero_weights_are_edges() -> None:
    assert prim_matrix(np.zeros((4, 4)))[1].tolist() == [0.0, 0.0, 0.0]


def test_kruskal_keeps_the_first_of_equal_edges() -> None:
    edges = np.array([[0, 1], [1, 2], [0, 2]])
    assert minimum_spanning_forest(3, edges, np.ones(3)).tolist() == [0, 1]


def test_components_are_numbered_by_their_lowest_vertices() -> None:
    assert components(6, np.array([[4, 1], [5, 0], [5, 3]])).tolist() == [0, 1, 2, 0, 1, 0]
    assert components(3, np.empty((0, 2), dtype=np.int64)).tolist() == [0, 1, 2]


def test_first_cycle_is_the_edge_that_closes_it() -> None:
    assert first_cycle(4, np.array([[0, 1], [1, 2], [2, 0], [2, 3]])) == 2
    assert first_cycle(4, np.array([[0, 1], [1, 0]])) == 1
    assert first_cycle(4, np.array([[2, 2]])) == 0
    assert first_cycle(4, np.array([[0, 1], [1, 2], [2, 3]])) == -1


@given(st.integers(1, 20), st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_heaviest_edges_on_paths_are_single_linkage_heights(n: int, seed: int) -> None:
    # On a minimum spanning tree they are the minimax path lengths: Floyd and Warshall with max for plus.
    distances = symmetric(n, seed)
    tree, lengths = prim_matrix(distances)
    minimax = distances.copy()
    for via in range(n):
        minimax = np.minimum(minimax, np.maximum(minimax[:, via : via + 1], minimax[via : via + 1]))
    rooted = RootedTree(n, tree, lengths)
    for vertex in range(n):
        heaviest = rooted.heaviest_from(vertex)
        assert heaviest[vertex] == -np.inf
        np.testing.assert_array_equal(np.delete(heaviest, vertex), np.delete(minimax[vertex], vertex))


def test_shortest_incident_edges() -> None:
    edges, weights = np.array([[0, 1], [1, 2]]), np.array([3.0, 2.0])
    assert shortest_incident(4, edges, weights).tolist() == [3.0, 2.0, 2.0, np.inf]


def test_merges_are_scipys_single_linkage() -> None:
    distances = symmetric(60, 5)
    tree, lengths = prim_matrix(distances)
    order = np.argsort(lengths)
    children, sizes = merge_heights(60, tree, order)
    expected = linkage(squareform(distances), "single")
    np.testing.assert_array_equal(children, np.sort(expected[:, :2], axis=1))
    np.testing.assert_array_equal(sizes, expected[:, 3])
