"""Patterns at two bits a stored bit, and the two products of a sweep computed on the packed words.

The patterns are kept twice: by pattern (`PackedPatterns.rows`, 64 sites a word) for the overlaps, which are
exclusive-ors and population counts; and by site (`PackedPatterns.columns`, 64 patterns a word) for the weighted votes.
For those the integer weights of the patterns are written as bit planes, so that a vote is a sum of population counts
of ``site AND plane`` with powers of two. All sums are integers: no order of summation and no number of threads changes
a result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

__all__ = ["PackedPatterns", "pack_signs", "pack_words", "unpack_signs", "words_of"]

Words = NDArray[np.uint64]

WORD = 64
PACK_ROWS = 4096
"""Patterns that are unpacked at a time; at 1024 sites they take 4 MiB as bytes."""
GEMM_ROWS = 2048
OUTLIERS = 64
"""Patterns whose weight is left out of the bit planes and voted for one by one: the few that are being recalled have
weights far above the rest, which would otherwise cost a plane for each of their leading bits."""
PATTERNS_AN_OUTLIER = 512
SITES_AT_ONCE = 4
STATES_AT_ONCE = 8
"""States whose planes pass by the columns together, which are then read once for all of them."""
LANES = 8
CHUNK = 256
"""Words of a plane that are visited at a time: some twenty planes of 2 KiB stay in a first-level cache for all
sites."""


def words_of(bits: int) -> int:
    """How many 64-bit words hold so many bits."""
    return -(-bits // WORD)


def pack_words(bits: NDArray[Any]) -> Words:
    """Pack truth values into words, least significant bit first; the last word is filled up with zeros.

    Parameters
    ----------
    bits : ndarray of bool, shape (..., n)
        The truth values.

    Returns
    -------
    ndarray of uint64, shape (..., ceil(n / 64))
    """
    width = words_of(bits.shape[-1])
    octets = np.packbits(bits, axis=-1, bitorder="little")
    padded = np.zeros((*bits.shape[:-1], width * 8), dtype=np.uint8)
    padded[..., : octets.shape[-1]] = octets
    return padded.view("<u8").astype(np.uint64, copy=False)


def pack_signs(states: NDArray[np.int8]) -> tuple[Words, Words]:
    """Pack states into the words of their signs (+1 is a set bit) and of which units are known (not 0)."""
    return pack_words(states > 0), pack_words(states != 0)


def unpack_signs(words: Words, *, bits: int) -> NDArray[np.int8]:
    """The signs, +1 and -1, of packed words; shape (..., bits)."""
    octets = np.ascontiguousarray(words).astype("<u8", copy=False).view(np.uint8)
    flags = np.unpackbits(octets, axis=-1, count=bits, bitorder="little")
    return (flags.view(np.int8) << 1) - np.int8(1)


class PackedPatterns:
    """Patterns of ±1, packed by pattern and by site.

    Parameters
    ----------
    rows : ndarray of uint64, shape (patterns, ceil(bits / 64))
        The patterns, a set bit for +1; bits beyond the last are zero.
    bits : int
        Sites.

    Attributes
    ----------
    columns : ndarray of uint64, shape (bits, ceil(patterns / 64))
        The same bits by site.
    column_sums : ndarray of int64, shape (bits,)
        The sum of the signs at each site.
    """

    def __init__(self, rows: Words, *, bits: int) -> None:
        self.bits = bits
        self.rows = np.ascontiguousarray(rows, dtype=np.uint64)
        self.columns = _transpose(self.rows, bits)
        self.column_sums = 2 * _ones(self.columns) - len(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def nbytes(self) -> int:
        """Bytes of both layouts."""
        return self.rows.nbytes + self.columns.nbytes + self.column_sums.nbytes

    def append(self, rows: Words) -> None:
        """Add patterns; only the new ones, and those that share a word with them, are packed by site anew."""
        whole = len(self.rows) // WORD
        self.rows = np.concatenate([self.rows, np.asarray(rows, dtype=np.uint64)])
        self.columns = np.concatenate(
            [self.columns[:, :whole], _transpose(self.rows[whole * WORD :], self.bits)], axis=1
        )
        self.column_sums = 2 * _ones(self.columns) - len(self.rows)

    def signs(self, first: int = 0, last: int | None = None) -> NDArray[np.int8]:
        """The patterns `first` to `last` (exclusive) as ±1."""
        return unpack_signs(self.rows[first:last], bits=self.bits)

    def overlaps(self, signs: Words, known: Words, *, threads: int = 1) -> NDArray[np.int32]:
        """Sums over the known units of pattern times state.

        Parameters
        ----------
        signs, known : ndarray of uint64, shape (states, ceil(bits / 64))
            See `pack_signs`.
        threads : int
            Threads; each takes a part of the patterns.

        Returns
        -------
        ndarray of int32, shape (states, patterns)
        """
        out = np.empty((len(signs), len(self)), dtype=np.int32)
        counts = np.bitwise_count(known).sum(axis=1, dtype=np.int32)

        def part(first: int, last: int) -> None:
            _overlaps(self.rows[first:last], signs, known, counts, out[:, first:last])

        _in_parts(part, len(self), threads)
        return out

    def votes(self, weights: NDArray[np.int64], *, threads: int = 1) -> NDArray[np.int64]:
        """Weighted sums of the patterns at each site, exact.

        Parameters
        ----------
        weights : ndarray of int64, shape (states, patterns)
            A weight for each pattern; the sum of their magnitudes must stay below 2**62.
        threads : int
            Threads; each takes a part of the sites.

        Returns
        -------
        ndarray of int64, shape (states, bits)
        """
        out = np.empty((len(weights), self.bits), dtype=np.int64)
        for first in range(0, len(weights), STATES_AT_ONCE):
            last = first + STATES_AT_ONCE
            self._vote(weights[first:last], out[first:last], threads)
        return out

    def _vote(self, weights: NDArray[np.int64], out: NDArray[np.int64], threads: int) -> None:
        """The votes of a few states, whose planes pass by the columns together."""
        most = min(OUTLIERS, self.rows.shape[0] // PATTERNS_AN_OUTLIER)
        ranges = [_inliers(weight, most) for weight in weights]
        width = self.columns.shape[1]
        found = [
            _planes(weight, low, count, outliers, width)
            for weight, (low, count, outliers) in zip(weights, ranges, strict=True)
        ]
        planes = np.concatenate([planes for planes, _, _ in found])
        powers = np.concatenate([powers for _, powers, _ in found])
        owners = np.repeat(np.arange(len(weights)), [len(powers) for _, powers, _ in found])

        def part(first: int, last: int) -> None:
            _count_votes(self.columns[first:last], planes, powers, owners, out[:, first:last])

        _in_parts(part, self.bits, threads, multiple=SITES_AT_ONCE)
        for weight, votes, (low, _, outliers), (_, _, total) in zip(weights, out, ranges, found, strict=True):
            votes *= 2
            votes += low * self.column_sums - total
            if len(outliers):
                votes += (weight[outliers] - low) @ unpack_signs(self.rows[outliers], bits=self.bits).astype(np.int64)

    def dense_votes(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Weighted sums of the patterns at each site, for weights that are no integers.

        Patterns whose weight vanishes for every state are left out.
        """
        used = np.flatnonzero(weights.any(axis=0))
        out = np.zeros((len(weights), self.bits))
        for first in range(0, len(used), GEMM_ROWS):
            chosen = used[first : first + GEMM_ROWS]
            out += weights[:, chosen] @ unpack_signs(self.rows[chosen], bits=self.bits).astype(np.float64)
        return out

    def blocks(self, size: int = GEMM_ROWS) -> Iterator[tuple[int, int]]:
        """The bounds of blocks of patterns."""
        for first in range(0, len(self), size):
            yield first, min(first + size, len(self))


def _in_parts(work: Callable[[int, int], None], size: int, threads: int, *, multiple: int = 1) -> None:
    """Do `work` on equal parts of ``range(size)``, one a thread."""
    parts = max(1, min(threads, size // (4 * multiple)))
    if parts == 1:
        work(0, size)
        return
    step = -(-size // (parts * multiple)) * multiple
    bounds = [(first, min(first + step, size)) for first in range(0, size, step)]
    with ThreadPoolExecutor(len(bounds)) as pool:
        list(pool.map(lambda bound: work(*bound), bounds))


def _transpose(rows: Words, bits: int) -> Words:
    """Packed rows as packed columns."""
    columns = np.zeros((bits, words_of(len(rows)) * 8), dtype=np.uint8)
    for first in range(0, len(rows), PACK_ROWS):
        octets = rows[first : first + PACK_ROWS].astype("<u8", copy=False).view(np.uint8)
        flags = np.unpackbits(octets, axis=1, count=bits, bitorder="little")
        packed = np.packbits(np.ascontiguousarray(flags.T), axis=1, bitorder="little")
        columns[:, first // 8 : first // 8 + packed.shape[1]] = packed
    return columns.view("<u8").astype(np.uint64, copy=False)


def _ones(words: Words) -> NDArray[np.int64]:
    """Set bits of each row."""
    return np.array([np.bitwise_count(row).sum(dtype=np.int64) for row in words], dtype=np.int64)


@intrinsic
def _population_count(context: Any, word: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), codegen


_count_bits: Any = _population_count


@njit(cache=True, nogil=True)
def _overlaps(rows, signs, known, counts, out):  # type: ignore[no-untyped-def]
    width = rows.shape[1]
    for pattern in range(rows.shape[0]):
        row = rows[pattern]
        for state in range(signs.shape[0]):
            differing = np.uint64(0)
            for word in range(width):
                differing += _count_bits((row[word] ^ signs[state, word]) & known[state, word])
            out[state, pattern] = counts[state] - 2 * np.int64(differing)


@intrinsic
def _zeros_before(context: Any, word: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctlz(args[0], context.get_constant(types.boolean, False))

    return types.uint64(types.uint64), codegen


_leading_zeros: Any = _zeros_before


@njit(cache=True, nogil=True, inline="always")
def _bit_length(value):  # type: ignore[no-untyped-def]
    return 64 - np.int64(_leading_zeros(np.uint64(value)))


@njit(cache=True, nogil=True)
def _inliers(weight, most_outliers):  # type: ignore[no-untyped-def]
    """The least weight and the number of bits above it of all patterns but a few outliers, and these."""
    frequency = np.zeros(64, np.int64)
    for pattern in range(len(weight)):
        frequency[_bit_length(abs(weight[pattern]))] += 1
    cap, beyond = 63, 0
    while cap > 0 and beyond + frequency[cap] <= most_outliers:
        beyond += frequency[cap]
        cap -= 1
    outliers = np.empty(beyond, np.int64)
    found = 0
    low, high = np.int64(0), np.int64(0)
    fresh = True
    for pattern in range(len(weight)):
        value = weight[pattern]
        if _bit_length(abs(value)) > cap:
            outliers[found] = pattern
            found += 1
        elif fresh:
            low, high, fresh = value, value, False
        else:
            low, high = min(low, value), max(high, value)
    return low, _bit_length(high - low), outliers


@njit(cache=True, nogil=True)
def _planes(weight, low, count, outliers, width):  # type: ignore[no-untyped-def]
    """The bit planes of ``weight - low`` that aren't empty, their powers of two, and the sum; outliers count as
    zero.
    """
    planes = np.zeros((count, width), np.uint64)
    total = np.int64(0)
    used = np.uint64(0)
    word_planes = np.zeros(max(count, 1), np.uint64)
    next_outlier = 0
    for word in range(width):
        word_planes[:] = 0
        for bit in range(min(64, len(weight) - word * 64)):
            pattern = word * 64 + bit
            if next_outlier < len(outliers) and outliers[next_outlier] == pattern:
                next_outlier += 1
                continue
            value = np.uint64(weight[pattern] - low)
            total += weight[pattern] - low
            used |= value
            for plane in range(count):
                word_planes[plane] |= ((value >> np.uint64(plane)) & np.uint64(1)) << np.uint64(bit)
        for plane in range(count):
            planes[plane, word] = word_planes[plane]
    kept = np.empty(count, np.int64)
    number = 0
    for plane in range(count):
        if (used >> np.uint64(plane)) & np.uint64(1):
            kept[number] = plane
            planes[number] = planes[plane]
            number += 1
    return planes[:number], kept[:number], total


@intrinsic
def _count_four(
    context: Any, columns: Any, place: Any, stride: Any, planes: Any, origin: Any, words: Any, shift: Any, out: Any
) -> Any:
    """Add to ``out[0:4]`` the bits that four rows of words share with a plane, times ``2**shift``.

    The rows start at the flat `columns`' places `place`, ``place + stride`` and so on, the plane at
    ``planes[origin]``. Eight words are taken at a time, the widest vectors that a processor may have; fewer lanes are
    used where it has none.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        columns, planes, out = (
            context.make_array(signature.args[at])(context, builder, args[at]).data for at in (0, 3, 7)
        )
        place, stride, origin, words, shift = args[1], args[2], args[4], args[5], args[6]
        integer = ir.IntType(64)
        vector = ir.VectorType(integer, LANES)
        count, add = (
            cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(result, [vector]), f"llvm.{name}.v{LANES}i64"
            )
            for name, result in (("ctpop", vector), ("vector.reduce.add", integer))
        )
        starts = [builder.add(place, builder.mul(stride, integer(row))) for row in range(4)]
        sums = [cgutils.alloca_once_value(builder, ir.Constant(vector, [0] * LANES)) for _ in range(4)]

        def load(pointer: Any, at: Any) -> Any:
            address = builder.gep(pointer, [at])
            return builder.load(builder.bitcast(address, vector.as_pointer()), align=WORD // 8, typ=vector)

        with cgutils.for_range(builder, builder.udiv(words, integer(LANES))) as loop:
            offset = builder.mul(loop.index, integer(LANES))
            plane = load(planes, builder.add(origin, offset))
            for start, total in zip(starts, sums, strict=True):
                shared = builder.call(count, [builder.and_(load(columns, builder.add(start, offset)), plane)])
                builder.store(builder.add(builder.load(total, typ=vector), shared), total)
        for row, total in enumerate(sums):
            address = builder.gep(out, [integer(row)])
            number = builder.shl(builder.call(add, [builder.load(total, typ=vector)]), shift)
            builder.store(builder.add(builder.load(address, typ=integer), number), address)
        return context.get_dummy_value()

    integer = types.int64
    return types.void(columns, integer, integer, planes, integer, integer, integer, out), codegen


_shared_bits: Any = _count_four


@njit(cache=True, nogil=True)
def _count_votes(columns, planes, powers, owners, out):  # type: ignore[no-untyped-def]
    """For each state and site, sum over the state's planes 2**power times the number of patterns with the bit in
    both.
    """
    sites, width = columns.shape
    flat_columns, flat_planes = columns.reshape(-1), planes.reshape(-1)
    sums = np.zeros((len(out), 4), np.int64)
    out[:] = 0
    for start in range(0, width, CHUNK):
        stop = min(start + CHUNK, width)
        whole = (stop - start) // LANES * LANES
        for first in range(0, sites - sites % 4, 4):
            sums[:] = 0
            place = first * width + start
            for plane in range(len(powers)):
                own = sums[owners[plane]]
                origin = plane * width + start
                _shared_bits(flat_columns, place, width, flat_planes, origin, whole, powers[plane], own)
                for word in range(start + whole, stop):
                    for row in range(4):
                        shared = _count_bits(columns[first + row, word] & planes[plane, word])
                        own[row] += np.int64(shared) << powers[plane]
            for state in range(len(out)):
                for row in range(4):
                    out[state, first + row] += sums[state, row]
        for site in range(sites - sites % 4, sites):
            for plane in range(len(powers)):
                number = np.uint64(0)
                for word in range(start, stop):
                    number += _count_bits(columns[site, word] & planes[plane, word])
                out[owners[plane], site] += np.int64(number) << powers[plane]
