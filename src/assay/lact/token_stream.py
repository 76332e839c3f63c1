"""Reading and writing text token by token, or piece by piece, with a state of constant size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from assay.core.errors import InputError
from assay.lact.cache import LaCTCache, fast_heads
from assay.lact.causal import CausalState
from assay.lact.state import LaCTState

if TYPE_CHECKING:
    from assay.lact.language import LaCTForCausalLM

__all__ = ["TokenStream"]

PREFILL = 4096
"""Tokens that are read at once."""


class TokenStream:
    """Reads tokens piece by piece; `LaCTForCausalLM.stream` gives one.

    Parameters
    ----------
    model : LaCTForCausalLM
    state : LaCTState, optional
        What was read before.
    batch : int
        Rows, where there is no state.

    Examples
    --------
    >>> import torch
    >>> from assay.lact.language import LaCTForCausalLM
    >>> model = LaCTForCausalLM.small()
    >>> with model.stream() as reader:
    ...     _ = reader.feed(torch.arange(9)[None])
    ...     text = reader.generate(4)
    >>> len(list(text))
    4
    """

    def __init__(self, model: LaCTForCausalLM, state: LaCTState | None = None, *, batch: int = 1) -> None:
        self.model = model
        self.logits: Tensor | None = None
        if state is None:
            self._cache = model.model.start(batch)
            return
        state.require(model.state_config)
        copied = state.clone().to(model.device)
        layers = len(model.model.layers)
        self._cache = LaCTCache([CausalState.of_named(copied.part(f"layer{number}")) for number in range(layers)])

    @torch.no_grad()
    def feed(self, input_ids: Tensor, *, attention_mask: Tensor | None = None) -> Tensor:
        """Read tokens.

        Parameters
        ----------
        input_ids : Tensor of int64, shape (batch, length)
        attention_mask : Tensor, shape (batch, length), optional
            0 at padding, on the left.

        Returns
        -------
        Tensor, shape (batch, vocabulary)
            The logits after the last token.

        Raises
        ------
        InputError
            No tokens before anything was read.
        """
        for begin in range(0, input_ids.shape[1], PREFILL):
            part = slice(begin, begin + PREFILL)
            mask = None if attention_mask is None else attention_mask[:, part]
            if mask is not None and not bool(mask.any()):
                continue
            out = self.model(input_ids[:, part], attention_mask=mask, cache=self._cache, logits_to_keep=1)
            self._cache, self.logits = out.cache, out.logits[:, -1]
        if self.logits is None:
            raise InputError("nothing has been read", expected="at least one token")
        return self.logits

    @torch.no_grad()
    def loss(self, input_ids: Tensor) -> Tensor:
        """Read tokens and say how well each was foreseen.

        Parameters
        ----------
        input_ids : Tensor of int64, shape (batch, length)

        Returns
        -------
        Tensor, shape (batch, length)
            Nats a token; NaN at the first one where nothing was read before it in this stream.
        """
        found = []
        for part in input_ids.split(PREFILL, dim=1):
            out = self.model(part, cache=self._cache)
            first = torch.full_like(out.logits[:, :1], torch.nan) if self.logits is None else self.logits[:, None]
            self._cache, self.logits = out.cache, out.logits[:, -1]
            foreseen = torch.cat([first, out.logits[:, :-1]], dim=1)
            found.append(functional.cross_entropy(foreseen.mT, part, reduction="none"))
        return torch.cat(found, dim=1)

    def generate(
        self,
        tokens: int,
        *,
        temperature: float = 0.0,
        top_k: int = 0,
        generator: torch.Generator | None = None,
        stop: Sequence[int] = (),
    ) -> Iterator[Tensor]:
        """Tokens one after the other, each read as soon as it is chosen.

        Parameters
        ----------
        tokens : int
            How many at most.
        temperature : float
            0 for the most likely token; else the logits are divided by it and a token is drawn.
        top_k : int
            Draw among so many most likely tokens; 0 for all.
        generator : torch.Generator, optional
            Of the draws.
        stop : sequence of int
            Tokens after which the stream ends, once every row has had one.

        Yields
        ------
        Tensor of int64, shape (batch,)
        """
        if self.logits is None:
            raise InputError("nothing has been read", expected="at least one token")
        ended = torch.zeros(len(self.logits), dtype=torch.bool, device=self.logits.device)
        for _ in range(tokens):
            token = _chosen(self.logits, temperature, top_k, generator)
            self.feed(token[:, None])
            yield token
            ended |= torch.isin(token, torch.tensor(list(stop), dtype=token.dtype, device=token.device))
            if bool(ended.all()):
                return

    def end_of_input(self) -> None:
        """Close started chunks, so that all that was read is in the weights."""
        layers = self.model.model.blocks
        states = [block.attn.closed(state) for block, state in zip(layers, self._cache.states, strict=True)]
        self._cache = LaCTCache(states)

    def state(self) -> LaCTState:
        """A copy of what has been read.

        Returns
        -------
        LaCTState
        """
        parts = {
            f"layer{number}": state.named(heads=fast_heads(state), config="")
            for number, state in enumerate(self._cache.states)
        }
        return LaCTState.of_parts(parts, config=self.model.state_config).clone()

    def fork(self, rows: Sequence[int]) -> TokenStream:
        """A stream that goes on from a copy of these rows.

        Parameters
        ----------
        rows : sequence of int

        Returns
        -------
        TokenStream
        """
        forked = TokenStream(self.model, self.state().index_select(list(rows)))
        forked.logits = None if self.logits is None else self.logits[list(rows)]
        return forked


def _chosen(logits: Tensor, temperature: float, top_k: int, generator: torch.Generator | None) -> Tensor:
    if temperature == 0:
        return logits.argmax(-1)
    if top_k:
        least = logits.topk(min(top_k, logits.shape[-1]), dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    probabilities = (logits / temperature).softmax(-1)
    return torch.multinomial(probabilities, 1, generator=generator)[:, 0]
