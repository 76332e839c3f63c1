"""The layer's mathematics without parameters: queries, keys, values and rates in, answers and a state out."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Literal, overload

import torch
from torch import Tensor

from assay.core.errors import InputError
from assay.lact.fast_weights import (
    FastState,
    FastWeights,
    Rule,
    accumulate,
    check_rule,
    fast_weight_apply,
    has_momentum,
    start,
)
from assay.lact.orthogonal import Coefficients, check_coefficients
from assay.lact.plans import Mode, Plan, Segment, check_chunk_size, check_mode
from assay.lact.recompute import recomputed
from assay.lact.streaming import Piece, Reading, feed

__all__ = ["Answers", "lact"]

Answers = Tensor | tuple[Tensor, FastState]


@overload
def lact(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lr: Tensor,
    w_init: FastWeights | None,
    *,
    plan: Plan | None = ...,
    mode: Mode = ...,
    chunk_size: int = ...,
    rule: Rule = ...,
    momentum: Tensor | None = ...,
    prenorm: bool = ...,
    ns: Coefficients = ...,
    weight_norm: bool = ...,
    detach_norm: bool = ...,
    cu_seqlens: Tensor | None = ...,
    mask: Tensor | None = ...,
    state: FastState | None = ...,
    return_state: Literal[False] = ...,
    recompute: bool = ...,
    reduce: Callable[[FastState], FastState] | None = ...,
) -> Tensor: ...


@overload
def lact(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lr: Tensor,
    w_init: FastWeights | None,
    *,
    plan: Plan | None = ...,
    mode: Mode = ...,
    chunk_size: int = ...,
    rule: Rule = ...,
    momentum: Tensor | None = ...,
    prenorm: bool = ...,
    ns: Coefficients = ...,
    weight_norm: bool = ...,
    detach_norm: bool = ...,
    cu_seqlens: Tensor | None = ...,
    mask: Tensor | None = ...,
    state: FastState | None = ...,
    return_state: Literal[True],
    recompute: bool = ...,
    reduce: Callable[[FastState], FastState] | None = ...,
) -> tuple[Tensor, FastState]: ...


@overload
def lact(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lr: Tensor,
    w_init: FastWeights | None,
    *,
    plan: Plan | None = ...,
    mode: Mode = ...,
    chunk_size: int = ...,
    rule: Rule = ...,
    momentum: Tensor | None = ...,
    prenorm: bool = ...,
    ns: Coefficients = ...,
    weight_norm: bool = ...,
    detach_norm: bool = ...,
    cu_seqlens: Tensor | None = ...,
    mask: Tensor | None = ...,
    state: FastState | None = ...,
    return_state: bool,
    recompute: bool = ...,
    reduce: Callable[[FastState], FastState] | None = ...,
) -> Answers: ...


def lact(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lr: Tensor,
    w_init: FastWeights | None,
    *,
    plan: Plan | None = None,
    mode: Mode = "shifted",
    chunk_size: int = 2048,
    rule: Rule = "muon",
    momentum: Tensor | None = None,
    prenorm: bool = False,
    ns: Coefficients = "keller",
    weight_norm: bool = True,
    detach_norm: bool = False,
    cu_seqlens: Tensor | None = None,
    mask: Tensor | None = None,
    state: FastState | None = None,
    return_state: bool = False,
    recompute: bool = False,
    reduce: Callable[[FastState], FastState] | None = None,
) -> Answers:
    """Read a sequence into fast weights, chunk by chunk, and answer its queries from them.

    Parameters
    ----------
    q, k : Tensor, shape (B, l, d)
        Queries and keys, heads folded into the batch.
    v : Tensor, shape (B, l, o)
        Values.
    lr : Tensor, shape (B, l, 3)
        Rates of W0, W1, W2 a token, none negative.
    w_init : FastWeights
        The initial weights, one set a row of the batch; may be None when a `state` is given.
    plan : Plan, optional
        Which tokens change the memory and which ask it. Tokens that don't ask get zeros.
    mode : {"shifted", "block", "full"}
        The plan, where none is given.
    chunk_size : int
        Tokens a step in the modes ``shifted`` and ``block``.
    rule : {"gd", "momentum", "muon", "muon_momentum"}
        The step: the gradient, or its Newton–Schulz, of the chunk alone or with a momentum.
    momentum : Tensor, shape (B, l), optional
        For the rules with momentum, a share between 0 and 1 a token.
    prenorm : bool
        Gather the steps in an un-normalised copy.
    ns : {"keller", "tuned"}
        Coefficients of Newton–Schulz.
    weight_norm : bool
        Give each row its initial norm back after a step.
    detach_norm : bool
        Let no gradient through the initial norms.
    cu_seqlens : Tensor of int, shape (documents + 1,), optional
        Where documents that share a row begin, and the end: the memory starts anew with each.
    mask : Tensor of bool, shape (B, l), optional
        True where a token counts. Others change nothing, don't count towards a chunk, and get zeros.
    state : FastState, optional
        From an earlier call with the same settings.
    return_state : bool
        Return the state too.
    recompute : bool
        Compute each chunk a second time in the backward pass instead of keeping what it computed.
    reduce : callable, optional
        Brings together the sums of processes that share a chunk; see `assay.lact.parallel`.

    Returns
    -------
    answers : Tensor, shape (B, l, o)
    state : FastState
        Only with `return_state`.

    Raises
    ------
    InputError
        Shapes that don't fit, rates that are negative or not numbers, a chunk size below 1, a plan that reaches
        beyond the sequence, a mask without a single token, a state of other shapes, dtype or device.

    Examples
    --------
    >>> g = torch.Generator().manual_seed(0)
    >>> q, k, v = torch.randn(3, 1, 10, 4, generator=g)
    >>> W = FastWeights(*torch.randn(3, 1, 4, 4, generator=g))
    >>> rates = torch.full((1, 10, 3), 0.1)
    >>> whole = lact(q, k, v, rates, W, chunk_size=4)
    >>> first, state = lact(q[:, :7], k[:, :7], v[:, :7], rates[:, :7], W, chunk_size=4, return_state=True)
    >>> rest = lact(q[:, 7:], k[:, 7:], v[:, 7:], rates[:, 7:], W, chunk_size=4, state=state)
    >>> torch.allclose(whole, torch.cat((first, rest), 1), atol=1e-5)
    True
    """
    reading = Reading(chunk_size, rule, ns, weight_norm, recompute, reduce)
    piece = Piece(q, k, v, lr, momentum)
    _check_settings(reading, mode=None if plan is not None else mode)
    _check_piece(piece, rule)
    if state is None:
        if w_init is None:
            raise InputError("neither w_init nor state is given", expected="one of the two")
        state = start(w_init, rule=rule, prenorm=prenorm, detach_norm=detach_norm)
    _check_state(state, piece, rule=rule, prenorm=prenorm)
    if cu_seqlens is not None:
        if plan is not None or mask is not None:
            raise InputError("cu_seqlens together with plan or mask", expected="cu_seqlens alone")
        answers, state = _documents(state, piece, reading, mode, _bounds(cu_seqlens, piece.length), return_state)
    elif piece.length == 0:
        answers = q.new_zeros(q.shape[0], 0, state.weights.w1.shape[1])
    elif plan is not None:
        answers, state = _planned(state, _masked(piece, mask), reading, plan, mask, return_state)
    else:
        answers, state = _in_mode(state, piece, reading, mode, mask, return_state)
    return (answers, state) if return_state else answers


def _in_mode(
    state: FastState, piece: Piece, reading: Reading, mode: Mode, mask: Tensor | None, keep_state: bool
) -> tuple[Tensor, FastState]:
    if mask is None or bool(mask.all()):
        return _uniform(state, piece, reading, mode, None, keep_state)
    _check_mask(mask, piece)
    order = torch.argsort(~mask, dim=1, stable=True)
    together = _masked(piece, mask)
    together = Piece(*(None if field is None else _take(field, order) for field in together))  # type: ignore[arg-type]
    lengths = mask.sum(1).cpu()
    answers, state = _uniform(state, together, reading, mode, lengths, keep_state)
    back = torch.argsort(order, dim=1)
    return _take(answers, back) * mask[..., None].to(answers.dtype), state


def _uniform(
    state: FastState, piece: Piece, reading: Reading, mode: Mode, lengths: Tensor | None, keep_state: bool
) -> tuple[Tensor, FastState]:
    """Rows whose tokens stand at their beginnings."""
    if mode == "shifted":
        return feed(state, piece, reading, lengths=lengths, keep_state=keep_state)
    plan = Plan.of_mode(mode, piece.length, chunk_size=reading.chunk_size)
    counting = None
    if lengths is not None:
        counting = torch.arange(piece.length) < lengths[:, None]
    return _planned(state, piece, reading, plan, counting, keep_state)


def _planned(
    state: FastState, piece: Piece, reading: Reading, plan: Plan, mask: Tensor | None, keep_state: bool
) -> tuple[Tensor, FastState]:
    if plan.length > piece.length:
        raise InputError(f"the plan ends at {plan.length}", expected=f"at most the {piece.length} tokens given")
    if bool((state.filled > 0).any()):
        raise InputError(
            "the state has an open chunk", expected="a closed one (end_of_input), since plans take whole chunks"
        )
    if mask is not None:
        _check_mask(mask, piece)
    answered: list[tuple[Segment, Tensor]] = []
    last_apply = max((index for index, segment in enumerate(plan) if segment.apply), default=-1)
    for index, segment in enumerate(plan):
        part = piece.tokens(segment.start, segment.end)
        counts = None if mask is None else mask[:, segment.start : segment.end].sum(1).cpu()
        needed = keep_state or index < last_apply or (index == last_apply and segment.order == "update_first")

        def compute(
            state: FastState,
            part: Piece,
            segment: Segment = segment,
            counts: Tensor | None = counts,
            needed: bool = needed,
        ) -> tuple[Tensor | None, FastState]:
            answer = None
            if segment.apply and segment.order == "apply_first":
                answer = fast_weight_apply(state.weights, part.q)
            if segment.update and needed:
                state = accumulate(state, part.k, part.v, part.lr, momentum=part.momentum, counts=counts)
                state = reading.close(state)
            if segment.apply and segment.order == "update_first":
                answer = fast_weight_apply(state.weights, part.q)
            return answer, state

        answer, state = recomputed(compute, state, part) if reading.recompute else compute(state, part)
        if answer is not None:
            answered.append((segment, answer))
    answers = _joined(answered, piece, state.weights.w1.shape[1])
    if mask is not None:
        answers = answers * mask[..., None].to(answers)
    return answers, state


def _joined(answered: list[tuple[Segment, Tensor]], piece: Piece, width: int) -> Tensor:
    """Answers in the order of their tokens, with zeros where none was asked for."""
    parts: list[Tensor] = []
    begin = 0

    def gap(end: int) -> None:
        if end > begin:
            parts.append(piece.q.new_zeros(piece.q.shape[0], end - begin, width))

    for segment, answer in sorted(answered, key=lambda one: one[0].start):
        gap(segment.start)
        parts.append(answer)
        begin = segment.end
    gap(piece.length)
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def _documents(
    state: FastState, piece: Piece, reading: Reading, mode: Mode, bounds: list[int], keep_state: bool
) -> tuple[Tensor, FastState]:
    """Each document from the same beginning; the state is that after the last one."""
    answers, after = [], state
    for begin, end in pairwise(bounds):
        if end > begin:
            answer, after = _uniform(state, piece.tokens(begin, end), reading, mode, None, keep_state)
            answers.append(answer)
    return torch.cat(answers, 1), after


def _bounds(cu_seqlens: Tensor, length: int) -> list[int]:
    bounds: list[int] = cu_seqlens.tolist()
    ascending = all(a <= b for a, b in pairwise(bounds))
    if len(bounds) < 2 or bounds[0] != 0 or bounds[-1] != length or not ascending or length == 0:
        raise InputError(f"cu_seqlens is {bounds}", expected=f"ascending from 0 to the length, {length}")
    return bounds


def _masked(piece: Piece, mask: Tensor | None) -> Piece:
    """Rates are zero where a token doesn't count."""
    if mask is None:
        return piece
    lr = piece.lr * mask[..., None].to(piece.lr)
    return piece._replace(lr=lr, momentum=None if piece.momentum is None else piece.momentum * mask.to(piece.momentum))


def _take(field: Tensor, order: Tensor) -> Tensor:
    if field.ndim == 2:
        return field.gather(1, order)
    return field.gather(1, order[..., None].expand(-1, -1, field.shape[-1]))


def _check_settings(reading: Reading, *, mode: Mode | None) -> None:
    check_rule(reading.rule)
    check_coefficients(reading.ns)
    check_chunk_size(reading.chunk_size)
    if mode is not None:
        check_mode(mode)


def _check_piece(piece: Piece, rule: Rule) -> None:
    q, k, v, lr, momentum = piece
    if q.ndim != 3 or k.shape != q.shape or v.ndim != 3 or v.shape[:2] != q.shape[:2]:
        shapes = ", ".join(str(tuple(one.shape)) for one in (q, k, v))
        raise InputError(f"q, k, v have the shapes {shapes}", expected="(B, l, d), (B, l, d), (B, l, o)")
    if lr.shape != (*q.shape[:2], 3):
        raise InputError(f"lr has the shape {tuple(lr.shape)}", expected=str((*q.shape[:2], 3)))
    if lr.numel() and not bool(lr.detach().amin() >= 0):  # a NaN compares as false
        raise InputError("lr has negative rates or NaN", expected="rates of 0 or more")
    if has_momentum(rule) != (momentum is not None):
        expected = "momentum of shape (B, l)" if momentum is None else "a rule with momentum, or none given"
        raise InputError(
            f"rule is {rule!r} and momentum is {'not ' if momentum is None else ''}given", expected=expected
        )
    if momentum is not None and momentum.shape != q.shape[:2]:
        raise InputError(f"momentum has the shape {tuple(momentum.shape)}", expected=str(tuple(q.shape[:2])))


def _check_state(state: FastState, piece: Piece, *, rule: Rule, prenorm: bool) -> None:
    w1 = state.weights.w1
    keys = w1.shape[2] if state.weights.w0 is None else state.weights.w0.shape[2]
    rows, width = piece.q.shape[0], piece.q.shape[2]
    if (w1.shape[0], keys, w1.shape[1]) != (rows, width, piece.v.shape[2]):
        raise InputError(
            f"the fast weights are for {w1.shape[0]} rows, keys of {keys} and values of {w1.shape[1]}",
            expected=f"{rows}, {width} and {piece.v.shape[2]}",
        )
    if w1.device != piece.q.device:
        raise InputError(f"the fast weights are on {w1.device}", expected=f"the device of the input, {piece.q.device}")
    if torch.finfo(w1.dtype).bits < torch.finfo(piece.q.dtype).bits:
        raise InputError(f"the fast weights are {w1.dtype}", expected=f"at least the input's {piece.q.dtype}")
    if has_momentum(rule) != (state.momentum is not None) or prenorm != (state.main is not None):
        raise InputError("the state is of another rule or normalisation", expected=f"rule={rule!r}, prenorm={prenorm}")


def _check_mask(mask: Tensor, piece: Piece) -> None:
    if mask.shape != piece.q.shape[:2] or mask.dtype != torch.bool:
        raise InputError(
            f"mask is {mask.dtype} of shape {tuple(mask.shape)}", expected=f"bool of shape {tuple(piece.q.shape[:2])}"
        )
    if not bool(mask.any()):
        raise InputError("mask is all padding", expected="at least one token that counts")
