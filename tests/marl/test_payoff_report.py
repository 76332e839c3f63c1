"""What is said of a payoff before and after learning, against the values of the exact fits."""

from __future__ import annotations

import numpy as np
import pytest

from assay.marl.one_step import OneStepRun
from assay.marl.payoff_files import Game
from assay.marl.payoff_report import (
    describe_payoff,
    describe_run,
    recovery_curve,
    recovery_rows,
    rescaled,
    sufficient_floor,
)
from assay.marl.ranking import successive_ranking

HIDDEN = np.array([[12.0, 0, 10], [0, 10, 10], [10, 10, 10]])
DIAGONAL = np.diag([8.0, 4.0, 6.0])


def test_a_payoff_whose_optimum_no_monotone_fit_has_on_top() -> None:
    report = describe_payoff(HIDDEN, K=2, alpha=1.0, floor=1.0)
    assert report.best == ((0, 0),)
    assert not report.representable
    assert report.monotone_tops == ((2, 2),)
    assert report.monotone_error == pytest.approx(69.667, abs=1e-3)
    assert report.basin_error > report.monotone_error
    text = "\n".join(report.lines(Game(HIDDEN, (("x", "y", "z"),) * 2)))
    assert "best (x, x) with 12" in text
    assert "QMIX's best fit (squared error 69.6667) puts (z, z) on top instead" in text


def test_a_payoff_that_is_monotone_is_said_to_be() -> None:
    payoff = np.array([[5.0, 1.0], [3.0, 0.0]])
    report = describe_payoff(payoff, K=1, alpha=1.0, floor=5.0)
    assert report.representable
    assert report.monotone_error == pytest.approx(0, abs=1e-9)
    assert "can represent this payoff exactly" in report.lines(Game(payoff, (("0", "1"),) * 2))[1]


def test_both_rankings_are_told() -> None:
    report = describe_payoff(DIAGONAL, K=2, alpha=1.0, floor=1.0)
    assert report.table_ranking == ((0, 0), (2, 2), (1, 1))
    assert report.monotone_ranking == ((0, 0), (2, 2), (1, 1))
    assert report.additive_tops == ((0, 0),)
    assert set(report.facts()) >= {"best", "representable", "monotone_ranking", "basin_error"}


def test_a_game_that_is_too_large_for_the_exact_fit_is_ranked_all_the_same() -> None:
    payoff = np.zeros((17, 17))
    payoff[3, 4], payoff[8, 8] = 5, 3
    report = describe_payoff(payoff, K=1, alpha=1.0, floor=1.0)
    assert report.representable is None
    assert report.table_ranking == ((3, 4), (8, 8))
    assert report.monotone_ranking == ()
    assert "is not known: the payoff has 289 joint actions" in "\n".join(
        report.lines(Game(payoff, ((*"abcdefghijklmnopq",),) * 2))
    )


def test_the_floor_that_is_chosen_sorts_every_payoff() -> None:
    rng = np.random.default_rng(0)
    for _ in range(30):
        payoff = rng.normal(size=(3, 3)) * 10 ** rng.uniform(-1, 2) - rng.uniform(0, 20)
        floor = sufficient_floor([payoff], K=3, alpha=1.0)
        assert all(successive_ranking(payoff, 3, 1.0, floor).locks)
    assert sufficient_floor([DIAGONAL], K=2, alpha=1.0) == 1.0


def test_rescaled_payoffs_keep_their_order_and_go_from_0_to_8() -> None:
    first, second = rescaled([DIAGONAL - 100, DIAGONAL * 3 - 100])
    assert min(first.min(), second.min()) == 0
    assert max(first.max(), second.max()) == 8
    np.testing.assert_array_equal(np.argsort(first, axis=None), np.argsort(DIAGONAL, axis=None))
    np.testing.assert_allclose(second / 3, first)
    assert (rescaled([np.full((2, 2), 7.0)])[0] == 0).all()


def made_run(optimal: np.ndarray) -> OneStepRun:
    """A run of two actions whose greedy joint action is (0, 0), which is best, or (1, 1), which isn't."""
    greedy = np.where(optimal[:, :, None, None], 0, 1).astype(np.uint8).repeat(2, axis=3)
    shape = (*optimal.shape, 1)
    return OneStepRun(
        payoffs=((0, np.diag([2.0, 1.0])),),
        greedy=greedy,
        probabilities=np.ones(shape, dtype=np.float32),
        entries=np.zeros(optimal.shape, dtype=np.int64),
        values=np.zeros((optimal.shape[1], 1, 2, 2), dtype=np.float32),
        visits=np.zeros((1, optimal.shape[1], 2, 2), dtype=np.int64),
        seconds=1.0,
        environments=8,
    )


def test_shares_of_seeds_have_the_intervals_of_clopper_and_pearson() -> None:
    """Of 10 seeds: 0 and 10 give bounds of (1 - 0.025 ** (1 / 10)); 8 of 10 gives 0.4439 to 0.9748 in every table."""
    optimal = np.zeros((300, 10), dtype=bool)
    optimal[100:, :8] = True
    optimal[200:] = True
    curve = recovery_curve(made_run(optimal))
    bound = 1 - 0.025**0.1
    assert (curve.low[0], curve.high[0]) == (0.0, pytest.approx(bound))
    assert (curve.low[150], curve.high[150]) == (pytest.approx(0.4439, abs=1e-4), pytest.approx(0.9748, abs=1e-4))
    assert (curve.low[-1], curve.high[-1]) == (pytest.approx(1 - bound), 1.0)
    assert curve.middle.tolist() == optimal.mean(1).tolist()


def test_a_run_is_described_by_who_is_optimal_and_since_when() -> None:
    optimal = np.zeros((400, 10), dtype=bool)
    optimal[120:, :9] = True
    described = describe_run(made_run(optimal))["payoffs"][0]
    assert described["optimal"] == 9
    assert described["recovery"] == 120
    assert described["mean_payoff"] == pytest.approx(1.9)
    rows = recovery_rows({"s2q": made_run(optimal)})
    assert rows[0]["share_optimal"] == 0
    assert rows[-1] == {**rows[-1], "algorithm": "s2q", "update": 399, "share_optimal": 0.9}
    late = optimal.copy()
    late[350] = False
    assert describe_run(made_run(late))["payoffs"][0]["recovery"] == 120
    late[200] = False
    late[310] = False
    assert describe_run(made_run(late))["payoffs"][0]["optimal"] == 0
