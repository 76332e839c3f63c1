"""The projection plugged into other optimisers: GaLore, FRUGAL and FIRA with cosines in the place of the SVD.

The mechanics follow the public code of the three: GaLore (Zhao et al., ICML 2024), FRUGAL (Zmushko et al., 2024) and
FIRA (Chen et al., 2024). With ``projection="svd"`` they are those methods themselves, as references.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from assay.core.errors import InputError
from assay.lowrank.basis import Transform
from assay.lowrank.optimizer import LowRankOptimizer, Target, require_number
from assay.lowrank.projector import DCTProjector, SVDProjector
from assay.lowrank.selection import Side

__all__ = ["DCTFiraAdamW", "DCTFrugalAdamW", "DCTGaLoreAdamW"]

GROWTH = 1.01
"""FIRA: by how much the norm of the residual's part may grow from one step to the next."""
NEVER_ZERO = 1e-8


class _ProjectedAdamW(LowRankOptimizer):
    """AdamW on the coefficients of an exchangeable projection that is renewed every `update_gap` steps."""

    structure: ClassVar[tuple[str, ...]] = (*LowRankOptimizer.structure, "projection")

    def __init__(self, params: Any, lr: float | Tensor, settings: dict[str, Any]) -> None:
        super().__init__(params, {"lr": lr, **settings})

    def _check_group(self, group: dict[str, Any]) -> None:
        super()._check_group(group)
        if group["projection"] not in ("dct", "svd"):
            raise InputError(f"projection is {group['projection']!r}", expected="dct or svd")
        if group["basis"] == "user":
            raise InputError("basis is a matrix", expected="the name of a basis")
        if not isinstance(group["update_gap"], int) or group["update_gap"] < 1:
            raise InputError(f"update_gap is {group['update_gap']!r}", expected="a whole number from 1 on")
        for name in ("scale", "alpha", "inactive_lr_scale"):
            if name in group:
                require_number(name, group[name])

    def _init_low_rank(self, group: dict[str, Any], target: Target) -> None:
        state, dtype = target.state, self._state_dtype(group, target)
        state["step"] = torch.zeros((), dtype=torch.float32)
        state["exp_avg"] = target.zeros(target.rank, dtype)
        state["exp_avg_sq"] = target.zeros(target.rank, dtype)
        if group["projection"] == "dct":
            state["index"] = torch.arange(target.rank, dtype=torch.int32, device=target.weight.device)
        else:
            state["projector"] = target.weight.new_zeros(target.n, target.rank, dtype=target.work)

    def _update_low_rank(self, group: dict[str, Any], targets: list[Target], lr: Any) -> None:
        for target in targets:
            gradient = target.gradient.to(target.work)
            if group["maximize"]:
                gradient = -gradient
            target.state["step"] += 1
            step = int(target.state["step"].item())
            refreshed = (step - 1) % group["update_gap"] == 0
            projector = self._projector(group, target, gradient if refreshed else None)
            low = projector.down(gradient)
            direction = self._adam(group, target, low, step=step, refreshed=refreshed)
            update = self._combine(group, target, gradient, low, direction, projector)
            self._subtract(group, target, target.weight, update.mul_(lr), lr)

    def _projector(self, group: dict[str, Any], target: Target, gradient: Tensor | None) -> DCTProjector | SVDProjector:
        state = target.state
        if group["projection"] == "svd":
            if target.reduce is not None:
                raise InputError(
                    f"{target.name} is divided over processes", expected="projection 'dct', or side 'left'"
                )
            exact = SVDProjector(target.rank)
            if gradient is not None:
                state["projector"].copy_(exact.fit(gradient).vectors_)
            return exact.restore(state["projector"])
        basis = self._basis(group, target)
        cosines = DCTProjector(target.rank, basis=group["basis"], norm=group["norm"], transform=group["transform"])
        cosines._basis = basis
        if gradient is not None:
            state["index"].copy_(cosines.fit(gradient, reduce=target.reduce).index_)
        return cosines.restore(state["index"], target.n, dtype=target.work, device=target.weight.device)

    def _adam(self, group: dict[str, Any], target: Target, low: Tensor, *, step: int, refreshed: bool) -> Tensor:
        beta1, beta2 = group["betas"]
        mean, square = target.rows_of("exp_avg"), target.rows_of("exp_avg_sq")
        age = self._age(group, step)
        if refreshed and age == 1:
            mean.zero_()
            square.zero_()
        mean.mul_(beta1).add_(low, alpha=1 - beta1)
        square.mul_(beta2).add_(low.square(), alpha=1 - beta2)
        bias1, bias2 = 1 - beta1**age, 1 - beta2**age
        root = (square.to(low.dtype) / bias2).sqrt_().add_(group["eps"])
        direction: Tensor = (mean.to(low.dtype) / bias1).div_(root)
        return direction

    def _age(self, group: dict[str, Any], step: int) -> int:
        """The steps since the moments began."""
        return step

    def _combine(
        self, group: dict[str, Any], target: Target, gradient: Tensor, low: Tensor, direction: Tensor, projector: Any
    ) -> Tensor:
        raise NotImplementedError


def _settings(values: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a constructor as the settings of its groups."""
    left_out = ("self", "params", "lr", "__class__")
    return {name: value for name, value in values.items() if name not in left_out}


class DCTGaLoreAdamW(_ProjectedAdamW):
    """GaLore with cosines: AdamW on the coefficients, lifted and scaled; moments stay in place when the columns change.

    Parameters
    ----------
    params : iterable
        As for `DCTAdamW`.
    lr : float or Tensor
        The learning rate.
    betas, eps, weight_decay
        AdamW's.
    rank : int or float
        Columns that are kept, or their share.
    update_gap : int
        Steps between choices of columns, from the first step on.
    scale : float
        The factor of the lifted update.
    projection : str
        ``dct``; ``svd`` is GaLore itself.
    basis, norm, transform, side, state_dtype, maximize, max_shape, max_temp_mb, nonfinite, master_weights
        As in `DCTAdamW`; `max_temp_mb` bounds only what isn't projected.
    stochastic_rounding, rounding_seed
        As in `DCTAdamW`.

    Examples
    --------
    >>> import torch
    >>> layer = torch.nn.Linear(64, 64)
    >>> optimizer = DCTGaLoreAdamW(layer.parameters(), lr=1e-2, rank=16)
    >>> layer(torch.randn(8, 64)).square().sum().backward()
    >>> optimizer.step()
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float | Tensor = 0.0,
        *,
        rank: float = 0.25,
        update_gap: int = 200,
        scale: float = 0.25,
        projection: Literal["dct", "svd"] = "dct",
        basis: str = "dct2",
        norm: Literal[1, 2] = 2,
        transform: Transform = "auto",
        side: Side = "auto",
        state_dtype: torch.dtype | str | None = None,
        maximize: bool = False,
        max_shape: int = 32_000,
        max_temp_mb: float = 256.0,
        nonfinite: Literal["raise", "skip", "ignore"] = "raise",
        master_weights: bool = False,
        stochastic_rounding: bool = False,
        rounding_seed: int = 0,
    ) -> None:
        super().__init__(params, lr, _settings(locals()))

    def _combine(
        self, group: dict[str, Any], target: Target, gradient: Tensor, low: Tensor, direction: Tensor, projector: Any
    ) -> Tensor:
        lifted: Tensor = projector.up(direction)
        return lifted.mul_(group["scale"])


class DCTFrugalAdamW(_ProjectedAdamW):
    """FRUGAL with cosines: AdamW on the coefficients, and a step along the sign of what the projection leaves out.

    Parameters
    ----------
    params : iterable
        As for `DCTAdamW`.
    lr : float or Tensor
        The learning rate.
    betas, eps, weight_decay
        AdamW's.
    rank : int or float
        Columns that are kept, or their share (FRUGAL's density).
    update_gap : int
        Steps between choices of columns; the moments and their step count start anew.
    inactive_lr_scale : float
        The learning rate of the sign step over that of AdamW: 1 for pre-training, 0.1 for fine-tuning.
    projection : str
        ``dct``; ``svd`` is FRUGAL with an SVD.
    basis, norm, transform, side, state_dtype, maximize, max_shape, max_temp_mb, nonfinite, master_weights
        As in `DCTGaLoreAdamW`.
    stochastic_rounding, rounding_seed
        As in `DCTAdamW`.

    Examples
    --------
    >>> import torch
    >>> layer = torch.nn.Linear(64, 64)
    >>> optimizer = DCTFrugalAdamW(layer.parameters(), lr=1e-3, inactive_lr_scale=0.1)
    >>> layer(torch.randn(8, 64)).square().sum().backward()
    >>> optimizer.step()
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float | Tensor = 0.0,
        *,
        rank: float = 0.25,
        update_gap: int = 200,
        inactive_lr_scale: float = 1.0,
        projection: Literal["dct", "svd"] = "dct",
        basis: str = "dct2",
        norm: Literal[1, 2] = 2,
        transform: Transform = "auto",
        side: Side = "auto",
        state_dtype: torch.dtype | str | None = None,
        maximize: bool = False,
        max_shape: int = 32_000,
        max_temp_mb: float = 256.0,
        nonfinite: Literal["raise", "skip", "ignore"] = "raise",
        master_weights: bool = False,
        stochastic_rounding: bool = False,
        rounding_seed: int = 0,
    ) -> None:
        super().__init__(params, lr, _settings(locals()))

    def _age(self, group: dict[str, Any], step: int) -> int:
        return (step - 1) % int(group["update_gap"]) + 1

    def _combine(
        self, group: dict[str, Any], target: Target, gradient: Tensor, low: Tensor, direction: Tensor, projector: Any
    ) -> Tensor:
        lifted: Tensor = projector.up(direction)
        return lifted.add_((gradient - projector.up(low)).sign_(), alpha=group["inactive_lr_scale"])


class DCTFiraAdamW(_ProjectedAdamW):
    """FIRA with cosines: what the projection leaves out is scaled, row by row, as AdamW scales the coefficients.

    Parameters
    ----------
    params : iterable
        As for `DCTAdamW`.
    lr : float or Tensor
        The learning rate.
    betas, eps, weight_decay
        AdamW's.
    rank : int or float
        Columns that are kept, or their share.
    update_gap : int
        Steps between choices of columns; moments stay in place.
    alpha : float
        The factor of the whole update of a projected parameter.
    projection : str
        ``dct``; ``svd`` is FIRA itself.
    basis, norm, transform, side, state_dtype, maximize, max_shape, max_temp_mb, nonfinite, master_weights
        As in `DCTGaLoreAdamW`.
    stochastic_rounding, rounding_seed
        As in `DCTAdamW`.

    Notes
    -----
    The norm of the residual's part grows by at most 1 % a step (FIRA's norm-growth limiter).

    Examples
    --------
    >>> import torch
    >>> layer = torch.nn.Linear(64, 64)
    >>> optimizer = DCTFiraAdamW(layer.parameters(), lr=1e-2)
    >>> layer(torch.randn(8, 64)).square().sum().backward()
    >>> optimizer.step()
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float | Tensor = 0.0,
        *,
        rank: float = 0.25,
        update_gap: int = 200,
        alpha: float = 0.25,
        projection: Literal["dct", "svd"] = "dct",
        basis: str = "dct2",
        norm: Literal[1, 2] = 2,
        transform: Transform = "auto",
        side: Side = "auto",
        state_dtype: torch.dtype | str | None = None,
        maximize: bool = False,
        max_shape: int = 32_000,
        max_temp_mb: float = 256.0,
        nonfinite: Literal["raise", "skip", "ignore"] = "raise",
        master_weights: bool = False,
        stochastic_rounding: bool = False,
        rounding_seed: int = 0,
    ) -> None:
        super().__init__(params, lr, _settings(locals()))

    def _init_low_rank(self, group: dict[str, Any], target: Target) -> None:
        super()._init_low_rank(group, target)
        target.state["residual_norm"] = torch.zeros((), dtype=torch.float32)

    def _combine(
        self, group: dict[str, Any], target: Target, gradient: Tensor, low: Tensor, direction: Tensor, projector: Any
    ) -> Tensor:
        scale = direction.norm(dim=1, keepdim=True) / (low.norm(dim=1, keepdim=True) + NEVER_ZERO)
        residual = (gradient - projector.up(low)).mul_(scale)
        squared = residual.square().sum(dtype=torch.float64)
        if target.reduce is not None:
            target.reduce(squared)
        before, norm = target.state["residual_norm"].item(), squared.sqrt().item()
        if before > 0 and norm > GROWTH * (before + NEVER_ZERO):
            residual.mul_(GROWTH * before / norm)
            norm = GROWTH * before
        target.state["residual_norm"].fill_(norm)
        update: Tensor = residual.add_(projector.up(direction)).mul_(group["alpha"])
        return update
