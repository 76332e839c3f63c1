"""Fit one block to target keys, on a copy: the model itself isn't touched."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from assay.core.errors import AssayError, InputError
from assay.core.lm.anatomy import Anatomy
from assay.core.lm.recording import Recording, record
from assay.edit.losses import LossSettings, Parts, block_loss

__all__ = ["FitSettings", "FittedBlock", "Job", "fit_block"]


@dataclass(frozen=True)
class FitSettings:
    """How a block is fitted.

    Attributes
    ----------
    steps : int
        AdamW steps, each on everything.
    rate : float
        The learning rate.
    weight_decay : float
        AdamW's.
    """

    steps: int = 50
    rate: float = 5e-4
    weight_decay: float = 0.01

    def __post_init__(self) -> None:
        for name, right, expected in (
            ("steps", self.steps >= 0, "0 or more"),
            ("rate", 0 < self.rate < math.inf, "a positive number"),
            ("weight_decay", 0 <= self.weight_decay < math.inf, "0 or more"),
        ):
            if not right:
                raise InputError(f"fit_{name} is {getattr(self, name)}", expected=expected)


@dataclass(frozen=True)
class Job:
    """What a block is fitted to.

    Attributes
    ----------
    prompts : Recording
        Of the prompts, with the block's inputs and outputs.
    positions : Tensor of int64, shape (targets, 2)
        Row and column of each token with a new key.
    keys : Tensor, shape (targets, d)
        The new keys.
    real : Tensor of bool, shape (prompts, tokens)
        Which tokens aren't padding.
    preserve : Recording or None
        Of the texts to preserve.
    preserve_real : Tensor of bool or None
        Which of their tokens aren't padding.
    anchors : tuple of Tensor or None
        What the block said before any edit, on prompts and texts, where that is to be kept rather than what it says
        now.
    """

    prompts: Recording
    positions: Tensor
    keys: Tensor
    real: Tensor
    preserve: Recording | None = None
    preserve_real: Tensor | None = None
    anchors: tuple[Tensor, Tensor | None] | None = None


@dataclass(frozen=True)
class FittedBlock:
    """A block's new weights.

    Attributes
    ----------
    tensors : mapping of str to Tensor of float32
        By the parameter's name in the block.
    losses : list of float
        The loss before each step.
    moved : float
        How far the weights moved: the norm of the difference.
    """

    tensors: Mapping[str, Tensor]
    losses: list[float]
    moved: float


def fit_block(
    anatomy: Anatomy,
    layer: int,
    job: Job,
    *,
    alpha: Tensor,
    rate: Tensor,
    loss: LossSettings,
    settings: FitSettings,
    watch: Callable[[int, float], None] | None = None,
) -> FittedBlock:
    """Fit a float32 copy of block `layer` to a job.

    Parameters
    ----------
    anatomy : Anatomy
        The model's parts.
    layer : int
        Which block.
    job : Job
        What to fit.
    alpha, rate : Tensor of float32, shape (prompts,)
        The weights of each prompt.
    loss : LossSettings
        The terms.
    settings : FitSettings
        The steps.
    watch : callable, optional
        Told each step's number and loss.

    Returns
    -------
    FittedBlock

    Raises
    ------
    AssayError
        The loss stopped being a number.
    """
    block = working_copy(anatomy, layer)
    original, kept = job.anchors or (job.prompts.outputs[layer], job.preserve.outputs[layer] if job.preserve else None)
    original = original.float()
    keys = original.clone()
    rows, columns = job.positions.T
    keys[rows, columns] = job.keys.float()
    edited = torch.zeros_like(job.real)
    edited[rows, columns] = True
    parts = Parts(keys, original, job.real, edited, None if kept is None else kept.float(), job.preserve_real)
    optimiser = adamw(block, settings, decay_norms=loss.decay_norms)
    losses: list[float] = []
    for step in range(settings.steps):
        outputs = run_block(block, job.prompts, layer)
        preserved = None if job.preserve is None else run_block(block, job.preserve, layer)
        total = block_loss(outputs, preserved, parts, alpha=alpha, rate=rate, settings=loss)
        losses.append(float(total.detach()))
        if not torch.isfinite(total):
            raise AssayError(f"the loss of block {layer} is {losses[-1]} at step {step}: a smaller rate may help")
        optimiser.zero_grad()
        total.backward()
        optimiser.step()
        if watch is not None:
            watch(step, losses[-1])
    return fitted_block(block, anatomy, layer, losses)


def working_copy(anatomy: Anatomy, layer: int) -> nn.Module:
    """A float32 copy of a block, to be fitted while the model keeps its own."""
    return copy.deepcopy(anatomy.blocks[layer]).float().requires_grad_(True)


def adamw(block: nn.Module, settings: FitSettings, *, decay_norms: bool) -> torch.optim.AdamW:
    """The optimiser of a working copy; norms' weights don't decay unless they are to."""
    norms = {
        id(parameter)
        for module in block.modules()
        if "norm" in type(module).__name__.lower()
        for parameter in module.parameters(recurse=False)
    }
    spared = [] if decay_norms else [one for one in block.parameters() if id(one) in norms]
    decayed = [one for one in block.parameters() if decay_norms or id(one) not in norms]
    groups = [{"params": decayed, "weight_decay": settings.weight_decay}, {"params": spared, "weight_decay": 0.0}]
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=settings.rate)


def fitted_block(block: nn.Module, anatomy: Anatomy, layer: int, losses: list[float]) -> FittedBlock:
    """What a working copy has become, beside the model's own block."""
    tensors = {name: parameter.detach() for name, parameter in block.named_parameters()}
    distances = [
        torch.linalg.vector_norm(tensors[name] - parameter.detach().float())
        for name, parameter in anatomy.blocks[layer].named_parameters()
    ]
    return FittedBlock(tensors, losses, float(torch.stack(distances).double().norm()) if distances else 0.0)


def record_rows(
    model: Any, anatomy: Anatomy, rows: Sequence[list[int]], layers: tuple[int, ...], *, pad: int
) -> tuple[Recording, Tensor]:
    """Run sequences up to the last of some blocks; what went in and out of them, and which tokens are real."""
    device = anatomy.device
    width = max(len(row) for row in rows)
    ids = torch.full((len(rows), width), pad, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = torch.tensor(row)
        mask[index, : len(row)] = 1
    ids, mask = ids.to(device), mask.to(device)
    return record(model, anatomy, ids, mask, keep=layers, stop_after=max(layers)), mask.bool()


def run_block(block: nn.Module, recording: Recording, layer: int) -> Tensor:
    """Run a float32 block on what the model's own block was given."""
    call = recording.calls[layer]
    arguments = {name: _float(value) for name, value in call.kwargs.items()}
    output = block(recording.inputs[layer].float(), *(_float(value) for value in call.args), **arguments)
    stream: Tensor = output[0] if isinstance(output, tuple) else output
    return stream


def _float(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.float() if value.is_floating_point() else value
    if isinstance(value, tuple):
        return tuple(_float(one) for one in value)
    return value
