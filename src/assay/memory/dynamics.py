"""Sweeps: every unit looks at its field and takes its sign, all at once or one after the other."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numba import njit
from numpy.typing import NDArray

from assay.memory._packed import GEMM_ROWS, PackedPatterns, pack_signs, unpack_signs
from assay.memory.interactions import FieldTables, field_tables

__all__ = [
    "GEMM_FROM",
    "Dynamics",
    "Field",
    "Tie",
    "Trajectory",
    "compute_field",
    "decide",
    "faster_path",
    "run_dynamics",
]

Signs = NDArray[np.int8]
Tie = Literal["keep", "+1", "random"]
Path = Literal["auto", "packed", "gemm"]
GEMM_FROM = 16
"""The batch from which unpacking blocks for a matrix product is considered at all."""
STATES_AT_ONCE, PACKED_TOGETHER = 64, 8
TRIAL_LAPS = 3
FLOAT32_EXACT = 2**24
TIE_CODES = {"keep": 0, "+1": 1, "random": 2}


@dataclass(frozen=True)
class Dynamics:
    """How states move.

    Attributes
    ----------
    kind, order, beta
        The interaction; see `field_tables`.
    update : str
        ``"parallel"`` or ``"asynchronous"`` (in a new random order each sweep).
    max_sweeps : int
        Where recall stops at the latest.
    temperature : float
        ``P(h = +1) = (1 + tanh(u / T)) / 2``; 0 takes the sign.
    tie : str
        What a unit does whose field is zero.
    path : str
        How the products are computed: on packed words, on unpacked blocks, or whichever is faster here. All give the
        same bits as long as the votes are integers.
    threads : int
    """

    kind: str
    order: int
    beta: float = 1.0
    update: Literal["parallel", "asynchronous"] = "parallel"
    max_sweeps: int = 100
    temperature: float = 0.0
    tie: Tie = "keep"
    path: Path = "auto"
    threads: int = 1

    @property
    def random(self) -> bool:
        """Whether a sweep draws random numbers."""
        return self.update == "asynchronous" or self.temperature > 0 or self.tie == "random"

    def tables(self, patterns: PackedPatterns, known: int) -> FieldTables:
        """The field's tables for a state with so many known units."""
        known = known if self.kind == "abbott" else patterns.bits
        return field_tables(
            self.kind, self.order, bits=patterns.bits, known=known, patterns=len(patterns), beta=self.beta
        )


@dataclass(frozen=True)
class Field:
    """The fields of some states.

    Attributes
    ----------
    votes : ndarray of int64 or float64, shape (states, bits)
        ``u`` times `unit`.
    unit : float
    overlaps : ndarray of int32, shape (states, patterns)
        Sums of pattern times state.
    """

    votes: NDArray[Any]
    unit: float
    overlaps: NDArray[np.int32]


@dataclass
class Trajectory:
    """Where some cues went.

    Attributes
    ----------
    states : ndarray of int8, shape (cues, bits)
    sweeps : ndarray of int64, shape (cues,)
        Sweeps until no unit changed any more, or that were done.
    converged : ndarray of bool, shape (cues,)
    cycle : ndarray of int64, shape (cues,)
        2 where two states alternate, else 0.
    visited : list of ndarray of int8, shape (cues, bits)
        The states after each sweep, the cues first; only when asked for.
    """

    states: Signs
    sweeps: NDArray[np.int64]
    converged: NDArray[np.bool_]
    cycle: NDArray[np.int64]
    visited: list[Signs]


def compute_field(patterns: PackedPatterns, states: Signs, dynamics: Dynamics) -> Field:
    """The field of every unit of some states.

    Parameters
    ----------
    patterns : PackedPatterns
    states : ndarray of int8, shape (states, bits)
        ±1, and 0 for an erased unit.
    dynamics : Dynamics
        Whose interaction.

    Returns
    -------
    Field
    """
    path = dynamics.path
    if path == "auto":
        path = "packed" if len(states) < GEMM_FROM else faster_path(patterns.bits, dynamics.threads)
    if path == "packed" and len(states) > PACKED_TOGETHER:
        # A table of weights for a few states stays in the cache.
        parts = [
            compute_field(patterns, states[first : first + PACKED_TOGETHER], replace(dynamics, path=path))
            for first in range(0, len(states), PACKED_TOGETHER)
        ]
        votes_, overlaps_ = (np.concatenate([getattr(part, name) for part in parts]) for name in ("votes", "overlaps"))
        return Field(votes_, parts[0].unit, overlaps_)
    overlaps = _overlaps_by_product(patterns, states) if path == "gemm" else None
    if overlaps is None:
        overlaps = patterns.overlaps(*pack_signs(states), threads=dynamics.threads)
    known = np.count_nonzero(states, axis=1)
    groups = np.unique(known) if dynamics.kind == "abbott" else known[:1]
    votes, unit = None, 1.0
    for count in groups:
        chosen = known == count if len(groups) > 1 else slice(None)
        tables = dynamics.tables(patterns, int(count))
        part = _field(patterns, states[chosen], overlaps[chosen], tables, path, dynamics.threads)
        if votes is None:
            votes = np.empty(states.shape, dtype=part.dtype)
        votes[chosen], unit = part, tables.unit
    assert votes is not None
    return Field(votes, unit, overlaps)


def run_dynamics(
    patterns: PackedPatterns,
    cues: Signs,
    dynamics: Dynamics,
    *,
    generators: list[np.random.Generator] | None = None,
    keep_visited: bool = False,
) -> Trajectory:
    """Let cues run until no unit changes, two states alternate, or the sweeps are used up.

    Parameters
    ----------
    patterns : PackedPatterns
    cues : ndarray of int8, shape (cues, bits)
    dynamics : Dynamics
    generators : list of numpy.random.Generator, optional
        One a cue, where the dynamics are random: a cue's path doesn't depend on the others.
    keep_visited : bool
        Keep all states.

    Returns
    -------
    Trajectory
    """
    states, count = cues.copy(), len(cues)
    sweeps = np.full(count, dynamics.max_sweeps, dtype=np.int64)
    converged, cycle = np.zeros(count, dtype=np.bool_), np.zeros(count, dtype=np.int64)
    deterministic = dynamics.temperature == 0 and dynamics.tie != "random"
    visited = [states.copy()] if keep_visited else []
    active = np.arange(count)
    before: Signs | None = None
    overlaps = None
    if dynamics.update == "asynchronous":
        overlaps = patterns.overlaps(*pack_signs(states), threads=dynamics.threads)
    for sweep in range(1, dynamics.max_sweeps + 1):
        now = states[active]
        if overlaps is None:
            new = _parallel(patterns, now, dynamics, [generators[cue] for cue in active] if generators else None)
        else:
            assert generators is not None
            new = _one_by_one(patterns, now, overlaps, active, dynamics, generators)
        states[active] = new
        if keep_visited:
            visited.append(states.copy())
        if deterministic:
            still = (new == now).all(axis=1)
            alternating = np.zeros(len(active), dtype=np.bool_)
            if before is not None and dynamics.update == "parallel":
                alternating = ~still & (new == before).all(axis=1)
            converged[active[still]], sweeps[active[still]] = True, sweep - 1
            cycle[active[alternating]], sweeps[active[alternating]] = 2, sweep
            going = ~still & ~alternating
            active, before = active[going], now[going]
            if not len(active):
                break
    return Trajectory(states, sweeps, converged, cycle, visited)


@lru_cache(maxsize=16)
def faster_path(bits: int, threads: int) -> Literal["packed", "gemm"]:
    """Which path is faster for a batch on this machine, from one block of patterns; the choice changes no result."""
    rng = np.random.default_rng(0)
    words = rng.integers(0, 2**63, size=(GEMM_ROWS, -(-bits // 64)), dtype=np.uint64)
    trial = PackedPatterns(words, bits=bits)
    states = trial.signs(0, GEMM_FROM)
    weights = trial.overlaps(*pack_signs(states)).astype(np.int64) ** 2

    def packed() -> None:
        trial.votes(weights, threads=threads)

    def product() -> None:
        _votes_by_product(trial, weights)

    seconds = []
    for work in (packed, product):
        work()
        laps = []
        for _ in range(TRIAL_LAPS):
            start = time.perf_counter()
            work()
            laps.append(time.perf_counter() - start)
        seconds.append(min(laps))
    return "packed" if seconds[0] <= seconds[1] else "gemm"


def decide(
    votes: NDArray[Any], states: Signs, dynamics: Dynamics, unit: float, draws: NDArray[np.float64] | None
) -> Signs:
    """What the units do with their fields; see `Dynamics`."""
    if dynamics.temperature > 0:
        assert draws is not None
        return np.where(2 * draws - 1 < np.tanh(votes / (unit * dynamics.temperature)), np.int8(1), np.int8(-1))
    new = np.sign(votes).astype(np.int8)
    if dynamics.tie == "keep":
        return np.where(new == 0, states, new)
    if dynamics.tie == "+1":
        return np.where(new == 0, np.int8(1), new)
    assert draws is not None
    return np.where(new == 0, np.where(draws < 0.5, np.int8(-1), np.int8(1)), new)


def _parallel(
    patterns: PackedPatterns, states: Signs, dynamics: Dynamics, generators: list[np.random.Generator] | None
) -> Signs:
    field = compute_field(patterns, states, dynamics)
    draws = None
    if generators is not None:
        draws = np.stack([generator.random(patterns.bits) for generator in generators])
    return decide(field.votes, states, dynamics, field.unit, draws)


def _one_by_one(
    patterns: PackedPatterns,
    states: Signs,
    overlaps: NDArray[np.int32],
    cues: NDArray[np.int64],
    dynamics: Dynamics,
    generators: list[np.random.Generator],
) -> Signs:
    new = states.copy()

    def sweep(row: int) -> None:
        cue = cues[row]
        generator = generators[cue]
        order, draws = generator.permutation(patterns.bits), generator.random(patterns.bits)
        known = int(np.count_nonzero(new[row]))
        if dynamics.kind == "abbott" and known < patterns.bits:
            # The number of known units, on which the votes depend, rises within the sweep.
            for unit in order:
                tables = dynamics.tables(patterns, int(np.count_nonzero(new[row])))
                _sweep_units(patterns, new[row], overlaps[cue], order[order == unit], draws, dynamics, tables)
        else:
            _sweep_units(patterns, new[row], overlaps[cue], order, draws, dynamics, dynamics.tables(patterns, known))

    with ThreadPoolExecutor(dynamics.threads) as pool:
        list(pool.map(sweep, range(len(cues))))
    return new


def _sweep_units(
    patterns: PackedPatterns,
    state: Signs,
    overlaps: NDArray[np.int32],
    order: NDArray[np.int64],
    draws: NDArray[np.float64],
    dynamics: Dynamics,
    tables: FieldTables,
) -> None:
    _sweep(
        patterns.columns,
        state,
        overlaps,
        order,
        draws,
        tables.plain,
        tables.odd,
        tables.erased,
        tables.relative,
        dynamics.temperature * tables.unit if dynamics.temperature > 0 else 0.0,
        TIE_CODES[dynamics.tie],
    )


def _field(
    patterns: PackedPatterns,
    states: Signs,
    overlaps: NDArray[np.int32],
    tables: FieldTables,
    path: str,
    threads: int,
) -> NDArray[Any]:
    references = overlaps.max(axis=1) if tables.relative else np.full(len(overlaps), patterns.bits, dtype=np.int32)
    weights, own = _weigh(overlaps, references, tables.plain, tables.odd)
    votes = _votes(patterns, weights, tables, path, threads)
    votes += own[:, None] * states
    with_gaps = np.flatnonzero((states == 0).any(axis=1))
    if len(with_gaps):
        gap_weights, _ = _weigh(overlaps[with_gaps], references[with_gaps], tables.erased, tables.odd)
        gaps = _votes(patterns, gap_weights, tables, path, threads)
        votes[with_gaps] = np.where(states[with_gaps] == 0, gaps, votes[with_gaps])
    return votes


@njit(cache=True, nogil=True)
def _weigh(overlaps, references, plain, odd):  # type: ignore[no-untyped-def]
    """The patterns' votes for each state by ``reference - overlap``, and the sums of their odd parts."""
    weights = np.empty(overlaps.shape, plain.dtype)
    own = np.zeros(len(overlaps), odd.dtype)
    for state in range(len(overlaps)):
        total = own[state]
        for pattern in range(overlaps.shape[1]):
            place = references[state] - overlaps[state, pattern]
            weights[state, pattern] = plain[place]
            total += odd[place]
        own[state] = total
    return weights, own


def _votes(
    patterns: PackedPatterns, weights: NDArray[Any], tables: FieldTables, path: str, threads: int
) -> NDArray[Any]:
    if not tables.exact:
        return patterns.dense_votes(weights)
    return _votes_by_product(patterns, weights) if path == "gemm" else patterns.votes(weights, threads=threads)


def _overlaps_by_product(patterns: PackedPatterns, states: Signs) -> NDArray[np.int32]:
    """Overlaps by matrix products of unpacked blocks: integers of at most `bits`, exact in float32."""
    out = np.empty((len(states), len(patterns)), dtype=np.int32)
    numbers = states.astype(np.float32)
    for first, last in patterns.blocks():
        out[:, first:last] = numbers @ patterns.signs(first, last).astype(np.float32).T
    return out


def _votes_by_product(patterns: PackedPatterns, weights: NDArray[np.int64]) -> NDArray[np.int64]:
    """Votes by matrix products of unpacked blocks, in the narrowest float that is exact for them."""
    largest = int(np.abs(weights).max())
    dtype = np.float32 if largest * GEMM_ROWS < FLOAT32_EXACT else np.float64
    out = np.zeros((len(weights), patterns.bits), dtype=np.int64)
    for first, last in patterns.blocks():
        signs: NDArray[Any] = unpack_signs(patterns.rows[first:last], bits=patterns.bits).astype(dtype)
        product: NDArray[Any] = weights[:, first:last].astype(dtype) @ signs
        out += product.astype(np.int64)
    return out


@njit(cache=True, nogil=True)
def _sweep(columns, state, overlaps, order, draws, plain, odd, erased, relative, scale, tie):  # type: ignore[no-untyped-def]
    """Update units one after the other; the overlaps follow each change."""
    patterns = len(overlaps)
    bits = (len(plain) - 1) // 2
    for unit in order:
        column = columns[unit]
        old = np.int64(state[unit])
        reference = np.int64(bits)
        if relative:
            reference = np.int64(overlaps[0])
            for pattern in range(patterns):
                reference = max(reference, np.int64(overlaps[pattern]))
        vote = plain[0] * 0
        for pattern in range(patterns):
            sign = 2 * np.int64((column[pattern >> 6] >> np.uint64(pattern & 63)) & np.uint64(1)) - 1
            place = reference - overlaps[pattern]
            if old == 0:
                vote += sign * erased[place]
            else:
                vote += sign * plain[place] + old * odd[place]
        if scale > 0:
            new = np.int64(1) if 2 * draws[unit] - 1 < np.tanh(vote / scale) else np.int64(-1)
        elif vote > 0:
            new = np.int64(1)
        elif vote < 0:
            new = np.int64(-1)
        elif tie == 0:
            new = old
        elif tie == 1 or draws[unit] >= 0.5:
            new = np.int64(1)
        else:
            new = np.int64(-1)
        if new != old:
            state[unit] = new
            change = new - old
            for pattern in range(patterns):
                sign = 2 * np.int64((column[pattern >> 6] >> np.uint64(pattern & 63)) & np.uint64(1)) - 1
                overlaps[pattern] += change * sign
