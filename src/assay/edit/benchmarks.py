"""The scores of structured benchmarks: CounterFact's efficacy, paraphrase and neighbourhood, and KEBench's
accuracies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from assay.core.errors import InputError
from assay.core.lm.generation import generate
from assay.core.lm.scoring import score_answers
from assay.edit.metrics import judged_right
from assay.edit.requests import EditRequest, Prompts, check_requests

__all__ = ["counterfact_scores", "kebench_scores"]


def counterfact_scores(
    model: Any, tokenizer: Any, requests: Sequence[EditRequest], *, patch: Any = None, chat: bool = False
) -> dict[str, float]:
    """How often the new answer is more probable than the old one, and the other way round next door.

    Parameters
    ----------
    model, tokenizer
        The model and its tokenizer.
    requests : sequence of EditRequest
        With ground truths; paraphrases and locality questions where they have them.
    patch : EditPatch or GatedPatch, optional
        Applied for the evaluation.
    chat : bool
        Whether questions are put in the chat format; CounterFact's are beginnings of sentences that answers go on.

    Returns
    -------
    dict of str to float
        ``efficacy`` (ES), ``paraphrase`` (PS) and ``neighbourhood`` (NS), shares by request and then over requests; and
        ``score``, their harmonic mean. NaN where no request has such questions.

    Raises
    ------
    InputError
        A request has no ground truth.

    Examples
    --------
    >>> from assay.core.lm import random_llama
    >>> lm = random_llama()
    >>> found = counterfact_scores(lm.model, lm.tokenizer, [EditRequest("It is", "red", ground_truth="blue")])
    >>> found["efficacy"] in (0.0, 1.0)
    True
    """
    requests = check_requests(requests)
    for index, request in enumerate(requests):
        if not request.ground_truth:
            raise InputError(f"request {index} has no ground truth", expected="the answer that is to go")
    prompts = Prompts(tokenizer)
    asked: list[tuple[int, str, str, str, str]] = []
    for index, request in enumerate(requests):
        old = str(request.ground_truth)
        asked.append((index, "efficacy", request.question, request.answer, old))
        asked += [(index, "paraphrase", text, request.answer, old) for text in request.paraphrases]
        asked += [(index, "neighbourhood", text, truth or old, request.answer) for text, truth in request.locality]
    texts = [prompts.text(text) if chat else text for _, _, text, _, _ in asked]
    answers = [(wanted, other) for _, _, _, wanted, other in asked]
    with patch.applied(model) if patch is not None else nullcontext():
        scores = [
            score_answers(
                model, tokenizer, texts, [pair[side] if chat else f" {pair[side].strip()}" for pair in answers]
            )
            for side in (0, 1)
        ]
    found: dict[str, dict[int, list[float]]] = {"efficacy": {}, "paraphrase": {}, "neighbourhood": {}}
    for (index, kind, *_), wanted, other in zip(asked, *scores, strict=True):
        # As the benchmark has it: the mean over an answer's tokens, so that long answers aren't at a loss.
        found[kind].setdefault(index, []).append(float(wanted.nll < other.nll))
    means = {kind: _mean([_mean(values) for values in by_request.values()]) for kind, by_request in found.items()}
    known = [value for value in means.values() if not math.isnan(value)]
    means["score"] = len(known) / sum(1 / value for value in known) if known and min(known) > 0 else 0.0
    return means


def kebench_scores(
    model: Any, tokenizer: Any, requests: Sequence[EditRequest], *, patch: Any = None, max_new_tokens: int = 32
) -> dict[str, float]:
    """How often a short new answer is said to the question, to rewordings, and to questions that lead through the edit.

    Parameters
    ----------
    model, tokenizer
        The model and its tokenizer.
    requests : sequence of EditRequest
        With one entity for an answer.
    patch : EditPatch or GatedPatch, optional
        Applied for the evaluation.
    max_new_tokens : int
        Where an answer is cut.

    Returns
    -------
    dict of str to float
        Shares of answers that hold the right one: ``original`` and ``paraphrase`` (the edited question and its
        rewordings), ``source`` and ``target`` (by another description of the subject, and about the new object), and
        ``through`` (sub-questions). NaN without a question.

    Examples
    --------
    >>> from assay.core.lm import random_llama
    >>> lm = random_llama()
    >>> found = kebench_scores(lm.model, lm.tokenizer, [EditRequest("Who?", "Ann")], max_new_tokens=2)
    >>> found["original"]
    0.0
    """
    requests = check_requests(requests)
    prompts = Prompts(tokenizer)
    asked = [("original", request.question, request.answer) for request in requests]
    asked += [("paraphrase", text, request.answer) for request in requests for text in request.paraphrases]
    for kind in ("source", "target", "sub"):
        name = "through" if kind == "sub" else kind
        asked += [(name, *pair) for request in requests for pair in getattr(request, f"{kind}_questions")]
    with patch.applied(model) if patch is not None else nullcontext():
        said = generate(model, tokenizer, [prompts.text(one[1]) for one in asked], max_new_tokens=max_new_tokens)
    return {
        kind: _mean(
            [judged_right(one[1], one[2], text) for one, text in zip(asked, said, strict=True) if one[0] == kind]
        )
        for kind in ("original", "paraphrase", "source", "target", "through")
    }


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else math.nan
