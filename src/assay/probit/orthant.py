"""Orthant probabilities P(Y >= 0) of normal vectors: closed forms up to two dimensions, quadrature in three, GHK
beyond.

The GHK simulator (Geweke, Hajivassiliou, Keane) draws one coordinate after the other from its truncated conditional
distribution and multiplies the probabilities of the truncations. Here it works on logarithms, on scrambled Sobol
points and their mirror images, with the constraints ordered so that the least likely comes first, and says how large
its error is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from assay.probit.bivariate import SQRT_2PI, bvn, bvn_logcdf, log_normal_cdf

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["Probability", "ghk", "orthant"]

JITTER = 1e-9
"""Added to the variance of every constraint, so that constraints that imply one another don't break the factor."""

POINTS = 1024
REPLICATES = 8
"""Independent scrambles, from whose spread the error is estimated."""

FAR = 9.0
"""Beyond so many standard deviations nothing is left to integrate, in absolute terms."""

NEARLY_ONE = 0.9999
"""From this correlation on three dimensions are simulated: the quadrature's integrand has a step."""

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(48)


@dataclass(frozen=True)
class Probability:
    """A probability with its Monte Carlo error.

    Attributes
    ----------
    value : float
        The probability.
    error : float
        Its standard error; 0 where it is computed and not simulated.
    log : float
        Its logarithm, also where the value underflows.
    """

    value: float
    error: float
    log: float


@njit(cache=True, nogil=True)
def _trivariate(h1: float, h2: float, h3: float, r12: float, r13: float, r23: float) -> float:
    """P(Z <= h) of three standard normals, conditioning on the first."""
    s2, s3 = np.sqrt((1.0 - r12) * (1.0 + r12)), np.sqrt((1.0 - r13) * (1.0 + r13))
    rho = min(1.0, max(-1.0, (r23 - r12 * r13) / (s2 * s3)))
    start, stop = -FAR, min(h1, FAR)
    pieces = 4
    total = 0.0
    for piece in range(pieces):
        low = start + (stop - start) * piece / pieces
        half = 0.5 * (stop - start) / pieces
        for node in range(len(_NODES)):
            x = low + half * (1.0 + _NODES[node])
            density = np.exp(-0.5 * x * x) / SQRT_2PI
            total += half * _WEIGHTS[node] * density * bvn((h2 - r12 * x) / s2, (h3 - r13 * x) / s3, rho)
    return total


def orthant(mean: Floats, covariance: Floats, *, points: int = POINTS, seed: int = 0) -> Probability:
    """P(Y >= 0 in every coordinate) for Y ~ N(mean, covariance).

    Parameters
    ----------
    mean : ndarray of float64, shape (d,)
        Means of the constraints.
    covariance : ndarray of float64, shape (d, d)
        Their covariance; may be singular.
    points : int
        Points of the simulation from four dimensions on.
    seed : int
        Its seed.

    Returns
    -------
    Probability
        Exact to about 1e-15 for d <= 2 and to about 1e-10 for d = 3.
    """
    d = len(mean)
    if d == 0:
        return Probability(1.0, 0.0, 0.0)
    deviation = np.sqrt(np.maximum(np.diag(covariance), JITTER))
    h = mean / deviation
    r = covariance / np.outer(deviation, deviation)
    if d == 1:
        log = float(log_normal_cdf(float(h[0])))
        return Probability(float(np.exp(log)), 0.0, log)
    if d == 2 and abs(r[0, 1]) < 1.0:
        log = float(bvn_logcdf(h[0], h[1], r[0, 1])[0])
        return Probability(float(np.exp(log)), 0.0, log)
    if d == 3:
        strongest = np.abs(r - np.eye(3)).max(axis=1)
        first = int(strongest.argmin())
        second, third = (one for one in range(3) if one != first)
        if strongest[first] < NEARLY_ONE and h.min() > -FAR + 2:
            value = _trivariate(h[first], h[second], h[third], r[first, second], r[first, third], r[second, third])
            if value > 1e-10:
                return Probability(float(value), 0.0, float(np.log(value)))
    logs, _ = ghk(mean, covariance, points=points, seed=seed)
    return _summary(logs)


def _summary(logs: Floats) -> Probability:
    """The mean of weights given by their logarithms, shape (replicates, points), and its standard error."""
    top = float(logs.max())
    if not np.isfinite(top):
        return Probability(0.0, 0.0, -np.inf)
    means = np.exp(logs - top).mean(axis=1)
    error = float(means.std(ddof=1) / np.sqrt(len(means))) if len(means) > 1 else 0.0
    log = top + float(np.log(means.mean()))
    return Probability(float(np.exp(log)), float(np.exp(top) * error), log)


def conditional_orthant(
    mean: Floats, covariance: Floats, given: int, *, points: int = POINTS, seed: int = 0
) -> Probability:
    """P(all Y >= 0 | the first `given` coordinates are), as the ratio of two means over the same points.

    Parameters
    ----------
    mean, covariance : ndarray of float64
        As for `orthant`.
    given : int
        How many coordinates the condition has, which come first.
    points, seed : int
        As for `orthant`.

    Returns
    -------
    Probability
    """
    d = len(mean)
    if given == 0:
        return orthant(mean, covariance, points=points, seed=seed)
    if d <= 3:
        whole = orthant(mean, covariance, points=points, seed=seed)
        condition = orthant(mean[:given], covariance[:given, :given], points=points, seed=seed)
        if whole.error == 0 and condition.error == 0 and condition.value > 0:
            log = min(0.0, whole.log - condition.log)
            return Probability(float(np.exp(log)), 0.0, log)
    logs, partial = ghk(mean, covariance, given=given, points=points, seed=seed)
    top = float(partial.max())
    weights, both = np.exp(partial - top), np.exp(logs - top)
    value = float(both.sum() / weights.sum())
    ratios = both.mean(axis=1) / weights.mean(axis=1)
    error = float(ratios.std(ddof=1) / np.sqrt(len(ratios)))
    return Probability(value, error, float(np.log(value)) if value > 0 else -np.inf)


def ghk(
    mean: Floats, covariance: Floats, *, given: int = 0, points: int = POINTS, seed: int = 0
) -> tuple[Floats, Floats]:
    """Log-weights of the GHK simulator.

    Parameters
    ----------
    mean, covariance : ndarray of float64
        As for `orthant`.
    given : int
        The first so many constraints are drawn first; within them and within the others the least likely comes first.
    points : int
        How many points, in `REPLICATES` independent scrambles.
    seed : int
        Their seed.

    Returns
    -------
    logs : ndarray of float64, shape (replicates, points)
        Log-weights of all constraints; their mean estimates the probability.
    partial : ndarray of float64, shape (replicates, points)
        Log-weights of the given constraints alone.
    """
    from scipy.special import log_ndtr
    from scipy.stats import norm, qmc

    d = len(mean)
    matrix = covariance + JITTER * np.eye(d)
    order, cholesky = _ordered_cholesky(mean, matrix, given)
    means = mean[order]
    half = max(8, int(2 ** np.round(np.log2(max(points, 16) / (2 * REPLICATES)))))
    uniform = np.stack(
        [
            qmc.Sobol(max(d - 1, 1), scramble=True, rng=np.random.default_rng([seed, one])).random(half)
            for one in range(REPLICATES)
        ]
    )
    uniform = np.concatenate([uniform, 1.0 - uniform], axis=1)
    logs = np.zeros(uniform.shape[:2])
    partial = np.zeros_like(logs)
    drawn = np.zeros((*logs.shape, d))
    for q in range(d):
        limit = -(means[q] + drawn[..., :q] @ cholesky[q, :q]) / cholesky[q, q]
        log_mass = log_ndtr(-limit)
        if q == given:
            partial = logs.copy()
        logs = logs + log_mass
        if q + 1 < d:
            # -quantile((1 - u) Phi(-limit)), through the logarithm, so that far tails stay right.
            drawn[..., q] = _truncated_quantile(np.log1p(-np.clip(uniform[..., q], 0.0, 1 - 1e-16)) + log_mass, norm)
    if given >= d:
        partial = logs.copy()
    return logs, partial


def _truncated_quantile(log_p: Floats, norm: Any) -> Floats:
    """-Phi^-1(exp(log_p))."""
    from scipy.special import ndtri_exp

    return np.asarray(-ndtri_exp(np.minimum(log_p, -1e-17)), dtype=np.float64)


def _ordered_cholesky(mean: Floats, covariance: Floats, given: int) -> tuple[NDArray[np.int64], Floats]:
    """Order the constraints by their conditional probability at the truncated means so far (Genz and Bretz "
    "2009, 4.1.3).
    """
    from scipy.special import ndtr

    d = len(mean)
    order = np.arange(d)
    matrix = covariance.copy()
    cholesky = np.zeros((d, d))
    expected = np.zeros(d)
    for q in range(d):
        block = np.arange(q, given if q < given else d)
        variance = np.maximum(np.diag(matrix)[order[block]] - (cholesky[block, :q] ** 2).sum(axis=1), JITTER / 2)
        limit = -(mean[order[block]] + cholesky[block, :q] @ expected[:q]) / np.sqrt(variance)
        best = int(block[np.argmin(ndtr(-limit))])
        order[[q, best]] = order[[best, q]]
        cholesky[[q, best], :q] = cholesky[[best, q], :q]
        place = order[q]
        pivot = np.sqrt(max(matrix[place, place] - float((cholesky[q, :q] ** 2).sum()), JITTER / 2))
        cholesky[q, q] = pivot
        rest = order[q + 1 :]
        cholesky[q + 1 :, q] = (matrix[rest, place] - cholesky[q + 1 :, :q] @ cholesky[q, :q]) / pivot
        edge = -(mean[place] + float(cholesky[q, :q] @ expected[:q])) / pivot
        mass = float(ndtr(-edge))
        expected[q] = float(np.exp(-0.5 * edge * edge) / SQRT_2PI / mass) if mass > 1e-12 else max(edge, 0.0)
    return order, cholesky
