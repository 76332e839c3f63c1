"""The ranked joint actions that successive suppression gives where nothing has to be learned.

Level 0 takes the best joint action of a value; level k takes the best one after those of the levels below have been
suppressed (paper, Theorem 4.1). Over a table that sorts the payoff, when the suppression is large enough. Through a
monotone or additive fit of the suppressed table, which is all that a mixer can hold, the ranking can be another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import InputError
from assay.marl.monotone import TIE, Fit, additive_projection, monotone_projection

__all__ = ["Ranking", "successive_ranking", "sufficient_alpha"]

Tensor = NDArray[np.float64]


@dataclass(frozen=True)
class Ranking:
    """Joint actions by level.

    Attributes
    ----------
    actions : tuple of tuple of int
        The joint action of each level 0, ..., K.
    targets : tuple of ndarray of float64, each of the payoff's shape
        What each level is fitted to: the payoff with the lower levels' joint actions suppressed.
    fits : tuple of ndarray of float64, each of the payoff's shape
        Each level's fit of its target.
    squared_errors : tuple of float
        Of each fit.
    locks : tuple of bool
        Whether each level holds the joint action that has this rank in the payoff (or one that ties with it).
    """

    actions: tuple[tuple[int, ...], ...]
    targets: tuple[Tensor, ...]
    fits: tuple[Tensor, ...]
    squared_errors: tuple[float, ...]
    locks: tuple[bool, ...]


def sufficient_alpha(payoff: ArrayLike, floor: float = 1.0) -> float:
    """The least suppression strength for which the theorem promises that the levels sort a payoff.

    A suppressed joint action must fall to the lowest payoff: alpha * max(Q, floor) >= max - min for all of them.

    Parameters
    ----------
    payoff : array_like
        Reward of each joint action.
    floor : float
        C, above 0.

    Returns
    -------
    float

    Examples
    --------
    >>> sufficient_alpha([[8, 0], [0, 4]], floor=1.0)
    8.0
    >>> sufficient_alpha([[-2, -4], [-4, -3]], floor=2.0)
    1.0
    """
    values = _checked(payoff, floor=floor)
    return float(np.ptp(values) / np.maximum(values, floor).min())


def successive_ranking(
    payoff: ArrayLike,
    K: int = 2,
    alpha: float = 1.0,
    floor: float = 1.0,
    *,
    suppression: Literal["paper", "code"] = "paper",
    projection: Literal["table", "monotone", "additive"] = "table",
    weights: ArrayLike | None = None,
) -> Ranking:
    """Rank joint actions by successive suppression of a known payoff.

    Parameters
    ----------
    payoff : array_like, shape (A_1, ..., A_n)
        Reward of each joint action.
    K : int
        Levels beyond the first, at least 0 and fewer than the joint actions.
    alpha : float
        Suppression strength, above 0.
    floor : float
        C, above 0: a suppressed joint action loses at least alpha * C.
    suppression : str
        ``"paper"`` subtracts alpha * max(Q, C); ``"code"``, as the published code does, alpha * Q, which raises joint
        actions with a negative value.
    projection : str
        What each level's target is fitted by: nothing (``"table"``), a monotone mixer (``"monotone"``), or a sum of
        utilities (``"additive"``).
    weights : array_like, optional
        Weight of each joint action in the fits; all 1 when left out.

    Returns
    -------
    Ranking
        Among equal values, a joint action that no lower level holds comes first, then the first in order.

    Raises
    ------
    InputError
        An argument has a value that it can't have, or the payoff is too large for the exact monotone fit.

    Examples
    --------
    >>> successive_ranking([[8, 0, 0], [0, 4, 0], [0, 0, 6]]).actions
    ((0, 0), (2, 2), (1, 1))
    >>> low = [[-2, -4, -4], [-4, -3, -4], [-4, -4, -2.5]]
    >>> successive_ranking(low, K=1, floor=3.0, projection="monotone").actions
    ((0, 0), (2, 2))
    >>> successive_ranking(low, K=1, suppression="code").actions
    ((0, 0), (0, 0))
    """
    values = _checked(payoff, floor=floor)
    if not 0 <= K < values.size:
        raise InputError(f"K is {K}", expected=f"at least 0 and below the {values.size} joint actions")
    if not (np.isfinite(alpha) and alpha > 0):
        raise InputError(f"alpha is {alpha}", expected="a number above 0")
    if suppression not in ("paper", "code"):
        raise InputError(f"suppression is '{suppression}'", expected="'paper' or 'code'")
    loss = alpha * (np.maximum(values, floor) if suppression == "paper" else values)
    taken = np.zeros(values.shape, dtype=bool)
    actions: list[tuple[int, ...]] = []
    targets: list[Tensor] = []
    fits: list[Fit] = []
    for _ in range(K + 1):
        targets.append(values - loss * taken)
        fits.append(_fit(targets[-1], projection, weights, tie=TIE * float(np.ptp(values))))
        actions.append(min(fits[-1].tops, key=lambda cell: (bool(taken[cell]), -targets[-1][cell])))
        taken[actions[-1]] = True
    ranked = np.sort(values, axis=None)[::-1]
    locks = tuple(
        bool(values[action] == ranked[level]) and action not in actions[:level] for level, action in enumerate(actions)
    )
    return Ranking(
        tuple(actions),
        tuple(targets),
        tuple(fit.values for fit in fits),
        tuple(fit.squared_error for fit in fits),
        locks,
    )


def _fit(target: Tensor, projection: str, weights: ArrayLike | None, *, tie: float) -> Fit:
    if projection == "monotone":
        return monotone_projection(target, weights)
    if projection == "additive":
        return additive_projection(target, weights)
    if projection != "table":
        raise InputError(f"projection is '{projection}'", expected="'table', 'monotone' or 'additive'")
    cells = tuple(tuple(int(action) for action in cell) for cell in np.argwhere(target >= target.max() - tie))
    return Fit(target, 0.0, cells, True)


def _checked(payoff: ArrayLike, *, floor: float) -> Tensor:
    values = np.asarray(payoff, dtype=np.float64)
    if values.ndim == 0 or values.size == 0 or not np.isfinite(values).all():
        raise InputError("the payoff is empty or not finite", expected="a finite reward for each joint action")
    if not (np.isfinite(floor) and floor > 0):
        raise InputError(f"floor is {floor}", expected="a number above 0")
    return values
