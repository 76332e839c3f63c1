"""Error feedback in few bits: every row is stored as whole numbers between its smallest and largest value.

For a row with range [min, max], ``u = (max - min) / L`` and ``q = floor((x - min) / u + 1/2)``, with L = 255 for 8
bits and 15 for 4; the restored ``q u + min`` is within u/2. The published code divides by 15 also for 8 bits, and
unpacks 4 bits in another order than it packs them; both are right here.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.errors import InputError

__all__ = ["Quantised", "dequantise", "packed_columns", "quantise"]

LEVELS = {8: 255, 4: 15}


@dataclass(frozen=True)
class Quantised:
    """A matrix in few bits.

    Attributes
    ----------
    codes : Tensor of uint8, shape (..., columns) or (..., ceil(columns / 2))
        One byte a value, or two values a byte: the even one in the high half.
    scales : Tensor of float32, shape (..., 2)
        Smallest value and step of each row.
    """

    codes: Tensor
    scales: Tensor


def packed_columns(columns: int, bits: int) -> int:
    """Bytes of a row."""
    if bits not in LEVELS:
        raise InputError(f"bits is {bits}", expected="8 or 4")
    return columns if bits == 8 else (columns + 1) // 2


def quantise(x: Tensor, *, bits: int) -> Quantised:
    """Store a matrix in 8 or 4 bits, row by row.

    Parameters
    ----------
    x : Tensor of float, shape (..., columns)
        Finite values.
    bits : int
        8 or 4.
    """
    columns = x.shape[-1]
    packed_columns(columns, bits)
    x = x.float()
    low, high = x.amin(dim=-1, keepdim=True), x.amax(dim=-1, keepdim=True)
    step = (high - low) / LEVELS[bits]
    # A constant row has step 0 and is restored as its smallest value.
    codes = ((x - low) / torch.where(step > 0, step, 1.0)).add_(0.5).floor_().clamp_(0, LEVELS[bits]).to(torch.uint8)
    if bits == 4:
        if columns % 2:
            codes = torch.cat([codes, torch.zeros_like(codes[..., :1])], dim=-1)
        codes = (codes[..., ::2] << 4) | codes[..., 1::2]
    return Quantised(codes, torch.cat([low, step], dim=-1))


def dequantise(stored: Quantised, *, bits: int, columns: int) -> Tensor:
    """The float32 matrix that was stored, shape (..., columns)."""
    codes = stored.codes
    if bits == 4:
        codes = torch.stack([codes >> 4, codes & 15], dim=-1).flatten(-2)[..., :columns]
    return codes.float() * stored.scales[..., 1:] + stored.scales[..., :1]
