"""GaLore, FRUGAL, FIRA, Dion and LDAdamW against their definitions written plainly, and GaLore against its package."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from assay.core.errors import InputError
from assay.lowrank import DCTFiraAdamW, DCTFrugalAdamW, DCTGaLoreAdamW, Dion, LDAdamW
from assay.lowrank.basis import make_basis
from assay.lowrank.selection import select_columns


def matrix(rows: int, columns: int, seed: int) -> torch.Tensor:
    return torch.randn(rows, columns, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def directions(A: torch.Tensor, r: int, projection: str) -> torch.Tensor:
    if projection == "svd":
        return torch.linalg.svd(A, full_matrices=False).Vh[:r].mT
    B = make_basis("dct2", A.shape[1], dtype=A.dtype).columns(torch.arange(A.shape[1]))
    return B[:, select_columns(A, r)[0].long()]


@pytest.mark.parametrize("projection", ["dct", "svd"])
@pytest.mark.parametrize("kind", [DCTGaLoreAdamW, DCTFrugalAdamW, DCTFiraAdamW])
def test_plugged_in_projections_do_what_their_methods_say(kind, projection):
    W, lr, r, gap, wd = matrix(10, 6, 0), 0.05, 2, 3, 0.1
    right, left = nn.Parameter(W.clone()), nn.Parameter(W.mT.contiguous().clone())
    optimizer = kind([right, left], lr, weight_decay=wd, rank=r, update_gap=gap, projection=projection)
    m = v = torch.zeros(10, r, dtype=torch.float64)
    before = 0.0
    for step in range(1, 9):
        G = matrix(10, 6, step)
        right.grad, left.grad = G.clone(), G.mT.contiguous().clone()
        optimizer.step()
        if (step - 1) % gap == 0:
            V = directions(G, r, projection)
            if kind is DCTFrugalAdamW:
                m, v, start = torch.zeros_like(m), torch.zeros_like(v), step - 1
        t = step - start if kind is DCTFrugalAdamW else step
        a = G @ V
        m, v = 0.9 * m + 0.1 * a, 0.999 * v + 0.001 * a * a
        u = (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-8)
        rest = G - a @ V.mT
        if kind is DCTGaLoreAdamW:
            update = 0.25 * u @ V.mT
        elif kind is DCTFrugalAdamW:
            update = u @ V.mT + rest.sign()
        else:
            S = rest * (u.norm(dim=1) / (a.norm(dim=1) + 1e-8))[:, None]
            if before and S.norm() > 1.01 * before:
                S = S * (1.01 * before / S.norm())
            before = S.norm().item()
            update = 0.25 * (u @ V.mT + S)
        W = (1 - lr * wd) * W - lr * update
        assert (right - W).abs().max() < 1e-7
        assert (left.mT - right).abs().max() < 1e-7


@pytest.mark.filterwarnings("ignore")
def test_galore_with_an_svd_is_galore_torch():
    galore = pytest.importorskip("galore_torch.galore_projector")
    W = matrix(10, 6, 0).float()
    ours = nn.Parameter(W.clone())
    optimizer = DCTGaLoreAdamW([ours], 0.05, rank=2, update_gap=3, projection="svd")
    theirs = galore.GaLoreProjector(2, update_proj_gap=3, scale=0.25, proj_type="std")
    m = v = 0.0
    for step in range(6):
        G = matrix(10, 6, step + 1).float()
        ours.grad = G.clone()
        optimizer.step()
        a = theirs.project(G, step)
        m, v = 0.9 * m + 0.1 * a, 0.999 * v + 0.001 * a * a
        u = (m / (1 - 0.9 ** (step + 1))) / ((v / (1 - 0.999 ** (step + 1))).sqrt() + 1e-8)
        W = W - 0.05 * theirs.project_back(u)
        assert (ours - W).abs().max() < 1e-3


def test_dion_makes_the_momentum_orthogonal_in_its_subspace_and_feeds_the_rest_back():
    parameter = nn.Parameter(matrix(9, 5, 0))
    optimizer = Dion([parameter], 0.1, 0.9, weight_decay=0.0, rank=2)
    M = torch.zeros(9, 5, dtype=torch.float64)
    Q = torch.randn(5, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for step in range(5):
        G, W = matrix(9, 5, step + 1), parameter.detach().clone()
        parameter.grad = G.clone()
        optimizer.step()
        M = M + G
        P = torch.linalg.qr(M @ Q)[0]
        R = M.mT @ P
        M = M - 0.1 * P @ R.mT
        Q = R / (R.norm(dim=0) + 1e-8)
        assert (parameter - (W - 0.1 * (9 / 5) ** 0.5 * P @ Q.mT)).abs().max() < 1e-10
    assert (optimizer.state[parameter]["momentum"] - M).abs().max() < 1e-10


def test_dion_with_all_vectors_keeps_nothing_of_the_projected_part_but_mu():
    parameter = nn.Parameter(matrix(6, 4, 0))
    optimizer = Dion([parameter], 0.1, 0.9, rank=4)
    G = matrix(6, 4, 1)
    parameter.grad = G.clone()
    optimizer.step()
    assert (optimizer.state[parameter]["momentum"] - 0.9 * G).abs().max() < 1e-10


@pytest.mark.parametrize("feedback", [True, False])
def test_ldadamw_does_what_its_algorithm_says(feedback):
    W, lr, r, rho, (b1, b2) = matrix(10, 6, 0), 0.05, 2, 0.908, (0.908, 0.99)
    parameter = nn.Parameter(W.clone())
    optimizer = LDAdamW([parameter], lr, weight_decay=0.1, rank=r, error_feedback=feedback)
    E = torch.zeros_like(W)
    m = v = torch.zeros(10, r, dtype=torch.float64)
    for t in range(1, 8):
        gradient = matrix(10, 6, t)
        parameter.grad = gradient.clone()
        optimizer.step()
        G = gradient + E
        if t == 1:
            Q, lost = torch.linalg.svd(G, full_matrices=False).Vh[:r].mT, 0
        else:
            c1, c2 = 1 - b1 ** (t - 1), 1 - b2 ** (t - 1)
            target = rho * (m @ Q.mT) / c1 + (1 - rho) * G
            new = torch.linalg.qr(target.mT @ (target @ Q))[0]
            turn = Q.mT @ new
            carried = m @ turn
            v = (((v / c2 - (m / c1) ** 2) @ turn**2 + (carried / c1) ** 2) * c2).abs()
            lost = b1 / (1 - b1) * (m @ Q.mT - carried @ new.mT)
            m, Q = carried, new
        a = G @ Q
        E = G - a @ Q.mT + lost if feedback else E
        m, v = b1 * m + (1 - b1) * a, b2 * v + (1 - b2) * a * a
        u = (m / (1 - b1**t)) / ((v / (1 - b2**t)).sqrt() + 1e-8)
        W = (1 - lr * 0.1) * W - lr * u @ Q.mT
        assert (parameter - W).abs().max() < 1e-8


def test_ldadamw_in_all_directions_finds_the_minimum():
    target = matrix(6, 4, 0)
    W = nn.Parameter(torch.zeros(6, 4, dtype=torch.float64))
    optimizer = LDAdamW([W], 0.05, rank=4)
    for _ in range(400):
        W.grad = (W - target).detach()
        optimizer.step()
    assert (W - target).abs().max() < 0.05


@pytest.mark.parametrize("kind", [DCTGaLoreAdamW, DCTFrugalAdamW, DCTFiraAdamW])
def test_wrong_settings_are_refused(kind):
    own = {DCTGaLoreAdamW: "scale", DCTFrugalAdamW: "inactive_lr_scale", DCTFiraAdamW: "alpha"}[kind]
    for options in (
        {"projection": "qr"},
        {"update_gap": 0},
        {"rank": 0},
        {"basis": torch.eye(4)},
        {own: "x"},
        {own: float("nan")},
        {own: -1},
    ):
        with pytest.raises(InputError):
            kind([nn.Parameter(torch.zeros(4, 4))], 1e-3, **options)


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        (Dion, {"momentum": 2}, "momentum is 2"),
        (Dion, {"seed": "a"}, "seed is 'a'"),
        (Dion, {"adamw_betas": (2, 3)}, r"adamw_betas\[0\] is 2"),
        (LDAdamW, {"rho": 2}, "rho is 2"),
        (LDAdamW, {"rho": "a"}, "rho is 'a'"),
        (LDAdamW, {"rho": float("nan")}, "rho is nan"),
        (LDAdamW, {"error_feedback": 8}, "error_feedback is 8; expected True or False"),
    ],
)
def test_wrong_settings_of_the_references_are_refused(kind, options, said):
    with pytest.raises(InputError, match=said):
        kind([nn.Parameter(torch.zeros(4, 4))], 1e-3, **options)


@pytest.mark.parametrize("kind", [Dion, LDAdamW])
def test_more_rows_than_columns_or_fewer_and_ranks_above_both(kind):
    for shape in ((3, 8), (8, 3), (1, 4)):
        parameter = nn.Parameter(torch.ones(shape))
        optimizer = kind([parameter], 0.01, rank=1.0)
        for _ in range(3):
            parameter.grad = torch.randn(shape)
            optimizer.step()
        assert torch.isfinite(parameter).all()
