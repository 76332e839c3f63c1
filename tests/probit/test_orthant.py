"""Orthant probabilities against closed forms, scipy and each other."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from assay.probit.bivariate import bvn_cdf
from assay.probit.orthant import conditional_orthant, ghk, orthant


def constraints(d: int, *, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((d, d + 1))
    return 0.5 * rng.standard_normal(d), root @ root.T


@pytest.mark.parametrize("seed", range(4))
def test_ghk_in_two_dimensions_is_phi2(seed: int) -> None:
    mean, covariance = constraints(2, seed=seed)
    logs, _ = ghk(mean, covariance)
    deviation = np.sqrt(np.diag(covariance))
    exact = bvn_cdf(*(mean / deviation), covariance[0, 1] / deviation.prod())
    replicates = np.exp(logs).mean(axis=1)
    assert abs(replicates.mean() - exact) < 3 * replicates.std(ddof=1) / np.sqrt(len(replicates)) + 1e-6


@pytest.mark.parametrize("d", [3, 4, 5])
def test_three_to_five_dimensions_agree_with_scipy(d: int) -> None:
    for seed in range(3):
        mean, covariance = constraints(d, seed=10 * d + seed)
        theirs = multivariate_normal(-mean, covariance, allow_singular=False).cdf(
            np.zeros(d), rng=np.random.default_rng(0)
        )
        found = orthant(mean, covariance)
        assert abs(found.value - theirs) < 3 * found.error + 2e-5


@pytest.mark.parametrize("d", [3, 5, 8])
def test_equicorrelated_orthants_have_their_closed_form(d: int) -> None:
    """With correlation 1/2 and mean 0 the orthant probability is 1 / (d + 1)."""
    found = orthant(np.zeros(d), 0.5 + 0.5 * np.eye(d))
    assert found.value == pytest.approx(1 / (d + 1), abs=max(4 * found.error, 1e-9))
    assert (found.error == 0) == (d == 3)


def test_constraints_that_follow_from_others_do_no_harm() -> None:
    """A third difference that is the sum of two others."""
    rows = np.array([[1.0, -1, 0, 0], [0, 1, -1, 0], [1, 0, -1, 0], [0, 0, 1, -1], [1, 0, 0, -1]])
    found = orthant(np.zeros(5), rows @ rows.T)
    assert found.value == pytest.approx(1 / 24, abs=2e-3)


def test_conditions_are_ratios() -> None:
    mean, covariance = constraints(5, seed=3)
    whole, condition = orthant(mean, covariance, points=16384), orthant(mean[:3], covariance[:3, :3])
    found = conditional_orthant(mean, covariance, 3, points=4096)
    assert found.value == pytest.approx(
        whole.value / condition.value, abs=4 * found.error + 4 * whole.error / condition.value
    )


def test_far_tails_keep_their_logarithm() -> None:
    found = orthant(np.full(5, -12.0), np.eye(5))
    from scipy.special import log_ndtr

    assert found.log == pytest.approx(5 * float(log_ndtr(-12.0)), rel=1e-6)
