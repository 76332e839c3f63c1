"""DCT-AdamW: AdamW on the few cosine coefficients of each gradient to which its rows are most similar (paper,
Algorithm 2).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from assay.core.errors import InputError
from assay.lowrank.basis import Basis, OrderedBasis, Transform
from assay.lowrank.optimizer import Directions, LowRankOptimizer, Stack, Target
from assay.lowrank.quantisation import Quantised, dequantise, packed_columns, quantise
from assay.lowrank.selection import Carry, Side, largest_columns

__all__ = ["DCTAdamW"]

ErrorFeedback = Literal["fp", 8, 4]
POWER_ITERATIONS = 4
"""For the leading vector, whose order is all that matters."""


class DCTAdamW(LowRankOptimizer):
    """AdamW whose two moments have r columns instead of n, in a subspace that is chosen anew as the gradient changes.

    Each matrix's gradient is transformed by rows; the r coefficients with the largest norms are kept, with their
    moments. When the choice changes, moments of coefficients that stay are kept and those of new ones start at zero.
    Parameters that aren't matrices, and large ones (see `max_shape`), get AdamW.

    Parameters
    ----------
    params : iterable
        Parameters, named parameters, or groups; a group may have its own settings, and ``low_rank`` True or False.
    lr : float or Tensor
        The learning rate.
    betas : tuple of float
        Decay of the moments.
    eps : float
        Added to the root of the second moment.
    weight_decay : float
        Decoupled.
    rank : int or float
        Columns that are kept, or their share of the projected dimension. More than that dimension means all of it, with
        one warning.
    update_gap : int
        The columns are chosen at step 1 and at each multiple of this; so the first interval is one step shorter, as in
        the published code.
    basis : str, Tensor or mapping of int to Tensor
        ``dct2``, ``dct3``, ``hadamard``, ``random``, ``identity``; or orthogonal matrices of your own, by size.
    norm : int
        2 chooses the best columns; 1 is the published code's.
    rotate : bool
        Whether moments follow their columns when the choice changes; without it they stay in place, as in the published
        code's default.
    error_feedback : {None, "fp", 8, 4}
        Add what the projection left out to the next gradient, kept in full precision or in 8 or 4 bits.
    age_correction : bool
        Correct the bias of each column's moments by the steps since it entered, not by the parameter's.
    transform : str
        ``fft`` keeps no matrix, ``matmul`` multiplies, ``auto`` chooses by size, ``measure`` times both once; see
        Notes.
    side : str
        Which dimension is compressed: ``right`` the columns, ``left`` the rows, ``smaller`` (the same as ``auto``),
        ``larger``. Parameters divided by rows (FSDP2) go right in ``auto``.
    state_dtype : torch.dtype or str, optional
        Of the moments; float32 when left out, and float64 for float64 parameters.
    maximize : bool
        Ascend instead.
    max_shape : int
        Matrices with a side from this on get AdamW, in groups that don't say ``low_rank``.
    max_temp_mb : float
        Megabytes (10⁶ bytes) of temporary tensors in a step; larger matrices are done in blocks of rows.
    nonfinite : str
        What a NaN or infinite gradient does: ``raise`` before any state changes, ``skip`` that parameter, or
        ``ignore``.
    master_weights : bool
        Keep a float32 copy of half-precision parameters, so that updates below half a unit in the last place aren't
        lost.
    stochastic_rounding : bool
        Round bfloat16 weights up or down at random, on average right, so that small updates aren't lost; needs no
        memory, where `master_weights` needs four bytes a number.
    rounding_seed : int
        Of that rounding.
    shard_update : {None, "zero1"}
        With replicated parameters (DDP), let each process hold the state of a part of them.
    order : {None, "leading"}
        Experimental, and not in the paper: put the projected axis into the order of the leading singular vector of the
        gradients so far. A sorted vector is smooth, so that few cosines hold it. Costs n whole numbers a parameter.
    order_gap : int
        The order is found anew at step 1 and at each multiple of this.

    Raises
    ------
    InputError
        A setting is wrong.

    Notes
    -----
    ``auto`` doesn't measure, since a measured choice changes the rounding from run to run; ``measure`` does, and keeps
    the choice with the checkpoint. Under ``torch.compile`` gradients aren't checked for NaN.

    Examples
    --------
    >>> import torch
    >>> layer = torch.nn.Linear(64, 64)
    >>> optimizer = DCTAdamW(layer.parameters(), lr=1e-2, rank=0.25)
    >>> layer(torch.randn(8, 64)).square().sum().backward()
    >>> optimizer.step()
    >>> optimizer.memory_report().moments == (2 * 64 * 16 + 2 * 64) * 4
    True
    """

    structure: ClassVar[tuple[str, ...]] = (*LowRankOptimizer.structure, "error_feedback", "age_correction", "order")

    def __init__(
        self,
        params: Any,
        lr: float | Tensor,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float | Tensor = 0.0,
        *,
        rank: float = 0.25,
        update_gap: int = 1,
        basis: str | Tensor | Mapping[int, Tensor] = "dct2",
        norm: Literal[1, 2] = 2,
        rotate: bool = True,
        error_feedback: ErrorFeedback | None = None,
        age_correction: bool = False,
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
        order: Literal["leading"] | None = None,
        order_gap: int = 80,
    ) -> None:
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": betas,
                "eps": eps,
                "weight_decay": weight_decay,
                "rank": rank,
                "update_gap": update_gap,
                "basis": basis,
                "norm": norm,
                "rotate": rotate,
                "error_feedback": error_feedback,
                "age_correction": age_correction,
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
                "order": order,
                "order_gap": order_gap,
            },
        )

    def _check_group(self, group: dict[str, Any]) -> None:
        super()._check_group(group)
        if group["error_feedback"] not in (None, "fp", 8, 4) or isinstance(group["error_feedback"], float):
            raise InputError(f"error_feedback is {group['error_feedback']!r}", expected="None, 'fp', 8 or 4")
        if not isinstance(group["update_gap"], int) or group["update_gap"] < 1:
            raise InputError(f"update_gap is {group['update_gap']!r}", expected="a whole number from 1 on")
        if group["order"] not in (None, "leading"):
            raise InputError(f"order is {group['order']!r}", expected="None or 'leading'")
        if not isinstance(group["order_gap"], int) or group["order_gap"] < 1:
            raise InputError(f"order_gap is {group['order_gap']!r}", expected="a whole number from 1 on")
        if group["order"] is not None and group["shard_update"] is not None:
            raise InputError("order with shard_update", expected="one of the two")

    def _init_low_rank(self, group: dict[str, Any], target: Target) -> None:
        state, dtype, device = target.state, self._state_dtype(group, target), target.weight.device
        state["step"] = torch.zeros((), dtype=torch.float32)
        state["exp_avg"] = target.zeros(target.rank, dtype)
        state["exp_avg_sq"] = target.zeros(target.rank, dtype)
        state["index"] = torch.arange(target.rank, dtype=torch.int32, device=device)
        if group["order"] is not None:
            state["order"] = torch.arange(target.n, dtype=torch.int32, device=device)
        if group["age_correction"]:
            state["age"] = torch.zeros(target.rank, dtype=torch.int32, device=device)
        bits = group["error_feedback"]
        if bits == "fp":
            state["error"] = target.zeros(target.n, dtype)
        elif bits is not None:
            state["error_codes"] = target.zeros(packed_columns(target.n, bits), torch.uint8)
            state["error_scales"] = target.zeros(2, torch.float32)

    def _directions(self, group: dict[str, Any], stack: Stack, lr: Any) -> tuple[Tensor, Directions]:
        for target in stack.targets:
            target.state["step"] += 1
        compiling = torch.compiler.is_compiling()
        t = _times(stack) if compiling else stack.first.state["step"].item()
        if group["order"] is not None and self._reorders(group, t):
            return self._reordered_directions(group, stack, t, lr)
        basis, old = self._basis_of(group, stack), stack.load("index")
        refresh: bool | Tensor = group["update_gap"] == 1
        if not refresh:
            refresh = (t == 1) | (t % group["update_gap"] == 0)
        index = old
        ready: dict[int, Tensor] = {}
        if compiling or refresh:
            index, ready = self._select(group, stack, basis)
            if compiling and isinstance(refresh, Tensor):
                index = torch.where(refresh.view(-1, 1), index, old)
        # Before the first step all moments are zero, and so carried unchanged.
        carry = Carry(old, index) if group["rotate"] and (compiling or refresh) else None
        if carry is not None and not compiling and index.device.type == "cpu" and torch.equal(old, index):
            carry = None
        bias = self._bias_corrections(group, stack, t, carry)
        if self.track and not compiling:
            self._track(group, stack, basis, index, old)
        stack.store("index", index)
        return index, self._blocks(group, stack, basis, index, carry, bias, lr, ready)

    @staticmethod
    def _reorders(group: dict[str, Any], t: Any) -> bool:
        if torch.compiler.is_compiling():
            raise InputError("order under torch.compile", expected="one of the two")
        return bool(t == 1 or t % group["order_gap"] == 0)

    def _basis_of(self, group: dict[str, Any], stack: Stack) -> Basis:
        basis = super()._basis_of(group, stack)
        return basis if group["order"] is None else OrderedBasis(basis, stack.load("order"))

    def _reordered_directions(self, group: dict[str, Any], stack: Stack, t: Any, lr: Any) -> tuple[Tensor, Directions]:
        """A step in which the order of the axis changes, and with it the basis.

        The old and the new columns aren't of one basis then, so that carrying is a product: ``m ← m R`` and
        ``v ← v (R∘R)`` with ``R = B_iᵀ B'_j``.
        """
        before, old = self._basis_of(group, stack), stack.load("index")
        leading = self._leading_vector(group, stack, before, old)
        stack.store("order", torch.sort(leading, dim=-1, stable=True).indices.to(torch.int32))
        basis = self._basis_of(group, stack)
        index, ready = self._select(group, stack, basis)
        unit = torch.eye(stack.first.rank, dtype=before.dtype, device=index.device).expand(len(index), -1, -1)
        turn = before.lift(unit, old) @ basis.lift(unit, index).mT
        for rows in stack.blocks:
            stack.store("exp_avg", stack.load("exp_avg", rows) @ turn, rows)
            stack.store("exp_avg_sq", stack.load("exp_avg_sq", rows) @ turn.square(), rows)
        if group["age_correction"]:
            stack.store("age", torch.zeros_like(stack.load("age")))
        bias = self._bias_corrections(group, stack, t, None)
        if self.track:
            self._track(group, stack, basis, index, old)
        stack.store("index", index)
        return index, self._blocks(group, stack, basis, index, None, bias, lr, ready)

    def _leading_vector(self, group: dict[str, Any], stack: Stack, basis: Basis, index: Tensor) -> Tensor:
        """The leading right singular vector of the gradients' running mean, shape (b, n), by power iteration."""
        beta1 = group["betas"][0]
        # Not the same entry everywhere: the mean's leading vector may be orthogonal to that.
        vector = torch.linspace(1.0, 2.0, stack.first.n, dtype=stack.first.work, device=index.device)
        vector = vector.expand(len(stack.targets), -1).unsqueeze(2)
        for _ in range(POWER_ITERATIONS):
            found = torch.zeros_like(vector)
            for rows in stack.blocks:
                mean = basis.lift(stack.load("exp_avg", rows), index).mul_(beta1)
                mean.add_(self._corrected(group, stack, rows), alpha=1 - beta1)
                found = found + mean.mT @ (mean @ vector)
            stack.sum(found)
            vector = found / found.norm(dim=1, keepdim=True).clamp_min(torch.finfo(found.dtype).tiny)
        return vector.squeeze(2)

    def _select(self, group: dict[str, Any], stack: Stack, basis: Basis) -> tuple[Tensor, dict[int, Tensor]]:
        """Choose columns by all rows; the coordinates are kept for the update where they fit."""
        power, ready = None, {}
        for place, rows in enumerate(stack.blocks):
            coordinates = basis.coordinates(self._corrected(group, stack, rows))
            more = basis.power(coordinates, group["norm"])
            power = more if power is None else power + more
            if stack.fits or len(stack.blocks) == 1:
                ready[place] = coordinates
        assert power is not None
        stack.sum(power)
        return largest_columns(power, stack.first.rank), ready

    def _blocks(
        self,
        group: dict[str, Any],
        stack: Stack,
        basis: Basis,
        index: Tensor,
        carry: Carry | None,
        bias: tuple[Any, Any],
        lr: Any,
        ready: dict[int, Tensor],
    ) -> Directions:
        beta1, beta2 = group["betas"]
        for place, rows in enumerate(stack.blocks):
            corrected = None
            if place in ready:
                coefficients = basis.take(ready.pop(place), index)
            else:
                corrected = self._corrected(group, stack, rows)
                coefficients = basis.down(corrected, index)
            if group["error_feedback"] is not None:
                corrected = self._corrected(group, stack, rows) if corrected is None else corrected
                self._keep_error(group, stack, rows, corrected - basis.lift(coefficients, index))
            del corrected
            mean, square = stack.load("exp_avg", rows), stack.load("exp_avg_sq", rows)
            if carry is not None:
                mean, square = carry(mean), carry(square)
            mean = mean.mul_(beta1).add_(coefficients, alpha=1 - beta1)
            square = square.mul_(beta2).addcmul_(coefficients, coefficients, value=1 - beta2)
            stack.store("exp_avg", mean, rows)
            stack.store("exp_avg_sq", square, rows)
            yield rows, (mean / bias[0]).div_((square / bias[1]).sqrt_().add_(group["eps"])).mul_(lr)

    def _corrected(self, group: dict[str, Any], stack: Stack, rows: slice) -> Tensor:
        """The gradient, with what earlier projections left out."""
        gradients, bits = stack.gradients(rows, maximize=group["maximize"]), group["error_feedback"]
        if bits is None:
            return gradients
        if bits == "fp":
            return gradients + stack.load("error", rows)
        codes = torch.stack([target.rows_of("error_codes")[rows] for target in stack.targets])
        scales = torch.stack([target.rows_of("error_scales")[rows] for target in stack.targets])
        stored = Quantised(codes, scales)
        return gradients + dequantise(stored, bits=bits, columns=stack.first.n)

    def _keep_error(self, group: dict[str, Any], stack: Stack, rows: slice, error: Tensor) -> None:
        bits = group["error_feedback"]
        if bits == "fp":
            stack.store("error", error, rows)
            return
        if error.shape[1] == 0:
            return
        stored = quantise(error, bits=bits)
        stack.store("error_codes", stored.codes, rows)
        stack.store("error_scales", stored.scales, rows)

    def _bias_corrections(self, group: dict[str, Any], stack: Stack, t: Any, carry: Carry | None) -> tuple[Any, Any]:
        beta1, beta2 = group["betas"]
        if group["age_correction"]:
            age = stack.load("age")
            age = (age if carry is None else carry(age)) + 1
            stack.store("age", age)
            t = age.double().unsqueeze(1)
        elif torch.is_tensor(t):
            t = t.view(-1, 1, 1)
        correct = (1 - beta1**t, 1 - beta2**t)
        if torch.is_tensor(t):
            return correct[0].to(stack.first.work), correct[1].to(stack.first.work)
        return correct

    def _track(self, group: dict[str, Any], stack: Stack, basis: Basis, index: Tensor, old: Tensor) -> None:
        kept = whole = torch.zeros(len(stack.targets), device=index.device)
        for rows in stack.blocks:
            corrected = self._corrected(group, stack, rows)
            kept = kept + basis.down(corrected, index).square().sum(dim=(1, 2))
            whole = whole + corrected.square().sum(dim=(1, 2))
        for one in (kept, whole):
            stack.sum(one)
        self._note(stack, kept / whole, Carry(old, index).churn)


def _times(stack: Stack) -> Tensor:
    """The steps of each parameter as a tensor, for tracing."""
    return torch.stack([target.state["step"] for target in stack.targets]).double().to(stack.first.weight.device)
