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
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from assay.memory._bits import (
    LANES,
    OCTET,
    ROWS,
    WORD,
    bit_planes,
    count_bits,
    differing_bits,
    leading_zeros,
    shared_bits,
)

__all__ = ["PackedPatterns", "pack_signs", "pack_words", "unpack_signs", "words_of"]

Words = NDArray[np.uint64]

PACK_ROWS = 4096
"""Patterns that are unpacked at a time; at 1024 sites they take 4 MiB as bytes."""
GEMM_ROWS = 2048
SHORT_COLUMN = 64
"""Words below which a site's patterns aren't padded to whole vectors."""
PATTERNS_AN_OUTLIER = 128
"""Of so many patterns one may be left out of the bit planes and voted for by itself. The patterns that are being
recalled, and the few others that happen to be near, have weights far above the rest, which would otherwise cost a plane
for each of their leading bits; voting for one of them costs about as much as a plane of a hundred patterns."""
STATES_AT_ONCE = 8
"""States whose planes pass by the columns together, which are then read once for all of them."""
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
    columns : ndarray of uint64, shape (bits, at least ceil(patterns / 64))
        The same bits by site; bits beyond the last pattern are zero.
    column_sums : ndarray of int64, shape (bits,)
        The sum of the signs at each site.
    """

    def __init__(self, rows: Words, *, bits: int) -> None:
        self.bits = bits
        self.rows = _aligned(rows)
        self.columns = np.empty((bits, 0), dtype=np.uint64)
        self._pack_by_site(0)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def nbytes(self) -> int:
        """Bytes of both layouts."""
        return self.rows.nbytes + self.columns.nbytes + self.column_sums.nbytes

    def append(self, rows: Words) -> None:
        """Add patterns; only the new ones, and those that share a word with them, are packed by site anew."""
        whole = len(self.rows) // WORD
        self.rows = _aligned(np.concatenate([self.rows, np.asarray(rows, dtype=np.uint64)]))
        self._pack_by_site(whole)

    def _pack_by_site(self, whole: int) -> None:
        """Make `columns` anew from the word `whole` on."""
        columns = _aligned_zeros((self.bits, _column_words(len(self.rows))))
        columns[:, :whole] = self.columns[:, :whole]
        for first in range(whole * WORD, len(self.rows), PACK_ROWS):
            octets = self.rows[first : first + PACK_ROWS].astype("<u8", copy=False).view(np.uint8)
            flags = np.unpackbits(octets, axis=1, count=self.bits, bitorder="little")
            words = pack_words(flags.T)
            columns[:, first // WORD : first // WORD + words.shape[1]] = words
        self.columns = columns
        ones = [np.bitwise_count(column).sum(dtype=np.int64) for column in columns]
        self.column_sums = 2 * np.array(ones, dtype=np.int64) - len(self.rows)

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
        signs, known = np.ascontiguousarray(signs), np.ascontiguousarray(known)
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
        most = len(self) // PATTERNS_AN_OUTLIER
        found = [_planes(weight, most_outliers=most, width=self.columns.shape[1]) for weight in weights]
        powers = np.concatenate([one.powers for one in found])
        bounds = np.cumsum([0, *(len(one.powers) for one in found)])
        planes = _aligned_zeros((len(powers), self.columns.shape[1]))
        np.concatenate([one.planes[one.powers] for one in found], out=planes)

        def part(first: int, last: int) -> None:
            _count_votes(self.columns[first:last], planes, powers, bounds, out[:, first:last])

        _in_parts(part, self.bits, threads, multiple=ROWS)
        for weight, votes, one in zip(weights, out, found, strict=True):
            _add_patterns(self.rows, one.outliers, weight[one.outliers] - one.low, votes)
            votes *= 2
            votes += one.low * self.column_sums - one.total

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


def _column_words(patterns: int) -> int:
    """The words of a site: whole vectors, unless that would be much more than the patterns need."""
    words = words_of(patterns)
    return words if words < SHORT_COLUMN else -(-words // LANES) * LANES


def _aligned_zeros(shape: tuple[int, int]) -> Words:
    """Words of which none lies across two lines of the cache when a vector is loaded."""
    size = shape[0] * shape[1]
    words = np.zeros(size + LANES, dtype=np.uint64)
    start = -words.ctypes.data % (WORD * LANES // 8) // 8
    return words[start : start + size].reshape(shape)


def _aligned(words: Words) -> Words:
    out = _aligned_zeros((words.shape[0], words.shape[1]))
    out[:] = words
    return out


class _Planes(NamedTuple):
    """Weights of the patterns as bit planes.

    Attributes
    ----------
    planes : ndarray of uint64, shape (planes, words of a site)
        Plane k holds the bits k of ``weight - low``; those of outliers are zero.
    powers : ndarray of int64
        The planes that aren't empty.
    low : int
        The least weight of the patterns that aren't outliers.
    outliers : ndarray of int64
        Patterns that the planes leave out.
    total : int
        The sum of ``weight - low`` over all patterns.
    """

    planes: Words
    powers: NDArray[np.int64]
    low: int
    outliers: NDArray[np.int64]
    total: int


def _planes(weight: NDArray[np.int64], *, most_outliers: int, width: int) -> _Planes:
    """Bit planes of weights, without those that are empty."""
    low, high, cap, beyond = _inliers(weight, most_outliers)
    octets = -(-int(high - low).bit_length() // OCTET)
    planes = _aligned_zeros((octets * OCTET, width))
    used, total = _fill_planes(weight, low, cap, planes)
    powers = np.array([plane for plane in range(len(planes)) if used >> plane & 1], dtype=np.int64)
    return _Planes(planes, powers, low, _outliers(weight, cap, beyond), total)


@njit(cache=True, nogil=True)
def _overlaps(rows, signs, known, counts, out):  # type: ignore[no-untyped-def]
    width = rows.shape[1]
    whole = width // LANES * LANES
    flat_rows, flat_signs, flat_known = rows.reshape(-1), signs.reshape(-1), known.reshape(-1)
    for pattern in range(len(rows)):
        for state in range(len(signs)):
            differing = np.int64(0)
            if whole:
                differing += differing_bits(flat_rows, pattern * width, flat_signs, flat_known, state * width, whole)
            for word in range(whole, width):
                differing += np.int64(count_bits((rows[pattern, word] ^ signs[state, word]) & known[state, word]))
            out[state, pattern] = counts[state] - 2 * differing


@njit(cache=True, nogil=True)
def _inliers(weight, most_outliers):  # type: ignore[no-untyped-def]
    """The least and the largest weight of all patterns but a few outliers, the bits that the inliers' magnitudes have
    at most, and the number of outliers.
    """
    frequency = np.zeros(65, np.int64)
    for pattern in range(len(weight)):
        frequency[64 - np.int64(leading_zeros(np.uint64(abs(weight[pattern]))))] += 1
    cap, beyond = 63, 0
    while cap > 0 and beyond + frequency[cap] <= most_outliers:
        beyond += frequency[cap]
        cap -= 1
    low, high = np.int64(2**62), np.int64(-(2**62))
    for pattern in range(len(weight)):
        value = weight[pattern]
        inside = abs(value) >> cap == 0
        low = min(low, value if inside else np.int64(2**62))
        high = max(high, value if inside else np.int64(-(2**62)))
    return low, high, cap, beyond


@njit(cache=True, nogil=True)
def _outliers(weight, cap, count):  # type: ignore[no-untyped-def]
    """The patterns whose weights have more than `cap` bits, `count` of them."""
    outliers = np.empty(count, np.int64)
    found = 0
    for pattern in range(len(weight) if count else 0):
        if abs(weight[pattern]) >> cap != 0:
            outliers[found] = pattern
            found += 1
    return outliers


@njit(cache=True, nogil=True)
def _fill_planes(weight, low, cap, planes):  # type: ignore[no-untyped-def]
    """Write the planes of ``weight - low``, outliers as zero; which of them aren't empty, as a word, and the sum of all
    weights above `low`.
    """
    count, width = planes.shape
    flat_planes = planes.reshape(-1)
    words = -(-len(weight) // WORD)
    numbers = np.zeros(WORD, np.int64)
    used, total = np.int64(0), np.int64(0)
    for word in range(words):
        start = word * WORD
        filled = min(WORD, len(weight) - start)
        if filled < WORD:
            numbers[:] = 0
        for place in range(filled):
            value = weight[start + place]
            above = value - low
            total += above
            number = above if abs(value) >> cap == 0 else np.int64(0)
            used |= number
            numbers[place] = number
        bit_planes(numbers, flat_planes, word, width, count // OCTET)
    return used, total


@njit(cache=True, nogil=True)
def _count_votes(columns, planes, powers, bounds, out):  # type: ignore[no-untyped-def]
    """For each state and site, sum over the state's planes 2**power times the number of patterns with the bit in
    both.

    The planes of state k are those from ``bounds[k]`` to ``bounds[k + 1]`` (exclusive).
    """
    sites, width = columns.shape
    flat_columns, flat_planes = columns.reshape(-1), planes.reshape(-1)
    grouped = sites // ROWS * ROWS
    sums = np.zeros(ROWS, np.int64)
    out[:] = 0
    for start in range(0, width, CHUNK):
        stop = min(start + CHUNK, width)
        whole = (stop - start) // LANES * LANES
        for site in range(0, grouped, ROWS):
            for state in range(len(out)):
                first, last = bounds[state], bounds[state + 1]
                sums[:] = 0
                place = site * width + start
                shared_bits(flat_columns, place, width, flat_planes, start, width, whole, powers, first, last, sums)
                for plane in range(first, last):
                    for word in range(start + whole, stop):
                        for row in range(ROWS):
                            shared = count_bits(columns[site + row, word] & planes[plane, word])
                            sums[row] += np.int64(shared) << powers[plane]
                for row in range(ROWS):
                    out[state, site + row] += sums[row]
        for site in range(grouped, sites):
            for state in range(len(out)):
                for plane in range(bounds[state], bounds[state + 1]):
                    shared = np.uint64(0)
                    for word in range(start, stop):
                        shared += count_bits(columns[site, word] & planes[plane, word])
                    out[state, site] += np.int64(shared) << powers[plane]


@njit(cache=True, nogil=True)
def _add_patterns(rows, chosen, weights, out):  # type: ignore[no-untyped-def]
    """Add the weights of some patterns to the sites where they have a set bit."""
    sites = len(out)
    for number in range(len(chosen)):
        row, weight = rows[chosen[number]], weights[number]
        for word in range(len(row)):
            bits, start = row[word], word * WORD
            for place in range(min(WORD, sites - start)):
                out[start + place] += weight & -np.int64((bits >> np.uint64(place)) & np.uint64(1))
