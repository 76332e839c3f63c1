"""Environments that come one at a time, stepped one after another in this process.

What the adapters share: arrays of one shape from what agents of different kinds give, a mask of actions, a state, one
reward for the team, ends, seeds, and words for what is wrong.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import AssayError, InputError
from assay.marl.environments.vector import (
    Frame,
    Step,
    VecEnv,
    require_actions,
    require_finite,
    require_some_action,
)
from assay.marl.rewards import Scalarisation, require_scalarisation, team_reward
from assay.marl.spec import EnvSpec

__all__ = ["InstanceEnv", "Moment", "Team", "flat_size", "require_discrete"]

SEEDS = 2**31 - 1
"""Seeds of episodes are below this: what every environment takes."""


@dataclass
class Moment:
    """What one instance shows at one moment, and what the last joint action brought.

    Attributes
    ----------
    obs : sequence of arrays
        One an agent, of any shape; None for an agent that is no longer there.
    state : array, optional
        The state, where the environment has one.
    avail : sequence of arrays of bool, optional
        Which of its actions each agent may take; None where all may be taken.
    rewards : sequence of float or float
        One an agent, or the team's.
    terminated, truncated : bool
        Whether the episode has ended, and why.
    """

    obs: Sequence[Any]
    state: Any = None
    avail: Sequence[Any] | None = None
    rewards: Any = 0.0
    terminated: bool = False
    truncated: bool = False


class Team(ABC):
    """One instance of somebody's environment, in the words of this package.

    Attributes
    ----------
    n_actions : list of int
        Actions of each agent.
    obs_sizes : list of int
        Numbers in the observation of each agent.
    state_size : int or None
        Numbers in the state; None where there is none.
    horizon : int or None
        Steps of an episode at most.
    name : str
        What people call it.
    """

    n_actions: list[int]
    obs_sizes: list[int]
    state_size: int | None
    horizon: int | None
    name: str

    @abstractmethod
    def reset(self, seed: int) -> Moment:
        """Start an episode."""

    @abstractmethod
    def step(self, actions: list[int]) -> Moment:
        """Take a joint action."""

    def render(self) -> Any:
        """A picture, or None."""
        return None

    def close(self) -> None:  # noqa: B027 (most instances hold nothing that must be given back)
        """Give back what the instance holds."""


class InstanceEnv(VecEnv):
    """Instances of somebody's environment, stepped one after another.

    Cheap environments are stepped faster here than through pipes to other processes, which cost more than a step.

    Parameters
    ----------
    teams : sequence of Team
        The instances, all alike.
    reward : {"sum", "mean"}, optional
        How to make one reward of those of the agents; needed where they differ.
    horizon : int, optional
        Where to truncate episodes, besides what the environment itself does.
    seed : int
        Of the seeds that episodes are started with.

    Raises
    ------
    InputError
        An observation, a reward or a mask can't be learned from.

    Warns
    -----
    UserWarning
        There is no state, or agents observe different numbers of things.
    """

    def __init__(
        self,
        teams: Sequence[Team],
        *,
        reward: Scalarisation | None = None,
        horizon: int | None = None,
        seed: int = 0,
    ) -> None:
        if not teams:
            raise InputError("n is 0", expected="at least 1 instance")
        require_scalarisation(reward)
        self._teams = list(teams)
        self.n = len(teams)
        self.reward = reward
        first = teams[0]
        n_agents, n_actions, obs_size = len(first.n_actions), max(first.n_actions), max(first.obs_sizes)
        self._sizes = first.obs_sizes
        self._alike = len(set(first.obs_sizes)) == 1
        if not self._alike:
            sizes = ", ".join(map(str, first.obs_sizes))
            warnings.warn(
                f"the agents of {first.name} observe different numbers of things ({sizes}): observations are padded "
                f"with zeros, and agents are told their number",
                stacklevel=3,
            )
        if first.state_size is None:
            warnings.warn(
                f"{first.name} gives no state: training sees all agents' observations in its place", stacklevel=3
            )
        self._given_state = first.state_size is not None
        limits = [limit for limit in (horizon, first.horizon) if limit is not None]
        self.spec = EnvSpec(
            n_agents=n_agents,
            n_actions=n_actions,
            obs_size=obs_size,
            state_size=first.state_size or n_agents * obs_size,
            horizon=min(limits) if limits else None,
            name=first.name,
            agent_ids=not self._alike,
        )
        self._horizon = horizon
        self._rng = np.random.default_rng(seed)
        self._can = np.zeros((n_agents, n_actions), dtype=bool)
        for agent, size in enumerate(first.n_actions):
            self._can[agent, :size] = True
        self._obs = np.zeros((self.n, n_agents, obs_size), dtype=np.float32)
        self._state = np.zeros((self.n, self.spec.state_size), dtype=np.float32)
        self._avail = np.tile(self._can, (self.n, 1, 1))
        self._terminated = np.ones(self.n, dtype=bool)
        self._truncated = np.zeros(self.n, dtype=bool)
        self._time = 0

    def reset(self, seed: int | None = None) -> Frame:
        """Start a new episode in every instance, each with a seed of its own."""
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self._obs, self._state = np.zeros_like(self._obs), np.zeros_like(self._state)
        self._avail = np.tile(self._can, (self.n, 1, 1))
        seeds = self._rng.integers(SEEDS, size=self.n).tolist()
        for index, (team, own) in enumerate(zip(self._teams, seeds, strict=True)):
            self._write(index, team.reset(own))
        self._terminated = np.zeros(self.n, dtype=bool)
        self._truncated = np.zeros(self.n, dtype=bool)
        self._time = 0
        self._check(np.ones(self.n, dtype=bool))
        return Frame(self._obs, self._state, self._avail)

    def step(self, actions: NDArray[np.integer[Any]]) -> Step:
        """Step the instances whose episode goes on, one after another."""
        running = ~(self._terminated | self._truncated)
        chosen = require_actions(actions, self._avail, running).tolist()
        self._obs, self._state, self._avail = self._obs.copy(), self._state.copy(), self._avail.copy()
        reward = np.zeros(self.n, dtype=np.float32)
        terminated, truncated = self._terminated.copy(), self._truncated.copy()
        self._time += 1
        for index in np.flatnonzero(running).tolist():
            moment = self._teams[index].step(chosen[index])
            self._write(index, moment)
            given = moment.rewards
            reward[index] = given if isinstance(given, float | int) else team_reward(given, self.reward)
            terminated[index], truncated[index] = moment.terminated, moment.truncated and not moment.terminated
        if self._horizon is not None and self._time >= self._horizon:
            truncated |= ~terminated
        self._terminated, self._truncated = terminated, truncated
        require_finite(reward, "reward", step=self._time)
        self._check(running)
        return Step(self._obs, self._state, self._avail, reward, terminated, truncated)

    def render(self, index: int = 0) -> NDArray[np.uint8]:
        """A picture of an instance, from the environment itself."""
        try:
            picture = self._teams[index].render()
        except ImportError as error:
            raise AssayError(f"{self.spec.name} can't draw a picture: {error}") from error
        if picture is None:
            raise AssayError(f"{self.spec.name} draws no pictures")
        return np.asarray(picture, dtype=np.uint8)

    def close(self) -> None:
        """Close every instance."""
        for team in self._teams:
            team.close()

    def get_rng_state(self) -> dict[str, Any]:
        """The generator of the seeds that episodes are started with."""
        return {"generator": self._rng.bit_generator.state}

    def set_rng_state(self, state: dict[str, Any]) -> None:
        """Put back what `get_rng_state` gave."""
        self._rng.bit_generator.state = state["generator"]
        self._terminated[:] = True

    def _write(self, index: int, moment: Moment) -> None:
        obs = self._obs[index]
        for agent, given in enumerate(moment.obs):
            if given is None:
                obs[agent] = 0.0
                continue
            flat = given if isinstance(given, np.ndarray) and given.ndim == 1 else np.ravel(given)
            if len(flat) != self._sizes[agent]:
                raise InputError(
                    f"environment {index}, step {self._time}: agent {agent} observes {len(flat)} numbers",
                    expected=f"{self._sizes[agent]}, as its space says",
                )
            obs[agent, : len(flat)] = flat
        if self._given_state:
            self._state[index] = np.ravel(moment.state)
        else:
            self._state[index] = obs.reshape(-1)
        if moment.avail is not None:
            mask = self._avail[index]
            mask[:] = False
            for agent, given in enumerate(moment.avail):
                mask[agent, : len(given)] = given
        if moment.terminated or moment.truncated:
            stuck = ~self._avail[index].any(-1)
            self._avail[index, stuck] = self._can[stuck]

    def _check(self, running: NDArray[np.bool_]) -> None:
        require_finite(self._obs, "observation", step=self._time)
        if self._given_state:
            require_finite(self._state, "state", step=self._time)
        require_some_action(self._avail, running, step=self._time)


def require_discrete(space: Any, agent: object, name: str) -> int:
    """Refuse an action space other than a finite list of actions, and count them.

    Parameters
    ----------
    space : gymnasium space
        Of one agent's actions.
    agent : object
        Whose they are, for the message.
    name : str
        Of the environment, for the message.

    Returns
    -------
    int
    """
    if type(space).__name__ != "Discrete":
        raise InputError(
            f"the actions of agent {agent} of {name} are {space}",
            expected="a Discrete space: value-based methods choose among a few actions",
        )
    return int(space.n)


def flat_size(space: Any, agent: object, name: str) -> int:
    """How many numbers an observation of a space has; refuses what isn't an array of numbers.

    Parameters
    ----------
    space : gymnasium space
        Of one agent's observations.
    agent : object
        Whose they are, for the message.
    name : str
        Of the environment, for the message.

    Returns
    -------
    int
    """
    shape = getattr(space, "shape", None)
    if shape is None or type(space).__name__ not in ("Box", "MultiBinary", "MultiDiscrete", "Discrete"):
        raise InputError(
            f"the observations of agent {agent} of {name} are {space}",
            expected="an array of numbers, for example through gymnasium.wrappers.FlattenObservation",
        )
    return int(np.prod(shape, dtype=np.int64))
