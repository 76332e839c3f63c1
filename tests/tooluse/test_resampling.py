"""Intervals, paired tests and pass rates against scipy, statsmodels and enumeration."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import bootstrap
from statsmodels.stats.contingency_tables import mcnemar as statsmodels_mcnemar

from assay.core.errors import InputError
from assay.tooluse.resampling import cluster_bootstrap, mcnemar, paired_difference, pass_at_k, pass_hat_k


@pytest.mark.parametrize(
    ("both", "first", "second", "neither"), [(10, 6, 1, 3), (5, 0, 0, 2), (1, 12, 7, 0), (0, 1, 9, 4)]
)
def test_mcnemar_is_that_of_statsmodels(both: int, first: int, second: int, neither: int) -> None:
    a = [True] * (both + first) + [False] * (second + neither)
    b = [True] * both + [False] * first + [True] * second + [False] * neither
    expected = statsmodels_mcnemar([[both, first], [second, neither]], exact=True).pvalue
    assert mcnemar(a, b) == pytest.approx(expected)


def test_the_interval_of_single_values_is_scipys_percentile_interval() -> None:
    values = np.random.default_rng(0).beta(2, 5, size=200)
    ours = cluster_bootstrap(values, resamples=20_000)
    theirs = bootstrap((values,), np.mean, n_resamples=20_000, method="percentile", rng=1).confidence_interval
    width = theirs.high - theirs.low
    assert ours.low == pytest.approx(theirs.low, abs=0.03 * width)
    assert ours.high == pytest.approx(theirs.high, abs=0.03 * width)


def test_equal_twins_widen_the_interval_as_if_they_were_one() -> None:
    values = np.random.default_rng(1).normal(size=150)
    alone = cluster_bootstrap(values, resamples=20_000)
    doubled = cluster_bootstrap(np.repeat(values, 2), np.repeat(np.arange(150), 2), resamples=20_000)
    assert (doubled.low, doubled.high) == pytest.approx((alone.low, alone.high), abs=1e-12)
    assert (doubled.n, doubled.clusters) == (300, 150)


def test_undefined_scores_are_left_out() -> None:
    found = cluster_bootstrap([1.0, math.nan, 0.0])
    assert (found.mean, found.n) == (0.5, 2)
    assert math.isnan(cluster_bootstrap([math.nan]).mean)
    assert paired_difference([1.0, math.nan], [0.5, 1.0]).mean == 0.5


@pytest.mark.parametrize("n", [1, 3, 5])
def test_pass_rates_are_shares_of_all_choices_of_k_trials(n: int) -> None:
    for c, k in itertools.product(range(n + 1), range(1, n + 1)):
        trials = [True] * c + [False] * (n - c)
        chosen = list(itertools.combinations(trials, k))
        assert pass_hat_k(n, c, k) == pytest.approx(sum(all(one) for one in chosen) / len(chosen))
        assert pass_at_k(n, c, k) == pytest.approx(sum(any(one) for one in chosen) / len(chosen))


def test_more_trials_than_there_are_is_refused() -> None:
    with pytest.raises(InputError, match="k is 4 with 3 trials"):
        pass_at_k(3, 1, 4)
