"""What a pattern votes with: the field of each kind of memory as a function of one pattern's overlap with the state.

A unit i feels ``u_i = sum over patterns of xi_i f(Y, xi_i h_i)``, where Y is the sum of ``xi_j h_j`` over all units
and f takes the unit itself out of it. Since the second argument is a sign, ``f(Y, s) = plain(Y) + s odd(Y)``, and

    u_i = sum xi_i plain(Y)  +  h_i sum odd(Y)

for any f: one product with the patterns for all units, and one number for the state. This is the expansion that
excludes self-interaction at no cost for the kind ``krotov``, and it covers the other kinds as well. Y is a small
integer, so plain and odd are tables. A unit that isn't known yet (0) has no own term and feels ``f(Y, 0)``.

Sources: the model and the kind ``krotov``, Mimura, Takeuchi, Sumikawa, Kabashima and Coolen, "Dynamical properties of
dense associative memory" (arXiv 2506.00851), and Krotov and Hopfield 2016; ``abbott``, Gardner 1987 and Abbott and
Arian 1987; ``exp``, Demircigil et al. 2017; ``softmax``, Ramsauer et al. 2021.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import InputError

__all__ = [
    "KINDS",
    "THEORY_KINDS",
    "FieldTables",
    "Kind",
    "PrecisionWarning",
    "counted",
    "distinct_tuples",
    "field_tables",
    "field_unit",
    "load_factor",
    "require_kind",
    "require_order",
    "require_seed",
]

Kind = Literal["krotov", "abbott", "exact", "rectified", "exp", "softmax"]
KINDS: tuple[Kind, ...] = get_args(Kind)
THEORY_KINDS = ("krotov", "abbott")
"""The kinds whose large-N dynamics are known; ``exact`` has those of ``krotov``, from which it differs by O(1/N)."""
EXACT_BITS = 53
"""Sums of integers below 2**53 are exact in float64 too, so that every path gives the same bits."""


class PrecisionWarning(UserWarning):
    """Sums of votes are too large to be exact and are rounded like any float64."""


LARGEST_ORDER = 32
"""Powers of a million bits beyond this order leave float64, and no number of patterns needs it."""


def counted(number: int, noun: str) -> str:
    """A number of things in words.

    Examples
    --------
    >>> counted(1, "pattern"), counted(2000, "pattern")
    ('1 pattern', '2,000 patterns')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def require_order(order: Any) -> int:
    """Return `order` as an int.

    Raises
    ------
    InputError
        It is no integer, or not from 2 to `LARGEST_ORDER`.
    """
    whole = isinstance(order, int | np.integer) and not isinstance(order, bool)
    if not whole or not 2 <= order <= LARGEST_ORDER:
        raise InputError(f"order is {order!r}", expected=f"an integer from 2 to {LARGEST_ORDER}")
    return int(order)


def require_seed(seed: Any) -> None:
    """Refuse what seeds no generator.

    Raises
    ------
    InputError
        It is no integer of at least 0.
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"seed is {seed!r}", expected="an integer of at least 0")


def require_kind(kind: str, *, among: tuple[str, ...] = KINDS) -> Kind:
    """Return `kind` when it is one of `among`.

    Raises
    ------
    InputError
        It isn't.
    """
    if kind not in among:
        raise InputError(f"kind is {kind!r}", expected=f"one of {', '.join(among)}")
    return kind  # type: ignore[return-value]


def double_factorial(odd: int) -> int:
    """The product of the odd numbers up to `odd`; 1 for -1."""
    return math.prod(range(1, odd + 1, 2))


def load_factor(order: int, kind: str = "krotov") -> int:
    """The factor between the load ``alpha = M / N**(n-1)`` and the normalised load ``alpha'``.

    Parameters
    ----------
    order : int
        The order n.
    kind : str
        ``"krotov"`` (and the kinds that are like it): ``(2n-3)!!``; ``"abbott"``: ``(n-1)!``.

    Returns
    -------
    int
        The noise variance of a pattern, rho_{n-1}(1).

    Examples
    --------
    >>> load_factor(3), load_factor(4), load_factor(4, "abbott")
    (3, 15, 6)
    """
    return math.factorial(order - 1) if kind == "abbott" else double_factorial(2 * order - 3)


def distinct_tuples(total: int, *, order: int, units: int) -> int:
    """``q! e_q`` of `units` signs with the sum `total`: the sum over ordered q-tuples of distinct units of their
    product.

    A Krawtchouk polynomial, by ``E_{q+1} = y E_q - q (K - q + 1) E_{q-1}``.

    Examples
    --------
    >>> distinct_tuples(3, order=2, units=7)  # 3**2 - 7
    2
    """
    before, now = 0, 1
    for q in range(order):
        before, now = now, total * now - q * (units - q + 1) * before
    return now


@dataclass(frozen=True)
class FieldTables:
    """The field's parts by ``reference - Y``.

    Attributes
    ----------
    plain, odd, erased : ndarray of int64 or float64, shape (2 * bits + 1,)
        ``f(Y, s) = plain + s odd`` for a known unit, and ``f(Y, 0)`` for an erased one, times `unit`.
    unit : float
        What the sums are divided by to be u in units of ``(1/N**p) sum xi y**p``; infinite where they have no common
        unit.
    exact : bool
        Whether the tables are integers.
    relative : bool
        Whether the reference is the state's largest overlap (``exp``) and not the number of bits.
    """

    plain: NDArray[Any]
    odd: NDArray[Any]
    erased: NDArray[Any]
    unit: float
    exact: bool
    relative: bool


@lru_cache(maxsize=32)
def field_tables(kind: str, order: int, *, bits: int, known: int, patterns: int, beta: float = 1.0) -> FieldTables:
    """Tabulate the field of a kind.

    Parameters
    ----------
    kind : str
        One of the kinds with discrete states.
    order : int
        The order n; ignored by ``exp``.
    bits, known : int
        Units, and how many of them aren't erased.
    patterns : int
        How many votes are summed: decides whether integers suffice.
    beta : float
        The steepness of ``exp``.

    Returns
    -------
    FieldTables
        Integers while their sums stay below 2**53, else floats scaled by ``N**p``.
    """
    if kind == "exp":
        falloff = np.exp(-beta * np.arange(2 * bits + 1, dtype=np.float64))
        # exp(-beta s) for s = 1, -1, 0, divided by exp(beta), which no sign depends on and which may be huge.
        plus, minus, none = math.exp(-2 * beta), 1.0, math.exp(-beta)
        tables = (falloff * (plus + minus) / 2, falloff * (plus - minus) / 2, falloff * none)
        return FieldTables(*tables, unit=math.inf, exact=False, relative=True)
    overlaps = range(bits, -bits - 1, -1)
    with_plus, with_minus, without = (
        [_vote(kind, order, overlap - sign, units=known - abs(sign)) for overlap in overlaps] for sign in (1, -1, 0)
    )
    votes = [
        [plus + minus for plus, minus in zip(with_plus, with_minus, strict=True)],
        [plus - minus for plus, minus in zip(with_plus, with_minus, strict=True)],
        [2 * vote for vote in without],
    ]
    unit = 2 * field_unit(kind, order, bits)
    if not any(vote % 2 for table in votes for vote in table):
        votes = [[vote // 2 for vote in table] for table in votes]
        unit //= 2
    largest = max(map(abs, (*with_plus, *with_minus, *without)))
    if (largest * patterns).bit_length() > EXACT_BITS:
        scaled = [np.array([vote / unit for vote in table], dtype=np.float64) for table in votes]
        return FieldTables(scaled[0], scaled[1], scaled[2], unit=1.0, exact=False, relative=False)
    integers = [np.array(table, dtype=np.int64) for table in votes]
    return FieldTables(integers[0], integers[1], integers[2], unit=float(unit), exact=True, relative=False)


def field_unit(kind: str, order: int, bits: int) -> int:
    """What an integer vote is divided by to be u: ``N**p``, times the factor that the energy difference brings."""
    factor = {"exact": order, "rectified": 2 * order}.get(kind, 1)
    unit: int = factor * int(bits) ** (order - 1)
    return unit


def _vote(kind: str, order: int, y: int, *, units: int) -> int:
    """The integer vote of a pattern whose overlap with the other units is y."""
    power = order - 1
    if kind == "krotov":
        return int(y**power)
    if kind == "abbott":
        return distinct_tuples(y, order=power, units=units)
    if kind == "exact":
        return int((y + 1) ** order - (y - 1) ** order) // 2
    return int(max(y + 1, 0) ** order - max(y - 1, 0) ** order)
