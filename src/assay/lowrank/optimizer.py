"""What the low-rank optimisers share: which parameters are projected, checks before a step, AdamW for the rest, and
files.

A parameter is seen as *rows*: its own when its columns are compressed (a right projection), its columns when its rows
are (left). Everything is written for rows of length n; a left projection works on a transposed view.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor

from assay.core.errors import InputError
from assay.lowrank.basis import BASES, FAST, Basis, make_basis, measure_transform, require_orthogonal
from assay.lowrank.memory import MemoryReport, report_of
from assay.lowrank.rounding import generator_of, round_stochastically
from assay.lowrank.selection import SIDES, projects_right, require_norm, resolve_rank
from assay.lowrank.sharding import RowSharding, local, owners, sharding_of
from assay.lowrank.transforms import chunk_rows, working_dtype

__all__ = ["MAX_SHAPE", "LowRankOptimizer", "Stack", "Target", "require_number", "require_share"]

MAX_SHAPE = 32_000
"""Matrices with a side from this on are left to AdamW where a group doesn't say otherwise: embeddings and heads."""
EXCLUDED = r"(embed|lm_head|norm)"
"""Names of parameters that are left to AdamW where a group doesn't say otherwise."""
TEMPORARIES = 12
"""Copies of a block of rows that a step holds at its highest: gradient, permuted rows, spectrum, its product,
squares, and
the same on the way back."""
STATE_DTYPES = ("float32", "float64", "bfloat16")
CATEGORIES = {
    "exp_avg": "moments",
    "exp_avg_sq": "moments",
    "momentum": "moments",
    "index": "indices",
    "age": "indices",
    "order": "indices",
    "error": "error feedback",
    "error_codes": "error feedback",
    "error_scales": "error feedback",
    "projector": "projector",
}
ROW_STATES = ("exp_avg", "exp_avg_sq", "momentum", "error", "error_codes", "error_scales", "master")
"""States with one row for each row of the parameter, which are divided as the parameter is."""


@dataclass
class Target:
    """A parameter in a step.

    Attributes
    ----------
    parameter : Tensor
        The parameter itself.
    name : str
        Its name, or its place.
    state : dict
        Its state.
    weight, gradient : Tensor, shape (rows, n), or the parameter's own shape when it isn't projected
        Views of what this process holds.
    low_rank : bool
        Whether it is projected.
    n, rank : int
        Length of its rows and number of columns that are kept.
    shape : tuple of int
        Rows and columns of the whole parameter.
    sharding : RowSharding or None
        How its rows are divided.
    gathered : bool
        `weight` and `gradient` are copies of the whole, since a left projection needs all rows.
    noise : Generator or None
        Of stochastic rounding, where that is asked for.
    """

    parameter: Tensor
    name: str
    state: dict[str, Any]
    weight: Tensor
    gradient: Tensor
    low_rank: bool
    n: int = 0
    rank: int = 0
    shape: tuple[int, int] = (0, 0)
    right: bool = True
    sharding: RowSharding | None = None
    gathered: bool = False
    noise: torch.Generator | None = None

    @property
    def work(self) -> torch.dtype:
        """The dtype of the computation."""
        return working_dtype(self.weight.dtype)

    def zeros(self, columns: int, dtype: torch.dtype) -> Tensor:
        """A state with one row for each of the parameter's."""
        return self.state_of(self.weight.new_zeros(self.weight.shape[0], columns, dtype=dtype))

    def state_of(self, rows: Tensor) -> Tensor:
        """A state from this process's rows, divided as the parameter is."""
        return rows if self.sharding is None or self.gathered else self.sharding.wrap(rows)

    @property
    def reduce(self) -> Callable[[Tensor], None] | None:
        """Sums a tensor over the processes among which the rows are divided; None where they aren't."""
        return self.sharding.sum if self.sharding is not None and not self.gathered else None

    def rows_of(self, name: str) -> Tensor:
        """The rows of a state that are here."""
        return local(self.state[name])


@dataclass
class Stack:
    """Parameters of one shape that are updated together.

    Attributes
    ----------
    targets : list of Target
        The parameters.
    blocks : list of slice
        Their rows in blocks that keep the temporaries within bounds, and on a CPU within its cache.
    fits : bool
        Whether one copy of all rows may be held beside a block's temporaries.
    """

    targets: list[Target]
    blocks: list[slice]
    fits: bool

    @property
    def first(self) -> Target:
        """One of them, for what they have in common."""
        return self.targets[0]

    def gradients(self, rows: slice, *, maximize: bool) -> Tensor:
        """The gradients of some rows in the dtype of the computation, shape (b, rows, n)."""
        found = _stacked([target.gradient[rows] for target in self.targets]).to(self.first.work)
        return -found if maximize else found

    def load(self, name: str, rows: slice | None = None) -> Tensor:
        """A state of all parameters, shape (b, rows, columns), or (b, r) for states without rows."""
        if rows is None:
            return _stacked([target.state[name] for target in self.targets])
        return _stacked([target.rows_of(name)[rows] for target in self.targets]).to(self.first.work)

    def store(self, name: str, value: Tensor, rows: slice | None = None) -> None:
        """Write a state of all parameters back."""
        for target, one in zip(self.targets, value.unbind(0), strict=True):
            held = target.state[name] if rows is None else target.rows_of(name)[rows]
            # A state that was loaded as a view has been changed in place already.
            if torch.compiler.is_compiling() or held.data_ptr() != one.data_ptr():
                held.copy_(one)

    def sum(self, tensor: Tensor) -> None:
        """Sum a tensor over the processes among which the rows are divided."""
        if self.first.reduce is not None:
            self.first.reduce(tensor)


Directions = Iterator[tuple[slice, Tensor]]


def _stacked(tensors: list[Tensor]) -> Tensor:
    return tensors[0].unsqueeze(0) if len(tensors) == 1 else torch.stack(tensors)


class LowRankOptimizer(torch.optim.Optimizer):
    """The base of the low-rank optimisers.

    A subclass says how the parameters that are projected are updated (`_init_low_rank`, `_directions`); the others get
    AdamW.
    """

    structure: ClassVar[tuple[str, ...]] = ("rank", "basis", "side", "low_rank", "state_dtype")
    """The settings on which a checkpoint and an optimiser must agree."""
    shards: ClassVar[bool] = True
    """Whether parameters may be divided over processes."""

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        self._reset()
        super().__init__(params, {"low_rank": None, "max_shape": MAX_SHAPE, **defaults, "kind": type(self).__name__})

    def _reset(self) -> None:
        self._bases: dict[tuple[Any, ...], Basis] = {}
        self._warned = False
        self.track = False
        self.statistics: dict[str, dict[str, Tensor]] = {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._reset()
        super().__setstate__(state)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters, with settings of its own where it names them.

        Parameters
        ----------
        param_group : dict
            ``params`` and any settings of the constructor, and ``low_rank``: True projects all its matrices, False
            none, and None those that aren't large (`MAX_SHAPE`) or named like embeddings, heads or norms.

        Raises
        ------
        InputError
            A setting is wrong.
        """
        group = dict(param_group)
        if "adamw_lr" in self.defaults:
            _set_adamw_ratio(group, self.defaults)
        basis = group.get("basis", self.defaults.get("basis"))
        if isinstance(basis, Tensor):
            require_orthogonal(basis)
            basis = {basis.shape[0]: basis}
        if isinstance(basis, Mapping):
            for n, matrix in basis.items():
                require_orthogonal(matrix)
                if len(matrix) != n:
                    raise InputError(f"the basis for rows of length {n!r} has size {len(matrix)}", expected="the same")
            group |= {"basis": "user", "user_basis": dict(basis)}
        super().add_param_group(group)
        try:
            self._check_group(self.param_groups[-1])
        except InputError:
            self.param_groups.pop()
            raise

    def _check_group(self, group: dict[str, Any]) -> None:
        resolve_rank(group["rank"], 1 << 62)
        require_norm(group.get("norm", 2))
        if group["side"] not in SIDES:
            raise InputError(f"side is {group['side']!r}", expected=f"one of: {', '.join(SIDES)}")
        if group["basis"] not in BASES:
            raise InputError(f"basis is {group['basis']!r}", expected=f"a matrix, or one of: {', '.join(BASES)}")
        if group.get("transform", "auto") not in ("auto", "measure", "fft", "matmul"):
            raise InputError(f"transform is {group['transform']!r}", expected="auto, measure, fft or matmul")
        if group["nonfinite"] not in ("raise", "skip", "ignore"):
            raise InputError(f"nonfinite is {group['nonfinite']!r}", expected="raise, skip or ignore")
        if group.get("shard_update") not in (None, "zero1"):
            raise InputError(f"shard_update is {group['shard_update']!r}", expected="None or 'zero1'")
        if group.get("stochastic_rounding") and group.get("master_weights"):
            raise InputError("stochastic_rounding with master_weights", expected="one of the two")
        if group["low_rank"] not in (None, True, False):
            raise InputError(f"low_rank is {group['low_rank']!r}", expected="None, True or False")
        for name in ("lr", "weight_decay", "eps", "adamw_lr", "adamw_eps"):
            if name in group:
                require_number(name, group[name])
        for name in ("max_temp_mb", "max_shape"):
            require_number(name, group[name], finite=False)
        for name in ("betas", "adamw_betas"):
            if name in group:
                group[name] = _betas(name, group[name])
        for name in ("seed", "rounding_seed"):
            if not isinstance(group.get(name, 0), int):
                raise InputError(f"{name} is {group[name]!r}", expected="a whole number")
        if group["state_dtype"] is not None:
            group["state_dtype"] = str(group["state_dtype"]).removeprefix("torch.")
            if group["state_dtype"] not in STATE_DTYPES:
                raise InputError(
                    f"state_dtype is {group['state_dtype']}", expected=f"one of: {', '.join(STATE_DTYPES)}"
                )
        for parameter, name in zip(group["params"], self._names(group), strict=True):
            if parameter.is_complex():
                raise InputError(f"{name} is complex", expected="real parameters")
            if parameter.dtype not in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
                raise InputError(
                    f"{name} has dtype {parameter.dtype}", expected="float32, float64, bfloat16 or float16"
                )
            if (
                group["low_rank"] is not False
                and group["basis"] == "hadamard"
                and self._is_low_rank(group, parameter, name)
            ):
                _, columns, right = self._geometry(group, parameter, sharded=sharding_of(parameter, name) is not None)
                n = columns if right else parameter.shape[0]
                if n & (n - 1):
                    raise InputError(f"{name}: basis 'hadamard' for rows of length {n}", expected="a power of 2")

    def _names(self, group: Mapping[str, Any]) -> list[str]:
        if "param_names" in group:
            return list(group["param_names"])
        number = next((place for place, one in enumerate(self.param_groups) if one is group), len(self.param_groups))
        return [f"parameter {place} of group {number}" for place in range(len(group["params"]))]

    def _is_low_rank(self, group: Mapping[str, Any], parameter: Tensor, name: str) -> bool:
        # Of a matrix without entries there is nothing to project.
        if parameter.ndim < 2 or parameter.numel() == 0 or group["low_rank"] is False:
            return False
        if group["low_rank"]:
            return True
        large = max(parameter.shape[0], parameter.numel() // max(1, parameter.shape[0])) >= group["max_shape"]
        named = "param_names" in group and re.search(EXCLUDED, name) is not None
        return not large and not named

    @staticmethod
    def _geometry(group: Mapping[str, Any], parameter: Tensor, *, sharded: bool) -> tuple[int, int, bool]:
        """Rows and columns of a parameter as a matrix, and whether its columns are compressed."""
        rows = parameter.shape[0]
        columns = parameter.numel() // max(1, rows)
        side = "right" if sharded and group["side"] == "auto" else group["side"]
        return rows, columns, projects_right(side, rows, columns)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Do one step.

        Parameters
        ----------
        closure : callable, optional
            Evaluates the model again and returns the loss.

        Returns
        -------
        float or None
            What the closure returned.

        Raises
        ------
        InputError
            A gradient is NaN or infinite (before anything has changed), sparse, or a parameter is divided in a way that
            isn't supported.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        targets = [(group, self._targets(group)) for group in self.param_groups]
        if not torch.compiler.is_compiling():
            targets = [(group, self._finite(group, found)) for group, found in targets]
        for group, found in targets:
            lr = group["lr"] if torch.compiler.is_compiling() else float(group["lr"])
            self._give_noise(group, found)
            if group.get("shard_update") == "zero1" and dist.is_initialized() and dist.get_world_size() > 1:
                self._update_as_owner(group, found, lr)
            else:
                for target in found:
                    self._init_state(group, target)
                self._update_low_rank(group, [target for target in found if target.low_rank], lr)
                for target in found:
                    if not target.low_rank:
                        self._adamw(group, target, self._rest_lr(group, lr))
            for target in found:
                self._write_back(target)
        return loss

    def _give_noise(self, group: dict[str, Any], targets: list[Target]) -> None:
        if not group.get("stochastic_rounding"):
            return
        if torch.compiler.is_compiling():
            raise InputError("stochastic_rounding under torch.compile", expected="one of the two")
        # Counted in the group, which a checkpoint holds.
        group["roundings"] = group.get("roundings", 0) + 1
        for place, target in enumerate(targets):
            if target.weight.dtype == torch.bfloat16:
                divided = target.sharding is not None and not target.gathered
                process = dist.get_rank() if divided else 0
                device = target.weight.device
                target.noise = generator_of(group["rounding_seed"], group["roundings"], place, process, device)

    def _targets(self, group: dict[str, Any]) -> list[Target]:
        found = []
        for parameter, name in zip(group["params"], self._names(group), strict=True):
            if parameter.grad is None:
                continue
            if parameter.grad.is_sparse:
                raise InputError(
                    f"{name} has a sparse gradient", expected="dense gradients (sparse=False in nn.Embedding)"
                )
            found.append(self._target(group, parameter, name))
        return found

    def _target(self, group: dict[str, Any], parameter: Tensor, name: str) -> Target:
        state = self.state[parameter]
        sharding = sharding_of(parameter, name)
        if sharding is not None and not self.shards:
            raise InputError(
                f"{name} is divided over processes", expected="an optimiser of the DCT family, which can do that"
            )
        low_rank = self._is_low_rank(group, parameter, name)
        gradient, weight = parameter.grad, parameter
        assert gradient is not None
        if not low_rank:
            weight = state.get("master", weight)
            return Target(parameter, name, state, local(weight.detach()), local(gradient), False, sharding=sharding)
        rows, columns, right = self._geometry(group, parameter, sharded=sharding is not None)
        n = columns if right else rows
        rank = resolve_rank(group["rank"], n)
        if isinstance(group["rank"], int) and group["rank"] > n and not self._warned:
            self._warned = True
            warnings.warn(
                f"rank {group['rank']} is larger than {n}, the projected size of {name}: all of its columns are kept, "
                "and so of others where that is so",
                stacklevel=4,
            )
        gathered = sharding is not None and not right
        if "master" in state:
            weight = state["master"]
        if gathered:
            weight, gradient = weight.full_tensor(), gradient.full_tensor()  # type: ignore[attr-defined]
        weight, gradient = _matrix(local(weight.detach()), columns), _matrix(local(gradient), columns)
        if not right:
            weight, gradient = weight.mT, gradient.mT
        return Target(
            parameter, name, state, weight, gradient, True, n, rank, (rows, columns), right, sharding, gathered
        )

    def _finite(self, group: dict[str, Any], targets: list[Target]) -> list[Target]:
        """The targets with finite gradients; by default anything else raises before a state has changed."""
        if group["nonfinite"] == "ignore" or not targets:
            return targets
        flags = torch.stack([_is_nonfinite(target.gradient) for target in targets])
        divided = next((target.sharding for target in targets if target.sharding is not None), None)
        if divided is not None:
            flags = flags.float()
            divided.largest(flags)
        bad = flags.bool().tolist()
        if group["nonfinite"] == "raise" and any(bad):
            name = targets[bad.index(True)].name
            raise InputError(
                f"the gradient of {name} is NaN or infinite; nothing was changed",
                expected="finite gradients (a lower learning rate, clipping, or nonfinite='skip')",
            )
        return [target for target, one in zip(targets, bad, strict=True) if not one]

    def _init_state(self, group: dict[str, Any], target: Target) -> None:
        if len(target.state) > 0:
            return
        parameter = target.parameter
        if group.get("master_weights") and parameter.dtype in (torch.bfloat16, torch.float16):
            target.state["master"] = parameter.detach().float()
            fresh = self._target(group, parameter, target.name)
            target.weight, target.gradient = fresh.weight, fresh.gradient
        self._fill_state(group, target)

    def _fill_state(self, group: dict[str, Any], target: Target) -> None:
        """Give a parameter the state that it has before its first step."""
        if target.low_rank:
            self._init_low_rank(group, target)
            return
        dtype = self._state_dtype(group, target)
        target.state["step"] = torch.zeros((), dtype=torch.float32)
        for name in ("exp_avg", "exp_avg_sq"):
            rows = torch.zeros_like(target.weight, dtype=dtype, memory_format=torch.preserve_format)
            target.state[name] = target.state_of(rows)

    def _init_low_rank(self, group: dict[str, Any], target: Target) -> None:
        raise NotImplementedError

    def _update_low_rank(self, group: dict[str, Any], targets: list[Target], lr: Any) -> None:
        for stack in self._stacks(group, targets):
            index, directions = self._directions(group, stack, lr)
            self._apply(group, stack, index, directions, lr)

    def _directions(self, group: dict[str, Any], stack: Stack, lr: Any) -> tuple[Tensor, Directions]:
        """Advance the states and give the chosen columns and, block by block, the coefficients of the update."""
        raise NotImplementedError

    def _apply(self, group: dict[str, Any], stack: Stack, index: Tensor, directions: Directions, lr: Any) -> None:
        """Decay the weights and subtract the update."""
        basis = self._basis_of(group, stack)
        for rows, coefficients in directions:
            update = basis.lift(coefficients, index)
            for target, one in zip(stack.targets, update.unbind(0), strict=True):
                self._subtract(group, target, target.weight[rows], one, lr)

    def _subtract(self, group: Mapping[str, Any], target: Target, weight: Tensor, update: Tensor, lr: Any) -> None:
        """Decay a part of a parameter and subtract its update."""
        decay = group["weight_decay"]
        decays = torch.is_tensor(decay) or decay != 0
        if target.noise is not None:
            fresh = weight.float()
            weight.copy_(round_stochastically((fresh * (1 - lr * decay) if decays else fresh) - update, target.noise))
            return
        if decays:
            weight.mul_(1 - lr * decay)
        weight.sub_(update)

    def _adamw(self, group: dict[str, Any], target: Target, lr: Any) -> None:
        """AdamW (Loshchilov and Hutter, 2019) for what isn't projected, in blocks of bounded size."""
        step = target.state["step"]
        step += 1
        t = step.double() if torch.compiler.is_compiling() else step.item()
        betas, eps = self._rest_settings(group)
        bias1, bias2 = 1 - betas[0] ** t, 1 - betas[1] ** t
        block = max(1, int(self._temporary_bytes(group) / (6 * 8)))
        parts = [target.weight, target.gradient, target.rows_of("exp_avg"), target.rows_of("exp_avg_sq")]
        if all(part.is_contiguous() for part in parts):
            parts = [part.view(-1) for part in parts]
        else:
            block = max(1, block // max(1, target.weight[0].numel())) if target.weight.ndim else 1
        for first in range(0, len(parts[0]), block) if parts[0].ndim else [None]:
            rows = ... if first is None else slice(first, first + block)
            weight, gradient, mean, square = (part[rows] for part in parts)
            gradient = gradient.to(target.work)
            if group["maximize"]:
                gradient = -gradient
            mean.mul_(betas[0]).add_(gradient, alpha=1 - betas[0])
            square.mul_(betas[1]).add_(gradient.square(), alpha=1 - betas[1])
            update = (mean.to(target.work) / bias1).div_((square.to(target.work) / bias2).sqrt_().add_(eps)).mul_(lr)
            self._subtract(group, target, weight, update, lr)

    def _rest_lr(self, group: Mapping[str, Any], lr: Any) -> Any:
        return lr * group["adamw_ratio"] if "adamw_ratio" in group else lr

    def _rest_settings(self, group: Mapping[str, Any]) -> tuple[tuple[float, float], float]:
        if "adamw_betas" in group:
            return group["adamw_betas"], group["adamw_eps"]
        return group["betas"], group["eps"]

    def _update_as_owner(self, group: dict[str, Any], targets: list[Target], lr: Any) -> None:
        """ZeRO-1: each parameter's owner alone holds its state; it sends coefficients and columns, not whole
        updates.
        """
        whose = owners([target.parameter.numel() for target in targets], dist.get_world_size())
        for target, owner in zip(targets, whose, strict=True):
            mine = owner == dist.get_rank()
            if mine:
                self._init_state(group, target)
            if not target.low_rank:
                if mine:
                    self._adamw(group, target, self._rest_lr(group, lr))
                dist.broadcast(target.parameter.detach(), src=owner)
                continue
            (stack,) = self._stacks(group, [target], ready=mine)
            rows = target.weight.shape[0]
            if mine:
                index, directions = self._directions(group, stack, lr)
                coefficients = torch.cat([one for _, one in directions], dim=1).contiguous()
            else:
                index = torch.empty(1, target.rank, dtype=torch.int32, device=target.weight.device)
                coefficients = target.weight.new_empty(1, rows, target.rank, dtype=target.work)
            dist.broadcast(index, src=owner)
            dist.broadcast(coefficients, src=owner)
            blocks = ((one, coefficients[:, one]) for one in stack.blocks)
            self._apply(group, stack, index, blocks, lr)

    def _stacks(self, group: Mapping[str, Any], targets: Sequence[Target], *, ready: bool = True) -> list[Stack]:
        """Parameters of one shape and age together, in stacks and blocks of rows that keep temporaries within
        bounds.
        """
        compiling = torch.compiler.is_compiling()
        shapes: dict[tuple[Any, ...], list[Target]] = {}
        for target in targets:
            step = 0.0 if compiling or not ready or "step" not in target.state else target.state["step"].item()
            sharded = target.sharding is not None
            key = (
                target.shape,
                target.right,
                target.n,
                target.rank,
                target.weight.dtype,
                target.weight.device,
                step,
                sharded,
            )
            shapes.setdefault(key, []).append(target)
        stacks = []
        for alike in shapes.values():
            first = alike[0]
            size = 8 if first.work == torch.float64 else 4
            # Of the whole parameter, so that all processes make the same stacks.
            whole_rows = first.shape[0] if first.right else first.shape[1]
            room = int(self._temporary_bytes(group) // (first.n * size))
            together = max(1, room // (TEMPORARIES * max(1, whole_rows)))
            block = max(1, room // TEMPORARIES)
            if first.weight.device.type == "cpu" and not compiling:
                # Beyond a cache's size, stacking costs more than it saves.
                cached = chunk_rows(first.n, first.weight)
                together, block = min(together, max(1, cached // max(1, whole_rows))), min(block, cached)
            rows = first.weight.shape[0]
            if together > 1:
                block = max(1, rows)
            fits = rows + TEMPORARIES * min(block, rows) <= room
            blocks = [slice(start, min(rows, start + block)) for start in range(0, rows, block)] or [slice(0, 0)]
            stacks += [Stack(alike[start : start + together], blocks, fits) for start in range(0, len(alike), together)]
        return stacks

    @staticmethod
    def _temporary_bytes(group: Mapping[str, Any]) -> float:
        return float(group["max_temp_mb"]) * 1e6

    def _basis_of(self, group: dict[str, Any], stack: Stack) -> Basis:
        """The basis of a stack; a subclass may turn it."""
        return self._basis(group, stack.first)

    def _basis(self, group: dict[str, Any], target: Target) -> Basis:
        return self._basis_for(group, target.n, rows=target.weight.shape[0], like=target.weight)

    def _basis_for(self, group: dict[str, Any], n: int, *, rows: int, like: Tensor) -> Basis:
        """The basis for rows of length n, made once for each size, dtype and device."""
        transform, work, device = group.get("transform", "auto"), working_dtype(like.dtype), like.device
        key = (group["basis"], n, work, device, transform, id(group.get("user_basis")))
        if key not in self._bases:
            if transform == "measure" and group["basis"] in FAST:
                # The choice is kept with the group, so that a resumed run rounds as the first did.
                chosen = group.setdefault("measured", {})
                size = f"{rows} x {n}"
                if size not in chosen:
                    chosen[size] = measure_transform(rows, n, dtype=work, device=device)
                transform = chosen[size]
            self._bases[key] = make_basis(
                group["basis"],
                n,
                transform="auto" if transform == "measure" else transform,
                dtype=work,
                device=device,
                user=group.get("user_basis"),
            )
        return self._bases[key]

    @staticmethod
    def _state_dtype(group: Mapping[str, Any], target: Target) -> torch.dtype:
        return target.work if group["state_dtype"] is None else getattr(torch, group["state_dtype"])

    def _write_back(self, target: Target) -> None:
        """Bring a copy's new values into the parameter: of a float32 master, or of gathered rows."""
        if "master" not in target.state and not target.gathered and _shares_memory(target):
            return
        rows = target.weight if target.right or not target.low_rank else target.weight.mT
        for held in (target.state.get("master"), target.parameter):
            if held is not None:
                part = local(held.detach())
                first = target.sharding.first if target.gathered and target.sharding is not None else 0
                part.copy_(rows[first : first + len(part)].reshape(part.shape) if part.ndim else rows)

    def _note(self, stack: Stack, energy: Tensor, churn: Tensor) -> None:
        for place, target in enumerate(stack.targets):
            self.statistics[target.name] = {"energy": energy[place], "churn": churn[place]}

    def mean_statistics(self) -> dict[str, float]:
        """What the last step's projection kept, while `track` is true.

        Returns
        -------
        dict of str to float
            ``energy_kept``, the share of squared norm, and ``index_churn``, the share of columns that are new: means
            over the projected parameters. Empty while nothing is tracked.
        """
        if not self.statistics:
            return {}
        both = [(one["energy"].item(), one["churn"].item()) for one in self.statistics.values()]
        energy, churn = (sum(values) / len(both) for values in zip(*both, strict=True))
        return {"energy_kept": energy, "index_churn": churn}

    def memory_report(self) -> MemoryReport:
        """The bytes of the state that this process holds, by category and parameter.

        Returns
        -------
        MemoryReport
            Moments, indices, error feedback, projectors, other, and the bases, which are kept once a size and device.
        """
        rows = {}
        for group in self.param_groups:
            for parameter, name in zip(group["params"], self._names(group), strict=True):
                state = self.state.get(parameter, {})
                rows[name] = {key: local(value).nbytes for key, value in state.items() if isinstance(value, Tensor)}
        return report_of(rows, CATEGORIES, basis=sum(basis.nbytes for basis in self._bases.values()))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a checkpoint, and refuse one of another optimiser, rank or basis.

        A checkpoint with a larger rank is converted where columns of a basis are kept: of each parameter's columns
        those with the largest second moments stay. Trion's momentum is whole, so that any rank goes on with it.
        Settings that the checkpoint doesn't hold stay as they are.

        Parameters
        ----------
        state_dict : dict
            What `state_dict` returned; load the file with ``torch.load(file, weights_only=True)``.

        Raises
        ------
        InputError
            The checkpoint's settings or shapes differ, or a part of it is missing; the message names the field. Nothing
            has changed then.
        """
        saved_groups, saved_state = state_dict.get("param_groups"), state_dict.get("state")
        if not isinstance(saved_groups, list) or not isinstance(saved_state, Mapping):
            raise InputError("the checkpoint holds no param_groups and state", expected="what state_dict returned")
        if len(saved_groups) != len(self.param_groups):
            raise InputError(
                f"the checkpoint has {len(saved_groups)} parameter groups", expected=f"{len(self.param_groups)}"
            )
        groups, states = [], {}
        for number, (saved, group) in enumerate(zip(saved_groups, self.param_groups, strict=True)):
            self._require_same(saved, group)
            if len(saved.get("params", ())) != len(group["params"]):
                raise InputError(
                    f"group {number} of the checkpoint has {len(saved.get('params', ()))} parameters",
                    expected=f"{len(group['params'])}",
                )
            # What tells a basis of one's own is the matrix, which is the same.
            kept = {name: group[name] for name in ("params", "rank", "user_basis") if name in group}
            loaded = {**group, **saved, **kept}
            self._check_group(loaded)
            names = loaded.get("param_names", self._names(group))
            for key, parameter, name in zip(saved["params"], group["params"], names, strict=True):
                if saved_state.get(key):
                    states[key] = self._fitting(saved_state[key], loaded, parameter, name)
            groups.append({**loaded, "params": saved["params"]})
        super().load_state_dict({**state_dict, "state": states, "param_groups": groups})
        for saved, group in zip(groups, self.param_groups, strict=True):
            for key, parameter in zip(saved["params"], group["params"], strict=True):
                # torch casts every state to the parameter's dtype; moments, indices and codes have their own.
                for name, value in states.get(key, {}).items():
                    if isinstance(value, Tensor):
                        device = value.device if name == "step" else local(parameter).device
                        self.state[parameter][name] = value.detach().to(device=device).clone()
        self._bases.clear()

    def _require_same(self, saved: Mapping[str, Any], group: Mapping[str, Any]) -> None:
        if "kind" not in saved:
            raise InputError("the checkpoint is of another optimiser", expected=f"one of {group['kind']}")
        for field in ("kind", *self.structure):
            if field == "rank" or field not in saved:
                continue
            if saved[field] != group[field]:
                raise InputError(
                    f"the checkpoint has {field} {saved[field]!r}, this optimiser {group[field]!r}", expected="the same"
                )
        if group["basis"] == "user":
            for n, matrix in group["user_basis"].items():
                other = saved.get("user_basis", {}).get(n)
                if other is None or not torch.equal(other.detach().cpu().double(), matrix.detach().cpu().double()):
                    raise InputError(
                        f"the checkpoint has another basis for rows of length {n} than this optimiser",
                        expected="the same matrix",
                    )

    def _fitting(self, saved: Any, group: dict[str, Any], parameter: Tensor, name: str) -> dict[str, Any]:
        """A parameter's saved state, with fewer columns where the rank shrank.

        Raises
        ------
        InputError
            A part is missing, has another shape, or is of another rank.
        """
        if not isinstance(saved, Mapping):
            raise InputError(f"the checkpoint's state of {name} is no mapping", expected="what state_dict returned")
        shapes, n, rank = self._state_shapes(group, parameter, name)
        fitting = self._of_rank(dict(saved), shapes, rank, name)
        for key, shape in shapes.items():
            value = fitting.get(key)
            if not isinstance(value, Tensor):
                raise InputError(f"the checkpoint has no {key} of {name}", expected=f"a tensor of shape {shape}")
            if tuple(value.shape) != shape:
                raise InputError(
                    f"the checkpoint's {key} of {name} has shape {tuple(value.shape)}", expected=f"shape {shape}"
                )
            if key in ("index", "order") and not 0 <= int(value.min()) <= int(value.max()) < n:
                raise InputError(f"the checkpoint's {key} of {name} has wrong columns", expected=f"0 to {n - 1}")
        return fitting

    def _of_rank(
        self, saved: dict[str, Any], shapes: Mapping[str, tuple[int, ...]], rank: int, name: str
    ) -> dict[str, Any]:
        """A saved state with the columns of a rank; what has another shape for another reason stays as it is."""
        kept = "index" if "index" in shapes else "projector"
        vectors = saved.get(kept)
        if kept not in shapes or not isinstance(vectors, Tensor) or vectors.ndim != len(shapes[kept]):
            return saved
        had = vectors.shape[-1]
        if had == rank:
            return saved
        if kept == "index" and "exp_avg" not in shapes:
            # The momentum is whole; the columns are those of the last step, and are chosen anew in the next.
            return {**saved, "index": torch.arange(rank, dtype=vectors.dtype, device=vectors.device)}
        if had < rank or kept != "index":
            raise InputError(
                f"the checkpoint has rank {had} for {name}, this optimiser {rank}",
                expected="at most the saved rank" if kept == "index" else "the same",
            )
        moments = [saved.get(key) for key in ("exp_avg", "exp_avg_sq")]
        if not all(isinstance(one, Tensor) and one.ndim == 2 and one.shape[1] == had for one in moments):
            return saved
        largest = saved["exp_avg_sq"].float().sum(dim=0)
        keep = torch.sort(local(largest), descending=True, stable=True).indices[:rank].sort().values
        fewer = {key: saved[key][:, keep] for key in ("exp_avg", "exp_avg_sq")}
        fewer |= {key: saved[key][keep] for key in ("index", "age") if key in saved}
        return {**saved, **fewer}

    def _state_shapes(
        self, group: dict[str, Any], parameter: Tensor, name: str
    ) -> tuple[dict[str, tuple[int, ...]], int, int]:
        """The shapes of a whole parameter's state, the length of its rows, and its rank; no memory is taken."""
        weight = torch.empty(parameter.shape, dtype=parameter.dtype, device="meta")
        target = Target(parameter, name, {}, weight, weight, self._is_low_rank(group, parameter, name))
        if target.low_rank:
            rows, columns, right = self._geometry(group, parameter, sharded=sharding_of(parameter, name) is not None)
            weight = weight.new_empty(rows, columns)
            target.weight = weight if right else weight.mT
            target.n = columns if right else rows
            target.rank, target.shape, target.right = resolve_rank(group["rank"], target.n), (rows, columns), right
        self._fill_state(group, target)
        if group.get("master_weights") and parameter.dtype in (torch.bfloat16, torch.float16):
            target.state["master"] = parameter
        return {key: tuple(value.shape) for key, value in target.state.items()}, target.n, target.rank


def require_number(name: str, value: Any, *, finite: bool = True) -> None:
    """Refuse a setting that is no number from 0 on."""
    try:
        number = math.nan if isinstance(value, str) else float(value)
    except (TypeError, ValueError, RuntimeError):
        number = math.nan
    if not number >= 0 or (finite and number == math.inf):
        shown = number if isinstance(value, int | float) else repr(value)
        raise InputError(f"{name} is {shown}", expected="a finite number from 0 on" if finite else "at least 0")


def require_share(name: str, value: Any) -> None:
    """Refuse a setting that isn't in [0, 1)."""
    if isinstance(value, str | bytes) or not _is_share(value):
        raise InputError(f"{name} is {value!r}", expected="in [0, 1)")


def _is_share(value: Any) -> bool:
    try:
        return 0 <= float(value) < 1
    except (TypeError, ValueError, RuntimeError):
        return False


def _betas(name: str, betas: Any) -> tuple[Any, ...]:
    if not isinstance(betas, tuple | list) or len(betas) != 2:
        raise InputError(f"{name} is {betas!r}", expected="two numbers in [0, 1)")
    for place, beta in enumerate(betas):
        require_share(f"{name}[{place}]", beta)
    return tuple(betas)


def _set_adamw_ratio(group: dict[str, Any], defaults: Mapping[str, Any]) -> None:
    """Give what isn't projected its own learning rate, in proportion to the group's, so that schedulers act on both."""
    adamw_lr = group.get("adamw_lr", defaults["adamw_lr"])
    require_number("adamw_lr", adamw_lr)
    require_number("lr", group.get("lr", defaults["lr"]))
    if group.get("low_rank") is False:
        group.setdefault("lr", adamw_lr)
        group.setdefault("adamw_ratio", 1.0)
        return
    lr = float(group.get("lr", defaults["lr"]))
    group.setdefault("adamw_ratio", adamw_lr / lr if lr > 0 else 1.0)


def _matrix(tensor: Tensor, columns: int) -> Tensor:
    """A tensor as rows and columns; a view where its memory allows."""
    return tensor if tensor.ndim == 2 else tensor.reshape(tensor.shape[0], columns)


def _shares_memory(target: Target) -> bool:
    if torch.compiler.is_compiling() or target.parameter.ndim <= 2:
        return True
    return target.weight.data_ptr() == local(target.parameter).data_ptr()


def _is_nonfinite(gradient: Tensor) -> Tensor:
    """Whether a gradient holds NaN or infinity. A finite sum proves that it doesn't, in one pass without a copy."""
    total = gradient.sum(dtype=torch.float64 if gradient.dtype == torch.float64 else torch.float32)
    if gradient.device.type == "cpu" and torch.isfinite(total):
        return torch.zeros((), dtype=torch.bool)
    return ~torch.isfinite(gradient).all()
