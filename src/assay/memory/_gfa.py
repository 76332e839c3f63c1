"""The exact large-N dynamics by generating functional analysis: one unit in a Gaussian process that its own past
shapes.

With the recalled pattern gauged to +1, the order parameters are the overlap m(t), the correlation C(t, t') and the
response G(t, t'). They determine, and are determined by, a single unit (Proposition 1 of arXiv 2506.00851; the full
form and the resummation for n = 2 follow from the cavity argument)::

    u(t) = m(t)**p + sum over t' < t of Gamma(t, t') h(t') + v(t),    h(t + 1) = sgn u(t),    v ~ N(0, R)

    n >= 3:  R = alpha rho_p(C),                           Gamma = alpha p**2 rho_{p-1}(C) G
    n == 2:  R = alpha (1 - G)^-1 C (1 - G)^-T,            Gamma = alpha ((1 - G)^-1 - 1)

The process is sampled with many paths (Eissfeller and Opper 1992), the mean over the last Gaussian taken exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr
from threadpoolctl import ThreadpoolController

from assay.core.errors import InputError
from assay.memory.interactions import (
    THEORY_KINDS,
    double_factorial,
    load_factor,
    require_kind,
    require_order,
    require_seed,
)

__all__ = ["RetrievalCurve", "covariance_coefficients", "covariance_polynomial", "solve"]

Floats = NDArray[np.float64]
PATHS_OF_A_BLOCK = 16_384
"""Paths that are computed together, from a stream of their own: no result depends on the machine's memory or
threads."""
FIELD_LIMIT = 40.0
"""Beyond so many standard deviations a sign is certain in float64."""
DEAD_DIRECTION = 1e-7
"""Columns of the Cholesky factor with a smaller diagonal carry no noise of their own."""
LEAST_VARIANCE = 1e-12
FROZEN = 1 - 1e-9
"""Above this correlation between successive states not one path moves any more."""
CONVERGED = 0.01
HERMITE_NODES, LEGENDRE_NODES = 20, 40
HASTINGS_SCALE = 0.3275911
HASTINGS = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
"""``erf(x) = 1 - (sum of HASTINGS[k] t**(k + 1)) exp(-x**2)`` with ``t = 1 / (1 + HASTINGS_SCALE x)``, x >= 0."""


@dataclass(frozen=True)
class RetrievalCurve:
    """The dynamics of a recall.

    Attributes
    ----------
    m : ndarray of float64, shape (steps + 1,)
        The overlap with the recalled pattern after each sweep.
    C : ndarray of float64, shape (steps + 1, steps + 1)
        Correlations between the states of two times.
    G : ndarray of float64, shape (steps + 1, steps + 1)
        ``G[t, t']``: the response of the state at t to a field at t' < t, in units of u.
    noise_std : ndarray of float64, shape (steps,)
        The standard deviation of the crosstalk at each time.
    converged_at : int
        The first sweep from which m stays within 0.01 of its last value.
    """

    m: Floats
    C: Floats
    G: Floats
    noise_std: Floats
    converged_at: int

    @property
    def bit_error(self) -> float:
        """The share of wrong bits at the end."""
        return float((1 - self.m[-1]) / 2)


@cache
def covariance_coefficients(power: int, kind: str = "krotov") -> tuple[int, ...]:
    """The coefficients of rho_p(C), from C**0 on.

    For ``krotov`` ``E[x**p y**p]`` of unit Gaussians with correlation C; for ``abbott`` ``p! C**p``.

    Examples
    --------
    >>> covariance_coefficients(4)
    (9, 0, 72, 0, 24)
    """
    if kind == "abbott":
        return (0,) * power + (math.factorial(power),)
    return tuple(
        math.comb(power, k) ** 2 * math.factorial(k) * double_factorial(power - k - 1) ** 2
        if (power - k) % 2 == 0
        else 0
        for k in range(power + 1)
    )


def covariance_polynomial(power: int, correlation: Any, *, kind: str = "krotov") -> Any:
    """rho_p at correlations: the covariance of the crosstalk at two times, per unit of load.

    Parameters
    ----------
    power : int
        p = n - 1.
    correlation : float or ndarray
        C, elementwise.
    kind : str
        ``"krotov"`` or ``"abbott"``.

    Returns
    -------
    float or ndarray
        As `correlation`.

    Examples
    --------
    >>> float(covariance_polynomial(3, 0.5))  # 9 C + 6 C**3
    5.25
    """
    return np.polynomial.polynomial.polyval(correlation, covariance_coefficients(power, kind))


def solve(
    order: int,
    load: float,
    m0: float,
    *,
    steps: int,
    kind: str,
    paths: int,
    self_interaction: bool,
    temperature: float,
    seed: int,
    cutoff: float,
    progress: Callable[[int, int], None] | None = None,
) -> RetrievalCurve:
    """Sample the single-unit process; the arguments are those of `assay.memory.theory.retrieval`."""
    order = require_order(order)
    require_kind(kind, among=THEORY_KINDS)
    require_parameters(load=load, m0=m0, steps=steps, paths=paths, temperature=temperature)
    require_seed(seed)
    # The matrices are as small as the time is short: threads would only wait for each other, and change the last bits.
    with _thread_pools().limit(limits=1, user_api="blas"):
        return _solve(
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


def _solve(
    order: int,
    load: float,
    m0: float,
    *,
    steps: int,
    kind: str,
    paths: int,
    self_interaction: bool,
    temperature: float,
    seed: int,
    cutoff: float,
    progress: Callable[[int, int], None] | None,
) -> RetrievalCurve:
    power, alpha = order - 1, load / load_factor(order, kind)
    sample = _Paths(paths, steps, m0, temperature=temperature, seed=seed)
    m, noise = np.zeros(steps + 1), np.zeros(steps)
    C, G, factor = np.eye(steps + 1), np.zeros((steps + 1, steps + 1)), np.zeros((steps, steps))
    m[0] = m0
    last = steps
    for t in range(steps):
        now = t + 1
        R, Gamma = _process(alpha, power, kind, C[:now, :now], G[:now, :now])
        noise[t] = math.sqrt(max(R[t, t], 0.0))
        _extend_factor(factor, R[t], t)
        echo = Gamma[t, :t] if self_interaction else np.zeros(t)
        moments = sample.step(m[t] ** power, factor[t, :now], echo)
        m[now] = moments.overlap
        C[now, :now] = C[:now, now] = moments.correlation
        G[now, :now] = _pseudo_inverse(R, cutoff) @ (factor[:now, :now] @ moments.response)
        if progress is not None:
            progress(now, steps)
        if moments.correlation[t] > FROZEN:
            last = now
            break
    m[last:], noise[last:] = m[last], noise[last - 1] if last else 0.0
    for t in range(last + 1, steps + 1):
        C[t, :t] = C[:t, t] = C[last, :t] if t <= last else np.where(np.arange(t) >= last, 1.0, C[last, :t])
    away = np.flatnonzero(np.abs(m - m[-1]) > CONVERGED)
    return RetrievalCurve(m, C, G, noise, int(away[-1]) + 1 if len(away) else 0)


@cache
def _thread_pools() -> ThreadpoolController:
    return ThreadpoolController()


def require_parameters(*, load: float, m0: float, steps: int, paths: int = 1, temperature: float = 0.0) -> None:
    """Refuse what has no meaning.

    Raises
    ------
    InputError
        Naming the argument.
    """
    if not (load > 0 and math.isfinite(load)):
        raise InputError(f"load is {load!r}", expected="a positive number: alpha' = M rho(1) / N**(n-1)")
    if not -1 <= m0 <= 1:
        raise InputError(f"m0 is {m0!r}", expected="an overlap between -1 and 1")
    if not (isinstance(steps, int | np.integer) and steps >= 1):
        raise InputError(f"steps is {steps!r}", expected="an integer of at least 1")
    if not (isinstance(paths, int | np.integer) and paths >= 1):
        raise InputError(f"paths is {paths!r}", expected="an integer of at least 1")
    if not (temperature >= 0 and math.isfinite(temperature)):
        raise InputError(f"temperature is {temperature!r}", expected="a finite number of at least 0")


@dataclass(frozen=True)
class _Moments:
    """Means over the paths after a step: of the state, of it times all earlier states, and times the noises."""

    overlap: float
    correlation: Floats
    response: Floats


class _Paths:
    """The sampled paths: states and independent noises of all times, in float32.

    The sums of products of two states are integers below 2**24 in each block, so that the correlations are exact.
    """

    def __init__(self, paths: int, steps: int, m0: float, *, temperature: float, seed: int) -> None:
        self.count, self.temperature = paths, temperature
        # Fails at once, and not after a while, where the paths don't fit into memory.
        np.empty((2 * steps + 1, paths), dtype=np.float32)
        streams = np.random.SeedSequence(seed).spawn(1 + -(-paths // PATHS_OF_A_BLOCK))
        start = np.full(paths, -1, dtype=np.float32)
        start[: round(paths * (1 + m0) / 2)] = 1
        np.random.Generator(np.random.Philox(streams[0])).shuffle(start)
        self.generators = [np.random.Generator(np.random.SFC64(stream)) for stream in streams[1:]]
        self.states, self.noises = [], []
        for block in range(len(self.generators)):
            first = start[block * PATHS_OF_A_BLOCK : (block + 1) * PATHS_OF_A_BLOCK]
            states = np.empty((steps + 1, len(first)), dtype=np.float32)
            states[0] = first
            self.states.append(states)
            self.noises.append(np.empty((steps, len(first)), dtype=np.float32))
        self.time = 0

    def step(self, signal: float, factor: Floats, echo: Floats) -> _Moments:
        """Advance all paths by one sweep.

        `factor` is the last row of the Cholesky factor of the noise's covariance, `echo` that of the self-interaction.
        """
        t, width = self.time, float(factor[-1])
        overlap, correlation, response = 0.0, np.zeros(t + 1), np.zeros(t + 1)
        earlier_noise, earlier_state = factor[:t].astype(np.float32), echo.astype(np.float32)
        for states, noises, generator in zip(self.states, self.noises, self.generators, strict=True):
            mean = np.float32(signal) + earlier_noise @ noises[:t] + earlier_state @ states[:t]
            generator.standard_normal(out=noises[t], dtype=np.float32)
            field = mean + np.float32(width) * noises[t]
            if self.temperature > 0:
                moments = _thermal_moments(mean.astype(np.float64), width, self.temperature)
                expected, slope = (moment.astype(np.float32) for moment in moments)
                chance = (1 + np.tanh(field / self.temperature)) / 2
                states[t + 1] = np.where(generator.random(len(field), dtype=np.float32) < chance, 1, -1)
            else:
                scaled = np.clip(mean / np.float32(width), -FIELD_LIMIT, FIELD_LIMIT).astype(np.float32, copy=False)
                expected, slope = _sign_moments(scaled)
                np.copysign(np.float32(1), field, out=states[t + 1])
            overlap += float(expected.sum(dtype=np.float64))
            correlation += states[: t + 1] @ states[t + 1]
            response[:t] += noises[:t] @ expected
            response[t] += float(slope.sum(dtype=np.float64))
        self.time += 1
        return _Moments(overlap / self.count, correlation / self.count, response / self.count)


def _thermal_moments(mean: Floats, width: float, temperature: float) -> tuple[Floats, Floats]:
    """Means over the last noise z of ``tanh((a + s z) / T)`` and of it times z.

    Where T is not less than s, tanh is smooth in z: Gauss–Hermite quadrature. Where it is less, tanh is a step blurred
    by the logistic density of ``T atanh(v)``, v uniform: the step's own moments are smooth in v, and are averaged over
    it.
    """
    expected, slope = np.zeros(len(mean)), np.zeros(len(mean))
    if temperature >= width:
        nodes, weights = np.polynomial.hermite_e.hermegauss(HERMITE_NODES)
        for node, weight in zip(nodes, weights / weights.sum(), strict=True):
            value = np.tanh((mean + width * node) / temperature)
            expected += weight * value
            slope += weight * (1 - value**2) * width / temperature
        return expected, slope
    nodes, weights = np.polynomial.legendre.leggauss(LEGENDRE_NODES)
    for node, weight in zip(temperature * np.arctanh(nodes), weights / 2, strict=True):
        scaled = np.clip((mean - node) / width, -FIELD_LIMIT, FIELD_LIMIT)
        expected += weight * (2 * ndtr(scaled) - 1)
        slope += weight * math.sqrt(2 / math.pi) * np.exp(-0.5 * scaled**2)
    return expected, slope


def _sign_moments(scaled: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Means over z of ``sgn(a + z)`` and of it times z: ``2 Phi(a) - 1`` and ``2 phi(a)``.

    The first from the second, to 1e-6, by Hastings' rational approximation of the error function (Abramowitz and Stegun
    7.1.26): its error is far below that of the sampling, and a library's error function would take as long as all the
    rest of a step.
    """
    density = np.exp(np.float32(-0.5) * scaled * scaled)
    x = np.abs(scaled)
    x *= np.float32(math.sqrt(0.5) * HASTINGS_SCALE)
    x += np.float32(1)
    np.reciprocal(x, out=x)
    tail = np.full_like(x, HASTINGS[-1])
    for coefficient in HASTINGS[-2::-1]:
        tail *= x
        tail += np.float32(coefficient)
    tail *= x
    tail *= density
    np.subtract(np.float32(1), tail, out=tail)
    expected = np.copysign(tail, scaled)
    density *= np.float32(math.sqrt(2 / math.pi))
    return expected, density


def _process(alpha: float, power: int, kind: str, C: Floats, G: Floats) -> tuple[Floats, Floats]:
    """The covariance of the noise and the self-interaction at the times so far."""
    if power == 1:
        resummed = np.linalg.inv(np.eye(len(C)) - G)
        return alpha * resummed @ C @ resummed.T, alpha * (resummed - np.eye(len(C)))
    R = alpha * covariance_polynomial(power, C, kind=kind)
    return R, alpha * power**2 * covariance_polynomial(power - 1, C, kind=kind) * G


def _extend_factor(factor: Floats, row: Floats, t: int) -> None:
    """Append a row to the Cholesky factor by forward substitution, skipping directions without noise of their own."""
    for s in range(t):
        if factor[s, s] > DEAD_DIRECTION:
            factor[t, s] = (row[s] - factor[t, :s] @ factor[s, :s]) / factor[s, s]
    factor[t, t] = math.sqrt(max(row[t] - factor[t, :t] @ factor[t, :t], LEAST_VARIANCE))


def _pseudo_inverse(R: Floats, cutoff: float) -> Floats:
    """The inverse of R without its directions below `cutoff` times the largest.

    When retrieval freezes R becomes singular, and a full inverse explodes. The dropped directions are harmless: Gamma
    only multiplies differences of states along them, which are zero.
    """
    values, vectors = np.linalg.eigh(R)
    kept = values > cutoff * values[-1]
    return np.asarray((vectors[:, kept] / values[kept]) @ vectors[:, kept].T)
