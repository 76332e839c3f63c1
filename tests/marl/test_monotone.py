"""The exact fits against the primal problem over upper sets, brute force, closed forms and a trained mixer."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from assay.core.errors import InputError
from assay.marl.monotone import additive_projection, joint_actions, monotone_projection

OVERGENERAL = [[8, -12, -12], [-12, 0, 0], [-12, 0, 0]]
HIDDEN_OPTIMUM = [[12, 0, 10], [0, 10, 10], [10, 10, 10]]
DIAGONAL = [[8, 0, 0], [0, 4, 0], [0, 0, 6]]


def upper_sets(shape: tuple[int, ...]) -> np.ndarray:
    """Indicators of all upper sets of a product of chains, by trying every subset of the cells."""
    cells = joint_actions(shape)
    below = (cells[:, None] <= cells[None]).all(axis=-1)
    subsets = np.array(list(itertools.product((False, True), repeat=len(cells))))
    closed = np.array([not (below[subset][:, ~subset]).any() for subset in subsets])
    return subsets[closed].astype(float)


def primal_error(payoff: np.ndarray, weights: np.ndarray) -> float:
    """The least error over all permutations, by non-negative least squares over upper sets and a free constant."""
    generators = upper_sets(payoff.shape)
    design = np.column_stack([generators.T, -np.ones(payoff.size)])
    errors = []
    for order in itertools.product(*(itertools.permutations(range(actions)) for actions in payoff.shape)):
        root = np.sqrt(weights[np.ix_(*order)].ravel())
        errors.append(nnls(design * root[:, None], payoff[np.ix_(*order)].ravel() * root)[1] ** 2)
    return min(errors)


@pytest.mark.parametrize(
    ("payoff", "error", "top", "finds"),
    [
        (OVERGENERAL, 288.0, (0, 0), True),
        (HIDDEN_OPTIMUM, 69.667, (2, 2), False),
        (DIAGONAL, 36.8, (0, 0), True),
        (np.diag([0, 4, 6]), 10.667, (2, 2), True),
        (np.diag([0, 4, 0]), 0.0, (1, 1), True),
        (np.diag([8, 4, 12]), 55.467, (2, 2), True),
    ],
    ids=["overgeneral", "hidden", "diagonal", "without-first", "without-first-and-third", "moved"],
)
def test_exact_fits_of_the_known_games(payoff, error, top, finds):
    fit = monotone_projection(payoff)
    assert round(fit.squared_error, 3) == error
    assert fit.tops == (top,)
    assert fit.finds_optimum is finds
    assert fit.representable is (error == 0)


def test_the_second_basin_and_the_local_optimum_of_the_overgeneral_game():
    fit = monotone_projection(OVERGENERAL)
    np.testing.assert_allclose(fit.values, np.where(np.arange(9).reshape(3, 3) == 0, 8, -6), atol=1e-9)
    others = np.sort(np.unique(fit.error_by_top.round(2)))
    assert others.tolist() == [288.0, 315.43, 320.0]


def test_the_fit_of_the_diagonal_game_has_three_levels():
    expected = [[8, 0.8, 2], [0.8, 0.8, 0.8], [2, 0.8, 2]]
    np.testing.assert_allclose(monotone_projection(DIAGONAL).values, expected, atol=1e-9)


@pytest.mark.parametrize("shape", [(2, 2), (3, 3), (2, 3), (2, 2, 2), (3, 2, 2), (2, 2, 2, 2)], ids=str)
def test_the_dual_search_reaches_the_primal_optimum(shape):
    rng = np.random.default_rng(len(shape) * 10 + shape[0])
    for _ in range(2):
        payoff, weights = rng.normal(size=shape), rng.uniform(0.1, 2, size=shape)
        fit = monotone_projection(payoff, weights)
        assert fit.squared_error == pytest.approx(primal_error(payoff, weights), rel=1e-7)
        assert fit.squared_error == pytest.approx(float((weights * (fit.values - payoff) ** 2).sum()))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_weights_of_nothing_leave_cells_out(seed):
    rng = np.random.default_rng(seed)
    payoff, weights = rng.normal(size=(3, 3)), rng.integers(0, 2, size=(3, 3)).astype(float)
    weights.flat[rng.integers(9)] = 1.0
    fit = monotone_projection(payoff, weights)
    assert fit.squared_error == pytest.approx(primal_error(payoff, weights), abs=1e-7)
    assert is_monotone(fit.values)


def is_monotone(values: np.ndarray) -> bool:
    for axis in range(values.ndim):
        slices = np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)
        order = np.argsort(slices.sum(axis=1), kind="stable")
        if (np.diff(slices[order], axis=0) < -1e-7).any():
            return False
    return True


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([(3, 3), (2, 2, 2), (4, 3)]))
def test_a_fit_is_monotone_and_follows_permutations_of_the_actions(seed, shape):
    rng = np.random.default_rng(seed)
    payoff = rng.normal(size=shape)
    fit = monotone_projection(payoff)
    assert is_monotone(fit.values)
    orders = [rng.permutation(actions) for actions in shape]
    moved = monotone_projection(payoff[np.ix_(*orders)])
    assert moved.squared_error == pytest.approx(fit.squared_error, rel=1e-7)
    np.testing.assert_allclose(moved.error_by_top, fit.error_by_top[np.ix_(*orders)], rtol=1e-6)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_a_monotone_function_of_utilities_is_represented_exactly(seed):
    rng = np.random.default_rng(seed)
    utilities = [rng.normal(size=4) for _ in range(2)]
    payoff = np.exp(utilities[0])[:, None] + 2 * utilities[1] ** 3
    fit = monotone_projection(payoff)
    assert fit.representable
    assert fit.finds_optimum
    np.testing.assert_allclose(fit.values, payoff, atol=1e-7)


def test_a_small_weight_of_the_others_lets_a_mixer_represent_the_optimum():
    payoff = np.array(OVERGENERAL)
    payoff[0, 0] = 1
    weights = np.where(payoff == 1, 1.0, 0.02)
    assert not monotone_projection(payoff).finds_optimum
    assert monotone_projection(payoff, weights).tops == ((0, 0),)


def test_equal_payoffs_have_every_joint_action_on_top():
    fit = monotone_projection(np.ones((2, 2)))
    assert len(fit.tops) == 4
    assert fit.representable and fit.finds_optimum


@pytest.mark.parametrize(
    ("payoff", "first", "second", "third"),
    [(OVERGENERAL, -6.222, -4.889, -3.556), (DIAGONAL, 3.333, 2.667, 2.0)],
    ids=["overgeneral", "diagonal"],
)
def test_the_additive_fit_is_row_mean_plus_column_mean_minus_grand_mean(payoff, first, second, third):
    values = additive_projection(payoff).values
    assert [round(float(values[cell]), 3) for cell in ((0, 0), (0, 2), (2, 2))] == [first, second, third]
    table = np.asarray(payoff, dtype=float)
    closed = table.mean(axis=1, keepdims=True) + table.mean(axis=0, keepdims=True) - table.mean()
    np.testing.assert_allclose(values, closed, atol=1e-12)


def test_a_weighted_additive_fit_leaves_no_weighted_residual_along_any_action():
    rng = np.random.default_rng(3)
    payoff, weights = rng.normal(size=(3, 2, 4)), rng.uniform(0.1, 1, size=(3, 2, 4))
    residual = weights * (additive_projection(payoff, weights).values - payoff)
    for axis in range(3):
        np.testing.assert_allclose(np.moveaxis(residual, axis, 0).reshape(payoff.shape[axis], -1).sum(1), 0, atol=1e-10)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1, np.nan], [0, 0]],), r"joint action \(0, 1\) is nan"),
        (([],), "has shape"),
        ((np.zeros((17, 16)),), "272 joint actions; expected at most 256"),
        ((np.ones((2, 2)), np.ones((2, 3))), "weights have shape"),
        ((np.ones((2, 2)), np.zeros((2, 2))), "all 0"),
        ((np.ones((2, 2)), -np.ones((2, 2))), "negative"),
    ],
    ids=["nan", "empty", "large", "shape", "zero", "negative"],
)
def test_what_cannot_be_fitted_is_refused_in_one_line(arguments, message):
    with pytest.raises(InputError, match=message):
        monotone_projection(*arguments)


def test_a_search_that_takes_too_long_names_its_limit():
    payoff = np.random.default_rng(0).normal(size=(5, 5))
    with pytest.raises(InputError, match="of 5×5 takes more than 40 regressions; expected fewer actions"):
        monotone_projection(payoff, most_regressions=40)
