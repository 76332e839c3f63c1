"""The error feedback's quantisers as the published code has them, for comparison: both lose more than they need to.

The 8-bit one divides a row's range by 15, so that it has the resolution of 4 bits in the memory of 8. The 4-bit one
packs neighbours into a byte and unpacks first all high halves and then all low ones, so that a row comes back in
another order.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from assay.lowrank.adamw import DCTAdamW
from assay.lowrank.optimizer import Stack
from assay.lowrank.quantisation import dequantise, quantise

__all__ = ["PublishedQuantiserAdamW", "published_round_trip"]


def published_round_trip(x: Tensor, *, bits: int) -> Tensor:
    """What the published code restores of a matrix, shape (..., columns)."""
    columns = x.shape[-1]
    coarse = dequantise(quantise(x, bits=4), bits=4, columns=columns)
    if bits == 8:
        return coarse
    return torch.cat([coarse[..., ::2], coarse[..., 1::2]], dim=-1)


class PublishedQuantiserAdamW(DCTAdamW):
    """DCT-AdamW whose error goes through the published quantiser; kept in full, since only its values matter here."""

    def __init__(self, params: Any, lr: float, *, bits: int, **settings: Any) -> None:
        self.bits = bits
        super().__init__(params, lr, error_feedback="fp", **settings)

    def _keep_error(self, group: dict[str, Any], stack: Stack, rows: slice, error: Tensor) -> None:
        super()._keep_error(group, stack, rows, published_round_trip(error, bits=self.bits).to(error.dtype))
