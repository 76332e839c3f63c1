"""Honest references to compare with: Dion and LDAdamW, written from their papers' equations and public code.

Dion: Ahn, Xu, Abreu, Langford, *Dion: Distributed Orthonormalized Updates* (2025), Algorithm 1. LDAdam: Robert,
Safaryan, Modoranu, Alistarh, *LDAdam: Adaptive Optimization from Low-Dimensional Gradient Statistics* (ICLR 2025),
Algorithm 1.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from assay.core.errors import InputError
from assay.lowrank.optimizer import LowRankOptimizer, Target, require_share
from assay.lowrank.selection import Side

__all__ = ["Dion", "LDAdamW"]

NEVER_ZERO = 1e-8


class Dion(LowRankOptimizer):
    """Momentum made orthogonal in the subspace of one power iteration, by QR.

    Parameters
    ----------
    params : iterable
        As for `DCTAdamW`.
    lr : float or Tensor
        The learning rate of matrices.
    momentum : float
        How much of the projected part stays in the momentum.
    weight_decay : float
        Decoupled.
    rank : int or float
        Vectors, or their share of the projected dimension.
    adamw_lr, adamw_betas, adamw_eps
        For what isn't projected, as in `Trion`.
    seed : int
        Of the first vectors.
    side, state_dtype, maximize, max_shape, max_temp_mb, nonfinite, master_weights
        As in `DCTAdamW`; `max_temp_mb` bounds only what isn't projected.

    Examples
    --------
    >>> import torch
    >>> layer = torch.nn.Linear(64, 64, bias=False)
    >>> optimizer = Dion(layer.parameters(), rank=16)
    >>> layer(torch.randn(8, 64)).square().sum().backward()
    >>> optimizer.step()
    """

    structure: ClassVar[tuple[str, ...]] = ("side", "low_rank", "state_dtype")
    shards: ClassVar[bool] = False

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 0.01,
        momentum: float = 0.95,
        weight_decay: float | Tensor = 0.01,
        *,
        rank: float = 0.25,
        adamw_lr: float = 3e-4,
        adamw_betas: tuple[float, float] = (0.9, 0.95),
        adamw_eps: float = 1e-10,
        seed: int = 0,
        side: Side = "auto",
        state_dtype: torch.dtype | str | None = None,
        maximize: bool = False,
        max_shape: int = 32_000,
        max_temp_mb: float = 256.0,
        nonfinite: Literal["raise", "skip", "ignore"] = "raise",
        master_weights: bool = False,
    ) -> None:
        settings = {name: value for name, value in locals().items() if name not in ("self", "params", "__class__")}
        super().__init__(params, {**settings, "basis": "identity"})

    def _check_group(self, group: dict[str, Any]) -> None:
        super()._check_group(group)
        require_share("momentum", group["momentum"])

    def _init_low_rank(self, group: dict[str, Any], target: Target) -> None:
        state, dtype = target.state, self._state_dtype(group, target)
        state["momentum"] = target.zeros(target.n, dtype)
        generator = torch.Generator().manual_seed(group["seed"])
        start = torch.randn(target.n, target.rank, generator=generator, dtype=torch.float64)
        state["projector"] = start.to(device=target.weight.device, dtype=dtype)

    def _update_low_rank(self, group: dict[str, Any], targets: list[Target], lr: Any) -> None:
        mu = group["momentum"]
        for target in targets:
            momentum, right = target.state["momentum"], target.state["projector"]
            momentum.add_(target.gradient, alpha=-1 if group["maximize"] else 1)
            left = torch.linalg.qr(momentum.to(target.work) @ right.to(target.work))[0]
            coefficients = momentum.to(target.work).mT @ left
            if self.track:
                kept = coefficients.square().sum() / momentum.square().sum()
                self.statistics[target.name] = {"energy": kept, "churn": torch.zeros(())}
            momentum.sub_(left @ coefficients.mT, alpha=1 - mu)
            right.copy_(coefficients / (coefficients.norm(dim=0, keepdim=True) + NEVER_ZERO))
            if float(group["weight_decay"]) != 0:
                target.weight.mul_(1 - lr * group["weight_decay"])
            rows, columns = target.shape
            target.weight.sub_(left @ right.to(target.work).mT, alpha=lr * math.sqrt(rows / columns))


class LDAdamW(LowRankOptimizer):
    """AdamW in a subspace that one block power iteration follows, with moments that are carried along.

    Parameters
    ----------
    params : iterable
        As for `DCTAdamW`.
    lr : float or Tensor
        The learning rate.
    betas : tuple of float
        Decay of the moments.
    eps, weight_decay
        AdamW's.
    rank : int or float
        Vectors, or their share of the projected dimension.
    rho : float
        The weight of the lifted momentum in the matrix that the power iteration follows.
    error_feedback : bool
        Add what the projection left out to the next gradient.
    side, state_dtype, maximize, max_shape, max_temp_mb, nonfinite, master_weights
        As in `DCTAdamW`; `max_temp_mb` bounds only what isn't projected.

    Examples
    --------
    >>> import torch
    >>> layer = torch.nn.Linear(64, 64)
    >>> optimizer = LDAdamW(layer.parameters(), lr=1e-3, rank=16)
    >>> layer(torch.randn(8, 64)).square().sum().backward()
    >>> optimizer.step()
    """

    structure: ClassVar[tuple[str, ...]] = ("rank", "side", "low_rank", "state_dtype", "error_feedback")
    shards: ClassVar[bool] = False

    def __init__(
        self,
        params: Any,
        lr: float | Tensor,
        betas: tuple[float, float] = (0.908, 0.99),
        eps: float = 1e-8,
        weight_decay: float | Tensor = 0.0,
        *,
        rank: float = 0.25,
        rho: float = 0.908,
        error_feedback: bool = True,
        side: Side = "auto",
        state_dtype: torch.dtype | str | None = None,
        maximize: bool = False,
        max_shape: int = 32_000,
        max_temp_mb: float = 256.0,
        nonfinite: Literal["raise", "skip", "ignore"] = "raise",
        master_weights: bool = False,
    ) -> None:
        settings = {name: value for name, value in locals().items() if name not in ("self", "params", "__class__")}
        super().__init__(params, {**settings, "basis": "identity"})

    def _check_group(self, group: dict[str, Any]) -> None:
        super()._check_group(group)
        require_share("rho", group["rho"])
        if not isinstance(group["error_feedback"], bool):
            raise InputError(f"error_feedback is {group['error_feedback']!r}", expected="True or False")

    def _init_low_rank(self, group: dict[str, Any], target: Target) -> None:
        state, dtype = target.state, self._state_dtype(group, target)
        state["step"] = torch.zeros((), dtype=torch.float32)
        state["exp_avg"] = target.zeros(target.rank, dtype)
        state["exp_avg_sq"] = target.zeros(target.rank, dtype)
        state["projector"] = target.weight.new_zeros(target.n, target.rank, dtype=dtype)
        if group["error_feedback"]:
            state["error"] = target.zeros(target.n, dtype)

    def _update_low_rank(self, group: dict[str, Any], targets: list[Target], lr: Any) -> None:
        for target in targets:
            direction, vectors = self._advance(group, target)
            if float(group["weight_decay"]) != 0:
                target.weight.mul_(1 - lr * group["weight_decay"])
            target.weight.sub_(direction @ vectors.mT, alpha=lr)

    def _advance(self, group: dict[str, Any], target: Target) -> tuple[Tensor, Tensor]:
        (beta1, beta2), state = group["betas"], target.state
        state["step"] += 1
        step = int(state["step"].item())
        gradient = target.gradient.to(target.work)
        if group["maximize"]:
            gradient = -gradient
        if group["error_feedback"]:
            gradient = gradient + state["error"]
        mean, square, before = (state[name].to(target.work) for name in ("exp_avg", "exp_avg_sq", "projector"))
        if step == 1:
            vectors = torch.linalg.svd(gradient, full_matrices=gradient.shape[0] < target.rank).Vh[: target.rank].mT
        else:
            bias1, bias2 = 1 - beta1 ** (step - 1), 1 - beta2 ** (step - 1)
            followed = group["rho"] * (mean / bias1) @ before.mT + (1 - group["rho"]) * gradient
            vectors = torch.linalg.qr(followed.mT @ (followed @ before))[0]
            turn = before.mT @ vectors
            lifted, carried = mean @ before.mT, mean @ turn
            spread = (square / bias2 - (mean / bias1).square()) @ turn.square() + (carried / bias1).square()
            mean, square = carried, (spread * bias2).abs()
        low = gradient @ vectors
        if group["error_feedback"]:
            error = gradient - low @ vectors.mT
            if step > 1:
                error += beta1 / (1 - beta1) * (lifted - mean @ vectors.mT)
            state["error"].copy_(error)
        mean = beta1 * mean + (1 - beta1) * low
        square = beta2 * square + (1 - beta2) * low.square()
        for name, value in (("exp_avg", mean), ("exp_avg_sq", square), ("projector", vectors)):
            state[name].copy_(value)
        direction = (mean / (1 - beta1**step)) / ((square / (1 - beta2**step)).sqrt() + group["eps"])
        return direction, vectors
