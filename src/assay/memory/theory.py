"""What a memory will do, before it is run: recall curves, capacities, basins, convergence times in the limit of many
bits.

Loads are normalised: ``alpha' = (2n-3)!! M / N**(n-1)`` for the kind ``krotov``, ``(n-1)! M / N**(n-1)`` for
``abbott``. Fields, noise and responses are in units of ``u = (1/N**p) sum xi y**p`` with p = n - 1; the paper's own u
is n times as large.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf

from assay.core.errors import InputError
from assay.memory._capacity import (
    Capacity,
    OneStepSolution,
    mean_field_step,
    one_step_capacity,
    one_step_solution,
    replica_symmetric,
)
from assay.memory._gfa import (
    RetrievalCurve,
    covariance_polynomial,
    require_parameters,
    solve,
)
from assay.memory.interactions import THEORY_KINDS, load_factor, require_kind, require_order

__all__ = [
    "Capacity",
    "OneStepSolution",
    "RetrievalCurve",
    "basin",
    "capacity",
    "covariance_polynomial",
    "load_factor",
    "load_of",
    "mean_field",
    "neurodynamics",
    "one_step_solution",
    "retrieval",
    "two_step",
]

Progress = Callable[[int, int], None]
KEPT = 0.5
BISECTIONS = 9
BASIN_PATHS = 20_000
LARGEST_DYNAMIC_LOAD = 1.0


def load_of(patterns: float, bits: int, order: int, *, kind: str = "krotov") -> float:
    """The normalised load of so many patterns.

    Parameters
    ----------
    patterns : float
        M.
    bits : int
        N.
    order : int
        n.
    kind : str
        ``"krotov"`` or ``"abbott"``.

    Returns
    -------
    float
        ``alpha'``.

    Examples
    --------
    >>> round(load_of(70_000, 1024, 3), 4)
    0.2003
    """
    order = require_order(order)
    return load_factor(order, require_kind(kind, among=THEORY_KINDS)) * patterns / float(bits) ** (order - 1)


def retrieval(
    order: int,
    load: float,
    m0: float,
    *,
    steps: int = 40,
    kind: str = "krotov",
    paths: int = 100_000,
    self_interaction: bool = True,
    temperature: float = 0.0,
    seed: int = 0,
    cutoff: float = 1e-4,
    progress: Progress | None = None,
) -> RetrievalCurve:
    """The exact dynamics of recall for many bits (Proposition 1 of arXiv 2506.00851), sampled.

    Parameters
    ----------
    order : int
        n >= 2.
    load : float
        ``alpha'``.
    m0 : float
        The overlap of the cue, between -1 and 1: ``1 - 2 * corruption``.
    steps : int
        Sweeps.
    kind : str
        ``"krotov"`` or ``"abbott"``.
    paths : int
        Sampled paths; m is known to about ``1 / sqrt(paths)``. Time grows as ``paths * steps**2``, memory as
        ``8 * paths * steps`` bytes.
    self_interaction : bool
        False leaves the retarded self-interaction out, as Corollary 1 does.
    temperature : float
        T of ``P(h = +1) = (1 + tanh(u / T)) / 2``.
    seed : int
        Of the paths.
    cutoff : float
        Directions of the noise's covariance below so many times its largest are left out of its inverse.
    progress : callable, optional
        Called with (sweeps done, sweeps).

    Returns
    -------
    RetrievalCurve

    Raises
    ------
    InputError
        An argument has no meaning.

    Examples
    --------
    >>> curve = retrieval(3, 0.2, 0.7, steps=2, paths=20_000)
    >>> [round(float(m), 1) for m in curve.m]  # cues with 15 % flipped bits
    [0.7, 0.7, 0.8]
    """
    return solve(
        order,
        load,
        m0,
        steps=steps,
        kind=kind,
        paths=paths,
        self_interaction=self_interaction,
        temperature=temperature,
        seed=seed,
        cutoff=cutoff,
        progress=progress,
    )


def mean_field(order: int, load: float, m0: float, *, steps: int = 40) -> NDArray[np.float64]:
    """The recursion without self-interaction, ``m(t+1) = erf(m(t)**p / sqrt(2 alpha'))`` (Corollary 1).

    Too pessimistic: it takes states for lost that the memory recalls. For n = 2 it also lacks the noise that recall
    adds.

    Parameters
    ----------
    order : int
        n.
    load : float
        ``alpha'`` of either kind.
    m0 : float
        The overlap of the cue.
    steps : int
        Sweeps.

    Returns
    -------
    ndarray of float64, shape (steps + 1,)

    Examples
    --------
    >>> mean_field(3, 0.2, 0.7, steps=1).round(4)
    array([0.7   , 0.7268])
    """
    order = require_order(order)
    require_parameters(load=load, m0=m0, steps=steps)
    m = np.empty(steps + 1)
    m[0] = m0
    for t in range(steps):
        m[t + 1] = mean_field_step(order, load, m[t])
    return m


def two_step(order: int, load: float, m0: float, *, kind: str = "krotov") -> dict[str, float]:
    """The first two sweeps in closed form, exact for n >= 3.

    Parameters
    ----------
    order : int
        n >= 3.
    load, m0 : float
        ``alpha'`` and the overlap of the cue.
    kind : str
        ``"krotov"`` or ``"abbott"``.

    Returns
    -------
    dict of str to float
        ``m1``, ``m2``, the response ``G10`` and the self-interaction ``Gamma10``.

    Examples
    --------
    >>> {name: round(value, 6) for name, value in two_step(3, 0.2, 0.7).items()}
    {'m1': 0.726778, 'm2': 0.825025, 'G10': 0.978903, 'Gamma10': 0.132803}
    """
    if require_order(order) < 3:
        raise InputError(f"order is {order} for the two-step form", expected="at least 3")
    require_kind(kind, among=THEORY_KINDS)
    require_parameters(load=load, m0=m0, steps=2)
    power, alpha = order - 1, load / load_factor(order, kind)
    spread = math.sqrt(load)
    m1 = mean_field_step(order, load, m0)
    response = 2 * math.exp(-(m0 ** (2 * power)) / (2 * load)) / math.sqrt(2 * math.pi) / spread
    gamma = alpha * power**2 * float(covariance_polynomial(power - 1, m0 * m1, kind=kind)) * response
    m2 = sum((1 + sign * m0) / 2 * math.erf((m1**power + sign * gamma) / math.sqrt(2 * load)) for sign in (1, -1))
    return {"m1": m1, "m2": m2, "G10": response, "Gamma10": gamma}


def neurodynamics(load: float, m0: float, *, steps: int = 40) -> NDArray[np.float64]:
    """Statistical neurodynamics of the classical model, n = 2 (Amari and Maginu 1988): noise from one sweep to the
    next.

    Parameters
    ----------
    load, m0 : float
        ``alpha = M / N`` and the overlap of the cue.
    steps : int
        Sweeps.

    Returns
    -------
    ndarray of float64, shape (steps + 1,)

    Examples
    --------
    >>> neurodynamics(0.08, 0.35, steps=1).round(3)
    array([0.35 , 0.784])
    """
    require_parameters(load=load, m0=m0, steps=steps)
    m, variance = np.empty(steps + 1), load
    m[0] = m0
    for t in range(steps):
        spread = math.sqrt(variance)
        m[t + 1] = float(erf(m[t] / (math.sqrt(2) * spread)))
        response = math.sqrt(2 / math.pi) / spread * math.exp(-(m[t] ** 2) / (2 * variance))
        variance = load + variance * response**2 + 2 * load * m[t + 1] * m[t] * response
    return m


def capacity(
    order: int,
    method: Literal["rs", "1rsb", "dynamic"] = "rs",
    *,
    kind: str = "krotov",
    horizon: int = 100,
    overlap: float = 0.8,
    paths: int = BASIN_PATHS,
    seed: int = 0,
    progress: Progress | None = None,
) -> Capacity:
    """How many patterns fit, as a normalised load.

    Parameters
    ----------
    order : int
        n; at least 3 for ``"1rsb"``.
    method : str
        ``"rs"`` and ``"1rsb"``: equilibrium, by replica theory without and with one step of symmetry breaking.
        ``"dynamic"``: the largest load at which a pattern still has the overlap `overlap` after `horizon` sweeps. It
        exceeds the others because decay is slow, and depends on the horizon: it isn't *the* capacity.
    kind : str
        ``"krotov"`` or ``"abbott"``.
    horizon, overlap, paths, seed
        Of ``"dynamic"``.
    progress : callable, optional
        Called with (solutions done, solutions).

    Returns
    -------
    Capacity

    Examples
    --------
    >>> round(capacity(3).load, 8)
    0.25219043
    """
    require_kind(kind, among=THEORY_KINDS)
    if method == "rs":
        return replica_symmetric(require_order(order))
    if method == "1rsb":
        return one_step_capacity(order, kind)
    if method != "dynamic":
        raise InputError(f"method is {method!r}", expected="rs, 1rsb or dynamic")
    if not 0 < overlap < 1:
        raise InputError(f"overlap is {overlap!r}", expected="a number between 0 and 1")
    low, high, kept = 0.0, LARGEST_DYNAMIC_LOAD, 1.0
    for turn in range(BISECTIONS):
        middle = (low + high) / 2
        m = float(retrieval(order, middle, 1.0, steps=horizon, kind=kind, paths=paths, seed=seed).m[-1])
        if m >= overlap:
            low, kept = middle, m
        else:
            high = middle
        if progress is not None:
            progress(turn + 1, BISECTIONS)
    return Capacity(low, kept, "dynamic", horizon)


def basin(
    order: int,
    load: float,
    *,
    horizon: int = 40,
    kind: str = "krotov",
    self_interaction: bool = True,
    paths: int = BASIN_PATHS,
    seed: int = 0,
    progress: Progress | None = None,
) -> float:
    """The smallest overlap from which a pattern is recalled: m(horizon) above both m(0) and one half.

    Basins that are read after finitely many sweeps are wider than the asymptotic ones.

    Parameters
    ----------
    order : int
        n.
    load : float
        ``alpha'``.
    horizon : int
        After how many sweeps m is read.
    kind, self_interaction, paths, seed
        As for `retrieval`.
    progress : callable, optional
        Called with (solutions done, solutions).

    Returns
    -------
    float
        The overlap; ``N (1 - m) / 2`` bits may be wrong. NaN where no cue stays, not even the pattern itself.

    Examples
    --------
    >>> round(basin(3, 0.1, paths=4_000), 1)
    0.4
    """
    require_parameters(load=load, m0=1.0, steps=horizon)

    def end(m0: float) -> float:
        if not self_interaction and order > 2:
            return float(mean_field(order, load, m0, steps=horizon)[-1])
        curve = retrieval(
            order, load, m0, steps=horizon, kind=kind, paths=paths, self_interaction=self_interaction, seed=seed
        )
        return float(curve.m[-1])

    if end(1.0) <= KEPT:
        return math.nan
    low, high = 0.0, 1.0
    for turn in range(BISECTIONS):
        middle = (low + high) / 2
        # Near 1 the pattern itself has errors: a cue that is better than what is kept counts as recalled when m stays.
        if end(middle) > max(min(middle, end(1.0) - 0.01), KEPT):
            high = middle
        else:
            low = middle
        if progress is not None:
            progress(turn + 1, BISECTIONS)
    return high
