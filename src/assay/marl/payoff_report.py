"""What can be said of a game of one step from its payoff, and what its training showed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from assay.core.errors import InputError
from assay.marl.monotone import additive_projection, monotone_projection
from assay.marl.one_step import OneStepRun
from assay.marl.payoff_files import Game
from assay.marl.plots import Curve
from assay.marl.ranking import successive_ranking

__all__ = [
    "PayoffReport",
    "describe_payoff",
    "describe_run",
    "recovery_curve",
    "recovery_rows",
    "rescaled",
    "sufficient_floor",
]

RESCALED = 8.0
"""Rescaled payoffs go from 0 to this, the range of the study's game."""
POINTS = 300
"""Points of a curve, and lines a run in the table of curves."""
CONFIDENCE = 0.95

Joint = tuple[int, ...]


@dataclass(frozen=True)
class PayoffReport:
    """Which of a payoff's joint actions can be found, before anything is learned.

    Attributes
    ----------
    best : tuple of joint actions
        Those with the highest payoff.
    value : float
        That payoff.
    representable : bool or None
        Whether a monotone mixer can represent the payoff exactly; None where the game is too large to say.
    monotone_tops : tuple of joint actions
        On top of the best monotone fit under uniform weights.
    monotone_error : float or None
        Its squared error.
    basin_error : float or None
        The least squared error of a monotone fit with one of the best joint actions on top.
    additive_tops : tuple of joint actions
        On top of the best additive fit.
    table_ranking : tuple of joint actions
        What the levels hold in the limit of tables.
    monotone_ranking : tuple of joint actions
        What they hold through a monotone mixer; empty where the game is too large to say.
    too_large : str
        Why there is no monotone fit; empty where there is.
    """

    best: tuple[Joint, ...]
    value: float
    representable: bool | None
    monotone_tops: tuple[Joint, ...]
    monotone_error: float | None
    basin_error: float | None
    additive_tops: tuple[Joint, ...]
    table_ranking: tuple[Joint, ...]
    monotone_ranking: tuple[Joint, ...]
    too_large: str

    def lines(self, game: Game) -> list[str]:
        """The report for people, with the names of the game's actions."""

        def named(joints: Sequence[Joint]) -> str:
            return " or ".join(map(game.named, joints[:3])) + (" or others" if len(joints) > 3 else "")

        shape = " x ".join(map(str, game.payoff.shape))
        lines = [f"payoff       {shape}, best {named(self.best)} with {self.value:g}"]
        if self.too_large:
            lines.append(f"monotone     {self.too_large}")
        elif self.representable:
            lines.append("monotone     QMIX and other monotone methods can represent this payoff exactly")
        else:
            right = set(self.monotone_tops) <= set(self.best)
            verdict = "keeps the optimum on top" if right else f"puts {named(self.monotone_tops)} on top instead"
            lines.append(f"monotone     QMIX's best fit (squared error {self.monotone_error:g}) {verdict}")
            if not right:
                lines.append(f"             with the optimum on top the error is at least {self.basin_error:g}")
        right = set(self.additive_tops) <= set(self.best)
        verdict = "keeps the optimum on top" if right else f"puts {named(self.additive_tops)} on top instead"
        lines.append(f"additive     VDN's best fit, a sum of utilities, {verdict}")
        lines.append(f"ranking      by value: {', '.join(map(game.named, self.table_ranking))}")
        if self.monotone_ranking:
            lines.append(f"             through a monotone mixer: {', '.join(map(game.named, self.monotone_ranking))}")
        return lines

    def facts(self) -> dict[str, Any]:
        """The report for programs."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def describe_payoff(payoff: NDArray[np.float64], *, K: int, alpha: float, floor: float) -> PayoffReport:
    """Say what methods can represent of a payoff, and how it is ranked.

    Parameters
    ----------
    payoff : (A, ..., A) array of float
        The payoff.
    K : int
        Levels beyond the first.
    alpha, floor : float
        Strength and floor of the suppression, by the paper's rule.

    Returns
    -------
    PayoffReport
    """
    best = tuple(tuple(map(int, cell)) for cell in np.argwhere(payoff == payoff.max()))
    K = min(K, payoff.size - 1)
    table = successive_ranking(payoff, K, alpha, floor).actions
    representable: bool | None = None
    error: float | None = None
    basin: float | None = None
    tops: tuple[Joint, ...] = ()
    ranking: tuple[Joint, ...] = ()
    too_large = ""
    try:
        fit = monotone_projection(payoff)
        representable, tops, error = fit.representable, fit.tops, fit.squared_error
        basin = float(min(fit.error_by_top[cell] for cell in best))
        ranking = successive_ranking(payoff, K, alpha, floor, projection="monotone").actions
    except InputError as reason:
        too_large = f"is not known: {reason.message}"
    additive = additive_projection(payoff).tops
    return PayoffReport(
        best, float(payoff.max()), representable, tops, error, basin, additive, table, ranking, too_large
    )


def sufficient_floor(payoffs: Sequence[NDArray[np.float64]], *, K: int, alpha: float) -> float:
    """A floor C under which the levels sort every payoff in the limit of tables.

    That is 1, as for payoffs from 0 on, unless a suppressed joint action would stay among the best: then it is the
    range of the payoff over alpha, with which they fall to the lowest payoff.

    Parameters
    ----------
    payoffs : sequence of arrays
        All that will be in force.
    K : int
        Levels beyond the first.
    alpha : float
        Strength of the suppression.

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np
    >>> sufficient_floor([np.diag([8.0, 4.0, 6.0])], K=2, alpha=1.0)
    1.0
    >>> sufficient_floor([np.diag([2.0, 1.0, 1.5]) - 4], K=2, alpha=1.0)
    2.0
    """
    needed = 1.0
    for payoff in payoffs:
        ranked = np.sort(payoff, axis=None)[::-1]
        above, last = ranked[:K], ranked[min(K, len(ranked) - 1)]
        if (above - alpha * np.maximum(above, 1.0) >= last).any():
            needed = max(needed, float(np.ptp(payoff)) / alpha)
    return needed


def rescaled(payoffs: Sequence[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    """The payoffs shifted and scaled together, so that they go from 0 to 8; their order stays.

    Parameters
    ----------
    payoffs : sequence of arrays
        All that will be in force.

    Returns
    -------
    list of arrays
    """
    low, high = min(payoff.min() for payoff in payoffs), max(payoff.max() for payoff in payoffs)
    return [(payoff - low) * (RESCALED / (high - low) if high > low else 1.0) for payoff in payoffs]


def describe_run(run: OneStepRun) -> dict[str, Any]:
    """What a training showed, for each payoff that was in force.

    Parameters
    ----------
    run : OneStepRun
        The training.

    Returns
    -------
    dict
        With ``seconds`` and ``payoffs``: for each, ``from_update``, ``optimal`` seeds, ``seeds``, the share's ``low``
        and ``high``, ``mean_payoff`` of the greedy joint actions at its end, the ``lock_rate`` of each level, and
        ``recovery``, the updates until 90 % of the seeds were optimal and stayed so for 100 updates, or null.
    """
    starts = [start for start, _ in run.payoffs]
    ends = [*starts[1:], len(run.greedy)]
    seeds = run.greedy.shape[1]
    parts = []
    for change, (start, end) in enumerate(zip(starts, ends, strict=True)):
        optimal = int(run.seeds_recovered(change).sum())
        low, high = _interval(np.array(optimal), seeds)
        parts.append(
            {
                "from_update": start,
                "optimal": optimal,
                "seeds": seeds,
                "low": float(low),
                "high": float(high),
                "mean_payoff": float(run.returns[end - 1].mean()),
                "lock_rate": run.lock_rate(end - 1).tolist(),
                "recovery": run.recovery(change),
            }
        )
    return {"seconds": run.seconds, "payoffs": parts}


def recovery_curve(run: OneStepRun) -> Curve:
    """The share of seeds whose greedy joint action is best, with its Clopper-Pearson interval.

    Parameters
    ----------
    run : OneStepRun
        The training.

    Returns
    -------
    Curve
        At 300 updates at most.
    """
    at = np.unique(np.linspace(0, len(run.greedy) - 1, POINTS).round().astype(int))
    optimal = run.optimal[at]
    low, high = _interval(optimal.sum(1), optimal.shape[1])
    return Curve(at.astype(np.float64), optimal.mean(1), low, high)


def recovery_rows(runs: Mapping[str, OneStepRun]) -> list[dict[str, Any]]:
    """The curves as a table: a line for each algorithm and update.

    Parameters
    ----------
    runs : mapping of str to OneStepRun
        By algorithm.

    Returns
    -------
    list of dict
    """
    rows = []
    for algorithm, run in runs.items():
        curve = recovery_curve(run)
        returns = run.returns
        for step, middle, low, high in zip(curve.steps, curve.middle, curve.low, curve.high, strict=True):
            rows.append(
                {
                    "algorithm": algorithm,
                    "update": int(step),
                    "share_optimal": float(middle),
                    "low": float(low),
                    "high": float(high),
                    "mean_payoff": float(returns[int(step)].mean()),
                }
            )
    return rows


def _interval(hits: NDArray[Any], of: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Clopper and Pearson's interval of a share."""
    tail = (1 - CONFIDENCE) / 2
    with np.errstate(invalid="ignore"):
        low = np.where(hits > 0, beta.ppf(tail, hits, of - hits + 1), 0.0)
        high = np.where(hits < of, beta.ppf(1 - tail, hits + 1, of - hits), 1.0)
    return np.asarray(low), np.asarray(high)
