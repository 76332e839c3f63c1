"""One reward for the team, from what each agent is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import InputError

__all__ = ["Scalarisation", "require_scalarisation", "team_reward"]

Scalarisation: TypeAlias = Literal["sum", "mean"]


def require_scalarisation(reward: str | None) -> None:
    """Refuse what is neither ``"sum"`` nor ``"mean"`` nor None."""
    if reward not in (None, "sum", "mean"):
        raise InputError(f"reward is {reward!r}", expected="'sum', 'mean' or None")


def team_reward(rewards: Sequence[float] | NDArray[Any], reward: Scalarisation | None) -> float:
    """Make one reward for the team of those of its agents.

    Parameters
    ----------
    rewards : sequence of float
        What each agent is given.
    reward : {"sum", "mean"}, optional
        How to join them. Without, all must be given the same, and that is the team's reward.

    Returns
    -------
    float

    Raises
    ------
    InputError
        Rewards differ and nothing says how to join them.

    Examples
    --------
    >>> team_reward([1.0, 1.0], None), team_reward([1.0, 0.0], "mean")
    (1.0, 0.5)
    """
    if reward == "sum":
        return float(sum(rewards))
    if reward == "mean":
        return float(sum(rewards)) / len(rewards)
    first = float(rewards[0])
    for other in rewards:
        if float(other) != first and not (np.isnan(first) and np.isnan(other)):
            given = ", ".join(f"{float(value):g}" for value in rewards)
            raise InputError(
                f"the agents are given different rewards ({given})",
                expected="reward='sum' or reward='mean', which makes one reward of the team",
            )
    return first
