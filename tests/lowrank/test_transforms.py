"""The cosine transform against scipy's, and which basis is which."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.fft
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.core.errors import InputError
from assay.lowrank import dct, idct
from assay.lowrank.basis import BASES, choose_transform, make_basis, measure_transform
from assay.lowrank.transforms import dct_matrix

LENGTHS = (1, 2, 3, 7, 8, 64, 1000)


@pytest.mark.parametrize("n", LENGTHS)
def test_the_matrix_is_scipys_and_orthonormal(n):
    D = dct_matrix(n).numpy()
    assert np.abs(D - scipy.fft.dct(np.eye(n), axis=0, norm="ortho")).max() < 1e-12
    assert np.abs(D @ D.T - np.eye(n)).max() < 1e-12


@given(
    n=st.integers(1, 70),
    rows=st.integers(0, 3),
    seed=st.integers(0, 99),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
@settings(deadline=None, max_examples=60)
def test_the_fast_transforms_are_scipys_for_every_length(n, rows, seed, dtype):
    x = torch.randn(rows, 2, n, dtype=dtype, generator=torch.Generator().manual_seed(seed))
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    for ours, theirs in ((dct, scipy.fft.dct), (idct, scipy.fft.idct)):
        y = ours(x)
        assert y.dtype == dtype
        assert y.shape == x.shape
        if rows:
            assert np.abs(y.numpy() - theirs(x.double().numpy(), norm="ortho")).max() < tolerance
    assert rows == 0 or (idct(dct(x)) - x).abs().max() < tolerance


@pytest.mark.parametrize("n", [5, 8, 1001])
def test_rows_that_are_not_contiguous_are_transformed_alike(n):
    x = torch.randn(n, 6, dtype=torch.float64).mT[::2]
    assert not x.is_contiguous()
    assert np.abs(dct(x).numpy() - scipy.fft.dct(x.numpy(), norm="ortho")).max() < 1e-12
    assert (idct(dct(x)) - x).abs().max() < 1e-12


def test_half_precision_is_computed_in_single_and_cast_back():
    x = torch.randn(3, 12, dtype=torch.bfloat16)
    assert dct(x).dtype == torch.bfloat16
    assert torch.equal(dct(x), dct(x.float()).bfloat16())


def test_gradients_flow_through_both():
    x = torch.randn(2, 7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(dct, (x,))
    assert torch.autograd.gradcheck(idct, (x,))


@pytest.mark.parametrize(
    "wrong", [torch.arange(3), torch.tensor(1.0), torch.zeros(3, 0), torch.zeros(2, dtype=torch.complex64)]
)
def test_what_is_no_row_of_real_numbers_is_refused(wrong):
    with pytest.raises(InputError, match="the tensor has"):
        dct(wrong)


@pytest.mark.parametrize("transform", ["fft", "matmul"])
@pytest.mark.parametrize("n", [1, 2, 5, 8, 33])
def test_dct2_is_the_transform_of_rows_and_dct3_its_inverse(n, transform):
    G = torch.randn(1, 4, n, dtype=torch.float64)
    every = torch.arange(n).unsqueeze(0)
    for kind, theirs in (("dct2", scipy.fft.dct), ("dct3", scipy.fft.idct)):
        basis = make_basis(kind, n, transform=transform, dtype=torch.float64)
        S = basis.down(G, every)[0].numpy()
        assert np.abs(S - theirs(G[0].numpy(), norm="ortho")).max() < 1e-12
        B = dct_matrix(n).mT if kind == "dct2" else dct_matrix(n)
        assert np.abs(S - (G[0] @ B).numpy()).max() < 1e-12
        assert (basis.columns(every[0]) - B).abs().max() < 1e-12


@pytest.mark.parametrize("transform", ["fft", "matmul"])
@pytest.mark.parametrize("kind", BASES[:-1])
@pytest.mark.parametrize("n", [1, 2, 16])
def test_every_basis_is_orthonormal_and_agrees_with_its_matrix(kind, n, transform):
    basis = make_basis(kind, n, transform=transform, dtype=torch.float64)
    every = torch.arange(n)
    B = basis.columns(every)
    assert (B.mT @ B - torch.eye(n, dtype=torch.float64)).abs().max() < 1e-12
    A = torch.randn(3, 5, n, dtype=torch.float64)
    S = A @ B
    packed = basis.coordinates(A)
    assert torch.allclose(basis.rows(packed), A)
    assert torch.allclose(basis.power(packed, 2), S.square().sum(1))
    assert torch.allclose(basis.power(packed, 1), S.abs().sum(1))
    index = torch.stack([torch.randperm(n)[: (n + 1) // 2].sort().values for _ in range(3)]).int()
    chosen = S.gather(2, index.long().unsqueeze(1).expand(-1, 5, -1))
    assert torch.allclose(basis.take(packed, index), chosen)
    assert torch.allclose(basis.down(A, index), chosen)
    back = torch.stack([one @ B[:, columns.long()].mT for one, columns in zip(chosen, index, strict=True)])
    assert torch.allclose(basis.lift(chosen, index), back)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 9, 300])
def test_both_ways_to_the_cosines_give_the_same_coordinates(n):
    A = torch.randn(2, 7, n, dtype=torch.float64)
    fast, product = (make_basis("dct2", n, transform=way, dtype=torch.float64) for way in ("fft", "matmul"))
    assert (fast.coordinates(A) - product.coordinates(A)).abs().max() < 1e-12
    index = torch.tensor([[0, n - 1], [n // 2, n // 3]]).int()
    assert torch.equal(fast.factors(index, 0.5), product.factors(index, 0.5))
    assert (fast.coordinates(A) * fast.factors(index, 0.5) - fast.coordinates(A)).abs().sum(1).count_nonzero() <= 4


def test_many_rows_are_transformed_as_few_are():
    A = torch.randn(700, 1024)
    whole, parts = dct(A), torch.cat([dct(one) for one in A.split(50)])
    assert torch.equal(whole, parts)
    assert (idct(whole) - A).abs().max() < 1e-5


def test_the_fast_basis_keeps_no_matrix_and_the_multiplied_one_a_square():
    assert make_basis("dct2", 512, transform="fft").nbytes == 0
    assert make_basis("dct2", 512, transform="matmul").nbytes == 512 * 512 * 4


def test_the_transform_is_chosen_by_size_or_by_measurement():
    cpu = torch.device("cpu")
    assert choose_transform("auto", 64, device=cpu) == "matmul"
    assert choose_transform("auto", 4096, device=cpu) == "fft"
    assert choose_transform("matmul", 4096, device=cpu) == "matmul"
    assert measure_transform(8, 8) in ("fft", "matmul")


def test_a_basis_of_ones_own_must_be_orthogonal():
    rotation = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64))[0]
    basis = make_basis("user", 6, user=rotation, dtype=torch.float64)
    assert torch.allclose(basis.columns(torch.arange(6)), rotation)
    with pytest.raises(InputError, match=r"max \|BᵀB - I\| is 0\.21"):
        make_basis("user", 6, user=1.1 * rotation)
    with pytest.raises(InputError, match=r"expected a matrix of shape \(5, 5\)"):
        make_basis("user", 5, user=rotation)
    with pytest.raises(InputError, match="expected a power of 2"):
        make_basis("hadamard", 12)
    with pytest.raises(InputError, match="expected one of: dct2"):
        make_basis("fourier", 12)


@pytest.mark.parametrize("cut", [(slice(None), slice(None)), (slice(2, 9), slice(1, 7)), (slice(1, 2), slice(3, 4))])
def test_columns_are_taken_from_a_view_as_from_its_copy(cut):
    whole = torch.randn(1, 10, 9, dtype=torch.float64)
    view = whole[:, cut[0], cut[1]]
    index = torch.arange(0, view.shape[2], 2).int().unsqueeze(0)
    basis = make_basis("identity", view.shape[2], dtype=torch.float64)
    assert torch.equal(basis.take(view, index), view.clone()[:, :, ::2])
    turned = whole.mT[:, cut[1], cut[0]]
    index = torch.arange(0, turned.shape[2], 2).int().unsqueeze(0)
    basis = make_basis("identity", turned.shape[2], dtype=torch.float64)
    assert torch.equal(basis.take(turned, index), turned.clone()[:, :, ::2])
    same = whole[:, :1, :6].expand(1, 5, 6)
    basis = make_basis("identity", 6, dtype=torch.float64)
    assert torch.equal(basis.take(same, torch.tensor([[1, 4]]).int()), same.clone()[:, :, [1, 4]])
