"""Log-probabilities that a model gives to answers, in batches whose padding changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from assay.core.errors import InputError

__all__ = [
    "AnswerBatch",
    "AnswerScore",
    "answer_logits",
    "collate",
    "encode",
    "next_token_log_probabilities",
    "score_answers",
]

Tokens = list[int]


@dataclass(frozen=True)
class AnswerBatch:
    """Prompts with their answers, in one padded tensor.

    Attributes
    ----------
    input_ids, attention_mask : Tensor of int64, shape (rows, tokens)
        Prompt and answer; padded on the right, or so that all prompts end in one column.
    predicts : Tensor of bool, shape (rows, tokens)
        The tokens whose successor belongs to the answer.
    targets : Tensor of int64, shape (answer tokens,)
        The answers' tokens, row after row.
    rows : Tensor of int64, shape (answer tokens,)
        Which row each belongs to.
    last_prompt : Tensor of int64, shape (rows,)
        The column of each prompt's last token.
    """

    input_ids: Tensor
    attention_mask: Tensor
    predicts: Tensor
    targets: Tensor
    rows: Tensor
    last_prompt: Tensor

    def ending(self, counts: Sequence[int]) -> AnswerBatch:
        """The same batch with only the last tokens of each answer counted as such."""
        lengths = torch.bincount(self.rows, minlength=len(self.input_ids)).tolist()
        kept = [
            index >= length - count for length, count in zip(lengths, counts, strict=True) for index in range(length)
        ]
        chosen = torch.tensor(kept, device=self.rows.device)
        predicts = self.predicts.clone()
        predicts[self.predicts] = chosen
        return replace(self, predicts=predicts, targets=self.targets[chosen], rows=self.rows[chosen])

    def mean_by_row(self, values: Tensor) -> Tensor:
        """The mean of one value an answer token, of shape (answer tokens,), by row: shape (rows,)."""
        counts = torch.bincount(self.rows, minlength=len(self.input_ids)).to(values.dtype)
        sums = torch.zeros(len(self.input_ids), dtype=values.dtype, device=values.device)
        return sums.index_add(0, self.rows, values) / counts.clamp(min=1)


@dataclass(frozen=True)
class AnswerScore:
    """How a model rates one answer.

    Attributes
    ----------
    log_probabilities : Tensor of float, shape (answer tokens,)
        In nats, each given the prompt and the answer's earlier tokens.
    hits : Tensor of bool, shape (answer tokens,)
        Whether the token is the most probable one.
    """

    log_probabilities: Tensor
    hits: Tensor

    @property
    def nll(self) -> float:
        """The mean negative log-probability of a token, in nats."""
        return float(-self.log_probabilities.mean())

    @property
    def accuracy(self) -> float:
        """The share of tokens that are the most probable ones."""
        return float(self.hits.float().mean())


def encode(tokenizer: Any, text: str) -> Tokens:
    """The tokens of a text that holds its special tokens already.

    Parameters
    ----------
    tokenizer : transformers.PreTrainedTokenizerBase
        The tokenizer.
    text : str
        The text.

    Returns
    -------
    list of int

    Examples
    --------
    >>> from assay.core.lm import random_llama
    >>> len(encode(random_llama().tokenizer, "<|user|>"))
    1
    """
    # Whoever asks looks at lengths: transformers would only log a warning of its own.
    tokens: Tokens = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    return tokens


def collate(
    prompts: Sequence[Tokens],
    answers: Sequence[Tokens],
    *,
    pad: int,
    device: torch.device | str = "cpu",
    align_prompts: bool = False,
) -> AnswerBatch:
    """Put prompts and their answers in one padded batch.

    Parameters
    ----------
    prompts, answers : sequence of list of int
        Tokens; no prompt and no answer is empty.
    pad : int
        The token that fills up; it is masked.
    device : torch.device
        Where the tensors go.
    align_prompts : bool
        Let all prompts end in one column, with padding on both sides, rather than begin in the first.

    Returns
    -------
    AnswerBatch

    Raises
    ------
    InputError
        A prompt or an answer has no token.

    Examples
    --------
    >>> collate([[5, 6], [7]], [[8], [9, 10]], pad=0).input_ids.tolist()
    [[5, 6, 8], [7, 9, 10]]
    >>> collate([[5, 6], [7]], [[8], [9, 10]], pad=0, align_prompts=True).input_ids.tolist()
    [[5, 6, 8, 0], [0, 7, 9, 10]]
    """
    for what, given in (("prompt", prompts), ("answer", answers)):
        if empty := [index for index, tokens in enumerate(given) if not tokens]:
            raise InputError(f"{what} {empty[0]} has no token", expected="at least one")
    longest = max(len(prompt) for prompt in prompts)
    starts = [longest - len(prompt) if align_prompts else 0 for prompt in prompts]
    ends = [start + len(p) + len(a) for start, p, a in zip(starts, prompts, answers, strict=True)]
    shape = (len(prompts), max(ends))
    input_ids = torch.full(shape, pad, dtype=torch.long)
    attention_mask = torch.zeros(shape, dtype=torch.long)
    predicts = torch.zeros(shape, dtype=torch.bool)
    for row, (start, end, prompt, answer) in enumerate(zip(starts, ends, prompts, answers, strict=True)):
        input_ids[row, start:end] = torch.tensor([*prompt, *answer])
        attention_mask[row, start:end] = 1
        predicts[row, end - len(answer) - 1 : end - 1] = True
    last = [start + len(prompt) - 1 for start, prompt in zip(starts, prompts, strict=True)]
    return AnswerBatch(
        input_ids.to(device),
        attention_mask.to(device),
        predicts.to(device),
        torch.tensor([token for answer in answers for token in answer], device=device),
        torch.tensor([row for row, answer in enumerate(answers) for _ in answer], device=device),
        torch.tensor(last, device=device),
    )


def answer_logits(model: Any, batch: AnswerBatch) -> Tensor:
    """Logits at the tokens before each answer token, and nowhere else.

    Parameters
    ----------
    model : torch.nn.Module
        The model; gradients flow as its parameters ask for.
    batch : AnswerBatch
        The prompts and answers.

    Returns
    -------
    Tensor, shape (answer tokens, vocabulary)
        Row after row, beside ``batch.targets``.

    Examples
    --------
    >>> from assay.core.lm import random_llama
    >>> lm = random_llama()
    >>> tuple(answer_logits(lm.model, collate([[5, 6], [7]], [[8], [9, 10]], pad=lm.pad)).shape)
    (3, 300)
    """
    return _logits_at(model, batch.input_ids, batch.attention_mask, batch.predicts)


def score_answers(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[str],
    answers: Sequence[str],
    *,
    batch_size: int = 16,
) -> list[AnswerScore]:
    """Log-probabilities of given answers, token by token.

    Parameters
    ----------
    model, tokenizer
        The model and its tokenizer.
    prompts, answers : sequence of str
        Texts that hold all their special tokens (`chat_prompt`, `end_of_turn`); encoded apart and joined.
    batch_size : int
        How many at once; the result doesn't depend on it beyond rounding.

    Returns
    -------
    list of AnswerScore
        One a prompt.

    Raises
    ------
    InputError
        An answer has no token, or there aren't as many answers as prompts.

    Examples
    --------
    >>> from assay.core.lm import random_llama
    >>> lm = random_llama()
    >>> [score] = score_answers(lm.model, lm.tokenizer, ["one"], ["two"])
    >>> score.nll > 0
    True
    """
    if len(prompts) != len(answers):
        raise InputError(f"there are {len(answers)} answers", expected=f"{len(prompts)}, one a prompt")
    asked = [encode(tokenizer, prompt) for prompt in prompts]
    said = [encode(tokenizer, answer) for answer in answers]
    order = sorted(range(len(asked)), key=lambda index: len(asked[index]) + len(said[index]))
    scores: list[AnswerScore | None] = [None] * len(asked)
    for begin in range(0, len(order), batch_size):
        chosen = order[begin : begin + batch_size]
        batch = collate(
            [asked[index] for index in chosen],
            [said[index] for index in chosen],
            pad=pad_token(tokenizer),
            device=model.get_input_embeddings().weight.device,
        )
        with torch.no_grad():
            logits = answer_logits(model, batch).float()
        picked = logits.log_softmax(-1).gather(1, batch.targets[:, None])[:, 0].cpu()
        hits = (logits.argmax(-1) == batch.targets).cpu()
        for row, index in enumerate(chosen):
            own = batch.rows.cpu() == row
            scores[index] = AnswerScore(picked[own], hits[own])
    return [score for score in scores if score is not None]


def next_token_log_probabilities(model: Any, tokenizer: Any, prompts: Sequence[str], *, batch_size: int = 16) -> Tensor:
    """Log-probabilities of every token as the next one after each prompt.

    Parameters
    ----------
    model, tokenizer
        The model and its tokenizer.
    prompts : sequence of str
        Texts that hold all their special tokens.
    batch_size : int
        How many at once.

    Returns
    -------
    Tensor of float32, shape (prompts, vocabulary)
        In nats.

    Examples
    --------
    >>> from assay.core.lm import random_llama
    >>> lm = random_llama()
    >>> bool(next_token_log_probabilities(lm.model, lm.tokenizer, ["one"]).exp().sum().isclose(torch.tensor(1.0)))
    True
    """
    asked = [encode(tokenizer, prompt) for prompt in prompts]
    found: list[Tensor] = []
    for begin in range(0, len(asked), batch_size):
        rows = asked[begin : begin + batch_size]
        # An answer of one token asks for the logits of each prompt's last token alone.
        batch = collate(
            rows,
            [[pad_token(tokenizer)] for _ in rows],
            pad=pad_token(tokenizer),
            device=model.get_input_embeddings().weight.device,
        )
        with torch.no_grad():
            found.append(answer_logits(model, batch).float().log_softmax(-1).cpu())
    return torch.cat(found)


def pad_token(tokenizer: Any) -> int:
    """The token that fills up; end-of-text where the tokenizer has none of its own."""
    token = tokenizer.pad_token_id
    token = tokenizer.eos_token_id if token is None else token
    return int(token or 0)


def _logits_at(model: Any, input_ids: Tensor, attention_mask: Tensor, at: Tensor) -> Tensor:
    """Logits at marked tokens: the head is shown those alone."""
    head = model.get_output_embeddings()
    hook = head.register_forward_pre_hook(lambda _head, args: (args[0][at], *args[1:]))
    try:
        logits: Tensor = model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).logits
    finally:
        hook.remove()
    return logits
