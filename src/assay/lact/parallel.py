"""One sequence over several processes: tokens of a chunk divided (context parallel), or heads (head parallel).

Both are exact. A gradient is a sum over tokens, so that processes which each hold a part of every chunk add their sums
before the step; all-reduce is its own backward. Heads don't meet, so that an exchange of tokens for heads before the
memory and back after it is all that head parallelism takes (Algorithms 3 and 4 of the paper).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from assay.core.errors import InputError
from assay.lact.fast_weights import FastState, FastWeights
from assay.lact.functional import lact
from assay.lact.plans import Mode

__all__ = [
    "all_reduced",
    "context_parallel_lact",
    "gather_chunks",
    "head_parallel_lact",
    "heads_to_tokens",
    "shard_chunks",
    "tokens_to_heads",
]

Group = Any
"""A process group of torch.distributed, or None for all processes."""


def shard_chunks(x: Tensor, *, chunk_size: int, group: Group = None) -> Tensor:
    """The part of every chunk that this process holds.

    Parameters
    ----------
    x : Tensor, shape (B, l, ...)
        The whole sequence.
    chunk_size : int
        Tokens of a whole chunk.
    group : process group, optional

    Returns
    -------
    Tensor, shape (B, l / processes, ...)

    Raises
    ------
    InputError
        The chunk or the length isn't a multiple of the number of processes.

    Examples
    --------
    >>> import tempfile
    >>> store = f"file://{tempfile.mkdtemp()}/store"
    >>> dist.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    >>> shard_chunks(torch.zeros(1, 8, 3), chunk_size=4).shape
    torch.Size([1, 8, 3])
    >>> dist.destroy_process_group()
    """
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    _share(chunk_size, world)
    if x.shape[1] % world:
        raise InputError(f"{x.shape[1]} tokens", expected=f"a multiple of the {world} processes")
    parts = []
    for begin in range(0, x.shape[1], chunk_size):
        size = min(chunk_size, x.shape[1] - begin) // world
        parts.append(x[:, begin + rank * size : begin + (rank + 1) * size])
    return torch.cat(parts, 1)


def gather_chunks(x: Tensor, *, chunk_size: int, group: Group = None) -> Tensor:
    """The whole sequence from the parts that `shard_chunks` made; no gradient flows.

    Parameters
    ----------
    x : Tensor, shape (B, l / processes, ...)
        What this process holds.
    chunk_size : int
        Tokens of a whole chunk.
    group : process group, optional

    Returns
    -------
    Tensor, shape (B, l, ...)

    Examples
    --------
    >>> import tempfile
    >>> store = f"file://{tempfile.mkdtemp()}/store"
    >>> dist.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    >>> x = torch.arange(6.0)[None]
    >>> gather_chunks(shard_chunks(x, chunk_size=2), chunk_size=2).tolist()
    [[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]]
    >>> dist.destroy_process_group()
    """
    world = dist.get_world_size(group)
    share = _share(chunk_size, world)
    shards = [torch.empty_like(x, requires_grad=False) for _ in range(world)]
    dist.all_gather(shards, x.detach().contiguous(), group=group)
    return torch.cat([shard[:, begin : begin + share] for begin in range(0, x.shape[1], share) for shard in shards], 1)


def all_reduced(group: Group = None) -> Callable[[FastState], FastState]:
    """For `reduce` of `assay.lact.lact`: the sums of the open chunk over all processes, in one message."""

    def reduce(state: FastState) -> FastState:
        matrices = [matrix for matrix in state.pending if matrix is not None]
        counts = state.filled.to(state.beta_sum)
        parts = [*matrices, state.beta_sum, counts]
        message = torch.cat([part.reshape(-1) for part in parts])
        summed = _all_reduce(message, group).split([part.numel() for part in parts])
        *flat, beta_sum, filled = summed
        found = iter(one.view_as(matrix) for one, matrix in zip(flat, matrices, strict=True))
        pending = state.pending.map(lambda _: next(found))
        return state._replace(pending=pending, beta_sum=beta_sum, filled=filled.detach().round().to("cpu", torch.int64))

    return reduce


def context_parallel_lact(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lr: Tensor,
    w_init: FastWeights,
    *,
    chunk_size: int,
    group: Group = None,
    mode: Mode = "shifted",
    **settings: Any,
) -> Tensor:
    """`assay.lact.lact` of a sequence of which each process holds a part of every chunk, as `shard_chunks` divides it.

    Parameters
    ----------
    q, k, v, lr : Tensor, shape (B, l / processes, ...)
    w_init : FastWeights
        The same in all processes. Its gradient is this process's part, which is to be summed over the processes, as
        that of any replicated parameter.
    chunk_size : int
        Tokens of a whole chunk.
    group : process group, optional
    mode : {"shifted", "block", "full"}
    **settings
        `rule`, `momentum`, `prenorm`, `ns`, `weight_norm`, `detach_norm`, `recompute`.

    Returns
    -------
    Tensor, shape (B, l / processes, o)
        The answers to this process's queries.

    Raises
    ------
    InputError
        The chunk isn't a multiple of the number of processes, or the processes hold different numbers of tokens.

    Examples
    --------
    >>> import tempfile
    >>> store = f"file://{tempfile.mkdtemp()}/store"
    >>> dist.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    >>> x, w = torch.ones(1, 8, 2), FastWeights(None, torch.eye(2)[None], None)
    >>> context_parallel_lact(x, x, x, torch.ones(1, 8, 3), w, chunk_size=4, rule="gd").shape
    torch.Size([1, 8, 2])
    >>> dist.destroy_process_group()
    """
    world = dist.get_world_size(group)
    share = _share(chunk_size, world)
    lengths = [torch.zeros(1, dtype=torch.int64, device=q.device) for _ in range(world)]
    dist.all_gather(lengths, torch.tensor([q.shape[1]], device=q.device), group=group)
    held = [int(one) for one in lengths]
    if len(set(held)) > 1:
        raise InputError(f"the processes hold {held} tokens", expected="the same number each")
    return lact(  # type: ignore[no-any-return]
        q, k, v, lr, w_init, chunk_size=share, mode=mode, reduce=all_reduced(group), **settings
    )


def tokens_to_heads(x: Tensor, group: Group = None) -> Tensor:
    """A part of the tokens with all heads, (b, l / processes, n, d), to all tokens of a part of the heads.

    Returns
    -------
    Tensor, shape (b, l, n / processes, d)

    Raises
    ------
    InputError
        The number of heads isn't a multiple of the number of processes.
    """
    world = dist.get_world_size(group)
    if x.shape[2] % world:
        raise InputError(f"{x.shape[2]} heads", expected=f"a multiple of the {world} processes")
    sent = x.unflatten(2, (world, -1)).permute(2, 0, 1, 3, 4).contiguous()
    received: Tensor = _exchange(sent, group).permute(1, 0, 2, 3, 4)
    return received.flatten(1, 2)


def heads_to_tokens(x: Tensor, group: Group = None) -> Tensor:
    """The way back from `tokens_to_heads`."""
    sent = x.unflatten(1, (dist.get_world_size(group), -1)).permute(1, 0, 2, 3, 4).contiguous()
    return _exchange(sent, group).permute(1, 2, 0, 3, 4).flatten(2, 3)


def head_parallel_lact(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lr: Tensor,
    w_init: FastWeights,
    *,
    group: Group = None,
    momentum: Tensor | None = None,
    **settings: Any,
) -> Tensor:
    """`assay.lact.lact` of a sequence of which each process holds consecutive tokens, with all their heads.

    Parameters
    ----------
    q, k : Tensor, shape (b, l / processes, n, d)
    v : Tensor, shape (b, l / processes, n, o)
    lr : Tensor, shape (b, l / processes, n, 3)
    w_init : FastWeights
        Of this process's heads: rows are b times n / processes.
    group : process group, optional
    momentum : Tensor, shape (b, l / processes, n), optional
    **settings
        As for `assay.lact.lact`.

    Returns
    -------
    Tensor, shape (b, l / processes, n, o)

    Examples
    --------
    >>> import tempfile
    >>> store = f"file://{tempfile.mkdtemp()}/store"
    >>> dist.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    >>> x, w = torch.ones(1, 8, 1, 2), FastWeights(None, torch.eye(2)[None], None)
    >>> head_parallel_lact(x, x, x, torch.ones(1, 8, 1, 3), w, chunk_size=4, rule="gd").shape
    torch.Size([1, 8, 1, 2])
    >>> dist.destroy_process_group()
    """
    batch, heads = q.shape[0], q.shape[2] // dist.get_world_size(group)

    def rows(x: Tensor) -> Tensor:
        return tokens_to_heads(x, group).transpose(1, 2).flatten(0, 1)

    beta = None if momentum is None else rows(momentum[..., None])[..., 0]
    answers = lact(rows(q), rows(k), rows(v), rows(lr), w_init, momentum=beta, **settings)
    return heads_to_tokens(answers.unflatten(0, (batch, heads)).transpose(1, 2), group)


def _share(chunk_size: int, world: int) -> int:
    if chunk_size < world or chunk_size % world:
        raise InputError(f"chunk_size is {chunk_size}", expected=f"a multiple of the {world} processes")
    return chunk_size // world


class _AllReduce(torch.autograd.Function):
    """A sum over processes, whose gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        ctx.group = group
        summed = x.clone()
        dist.all_reduce(summed, group=group)
        return summed

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _all_reduce(gradients[0].contiguous(), ctx.group), None


class _Exchange(torch.autograd.Function):
    """Slices along the first axis go to the process of their number; so do those of the gradient, back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        ctx.group = group
        received = torch.empty_like(x)
        dist.all_to_all_single(received, x, group=group)
        return received

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _exchange(gradients[0].contiguous(), ctx.group), None


def _all_reduce(x: Tensor, group: Group) -> Tensor:
    summed: Tensor = _AllReduce.apply(x, group)  # type: ignore[no-untyped-call]
    return summed


def _exchange(x: Tensor, group: Group) -> Tensor:
    received: Tensor = _Exchange.apply(x, group)  # type: ignore[no-untyped-call]
    return received
