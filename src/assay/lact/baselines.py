"""The memories that a large-chunk memory is compared with: linear attention, gated linear attention, Mamba-2 in its
simplified form, and the delta rule. Each as a chunked form over matrices; the state S is a (value, key) matrix.

Axes: B batch times heads, L tokens, K channels of keys, V channels of values, C the chunk.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.core.errors import InputError

__all__ = ["RecurrentMemory", "delta_rule", "gated_linear_attention", "linear_attention", "mamba2"]

CHUNK = 32
GATE_TEMPERATURE = 16.0
"""The forget gate of gated linear attention is a sigmoid to the power 1/16: it begins near one."""
DELTA_SHIFT = -4.6
"""What Mamba-2's step is shifted by before the softplus, which makes it 0.01 at the start."""
LOW_RANK = 16
"""Of the forget gate's projection."""


def linear_attention(
    q_BLK: Tensor, k_BLK: Tensor, v_BLV: Tensor, *, state_BVK: Tensor | None = None, chunk: int = CHUNK
) -> tuple[Tensor, Tensor]:
    """``S_t = S_{t-1} + v_t k_t^T``, ``o_t = S_t q_t``.

    Parameters
    ----------
    q_BLK, k_BLK : Tensor, shape (B, L, K)
    v_BLV : Tensor, shape (B, L, V)
    state_BVK : Tensor, shape (B, V, K), optional
        What was seen before.
    chunk : int
        Tokens that are treated at once; the result doesn't depend on it.

    Returns
    -------
    out : Tensor, shape (B, L, V)
    state : Tensor, shape (B, V, K)

    Examples
    --------
    >>> import torch
    >>> out, state = linear_attention(torch.ones(1, 3, 1), torch.ones(1, 3, 1), torch.ones(1, 3, 1))
    >>> out.flatten().tolist()
    [1.0, 2.0, 3.0]
    """
    return mamba2(q_BLK, k_BLK, v_BLV, torch.zeros_like(q_BLK[..., 0]), state_BVK=state_BVK, chunk=chunk)


def mamba2(
    q_BLK: Tensor,
    k_BLK: Tensor,
    v_BLV: Tensor,
    log_decay_BL: Tensor,
    *,
    state_BVK: Tensor | None = None,
    chunk: int = CHUNK,
) -> tuple[Tensor, Tensor]:
    """``S_t = exp(a_t) S_{t-1} + v_t k_t^T``, ``o_t = S_t q_t``: one forget gate a head and token.

    Mamba-2 in the paper's simplified form has ``a = -delta`` and keys multiplied by delta.

    Parameters
    ----------
    q_BLK, k_BLK : Tensor, shape (B, L, K)
    v_BLV : Tensor, shape (B, L, V)
    log_decay_BL : Tensor, shape (B, L)
        a, at most 0.
    state_BVK : Tensor, shape (B, V, K), optional
        What was seen before.
    chunk : int
        Tokens that are treated at once; the result doesn't depend on it.

    Returns
    -------
    out : Tensor, shape (B, L, V)
    state : Tensor, shape (B, V, K)

    Examples
    --------
    >>> import torch
    >>> one = torch.ones(1, 3, 1)
    >>> out, _ = mamba2(one, one, one, torch.full((1, 3), 0.5).log())
    >>> [round(value, 6) for value in out.flatten().tolist()]
    [1.0, 1.5, 1.75]
    """
    state = _start(q_BLK, v_BLV, state_BVK)
    outs = []
    for q, k, v, decay in zip(*(x.split(chunk, dim=1) for x in (q_BLK, k_BLK, v_BLV, log_decay_BL)), strict=True):
        total = decay.cumsum(1)
        difference = total[:, :, None] - total[:, None, :]
        causal = torch.ones_like(difference, dtype=torch.bool).tril()
        weights = difference.masked_fill(~causal, -math.inf).exp() * (q @ k.mT)
        outs.append(weights @ v + (q * total.exp()[..., None]) @ state.mT)
        left = (total[:, -1:] - total).exp()[..., None]
        state = state * total[:, -1, None, None].exp() + v.mT @ (k * left)
    return _joined(outs, v_BLV), state


def gated_linear_attention(
    q_BLK: Tensor,
    k_BLK: Tensor,
    v_BLV: Tensor,
    log_decay_BLK: Tensor,
    *,
    state_BVK: Tensor | None = None,
    chunk: int = CHUNK,
) -> tuple[Tensor, Tensor]:
    """``S_t = S_{t-1} diag(exp(a_t)) + v_t k_t^T``, ``o_t = S_t q_t``: a forget gate a key channel.

    Parameters
    ----------
    q_BLK, k_BLK : Tensor, shape (B, L, K)
    v_BLV : Tensor, shape (B, L, V)
    log_decay_BLK : Tensor, shape (B, L, K)
        a, at most 0. What decays by more than exp(-80) within a chunk leaves float32: take a smaller chunk.
    state_BVK : Tensor, shape (B, V, K), optional
        What was seen before.
    chunk : int
        Tokens that are treated at once; the result doesn't depend on it.

    Returns
    -------
    out : Tensor, shape (B, L, V)
    state : Tensor, shape (B, V, K)

    Examples
    --------
    >>> import torch
    >>> one = torch.ones(1, 3, 1)
    >>> out, _ = gated_linear_attention(one, one, one, torch.log(one / 2))
    >>> [round(value, 6) for value in out.flatten().tolist()]
    [1.0, 1.5, 1.75]
    """
    state = _start(q_BLK, v_BLV, state_BVK)
    outs = []
    for q, k, v, decay in zip(*(x.split(chunk, dim=1) for x in (q_BLK, k_BLK, v_BLV, log_decay_BLK)), strict=True):
        total = decay.cumsum(1)
        q_decayed = q * total.exp()
        scores = (q_decayed @ (k * (-total).exp()).mT).tril()
        outs.append(scores @ v + q_decayed @ state.mT)
        state = state * total[:, -1:].exp() + v.mT @ (k * (total[:, -1:] - total).exp())
    return _joined(outs, v_BLV), state


def delta_rule(
    q_BLK: Tensor,
    k_BLK: Tensor,
    v_BLV: Tensor,
    beta_BL: Tensor,
    *,
    state_BVK: Tensor | None = None,
    chunk: int = CHUNK,
) -> tuple[Tensor, Tensor]:
    """``S_t = S_{t-1} (I - beta_t k_t k_t^T) + beta_t v_t k_t^T``, ``o_t = S_t q_t``.

    The product of the Householder-like factors of a chunk is written in the WY form (Bischof and Van Loan 1987), which
    takes one triangular solve.

    Parameters
    ----------
    q_BLK, k_BLK : Tensor, shape (B, L, K)
        Keys of length one.
    v_BLV : Tensor, shape (B, L, V)
    beta_BL : Tensor, shape (B, L)
        The share of what a key holds that is replaced, in [0, 1].
    state_BVK : Tensor, shape (B, V, K), optional
        What was seen before.
    chunk : int
        Tokens that are treated at once; the result doesn't depend on it.

    Returns
    -------
    out : Tensor, shape (B, L, V)
    state : Tensor, shape (B, V, K)

    Examples
    --------
    >>> import torch
    >>> key, values = torch.ones(1, 2, 1), torch.tensor([[[3.0], [5.0]]])
    >>> delta_rule(key, key, values, torch.ones(1, 2))[0].flatten().tolist()
    [3.0, 5.0]
    """
    state = _start(q_BLK, v_BLV, state_BVK)
    outs = []
    for q, k, v, beta in zip(*(x.split(chunk, dim=1) for x in (q_BLK, k_BLK, v_BLV, beta_BL)), strict=True):
        k_beta = k * beta[..., None]
        # (I + tril(diag(beta) K K^T, -1)) R = diag(beta) (V - K S^T): R are the values that are really written.
        written = torch.linalg.solve_triangular(
            (k_beta @ k.mT).tril(-1), beta[..., None] * v - k_beta @ state.mT, upper=False, unitriangular=True
        )
        outs.append(q @ state.mT + (q @ k.mT).tril() @ written)
        state = state + written.mT @ k
    return _joined(outs, v_BLV), state


def _start(q: Tensor, v: Tensor, state: Tensor | None) -> Tensor:
    return q.new_zeros(len(q), v.shape[-1], q.shape[-1]) if state is None else state


def _joined(outs: list[Tensor], v: Tensor) -> Tensor:
    return torch.cat(outs, dim=1) if outs else v


MemoryKind = Literal["linear", "gla", "deltanet", "mamba2"]
MEMORIES: tuple[MemoryKind, ...] = ("linear", "gla", "deltanet", "mamba2")


class RecurrentMemory(nn.Module):
    """One of the memories with its gates, from a layer's queries, keys and values.

    Parameters
    ----------
    kind : str
        ``linear``, ``gla``, ``deltanet`` or ``mamba2``.
    dim : int
        The width.
    num_heads : int
        Heads; each keeps a (dim / heads) x (dim / heads) matrix.
    chunk : int
        Tokens that are treated at once.

    Raises
    ------
    InputError
        An unknown kind.

    Examples
    --------
    >>> import torch
    >>> memory = RecurrentMemory("deltanet", 8, 2)
    >>> x = torch.randn(1, 5, 8)
    >>> out, state = memory(x, x, x, x)
    >>> out.shape, state.shape
    (torch.Size([1, 5, 8]), torch.Size([2, 4, 4]))
    """

    def __init__(self, kind: str, dim: int, num_heads: int, *, chunk: int = CHUNK) -> None:
        super().__init__()
        if kind not in MEMORIES:
            raise InputError(f"kind is {kind!r}", expected=f"one of: {', '.join(MEMORIES)}")
        self.kind, self.num_heads, self.chunk = kind, num_heads, chunk
        self.gate: nn.Module | None = None
        if kind == "gla":
            self.gate = nn.Sequential(nn.Linear(dim, LOW_RANK, bias=False), nn.Linear(LOW_RANK, dim))
        elif kind != "linear":
            self.gate = nn.Linear(dim, num_heads)

    def forward(
        self,
        x_BLD: Tensor,
        q_BLD: Tensor,
        k_BLD: Tensor,
        v_BLD: Tensor,
        *,
        mask_BL: Tensor | None = None,
        state: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """What the memory holds at each token, the own one included.

        Parameters
        ----------
        x_BLD : Tensor, shape (B, L, dim)
            What the gates are made of.
        q_BLD, k_BLD, v_BLD : Tensor, shape (B, L, dim)
            Activated and normalised already.
        mask_BL : Tensor of bool, shape (B, L), optional
            Real tokens; the others neither write nor let anything decay.
        state : Tensor, shape (B * heads, dim / heads, dim / heads), optional
            What was seen before.

        Returns
        -------
        out : Tensor, shape (B, L, dim)
        state : Tensor
        """
        q, k, v = (self._split(x) for x in (q_BLD, k_BLD, v_BLD))
        real = None if mask_BL is None else mask_BL.repeat_interleave(self.num_heads, dim=0)
        if real is not None:
            k = k * real[..., None]
        if self.gate is None:
            out, state = linear_attention(q, k, v, state_BVK=state, chunk=self.chunk)
            return self._merge(out), state
        gate = self._split(self.gate(x_BLD))
        if self.kind == "gla":
            decay = functional.logsigmoid(gate) / GATE_TEMPERATURE
            decay = decay if real is None else decay * real[..., None]
            out, state = gated_linear_attention(q, k, v, decay, state_BVK=state, chunk=self.chunk)
        elif self.kind == "mamba2":
            delta = functional.softplus(gate[..., 0] + DELTA_SHIFT)
            delta = delta if real is None else delta * real
            out, state = mamba2(q, k * delta[..., None], v, -delta, state_BVK=state, chunk=self.chunk)
        else:
            out, state = delta_rule(q, k, v, gate[..., 0].sigmoid(), state_BVK=state, chunk=self.chunk)
        return self._merge(out), state

    def _split(self, x_BLD: Tensor) -> Tensor:
        heads: Tensor = x_BLD.unflatten(-1, (self.num_heads, -1))
        return heads.transpose(1, 2).flatten(0, 1)

    def _merge(self, x: Tensor) -> Tensor:
        rows: Tensor = x.unflatten(0, (-1, self.num_heads))
        return rows.transpose(1, 2).flatten(2)
