"""AnyEdit: a long answer in windows, each with a shift of its own at the token before it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from assay.core.errors import InputError
from assay.core.lm.recording import record_after_prefix, replay
from assay.core.lm.scoring import pad_token
from assay.edit.fitting import Job, fit_block, record_rows
from assay.edit.losses import PRESETS
from assay.edit.patch import EditPatch
from assay.edit.pipe import PIPE
from assay.edit.requests import EditRequest, check_requests
from assay.edit.targets import AUTO_RATE, frozen

__all__ = ["any_edit", "window_targets"]

TOLERANCE = 5e-3
"""A window whose loss is below it is done, in nats a token."""


def window_targets(
    editor: PIPE, question: list[int], answer: list[int], *, window: int = 50
) -> tuple[Tensor, Tensor, list[float]]:
    """Shifts at the last prompt token and at the last token of each window but the last.

    Parameters
    ----------
    editor : PIPE
        With the model, one block, and how to search.
    question, answer : list of int
        Tokens.
    window : int
        How many answer tokens each shift is for.

    Returns
    -------
    columns : Tensor of int64, shape (windows,)
        Where in the sequence.
    keys : Tensor of float32, shape (windows, d)
        The block's outputs there, shifted.
    losses : list of float
        What each window costs in the end, in nats a token.
    """
    [layer] = editor.layers
    settings = editor.config.target
    ids = torch.tensor([question + answer], device=editor.anatomy.device)
    start = len(question) - 1
    recording = record_after_prefix(
        editor.model, editor.anatomy, ids, torch.ones_like(ids), prefix=start, keep=(layer,)
    )
    hidden = recording.outputs[layer].clone()
    begins = list(range(0, len(answer), window))
    keys, losses = [], []
    with frozen(editor.model):
        for begin in begins:
            ours = slice(begin, min(begin + window, len(answer)))
            wanted = torch.tensor(answer[ours], device=hidden.device)
            base = hidden[0, begin].float().clone()
            norm = base.norm()
            unit, rate = (
                (AUTO_RATE * base.square().mean().sqrt(), 1.0) if settings.rate == "auto" else (1.0, settings.rate)
            )
            shift = torch.zeros_like(base, requires_grad=True)
            optimiser = torch.optim.Adam([shift], lr=float(rate))
            loss = torch.zeros(())
            for step in range(settings.steps):
                delta = shift * unit
                stream = hidden.clone()
                stream[0, begin] = (base + delta).to(hidden.dtype)
                top = replay(recording, stream, first=layer + 1)
                logits = editor.anatomy.logits(top[0, ours]).float()
                loss = torch.nn.functional.cross_entropy(logits, wanted)
                if step == settings.steps - 1 or float(loss.detach()) < TOLERANCE:
                    break
                optimiser.zero_grad()
                (loss + settings.weight_decay * delta.norm() / norm.square()).backward()
                optimiser.step()
                with torch.no_grad():
                    length = (shift * unit).norm()
                    if length > settings.radius * norm:
                        shift.mul_(settings.radius * norm / length)
            hidden[0, begin] = (base + shift.detach() * unit).to(hidden.dtype)
            keys.append(base + shift.detach() * unit)
            losses.append(float(loss.detach()))
    return torch.tensor(begins, device=ids.device) + start, torch.stack(keys), losses


def any_edit(editor: PIPE, requests: Sequence[EditRequest], *, window: int = 50) -> EditPatch:
    """Edit by windows of the answer (UnKE with AnyEdit's autoregressive shifts).

    The block is fitted on prompt and answer together, with a new key at each shifted token. An answer that fits in one
    window gives what UnKE gives, on a longer sequence.

    Parameters
    ----------
    editor : PIPE
        With the model, one block, the texts to preserve, and how to search and fit.
    requests : sequence of EditRequest
        A batch.
    window : int
        How many answer tokens make a window; they don't overlap.

    Returns
    -------
    EditPatch

    Raises
    ------
    InputError
        The window is below 1, the editor edits several blocks, or a request is wrong.

    Examples
    --------
    >>> from assay.core.lm import random_llama
    >>> lm = random_llama()
    >>> editor = PIPE(lm.model, lm.tokenizer, preset="unke", target_steps=3, fit_steps=2)
    >>> any_edit(editor, [EditRequest("Who wrote it?", "Ann did.")], window=3).layers
    (1,)
    """
    if window < 1:
        raise InputError(f"window is {window}", expected="at least 1")
    if len(editor.layers) > 1:
        raise InputError(f"layer is {editor.layers}", expected="one block")
    requests = check_requests(requests)
    [layer] = editor.layers
    pad = pad_token(editor.tokenizer)
    questions, answers = editor.prompts.pairs(requests)
    found = [window_targets(editor, q, a, window=window) for q, a in zip(questions, answers, strict=True)]
    # Up to the last shifted token: what comes after it has no key.
    rows = [(q + a)[: int(columns[-1]) + 1] for q, a, (columns, _, _) in zip(questions, answers, found, strict=True)]
    prompts, real = record_rows(editor.model, editor.anatomy, rows, (layer,), pad=pad)
    positions = torch.cat(
        [torch.stack([torch.full_like(columns, row), columns], dim=1) for row, (columns, _, _) in enumerate(found)]
    )
    texts = editor.draw_preserved()
    preserve, kept = record_rows(editor.model, editor.anatomy, texts, (layer,), pad=pad) if texts else (None, None)
    fitted = fit_block(
        editor.anatomy,
        layer,
        Job(prompts, positions, torch.cat([keys for _, keys, _ in found]), real, preserve, kept),
        alpha=torch.full((len(rows),), 0.5, device=real.device),
        rate=torch.zeros(len(rows), device=real.device),
        loss=PRESETS["unke"],
        settings=editor.config.fit,
    )
    name = editor.anatomy.block_name(layer)
    held = dict(editor.anatomy.blocks[layer].named_parameters())
    lines = [
        {
            "id": request.id,
            "question": request.question,
            "answer": request.answer,
            "nll_target": sum(losses) / len(losses),
            "status": "edited",
        }
        for request, (_, _, losses) in zip(requests, found, strict=True)
    ]
    return EditPatch(
        {f"{name}.{own}": tensor.to(held[own].dtype) for own, tensor in fitted.tensors.items()},
        {f"{name}.{own}": parameter.detach().clone() for own, parameter in held.items()},
        (layer,),
        lines,
        {"method": "AnyEdit", "window": window, "losses": [fitted.losses]},
    )
