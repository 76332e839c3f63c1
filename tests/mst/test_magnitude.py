"""Distances of coordinates whose squares or powers leave float64, against the same coordinates at ordinary size."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from assay.core.errors import AssayError, InputError
from assay.mst import MetricMST, exact
from assay.mst._graph import require_tree
from assay.mst.exact import exact_mst
from assay.mst.metrics import Metric, make_metric
from assay.mst.range_join import range_pairs

EXPONENTS = [-1060, -250, 700]
METRICS = [("euclidean", {}), ("cityblock", {}), ("chebyshev", {}), ("minkowski", {"p": 3}), ("minkowski", {"p": 60})]


def whole(n: int, dims: int) -> NDArray[np.float64]:
    """Points of few bits, which a power of two scales without rounding even among denormal numbers."""
    return np.random.default_rng(dims).integers(-30, 30, size=(n, dims)).astype(float)


def all_of(metric: Metric) -> NDArray[np.float64]:
    return metric.block(slice(0, len(metric)), slice(0, len(metric)))


def exact_distance(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Return the Euclidean distance from rational arithmetic."""
    square = sum((Fraction(x) - Fraction(y)) ** 2 for x, y in zip(a.tolist(), b.tolist(), strict=True))
    if not square:
        return 0.0
    shift = (square.denominator.bit_length() - square.numerator.bit_length()) // 2
    scaled = square * Fraction(4) ** shift
    return math.ldexp(math.sqrt(scaled), -shift)


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("dims", [3, 40, 300])
@pytest.mark.parametrize(("name", "options"), METRICS)
def test_a_power_of_two_scales_every_distance_and_nothing_else(
    name: str, options: dict[str, Any], dims: int, exponent: int
) -> None:
    X = whole(20, dims)
    first, second = np.triu_indices(20)
    plain, scaled = make_metric(X, name, **options), make_metric(np.ldexp(X, exponent), name, **options)
    # Denormal numbers hold few digits.
    tolerance = 1e-12 if exponent > -1000 else 1e-3
    for values, expected in (
        (all_of(scaled), all_of(plain)),
        (scaled.pairs(first, second), plain.pairs(first, second)),
        (scaled.square(slice(0, 20)), plain.square(slice(0, 20))),
        (all_of(scaled.subset(np.arange(5, 9))), all_of(plain.subset(np.arange(5, 9)))),
    ):
        np.testing.assert_allclose(values, np.ldexp(expected, exponent), rtol=tolerance, atol=0)


@pytest.mark.parametrize("method", ["prim", "quitefastmst", "mlpack", "auto"])
@pytest.mark.parametrize("factor", [1e-300, 1e-170, 1e-160, 1e154, 1e200, 1e300])
def test_trees_of_huge_and_tiny_coordinates_are_those_of_ordinary_ones(method: str, factor: float) -> None:
    X = np.random.default_rng(0).normal(size=(300, 3))
    edges, weights = exact_mst(make_metric(X))
    found, scaled = exact_mst(make_metric(X * factor), method=method)
    np.testing.assert_array_equal(np.unique(found, axis=0), np.unique(edges, axis=0))
    np.testing.assert_allclose(scaled, weights * factor, rtol=1e-12)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("exponent", [-1000, -570, 520, 1000])
def test_forests_bounds_and_certificates_scale_with_the_coordinates(exponent: int) -> None:
    X = np.random.default_rng(0).normal(size=(300, 3))
    plain = MetricMST(algorithm="mfc", random_state=0).fit(X)
    scaled = MetricMST(algorithm="mfc", random_state=0).fit(np.ldexp(X, exponent))
    np.testing.assert_array_equal(scaled.edges_, plain.edges_)
    np.testing.assert_allclose(scaled.weights_, np.ldexp(plain.weights_, exponent), rtol=1e-12)
    assert scaled.alpha_ == pytest.approx(plain.alpha_, rel=1e-9)
    assert scaled.certificate_.mst_lower_bound == pytest.approx(
        math.ldexp(plain.certificate_.mst_lower_bound, exponent), rel=1e-9, abs=0
    )


@pytest.mark.parametrize("dims", [2, 40, 300])
@pytest.mark.parametrize("method", ["prim", "quitefastmst", "mlpack"])
def test_close_points_beside_a_far_one_keep_their_distances(method: str, dims: int) -> None:
    X = np.random.default_rng(0).normal(size=(40, dims))
    X[0] = 0
    X[0, 0] = 1e200
    X[1:10] *= 1e-180
    metric = make_metric(X)
    expected = np.array([[exact_distance(a, b) for b in X[:14]] for a in X[:14]])
    np.testing.assert_allclose(metric.block(slice(0, 14), slice(0, 14)), expected, rtol=1e-13)
    np.testing.assert_allclose(metric.pairs(*np.triu_indices(14)), expected[np.triu_indices(14)], rtol=1e-13)
    np.testing.assert_allclose(
        exact_mst(metric, method=method)[1],
        exact_mst(make_metric(all_of(metric), "precomputed"))[1],
        rtol=1e-12,
    )


@pytest.mark.parametrize(
    ("name", "options"),
    [("euclidean", {}), ("cityblock", {}), ("minkowski", {"p": 3}), ("minkowski", {"p": 300.0}), ("chebyshev", {})],
)
@pytest.mark.parametrize("factor", [1e-200, 1.0, 1e200])
def test_range_joins_scale_their_threshold(name: str, options: dict[str, Any], factor: float) -> None:
    X = np.random.default_rng(0).normal(size=(80, 3)) * factor
    X[:3] *= 1e-90
    metric = make_metric(X, name, **options)
    first, second = np.triu_indices(80, 1)
    distances = metric.pairs(first, second)
    for tau in (np.quantile(distances, 0.1, method="lower"), distances.min(), np.inf):
        near = distances <= tau
        found = range_pairs(metric, float(tau))
        np.testing.assert_array_equal(found[0], first[near])
        np.testing.assert_array_equal(found[1], second[near])
        np.testing.assert_array_equal(found[2], distances[near])


@pytest.mark.parametrize("dims", [3, 40, 300])
@pytest.mark.parametrize("factor", [1e-320, 1e-200, 1e154, 1e300])
def test_cosine_knows_no_length(dims: int, factor: float) -> None:
    X = np.where(whole(30, dims) == 0, 1.0, whole(30, dims))
    scaled = X.copy()
    scaled[::3] *= factor
    # 1e-320 holds few digits of its own, as little as 1 in 2000.
    tolerance = 1e-7 if factor > 1e-300 else 1e-2
    np.testing.assert_allclose(all_of(make_metric(scaled, "cosine")), all_of(make_metric(X, "cosine")), atol=tolerance)


def test_directions_that_hardly_differ_are_told_apart() -> None:
    X = np.array([[1.0, 1e-170], [1.0, 3e-170], [0.0, 1.0]])
    np.testing.assert_allclose(make_metric(X, "cosine").pairs(np.array([0]), np.array([1])), 2e-170, rtol=1e-12)


@pytest.mark.parametrize("p", [1.5, 20.0, 1000.0])
def test_large_exponents_neither_overflow_nor_vanish(p: float) -> None:
    X = np.random.default_rng(0).normal(size=(30, 4)) * 50
    X[1] = X[0] + 1e-9
    differences = np.abs(X[:, None] - X[None])
    greatest = np.maximum(differences.max(axis=2), 1e-300)
    expected = ((differences / greatest[:, :, None]) ** p).sum(axis=2) ** (1 / p) * greatest
    np.fill_diagonal(expected, 0)
    for rows in (X, X.astype(np.float32)):
        tolerance = 1e-12 if rows is X else 1e-3
        np.testing.assert_allclose(all_of(make_metric(rows, "minkowski", p=p)), expected, rtol=tolerance, atol=1e-5)
    np.testing.assert_allclose(all_of(make_metric(X, "minkowski", p=p)), expected, rtol=1e-12)


@pytest.mark.parametrize(("name", "options"), [*METRICS, ("cosine", {})])
@pytest.mark.parametrize("factor", [1e-300, 1e-170, 1e200, 1e300])
def test_accelerators_scale_as_the_host_does(name: str, options: dict[str, Any], factor: float) -> None:
    torch = pytest.importorskip("torch")
    from assay.mst._torch import TorchMetric

    X = np.random.default_rng(0).normal(size=(20, 6)) * factor
    X[3:6] *= 1e-5
    X[5:8] = X[5] * np.array([[1], [1 + 1e-9], [1]])
    here, there = make_metric(X, name, **options), TorchMetric(torch.from_numpy(X), name, **options)
    first, second = np.triu_indices(20)
    unit = 1.0 if name == "cosine" else factor
    np.testing.assert_allclose(all_of(there) / unit, all_of(here) / unit, rtol=1e-10, atol=1e-12)
    # Directions are rounded before they are compared.
    rounding = 1e-15 if name == "cosine" else 0
    np.testing.assert_allclose(
        there.pairs(first, second) / unit, here.pairs(first, second) / unit, rtol=1e-10, atol=rounding
    )


def test_accelerators_find_close_pairs_beside_far_ones() -> None:
    torch = pytest.importorskip("torch")
    from assay.mst._torch import TorchMetric

    X = np.array([[1e200, 0.0], [1.0, 2.0], [1.0, 2.5], [1e-180, 0.0], [0.0, 0.0]])
    np.testing.assert_allclose(
        all_of(TorchMetric(torch.from_numpy(X), "euclidean")), all_of(make_metric(X)), rtol=1e-13
    )


def test_ordinary_coordinates_are_not_copied() -> None:
    for X in (np.ones((3, 2)), np.full((3, 2), 1e30, dtype=np.float32), np.full((3, 2), 9, dtype=np.uint8)):
        assert np.shares_memory(make_metric(X)._rows, X)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("X", "name", "message"),
    [
        (
            np.full((4, 2), 1e308) * [[1], [-1], [1], [1]],
            "euclidean",
            r"X reaches 1e\+308, and sums of its distances over",
        ),
        (np.full((4, 2), 1e308), "cityblock", "expected coordinates below 1e"),
        (
            np.array([[1e200], [0.0]]),
            "sqeuclidean",
            r"squares of its distances overflow float64; expected metric='eucl",
        ),
        (np.array([[1e-200], [0.0]]), "sqeuclidean", r"squares of its distances underflow float64"),
    ],
)
def test_distances_beyond_float64_are_refused(X: NDArray[np.float64], name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_metric(X, name)


@pytest.mark.parametrize(
    ("edges", "weights", "message"),
    [
        ([[0, 1]], [1.0], "returned 1 edges for 3 objects"),
        ([[0, 1], [1, 1]], [1.0, 1.0], r"cycle through edge \(1, 1\)"),
        ([[0, 1], [1, 0]], [1.0, 1.0], r"cycle through edge \(1, 0\)"),
        ([[0, 1], [1, 3]], [1.0, 1.0], "an end outside 0 to 2"),
        ([[0, 1], [1, 2]], [1.0, np.inf], "weights that are no finite numbers"),
    ],
)
def test_what_is_no_spanning_tree_is_never_returned(edges: Any, weights: Any, message: str) -> None:
    with pytest.raises(AssayError, match=message):
        require_tree(3, np.array(edges), np.array(weights), what="it")


def test_a_package_that_returns_no_tree_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        exact._delegates, "quitefastmst", lambda rows, jobs: np.zeros((len(rows) - 1, 2), dtype=np.int64)
    )
    with pytest.raises(AssayError, match=r"method='quitefastmst' returned a cycle through edge \(0, 0\)"):
        exact_mst(make_metric(np.eye(3)), method="quitefastmst")
