"""The interface of all environments: N instances, stepped together in this process by operations on arrays.

Axes: N instances, n agents, A actions, O numbers of an observation, S numbers of the state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import AssayError, InputError
from assay.marl.spec import EnvSpec

__all__ = ["Frame", "Step", "VecEnv", "random_actions", "require_actions", "require_finite", "require_some_action"]


@dataclass
class Frame:
    """What all instances show at one moment.

    Attributes
    ----------
    obs : (N, n, O) array of float32
        Each agent's observation.
    state : (N, S) array of float32
        The state, which training may see.
    avail : (N, n, A) array of bool
        Which actions each agent may take: in every row at least one.
    """

    obs: NDArray[np.float32]
    state: NDArray[np.float32]
    avail: NDArray[np.bool_]


@dataclass
class Step(Frame):
    """What all instances show after a joint action, and what it brought.

    Attributes
    ----------
    obs, state, avail
        As in a frame.
    reward : (N,) array of float32
        The team's reward; 0 where the episode had ended before.
    terminated : (N,) array of bool
        Whether the episode has ended because there is nothing more to gain; stays true until the next reset.
    truncated : (N,) array of bool
        Whether it has ended because time ran out; stays true until the next reset.
    info : dict
        What the environment says besides.
    """

    reward: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    info: dict[str, Any] = field(default_factory=dict)


class VecEnv(ABC):
    """N instances of one environment, stepped together.

    An episode that ends is not started again by itself: its instance ignores further actions and gives reward 0 until
    `reset` starts a new episode in every instance.

    Attributes
    ----------
    spec : EnvSpec
        The sizes.
    n : int
        The number of instances, N.
    """

    spec: EnvSpec
    n: int

    @abstractmethod
    def reset(self, seed: int | None = None) -> Frame:
        """Start a new episode in every instance; with `seed`, also the random numbers anew."""

    @abstractmethod
    def step(self, actions: NDArray[np.integer[Any]]) -> Step:
        """Take a joint action, (N, n) whole numbers, in every instance whose episode goes on."""

    @abstractmethod
    def get_rng_state(self) -> dict[str, Any]:
        """What decides the coming episodes, as plain data: enough to go on bit for bit after an episode's end."""

    @abstractmethod
    def set_rng_state(self, state: dict[str, Any]) -> None:
        """Put back what `get_rng_state` gave; the next call must be `reset`."""

    def render(self, index: int = 0) -> NDArray[np.uint8]:
        """A picture (height, width, 3) of an instance."""
        raise AssayError(f"{self.spec.name or type(self).__name__} draws no pictures")

    def close(self) -> None:  # noqa: B027 (most environments hold nothing that must be given back)
        """Give back what the environment holds."""


def random_actions(avail: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw an available action for every agent, all with the same probability.

    Parameters
    ----------
    avail : (N, n, A) array of bool
        Which actions are available.
    rng : numpy.random.Generator
        Where chance comes from.

    Returns
    -------
    (N, n) array of int64

    Examples
    --------
    >>> random_actions(np.array([[[False, True, False]]]), np.random.default_rng(0))
    array([[1]])
    """
    keys = rng.random(avail.shape, dtype=np.float32)
    keys += avail
    return np.asarray(keys.argmax(-1), dtype=np.int64)


def require_actions(
    actions: NDArray[np.integer[Any]],
    avail: NDArray[np.bool_],
    running: NDArray[np.bool_],
) -> NDArray[np.int64]:
    """Refuse actions of a wrong shape, or which an agent may not take while its episode runs.

    Parameters
    ----------
    actions : (N, n) array of whole numbers
        What was asked for.
    avail : (N, n, A) array of bool
        What is available.
    running : (N,) array of bool
        Which episodes go on.

    Returns
    -------
    (N, n) array of int64

    Raises
    ------
    InputError
        Naming the instance and the agent.
    """
    chosen = np.asarray(actions)
    if chosen.shape != avail.shape[:2]:
        raise InputError(f"actions have the shape {chosen.shape}", expected=f"{avail.shape[:2]}")
    if chosen.dtype.kind not in "iu":
        raise InputError(f"actions are of type {chosen.dtype}", expected="whole numbers")
    chosen = chosen.astype(np.int64, copy=False)
    within = (chosen >= 0) & (chosen < avail.shape[2])
    allowed = np.take_along_axis(avail, np.where(within, chosen, 0)[..., None], -1)[..., 0] & within
    if not allowed.all():
        wrong = np.argwhere(~allowed & running[:, None])
        if len(wrong):
            index, agent = map(int, wrong[0])
            can = ", ".join(map(str, np.flatnonzero(avail[index, agent])))
            raise InputError(
                f"agent {agent} of environment {index} takes action {chosen[index, agent]}", expected=f"one of {can}"
            )
    return chosen


def require_some_action(avail: NDArray[np.bool_], running: NDArray[np.bool_], *, step: int) -> None:
    """Refuse a moment at which an agent of a running episode has no action.

    Parameters
    ----------
    avail : (N, n, A) array of bool
        What is available.
    running : (N,) array of bool
        Which episodes go on.
    step : int
        Steps since the episodes began, for the message.

    Raises
    ------
    InputError
        Naming the instance, the step and the agent.
    """
    stuck = ~avail.any(-1) & running[:, None]
    if stuck.any():
        index, agent = map(int, np.argwhere(stuck)[0])
        raise InputError(
            f"environment {index}, step {step}: agent {agent} has no available action",
            expected="at least one action in every row of the mask",
        )


def require_finite(values: NDArray[np.floating[Any]], what: str, *, step: int) -> None:
    """Refuse NaN and infinity in what environments give.

    Parameters
    ----------
    values : (N, ...) array of float
        Rewards, observations or states.
    what : str
        What they are, for the message.
    step : int
        Steps since the episodes began, for the message.

    Raises
    ------
    InputError
        Naming the instance, the step and the position.
    """
    if np.isfinite(values).all():
        return
    index, *rest = map(int, np.argwhere(~np.isfinite(values))[0])
    value = values[(index, *rest)]
    names = {"observation": ("agent", "number"), "state": ("number",)}.get(what, ())
    where = "".join(f", {name} {position}" for name, position in zip(names, rest, strict=False))
    raise InputError(f"environment {index}, step {step}{where}: the {what} is {value}", expected="finite numbers")
