"""Payoffs of one-step games in files: CSV tables for two agents, NumPy arrays and long CSV tables for any number.

A CSV table with A rows and A columns of numbers is a game of two agents: rows are the first agent's actions, columns
the second's. A header and a first column with the names of the actions are read as such. A long table has a line a
joint action: a column of action names or numbers for each agent, and the payoff in the last, under a header that calls
it ``payoff``.
"""

from __future__ import annotations

import csv
import io
import os
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import InputError
from assay.core.files import existing_file, read_lines, read_matrix

__all__ = ["Game", "parse_shift", "read_game", "read_payoff", "require_payoff"]

SUFFIXES = (".csv", ".tsv", ".npy", ".npz")
PAYOFF = "payoff"
MOST_CELLS = 2_000_000
"""Joint actions of a file: more than that fits no memory of a learner that lists them."""


@dataclass(frozen=True)
class Game:
    """A payoff with the names of its actions.

    Parameters
    ----------
    payoff : (A, ..., A) array of float64
        The team's reward for each joint action.
    actions : tuple of tuple of str
        For each agent, the names of its actions.
    """

    payoff: NDArray[np.float64]
    actions: tuple[tuple[str, ...], ...]

    def named(self, joint: tuple[int, ...]) -> str:
        """A joint action in the words of the file."""
        return "(" + ", ".join(names[action] for names, action in zip(self.actions, joint, strict=True)) + ")"


def read_payoff(path: str | os.PathLike[str]) -> NDArray[np.float64]:
    """Read the payoff of a one-step game.

    Parameters
    ----------
    path : path
        A .csv, .tsv, .npy or .npz file.

    Returns
    -------
    (A, ..., A) array of float64

    Raises
    ------
    InputError
        Naming file, row and column, or the shape that isn't a square's or hypercube's.
    """
    return read_game(path).payoff


def read_game(path: str | os.PathLike[str]) -> Game:
    """Read the payoff of a one-step game and the names of its actions.

    Parameters
    ----------
    path : path
        A .csv, .tsv, .npy or .npz file.

    Returns
    -------
    Game

    Raises
    ------
    InputError
        Naming file, row and column, or the shape that isn't a square's or hypercube's.
    """
    file = existing_file(path, suffixes=SUFFIXES)
    if file.suffix.lower() in (".npy", ".npz"):
        payoff = require_payoff(_array(file), file=str(file))
        return Game(payoff, (tuple(map(str, range(payoff.shape[0]))),) * payoff.ndim)
    text = "\n".join(read_lines(file))
    delimiter = "\t" if file.suffix.lower() == ".tsv" else ","
    rows = [
        (number, [cell.strip() for cell in row])
        for number, row in enumerate(csv.reader(io.StringIO(text), delimiter=delimiter), start=1)
        if any(cell.strip() for cell in row)
    ]
    if not rows:
        raise InputError("holds no rows", file=file, expected="a table of payoffs")
    header = rows[0][1]
    if header[-1].lower() == PAYOFF and len(header) > 1:
        return _long(rows, file)
    return _square(rows, file)


def require_payoff(payoff: ArrayLike, *, what: str = "payoff", file: str | None = None) -> NDArray[np.float64]:
    """Refuse what isn't a payoff: one number for each joint action, all agents having the same actions.

    Parameters
    ----------
    payoff : array_like
        What was given.
    what : str
        Its name, for the message.
    file : str, optional
        Where it comes from, for the message.

    Returns
    -------
    (A, ..., A) array of float64
        With one axis an agent.

    Raises
    ------
    InputError
        The shape isn't that of a square or hypercube, or a number isn't finite.
    """
    try:
        values = np.asarray(payoff, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{what} isn't an array of numbers", file=file, expected="a number a joint action") from None
    if values.ndim < 1 or len(set(values.shape)) != 1 or values.shape[0] < 1:
        raise InputError(
            f"{what} has the shape {values.shape}",
            file=file,
            expected="a square, or a hypercube with one axis an agent: every agent has the same number of actions",
        )
    if not np.isfinite(values).all():
        place = tuple(map(int, np.argwhere(~np.isfinite(values))[0]))
        raise InputError(f"{what} is {values[place]} at {place}", file=file, expected="finite numbers")
    return values


def parse_shift(text: str) -> tuple[str, int]:
    """``payoff2.csv@1500`` in its parts: the file, and the update from which it holds.

    Parameters
    ----------
    text : str
        What was typed.

    Returns
    -------
    path : str
    update : int

    Examples
    --------
    >>> parse_shift("later.csv@1500")
    ('later.csv', 1500)
    """
    path, at, update = text.rpartition("@")
    if not at or not path or not re.fullmatch(r"\d+", update) or int(update) < 1:
        raise InputError(
            f"--shift is {text!r}", expected="a file, @ and the update from which it holds: later.csv@1500"
        )
    return path, int(update)


def _array(file: Path) -> NDArray[np.float64]:
    if file.suffix.lower() == ".npz":
        return np.asarray(read_matrix(file))
    try:
        loaded = np.load(file, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise InputError(f"can't be read as an array: {error}", file=file, expected="what numpy.save writes") from error
    if loaded.dtype.kind not in "iufb":
        raise InputError(f"holds values of type {loaded.dtype}", file=file, expected="numbers")
    return np.asarray(loaded, dtype=np.float64)


def _square(rows: list[tuple[int, list[str]]], file: Path) -> Game:
    """A table of two agents, with or without the names of actions.

    The first row has names if one of its cells after the first is no number, or if its first cell is empty; the first
    column has them if no cell of it is a number, or if it stands under an empty cell.
    """
    head = rows[0][1]
    has_header = head[0] == "" or not all(map(_is_number, head[1:] or head))
    if has_header:
        rows = rows[1:]
    if not rows:
        raise InputError("holds a header alone", file=file, expected="a row of payoffs for each action")
    has_labels = (has_header and head[0] == "") or not any(_is_number(row[0]) for _, row in rows)
    width = len(rows[0][1])
    numbers = np.empty((len(rows), width - has_labels))
    for place, (line, row) in enumerate(rows):
        if len(row) != width:
            raise InputError(f"has {len(row)} cells", file=file, row=line, expected=f"{width}, as in the rows above")
        for column, cell in enumerate(row[has_labels:]):
            if not (_is_number(cell) and np.isfinite(float(cell))):
                wrong = f"{cell!r} is not {'finite' if _is_number(cell) else 'a number'}"
                raise InputError(wrong, file=file, row=line, column=column + 1 + has_labels, expected="a payoff")
            numbers[place, column] = float(cell)
    payoff = require_payoff(numbers, file=str(file))
    counted = tuple(map(str, range(len(payoff))))
    first = tuple(row[0] for _, row in rows) if has_labels else counted
    return Game(payoff, (first, tuple(head[-len(payoff) :]) if has_header else counted))


def _long(rows: list[tuple[int, list[str]]], file: Path) -> Game:
    """A line a joint action."""
    width = len(rows[0][1])
    n_agents = width - 1
    names: list[dict[str, int]] = [{} for _ in range(n_agents)]
    found: dict[tuple[int, ...], float] = {}
    for line, row in rows[1:]:
        if len(row) != width:
            raise InputError(f"has {len(row)} cells", file=file, row=line, expected=f"{width}, as in the header")
        if not _is_number(row[-1]) or not np.isfinite(float(row[-1])):
            raise InputError(
                f"{row[-1]!r} is not a finite number", file=file, row=line, column=PAYOFF, expected="a payoff"
            )
        joint = tuple(own.setdefault(cell, len(own)) for own, cell in zip(names, row, strict=False))
        if joint in found:
            raise InputError(f"{', '.join(row[:-1])} is there twice", file=file, row=line, expected="one payoff each")
        found[joint] = float(row[-1])
    shape = tuple(len(own) for own in names)
    if len(set(shape)) != 1 or shape[0] < 1:
        raise InputError(
            f"has {' x '.join(map(str, shape))} actions",
            file=file,
            expected="the same number of actions for each agent",
        )
    if shape[0] ** n_agents > MOST_CELLS:
        raise InputError(f"is a game of {shape[0]}^{n_agents} joint actions", file=file, expected="a smaller game")
    if len(found) != shape[0] ** n_agents:
        absent = next(joint for joint in np.ndindex(shape) if joint not in found)
        words = ", ".join(list(own)[action] for own, action in zip(names, absent, strict=True))
        raise InputError(f"has no payoff of {words}", file=file, expected="a line for each joint action")
    payoff = np.empty(shape)
    for joint, value in found.items():
        payoff[joint] = value
    return _in_order(payoff, names)


def _in_order(payoff: NDArray[np.float64], names: list[dict[str, int]]) -> Game:
    """Actions that are numbered 0, 1, … come in that order, however the lines are sorted."""
    ordered = []
    for axis, own in enumerate(names):
        listed = list(own)
        if all(name.isdigit() for name in listed):
            listed.sort(key=int)
            payoff = np.take(payoff, [own[name] for name in listed], axis=axis)
        ordered.append(tuple(listed))
    return Game(payoff, tuple(ordered))


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
