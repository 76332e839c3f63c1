"""Chunks that are computed a second time in the backward pass: what is kept grows with the number of chunks only by the
weights at their starts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch.utils.checkpoint import checkpoint

__all__ = ["recomputed"]

State = TypeVar("State")
Part = TypeVar("Part")
Result = TypeVar("Result")


def recomputed(compute: Callable[[State, Part], Result], state: State, part: Part) -> Result:
    """`compute(state, part)`, of which the backward pass keeps nothing but the arguments.

    Nothing random happens in a chunk, so that no generator's state is kept.
    """
    if not torch.is_grad_enabled():
        return compute(state, part)
    result: Result = checkpoint(compute, state, part, use_reentrant=False, preserve_rng_state=False)
    return result
