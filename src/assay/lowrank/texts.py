"""Texts as one long row of tokens, and batches of it."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

import torch
from torch import Tensor

from assay.core.errors import InputError
from assay.core.texts import Tokens

__all__ = ["Corpus", "StreamCorpus"]

HELD_OUT = 0.1
"""The share of a text's end that is kept for validation."""


class Corpus:
    """Tokens, divided into a part to train on and an end that is held out.

    Parameters
    ----------
    texts : sequence of str
        Documents, joined in their order.
    tokens : Tokens
        What turns them into numbers.
    context : int
        Tokens that a model sees at once.
    source : str
        Their name, for messages.

    Attributes
    ----------
    train, held_out : Tensor of int64
        The two parts.
    fingerprint : str
        A checksum of the tokens, by which a resumed run knows its text again.

    Raises
    ------
    InputError
        There are too few tokens for one batch row of each part.
    """

    def __init__(self, texts: Sequence[str], tokens: Tokens, *, context: int, source: str = "the text") -> None:
        numbers = torch.cat([torch.tensor(list(tokens.encode(text)), dtype=torch.int64) for text in texts])
        held = max(context + 1, int(len(numbers) * HELD_OUT))
        if len(numbers) < held + context + 1:
            raise InputError(
                f"has {len(numbers)} tokens",
                file=source,
                expected=f"at least {2 * (context + 1)} for a context of {context}",
            )
        self.train, self.held_out = numbers[:-held], numbers[-held:]
        self.context = context
        self.fingerprint = f"{zlib.crc32(numbers.numpy().tobytes()):08x}"

    def batch(self, step: int, *, size: int, seed: int) -> Tensor:
        """The rows of one step, shape (size, context): they depend on seed and step alone, so a resumed run sees the
        same.
        """
        generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
        starts = torch.randint(len(self.train) - self.context, (size,), generator=generator)
        return torch.stack([self.train[start : start + self.context] for start in starts.tolist()])

    def validation(self, *, rows: int) -> Tensor:
        """Evenly spaced rows of the held-out part, shape (rows, context), the same for everyone."""
        room = len(self.held_out) - self.context
        starts = torch.linspace(0, room, min(rows, room + 1)).long()
        return torch.stack([self.held_out[start : start + self.context] for start in starts.tolist()])


class StreamCorpus:
    """Tokens of documents that come one after the other, in rows: for more text than memory holds.

    Parameters
    ----------
    documents : callable
        Called with a seed, gives the documents to train on in the order of that seed; begun again when they end.
    held_out : iterable of str
        Documents for validation.
    tokens : Tokens
        What turns them into numbers.
    context : int
        Tokens of a row; a row may hold the end of one document and the beginning of another.
    """

    def __init__(
        self,
        documents: Callable[[int], Iterable[str]],
        held_out: Iterable[str],
        tokens: Tokens,
        *,
        context: int,
    ) -> None:
        self.context = context
        self._documents, self._held_out, self._tokens = documents, held_out, tokens
        self._rows: Iterator[Tensor] = iter(())
        self._at: tuple[int, int] | None = None

    def batch(self, step: int, *, size: int, seed: int) -> Tensor:
        """The rows of one step, shape (size, context): the next ones, or after a jump those at that place."""
        wanted = step * size
        if self._at is None or self._at[0] != seed or self._at[1] > wanted:
            self._rows, self._at = self._packed(self._again(seed)), (seed, 0)
        for _ in range(wanted - self._at[1]):
            next(self._rows)
        self._at = (seed, wanted + size)
        return torch.stack(list(islice(self._rows, size)))

    def validation(self, *, rows: int) -> Tensor:
        """The first rows of the held-out documents, shape (rows, context)."""
        found = list(islice(self._packed(self._held_out), rows))
        if not found:
            raise InputError("the held-out documents are too short", expected=f"at least {self.context} tokens")
        return torch.stack(found)

    def _again(self, seed: int) -> Iterator[str]:
        while True:
            empty = True
            for document in self._documents(seed):
                empty = False
                yield document
            if empty:
                raise InputError("there are no documents", expected="at least one")

    def _packed(self, documents: Iterable[str]) -> Iterator[Tensor]:
        held: list[int] = []
        for document in documents:
            held += self._tokens.encode(document)
            whole = len(held) // self.context * self.context
            yield from torch.tensor(held[:whole], dtype=torch.int64).view(-1, self.context)
            held = held[whole:]
