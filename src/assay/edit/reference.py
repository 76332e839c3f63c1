"""The straightforward procedure that published code follows, written plainly, to measure ours against.

One request at a time; every step of the search runs the whole model on the whole sequence with logits everywhere;
every step of the fit evaluates the losses of the whole batch once a request; and all weights are copied to be put back.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from assay.edit.fitting import record_rows, run_block
from assay.edit.pipe import PIPE
from assay.edit.requests import EditRequest

__all__ = ["edit_plainly"]


def edit_plainly(editor: PIPE, requests: list[EditRequest], texts: list[list[int]], *, pad: int) -> dict[str, Tensor]:
    """Edit one block as released code does, with an editor's settings; the model is as it was afterwards.

    Parameters
    ----------
    editor : PIPE
        With the model, one block, and the numbers of steps.
    requests : list of EditRequest
        A batch.
    texts : list of list of int
        Tokens of the texts to preserve.
    pad : int
        The token that fills up.

    Returns
    -------
    dict of str to Tensor
        The block's new weights.
    """
    model, anatomy, [layer] = editor.model, editor.anatomy, editor.layers
    block = anatomy.blocks[layer]
    kept = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    questions, answers = editor.prompts.pairs(requests)
    keys = [_shifted(model, block, q, a, editor) for q, a in zip(questions, answers, strict=True)]
    prompts, real = record_rows(model, anatomy, questions, (layer,), pad=pad)
    preserve, _ = record_rows(model, anatomy, texts, (layer,), pad=pad)
    wanted = prompts.outputs[layer].clone()
    for row, key in enumerate(keys):
        wanted[row, int(real[row].sum()) - 1] = key
    optimiser = torch.optim.AdamW(block.parameters(), lr=editor.config.fit.rate, weight_decay=0.01)
    for _ in range(editor.config.fit.steps):
        total = torch.zeros(())
        for _request in requests:
            edit = (run_block(block, prompts, layer) - wanted).square().mean()
            keep = (run_block(block, preserve, layer) - preserve.outputs[layer]).square().mean()
            total = total + 0.5 * edit + 0.5 * keep
        optimiser.zero_grad()
        total.backward()
        optimiser.step()
    new = {name: parameter.detach().clone() for name, parameter in block.named_parameters()}
    model.load_state_dict(kept)
    return new


def _shifted(model: Any, block: Any, question: list[int], answer: list[int], editor: PIPE) -> Tensor:
    """The target key of one request, by whole forward passes with a hook."""
    ids = torch.tensor([question + answer])
    at = len(question) - 1
    seen: list[Tensor] = []
    state: dict[str, Tensor] = {}

    def shift(_module: Any, _args: Any, output: Any) -> Any:
        hidden = output[0] if isinstance(output, tuple) else output
        if not seen:
            seen.append(hidden[0, at].detach().clone())
            state["delta"] = torch.zeros_like(seen[0], requires_grad=True)
        moved = hidden.clone()
        moved[0, at] = moved[0, at] + state["delta"]
        return (moved, *output[1:]) if isinstance(output, tuple) else moved

    hook = block.register_forward_hook(shift)
    optimiser = None
    settings = editor.config.target
    try:
        for step in range(settings.steps):
            logits = model(input_ids=ids, use_cache=False).logits
            loss = torch.nn.functional.cross_entropy(logits[0, at:-1], torch.tensor(answer))
            if optimiser is None:
                unit = float(seen[0].square().mean().sqrt())
                rate = 0.5 * unit if settings.rate == "auto" else float(settings.rate)
                optimiser = torch.optim.Adam([state["delta"]], lr=rate)
            if step == settings.steps - 1:
                break
            optimiser.zero_grad()
            (loss + settings.weight_decay * state["delta"].norm() / seen[0].norm().square()).backward()
            optimiser.step()
            limit = settings.radius * seen[0].norm()
            with torch.no_grad():
                length = state["delta"].norm()
                if length > limit:
                    state["delta"].mul_(limit / length)
    finally:
        hook.remove()
    for parameter in model.parameters():
        parameter.grad = None
    return seen[0] + state["delta"].detach()
