"""Record with which arguments a model calls its blocks, and replay some of the blocks on another residual stream.

A model makes masks, positions and caches before its first block. Recording what it made, instead of making it again,
works for any architecture.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from assay.core.lm.anatomy import Anatomy

__all__ = ["Recording", "record", "record_after_prefix", "replay"]

CACHE_NAMES = ("cache", "past_key_values", "past_key_value", "layer_past")
"""What transformers' releases call the keys and values of earlier tokens."""


@dataclass(frozen=True)
class _Call:
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


@dataclass(frozen=True)
class Recording:
    """What went into and through the blocks of a model on one batch.

    Attributes
    ----------
    anatomy : Anatomy
        The model's parts.
    inputs : mapping of int to Tensor
        The residual stream before a block, of shape (rows, tokens, d), for the blocks that were asked for.
    outputs : mapping of int to Tensor
        The same after a block.
    calls : mapping
        The other arguments of each call, for `replay`.
    """

    anatomy: Anatomy
    inputs: Mapping[int, Tensor]
    outputs: Mapping[int, Tensor]
    calls: Mapping[int, _Call]


class _Stop(Exception):
    """Ends a forward pass after the last block that is needed."""


def record(
    model: Any,
    anatomy: Anatomy,
    input_ids: Tensor,
    attention_mask: Tensor,
    *,
    keep: tuple[int, ...] = (),
    stop_after: int | None = None,
) -> Recording:
    """Run a model on a batch and record how it calls its blocks.

    Parameters
    ----------
    model : torch.nn.Module
        The model.
    anatomy : Anatomy
        Its parts.
    input_ids, attention_mask : Tensor of int64, shape (rows, tokens)
        Padded on either side; positions count real tokens.
    keep : tuple of int
        The blocks whose residual stream is kept, before and after.
    stop_after : int, optional
        The last block that needs to run.

    Returns
    -------
    Recording

    Examples
    --------
    >>> import torch
    >>> from assay.core.lm import find_anatomy, random_llama
    >>> model = random_llama().model
    >>> ids = torch.tensor([[5, 6, 7]])
    >>> recording = record(model, find_anatomy(model), ids, torch.ones_like(ids), keep=(1,))
    >>> tuple(recording.inputs[1].shape)
    (1, 3, 64)
    """
    extra = {"use_cache": False}
    return _record(model, anatomy, input_ids, attention_mask, extra, keep=keep, stop_after=stop_after)


def record_after_prefix(
    model: Any,
    anatomy: Anatomy,
    input_ids: Tensor,
    attention_mask: Tensor,
    *,
    prefix: int,
    keep: tuple[int, ...] = (),
) -> Recording:
    """Record the blocks' calls on the tokens from `prefix` on; earlier tokens are seen as kept keys and values.

    A change of the residual stream at token `prefix` or later leaves the keys and values of earlier tokens as they are,
    because attention is causal. Replaying such a recording therefore gives what a replay of the whole sequence gives.

    Parameters
    ----------
    model : torch.nn.Module
        The model.
    anatomy : Anatomy
        Its parts.
    input_ids, attention_mask : Tensor of int64, shape (rows, tokens)
        Every row has its first changing token in the same column: pad prompts on the left, answers on the right.
    prefix : int
        That column; 0 records the whole sequence.
    keep : tuple of int
        The blocks whose residual stream is kept, over the tokens from `prefix` on.

    Returns
    -------
    Recording

    Examples
    --------
    >>> import torch
    >>> from assay.core.lm import find_anatomy, random_llama
    >>> model = random_llama().model
    >>> ids = torch.tensor([[5, 6, 7]])
    >>> recording = record_after_prefix(model, find_anatomy(model), ids, torch.ones_like(ids), prefix=2, keep=(1,))
    >>> tuple(recording.inputs[1].shape)
    (1, 1, 64)
    """
    if prefix == 0:
        return record(model, anatomy, input_ids, attention_mask, keep=keep)
    from transformers import DynamicCache

    # Without a configuration every layer of the cache keeps all tokens, also where attention slides.
    cache: Any = DynamicCache()
    extra = {"use_cache": True, _cache_argument(model): cache}
    first, second = slice(0, prefix), slice(prefix, None)
    _record(model, anatomy, input_ids[:, first], attention_mask[:, first], extra)
    kept = _Prefix([(layer.keys.detach(), layer.values.detach()) for layer in cache.layers])
    recording = _record(model, anatomy, input_ids[:, second], attention_mask, extra, keep=keep, offset=prefix)
    calls = {
        index: _Call(
            tuple(kept if one is cache else one for one in call.args),
            {name: kept if one is cache else one for name, one in call.kwargs.items()},
        )
        for index, call in recording.calls.items()
    }
    return Recording(anatomy, recording.inputs, recording.outputs, calls)


def replay(recording: Recording, hidden: Tensor, *, first: int, last: int | None = None) -> Tensor:
    """Run the blocks `first`, …, `last` on a residual stream, with the recorded arguments.

    Parameters
    ----------
    recording : Recording
        Of the same batch.
    hidden : Tensor, shape (rows, tokens, d)
        The residual stream before block `first`.
    first : int
        The first block that runs.
    last : int, optional
        The last one; by default the model's last.

    Returns
    -------
    Tensor, shape (rows, tokens, d)
        The residual stream after block `last`.

    Examples
    --------
    >>> import torch
    >>> from assay.core.lm import find_anatomy, random_llama
    >>> model = random_llama().model
    >>> ids = torch.tensor([[5, 6, 7]])
    >>> recording = record(model, find_anatomy(model), ids, torch.ones_like(ids), keep=(1, 3))
    >>> torch.allclose(replay(recording, recording.inputs[1], first=1), recording.outputs[3], atol=1e-5)
    True
    """
    blocks = recording.anatomy.blocks
    for index in range(first, len(blocks) if last is None else last + 1):
        call = recording.calls[index]
        hidden = _stream(blocks[index](hidden, *call.args, **call.kwargs))
    return hidden


def _record(
    model: Any,
    anatomy: Anatomy,
    input_ids: Tensor,
    attention_mask: Tensor,
    extra: Mapping[str, Any],
    *,
    keep: tuple[int, ...] = (),
    stop_after: int | None = None,
    offset: int = 0,
) -> Recording:
    inputs: dict[int, Tensor] = {}
    outputs: dict[int, Tensor] = {}
    calls: dict[int, _Call] = {}

    def before(index: int) -> Any:
        def hook(_module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            given = dict(kwargs)
            hidden = args[0] if args else given.pop("hidden_states")
            calls[index] = _Call(tuple(args[1:]), given)
            if index in keep:
                inputs[index] = hidden.detach()

        return hook

    def after(index: int) -> Any:
        def hook(_module: Any, _args: Any, output: Any) -> None:
            if index in keep:
                outputs[index] = _stream(output).detach()
            if index == stop_after:
                raise _Stop

        return hook

    positions = {}
    if "position_ids" in _parameters(model):
        positions["position_ids"] = (attention_mask.cumsum(1) - 1).clamp(min=0)[:, offset:]
    with ExitStack() as hooks, torch.no_grad():
        for index, block in enumerate(anatomy.blocks):
            hooks.callback(block.register_forward_pre_hook(before(index), with_kwargs=True).remove)
            hooks.callback(block.register_forward_hook(after(index)).remove)
        # The head isn't needed: what the blocks were given is.
        hooks.callback(anatomy.head.register_forward_pre_hook(_only_one_token).remove)
        with suppress(_Stop):
            model(input_ids=input_ids, attention_mask=attention_mask, **positions, **extra)
    return Recording(anatomy, inputs, outputs, calls)


def _only_one_token(_head: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    return (args[0][:, :1], *args[1:])


def _stream(output: Any) -> Tensor:
    """A block gives the residual stream, or (before transformers 5) a tuple that begins with it."""
    stream: Tensor = output[0] if isinstance(output, tuple) else output
    return stream


def _cache_argument(model: Any) -> str:
    parameters = _parameters(model)
    return next((name for name in CACHE_NAMES if name in parameters), "past_key_values")


def _parameters(model: Any) -> Mapping[str, inspect.Parameter]:
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    return inspect.signature(base.forward).parameters


class _Prefix:
    """Keys and values of a prefix, which new ones are joined to and never added to."""

    def __init__(self, layers: list[tuple[Tensor, Tensor]]) -> None:
        self.layers = layers
        self.is_compileable = False

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """The keys and values of the prefix with these after them."""
        kept_keys, kept_values = self.layers[layer_idx]
        return torch.cat([kept_keys, keys], dim=-2), torch.cat([kept_values, values], dim=-2)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """How many tokens the prefix has."""
        return self.layers[layer_idx][0].shape[-2]
