"""The bivariate normal distribution function, its logarithm and its derivatives, in float64.

`bvn_cdf` follows Genz (2004, "Numerical computation of rectangular bivariate and trivariate normal and t
probabilities"): Gauss-Legendre quadrature of Plackett's integral below a correlation of 0.925, and his expansion
about |rho| = 1 above. Its absolute error is a few units of 1e-16. Probabilities below `TAIL`, whose *relative* error
would be large, are integrated again with the largest term taken out, so that logarithms and scores stay right at any
depth. `bvn_cdf_owen` computes the same from Owen's T function, and is the reference that the tests hold the kernel
to.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

__all__ = ["bvn_cdf", "bvn_cdf_owen", "bvn_logcdf", "log_normal_cdf", "normal_cdf"]

TAIL = 1e-8
"""Below this probability an absolute error of 1e-16 is no longer a relative error of 1e-8."""

SMALLEST_LOG = -690.8
"""log(1e-300): the floor of a log-probability that is not a number any more."""

DEEP = -37.0
"""Below this argument erfc underflows, and an asymptotic series takes over."""

WINDOW_DROP = 42.0
"""A log-concave integrand is integrated where it is above exp(-42) of its maximum."""

SQRT2 = math.sqrt(2.0)
SQRT_2PI = math.sqrt(2.0 * math.pi)
HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)

_X6, _W6 = np.polynomial.legendre.leggauss(6)
_X12, _W12 = np.polynomial.legendre.leggauss(12)
_X20, _W20 = np.polynomial.legendre.leggauss(20)
_X64, _W64 = np.polynomial.legendre.leggauss(64)


@njit(cache=True, nogil=True)
def normal_cdf(x: float) -> float:
    """The standard normal distribution function."""
    return 0.5 * math.erfc(-x / SQRT2)


@njit(cache=True, nogil=True)
def log_normal_cdf(x: float) -> float:
    """The logarithm of the standard normal distribution function, accurate in the far lower tail."""
    if x > DEEP:
        return math.log(0.5 * math.erfc(-x / SQRT2))
    y = 1.0 / (x * x)
    series = 1.0 - y * (1.0 - 3.0 * y * (1.0 - 5.0 * y * (1.0 - 7.0 * y)))
    return -0.5 * x * x - HALF_LOG_2PI - math.log(-x) + math.log(series)


@njit(cache=True, nogil=True)
def _plackett(h: float, k: float, rho: float, nodes: Any, weights: Any) -> float:
    angle = math.asin(rho)
    product, half_squares = h * k, 0.5 * (h * h + k * k)
    total = 0.0
    for node in range(len(nodes)):
        sine = math.sin(0.5 * angle * (1.0 + nodes[node]))
        total += weights[node] * math.exp((sine * product - half_squares) / (1.0 - sine * sine))
    return total * angle / (4.0 * math.pi) + normal_cdf(-h) * normal_cdf(-k)


@njit(cache=True, nogil=True)
def _near_singular(h: float, k: float, rho: float) -> float:
    """Genz's expansion about |rho| = 1 for P(X > h, Y > k)."""
    product = h * k
    if rho < 0:
        k, product = -k, -product
    total = 0.0
    if abs(rho) < 1.0:
        square = (1.0 - rho) * (1.0 + rho)
        a = math.sqrt(square)
        gap = (h - k) ** 2
        c, d = (4.0 - product) / 8.0, (12.0 - product) / 16.0
        exponent = -0.5 * (gap / square + product)
        if exponent > -100.0:
            total = (
                a
                * math.exp(exponent)
                * (1.0 - c * (gap - square) * (1.0 - d * gap / 5.0) / 3.0 + c * d * square**2 / 5.0)
            )
        if product > -100.0:
            b = math.sqrt(gap)
            tail = SQRT_2PI * normal_cdf(-b / a)
            total -= math.exp(-0.5 * product) * tail * b * (1.0 - c * gap * (1.0 - d * gap / 5.0) / 3.0)
        a *= 0.5
        for node in range(len(_X20)):
            x = (a * (1.0 + _X20[node])) ** 2
            root = math.sqrt(1.0 - x)
            exponent = -0.5 * (gap / x + product)
            if exponent > -100.0:
                series = 1.0 + c * x * (1.0 + d * x)
                exact = math.exp(-product * (1.0 - root) / (2.0 * (1.0 + root))) / root
                total += a * _W20[node] * math.exp(exponent) * (exact - series)
        total = -total / (2.0 * math.pi)
    if rho > 0:
        return total + normal_cdf(-max(h, k))
    total = -total
    if k > h:
        total += normal_cdf(k) - normal_cdf(h) if h < 0 else normal_cdf(-h) - normal_cdf(-k)
    return total


@njit(cache=True, nogil=True)
def bvn(h: float, k: float, rho: float) -> float:
    """P(X <= h, Y <= k) of two standard normals with correlation rho, to a few units of 1e-16."""
    size = abs(rho)
    if size < 0.3:
        value = _plackett(-h, -k, rho, _X6, _W6)
    elif size < 0.75:
        value = _plackett(-h, -k, rho, _X12, _W12)
    elif size < 0.925:
        value = _plackett(-h, -k, rho, _X20, _W20)
    else:
        value = _near_singular(-h, -k, rho)
    return min(max(value, 0.0), 1.0)


@njit(cache=True, nogil=True)
def _log_integrand(x: float, k: float, rho: float, scale: float) -> float:
    return -0.5 * x * x - HALF_LOG_2PI + log_normal_cdf((k - rho * x) / scale)


@njit(cache=True, nogil=True)
def _log_tail(h: float, k: float, rho: float) -> float:
    """Log P(X <= h, Y <= k) as the integral over x <= h of phi(x) Phi((k - rho x) / sqrt(1 - rho^2)).

    The integrand is log-concave: its mode is found by a golden-section search, and 64 Gauss-Legendre points cover the
    window in which it matters.
    """
    if h > k:
        h, k = k, h
    scale = math.sqrt(max((1.0 - rho) * (1.0 + rho), 1e-18))
    # Where the mode can be: below h, and above both modes of the two factors taken apart.
    low, high = min(h, -abs(k) - abs(h) - 1.0), h
    ratio = 0.5 * (math.sqrt(5.0) - 1.0)
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    f_left, f_right = _log_integrand(left, k, rho, scale), _log_integrand(right, k, rho, scale)
    for _ in range(60):
        if f_left > f_right:
            high, right, f_right = right, left, f_left
            left = high - ratio * (high - low)
            f_left = _log_integrand(left, k, rho, scale)
        else:
            low, left, f_left = left, right, f_right
            right = low + ratio * (high - low)
            f_right = _log_integrand(right, k, rho, scale)
    mode = 0.5 * (low + high)
    top = max(_log_integrand(mode, k, rho, scale), _log_integrand(h, k, rho, scale))
    if _log_integrand(h, k, rho, scale) >= top:
        mode = h
    ends = np.empty(2)
    for side in range(2):
        sign = -1.0 if side == 0 else 1.0
        room = 1e300 if side == 0 else h - mode
        inner, outer = 0.0, 1e-9
        while outer < room and _log_integrand(mode + sign * outer, k, rho, scale) > top - WINDOW_DROP:
            inner, outer = outer, 2.0 * outer
        for _ in range(20):
            middle = 0.5 * (inner + outer)
            if _log_integrand(mode + sign * middle, k, rho, scale) > top - WINDOW_DROP:
                inner = middle
            else:
                outer = middle
        ends[side] = mode + sign * min(outer, room)
    total = 0.0
    for piece in range(2):
        start = ends[0] if piece == 0 else mode
        stop = mode if piece == 0 else ends[1]
        half = 0.5 * (stop - start)
        if half <= 0.0:
            continue
        for node in range(len(_X64)):
            x = start + half * (1.0 + _X64[node])
            total += half * _W64[node] * math.exp(_log_integrand(x, k, rho, scale) - top)
    return top + math.log(total) if total > 0.0 else SMALLEST_LOG


@njit(cache=True, nogil=True)
def log_bvn(h: float, k: float, rho: float) -> float:
    """The logarithm of `bvn`, right to 1e-8 of its value's unit also where the probability underflows."""
    value = bvn(h, k, rho)
    if value > TAIL:
        return math.log(value)
    return _log_tail(h, k, rho)


@njit(cache=True, nogil=True)
def log_bvn_scores(h: float, k: float, rho: float) -> tuple[float, float, float, float]:
    """Log P(X <= h, Y <= k), and its derivatives in h, k and rho.

    The derivatives of the probability are phi(h) Phi((k - rho h) / s), the same with h and k exchanged, and the
    density at (h, k), with s = sqrt(1 - rho^2).
    """
    log_p = log_bvn(h, k, rho)
    square = (1.0 - rho) * (1.0 + rho)
    scale = math.sqrt(square)
    d_h = math.exp(-0.5 * h * h - HALF_LOG_2PI + log_normal_cdf((k - rho * h) / scale) - log_p)
    d_k = math.exp(-0.5 * k * k - HALF_LOG_2PI + log_normal_cdf((h - rho * k) / scale) - log_p)
    quadratic = ((h - k) ** 2 + 2.0 * (1.0 - rho) * h * k) / square
    d_rho = math.exp(-0.5 * quadratic - log_p) / (2.0 * math.pi * scale)
    return log_p, d_h, d_k, d_rho


@njit(cache=True, nogil=True)
def _each_cdf(h: Any, k: Any, rho: Any) -> Any:
    out = np.empty(len(h))
    for index in range(len(h)):
        out[index] = bvn(h[index], k[index], rho[index])
    return out


@njit(cache=True, nogil=True)
def _each_scores(h: Any, k: Any, rho: Any) -> Any:
    out = np.empty((4, len(h)))
    for index in range(len(h)):
        out[0, index], out[1, index], out[2, index], out[3, index] = log_bvn_scores(h[index], k[index], rho[index])
    return out


def bvn_cdf(h: ArrayLike, k: ArrayLike, rho: ArrayLike) -> Floats:
    """P(X <= h, Y <= k) for standard normals X, Y with correlation rho.

    Parameters
    ----------
    h, k : array_like of float64
        Upper limits; infinities are allowed.
    rho : array_like of float64
        Correlations in [-1, 1].

    Returns
    -------
    ndarray of float64
        Of the broadcast shape; the absolute error is below 1e-15.

    Examples
    --------
    >>> round(float(bvn_cdf(0.0, 0.0, 0.5)), 12)  # 1/4 + asin(1/2) / (2 pi)
    0.333333333333
    """
    shape, (h, k, rho) = _flat(*(np.clip(np.asarray(x, dtype=np.float64), -40.0, 40.0) for x in (h, k, rho)))
    return np.asarray(_each_cdf(h, k, rho)).reshape(shape)


def bvn_logcdf(h: ArrayLike, k: ArrayLike, rho: ArrayLike) -> tuple[Floats, Floats, Floats, Floats]:
    """The logarithm of `bvn_cdf` with its derivatives.

    Parameters
    ----------
    h, k, rho : array_like of float64
        As for `bvn_cdf`, finite and with abs(rho) < 1.

    Returns
    -------
    log_p, d_h, d_k, d_rho : ndarray of float64
        The log-probability, and its derivatives in h, k and rho.

    Examples
    --------
    >>> import numpy as np
    >>> log_p, d_h, d_k, d_rho = bvn_logcdf(0.0, 0.0, 0.0)
    >>> round(float(np.exp(log_p)), 6), round(float(d_rho), 6)  # 1/4 and (1 / 2 pi) / (1/4)
    (0.25, 0.63662)
    """
    shape, (h, k, rho) = _flat(*(np.asarray(x, dtype=np.float64) for x in (h, k, rho)))
    log_p, d_h, d_k, d_rho = (row.reshape(shape) for row in np.asarray(_each_scores(h, k, rho)))
    return log_p, d_h, d_k, d_rho


def _flat(*arrays: Floats) -> tuple[tuple[int, ...], list[Floats]]:
    """Broadcast, and copy to contiguous rows."""
    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    return shape, [np.array(np.broadcast_to(array, shape), dtype=np.float64).ravel() for array in arrays]


def bvn_cdf_owen(h: ArrayLike, k: ArrayLike, rho: ArrayLike) -> Floats:
    """`bvn_cdf` by Owen's T function (Owen 1956), as a reference.

    Parameters
    ----------
    h, k, rho : array_like of float64
        As for `bvn_cdf`, with abs(rho) < 1.

    Returns
    -------
    ndarray of float64
        Of the broadcast shape.

    Examples
    --------
    >>> round(float(bvn_cdf_owen(0.0, 0.0, -0.5)), 12)
    0.166666666667
    """
    from scipy.special import ndtr, owens_t

    h, k, rho = np.broadcast_arrays(*(np.asarray(x, dtype=np.float64) for x in (h, k, rho)))
    scale = np.sqrt((1.0 - rho) * (1.0 + rho))

    def term(x: Floats, y: Floats) -> Floats:
        # At x = 0 the slope y / (x s) is infinite, T(0, ±inf) = ±1/4; at x = y = 0 it has the limit (1 - rho) / s.
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = (y - rho * x) / (x * scale)
        slope = np.where((x == 0) & (y == 0), (1.0 - rho) / scale, slope)
        slope = np.where((x == 0) & (y != 0), np.copysign(np.inf, y), slope)
        return np.asarray(owens_t(x, slope), dtype=np.float64)

    opposite = (h * k < 0) | ((h * k == 0) & (h + k < 0))
    return np.asarray(0.5 * (ndtr(h) + ndtr(k)) - term(h, k) - term(k, h) - 0.5 * opposite, dtype=np.float64)
