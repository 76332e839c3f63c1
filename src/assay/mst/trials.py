"""One trial of the study: an arm on a case, measured.

A case says what kind of trial it is: build a tree of some objects, spend budgets of representatives on one forest, try
many small random metrics, solve the paper's worst instance, repeat the sampled certificate, or compare dendrograms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from io import BytesIO
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import InputError
from assay.core.measure import peak_memory, stopwatch
from assay.core.study import Trial
from assay.mst import baselines, datasets
from assay.mst._graph import RootedTree, components, minimum_spanning_forest
from assay.mst.certificate import certify
from assay.mst.completion import complete, complete_forest, exact_mfc
from assay.mst.dendrogram import hdbscan
from assay.mst.estimator import MetricMST
from assay.mst.exact import exact_mst
from assay.mst.forest import Forest, build_forest
from assay.mst.metrics import CountedMetric, Metric, MutualReachability, core_distances, make_metric
from assay.mst.representatives import Prefixes, allocate_dp, allocate_fixed, allocate_greedy, allocate_hull

__all__ = ["run_trial"]

Edges = NDArray[np.int64]
Measurements = dict[str, float]

WARM_UP = 300
"""Objects on which an arm runs once before it is measured, so that no compilation is timed."""

ROUNDING = 1e-9
"""Relative difference of two weights that the order of summation explains."""

MULTIPLES = (0, 2, 4, 10, 20)
"""Budgets, in components, at which trees are built; the paper's figures are for these and 38."""

STALL = (2, 38)
"""Budgets between which the paper finds that greedy allocation stalls."""

SEARCHED = 40
"""Components of a worst-case instance up to which its best completion is searched for as well as taken from the closed
form: with equal distances everywhere the search is slow."""

CLUSTER_SIZE = 50
"""HDBSCAN's smallest cluster, where clusters of two trees are compared."""

CORE = 10
"""The neighbour whose distance is an object's core distance, where clusters of two trees are compared."""

PATHS_FROM = 200
"""Objects whose cophenetic distances to all others are compared."""


def run_trial(trial: Trial) -> Measurements:
    """Run one arm on one case with one seed.

    Parameters
    ----------
    trial : Trial
        ``case_settings["kind"]`` is one of ``tree``, ``allocation``, ``random-metrics``, ``tight``, ``certificate`` and
        ``dendrogram``. A user's own arm builds a tree of the case's objects whatever the kind.

    Returns
    -------
    dict of str to float
        See the study's `measures`.
    """
    if trial.function is not None:
        return _tree(trial)
    return _KINDS[trial.case_settings["kind"]](trial)


@dataclass
class _Built:
    """A tree that an arm built: its edges or merge heights, and what else the arm says about it."""

    edges: Edges | None = None
    heights: NDArray[np.float64] | None = None
    calls: Mapping[str, int] = field(default_factory=dict)
    facts: Measurements = field(default_factory=dict)


def _objects(trial: Trial) -> tuple[Any, str]:
    """Make the objects of a case, the same for every arm, and name their metric."""
    settings, rng = trial.case_settings, trial.rng("objects")
    if settings["kind"] == "random-metrics":
        return datasets.random_metric(settings["metric"], settings["largest"], rng=rng), "precomputed"
    if settings["kind"] == "tight":
        return datasets.tight_instance(settings["least_p"], settings.get("ell", 3), settings.get("epsilon", 0.1))[
            0
        ], "precomputed"
    name = settings["data"]
    if name == "gaussian":
        return datasets.gaussian_mixture(settings["n"], settings["d"], rng=rng), "euclidean"
    if name == "uniform":
        return rng.random((settings["n"], settings["d"])), "euclidean"
    objects, metric = datasets.load(name)
    return datasets.subsample(objects, settings.get("n"), rng=rng), metric


def _tree(trial: Trial) -> Measurements:
    """Build a tree of the objects, and measure its weight, its time and its distance calls."""
    objects, metric = _objects(trial)
    few = objects[:WARM_UP, :WARM_UP] if metric == "precomputed" else objects[:WARM_UP]
    _build(trial, few, metric)
    with ExitStack() as measured:
        peak = measured.enter_context(peak_memory()) if trial.case_settings.get("memory") else None
        watch = measured.enter_context(stopwatch())
        built = _build(trial, objects, metric)
    judge = make_metric(objects, metric)
    n = len(judge)
    if built.heights is not None:
        weight = float(built.heights.sum())
    else:
        edges = _require_spanning_tree(built.edges, n)
        weight = float(judge.pairs(edges[:, 0].copy(), edges[:, 1].copy()).sum())
    found = {"n": float(n), "weight": weight, "seconds": watch.seconds, "cpu_seconds": watch.cpu_seconds, **built.facts}
    if built.calls:
        found["calls"] = float(sum(built.calls.values()))
        found["calls_share"] = found["calls"] / _pairs(n)
    if peak is not None:
        found["input_bytes"] = float(objects.nbytes)
        found["total_bytes"] = found["input_bytes"] + peak.bytes
        found["memory_used"] = found["total_bytes"] / (3 * found["input_bytes"] + 100e6)
    return found


def _build(trial: Trial, objects: Any, metric: str) -> _Built:
    if trial.function is not None:
        return _Built(edges=np.asarray(trial.function(objects, metric, trial.rng("tree"))))
    make: Callable[[Trial, Any, str], _Built] = _MAKERS[trial.arm_settings["make"]]
    return make(trial, objects, metric)


def _require_spanning_tree(edges: Any, n: int) -> Edges:
    if edges.shape != (n - 1, 2) or edges.dtype.kind not in "iu":
        raise InputError(
            f"the arm returned {edges.dtype} of shape {edges.shape}", expected=f"whole numbers ({n - 1}, 2)"
        )
    if n > 1 and not (edges.min() >= 0 and edges.max() < n):
        raise InputError("the arm returned an edge with an end out of range", expected=f"objects 0 to {n - 1}")
    parts = int(components(n, np.ascontiguousarray(edges, dtype=np.int64)).max()) + 1
    if parts > 1:
        raise InputError(f"the arm's edges leave {parts} components", expected="a spanning tree")
    return np.ascontiguousarray(edges, dtype=np.int64)


def _estimator(trial: Trial, objects: Any, metric: str) -> _Built:
    """The library's estimator, with the arm's settings."""
    settings = {"certify": 0, "tol": 0.0, "algorithm": "mfc", **trial.arm_settings.get("settings", {})}
    seed = int(trial.rng("tree").integers(2**31))
    model = MetricMST(metric, random_state=seed, n_jobs=trial.threads, progress=False, **settings).fit(objects)
    facts = {"exact": float(model.exact_), "alpha": model.alpha_, "beta": model.beta_}
    if model.forest_ is not None:
        facts["t"] = float(model.n_components_)
        facts["largest_share"] = model.largest_component_ / len(model.labels_)
        facts["forest_weight"] = model.forest_.weight
        facts["completion_share"] = model.n_distance_calls_["completion"] / _pairs(len(model.labels_))
    if model.mst_ratio_upper_ is not None:
        facts["mst_ratio_upper"] = model.mst_ratio_upper_
    return _Built(edges=model.edges_, calls=model.n_distance_calls_, facts=facts)


def _pairs(n: int) -> float:
    return max(1.0, n * (n - 1) / 2)


def _paper(trial: Trial, objects: Any, metric: str) -> _Built:
    """The paper's pipeline: a k-center forest with exact subtrees, completed through representatives."""
    counted = CountedMetric(make_metric(objects, metric))
    forest = _paper_forest(counted)
    settings = dict(trial.arm_settings.get("settings", {}))
    completion = baselines.complete_paper(counted, forest, **settings)
    facts = {
        "t": float(forest.n_components),
        "alpha": completion.alpha,
        "beta": completion.beta,
        "forest_weight": forest.weight,
        "largest_share": forest.largest_component / forest.n,
        "completion_share": counted.calls["completion"] / _pairs(forest.n),
    }
    return _Built(edges=completion.edges, calls=counted.calls, facts=facts)


def _baseline(trial: Trial, objects: Any, metric: str) -> _Built:
    counted, rng = CountedMetric(make_metric(objects, metric)), trial.rng("tree")
    name = trial.arm_settings["baseline"]
    if name == "exact":
        edges = baselines.exact_tree(counted)
    elif name == "neighbour-graph":
        edges = baselines.join_neighbour_graph(counted, objects, rng=rng)
    elif name == "sample-attach":
        edges = baselines.attach_to_sample(counted, rng=rng)
    else:
        edges = baselines.random_tree(counted, rng=rng)
    return _Built(edges=edges, calls=counted.calls)


def _peer(trial: Trial, objects: Any, metric: str) -> _Built:
    tree = baselines.peer(trial.arm_settings["peer"], objects, metric)
    return _Built(edges=tree.edges, heights=tree.heights)


def _paper_forest(counted: CountedMetric, *, n_components: int | str = "sqrt") -> Forest:
    return build_forest(counted, forest="kcenter", n_components=n_components, max_component=len(counted))


class _Inputs:
    """A trial's objects, before they are made; equal for the arms of a case and seed, so that a cache knows them."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.share = float(trial.case_settings.get("t_share", 1.0))
        self._key = (trial.case, trial.seed, *sorted(trial.case_settings.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Inputs) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@dataclass(frozen=True)
class _Ground:
    """What the arms of an allocation case share: forest, farthest-first traversals and the best completion."""

    metric: Metric
    forest: Forest
    prefixes: Prefixes
    optimum: float


@lru_cache(maxsize=2)
def _ground(inputs: _Inputs) -> _Ground:
    metric = make_metric(*_objects(inputs.trial))
    counted = CountedMetric(metric)
    forest = _paper_forest(counted, n_components=_components(inputs.share, len(counted)))
    prefixes = Prefixes(counted, forest, rng=np.random.default_rng(0))
    prefixes.grow(np.minimum(STALL[1] * forest.n_components, forest.sizes - 1))
    return _Ground(metric, forest, prefixes, exact_mfc(counted, forest=forest).total_weight)


def _components(share: float, n: int) -> int:
    """A share of the paper's number of components, the integer square root of n."""
    return max(1, int(math.isqrt(n) * share))


def _allocation(trial: Trial) -> Measurements:
    """Spend growing budgets on one forest, by the arm's allocation, and compare with the best completion."""
    ground = _ground(_Inputs(trial))
    forest, allocation = ground.forest, trial.arm_settings["settings"]["allocation"]
    n, t = forest.n, forest.n_components
    found: Measurements = {
        "n": float(n),
        "t": float(t),
        "forest_weight": forest.weight,
        "completion_weight": ground.optimum - forest.weight,
        "largest_share": forest.largest_component / n,
        "optimum_calls": (n * n - float((forest.sizes.astype(np.float64) ** 2).sum())) / 2,
    }
    rows = []
    for multiple in MULTIPLES:
        counted = CountedMetric(ground.metric)
        tree = complete(
            counted, forest, budget=multiple * t, allocation=allocation, extra_edge=False, prefixes=ground.prefixes
        )
        explored = _explored(ground.prefixes, tree.representative_counts, multiple * t, allocation=allocation)
        row = {
            "ratio": tree.total_weight / ground.optimum,
            "alpha": tree.alpha,
            "beta": tree.beta,
            "calls": float(explored + counted.calls["completion"]),
        }
        rows.append(row)
        found |= {f"{name}_{multiple}": value for name, value in row.items()}
        found[f"alpha_excess_{multiple}"] = tree.alpha - 1
        if multiple == 0:
            found["completion_share"] = counted.calls["completion"] / _pairs(n)
            found["official_calls_0"] = _official_calls(forest, tree.representative_counts)
    ratios = [row["ratio"] for row in rows]
    found["alpha_slack"] = min(row["alpha"] - row["ratio"] for row in rows)
    found["beta_slack"] = min(row["alpha"] - row["beta"] for row in rows)
    found["largest_rise"] = max(later - earlier for earlier, later in pairwise(ratios))
    if ratios[0] > 1:
        found["removed_2"] = (ratios[0] - ratios[1]) / (ratios[0] - 1)
    found["optimum_over_10"] = found["optimum_calls"] / found["calls_10"]
    found |= _stall(ground, allocation)
    if allocation == "dp" and trial.seed == 0:
        trial.keep("budgets.svg", _budget_picture(rows, title=trial.case))
    return found


def _official_calls(forest: Forest, representatives: NDArray[np.int64]) -> float:
    """Distance calls of a completion in the official code: i < t - 1 against j > 0, both ways, self included."""
    size, count = forest.sizes.astype(np.float64), representatives.astype(np.float64)
    return float(size[:-1].sum() * count[1:].sum() + count[:-1].sum() * size[1:].sum())


def _explored(prefixes: Prefixes, counts: NDArray[np.int64], budget: int, *, allocation: str) -> int:
    """Distances for the representatives, had they been explored for this budget alone: one a member and step."""
    sizes, known = prefixes.forest.sizes, prefixes.explored() + 1
    if allocation == "greedy" and budget:
        steps = counts + 1
    elif allocation == "fixed" or not budget:
        steps = np.full_like(counts, 1 + budget // len(counts))
    else:
        steps = np.full_like(counts, 1 + budget)
    return int((sizes * np.minimum(steps, known)).sum())


def _stall(ground: _Ground, allocation: str) -> Measurements:
    """Compare allocations on the same farthest-first costs, which alone decide alpha."""
    forest, prefixes = ground.forest, ground.prefixes
    t = forest.n_components

    def excess(allocate: Callable[..., NDArray[np.int64]], multiple: int) -> float:
        return float(prefixes.component_costs(allocate(prefixes.costs, multiple * t)).sum()) / forest.weight

    spend = {"dp": allocate_dp, "greedy": allocate_greedy, "fixed": allocate_fixed, "hull": allocate_hull}
    mine = {multiple: excess(spend[allocation], multiple) for multiple in (*MULTIPLES[1:], STALL[1])}
    before, after = mine[STALL[0]], mine[STALL[1]]
    lead = min(
        min(excess(allocate_greedy, multiple), excess(allocate_fixed, multiple)) - value
        for multiple, value in mine.items()
    )
    return {
        f"alpha_{STALL[1]}": 1 + after,
        "alpha_drop": 1 - after / before,
        "alpha_fall": before / after if after else math.inf,
        "alpha_lead": lead,
    }


def _budget_picture(rows: list[Measurements], *, title: str) -> bytes:
    from assay.mst.plots import plot_budgets

    stream = BytesIO()
    plot_budgets(rows, title=title).savefig(stream, format="svg", bbox_inches="tight")
    return stream.getvalue()


def _random_metrics(trial: Trial) -> Measurements:
    """Complete random forests of small random metrics, and look for violations of every promise.

    Each metric has a random partition with random spanning trees (or exact ones, or a k-center's), and one
    representative a component.
    """
    settings, rng = trial.case_settings, trial.rng("objects")
    worst = {"ratio_over_alpha": 0.0, "largest_alpha": 0.0, "mst_ratio_over_bound": 0.0, "beta_over_alpha": 0.0}
    violations = 0
    for _ in range(settings["metrics"]):
        n = int(rng.integers(4, settings["largest"] + 1))
        distances = datasets.random_metric(settings["metric"], n, rng=rng)
        counted = CountedMetric(make_metric(distances, "precomputed"))
        forest = _random_forest(counted, rng)
        completion = complete_forest(counted, forest=forest, first="random", extra_edge=False, random_state=rng)
        optimum, mst, gamma = _brute_force(distances, forest)
        ratio, mst_ratio = _over(completion.total_weight, optimum), _over(completion.total_weight, mst)
        kept = {
            "ratio_over_alpha": _over(ratio, completion.alpha),
            "largest_alpha": completion.alpha,
            "mst_ratio_over_bound": _over(mst_ratio, completion.alpha * gamma),
            "beta_over_alpha": _over(completion.beta, completion.alpha),
        }
        exceeds = (
            kept["ratio_over_alpha"] > 1 + ROUNDING
            or (completion.alpha > 2 + ROUNDING and forest.weight > 0)
            or kept["mst_ratio_over_bound"] > 1 + ROUNDING
            or kept["beta_over_alpha"] > 1 + ROUNDING
            or ratio > completion.beta * (1 + ROUNDING)
        )
        violations += exceeds
        worst = {name: max(worst[name], value) for name, value in kept.items()}
    return {"metrics": float(settings["metrics"]), "violations": float(violations), **worst}


def _random_forest(counted: CountedMetric, rng: np.random.Generator) -> Forest:
    n = len(counted)
    kind = rng.integers(3)
    t = int(rng.integers(1, max(2, n // 2)))
    if kind == 0:
        return build_forest(counted, forest="kcenter", n_components=t)
    labels = rng.integers(0, t, size=n)
    if kind == 1:
        return build_forest(counted, labels=labels)
    edges = []
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        edges += [(int(members[rng.integers(place)]), int(members[place])) for place in range(1, len(members))]
    return build_forest(counted, edges=np.array(edges, dtype=np.int64).reshape(-1, 2))


def _brute_force(distances: NDArray[np.float64], forest: Forest) -> tuple[float, float, float]:
    """The best completion's weight, the minimum spanning tree's, and gamma, from all pairs.

    Among equal distances, pairs inside components come first, so that the tree found is the one for which gamma is
    defined: of all minimum spanning trees the one with the most weight inside.
    """
    n = forest.n
    first, second = np.triu_indices(n, 1)
    pairs, lengths = np.column_stack([first, second]).astype(np.int64), distances[first, second]
    inside = forest.labels[first] == forest.labels[second]
    order = np.lexsort((~inside, lengths))
    kept = order[minimum_spanning_forest(n, pairs[order], lengths[order])]
    mst, within = float(lengths[kept].sum()), float(lengths[kept][inside[kept]].sum())
    joined = np.concatenate([forest.edges, pairs])
    added = minimum_spanning_forest(n, joined, np.concatenate([np.full(len(forest.edges), -1.0), lengths]))
    optimum = float(np.concatenate([forest.weights, lengths])[added].sum())
    return optimum, mst, _over(forest.weight, within)


def _over(value: float, whole: float) -> float:
    """A ratio that is 1 where both are nothing."""
    if whole > 0:
        return value / whole
    return 1.0 if value <= 0 else math.inf


def _tight(trial: Trial) -> Measurements:
    """Complete instances that are the worst there are, and compare with the closed forms of Theorem 3."""
    settings, rng = trial.case_settings, trial.rng("objects")
    ratios, errors = [], []
    for _ in range(settings["instances"]):
        p = int(rng.integers(settings["least_p"], settings["most_p"] + 1))
        ell, epsilon = (
            settings.get("ell") or int(rng.integers(1, 6)),
            settings.get("epsilon") or float(rng.uniform(0.001, 1)),
        )
        distances, labels = datasets.tight_instance(p, ell, epsilon)
        counted = CountedMetric(make_metric(distances, "precomputed"))
        completion = complete_forest(counted, labels=labels)
        optimum = (1 + ell * epsilon) * p - epsilon
        expected = ((2 + ell * epsilon - epsilon) * p - 1) / optimum
        alpha = 1 + p / (p * ((ell - 1) * epsilon + 1))
        ratios.append(completion.total_weight / optimum)
        errors += [abs(ratios[-1] - expected), abs(completion.alpha - alpha)]
        if p <= SEARCHED:
            errors.append(abs(exact_mfc(counted, forest=completion.forest).total_weight / optimum - 1))
    return {"instances": float(len(ratios)), "ratio": max(ratios), "error": max(errors)}


def _certificate(trial: Trial) -> Measurements:
    """Sample the certificate of one tree many times, and count how often its bound is above the truth."""
    settings = trial.case_settings
    objects, metric = _objects(trial)
    built = _build(trial, objects, metric)
    judge = make_metric(objects, metric)
    n = len(judge)
    # Every repetition looks at rows of the same matrix.
    counted = CountedMetric(make_metric(judge.square(slice(0, n)), "precomputed"))
    exact = float(exact_mst(counted)[1].sum())
    edges = _require_spanning_tree(built.edges, n)
    weights = counted.pairs(edges[:, 0].copy(), edges[:, 1].copy())
    weight, rng = float(weights.sum()), trial.rng("certificate")
    found: Measurements = {"n": float(n), "mst_ratio": weight / exact, "repetitions": float(settings["repetitions"])}
    for ci in ("normal", "bernstein"):
        draws = [
            certify(counted, edges, weights, rows=settings["rows"], ci=ci, rng=rng)
            for _ in range(settings["repetitions"])
        ]
        suffix = "" if ci == "normal" else f"_{ci}"
        found[f"coverage{suffix}"] = float(np.mean([draw.mst_lower_bound <= exact * (1 + ROUNDING) for draw in draws]))
        found[f"mst_ratio_upper{suffix}"] = float(np.median([_over(weight, draw.mst_lower_bound) for draw in draws]))
    found["improvable"] = float(np.mean([draw.improvable_rate for draw in draws]))
    return found


def _dendrogram(trial: Trial) -> Measurements:
    """Compare dendrogram and clusters of a tree with those of the exact tree, for HDBSCAN's mutual reachability."""
    from sklearn.metrics import adjusted_rand_score

    objects, metric = _objects(trial)
    plain = make_metric(objects, metric)
    judge = MutualReachability(plain, core_distances(plain, CORE))
    n = len(judge)
    trees = []
    for edges in (_require_spanning_tree(_build(trial, judge, metric).edges, n), exact_mst(judge)[0]):
        trees.append((edges, judge.pairs(edges[:, 0].copy(), edges[:, 1].copy())))
    sample = trial.rng("paths").choice(n, size=min(n, PATHS_FROM), replace=False)
    paths = [_path_heights(n, edges, weights, sample) for edges, weights in trees]
    labels = [hdbscan(edges, weights, min_cluster_size=CLUSTER_SIZE)[0] for edges, weights in trees]
    heights = [np.sort(weights) for _, weights in trees]
    return {
        "n": float(n),
        "mst_ratio": float(heights[0].sum() / heights[1].sum()),
        "cophenetic_correlation": float(np.corrcoef(paths[0], paths[1])[0, 1]),
        "adjusted_rand": float(adjusted_rand_score(labels[0], labels[1])),
        "clusters": float(labels[1].max() + 1),
        "height_error": float(np.abs(heights[0] - heights[1]).max() / heights[1].max()),
    }


def _path_heights(n: int, edges: Edges, weights: NDArray[np.float64], sample: NDArray[np.int64]) -> NDArray[np.float64]:
    tree = RootedTree(n, edges, weights)
    rows = [np.delete(tree.heaviest_from(vertex), vertex) for vertex in sample.tolist()]
    return np.concatenate(rows)


_KINDS: Mapping[str, Callable[[Trial], Measurements]] = {
    "tree": _tree,
    "allocation": _allocation,
    "random-metrics": _random_metrics,
    "tight": _tight,
    "certificate": _certificate,
    "dendrogram": _dendrogram,
}

_MAKERS: Mapping[str, Callable[[Trial, Any, str], _Built]] = {
    "estimator": _estimator,
    "paper": _paper,
    "baseline": _baseline,
    "peer": _peer,
}
