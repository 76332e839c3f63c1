"""Baselines that train on the answers: fine-tuning one block (FT-L) or all of them (FT), and LoRA. Each gives a
patch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from assay.core.errors import InputError, MissingPackageError
from assay.core.lm.anatomy import find_anatomy
from assay.core.lm.scoring import AnswerBatch, answer_logits, collate, pad_token
from assay.edit.patch import EditPatch
from assay.edit.pipe import checked_layers, require_floats
from assay.edit.requests import EditRequest, Prompts, check_requests, context_of

__all__ = ["fine_tune", "fine_tune_lora"]

LORA_MODULES = ("q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj")
Watch = Callable[[str, int, int, float], None]


def fine_tune(
    model: Any,
    tokenizer: Any,
    requests: Sequence[EditRequest],
    *,
    layers: int | Sequence[int] | Literal["auto", "all"] = "auto",
    rate: float = 2e-4,
    steps: int = 15,
    stop_below: float = 0.05,
    watch: Watch | None = None,
) -> EditPatch:
    """Fine-tune one block (FT-L) or all blocks (FT) on the answers, with AdamW and no decay.

    Parameters
    ----------
    model, tokenizer
        The model, unchanged on return, and its tokenizer.
    requests : sequence of EditRequest
        A batch.
    layers : int, sequence of int, "auto" or "all"
        Which blocks.
    rate : float
        AdamW's learning rate.
    steps : int
        The most steps.
    stop_below : float
        Stop when the answers' mean negative log-probability is below this many nats.
    watch : callable, optional
        Told stage, step, number of steps and loss.

    Returns
    -------
    EditPatch

    Raises
    ------
    InputError
        A request is wrong, or there is no such block.

    Examples
    --------
    >>> from assay.core.lm import random_llama
    >>> lm = random_llama()
    >>> fine_tune(lm.model, lm.tokenizer, [EditRequest("Who?", "Ann.")], steps=2).layers
    (1,)
    """
    anatomy = find_anatomy(model)
    count = len(anatomy.blocks)
    chosen = checked_layers(range(count) if layers == "all" else layers, count)
    require_floats(anatomy, chosen)
    requests = check_requests(requests)
    batch = _batch(model, tokenizer, requests)
    held = {
        f"{anatomy.block_name(layer)}.{name}": parameter
        for layer in chosen
        for name, parameter in anatomy.blocks[layer].named_parameters()
    }
    base = {name: parameter.detach().clone() for name, parameter in held.items()}
    flags = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    try:
        for parameter, _ in flags:
            parameter.requires_grad_(False)
        for parameter in held.values():
            parameter.requires_grad_(True)
        losses = _descend(model, batch, held.values(), rate=rate, steps=steps, stop_below=stop_below, watch=watch)
        tensors = {name: parameter.detach().clone() for name, parameter in held.items()}
    finally:
        with torch.no_grad():
            for name, parameter in held.items():
                parameter.copy_(base[name])
        for parameter, flag in flags:
            parameter.requires_grad_(flag)
    settings = {"method": "fine-tuning", "rate": rate, "steps": steps, "losses": [losses]}
    return EditPatch(tensors, base, chosen, _rows(requests), settings)


def fine_tune_lora(
    model: Any,
    tokenizer: Any,
    requests: Sequence[EditRequest],
    *,
    rank: int = 8,
    alpha: int = 16,
    rate: float = 1e-3,
    steps: int = 25,
    stop_below: float = 0.05,
    seed: int = 0,
    watch: Watch | None = None,
) -> EditPatch:
    """Train a LoRA adapter of PEFT on the answers, and merge it into a patch.

    Parameters
    ----------
    model, tokenizer
        The model, unchanged on return, and its tokenizer.
    requests : sequence of EditRequest
        A batch.
    rank, alpha : int
        Of the adapter, which sits on the attention's and the MLP's matrices of all blocks.
    rate : float
        AdamW's learning rate.
    steps : int
        The most steps.
    stop_below : float
        Stop when the answers' mean negative log-probability is below this many nats.
    seed : int
        Of the adapter's first weights.
    watch : callable, optional
        Told stage, step, number of steps and loss.

    Returns
    -------
    EditPatch

    Raises
    ------
    MissingPackageError
        peft isn't installed.
    InputError
        A request is wrong, or the model has none of the usual matrices.

    Examples
    --------
    >>> from assay.core.lm import random_llama
    >>> lm = random_llama()
    >>> patch = fine_tune_lora(lm.model, lm.tokenizer, [EditRequest("Who?", "Ann.")], steps=1)
    >>> len(patch.layers)
    4
    """
    try:
        import peft
    except ImportError as error:
        raise MissingPackageError("peft", what="a LoRA adapter", extra="edit") from error
    requests = check_requests(requests)
    batch = _batch(model, tokenizer, requests)
    anatomy = find_anatomy(model)
    found = {name.rpartition(".")[2] for name, module in model.named_modules() if hasattr(module, "weight")}
    targets = [name for name in LORA_MODULES if name in found]
    if not targets:
        raise InputError(f"{type(model).__name__} has none of {', '.join(LORA_MODULES)}", expected="such matrices")
    flags = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        wrapped = peft.get_peft_model(
            model, peft.LoraConfig(r=rank, lora_alpha=alpha, target_modules=targets, task_type="CAUSAL_LM")
        )
    try:
        trained = [parameter for parameter in wrapped.parameters() if parameter.requires_grad]
        losses = _descend(wrapped, batch, trained, rate=rate, steps=steps, stop_below=stop_below, watch=watch)
        deltas = {
            name.removeprefix("base_model.model."): module.get_delta_weight("default").detach()
            for name, module in wrapped.named_modules()
            if hasattr(module, "get_delta_weight")
        }
    finally:
        wrapped.unload()
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(flags[name])
    held = dict(model.named_parameters())
    base = {f"{name}.weight": held[f"{name}.weight"].detach().clone() for name in deltas}
    tensors = {
        f"{name}.weight": (base[f"{name}.weight"].float() + delta.float()).to(base[f"{name}.weight"].dtype)
        for name, delta in deltas.items()
    }
    settings = {"method": "lora", "rank": rank, "rate": rate, "steps": steps, "losses": [losses]}
    return EditPatch(tensors, base, tuple(range(len(anatomy.blocks))), _rows(requests), settings)


def _descend(
    model: Any,
    batch: AnswerBatch,
    parameters: Iterable[Tensor],
    *,
    rate: float,
    steps: int,
    stop_below: float,
    watch: Watch | None,
) -> list[float]:
    optimiser = torch.optim.AdamW(list(parameters), lr=rate, weight_decay=0.0)
    losses: list[float] = []
    for step in range(steps):
        costs = torch.nn.functional.cross_entropy(answer_logits(model, batch).float(), batch.targets, reduction="none")
        total = batch.mean_by_row(costs).mean()
        losses.append(float(total.detach()))
        if watch is not None:
            watch("fit", step, steps, losses[-1])
        if losses[-1] < stop_below:
            break
        optimiser.zero_grad()
        total.backward()
        optimiser.step()
    return losses


def _batch(model: Any, tokenizer: Any, requests: Sequence[EditRequest]) -> AnswerBatch:
    questions, answers = Prompts(tokenizer, longest=context_of(model)).pairs(requests)
    device = model.get_input_embeddings().weight.device
    return collate(questions, answers, pad=pad_token(tokenizer), device=device)


def _rows(requests: Sequence[EditRequest]) -> list[dict[str, Any]]:
    return [
        {"id": request.id, "question": request.question, "answer": request.answer, "status": "edited"}
        for request in requests
    ]
