from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from scipy.cluster.hierarchy import linkage as scipy_linkage
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.utils.estimator_checks import check_estimator

from assay.core.errors import InputError
from assay.mst._graph import prim_matrix
from assay.mst.estimator import MetricMST, resolve_bytes
from assay.mst.forest import build_forest
from assay.mst.metrics import CountedMetric, MetricWarning, make_metric
from tests.mst.oracles import is_spanning_tree


def points(n: int = 1500, d: int = 10, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) + 5 * rng.normal(size=(8, d))[rng.integers(0, 8, n)]


def fitted(X: object, **options: object) -> MetricMST:
    return MetricMST(**{"random_state": 0, "algorithm": "mfc", "certify": 50, "progress": False, **options}).fit(X)


def assert_same(first: MetricMST, second: MetricMST) -> None:
    for name in ("edges_", "weights_", "labels_", "representatives_"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    for name in (
        "alpha_",
        "beta_",
        "mst_lower_bound_",
        "mst_ratio_upper_",
        "gamma_",
        "forest_weights_",
        "n_distance_calls_",
    ):
        assert getattr(first, name) == getattr(second, name), name


def test_a_union_of_forests_is_near_the_minimum_with_few_distances() -> None:
    X = points(4000)
    optimum = prim_matrix(cdist(X, X))[1].sum()
    tree = fitted(X, n_forests=4, tol=0, certify=200)
    assert is_spanning_tree(tree.edges_, 4000)
    assert tree.forest_weights_ == sorted(tree.forest_weights_, reverse=True)
    assert optimum <= tree.total_weight_ <= 1.01 * optimum
    assert sum(tree.n_distance_calls_.values()) < 0.5 * 4000 * 3999 / 2
    assert tree.mst_lower_bound_ <= optimum
    assert tree.total_weight_ / optimum <= tree.mst_ratio_upper_ < 1.2
    assert (np.diff(tree.weights_) >= 0).all()
    assert (tree.edges_[:, 0] < tree.edges_[:, 1]).all()
    np.testing.assert_allclose(
        tree.weights_, np.linalg.norm(X[tree.edges_[:, 0]] - X[tree.edges_[:, 1]], axis=1), rtol=1e-12
    )
    assert not tree.exact_
    assert tree.gamma_ is None
    assert tree.certified_


def test_one_forest_keeps_every_edge_of_it() -> None:
    tree = fitted(points(500), n_forests=1, certify=0)
    kept = set(map(tuple, tree.edges_.tolist()))
    assert set(map(tuple, tree.forest_.edges.tolist())) <= kept
    assert tree.mst_ratio_upper_ is None
    assert tree.certificate_ is None
    np.testing.assert_array_equal(tree.labels_, tree.forest_.labels)
    assert tree.largest_component_ == tree.forest_.sizes.max()
    assert tree.n_components_ == 22


@pytest.mark.parametrize(
    "options", [{}, {"forest": "kcenter", "budget": "2t"}, {"mode": "exact_mfc", "max_component": 50}]
)
def test_the_same_seed_gives_the_same_tree_for_any_number_of_threads(options: dict) -> None:
    X = points(900)
    one = fitted(X, n_jobs=1, **options)
    for jobs in (2, 4):
        assert_same(one, fitted(X, n_jobs=jobs, block_bytes="8MB", **options))
    assert not np.array_equal(
        one.edges_, fitted(X, **{"random_state": 1, "forest": "random", **options}).edges_
    ) or options.get("forest")


def test_auto_makes_the_exact_tree_where_it_costs_no_more() -> None:
    small, flat, large = points(200), points(3000, d=3), points(3000)
    for X in (small, flat):
        tree = fitted(X, algorithm="auto")
        assert tree.exact_
        assert tree.mst_ratio_upper_ == tree.alpha_ == tree.beta_ == 1.0
        assert tree.forest_ is None
        assert tree.total_weight_ == pytest.approx(prim_matrix(cdist(X, X))[1].sum(), rel=1e-9)
    assert not fitted(large, algorithm="auto").exact_
    assert not fitted(small, algorithm="auto", forest=np.zeros(200)).exact_
    assert not fitted(small, algorithm="auto", budget=3).exact_
    assert fitted(large, algorithm="exact").exact_


def test_gamma_is_known_only_where_an_exact_tree_or_a_threshold_tells() -> None:
    X = points(600)
    tree = fitted(X, gamma="exact", n_forests=1)
    distances = cdist(X, X)
    edges, weights = prim_matrix(distances)
    inside = tree.forest_.labels[edges[:, 0]] == tree.forest_.labels[edges[:, 1]]
    assert tree.gamma_ == pytest.approx(tree.forest_.weight / weights[inside].sum(), rel=1e-12)
    assert tree.total_weight_ <= tree.alpha_ * tree.gamma_ * weights.sum() * (1 + 1e-12)
    assert tree.mst_lower_bound_ == pytest.approx(weights.sum(), rel=1e-12)
    near = fitted(X, forest="threshold", threshold=2.0, n_components=600, n_forests=1)
    assert near.gamma_ == 1.0
    assert near.total_weight_ <= near.alpha_ * weights.sum() * (1 + 1e-12)


def test_the_first_forest_can_come_from_anywhere() -> None:
    X = points(400)
    labels = KMeans(8, n_init=1, random_state=0).fit_predict(X)
    by_labels = fitted(X, forest=labels, n_forests=1)
    by_estimator = fitted(X, forest=KMeans(8, n_init=1, random_state=0), n_forests=1)
    by_forest = fitted(X, forest=build_forest(X, labels=labels), n_forests=1)
    np.testing.assert_array_equal(by_labels.edges_, by_estimator.edges_)
    np.testing.assert_array_equal(by_labels.edges_, by_forest.edges_)
    edges = by_labels.forest_.edges
    assert fitted(X, forest=edges, n_forests=1).total_weight_ == pytest.approx(by_labels.total_weight_, rel=1e-3)
    assert fitted(X, forest=labels, n_forests=3, tol=0).total_weight_ < by_labels.total_weight_
    with pytest.raises(InputError, match="the forest has 400 objects; expected 399"):
        fitted(X[1:], forest=build_forest(X, labels=labels))


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("algorithm", ["auto", "mfc", "exact"])
def test_few_objects(n: int, algorithm: str) -> None:
    tree = MetricMST(algorithm=algorithm, random_state=0).fit(np.arange(float(n))[:, None])
    assert tree.edges_.shape == (n - 1, 2)
    assert tree.total_weight_ == n - 1
    assert tree.linkage().shape == (n - 1, 4)
    assert tree.labels_.shape == (n,)
    assert tree.to_csr().shape == (n, n)


@pytest.mark.parametrize("forest", ["random", "kcenter"])
def test_equal_points_make_a_tree_of_zeros(forest: str) -> None:
    tree = fitted(np.ones((500, 3)), forest=forest)
    assert is_spanning_tree(tree.edges_, 500)
    assert tree.total_weight_ == 0.0
    assert tree.alpha_ == tree.beta_ == tree.mst_ratio_upper_ == 1.0
    matrix = tree.to_csr()
    assert matrix.nnz == 2 * 499


def test_strings_sets_matrices_and_functions() -> None:
    rng = np.random.default_rng(0)
    words = sorted({"".join(rng.choice(list("abcd"), size=int(rng.integers(2, 8)))) for _ in range(500)})
    tree = fitted(words, metric="levenshtein")
    assert is_spanning_tree(tree.edges_, len(words))
    assert (tree.weights_ == np.round(tree.weights_)).all()
    baskets = [set(rng.integers(0, 40, size=int(rng.integers(1, 9))).tolist()) for _ in range(300)]
    assert is_spanning_tree(fitted(baskets, metric="jaccard").edges_, 300)
    X = points(200)
    given = fitted(cdist(X, X), metric="precomputed", check_metric=100)
    by_function = fitted(list(X), metric=lambda a, b: float(np.sqrt(((a - b) ** 2).sum())))
    plain = fitted(X)
    for other in (given, by_function):
        assert other.total_weight_ == pytest.approx(plain.total_weight_, rel=1e-9)
    assert fitted(X, metric="minkowski", metric_params={"p": 3}).total_weight_ < plain.total_weight_


def test_what_breaks_the_triangle_inequality_is_not_certified() -> None:
    X = points(300, d=2)
    with pytest.warns(MetricWarning, match="sqeuclidean"):
        tree = fitted(X, metric="sqeuclidean")
    assert not tree.certified_
    # The nearest-neighbour bound does not need the inequality.
    assert tree.mst_lower_bound_ <= prim_matrix(cdist(X, X, "sqeuclidean"))[1].sum()
    with pytest.warns(MetricWarning, match="breaks the triangle inequality"):
        assert not fitted(cdist(X, X) ** 2, metric="precomputed").certified_
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fitted(cdist(X, X), metric="precomputed").certified_


def test_scaling_scales_and_permuting_does_not_change_the_exact_weights() -> None:
    X = points(300)
    rng = np.random.default_rng(0)
    exact = fitted(X, algorithm="exact")
    shuffled = fitted(X[rng.permutation(300)], algorithm="exact")
    np.testing.assert_allclose(shuffled.weights_, exact.weights_, rtol=1e-12)
    plain, scaled = fitted(X), fitted(4.0 * X)
    np.testing.assert_array_equal(plain.edges_, scaled.edges_)
    np.testing.assert_allclose(scaled.weights_, 4 * plain.weights_, rtol=1e-12)
    assert scaled.alpha_ == pytest.approx(plain.alpha_, rel=1e-12)
    assert scaled.mst_lower_bound_ == pytest.approx(4 * plain.mst_lower_bound_, rel=1e-9)


def test_calls_are_counted_by_stage_and_limited() -> None:
    X = points(800)
    tree = fitted(X, n_forests=1, certify=40)
    t, sizes = tree.n_components_, tree.forest_.sizes
    calls = tree.n_distance_calls_
    assert calls["forest"] == 800 * t
    assert calls["subtrees"] == (sizes * (sizes - 1) // 2).sum()
    assert calls["representatives"] == 800
    assert calls["completion"] == 800 * t - 800 + t * (t - 1) // 2
    assert calls["weights"] == t - 1
    assert 40 * 800 <= calls["certificate"] <= 41 * 800
    everything = sum(fitted(X, n_forests=5, tol=0, budget="4t").n_distance_calls_.values())
    for limit in range(sum(calls.values()), everything, everything // 6):
        limited = fitted(X, n_forests=5, tol=0, target_beta=1.0, max_distance_calls=limit)
        assert sum(limited.n_distance_calls_.values()) <= limit
    for limit in (1, 800 * t, 800 * t + 5):
        with pytest.raises(
            InputError, match=f"max_distance_calls is {limit}; expected about [0-9,]+ for the first tree"
        ):
            fitted(X, max_distance_calls=limit)


def test_mutual_reachability_gives_hdbscan() -> None:
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(200, 4)), 10 + rng.normal(size=(150, 4)), rng.uniform(-6, 16, size=(30, 4))])
    tree = fitted(X, min_samples=4)
    core = np.sort(cdist(X, X), axis=1)[:, 4]
    np.testing.assert_allclose(tree.core_distances_, core, rtol=1e-9)
    assert tree.core_exact_
    assert (tree.weights_ >= np.maximum(core[tree.edges_[:, 0]], core[tree.edges_[:, 1]]) * (1 - 1e-12)).all()
    labels, probabilities = tree.hdbscan(min_cluster_size=20)
    assert labels.max() == 1
    assert len(probabilities) == 380
    assert len(set(labels[:200][labels[:200] >= 0])) == 1
    assert tree.n_distance_calls_["core"] > 0


def test_conversions_keep_the_tree() -> None:
    X = points(200)
    tree = fitted(X, algorithm="exact", n_clusters=5)
    np.testing.assert_allclose(tree.linkage()[:, 2], scipy_linkage(X, "single")[:, 2], rtol=1e-12)
    assert len(set(tree.labels_.tolist())) == 5
    np.testing.assert_array_equal(tree.labels_, tree.cut(n_clusters=5))
    np.testing.assert_array_equal(tree.labels_, tree.fit_predict(X))
    matrix = tree.to_csr()
    assert matrix.sum() == pytest.approx(2 * tree.total_weight_)
    assert abs(matrix - matrix.T).max() == 0
    u, v = tree.edges_[3]
    assert matrix[u, v] == tree.weights_[3]
    graph = tree.to_networkx()
    assert nx.is_tree(graph)
    assert graph[int(u)][int(v)]["weight"] == tree.weights_[3]


def test_scikit_learns_own_checks() -> None:
    failed = [
        (result["check_name"], repr(result["exception"]))
        for result in check_estimator(MetricMST(progress=False), on_fail=None, on_skip=None)
        if result["status"] == "failed"
    ]
    assert failed == []
    model = MetricMST(n_forests=2, metric_params={"p": 3})
    assert clone(model).get_params() == model.get_params()


def test_feature_names_are_kept() -> None:
    pandas = pytest.importorskip("pandas")
    tree = fitted(pandas.DataFrame(points(100), columns=[f"x{i}" for i in range(10)]))
    assert tree.n_features_in_ == 10
    assert tree.feature_names_in_[0] == "x0"


def test_saving_and_loading_keeps_everything(tmp_path: Path) -> None:
    X = points(400)
    tree = fitted(X, min_samples=3, budget="1t")
    file = tree.save(tmp_path / "a tree.npz")
    loaded = MetricMST.load(file)
    assert_same(tree, loaded)
    assert loaded.get_params() == tree.get_params()
    assert loaded.timings_ == tree.timings_
    assert loaded.certificate_.improvable_upper == tree.certificate_.improvable_upper
    assert loaded.completion_.total_weight == tree.completion_.total_weight
    np.testing.assert_array_equal(loaded.core_distances_, tree.core_distances_)
    np.testing.assert_array_equal(loaded.linkage(), tree.linkage())
    assert loaded.n_features_in_ == 10
    exact = MetricMST.load(fitted(list(X[:9, 0]), metric=_gap, algorithm="exact").save(tmp_path / "b.npz"))
    assert exact.exact_
    assert exact.metric.endswith("_gap")


def _gap(a: float, b: float) -> float:
    return abs(a - b)


def test_foreign_files_are_refused_in_one_line(tmp_path: Path) -> None:
    file = fitted(points(60)).save(tmp_path / "tree.npz")
    with pytest.raises(InputError, match=r"tree\.npz"):
        fitted(points(60)).save(file)
    fitted(points(60)).save(file, force=True)
    arrays = dict(np.load(file))
    text = arrays["header"].tobytes().decode()
    for name, content in (
        ("version", text.replace('"version": 1', '"version": 99')),
        ("kind", text.replace("assay.mst.MetricMST", "assay.other")),
        ("broken", text[:-5]),
    ):
        np.savez(tmp_path / f"{name}.npz", **{**arrays, "header": np.frombuffer(content.encode(), dtype=np.uint8)})
    (tmp_path / "text.npz").write_text("u,v,weight\n")
    (tmp_path / "cut.npz").write_bytes(file.read_bytes()[:300])
    np.savez(tmp_path / "points.npz", X=np.ones((3, 2)))
    np.save(tmp_path / "plain.npy", np.ones(3))
    for name, message in (
        ("version.npz", "has version 99; expected version 1"),
        ("kind.npz", "holds 'assay.other'"),
        ("broken.npz", "is no saved spanning tree"),
        ("text.npz", "is no saved spanning tree"),
        ("cut.npz", "is no saved spanning tree"),
        ("points.npz", "is no saved spanning tree"),
        ("plain.npy", r"unknown ending '\.npy'; expected \.npz"),
        ("missing.npz", "no such file"),
    ):
        with pytest.raises(InputError, match=message) as error:
            MetricMST.load(tmp_path / name)
        assert "\n" not in str(error.value)


STOPPED = """
import os, sys
import numpy as np
from tests.mst.test_estimator import Chebyshev, stopped_options
from assay.mst import MetricMST

distance = Chebyshev(last=int(sys.argv[2]), end=lambda: os.kill(os.getpid(), 9))
MetricMST(distance, checkpoint=sys.argv[1], **stopped_options).fit(list(np.random.default_rng(0).normal(size=(120, 3))))
"""

stopped_options = {
    "algorithm": "mfc",
    "n_forests": 3,
    "tol": 0,
    "certify": 20,
    "check_metric": 0,
    "random_state": 7,
    "progress": False,
}


class Chebyshev:
    """A distance that ends everything at its last evaluation."""

    def __init__(self, *, last: int = -1, end: object = None) -> None:
        self.evaluations, self.last, self.end = 0, last, end

    def __call__(self, a: np.ndarray, b: np.ndarray) -> float:
        self.evaluations += 1
        if self.evaluations == self.last:
            self.end()  # type: ignore[operator]
        return float(np.abs(a - b).max())


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("killed", [False, True])
def test_a_stopped_fit_goes_on_to_the_identical_tree(tmp_path: Path, killed: bool) -> None:
    X = list(np.random.default_rng(0).normal(size=(120, 3)))
    counting = Chebyshev()
    whole = MetricMST(counting, **stopped_options).fit(X)
    folder = tmp_path / "stages"
    # In the second of three forests: two thirds of the evaluations, with the checkpoint's fingerprint before them.
    last = counting.evaluations * 2 // 3
    if killed:
        command = [sys.executable, "-c", STOPPED, str(folder), str(last)]
        root = Path(__file__).parents[2]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "src")])}
        assert subprocess.run(command, env=environment, check=False).returncode == -9
    else:
        with pytest.raises(KeyboardInterrupt):
            MetricMST(Chebyshev(last=last, end=interrupt), checkpoint=folder, **stopped_options).fit(X)
    finished = {file.name for file in folder.iterdir() if not file.name.startswith(".")}
    assert "tree-0.npz" in finished
    assert "certificate.npz" not in finished
    going_on = Chebyshev()
    resumed = MetricMST(going_on, checkpoint=folder, n_jobs=2, **stopped_options).fit(X)
    assert going_on.evaluations < 0.75 * counting.evaluations
    assert_same(whole, resumed)
    # Once more: nothing is left to do but to recognise the data.
    recognising = Chebyshev()
    assert_same(whole, MetricMST(recognising, checkpoint=folder, **stopped_options).fit(X))
    assert recognising.evaluations <= 512


def test_a_checkpoint_of_other_data_or_settings_is_refused(tmp_path: Path) -> None:
    X = points(100)
    fitted(X, checkpoint=tmp_path / "a")
    for other, options in ((X + 1e-9, {}), (X, {"random_state": 1}), (X[:90], {}), (X, {"certify": 51})):
        with pytest.raises(InputError, match="was made from other data or settings"):
            fitted(other, checkpoint=tmp_path / "a", **options)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file; expected a folder"):
        fitted(X, checkpoint=tmp_path / "file")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"algorithm": "fast"}, "algorithm is 'fast'"),
        ({"forest": "tree"}, "forest is 'tree'"),
        ({"n_forests": 0}, "n_forests is 0; expected a whole number >= 1"),
        ({"n_components": 101}, "n_components is 101; .* from 1 to 100"),
        ({"budget": "lots"}, "budget is 'lots'"),
        ({"allocation": "even"}, "allocation is 'even'"),
        ({"first": "last"}, "first is 'last'"),
        ({"mode": "best"}, "mode is 'best'"),
        ({"ci": "t"}, "ci is 't'"),
        ({"certify": 1}, "certify is 1"),
        ({"certify": -1}, "certify is -1"),
        ({"confidence": 1}, "confidence is 1"),
        ({"gamma": 1}, "gamma is 1"),
        ({"tol": -1}, "tol is -1"),
        ({"n_jobs": 0}, "n_jobs is 0"),
        ({"random_state": -1}, "random_state is -1"),
        ({"random_state": "a"}, "random_state is 'a'"),
        ({"confidence": "a"}, "confidence is 'a'; expected a number between 0 and 1"),
        ({"tol": "a"}, "tol is 'a'"),
        ({"extra_edge": "no"}, "extra_edge is 'no'; expected True or False"),
        ({"progress": 1}, "progress is 1; expected True or False"),
        ({"threshold": 1.0}, 'threshold is 1.0 with another forest; expected forest="threshold"'),
        ({"forest": "threshold"}, "threshold is None; expected a distance >= 0"),
        ({"block_bytes": None}, "block_bytes is None"),
        ({"checkpoint": 5}, "checkpoint is 5; expected the name of a folder"),
        ({"checkpoint": "/proc/x"}, "/proc/x: .*; expected a folder for checkpoint that can be made"),
        ({"max_distance_calls": 0}, "max_distance_calls is 0"),
        ({"block_bytes": "64 parsecs"}, "block_bytes is '64 parsecs'"),
        ({"target_alpha": 0.9}, "target_alpha is 0.9"),
        ({"min_samples": 100}, "min_samples is 100"),
        ({"n_clusters": 101}, "n_clusters is 101"),
        ({"metric": "nearness"}, "metric is 'nearness'"),
        ({"forest": [0, 1, 1]}, r"labels have shape \(3,\)"),
        ({"forest": [[0, 1], [1, 0]]}, r"edge 1 \(1, 0\) closes a cycle"),
    ],
)
def test_bad_settings_are_named_in_one_line(options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        fitted(points(100), **options)
    assert "\n" not in str(error.value)


def test_bad_objects_are_named() -> None:
    X = points(50)
    X[7, 2] = np.nan
    with pytest.raises(InputError, match="7"):
        fitted(X)
    with pytest.raises(InputError, match="0 sample"):
        fitted(np.empty((0, 3)))

    def negative(a: float, b: float) -> float:
        return -1.0

    with pytest.raises(InputError, match=r"the distance of objects \d+ and \d+ is -1"):
        fitted([1.0, 2.0, 3.0, 4.0], metric=negative, check_metric=0)


@pytest.mark.parametrize("make", [np.random.default_rng, np.random.RandomState])
def test_a_generator_draws_the_seed(make: Callable[[int], Any]) -> None:
    X = points(200)
    first, again = fitted(X, random_state=make(3)), fitted(X, random_state=make(3))
    assert_same(first, again)
    source = make(3)
    assert_same(fitted(X, random_state=source), first)
    assert not np.array_equal(fitted(X, random_state=source).labels_, first.labels_)


def test_ctrl_c_in_compiled_code_is_an_interruption() -> None:
    """CPython raises a SystemError from the KeyboardInterrupt that a compiled function returned with."""

    def stopped(a: float, b: float) -> float:
        raise SystemError("returned a result with an exception set") from KeyboardInterrupt()

    for algorithm in ("exact", "mfc"):
        with pytest.raises(KeyboardInterrupt):
            fitted([1.0, 2.0, 3.0, 4.0, 5.0], metric=stopped, check_metric=0, algorithm=algorithm, checkpoint=None)

    def broken(a: float, b: float) -> float:
        raise SystemError("unknown opcode")

    with pytest.raises(SystemError, match="unknown opcode"):
        fitted([1.0, 2.0, 3.0, 4.0], metric=broken, check_metric=0)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fitted(points(120), first="center").save(tmp_path_factory.mktemp("saved") / "tree.npz")


def _without_last(values: np.ndarray) -> np.ndarray:
    return values[:-1]


def _spoiled(values: np.ndarray) -> np.ndarray:
    changed = values.copy()
    changed.flat[0] = np.nan if values.dtype.kind == "f" else 10**6
    return changed


def _heavier(values: np.ndarray) -> np.ndarray:
    return values * 1.001


def _repeated(values: np.ndarray) -> np.ndarray:
    return np.concatenate([values[:1], values[:1], values[2:]])


@pytest.mark.parametrize(
    ("name", "change"),
    [
        *((name, _without_last) for name in ("edges", "weights", "labels", "forest_labels", "forest_edges")),
        *((name, _without_last) for name in ("forest_weights", "forest_centers", "completion_edges")),
        *((name, _without_last) for name in ("completion_weights", "representatives", "representative_counts")),
        *((name, _spoiled) for name in ("edges", "weights", "forest_labels", "forest_edges", "forest_weights")),
        *((name, _spoiled) for name in ("completion_edges", "representatives", "component_costs", "forest_centers")),
        ("weights", _heavier),
        *((name, _repeated) for name in ("edges", "forest_edges", "completion_edges")),
        ("edges", lambda edges: edges.astype(np.float64)),
    ],
)
def test_a_saved_tree_whose_parts_do_not_fit_is_refused(
    saved: Path, tmp_path: Path, name: str, change: Callable[[np.ndarray], np.ndarray]
) -> None:
    with np.load(saved) as archive:
        arrays = dict(archive)
    np.savez(tmp_path / "changed.npz", **{**arrays, name: change(arrays[name])})
    with pytest.raises(InputError, match=r"changed.npz: damaged: ") as refusal:
        MetricMST.load(tmp_path / "changed.npz")
    assert "\n" not in str(refusal.value)
    np.savez(tmp_path / "same.npz", **arrays)
    assert MetricMST.load(tmp_path / "same.npz").total_weight_ == MetricMST.load(saved).total_weight_


@pytest.mark.parametrize(
    "change",
    [
        {"total_weight_": 1.0},
        {"n_components_": 3},
        {"largest_component_": 1},
        {"alpha_": 0.5},
        {"mst_ratio_upper_": 1.0},
        {"exact_": None, "n_components_": None},
    ],
)
def test_a_saved_tree_with_a_wrong_header_is_refused(saved: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    with np.load(saved) as archive:
        arrays = dict(archive)
    header = json.loads(arrays["header"].tobytes())
    header["facts"].update(change)
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    np.savez(tmp_path / "changed.npz", **arrays)
    with pytest.raises(InputError, match=r"changed.npz: damaged: "):
        MetricMST.load(tmp_path / "changed.npz")


def test_names_of_saved_trees(saved: Path, tmp_path: Path) -> None:
    model = MetricMST.load(saved)
    with pytest.raises(InputError, match=r"m.foo: unknown ending '.foo'; expected .npz"):
        model.save(tmp_path / "m.foo")
    with pytest.raises(InputError, match="exists already; expected another name, or force=True"):
        model.save(saved)
    with pytest.raises(InputError, match="path is 5"):
        model.save(5)
    link, target = tmp_path / "link.npz", tmp_path / "target.npz"
    target.write_bytes(b"old")
    link.symlink_to(target)
    model.save(link, force=True)
    assert link.is_symlink()
    assert MetricMST.load(target).total_weight_ == model.total_weight_


def test_sizes_of_blocks() -> None:
    assert [resolve_bytes(size) for size in (8_000_000, "64MB", "8 MiB", "0.5GB")] == [
        8_000_000,
        64_000_000,
        8 << 20,
        500_000_000,
    ]


def test_progress_is_silent_without_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    MetricMST(random_state=0).fit(points(400))
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""


def test_progress_shows_calls_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("FORCE_COLOR", "1")
    fitted(points(400), progress=True)
    shown = capsys.readouterr().err
    assert "distances; all pairs are 79,800" in shown


def test_counted_metrics_pass_through() -> None:
    X = points(300)
    assert_same(fitted(X), fitted(make_metric(X)))
    assert CountedMetric(make_metric(X)).total == 0
