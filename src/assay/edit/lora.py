"""A patch as a low-rank adapter that PEFT and servers can load."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from assay.core.errors import InputError
from assay.edit.folders import atomic_folder
from assay.edit.storage import write_tensors

__all__ = ["LoraAdapter", "to_lora"]


@dataclass(frozen=True)
class LoraAdapter:
    """A low-rank change of some matrices: ``W + up @ down``.

    Attributes
    ----------
    rank : int
        The largest rank.
    down, up : mapping of str to Tensor of float32
        By the module's dotted name: shapes (rank, in) and (out, rank).
    errors : mapping of str to float
        The Frobenius norm of what each matrix's factors leave out, over that of its change.
    left_out : tuple of str
        The vectors that changed and that an adapter can't change.
    left_out_share : float
        The Frobenius norm of those changes over that of all changes.
    transposed : bool
        Whether the matrices are stored as (in, out).
    """

    rank: int
    down: Mapping[str, Tensor]
    up: Mapping[str, Tensor]
    errors: Mapping[str, float]
    left_out: tuple[str, ...]
    left_out_share: float
    transposed: bool = False

    def deltas(self) -> dict[str, Tensor]:
        """The change of each weight matrix, by its parameter's dotted name, as the model stores it."""
        found = {f"{name}.weight": up.double() @ self.down[name].double() for name, up in self.up.items()}
        return {name: delta.T if self.transposed else delta for name, delta in found.items()}

    def save_pretrained(self, folder: str | Path, *, force: bool = False) -> Path:
        """Write the folder that ``peft.PeftModel.from_pretrained`` reads.

        Raises
        ------
        InputError
            The folder exists and `force` is false.
        """
        config = {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "r": self.rank,
            "lora_alpha": self.rank,
            "lora_dropout": 0.0,
            "bias": "none",
            "fan_in_fan_out": self.transposed,
            "inference_mode": True,
            "target_modules": sorted(self.up),
        }
        tensors = {
            f"base_model.model.{name}.lora_A.weight": _padded(one, self.rank, 0) for name, one in self.down.items()
        }
        tensors |= {
            f"base_model.model.{name}.lora_B.weight": _padded(one, self.rank, 1) for name, one in self.up.items()
        }
        with atomic_folder(folder, force=force) as temporary:
            write_tensors(temporary / "adapter_model.safetensors", tensors)
            (temporary / "adapter_config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
        return Path(folder)


def to_lora(deltas: Mapping[str, Tensor], *, rank: int, transposed: frozenset[str] = frozenset()) -> LoraAdapter:
    """Factor changes of weights by truncated singular value decompositions.

    Parameters
    ----------
    deltas : mapping of str to Tensor of float64
        Changes by parameter name.
    rank : int
        The rank to cut at.
    transposed : frozenset of str
        The matrices that are stored as (in, out).

    Returns
    -------
    LoraAdapter

    Raises
    ------
    InputError
        The rank is below 1, no matrix changes, or matrices of both layouts do.
    """
    if rank < 1:
        raise InputError(f"rank is {rank}", expected="at least 1")
    matrices = {name: delta for name, delta in deltas.items() if delta.ndim == 2 and bool(delta.any())}
    vectors = {name: delta for name, delta in deltas.items() if delta.ndim != 2 and bool(delta.any())}
    if not matrices:
        raise InputError("the patch changes no matrix", expected="a patch with changes that an adapter can hold")
    layouts = {name in transposed for name in matrices}
    if len(layouts) > 1:
        raise InputError("the patch changes matrices of two layouts", expected="a model with one kind of layer")
    down, up, errors = {}, {}, {}
    for name, delta in matrices.items():
        u, s, vh = torch.linalg.svd(delta.T if name in transposed else delta, full_matrices=False)
        kept = min(rank, len(s))
        module = name.removesuffix(".weight")
        root = s[:kept].sqrt()
        up[module], down[module] = (u[:, :kept] * root).float(), (root[:, None] * vh[:kept]).float()
        errors[module] = float(s[kept:].norm() / s.norm())
    total = sum(float(delta.square().sum()) for delta in deltas.values())
    lost = sum(float(delta.square().sum()) for delta in vectors.values())
    return LoraAdapter(
        min(rank, max(len(one) for one in down.values())),
        down,
        up,
        errors,
        tuple(sorted(vectors)),
        (lost / total) ** 0.5,
        layouts.pop(),
    )


def _padded(factor: Tensor, rank: int, axis: int) -> Tensor:
    """Zeros up to the common rank: PEFT asks for one rank."""
    missing = rank - factor.shape[axis]
    if missing <= 0:
        return factor.contiguous()
    shape = list(factor.shape)
    shape[axis] = missing
    return torch.cat([factor, factor.new_zeros(shape)], dim=axis).contiguous()
