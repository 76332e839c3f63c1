"""How many patterns fit: replica theory in equilibrium, and what is left of a stored pattern after many sweeps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize_scalar, root
from scipy.special import erf, log_ndtr

from assay.core.errors import AssayError, InputError
from assay.memory.interactions import load_factor, require_order

__all__ = ["Capacity", "OneStepSolution", "one_step_capacity", "one_step_solution", "replica_symmetric"]

NODES, REACH = 801, 8.0
"""The Gaussian integral over z0 is a trapezoidal sum, which converges exponentially once its steps of 0.02 are finer
than the integrand's turn, of width ``sqrt(Delta / R(q0))``. Gauss–Hermite sums of 200 nodes are still off in the third
digit of y."""
OVERLAP_STEP, HIGHEST_OVERLAP = 0.004, 0.998
SLOPE_SCALE = 1000.0
"""The slope in y is some 1e-5 where the overlaps are of the order of 1."""
RESIDUAL = 1e-7
LARGEST_INNER = 0.998
"""Beyond it lie the spurious numerical roots, where q0 tends to 1 and y may be anything."""


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

    def __float__(self) -> float:
        return self.load

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

    n >= 3: the largest load for which ``m = erf(m**p / sqrt(2 alpha'))`` has a solution, ``max erf(x)**(2p) / (2
    x**2)``. n = 2: with the noise that recall adds to itself, ``2 alpha = (erf(x)/x - 2 exp(-x**2)/sqrt(pi))**2``
    (Amit, Gutfreund and Sompolinsky 1987).

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
    return Capacity(load(float(found.x)), math.erf(found.x), "rs")


class _OneStep:
    """The one-step equations at one load; the formulas are in the notes of `one_step_solution`."""

    def __init__(self, order: int, load: float, kind: str) -> None:
        from assay.memory._gfa import covariance_coefficients

        self.order, self.power, self.load = order, order - 1, load
        alpha = load / load_factor(order, kind)
        self.R = alpha * np.polynomial.Polynomial(covariance_coefficients(self.power, kind))
        slope = self.R.deriv()
        self.weighted = (slope * np.polynomial.Polynomial([0, 1])).integ()
        self.z = np.linspace(-REACH, REACH, NODES)
        density = np.exp(-0.5 * self.z**2)
        self.weight = density / density.sum()

    def branches(self, m: float, q0: float, y: float) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        """The logarithms of the two terms, without ``y**2 Delta / 2``, and Delta."""
        outer, width = max(self.R(q0), 0.0), max(self.R(1.0) - self.R(q0), 1e-15)
        h = m**self.power + math.sqrt(outer) * self.z
        up = y * h + log_ndtr((h + y * width) / math.sqrt(width))
        down = -y * h + log_ndtr((-h + y * width) / math.sqrt(width))
        return up, down, width

    def overlaps(self, y: float, *, m: float, q0: float) -> tuple[float, float] | None:
        """The overlaps m and q0 at fixed y, by iteration from above; None where the pattern is lost."""
        for _ in range(1000):
            up, down, _ = self.branches(m, q0, y)
            mean = np.tanh((up - down) / 2)
            new_m, new_q0 = float(self.weight @ mean), float(self.weight @ mean**2)
            moved = abs(new_m - m) + abs(new_q0 - q0)
            m, q0 = new_m, new_q0
            if m < 0.5:
                return None
            if moved < 1e-9:
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
              + int Dz0 (1/y) ln[exp(y**2 Delta/2) (e^{yh} Phi((h + y Delta)/sqrt Delta) + e^{-yh} Phi((-h + y
              Delta)/sqrt Delta))]

    ``m = <s>``, ``q0 = <s**2>`` with s the hyperbolic tangent of half the log-ratio of the two terms, and ``d phi/dy =
    0``. The branch is found at the replica-symmetric capacity and followed from there.
    """
    if require_order(order) < 3:
        raise InputError(f"order is {order} for method='1rsb'", expected="at least 3")
    branch = list(_branch(order, kind))
    while branch and load < branch[0].load:
        before = _at_overlap(order, kind, min(branch[0].overlap + OVERLAP_STEP, HIGHEST_OVERLAP), branch[0])
        if before is None or before.overlap <= branch[0].overlap:
            return None
        branch.insert(0, before)
    found = _fold(order, kind)
    if found is None or load > found.load:
        return None
    above = [solution for solution in branch if solution.load <= load and solution.overlap > found.overlap][-1]

    def miss(overlap: float) -> float:
        solution = _at_overlap(order, kind, overlap, above)
        return math.nan if solution is None else solution.load - load

    below = next((solution for solution in branch if above.overlap > solution.overlap > found.overlap), found)
    return _at_overlap(order, kind, float(brentq(miss, below.overlap, above.overlap, xtol=1e-12)), above)


@lru_cache(maxsize=16)
def one_step_capacity(order: int, kind: str = "krotov") -> Capacity:
    """The largest load with a one-step solution whose overlap is above one half.

    Examples
    --------
    >>> round(one_step_capacity(3).load, 4)
    0.2666
    """
    if require_order(order) < 3:
        raise InputError(f"order is {order} for method='1rsb'", expected="at least 3")
    found = _fold(order, kind)
    if found is None:
        raise AssayError(f"no one-step solution was found for order {order}, kind '{kind}'")
    return Capacity(found.load, found.overlap, "1rsb")


@lru_cache(maxsize=16)
def _branch(order: int, kind: str) -> tuple[OneStepSolution, ...]:
    """The solutions from the replica-symmetric capacity on, by falling overlap, to just beyond the largest load.

    Given the overlap the load is unique, while at a given load the branch folds back: so the overlap leads.
    """
    first = _first_solution(order, kind)
    branch = [] if first is None else [first]
    while branch and (len(branch) < 2 or branch[-1].load > branch[-2].load) and branch[-1].overlap > 0.5 + OVERLAP_STEP:
        following = _at_overlap(order, kind, branch[-1].overlap - OVERLAP_STEP, branch[-1])
        if following is None:
            break
        branch.append(following)
    return tuple(branch)


@lru_cache(maxsize=16)
def _fold(order: int, kind: str) -> OneStepSolution | None:
    """The solution of the largest load."""
    branch = _branch(order, kind)
    if len(branch) < 3:
        return branch[-1] if branch else None
    start = branch[-2]

    def loss(overlap: float) -> float:
        solution = _at_overlap(order, kind, overlap, start)
        return math.inf if solution is None else -solution.load

    found = minimize_scalar(
        loss, bounds=(branch[-1].overlap, branch[-3].overlap), method="bounded", options={"xatol": 1e-7}
    )
    return _at_overlap(order, kind, float(found.x), start)


@lru_cache(maxsize=16)
def _first_solution(order: int, kind: str) -> OneStepSolution | None:
    """The solution at the replica-symmetric capacity, where iterating the overlaps converges for each y."""
    load = replica_symmetric(order).load
    equations = _OneStep(order, load, kind)
    before: OneStepSolution | None = None
    slope_before = math.nan
    for y in np.geomspace(4.0, 40.0, 30):
        found = equations.overlaps(float(y), m=0.99, q0=0.98)
        if found is None or found[1] > LARGEST_INNER:
            continue
        slope = equations.slope(float(y), *found)
        if before is not None and slope * slope_before < 0:
            return _at_overlap(order, kind, before.overlap, before)
        before, slope_before = OneStepSolution(load, *found, float(y)), slope
    return None


def _at_overlap(order: int, kind: str, m: float, start: OneStepSolution) -> OneStepSolution | None:
    """The solution with an overlap, by Newton's method from a near one; None where there is none, or only a spurious
    one.
    """

    def residual(x: NDArray[np.float64]) -> list[float]:
        load, q0, y = map(float, x)
        if not (load > 0 and 0 < q0 < 1 and y > 0):
            return [1.0, 1.0, 1.0]
        equations = _OneStep(order, load, kind)
        up, down, _ = equations.branches(m, q0, y)
        mean = np.tanh((up - down) / 2)
        slope = SLOPE_SCALE * equations.slope(y, m, q0)
        return [float(equations.weight @ mean) - m, float(equations.weight @ mean**2) - q0, slope]

    found = root(residual, [start.load, start.inner, start.y], method="hybr", options={"xtol": 1e-11})
    load, q0, y = map(float, found.x)
    near = max(map(abs, residual(found.x))) < RESIDUAL and q0 < LARGEST_INNER
    return OneStepSolution(load, m, q0, y) if near else None


def mean_field_step(order: int, load: float, m: float) -> float:
    """One sweep without self-interaction: ``erf(m**p / sqrt(2 alpha'))`` (Corollary 1)."""
    return float(erf(m ** (order - 1) / math.sqrt(2 * load)))
