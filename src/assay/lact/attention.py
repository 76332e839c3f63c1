"""Causal attention over a sliding window, block by block, with rotary positions and a buffer to decode from.

Axes: B batch, H heads, L tokens, D channels of a head, W the window.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["AttentionBuffer", "apply_rope", "empty_buffer", "rope_tables", "window_attention", "window_attention_step"]


def rope_tables(positions: Tensor, head_dim: int, *, base: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines of rotary position embeddings.

    Parameters
    ----------
    positions : Tensor of int64, shape (..., L)
        Where the tokens stand.
    head_dim : int
        Channels of a head; even.
    base : float
        The slowest rotation's wavelength over 2 pi, nearly.

    Returns
    -------
    cosine, sine : Tensor of float32, shape (..., L, head_dim / 2)

    Examples
    --------
    >>> import torch
    >>> cosine, sine = rope_tables(torch.arange(3), 4, base=100.0)
    >>> cosine.shape, sine[0].tolist()
    (torch.Size([3, 2]), [0.0, 0.0])
    """
    # Angles of positions in the millions need float64 before they are reduced.
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float64, device=positions.device) / head_dim
    angles = positions[..., None].double() * base**-exponents
    return angles.cos(), angles.sin()


def apply_rope(x_BHLD: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
    """Turn pairs of channels (i, i + D/2) by the tables' angles: the half-split form.

    Parameters
    ----------
    x_BHLD : Tensor, shape (B, H, L, D)
    tables : pair of Tensor, each of shape (L, D/2) or (B, L, D/2)
        From `rope_tables`.

    Returns
    -------
    Tensor
        Of the same shape and dtype.

    Examples
    --------
    >>> import torch
    >>> x = torch.ones(1, 1, 1, 2)
    >>> apply_rope(x, rope_tables(torch.tensor([0]), 2, base=10.0)).tolist()
    [[[[1.0, 1.0]]]]
    """
    cosine, sine = (table.to(x_BHLD.dtype) for table in tables)
    if cosine.ndim == 3:
        cosine, sine = cosine[:, None], sine[:, None]
    first, second = x_BHLD.chunk(2, dim=-1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)


def window_attention(
    q_BHLD: Tensor, k_BHLD: Tensor, v_BHLD: Tensor, window: int, *, segments_BL: Tensor | None = None
) -> Tensor:
    """Softmax attention in which token t sees the tokens t - window + 1 to t.

    The tokens are cut into blocks of `window`; each block sees itself and the one before, so the cost is L · W and no
    L x L mask exists.

    Parameters
    ----------
    q_BHLD, k_BHLD, v_BHLD : Tensor, shape (B, H, L, D)
    window : int
        How many tokens are seen, the own included.
    segments_BL : Tensor of int64, shape (B, L), optional
        A number for each token: only tokens with the same number see one another. Documents in one row, or padding.

    Returns
    -------
    Tensor, shape (B, H, L, D)

    Examples
    --------
    >>> import torch
    >>> q, k, v = torch.randn(3, 1, 2, 9, 4)
    >>> bool(torch.allclose(window_attention(q, k, v, 1), v))
    True
    """
    batch, heads, length, dim = q_BHLD.shape
    if window >= length:
        return _one_block(q_BHLD, k_BHLD, v_BHLD, segments_BL)
    blocks = -(-length // window)
    padding = blocks * window - length
    q, k, v = (
        functional.pad(x, (0, 0, 0, padding)).view(batch, heads, blocks, window, dim) for x in (q_BHLD, k_BHLD, v_BHLD)
    )
    k, v = _with_block_before(k, dim=2), _with_block_before(v, dim=2)
    row = torch.arange(window, device=q.device)[:, None]
    column = torch.arange(2 * window, device=q.device) - window
    seen = (column <= row) & (column > row - window)
    has_before = torch.arange(blocks, device=q.device)[:, None, None] > 0
    seen = seen & (has_before | (column >= 0))
    if segments_BL is not None:
        own = functional.pad(segments_BL, (0, padding), value=-1).view(batch, blocks, window)
        seen = seen & (own[..., None] == _with_block_before(own, dim=1)[..., None, :])
        seen = seen.reshape(batch * blocks, 1, window, 2 * window)
    else:
        seen = seen.repeat(batch, 1, 1).unsqueeze(1)
    q, k, v = (x.transpose(1, 2).reshape(batch * blocks, heads, -1, dim) for x in (q, k, v))
    out = functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
    return out.view(batch, blocks, heads, window, dim).transpose(1, 2).flatten(2, 3)[:, :, :length]


def _one_block(q: Tensor, k: Tensor, v: Tensor, segments_BL: Tensor | None) -> Tensor:
    if segments_BL is None:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    length = q.shape[2]
    causal = torch.ones(length, length, dtype=torch.bool, device=q.device).tril()
    same = segments_BL[:, None, :, None] == segments_BL[:, None, None, :]
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=causal & same)


def _with_block_before(x: Tensor, *, dim: int) -> Tensor:
    """Each block of `dim` preceded by the block before it, along the next axis; zeros before the first."""
    before = torch.cat([torch.zeros_like(x.narrow(dim, 0, 1)), x.narrow(dim, 0, x.shape[dim] - 1)], dim=dim)
    return torch.cat([before, x], dim=dim + 1)


class AttentionBuffer(NamedTuple):
    """The last keys and values: what a window needs of the past.

    Attributes
    ----------
    keys, values : Tensor, shape (B, H, W, D)
        Token number p stands in slot p mod W; keys are rotated already.
    position : Tensor of int64, shape (B,)
        How many tokens each row has seen.
    """

    keys: Tensor
    values: Tensor
    position: Tensor


def empty_buffer(
    batch: int, heads: int, window: int, head_dim: int, *, dtype: torch.dtype, device: torch.device | str
) -> AttentionBuffer:
    """A buffer that has seen nothing.

    Parameters
    ----------
    batch, heads, window, head_dim : int
    dtype : torch.dtype
    device : torch.device or str

    Returns
    -------
    AttentionBuffer

    Examples
    --------
    >>> import torch
    >>> empty_buffer(1, 2, 8, 4, dtype=torch.float32, device="cpu").keys.shape
    torch.Size([1, 2, 8, 4])
    """
    shape = (batch, heads, window, head_dim)
    return AttentionBuffer(
        torch.zeros(shape, dtype=dtype, device=device),
        torch.zeros(shape, dtype=dtype, device=device),
        torch.zeros(batch, dtype=torch.int64, device=device),
    )


def window_attention_step(
    q_BHLD: Tensor,
    k_BHLD: Tensor,
    v_BHLD: Tensor,
    buffer: AttentionBuffer,
    *,
    lengths_B: Tensor | None = None,
    in_place: bool = False,
) -> tuple[Tensor, AttentionBuffer]:
    """Attention of new tokens to themselves and to the window before them.

    Parameters
    ----------
    q_BHLD, k_BHLD, v_BHLD : Tensor, shape (B, H, L, D)
        The new tokens, rotated at their absolute positions.
    buffer : AttentionBuffer
        What came before.
    lengths_B : Tensor of int64, shape (B,), optional
        How many of each row's tokens are real; the rest, at its end, is padding.
    in_place : bool
        Overwrite the buffer's tensors, which decoding without gradients can afford.

    Returns
    -------
    out : Tensor, shape (B, H, L, D)
    buffer : AttentionBuffer
        After the new tokens.

    Examples
    --------
    >>> import torch
    >>> q, k, v = torch.randn(3, 1, 2, 9, 4)
    >>> buffer = empty_buffer(1, 2, 4, 4, dtype=q.dtype, device="cpu")
    >>> parts = []
    >>> for t in range(9):
    ...     out, buffer = window_attention_step(*(x[:, :, t : t + 1] for x in (q, k, v)), buffer)
    ...     parts.append(out)
    >>> bool(torch.allclose(torch.cat(parts, dim=2), window_attention(q, k, v, 4), atol=1e-6))
    True
    """
    length, window = q_BHLD.shape[2], buffer.keys.shape[2]
    if length == 1 and lengths_B is None:
        return _one_token(q_BHLD, k_BHLD, v_BHLD, buffer, in_place=in_place)
    # The window before the new tokens in the order of time: slot (position - W + 1 + j) mod W at place j.
    place = torch.arange(window - 1, device=q_BHLD.device)
    slot = (buffer.position[:, None] - window + 1 + place) % window
    keys = torch.cat([_slots(buffer.keys, slot), k_BHLD], dim=2)
    values = torch.cat([_slots(buffer.values, slot), v_BHLD], dim=2)
    is_filled = place >= window - 1 - buffer.position[:, None]
    is_new = torch.ones(len(slot), length, dtype=torch.bool, device=slot.device)
    segments = torch.cat([is_filled, is_new], dim=1).long()
    padded = functional.pad(q_BHLD, (0, 0, window - 1, 0))
    out = window_attention(padded, keys, values, window, segments_BL=segments)[:, :, window - 1 :]
    real = torch.full_like(buffer.position, length) if lengths_B is None else lengths_B
    return out, _written(buffer, k_BHLD, v_BHLD, real)


def _one_token(
    q: Tensor, k: Tensor, v: Tensor, buffer: AttentionBuffer, *, in_place: bool
) -> tuple[Tensor, AttentionBuffer]:
    window = buffer.keys.shape[2]
    slot = (buffer.position % window)[:, None, None, None].expand_as(k)
    write = Tensor.scatter_ if in_place else Tensor.scatter
    keys, values = write(buffer.keys, 2, slot, k), write(buffer.values, 2, slot, v)
    filled = torch.arange(window, device=q.device) <= buffer.position[:, None]
    out = functional.scaled_dot_product_attention(q, keys, values, attn_mask=filled[:, None, None])
    return out, AttentionBuffer(keys, values, buffer.position + 1)


def _slots(stored_BHWD: Tensor, slot_BW: Tensor) -> Tensor:
    return stored_BHWD.gather(2, slot_BW[:, None, :, None].expand(-1, stored_BHWD.shape[1], -1, stored_BHWD.shape[3]))


def _written(buffer: AttentionBuffer, k: Tensor, v: Tensor, real_B: Tensor) -> AttentionBuffer:
    """For each slot the newest token that belongs there: one of the new ones, or what stood there."""
    length, window = k.shape[2], buffer.keys.shape[2]
    end = buffer.position + real_B
    slots = torch.arange(window, device=k.device)
    newest = end[:, None] - 1 - (end[:, None] - 1 - slots) % window
    index = newest - buffer.position[:, None]
    is_new = (index >= 0)[:, None, :, None]
    index = index.clamp(0, length - 1)
    return AttentionBuffer(
        torch.where(is_new, _slots(k, index), buffer.keys), torch.where(is_new, _slots(v, index), buffer.values), end
    )
