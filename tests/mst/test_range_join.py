"""Range joins against all pairs, and their filters against the cost of comparing all pairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from assay.core.errors import InputError
from assay.mst import range_join
from assay.mst.metrics import CountedMetric, Metric, MutualReachability, core_distances, make_metric
from assay.mst.range_join import range_pairs

N = 80


def codes(rng: np.random.Generator, *, alphabet: int, length: int) -> NDArray[np.int64]:
    noisy = rng.integers(0, alphabet, size=(6, length))[rng.integers(0, 6, N)]
    return np.where(rng.random(noisy.shape) < 0.03, rng.integers(0, alphabet, noisy.shape), noisy)


MAKE: dict[str, Callable[[np.random.Generator], Metric]] = {
    "euclidean": lambda rng: make_metric(rng.integers(0, 4, size=(N, 3)).astype(float)),
    "euclidean far from the origin": lambda rng: make_metric(rng.integers(0, 4, size=(N, 2)) / 10 + 1e6),
    "euclidean in 30 dimensions": lambda rng: make_metric(rng.normal(size=(N, 30)) / 4),
    "sqeuclidean": lambda rng: make_metric(rng.normal(size=(N, 3)), "sqeuclidean"),
    "cityblock": lambda rng: make_metric(rng.integers(0, 4, size=(N, 3)).astype(np.float32), "cityblock"),
    "chebyshev": lambda rng: make_metric(rng.integers(0, 4, size=(N, 3)).astype(float), "chebyshev"),
    "minkowski": lambda rng: make_metric(rng.normal(size=(N, 3)), "minkowski", p=3),
    "minkowski with p = 1": lambda rng: make_metric(rng.normal(size=(N, 3)), "minkowski", p=1),
    "minkowski with p = inf": lambda rng: make_metric(rng.normal(size=(N, 3)), "minkowski", p=np.inf),
    "cosine": lambda rng: make_metric(rng.normal(size=(N, 3)), "cosine"),
    "haversine": lambda rng: make_metric(rng.uniform(-1.5, 1.5, size=(N, 2)), "haversine"),
    "hamming on bits": lambda rng: make_metric(codes(rng, alphabet=2, length=100), "hamming"),
    "hamming on letters": lambda rng: make_metric(codes(rng, alphabet=5, length=70), "hamming"),
    "hamming on short codes": lambda rng: make_metric(codes(rng, alphabet=3, length=5), "hamming"),
    "jaccard": lambda rng: make_metric([rng.integers(0, 25, rng.integers(0, 9)) for _ in range(N)], "jaccard"),
    "levenshtein": lambda rng: make_metric(
        ["".join(rng.choice(list("abü😀"), rng.integers(0, 7))) for _ in range(N)], "levenshtein"
    ),
    "levenshtein on bytes": lambda rng: make_metric(
        ["".join(rng.choice(list("aé"), rng.integers(0, 6))) for _ in range(N)], "levenshtein", unit="byte"
    ),
    "osa": lambda rng: make_metric(["".join(rng.choice(list("ab"), rng.integers(0, 7))) for _ in range(N)], "osa"),
    "function": lambda rng: make_metric(list(rng.integers(0, 40, N)), lambda a, b: abs(int(a) - int(b))),
}


def all_pairs(metric: Metric, tau: float) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.float64]]:
    first, second = np.triu_indices(len(metric), 1)
    distances = metric.pairs(first, second)
    near = distances <= tau
    return first[near], second[near], distances[near]


@pytest.mark.parametrize("name", MAKE)
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000), share=st.sampled_from([0.0, 0.001, 0.02, 0.3, 1.0]))
def test_a_range_join_finds_exactly_the_pairs_within_the_threshold(name: str, seed: int, share: float) -> None:
    metric = MAKE[name](np.random.default_rng(seed))
    first, second = np.triu_indices(len(metric), 1)
    # A threshold that some pairs meet exactly, so that rounding in a filter would show.
    tau = float(np.quantile(metric.pairs(first, second), share, method="lower"))
    for found, expected in zip(range_pairs(metric, tau), all_pairs(metric, tau), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("tau", [0, 0.99, 1, 1.5, 2, 2.99, 3, 4])
def test_edit_thresholds_between_whole_numbers_are_rounded_down(tau: float) -> None:
    metric = MAKE["levenshtein"](np.random.default_rng(0))
    for found, expected in zip(range_pairs(metric, tau), all_pairs(metric, tau), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("tau", [0, 0.25, 1 / 3, 0.5, 2 / 3, 0.75, 0.999, 1])
def test_jaccard_thresholds_on_the_grid_of_small_fractions(tau: float) -> None:
    metric = MAKE["jaccard"](np.random.default_rng(0))
    for found, expected in zip(range_pairs(metric, tau), all_pairs(metric, tau), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_mutual_reachability_is_joined_through_its_distance() -> None:
    plain = make_metric(np.random.default_rng(0).normal(size=(N, 3)))
    metric = MutualReachability(plain, core_distances(plain, 4))
    for found, expected in zip(range_pairs(metric, 0.7), all_pairs(metric, 0.7), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("name", "tau"), [("euclidean", 0.0), ("hamming on bits", 2), ("jaccard", 0.3), ("levenshtein", 1)]
)
def test_a_filter_leaves_few_pairs_to_weigh_and_counts_them(name: str, tau: float) -> None:
    counted = CountedMetric(MAKE[name](np.random.default_rng(0)))
    found = range_pairs(counted, tau)
    assert len(found[0]) <= counted.total < N * (N - 1) / 2 / 3


def test_the_join_of_one_object_is_empty() -> None:
    for metric in (
        make_metric([[0.0]]),
        make_metric(["a"], "levenshtein"),
        make_metric([{1}], "jaccard"),
        make_metric(["a"], "hamming"),
    ):
        assert [len(values) for values in range_pairs(metric, 1)] == [0, 0, 0]


@pytest.mark.parametrize("tau", [-1.0, float("nan")])
def test_a_threshold_that_is_no_distance_is_refused(tau: float) -> None:
    with pytest.raises(InputError, match=f"tau is {tau}; expected a distance >= 0"):
        range_pairs(make_metric([[0.0]]), tau)


@pytest.mark.parametrize("name", ["euclidean", "function", "jaccard"])
def test_a_threshold_that_most_pairs_meet_is_refused_before_memory_runs_out(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_join, "MAX_PAIRS", 100)
    with pytest.raises(InputError, match="more than 100 pairs are within it; expected a smaller threshold"):
        range_pairs(MAKE[name](np.random.default_rng(0)), 1e9 if name != "jaccard" else 0.99)
