"""The tests of claims against closed forms, published examples and simulated arms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, fisher_exact, mannwhitneyu

from assay.core.ledger import Record
from assay.marl.statistics import (
    HigherReturn,
    MoreOften,
    Share,
    interquartile_mean,
    probability_of_improvement,
    summarise,
)


def records(arm: str, *, share: float = 0.0, games: int = 20, values: tuple[float, ...] = ()) -> list[Record]:
    found = [{"games": games, "recovered": share}] if not values else [{"return": value} for value in values]
    return [
        Record(
            method="marl",
            arm=arm,
            case="game",
            seed=seed,
            scale="laptop",
            status="done",
            measurements=measured,
            key=f"{arm}-{seed}",
            seconds=1.0,
            started="2026-01-01T00:00:00+00:00",
            source="",
            environment="",
        )
        for seed, measured in enumerate(found)
    ]


def test_the_interquartile_mean_leaves_out_a_quarter_at_each_end():
    assert interquartile_mean([100, 0, 1, 2, 3, 4, 5, -50]) == (1 + 2 + 3 + 4) / 4


def test_an_interval_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    covered = 0
    for repeat in range(100):
        summary = summarise(rng.normal(size=30), seed=repeat)
        covered += summary.low <= 0 <= summary.high
    assert 86 <= covered <= 100


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=8),
    st.lists(st.integers(0, 5), min_size=1, max_size=8),
)
def test_probability_of_improvement_is_mann_whitneys_u_over_all_pairs(ours, theirs):
    u = mannwhitneyu(ours, theirs).statistic
    assert probability_of_improvement(ours, theirs) == pytest.approx(u / (len(ours) * len(theirs)))


@pytest.mark.parametrize(
    ("share", "limits", "outcome"),
    [
        (1.0, {"at_least": 0.8}, "holds"),
        (0.95, {"at_least": 0.8}, "undecided"),
        (0.3, {"at_least": 0.8}, "fails"),
        (0.0, {"at_most": 0.15}, "holds"),
        (0.0, {"at_most": 0.1}, "undecided"),
        (0.5, {"at_most": 0.1}, "fails"),
    ],
)
def test_a_share_holds_only_when_its_one_sided_bound_does(share, limits, outcome):
    conclusion = Share("recovered", "s2q", **limits).conclude(records("s2q", share=share))
    assert conclusion.outcome == outcome
    exact = binomtest(round(20 * share), 20).proportion_ci(0.95, method="exact")
    assert (conclusion.low, conclusion.high) == pytest.approx((exact.low, exact.high))
    assert conclusion.n == 20


def test_shares_of_several_trials_are_pooled():
    found = [*records("s2q", share=0.5), *records("s2q", share=1.0, games=60)]
    assert Share("recovered", "s2q", at_least=0.8).conclude(found).estimate == 70 / 80


def test_more_often_is_fishers_exact_test():
    found = [*records("s2q", share=0.95), *records("qmix", share=0.5)]
    conclusion = MoreOften("recovered", "s2q", "qmix").conclude(found)
    assert conclusion.p == pytest.approx(fisher_exact([[19, 1], [10, 10]], alternative="greater").pvalue)
    assert conclusion.outcome == "holds"
    assert MoreOften("recovered", "qmix", "s2q").conclude(found).outcome == "fails"
    assert MoreOften("recovered", "s2q", "s2q").conclude(found).outcome == "undecided"


def test_not_less_often_uses_newcombes_interval():
    """56 of 70 against 48 of 80, the example of Newcombe (1998): 0.0524 to 0.3339."""
    found = [*records("a", share=56 / 70, games=70), *records("b", share=48 / 80, games=80)]
    conclusion = MoreOften("recovered", "a", "b", margin=0.1).conclude(found)
    assert (round(conclusion.low, 4), round(conclusion.high, 4)) == (0.0524, 0.3339)
    assert conclusion.outcome == "holds"
    assert MoreOften("recovered", "b", "a", margin=0.01).conclude(found).outcome == "fails"
    few = [*records("a", share=0.9), *records("b", share=0.9)]
    assert MoreOften("recovered", "a", "b", margin=0.1).conclude(few).outcome == "undecided"


def test_a_higher_return_needs_an_interval_above_nothing_and_enough_runs():
    high, low = tuple(np.linspace(9, 10, 8)), tuple(np.linspace(1, 2, 8))
    found = [*records("s2q", values=high), *records("qmix", values=low)]
    conclusion = HigherReturn("return", "s2q", "qmix").conclude(found)
    assert conclusion.outcome == "holds"
    assert conclusion.estimate == pytest.approx(8)
    assert conclusion.low < 8 < conclusion.high
    assert HigherReturn("return", "qmix", "s2q").conclude(found).outcome == "fails"
    few = [*records("s2q", values=high[:3]), *records("qmix", values=low[:3])]
    assert HigherReturn("return", "s2q", "qmix").conclude(few).outcome == "undecided"
    bored = HigherReturn("return", "s2q", "qmix", learned=1000.0).conclude(found)
    assert bored.outcome == "undecided" and "neither has learned" in bored.finding
