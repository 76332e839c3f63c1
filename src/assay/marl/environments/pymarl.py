"""Environments with the methods of PyMARL's `MultiAgentEnv`: StarCraft in SMAC and SMACv2, football, and people's own.

They are recognised by their methods, because nobody publishes the class: `get_env_info`, `reset`, `step`, `get_obs`,
`get_state`, `get_avail_actions`.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import numpy as np

from assay.core.errors import AssayError, InputError, MissingPackageError
from assay.marl.environments.instances import Moment, Team

__all__ = ["FootballTeam", "PyMARLTeam", "make_football", "make_smac", "make_smacv2"]

METHODS = ("get_env_info", "reset", "step", "get_obs", "get_avail_actions")
SMACV2_UNITS = {
    "protoss": (["stalker", "zealot", "colossus"], ["colossus"]),
    "terran": (["marine", "marauder", "medivac"], ["medivac"]),
    "zerg": (["zergling", "hydralisk", "baneling"], ["baneling"]),
}
"""Of each race: the units that teams are drawn from, and those that no team may consist of alone."""
SMACV2_WEIGHTS = [0.45, 0.45, 0.1]
SMACV2_MAP = 32
UNPUBLISHED = "needs the package {} of the WhiRL group, which is installed from its repository, and StarCraft II"
"""What to say where a package can't be had by its name: smac on PyPI is another package."""


class PyMARLTeam(Team):
    """One environment with the methods of PyMARL's `MultiAgentEnv`.

    A step may give ``(reward, terminated, info)`` as in PyMARL, or ``(obs, reward, terminated, truncated, info)`` as in
    newer EPyMARL. In the former, ``info["episode_limit"]`` says that time ran out. The reward is the team's, or one an
    agent.

    An environment whose `reset` takes no seed goes on with its own random numbers: a resumed run is then not the same
    bit for bit.

    Parameters
    ----------
    env : object
        The environment.
    """

    def __init__(self, env: Any) -> None:
        missing = [name for name in METHODS if not callable(getattr(env, name, None))]
        if missing:
            raise InputError(f"{type(env).__name__} has no method {missing[0]}", expected=f"{', '.join(METHODS)}")
        self.env = env
        self.name = type(env).__name__
        self._takes_seed = "seed" in inspect.signature(env.reset).parameters
        info = env.get_env_info()
        try:
            n_agents, n_actions = int(info["n_agents"]), int(info["n_actions"])
            obs_size = int(np.prod(info["obs_shape"], dtype=np.int64))
        except KeyError as error:
            raise InputError(f"get_env_info of {self.name} has no {error.args[0]!r}", expected="that entry") from None
        self.n_actions = [n_actions] * n_agents
        self.obs_sizes = [obs_size] * n_agents
        has_state = callable(getattr(env, "get_state", None)) and info.get("state_shape")
        self.state_size = int(np.prod(info["state_shape"], dtype=np.int64)) if has_state else None
        limit = info.get("episode_limit")
        self.horizon = int(limit) if limit else None

    def reset(self, seed: int) -> Moment:
        """Start an episode, with the seed if the environment takes one."""
        if self._takes_seed:
            self.env.reset(seed=seed)
        else:
            self.env.reset()
        return self._moment(0.0, over=False, late=False)

    def step(self, actions: list[int]) -> Moment:
        """Take a joint action."""
        given = self.env.step(actions)
        if len(given) == 3:
            reward, over, info = given
            late = bool(over) and bool((info or {}).get("episode_limit", False))
        else:
            _, reward, over, late, _ = given
        over, late = bool(np.all(over)), bool(np.any(late))
        return self._moment(reward, over=over and not late, late=late)

    def render(self) -> Any:
        """A picture, where the environment gives one."""
        try:
            return self.env.render(mode="rgb_array")
        except (TypeError, AttributeError, NotImplementedError):
            return None

    def close(self) -> None:
        """Close it."""
        if callable(getattr(self.env, "close", None)):
            self.env.close()

    def _moment(self, reward: Any, *, over: bool, late: bool) -> Moment:
        state = None if self.state_size is None else self.env.get_state()
        avail = [np.asarray(mask, dtype=bool) for mask in self.env.get_avail_actions()]
        given = float(reward) if np.ndim(reward) == 0 else [float(own) for own in reward]
        return Moment(self.env.get_obs(), state, avail, given, over, late)


class FootballTeam(Team):
    """Google Research Football with one controlled player an agent.

    The state is all that the players observe. A half or an academy drill that ends by its step limit is truncated.

    Parameters
    ----------
    env : object
        What ``gfootball.env.create_environment`` gives.
    name : str
        The scenario.
    limit : int
        Steps of an episode at most.
    """

    def __init__(self, env: Any, *, name: str, limit: int) -> None:
        if len(env.observation_space.shape) != 2:
            raise InputError("n_agents is 1", expected="at least 2 players: with one there is no team")
        self.env = env
        self.name = name
        n_agents, obs_size = env.observation_space.shape
        self.n_actions = [int(env.action_space.nvec[0])] * n_agents
        self.obs_sizes = [int(obs_size)] * n_agents
        self.state_size = None
        self.horizon = limit
        self._time = 0

    def reset(self, seed: int) -> Moment:
        """Start an episode; football draws its own random numbers."""
        obs = self.env.reset()
        self._time = 0
        return Moment(list(obs))

    def step(self, actions: list[int]) -> Moment:
        """Take a joint action."""
        obs, rewards, over, _ = self.env.step(actions)
        self._time += 1
        late = self._time >= self.horizon if self.horizon is not None else False
        return Moment(list(obs), None, None, rewards, bool(over) and not late, late)

    def close(self) -> None:
        """Close it."""
        self.env.close()


def make_smac(name: str, **options: Any) -> Any:
    """A map of SMAC, such as ``3m``; needs the package smac and the game.

    Parameters
    ----------
    name : str
        The map.
    **options
        For ``smac.env.StarCraft2Env``.

    Returns
    -------
    smac.env.StarCraft2Env
    """
    try:
        make = importlib.import_module("smac.env").StarCraft2Env
    except ImportError as error:
        raise AssayError(f"the map {name} {UNPUBLISHED.format('smac')}") from error
    return make(map_name=name, **options)


def make_smacv2(name: str, **options: Any) -> Any:
    """A scenario of SMACv2, such as ``terran_5_vs_5``; needs the package smacv2 and the game.

    Teams are drawn as in the benchmark's own settings: 45, 45 and 10 per cent of the race's three units, starting
    surrounded or reflected with the same probability.

    Parameters
    ----------
    name : str
        Race and sizes of the teams.
    **options
        For ``smacv2.env.StarCraftCapabilityEnvWrapper``.

    Returns
    -------
    smacv2.env.StarCraftCapabilityEnvWrapper
    """
    race, _, sizes = name.partition("_")
    own, _, other = sizes.partition("_vs_")
    if race not in SMACV2_UNITS or not own.isdigit() or not other.isdigit():
        raise InputError(f"the scenario is {name!r}", expected="protoss, terran or zerg and sizes, as terran_5_vs_5")
    try:
        make = importlib.import_module("smacv2.env.starcraft2.wrapper").StarCraftCapabilityEnvWrapper
    except ImportError as error:
        raise AssayError(f"the scenario {name} {UNPUBLISHED.format('smacv2')}") from error
    units, not_alone = SMACV2_UNITS[race]
    teams = {
        "dist_type": "weighted_teams",
        "unit_types": units,
        "exception_unit_types": not_alone,
        "weights": SMACV2_WEIGHTS,
        "observe": True,
    }
    places = {
        "dist_type": "surrounded_and_reflect",
        "p": 0.5,
        "n_enemies": int(other),
        "map_x": SMACV2_MAP,
        "map_y": SMACV2_MAP,
    }
    config = {"n_units": int(own), "n_enemies": int(other), "team_gen": teams, "start_positions": places}
    return make(capability_config=config, map_name=f"10gen_{race}", **options)


def make_football(name: str, *, n_agents: int = 3, limit: int = 150, **options: Any) -> FootballTeam:
    """A scenario of Google Research Football, such as ``academy_3_vs_1_with_keeper``; needs the package gfootball.

    Parameters
    ----------
    name : str
        The scenario.
    n_agents : int
        Players that are controlled.
    limit : int
        Steps of an episode at most.
    **options
        For ``gfootball.env.create_environment``.

    Returns
    -------
    FootballTeam
    """
    try:
        create_environment = importlib.import_module("gfootball.env").create_environment
    except ImportError as error:
        raise MissingPackageError("gfootball", what=f"the scenario {name}") from error
    given = {"representation": "simple115v2", "rewards": "scoring", **options}
    env = create_environment(env_name=name, number_of_left_players_agent_controls=n_agents, **given)
    return FootballTeam(env, name=name, limit=limit)
