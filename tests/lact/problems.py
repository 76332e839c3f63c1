"""Small random problems for the tests of the memory."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from assay.lact.fast_weights import FastWeights, Rule, has_momentum

RULES: tuple[Rule, ...] = ("gd", "momentum", "muon", "muon_momentum")


class Problem(NamedTuple):
    q: Tensor
    k: Tensor
    v: Tensor
    lr: Tensor
    w_init: FastWeights

    def tokens(self, chosen: slice | Tensor) -> Problem:
        return Problem(*(one[:, chosen] for one in self[:4]), self.w_init)


def problem(
    length: int,
    *,
    rows: int = 2,
    key_dim: int = 5,
    hidden: int = 7,
    value_dim: int = 6,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    linear: bool = False,
) -> Problem:
    g = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=g, dtype=torch.float64).to(dtype)

    q, k = (
        one / one.norm(dim=-1, keepdim=True) for one in (normal(rows, length, key_dim), normal(rows, length, key_dim))
    )
    lr = torch.rand(rows, length, 3, generator=g, dtype=torch.float64).to(dtype)
    if linear:
        w_init = FastWeights(None, normal(rows, value_dim, key_dim), None)
    else:
        w_init = FastWeights(
            normal(rows, hidden, key_dim), normal(rows, value_dim, hidden), normal(rows, hidden, key_dim)
        )
    return Problem(q, k, normal(rows, length, value_dim), lr, w_init)


def betas(rule: Rule, p: Problem, *, seed: int = 9) -> Tensor | None:
    if not has_momentum(rule):
        return None
    g = torch.Generator().manual_seed(seed)
    return torch.rand(p.q.shape[:2], generator=g, dtype=torch.float64).to(p.q.dtype)
