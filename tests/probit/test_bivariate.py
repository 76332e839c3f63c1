"""The bivariate normal distribution function against other formulas, other libraries and arbitrary precision."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr
from scipy.stats import multivariate_normal

from assay.probit.bivariate import bvn_cdf, bvn_cdf_owen, bvn_logcdf

limits = st.floats(-5, 5)
correlations = st.floats(-0.999, 0.999)


def grid() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return 2 * rng.standard_normal(20_000), 2 * rng.standard_normal(20_000), np.tanh(2 * rng.standard_normal(20_000))


def test_the_kernel_agrees_with_owens_t_function_to_1e_14() -> None:
    h, k, rho = grid()
    assert np.abs(bvn_cdf(h, k, rho) - bvn_cdf_owen(h, k, rho)).max() < 1e-14


def test_owens_formula_has_its_limits_at_zero() -> None:
    h, k = (one.ravel() for one in np.meshgrid([-1.0, 0.0, 1.0], [-1.0, 0.0, 1.0]))
    for rho in (-0.8, 0.0, 0.3, 0.95):
        assert np.abs(bvn_cdf(h, k, rho) - bvn_cdf_owen(h, k, rho)).max() < 1e-15


def test_scipys_multivariate_distribution_function_agrees() -> None:
    for h, k, rho in [(0.3, -1.2, 0.5), (2.0, 1.0, -0.97), (-0.5, -0.4, 0.99)]:
        theirs = multivariate_normal(cov=[[1, rho], [rho, 1]]).cdf([h, k])
        assert bvn_cdf(h, k, rho) == pytest.approx(theirs, abs=1e-7)


def test_at_the_origin_it_is_a_quarter_plus_the_arcsine() -> None:
    rho = np.linspace(-1, 1, 201)
    assert np.abs(bvn_cdf(0.0, 0.0, rho) - (0.25 + np.arcsin(rho) / (2 * np.pi))).max() < 1e-14


@settings(max_examples=200, deadline=None)
@given(limits, limits, correlations)
def test_symmetries(h: float, k: float, rho: float) -> None:
    value = float(bvn_cdf(h, k, rho))
    assert value == pytest.approx(float(bvn_cdf(k, h, rho)), abs=1e-14)
    assert value + float(bvn_cdf(h, -k, -rho)) == pytest.approx(float(ndtr(h)), abs=1e-14)
    assert value - float(bvn_cdf(-h, -k, rho)) == pytest.approx(float(ndtr(h) + ndtr(k) - 1), abs=1e-14)


@settings(max_examples=100, deadline=None)
@given(limits, limits, st.floats(-0.99, 0.98))
def test_it_increases_with_the_correlation(h: float, k: float, rho: float) -> None:
    assert float(bvn_cdf(h, k, rho + 0.01)) >= float(bvn_cdf(h, k, rho)) - 1e-15


def test_derivatives_are_those_of_central_differences() -> None:
    rng = np.random.default_rng(1)
    at = [rng.standard_normal(300), rng.standard_normal(300), np.tanh(rng.standard_normal(300)).clip(-0.98, 0.98)]
    log_p, *slopes = bvn_logcdf(*at)
    step = 1e-5
    for place, slope in enumerate(slopes):
        up, down = [one.copy() for one in at], [one.copy() for one in at]
        up[place] += step
        down[place] -= step
        numeric = (bvn_cdf(*up) - bvn_cdf(*down)) / (2 * step)
        assert np.abs(numeric - slope * np.exp(log_p)).max() < 1e-7


@pytest.mark.parametrize(
    ("h", "k", "rho"), [(-6, -5, 0.3), (-6, -7, -0.9), (-20, -20, 0.0), (-30, -1, 0.5), (-3, -3, -0.99), (-12, 2, 0.7)]
)
def test_logarithms_are_right_where_probabilities_underflow(h: float, k: float, rho: float) -> None:
    """Against the same integral in 40 digits."""
    mpmath = pytest.importorskip("mpmath")
    mpmath.mp.dps = 40
    scale = mpmath.sqrt(1 - mpmath.mpf(rho) ** 2)
    points = [h - 40, h - 10, h - 3, h - 1, h - 0.3, h - 0.1, h - 0.03, h - 0.003, h]
    exact = mpmath.log(mpmath.quad(lambda x: mpmath.npdf(x) * mpmath.ncdf((k - rho * x) / scale), points))
    assert float(bvn_logcdf(h, k, rho)[0]) == pytest.approx(float(exact), abs=1e-6)
