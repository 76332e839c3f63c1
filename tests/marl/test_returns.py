"""λ-returns against an example worked by hand, the two ends of λ, and padding."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from assay.marl.returns import lambda_return

REWARD = torch.tensor([[1.0, 0.0, 2.0]], dtype=torch.float64)
VALUE = torch.tensor([[7.0, 0.5, 0.4, 0.3]], dtype=torch.float64)
END = torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64)
FILLED = torch.ones(1, 3, dtype=torch.float64)


def test_the_example_worked_by_hand() -> None:
    found = lambda_return(REWARD, VALUE, END, FILLED, gamma=0.9, lam=0.6)
    np.testing.assert_allclose(found[0], [1.84096, 1.224, 2.0], rtol=1e-12)


def test_without_lambda_targets_look_one_step_ahead() -> None:
    found = lambda_return(REWARD, VALUE, END, FILLED, gamma=0.9, lam=0.0)
    np.testing.assert_allclose(found[0], [1 + 0.9 * 0.5, 0.9 * 0.4, 2.0], rtol=1e-12)


def test_with_lambda_one_targets_are_discounted_returns() -> None:
    found = lambda_return(REWARD, VALUE, END, FILLED, gamma=0.9, lam=1.0)
    np.testing.assert_allclose(found[0], [1 + 0.81 * 2, 0.9 * 2, 2.0], rtol=1e-12)


def test_a_time_limit_is_no_end_and_values_count_behind_it() -> None:
    found = lambda_return(REWARD, VALUE, torch.zeros(1, 3), FILLED, gamma=0.9, lam=0.6)
    last = 2 + 0.9 * 0.3
    middle = 0.9 * (0.4 * 0.4 + 0.6 * last)
    np.testing.assert_allclose(found[0], [1 + 0.9 * (0.4 * 0.5 + 0.6 * middle), middle, last], rtol=1e-12)


@pytest.mark.parametrize("terminated", [0.0, 1.0])
@pytest.mark.parametrize("what", [1e9, float("nan"), float("inf")])
def test_what_stands_in_padding_changes_nothing(what: float, terminated: float) -> None:
    end = torch.tensor([[0.0, 0.0, terminated]], dtype=torch.float64)
    alone = lambda_return(REWARD, VALUE, end, FILLED, gamma=0.9, lam=0.6)
    padding = torch.full((1, 4), what, dtype=torch.float64)
    padded = lambda_return(
        torch.cat([REWARD, padding], 1),
        torch.cat([VALUE, padding], 1),
        torch.cat([end, torch.zeros(1, 4)], 1),
        torch.cat([FILLED, torch.zeros(1, 4)], 1),
        gamma=0.9,
        lam=0.6,
    )
    assert torch.equal(padded[:, :3], alone)
    assert torch.equal(padded[:, 3:], torch.zeros(1, 4, dtype=torch.float64))


@given(
    seed=st.integers(0, 10_000),
    steps=st.integers(1, 8),
    gamma=st.floats(0, 1),
    lam=st.floats(0, 1),
    terminated=st.booleans(),
)
def test_equals_the_mixture_of_n_step_returns(
    seed: int, steps: int, gamma: float, lam: float, terminated: bool
) -> None:
    """G = (1 − λ) Σ λ^(m−1) G^(m) + λ^(M−1) G^(M), M the steps that are left."""
    rng = np.random.default_rng(seed)
    reward, value = rng.normal(size=steps), rng.normal(size=steps + 1)
    if terminated:
        value[-1] = 0
    wanted = []
    for t in range(steps):
        most = steps - t
        n_step = [sum(gamma**i * reward[t + i] for i in range(m)) + gamma**m * value[t + m] for m in range(1, most + 1)]
        weights = [(1 - lam) * lam ** (m - 1) for m in range(1, most)] + [lam ** (most - 1)]
        wanted.append(np.dot(weights, n_step))
    end = torch.zeros(1, steps)
    end[0, -1] = terminated
    found = lambda_return(
        torch.tensor(reward)[None], torch.tensor(value)[None], end, torch.ones(1, steps), gamma=gamma, lam=lam
    )
    np.testing.assert_allclose(found[0], wanted, rtol=1e-9, atol=1e-12)
