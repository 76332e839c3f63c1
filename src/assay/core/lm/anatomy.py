"""Where a causal language model keeps its blocks, its final norm and its head, whatever its architecture."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from assay.core.errors import InputError

__all__ = ["Anatomy", "find_anatomy"]


@dataclass(frozen=True)
class Anatomy:
    """The parts of a causal language model that a residual stream passes.

    Attributes
    ----------
    blocks : torch.nn.ModuleList
        The decoder blocks, in the order in which they run.
    name : str
        The dotted name of the list, such as ``"model.layers"``.
    tail : tuple of torch.nn.Module
        What runs between the last block and the head: the final norm, and a projection where there is one.
    head : torch.nn.Module
        From the residual stream to logits.
    embedding : torch.nn.Module
        From token numbers to the residual stream.
    finish : callable
        What the model does to the head's output: a cap or a scale, or nothing.
    """

    blocks: nn.ModuleList
    name: str
    tail: tuple[nn.Module, ...]
    head: nn.Module
    embedding: nn.Module
    finish: Callable[[Tensor], Tensor]

    @property
    def vectors(self) -> Tensor:
        """The input embeddings, of shape (vocabulary, d)."""
        weight: Tensor = self.embedding.weight  # type: ignore[assignment]
        return weight

    @property
    def device(self) -> torch.device:
        """Where token numbers go."""
        return self.vectors.device

    def block_name(self, layer: int) -> str:
        """The dotted name of a block, such as ``"model.layers.7"``."""
        return f"{self.name}.{layer}"

    def normalised(self, hidden: Tensor) -> Tensor:
        """What the head sees of the last block's output, of shape (…, d)."""
        for module in self.tail:
            hidden = module(hidden)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits of shape (…, vocabulary) for the last block's output of shape (…, d)."""
        return self.finish(self.head(self.normalised(hidden)))


def find_anatomy(model: Any, *, blocks: str | None = None, tail: tuple[str, ...] | None = None) -> Anatomy:
    """Find the blocks, the final norm and the head of a causal language model.

    The blocks are the longest ``torch.nn.ModuleList`` of one kind of module that lies in no other list. What runs
    after them is seen in a forward pass over one token.

    Parameters
    ----------
    model : torch.nn.Module
        A Hugging Face causal language model; one that an adapter wraps too.
    blocks : str, optional
        The dotted name of the list, where the rule finds another one.
    tail : tuple of str, optional
        The dotted names of what runs between the last block and the head.

    Returns
    -------
    Anatomy

    Raises
    ------
    InputError
        No list of blocks is found, a name isn't there, or the model has no head.

    Examples
    --------
    >>> from assay.core.lm import random_llama
    >>> anatomy = find_anatomy(random_llama().model)
    >>> anatomy.name, len(anatomy.blocks)
    ('model.layers', 4)
    """
    head = model.get_output_embeddings()
    if head is None:
        raise InputError(f"{type(model).__name__} has no output embeddings", expected="a causal language model")
    name = blocks or _longest_list(model)
    listed = _module(model, name, what="blocks")
    if not isinstance(listed, nn.ModuleList) or not len(listed):
        raise InputError(f"blocks is '{name}', a {type(listed).__name__}", expected="the name of a list of blocks")
    chain = _run_after(model, name, listed) if tail is None else tuple(_module(model, one, what="tail") for one in tail)
    return Anatomy(listed, name, chain, head, model.get_input_embeddings(), _finish(model))


def _longest_list(model: nn.Module) -> str:
    found: list[tuple[int, str]] = []
    outer: list[str] = []
    for name, module in model.named_modules():
        if not isinstance(module, nn.ModuleList) or not len(module) or len({type(one) for one in module}) > 1:
            continue
        if not any(name.startswith(f"{other}.") for other in outer):
            outer.append(name)
            found.append((len(module), name))
    if not found:
        raise InputError(
            f"{type(model).__name__} has no list of identical blocks", expected="the name of its list of blocks"
        )
    longest = max(length for length, _ in found)
    return next(name for length, name in found if length == longest)


def _module(model: nn.Module, name: str, *, what: str) -> nn.Module:
    try:
        return model.get_submodule(name)
    except AttributeError:
        raise InputError(
            f"{what} is '{name}'", expected=f"the dotted name of a part of {type(model).__name__}"
        ) from None


def _run_after(model: Any, name: str, blocks: nn.ModuleList) -> tuple[nn.Module, ...]:
    """The siblings of the block list that run after the last block, in order."""
    parent = model.get_submodule(name.rpartition(".")[0])
    order: list[nn.Module] = []
    hooks = [
        module.register_forward_pre_hook(lambda ran, _: order.append(ran))
        for module in (*(child for child in parent.children() if child is not blocks), blocks[-1])
    ]
    try:
        with torch.no_grad(), _evaluating(model):
            model(input_ids=torch.zeros((1, 1), dtype=torch.long, device=model.get_input_embeddings().weight.device))
    finally:
        for hook in hooks:
            hook.remove()
    last = max(index for index, module in enumerate(order) if module is blocks[-1])
    return tuple(order[last + 1 :])


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def _finish(model: Any) -> Callable[[Tensor], Tensor]:
    config = model.config
    cap = getattr(config, "final_logit_softcapping", None)
    scale = getattr(config, "logit_scale", None)
    divisor = getattr(config, "logits_scaling", None)
    if cap is not None:
        return lambda logits: cap * torch.tanh(logits / cap)
    if scale is not None:
        return lambda logits: logits * scale
    if divisor is not None:
        return lambda logits: logits / divisor
    return lambda logits: logits
