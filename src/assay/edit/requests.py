"""What is to be changed: a question with its new answer, and what the change is measured by."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from assay.core.errors import InputError
from assay.core.lm.chat import chat_prompt, end_of_turn
from assay.core.lm.scoring import encode

__all__ = ["EditRequest", "Prompts", "check_requests"]


@dataclass(frozen=True)
class EditRequest:
    """One piece of knowledge to correct or add.

    Attributes
    ----------
    question : str
        What is asked.
    answer : str
        What the model is to answer from now on.
    paraphrases : tuple of str
        The question in other words, to see whether the edit generalises.
    sub_questions : tuple of (str, str)
        Questions about parts of the answer, each with its short answer.
    ground_truth : str or None
        The answer that is to go; without it the model's own.
    locality : tuple of (str, str)
        Unrelated questions, each with the answer that must stay.
    subject : str or None
        Whom or what the question is about, as it stands in the question.
    id : str or None
        The record's name in its file.
    source_questions, target_questions : tuple of (str, str)
        Questions that reach the edit from the subject's side, by another description of it, and questions about the
        new object; each with its answer.
    """

    question: str
    answer: str
    paraphrases: tuple[str, ...] = ()
    sub_questions: tuple[tuple[str, str], ...] = ()
    ground_truth: str | None = None
    locality: tuple[tuple[str, str], ...] = ()
    subject: str | None = None
    id: str | None = None
    source_questions: tuple[tuple[str, str], ...] = ()
    target_questions: tuple[tuple[str, str], ...] = ()


def check_requests(requests: Iterable[EditRequest], *, last_wins: bool = False) -> list[EditRequest]:
    """Return the requests when each has a question and an answer, and no question has two answers.

    Parameters
    ----------
    requests : iterable of EditRequest
        What is to be changed.
    last_wins : bool
        Of several answers to one question, keep the last one.

    Raises
    ------
    InputError
        There is none, one lacks its question or answer, or two disagree.
    """
    found = list(requests)
    if not found:
        raise InputError("there is no edit request", expected="at least one")
    seen: dict[str, int] = {}
    for index, request in enumerate(found):
        for field in ("question", "answer"):
            if not getattr(request, field).strip():
                raise InputError(f"request {index}: the {field} is empty", expected="some text")
        other = seen.get(request.question.strip())
        if other is not None and found[other].answer != request.answer and not last_wins:
            raise InputError(
                f"requests {other} and {index} give the question {request.question!r} two answers: "
                f"{found[other].answer!r} and {request.answer!r}",
                expected="one answer a question, or the last one's to win",
            )
        seen[request.question.strip()] = index
    return [found[index] for index in sorted(seen.values())]


class Prompts:
    """Questions and answers as tokens, in the model's own chat format.

    Parameters
    ----------
    tokenizer : transformers.PreTrainedTokenizerBase
        The model's tokenizer.
    longest : int, optional
        The model's context; longer sequences are refused.
    """

    def __init__(self, tokenizer: Any, *, longest: int | None = None) -> None:
        self.tokenizer = tokenizer
        self.longest = longest
        self.ending = end_of_turn(tokenizer)

    def text(self, question: str) -> str:
        """The prompt as text."""
        return chat_prompt(self.tokenizer, question)

    def question(self, question: str) -> list[int]:
        """The prompt's tokens."""
        return encode(self.tokenizer, self.text(question))

    def answer(self, answer: str) -> list[int]:
        """The answer's tokens, the end of the turn among them, so that an edited model learns to stop."""
        return encode(self.tokenizer, answer.strip() + self.ending)

    def exchange(self, instruction: str, response: str) -> list[int]:
        """An instruction with its response."""
        return self.question(instruction) + self.answer(response)

    def pairs(self, requests: Sequence[EditRequest]) -> tuple[list[list[int]], list[list[int]]]:
        """The tokens of all questions and of all answers.

        Raises
        ------
        InputError
            A question with its answer is longer than the model's context.
        """
        questions = [self.question(request.question) for request in requests]
        answers = [self.answer(request.answer) for request in requests]
        for index, (question, answer) in enumerate(zip(questions, answers, strict=True)):
            if self.longest is not None and len(question) + len(answer) > self.longest:
                raise InputError(
                    f"request {index}: the question has {len(question)} tokens and the answer {len(answer)}",
                    expected=f"at most {self.longest} together, the model's context",
                )
        return questions, answers


def context_of(model: Any) -> int | None:
    """How many tokens a model takes, where its configuration says so."""
    found = getattr(model.config, "max_position_embeddings", None)
    return int(found) if found else None
