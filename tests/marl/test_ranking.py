"""Successive suppression against sorting, and against the ranking that a monotone fit allows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.core.errors import InputError
from assay.marl.monotone import monotone_projection
from assay.marl.ranking import successive_ranking, sufficient_alpha

DIAGONAL = np.diag([8.0, 4.0, 6.0])
NEGATIVE = np.diag([2.0, 1.0, 1.5]) - 4


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 4),
    st.integers(2, 4),
    st.floats(0.1, 5),
    st.booleans(),
)
def test_sufficient_suppression_sorts_any_payoff(seed, agents, actions, floor, whole_numbers):
    rng = np.random.default_rng(seed)
    shape = (actions,) * agents
    payoff = rng.integers(-3, 4, size=shape).astype(float) if whole_numbers else rng.normal(size=shape) * 5
    K = min(payoff.size - 1, 6)
    alpha = max(sufficient_alpha(payoff, floor), 1e-3)
    ranking = successive_ranking(payoff, K, alpha, floor)
    assert len(set(ranking.actions)) == K + 1
    assert [payoff[action] for action in ranking.actions] == sorted(payoff.ravel().tolist(), reverse=True)[: K + 1]
    assert all(ranking.locks)


def test_the_least_sufficient_alpha_is_where_the_worst_candidate_falls_to_the_bottom():
    alpha = sufficient_alpha(DIAGONAL - 4, floor=2.0)
    assert alpha == 4.0  # the spread is 8, and the floor holds for what is below 2
    assert successive_ranking(DIAGONAL - 4, 2, 0.3, 2.0).locks != (True, True, True)


def test_levels_of_the_diagonal_game_through_a_monotone_mixer():
    ranking = successive_ranking(DIAGONAL, projection="monotone")
    assert ranking.actions == ((0, 0), (2, 2), (1, 1))
    assert [round(error, 3) for error in ranking.squared_errors] == [36.8, 10.667, 0.0]


def test_levels_of_the_diagonal_game_through_a_sum_of_utilities():
    ranking = successive_ranking(DIAGONAL, projection="additive")
    assert ranking.actions[0] == (0, 0)
    assert ranking.actions[1] == (2, 2)


def test_negative_payoffs_need_the_floor():
    paper = successive_ranking(NEGATIVE, 1, floor=3.0, projection="monotone")
    assert paper.actions == ((0, 0), (2, 2))
    assert paper.targets[1][0, 0] == -5.0
    code = successive_ranking(NEGATIVE, 1, suppression="code", projection="monotone")
    assert code.actions == ((0, 0), (0, 0))
    assert code.targets[1][0, 0] == 0.0
    assert round(code.squared_errors[1], 1) == 2.3
    assert code.locks == (True, False)


def test_a_monotone_mixer_may_rank_otherwise_than_the_payoff():
    payoff = [[12, 0, 10], [0, 10, 10], [10, 10, 10]]
    assert successive_ranking(payoff, 0).actions == ((0, 0),)
    assert successive_ranking(payoff, 0, projection="monotone").actions == monotone_projection(payoff).tops
    assert not any(successive_ranking(payoff, 0, projection="monotone").locks)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"K": 9}, "K is 9; expected at least 0 and below the 9 joint actions"),
        ({"K": -1}, "K is -1"),
        ({"alpha": 0.0}, "alpha is 0.0"),
        ({"floor": -1.0}, "floor is -1.0"),
        ({"suppression": "both"}, "suppression is 'both'"),
        ({"projection": "qplex"}, "projection is 'qplex'"),
    ],
    ids=["large-K", "negative-K", "alpha", "floor", "suppression", "projection"],
)
def test_arguments_that_make_no_ranking_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        successive_ranking(DIAGONAL, **arguments)


def test_a_payoff_that_is_not_finite_is_refused():
    with pytest.raises(InputError, match="not finite"):
        successive_ranking([[np.inf, 0], [0, 1]])
