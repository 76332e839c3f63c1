"""How many patterns fit: replica theory in equilibrium, and what is left of a stored pattern after many sweeps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize_scalar
from scipy.special import erf, log_ndtr

from assay.core.errors import InputError
from assay.memory.interactions import load_factor, require_order

__all__ = ["Capacity", "OneStepSolution", "one_step_capacity", "one_step_solution", "replica_symmetric"]

GAUSS_NODES = 200
"""Nodes of the Gaussian integral over z0; 120 and 400 give the same digits."""


@dataclass(frozen=True)
class Capacity:
    """The largest load at which a pattern is kept.

    Attributes
    ----------
    load : float
        Normalised load ``alpha'``.
    overlap : float
        What is left of the pattern there.
    method : str
        ``"rs"``, ``"1rsb"`` or ``"dynamic"``.
    horizon : int or None
        For ``"dynamic"`` after how many sweeps.
    """

    load: float
    overlap: float
    method: str
    horizon: int | None = None

    def patterns(self, bits: int, order: int, kind: str = "krotov") -> int:
        """How many patterns of so many bits that is."""
        return int(self.load * float(bits) ** (order - 1) / load_factor(order, kind))


@dataclass(frozen=True)
class OneStepSolution:
    """A solution of the one-step equations.

    Attributes
    ----------
    load : float
        ``alpha'``.
    overlap, inner, y : float
        m, q0 and the temperature-like parameter y.
    """

    load: float
    overlap: float
    inner: float
    y: float


@lru_cache(maxsize=64)
def replica_symmetric(order: int) -> Capacity:
    """The replica-symmetric capacity at zero temperature.

    n >= 3: the largest load for which ``m = erf(m**p / sqrt(2 alpha'))`` has a solution, ``max erf(x)**(2p) / (2 x**2)``.
    n = 2: with the noise that recall adds to itself, ``2 alpha = (erf(x)/x - 2 exp(-x**2)/sqrt(pi))**2`` (Amit, Gutfreund
    and Sompolinsky 1987).

    Examples
    --------
    >>> round(replica_symmetric(3).load, 8), round(replica_symmetric(2).load, 4)
    (0.25219043, 0.1379)
    """
    power = require_order(order) - 1

    def load(x: float) -> float:
        if power == 1:
            return 0.5 * (math.erf(x) / x - 2 / math.sqrt(math.pi) * math.exp(-x * x)) ** 2
        return math.erf(x) ** (2 * power) / (2 * x * x)

    grid = np.linspace(0.05, 6.0, 600)
    best = int(np.argmax([load(x) for x in grid]))
    found = minimize_scalar(
        lambda x: -load(x), bounds=(grid[max(best - 1, 0)], grid[best + 1]), method="bounded", options={"xatol": 1e-12}
    )
    return Capacity(load(found.x), math.erf(found.x), "rs")


class _OneStep:
    """The one-step equations at one load; the formulas are in the notes of `one_step_solution`."""

    def __init__(self, order: int, load: float, kind: str) -> None:
        from assay.memory._gfa import covariance_coefficients

        self.order, self.power = order, order - 1
        alpha = load / load_factor(order, kind)
        self.R = alpha * np.polynomial.Polynomial(covariance_coefficients(self.power, kind))
        slope = self.R.deriv()
        self.weighted = (slope * np.polynomial.Polynomial([0, 1])).integ()
        nodes, weights = np.polynomial.hermite_e.hermegauss(GAUSS_NODES)
        self.z, self.weight = nodes, weights / weights.sum()

    def branches(self, m: float, q0: float, y: float) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        """The logarithms of the two terms, without ``y**2 Delta / 2``, and Delta."""
        outer, width = max(self.R(q0), 0.0), max(self.R(1.0) - self.R(q0), 1e-15)
        h = m**self.power + math.sqrt(outer) * self.z
        up = y * h + log_ndtr((h + y * width) / math.sqrt(width))
        down = -y * h + log_ndtr((-h + y * width) / math.sqrt(width))
        return up, down, width

    def overlaps(self, y: float, *, m: float, q0: float) -> tuple[float, float] | None:
        """m and q0 at fixed y, by iteration from above; None where the pattern is lost."""
        for _ in range(4000):
            up, down, _ = self.branches(m, q0, y)
            mean = np.tanh((up - down) / 2)
            new_m, new_q0 = float(self.weight @ mean), float(self.weight @ mean**2)
            moved = abs(new_m - m) + abs(new_q0 - q0)
            m, q0 = new_m, new_q0
            if m < 0.5:
                return None
            if moved < 1e-11:
                break
        return m, q0

    def potential(self, m: float, q0: float, y: float) -> float:
        """phi(m, q0, y)."""
        up, down, width = self.branches(m, q0, y)
        inner = float(self.weight @ (y * y * width / 2 + np.logaddexp(up, down)))
        echo = float(self.weighted(1.0) - self.weighted(q0))
        return -(1 - 1 / self.order) * m**self.order - y / 2 * echo + inner / y

    def slope(self, y: float, m: float, q0: float) -> float:
        """The derivative of phi with respect to y."""
        step = 1e-4 * y
        return (self.potential(m, q0, y + step) - self.potential(m, q0, y - step)) / (2 * step)


def one_step_solution(order: int, load: float, *, kind: str = "krotov") -> OneStepSolution | None:
    """The solution with one step of replica-symmetry breaking at zero temperature; None where there is none.

    Parameters
    ----------
    order : int
        n >= 3.
    load : float
        ``alpha'``.
    kind : str
        ``"krotov"`` or ``"abbott"``.

    Returns
    -------
    OneStepSolution or None

    Notes
    -----
    With ``R(q) = alpha rho_p(q)``, ``Delta = R(1) - R(q0)`` and ``h = m**p + sqrt(R(q0)) z0``::

        phi = -(1 - 1/n) m**n - (y/2) int_q0^1 q R'(q) dq
              + int Dz0 (1/y) ln[exp(y**2 Delta/2) (e^{yh} Phi((h + y Delta)/sqrt Delta) + e^{-yh} Phi((-h + y Delta)/sqrt Delta))]

    ``m = <s>``, ``q0 = <s**2>`` with s the hyperbolic tangent of half the log-ratio of the two terms, and ``d phi/dy = 0``.
    The root in y is sought between 2 and 30, below the spurious ones where q0 tends to 1.
    """
    require_order(order)
    if order < 3:
        raise InputError(f"order is {order} for method='1rsb'", expected="at least 3")
    equations = _OneStep(order, load, kind)
    memory: dict[float, tuple[float, float]] = {}

    def slope(y: float) -> float:
        found = equations.overlaps(y, m=0.999, q0=0.999)
        if found is None:
            return math.nan
        memory[y] = found
        return equations.slope(y, *found)

    grid = np.geomspace(1.0, 30.0, 36)
    values = [slope(y) for y in grid]
    for place in range(len(grid) - 1):
        first, second = values[place], values[place + 1]
        if math.isfinite(first) and math.isfinite(second) and first * second < 0 and memory[grid[place + 1]][1] < 0.9999:
            y = float(brentq(slope, grid[place], grid[place + 1], xtol=1e-6))
            m, q0 = memory.get(y) or equations.overlaps(y, m=0.999, q0=0.999) or (math.nan, math.nan)
            return OneStepSolution(load, m, q0, y)
    return None


@lru_cache(maxsize=16)
def one_step_capacity(order: int, kind: str = "krotov", *, digits: int = 4) -> Capacity:
    """The largest load with a one-step solution, by bisection."""
    low, high = replica_symmetric(order).load, 1.3 * replica_symmetric(order).load
    found = one_step_solution(order, low, kind=kind)
    while high - low > 0.5 * 10.0**-digits:
        middle = (low + high) / 2
        solution = one_step_solution(order, middle, kind=kind)
        if solution is None:
            high = middle
        else:
            low, found = middle, solution
    return Capacity(low, found.overlap if found else math.nan, "1rsb")


def mean_field_step(order: int, load: float, m: float) -> float:
    """One sweep without self-interaction: ``erf(m**p / sqrt(2 alpha'))`` (Corollary 1)."""
    return float(erf(m ** (order - 1) / math.sqrt(2 * load)))
