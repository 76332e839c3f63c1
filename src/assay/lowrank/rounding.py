"""Stochastic rounding of weights in bfloat16, by which updates of less than half a unit in the last place add up.

A float32 number is rounded up with the probability that is its distance from the number below: add sixteen random bits
to the half of its bits that bfloat16 doesn't have, and cut them off.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["generator_of", "round_stochastically"]

LOW_BITS = 0xFFFF


def round_stochastically(x: Tensor, generator: torch.Generator) -> Tensor:
    """Round to bfloat16, on average to the number itself.

    Parameters
    ----------
    x : Tensor of float32
        Any shape; infinity and NaN stay as they are.
    generator : Generator
        On the tensor's device.

    Returns
    -------
    Tensor of bfloat16, the same shape
    """
    noise = torch.randint(0, LOW_BITS + 1, x.shape, dtype=torch.int32, device=x.device, generator=generator)
    raised = ((x.contiguous().view(torch.int32) + noise) & ~LOW_BITS).view(torch.float32)
    return torch.where(torch.isfinite(x), raised, x).to(torch.bfloat16)


def generator_of(seed: int, step: int, place: int, process: int, device: torch.device) -> torch.Generator:
    """A generator for one parameter in one step, so that a resumed run rounds as the first did."""
    mixed = ((seed * 1_000_003 + step) * 1_000_003 + place) * 4_099 + process
    return torch.Generator(device).manual_seed(mixed % (1 << 63))
