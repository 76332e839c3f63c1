"""PettingZoo: environments of its parallel interface taken in, and ours given out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary
from numpy.typing import NDArray
from pettingzoo import ParallelEnv

from assay.core.errors import InputError
from assay.marl.environments.instances import Moment, Team, flat_size, require_discrete
from assay.marl.environments.vector import Frame, VecEnv

__all__ = ["PettingZooTeam", "PettingZooView"]

MASK = "action_mask"


class PettingZooTeam(Team):
    """One environment of PettingZoo's parallel interface.

    Masks are read where PettingZoo's own environments have them: under ``"action_mask"`` beside ``"observation"``, or
    in the info. An agent that is gone observes zeros and has its first action, which is not sent.

    Parameters
    ----------
    env : pettingzoo.ParallelEnv
        The environment.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        self.agents: list[Any] = list(env.possible_agents)
        inner = env.unwrapped
        self.name = str(getattr(inner, "metadata", {}).get("name", type(inner).__name__))
        spaces = [env.action_space(agent) for agent in self.agents]
        self.n_actions = [
            require_discrete(space, agent, self.name) for space, agent in zip(spaces, self.agents, strict=True)
        ]
        self.obs_sizes = [
            flat_size(_array_space(env.observation_space(agent)), agent, self.name) for agent in self.agents
        ]
        self._first = [int(space.start) for space in spaces]
        self.horizon = _whole(getattr(inner, "max_cycles", None))
        self.state_size = self._find_state()
        self._ended_early = False

    def reset(self, seed: int) -> Moment:
        """Start an episode."""
        obs, infos = self.env.reset(seed=seed)
        self._ended_early = False
        return self._moment(obs, infos or {}, [0.0] * len(self.agents), over=False, late=False)

    def step(self, actions: list[int]) -> Moment:
        """Send the actions of the agents that are there."""
        live = set(self.env.agents)
        sent = {
            agent: action + first
            for agent, action, first in zip(self.agents, actions, self._first, strict=True)
            if agent in live
        }
        obs, rewards, ended, cut, infos = self.env.step(sent)
        late = any(cut.values())
        over = not self.env.agents or all(
            ended.get(agent, agent not in live) or cut.get(agent, False) for agent in self.agents
        )
        given = [float(rewards.get(agent, 0.0)) for agent in self.agents]
        return self._moment(obs, infos, given, over=over, late=late)

    def render(self) -> Any:
        """A picture, if the environment was made with ``render_mode="rgb_array"``."""
        return self.env.render() if getattr(self.env.unwrapped, "render_mode", None) == "rgb_array" else None

    def close(self) -> None:
        """Close it."""
        self.env.close()

    def _find_state(self) -> int | None:
        """The size of what `state` gives after a reset; None where an environment has no such method."""
        self.env.reset(seed=0)
        try:
            return int(np.size(self.env.state()))
        except (NotImplementedError, AttributeError):
            return None

    def _moment(
        self, obs: Mapping[Any, Any], infos: Mapping[Any, Any], rewards: Sequence[float], *, over: bool, late: bool
    ) -> Moment:
        live = set(self.env.agents)
        seen, masks, masked = [], [], False
        for agent, size in zip(self.agents, self.n_actions, strict=True):
            given = obs.get(agent)
            mask = (infos.get(agent) or {}).get(MASK)
            if isinstance(given, Mapping):
                mask = given.get(MASK, mask)
                given = given["observation"]
            if agent not in live and not over:
                mask = np.arange(size) == 0
            masked |= mask is not None
            seen.append(given)
            masks.append(np.ones(size, dtype=bool) if mask is None else np.asarray(mask, dtype=bool))
        state = None if self.state_size is None else self.env.state()
        return Moment(
            seen,
            state,
            masks if masked or len(live) < len(self.agents) else None,
            rewards,
            terminated=over and not late,
            truncated=over and late,
        )


class PettingZooView(ParallelEnv):  # type: ignore[misc]
    """One instance of an environment of this package, as an environment of PettingZoo's parallel interface.

    Parameters
    ----------
    make : callable
        Makes the environment, for one instance.
    render_mode : {"rgb_array"}, optional
        Whether `render` gives pictures.

    Attributes
    ----------
    possible_agents : list of str
        ``agent_0`` and so on.
    state_space : gymnasium.spaces.Box
        Of what `state` gives.

    Examples
    --------
    >>> from assay.marl import StagHunt
    >>> env = PettingZooView(lambda: StagHunt(n=1))
    >>> obs, infos = env.reset(seed=0)
    >>> obs["agent_0"]["observation"].shape, obs["agent_0"]["action_mask"][:5]
    ((77,), array([1, 1, 1, 1, 1], dtype=int8))
    """

    def __init__(self, make: Callable[[], VecEnv], *, render_mode: str | None = None) -> None:
        self._env = make()
        if self._env.n != 1:
            raise InputError(f"the environment has {self._env.n} instances", expected="1")
        if render_mode not in (None, "rgb_array"):
            raise InputError(f"render_mode is {render_mode!r}", expected="'rgb_array' or None")
        spec = self._env.spec
        self.render_mode = render_mode
        self.metadata = {
            "name": spec.name.replace(" ", "_"),
            "render_modes": ["rgb_array"],
            "render_fps": 5,
            "is_parallelizable": True,
        }
        self.possible_agents = [f"agent_{number}" for number in range(spec.n_agents)]
        self.agents: list[str] = []
        self.max_cycles = spec.horizon
        self.state_space = Box(-np.inf, np.inf, (spec.state_size,), np.float32)
        self._action_spaces = {agent: Discrete(spec.n_actions) for agent in self.possible_agents}
        self._observation_spaces = {
            agent: Dict(
                {"observation": Box(-np.inf, np.inf, (spec.obs_size,), np.float32), MASK: MultiBinary(spec.n_actions)}
            )
            for agent in self.possible_agents
        }
        self._frame: Frame | None = None

    def observation_space(self, agent: str) -> Any:
        """The agent's observation and its mask of actions."""
        return self._observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        """The agent's actions."""
        return self._action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Start an episode; there are no options."""
        self._frame = self._env.reset(seed)
        self.agents = list(self.possible_agents)
        return self._seen(), {agent: {} for agent in self.agents}

    def step(
        self, actions: dict[str, int]
    ) -> tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Any]]:
        """Take a joint action; every agent is given the team's reward."""
        if not self.agents:
            raise InputError("the episode has ended", expected="reset")
        step = self._env.step(np.array([[actions[agent] for agent in self.possible_agents]], dtype=np.int64))
        self._frame = step
        over, late, reward = bool(step.terminated[0]), bool(step.truncated[0]), float(step.reward[0])
        seen, agents = self._seen(), self.possible_agents
        if over or late:
            self.agents = []
        return (
            seen,
            dict.fromkeys(agents, reward),
            dict.fromkeys(agents, over),
            dict.fromkeys(agents, late),
            {agent: {} for agent in agents},
        )

    def state(self) -> NDArray[np.float32]:
        """The state, which training may see."""
        if self._frame is None:
            raise InputError("no episode has been started", expected="reset")
        return np.array(self._frame.state[0], dtype=np.float32)

    def render(self) -> NDArray[np.uint8] | None:
        """A picture, with ``render_mode="rgb_array"``."""
        return None if self.render_mode is None else self._env.render()

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    def _seen(self) -> dict[str, Any]:
        assert self._frame is not None
        return {
            agent: {"observation": obs.copy(), MASK: avail.astype(np.int8)}
            for agent, obs, avail in zip(self.possible_agents, self._frame.obs[0], self._frame.avail[0], strict=True)
        }


def _array_space(space: Any) -> Any:
    """The space of the observation itself, where a mask is beside it."""
    return space["observation"] if isinstance(space, Dict) and "observation" in space.spaces else space


def _whole(value: Any) -> int | None:
    return int(value) if isinstance(value, int | np.integer) and value > 0 else None
