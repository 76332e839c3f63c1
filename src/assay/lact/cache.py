"""What a language model has read, as ``generate`` of transformers hands it from step to step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor
from transformers.cache_utils import Cache

from assay.lact.causal import CausalState

__all__ = ["LaCTCache"]


class LaCTCache(Cache):
    """What a model has read, in the form that ``generate`` hands from step to step. Its size is constant.

    Parameters
    ----------
    states : sequence of CausalState
        One a layer.

    Examples
    --------
    >>> import torch
    >>> from assay.lact.language import LaCTForCausalLM
    >>> model = LaCTForCausalLM.small()
    >>> out = model(torch.tensor([[1, 2, 3]]), use_cache=True)
    >>> out.cache.get_seq_length()
    3
    """

    def __init__(self, states: Sequence[CausalState]) -> None:
        # Without layers of transformers' own: none of them keeps fast weights.
        super().__init__(layers=[])
        self.states = list(states)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Tokens read, in the longest row."""
        return int(self.states[layer_idx].buffer.position.max())

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Rows in another order: beams fork the state."""
        self._map(lambda one: one.index_select(0, beam_idx.to(one.device)))

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep some rows."""
        self.reorder_cache(indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Each row several times."""
        self._map(lambda one: one.repeat_interleave(repeats, dim=0))

    def _map(self, change: Callable[[Tensor], Tensor]) -> None:
        heads = [fast_heads(state) for state in self.states]
        self.states = [
            CausalState.of_named(state.named(heads=own, config="").map(change))
            for state, own in zip(self.states, heads, strict=True)
        ]


def fast_heads(state: CausalState) -> int:
    if state.memory is None:
        return 1
    matrix = state.memory if isinstance(state.memory, Tensor) else state.memory.weights.w1
    return len(matrix) // len(state.buffer.position)
