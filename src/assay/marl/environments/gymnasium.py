"""Gymnasium environments that take a list of actions, one an agent: level-based foraging, the robotic warehouse."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Tuple

from assay.core.errors import InputError, MissingPackageError
from assay.marl.environments.instances import Moment, Team, flat_size, require_discrete

__all__ = ["GymnasiumTeam", "foraging_is_done", "make_gymnasium"]

OWN_LIMITS = ("_max_episode_steps", "max_steps")
"""Where environments of this kind keep a time limit of their own."""


class GymnasiumTeam(Team):
    """One environment of Gymnasium's interface whose action and observation spaces are tuples, one entry an agent.

    Environments of this kind tend to say "terminated" when their own time limit is reached. That is read as what it is,
    a truncation, after which the value of the last state still counts.

    Parameters
    ----------
    env : gymnasium.Env
        The environment.
    is_done : callable, optional
        Whether, at the time limit, there was nothing more to gain either.
    """

    def __init__(self, env: Any, *, is_done: Callable[[Any], bool] | None = None) -> None:
        self.env = env
        self.is_done = is_done
        inner = env.unwrapped
        self.name = env.spec.id if getattr(env, "spec", None) is not None else type(inner).__name__
        if not isinstance(env.action_space, Tuple):
            raise InputError(
                f"the actions of {self.name} are {env.action_space}",
                expected="a Tuple of Discrete spaces, one an agent",
            )
        self._parts: list[Any] = list(env.action_space.spaces)
        self.n_actions = [require_discrete(space, agent, self.name) for agent, space in enumerate(self._parts)]
        self._first = [int(space.start) for space in self._parts]
        spaces = env.observation_space
        if not isinstance(spaces, Tuple) or len(spaces.spaces) != len(self._parts):
            raise InputError(
                f"the observations of {self.name} are {spaces}",
                expected=f"a Tuple of {len(self._parts)} spaces, one an agent",
            )
        self.obs_sizes = [flat_size(space, agent, self.name) for agent, space in enumerate(spaces.spaces)]
        self.state_size = None
        own = [getattr(inner, name, None) for name in OWN_LIMITS]
        self._own_limit = next((int(limit) for limit in own if isinstance(limit, int) and limit > 0), None)
        given = getattr(getattr(env, "spec", None), "max_episode_steps", None)
        limits = [limit for limit in (self._own_limit, given) if limit is not None]
        self.horizon = min(limits) if limits else None
        self._time = 0

    def reset(self, seed: int) -> Moment:
        """Start an episode."""
        obs, info = self.env.reset(seed=seed)
        self._time = 0
        return Moment(obs, avail=_masks(info))

    def step(self, actions: list[int]) -> Moment:
        """Take a joint action."""
        sent = tuple(action + first for action, first in zip(actions, self._first, strict=True))
        obs, rewards, over, late, info = self.env.step(sent)
        self._time += 1
        over, late = bool(np.all(over)), bool(np.any(late))
        if over and self._own_limit is not None and self._time >= self._own_limit:
            over = self.is_done is not None and self.is_done(self.env)
            late = not over
        return Moment(obs, None, _masks(info), rewards, over, late)

    def render(self) -> Any:
        """A picture, if the environment was made with ``render_mode="rgb_array"``."""
        if self.env.render_mode != "rgb_array":
            return None
        try:
            picture = self.env.unwrapped.render(mode="rgb_array")
        except TypeError:
            picture = self.env.render()
        return picture

    def close(self) -> None:
        """Close it."""
        self.env.close()


def make_gymnasium(name: str, *, module: str | None = None, render: bool = False, **options: Any) -> Any:
    """Make a registered environment of Gymnasium.

    Parameters
    ----------
    name : str
        As it is registered.
    module : str, optional
        The package that registers it.
    render : bool
        Whether pictures will be asked for.
    **options
        For the environment.

    Returns
    -------
    gymnasium.Env
    """
    if module is not None:
        try:
            __import__(module)
        except ImportError as error:
            raise MissingPackageError(module, what=name, extra="marl-envs") from error
    if render:
        options["render_mode"] = "rgb_array"
    try:
        return gymnasium.make(name, disable_env_checker=True, **options)
    except gymnasium.error.Error as error:
        raise InputError(f"Gymnasium has no environment {name!r}: {error}", expected="a registered name") from error
    except TypeError as error:
        known = ", ".join(f"{option}={value}" for option, value in options.items())
        raise InputError(f"{name} can't be made with {known}", expected="options that it has") from error


def foraging_is_done(env: Any) -> bool:
    """Whether all food of level-based foraging has been taken."""
    return not np.any(env.unwrapped.field)


def _masks(info: Any) -> Any:
    mask = info.get("action_mask") if isinstance(info, Mapping) else None
    return None if mask is None else [np.asarray(own, dtype=bool) for own in mask]
