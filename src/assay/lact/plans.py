"""Plans: which tokens change the memory, which ask it, and in which order. Data that can be checked and printed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

from assay.core.errors import InputError

__all__ = ["Mode", "Order", "Plan", "Segment"]

Order = Literal["update_first", "apply_first"]
Mode = Literal["full", "block", "shifted"]


@dataclass(frozen=True)
class Segment:
    """Tokens from `start` up to, and without, `end`.

    Parameters
    ----------
    start, end : int
        Positions in the sequence.
    update : bool
        Whether these tokens change the memory.
    apply : bool
        Whether the memory answers their queries.
    order : {"update_first", "apply_first"}
        What comes first where both are done.
    """

    start: int
    end: int
    update: bool = True
    apply: bool = True
    order: Order = "update_first"


@dataclass(frozen=True)
class Plan:
    """What is done with the tokens of a sequence, step by step.

    Segments are worked through in the given order. The tokens that change the memory are in ascending order and each
    does so once at most; each query is answered once at most.

    Parameters
    ----------
    segments : sequence of Segment

    Raises
    ------
    InputError
        A segment is empty or begins before 0, does nothing, or overlaps another one in what it does.

    Examples
    --------
    >>> [(s.start, s.end, s.update) for s in Plan.shifted(5, chunk_size=2)]
    [(0, 2, True), (2, 4, True), (4, 5, False)]
    """

    segments: tuple[Segment, ...]

    def __init__(self, segments: Iterable[Segment]) -> None:
        object.__setattr__(self, "segments", tuple(segments))
        self._check()

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.segments)

    def __len__(self) -> int:
        return len(self.segments)

    @property
    def length(self) -> int:
        """The shortest sequence that the plan fits."""
        return max((segment.end for segment in self.segments), default=0)

    @classmethod
    def full(cls, length: int) -> Plan:
        """All tokens change the memory, then all ask it: for sets."""
        return cls((Segment(0, length),) if length else ())

    @classmethod
    def block(cls, length: int, *, chunk_size: int) -> Plan:
        """Chunk after chunk changes the memory and then asks it: each token sees its own chunk and those before."""
        return cls(Segment(begin, end) for begin, end in _chunks(length, chunk_size))

    @classmethod
    def shifted(cls, length: int, *, chunk_size: int) -> Plan:
        """Chunk after chunk asks the memory and then changes it: each token sees the chunks before its own.

        The last chunk changes nothing, since nothing asks after it.
        """
        return cls(
            Segment(begin, end, update=end < length, order="apply_first") for begin, end in _chunks(length, chunk_size)
        )

    @classmethod
    def strided(cls, updates: Sequence[tuple[int, int]], *, length: int) -> Plan:
        """One step on chosen tokens, then all ask: for views whose inputs are known.

        Parameters
        ----------
        updates : sequence of (start, end)
            The tokens that change the memory, each range as a step of its own.
        length : int
            All tokens of the sequence.
        """
        reads = [Segment(begin, end, apply=False) for begin, end in updates]
        return cls([*reads, Segment(0, length, update=False)] if length else reads)

    @classmethod
    def interleaved_video(cls, chunks: int, *, chunk_size: int, repeats: int = 1) -> Plan:
        """Noisy and clean frames in turn: noise 1, clean 1, noise 2, clean 2, …, the last noise.

        The first noise asks the initial memory; then every clean chunk changes the memory, and asks it together with
        the noise that follows.

        Parameters
        ----------
        chunks : int
            How many chunks the video has.
        chunk_size : int
            Tokens a chunk.
        repeats : int
            How many noisy versions of each chunk there are.
        """
        if chunks < 1 or chunk_size < 1 or repeats < 1:
            raise InputError(
                f"chunks is {chunks}, chunk_size {chunk_size}, repeats {repeats}", expected="each at least 1"
            )
        noise = repeats * chunk_size
        segments = [Segment(0, noise, update=False)]
        for index in range(chunks - 1):
            clean = noise + index * (noise + chunk_size)
            segments.append(Segment(clean, clean + chunk_size))
            segments.append(Segment(clean + chunk_size, clean + chunk_size + noise, update=False))
        return cls(segments)

    @classmethod
    def of_mode(cls, mode: Mode, length: int, *, chunk_size: int) -> Plan:
        """The plan of that name."""
        check_mode(mode)
        if mode == "full":
            return cls.full(length)
        return (cls.block if mode == "block" else cls.shifted)(length, chunk_size=chunk_size)

    def _check(self) -> None:
        read, asked = 0, []
        for number, segment in enumerate(self.segments):
            where = f"segment {number} of the plan ({segment.start}, {segment.end})"
            if segment.start < 0 or segment.end <= segment.start:
                raise InputError(where, expected="0 <= start < end")
            if segment.order not in get_args(Order):
                raise InputError(f"{where}: order is {segment.order!r}", expected=" or ".join(get_args(Order)))
            if not (segment.update or segment.apply):
                raise InputError(f"{where} does nothing", expected="update, apply or both")
            if segment.update:
                if segment.start < read:
                    raise InputError(
                        f"{where} overlaps tokens that changed the memory before, up to {read}",
                        expected="updates in ascending order, each token once at most",
                    )
                read = segment.end
            if segment.apply:
                asked.append((segment.start, segment.end, number))
        asked.sort()
        for (_, end, first), (begin, _, second) in pairwise(asked):
            if begin < end:
                raise InputError(
                    f"segments {first} and {second} of the plan overlap", expected="each token applied at most once"
                )


def check_mode(mode: str) -> None:
    """Refuse an unknown mode.

    Raises
    ------
    InputError
        `mode` is unknown.
    """
    if mode not in get_args(Mode):
        raise InputError(f"mode is {mode!r}", expected=f"one of: {', '.join(get_args(Mode))}")


def check_chunk_size(chunk_size: int) -> None:
    """Refuse chunks without tokens.

    Raises
    ------
    InputError
        `chunk_size` is below 1.
    """
    if chunk_size < 1:
        raise InputError(f"chunk_size is {chunk_size}", expected="at least 1")


def _chunks(length: int, chunk_size: int) -> Iterator[tuple[int, int]]:
    check_chunk_size(chunk_size)
    for begin in range(0, length, chunk_size):
        yield begin, min(begin + chunk_size, length)
