"""The language layer: window attention and a large-chunk memory in one mixer, from the same queries, keys and values.

Axes: B batch, L tokens, D width, H attention heads, B' batch times fast heads.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Literal, NamedTuple, overload

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.core.errors import InputError
from assay.lact.attention import (
    AttentionBuffer,
    apply_rope,
    empty_buffer,
    rope_tables,
    window_attention,
    window_attention_step,
)
from assay.lact.fast_branch import NORM_EPS, FastBranch, MixerSettings
from assay.lact.fast_weights import FastState
from assay.lact.state import LaCTState, config_hash
from assay.lact.streaming import Reading, end_of_input

__all__ = ["CausalLaCT", "CausalState", "LaCTBlock", "SwiGLU"]

WITHOUT_MEANING = ("base_lr", "init_rank", "detach_norm", "zero_gate", "recompute", "force_window")
"""Settings on which the meaning of a state doesn't depend."""


class CausalState(NamedTuple):
    """What one layer keeps of the past.

    Attributes
    ----------
    memory : FastState, Tensor or None
        The fast weights with what belongs to them; the matrix of a recurrent memory; None without a memory.
    buffer : AttentionBuffer
        The window's keys and values, and how many tokens each row has seen.
    """

    memory: FastState | Tensor | None
    buffer: AttentionBuffer

    def detach(self) -> CausalState:
        """The same, cut from the graph."""
        memory = None if self.memory is None else self.memory.detach()
        return CausalState(memory, AttentionBuffer(*(one.detach() for one in self.buffer)))

    def named(self, *, heads: int, config: str) -> LaCTState:
        """As named tensors with the batch first; `heads` are the memory's."""
        tensors = {"keys": self.buffer.keys, "values": self.buffer.values, "position": self.buffer.position.cpu()}
        if isinstance(self.memory, FastState):
            fast = LaCTState.of_fast(self.memory, heads=heads)
            tensors |= {f"memory.{name}": tensor for name, tensor in fast.items()}
        elif self.memory is not None:
            tensors["matrix"] = self.memory.unflatten(0, (-1, heads))
        return LaCTState(tensors, config=config)

    @classmethod
    def of_named(cls, state: LaCTState) -> CausalState:
        """What `named` gave names to."""
        buffer = AttentionBuffer(state["keys"], state["values"], state["position"].to(state["keys"].device))
        if "matrix" in state:
            return cls(state["matrix"].flatten(0, 1), buffer)
        fast = state.part("memory")
        return cls(fast.fast() if len(fast) else None, buffer)


class CausalLaCT(nn.Module):
    """Causal mixer of sliding-window attention and a memory that is trained as it reads.

    Parameters
    ----------
    dim : int
        The width D.
    num_heads : int
        Attention heads.
    num_fast_heads, window, chunk_size : int
        As in `MixerSettings`.
    **settings
        The other fields of `MixerSettings`.

    Raises
    ------
    InputError
        The width isn't divisible by the heads, the window is shorter than a chunk, or a setting is out of range.

    Examples
    --------
    >>> import torch
    >>> layer = CausalLaCT(16, 2, num_fast_heads=4, window=8, chunk_size=8, init_rank=None)
    >>> x = torch.randn(1, 20, 16)
    >>> y, state = layer(x, return_state=True)
    >>> next_y, state = layer.step(torch.randn(1, 16), state)
    >>> y.shape, next_y.shape, state["position"].tolist()
    (torch.Size([1, 20, 16]), torch.Size([1, 16]), [21])
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        num_fast_heads: int = 4,
        window: int = 2048,
        chunk_size: int = 2048,
        **settings: object,
    ) -> None:
        super().__init__()
        self.settings = MixerSettings(num_fast_heads, window, chunk_size, **settings)  # type: ignore[arg-type]
        if num_heads < 1 or dim % num_heads:
            raise InputError(f"dim is {dim}", expected=f"a multiple of num_heads={num_heads}")
        if dim // num_heads % 2:
            raise InputError(f"heads of {dim // num_heads} channels", expected="an even number, for rotary positions")
        self.dim, self.num_heads = dim, num_heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.o_proj = nn.Linear(dim, dim, bias=False)
        if self.settings.qk_norm:
            self.q_norm, self.k_norm = nn.RMSNorm(dim, eps=NORM_EPS), nn.RMSNorm(dim, eps=NORM_EPS)
        self.branch = None
        if self.settings.memory not in ("none", "full"):
            self.branch = FastBranch(dim, num_heads, self.settings)

    @property
    def config(self) -> str:
        """The digest of the settings on which the meaning of a state depends."""
        kept = {name: value for name, value in asdict(self.settings).items() if name not in WITHOUT_MEANING}
        return config_hash({**kept, "dim": self.dim, "num_heads": self.num_heads})

    def init_state(self, batch: int) -> LaCTState:
        """What the layer knows before it has read anything.

        Parameters
        ----------
        batch : int
            Rows.

        Returns
        -------
        LaCTState

        Raises
        ------
        InputError
            The layer attends to everything, so that its state would grow.
        """
        return self._named(self.start(batch))

    def start(self, batch: int) -> CausalState:
        """As `init_state`, unnamed."""
        if self.settings.memory == "full":
            raise InputError("full attention has no state of constant size", expected="no state, or another memory")
        weight = self.qkv.weight
        head_dim = self.dim // self.num_heads
        buffer = empty_buffer(
            batch, self.num_heads, self.settings.window, head_dim, dtype=weight.dtype, device=weight.device
        )
        return CausalState(None if self.branch is None else self.branch.start(batch), buffer)

    @overload
    def forward(
        self,
        x_BLD: Tensor,
        *,
        mask_BL: Tensor | None = ...,
        cu_seqlens: Tensor | None = ...,
        state: LaCTState | None = ...,
        return_state: Literal[False] = ...,
    ) -> Tensor: ...

    @overload
    def forward(
        self,
        x_BLD: Tensor,
        *,
        mask_BL: Tensor | None = ...,
        cu_seqlens: Tensor | None = ...,
        state: LaCTState | None = ...,
        return_state: Literal[True],
    ) -> tuple[Tensor, LaCTState]: ...

    def forward(
        self,
        x_BLD: Tensor,
        *,
        mask_BL: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        state: LaCTState | None = None,
        return_state: bool = False,
    ) -> Tensor | tuple[Tensor, LaCTState]:
        """Mix the tokens.

        Parameters
        ----------
        x_BLD : Tensor, shape (B, L, D)
        mask_BL : Tensor of bool, shape (B, L), optional
            True at real tokens, on either side; padding gives zeros and leaves no trace.
        cu_seqlens : Tensor of int, shape (documents + 1,), optional
            Where documents in the rows begin, and the end; none sees another.
        state : LaCTState, optional
            What came before.
        return_state : bool
            Return the state after these tokens too.

        Returns
        -------
        y : Tensor, shape (B, L, D)
        state : LaCTState
            Only with `return_state`.

        Raises
        ------
        InputError
            Another width than the layer's, a mask that is all padding, documents together with a mask or a state, or a
            state of another batch or configuration.
        """
        before = None
        if state is not None:
            state.require(self.config)
            before = CausalState.of_named(state)
        elif return_state:
            before = self.start(len(x_BLD))
        y, after = self.read(x_BLD, mask_BL=mask_BL, cu_seqlens=cu_seqlens, state=before)
        return (y, self._named(after)) if return_state and after is not None else y

    def read(
        self,
        x_BLD: Tensor,
        *,
        mask_BL: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        state: CausalState | None = None,
        in_place: bool = False,
    ) -> tuple[Tensor, CausalState | None]:
        """As `forward`, with an unnamed state.

        Parameters
        ----------
        x_BLD, mask_BL, cu_seqlens
            As for `forward`.
        state : CausalState, optional
            What came before; if there is one, the state after these tokens is returned too.
        in_place : bool
            Overwrite the attention buffer of `state`.

        Returns
        -------
        y : Tensor, shape (B, L, D)
        state : CausalState or None
        """
        self._check(x_BLD, mask_BL, cu_seqlens, state)
        if x_BLD.shape[1] == 0:
            return x_BLD, state
        if mask_BL is None:
            return self._mix(x_BLD, cu_seqlens=cu_seqlens, lengths_B=None, state=state, in_place=in_place)
        # Real tokens first, so that padding shifts no chunk.
        order = torch.argsort(~mask_BL, dim=1, stable=True)[..., None].expand_as(x_BLD)
        y, state = self._mix(
            x_BLD.gather(1, order), cu_seqlens=None, lengths_B=mask_BL.sum(1), state=state, in_place=in_place
        )
        return torch.zeros_like(y).scatter(1, order, y) * mask_BL[..., None].to(y), state

    def step(self, x_BD: Tensor, state: LaCTState) -> tuple[Tensor, LaCTState]:
        """One more token.

        Parameters
        ----------
        x_BD : Tensor, shape (B, D)
        state : LaCTState

        Returns
        -------
        y : Tensor, shape (B, D)
        state : LaCTState
        """
        y, after = self(x_BD[:, None], state=state, return_state=True)
        return y[:, 0], after

    def end_of_input(self, state: LaCTState) -> LaCTState:
        """Close a chunk that isn't full, so that its tokens are in the weights.

        Parameters
        ----------
        state : LaCTState

        Returns
        -------
        LaCTState
        """
        state.require(self.config)
        return self._named(self.closed(CausalState.of_named(state)))

    def closed(self, state: CausalState) -> CausalState:
        """As `end_of_input`, with an unnamed state."""
        if not isinstance(state.memory, FastState):
            return state
        reading = Reading(self.settings.chunk_size, self.settings.rule, self.settings.ns)
        return CausalState(end_of_input(state.memory, reading), state.buffer)

    def _named(self, state: CausalState) -> LaCTState:
        return state.named(heads=self.settings.num_fast_heads, config=self.config)

    def _mix(
        self,
        x: Tensor,
        *,
        cu_seqlens: Tensor | None,
        lengths_B: Tensor | None,
        state: CausalState | None,
        in_place: bool,
    ) -> tuple[Tensor, CausalState | None]:
        length = x.shape[1]
        places = torch.arange(length, device=x.device)
        segments = None
        positions = places if state is None else state.buffer.position[:, None] + places
        if cu_seqlens is not None:
            document = torch.bucketize(places, cu_seqlens[1:-1].to(x.device), right=True)
            positions = places - cu_seqlens.to(x.device)[document]
            segments = document.expand(len(x), length)
        tables = rope_tables(positions, self.dim // self.num_heads, base=self.settings.rope_base)
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        if self.settings.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        plain = scaled = (q, k)
        if self.branch is not None:
            scaled = self.branch.scaled(q, k)
        to_attention, to_memory = (scaled, plain) if self.settings.scale_attention else (plain, scaled)
        buffer, memory = (None, None) if state is None else (state.buffer, state.memory)
        mixed, buffer = self._attend((*to_attention, v), tables, segments, lengths_B, buffer, in_place=in_place)
        if self.branch is not None:
            answer, memory = self.branch(
                x, (*to_memory, v), tables=tables, cu_seqlens=cu_seqlens, lengths_B=lengths_B, state=memory
            )
            mixed = mixed + answer
        return self.o_proj(mixed), None if buffer is None else CausalState(memory, buffer)

    def _attend(
        self,
        qkv: tuple[Tensor, Tensor, Tensor],
        tables: tuple[Tensor, Tensor],
        segments: Tensor | None,
        lengths_B: Tensor | None,
        buffer: AttentionBuffer | None,
        *,
        in_place: bool,
    ) -> tuple[Tensor, AttentionBuffer | None]:
        q, k, v = (x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for x in qkv)
        q, k = apply_rope(q, tables), apply_rope(k, tables)
        if buffer is None:
            window = q.shape[2] if self.settings.memory == "full" else self.settings.window
            out = window_attention(q, k, v, window, segments_BL=segments)
        else:
            out, buffer = window_attention_step(q, k, v, buffer, lengths_B=lengths_B, in_place=in_place)
        return out.transpose(1, 2).flatten(2), buffer

    def _check(self, x: Tensor, mask: Tensor | None, cu_seqlens: Tensor | None, state: CausalState | None) -> None:
        if x.ndim != 3 or x.shape[2] != self.dim:
            raise InputError(f"x has the shape {tuple(x.shape)}", expected=f"(batch, length, {self.dim})")
        if mask is not None:
            if mask.shape != x.shape[:2] or mask.dtype != torch.bool:
                raise InputError(
                    f"mask_BL is {mask.dtype} of shape {tuple(mask.shape)}", expected=f"bool of {tuple(x.shape[:2])}"
                )
            if mask.numel() and not bool(mask.any()):
                raise InputError("mask_BL is all padding", expected="at least one real token")
        if cu_seqlens is not None and (mask is not None or state is not None):
            raise InputError("cu_seqlens together with a mask or a state", expected="cu_seqlens alone")
        if state is None:
            return
        keys = state.buffer.keys
        if len(keys) != len(x):
            raise InputError(f"the state has {len(keys)} rows", expected=f"{len(x)}, as x has")
        if (keys.dtype, keys.device) != (x.dtype, x.device):
            raise InputError(
                f"the state is {keys.dtype} on {keys.device}",
                expected=f"{x.dtype} on {x.device}, as x is: state.to(...)",
            )


class SwiGLU(nn.Module):
    """``down(silu(gate(x)) * up(x))``.

    Parameters
    ----------
    dim, hidden : int
        The width, and that in between.

    Examples
    --------
    >>> import torch
    >>> SwiGLU(4, 8)(torch.zeros(1, 4)).tolist()
    [[0.0, 0.0, 0.0, 0.0]]
    """

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(dim, hidden, bias=False)
        self.up_proj = nn.Linear(dim, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        out: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class LaCTBlock(nn.Module):
    """``x + mixer(norm(x))``, then ``x + mlp(norm(x))``.

    Parameters
    ----------
    mixer : CausalLaCT
    mlp_dim : int
        The MLP's hidden width.
    norm_eps : float
        Of the RMSNorms.

    Examples
    --------
    >>> import torch
    >>> block = LaCTBlock(CausalLaCT(8, 2, num_fast_heads=4, window=4, chunk_size=4, init_rank=2), mlp_dim=16)
    >>> block(torch.randn(1, 9, 8)).shape
    torch.Size([1, 9, 8])
    """

    def __init__(self, mixer: CausalLaCT, *, mlp_dim: int, norm_eps: float = 1e-6) -> None:
        super().__init__()
        self.attn_norm = nn.RMSNorm(mixer.dim, eps=norm_eps)
        self.attn = mixer
        self.mlp_norm = nn.RMSNorm(mixer.dim, eps=norm_eps)
        self.mlp = SwiGLU(mixer.dim, mlp_dim)

    def forward(
        self,
        x_BLD: Tensor,
        *,
        mask_BL: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        state: LaCTState | None = None,
        return_state: bool = False,
    ) -> Tensor | tuple[Tensor, LaCTState]:
        """As `CausalLaCT.forward`."""
        mixed = self.attn(
            self.attn_norm(x_BLD),
            mask_BL=mask_BL,
            cu_seqlens=cu_seqlens,
            state=state,
            return_state=return_state,
        )
        y, after = mixed if isinstance(mixed, tuple) else (mixed, None)
        x = x_BLD + y
        x = x + self.mlp(self.mlp_norm(x))
        return x if after is None else (x, after)

    def read(
        self,
        x_BLD: Tensor,
        *,
        mask_BL: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        state: CausalState | None = None,
        in_place: bool = False,
    ) -> tuple[Tensor, CausalState | None]:
        """As `CausalLaCT.read`."""
        mixed, state = self.attn.read(
            self.attn_norm(x_BLD), mask_BL=mask_BL, cu_seqlens=cu_seqlens, state=state, in_place=in_place
        )
        x = x_BLD + mixed
        return x + self.mlp(self.mlp_norm(x)), state
