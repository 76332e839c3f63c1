"""What the method is compared with: simpler trees, and the exact trees of other packages.

Every function takes the objects, the metric's name and a generator, and returns edges; what a tree weighs is measured
by whoever asks, in one way for all. Peers run on one thread, each with the settings that its authors recommend.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import InputError
from assay.mst._graph import prim_matrix
from assay.mst.completion import Completion, complete_forest
from assay.mst.exact import exact_mst
from assay.mst.forest import Forest, build_forest, random_centers
from assay.mst.metrics import CountedMetric, make_metric

__all__ = [
    "PEERS",
    "PeerTree",
    "attach_to_sample",
    "complete_paper",
    "exact_tree",
    "join_neighbour_graph",
    "peer",
    "random_tree",
]

Edges = NDArray[np.int64]

NEIGHBOURS = 15
"""Neighbours of the approximate graph: the default of the packages that build one."""


def exact_tree(counted: CountedMetric) -> Edges:
    """The exact minimum spanning tree by Prim on distances made when needed: n(n - 1)/2 of them."""
    with counted.stage("exact"):
        return exact_mst(counted, method="prim")[0]


def complete_paper(
    counted: CountedMetric,
    forest: Forest,
    *,
    budget: int = 0,
    allocation: str = "dp",
    extra_edge: bool = False,
    exact: bool = False,
) -> Completion:
    """Complete a forest as the paper does: without the extra edge unless asked for, or by the best completion.

    Parameters
    ----------
    counted : CountedMetric
    forest : Forest
    budget : int
        Representatives beyond one a component: 0 is MFC-Approx.
    allocation : {"fixed", "greedy", "dp", "hull"}
    extra_edge : bool
        The official code's "plus edge".
    exact : bool
        MFC-OPT.
    """
    return complete_forest(
        counted,
        forest=forest,
        budget=budget,
        allocation=allocation,
        extra_edge=extra_edge,
        mode="exact_mfc" if exact else "mfc",
    )


def join_neighbour_graph(counted: CountedMetric, objects: NDArray[Any], *, rng: np.random.Generator) -> Edges:
    """A minimum spanning forest of an approximate neighbour graph, its components joined by random representatives.

    One random member stands for each component, and an exact tree of these joins them. The neighbour graph's own
    distances aren't counted.
    """
    n = len(counted)
    forest = build_forest(
        counted, forest="knn", n_components=n, n_neighbors=NEIGHBOURS, vectors=objects, random_state=rng
    )
    if forest.n_components == 1:
        return forest.edges
    members = forest.order[forest.offsets[:-1] + rng.integers(0, forest.sizes)]
    with counted.stage("completion"):
        joins, _ = exact_mst(CountedMetric(counted.subset(members)), method="prim")
    return np.concatenate([forest.edges, members[joins]])


def random_tree(counted: CountedMetric, *, rng: np.random.Generator) -> Edges:
    """The floor: a random path through each of sqrt(n) random-centre components, joined by random edges."""
    n = len(counted)
    with counted.stage("forest"):
        labels = random_centers(counted, max(1, math.isqrt(n)), rng=rng, n_jobs=1).labels
    order = np.lexsort((rng.random(n), labels))
    starts = np.searchsorted(labels[order], np.arange(labels.max() + 1))
    steps = np.column_stack([order[:-1], order[1:]])
    # The step into a component starts anywhere before it instead of at the end of the one before.
    steps[starts[1:] - 1, 0] = order[rng.integers(0, starts[1:])]
    return steps


def attach_to_sample(counted: CountedMetric, *, rng: np.random.Generator) -> Edges:
    """The exact tree of a sample of sqrt(n) objects, and every other object joined to its nearest one in it."""
    n = len(counted)
    sample = np.sort(rng.choice(n, size=max(1, math.isqrt(n)), replace=False)).astype(np.int64)
    others = np.setdiff1d(np.arange(n), sample)
    nearest = np.empty(len(others), dtype=np.int64)
    with counted.stage("forest"):
        for start in range(0, len(others), 1024):
            nearest[start : start + 1024] = counted.block(others[start : start + 1024], sample).argmin(axis=1)
    with counted.stage("exact"):
        tree, _ = prim_matrix(counted.square(sample))
    return np.concatenate([sample[tree], np.column_stack([others, sample[nearest]])])


@dataclass(frozen=True)
class PeerTree:
    """What another package made: the edges, or the merge heights of its dendrogram where it hides the edges.

    Attributes
    ----------
    edges : ndarray of int64, shape (n - 1, 2), or None
    heights : ndarray of float64, shape (n - 1,), or None
        Their sum is the weight of the tree that the dendrogram was made of.
    """

    edges: Edges | None = None
    heights: NDArray[np.float64] | None = None


def peer(name: str, objects: Any, metric: str) -> PeerTree:
    """The exact tree of another package, on one thread.

    Parameters
    ----------
    name : str
        One of `PEERS`.
    objects : objects of the metric
    metric : str
        The metric's name here.

    Raises
    ------
    InputError
        There is no such peer, or it doesn't take this metric.
    """
    if name not in PEERS:
        raise InputError(f"no peer '{name}'", expected=f"one of: {', '.join(PEERS)}")
    run, metrics = PEERS[name]
    if metrics and metric not in metrics:
        raise InputError(f"{name} doesn't take the metric {metric}", expected=f"one of: {', '.join(metrics)}")
    return run(objects, metric)


def _of_edges(edges: Any) -> PeerTree:
    return PeerTree(edges=np.asarray(edges, dtype=np.int64))


def _of_linkage(merges: Any) -> PeerTree:
    return PeerTree(heights=np.asarray(merges[:, 2], dtype=np.float64))


def _mlpack(X: Any, _metric: str) -> PeerTree:
    from mlpack import emst

    return _of_edges(emst(input_=np.asarray(X, dtype=np.float64), leaf_size=1)["output"][:, :2])


def _quitefastmst(X: Any, _metric: str) -> PeerTree:
    import quitefastmst

    quitefastmst.omp_set_num_threads(1)
    return _of_edges(quitefastmst.mst_euclid(np.asarray(X, dtype=np.float64), 0)[1])


def _fastcluster(X: Any, _metric: str) -> PeerTree:
    import fastcluster

    return _of_linkage(fastcluster.linkage_vector(np.asarray(X, dtype=np.float64), method="single"))


def _fast_hdbscan(X: Any, _metric: str) -> PeerTree:
    import numba
    from fast_hdbscan.hdbscan import compute_minimum_spanning_tree

    threads = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        edges, *_ = compute_minimum_spanning_tree(np.asarray(X, dtype=np.float32), min_samples=1)
    finally:
        numba.set_num_threads(threads)
    return _of_edges(edges[:, :2])


def _hdbscan_precomputed(X: Any, metric: str) -> PeerTree:
    import hdbscan

    fitted = hdbscan.HDBSCAN(metric="precomputed", min_samples=1, min_cluster_size=2, gen_min_span_tree=True)
    return _of_edges(fitted.fit(_all_distances(X, metric))._min_spanning_tree[:, :2])


def _hdbscan_callable(X: Any, _metric: str) -> PeerTree:
    """What hdbscan's users do with strings: it hands a function two rows of numbers, here the objects' own numbers."""
    import hdbscan
    from rapidfuzz.distance import Levenshtein

    def distance(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
        return float(Levenshtein.distance(X[int(first[0])], X[int(second[0])]))

    fitted = hdbscan.HDBSCAN(
        metric=distance,
        algorithm="generic",
        min_samples=1,
        min_cluster_size=2,
        gen_min_span_tree=True,
        core_dist_n_jobs=1,
    )
    return _of_edges(fitted.fit(np.arange(len(X), dtype=np.float64)[:, None])._min_spanning_tree[:, :2])


def _scikit_learn(X: Any, _metric: str) -> PeerTree:
    from sklearn.cluster import AgglomerativeClustering

    fitted = AgglomerativeClustering(linkage="single", compute_distances=True).fit(np.asarray(X, dtype=np.float64))
    return PeerTree(heights=np.asarray(fitted.distances_, dtype=np.float64))


def _scipy(X: Any, metric: str) -> PeerTree:
    from scipy.cluster.hierarchy import linkage
    from scipy.spatial.distance import squareform

    if metric == "euclidean":
        return _of_linkage(linkage(np.asarray(X, dtype=np.float64), "single"))
    return _of_linkage(linkage(squareform(_all_distances(X, metric), checks=False), "single"))


def _rapidfuzz(X: Any, metric: str) -> PeerTree:
    return _of_edges(prim_matrix(_all_distances(X, metric))[0])


def _all_distances(X: Any, metric: str) -> NDArray[np.float64]:
    """All distances as a matrix, by what each field uses for that."""
    if metric == "levenshtein":
        from rapidfuzz.distance import Levenshtein
        from rapidfuzz.process import cdist

        return np.asarray(cdist(X, X, scorer=Levenshtein.distance, dtype=np.int32, workers=1), dtype=np.float64)
    if metric == "euclidean":
        from scipy.spatial.distance import cdist as vectors_cdist

        return np.asarray(vectors_cdist(X, X))
    return make_metric(X, metric).square(slice(0, X.shape[0]))


PEERS: dict[str, tuple[Callable[[Any, str], PeerTree], tuple[str, ...]]] = {
    "mlpack": (_mlpack, ("euclidean",)),
    "quitefastmst": (_quitefastmst, ("euclidean",)),
    "fastcluster": (_fastcluster, ("euclidean",)),
    "fast-hdbscan": (_fast_hdbscan, ("euclidean",)),
    "hdbscan-matrix": (_hdbscan_precomputed, ()),
    "hdbscan-callable": (_hdbscan_callable, ("levenshtein",)),
    "scikit-learn": (_scikit_learn, ("euclidean",)),
    "scipy": (_scipy, ()),
    "rapidfuzz": (_rapidfuzz, ("levenshtein",)),
}
"""Peers, with the metrics that they take here; no names mean any metric."""
