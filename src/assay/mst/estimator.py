"""`MetricMST`: near-minimum spanning trees of anything that has a distance, as a scikit-learn estimator."""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from assay.core.errors import InputError, MissingPackageError
from assay.core.files import atomic_path, existing_file
from assay.mst import dendrogram
from assay.mst._arguments import require_flag, require_number, require_share, seed_of
from assay.mst._graph import first_cycle
from assay.mst._tiles import interruptible, resolve_jobs
from assay.mst._vectors import VECTOR_METRICS, VectorMetric
from assay.mst.certificate import Certificate, certify, merge_trees
from assay.mst.completion import Completion, complete
from assay.mst.exact import cheapest_method, exact_mst
from assay.mst.forest import CallsExceeded, Forest, build_forest, random_centers, resolve_components
from assay.mst.metrics import (
    METRICS,
    CountedMetric,
    Metric,
    MetricWarning,
    MutualReachability,
    core_distances,
    make_metric,
)
from assay.mst.metrics import check_metric as check_axioms
from assay.mst.representatives import ALLOCATIONS, FIRST, parse_budget

if TYPE_CHECKING:
    import networkx as nx
    from scipy.sparse import csr_array

__all__ = ["MetricMST"]

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

FILE_KIND = "assay.mst.MetricMST"
FILE_VERSION = 1

FEW_DIMENSIONS = 8
"""Up to so many dimensions an exact Euclidean tree by kd-trees is cheaper than forests."""

LEAST_BLOCK = 4_000_000
"""Bytes: several of the tiles that are cut for a core's cache."""

EXACT_CORE = 20_000
"""Most objects whose core distances are exact: beyond, n² distances would outweigh the tree."""

FINGERPRINT_PAIRS = 512
"""Distances by which a checkpoint recognises objects that cannot be hashed."""

CHECK, CORE, CERTIFICATE, COMPLETION = 1_000_000, 1_000_001, 1_000_002, 2_000_000
"""Streams of random numbers; those of forests count from 0."""

FOREST_STAGES = ("forest", "subtrees", "representatives", "completion", "weights")

FORESTS = ("random", "kcenter", "knn", "threshold")
ALGORITHMS = ("auto", "mfc", "exact")

INDIFFERENT = ("n_jobs", "progress", "checkpoint", "block_bytes", "backend", "address")
"""Parameters that change no result, so a checkpoint may be resumed with others."""


class MetricMST(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Near-minimum spanning tree in any metric space, with a certificate, in far fewer than n²/2 distances.

    Forests with about sqrt(n) components are completed to spanning trees through representatives, several such trees
    are united, and a sample of rows bounds how far the result can be from the minimum. Where an exact tree is cheaper,
    it is made instead.

    Parameters
    ----------
    metric : str, callable or Metric
        See :func:`assay.mst.make_metric`.
    n_components : int, float or "sqrt"
        Components of a forest: a number, a share of n, or the integer square root of n.
    forest : {"random", "kcenter", "knn", "threshold"}, array-like, estimator or Forest
        Where the first forest comes from: centres drawn at random; farthest-first centres; an approximate neighbour
        graph; all pairs within `threshold`; labels of shape (n,); edges of shape (m, 2); a clusterer with
        ``fit_predict``; or a Forest. The others are "kcenter" where the first is, else "random".
    n_forests : int
        Trees to unite. One keeps every edge of its forest, as the paper's problem asks.
    budget : int or str
        Representatives beyond one a component, of the first forest; ``"2t"`` is twice its number of components.
    allocation : {"dp", "hull", "greedy", "fixed"}
        How the budget is spent.
    first : {"lowest", "random", "center", "medoid"}
        First representative of a component; "center" for forests that have centres, else "lowest".
    extra_edge : bool
        Try one more edge for each pair of components; never heavier.
    mode : {"mfc", "exact_mfc"}
        "exact_mfc" completes each forest by the lightest edges there are.
    target_alpha, target_beta : float, optional
        Double the budget of the first forest until its alpha (beta) is at most this.
    certify : int
        Objects to sample for the bound against the true minimum and for the cycle test; 0 for neither.
    confidence : float
        Of the bound.
    ci : {"normal", "bernstein"}
        Its confidence limit: asymptotic, or rigorous and looser.
    gamma : {None, "exact"}
        "exact" evaluates all distances to find gamma of the first forest, which is else unknown.
    algorithm : {"auto", "mfc", "exact"}
        "auto" makes the exact tree where that costs no more, and says so in `exact_`.
    tol : float
        Stop uniting when a further tree improves the weight by a smaller share.
    threshold : float, optional
        For ``forest="threshold"``.
    max_component : int, optional
        Components larger than this are split; see :func:`assay.mst.build_forest`.
    lookahead : float, optional
        See :func:`assay.mst.complete_forest`.
    n_clusters : int, optional
        What `labels_` is: a cut into so many clusters. By default `labels_` are the first forest's components; of an
        exact tree, a cut into as many.
    metric_params : dict, optional
        Further arguments of :func:`assay.mst.make_metric`, such as ``{"p": 3}`` or ``{"unit": "byte"}``.
    min_samples : int, optional
        Make the tree of the mutual reachability distance with this neighbour's core distance, as HDBSCAN does. Core
        distances are exact up to 20 000 objects, and upper bounds from a random partition beyond.
    random_state : int, Generator or RandomState, optional
        Seed, or a generator that draws it. None takes one from the system.
    n_jobs : int, optional
        Threads; -1 for all cores, -2 for all but one, and so on, at least one. The result does not depend on it.
    max_distance_calls : int, optional
        Evaluations that may be spent. Optional work (further forests, larger budgets, certificate) is left out when
        it does not fit; where the first tree does not, an InputError says about how many it takes.
    block_bytes : int or str
        Upper limit of a block of distances, such as "64MB"; for objects in files, also of those held at a time.
    backend : {"threads", "ray", "dask"}
        What reduces over objects in files: threads of this process, or a cluster whose workers read the files under the
        same name. The tree is the same, bit for bit.
    address : str, optional
        Of a running Ray cluster or Dask scheduler; left out, a local one with `n_jobs` workers.
    check_metric : int
        Triples on which the axioms are tested when the metric is not a built-in one; 0 for none.
    checkpoint : path, optional
        Folder for finished stages. The same fit on the same data goes on from there, to the identical tree.
    progress : bool
        Show stages and distance calls when standard error is a terminal.

    Attributes
    ----------
    edges_ : ndarray of int64, shape (n - 1, 2)
        The tree, by increasing weight; the lower end first.
    weights_ : ndarray of float64, shape (n - 1,)
    total_weight_ : float
    labels_ : ndarray of int64, shape (n,)
    forest_ : Forest or None
        The first forest; None for an exact tree.
    completion_ : Completion or None
        Its completion.
    representatives_ : ndarray of int64 or None
        Its representatives.
    alpha_, beta_ : float or None
        The tree weighs at most ``alpha_`` (``beta_``) times the best completion of `forest_`.
    certified_ : bool
        Whether ``alpha_`` and ``beta_`` are guarantees: no triple is known to break the triangle inequality.
    exact_ : bool
        Whether the tree is a minimum spanning tree.
    mst_lower_bound_ : float or None
        No spanning tree weighs less, with probability `confidence`.
    mst_ratio_upper_ : float or None
        `total_weight_` over that.
    certificate_ : Certificate or None
    gamma_ : float or None
        w(forest) / w(edges of a minimum spanning tree inside its components); None where it is unknown. With equal
        distances several trees are minimal, and this is the value for one of them, an upper bound.
    n_components_, largest_component_ : int
        Of the first forest.
    forest_weights_ : list of float
        Weight of the united tree after each forest.
    n_distance_calls_ : dict of str to int
        Evaluations by stage. "weights" are those repeated pair by pair, for returned weights in full precision.
    timings_ : dict of str to float
        Wall-clock seconds by stage.
    core_distances_ : ndarray of float64, shape (n,), or None
        With `min_samples`.
    core_exact_ : bool or None
        Whether they are exact.
    n_features_in_ : int
        For arrays of vectors.
    feature_names_in_ : ndarray of str
        For data frames.

    References
    ----------
    Veldt et al., Better Learning-Augmented Spanning Tree Algorithms via Metric Forest Completion, ICLR 2026.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(3000, 16))
    >>> tree = MetricMST(random_state=0, progress=False).fit(X)
    >>> tree.edges_.shape, tree.exact_
    ((2999, 2), False)
    >>> 1.0 <= tree.mst_ratio_upper_ < 1.3
    True
    """

    def __init__(
        self,
        metric: Any = "euclidean",
        *,
        n_components: int | float | str = "sqrt",
        forest: Any = "random",
        n_forests: int = 3,
        budget: int | str = 0,
        allocation: str = "dp",
        first: str = "lowest",
        extra_edge: bool = True,
        mode: str = "mfc",
        target_alpha: float | None = None,
        target_beta: float | None = None,
        certify: int = 200,
        confidence: float = 0.99,
        ci: str = "normal",
        gamma: str | None = None,
        algorithm: str = "auto",
        tol: float = 1e-3,
        threshold: float | None = None,
        max_component: int | None = None,
        lookahead: float | None = None,
        n_clusters: int | None = None,
        metric_params: dict[str, Any] | None = None,
        min_samples: int | None = None,
        random_state: int | np.random.Generator | np.random.RandomState | None = None,
        n_jobs: int | None = None,
        max_distance_calls: int | None = None,
        block_bytes: int | str = "64MB",
        backend: str = "threads",
        address: Any = None,
        check_metric: int = 1000,
        checkpoint: Any = None,
        progress: bool = True,
    ) -> None:
        self.metric = metric
        self.n_components = n_components
        self.forest = forest
        self.n_forests = n_forests
        self.budget = budget
        self.allocation = allocation
        self.first = first
        self.extra_edge = extra_edge
        self.mode = mode
        self.target_alpha = target_alpha
        self.target_beta = target_beta
        self.certify = certify
        self.confidence = confidence
        self.ci = ci
        self.gamma = gamma
        self.algorithm = algorithm
        self.tol = tol
        self.threshold = threshold
        self.max_component = max_component
        self.lookahead = lookahead
        self.n_clusters = n_clusters
        self.metric_params = metric_params
        self.min_samples = min_samples
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.max_distance_calls = max_distance_calls
        self.block_bytes = block_bytes
        self.backend = backend
        self.address = address
        self.check_metric = check_metric
        self.checkpoint = checkpoint
        self.progress = progress

    @interruptible()
    def fit(self, X: Any, y: Any = None) -> MetricMST:
        """Make the tree.

        Parameters
        ----------
        X : array, sparse matrix, list of str, of sets or of anything, a Metric, or a path
            n objects, as the metric takes them. A path names a folder of Parquet files, a ``.parquet``, ``.arrow`` or
            ``.npy`` file, whose objects are read in blocks; see :class:`assay.mst.distributed.StoredObjects`.
        y : None
            Ignored; there for scikit-learn.

        Returns
        -------
        MetricMST
            Itself.

        Raises
        ------
        InputError
            The parameters or the objects are not what is expected; it names which.
        """
        started = time.perf_counter()
        self._require_parameters()
        metric = self._metric_on(X)
        counted = CountedMetric(metric, max_calls=self.max_distance_calls)
        entropy = seed_of(self.random_state)
        run = _Fit(
            self, X, counted, _Store.open(self.checkpoint, self, X, counted, entropy), n_jobs=resolve_jobs(self.n_jobs)
        )
        with _progress(self.progress, counted, run) as show:
            run.show = show
            run.go()
        order = np.argsort(run.weights, kind="stable")
        self.edges_ = np.sort(run.edges[order], axis=1)
        self.weights_ = run.weights[order]
        self.total_weight_ = float(self.weights_.sum())
        self.exact_ = run.exact
        self.completion_ = run.completion
        self.forest_ = None if run.completion is None else run.completion.forest
        self.representatives_ = None if run.completion is None else run.completion.representatives
        self.alpha_ = 1.0 if run.completion is None else run.completion.alpha
        self.beta_ = 1.0 if run.completion is None else run.completion.beta
        self.certified_ = run.exact or counted.is_metric
        self.certificate_ = run.certificate
        self.mst_lower_bound_ = run.lower_bound
        self.mst_ratio_upper_ = _over(self.total_weight_, run.lower_bound)
        self.gamma_ = run.gamma
        self.core_distances_, self.core_exact_ = run.core, run.core_exact
        self.forest_weights_ = run.forest_weights
        self.n_components_ = 1 if self.forest_ is None else self.forest_.n_components
        self.largest_component_ = len(counted) if self.forest_ is None else self.forest_.largest_component
        self.labels_ = self._labels(len(counted))
        self.n_distance_calls_ = dict(counted.calls)
        self.timings_ = {**run.timings, "total": run.seconds_before + time.perf_counter() - started}
        return self

    def _labels(self, n: int) -> IntArray:
        if self.n_clusters is not None:
            return dendrogram.cut(self.edges_, self.weights_, n_clusters=self.n_clusters)
        if self.forest_ is not None:
            return self.forest_.labels
        return dendrogram.cut(self.edges_, self.weights_, n_clusters=resolve_components(self.n_components, n))

    def _require_parameters(self) -> None:
        for name, value, allowed in (
            ("algorithm", self.algorithm, ALGORITHMS),
            ("allocation", self.allocation, ALLOCATIONS),
            ("first", self.first, FIRST),
            ("gamma", self.gamma, (None, "exact")),
            ("mode", self.mode, ("mfc", "exact_mfc")),
            ("ci", self.ci, ("normal", "bernstein")),
        ):
            if value not in allowed:
                raise InputError(f"{name} is {value!r}", expected=f"one of {', '.join(map(str, allowed))}")
        if isinstance(self.forest, str) and self.forest not in FORESTS:
            raise InputError(
                f"forest is {self.forest!r}",
                expected=f"one of {', '.join(FORESTS)}, labels, edges, a clusterer or a Forest",
            )
        for argument, number, least in (
            ("n_forests", self.n_forests, 1),
            ("certify", self.certify, 0),
            ("check_metric", self.check_metric, 0),
            ("max_distance_calls", self.max_distance_calls, 1),
            ("max_component", self.max_component, 1),
            ("min_samples", self.min_samples, 1),
            ("n_clusters", self.n_clusters, 1),
        ):
            optional = argument not in ("n_forests", "certify", "check_metric")
            enough = isinstance(number, (int, np.integer)) and not isinstance(number, bool) and number >= least
            if not enough and not (number is None and optional):
                raise InputError(
                    f"{argument} is {number!r}", expected=f"a whole number >= {least}{' or None' if optional else ''}"
                )
        if not isinstance(self.random_state, (np.random.Generator, np.random.RandomState)):
            seed_of(self.random_state)
        if self.certify == 1:
            raise InputError("certify is 1", expected="0, or at least 2 objects to sample")
        require_share("confidence", self.confidence)
        require_number("tol", self.tol, least=0, expected="a number >= 0")
        for argument, target in (("target_alpha", self.target_alpha), ("target_beta", self.target_beta)):
            if target is not None:
                require_number(argument, target, least=1, expected="a number >= 1")
        require_flag("extra_edge", self.extra_edge)
        require_flag("progress", self.progress)
        by_threshold = isinstance(self.forest, str) and self.forest == "threshold"
        if by_threshold:
            require_number("threshold", self.threshold, least=0, expected='a distance >= 0 for forest="threshold"')
        elif self.threshold is not None:
            raise InputError(f"threshold is {self.threshold!r} with another forest", expected='forest="threshold"')
        parse_budget(self.budget, 1)
        resolve_bytes(self.block_bytes)

    def _metric_on(self, X: Any) -> Metric:
        """Return the metric on X; vectors are checked as scikit-learn does, so that features are counted and named."""
        if isinstance(X, (str, os.PathLike)):
            from assay.mst.distributed import spread_metric

            return spread_metric(
                X,
                self.metric,
                backend=self.backend,
                address=self.address,
                workers=resolve_jobs(self.n_jobs),
                block_bytes=resolve_bytes(self.block_bytes),
                **(self.metric_params or {}),
            )
        if self.backend != "threads":
            raise InputError(
                f"backend is {self.backend!r} with X in memory", expected="the path of files that every worker reads"
            )
        if (
            isinstance(X, Metric)
            or not isinstance(self.metric, str)
            or self.metric not in VECTOR_METRICS
            or hasattr(X, "is_cuda")
        ):
            return make_metric(X, self.metric, **(self.metric_params or {}))
        try:
            X = validate_data(self, X, dtype=[np.float64, np.float32, np.uint8], ensure_all_finite=False, order="C")
        except ValueError as error:
            raise InputError(str(error)) from error
        return make_metric(X, self.metric, **(self.metric_params or {}))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.metric == "precomputed"
        return tags

    def linkage(self) -> FloatArray:
        """Return the single-linkage dendrogram as scipy's linkage matrix, shape (n - 1, 4)."""
        check_is_fitted(self)
        return dendrogram.linkage(self.edges_, self.weights_)

    def cut(self, *, n_clusters: int | None = None, height: float | None = None) -> IntArray:
        """Return flat clusters, by number or by longest distance inside; see :func:`assay.mst.dendrogram.cut`."""
        check_is_fitted(self)
        return dendrogram.cut(self.edges_, self.weights_, n_clusters=n_clusters, height=height)

    def hdbscan(
        self, *, min_cluster_size: int = 10, core_distances: FloatArray | None = None, **options: Any
    ) -> tuple[IntArray, FloatArray]:
        """Return HDBSCAN's labels (noise is -1) and probabilities, both of shape (n,).

        Fit with `min_samples` for the usual HDBSCAN; otherwise these are the clusters of the plain tree, or of the tree
        raised to `core_distances`. Options as in :func:`assay.mst.dendrogram.hdbscan`.
        """
        check_is_fitted(self)
        return dendrogram.hdbscan(
            self.edges_, self.weights_, min_cluster_size=min_cluster_size, core_distances=core_distances, **options
        )

    def to_csr(self) -> csr_array:
        """Return the symmetric adjacency matrix, shape (n, n). Edges of length 0 are stored as explicit zeros."""
        from scipy.sparse import csr_array

        check_is_fitted(self)
        n = len(self.edges_) + 1
        rows, columns = np.concatenate([self.edges_, self.edges_[:, ::-1]]).T
        order = np.lexsort((columns, rows))
        starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))])
        return csr_array((np.tile(self.weights_, 2)[order], columns[order], starts), shape=(n, n))

    def to_networkx(self) -> nx.Graph:
        """Return the tree as a graph whose edges have the attribute ``weight``."""
        try:
            import networkx as nx
        except ImportError as error:
            raise MissingPackageError("networkx", what="to_networkx", extra="mst") from error
        check_is_fitted(self)
        graph = nx.Graph()
        graph.add_nodes_from(range(len(self.edges_) + 1))
        graph.add_weighted_edges_from(
            (u, v, w) for (u, v), w in zip(self.edges_.tolist(), self.weights_.tolist(), strict=True)
        )
        return graph

    def save(self, path: Any, *, force: bool = False) -> Path:
        """Write the fitted tree and its settings to a ``.npz`` file: arrays and JSON, no pickle, no data.

        Parameters
        ----------
        path : path
            It has to end in ``.npz``.
        force : bool
            Replace an existing file.

        Raises
        ------
        InputError
            The name has another ending, exists, or can't be written.
        """
        check_is_fitted(self)
        file = _archive_name(path)
        if file.exists() and not force:
            raise InputError("exists already", file=file, expected="another name, or force=True")
        arrays: dict[str, Any] = {"edges": self.edges_, "weights": self.weights_, "labels": self.labels_}
        if self.core_distances_ is not None:
            arrays["core_distances"] = self.core_distances_
        if self.completion_ is not None:
            arrays |= _completion_arrays(self.completion_)
        if self.certificate_ is not None:
            arrays["certificate"] = _json_array(_certificate_facts(self.certificate_))
        facts = {name: getattr(self, name) for name in _FACTS}
        if hasattr(self, "n_features_in_"):
            facts["n_features_in_"] = int(self.n_features_in_)
        if hasattr(self, "feature_names_in_"):
            facts["feature_names_in_"] = [str(name) for name in self.feature_names_in_]
        header = {
            "kind": FILE_KIND,
            "version": FILE_VERSION,
            "settings": _plain(self.get_params(deep=False)),
            "facts": facts,
        }
        with atomic_path(file, force=force) as temporary, temporary.open("wb") as stream:
            np.savez(stream, header=_json_array(header), **arrays)
        return file

    @classmethod
    def load(cls, path: Any) -> MetricMST:
        """Read what `save` wrote.

        Settings that are no plain values (a function, labels, an estimator) come back as a text that describes them.

        Raises
        ------
        InputError
            The file is no saved tree, of another version, or its parts don't fit together.
        """
        file = existing_file(_archive_name(path))
        arrays = _read_arrays(file)
        header = arrays.pop("header")
        try:
            _require_consistent(arrays, header["facts"])
            model = cls(**header["settings"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            reason = error.message if isinstance(error, InputError) else "parts are missing or of another kind"
            raise InputError(f"damaged: {reason}", file=file, expected="a file as MetricMST.save wrote it") from error
        for name, value in header["facts"].items():
            setattr(model, name, np.array(value, dtype=object) if name == "feature_names_in_" else value)
        model.edges_, model.weights_, model.labels_ = arrays["edges"], arrays["weights"], arrays["labels"]
        model.core_distances_ = arrays.get("core_distances")
        model.completion_ = _completion_from(arrays) if "forest_labels" in arrays else None
        model.forest_ = None if model.completion_ is None else model.completion_.forest
        model.representatives_ = None if model.completion_ is None else model.completion_.representatives
        facts = arrays.get("certificate")
        model.certificate_ = None if facts is None else Certificate(**facts, edges=model.edges_, weights=model.weights_)
        return model


_FACTS = (
    "total_weight_",
    "alpha_",
    "beta_",
    "certified_",
    "exact_",
    "mst_lower_bound_",
    "mst_ratio_upper_",
    "gamma_",
    "core_exact_",
    "forest_weights_",
    "n_components_",
    "largest_component_",
    "n_distance_calls_",
    "timings_",
)


def _archive_name(path: Any) -> Path:
    """The path of a saved tree, which ends in ``.npz``."""
    if not isinstance(path, (str, os.PathLike)):
        raise InputError(f"path is {path!r}", expected="the name of an .npz file")
    file = Path(os.fspath(path))
    if file.suffix.lower() != ".npz":
        raise InputError(f"unknown ending '{file.suffix}'", file=file, expected=".npz")
    return file


def _require_consistent(arrays: dict[str, Any], facts: dict[str, Any]) -> None:
    """Refuse what `MetricMST.save` can't have written: counts, ranges, trees and totals have to fit together."""
    labels = _column(arrays, "labels", len(arrays["labels"]), kind="iu")
    n = len(labels)
    missing = [name for name in _FACTS if name not in facts]
    if missing:
        raise InputError(f"the header lacks {missing[0]}")
    _require_forest("edges", arrays["edges"], n, n - 1)
    weights = _column(arrays, "weights", n - 1)
    _require_total("total_weight_", facts["total_weight_"], float(weights.sum()))
    if facts["mst_lower_bound_"] is not None:
        _require_total(
            "mst_ratio_upper_", facts["mst_ratio_upper_"], _over(facts["total_weight_"], facts["mst_lower_bound_"])
        )
    for name in ("alpha_", "beta_"):
        if facts[name] is not None and not facts[name] >= 1:
            raise InputError(f"{name} is {facts[name]}")
    if "core_distances" in arrays:
        _column(arrays, "core_distances", n)
    if "forest_labels" not in arrays:
        if not facts["exact_"] or facts["n_components_"] != 1 or facts["largest_component_"] != n:
            raise InputError("a tree that isn't exact has no forest")
        return
    parts = _column(arrays, "forest_labels", n, kind="iu")
    sizes = np.bincount(parts) if n and parts.min() >= 0 else np.zeros(1, dtype=np.int64)
    t = len(sizes)
    if not sizes.all() or (facts["n_components_"], facts["largest_component_"]) != (t, int(sizes.max())):
        raise InputError("forest_labels don't number the components that the header counts")
    forest = arrays["forest_edges"]
    _require_forest("forest_edges", forest, n, n - t)
    if (parts[forest[:, 0]] != parts[forest[:, 1]]).any():
        raise InputError("forest_edges join components")
    bridges = arrays["completion_edges"]
    _require_forest("completion_edges", bridges, n, t - 1)
    if first_cycle(t, parts[bridges]) >= 0:
        raise InputError("completion_edges don't join the components to a tree")
    _column(arrays, "forest_weights", n - t)
    _column(arrays, "completion_weights", t - 1)
    _column(arrays, "component_costs", t)
    counts = _column(arrays, "representative_counts", t, kind="iu")
    chosen = _column(arrays, "representatives", int(counts.sum()), kind="iu", stop=n)
    if counts.min() < 1 or (parts[chosen] != np.repeat(np.arange(t), counts)).any():
        raise InputError("representatives lie in other components than their counts say")
    if "forest_centers" in arrays:
        _column(arrays, "forest_centers", t, kind="iu", stop=n)


def _column(arrays: dict[str, Any], name: str, size: int, *, kind: str = "f", stop: int | None = None) -> NDArray[Any]:
    """An array of one dimension and that size: finite and not negative, or indices below `stop`."""
    array: NDArray[Any] = arrays[name]
    if array.shape != (size,) or array.dtype.kind not in kind:
        raise InputError(f"{name} holds {array.dtype} of shape {array.shape} instead of ({size},)")
    if kind == "f" and not (np.isfinite(array) & (array >= 0)).all():
        raise InputError(f"{name} holds a value that is no length")
    if stop is not None and ((array < 0) | (array >= stop)).any():
        raise InputError(f"{name} holds an index out of range")
    return array


def _require_forest(name: str, edges: NDArray[Any], n: int, count: int) -> None:
    if edges.shape != (count, 2) or edges.dtype != np.int64:
        raise InputError(f"{name} holds {edges.dtype} of shape {edges.shape} instead of ({count}, 2)")
    if ((edges < 0) | (edges >= n)).any():
        raise InputError(f"{name} has an end out of range")
    if first_cycle(n, edges) >= 0:
        raise InputError(f"{name} holds a cycle")


def _require_total(name: str, given: float, found: float | None) -> None:
    if found is None or not (given == found or math.isclose(given, found, rel_tol=1e-9)):
        raise InputError(f"{name} is {given}, the arrays make it {found}")


def _over(weight: float, bound: float | None) -> float | None:
    if bound is None:
        return None
    return weight / bound if bound > 0 else (1.0 if weight == 0 else math.inf)


def resolve_bytes(size: int | str) -> int:
    """Return a number of bytes: a whole number, or a text such as "64MB"."""
    units = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "B": 1}
    value = float("nan")
    if isinstance(size, str):
        text = size.strip().upper()
        unit = next((unit for unit in sorted(units, key=len, reverse=True) if text.endswith(unit)), "")
        with suppress(ValueError):
            value = float(text.removesuffix(unit)) * units.get(unit, 1)
    elif isinstance(size, (int, float, np.integer, np.floating)) and not isinstance(size, bool):
        value = float(size)
    if not value >= LEAST_BLOCK:
        raise InputError(
            f"block_bytes is {size!r}", expected='at least 4 MB, as a whole number or a text such as "64MB"'
        )
    return int(value)


class _Fit:
    """One fit: its stages, what they have made so far, and what is left of the calls."""

    def __init__(self, model: MetricMST, X: Any, counted: CountedMetric, store: _Store, *, n_jobs: int) -> None:
        self.model, self.X, self.counted, self.store, self.n_jobs = model, X, counted, store, n_jobs
        self.n = len(counted)
        self.edges, self.weights = np.empty((0, 2), dtype=np.int64), np.empty(0)
        self.completion: Completion | None = None
        self.certificate: Certificate | None = None
        self.gamma: float | None = None
        self.lower_bound: float | None = None
        self.core: FloatArray | None = None
        self.core_exact: bool | None = None
        self.exact = False
        self.forest_weights: list[float] = []
        self.timings: dict[str, float] = {}
        self.seconds_before = 0.0
        self.show: Callable[[str], None] = lambda stage: None

    def rng(self, stage: int) -> np.random.Generator:
        """Return the random numbers of a stage, which do not depend on what other stages drew."""
        return np.random.default_rng(np.random.SeedSequence(self.store.entropy, spawn_key=(stage,)))

    def go(self) -> None:
        self._check()
        if self.model.min_samples is not None:
            self._reach(self.model.min_samples)
        if self.n < 3 or self._prefers_exact():
            self._make_exact()
            return
        self._unite()
        if self.completion is not None and self.completion.forest.in_mst:
            self.gamma = 1.0
        if self.model.gamma == "exact":
            self._find_gamma()
        if self.model.certify and self.lower_bound is None:
            self._certify()

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        self.show(stage)
        started = time.perf_counter()
        try:
            yield
        finally:
            self.timings[stage] = self.timings.get(stage, 0.0) + time.perf_counter() - started

    def _check(self) -> None:
        metric = self.counted.metric
        if not metric.is_metric:
            warnings.warn(
                f"{metric.name} does not promise the triangle inequality; alpha and beta are not certified",
                MetricWarning,
                stacklevel=4,
            )
        elif self.model.check_metric and (metric.name not in METRICS or metric.name == "precomputed") and self.n > 2:
            with self.timed("check"), self.counted.stage("check"):
                if not check_axioms(self.counted, samples=self.model.check_metric, rng=self.rng(CHECK)).passed:
                    # Also keeps exact completions from pruning by bounds that do not hold.
                    self.counted.is_metric = False

    def _reach(self, min_samples: int) -> None:
        with self.timed("core"), self.counted.stage("core"):
            stored = self.store.read("core", self)
            self.core_exact = self.n <= EXACT_CORE
            if stored is None:
                labels = visited = None
                if not self.core_exact:
                    part = random_centers(self.counted, math.isqrt(self.n), rng=self.rng(CORE), n_jobs=self.n_jobs)
                    labels, visited = part.labels, part.indices
                stored = {"core": core_distances(self.counted, min_samples, labels=labels, visited=visited)}
                self.store.write("core", self, stored)
            self.core = stored["core"]
        raised = CountedMetric(
            MutualReachability(self.counted.metric, self.core, exact_core=self.core_exact),
            max_calls=self.counted.max_calls,
        )
        raised.calls.update(self.counted.calls)
        raised.is_metric = self.counted.is_metric
        self.counted = raised

    def _prefers_exact(self) -> bool:
        model, n = self.model, self.n
        everything = n * (n - 1) // 2
        left = self.counted.remaining
        if model.algorithm == "exact":
            if left is not None and everything > left:
                raise InputError(
                    f"max_distance_calls is {model.max_distance_calls}",
                    expected=f'at least {everything} for algorithm="exact"',
                )
            return True
        wants_forest = (
            (model.forest not in ("random", "kcenter") if isinstance(model.forest, str) else True)
            or model.mode != "mfc"
            or model.target_alpha is not None
            or model.target_beta is not None
        )
        if (
            model.algorithm == "mfc"
            or wants_forest
            or parse_budget(model.budget, 1) > 0
            or (left is not None and everything > left)
        ):
            return False
        metric = self.counted.metric
        # Kd-trees are cheaper in few dimensions only; in more, the delegates are exact but slower than a forest.
        if (
            isinstance(metric, VectorMetric)
            and metric.X.shape[1] <= FEW_DIMENSIONS
            and cheapest_method(metric) == "quitefastmst"
        ):
            return True
        return model.n_forests * self._forest_calls() + model.certify * n >= everything

    def _forest_calls(self) -> int:
        """Return about how many distances a forest and its completion take: components are half as uneven again."""
        t = resolve_components(self.model.n_components, self.n)
        return 2 * self.n * t + self.n + self.n * self.n * 3 // (4 * t) + t * t // 2

    @property
    def planned(self) -> int:
        """About how many distances the fit takes."""
        if self.exact:
            return self.n * (self.n - 1) // 2
        return self.model.n_forests * self._forest_calls() + self.model.certify * self.n

    def _make_exact(self) -> None:
        self.exact = True
        with self.timed("exact"), self.counted.stage("exact"):
            stored = self.store.read("exact", self)
            if stored is None:
                self.edges, self.weights = exact_mst(self.counted, n_jobs=self.n_jobs)
                self.store.write("exact", self, {"edges": self.edges, "weights": self.weights})
            else:
                self.edges, self.weights = stored["edges"], stored["weights"]
        self.lower_bound = float(self.weights.sum())
        self.forest_weights = [self.lower_bound]

    def _unite(self) -> None:
        model = self.model
        for number in range(model.n_forests):
            if number and not self._affords_another(number):
                break
            try:
                if number == 0:
                    self._begin()
                else:
                    self._add(number)
            except CallsExceeded as error:
                if number == 0:
                    needed = max(self.counted.total + error.needed, self._forest_calls())
                    raise InputError(
                        f"max_distance_calls is {model.max_distance_calls}",
                        expected=f"about {needed:,} for the first tree",
                    ) from error
                break
            self.forest_weights.append(float(self.weights.sum()))
            if number and self.forest_weights[-2] - self.forest_weights[-1] < model.tol * self.forest_weights[-2]:
                break

    def _begin(self) -> None:
        """Make the first tree, which is what alpha, beta and the representatives are about."""
        stored = self.store.read("tree-0", self)
        self.completion = self._tree(0) if stored is None else _completion_from(stored)
        if stored is None:
            self.store.write("tree-0", self, _completion_arrays(self.completion))
        self.edges, self.weights = self.completion.edges, self.completion.weights

    def _add(self, number: int) -> None:
        """Unite the tree with another one, of which nothing else is kept."""
        stored = self.store.read(f"tree-{number}", self)
        if stored is not None:
            self.edges, self.weights = stored["edges"], stored["weights"]
            return
        completion = self._tree(number)
        edges, weights = completion.edges, completion.weights
        del completion
        with self.timed("union"):
            self.edges, self.weights = merge_trees(self.n, self.edges, self.weights, edges, weights)
        self.store.write(f"tree-{number}", self, {"edges": self.edges, "weights": self.weights})

    def _affords_another(self, number: int) -> bool:
        left = self.counted.remaining
        if left is None:
            return True
        spent = sum(self.counted.calls.get(stage, 0) for stage in FOREST_STAGES)
        return left >= spent // number + self.model.certify * self.n

    def _tree(self, number: int) -> Completion:
        """Return the completed forest of this number; only the first has what the user asked of a forest."""
        model, rng = self.model, self.rng(number)
        with self.timed("forest"):
            stored = self.store.read(f"forest-{number}", self)
            if stored is None:
                forest = self._forest(number, rng)
                self.store.write(f"forest-{number}", self, _forest_arrays(forest))
            else:
                forest = _forest_from(stored)
        asked = number == 0
        first = "lowest" if model.first == "center" and forest.centers is None else model.first
        completion = complete(
            self.counted,
            forest,
            budget=model.budget if asked else 0,
            allocation=model.allocation,
            first=first,
            lookahead=model.lookahead,
            extra_edge=model.extra_edge,
            mode=model.mode,
            target_alpha=model.target_alpha if asked else None,
            target_beta=model.target_beta if asked else None,
            rng=self.rng(COMPLETION + number),
            n_jobs=self.n_jobs,
            progress=self.show,
        )
        for stage, seconds in completion.timings.items():
            self.timings[stage] = self.timings.get(stage, 0.0) + seconds
        return completion

    def _forest(self, number: int, rng: np.random.Generator) -> Forest:
        model, source = self.model, self.model.forest
        options: dict[str, Any] = {
            "n_components": model.n_components,
            "max_component": model.max_component,
            "random_state": rng,
            "n_jobs": self.n_jobs,
            "block_bytes": resolve_bytes(model.block_bytes),
        }
        if number:
            # Another k-center from another start; a forest that is given once is followed by random ones.
            kind = "kcenter" if isinstance(source, str) and source == "kcenter" else "random"
            return build_forest(
                self.counted, forest=kind, start=int(rng.integers(self.n)) if kind == "kcenter" else None, **options
            )
        if isinstance(source, Forest):
            if source.n != self.n:
                raise InputError(f"the forest has {source.n} objects", expected=f"{self.n}, as X")
            return source
        if isinstance(source, str):
            return build_forest(self.counted, forest=source, threshold=model.threshold, vectors=self.X, **options)
        if hasattr(source, "fit_predict"):
            return build_forest(self.counted, estimator=clone(source, safe=False), vectors=self.X, **options)
        given = np.asarray(source)
        options["labels" if given.ndim == 1 else "edges"] = given
        return build_forest(self.counted, **options)

    def _find_gamma(self) -> None:
        assert self.completion is not None
        with self.timed("gamma"), self.counted.stage("gamma"):
            stored = self.store.read("gamma", self)
            if stored is None:
                edges, weights = exact_mst(self.counted, n_jobs=self.n_jobs)
                stored = {"edges": edges, "weights": weights}
                self.store.write("gamma", self, stored)
        forest = self.completion.forest
        inside = forest.labels[stored["edges"][:, 0]] == forest.labels[stored["edges"][:, 1]]
        kept = float(stored["weights"][inside].sum())
        self.gamma = forest.weight / kept if kept > 0 else (1.0 if forest.weight == 0 else math.inf)
        self.lower_bound = min(float(stored["weights"].sum()), float(self.weights.sum()))

    def _certify(self) -> None:
        rows = self.model.certify
        if self.counted.remaining is not None:
            # Edges found by the cycle test are evaluated once more, at most one for each sampled pair.
            rows = min(rows, self.counted.remaining // (2 * self.n))
        if rows < 2:
            return
        with self.timed("certificate"):
            stored = self.store.read("certificate", self)
            if stored is None:
                self.certificate = certify(
                    self.counted,
                    self.edges,
                    self.weights,
                    rows=rows,
                    confidence=self.model.confidence,
                    ci=self.model.ci,
                    rng=self.rng(CERTIFICATE),
                    n_jobs=self.n_jobs,
                    block_bytes=resolve_bytes(self.model.block_bytes),
                )
                facts = _certificate_facts(self.certificate)
                self.store.write(
                    "certificate",
                    self,
                    {"edges": self.certificate.edges, "weights": self.certificate.weights, "facts": _json_array(facts)},
                )
            else:
                self.certificate = Certificate(**stored["facts"], edges=stored["edges"], weights=stored["weights"])
        self.edges, self.weights = self.certificate.edges, self.certificate.weights
        self.lower_bound = self.certificate.mst_lower_bound


def _plain(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings as JSON can hold them."""

    def plain(value: Any) -> Any:
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, dict):
            return {str(key): plain(item) for key, item in value.items()}
        if isinstance(value, Path):
            return str(value)
        if callable(value) and hasattr(value, "__qualname__"):
            return f"{value.__module__}.{value.__qualname__}"
        if isinstance(value, Metric):
            return value.name
        if isinstance(value, (np.ndarray, list, tuple)):
            return f"given, of shape {np.shape(value)}"
        return type(value).__name__

    return {name: plain(value) for name, value in settings.items()}


def _json_array(value: Any) -> NDArray[np.uint8]:
    return np.frombuffer(json.dumps(value).encode(), dtype=np.uint8)


def _certificate_facts(certificate: Certificate) -> dict[str, Any]:
    names = ("rows", "confidence", "ci", "mst_lower_bound", "mst_ratio_upper", "improvable", "improvable_upper")
    return {name: getattr(certificate, name) for name in names}


def _forest_arrays(forest: Forest) -> dict[str, Any]:
    arrays: dict[str, Any] = {
        "forest_labels": forest.labels,
        "forest_edges": forest.edges,
        "forest_weights": forest.weights,
        "forest_facts": _json_array({"kind": forest.kind, "in_mst": forest.in_mst}),
    }
    return arrays if forest.centers is None else {**arrays, "forest_centers": forest.centers}


def _forest_from(arrays: dict[str, Any]) -> Forest:
    return Forest(
        arrays["forest_labels"],
        arrays["forest_edges"],
        arrays["forest_weights"],
        centers=arrays.get("forest_centers"),
        **arrays["forest_facts"],
    )


_COMPLETION_FACTS = ("alpha", "beta", "lower_bound", "exact", "certified", "n_distance_calls", "timings")


def _completion_arrays(completion: Completion) -> dict[str, Any]:
    facts = {name: getattr(completion, name) for name in _COMPLETION_FACTS}
    return _forest_arrays(completion.forest) | {
        "completion_edges": completion.completion_edges,
        "completion_weights": completion.completion_weights,
        "representatives": completion.representatives,
        "representative_counts": completion.representative_counts,
        "component_costs": completion.component_costs,
        "completion_facts": _json_array(facts),
    }


def _completion_from(arrays: dict[str, Any]) -> Completion:
    forest = _forest_from(arrays)
    return Completion(
        forest=forest,
        completion_edges=arrays["completion_edges"],
        completion_weights=arrays["completion_weights"],
        representatives=arrays["representatives"],
        representative_counts=arrays["representative_counts"],
        component_costs=arrays["component_costs"],
        **arrays["completion_facts"],
    )


_JSON_ARRAYS = ("header", "facts", "certificate", "forest_facts", "completion_facts", "progress")


def _read_arrays(file: Path) -> dict[str, Any]:
    """Return the arrays of a saved tree, with those that hold JSON read; its header names kind and version."""
    try:
        with np.load(file, allow_pickle=False) as archive:
            arrays: dict[str, Any] = {name: archive[name] for name in archive.files}
        for name in _JSON_ARRAYS:
            if name in arrays:
                arrays[name] = json.loads(arrays[name].tobytes())
        header = arrays["header"]
        kind, version = header["kind"], header["version"]
    except (ValueError, OSError, EOFError, KeyError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        raise InputError("is no saved spanning tree", file=file, expected="a file written by MetricMST.save") from error
    if kind != FILE_KIND:
        raise InputError(f"holds {kind!r}", file=file, expected=f"{FILE_KIND!r}")
    if version != FILE_VERSION:
        raise InputError(f"has version {version!r}", file=file, expected=f"version {FILE_VERSION}")
    return arrays


@dataclass
class _Store:
    """Finished stages in a folder, one file each; without a folder, nothing is kept."""

    folder: Path | None
    entropy: Any
    header: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def open(cls, folder: Any, model: MetricMST, X: Any, counted: CountedMetric, entropy: Any) -> _Store:
        if folder is None:
            return cls(None, entropy)
        if not isinstance(folder, (str, os.PathLike)) or not os.fspath(folder):
            raise InputError(f"checkpoint is {folder!r}", expected="the name of a folder")
        path = Path(folder)
        if path.exists() and not path.is_dir():
            raise InputError("is a file", file=path, expected="a folder for checkpoint")
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise InputError(reason, file=path, expected="a folder for checkpoint that can be made") from error
        header = {"kind": FILE_KIND, "version": FILE_VERSION, "digest": _digest(model, X, counted)}
        start = path / "start.npz"
        if start.exists():
            found = _read_arrays(start)["header"]
            if found["digest"] != header["digest"]:
                raise InputError(
                    "was made from other data or settings", file=path, expected="an empty folder for checkpoint"
                )
            return cls(path, found["entropy"], header)
        store = cls(path, entropy, header)
        with atomic_path(start, force=True) as temporary, temporary.open("wb") as stream:
            np.savez(stream, header=_json_array({**header, "entropy": int(entropy)}))
        return store

    def read(self, stage: str, fit: _Fit) -> dict[str, Any] | None:
        """Return what a finished stage made, and take over its calls and times; None when it has not finished."""
        if self.folder is None or not (self.folder / f"{stage}.npz").exists():
            return None
        arrays = _read_arrays(self.folder / f"{stage}.npz")
        if arrays["header"]["digest"] != self.header["digest"]:
            raise InputError(
                "was made from other data or settings", file=self.folder, expected="an empty folder for checkpoint"
            )
        fit.counted.calls.clear()
        fit.counted.calls.update(arrays["progress"]["calls"])
        fit.timings = dict(arrays["progress"]["timings"])
        return arrays

    def write(self, stage: str, fit: _Fit, arrays: dict[str, Any]) -> None:
        """Keep what a stage made; a file is there whole or not at all."""
        if self.folder is None:
            return
        progress = {"calls": fit.counted.calls, "timings": fit.timings}
        with atomic_path(self.folder / f"{stage}.npz", force=True) as temporary, temporary.open("wb") as stream:
            np.savez(stream, header=_json_array(self.header), progress=_json_array(progress), **arrays)


def _digest(model: MetricMST, X: Any, counted: CountedMetric) -> str:
    """Return a digest of what determines the result: settings, and the data as far as they are plain."""
    digest = hashlib.sha256()
    settings = {name: value for name, value in model.get_params(deep=False).items() if name not in INDIFFERENT}
    digest.update(json.dumps(_plain(settings), sort_keys=True).encode())
    for value in (settings["forest"], X):
        if isinstance(value, np.ndarray) and value.dtype.kind != "O":
            digest.update(np.ascontiguousarray(value).data)
        elif isinstance(value, list) and all(isinstance(item, str) for item in value):
            digest.update("\0".join(value).encode("utf-8", "surrogatepass"))
    n = len(counted)
    # Any other object is known by some of its distances.
    first, second = np.random.default_rng(n).integers(0, n, size=(2, FINGERPRINT_PAIRS))
    digest.update(f"{counted.name} {n}".encode())
    digest.update(counted.metric.pairs(first, second).tobytes())
    return digest.hexdigest()


@contextmanager
def _progress(wanted: bool, counted: CountedMetric, fit: _Fit) -> Iterator[Callable[[str], None]]:
    """Give a function that shows the stage: a bar of distance calls on a terminal, nothing elsewhere."""
    if not wanted or not sys.stderr.isatty():
        yield lambda stage: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    class Calls(Progress):
        """A bar that reads the number of calls each time it is drawn."""

        def get_renderables(self) -> Any:
            for task in self.tasks:
                task.total, task.completed = max(fit.planned, fit.counted.total), fit.counted.total
            yield from super().get_renderables()

    everything = fit.n * (fit.n - 1) // 2
    numbers = TextColumn(
        "{task.completed:,.0f} of about {task.total:,.0f} distances; all pairs are " + f"{everything:,}"
    )
    with Calls(
        TextColumn("{task.description}"),
        BarColumn(),
        numbers,
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task("start", total=fit.planned)
        yield lambda stage: bar.update(task, description=stage)
