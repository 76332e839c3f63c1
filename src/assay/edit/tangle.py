"""TangleScore: how hard an edit will be, known beforehand.

``TS = D / (S + 1e-8)``: how far the new answer moves the model's last hidden state, over how far the answers lie
apart as
clouds of input embeddings. The paper's words and its released code define the parts differently; both are here.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.core.errors import InputError
from assay.core.files import existing_file, read_lines, write_text
from assay.core.lm.anatomy import Anatomy, find_anatomy
from assay.core.lm.generation import generate
from assay.core.lm.recording import record
from assay.core.lm.scoring import collate, encode, pad_token
from assay.edit.requests import EditRequest, Prompts, check_requests, context_of

__all__ = ["Calibration", "TangleReport", "sinkhorn_divergence", "tangle_score"]

Variant: TypeAlias = Literal["answers", "official"]
Pool: TypeAlias = Literal["all", "answer"]
FORMAT, VERSION = "assay.edit.calibration", 1
EPSILON = 1e-8
LARGEST = 100.0
"""What the score is clipped to where the answers are the same tokens in another order."""
SAME_CLOUD = 1e-6
FEW = 8
"""A batch of at least so many requests calibrates itself."""
MAD_TO_DEVIATION = 1.4826
MOST_NUMBERS = 16_000_000
"""In the tensors of one group of pairs: 128 MB each."""


@dataclass(frozen=True)
class Calibration:
    """Where the scores of a model lie, so that one score can be called high or low.

    Attributes
    ----------
    scores : tuple of float
        Sorted scores of a set of requests.
    """

    scores: tuple[float, ...]

    @staticmethod
    def of(scores: Sequence[float]) -> Calibration:
        """Calibrate on the scores of a set of requests."""
        return Calibration(tuple(sorted(float(score) for score in scores)))

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write the scores to a ``.json`` file.

        Raises
        ------
        InputError
            The name ends otherwise, or nothing can be written there.
        """
        if not os.fspath(path).endswith(".json"):
            raise InputError("unknown ending", file=path, expected="a name that ends in .json")
        whole = {"format": FORMAT, "version": VERSION, "scores": list(self.scores)}
        return write_text(path, json.dumps(whole, indent=1) + "\n", force=force)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Calibration:
        """Read scores that `save` wrote.

        Raises
        ------
        InputError
            The file is missing, damaged, of another kind or version, or holds a score below 0.
        """
        file = existing_file(path, suffixes=(".json",))
        try:
            whole = json.loads("\n".join(read_lines(file)))
        except (ValueError, RecursionError) as error:
            raise InputError("damaged JSON", file=file, expected="a calibration") from error
        if not isinstance(whole, dict) or whole.get("format") != FORMAT:
            raise InputError("holds no calibration", file=file, expected="a file of Calibration.save")
        if whole.get("version") != VERSION:
            raise InputError(
                f"is of version {whole.get('version')}", file=file, expected=f"a calibration of version {VERSION}"
            )
        scores = whole.get("scores")
        if not isinstance(scores, list) or not all(_is_score(one) for one in scores):
            raise InputError("holds what is no score", file=file, expected="numbers of 0 or more")
        return Calibration.of(scores)

    def standardised(self, scores: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
        """``(TS - median) / max(1.4826 MAD, 1e-6 median, 1e-12)``; 0 without a calibration set."""
        values = np.asarray(scores, dtype=np.float64)
        if not self.scores:
            return np.zeros_like(values)
        known = np.array(self.scores)
        median = float(np.median(known))
        spread = max(MAD_TO_DEVIATION * float(np.median(np.abs(known - median))), 1e-6 * median, 1e-12)
        return (values - median) / spread

    def rank(self, scores: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
        """The share of the calibration set below each score, ties by half; one half without a set."""
        values = np.asarray(scores, dtype=np.float64)
        if not self.scores:
            return np.full_like(values, 0.5)
        known = np.array(self.scores)
        below = np.searchsorted(known, values, side="left") + np.searchsorted(known, values, side="right")
        return below / (2 * len(known))


def _is_score(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


@dataclass(frozen=True)
class TangleReport:
    """The difficulty of some edits before they are made.

    Attributes
    ----------
    ts : ndarray of float64, shape (requests,)
        TangleScore; 0 or more.
    shift, gap : ndarray of float64, shape (requests,)
        Its parts D (one minus a cosine) and S (a Sinkhorn divergence).
    nll_new, nll_old : ndarray of float64, shape (requests,)
        What the model pays for the new and for the old answer, in nats a token: the plain measures of difficulty.
    old_answers : tuple of str
        What the model believed, or the request's ground truth.
    already_known : ndarray of bool, shape (requests,)
        The old answer is the new one.
    degenerate : ndarray of bool, shape (requests,)
        The answers are the same tokens in another order, so that the score was clipped.
    variant : str
        ``"answers"`` or ``"official"``.
    """

    ts: NDArray[np.float64]
    shift: NDArray[np.float64]
    gap: NDArray[np.float64]
    nll_new: NDArray[np.float64]
    nll_old: NDArray[np.float64]
    old_answers: tuple[str, ...]
    already_known: NDArray[np.bool_]
    degenerate: NDArray[np.bool_]
    variant: str

    def calibration(self, stored: Calibration | None = None) -> Calibration:
        """These scores where there are at least 8, else a stored calibration, else none."""
        if len(self.ts) >= FEW:
            return Calibration.of(self.ts.tolist())
        return stored or Calibration(())

    def rows(self) -> list[dict[str, Any]]:
        """One mapping a request, for a table."""
        return [
            {
                "ts": float(self.ts[index]),
                "D": float(self.shift[index]),
                "S": float(self.gap[index]),
                "inverse_S": float(1 / (self.gap[index] + EPSILON)),
                "nll_new": float(self.nll_new[index]),
                "nll_old": float(self.nll_old[index]),
                "old_answer": self.old_answers[index],
                "already_known": bool(self.already_known[index]),
                "degenerate_sinkhorn": bool(self.degenerate[index]),
            }
            for index in range(len(self.ts))
        ]


def tangle_score(
    model: Any,
    tokenizer: Any,
    requests: Sequence[EditRequest],
    *,
    variant: Variant = "answers",
    hidden_layer: int | Sequence[int] = -1,
    pool: Pool = "all",
    blur: float = 0.05,
    scaling: float = 0.5,
    max_old_tokens: int = 64,
    batch_size: int = 16,
    anatomy: Anatomy | None = None,
) -> TangleReport:
    """Score how hard edits will be, before any is made.

    Parameters
    ----------
    model, tokenizer
        A Hugging Face causal language model and its tokenizer.
    requests : sequence of EditRequest
        What is to be changed.
    variant : str
        ``"answers"`` compares the model's old answer with the new one, as the paper says: D between the states of
        prompt
        with old and prompt with new answer, S between the two answers. ``"official"`` does what the released code
        does: D
        between the raw question and the question with the new answer, S between the new answer and the question.
    hidden_layer : int or sequence of int
        Which hidden states, counted as Hugging Face does: 0 before the first block, -1 after the final norm. Several
        are averaged.
    pool : str
        ``"all"`` means over all tokens, ``"answer"`` over the answer's. Only for the variant ``"answers"``.
    blur, scaling : float
        Of the Sinkhorn divergence: its length scale, and the factor between its steps.
    max_old_tokens : int
        Where the model's own answer is cut.
    batch_size : int
        How many sequences pass the model at once.
    anatomy : Anatomy, optional
        The model's parts, where `find_anatomy` needs help.

    Returns
    -------
    TangleReport

    Raises
    ------
    InputError
        A request lacks its question or answer, or an option is out of its range.

    Examples
    --------
    >>> from assay.core.lm import random_llama
    >>> lm = random_llama()
    >>> report = tangle_score(lm.model, lm.tokenizer, [EditRequest("Who wrote it?", "Ann did.", ground_truth="Bo.")])
    >>> bool(report.ts[0] > 0)
    True
    """
    if variant not in ("answers", "official"):
        raise InputError(f"variant is {variant!r}", expected="'answers' or 'official'")
    if pool not in ("all", "answer"):
        raise InputError(f"pool is {pool!r}", expected="'all' or 'answer'")
    if not blur > 0 or not 0 < scaling < 1:
        raise InputError(
            f"blur is {blur} and scaling {scaling}", expected="a positive blur and a scaling between 0 and 1"
        )
    for name, value in (("batch_size", batch_size), ("max_old_tokens", max_old_tokens)):
        if value < 1:
            raise InputError(f"{name} is {value}", expected="at least 1")
    requests = check_requests(requests)
    parts = anatomy or find_anatomy(model)
    prompts = Prompts(tokenizer, longest=context_of(model))
    questions, new = prompts.pairs(requests)
    old_texts = old_answers(model, tokenizer, requests, max_new_tokens=max_old_tokens, batch_size=batch_size)
    old = [prompts.answer(text) for text in old_texts]
    states, nll = _states(model, parts, tokenizer, questions * 2, old + new, hidden_layer, pool, batch_size)
    n = len(requests)
    embedding = parts.vectors.detach()
    if variant == "answers":
        r_old, r_new = states[:n], states[n:]
        gap = sinkhorn_divergence(
            [_cloud(embedding, tokens, prompts) for tokens in old],
            [_cloud(embedding, tokens, prompts) for tokens in new],
            blur=blur,
            scaling=scaling,
            diameter=_diameter(embedding),
        )
    else:
        r_old, r_new, gap = _official(model, parts, tokenizer, requests, hidden_layer, blur, scaling, batch_size)
    shift = (1 - torch.nn.functional.cosine_similarity(r_old.double(), r_new.double(), dim=1)).clamp(min=0)
    known = [a.strip() == b.answer.strip() for a, b in zip(old_texts, requests, strict=True)]
    d = shift.cpu().numpy()
    s = gap.cpu().double().numpy()
    if variant == "answers":
        d[known], s[known] = 0.0, 0.0
    degenerate = (s < SAME_CLOUD) & (d > 0)
    ts = np.where(degenerate, np.minimum(d / (s + EPSILON), LARGEST), d / (s + EPSILON))
    return TangleReport(
        ts,
        d,
        s,
        nll[n:].numpy(),
        nll[:n].numpy(),
        tuple(old_texts),
        np.array(known),
        degenerate,
        variant,
    )


def old_answers(
    model: Any, tokenizer: Any, requests: Sequence[EditRequest], *, max_new_tokens: int = 64, batch_size: int = 16
) -> list[str]:
    """What the model says now, or a request's ground truth."""
    prompts = Prompts(tokenizer)
    open_ = [index for index, request in enumerate(requests) if not request.ground_truth]
    said = generate(
        model,
        tokenizer,
        [prompts.text(requests[index].question) for index in open_],
        max_new_tokens=max_new_tokens,
        batch_size=batch_size,
    )
    found = [request.ground_truth or "" for request in requests]
    for index, text in zip(open_, said, strict=True):
        found[index] = text
    return found


def sinkhorn_divergence(
    clouds: Sequence[Tensor],
    others: Sequence[Tensor],
    *,
    blur: float = 0.05,
    scaling: float = 0.5,
    diameter: float | None = None,
) -> Tensor:
    """The debiased Sinkhorn divergence between clouds of points, with the cost ½‖a - b‖² and equal weights.

    Parameters
    ----------
    clouds, others : sequence of Tensor, shape (points, dimensions)
        Pairs of clouds, of any sizes.
    blur, scaling : float
        As GeomLoss has them (Feydy et al. 2019).
    diameter : float, optional
        Where the descent in blur begins. With it all pairs are computed at once; without it each begins at its own
        diameter, one after another.

    Returns
    -------
    Tensor of float64, shape (pairs,)
        0 or more.
    """
    from geomloss import SamplesLoss

    if diameter is None:
        loss = SamplesLoss("sinkhorn", p=2, blur=blur, scaling=scaling, backend="tensorized")
        pairs = zip(clouds, others, strict=True)
        return torch.stack([loss(one.double(), other.double()) for one, other in pairs]).clamp(min=0)
    loss = SamplesLoss("sinkhorn", p=2, blur=blur, scaling=scaling, diameter=diameter, backend="tensorized")
    divergence = torch.zeros(len(clouds), dtype=torch.float64)
    sizes = [max(len(one), len(other)) for one, other in zip(clouds, others, strict=True)]
    for chosen in _of_like_size(sizes, width=clouds[0].shape[1]):
        ours, theirs = _weighted([clouds[index] for index in chosen]), _weighted([others[index] for index in chosen])
        divergence[chosen] = loss(*ours, *theirs).cpu()
    return divergence.clamp(min=0)


def _of_like_size(sizes: Sequence[int], *, width: int) -> Iterator[list[int]]:
    """Groups of pairs whose points and distances, filled up to the largest, are at most `MOST_NUMBERS` numbers."""
    chosen: list[int] = []
    for index in sorted(range(len(sizes)), key=lambda index: sizes[index]):
        if chosen and (len(chosen) + 1) * sizes[index] * max(sizes[index], width) > MOST_NUMBERS:
            yield chosen
            chosen = []
        chosen.append(index)
    if chosen:
        yield chosen


def _weighted(clouds: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Clouds of one size, filled up with copies of their first point that weigh nothing."""
    most = max(len(cloud) for cloud in clouds)
    points = torch.stack([torch.cat([cloud, cloud[:1].expand(most - len(cloud), -1)]) for cloud in clouds]).double()
    weights = torch.zeros(points.shape[:2], dtype=torch.float64, device=points.device)
    for row, cloud in enumerate(clouds):
        weights[row, : len(cloud)] = 1 / len(cloud)
    return weights, points


def _diameter(embedding: Tensor) -> float:
    """An upper bound on how far two tokens lie apart, which no batch changes."""
    return float((embedding.double().amax(0) - embedding.double().amin(0)).norm())


def _cloud(embedding: Tensor, tokens: list[int], prompts: Prompts) -> Tensor:
    ending = len(encode(prompts.tokenizer, prompts.ending))
    said = tokens[: len(tokens) - ending] or tokens
    return embedding[torch.tensor(said, device=embedding.device)]


def _states(
    model: Any,
    parts: Anatomy,
    tokenizer: Any,
    prompts: Sequence[list[int]],
    answers: Sequence[list[int]],
    hidden_layer: int | Sequence[int],
    pool: Literal["all", "answer", "prompt"],
    batch_size: int,
) -> tuple[Tensor, Tensor]:
    """Pooled hidden states and the answers' mean negative log-probabilities, in one pass."""
    layers = _layers(hidden_layer, len(parts.blocks))
    last = len(parts.blocks) - 1
    order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]) + len(answers[index]))
    states: list[Tensor] = [torch.empty(0)] * len(order)
    nll = torch.zeros(len(order), dtype=torch.float64)
    for begin in range(0, len(order), batch_size):
        chosen = order[begin : begin + batch_size]
        batch = collate(
            [prompts[index] for index in chosen],
            [answers[index] for index in chosen],
            pad=pad_token(tokenizer),
            device=parts.device,
        )
        keep = tuple({last, *(max(layer - 1, 0) for layer in layers)})
        recording = record(model, parts, batch.input_ids, batch.attention_mask, keep=keep)
        with torch.no_grad():
            normalised = parts.normalised(recording.outputs[last])
            chosen_states = [
                normalised if layer == last + 1 else recording.inputs[0] if layer == 0 else recording.outputs[layer - 1]
                for layer in layers
            ]
            hidden = torch.stack([state.float() for state in chosen_states]).mean(0)
            mask = batch.attention_mask.bool()
            in_answer = torch.arange(mask.shape[1], device=mask.device)[None] > batch.last_prompt[:, None]
            if pool != "all":
                mask = mask & (in_answer if pool == "answer" else ~in_answer)
            pooled = (hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)
            logits = parts.finish(parts.head(normalised[batch.predicts])).float()
            picked = logits.log_softmax(-1).gather(1, batch.targets[:, None])[:, 0]
            means = batch.mean_by_row(-picked).double().cpu()
        for row, index in enumerate(chosen):
            states[index], nll[index] = pooled[row].cpu(), means[row]
    return torch.stack(states), nll


def _layers(hidden_layer: int | Sequence[int], blocks: int) -> list[int]:
    given = [hidden_layer] if isinstance(hidden_layer, int) else list(hidden_layer)
    found = [layer + blocks + 1 if layer < 0 else layer for layer in given]
    if not found or any(not 0 <= layer <= blocks for layer in found):
        raise InputError(f"hidden_layer is {hidden_layer}", expected=f"numbers from {-blocks - 1} to {blocks}")
    return found


def _official(
    model: Any,
    parts: Anatomy,
    tokenizer: Any,
    requests: Sequence[EditRequest],
    hidden_layer: int | Sequence[int],
    blur: float,
    scaling: float,
    batch_size: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """The released code's parts: the raw question, the question with a blank and the answer, and no special tokens in
    S.
    """
    raw = [tokenizer(request.question)["input_ids"] for request in requests]
    joined = [tokenizer(f"{request.question} {request.answer}")["input_ids"] for request in requests]
    r_old = _pooled(model, parts, tokenizer, raw, hidden_layer, batch_size)
    r_new = _pooled(model, parts, tokenizer, joined, hidden_layer, batch_size)
    embedding = parts.vectors.detach()
    clouds = [
        [embedding[torch.tensor(encode(tokenizer, text), device=embedding.device)] for text in texts]
        for texts in ([request.answer for request in requests], [request.question for request in requests])
    ]
    return r_old, r_new, sinkhorn_divergence(clouds[0], clouds[1], blur=blur, scaling=scaling)


def _pooled(
    model: Any,
    parts: Anatomy,
    tokenizer: Any,
    rows: Sequence[list[int]],
    hidden_layer: int | Sequence[int],
    batch_size: int,
) -> Tensor:
    """Mean hidden states of whole sequences. What stands after them, for their last token to predict, changes
    nothing.
    """
    filler = [[pad_token(tokenizer)] for _ in rows]
    states, _ = _states(model, parts, tokenizer, rows, filler, hidden_layer, "prompt", batch_size)
    return states
