"""The memory of a layer: a small network whose weights are changed by what it reads.

f_W(x) = W1 [SiLU(W0 x) ∘ (W2 x)], or f_W(x) = W1 x in the linear variant, and the loss of a token is
-f_W(k)·v. Products with W0 and W2 are joined into one; Newton–Schulz is not, since the joint one is another step.

Axes: B sequences times heads, l tokens, d channels of keys, h hidden units, o channels of values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeVar, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from assay.core.errors import InputError
from assay.lact.orthogonal import Coefficients, check_coefficients, newton_schulz

__all__ = [
    "FastState",
    "FastWeights",
    "Rule",
    "accumulate",
    "close",
    "fast_weight_apply",
    "fast_weight_grads",
    "fast_weight_update",
    "start",
]

Rule = Literal["gd", "momentum", "muon", "muon_momentum"]

ROW_NORM_FLOOR = 1e-5
"""Added to the norm of a row before dividing by it."""
BLOCK_NUMBERS, SHORTEST_BLOCK = 2**18, 128
"""So many activations, of at least so many tokens, are computed at a time where no gradient is needed: what a block
makes stays in the cache."""

T = TypeVar("T")


class FastWeights(NamedTuple):
    """The matrices of a memory, or anything that there is one of for each: gradients, momenta, row norms.

    Parameters
    ----------
    w0 : Tensor, shape (B, h, d), or None in the linear variant
    w1 : Tensor, shape (B, o, h), or (B, o, d) in the linear variant
    w2 : Tensor, shape (B, h, d), or None in the linear variant

    Examples
    --------
    >>> weights = FastWeights(torch.zeros(1, 8, 4), torch.zeros(1, 4, 8), torch.zeros(1, 8, 4))
    >>> weights.nbytes
    384
    """

    w0: Tensor | None
    w1: Tensor
    w2: Tensor | None

    def map(self, change: Callable[..., Tensor], *others: FastWeights) -> FastWeights:
        """`change` of every matrix, together with those of `others`."""
        return FastWeights(
            *(
                None if matrix is None else change(matrix, *(other[index] for other in others))
                for index, matrix in enumerate(self)
            )  # type: ignore[arg-type]
        )

    @property
    def nbytes(self) -> int:
        """Bytes of all matrices."""
        return sum(matrix.nbytes for matrix in self if matrix is not None)


class FastState(NamedTuple):
    """What a memory holds between two calls; its size depends neither on the length read nor on the chunk.

    Parameters
    ----------
    weights : FastWeights
        What is applied: the rows have their initial norms.
    norms : FastWeights
        The initial norms of the rows, (B, rows, 1) each.
    main : FastWeights or None
        The sum of all steps, which is normalised into `weights`; only with `prenorm`.
    momentum : FastWeights or None
        Only for the rules with momentum.
    pending : FastWeights
        The gradients of the open chunk, summed.
    beta_sum : Tensor, shape (B,)
        The momentum's rates of the open chunk, summed.
    filled : Tensor of int64 on the CPU, shape (B,)
        Tokens in the open chunk.

    Examples
    --------
    >>> state = start(FastWeights(None, torch.ones(1, 2, 3), None), rule="gd")
    >>> state.norms.w1.flatten().tolist(), state.filled.tolist()
    ([1.7320507764816284, 1.7320507764816284], [0])
    """

    weights: FastWeights
    norms: FastWeights
    main: FastWeights | None
    momentum: FastWeights | None
    pending: FastWeights
    beta_sum: Tensor
    filled: Tensor

    def map(self, change: Callable[[Tensor], Tensor]) -> FastState:
        """`change` of every tensor."""
        return FastState(*(_map(field, change) for field in self))  # type: ignore[arg-type]

    def detach(self) -> FastState:
        """The same, cut from the graph."""
        return self.map(Tensor.detach)

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        sizes: list[int] = []

        def add(tensor: Tensor) -> Tensor:
            sizes.append(tensor.nbytes)
            return tensor

        self.map(add)
        return sum(sizes)


def _map(field: FastWeights | Tensor | None, change: Callable[[Tensor], Tensor]) -> FastWeights | Tensor | None:
    if isinstance(field, FastWeights):
        return field.map(change)
    return None if field is None else change(field)


def start(w_init: FastWeights, *, rule: Rule = "muon", prenorm: bool = False, detach_norm: bool = False) -> FastState:
    """The state before anything was read.

    Parameters
    ----------
    w_init : FastWeights
        The initial weights, one set a row of the batch.
    rule : {"gd", "momentum", "muon", "muon_momentum"}
        How the weights are changed.
    prenorm : bool
        Whether an un-normalised copy gathers the steps.
    detach_norm : bool
        Whether no gradient flows through the initial norms (the view code cuts it, the language code doesn't).

    Returns
    -------
    FastState

    Raises
    ------
    InputError
        Unknown rule, or matrices whose shapes don't fit each other.

    Examples
    --------
    >>> state = start(FastWeights(None, torch.ones(1, 2, 3), None), rule="muon_momentum")
    >>> state.momentum.w1.any().item()
    False
    """
    check_rule(rule)
    _check_weights(w_init)

    def row_norm(matrix: Tensor) -> Tensor:
        return _row_norm(matrix.detach() if detach_norm else matrix)

    zeros = w_init.map(_zeros)
    rows = w_init.w1.shape[0]
    return FastState(
        weights=w_init,
        norms=w_init.map(row_norm),
        main=w_init if prenorm else None,
        momentum=zeros if has_momentum(rule) else None,
        pending=zeros,
        beta_sum=torch.zeros(rows, dtype=w_init.w1.dtype, device=w_init.w1.device),
        filled=torch.zeros(rows, dtype=torch.int64),
    )


def has_momentum(rule: Rule) -> bool:
    """Whether the rule keeps a momentum."""
    return rule in ("momentum", "muon_momentum")


def check_rule(rule: str) -> None:
    """Refuse an unknown rule.

    Raises
    ------
    InputError
        `rule` is unknown.
    """
    if rule not in get_args(Rule):
        raise InputError(f"rule is {rule!r}", expected=f"one of: {', '.join(get_args(Rule))}")


def fast_weight_apply(weights: FastWeights, q: Tensor) -> Tensor:
    """What the memory answers: f_W(q).

    Parameters
    ----------
    weights : FastWeights
    q : Tensor, shape (B, l, d)
        The queries.

    Returns
    -------
    Tensor, shape (B, l, o), of the dtype of `q`

    Examples
    --------
    >>> linear = FastWeights(None, 2 * torch.eye(3)[None], None)
    >>> fast_weight_apply(linear, torch.ones(1, 1, 3)).tolist()
    [[[2.0, 2.0, 2.0]]]
    """
    w0, w1, w2 = _as(weights, q.dtype)
    if w0 is None or w2 is None:
        return q @ w1.mT
    if needs_graph(q, w0, w1, w2):
        gate, up = _gate_and_up(w0, w2, q)
        return (F.silu(gate) * up) @ w1.mT
    answers = q.new_empty(*q.shape[:2], w1.shape[1])
    _apply_in_place(torch.cat((w0, w2), 1), w1, q, answers)
    return answers


def apply_into(weights: FastWeights, q: Tensor, answers: Tensor) -> None:
    """`fast_weight_apply` of an SwiGLU memory, written into given memory; no gradient flows."""
    w0, w1, w2 = _as(weights, q.dtype)
    assert w0 is not None and w2 is not None
    _apply_in_place(torch.cat((w0, w2), 1), w1, q, answers)


def fast_weight_grads(weights: FastWeights, k: Tensor, v: Tensor, lr: Tensor) -> FastWeights:
    """The directions in which the summed loss of the tokens falls fastest.

    Parameters
    ----------
    weights : FastWeights
    k : Tensor, shape (B, l, d)
        The keys.
    v : Tensor, shape (B, l, o)
        The values.
    lr : Tensor, shape (B, l, 3)
        A rate a token for each of W0, W1, W2; the linear variant takes the second.

    Returns
    -------
    FastWeights
        To be added to the weights. Their dtype is that of `weights`.

    Examples
    --------
    >>> linear = FastWeights(None, torch.zeros(1, 2, 2), None)
    >>> k, v = torch.tensor([[[1.0, 0.0]]]), torch.tensor([[[3.0, 4.0]]])
    >>> fast_weight_grads(linear, k, v, torch.full((1, 1, 3), 0.5)).w1.tolist()
    [[[1.5, 0.0], [2.0, 0.0]]]
    """
    w0, w1, w2 = _as(weights, k.dtype)
    lr = lr.to(k.dtype)
    kind = weights.w1.dtype
    if w0 is None or w2 is None:
        return FastWeights(None, ((v * lr[..., 1:2]).mT @ k).to(kind), None)
    hidden = w1.shape[2]
    if needs_graph(k, v, lr, w0, w1, w2):
        gate, up = _gate_and_up(w0, w2, k)
        back = v @ w1
        squash = torch.sigmoid(gate)
        silu = gate * squash
        g1 = (v * lr[..., 1:2]).mT @ (silu * up)
        to_gate = back * up * (squash + silu * (1 - squash)) * lr[..., 0:1]
        g02 = torch.cat((to_gate, back * silu * lr[..., 2:3]), -1).mT @ k
    else:
        g02, g1 = _grads_in_place(torch.cat((w0, w2), 1), w1, k, v, lr)
    return FastWeights(g02[:, :hidden].to(kind), g1.to(kind), g02[:, hidden:].to(kind))


def fast_weight_update(
    state: FastState,
    k: Tensor,
    v: Tensor,
    lr: Tensor,
    *,
    momentum: Tensor | None = None,
    rule: Rule = "muon",
    ns: Coefficients = "keller",
    prenorm: bool = False,
    weight_norm: bool = True,
) -> FastState:
    """Read tokens as one chunk, together with those that an open chunk already holds.

    Parameters
    ----------
    state : FastState
        From `start` or an earlier call, with the same `rule` and `prenorm`.
    k : Tensor, shape (B, l, d)
    v : Tensor, shape (B, l, o)
    lr : Tensor, shape (B, l, 3)
    momentum : Tensor, shape (B, l), optional
        Between 0 and 1: its mean over the chunk is the share of the momentum that is kept.
    rule : {"gd", "momentum", "muon", "muon_momentum"}
    ns : {"keller", "tuned"}
        Coefficients of Newton–Schulz.
    prenorm : bool
        Whether the un-normalised copy gathers the steps.
    weight_norm : bool
        Whether the rows keep their initial norms.

    Returns
    -------
    FastState

    Examples
    --------
    >>> state = start(FastWeights(None, torch.eye(2)[None], None), rule="gd")
    >>> k, v = torch.tensor([[[1.0, 0.0]]]), torch.tensor([[[0.0, 1.0]]])
    >>> after = fast_weight_update(state, k, v, torch.ones(1, 1, 3), rule="gd")
    >>> after.weights.w1[0, 1]  # its row turns towards the key and keeps its norm
    tensor([0.7071, 0.7071])
    """
    state = accumulate(state, k, v, lr, momentum=momentum)
    return close(state, rule=rule, ns=ns, weight_norm=weight_norm)


def accumulate(
    state: FastState,
    k: Tensor,
    v: Tensor,
    lr: Tensor,
    *,
    momentum: Tensor | None = None,
    counts: Tensor | None = None,
) -> FastState:
    """Add tokens to the open chunk. The weights stay as they are.

    Parameters
    ----------
    state : FastState
    k, v, lr, momentum : Tensor
        As for `fast_weight_update`; tokens that don't count have zero rates, of the momentum too.
    counts : Tensor of int64, shape (B,), optional
        How many of the tokens count in each row; all when left out.
    """
    grads = fast_weight_grads(state.weights, k, v, lr)
    nothing_open = not bool(state.filled.any())
    pending = grads if nothing_open else state.pending.map(torch.add, grads)
    beta_sum = state.beta_sum
    if momentum is not None:
        beta_sum = beta_sum + momentum.sum(-1).to(beta_sum.dtype)
    filled = state.filled + (k.shape[1] if counts is None else counts)
    return state._replace(pending=pending, beta_sum=beta_sum, filled=filled)


def close(
    state: FastState,
    *,
    rule: Rule,
    ns: Coefficients = "keller",
    weight_norm: bool = True,
    rows: Tensor | None = None,
    reduce: Callable[[FastState], FastState] | None = None,
) -> FastState:
    """Take the step of the open chunk.

    Parameters
    ----------
    state : FastState
    rule, ns, weight_norm
        As for `fast_weight_update`.
    rows : Tensor of bool on the CPU, shape (B,), optional
        The rows that are closed; all when left out.
    reduce : callable, optional
        Brings together `pending`, `beta_sum` and `filled` of processes that each read a part of the chunk.
    """
    check_rule(rule)
    if rule.startswith("muon"):
        check_coefficients(ns)
    before, state = state, state if reduce is None else reduce(state)
    if rows is None and bool((state.filled == 0).any()):
        rows = state.filled > 0
    if rows is not None and not bool(rows.any()):
        return before
    gathered, momentum = state.pending, None
    if state.momentum is not None:
        mean = state.beta_sum / state.filled.clamp(min=1).to(state.beta_sum)
        share = mean[:, None, None]
        gathered = momentum = state.momentum.map(lambda M, G: share * M + G, gathered)
    step = gathered.map(lambda G: newton_schulz(G, coefficients=ns)) if rule.startswith("muon") else gathered
    main = (state.weights if state.main is None else state.main).map(torch.add, step)
    weights = main.map(_with_row_norm, state.norms) if weight_norm else main
    after = state._replace(
        weights=weights,
        main=None if state.main is None else main,
        momentum=momentum,
        pending=state.pending.map(_zeros),
        beta_sum=torch.zeros_like(state.beta_sum),
        filled=torch.zeros_like(state.filled),
    )
    if rows is None or bool(rows.all()):
        return after
    return _where(rows, after, before)


def _where(rows: Tensor, new: FastState, old: FastState) -> FastState:
    def choose(ours: FastWeights | Tensor | None, theirs: FastWeights | Tensor | None) -> FastWeights | Tensor | None:
        if isinstance(ours, FastWeights) and isinstance(theirs, FastWeights):
            return ours.map(lambda a, b: torch.where(rows.to(a.device)[:, None, None], a, b), theirs)
        if isinstance(ours, Tensor) and isinstance(theirs, Tensor):
            return torch.where(rows.to(ours.device), ours, theirs)
        return None

    return FastState(*(choose(ours, theirs) for ours, theirs in zip(new, old, strict=True)))  # type: ignore[arg-type]


def _apply_in_place(joint: Tensor, w1: Tensor, q: Tensor, answers: Tensor) -> None:
    rows, hidden = w1.shape[0], w1.shape[2]
    size = _block_size(rows, hidden, q.shape[1])
    activations = q.new_empty(rows, size, 2 * hidden)
    for begin in range(0, q.shape[1], size):
        queries = q[:, begin : begin + size]
        both = activations[:, : queries.shape[1]]
        torch.bmm(queries, joint.mT, out=both)
        gate, up = both[..., :hidden], both[..., hidden:]
        torch.bmm(F.silu(gate, inplace=True).mul_(up), w1.mT, out=answers[:, begin : begin + size])


def _grads_in_place(joint: Tensor, w1: Tensor, k: Tensor, v: Tensor, lr: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of W0 above W2, and of W1, block by block, each block in the memory of its own activations."""
    rows, hidden = w1.shape[0], w1.shape[2]
    g02 = k.new_zeros(rows, 2 * hidden, k.shape[-1])
    g1 = k.new_zeros(rows, w1.shape[1], hidden)
    size = _block_size(rows, hidden, k.shape[1])
    activations = k.new_empty(rows, size, 2 * hidden)
    backs, silus, products = (k.new_empty(rows, size, hidden) for _ in range(3))
    weighted = k.new_empty(rows, size, v.shape[2])
    for begin in range(0, k.shape[1], size):
        block = slice(begin, begin + size)
        keys, values, rates = k[:, block], v[:, block], lr[:, block]
        count = keys.shape[1]
        both, back, silu, product, scaled = (one[:, :count] for one in (activations, backs, silus, products, weighted))
        gate, up = both[..., :hidden], both[..., hidden:]
        torch.bmm(keys, joint.mT, out=both)
        torch.bmm(values, w1, out=back)
        torch.ops.aten.silu.out(gate, out=silu)
        torch.mul(values, rates[..., 1:2], out=scaled)
        g1.baddbmm_(scaled.mT, torch.mul(silu, up, out=product))
        torch.ops.aten.silu_backward.grad_input(up.mul_(back).mul_(rates[..., 0:1]), gate, grad_input=gate)
        torch.mul(back.mul_(rates[..., 2:3]), silu, out=up)
        g02.baddbmm_(both.mT, keys)
    return g02, g1


def _zeros(matrix: Tensor) -> Tensor:
    """Zeros that take no memory until something is added."""
    return matrix.new_zeros(()).expand(matrix.shape)


def _gate_and_up(w0: Tensor, w2: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    gate, up = (x @ torch.cat((w0, w2), 1).mT).chunk(2, -1)
    return gate, up


def _block_size(rows: int, hidden: int, length: int) -> int:
    return min(length, max(SHORTEST_BLOCK, BLOCK_NUMBERS // (2 * hidden * rows)))


def needs_graph(*tensors: Tensor | None) -> bool:
    """Whether a gradient may be asked of what is computed from these."""
    return torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)


def _as(weights: FastWeights, kind: torch.dtype) -> FastWeights:
    return weights if weights.w1.dtype == kind else weights.map(lambda matrix: matrix.to(kind))


def _row_norm(matrix: Tensor) -> Tensor:
    """The norms over the input axis, with the gradient 0 at a zero row."""
    norm: Tensor
    if not needs_graph(matrix):
        norm = torch.linalg.vector_norm(matrix, dim=-1, keepdim=True)
        return norm
    squares = matrix.square().sum(-1, keepdim=True)
    zero = squares == 0
    norm = torch.where(zero, 0.0, torch.where(zero, 1.0, squares).sqrt())
    return norm


def _with_row_norm(matrix: Tensor, norm: Tensor) -> Tensor:
    scaled: Tensor = matrix * (norm / (_row_norm(matrix) + ROW_NORM_FLOOR))
    return scaled


def _check_weights(weights: FastWeights) -> None:
    w0, w1, w2 = weights
    if (w0 is None) != (w2 is None):
        raise InputError("w0 and w2 of the fast weights", expected="both, or neither for the linear variant")
    if w1.ndim != 3:
        raise InputError(f"w1 has the shape {tuple(w1.shape)}", expected="(B, o, h)")
    if w0 is None or w2 is None:
        return
    if w0.shape != w2.shape or w0.ndim != 3 or w0.shape[:2] != (w1.shape[0], w1.shape[2]):
        shapes = ", ".join(str(tuple(matrix.shape)) for matrix in (w0, w1, w2))
        raise InputError(f"w0, w1, w2 have the shapes {shapes}", expected="(B, h, d), (B, o, h), (B, h, d)")
