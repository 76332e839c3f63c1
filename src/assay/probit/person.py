"""One person's utilities given a few answers: constraints, Laplace's approximation, an exact Gibbs sampler."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from assay.core.errors import InputError
from assay.probit.bivariate import log_normal_cdf
from assay.probit.choices import parse_answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

__all__ = ["Posterior", "constraints_of", "gibbs", "laplace"]

TEMPERATURE = 0.3
"""The width of the probit likelihood of an answer in the Laplace approximation, in units of a utility."""

NEWTON_STEPS = 12
BURN_IN = 200


@dataclass(frozen=True)
class Posterior:
    """What is known of one person's utilities.

    Attributes
    ----------
    mean : ndarray of float64, shape (n,)
        Expected utilities.
    covariance : ndarray of float64, shape (n, n)
        Their covariance.
    draws : ndarray of float64, shape (draws, n), or None
        Draws of the Gibbs sampler.
    """

    mean: Floats
    covariance: Floats
    draws: Floats | None = None


def groups_of(answer: Any) -> list[list[Hashable]]:
    """An answer as groups of tied items, best first: from ``"a>b~c"``, or from a sequence with lists as ties."""
    if isinstance(answer, str):
        groups = parse_answer(answer)
        if len(groups) < 2:
            raise InputError(f"the answer {answer!r} prefers nothing", expected="an item above another, such as a>b")
        return [list(group) for group in groups]
    if isinstance(answer, Sequence | np.ndarray):
        return [list(entry) if isinstance(entry, list | set | frozenset) else [entry] for entry in answer]
    raise InputError(f"answer {answer!r}", expected="a ranking such as ['a', 'b'], or text such as a>b")


def answers_of(given: Any) -> list[Any]:
    """Answers as a list: one text or ranking, or several. A text is one answer: items may hold commas."""
    if given is None:
        return []
    if isinstance(given, str):
        return [given]
    if isinstance(given, Mapping) or not isinstance(given, Iterable):
        raise InputError(f"given is {given!r}", expected="a ranking such as ['a', 'b'], text such as a>b, or a list")
    listed = list(given)
    if listed and not any(
        isinstance(one, list | tuple | np.ndarray) or (isinstance(one, str) and (">" in one or "~" in one))
        for one in listed
    ):
        return [listed]
    return listed


def constraints_of(given: Any, position: Callable[[Hashable], int]) -> Ints:
    """The pairs "winner over loser" that answers imply, without those that follow from others.

    Parameters
    ----------
    given : str, ranking, or iterable of them
        The answers, such as ``"a>b>c"`` or ``[["a", "b"], ["c", "d"]]``.
    position : callable
        From an item to its place.

    Returns
    -------
    ndarray of int64, shape (constraints, 2)

    Raises
    ------
    InputError
        The answers contradict each other, hold an item twice, or name an unknown item.
    """
    above: dict[int, set[int]] = {}
    for answer in answers_of(given):
        groups = [[position(item) for item in group] for group in groups_of(answer)]
        flat = [item for group in groups for item in group]
        if len(set(flat)) < len(flat):
            raise InputError(f"the answer {answer!r} holds an item twice", expected="each item once")
        for better, worse in pairwise(groups):
            for winner in better:
                above.setdefault(winner, set()).update(worse)
    reach: dict[int, set[int]] = {}
    for start in above:
        seen: set[int] = set()
        waiting = list(above[start])
        while waiting:
            item = waiting.pop()
            if item not in seen:
                seen.add(item)
                waiting.extend(above.get(item, ()))
        if start in seen:
            raise InputError(
                "the given answers contradict each other: they lead in a circle",
                expected="answers that one ranking can give",
            )
        reach[start] = seen
    kept = [
        (winner, loser)
        for winner, losers in above.items()
        for loser in losers
        if not any(loser in reach.get(other, ()) for other in losers if other != loser)
    ]
    return np.array(sorted(kept), dtype=np.int64).reshape(-1, 2)


def differences(constraints: Ints, n: int) -> Floats:
    """The matrix that takes utilities to winner minus loser, shape (constraints, n)."""
    matrix = np.zeros((len(constraints), n))
    rows = np.arange(len(constraints))
    matrix[rows, constraints[:, 0]] = 1.0
    matrix[rows, constraints[:, 1]] = -1.0
    return matrix


def laplace(
    mean: Floats, loadings: Floats, constraints: Ints, *, temperature: float = TEMPERATURE
) -> tuple[Floats, Floats]:
    """The mode and curvature of z, where utilities are mean + loadings z, z ~ N(0, I).

    The likelihood of "a over b" is Phi((f_a - f_b) / temperature); damped Newton steps on a concave function.

    Parameters
    ----------
    mean : ndarray of float64, shape (n,)
        Mean utilities.
    loadings : ndarray of float64, shape (n, r)
        With loadings loadings' the covariance.
    constraints : ndarray of int64, shape (answers, 2)
        Winners and losers.
    temperature : float
        Noise of an answer.

    Returns
    -------
    z : ndarray of float64, shape (r,)
    covariance : ndarray of float64, shape (r, r)
    """
    r = loadings.shape[1]
    design = (loadings[constraints[:, 0]] - loadings[constraints[:, 1]]) / temperature
    offset = (mean[constraints[:, 0]] - mean[constraints[:, 1]]) / temperature
    z = np.zeros(r)

    def value(at: Floats) -> float:
        return -0.5 * float(at @ at) + sum(log_normal_cdf(t) for t in (offset + design @ at).tolist())

    current = value(z)
    curvature = np.eye(r)
    for _ in range(NEWTON_STEPS):
        t = offset + design @ z
        mills = np.exp([-0.5 * x * x - 0.5 * math.log(2 * math.pi) - log_normal_cdf(x) for x in t.tolist()])
        gradient = -z + design.T @ mills
        curvature = np.eye(r) + (design * (mills * (mills + t))[:, None]).T @ design
        step = np.linalg.solve(curvature, gradient)
        length = 1.0
        while length > 1e-6 and value(z + length * step) < current - 1e-12:
            length /= 2
        z = z + length * step
        current = value(z)
        if float(np.abs(step).max(initial=0.0)) < 1e-9:
            break
    return z, np.asarray(np.linalg.inv(curvature), dtype=np.float64)


@njit(cache=True)
def _sweep(design: Any, offset: Any, z: Any, slack: Any, uniform: Any) -> None:
    """One Gibbs sweep over the coordinates of z under offset + design z >= 0; `slack` is that left side."""
    for column in range(len(z)):
        low, high = -1e300, 1e300
        for row in range(len(offset)):
            slope = design[row, column]
            if abs(slope) > 1e-12:
                bound = z[column] - slack[row] / slope
                if slope > 0 and bound > low:
                    low = bound
                elif slope < 0 and bound < high:
                    high = bound
        # The tail on the far side of 0 is turned round, where the distribution function is accurate.
        flip = low > 0
        a, b = (-high, -low) if flip else (low, high)
        below, above = 0.5 * math.erfc(-a / math.sqrt(2.0)), 0.5 * math.erfc(-b / math.sqrt(2.0))
        new = (
            _quantile(below + uniform[column] * (above - below))
            if above - below > 1e-300
            else 0.5 * (max(a, -1e3) + min(b, 1e3))
        )
        new = min(max(new, a), b)
        new = -new if flip else new
        change = new - z[column]
        z[column] = new
        for row in range(len(offset)):
            slack[row] = max(slack[row] + design[row, column] * change, 0.0)


@njit(cache=True)
def _quantile(p: float) -> float:
    """The normal quantile: Acklam's start and two Newton steps on the logarithm, for 0 < p < 1."""
    p = min(max(p, 1e-300), 1.0 - 1e-16)
    tail = min(p, 1.0 - p)
    t = math.sqrt(-2.0 * math.log(tail))
    x = t - (2.515517 + 0.802853 * t + 0.010328 * t * t) / (1.0 + 1.432788 * t + 0.189269 * t * t + 0.001308 * t**3)
    x = -x
    for _ in range(3):
        log_p = log_normal_cdf(x)
        slope = math.exp(-0.5 * x * x - 0.5 * math.log(2.0 * math.pi) - log_p)
        x -= (log_p - math.log(tail)) / slope
    return x if p < 0.5 else -x


def gibbs(
    mean: Floats, loadings: Floats, constraints: Ints, *, draws: int, rng: np.random.Generator, thin: int = 5
) -> Floats:
    """Draws of a person's utilities from the truncated normal, exactly as the answers say.

    Coordinates of z are drawn in turn from their truncated normals (Geweke 1991), so constraints that imply one
    another do no harm.

    Parameters
    ----------
    mean, loadings, constraints
        As for `laplace`.
    draws : int
        How many draws, `thin` sweeps apart, after 200 sweeps.
    rng : numpy.random.Generator
        Where randomness comes from.
    thin : int
        Sweeps from one draw to the next.

    Returns
    -------
    ndarray of float64, shape (draws, n)
    """
    r = loadings.shape[1]
    design = np.ascontiguousarray(loadings[constraints[:, 0]] - loadings[constraints[:, 1]])
    offset = mean[constraints[:, 0]] - mean[constraints[:, 1]]
    z = _feasible(design, offset)
    slack = np.maximum(offset + design @ z, 0.0)
    kept = np.empty((draws, r))
    for sweep in range(BURN_IN + draws * thin):
        _sweep(design, offset, z, slack, rng.random(r))
        if sweep >= BURN_IN and (sweep - BURN_IN) % thin == thin - 1:
            kept[(sweep - BURN_IN) // thin] = z
            # Rounding adds up over many sweeps.
            slack = np.maximum(offset + design @ z, 0.0)
    return mean + kept @ loadings.T


def _feasible(design: Floats, offset: Floats) -> Floats:
    """The point nearest to 0 at which every answer holds with some room."""
    from scipy.optimize import linprog

    rows, r = design.shape
    if not rows:
        return np.zeros(r)
    # Maximise the least slack within a box that grows until there is room.
    for box in (3.0, 10.0, 100.0, 1e4):
        found = linprog(
            np.r_[np.zeros(r), -1.0],
            A_ub=np.column_stack([-design, np.linalg.norm(design, axis=1)]),
            b_ub=offset,
            bounds=[(-box, box)] * r + [(0.0, 1.0)],
        )
        if found.status == 0 and found.x[-1] > 1e-9:
            return np.asarray(found.x[:-1], dtype=np.float64)
    raise InputError(
        "no utilities of this model fit the answers", expected="answers that the model gives a probability above 0"
    )
