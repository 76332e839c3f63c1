"""Reading in pieces of any size, exactly as if all had come at once.

Within a chunk the weights are constant and the gradient is a sum over tokens, so that an open chunk is kept as three
sums instead of its tokens. A full chunk is closed when one more token arrives: until then nothing asks for its step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from assay.core.errors import InputError
from assay.lact.fast_weights import (
    FastState,
    Rule,
    accumulate,
    apply_into,
    close,
    fast_weight_apply,
    needs_graph,
)
from assay.lact.orthogonal import Coefficients
from assay.lact.plans import check_chunk_size
from assay.lact.recompute import recomputed

__all__ = ["Piece", "Reading", "Stream", "end_of_input", "feed"]


class Piece(NamedTuple):
    """Tokens that come together.

    Parameters
    ----------
    q, k : Tensor, shape (B, l, d)
        Queries and keys.
    v : Tensor, shape (B, l, o)
        Values.
    lr : Tensor, shape (B, l, 3)
        Rates.
    momentum : Tensor, shape (B, l), or None
        For the rules with momentum.

    Examples
    --------
    >>> x = torch.zeros(1, 5, 2)
    >>> [part.length for part in Piece(x, x, x, torch.zeros(1, 5, 3)).split([2, 3])]
    [2, 3]
    """

    q: Tensor
    k: Tensor
    v: Tensor
    lr: Tensor
    momentum: Tensor | None = None

    def tokens(self, begin: int, end: int) -> Piece:
        """Some of the tokens."""
        return Piece(*(None if field is None else field[:, begin:end] for field in self))  # type: ignore[arg-type]

    def split(self, sizes: list[int]) -> list[Piece]:
        """All tokens, in parts of these sizes; cut at once, so that the gradient is joined at once."""
        fields = [[None] * len(sizes) if field is None else field.split(sizes, 1) for field in self]
        return [Piece(*part) for part in zip(*fields, strict=True)]

    @property
    def length(self) -> int:
        """Tokens a row."""
        return self.q.shape[1]


class Reading(NamedTuple):
    """How a memory reads.

    Parameters
    ----------
    chunk_size : int
        Tokens a step.
    rule : str
        How the weights are changed.
    ns : str
        Coefficients of Newton–Schulz.
    weight_norm : bool
        Whether the rows keep their initial norms.
    recompute : bool
        Whether what a chunk computes is computed again for the backward pass instead of kept.
    reduce : callable or None
        See `assay.lact.fast_weights.close`.

    Examples
    --------
    >>> Reading(chunk_size=64, rule="gd").recompute
    False
    """

    chunk_size: int
    rule: Rule = "muon"
    ns: Coefficients = "keller"
    weight_norm: bool = True
    recompute: bool = False
    reduce: Callable[[FastState], FastState] | None = None

    def close(self, state: FastState, rows: Tensor | None = None) -> FastState:
        """Take the step of the open chunk, in all rows or in some."""
        return close(state, rule=self.rule, ns=self.ns, weight_norm=self.weight_norm, rows=rows, reduce=self.reduce)


def feed(
    state: FastState, piece: Piece, reading: Reading, *, lengths: Tensor | None = None, keep_state: bool = True
) -> tuple[Tensor, FastState]:
    """Answer the queries of a piece from the chunks before, and add the piece to the memory.

    Parameters
    ----------
    state : FastState
        Stays as it is.
    piece : Piece
        Tokens that don't count stand at the end of their row, with zero rates.
    reading : Reading
    lengths : Tensor of int64 on the CPU, shape (B,), optional
        How many tokens of each row count; all when left out.
    keep_state : bool
        Whether the state after the piece is needed. If not, the last chunk is only asked.

    Returns
    -------
    answers : Tensor, shape (B, l, o)
    state : FastState
    """
    check_chunk_size(reading.chunk_size)
    length = piece.length
    if length == 0:
        return piece.q.new_empty(piece.q.shape[0], 0, state.weights.w1.shape[1]), state
    left = torch.full_like(state.filled, length) if lengths is None else lengths.clone()
    state = _close_full(state, reading, left)
    steps = _steps(state.filled, left, length, reading.chunk_size)
    parts = piece.split([step.size for step in steps])
    whole = _room_for_answers(state, piece)
    answers, begin = [], 0
    for part, step in zip(parts, steps, strict=True):
        end = begin + step.size
        if whole is not None:
            apply_into(state.weights, part.q, whole[:, begin:end])
            if keep_state or end < length:
                state = _add(state, part, reading, step)
        elif end == length and not keep_state:
            answers.append(fast_weight_apply(state.weights, part.q))
        else:
            answer, state = _read(state, part, reading, step)
            answers.append(answer)
        begin = end
    if whole is not None:
        return whole, state
    return (answers[0] if len(answers) == 1 else torch.cat(answers, 1)), state


def end_of_input(state: FastState, reading: Reading) -> FastState:
    """Close a chunk that isn't full, so that its tokens are in the weights: the end of a document that is kept.

    The momentum's rate is the mean over the tokens that are there.

    Parameters
    ----------
    state : FastState
    reading : Reading

    Returns
    -------
    FastState

    Examples
    --------
    >>> from assay.lact.fast_weights import FastWeights, start
    >>> x, w = torch.ones(1, 3, 2), FastWeights(None, torch.eye(2)[None], None)
    >>> reading = Reading(chunk_size=64, rule="gd")
    >>> _, state = feed(start(w, rule="gd"), Piece(x, x, x, torch.ones(1, 3, 3)), reading)
    >>> state.filled.tolist(), end_of_input(state, reading).filled.tolist()
    ([3], [0])
    """
    return reading.close(state)


class Stream:
    """A memory that reads token after token, changed in place.

    Parameters
    ----------
    state : FastState
        Where reading begins; stays as it is.
    reading : Reading
    flush_every : int
        So many tokens are gathered before they are added to the open chunk in one product. Answers don't depend on it.

    Raises
    ------
    InputError
        `flush_every` is below 1.

    Examples
    --------
    >>> from assay.lact.fast_weights import FastWeights, start
    >>> token, w = torch.ones(1, 1, 2), FastWeights(None, torch.eye(2)[None], None)
    >>> stream = Stream(start(w, rule="gd"), Reading(chunk_size=64, rule="gd"), flush_every=16)
    >>> stream.feed(Piece(token, token, token, torch.ones(1, 1, 3))).tolist()
    [[[1.0, 1.0]]]
    """

    def __init__(self, state: FastState, reading: Reading, *, flush_every: int = 1) -> None:
        if flush_every < 1:
            raise InputError(f"flush_every is {flush_every}", expected="at least 1")
        check_chunk_size(reading.chunk_size)
        self._state = state
        self._reading = reading
        self._flush_every = flush_every
        self._waiting: list[Piece] = []

    def feed(self, piece: Piece) -> Tensor:
        """Answer the queries of a piece, shape (B, l, o), and read it."""
        waiting = sum(one.length for one in self._waiting)
        full = int(self._state.filled.max()) + waiting + piece.length > self._reading.chunk_size
        if full or piece.length >= self._flush_every:
            self.flush()
            answers, self._state = feed(self._state, piece, self._reading)
            return answers
        self._waiting.append(piece)
        answers = fast_weight_apply(self._state.weights, piece.q)
        if waiting + piece.length >= self._flush_every:
            self.flush()
        return answers

    def flush(self) -> None:
        """Add what waits to the open chunk."""
        if not self._waiting:
            return
        k, v, lr = (torch.cat([getattr(one, name) for one in self._waiting], 1) for name in ("k", "v", "lr"))
        betas = [one.momentum for one in self._waiting if one.momentum is not None]
        momentum = torch.cat(betas, 1) if betas else None
        self._state = accumulate(self._state, k, v, lr, momentum=momentum)
        self._waiting = []

    def end_of_input(self) -> None:
        """Close a chunk that isn't full."""
        self.flush()
        self._state = end_of_input(self._state, self._reading)

    @property
    def state(self) -> FastState:
        """What has been read."""
        self.flush()
        return self._state


def _close_full(state: FastState, reading: Reading, left: Tensor) -> FastState:
    rows = (state.filled >= reading.chunk_size) & (left > 0)
    if not bool(rows.any()):
        return state
    return reading.close(state, None if bool(rows.all()) else rows)


def _room_for_answers(state: FastState, piece: Piece) -> Tensor | None:
    """Memory that the chunks' answers are written into, where no gradient is needed."""
    weights = state.weights
    if weights.w0 is None or needs_graph(*piece, *weights, *state.pending):
        return None
    return piece.q.new_empty(*piece.q.shape[:2], weights.w1.shape[1])


class _Step(NamedTuple):
    """So many tokens within one chunk of every row; how many count in each row, and how many are left after them."""

    size: int
    counted: Tensor
    left: Tensor


def _steps(filled: Tensor, left: Tensor, length: int, chunk_size: int) -> list[_Step]:
    """Cut a piece where some row's chunk is full."""
    steps = []
    filled = filled.clone()
    while length > 0:
        room = (chunk_size - filled)[left > 0]
        size = min(length, int(room.min())) if room.numel() else length
        counted = left.clamp(min=0, max=size)
        left = left - counted
        filled = filled + counted
        filled[(filled >= chunk_size) & (left > 0)] = 0
        length -= size
        steps.append(_Step(size, counted, left))
    return steps


def _add(state: FastState, part: Piece, reading: Reading, step: _Step) -> FastState:
    """Add, and close the rows that are full and go on."""
    state = accumulate(state, part.k, part.v, part.lr, momentum=part.momentum, counts=step.counted)
    return _close_full(state, reading, step.left)


def _read(state: FastState, part: Piece, reading: Reading, step: _Step) -> tuple[Tensor, FastState]:
    """Ask and add, in memory that the backward pass can do without if the reading says so."""

    def compute(state: FastState, part: Piece) -> tuple[Tensor, FastState]:
        answer = fast_weight_apply(state.weights, part.q)
        return answer, _add(state, part, reading, step)

    return recomputed(compute, state, part) if reading.recompute else compute(state, part)
