"""Fit a block to the answers themselves, through the frozen blocks above it, with preservation and unlikelihood."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from assay.core.lm.anatomy import Anatomy
from assay.core.lm.recording import Recording, record, replay
from assay.core.lm.scoring import collate
from assay.edit.fitting import (
    FitSettings,
    FittedBlock,
    adamw,
    fitted_block,
    run_block,
    working_copy,
)
from assay.edit.targets import frozen

__all__ = ["fit_to_answers"]

TINY = 1e-6
"""The least that one minus a probability counts as, in the unlikelihood."""


def fit_to_answers(
    model: Any,
    anatomy: Anatomy,
    layer: int,
    prompts: Sequence[list[int]],
    answers: Sequence[list[int]],
    old_answers: Sequence[list[int]],
    *,
    alpha: Tensor,
    rate: Tensor,
    preserve: tuple[Recording, Tensor] | None,
    settings: FitSettings,
    pad: int = 0,
    watch: Callable[[int, float], None] | None = None,
) -> FittedBlock:
    """Fit a copy of block `layer` so that the model gives new answers and unlearns old ones.

    The loss is the answers' cross-entropy, plus ``(1 - alpha)`` times the change on texts to preserve (over the mean
    square
    of the residual), plus `rate` times the unlikelihood of the old answers. Harder batches get more steps: the number
    grows with the mean of `alpha`, from half of `settings.steps` to one and a half.

    Parameters
    ----------
    model, anatomy, layer
        The model, its parts, and the block.
    prompts, answers, old_answers : sequence of list of int
        Tokens.
    alpha, rate : Tensor of float32, shape (prompts,)
        Weights of each request.
    preserve : (Recording, Tensor) or None
        Texts to preserve, and which of their tokens are real.
    settings : FitSettings
        Rate, decay and number of steps.
    pad : int
        The token that fills up.
    watch : callable, optional
        Told each step's number and loss.

    Returns
    -------
    FittedBlock
    """
    device = anatomy.device
    alpha, rate = alpha.to(device), rate.to(device)
    block = working_copy(anatomy, layer)
    sides = []
    for said in (answers, old_answers):
        batch = collate(prompts, said, pad=pad, device=device)
        sides.append((batch, record(model, anatomy, batch.input_ids, batch.attention_mask, keep=(layer,))))
    steps = round(settings.steps * (0.5 + float(alpha.mean())))
    losses: list[float] = []
    optimiser = adamw(block, settings, decay_norms=True)
    with frozen(model):
        for step in range(steps):
            picked = []
            for batch, recording in sides:
                dtype = recording.inputs[layer].dtype
                top = replay(recording, run_block(block, recording, layer).to(dtype), first=layer + 1)
                logits = anatomy.logits(top[batch.predicts]).float()
                picked.append(logits.log_softmax(-1).gather(1, batch.targets[:, None])[:, 0])
            learned = sides[0][0].mean_by_row(-picked[0])
            unlikely = sides[1][0].mean_by_row(-torch.log((1 - picked[1].exp()).clamp(min=TINY)))
            total = (learned + rate * unlikely).mean()
            if preserve is not None:
                recording, real = preserve
                kept = recording.outputs[layer].float()
                change = (run_block(block, recording, layer) - kept)[real].square().mean()
                total = total + (1 - alpha).mean() * change / kept[real].square().mean()
            losses.append(float(total.detach()))
            optimiser.zero_grad()
            total.backward()
            optimiser.step()
            if watch is not None:
                watch(step, losses[-1])
    return fitted_block(block, anatomy, layer, losses)
