"""The memory's side of a causal layer: from the attention's queries, keys and values to a gated answer.

Axes: B batch, L tokens, D width.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.core.errors import InputError
from assay.lact.attention import apply_rope
from assay.lact.baselines import MEMORIES, RecurrentMemory
from assay.lact.fast_weights import FastState, Rule, check_rule, has_momentum, start
from assay.lact.functional import lact
from assay.lact.layers import InitialFastWeights, TokenRates, l2_normalised, warn_if_chunk_is_small
from assay.lact.orthogonal import Coefficients, check_coefficients
from assay.lact.plans import check_chunk_size

__all__ = ["FastBranch", "MixerSettings"]

Memory = Literal["lact", "none", "full", "linear", "gla", "deltanet", "mamba2"]

NORM_EPS = 1e-5
"""Of the RMSNorm of the memory's answers."""


@dataclass(frozen=True)
class MixerSettings:
    """How a `CausalLaCT` is built.

    Attributes
    ----------
    num_fast_heads : int
        Heads of the memory; each has a network of its own. Fewer heads make a larger state.
    window : int
        Tokens that attention sees, the own included.
    chunk_size : int
        Tokens of a step of the memory.
    expand : float
        Hidden units of a fast network per channel of its keys.
    memory : str
        ``lact``; or to compare with: ``none`` (the window alone), ``full`` (attention to everything), ``linear``,
        ``gla``, ``deltanet``, ``mamba2``.
    fast_net : {"swiglu", "linear"}
        The fast network.
    rule : {"gd", "momentum", "muon", "muon_momentum"}
        How the fast weights are changed.
    ns : {"keller", "tuned"}
        Coefficients of Newton–Schulz.
    base_lr : float
        The rate that every token has at the start.
    init_rank : int or None
        The rank of the initial W0 and W2 beside half the identity; None for full matrices.
    prenorm, detach_norm : bool
        As in `lact`.
    qk_norm : bool
        RMSNorm of queries and keys over the full width.
    value_silu : bool
        Whether the memory's values pass a SiLU, as its queries and keys do.
    rope_fast : bool
        Whether the memory's queries and keys are rotated too.
    rope_base : float
        Of the rotary positions.
    scale_attention : bool
        Scale and shift the attention's queries and keys, as the paper's pseudo-code has it, and not the memory's.
    output_gate : bool
        Multiply the memory's answer by a learned scalar a head and token.
    zero_gate : bool
        Begin with a gate of exactly zero: the layer is attention alone at first.
    recompute : bool
        Compute each chunk again in the backward pass instead of keeping its activations.
    force_window : bool
        Accept a window shorter than the chunk, with a warning: tokens between the two are seen by nobody.
    """

    num_fast_heads: int = 4
    window: int = 2048
    chunk_size: int = 2048
    expand: float = 1.0
    memory: Memory = "lact"
    fast_net: Literal["swiglu", "linear"] = "swiglu"
    rule: Rule = "muon_momentum"
    ns: Coefficients = "tuned"
    base_lr: float = 1e-3
    init_rank: int | None = 32
    prenorm: bool = False
    detach_norm: bool = False
    qk_norm: bool = False
    value_silu: bool = True
    rope_fast: bool = True
    rope_base: float = 1e6
    scale_attention: bool = False
    output_gate: bool = True
    zero_gate: bool = False
    recompute: bool = False
    force_window: bool = False

    def __post_init__(self) -> None:
        if self.memory not in get_args(Memory):
            raise InputError(f"memory is {self.memory!r}", expected=f"one of: {', '.join(get_args(Memory))}")
        if self.fast_net not in ("swiglu", "linear"):
            raise InputError(f"fast_net is {self.fast_net!r}", expected="swiglu or linear")
        check_rule(self.rule)
        check_coefficients(self.ns)
        check_chunk_size(self.chunk_size)
        if self.window < 1:
            raise InputError(f"window is {self.window}", expected="at least 1")
        if not 0 < self.base_lr < math.inf:
            raise InputError(f"base_lr is {self.base_lr}", expected="a rate above 0")
        if not 0 < self.expand < math.inf:
            raise InputError(f"expand is {self.expand}", expected="a number above 0")
        if self.init_rank is not None and self.init_rank < 1:
            raise InputError(f"init_rank is {self.init_rank}", expected="at least 1, or None for full matrices")
        if self.memory == "lact" and self.window < self.chunk_size:
            said = f"window is {self.window}, shorter than chunk_size={self.chunk_size}"
            if not self.force_window:
                raise InputError(said, expected="a window of at least a chunk, since no token sees the gap")
            warnings.warn(f"{said}: tokens in between are seen by nobody", stacklevel=3)


class FastBranch(nn.Module):
    """A memory beside an attention, that shares its queries, keys and values.

    Parameters
    ----------
    dim : int
        The width D of queries, keys and values.
    num_heads : int
        The attention's heads, whose rotary positions are used.
    settings : MixerSettings
        With a memory.
    input_dim : int, optional
        The width of the tokens that rates and gates are made of, where it is another one.

    Raises
    ------
    InputError
        The width isn't divisible by the heads.

    Examples
    --------
    >>> import torch
    >>> branch = FastBranch(8, 2, MixerSettings(num_fast_heads=4, window=4, chunk_size=4, rope_fast=False))
    >>> x, q, k, v = torch.randn(4, 1, 9, 8)
    >>> answer, state = branch(x, (q, k, v))
    >>> answer.shape, state
    (torch.Size([1, 9, 8]), None)
    """

    def __init__(self, dim: int, num_heads: int, settings: MixerSettings, *, input_dim: int | None = None) -> None:
        super().__init__()
        if settings.num_fast_heads < 1 or dim % settings.num_fast_heads:
            raise InputError(f"dim is {dim}", expected=f"a multiple of num_fast_heads={settings.num_fast_heads}")
        self.dim, self.num_heads, self.settings = dim, num_heads, settings
        self.input_dim = dim if input_dim is None else input_dim
        self.qk_scale = nn.Parameter(torch.ones(dim, 2))
        self.qk_offset = nn.Parameter(torch.zeros(dim, 2))
        self.norm = nn.RMSNorm(dim // settings.num_fast_heads, eps=NORM_EPS)
        if settings.output_gate:
            self.gate_proj = nn.Linear(self.input_dim, settings.num_fast_heads)
            if settings.zero_gate:
                self.reset_gate()
        if settings.memory in MEMORIES:
            self.recurrent = RecurrentMemory(settings.memory, dim, settings.num_fast_heads)
        else:
            self._add_fast_weights()

    def _add_fast_weights(self) -> None:
        heads, width = self.settings.num_fast_heads, self.dim // self.settings.num_fast_heads
        hidden = int(width * self.settings.expand)
        if hidden < 1:
            raise InputError(f"expand is {self.settings.expand}", expected=f"at least 1/{width}, for a hidden unit")
        warn_if_chunk_is_small(self.settings.rule, self.settings.chunk_size, key_dim=width, hidden=hidden)
        self.fast = InitialFastWeights(
            heads,
            key_dim=width,
            hidden=hidden,
            value_dim=width,
            fast_net=self.settings.fast_net,
            rank=self.settings.init_rank,
        )
        self.rates = TokenRates(self.input_dim, heads, base_lr=self.settings.base_lr, heads_first=True)
        if has_momentum(self.settings.rule):
            self.momentum_proj = nn.Linear(self.input_dim, heads)

    def reset_gate(self) -> None:
        """Close the output gate: the memory adds exactly nothing until training opens it."""
        nn.init.zeros_(self.gate_proj.weight)
        nn.init.zeros_(self.gate_proj.bias)

    def start(self, batch: int) -> FastState | Tensor:
        """What the memory knows before it has read anything.

        Parameters
        ----------
        batch : int
            Rows.

        Returns
        -------
        FastState, or Tensor for a recurrent memory
        """
        if self.settings.memory == "lact":
            return start(
                self.fast(batch),
                rule=self.settings.rule,
                prenorm=self.settings.prenorm,
                detach_norm=self.settings.detach_norm,
            )
        heads = self.settings.num_fast_heads
        return self.qk_scale.new_zeros(batch * heads, self.dim // heads, self.dim // heads)

    def scaled(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys, scaled and shifted a channel."""
        scale, offset = self.qk_scale, self.qk_offset
        return q * scale[:, 0] + offset[:, 0], k * scale[:, 1] + offset[:, 1]

    def forward(
        self,
        x_BLD: Tensor,
        qkv: tuple[Tensor, Tensor, Tensor],
        *,
        tables: tuple[Tensor, Tensor] | None = None,
        cu_seqlens: Tensor | None = None,
        lengths_B: Tensor | None = None,
        state: FastState | Tensor | None = None,
    ) -> tuple[Tensor, FastState | Tensor | None]:
        """Ask the memory about each token, and let it read the token.

        Parameters
        ----------
        x_BLD : Tensor, shape (B, L, D)
            What rates and gates are made of.
        qkv : three Tensors of shape (B, L, D)
            Before activation, normalisation and rotation.
        tables : pair of Tensor, optional
            From `rope_tables`; needed where queries and keys are rotated.
        cu_seqlens : Tensor of int, shape (documents + 1,), optional
            Where documents in the rows begin, and the end.
        lengths_B : Tensor of int64, shape (B,), optional
            How many tokens of each row are real; the rest, at its end, is padding.
        state : FastState or Tensor, optional
            What came before.

        Returns
        -------
        answer : Tensor, shape (B, L, D)
            To be added to the attention's output.
        state : FastState, Tensor or None
            After the tokens, where there was one before.
        """
        answer, after = self._asked(x_BLD, qkv, tables, cu_seqlens, lengths_B, state)
        answer = self.norm(answer)
        if self.settings.output_gate:
            answer = answer * functional.silu(self.gate_proj(x_BLD))[..., None]
        merged: Tensor = answer.flatten(2)
        return merged, after

    def _asked(
        self,
        x: Tensor,
        qkv: tuple[Tensor, Tensor, Tensor],
        tables: tuple[Tensor, Tensor] | None,
        cu_seqlens: Tensor | None,
        lengths_B: Tensor | None,
        before: FastState | Tensor | None,
    ) -> tuple[Tensor, FastState | Tensor | None]:
        q, k = (self._unit_length(functional.silu(one)) for one in qkv[:2])
        v = functional.silu(qkv[2]) if self.settings.value_silu else qkv[2]
        mask = None if lengths_B is None else torch.arange(x.shape[1], device=x.device) < lengths_B[:, None]
        if isinstance(before, Tensor) or self.settings.memory in MEMORIES:
            answer, matrix = self._recur(x, (q, k, v), mask, cu_seqlens, before)
            return answer.unflatten(-1, (self.settings.num_fast_heads, -1)), matrix
        if self.settings.rope_fast and tables is not None:
            q, k = self._rotated(q, tables), self._rotated(k, tables)
        momentum = None
        if has_momentum(self.settings.rule):
            momentum = self._folded(self.momentum_proj(x).sigmoid())[..., 0]
        result = lact(
            self._folded(q),
            self._folded(k),
            self._folded(v),
            self.rates(x),
            self.fast(len(x)) if before is None else None,
            chunk_size=self.settings.chunk_size,
            rule=self.settings.rule,
            ns=self.settings.ns,
            momentum=momentum,
            prenorm=self.settings.prenorm,
            detach_norm=self.settings.detach_norm,
            cu_seqlens=cu_seqlens,
            mask=None if mask is None else mask.repeat_interleave(self.settings.num_fast_heads, dim=0),
            state=before,
            return_state=before is not None,
            recompute=self.settings.recompute,
        )
        answer, memory = result if isinstance(result, tuple) else (result, None)
        return answer.unflatten(0, (len(x), -1)).transpose(1, 2), memory

    def _recur(
        self,
        x: Tensor,
        qkv: tuple[Tensor, Tensor, Tensor],
        mask: Tensor | None,
        cu_seqlens: Tensor | None,
        before: FastState | Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        bounds = [0, x.shape[1]] if cu_seqlens is None else cu_seqlens.tolist()
        parts = []
        for begin, end in pairwise(bounds):
            own = slice(begin, end)
            real = None if mask is None else mask[:, own]
            answer, after = self.recurrent(x[:, own], *(one[:, own] for one in qkv), mask_BL=real, state=before)
            parts.append(answer)
        return torch.cat(parts, dim=1), after

    def _unit_length(self, x: Tensor) -> Tensor:
        heads: Tensor = x.unflatten(-1, (self.settings.num_fast_heads, -1))
        return l2_normalised(heads).flatten(2)

    def _rotated(self, x: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
        """By the attention's heads and tables, whatever the fast heads are."""
        heads: Tensor = x.unflatten(-1, (self.num_heads, -1))
        return apply_rope(heads.transpose(1, 2), tables).transpose(1, 2).flatten(2)

    def _folded(self, x: Tensor) -> Tensor:
        heads: Tensor = x.unflatten(-1, (self.settings.num_fast_heads, -1))
        return heads.transpose(1, 2).flatten(0, 1)
