"""The intervals cover what they say, on skewed values too, and their one-sided bounds are rarely wrong."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from assay.core.intervals import BOOTSTRAP_FROM, locate, violation_bound, violation_p

SKEWED = {
    "exponential": (stats.expon(), 1.0),
    "lognormal": (stats.lognorm(0.5), math.exp(0.125)),
    "minus lognormal": (stats.lognorm(0.5), math.exp(0.125)),
}


def _samples(name, n, repetitions, seed=0):
    """Skewed samples with the true median and mean."""
    distribution, mean = SKEWED[name]
    sign = -1.0 if name.startswith("minus") else 1.0
    values = sign * distribution.rvs(size=(repetitions, n), random_state=np.random.default_rng(seed))
    return values, sign * distribution.median(), sign * mean


@pytest.mark.parametrize("name", SKEWED)
@pytest.mark.parametrize("n", [10, 30])
def test_exact_interval_covers_the_median_of_skewed_values(name, n):
    values, median, _ = _samples(name, n, 8000)
    located = [locate([row]) for row in values]
    coverage = np.mean([interval.low <= median <= interval.high for interval in located])
    assert 0.92 <= coverage <= 0.98
    assert {interval.center for interval in located} == {"median"}


@pytest.fixture(scope="module", params=SKEWED)
def bootstrapped(request):
    """Intervals from the least number of values that is bootstrapped, in five cases, and the true mean."""
    values, _, mean = _samples(request.param, BOOTSTRAP_FROM, 800)
    return [locate(np.split(row, 5)) for row in values], mean


def test_bootstrap_interval_covers_the_mean_of_skewed_values(bootstrapped):
    located, mean = bootstrapped
    assert 0.92 <= np.mean([interval.low <= mean <= interval.high for interval in located]) <= 0.98
    assert {interval.method for interval in located} == {"BCa bootstrap"}


def test_one_sided_bounds_on_the_mean_are_wrong_at_most_five_percent(bootstrapped):
    located, mean = bootstrapped
    assert np.mean([interval.upper < mean for interval in located]) <= 0.05
    assert np.mean([interval.lower > mean for interval in located]) <= 0.05


@pytest.mark.parametrize("name", SKEWED)
@pytest.mark.parametrize("n", [5, 10, 30])
def test_one_sided_bounds_on_the_median_are_wrong_at_most_five_percent(name, n):
    values, median, _ = _samples(name, n, 4000, seed=1)
    located = [locate([row]) for row in values]
    noise = 3 * math.sqrt(0.05 * 0.95 / 4000)
    assert np.mean([interval.upper < median for interval in located]) <= 0.05 + noise
    assert np.mean([interval.lower > median for interval in located]) <= 0.05 + noise


def test_values_of_unlike_cases_leave_the_exact_interval_conservative():
    rng = np.random.default_rng(2)
    missed = 0
    for _ in range(4000):
        groups = [rng.normal(shift, 1, 5) for shift in (-10, 10)]
        interval = locate(groups)
        missed += not interval.low <= 0 <= interval.high
    assert missed / 4000 <= 0.05


@pytest.mark.parametrize(("n", "low_rank", "confidence"), [(6, 1, 0.96875), (10, 2, 0.978515625), (30, 10, 0.957226)])
def test_order_statistics_are_those_of_the_sign_test(n, low_rank, confidence):
    interval = locate([np.arange(1.0, n + 1)])
    assert (interval.low, interval.high) == (low_rank, n + 1 - low_rank)
    assert interval.confidence == pytest.approx(confidence, abs=1e-6)


@pytest.mark.parametrize("n", [1, 2, 4])
def test_too_few_values_give_no_one_sided_bound(n):
    interval = locate([np.arange(float(n))])
    assert (interval.lower, interval.upper) == (-math.inf, math.inf)
    assert interval.confidence < 0.95


def test_five_values_give_a_one_sided_bound_and_no_full_interval():
    interval = locate([np.arange(5.0)])
    assert (interval.lower, interval.upper) == (0.0, 4.0)
    assert interval.confidence == pytest.approx(1 - 2 / 2**5)


def test_no_values_decide_nothing():
    interval = locate([])
    assert interval.n == 0 and math.isnan(interval.estimate)
    assert interval.p_below(0.0) == 1.0


def test_bootstrap_of_equal_values_is_that_value():
    interval = locate([np.full(60, 3.0)])
    assert (interval.low, interval.estimate, interval.high) == (3.0, 3.0, 3.0)
    assert (interval.p_below(4.0), interval.p_below(3.0)) == (0.0, 1.0)


def test_cases_are_resampled_within_themselves():
    rng = np.random.default_rng(0)
    groups = [rng.normal(center, 0.1, 12) for center in (0.0, 100.0, 200.0, 300.0, 400.0)]
    within, pooled = locate(groups), locate([np.concatenate(groups)])
    assert within.high - within.low < 0.2
    assert pooled.high - pooled.low > 50


def test_cases_of_few_values_are_resampled_together():
    rng = np.random.default_rng(0)
    groups = [rng.normal(center, 0.1, 2) for center in np.arange(30.0)]
    assert locate(groups).high - locate(groups).low > 3


def test_p_value_of_few_values_is_the_sign_test():
    values = np.array([-3.0, -2.0, -1.5, -1.0, -0.5, 0.5, -4.0, -6.0])
    expected = stats.binomtest(7, 8, alternative="greater").pvalue
    assert locate([values]).p_below(0.0) == pytest.approx(expected)
    assert locate([-values]).p_above(0.0) == pytest.approx(expected)


def test_p_value_of_many_values_agrees_with_the_bound():
    values = np.random.default_rng(0).exponential(size=80)
    interval = locate([values])
    assert interval.p_below(interval.upper) == pytest.approx(0.025, abs=0.002)
    assert interval.p_above(interval.lower) == pytest.approx(0.025, abs=0.002)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=70), st.floats(-1e3, 1e3), st.sampled_from([0.5, 2.0, 8.0]))
def test_intervals_move_and_stretch_with_the_values(values, shift, factor):
    plain, moved = locate([np.array(values)]), locate([factor * np.array(values) + shift])
    tolerance = 1e-6 * (1 + max(map(abs, values)) * factor + abs(shift))
    if len(values) < BOOTSTRAP_FROM:
        assert moved.low == pytest.approx(factor * plain.low + shift, abs=tolerance)
        assert moved.high == pytest.approx(factor * plain.high + shift, abs=tolerance)
    assert moved.estimate == pytest.approx(factor * plain.estimate + shift, abs=tolerance)
    assert moved.low <= moved.estimate + tolerance and moved.estimate <= moved.high + tolerance


@pytest.mark.parametrize(("n", "bound"), [(29, 0.1), (59, 0.05), (299, 0.01)])
def test_no_violation_excludes_a_rate_by_the_rule_of_three(n, bound):
    assert violation_bound(0, n) <= bound < violation_bound(0, n - 1)
    assert violation_bound(0, n) == pytest.approx(1 - 0.05 ** (1 / n))


def test_violation_bound_is_wrong_at_most_five_percent_at_the_boundary():
    for rate, n in [(0.1, 29), (0.05, 100), (0.3, 12)]:
        counts = np.arange(n + 1)
        excluded = np.array([violation_bound(int(count), n) < rate for count in counts])
        assert stats.binom.pmf(counts[excluded], n, rate).sum() <= 0.05


def test_violation_p_value_is_the_binomial_tail():
    assert violation_p(0, 29, rate=0.1) == pytest.approx(0.9**29)
    assert violation_p(1, 0, rate=0.1) == 1.0
