"""Target keys: what an edited block should say at the last token of a prompt, so that the rest of the model answers
anew.

For each request a shift of the residual stream after block `layer` is found by gradient descent through the frozen
blocks
above (UnKE, stage 1). All requests are optimised at once; since Adam works coordinate by coordinate, each follows the
path that it would take alone. Tokens before the shifted one never change above, so their keys and values are kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from assay.core.errors import InputError
from assay.core.lm.anatomy import Anatomy
from assay.core.lm.recording import record_after_prefix, replay
from assay.core.lm.scoring import collate

__all__ = ["Drift", "TargetKeys", "TargetSettings", "find_targets"]

AUTO_RATE = 0.5
"""Of a request's own root mean square: what 0.5 is for models whose residual stream has about that size."""


@dataclass(frozen=True)
class TargetSettings:
    """How target keys are searched.

    Attributes
    ----------
    steps : int
        How often the loss is looked at; the shift is updated one time less.
    rate : float or "auto"
        Adam's learning rate; ``"auto"`` is half the root mean square of each request's own residual.
    weight_decay : float
        Of the shift's norm over the residual's squared norm, as the released code has it.
    radius : float
        The longest shift, in norms of the residual.
    tolerance : float
        A request whose loss is below it stops; 0 for never.
    at_once : int
        How many requests are searched together, which bounds the memory and changes nothing else.
    """

    steps: int = 50
    rate: float | Literal["auto"] = "auto"
    weight_decay: float = 1e-3
    radius: float = 1.5
    tolerance: float = 0.0
    at_once: int = 32

    def __post_init__(self) -> None:
        for name, right, expected in (
            ("target_steps", self.steps >= 1, "at least 1"),
            ("target_rate", self.rate == "auto" or 0 < float(self.rate) < math.inf, "a positive number or 'auto'"),
            ("target_weight_decay", 0 <= self.weight_decay < math.inf, "0 or more"),
            ("radius", 0 < self.radius < math.inf, "a positive number"),
            ("tolerance", 0 <= self.tolerance < math.inf, "0 or more"),
            ("target_at_once", self.at_once >= 1, "at least 1"),
        ):
            if not right:
                value = getattr(self, name.removeprefix("target_"))
                raise InputError(f"{name} is {value!r}", expected=expected)


@dataclass(frozen=True)
class TargetKeys:
    """Shifts of the residual stream, one a group of prompts.

    Attributes
    ----------
    base : Tensor of float32, shape (prompts, d)
        The residual after the block at each prompt's last token.
    delta : Tensor of float32, shape (groups, d)
        The shift of each group.
    groups : Tensor of int64, shape (prompts,)
        Which group a prompt belongs to.
    nll_before, nll : Tensor of float32, shape (groups,)
        The answer's mean negative log-probability without a shift and with the last one, in nats a token.
    path : Tensor of float32, shape (steps, groups)
        The same at each step.
    failed : Tensor of bool, shape (groups,)
        Whether a loss or a shift stopped being a number.
    """

    base: Tensor
    delta: Tensor
    groups: Tensor
    nll_before: Tensor
    nll: Tensor
    path: Tensor
    failed: Tensor

    @property
    def keys(self) -> Tensor:
        """The targets, of shape (prompts, d)."""
        return self.base + self.delta[self.groups]


@dataclass(frozen=True)
class Drift:
    """Other prompts that meet a shift, after which the next token is to stay what it was (ROME).

    Attributes
    ----------
    prompts : sequence of list of int
        The tokens up to the shifted one, one prompt a request.
    rests : sequence of list of int
        Those after it.
    factor : float
        The weight of the divergence of the shifted from the unshifted next-token distribution.
    """

    prompts: Sequence[list[int]]
    rests: Sequence[list[int]]
    factor: float = 0.0625


def find_targets(
    model: Any,
    anatomy: Anatomy,
    layer: int,
    prompts: Sequence[list[int]],
    answers: Sequence[list[int]],
    *,
    settings: TargetSettings | None = None,
    groups: Sequence[int] | None = None,
    pad: int = 0,
    keep_prefix: bool = True,
    scored: Sequence[int] | None = None,
    drift: Drift | None = None,
    watch: Callable[[int, Tensor], None] | None = None,
) -> TargetKeys:
    """Find the shifts after block `layer` that make the model give the answers.

    Parameters
    ----------
    model : torch.nn.Module
        The model; its weights get no gradient.
    anatomy : Anatomy
        Its parts.
    layer : int
        The block whose output is shifted.
    prompts, answers : sequence of list of int
        Tokens.
    settings : TargetSettings, optional
        How to search.
    groups : sequence of int, optional
        Prompts of one group share a shift, whose loss is their mean; each its own without.
    pad : int
        The token that fills up.
    keep_prefix : bool
        Keep the keys and values of the tokens before the shifted one, rather than run them at every step.
    scored : sequence of int, optional
        How many tokens at the end of each answer count; all without.
    drift : Drift, optional
        What else a shift is to leave as it was.
    watch : callable, optional
        Told each step's number and losses.

    Returns
    -------
    TargetKeys
    """
    chosen = settings or TargetSettings()
    owners = list(range(len(prompts))) if groups is None else list(groups)
    count = max(owners) + 1
    parts: list[tuple[list[int], TargetKeys]] = []
    for begin in range(0, count, chosen.at_once):
        members = range(begin, min(begin + chosen.at_once, count))
        rows = [row for row, owner in enumerate(owners) if owner in members]
        found = _search(
            model,
            anatomy,
            layer,
            [prompts[row] for row in rows],
            [answers[row] for row in rows],
            settings=chosen,
            groups=[owners[row] - begin for row in rows],
            pad=pad,
            keep_prefix=keep_prefix,
            scored=None if scored is None else [scored[row] for row in rows],
            drift=None if drift is None else _members(drift, members),
            watch=watch,
        )
        parts.append((rows, found))
    return parts[0][1] if len(parts) == 1 else _joined(parts, owners)


def _members(drift: Drift, members: range) -> Drift:
    return Drift([drift.prompts[one] for one in members], [drift.rests[one] for one in members], drift.factor)


def _joined(parts: Sequence[tuple[list[int], TargetKeys]], owners: Sequence[int]) -> TargetKeys:
    """What was found part by part, in the order of all prompts. Parts that stopped early stay where they were."""
    found = [one for _, one in parts]
    device = found[0].base.device
    base = torch.zeros(len(owners), found[0].base.shape[1], device=device)
    for rows, one in parts:
        base[torch.tensor(rows, device=device)] = one.base
    steps = max(len(one.path) for one in found)
    paths = [torch.cat([one.path, one.path[-1:].expand(steps - len(one.path), -1)]) for one in found]
    return TargetKeys(
        base,
        torch.cat([one.delta for one in found]),
        torch.tensor(owners, device=device),
        torch.cat([one.nll_before for one in found]),
        torch.cat([one.nll for one in found]),
        torch.cat(paths, dim=1),
        torch.cat([one.failed for one in found]),
    )


def _search(
    model: Any,
    anatomy: Anatomy,
    layer: int,
    prompts: Sequence[list[int]],
    answers: Sequence[list[int]],
    *,
    settings: TargetSettings,
    groups: Sequence[int],
    pad: int,
    keep_prefix: bool,
    scored: Sequence[int] | None,
    drift: Drift | None,
    watch: Callable[[int, Tensor], None] | None,
) -> TargetKeys:
    """Search all at once."""
    chosen, device = settings, anatomy.device
    batch = collate(prompts, answers, pad=pad, device=device, align_prompts=True)
    if scored is not None:
        batch = batch.ending(scored)
    column = int(batch.last_prompt[0])
    prefix = column if keep_prefix else 0
    recording = record_after_prefix(model, anatomy, batch.input_ids, batch.attention_mask, prefix=prefix, keep=(layer,))
    hidden = recording.outputs[layer]
    at = column - prefix
    predicts = batch.predicts[:, prefix:]
    owners = torch.tensor(groups, device=device)
    count = int(owners.max()) + 1
    base = hidden[:, at].float()
    norms = _group_mean(base.norm(dim=1), owners, count)
    rms = _group_mean(base.square().mean(1).sqrt(), owners, count)
    # Adam's steps don't depend on the loss's scale: a shift in units of `unit` moves by `rate` of them.
    unit, rate = (rms[:, None], AUTO_RATE) if chosen.rate == "auto" else (torch.ones_like(rms)[:, None], chosen.rate)
    shift = torch.zeros(count, base.shape[1], device=device, requires_grad=True)
    optimiser = torch.optim.Adam([shift], lr=float(rate))
    divergence = None if drift is None else _divergence(model, anatomy, layer, drift, pad=pad)
    path: list[Tensor] = []
    best = shift.detach().clone()
    done = torch.zeros(count, dtype=torch.bool, device=device)
    failed = torch.zeros(count, dtype=torch.bool, device=device)
    with frozen(model):
        for step in range(chosen.steps):
            delta = shift * unit
            shifted = (hidden[:, at].float() + delta[owners]).to(hidden.dtype)
            stream = torch.cat([hidden[:, :at], shifted[:, None], hidden[:, at + 1 :]], dim=1)
            top = replay(recording, stream, first=layer + 1)
            logits = anatomy.logits(top[predicts]).float()
            token_losses = torch.nn.functional.cross_entropy(logits, batch.targets, reduction="none")
            losses = _group_mean(batch.mean_by_row(token_losses), owners, count)
            path.append(losses.detach())
            failed |= ~torch.isfinite(losses.detach())
            best = torch.where((done | failed)[:, None], best, shift.detach())
            done = done | failed | (losses.detach() < chosen.tolerance)
            if watch is not None:
                watch(step, losses.detach())
            if step == chosen.steps - 1 or bool(done.all()):
                break
            total = losses + chosen.weight_decay * delta.norm(dim=1) / norms.square()
            if drift is not None and divergence is not None:
                total = total + drift.factor * divergence(delta)
            # Where the shift is 0 its norm has no gradient; torch gives 0 there.
            optimiser.zero_grad()
            total[~done].sum().backward()
            optimiser.step()
            with torch.no_grad():
                lengths = (shift * unit).norm(dim=1)
                limits = chosen.radius * norms
                shift.mul_(torch.where(lengths > limits, limits / lengths.clamp(min=1e-30), 1.0)[:, None])
                failed |= ~torch.isfinite(shift).all(dim=1)
                shift.copy_(torch.where((done | failed)[:, None], best, shift))
    final = (best * unit).detach()
    return TargetKeys(base, final, owners, path[0], path[-1], torch.stack(path), failed)


def _divergence(model: Any, anatomy: Anatomy, layer: int, drift: Drift, *, pad: int) -> Callable[[Tensor], Tensor]:
    """How far shifts move the next token after other prompts: the divergence of shifted from unshifted, in nats."""
    # One token more than the rest, so that what counts as the answer's prediction stands at the rest's last token.
    batch = collate(
        drift.prompts, [[*rest, pad] for rest in drift.rests], pad=pad, device=anatomy.device, align_prompts=True
    ).ending([1] * len(drift.prompts))
    column = int(batch.last_prompt[0])
    recording = record_after_prefix(model, anatomy, batch.input_ids, batch.attention_mask, prefix=column, keep=(layer,))
    hidden = recording.outputs[layer]
    predicts = batch.predicts[:, column:]

    def log_probabilities(delta: Tensor | None) -> Tensor:
        stream = hidden
        if delta is not None:
            shifted = (hidden[:, 0].float() + delta).to(hidden.dtype)
            stream = torch.cat([shifted[:, None], hidden[:, 1:]], dim=1)
        top = replay(recording, stream, first=layer + 1)
        return anatomy.logits(top[predicts]).float().log_softmax(-1)

    with torch.no_grad():
        before = log_probabilities(None)

    def divergence(delta: Tensor) -> Tensor:
        after = log_probabilities(delta)
        return (after.exp() * (after - before)).sum(-1)

    return divergence


def _group_mean(values: Tensor, owners: Tensor, count: int) -> Tensor:
    sums = torch.zeros(count, dtype=values.dtype, device=values.device).index_add(0, owners, values)
    return sums / torch.bincount(owners, minlength=count)


@contextmanager
def frozen(model: Any) -> Iterator[None]:
    """Ask for no gradients of the weights in a block of code, and put the flags back."""
    asked = [parameter for parameter in model.parameters() if parameter.requires_grad]
    try:
        for parameter in asked:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in asked:
            parameter.requires_grad_(True)
