"""Trion against its definition and against Muon, and the Newton–Schulz iteration against its scalar map."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from assay.core.errors import InputError
from assay.lowrank import Trion, newton_schulz
from assay.lowrank.basis import make_basis
from assay.lowrank.orthogonal import scalar_map
from assay.lowrank.selection import select_columns
from assay.lowrank.trion import update_scale


def matrix(rows: int, columns: int, seed: int) -> torch.Tensor:
    return torch.randn(rows, columns, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("coefficients", "value"), [("keller", 0.6964), ("tuned", 0.9783)])
def test_a_singular_value_of_one_goes_where_the_polynomials_say(coefficients, value):
    assert scalar_map(1.0, coefficients=coefficients) == pytest.approx(value, abs=5e-5)
    rank_one = torch.outer(matrix(6, 1, 0)[:, 0], matrix(4, 1, 1)[:, 0])
    found = torch.linalg.svdvals(newton_schulz(rank_one, coefficients=coefficients))
    assert found[0].item() == pytest.approx(value, abs=5e-5)


@given(
    shape=st.sampled_from([(9, 4), (4, 9), (6, 6), (1, 5), (20, 3)]),
    seed=st.integers(0, 99),
    coefficients=st.sampled_from(["keller", "tuned"]),
    impl=st.sampled_from(["plain", "gram", "auto"]),
    steps=st.integers(1, 7),
)
@settings(deadline=None, max_examples=40)
def test_every_singular_value_follows_the_scalar_map_and_the_vectors_stay(shape, seed, coefficients, impl, steps):
    X = matrix(*shape, seed)
    U, S, Vh = torch.linalg.svd(X, full_matrices=False)
    mapped = torch.tensor(
        [scalar_map(value / (S.norm().item() + 1e-7), coefficients=coefficients, steps=steps) for value in S.tolist()],
        dtype=torch.float64,
    )
    expected = (U * mapped) @ Vh
    assert (newton_schulz(X, steps=steps, coefficients=coefficients, impl=impl) - expected).abs().max() < 1e-8


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-8), (torch.float32, 1e-3)])
def test_the_gram_form_equals_the_plain_one(dtype, tolerance):
    X = (matrix(64, 16, 0) * torch.logspace(0, -3, 16, dtype=torch.float64)).to(dtype)
    plain, gram = (newton_schulz(X, impl=impl) for impl in ("plain", "gram"))
    assert (plain - gram).abs().max() < tolerance
    batch = torch.stack([X, 2 * X.flip(0)])
    assert torch.allclose(newton_schulz(batch, impl="gram")[0], gram, atol=tolerance)
    assert torch.allclose(newton_schulz(batch, impl="plain")[1], plain.flip(0), atol=tolerance)


def test_zero_stays_zero():
    for impl in ("plain", "gram"):
        assert not newton_schulz(torch.zeros(5, 3), impl=impl).any()


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"coefficients": "best"}, {"impl": "fast"}])
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(InputError):
        newton_schulz(torch.zeros(2, 2), **wrong)


def independent_newton_schulz(X: torch.Tensor) -> torch.Tensor:
    """Jordan's five iterations, on the wide orientation."""
    turned = X.shape[0] > X.shape[1]
    X = X.T if turned else X
    X = X / (X.norm() + 1e-7)
    for _ in range(5):
        A = X @ X.T
        X = 3.4445 * X + (-4.7750 * A + 2.0315 * A @ A) @ X
    return X.T if turned else X


@pytest.mark.parametrize("shape", [(10, 6), (6, 10), (7, 7)])
def test_with_all_columns_it_is_muon_with_the_momentum_inside(shape):
    W, M, lr, mu = matrix(*shape, 0), torch.zeros(shape, dtype=torch.float64), 0.05, 0.9
    parameter = nn.Parameter(W.clone())
    optimizer = Trion([parameter], lr, mu, weight_decay=0.1, rank=1.0)
    for step in range(8):
        G = matrix(*shape, step + 1)
        parameter.grad = G.clone()
        optimizer.step()
        W = (1 - lr * 0.1) * W - lr * max(1, math.sqrt(shape[0] / shape[1])) * independent_newton_schulz(M + G)
        M = mu * (M + G)
        assert (optimizer.momentum_of(parameter) - M).abs().max() < 1e-12
        assert (parameter - W).abs().max() < 1e-6


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"basis": "dct3"},
        {"basis": "hadamard"},
        {"norm": 1},
        {"scale": "kimi"},
        {"scale": "dion"},
        {"scale": "none"},
        {"ns_coefficients": "tuned", "ns_steps": 6},
    ],
    ids=str,
)
@pytest.mark.parametrize("impl", ["gram", "plain"])
def test_the_optimiser_does_what_the_algorithm_says(options, impl):
    W, M, lr, mu, r = matrix(12, 8, 0), torch.zeros(12, 8, dtype=torch.float64), 0.05, 0.9, 3
    right, left = nn.Parameter(W.clone()), nn.Parameter(W.mT.contiguous().clone())
    options = {"scale": "none", **options}
    optimizer = Trion([right], lr, mu, weight_decay=0.1, rank=r, ns_impl=impl, **options)
    mirrored = Trion([left], lr, mu, weight_decay=0.1, rank=r, ns_impl=impl, **options)
    kind, norm = options.get("basis", "dct2"), options.get("norm", 2)
    B = make_basis(kind, 8, dtype=torch.float64).columns(torch.arange(8))
    for step in range(5):
        G = matrix(12, 8, step + 1)
        right.grad, left.grad = G.clone(), G.mT.contiguous().clone()
        optimizer.step()
        mirrored.step()
        T = M + G
        B_i = B[:, select_columns(T, r, basis=kind, norm=norm)[0].long()]
        b = T @ B_i
        M = mu * T + (1 - mu) * (T - b @ B_i.mT)
        o = newton_schulz(
            b, impl="plain", coefficients=options.get("ns_coefficients", "keller"), steps=options.get("ns_steps", 5)
        )
        W = (1 - lr * 0.1) * W - lr * update_scale(options["scale"], 12, 8) * o @ B_i.mT
        assert (right - W).abs().max() < 1e-8
        if options["scale"] == "none":
            assert (left.mT - right).abs().max() < 1e-8
    assert (optimizer.momentum_of(right) - M).abs().max() < 1e-12


def test_a_momentum_from_the_product_goes_on_with_the_fast_transform():
    W, held, saved = matrix(12, 9, 0), {}, {}
    for ways in (("fft", "fft"), ("matmul", "fft"), ("fft", "matmul")):
        parameter = nn.Parameter(W.clone())
        for place, way in enumerate(ways):
            optimizer = Trion([parameter], 0.05, rank=3, transform=way)
            if place:
                optimizer.load_state_dict(saved)
            for step in range(3):
                parameter.grad = matrix(12, 9, 10 * place + step)
                optimizer.step()
            saved = optimizer.state_dict()
        held[ways] = parameter.detach()
    assert all((one - held["fft", "fft"]).abs().max() < 1e-12 for one in held.values())


def test_large_symmetric_products_are_computed_in_panels_to_the_same_result():
    X = matrix(1000, 400, 0)
    plain, gram = (newton_schulz(X, impl=impl) for impl in ("plain", "gram"))
    assert (plain - gram).abs().max() < 1e-8


def test_the_iteration_in_bfloat16_is_near_that_in_float32():
    X = matrix(64, 16, 0).float()
    coarse, fine = (newton_schulz(X, dtype=dtype) for dtype in ("bfloat16", "float32"))
    assert coarse.dtype == torch.float32
    assert 0 < (coarse - fine).norm() < 0.05 * fine.norm()


def test_what_was_never_projected_has_no_momentum():
    bias = nn.Parameter(torch.zeros(3))
    with pytest.raises(InputError, match="no momentum"):
        Trion([bias]).momentum_of(bias)


def test_scales():
    assert [round(update_scale(scale, 400, 100), 6) for scale in ("kj", "dion", "kimi", "none")] == [2, 2, 4, 1]
    assert [update_scale(scale, 100, 400) for scale in ("kj", "dion", "none")] == [1, 0.5, 1]


def test_what_is_not_projected_has_its_own_rate_and_follows_schedulers():
    bias, weight, alone = (
        nn.Parameter(torch.zeros(4, dtype=torch.float64)),
        nn.Parameter(torch.zeros(4, 4)),
        nn.Parameter(torch.zeros(3)),
    )
    optimizer = Trion([{"params": [bias, weight]}, {"params": [alone], "low_rank": False}], lr=0.02)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 if step == 0 else 0.5)
    for expected in (3e-4, 4.5e-4):
        for parameter in (bias, weight, alone):
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        assert bias[0].item() == pytest.approx(-expected)
        assert alone[0].item() == pytest.approx(-expected, rel=1e-5)
        schedule.step()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"momentum": 1.0}, "momentum is 1.0"),
        ({"scale": "big"}, "scale is 'big'"),
        ({"ns_steps": 0}, "ns_steps is 0"),
        ({"ns_steps": 2.5}, "ns_steps is 2.5"),
        ({"momentum": "much"}, "momentum is 'much'"),
        ({"adamw_lr": -1.0}, "adamw_lr is -1.0"),
        ({"adamw_lr": "x"}, "adamw_lr is 'x'"),
        ({"adamw_eps": float("nan")}, "adamw_eps is nan"),
        ({"adamw_betas": (1.2, 0.9)}, r"adamw_betas\[0\] is 1.2"),
        ({"adamw_betas": [0.9]}, r"adamw_betas is \[0.9\]"),
        ({"ns_coefficients": "x"}, "ns_coefficients is 'x'"),
        ({"ns_impl": "x"}, "ns_impl is 'x'"),
        ({"ns_dtype": "x"}, "ns_dtype is 'x'"),
        ({"ns_dtype": "bfloat16", "ns_impl": "gram"}, "ns_dtype is 'bfloat16' with ns_impl 'gram'"),
        ({"rank": -1}, "rank is -1"),
    ],
)
def test_wrong_settings_of_the_optimiser_are_refused(options, said):
    with pytest.raises(InputError, match=said):
        Trion([nn.Parameter(torch.zeros(4, 4))], **options)
