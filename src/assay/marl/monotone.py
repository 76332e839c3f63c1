"""What a mixer can represent of a one-step game: the exact monotone and additive least-squares fits of a payoff tensor.

The joint value of a monotone mixer over one state is non-decreasing in every agent's utility. So it is a tensor that is
non-decreasing along every axis after the actions of each agent have been put in some order, and every such tensor is a
mixer's. For fixed orders the best fit is an isotonic regression on a product of chains, which is a non-negative least
squares problem; `monotone_projection` minimises over all orders by branch and bound, with the regression under those
relations that a partial order already fixes as the bound. `additive_projection` is the same question for a sum of
utilities (value decomposition networks).
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import nnls

from assay.core.errors import InputError

__all__ = ["Fit", "MonotoneFit", "additive_projection", "joint_actions", "monotone_projection"]

Tensor = NDArray[np.float64]
Order = tuple[tuple[int, ...], ...]
"""For each agent its highest actions, best first: the part of the order that is fixed."""

MOST_CELLS = 256
MOST_REGRESSIONS = 50_000
TIE = 1e-9
"""Values closer than this share of the payoffs' spread are equal, and errors closer than this share of its square."""


@dataclass(frozen=True)
class Fit:
    """A least-squares fit of a payoff tensor.

    Attributes
    ----------
    values : ndarray of float64, shape (A, ..., A)
        The fit, in units of the payoff.
    squared_error : float
        Sum over joint actions of weight times squared difference.
    tops : tuple of tuple of int
        The joint actions that a greedy team may take: every agent's highest action. Several when best fits tie.
    finds_optimum : bool
        Whether all of them have the highest payoff.
    """

    values: Tensor
    squared_error: float
    tops: tuple[tuple[int, ...], ...]
    finds_optimum: bool


@dataclass(frozen=True)
class MonotoneFit(Fit):
    """The best fit by a monotone mixer, and the best one with each joint action on top.

    Attributes
    ----------
    values, squared_error, tops, finds_optimum
        As in `Fit`.
    error_by_top : ndarray of float64, shape (A, ..., A)
        The least squared error of a monotone fit in whose orders this joint action consists of every agent's highest
        action. Each is a basin in which gradient descent can end.
    representable : bool
        Whether the payoff itself is monotone in some order, so that the error is nothing.
    """

    error_by_top: Tensor
    representable: bool


def joint_actions(shape: tuple[int, ...]) -> NDArray[np.int64]:
    """All joint actions in the order of a raveled tensor.

    Parameters
    ----------
    shape : tuple of int
        Actions of each agent.

    Returns
    -------
    ndarray of int64, shape (product of `shape`, n)

    Examples
    --------
    >>> joint_actions((2, 2)).tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1]]
    """
    return np.stack(np.unravel_index(np.arange(int(np.prod(shape))), shape), axis=1).astype(np.int64)


def additive_projection(payoff: ArrayLike, weights: ArrayLike | None = None) -> Fit:
    """The best fit of a payoff by a sum of one utility per agent, which is what VDN can represent.

    With equal weights and two agents it is the row mean plus the column mean minus the grand mean.

    Parameters
    ----------
    payoff : array_like, shape (A_1, ..., A_n)
        Reward of each joint action.
    weights : array_like, optional
        Weight of each joint action's squared error, as large as `payoff`, at least 0; all 1 when left out.

    Returns
    -------
    Fit

    Raises
    ------
    InputError
        The payoff isn't a finite tensor, or the weights don't suit it.

    Examples
    --------
    >>> fit = additive_projection([[8, -12, -12], [-12, 0, 0], [-12, 0, 0]])
    >>> fit.values.round(3).tolist()[0], fit.tops[0]
    ([-6.222, -4.889, -4.889], (1, 1))
    """
    target, weight = _checked(payoff, weights)
    shape = target.shape
    columns = [np.ones((target.size, 1))]
    for agent, actions in enumerate(shape):
        columns.append((joint_actions(shape)[:, agent, None] == np.arange(1, actions)).astype(np.float64))
    design, root = np.concatenate(columns, axis=1), np.sqrt(weight.ravel())
    solution = np.linalg.lstsq(design * root[:, None], target.ravel() * root, rcond=None)[0]
    values = (design @ solution).reshape(shape)
    spread = max(float(np.ptp(target)), float(np.abs(target).max()) * np.finfo(np.float64).eps)
    tops = _cells(values >= values.max() - TIE * spread)
    return Fit(values, _squared_error(values, target, weight), tops, _all_best(tops, target))


def monotone_projection(
    payoff: ArrayLike, weights: ArrayLike | None = None, *, most_regressions: int = MOST_REGRESSIONS
) -> MonotoneFit:
    """The best fit of a payoff by a monotone mixer, exactly: what QMIX can represent of a one-step game.

    Parameters
    ----------
    payoff : array_like, shape (A_1, ..., A_n)
        Reward of each joint action; at most 256 of them.
    weights : array_like, optional
        Weight of each joint action's squared error, as large as `payoff`, at least 0; all 1 when left out. How often a
        behaviour visits a joint action is such a weight. Cells of weight 0 get the least value that keeps the order.
    most_regressions : int
        How many regressions may be solved before the search gives up.

    Returns
    -------
    MonotoneFit

    Raises
    ------
    InputError
        The payoff isn't a finite tensor, has too many joint actions, or needs more regressions than allowed; or the
        weights don't suit it.

    Examples
    --------
    >>> fit = monotone_projection([[8, -12, -12], [-12, 0, 0], [-12, 0, 0]])
    >>> round(fit.squared_error, 6), fit.tops, fit.finds_optimum
    (288.0, ((0, 0),), True)
    >>> monotone_projection([[12, 0, 10], [0, 10, 10], [10, 10, 10]]).tops
    ((2, 2),)
    """
    target, weight = _checked(payoff, weights)
    if target.size > MOST_CELLS:
        raise InputError(
            f"the payoff has {target.size} joint actions", expected=f"at most {MOST_CELLS} for an exact monotone fit"
        )
    search = _Search(target, weight, most_regressions)
    by_top = np.empty(target.shape)
    best: tuple[float, Tensor] | None = None
    for top in sorted(map(tuple, joint_actions(target.shape).tolist()), key=lambda cell: -target[cell]):
        error, values = search.best_with_top(top)
        by_top[top] = error
        if best is None or error < best[0]:
            best = (error, values)
    assert best is not None
    error, values = best
    tops = _cells(by_top <= by_top.min() + TIE * search.spread**2 * float(weight.max()))
    exact = error <= TIE * search.spread**2 * float(weight.max())
    return MonotoneFit(values, error, tops, _all_best(tops, target), by_top, exact)


class _Search:
    """Branch and bound over the orders of every agent's actions."""

    def __init__(self, target: Tensor, weight: Tensor, most_regressions: int) -> None:
        self.target, self.weight = target, weight
        self.most_regressions, self.regressions = most_regressions, 0
        self.spread = max(float(np.ptp(target)), np.finfo(np.float64).tiny)

    def best_with_top(self, top: tuple[int, ...]) -> tuple[float, Tensor]:
        """The least error of a monotone tensor whose highest cell is `top`, and that tensor."""
        start: Order = tuple((action,) for action in top)
        ticket = itertools.count()
        queue = [self._entry(start, next(ticket))]
        while True:
            error, _, order, values = heapq.heappop(queue)
            agent = self._agent_to_order(order)
            if agent is None:
                return error, values
            for action in range(self.target.shape[agent]):
                if action not in order[agent]:
                    longer = (*order[:agent], (*order[agent], action), *order[agent + 1 :])
                    heapq.heappush(queue, self._entry(longer, next(ticket)))

    def _entry(self, order: Order, number: int) -> tuple[float, int, Order, Tensor]:
        error, values = self._fit(order)
        return error, number, order, values

    def _agent_to_order(self, order: Order) -> int | None:
        """The agent with the shortest fixed part; none when all orders are fixed (the last action needs no place)."""
        open_agents = [
            agent for agent, actions in enumerate(self.target.shape) if len(order[agent]) < max(1, actions - 1)
        ]
        return min(open_agents, key=lambda agent: len(order[agent]), default=None)

    def _fit(self, order: Order) -> tuple[float, Tensor]:
        """The isotonic regression under the relations that a partial order fixes."""
        self.regressions += 1
        if self.regressions > self.most_regressions:
            shape = "×".join(map(str, self.target.shape))
            raise InputError(
                f"the exact monotone fit of a payoff of {shape} takes more than {self.most_regressions} regressions",
                expected="fewer actions or agents, or a higher most_regressions",
            )
        values = _isotonic(self.target, self.weight, _ranks(order, self.target.shape))
        return _squared_error(values, self.target, self.weight), values


def _ranks(order: Order, shape: tuple[int, ...]) -> list[NDArray[np.int64]]:
    """For each agent the place of each action from below; actions without a place share the lowest."""
    ranks = []
    for placed, actions in zip(order, shape, strict=True):
        rank = np.zeros(actions, dtype=np.int64)
        rank[list(placed)] = len(placed) - np.arange(len(placed))
        ranks.append(rank)
    return ranks


def _isotonic(target: Tensor, weight: Tensor, ranks: list[NDArray[np.int64]]) -> Tensor:
    r"""Weighted least squares under x_a <= x_b wherever a is at most b, through its dual.

    The dual of min ½ Σ w (x - y)² with D x >= 0 is the non-negative least squares in λ of ‖W^{-1/2} Dᵀ λ + W^{1/2} y‖,
    and x = y + W^{-1} Dᵀ λ. Actions that share a rank aren't related to one another, unless they are the same.
    """
    cells = joint_actions(target.shape)
    kept = np.flatnonzero(weight.ravel() > 0)
    y, w = target.ravel()[kept], weight.ravel()[kept]
    below = _below(cells[kept], cells[kept], ranks)
    covers = below & ~((below.astype(np.float32) @ below.astype(np.float32)) > 0)
    lower, upper = np.nonzero(covers)
    x = y
    if len(lower):
        relation = np.zeros((len(kept), len(lower)))
        relation[lower, np.arange(len(lower))] = -1.0
        relation[upper, np.arange(len(lower))] = 1.0
        scale = 1 / np.sqrt(w)
        multipliers, _ = nnls(relation * scale[:, None], -y / scale, maxiter=50 * len(lower))
        x = y + (relation @ multipliers) / w
    if len(kept) == target.size:
        return x.reshape(target.shape)
    values = np.full(target.size, x.min())
    below_all = _below(cells[kept], cells, ranks)
    for cell in np.flatnonzero(below_all.any(axis=0)):
        values[cell] = x[below_all[:, cell]].max()
    values[kept] = x
    return values.reshape(target.shape)


def _below(lower: NDArray[np.int64], upper: NDArray[np.int64], ranks: list[NDArray[np.int64]]) -> NDArray[np.bool_]:
    """Whether each cell of `lower` is another than, and at most, each cell of `upper`."""
    at_most = np.ones((len(lower), len(upper)), dtype=bool)
    same = at_most.copy()
    for agent, rank in enumerate(ranks):
        first, second = lower[:, agent, None], upper[None, :, agent]
        equal = first == second
        at_most &= equal | (rank[first] < rank[second])
        same &= equal
    return at_most & ~same


def _checked(payoff: ArrayLike, weights: ArrayLike | None) -> tuple[Tensor, Tensor]:
    target = np.asarray(payoff, dtype=np.float64)
    if target.ndim == 0 or target.size == 0:
        raise InputError(
            f"the payoff has shape {target.shape}", expected="an axis for each agent, as long as its actions"
        )
    if not np.isfinite(target).all():
        place = tuple(int(at[0]) for at in np.nonzero(~np.isfinite(target)))
        raise InputError(f"the payoff of joint action {place} is {target[place]}", expected="a finite number")
    weight = np.ones_like(target) if weights is None else np.asarray(weights, dtype=np.float64)
    if weight.shape != target.shape:
        raise InputError(f"weights have shape {weight.shape}", expected=f"the payoff's, {target.shape}")
    if not (np.isfinite(weight).all() and (weight >= 0).all() and weight.any()):
        raise InputError("weights are negative, not finite, or all 0", expected="numbers of at least 0, one above")
    return target, weight


def _squared_error(values: Tensor, target: Tensor, weight: Tensor) -> float:
    return float((weight * (values - target) ** 2).sum())


def _cells(chosen: NDArray[np.bool_]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(action) for action in cell) for cell in np.argwhere(chosen))


def _all_best(cells: tuple[tuple[int, ...], ...], target: Tensor) -> bool:
    return all(target[cell] == target.max() for cell in cells)
