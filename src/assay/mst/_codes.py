"""Hamming distance: in how many places two aligned sequences or codes differ.

A sequence over an alphabet of A symbols is stored as ceil(log2 A) planes of bits, 64 places a word. Two
sequences differ where any plane differs, so a distance is a few exclusive-ors and one population count for 64 places.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from assay.core.errors import InputError
from assay.mst._contract import Indices, Metric, as_array, square_in_strips

__all__ = ["HammingMetric", "packed_words", "symbol_planes"]

WORD = 64
TILE = 256
"""Targets whose words are transposed at a time: with 13 words they take 26 KiB, which a first-level cache holds."""

SQUARE_ROWS = 128
ROWS_AT_ONCE = 4096


class HammingMetric(Metric):
    """The number of places in which two sequences of equal length differ.

    Parameters
    ----------
    words : ndarray of uint64, shape (n, w * planes)
        Bit planes; the planes of the same 64 places lie side by side.
    planes : int
        Bits a symbol.
    """

    name = "hamming"
    trusted = True

    def __init__(self, words: NDArray[np.uint64], *, planes: int) -> None:
        self.words, self.planes = words, planes

    def __len__(self) -> int:
        return len(self.words)

    def block(self, queries: Indices, targets: Indices) -> NDArray[np.float64]:
        """Return the distances from every query to every target; see :meth:`Metric.block`."""
        size = len(self.words)
        return _block(self.words, as_array(queries, size), as_array(targets, size), self.planes)  # type: ignore[no-any-return]

    def square(self, members: Indices) -> NDArray[np.float64]:
        """Return all distances among `members`; see :meth:`Metric.square`."""
        return square_in_strips(self, members, rows=SQUARE_ROWS)

    def pairs(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the distances of pairs; see :meth:`Metric.pairs`."""
        size = len(self.words)
        return _pairs(self.words, as_array(first, size), as_array(second, size), self.planes)  # type: ignore[no-any-return]

    def subset(self, members: NDArray[np.int64]) -> HammingMetric:
        """Return the metric on a copy of the codes `members`; see :meth:`Metric.subset`."""
        return HammingMetric(self.words[members], planes=self.planes)


@intrinsic
def _count_bits(context: Any, word: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), codegen


@njit(cache=True, nogil=True)
def _pairs(words, first, second, planes):  # type: ignore[no-untyped-def]
    out = np.empty(len(first))
    for a in range(len(first)):
        total = np.uint64(0)
        for start in range(0, words.shape[1], planes):
            differ = np.uint64(0)
            for at in range(start, start + planes):
                differ |= words[first[a], at] ^ words[second[a], at]
            total += _count_bits(differ)  # type: ignore[call-arg]
        out[a] = total
    return out


@njit(cache=True, nogil=True)
def _block(words, queries, targets, planes):  # type: ignore[no-untyped-def]
    width = words.shape[1]
    out = np.empty((len(queries), len(targets)))
    transposed = np.zeros((width, TILE), dtype=np.uint64)
    differ = np.empty(TILE, dtype=np.uint64)
    total = np.empty(TILE, dtype=np.uint64)
    for start in range(0, len(targets), TILE):
        length = min(TILE, len(targets) - start)
        for b in range(length):
            row = words[targets[start + b]]
            for at in range(width):
                transposed[at, b] = row[at]
        for a in range(len(queries)):
            query = words[queries[a]]
            total[:] = 0
            if planes == 1:
                for at in range(width):
                    word, column = query[at], transposed[at]
                    for b in range(TILE):
                        total[b] += _count_bits(word ^ column[b])  # type: ignore[call-arg]
            else:
                for begin in range(0, width, planes):
                    differ[:] = 0
                    for at in range(begin, begin + planes):
                        word, column = query[at], transposed[at]
                        for b in range(TILE):
                            differ[b] |= word ^ column[b]
                    for b in range(TILE):
                        total[b] += _count_bits(differ[b])  # type: ignore[call-arg]
            line = out[a, start : start + length]
            for b in range(length):
                line[b] = total[b]
    return out


def packed_words(X: Any) -> NDArray[np.uint64]:
    """Return codes that are already packed, (n, bytes) uint8 or (n, words) uint64, as (n, words) uint64."""
    array = np.asarray(X)
    if array.ndim != 2 or array.dtype not in (np.uint8, np.uint64) or array.shape[1] == 0:
        raise InputError(
            f"packed codes have dtype {array.dtype} and shape {array.shape}",
            expected="uint8 or uint64, shape (n, words)",
        )
    if array.dtype == np.uint64:
        return np.ascontiguousarray(array)
    padded = np.zeros((len(array), -(-array.shape[1] // 8) * 8), dtype=np.uint8)
    padded[:, : array.shape[1]] = array
    return padded.view(np.uint64)


def symbol_planes(X: Any) -> tuple[NDArray[np.uint64], int]:
    """Return the bit planes of aligned sequences, and how many there are.

    Parameters
    ----------
    X : ndarray, shape (n, length), or sequence of n strings or sequences of equal length
        Symbols: numbers, booleans or characters.

    Raises
    ------
    InputError
        Where lengths differ, naming the first sequence that does; for NaN; for anything that is no sequence.
    """
    if hasattr(X, "to_pylist"):
        X = X.to_pylist()
    if not hasattr(X, "__iter__"):
        raise InputError(f"X is a {type(X).__name__}", expected="a list of sequences for metric='hamming'")
    plain = isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "biufUS"
    array = X if plain else _aligned_symbols(list(X))
    if array.dtype.kind == "f" and np.isnan(array).any():
        raise InputError(f"X holds NaN (row {int(np.argmax(np.isnan(array).any(axis=1)))}, counted from 0)")
    if array.dtype.kind == "b":
        return _bits(array[None]), 1
    alphabet, ranks = _ranks(array)
    planes = max(1, (alphabet - 1).bit_length())
    return _bits((ranks >> plane) & 1 for plane in range(planes)) if planes > 1 else _bits([ranks & 1]), planes


def _aligned_symbols(sequences: list[Any]) -> NDArray[Any]:
    if not sequences:
        raise InputError("X is empty", expected="at least one sequence")
    for at, sequence in enumerate(sequences):
        if not hasattr(sequence, "__len__"):
            raise InputError(
                f"X[{at}] is a {type(sequence).__name__}", expected="a string or sequence for metric='hamming'"
            )
    length = len(sequences[0])
    for at, sequence in enumerate(sequences):
        if len(sequence) != length:
            raise InputError(
                f"X[{at}] has length {len(sequence)} and X[0] has length {length}",
                expected="aligned sequences of one length for metric='hamming'",
            )
    if length == 0:
        return np.zeros((len(sequences), 1), dtype=np.uint8)
    if all(isinstance(sequence, str) for sequence in sequences):
        joined = "".join(sequences)
        raw = (
            np.frombuffer(joined.encode("ascii"), np.uint8)
            if joined.isascii()
            else np.frombuffer(joined.encode("utf-32-le"), np.uint32)
        )
        return raw.reshape(len(sequences), length)
    if all(isinstance(sequence, bytes) for sequence in sequences):
        return np.frombuffer(b"".join(sequences), np.uint8).reshape(len(sequences), length)
    array = np.array(sequences)
    if array.ndim != 2 or array.dtype.kind not in "biufUS":
        raise InputError(f"X has elements of dtype {array.dtype}", expected="symbols that are numbers or characters")
    return array


def _ranks(array: NDArray[Any]) -> tuple[int, NDArray[Any]]:
    """Return the size of the alphabet of `array` and its symbols as ranks in it."""
    if array.dtype == np.uint8:
        present = np.zeros(256, dtype=bool)
        for start in range(0, len(array), ROWS_AT_ONCE):
            present[array[start : start + ROWS_AT_ONCE].ravel()] = True
        table = (np.cumsum(present) - 1).clip(0).astype(np.uint8)
        return int(present.sum()), table[array]
    symbols, ranks = np.unique(array, return_inverse=True)
    return len(symbols), ranks.reshape(array.shape).astype(np.uint32)


def _bits(planes: Any) -> NDArray[np.uint64]:
    packed = [_pack(np.asarray(plane)) for plane in planes]
    return np.ascontiguousarray(np.stack(packed, axis=2).reshape(len(packed[0]), -1))


def _pack(bits: NDArray[Any]) -> NDArray[np.uint64]:
    return packed_words(np.packbits(bits.astype(bool), axis=1, bitorder="little"))
