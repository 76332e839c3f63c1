"""The choice of columns against brute force and its theorem, and how states follow it."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.core.errors import InputError
from assay.lowrank import DCTProjector, select_columns
from assay.lowrank.basis import make_basis
from assay.lowrank.projector import SVDProjector
from assay.lowrank.selection import Carry, projects_right, resolve_rank


def matrix(rows: int, n: int, seed: int) -> torch.Tensor:
    return torch.randn(rows, n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def columns(kind: str, n: int) -> torch.Tensor:
    return make_basis(kind, n, dtype=torch.float64).columns(torch.arange(n))


def squared_error(A: torch.Tensor, B: torch.Tensor) -> float:
    return (A - A @ B @ B.mT).square().sum().item()


@given(
    rows=st.integers(1, 6),
    n=st.integers(1, 10),
    share=st.floats(0.05, 1),
    seed=st.integers(0, 999),
    kind=st.sampled_from(["dct2", "dct3", "random"]),
)
@settings(deadline=None, max_examples=50)
def test_no_other_columns_err_less_and_the_error_is_at_most_the_bound(rows, n, share, seed, kind):
    A, B, r = matrix(rows, n, seed), columns(kind, n), max(1, int(share * n))
    index, coefficients = select_columns(A, r, basis=kind)
    error = squared_error(A, B[:, index.long()])
    best = min(squared_error(A, B[:, list(subset)]) for subset in combinations(range(n), r))
    whole = A.square().sum().item()
    assert error <= best + 1e-10 * whole
    assert abs(error - (whole - coefficients.square().sum().item())) < 1e-10 * max(1, whole)
    assert error <= (1 - r / n) * whole + 1e-10 * whole


@given(
    seed=st.integers(0, 999),
    r=st.integers(1, 12),
    norm=st.sampled_from([1, 2]),
    factor=st.sampled_from([-3.0, 0.25, 64.0]),
)
@settings(deadline=None, max_examples=40)
def test_the_choice_depends_neither_on_the_order_of_rows_nor_on_scale(seed, r, norm, factor):
    A = matrix(7, 12, seed)
    index, _ = select_columns(A, r, norm=norm)
    assert torch.equal(select_columns(A.flip(0), r, norm=norm)[0], index)
    assert torch.equal(select_columns(factor * A, r, norm=norm)[0], index)
    assert torch.equal(index, index.sort().values)
    assert index.dtype == torch.int32


@pytest.mark.parametrize("transform", ["fft", "matmul"])
def test_rows_within_chosen_columns_are_found_and_kept_whole(transform):
    B, chosen = columns("dct2", 16), torch.tensor([0, 3, 8, 15])
    A = 5 * matrix(6, 4, 0) @ B[:, chosen].mT
    index, coefficients = select_columns(A, 4, transform=transform)
    assert index.tolist() == chosen.tolist()
    assert (A - coefficients @ B[:, chosen].mT).abs().max() < 1e-12


def test_all_columns_lose_nothing():
    A = matrix(5, 9, 1)
    index, coefficients = select_columns(A, 1.0)
    assert index.tolist() == list(range(9))
    assert (A - coefficients @ columns("dct2", 9).mT).abs().max() < 1e-12


def test_of_equal_columns_the_lower_are_chosen_and_zeros_stay_zero():
    index, coefficients = select_columns(torch.zeros(3, 4, 10), 4)
    assert index.tolist() == [[0, 1, 2, 3]] * 3
    assert not coefficients.any()
    assert select_columns(torch.ones(2, 6), 3, basis="identity")[0].tolist() == [0, 1, 2]


def test_a_batch_is_chosen_matrix_by_matrix():
    A = torch.randn(3, 5, 12)
    index, coefficients = select_columns(A, 4)
    for one, columns_of_one, kept in zip(A, index, coefficients, strict=True):
        alone = select_columns(one, 4)
        assert torch.equal(alone[0], columns_of_one)
        assert torch.allclose(alone[1], kept, atol=1e-6)


@given(n=st.integers(1, 12), seed=st.integers(0, 999), data=st.data())
@settings(deadline=None, max_examples=60)
def test_the_rotation_of_moments_is_a_partial_permutation(n, seed, data):
    r = data.draw(st.integers(1, n))
    generator = torch.Generator().manual_seed(seed)
    old, new = (torch.randperm(n, generator=generator)[:r].sort().values.int() for _ in range(2))
    B = columns("dct2", n)
    rotation = B[:, old.long()].mT @ B[:, new.long()]
    zeros_and_ones = (old[:, None] == new[None, :]).double()
    assert (rotation - zeros_and_ones).abs().max() < 1e-13
    carry, state = Carry(old.unsqueeze(0), new.unsqueeze(0)), matrix(4, r, seed)
    assert torch.equal(carry(state.unsqueeze(0))[0], state @ zeros_and_ones)
    assert (carry(state.unsqueeze(0))[0] - state @ rotation).abs().max() < 1e-12
    assert torch.equal(carry(state[:1])[0], state[0] @ zeros_and_ones)
    assert carry.churn.item() == pytest.approx(1 - zeros_and_ones.sum().item() / r)


@pytest.mark.parametrize(
    ("rank", "n", "expected"), [(3, 8, 3), (9, 8, 8), (0.25, 8, 2), (0.01, 8, 1), (1.0, 8, 8), (0.3, 5, 2), (0.1, 5, 1)]
)
def test_a_rank_is_a_number_or_a_share(rank, n, expected):
    assert resolve_rank(rank, n) == expected


@pytest.mark.parametrize("rank", [0, -2, 0.0, 1.5, -0.1, float("nan"), True, "half", None])
def test_a_wrong_rank_is_refused(rank):
    with pytest.raises(InputError, match="rank is"):
        resolve_rank(rank, 8)


def test_sides():
    assert [projects_right(side, 4, 3) for side in ("auto", "right", "left", "smaller", "larger")] == [
        True,
        True,
        False,
        True,
        False,
    ]
    assert [projects_right(side, 3, 4) for side in ("auto", "right", "left", "smaller", "larger")] == [
        False,
        True,
        False,
        False,
        True,
    ]
    assert projects_right("auto", 3, 3)
    with pytest.raises(InputError, match="side is 'top'"):
        projects_right("top", 3, 3)


@pytest.mark.parametrize(
    "wrong",
    [{"A": torch.zeros(3)}, {"A": torch.zeros(3, 3, dtype=torch.int64)}, {"norm": 3}, {"basis": make_basis("dct2", 5)}],
)
def test_wrong_arguments_are_refused(wrong):
    with pytest.raises(InputError):
        select_columns(**{"A": torch.zeros(3, 4), "r": 2, **wrong})


def test_projectors_go_down_up_and_carry():
    A, later = matrix(6, 10, 0), matrix(6, 10, 1)
    cosines = DCTProjector(4).fit(A)
    before = cosines.index_
    a = cosines.down(A)
    assert torch.allclose(a, select_columns(A, 4)[1])
    assert torch.allclose(cosines.down(cosines.up(a)), a)
    kept = (before[:, None] == cosines.fit(later).index_[None, :]).double()
    assert torch.equal(cosines.carry(a), a @ kept)
    exact = SVDProjector(4).fit(A)
    assert squared_error(A, exact.vectors_) == pytest.approx(torch.linalg.svdvals(A)[4:].square().sum().item())
    turned = exact.vectors_
    assert torch.allclose(exact.fit(later).carry(a), a @ (turned.mT @ exact.vectors_))
    with pytest.raises(InputError, match="no columns yet"):
        DCTProjector(4).down(A)
