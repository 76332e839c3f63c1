"""Trees and forests on explicit edges: Kruskal, Prim on a matrix, components, and heaviest edges on tree paths.

Textbook algorithms (Kruskal 1956, Prim 1957), compiled. Edges of weight zero are edges like any other, which is why
``scipy.sparse.csgraph`` is not used here: it takes explicit zeros for missing edges. Ties go to the edge that comes
first, so every result is determined by the order of its input.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from assay.core.errors import AssayError

__all__ = [
    "RootedTree",
    "components",
    "first_cycle",
    "merge_heights",
    "minimum_spanning_forest",
    "prim_matrix",
    "require_tree",
    "shortest_incident",
]

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


def minimum_spanning_forest(n: int, edges: IntArray, weights: FloatArray) -> IntArray:
    """Return the edges of a lightest spanning forest, by Kruskal.

    Parameters
    ----------
    n : int
        Number of vertices.
    edges : ndarray of int64, shape (m, 2)
    weights : ndarray of float64, shape (m,)

    Returns
    -------
    ndarray of int64, shape (n - number of components,)
        Positions in `edges`, by increasing weight; equal weights in the order of `edges`.
    """
    return np.asarray(_kruskal(n, np.ascontiguousarray(edges), np.argsort(weights, kind="stable")))


def components(n: int, edges: IntArray) -> IntArray:
    """Return the component of every vertex, numbered in the order of their lowest vertices.

    Parameters
    ----------
    n : int
        Number of vertices.
    edges : ndarray of int64, shape (m, 2)

    Returns
    -------
    ndarray of int64, shape (n,)
    """
    return np.asarray(_components(n, np.ascontiguousarray(edges)))


def first_cycle(n: int, edges: IntArray) -> int:
    """Return the position of the first edge that closes a cycle (a loop or a repeated edge does), or -1.

    Parameters
    ----------
    n : int
        Number of vertices.
    edges : ndarray of int64, shape (m, 2)
    """
    return int(_first_cycle(n, np.ascontiguousarray(edges)))


def require_tree(n: int, edges: IntArray, weights: FloatArray | None = None, *, what: str) -> None:
    """Raise an AssayError unless `edges` are a spanning tree of n vertices, with finite weights where they are given.

    Parameters
    ----------
    n : int
        Number of vertices.
    edges : ndarray of int64, shape (m, 2)
    weights : ndarray of float64, shape (m,), optional
    what : str
        Who made the tree, for the message.
    """
    if edges.shape != (max(0, n - 1), 2):
        raise AssayError(f"{what} returned {len(edges)} edges for {n} objects, not a spanning tree")
    if len(edges) and (edges.min() < 0 or edges.max() >= n):
        raise AssayError(f"{what} returned an edge with an end outside 0 to {n - 1}, not a spanning tree")
    # n - 1 edges without a cycle span.
    at = first_cycle(n, edges)
    if at >= 0:
        raise AssayError(f"{what} returned a cycle through edge {tuple(edges[at].tolist())}, not a spanning tree")
    if weights is not None and not np.isfinite(weights).all():
        raise AssayError(f"{what} returned weights that are no finite numbers")


@njit(cache=True, nogil=True)
def _find(parent, vertex):  # type: ignore[no-untyped-def]
    while parent[vertex] != vertex:
        parent[vertex] = parent[parent[vertex]]
        vertex = parent[vertex]
    return vertex


@njit(cache=True, nogil=True)
def _kruskal(n, edges, order):  # type: ignore[no-untyped-def]
    parent = np.arange(n)
    chosen = np.empty(max(n - 1, 0), dtype=np.int64)
    count = 0
    for position in order:
        if count == n - 1:
            break
        first, second = _find(parent, edges[position, 0]), _find(parent, edges[position, 1])
        if first != second:
            # The lower root wins: with path halving this stays near-linear and needs no rank array.
            if first < second:
                parent[second] = first
            else:
                parent[first] = second
            chosen[count] = position
            count += 1
    return chosen[:count]


@njit(cache=True, nogil=True)
def _components(n, edges):  # type: ignore[no-untyped-def]
    parent = np.arange(n)
    for position in range(len(edges)):
        first, second = _find(parent, edges[position, 0]), _find(parent, edges[position, 1])
        if first < second:
            parent[second] = first
        elif second < first:
            parent[first] = second
    labels = np.empty(n, dtype=np.int64)
    count = 0
    for vertex in range(n):
        root = _find(parent, vertex)
        if root == vertex:
            labels[vertex] = count
            count += 1
        else:
            labels[vertex] = labels[root]
    return labels


@njit(cache=True, nogil=True)
def _first_cycle(n, edges):  # type: ignore[no-untyped-def]
    parent = np.arange(n)
    for position in range(len(edges)):
        first, second = _find(parent, edges[position, 0]), _find(parent, edges[position, 1])
        if first == second:
            return position
        if first < second:
            parent[second] = first
        else:
            parent[first] = second
    return -1


# Finite weights only, so comparisons may assume that no operand is NaN; infinities mark vertices in the tree.
@njit(cache=True, nogil=True, fastmath={"nnan", "nsz"})
def prim_matrix(distances):  # type: ignore[no-untyped-def]
    """Return a minimum spanning tree of a complete graph, by Prim from vertex 0.

    Parameters
    ----------
    distances : ndarray of float64, shape (s, s)
        Symmetric; the diagonal is not read.

    Returns
    -------
    edges : ndarray of int64, shape (s - 1, 2)
        (vertex already in the tree, new vertex), in the order of growth. Ties: the lowest new vertex.
    weights : ndarray of float64, shape (s - 1,)
    """
    size = len(distances)
    edges = np.empty((max(size - 1, 0), 2), dtype=np.int64)
    weights = np.empty(max(size - 1, 0), dtype=np.float64)
    nearest = np.full(size, np.inf)
    anchor = np.zeros(size, dtype=np.int64)
    barred = np.zeros(size)
    current = 0
    for step in range(size - 1):
        barred[current] = np.inf
        nearest[current] = np.inf
        row = distances[current]
        for vertex in range(size):
            distance = row[vertex] + barred[vertex]
            closer = distance < nearest[vertex]
            nearest[vertex] = distance if closer else nearest[vertex]
            anchor[vertex] = current if closer else anchor[vertex]
        # A reduction and a search are two vectorised passes; an argmin is one scalar pass, and slower.
        smallest = np.inf
        for vertex in range(size):
            smallest = min(smallest, nearest[vertex])
        current = 0
        while nearest[current] != smallest:
            current += 1
        edges[step, 0] = anchor[current]
        edges[step, 1] = current
        weights[step] = smallest
    return edges, weights


@njit(cache=True, nogil=True)
def grow_tree(row, remaining, count, nearest, anchor, current):  # type: ignore[no-untyped-def]
    """Take the distances from the newest vertex `current` to the remaining ones, and move the next out of them.

    ``remaining[:count]`` are the vertices outside the tree, in any order; ``row``, ``nearest`` and ``anchor`` go with
    it. The chosen one changes places with the last. Ties: the lowest vertex.
    """
    best = 0
    for slot in range(count):
        if row[slot] < nearest[slot]:
            nearest[slot] = row[slot]
            anchor[slot] = current
        if nearest[slot] < nearest[best] or (nearest[slot] == nearest[best] and remaining[slot] < remaining[best]):
            best = slot
    last = count - 1
    vertex, weight, source = remaining[best], nearest[best], anchor[best]
    remaining[best], nearest[best], anchor[best] = remaining[last], nearest[last], anchor[last]
    remaining[last], nearest[last], anchor[last] = vertex, weight, source


@njit(cache=True, nogil=True)
def shortest_incident(n, edges, weights):  # type: ignore[no-untyped-def]
    """Return the weight of the shortest edge at every vertex (infinite where there is none), shape (n,)."""
    shortest = np.full(n, np.inf)
    for position in range(len(edges)):
        for end in range(2):
            vertex = edges[position, end]
            if weights[position] < shortest[vertex]:
                shortest[vertex] = weights[position]
    return shortest


class RootedTree:
    """A spanning tree in preorder, for the heaviest edges on paths.

    Parameters
    ----------
    n : int
        Number of vertices.
    edges : ndarray of int64, shape (n - 1, 2)
        A spanning tree.
    weights : ndarray of float64, shape (n - 1,)
    """

    def __init__(self, n: int, edges: IntArray, weights: FloatArray) -> None:
        self.order, self.position, self.parent, self.weight = _root(n, np.ascontiguousarray(edges), weights)

    def heaviest_from(self, vertex: int) -> FloatArray:
        """Return, for every vertex, the heaviest edge on its path to `vertex`, and -inf for itself; shape (n,)."""
        return np.asarray(_heaviest_from(vertex, self.order, self.position, self.parent, self.weight))


@njit(cache=True, nogil=True)
def _root(n, edges, weights):  # type: ignore[no-untyped-def]
    degree = np.zeros(n + 1, dtype=np.int64)
    for position in range(len(edges)):
        degree[edges[position, 0] + 1] += 1
        degree[edges[position, 1] + 1] += 1
    start = np.cumsum(degree)
    fill = start[:-1].copy()
    incident = np.empty(2 * len(edges), dtype=np.int64)
    for position in range(len(edges)):
        for end in range(2):
            vertex = edges[position, end]
            incident[fill[vertex]] = position
            fill[vertex] += 1
    order = np.empty(n, dtype=np.int64)
    place = np.full(n, -1, dtype=np.int64)
    parent = np.full(n, -1, dtype=np.int64)
    weight = np.zeros(n)
    stack = np.empty(n, dtype=np.int64)
    from_place = np.full(n, -1, dtype=np.int64)
    up = np.zeros(n)
    stack[0] = 0
    height, count = 1, 0
    while height > 0:
        height -= 1
        vertex = stack[height]
        order[count], place[vertex] = vertex, count
        parent[count], weight[count] = from_place[vertex], up[vertex]
        for slot in range(start[vertex], start[vertex + 1]):
            position = incident[slot]
            other = edges[position, 0] + edges[position, 1] - vertex
            if place[other] < 0:
                from_place[other], up[other] = count, weights[position]
                stack[height] = other
                height += 1
        count += 1
    return order, place, parent, weight


@njit(cache=True, nogil=True)
def _heaviest_from(vertex, order, position, parent, weight):  # type: ignore[no-untyped-def]
    n = len(order)
    by_place = np.full(n, np.nan)
    here = position[vertex]
    by_place[here] = -np.inf
    heaviest = -np.inf
    while parent[here] >= 0:
        heaviest = max(heaviest, weight[here])
        here = parent[here]
        by_place[here] = heaviest
    result = np.empty(n)
    for place in range(n):
        # Parents come before their children in preorder; only the way up from `vertex` is known beforehand.
        if np.isnan(by_place[place]):
            by_place[place] = max(by_place[parent[place]], weight[place])
        result[order[place]] = by_place[place]
    return result


@njit(cache=True, nogil=True)
def merge_heights(n, edges, order):  # type: ignore[no-untyped-def]
    """Merge clusters along a spanning tree's edges, taken in `order` of weight.

    Returns
    -------
    children : ndarray of int64, shape (n - 1, 2)
        The two clusters that step k merges into cluster n + k, the lower number first, as scipy numbers them.
    sizes : ndarray of int64, shape (n - 1,)
    """
    parent = np.arange(n)
    cluster = np.arange(n)
    members = np.ones(n, dtype=np.int64)
    children = np.empty((max(n - 1, 0), 2), dtype=np.int64)
    sizes = np.empty(max(n - 1, 0), dtype=np.int64)
    for step in range(len(order)):
        first, second = _find(parent, edges[order[step], 0]), _find(parent, edges[order[step], 1])
        if members[first] < members[second]:
            first, second = second, first
        parent[second] = first
        members[first] += members[second]
        children[step, 0] = min(cluster[first], cluster[second])
        children[step, 1] = max(cluster[first], cluster[second])
        sizes[step] = members[first]
        cluster[first] = n + step
    return children, sizes
