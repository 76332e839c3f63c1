"""Trion: momentum whose few most similar cosine coefficients are made orthogonal (paper, Algorithm 1).

What the projection leaves out stays in the momentum, which is so its own error feedback; the Newton–Schulz iteration
works on R × r coefficients instead of R × C.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from assay.core.errors import InputError
from assay.lowrank.basis import Transform
from assay.lowrank.optimizer import Directions, LowRankOptimizer, Stack, Target
from assay.lowrank.orthogonal import Implementation, coefficients_of, newton_schulz
from assay.lowrank.selection import Carry, Side, largest_columns

__all__ = ["Trion", "update_scale"]

SCALES = ("kj", "dion", "kimi", "none")


def update_scale(scale: str, rows: int, columns: int) -> float:
    """The factor of an orthogonal update of a weight (rows, columns)."""
    if scale == "kj":
        return max(1.0, math.sqrt(rows / columns))
    if scale == "dion":
        return math.sqrt(rows / columns)
    if scale == "kimi":
        return 0.2 * math.sqrt(max(rows, columns))
    return 1.0


class Trion(LowRankOptimizer):
    """Orthogonalised momentum in a subspace of a few cosine vectors, chosen at every step.

    Parameters that aren't matrices, and large ones, get AdamW; see `adamw_lr`.

    Parameters
    ----------
    params : iterable
        Parameters, named parameters, or groups; a group may have its own settings, and ``low_rank`` True or False.
    lr : float or Tensor
        The learning rate of the matrices; the published code has 0.02, the paper trains with 0.01.
    momentum : float
        How much of the projected part stays in the momentum.
    weight_decay : float
        Decoupled.
    rank : int or float
        Columns that are kept, or their share of the projected dimension.
    basis : str, Tensor or mapping of int to Tensor
        As in `DCTAdamW`.
    norm : int
        As in `DCTAdamW`.
    ns_steps : int
        Iterations of Newton and Schulz.
    ns_coefficients : str
        ``keller`` for the usual polynomial, ``tuned`` for five that differ.
    scale : str
        ``kj`` max(1, sqrt(R/C)), ``dion`` sqrt(R/C), ``kimi`` 0.2 sqrt(max(R, C)), or ``none``.
    ns_impl : str
        ``gram`` works on r × r matrices between two products with the coefficients, ``plain`` doesn't, ``auto``
        chooses.
    adamw_lr : float
        The learning rate of what isn't projected. Within a group it follows the group's `lr` in proportion, so that
        schedulers act on both; a group with ``low_rank=False`` and its own `lr` uses that.
    adamw_betas : tuple of float
        Decay of AdamW's moments.
    adamw_eps : float
        Added to the root of AdamW's second moment.
    transform, side, state_dtype, maximize, max_shape, max_temp_mb, nonfinite, master_weights, shard_update
        As in `DCTAdamW`. The r coefficients of a matrix are held whole beside `max_temp_mb`.

    Raises
    ------
    InputError
        A setting is wrong.

    Examples
    --------
    >>> import torch
    >>> layer = torch.nn.Linear(64, 64, bias=False)
    >>> optimizer = Trion(layer.parameters(), rank=16)
    >>> layer(torch.randn(8, 64)).square().sum().backward()
    >>> optimizer.step()
    >>> optimizer.memory_report().moments == 64 * 64 * 4
    True
    """

    structure: ClassVar[tuple[str, ...]] = ("basis", "side", "low_rank", "state_dtype")

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 0.02,
        momentum: float = 0.95,
        weight_decay: float | Tensor = 0.0,
        *,
        rank: float = 0.25,
        basis: str | Tensor | Mapping[int, Tensor] = "dct2",
        norm: Literal[1, 2] = 2,
        ns_steps: int = 5,
        ns_coefficients: Literal["keller", "tuned"] = "keller",
        scale: Literal["kj", "dion", "kimi", "none"] = "kj",
        ns_impl: Implementation = "auto",
        adamw_lr: float = 3e-4,
        adamw_betas: tuple[float, float] = (0.9, 0.95),
        adamw_eps: float = 1e-10,
        transform: Transform = "auto",
        side: Side = "auto",
        state_dtype: torch.dtype | str | None = None,
        maximize: bool = False,
        max_shape: int = 32_000,
        max_temp_mb: float = 256.0,
        nonfinite: Literal["raise", "skip", "ignore"] = "raise",
        master_weights: bool = False,
        shard_update: Literal["zero1"] | None = None,
    ) -> None:
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "weight_decay": weight_decay,
                "rank": rank,
                "basis": basis,
                "norm": norm,
                "ns_steps": ns_steps,
                "ns_coefficients": ns_coefficients,
                "scale": scale,
                "ns_impl": ns_impl,
                "adamw_lr": adamw_lr,
                "adamw_betas": tuple(adamw_betas),
                "adamw_eps": adamw_eps,
                "transform": transform,
                "side": side,
                "state_dtype": state_dtype,
                "maximize": maximize,
                "max_shape": max_shape,
                "max_temp_mb": max_temp_mb,
                "nonfinite": nonfinite,
                "master_weights": master_weights,
                "shard_update": shard_update,
            },
        )

    def _check_group(self, group: dict[str, Any]) -> None:
        super()._check_group(group)
        coefficients_of(group["ns_coefficients"], group["ns_steps"])
        if group["scale"] not in SCALES:
            raise InputError(f"scale is {group['scale']!r}", expected=f"one of: {', '.join(SCALES)}")
        if not 0 <= group["momentum"] < 1:
            raise InputError(f"momentum is {group['momentum']}", expected="in [0, 1)")
        if group["ns_impl"] not in ("auto", "gram", "plain"):
            raise InputError(f"ns_impl is {group['ns_impl']!r}", expected="auto, gram or plain")

    def _init_low_rank(self, group: dict[str, Any], target: Target) -> None:
        target.state["momentum"] = target.zeros(target.n, self._state_dtype(group, target))
        target.state["index"] = torch.arange(target.rank, dtype=torch.int32, device=target.weight.device)

    def _directions(self, group: dict[str, Any], stack: Stack, lr: Any) -> tuple[Tensor, Directions]:
        basis, mu = self._basis(group, stack.first), group["momentum"]
        power, ready = None, None
        for rows in stack.blocks:
            momentum = stack.load("momentum", rows).add_(stack.gradients(rows, maximize=group["maximize"]))
            stack.store("momentum", momentum, rows)
            similarities = basis.similarities(momentum)
            more = basis.power(similarities, group["norm"])
            power = more if power is None else power + more
            ready = (momentum, similarities) if len(stack.blocks) == 1 else None
        assert power is not None
        stack.sum(power)
        index = largest_columns(power, stack.first.rank)
        if self.track and not torch.compiler.is_compiling():
            self._track(stack, basis, index)
        stack.store("index", index)
        parts = []
        for rows in stack.blocks:
            if ready is None:
                momentum = stack.load("momentum", rows)
                part = basis.down(momentum, index)
            else:
                part = basis.take(ready[1], index)
                momentum, ready = ready[0], None
            momentum = momentum.sub_(basis.lift(part * (1 - mu), index))
            stack.store("momentum", momentum, rows)
            parts.append(part)
        del momentum
        coefficients = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
        orthogonal = newton_schulz(
            coefficients,
            steps=group["ns_steps"],
            coefficients=group["ns_coefficients"],
            impl=group["ns_impl"],
            reduce=stack.reduce,
        )
        orthogonal = orthogonal * (lr * update_scale(group["scale"], *stack.first.shape))
        return index, ((rows, orthogonal[:, rows]) for rows in stack.blocks)

    def _track(self, stack: Stack, basis: Any, index: Tensor) -> None:
        kept = whole = torch.zeros(len(stack.targets), device=index.device)
        for rows in stack.blocks:
            momentum = stack.load("momentum", rows)
            kept = kept + basis.down(momentum, index).square().sum(dim=(1, 2))
            whole = whole + momentum.square().sum(dim=(1, 2))
        for one in (kept, whole):
            stack.sum(one)
        self._note(stack, kept / whole, Carry(stack.load("index"), index).churn)
