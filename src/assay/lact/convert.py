"""A memory for a language model that exists already: a branch beside each attention, closed by a gate of zero.

The model's answers are bit for bit the same until training opens the gates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.core.errors import InputError
from assay.core.lm import find_anatomy
from assay.lact.fast_branch import FastBranch, MixerSettings
from assay.lact.fast_weights import FastState

__all__ = ["branch_parameters", "convert_attention_to_lact", "freeze_host", "parameter_groups", "unfreeze_host"]

BRANCH = "lact"
"""The name of the new module in each attention."""
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj")
MASKABLE = ("eager", "sdpa")
"""Implementations of attention that take a mask."""
FASTER = 10.0
"""The new parameters' learning rate over the others'."""


class _Padding:
    """Which tokens of the call in progress are real, as the model was told."""

    mask: Tensor | None = None


def convert_attention_to_lact(
    model: Any,
    *,
    layers: Sequence[int] | None = None,
    window: int | None = None,
    settings: MixerSettings | None = None,
) -> Any:
    """Add a memory beside the attention of a Hugging Face decoder, in place.

    Each chosen attention gets a `FastBranch` that shares its queries, keys and values, and whose gate begins at zero.
    The weights keep their names; the new ones are called ``….self_attn.lact.…``.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        A causal language model with separate ``q_proj``, ``k_proj``, ``v_proj`` and ``o_proj``: Llama, Mistral, Qwen,
        and their like. Rotary positions in half-split form over whole heads are used for the memory too; others aren't.
    layers : sequence of int, optional
        Numbers of blocks, from 0; all by default.
    window : int, optional
        Let the chosen attentions see only so many tokens. That does change the answers of longer texts.
    settings : MixerSettings, optional
        Of the branches; its window is not used.

    Returns
    -------
    transformers.PreTrainedModel
        The same model. ``generate`` keeps the memory's state with the model's own cache.

    Raises
    ------
    InputError
        The model has no such attention or is converted already, a block isn't there, or the window is shorter than a
        chunk or can't be used with the model's implementation of attention.

    Examples
    --------
    >>> import torch
    >>> from assay.core.lm import random_llama
    >>> model, tokens = random_llama().model, torch.arange(10)[None]
    >>> before = model(tokens).logits
    >>> converted = convert_attention_to_lact(model, settings=MixerSettings(chunk_size=64))
    >>> torch.equal(converted(tokens).logits, before)
    True
    """
    settings = replace(settings or MixerSettings(), zero_gate=True, output_gate=True)
    if window is not None:
        settings = replace(settings, window=window)
        if model.config._attn_implementation not in MASKABLE:
            raise InputError(
                f"window with attn_implementation '{model.config._attn_implementation}'",
                expected=f"a model loaded with one of: {', '.join(MASKABLE)}",
            )
    found = list(_attentions(model))
    chosen = range(len(found)) if layers is None else layers
    wrong = [number for number in chosen if not 0 <= number < len(found)]
    if wrong:
        raise InputError(f"layers holds {wrong[0]}", expected=f"numbers from 0 to {len(found) - 1}")
    padding = _Padding()
    model.register_forward_pre_hook(lambda module, args, kwargs: _note_mask(padding, args, kwargs), with_kwargs=True)
    for number in chosen:
        attention = found[number]
        if hasattr(attention, BRANCH):
            raise InputError(f"block {number} is converted already", expected="each block once")
        _add_branch(attention, settings, padding, number, window=window)
    model._reorder_cache = _reorder_cache
    return model


def branch_parameters(model: nn.Module) -> Iterator[nn.Parameter]:
    """The parameters that `convert_attention_to_lact` has added.

    Parameters
    ----------
    model : torch.nn.Module

    Yields
    ------
    torch.nn.Parameter

    Examples
    --------
    >>> from assay.core.lm import random_llama
    >>> list(branch_parameters(random_llama().model))
    []
    """
    for module in model.modules():
        if isinstance(module, FastBranch):
            yield from module.parameters()


def freeze_host(model: nn.Module) -> None:
    """Train the new parameters alone.

    Parameters
    ----------
    model : torch.nn.Module

    Examples
    --------
    >>> from assay.core.lm import random_llama
    >>> model = random_llama().model
    >>> freeze_host(model)
    >>> any(parameter.requires_grad for parameter in model.parameters())
    False
    """
    own = {id(parameter) for parameter in branch_parameters(model)}
    for parameter in model.parameters():
        parameter.requires_grad_(id(parameter) in own)


def unfreeze_host(model: nn.Module) -> None:
    """Train all parameters.

    Parameters
    ----------
    model : torch.nn.Module

    Examples
    --------
    >>> from assay.core.lm import random_llama
    >>> model = random_llama().model
    >>> freeze_host(model)
    >>> unfreeze_host(model)
    >>> all(parameter.requires_grad for parameter in model.parameters())
    True
    """
    for parameter in model.parameters():
        parameter.requires_grad_(True)


def parameter_groups(model: nn.Module, *, lr: float, factor: float = FASTER) -> list[dict[str, Any]]:
    """Parameters for an optimiser: the new ones learn `factor` times as fast.

    Parameters
    ----------
    model : torch.nn.Module
    lr : float
        The learning rate of the parameters that were there before.
    factor : float

    Returns
    -------
    list of dict
        Two groups with params and lr; frozen parameters are left out.

    Raises
    ------
    InputError
        The rate or the factor isn't a number above 0.

    Examples
    --------
    >>> from assay.core.lm import random_llama
    >>> model = convert_attention_to_lact(random_llama().model, settings=MixerSettings(chunk_size=64))
    >>> [group["lr"] for group in parameter_groups(model, lr=0.001)]
    [0.001, 0.01]
    """
    for name, value in (("lr", lr), ("factor", factor)):
        if not value > 0:
            raise InputError(f"{name} is {value}", expected="a number above 0")
    new = {id(parameter): parameter for parameter in branch_parameters(model) if parameter.requires_grad}
    old = [one for one in model.parameters() if one.requires_grad and id(one) not in new]
    groups = [{"params": old, "lr": lr}, {"params": list(new.values()), "lr": factor * lr}]
    return [group for group in groups if group["params"]]


def _attentions(model: Any) -> Iterator[nn.Module]:
    for number, block in enumerate(find_anatomy(model).blocks):
        fitting = [part for part in block.modules() if all(hasattr(part, name) for name in PROJECTIONS)]
        if not fitting:
            raise InputError(
                f"block {number} of {type(model).__name__} has no attention with {', '.join(PROJECTIONS)}",
                expected="a model such as Llama, Mistral or Qwen",
            )
        yield fitting[0]


def _add_branch(attention: Any, settings: MixerSettings, padding: _Padding, number: int, *, window: int | None) -> None:
    weight: Tensor = attention.q_proj.weight
    heads = weight.shape[0] // attention.head_dim
    branch = FastBranch(weight.shape[0], heads, settings, input_dim=weight.shape[1])
    attention.add_module(BRANCH, branch.to(weight.device, weight.dtype))
    if window is not None:
        attention.register_forward_pre_hook(
            lambda module, args, kwargs: _with_window(args, kwargs, window, number), with_kwargs=True
        )
    attention.register_forward_hook(
        lambda module, args, kwargs, out: _with_memory(module, args, kwargs, out, padding, number), with_kwargs=True
    )


def _note_mask(padding: _Padding, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    mask = kwargs.get("attention_mask", args[1] if len(args) > 1 else None)
    padding.mask = mask if isinstance(mask, Tensor) and mask.ndim == 2 else None


def _hidden(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Tensor:
    hidden: Tensor = args[0] if args else kwargs["hidden_states"]
    return hidden


def _cache(kwargs: Mapping[str, Any]) -> Any:
    cache = kwargs.get("cache")
    return kwargs.get("past_key_values") if cache is None else cache


def _with_window(
    args: tuple[Any, ...], kwargs: dict[str, Any], window: int, number: int
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The mask of the host, and only the last tokens."""
    length, cache, given = _hidden(args, kwargs).shape[1], _cache(kwargs), kwargs.get("attention_mask")
    seen = length + (0 if cache is None else cache.get_seq_length(number)) if given is None else given.shape[-1]
    if window >= seen:
        return None
    device = _hidden(args, kwargs).device
    distance = torch.arange(seen - length, seen, device=device)[:, None] - torch.arange(seen, device=device)
    band = ((distance >= 0) & (distance < window))[None, None]
    if given is None:
        mask = band
    elif given.dtype == torch.bool:
        mask = given & band
    else:
        mask = given.masked_fill(~band, torch.finfo(given.dtype).min)
    return args, {**kwargs, "attention_mask": mask}


def _with_memory(
    attention: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any, padding: _Padding, number: int
) -> Any:
    branch: FastBranch = getattr(attention, BRANCH)
    x = _hidden(args, kwargs)
    repeats = attention.q_proj.weight.shape[0] // attention.k_proj.weight.shape[0]
    q = attention.q_proj(x)
    k, v = (
        projection(x).unflatten(-1, (-1, attention.head_dim)).repeat_interleave(repeats, dim=2).flatten(2)
        for projection in (attention.k_proj, attention.v_proj)
    )
    cache = _cache(kwargs)
    states: dict[int, FastState | Tensor] = {} if cache is None else cache.__dict__.setdefault("lact_states", {})
    before = None if cache is None else states.get(number) or branch.start(len(x))
    tables = _tables(kwargs.get("position_embeddings"), attention.head_dim, len(x))
    answer, after = _read(branch, (x, q, k, v), tables, padding.mask, before)
    if after is not None and cache is not None:
        states[number] = after
    added = functional.linear(answer, attention.o_proj.weight)
    return (out[0] + added, *out[1:]) if isinstance(out, tuple) else out + added


def _read(
    branch: FastBranch,
    fields: tuple[Tensor, Tensor, Tensor, Tensor],
    tables: tuple[Tensor, Tensor] | None,
    mask: Tensor | None,
    before: FastState | Tensor | None,
) -> tuple[Tensor, FastState | Tensor | None]:
    """Ask the memory with real tokens first, so that padding shifts no chunk."""
    x, q, k, v = fields
    if mask is not None:
        mask = mask[:, mask.shape[1] - x.shape[1] :].bool()
    if mask is None or bool(mask.all()):
        answer, after = branch(x, (q, k, v), tables=tables, state=before)
        return answer, after
    order = torch.argsort(~mask, dim=1, stable=True)
    x, q, k, v = (_taken(one, order) for one in fields)
    moved = None if tables is None else (_taken(tables[0], order), _taken(tables[1], order))
    answer, after = branch(x, (q, k, v), tables=moved, lengths_B=mask.sum(1), state=before)
    return _taken(answer, torch.argsort(order, dim=1)) * mask[..., None].to(answer), after


def _taken(x: Tensor, order: Tensor) -> Tensor:
    return x.gather(1, order[..., None].expand(-1, -1, x.shape[-1]))


def _tables(rotations: tuple[Tensor, Tensor] | None, head_dim: int, batch: int) -> tuple[Tensor, Tensor] | None:
    """The host's cosines and sines, which it has twice over, once for each half of a head."""
    if rotations is None or rotations[0].shape[-1] != head_dim:
        return None
    cosine, sine = (table[..., : head_dim // 2].expand(batch, -1, -1) for table in rotations)
    return cosine, sine


def _reorder_cache(cache: Any, rows: Tensor) -> Any:
    """Beams: the host's cache and the memories' states in another order."""
    cache.reorder_cache(rows)
    states: dict[int, FastState] = cache.__dict__.get("lact_states", {})
    for number, state in states.items():
        heads = len(state.weights.w1) // len(rows)
        folded = (rows.cpu()[:, None] * heads + torch.arange(heads)).flatten()
        states[number] = state.map(lambda one, chosen=folded: one.index_select(0, chosen.to(one.device)))  # type: ignore[misc]
    return cache
