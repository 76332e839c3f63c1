"""The plain layer, for sets and sequences, and its parts that other layers use: initial weights, rates, warnings.

Axes: b sequences, l tokens, n heads, d channels of a head.
"""

from __future__ import annotations

import math
import warnings
from typing import Any, Literal, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from assay.core.errors import InputError
from assay.lact.fast_weights import FastState, FastWeights, Rule, check_rule, has_momentum, start
from assay.lact.functional import lact
from assay.lact.orthogonal import Coefficients, check_coefficients
from assay.lact.plans import Mode, Plan, check_chunk_size, check_mode
from assay.lact.state import LaCTState, config_hash
from assay.lact.streaming import Reading, end_of_input

__all__ = [
    "FastNet",
    "InitialFastWeights",
    "LaCT",
    "SmallChunkWarning",
    "TokenRates",
    "inverse_softplus",
    "l2_normalised",
    "muon_pays_from",
    "warn_if_chunk_is_small",
]

FastNet = Literal["swiglu", "linear"]

NORM_FLOOR = 1e-5
LOW_RANK_GAIN, LOW_RANK_IDENTITY = 0.5, 0.5


class SmallChunkWarning(UserWarning):
    """Newton–Schulz takes longer than the tokens of a chunk."""


def muon_pays_from(key_dim: int, hidden: int) -> float:
    """The chunk from which Newton–Schulz takes fewer operations than the tokens of the chunk.

    5 (4 h/d + 2) d³ operations against 18 c d h for c tokens, which is c = 5/3 d for h = d. So the paper counts, for
    one of the three matrices; all three take as long as three times so many tokens.
    """
    short, long = sorted((key_dim, hidden))
    return 5 * (4 * long / short + 2) * short**3 / (18 * key_dim * hidden)


def warn_if_chunk_is_small(rule: Rule, chunk_size: int, *, key_dim: int, hidden: int) -> None:
    """Say that ``muon`` wastes its time on chunks of this size."""
    enough = muon_pays_from(key_dim, hidden)
    if rule.startswith("muon") and chunk_size < enough:
        warnings.warn(
            f"chunks of {chunk_size} tokens: with rule '{rule}' Newton–Schulz takes longer than the tokens below "
            f"{math.ceil(enough)} for heads of {key_dim} with {hidden} hidden units",
            SmallChunkWarning,
            stacklevel=3,
        )


def inverse_softplus(value: float) -> float:
    """The number whose softplus is `value`."""
    return value + math.log(-math.expm1(-value))


def l2_normalised(x: Tensor) -> Tensor:
    """Vectors along the last axis, divided by their norm plus 1e-5."""
    if x.requires_grad and torch.is_grad_enabled():
        squares = x.square().sum(-1, keepdim=True)
        zero = squares == 0
        norm = torch.where(zero, 0.0, torch.where(zero, 1.0, squares).sqrt())
    else:
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x / (norm + NORM_FLOOR)


class TokenRates(nn.Module):
    """The three rates of each token and head: softplus(Linear(x) + c), `base_lr` where the linear part is 0.

    Parameters
    ----------
    dim : int
        Channels of a token.
    heads : int
    base_lr : float
    heads_first : bool
        Whether the projection's outputs are packed head by head (the language code) or rate by rate (the view code).
    """

    def __init__(self, dim: int, heads: int, *, base_lr: float, heads_first: bool = False) -> None:
        super().__init__()
        if not base_lr > 0 or not math.isfinite(base_lr):
            raise InputError(f"base_lr is {base_lr}", expected="a rate above 0")
        self.projection = nn.Linear(dim, 3 * heads)
        self.heads = heads
        self.offset = inverse_softplus(base_lr)
        self.heads_first = heads_first

    def forward(self, x: Tensor) -> Tensor:
        """Tokens, (b, l, dim), to rates of at least float32, (b n, l, 3)."""
        raw = self.projection(x)
        raw = raw.float() if torch.finfo(raw.dtype).bits < 32 else raw
        rates = F.softplus(raw + self.offset)
        by_head: Tensor
        if self.heads_first:
            by_head = rates.unflatten(-1, (self.heads, 3)).permute(0, 2, 1, 3)
        else:
            by_head = rates.unflatten(-1, (3, self.heads)).permute(0, 3, 1, 2)
        return by_head.flatten(0, 1)


class InitialFastWeights(nn.Module):
    """The learned weights from which every sequence starts, one set a head.

    Parameters
    ----------
    heads, key_dim, hidden, value_dim : int
    fast_net : {"swiglu", "linear"}
    rank : int, optional
        W0 and W2 as L R + I / 2 with factors of this rank; dense when left out.
    gain : float
        Factor of the dense initialisation N(0, 1 / fan_in); the view code takes the square root of 2.
    """

    w0: nn.Parameter | None
    w2: nn.Parameter | None
    w0_left: nn.Parameter
    w0_right: nn.Parameter
    w2_left: nn.Parameter
    w2_right: nn.Parameter

    def __init__(
        self,
        heads: int,
        *,
        key_dim: int,
        hidden: int,
        value_dim: int,
        fast_net: FastNet = "swiglu",
        rank: int | None = None,
        gain: float = 1.0,
    ) -> None:
        super().__init__()
        if rank is not None and rank < 1:
            raise InputError(f"init_rank is {rank}", expected="at least 1")
        self.key_dim, self.hidden, self.rank = key_dim, hidden, rank
        linear = fast_net == "linear"
        self.w1 = _normal(heads, value_dim, key_dim if linear else hidden, gain=gain)
        self.w0 = self.w2 = None
        if linear:
            return
        if rank is None:
            self.w0, self.w2 = (_normal(heads, hidden, key_dim, gain=gain) for _ in range(2))
        else:
            for name in ("w0", "w2"):
                left = torch.randn(heads, hidden, rank) * (LOW_RANK_GAIN / math.sqrt(rank))
                right = torch.randn(heads, rank, key_dim) * (LOW_RANK_GAIN / math.sqrt(key_dim))
                self.register_parameter(f"{name}_left", nn.Parameter(left))
                self.register_parameter(f"{name}_right", nn.Parameter(right))

    def forward(self, batch: int) -> FastWeights:
        """The weights of `batch` sequences: rows are sequences times heads. Kept in at least float32."""

        def rows(matrix: Tensor) -> Tensor:
            matrix = matrix.float() if torch.finfo(matrix.dtype).bits < 32 else matrix
            return matrix.expand(batch, *matrix.shape).flatten(0, 1)

        if self.rank is not None and hasattr(self, "w0_left"):
            identity = torch.eye(self.hidden, self.key_dim, dtype=self.w1.dtype, device=self.w1.device)
            w0 = self.w0_left @ self.w0_right + LOW_RANK_IDENTITY * identity
            w2 = self.w2_left @ self.w2_right + LOW_RANK_IDENTITY * identity
            return FastWeights(rows(w0), rows(self.w1), rows(w2))
        if self.w0 is None or self.w2 is None:
            return FastWeights(None, rows(self.w1), None)
        return FastWeights(rows(self.w0), rows(self.w1), rows(self.w2))


class LaCT(nn.Module):
    """A layer whose memory is a small network, trained on its input in large chunks.

    Parameters
    ----------
    dim : int
        Channels of a token.
    num_heads : int
    head_dim : int, optional
        Channels of a head; `dim` / `num_heads` when left out.
    expand : float
        Hidden units of the memory over channels of a head (the paper's inter_multi).
    mode : {"full", "block", "shifted"} or Plan
        Which tokens change the memory and which ask it.
    chunk_size : int
        Tokens a step in the modes ``block`` and ``shifted``.
    rule : {"gd", "momentum", "muon", "muon_momentum"}
        The step.
    ns : {"keller", "tuned"}
        Coefficients of Newton–Schulz.
    base_lr : float
        The rate of a token before training: 0.01 for views, 0.001 for text.
    fast_net : {"swiglu", "linear"}
        The memory's network.
    init_rank : int, optional
        Low-rank initial weights.
    init_gain : float
        Factor of their initialisation.
    prenorm, weight_norm, detach_norm : bool
        See `assay.lact.lact`.
    silu : bool
        Whether SiLU follows the projection to queries, keys and values.
    recompute : bool
        Compute each chunk a second time in the backward pass instead of keeping what it computed.

    Raises
    ------
    InputError
        `dim` isn't divisible by `num_heads` and no `head_dim` is given, or a setting is out of its range.

    Examples
    --------
    >>> _ = torch.manual_seed(0)
    >>> layer = LaCT(8, 2, mode="shifted", chunk_size=4, rule="gd")
    >>> layer(torch.randn(1, 10, 8)).shape
    torch.Size([1, 10, 8])

    Notes
    -----
    Algorithm 1 of the paper. The weights of a sequence and all their sums are kept in float32 at least, also where
    the products are computed in bfloat16.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        head_dim: int | None = None,
        expand: float = 1.0,
        *,
        mode: Mode | Plan = "full",
        chunk_size: int = 2048,
        rule: Rule = "muon",
        ns: Coefficients = "keller",
        base_lr: float = 0.01,
        fast_net: FastNet = "swiglu",
        init_rank: int | None = None,
        init_gain: float = 1.0,
        prenorm: bool = False,
        weight_norm: bool = True,
        detach_norm: bool = True,
        silu: bool = True,
        recompute: bool = False,
    ) -> None:
        super().__init__()
        head_dim = _head_dim(dim, num_heads, head_dim)
        check_rule(rule)
        check_coefficients(ns)
        check_chunk_size(chunk_size)
        if not isinstance(mode, Plan):
            check_mode(mode)
        if fast_net not in ("swiglu", "linear"):
            raise InputError(f"fast_net is {fast_net!r}", expected="swiglu or linear")
        hidden = int(head_dim * expand)
        if hidden < 1:
            raise InputError(f"expand is {expand}", expected=f"at least one hidden unit for heads of {head_dim}")
        if mode in ("block", "shifted"):
            warn_if_chunk_is_small(rule, chunk_size, key_dim=head_dim, hidden=hidden)
        self.dim, self.num_heads, self.head_dim, self.hidden = dim, num_heads, head_dim, hidden
        self.mode, self.chunk_size, self.rule, self.ns = mode, chunk_size, rule, ns
        self.prenorm, self.weight_norm, self.detach_norm = prenorm, weight_norm, detach_norm
        self.silu, self.recompute, self.fast_net = silu, recompute, fast_net
        inner = num_heads * head_dim
        self.qkv = nn.Linear(dim, 3 * inner, bias=False)
        self.rates = TokenRates(dim, num_heads, base_lr=base_lr)
        self.beta = nn.Linear(dim, num_heads) if has_momentum(rule) else None
        self.fast = InitialFastWeights(
            num_heads,
            key_dim=head_dim,
            hidden=hidden,
            value_dim=head_dim,
            fast_net=fast_net,
            rank=init_rank,
            gain=init_gain,
        )
        self.norm = nn.RMSNorm(head_dim, eps=NORM_FLOOR)
        self.out = nn.Linear(inner, dim, bias=False)

    @property
    def config(self) -> str:
        """The digest of the settings on which the meaning of a state depends."""
        names = ("dim", "num_heads", "head_dim", "hidden", "chunk_size", "rule", "ns", "prenorm", "weight_norm")
        settings: dict[str, Any] = {name: getattr(self, name) for name in (*names, "silu", "fast_net")}
        return config_hash(settings)

    @overload
    def forward(
        self,
        x: Tensor,
        plan: Plan | None = ...,
        mask: Tensor | None = ...,
        state: LaCTState | None = ...,
        return_state: Literal[False] = ...,
        *,
        cu_seqlens: Tensor | None = ...,
    ) -> Tensor: ...

    @overload
    def forward(
        self,
        x: Tensor,
        plan: Plan | None = ...,
        mask: Tensor | None = ...,
        state: LaCTState | None = ...,
        *,
        return_state: Literal[True],
        cu_seqlens: Tensor | None = ...,
    ) -> tuple[Tensor, LaCTState]: ...

    def forward(
        self,
        x: Tensor,
        plan: Plan | None = None,
        mask: Tensor | None = None,
        state: LaCTState | None = None,
        return_state: bool = False,
        *,
        cu_seqlens: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, LaCTState]:
        """Read tokens and answer them.

        Parameters
        ----------
        x : Tensor, shape (b, l, dim)
        plan : Plan, optional
            Instead of the layer's `mode`.
        mask : Tensor of bool, shape (b, l), optional
            True where a token counts.
        state : LaCTState, optional
            From an earlier call.
        return_state : bool
            Return the state too.
        cu_seqlens : Tensor of int, shape (documents + 1,), optional
            Where packed documents begin, and the end.

        Returns
        -------
        Tensor, shape (b, l, dim), and the state if asked for

        Raises
        ------
        InputError
            As `assay.lact.lact`; a state of another configuration.
        """
        if x.ndim != 3 or x.shape[2] != self.dim:
            raise InputError(f"x has the shape {tuple(x.shape)}", expected=f"(batch, length, {self.dim})")
        batch = x.shape[0]
        if state is not None:
            state.require(self.config)
        q, k, v = self._queries_keys_values(x)
        result = lact(
            q,
            k,
            v,
            self.rates(x),
            None if state is not None else self.fast(batch),
            plan=plan if plan is not None else self.mode if isinstance(self.mode, Plan) else None,
            mode="full" if isinstance(self.mode, Plan) else self.mode,
            chunk_size=self.chunk_size,
            rule=self.rule,
            momentum=None if self.beta is None else torch.sigmoid(self.beta(x)).mT.flatten(0, 1),
            prenorm=self.prenorm,
            ns=self.ns,
            weight_norm=self.weight_norm,
            detach_norm=self.detach_norm,
            cu_seqlens=cu_seqlens,
            mask=None if mask is None else mask.repeat_interleave(self.num_heads, 0),
            state=None if state is None else state.fast(),
            return_state=return_state,
            recompute=self.recompute,
        )
        answers, after = result if isinstance(result, tuple) else (result, None)
        merged = self.norm(answers).unflatten(0, (batch, self.num_heads)).transpose(1, 2).flatten(2)
        out: Tensor = self.out(merged)
        return out if after is None else (out, self._named(after))

    def init_state(self, batch: int) -> LaCTState:
        """The state before anything was read."""
        fresh = start(self.fast(batch), rule=self.rule, prenorm=self.prenorm, detach_norm=self.detach_norm)
        return self._named(fresh)

    def step(self, x: Tensor, state: LaCTState) -> tuple[Tensor, LaCTState]:
        """Read one token a sequence, (b, dim), and answer it; for the mode ``shifted``.

        Raises
        ------
        InputError
            The layer has another mode.
        """
        if self.mode != "shifted":
            raise InputError(f"mode is {self.mode!r}", expected="shifted: other plans take whole chunks")
        out, state = self(x[:, None], state=state, return_state=True)
        return out[:, 0], state

    def end_of_input(self, state: LaCTState) -> LaCTState:
        """Close a chunk that isn't full, so that its tokens are in the weights."""
        state.require(self.config)
        reading = Reading(self.chunk_size, self.rule, self.ns, self.weight_norm)
        return self._named(end_of_input(state.fast(), reading))

    def _named(self, state: FastState) -> LaCTState:
        return LaCTState.of_fast(state, heads=self.num_heads, config=self.config)

    def _queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Heads folded into the batch; queries and keys of unit length."""
        qkv = F.silu(self.qkv(x)) if self.silu else self.qkv(x)
        heads = qkv.unflatten(-1, (3, self.num_heads, self.head_dim)).permute(2, 0, 3, 1, 4).flatten(1, 2)
        return l2_normalised(heads[0]), l2_normalised(heads[1]), heads[2]


def _head_dim(dim: int, num_heads: int, head_dim: int | None) -> int:
    if dim < 1 or num_heads < 1:
        raise InputError(f"dim is {dim}, num_heads {num_heads}", expected="each at least 1")
    if head_dim is None:
        if dim % num_heads:
            raise InputError(f"dim is {dim}", expected=f"a multiple of num_heads, {num_heads}, or a head_dim")
        return dim // num_heads
    if head_dim < 1:
        raise InputError(f"head_dim is {head_dim}", expected="at least 1")
    return head_dim


def _normal(heads: int, rows: int, columns: int, *, gain: float) -> nn.Parameter:
    return nn.Parameter(torch.randn(heads, rows, columns) * (gain / math.sqrt(columns)))
