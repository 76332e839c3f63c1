"""Recall over a distance: key-value pairs at the beginning of a row, filler, and the keys again at its end.

A model without memory beyond its window is at chance when the filler is longer than the window. The same in text is a
needle: a numbered fact planted in real text and asked for at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.errors import InputError

__all__ = ["Needle", "RecallTask", "plant_needle", "recall_accuracy"]

IGNORED = -100
"""The label of tokens that aren't judged."""
DIGITS = 4
"""Of a planted number, which is drawn among all that don't begin with 0."""


NAMES = ("amber", "birch", "coral", "delta", "ember", "flint", "grove", "heron")
"""What a planted number belongs to."""


@dataclass(frozen=True)
class RecallTask:
    """Rows that begin with pairs of a key and a value, and end with the keys in another order, each to be answered.

    Parameters
    ----------
    length : int
        Tokens of a row.
    pairs : int
        Pairs at the beginning.
    queries : int or None
        Keys asked at the end; all by default.
    keys, values, fillers : int
        How many of each token there are. Tokens are numbered in this order.

    Raises
    ------
    InputError
        More pairs than keys, or a row too short for the pairs and the queries.

    Examples
    --------
    >>> import torch
    >>> task = RecallTask(32, pairs=4)
    >>> rows, labels = task.rows(2, generator=torch.Generator().manual_seed(0))
    >>> rows.shape, int((labels >= 0).sum()), task.gap
    (torch.Size([2, 32]), 8, 16)
    """

    length: int
    pairs: int = 8
    queries: int | None = None
    keys: int = 32
    values: int = 32
    fillers: int = 32

    def __post_init__(self) -> None:
        if not 1 <= self.pairs <= self.keys:
            raise InputError(f"pairs is {self.pairs}", expected=f"from 1 to the number of keys, {self.keys}")
        if not 1 <= self.asked <= self.pairs:
            raise InputError(f"queries is {self.queries}", expected=f"from 1 to the number of pairs, {self.pairs}")
        if min(self.values, self.fillers) < 1:
            raise InputError(f"values is {self.values}, fillers is {self.fillers}", expected="at least 1 of each")
        if self.gap < 0:
            raise InputError(f"length is {self.length}", expected=f"at least {2 * (self.pairs + self.asked)}")

    @property
    def asked(self) -> int:
        """Keys asked at the end."""
        return self.pairs if self.queries is None else self.queries

    @property
    def gap(self) -> int:
        """Filler between the last pair and the first question."""
        return self.length - 2 * (self.pairs + self.asked)

    @property
    def vocabulary(self) -> int:
        """How many tokens there are."""
        return self.keys + self.values + self.fillers

    @property
    def chance(self) -> float:
        """The accuracy of a guess among the values."""
        return 1 / self.values

    def rows(self, batch: int, *, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw rows.

        Parameters
        ----------
        batch : int
        generator : torch.Generator

        Returns
        -------
        rows : Tensor of int64, shape (batch, length)
        labels : Tensor of int64, shape (batch, length)
            The value to be said after each key that is asked; -100 elsewhere. Not shifted.
        """
        keys = torch.rand(batch, self.keys, generator=generator).argsort(1)[:, : self.pairs]
        values = torch.randint(self.values, (batch, self.pairs), generator=generator) + self.keys
        filler = torch.randint(self.fillers, (batch, self.gap), generator=generator) + self.keys + self.values
        order = torch.rand(batch, self.pairs, generator=generator).argsort(1)[:, : self.asked]
        asked, answers = keys.gather(1, order), values.gather(1, order)
        pairs = torch.stack([keys, values], 2).flatten(1)
        questions = torch.stack([asked, answers], 2).flatten(1)
        rows = torch.cat([pairs, filler, questions], 1)
        labels = torch.full_like(rows, IGNORED)
        labels[:, self.length - 2 * self.asked :: 2] = answers
        return rows, labels


@torch.no_grad()
def recall_accuracy(logits: Tensor, labels: Tensor) -> float:
    """The share of judged places whose most likely token is the label.

    Parameters
    ----------
    logits : Tensor, shape (batch, length, vocabulary)
    labels : Tensor of int64, shape (batch, length)
        -100 where nothing is judged.

    Returns
    -------
    float

    Examples
    --------
    >>> import torch
    >>> recall_accuracy(torch.eye(3)[None], torch.tensor([[0, 2, -100]]))
    0.5
    """
    judged = labels != IGNORED
    return float((logits.argmax(-1)[judged] == labels[judged]).double().mean())


@dataclass(frozen=True)
class Needle:
    """A text with a planted fact, and the question for it.

    Attributes
    ----------
    text : bytes
        The haystack with the fact inside, and the question at its end.
    answer : bytes
        What should follow.
    distance : int
        Bytes from the end of the fact to the end of the question.
    """

    text: bytes
    answer: bytes
    distance: int


def plant_needle(
    haystack: bytes, *, length: int, depth: float, generator: torch.Generator, names: Sequence[str] = NAMES
) -> Needle:
    """Plant a numbered fact in text and ask for it.

    Parameters
    ----------
    haystack : bytes
        Text from which a piece is taken.
    length : int
        Bytes of the whole row, without the answer.
    depth : float
        Where the fact stands: 0 at the beginning, 1 just before the question.
    generator : torch.Generator
        Draws the number, the name and the piece of text.
    names : sequence of str
        What the number may belong to.

    Returns
    -------
    Needle

    Raises
    ------
    InputError
        The text is shorter than the row, the row too short for fact and question, or `depth` outside [0, 1].

    Examples
    --------
    >>> import torch
    >>> draw = torch.Generator().manual_seed(0)
    >>> needle = plant_needle(b"x" * 200, length=100, depth=0.5, generator=draw, names=["amber"])
    >>> len(needle.text), needle.answer in needle.text, needle.text.endswith(b"The number of amber is ")
    (100, True, True)
    """
    if not 0 <= depth <= 1:
        raise InputError(f"depth is {depth}", expected="from 0 to 1")
    name = names[int(torch.randint(len(names), (), generator=generator))]
    answer = f"{int(torch.randint(10 ** (DIGITS - 1), 10**DIGITS, (), generator=generator))}".encode()
    question = f"\nThe number of {name} is ".encode()
    fact = question + answer + b".\n"
    room = length - len(fact) - len(question)
    if room < 0:
        raise InputError(f"length is {length}", expected=f"at least {len(fact) + len(question)}")
    if len(haystack) < room:
        raise InputError(f"the text has {len(haystack)} bytes", expected=f"at least {room} for a row of {length}")
    start = int(torch.randint(len(haystack) - room + 1, (), generator=generator))
    piece = haystack[start : start + room]
    cut = round(depth * room)
    text = piece[:cut] + fact + piece[cut:] + question
    return Needle(text, answer, room - cut + len(question))
