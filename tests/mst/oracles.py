"""Independent references for spanning trees: random metrics of four kinds, brute force, and the tight instance."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import shortest_path
from scipy.spatial.distance import cdist

from assay.mst.forest import Forest

KINDS = ("euclidean", "chebyshev", "hamming", "graph")


def random_metric(kind: str, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return the matrix of a random metric on n objects."""
    if kind == "graph":
        lengths = rng.uniform(0.1, 1.0, size=(n, n)) * (rng.random((n, n)) < 3 / n)
        ring = np.arange(n)
        lengths[ring, (ring + 1) % n] = rng.uniform(0.5, 2.0, size=n)
        return np.asarray(shortest_path(np.maximum(lengths, lengths.T), directed=False))
    if kind == "hamming":
        codes = rng.integers(0, 3, size=(n, 6))
        return (codes[:, None] != codes[None]).sum(axis=2).astype(np.float64)
    points = rng.normal(size=(n, int(rng.integers(1, 5))))
    if rng.random() < 0.5:
        points += 4 * rng.integers(0, 3, size=(n, 1))
    return np.asarray(cdist(points, points, kind))


def tree_weight(distances: NDArray[np.float64]) -> float:
    """Return the weight of a minimum spanning tree, by Kruskal on all pairs."""
    n = len(distances)
    label = list(range(n))
    total = 0.0
    for i, j in sorted(itertools.combinations(range(n), 2), key=lambda pair: distances[pair]):
        if label[i] != label[j]:
            total += distances[i, j]
            old, new = label[i], label[j]
            label = [new if value == old else value for value in label]
    return total


def between_components(distances: NDArray[np.float64], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return w*: the closest pair of every two components."""
    t = int(labels.max()) + 1
    result = np.zeros((t, t))
    for i, j in itertools.permutations(range(t), 2):
        result[i, j] = distances[np.ix_(labels == i, labels == j)].min()
    return result


def best_completion(distances: NDArray[np.float64], forest: Forest) -> float:
    """Return the weight of the best completion of a forest, the forest included."""
    return forest.weight + tree_weight(between_components(distances, forest.labels))


def is_spanning_tree(edges: NDArray[np.int64], n: int) -> bool:
    """Return whether edges connect n vertices without a cycle."""
    reached, frontier = {0}, [0]
    neighbours: dict[int, list[int]] = {}
    for u, v in edges.tolist():
        neighbours.setdefault(u, []).append(v)
        neighbours.setdefault(v, []).append(u)
    while frontier:
        for other in neighbours.get(frontier.pop(), []):
            if other not in reached:
                reached.add(other)
                frontier.append(other)
    return len(edges) == n - 1 and len(reached) == n


def tight_instance(p: int, members: int, epsilon: float) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return matrix and labels of Theorem 3: p components of `members` representatives and one more object each.

    Representatives of a component are epsilon apart and 1 from everything else; the further objects are epsilon from
    each other. A component's first object is a representative, its last the further one.
    """
    size = members + 1
    labels = np.repeat(np.arange(p), size)
    further = np.tile(np.arange(size) == members, p)
    distances = np.ones((p * size, p * size))
    distances[(labels[:, None] == labels[None]) & ~further[:, None] & ~further[None]] = epsilon
    distances[further[:, None] & further[None]] = epsilon
    np.fill_diagonal(distances, 0.0)
    return distances, labels
