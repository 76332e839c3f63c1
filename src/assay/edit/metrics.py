"""What an edit did: overlap with the new answer, what the answers cost, what became of the old one, and of the rest."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import InputError
from assay.core.lm.chat import chat_prompt
from assay.core.lm.generation import generate
from assay.core.lm.scoring import next_token_log_probabilities, score_answers
from assay.edit.requests import EditRequest, Prompts, check_requests

__all__ = ["Locality", "bleu", "evaluate_edits", "judged_right", "locality", "rouge"]

Judge = Callable[[str, str, str], float]
Context = Callable[[EditRequest], str]


def rouge(reference: str, hypothesis: str) -> dict[str, float]:
    """ROUGE-1, -2 and -L of a text against a reference: recall and F1 (Lin 2004), on lower-cased words.

    Parameters
    ----------
    reference, hypothesis : str
        The right text and the one to rate.

    Returns
    -------
    dict of str to float
        ``rouge1``, ``rouge2``, ``rougeL`` with ``_recall`` and ``_f1``; from 0 to 1.

    Examples
    --------
    >>> rouge("the cat sat", "yes, the cat sat down")["rougeL_recall"]
    1.0
    """
    right, said = _words(reference), _words(hypothesis)
    found: dict[str, float] = {}
    for name, overlap, of_right, of_said in (
        *((f"rouge{n}", _common(right, said, n), len(right) - n + 1, len(said) - n + 1) for n in (1, 2)),
        ("rougeL", _longest_common(right, said), len(right), len(said)),
    ):
        recall = overlap / of_right if of_right > 0 else 0.0
        precision = overlap / of_said if of_said > 0 else 0.0
        found[f"{name}_recall"] = recall
        found[f"{name}_f1"] = 2 * recall * precision / (recall + precision) if recall + precision else 0.0
    return found


def bleu(reference: str, hypothesis: str, *, unit: str = "word") -> float:
    """BLEU-4 of one text against one reference (Papineni et al. 2002), without smoothing.

    Parameters
    ----------
    reference, hypothesis : str
        The right text and the one to rate.
    unit : str
        ``"word"``, or ``"char"`` as the reference evaluation has it, which hands strings to a function for word lists.

    Returns
    -------
    float
        From 0 to 1; 0 where no group of four is shared.

    Examples
    --------
    >>> round(bleu("a b c d e", "a b c d"), 4)
    0.7788
    """
    if unit not in ("word", "char"):
        raise InputError(f"unit is {unit!r}", expected="'word' or 'char'")
    right, said = (list(reference), list(hypothesis)) if unit == "char" else (reference.split(), hypothesis.split())
    if len(said) < 4:
        return 0.0
    logs = 0.0
    for n in range(1, 5):
        shared = _common(right, said, n)
        if not shared:
            return 0.0
        logs += math.log(shared / (len(said) - n + 1)) / 4
    return math.exp(logs + min(0.0, 1 - len(right) / len(said)))


def judged_right(question: str, answer: str, said: str) -> float:
    """1 where what was said holds the answer, without regard to case, punctuation and blanks; else 0.

    Parameters
    ----------
    question, answer, said : str
        What was asked, what is right, and what the model said.

    Returns
    -------
    float

    Examples
    --------
    >>> judged_right("Where?", "New York", "It is in new  york.")
    1.0
    """
    del question
    return float(f" {' '.join(_words(answer))} " in f" {' '.join(_words(said))} ")


@dataclass(frozen=True)
class Locality:
    """What a model says to unrelated prompts before an edit, to be compared with afterwards.

    Attributes
    ----------
    pairs : list of (str, str)
        Questions with what the right answer holds.
    prompts : list of str
        Beginnings of sentences.
    right : ndarray of bool, shape (pairs,)
        Which questions the model answered rightly.
    log_probabilities : ndarray of float32, shape (prompts, vocabulary)
        Of the next token after each prompt.
    """

    pairs: list[tuple[str, str]]
    prompts: list[str]
    right: NDArray[np.bool_]
    log_probabilities: NDArray[np.float32]

    def compare(self, model: Any, tokenizer: Any, *, max_new_tokens: int = 16) -> dict[str, float]:
        """The share of right answers that stayed right, and how the next token's distribution moved.

        Returns
        -------
        dict of str to float
            ``locality_kept`` (of the pairs that were right; NaN without one), ``locality_kl`` (mean KL of base from
            edited, in nats) and ``locality_same`` (the share of prompts with the same most probable token).
        """
        after = locality(model, tokenizer, self.pairs, self.prompts, max_new_tokens=max_new_tokens, only=self.right)
        base = self.log_probabilities.astype(np.float64)
        divergences = (np.exp(base) * (base - after.log_probabilities)).sum(1)
        return {
            "locality_kept": float(after.right[self.right].mean()) if self.right.any() else math.nan,
            "locality_kl": float(np.maximum(divergences, 0).mean()) if len(base) else math.nan,
            "locality_same": float((base.argmax(1) == after.log_probabilities.argmax(1)).mean())
            if len(base)
            else math.nan,
        }


def locality(
    model: Any,
    tokenizer: Any,
    pairs: Sequence[tuple[str, str]],
    prompts: Sequence[str],
    *,
    max_new_tokens: int = 16,
    only: NDArray[np.bool_] | None = None,
) -> Locality:
    """Take down what a model says to unrelated prompts.

    Parameters
    ----------
    model, tokenizer
        The model before the edit.
    pairs : sequence of (str, str)
        Questions with what the right answer holds.
    prompts : sequence of str
        Beginnings of sentences, in no chat format.
    max_new_tokens : int
        Where an answer is cut.
    only : ndarray of bool, optional
        Ask these questions alone; the others count as wrong.

    Returns
    -------
    Locality

    Examples
    --------
    >>> from assay.core.lm import random_llama
    >>> lm = random_llama()
    >>> found = locality(lm.model, lm.tokenizer, [("Which colour?", "blue")], ["The sky was"], max_new_tokens=2)
    >>> found.right.tolist()
    [False]
    """
    asked = [index for index in range(len(pairs)) if only is None or only[index]]
    texts = [chat_prompt(tokenizer, pairs[index][0]) for index in asked]
    said = generate(model, tokenizer, texts, max_new_tokens=max_new_tokens) if texts else []
    right = np.zeros(len(pairs), dtype=np.bool_)
    for index, text in zip(asked, said, strict=True):
        right[index] = judged_right(*pairs[index], text) > 0
    log_probabilities = np.zeros((0, 0), dtype=np.float32)
    if prompts:
        log_probabilities = next_token_log_probabilities(model, tokenizer, list(prompts)).numpy()
    return Locality(list(pairs), list(prompts), right, log_probabilities)


def evaluate_edits(
    model: Any,
    tokenizer: Any,
    requests: Sequence[EditRequest],
    *,
    patch: Any = None,
    generated: bool = True,
    max_new_tokens: int = 64,
    judge: Judge = judged_right,
    context: Context | None = None,
    old_answers: Sequence[str] | None = None,
    similarity: bool = False,
    paraphrases_said: int | None = None,
) -> list[dict[str, Any]]:
    """Rate what a model says to edited questions.

    Parameters
    ----------
    model, tokenizer
        The model and its tokenizer.
    requests : sequence of EditRequest
        What was edited.
    patch : EditPatch or GatedPatch, optional
        Applied for the evaluation, and undone afterwards.
    generated : bool
        Whether the model also answers in its own words, which takes most of the time.
    max_new_tokens : int
        Where an answer is cut.
    judge : callable
        ``(question, right answer, what was said) -> 0 … 1`` for sub-questions.
    context : callable, optional
        What stands before each question, such as the fact itself: what a user gets without an edit.
    old_answers : sequence of str, optional
        The answers that are to go; the requests' ground truths without.
    similarity : bool
        Whether to compare sentence embeddings too, for which the extra ``embeddings`` is needed.
    paraphrases_said : int, optional
        How many paraphrases of each request the model answers in its own words; all without.

    Returns
    -------
    list of dict
        One row a request, for a table. Columns that end in ``_original`` are for the question, in ``_paraphrase`` for
        the mean over its paraphrases (NaN without one). ``nll`` and ``accuracy`` are teacher-forced: each token is
        predicted after the right ones before it.

    Examples
    --------
    >>> from assay.core.lm import random_llama
    >>> lm = random_llama()
    >>> [row] = evaluate_edits(lm.model, lm.tokenizer, [EditRequest("Who?", "Ann")], max_new_tokens=2)
    >>> row["nll_original"] > 0
    True
    """
    requests = check_requests(requests)
    applied = patch.applied(model) if patch is not None else nullcontext()
    old = list(old_answers) if old_answers is not None else [request.ground_truth or "" for request in requests]
    rows: list[dict[str, Any]] = [{"id": request.id, "question": request.question} for request in requests]
    with applied:
        _teacher_forced(model, tokenizer, requests, rows, old, context)
        if generated:
            shortened = [replace(request, paraphrases=request.paraphrases[:paraphrases_said]) for request in requests]
            _in_its_own_words(model, tokenizer, shortened, rows, max_new_tokens, judge, context, similarity)
    for row in rows:
        for name in ("nll", "rougeL_recall"):
            if f"{name}_original" in row:
                row[f"gap_{name}"] = row[f"{name}_original"] - row[f"{name}_paraphrase"]
    return rows


def _teacher_forced(
    model: Any,
    tokenizer: Any,
    requests: Sequence[EditRequest],
    rows: list[dict[str, Any]],
    old: Sequence[str],
    context: Context | None,
) -> None:
    prompts = Prompts(tokenizer)
    asked: list[tuple[int, str, str, str]] = []
    for index, request in enumerate(requests):
        for name, answer in (("", request.answer), ("old_", old[index])):
            if answer.strip():
                text = answer.strip() + prompts.ending
                asked.append((index, f"{name}original", _asked(request, request.question, prompts, context), text))
                for other in request.paraphrases:
                    asked.append((index, f"{name}paraphrase", _asked(request, other, prompts, context), text))
    scores = score_answers(model, tokenizer, [one[2] for one in asked], [one[3] for one in asked])
    found: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for (index, name, _, _), score in zip(asked, scores, strict=True):
        found.setdefault((index, name), []).append((score.nll, score.accuracy))
    for index, row in enumerate(rows):
        for name in ("original", "paraphrase"):
            values = found.get((index, name), [])
            row[f"nll_{name}"] = _mean([nll for nll, _ in values])
            row[f"accuracy_{name}"] = _mean([accuracy for _, accuracy in values])
            row[f"old_nll_{name}"] = _mean([nll for nll, _ in found.get((index, f"old_{name}"), [])])


def _in_its_own_words(
    model: Any,
    tokenizer: Any,
    requests: Sequence[EditRequest],
    rows: list[dict[str, Any]],
    max_new_tokens: int,
    judge: Judge,
    context: Context | None,
    similarity: bool,
) -> None:
    prompts = Prompts(tokenizer)
    asked: list[tuple[int, str, str, str]] = []
    for index, request in enumerate(requests):
        asked.append((index, "original", request.question, request.answer))
        asked += [(index, "paraphrase", other, request.answer) for other in request.paraphrases]
        asked += [(index, "sub", question, answer) for question, answer in request.sub_questions]
    texts = [_asked(requests[index], question, prompts, context) for index, _, question, _ in asked]
    said = generate(model, tokenizer, texts, max_new_tokens=max_new_tokens)
    alike = _similarities([one[3] for one in asked], said) if similarity else None
    found: dict[tuple[int, str], list[dict[str, float]]] = {}
    for number, ((index, name, question, answer), text) in enumerate(zip(asked, said, strict=True)):
        if name == "sub":
            scores = {"hit": float(judge(question, answer, text))}
        else:
            scores = {
                **rouge(answer, text),
                "bleu_char": bleu(answer, text, unit="char"),
                "bleu_word": bleu(answer, text),
            }
            if alike is not None:
                scores["sim_minilm"] = float(alike[number])
        found.setdefault((index, name), []).append(scores)
        if name == "original":
            rows[index]["said"] = text
    for index, row in enumerate(rows):
        for name in ("original", "paraphrase"):
            values = found.get((index, name), [])
            for measure in found[0, "original"][0]:
                row[f"{measure}_{name}"] = _mean([one[measure] for one in values])
        row["sub_hits"] = _mean([one["hit"] for one in found.get((index, "sub"), [])])


def _asked(request: EditRequest, question: str, prompts: Prompts, context: Context | None) -> str:
    return prompts.text(question if context is None else f"{context(request)}\n\n{question}")


def _similarities(right: Sequence[str], said: Sequence[str]) -> NDArray[np.float32]:
    from assay.core.lm.embeddings import sentence_embeddings

    one, other = sentence_embeddings(right), sentence_embeddings(said)
    values: NDArray[np.float32] = (one * other).sum(1).numpy()
    return values


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else math.nan


def _words(text: str) -> list[str]:
    return "".join(letter if letter.isalnum() else " " for letter in text.lower()).split()


def _common(one: Sequence[str], other: Sequence[str], n: int) -> int:
    counts = [Counter(zip(*(words[offset:] for offset in range(n)), strict=False)) for words in (one, other)]
    return sum((counts[0] & counts[1]).values())


def _longest_common(one: Sequence[str], other: Sequence[str]) -> int:
    """The length of the longest common subsequence, row by row."""
    previous = [0] * (len(other) + 1)
    for word in one:
        current = [0]
        for column, found in enumerate(other):
            current.append(previous[column] + 1 if word == found else max(previous[column + 1], current[column]))
        previous = current
    return previous[-1]
