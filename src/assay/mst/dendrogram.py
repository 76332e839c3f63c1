"""What a spanning tree is used for: single-linkage dendrograms, flat cuts and HDBSCAN clusters.

Merging along the edges of a minimum spanning tree by increasing weight is single linkage (Gower and Ross, Minimum
spanning trees and single linkage cluster analysis, 1969).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import InputError, MissingPackageError
from assay.mst._arguments import require_flag, require_number
from assay.mst._graph import components, merge_heights

__all__ = ["cut", "hdbscan", "linkage", "single_linkage"]

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


def linkage(edges: IntArray, weights: FloatArray) -> FloatArray:
    """Return the dendrogram of a spanning tree as scipy's linkage matrix.

    Parameters
    ----------
    edges : ndarray of int64, shape (n - 1, 2)
    weights : ndarray of float64, shape (n - 1,)

    Returns
    -------
    ndarray of float64, shape (n - 1, 4)
        The two clusters merged, the height, and the size of the new cluster.

    Examples
    --------
    >>> import numpy as np
    >>> linkage(np.array([[0, 1], [1, 2]]), np.array([2.0, 1.0]))
    array([[1., 2., 1., 2.],
           [0., 3., 2., 3.]])
    """
    order = np.argsort(weights, kind="stable")
    children, sizes = merge_heights(len(edges) + 1, np.ascontiguousarray(edges), order)
    return np.column_stack([children.astype(np.float64), weights[order], sizes.astype(np.float64)])


def cut(
    edges: IntArray, weights: FloatArray, *, n_clusters: int | None = None, height: float | None = None
) -> IntArray:
    """Return flat clusters: the components after removing long edges.

    Parameters
    ----------
    edges : ndarray of int64, shape (n - 1, 2)
    weights : ndarray of float64, shape (n - 1,)
    n_clusters : int, optional
        Remove the longest edges until there are so many clusters; of equal edges the later ones go first.
    height : float, optional
        Remove the edges longer than this.

    Returns
    -------
    ndarray of int64, shape (n,)
        Labels from 0, numbered in the order of their lowest members.

    Raises
    ------
    InputError
        Neither or both of `n_clusters` and `height`, or `n_clusters` outside 1 … n.

    Examples
    --------
    >>> import numpy as np
    >>> cut(np.array([[0, 1], [1, 2]]), np.array([2.0, 1.0]), n_clusters=2)
    array([0, 1, 1])
    """
    n = len(edges) + 1
    if (n_clusters is None) == (height is None):
        raise InputError(f"n_clusters is {n_clusters} and height is {height}", expected="exactly one of them")
    if height is not None:
        require_number("height", height, expected="a number")
        return components(n, edges[weights <= height])
    if isinstance(n_clusters, bool) or not isinstance(n_clusters, (int, np.integer)) or not 1 <= n_clusters <= n:
        raise InputError(
            f"n_clusters is {n_clusters!r}", expected=f"a whole number from 1 to {n} (the number of objects)"
        )
    return components(n, edges[np.argsort(weights, kind="stable")[: n - int(n_clusters)]])


def hdbscan(
    edges: IntArray,
    weights: FloatArray,
    *,
    min_cluster_size: int = 10,
    core_distances: FloatArray | None = None,
    cluster_selection_method: str = "eom",
    cluster_selection_epsilon: float = 0.0,
    cluster_selection_persistence: float = 0.0,
    max_cluster_size: float = np.inf,
    allow_single_cluster: bool = False,
) -> tuple[IntArray, FloatArray]:
    """Return HDBSCAN's clusters of a spanning tree, condensed and selected by ``fast_hdbscan``.

    Parameters
    ----------
    edges : ndarray of int64, shape (n - 1, 2)
    weights : ndarray of float64, shape (n - 1,)
        Lengths; for the usual HDBSCAN, mutual reachability distances.
    min_cluster_size : int
        Members below which a split-off group is noise.
    core_distances : ndarray of float64, shape (n,), optional
        Raise every weight to the core distances of its ends. A tree fitted on the mutual reachability metric has them
        in its weights already; on another tree this is an upper bound of the mutual reachability tree.
    cluster_selection_method : {"eom", "leaf"}
        Excess of mass, or the leaves of the condensed tree.
    cluster_selection_epsilon : float
        Clusters closer than this are not split.
    cluster_selection_persistence : float
        Least persistence of a cluster.
    max_cluster_size : float
        Largest cluster that "eom" selects.
    allow_single_cluster : bool
        Whether everything may be one cluster.

    Returns
    -------
    labels : ndarray of int64, shape (n,)
        Clusters from 0; noise is -1.
    probabilities : ndarray of float64, shape (n,)
        Strength of membership, from 0 to 1.

    References
    ----------
    Campello, Moulavi and Sander, Density-based clustering based on hierarchical density estimates, PAKDD 2013.
    """
    if (
        isinstance(min_cluster_size, bool)
        or not isinstance(min_cluster_size, (int, np.integer))
        or min_cluster_size < 2
    ):
        raise InputError(f"min_cluster_size is {min_cluster_size!r}", expected="a whole number >= 2")
    if cluster_selection_method not in ("eom", "leaf"):
        raise InputError(f"cluster_selection_method is {cluster_selection_method!r}", expected='"eom" or "leaf"')
    for name, value in (
        ("cluster_selection_epsilon", cluster_selection_epsilon),
        ("cluster_selection_persistence", cluster_selection_persistence),
        ("max_cluster_size", max_cluster_size),
    ):
        require_number(name, value, least=0, expected="a number >= 0")
    require_flag("allow_single_cluster", allow_single_cluster)
    n = len(edges) + 1
    if n <= min_cluster_size:
        everything = allow_single_cluster and n == min_cluster_size
        return np.full(n, 0 if everything else -1, dtype=np.int64), np.full(n, 1.0 if everything else 0.0)
    try:
        from fast_hdbscan.hdbscan import clusters_from_spanning_tree
    except ImportError as error:
        raise MissingPackageError("fast-hdbscan", what="hdbscan", extra="mst") from error
    lengths = np.asarray(weights, dtype=np.float64)
    if core_distances is not None:
        core = np.asarray(core_distances, dtype=np.float64)
        if core.shape != (n,):
            raise InputError(f"core_distances have shape {core.shape}", expected=f"({n},), one per object")
        lengths = np.maximum(lengths, np.maximum(core[edges[:, 0]], core[edges[:, 1]]))
    labels, probabilities, *_ = clusters_from_spanning_tree(
        np.column_stack([edges.astype(np.float64), lengths]),
        min_cluster_size=int(min_cluster_size),
        cluster_selection_method=cluster_selection_method,
        max_cluster_size=float(max_cluster_size),
        allow_single_cluster=allow_single_cluster,
        cluster_selection_epsilon=float(cluster_selection_epsilon),
        cluster_selection_persistence=float(cluster_selection_persistence),
    )
    return np.asarray(labels, dtype=np.int64), np.asarray(probabilities, dtype=np.float64)


def single_linkage(
    X: Any, metric: Any = "euclidean", *, exact: bool = True, n_jobs: int | None = None, **options: Any
) -> FloatArray:
    """Return the single-linkage dendrogram, as ``scipy.cluster.hierarchy.linkage(X, "single")`` does, in O(n) memory.

    A drop-in for it on vectors; distances that are known already, condensed as ``scipy.spatial.distance.pdist`` gives
    them or as a square matrix, need ``metric="precomputed"``.

    Parameters
    ----------
    X : objects of the metric, or a Metric
        For "precomputed", distances of shape (n (n - 1) / 2,) or (n, n).
    metric : str, callable or Metric
        See :func:`assay.mst.make_metric`.
    exact : bool
        True: every distance is evaluated where nothing cheaper is exact. False: a near-minimum tree from far fewer
        distances, by :class:`assay.mst.MetricMST`.
    n_jobs : int, optional
        Threads.
    **options
        For ``exact=False``: parameters of MetricMST, such as ``random_state`` and ``n_forests``.

    Returns
    -------
    ndarray of float64, shape (n - 1, 4)
        scipy's linkage matrix.

    Examples
    --------
    >>> import numpy as np
    >>> single_linkage(np.array([[0.0], [1.0], [3.0]]))
    array([[0., 1., 1., 2.],
           [2., 3., 2., 3.]])
    >>> bool((single_linkage(np.array([1.0, 3.0, 2.0]), "precomputed")[:, 2] == [1, 2]).all())
    True
    """
    from assay.mst.estimator import MetricMST

    require_flag("exact", exact)
    one_row = isinstance(X, np.ndarray) and X.ndim == 1 and X.dtype.kind in "fiu"
    if one_row and isinstance(metric, str) and metric != "precomputed":
        raise InputError(
            f"X has shape {X.shape}", expected='objects, one a row; for condensed distances, metric="precomputed"'
        )
    if exact and options:
        raise InputError(
            f"{', '.join(sorted(options))} given with exact=True", expected="these options with exact=False"
        )
    tree = MetricMST(
        metric=metric,
        n_jobs=n_jobs,
        algorithm="exact" if exact else "mfc",
        **{"certify": 0, "progress": False, **options},
    ).fit(X)
    return linkage(tree.edges_, tree.weights_)
