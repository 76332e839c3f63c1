"""Bits as people have them (truth values, 0/1, ±1, packed octets) made into signs, with erasures; and patterns made
anew.

The codings: ``pm1`` (±1, where 0 in a cue is an erased bit), ``01`` and ``bool``. The patterns decide which one a
memory answers in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import InputError

__all__ = [
    "Coding",
    "Decorrelation",
    "correlated_patterns",
    "corrupt",
    "encode",
    "random_patterns",
    "signs_of_cues",
    "signs_of_patterns",
    "unpack_octets",
]

Coding = Literal["pm1", "01", "bool"]
Signs = NDArray[np.int8]
DRAWN_ROWS = 8192
"""Random patterns of a block; each block has its own counter, so that it can be made again without the others."""


def as_array(values: ArrayLike, *, name: str) -> NDArray[Any]:
    """`values` as a matrix of numbers.

    Raises
    ------
    InputError
        It has another number of axes, another dtype, no rows or no columns, or holds NaN.
    """
    array = np.asarray(values)
    if array.ndim == 1 and array.dtype != object and array.size:
        raise InputError(
            f"{name} has shape {array.shape}",
            expected="a matrix, one pattern a row; reshape(1, -1) makes one of a single pattern",
        )
    if array.dtype.kind not in "biuf":
        raise InputError(f"{name} has dtype {array.dtype}", expected="truth values or numbers")
    if array.ndim != 2:
        raise InputError(f"{name} has shape {array.shape}", expected="a matrix, one pattern a row")
    if array.shape[0] == 0:
        raise InputError(f"{name} has 0 samples (shape={array.shape})", expected="at least 1 pattern")
    if array.shape[1] == 0:
        raise InputError(f"{name} has 0 features (shape={array.shape})", expected="at least 1 bit")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        row, column = np.argwhere(~np.isfinite(array))[0]
        value = "NaN" if np.isnan(array[row, column]) else "infinite"
        raise InputError(f"{name}[{row}, {column}] is {value}", expected="0 or 1, or -1 or +1")
    return array


def unpack_octets(octets: ArrayLike, *, bits: int | None, name: str) -> NDArray[np.bool_]:
    """Unpack rows of octets (most significant bit first, as ``numpy.packbits`` writes them).

    Raises
    ------
    InputError
        They aren't uint8, or hold another number of bits.
    """
    array = np.asarray(octets)
    if array.dtype != np.uint8 or array.ndim != 2:
        raise InputError(f"{name} has dtype {array.dtype} and shape {array.shape}", expected="a matrix of packed uint8")
    held = 8 * array.shape[1]
    bits = held if bits is None else bits
    if not held - 8 < bits <= held:
        raise InputError(f"{name} holds {held} packed bits a row", expected=f"{-(-bits // 8)} octets for {bits} bits")
    flags: NDArray[np.bool_] = np.unpackbits(array, axis=1, count=bits).astype(np.bool_)
    return flags


def signs_of_patterns(values: ArrayLike, *, name: str = "X") -> tuple[Signs, Coding]:
    """Patterns as signs, and the coding that they are in.

    Raises
    ------
    InputError
        A value is none of two levels (naming the first row and column), or see `as_array`.
    """
    array = as_array(values, name=name)
    if array.dtype == np.bool_:
        return _signs(array), "bool"
    minus, zero, one = array == -1, array == 0, array == 1
    _require_levels(array, minus | zero | one, name=name, levels="0 or 1, or -1 or +1")
    if minus.any() and zero.any():
        row, column = np.argwhere(zero)[0]
        raise InputError(f"{name}[{row}, {column}] is 0 among -1 and +1", expected="two levels: 0 and 1, or -1 and +1")
    return _signs(one), "01" if zero.any() else "pm1"


def signs_of_cues(values: ArrayLike, *, coding: Coding, bits: int, name: str = "cues") -> Signs:
    """Cues as signs, 0 where a bit is erased.

    Parameters
    ----------
    values : array_like, shape (cues, bits)
        Truth values, 0/1, or ±1 with 0 for an erased bit.
    coding : str
        How the patterns are coded: cues of 0 and 1 alone are read the same way.
    bits : int
        The width that is expected.
    name : str
        What the cues are called in messages.

    Raises
    ------
    InputError
        The width is another one; a value is no level; or 0 and 1 could mean bits or erasures.
    """
    array = as_array(values, name=name)
    if array.shape[1] != bits:
        raise InputError(f"{name} has {array.shape[1]} features, but the memory is expecting {bits} features as input")
    if array.dtype == np.bool_:
        return _signs(array)
    minus, zero, one = array == -1, array == 0, array == 1
    _require_levels(array, minus | zero | one, name=name, levels="0 or 1, or -1, +1 or 0 for an erased bit")
    if not minus.any() and zero.any() and coding != "pm1":
        return _signs(one)
    if not minus.any() and zero.any() and one.any():
        raise InputError(
            f"{name} has 0 and 1 only, and the patterns -1 and +1",
            expected="-1, +1, and 0 for an erased bit; or truth values",
        )
    signs: Signs = one.astype(np.int8) - minus.astype(np.int8)
    return signs


def encode(signs: Signs, coding: Coding) -> NDArray[Any]:
    """Signs in a coding; an undecided unit (0) is False or 0 where the coding has no third value."""
    if coding == "pm1":
        return signs
    return signs > 0 if coding == "bool" else (signs > 0).astype(np.uint8)


def random_patterns(count: int, bits: int, *, seed: int = 0, first: int = 0) -> Signs:
    """Independent fair signs from a counter-based generator.

    Any block of them can be made again without the rest: pattern number k is the same whether asked for alone or among
    others.

    Parameters
    ----------
    count, bits : int
        Patterns, and signs of each.
    seed : int
        Which patterns.
    first : int
        The number of the first one.

    Returns
    -------
    ndarray of int8, shape (count, bits)

    Examples
    --------
    >>> import numpy as np
    >>> whole = random_patterns(20_000, 8, seed=1)
    >>> bool(np.array_equal(random_patterns(3, 8, seed=1, first=9000), whole[9000:9003]))
    True
    """
    width = -(-bits // 8)
    parts = []
    for block in range(first // DRAWN_ROWS, -(-(first + count) // DRAWN_ROWS)):
        key = np.random.SeedSequence(seed, spawn_key=(block,)).generate_state(2, np.uint64)
        octets = np.random.Generator(np.random.Philox(key=key)).integers(
            0, 256, size=(DRAWN_ROWS, width), dtype=np.uint8
        )
        start = block * DRAWN_ROWS
        parts.append(octets[max(first - start, 0) : first + count - start])
    flags = np.unpackbits(np.concatenate(parts), axis=1, count=bits)
    return (flags.view(np.int8) << 1) - np.int8(1)


def correlated_patterns(count: int, bits: int, *, groups: int, flip: float, rng: np.random.Generator) -> Signs:
    """Patterns in groups around random prototypes, each bit flipped with probability `flip`: what the theory doesn't
    cover.
    """
    prototypes = rng.choice(np.array([-1, 1], dtype=np.int8), size=(groups, bits))
    noise = np.where(rng.random((count, bits)) < flip, np.int8(-1), np.int8(1))
    return prototypes[rng.integers(groups, size=count)] * noise


def corrupt(signs: Signs, *, flips: int, erasures: int = 0, rng: np.random.Generator) -> Signs:
    """Flip and erase an exact number of bits of each row: a fixed overlap, which independent flips don't have.

    Parameters
    ----------
    signs : ndarray of int8, shape (rows, bits)
        What is corrupted; not changed.
    flips, erasures : int
        Bits of each row that are flipped, and others that become 0.
    rng : numpy.random.Generator
        Which ones.

    Returns
    -------
    ndarray of int8, shape (rows, bits)

    Raises
    ------
    InputError
        There are fewer bits.
    """
    bits = signs.shape[1]
    if not (flips >= 0 and erasures >= 0 and flips + erasures <= bits):
        raise InputError(f"flips is {flips} and erasures {erasures}", expected=f"together at most {bits} bits")
    order = rng.random(signs.shape).argsort(axis=1)
    out = signs.copy()
    np.put_along_axis(out, order[:, :flips], -np.take_along_axis(signs, order[:, :flips], axis=1), axis=1)
    np.put_along_axis(out, order[:, flips : flips + erasures], np.int8(0), axis=1)
    return out


@dataclass(frozen=True)
class Decorrelation:
    """What is done to bits before they are stored, so that they look more like independent signs.

    Attributes
    ----------
    method : str
        ``"none"``; ``"drop"`` leaves out bits that are the same in all patterns and puts them back into the answers;
        ``"project"`` replaces a pattern by the signs of random combinations of its bits.
    bits : int
        The width of the patterns as given.
    kept : ndarray of int64, shape (stored bits,)
        For ``"drop"`` the sites that are stored.
    constants : ndarray of int8, shape (bits,)
        For ``"drop"`` the value of each constant bit.
    mean : ndarray of float64, shape (bits,)
        For ``"project"`` what is subtracted first: the mean of the patterns.
    seed, width : int
        For ``"project"`` which combinations, and how many.
    """

    method: str
    bits: int
    kept: NDArray[np.int64]
    constants: Signs
    mean: NDArray[np.float64]
    seed: int = 0
    width: int = 0

    @classmethod
    def learn(cls, signs: Signs, *, method: str, width: int | None = None, seed: int = 0) -> Decorrelation:
        """Look at the patterns.

        Raises
        ------
        InputError
            The method has another name, all bits are constant, or the width isn't positive.
        """
        bits = signs.shape[1]
        kept = np.arange(bits)
        if method not in ("none", "drop", "project"):
            raise InputError(f"decorrelate is {method!r}", expected="none, drop or project")
        if method == "drop":
            kept = np.flatnonzero((signs != signs[0]).any(axis=0))
            if not len(kept):
                raise InputError("decorrelate is 'drop' and all bits are constant", expected="patterns that differ")
        if method == "project" and width is not None and width < 1:
            raise InputError(f"n_projected is {width!r}", expected="an integer of at least 1")
        mean = signs.mean(axis=0) if method == "project" else np.zeros(bits)
        return cls(method, bits, kept, signs[0].copy(), mean, seed=seed, width=width or bits)

    @property
    def stored_bits(self) -> int:
        """The width of what is stored."""
        return self.width if self.method == "project" else len(self.kept)

    def apply(self, signs: Signs) -> Signs:
        """Signs as they are stored; shape (rows, stored bits)."""
        if self.method == "none":
            return signs
        if self.method == "drop":
            return np.ascontiguousarray(signs[:, self.kept])
        combinations = np.random.default_rng(self.seed).standard_normal((self.bits, self.width))
        centred = np.where(signs == 0, 0.0, signs - self.mean)
        return np.where(centred @ combinations >= 0, np.int8(1), np.int8(-1))

    def restore(self, stored: Signs) -> Signs:
        """Answers as the patterns were given; for ``"project"`` what is stored, since it can't be undone."""
        if self.method != "drop":
            return stored
        out = np.repeat(self.constants[None], len(stored), axis=0)
        out[:, self.kept] = stored
        return out


def _signs(flags: NDArray[np.bool_]) -> Signs:
    return (np.ascontiguousarray(flags).view(np.int8) << 1) - np.int8(1)


def _require_levels(array: NDArray[Any], allowed: NDArray[np.bool_], *, name: str, levels: str) -> None:
    if allowed.all():
        return
    row, column = np.argwhere(~allowed)[0]
    raise InputError(f"{name}[{row}, {column}] is {array[row, column]:g}", expected=levels)
