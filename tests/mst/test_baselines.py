"""Baselines and peers give spanning trees, and those that are exact weigh what scipy's single linkage weighs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.cluster.hierarchy import linkage
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import pdist

from assay.core.errors import InputError
from assay.mst import baselines
from assay.mst.datasets import gaussian_mixture
from assay.mst.forest import build_forest
from assay.mst.metrics import CountedMetric, make_metric

POINTS = gaussian_mixture(400, 6, rng=np.random.default_rng(0)).astype(np.float64)
MINIMUM = float(linkage(pdist(POINTS), "single")[:, 2].sum())
WORDS = ["".join(word) for word in np.random.default_rng(1).choice(list("abcd"), size=(150, 6))]


def counted() -> CountedMetric:
    return CountedMetric(make_metric(POINTS))


def weight_of(edges: np.ndarray) -> float:
    """The weight of a tree by numpy; that it is one is asserted."""
    assert edges.shape == (len(POINTS) - 1, 2)
    matrix = csr_matrix((np.ones(len(edges)), edges.T), shape=(len(POINTS),) * 2)
    assert connected_components(matrix, directed=False)[0] == 1
    return float(np.linalg.norm(POINTS[edges[:, 0]] - POINTS[edges[:, 1]], axis=1).sum())


def test_the_exact_tree_takes_every_distance_once() -> None:
    metric = counted()
    assert weight_of(baselines.exact_tree(metric)) == pytest.approx(MINIMUM, rel=1e-12)
    assert metric.total == len(POINTS) * (len(POINTS) - 1) // 2


@pytest.mark.parametrize(
    "name", [name for name, (_, metrics) in baselines.PEERS.items() if "levenshtein" not in metrics]
)
def test_peers_on_vectors_are_exact(name: str) -> None:
    tree = baselines.peer(name, POINTS, "euclidean")
    weight = tree.heights.sum() if tree.edges is None else weight_of(tree.edges)
    # fast_hdbscan works in single precision.
    assert weight == pytest.approx(MINIMUM, rel=1e-6 if name == "fast-hdbscan" else 1e-12)


@pytest.mark.parametrize("name", ["rapidfuzz", "scipy", "hdbscan-matrix", "hdbscan-callable"])
def test_peers_on_strings_are_exact(name: str) -> None:
    metric = make_metric(WORDS, "levenshtein")
    matrix = metric.square(slice(0, len(WORDS)))
    minimum = float(linkage(matrix[np.triu_indices(len(WORDS), 1)], "single")[:, 2].sum())
    tree = baselines.peer(name, WORDS, "levenshtein")
    weight = tree.heights.sum() if tree.edges is None else matrix[tree.edges[:, 0], tree.edges[:, 1]].sum()
    assert weight == minimum


@pytest.mark.parametrize(
    ("build", "least", "most"),
    [
        (lambda metric, rng: baselines.attach_to_sample(metric, rng=rng), 1.2, 4.0),
        (lambda metric, rng: baselines.random_tree(metric, rng=rng), 2.0, 20.0),
        (lambda metric, rng: baselines.join_neighbour_graph(metric, POINTS, rng=rng), 1.0, 1.2),
    ],
    ids=["sample-attach", "random", "neighbour-graph"],
)
def test_cheap_baselines_span_and_weigh_what_their_kind_weighs(
    build: Callable[[CountedMetric, np.random.Generator], np.ndarray], least: float, most: float
) -> None:
    weight = weight_of(build(counted(), np.random.default_rng(2)))
    assert least * MINIMUM <= weight * (1 + 1e-12)
    assert weight <= most * MINIMUM


def test_attaching_to_a_sample_joins_each_object_to_its_nearest() -> None:
    metric = counted()
    edges = baselines.attach_to_sample(metric, rng=np.random.default_rng(3))
    size = int(np.sqrt(len(POINTS)))
    sample = np.unique(edges[: size - 1])
    distances = np.linalg.norm(POINTS[:, None] - POINTS[sample][None], axis=2)
    for other, attached in edges[size - 1 :].tolist():
        assert distances[other].argmin() == np.flatnonzero(sample == attached)[0]
    assert metric.total == size * (size - 1) // 2 + (len(POINTS) - size) * size


def test_completions_order_as_they_must() -> None:
    metric = counted()
    forest = build_forest(metric, forest="kcenter")
    weights = {
        "best": baselines.complete_paper(metric, forest, exact=True).total_weight,
        "extra": baselines.complete_paper(metric, forest, extra_edge=True).total_weight,
        "plain": baselines.complete_paper(metric, forest).total_weight,
        "dp": baselines.complete_paper(metric, forest, budget=2 * forest.n_components).total_weight,
    }
    assert weights["best"] <= weights["extra"] <= weights["plain"]
    assert weights["best"] <= weights["dp"]


def test_a_peer_that_isnt_there_or_doesnt_take_the_metric_is_refused() -> None:
    with pytest.raises(InputError, match="no peer 'boost'"):
        baselines.peer("boost", POINTS, "euclidean")
    with pytest.raises(InputError, match="mlpack doesn't take the metric levenshtein"):
        baselines.peer("mlpack", WORDS, "levenshtein")
