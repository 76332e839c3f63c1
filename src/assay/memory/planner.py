"""Before the memory is made: which order holds the patterns. And after: does the theory apply to the user's own
patterns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import InputError
from assay.memory import theory
from assay.memory._packed import PackedPatterns, pack_signs, pack_words, words_of
from assay.memory.dynamics import Dynamics, compute_field
from assay.memory.interactions import counted, load_factor, require_seed
from assay.memory.memory import DenseAssociativeMemory
from assay.memory.patterns import Decorrelation, corrupt

__all__ = ["AuditReport", "OrderForecast", "Plan", "audit", "plan"]

ORDERS = (2, 3, 4, 5, 6)
BASIN_RESERVE = 0.05
"""How far above the edge of the basin a cue must be, since finite memories end below theory near it."""
CURVE_FACTOR = 5
"""The curve is one solution and the basin ten: it gets more paths, since small errors are rare among them."""
HOPELESS_LOAD = 1.5
"""Beyond it nothing is kept at any order, and no curve is computed."""
WITHIN = (0.7, 1.4)
"""The crosstalk variance over its prediction, between which the theory applies."""
CURVE_ERROR = 0.05
SAMPLE = 128
AUDIT_SWEEPS = 15
AUDITED = ("krotov", "abbott", "exact")
"""The kinds that the theory is about."""


@dataclass(frozen=True)
class OrderForecast:
    """What one order would do.

    Attributes
    ----------
    order : int
    load : float
        ``alpha'``.
    margins : dict of str to float
        Each capacity over the load: above 1 the patterns fit.
    bit_error : float
        Predicted share of wrong bits at the end.
    basin : float
        The smallest overlap that is recalled; NaN where none is.
    flips : int
        How many flipped bits that allows.
    sweeps : int
        Predicted sweeps until m has settled.
    nbytes : int
        Bytes of the packed patterns.
    meets : bool
        Whether the target is met with the cue well inside the basin.
    """

    order: int
    load: float
    margins: dict[str, float]
    bit_error: float
    basin: float
    flips: int
    sweeps: int
    nbytes: int
    meets: bool


@dataclass(frozen=True)
class Plan:
    """Forecasts by order, and the lowest order that does.

    Attributes
    ----------
    bits, patterns : int
    corruption, target_error : float
    kind : str
    horizon : int
        After how many sweeps errors and basins are read.
    forecasts : tuple of OrderForecast
    recommended : int or None
        None where no order does.
    """

    bits: int
    patterns: int
    corruption: float
    target_error: float
    kind: str
    horizon: int
    forecasts: tuple[OrderForecast, ...]
    recommended: int | None

    def __str__(self) -> str:
        lines = [
            f"{counted(self.patterns, 'pattern')} of {counted(self.bits, 'bit')}, {100 * self.corruption:g} % of a "
            f"cue's bits flipped, at most {100 * self.target_error:g} % wrong after {counted(self.horizon, 'sweep')}",
            "order     load  fits(rs)  fits(1rsb)   wrong bits  basin m0     flips  sweeps        bytes",
        ]
        for one in self.forecasts:
            basin = "none" if math.isnan(one.basin) else f"{one.basin:.3f}"
            fits = [f"{one.margins[name]:.3g}x" if name in one.margins else "-" for name in ("rs", "1rsb")]
            mark = " <-" if one.order == self.recommended else ""
            lines.append(
                f"{one.order:5d} {one.load:8.3g} {fits[0]:>9} {fits[1]:>11} {100 * one.bit_error:10.3g} % {basin:>9} "
                f"{one.flips:9,d} {one.sweeps:7d} {one.nbytes:12,d}{mark}"
            )
        chosen = f"order {self.recommended}" if self.recommended else "none of these orders does"
        return "\n".join([*lines, f"recommended: {chosen}"])


def plan(
    bits: int,
    patterns: int,
    *,
    corruption: float,
    target_error: float = 0.01,
    kind: str = "krotov",
    orders: Sequence[int] = ORDERS,
    horizon: int = 40,
    paths: int = 20_000,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Plan:
    """Which order holds so many patterns.

    Parameters
    ----------
    bits, patterns : int
        N and M.
    corruption : float
        The share of a cue's bits that are flipped.
    target_error : float
        The share of bits that may be wrong at the end.
    kind : str
        ``"krotov"`` or ``"abbott"``.
    orders : sequence of int
        Which orders to look at.
    horizon : int
        After how many sweeps errors and basins are read.
    paths, seed : int
        Of the theory's sampling of basins; remaining errors get five times as many.
    progress : callable, optional
        Called with (orders done, orders).

    Returns
    -------
    Plan

    Raises
    ------
    InputError
        An argument has no meaning.

    Examples
    --------
    >>> plan(256, 3000, corruption=0.1, orders=(2, 3), paths=4_000).recommended
    3
    """
    for name, value in (("bits", bits), ("patterns", patterns)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise InputError(f"{name} is {value!r}", expected="an integer of at least 1")
    for name, share in (("corruption", corruption), ("target_error", target_error)):
        if not 0 <= share < 0.5:
            raise InputError(f"{name} is {share!r}", expected="a share of the bits of at least 0 and below 0.5")
    forecasts = []
    for done, order in enumerate(orders, start=1):
        forecasts.append(_forecast(bits, patterns, order, corruption, target_error, kind, horizon, paths, seed))
        if progress is not None:
            progress(done, len(orders))
    recommended = next((one.order for one in forecasts if one.meets), None)
    return Plan(bits, patterns, corruption, target_error, kind, horizon, tuple(forecasts), recommended)


def _forecast(
    bits: int,
    patterns: int,
    order: int,
    corruption: float,
    target_error: float,
    kind: str,
    horizon: int,
    paths: int,
    seed: int,
) -> OrderForecast:
    load, m0 = theory.load_of(patterns, bits, order, kind=kind), 1 - 2 * corruption
    margins = {"rs": theory.capacity(order, "rs", kind=kind).load / load}
    if order >= 3:
        margins["1rsb"] = theory.capacity(order, "1rsb", kind=kind).load / load
    nbytes = 8 * (patterns * words_of(bits) + bits * words_of(patterns) + bits)
    if load > HOPELESS_LOAD:
        return OrderForecast(order, load, margins, 0.5, math.nan, 0, horizon, nbytes, meets=False)
    curve = theory.retrieval(order, load, m0, steps=horizon, kind=kind, paths=CURVE_FACTOR * paths, seed=seed)
    edge = theory.basin(order, load, horizon=horizon, kind=kind, paths=paths, seed=seed)
    meets = curve.bit_error <= target_error and m0 >= edge + BASIN_RESERVE
    flips = 0 if math.isnan(edge) else int(bits * (1 - edge) / 2)
    return OrderForecast(order, load, margins, curve.bit_error, edge, flips, curve.converged_at, nbytes, meets=meets)


@dataclass(frozen=True)
class AuditReport:
    """What the theory assumes, measured on stored patterns, and what it predicts beside what happens.

    Attributes
    ----------
    patterns, bits, order : int
    load : float
        ``alpha'``.
    decorrelate : str
        What was done to the patterns before they were measured.
    bias_ratio : float
        The root mean square of the bits' means times ``sqrt(M)``: 1 for fair independent bits.
    overlap_ratio : float
        The mean squared overlap between two patterns times N: 1 for independent patterns.
    crosstalk_ratio : float
        The variance of the crosstalk over ``alpha rho_p(1)``: 1 where the theory applies.
    crosstalk_mean : float
        The mean of the crosstalk in units of its predicted standard deviation: 0 where the theory applies.
    measured, predicted : ndarray of float64, shape (sweeps + 1,)
        m(t) of the cues, and of the theory from the same m(0).
    curve_error : float
        The root mean square of their difference from the first sweep on.
    exact_recalls, cycles : float
        Shares of the cues that end in their pattern, and that alternate between two states.
    cues : int
    duplicates : int
    applies : bool
        Whether the theory applies to these patterns.
    reasons : tuple of str
        Why it doesn't.
    """

    patterns: int
    bits: int
    order: int
    load: float
    decorrelate: str
    bias_ratio: float
    overlap_ratio: float
    crosstalk_ratio: float
    crosstalk_mean: float
    measured: NDArray[np.float64]
    predicted: NDArray[np.float64]
    curve_error: float
    exact_recalls: float
    cycles: float
    cues: int
    duplicates: int
    applies: bool
    reasons: tuple[str, ...] = field(default=())

    def __str__(self) -> str:
        verdict = "theory applies" if self.applies else "theory does not apply"
        lines = [
            f"patterns     {self.patterns:,} of {counted(self.bits, 'bit')}, order {self.order}, "
            f"alpha' = {self.load:.4g}"
            + (f", decorrelated by {self.decorrelate}" if self.decorrelate != "none" else ""),
            f"bias         {self.bias_ratio:.4g} times that of fair bits",
            f"overlaps     mean square {self.overlap_ratio:.4g} times that of independent patterns",
            f"crosstalk    variance {self.crosstalk_ratio:.4g} times the predicted one, mean "
            f"{self.crosstalk_mean:.3g} deviations",
            f"recall       m: {_curve(self.measured)} measured on {counted(self.cues, 'cue')}",
            f"             m: {_curve(self.predicted)} predicted",
            f"exact        {100 * self.exact_recalls:.4g} % of the cues end in their pattern, "
            f"{100 * self.cycles:.3g} % in 2-cycles",
            f"verdict      {verdict} (crosstalk ratio {self.crosstalk_ratio:.4g})",
        ]
        lines += [f"             {reason}" for reason in self.reasons]
        if not self.applies:
            lines.append("             try to decorrelate by drop or project, a higher order, or the kind exp")
        return "\n".join(lines)


def audit(
    memory: DenseAssociativeMemory,
    cues: ArrayLike | None = None,
    *,
    targets: ArrayLike | None = None,
    corruption: float = 0.1,
    decorrelate: Literal["none", "drop", "project"] = "none",
    n_projected: int | None = None,
    sample: int = SAMPLE,
    sweeps: int = AUDIT_SWEEPS,
    seed: int = 0,
) -> AuditReport:
    """Measure on the user's own patterns what the theory assumes, and compare what it predicts with what happens.

    Parameters
    ----------
    memory : DenseAssociativeMemory
        Fitted; of the kind ``krotov``, ``abbott`` or ``exact``.
    cues : array_like, shape (cues, bits), optional
        Corrupted patterns; some stored ones with a share `corruption` of their bits flipped when left out.
    targets : array_like of int, shape (cues,), optional
        The numbers of the patterns that the cues come from; the nearest ones when left out.
    corruption : float
        For the cues that are made here.
    decorrelate : str
        ``"drop"`` or ``"project"``: measure what would become of the patterns; see `DenseAssociativeMemory`.
    n_projected : int, optional
        Bits of the projection.
    sample : int
        Patterns that are looked at, and cues that are made.
    sweeps : int
        How far m(t) is followed.
    seed : int
        Of the choice.

    Returns
    -------
    AuditReport

    Raises
    ------
    InputError
        The memory's kind has no theory, or an argument has no meaning.

    Examples
    --------
    >>> from assay.memory import DenseAssociativeMemory
    >>> from assay.memory.patterns import random_patterns
    >>> memory = DenseAssociativeMemory(order=3).fit(random_patterns(2000, 256, seed=1))
    >>> audit(memory).applies
    True
    """
    memory._check_fitted()
    if memory.kind not in AUDITED:
        raise InputError(f"kind is {memory.kind!r}", expected=f"one of {', '.join(AUDITED)}: the others have no theory")
    if not (isinstance(sample, int | np.integer) and sample >= 1):
        raise InputError(f"sample is {sample!r}", expected="an integer of at least 1")
    require_seed(seed)
    if not 0 <= corruption < 0.5:
        raise InputError(f"corruption is {corruption!r}", expected="a share of the bits of at least 0 and below 0.5")
    stored, duplicates, signs = memory._patterns, memory.n_duplicates_, None
    if cues is not None:
        signs = memory._signs_of_cues(cues)
    method = memory.decorrelate
    if decorrelate != "none":
        if method != "none":
            raise InputError(
                f"decorrelate is {decorrelate!r}, and the memory is decorrelated by {method!r} already", expected="none"
            )
        learned = Decorrelation.learn(stored.signs(), method=decorrelate, width=n_projected, seed=seed)
        stored = PackedPatterns(pack_words(learned.apply(stored.signs()) > 0), bits=learned.stored_bits)
        signs, method = None if signs is None else learned.apply(signs), decorrelate
    rng = np.random.default_rng(seed)
    chosen = rng.choice(len(stored), size=min(sample, len(stored)), replace=False)
    meant: Any
    chosen_signs = np.concatenate([stored.signs(one, one + 1) for one in chosen])
    if signs is None:
        signs, meant = corrupt(chosen_signs, flips=round(corruption * stored.bits), rng=rng), chosen
    elif targets is None:
        meant = stored.overlaps(*pack_signs(signs)).argmax(axis=1)
    else:
        meant = memory._targets(targets, len(signs))
    kind = "abbott" if memory.kind == "abbott" else "krotov"
    load = theory.load_of(len(stored), stored.bits, memory.order, kind=kind)
    bias, overlap = _bias_ratio(stored), _overlap_ratio(stored, chosen, chosen_signs)
    ratio, mean = _crosstalk(stored, chosen_signs, memory, kind)
    measured, exact, cycles = _follow(stored, signs, meant, memory, sweeps)
    m0 = float(np.clip(measured[0], -1, 1))
    predicted = theory.retrieval(memory.order, min(load, 1e6), m0, steps=sweeps, kind=kind, paths=20_000, seed=seed).m
    error = float(np.sqrt(np.mean((measured[1:] - predicted[1:]) ** 2)))
    reasons = []
    if not WITHIN[0] <= ratio <= WITHIN[1]:
        reasons.append(f"the crosstalk variance is {ratio:.3g} times the predicted one")
    if overlap > WITHIN[1]:
        reasons.append(f"patterns overlap {math.sqrt(overlap):.3g} times as much as independent ones")
    if error > CURVE_ERROR:
        reasons.append(f"m(t) is off by {error:.3g} (root mean square)")
    return AuditReport(
        patterns=len(stored),
        bits=stored.bits,
        order=memory.order,
        load=load,
        decorrelate=method,
        bias_ratio=bias,
        overlap_ratio=overlap,
        crosstalk_ratio=ratio,
        crosstalk_mean=mean,
        measured=measured,
        predicted=predicted,
        curve_error=error,
        exact_recalls=exact,
        cycles=cycles,
        cues=len(signs),
        duplicates=duplicates,
        applies=not reasons,
        reasons=tuple(reasons),
    )


def _bias_ratio(stored: PackedPatterns) -> float:
    means = stored.column_sums / len(stored)
    return float(np.sqrt(np.mean(means**2) * len(stored)))


def _overlap_ratio(stored: PackedPatterns, chosen: NDArray[np.int64], signs: NDArray[np.int8]) -> float:
    if len(stored) < 2:
        return 1.0
    overlaps = stored.overlaps(*pack_signs(signs)).astype(np.float64)
    overlaps[np.arange(len(chosen)), chosen] = 0
    return float((overlaps**2).sum() / (len(chosen) * (len(stored) - 1)) / stored.bits)


def _crosstalk(
    stored: PackedPatterns, signs: NDArray[np.int8], memory: DenseAssociativeMemory, kind: str
) -> tuple[float, float]:
    """Variance and mean of what the other patterns add to the field at a pattern, against ``alpha rho_p(1)``; as
    predicted where there are no others.
    """
    if len(stored) < 2:
        return 1.0, 0.0
    bits, power = stored.bits, memory.order - 1
    dynamics = Dynamics(kind=kind, order=memory.order)
    field_ = compute_field(stored, signs, dynamics)
    own = compute_field(PackedPatterns(pack_words(signs[:1] > 0), bits=bits), signs[:1], dynamics)
    signal = abs(float(own.votes[0, 0])) / own.unit
    noise = signs * (field_.votes / field_.unit) - signal
    predicted = load_factor(memory.order, kind) * len(stored) / float(bits) ** power
    return float(noise.var() / predicted), float(noise.mean() / math.sqrt(predicted))


def _follow(
    stored: PackedPatterns, signs: NDArray[np.int8], meant: Any, memory: DenseAssociativeMemory, sweeps: int
) -> tuple[NDArray[np.float64], float, float]:
    """Mean m(t) of the cues, and the shares of exact recalls and of 2-cycles."""
    from assay.memory.dynamics import STATES_AT_ONCE, run_dynamics

    dynamics = Dynamics(
        kind=memory.kind, order=memory.order, max_sweeps=max(sweeps, memory.max_sweeps), threads=memory._threads()
    )
    total, exact, cycles = np.zeros(sweeps + 1), 0, 0
    for first in range(0, len(signs), STATES_AT_ONCE):
        part = slice(first, first + STATES_AT_ONCE)
        found = run_dynamics(stored, signs[part], dynamics, keep_visited=True)
        target = np.concatenate([stored.signs(int(one), int(one) + 1) for one in meant[part]])
        visited = (found.visited + [found.states] * sweeps)[: sweeps + 1]
        total += [float((target * state.astype(np.int64)).sum()) for state in visited]
        exact += int((found.states == target).all(axis=1).sum())
        cycles += int((found.cycle == 2).sum())
    return total / (len(signs) * stored.bits), exact / len(signs), cycles / len(signs)


def _curve(m: NDArray[np.float64]) -> str:
    """The first sweeps and the last, in a line."""
    shown = [*m[:5], *([m[-1]] if len(m) > 5 else [])]
    return " ".join(f"{value:.3f}" for value in shown[:5]) + (f" … {shown[5]:.3f}" if len(shown) > 5 else "")
