"""Answers in a model's own words, in batches: greedy, or sampled with a seed a row."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from assay.core.errors import InputError
from assay.core.lm.chat import end_of_turn
from assay.core.lm.scoring import encode, pad_token

__all__ = ["generate"]


def generate(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[str],
    *,
    max_new_tokens: int = 64,
    temperature: float = 0.0,
    top_p: float = 1.0,
    seeds: Sequence[int] | None = None,
    batch_size: int = 16,
) -> list[str]:
    """Let a model answer prompts.

    Parameters
    ----------
    model, tokenizer
        The model and its tokenizer.
    prompts : sequence of str
        Texts that hold all their special tokens (`chat_prompt`).
    max_new_tokens : int
        Where an answer is cut at the latest; the end of turn or of text cuts it earlier.
    temperature : float
        0 takes the most probable token each time; above, tokens are sampled.
    top_p : float
        Sample among the most probable tokens that have this share of the probability together.
    seeds : sequence of int, optional
        One a prompt, for sampling; 0, 1, … without. An answer depends on its own seed and prompt, not on the batch,
        beyond rounding.
    batch_size : int
        How many at once.

    Returns
    -------
    list of str
        The answers, without special tokens and outer blanks.

    Raises
    ------
    InputError
        A number is out of its range, there aren't as many seeds as prompts, or a prompt has no token.

    Examples
    --------
    >>> from assay.core.lm import random_llama
    >>> lm = random_llama()
    >>> len(generate(lm.model, lm.tokenizer, ["one", "two and three"], max_new_tokens=4))
    2
    """
    if max_new_tokens < 1:
        raise InputError(f"max_new_tokens is {max_new_tokens}", expected="at least 1")
    if not temperature >= 0:
        raise InputError(f"temperature is {temperature}", expected="0 or more")
    if not 0 < top_p <= 1:
        raise InputError(f"top_p is {top_p}", expected="a share above 0, at most 1")
    seeds = range(len(prompts)) if seeds is None else seeds
    if len(seeds) != len(prompts):
        raise InputError(f"there are {len(seeds)} seeds", expected=f"{len(prompts)}, one a prompt")
    rows = [encode(tokenizer, prompt) for prompt in prompts]
    if empty := [index for index, row in enumerate(rows) if not row]:
        raise InputError(f"prompt {empty[0]} has no token", expected="at least one")
    order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
    answers = [""] * len(rows)
    for begin in range(0, len(order), batch_size):
        chosen = order[begin : begin + batch_size]
        draws = None
        if temperature > 0:
            draws = _GumbelDraws([seeds[index] for index in chosen], temperature=temperature, top_p=top_p)
        texts = _generate([rows[index] for index in chosen], model, tokenizer, max_new_tokens, draws)
        for index, text in zip(chosen, texts, strict=True):
            answers[index] = text
    return answers


def _generate(
    rows: list[list[int]], model: Any, tokenizer: Any, max_new_tokens: int, draws: _GumbelDraws | None
) -> list[str]:
    device = model.get_input_embeddings().weight.device
    width = max(len(row) for row in rows)
    pad = pad_token(tokenizer)
    ids = torch.tensor([[pad] * (width - len(row)) + row for row in rows], device=device)
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], device=device)
    stops = stop_tokens(tokenizer)
    with torch.no_grad(), warnings.catch_warnings():
        # Settings for sampling that a model's folder brings are of no use to a greedy choice.
        warnings.simplefilter("ignore")
        whole = model.generate(
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=max_new_tokens,
            do_sample=False,
            temperature=None,
            top_p=None,
            top_k=None,
            num_beams=1,
            pad_token_id=pad,
            eos_token_id=stops or None,
            logits_processor=[draws] if draws is not None else None,
        )
    return [_until_stop(row.tolist(), stops, tokenizer) for row in whole[:, width:]]


def stop_tokens(tokenizer: Any) -> list[int]:
    """The tokens that end an answer: the end of text, and the end of a turn where that is one token."""
    ending = encode(tokenizer, end_of_turn(tokenizer))
    found = {tokenizer.eos_token_id, *(ending if len(ending) == 1 else [])}
    return sorted(token for token in found if token is not None)


def _until_stop(tokens: list[int], stops: list[int], tokenizer: Any) -> str:
    end = next((index for index, token in enumerate(tokens) if token in stops), len(tokens))
    return str(tokenizer.decode(tokens[:end], skip_special_tokens=True)).strip()


class _GumbelDraws:
    """Add Gumbel noise, so that the most probable token is a sample; one generator a row.

    ``argmax(log p + g)`` with independent standard Gumbel ``g`` is distributed as ``p`` (Gumbel 1954).
    """

    def __init__(self, seeds: Sequence[int], *, temperature: float, top_p: float) -> None:
        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        self.temperature, self.top_p = temperature, top_p

    def __call__(self, _input_ids: Tensor, scores: Tensor) -> Tensor:
        logits = (scores.double() / self.temperature).cpu()
        if self.top_p < 1:
            ordered, index = logits.softmax(-1).sort(descending=True)
            surplus = ordered.cumsum(-1) - ordered >= self.top_p
            logits = logits.masked_fill(torch.zeros_like(surplus).scatter(1, index, surplus), -torch.inf)
        noise = torch.stack(
            [torch.rand(logits.shape[1], generator=one, dtype=torch.float64) for one in self.generators]
        )
        smallest = torch.finfo(torch.float64).tiny
        return (logits - torch.log(-torch.log(noise.clamp(min=smallest)))).to(scores.device, scores.dtype)
