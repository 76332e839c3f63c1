"""Trion: momentum whose few most similar cosine coefficients are made orthogonal (paper, Algorithm 1).

What the projection leaves out stays in the momentum, which is so its own error feedback; the Newton–Schulz iteration
works on R × r coefficients instead of R × C.

The momentum is kept in the coordinates of the basis, which never changes: ``M ← M + G`` becomes ``MB ← MB + GB``, so
one transform of the gradient gives the similarities of the momentum, and ``M ← M - (1 - μ) b B_iᵀ`` shrinks the chosen
columns of MB by μ where they are. The published form needs a second transform for that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from assay.core.errors import InputError
from assay.lowrank.basis import Basis, Transform
from assay.lowrank.optimizer import Directions, LowRankOptimizer, Stack, Target, require_share
from assay.lowrank.orthogonal import Implementation, coefficients_of, newton_schulz
from assay.lowrank.selection import Carry, Side, largest_columns
from assay.lowrank.sharding import local, sharding_of

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
    ns_dtype : {None, "float32", "bfloat16"}
        In which the iteration computes: float32 on a CPU and bfloat16 on a GPU when left out. bfloat16, the published
        code's choice, is plain; it is much faster where the processor multiplies matrices in it.
    adamw_lr : float
        The learning rate of what isn't projected. Within a group it follows the group's `lr` in proportion, so that
        schedulers act on both; a group with ``low_rank=False`` and its own `lr` uses that.
    adamw_betas : tuple of float
        Decay of AdamW's moments.
    adamw_eps : float
        Added to the root of AdamW's second moment.
    transform, side, state_dtype, maximize, max_shape, max_temp_mb, nonfinite, master_weights
        As in `DCTAdamW`.
    stochastic_rounding, rounding_seed, shard_update
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
        ns_dtype: Literal["float32", "bfloat16"] | None = None,
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
        stochastic_rounding: bool = False,
        rounding_seed: int = 0,
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
                "ns_dtype": ns_dtype,
                "adamw_lr": adamw_lr,
                "adamw_betas": adamw_betas,
                "adamw_eps": adamw_eps,
                "transform": transform,
                "side": side,
                "state_dtype": state_dtype,
                "maximize": maximize,
                "max_shape": max_shape,
                "max_temp_mb": max_temp_mb,
                "nonfinite": nonfinite,
                "master_weights": master_weights,
                "stochastic_rounding": stochastic_rounding,
                "rounding_seed": rounding_seed,
                "shard_update": shard_update,
            },
        )

    def _check_group(self, group: dict[str, Any]) -> None:
        super()._check_group(group)
        coefficients_of(group["ns_coefficients"], group["ns_steps"])
        if group["scale"] not in SCALES:
            raise InputError(f"scale is {group['scale']!r}", expected=f"one of: {', '.join(SCALES)}")
        require_share("momentum", group["momentum"])
        if group["ns_impl"] not in ("auto", "gram", "plain"):
            raise InputError(f"ns_impl is {group['ns_impl']!r}", expected="auto, gram or plain")
        if group["ns_dtype"] not in (None, "float32", "bfloat16"):
            raise InputError(f"ns_dtype is {group['ns_dtype']!r}", expected="None, 'float32' or 'bfloat16'")
        if group["ns_dtype"] == "bfloat16" and group["ns_impl"] == "gram":
            raise InputError("ns_dtype is 'bfloat16' with ns_impl 'gram'", expected="ns_impl 'plain' or 'auto'")

    def _init_low_rank(self, group: dict[str, Any], target: Target) -> None:
        target.state["momentum"] = target.zeros(target.n, self._state_dtype(group, target))
        target.state["index"] = torch.arange(target.rank, dtype=torch.int32, device=target.weight.device)

    def _directions(self, group: dict[str, Any], stack: Stack, lr: Any) -> tuple[Tensor, Directions]:
        basis, mu = self._basis(group, stack.first), group["momentum"]
        power = None
        for rows in stack.blocks:
            momentum = stack.load("momentum", rows)
            momentum.add_(basis.coordinates(stack.gradients(rows, maximize=group["maximize"])))
            stack.store("momentum", momentum, rows)
            more = basis.power(momentum, group["norm"])
            power = more if power is None else power + more
        assert power is not None
        stack.sum(power)
        index = largest_columns(power, stack.first.rank)
        if self.track and not torch.compiler.is_compiling():
            self._track(stack, basis, index)
        stack.store("index", index)
        factors = basis.factors(index, mu)
        parts = []
        for rows in stack.blocks:
            momentum = stack.load("momentum", rows)
            parts.append(basis.take(momentum, index))
            stack.store("momentum", momentum.mul_(factors), rows)
        coefficients = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
        orthogonal = newton_schulz(
            coefficients,
            steps=group["ns_steps"],
            coefficients=group["ns_coefficients"],
            impl=group["ns_impl"],
            dtype=group["ns_dtype"],
            reduce=stack.first.reduce,
        )
        orthogonal = orthogonal * (lr * update_scale(group["scale"], *stack.first.shape))
        return index, ((rows, orthogonal[:, rows]) for rows in stack.blocks)

    def _track(self, stack: Stack, basis: Basis, index: Tensor) -> None:
        kept = whole = torch.zeros(len(stack.targets), device=index.device)
        for rows in stack.blocks:
            momentum = stack.load("momentum", rows)
            kept = kept + basis.take(momentum, index).square().sum(dim=(1, 2))
            whole = whole + momentum.square().sum(dim=(1, 2))
        for one in (kept, whole):
            stack.sum(one)
        self._note(stack, kept / whole, Carry(stack.load("index"), index).churn)

    @torch.no_grad()
    def momentum_of(self, parameter: Tensor) -> Tensor:
        """A projected parameter's momentum in the weight's own coordinates.

        Parameters
        ----------
        parameter : Tensor
            One that has taken a step.

        Returns
        -------
        Tensor
            The parameter's shape; of parameters that are divided by rows, this process's rows.

        Raises
        ------
        InputError
            It isn't projected, or has taken no step.

        Examples
        --------
        >>> import torch
        >>> weight = torch.nn.Parameter(torch.zeros(8, 8))
        >>> optimizer = Trion([weight], momentum=0.9, rank=8)
        >>> weight.grad = torch.eye(8)
        >>> optimizer.step()
        >>> bool(torch.allclose(optimizer.momentum_of(weight), 0.9 * torch.eye(8), atol=1e-6))
        True
        """
        held = self.state.get(parameter, {}).get("momentum")
        if held is None:
            raise InputError("the parameter has no momentum", expected="a projected parameter after a step")
        group = next(one for one in self.param_groups if any(parameter is member for member in one["params"]))
        rows = local(held)
        sharded = sharding_of(parameter, "the parameter") is not None
        _, _, right = self._geometry(group, parameter, sharded=sharded)
        basis = self._basis_for(group, rows.shape[1], rows=rows.shape[0], like=rows)
        momentum = basis.rows(rows.to(basis.dtype).unsqueeze(0))[0]
        return (momentum if right else momentum.mT).reshape(-1, *parameter.shape[1:])
