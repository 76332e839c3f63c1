"""SMAX: battles in the manner of StarCraft that run in JAX and need no game, with all instances in one call.

Arrays come to PyTorch through NumPy. On a CPU that copies nothing that matters beside the simulation.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import InputError, MissingPackageError
from assay.marl.environments.instances import SEEDS
from assay.marl.environments.vector import (
    Frame,
    Step,
    VecEnv,
    require_actions,
    require_finite,
    require_some_action,
)
from assay.marl.rewards import Scalarisation, require_scalarisation
from assay.marl.spec import EnvSpec

__all__ = ["SMAXEnv", "make_smax"]

HORIZON = 100
"""SMAX's own number of steps."""


class SMAXEnv(VecEnv):
    """N instances of a JaxMARL environment that plays against an enemy of its own.

    Parameters
    ----------
    env : object
        With JaxMARL's methods `reset(key)`, `step_env(key, state, actions)`, `get_avail_actions(state)`, and
        observations that hold ``"world_state"``.
    n : int
        Instances, N.
    reward : {"sum", "mean"}, optional
        How to make one reward of those of the agents; SMAX gives all the same.
    name : str
        What people call it.
    seed : int
        Of the battles.
    """

    def __init__(
        self, env: Any, n: int = 16, *, reward: Scalarisation | None = None, name: str = "smax", seed: int = 0
    ) -> None:
        require_scalarisation(reward)
        if n < 1:
            raise InputError(f"n is {n}", expected="at least 1")
        jax = _jax()
        self._jax = jax
        self._agents = list(env.agents)
        self._limit = int(getattr(env, "max_steps", HORIZON))
        self.n = n
        self.reward = reward
        self._reset = jax.jit(jax.vmap(env.reset))
        self._step = jax.jit(jax.vmap(env.step_env))
        self._can = jax.jit(jax.vmap(env.get_avail_actions))
        self._rng = np.random.default_rng(seed)
        obs, state = self._reset(self._keys())
        avail = self._can(state)
        sizes = [int(np.shape(obs[agent])[1]) for agent in self._agents]
        self._n_actions = max(int(np.shape(avail[agent])[1]) for agent in self._agents)
        self.spec = EnvSpec(
            n_agents=len(self._agents),
            n_actions=self._n_actions,
            obs_size=max(sizes),
            state_size=int(np.shape(obs["world_state"])[1]),
            horizon=self._limit,
            name=name,
            agent_ids=len(set(sizes)) > 1,
        )
        self._rng = np.random.default_rng(seed)
        self._inner = state
        self._frame = self._read(obs, state, None)
        self._terminated = np.ones(n, dtype=bool)
        self._truncated = np.zeros(n, dtype=bool)
        self._time = 0

    def reset(self, seed: int | None = None) -> Frame:
        """Start a battle in every instance."""
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        obs, self._inner = self._reset(self._keys())
        self._terminated, self._truncated = np.zeros(self.n, dtype=bool), np.zeros(self.n, dtype=bool)
        self._time = 0
        self._frame = self._read(obs, self._inner, None)
        return self._frame

    def step(self, actions: NDArray[np.integer[Any]]) -> Step:
        """Step all instances in one call; what has ended keeps its last moment."""
        running = ~(self._terminated | self._truncated)
        chosen = require_actions(actions, self._frame.avail, running)
        chosen = np.where(running[:, None], chosen, self._frame.avail.argmax(-1))
        sent = {agent: chosen[:, number] for number, agent in enumerate(self._agents)}
        obs, self._inner, rewards, dones, _ = self._step(self._keys(), self._inner, sent)
        self._time += 1
        self._frame = self._read(obs, self._inner, running)
        reward = np.where(running, self._team(rewards), 0.0).astype(np.float32)
        require_finite(reward, "reward", step=self._time)
        done = np.asarray(dones["__all__"], dtype=bool) & running
        # SMAX itself notices a step late that time has run out, and calls it done.
        late = running & self._undecided() if self._time >= self._limit else np.zeros(self.n, dtype=bool)
        self._terminated = self._terminated | (done & ~late)
        self._truncated = self._truncated | late
        seen = self._frame
        return Step(seen.obs, seen.state, seen.avail, reward, self._terminated.copy(), self._truncated.copy())

    def get_rng_state(self) -> dict[str, Any]:
        """The generator of the keys that JAX is given."""
        return {"generator": self._rng.bit_generator.state}

    def set_rng_state(self, state: dict[str, Any]) -> None:
        """Put back what `get_rng_state` gave."""
        self._rng.bit_generator.state = state["generator"]
        self._terminated[:] = True

    def _keys(self) -> Any:
        return self._jax.random.split(self._jax.random.PRNGKey(int(self._rng.integers(SEEDS))), self.n)

    def _read(self, obs: Any, state: Any, running: NDArray[np.bool_] | None) -> Frame:
        """What JAX gives, as arrays; rows of instances that don't run are those from before."""
        spec = self.spec
        seen = np.zeros((self.n, spec.n_agents, spec.obs_size), dtype=np.float32)
        mask = np.zeros((self.n, spec.n_agents, spec.n_actions), dtype=bool)
        avail = self._can(state)
        for number, agent in enumerate(self._agents):
            own = np.asarray(obs[agent])
            seen[:, number, : own.shape[1]] = own
            can = np.asarray(avail[agent], dtype=bool)
            mask[:, number, : can.shape[1]] = can
        world = np.array(obs["world_state"], dtype=np.float32)
        if running is not None:
            before = self._frame
            seen[~running], world[~running], mask[~running] = (
                before.obs[~running],
                before.state[~running],
                before.avail[~running],
            )
        time = getattr(self, "_time", 0)
        require_finite(seen, "observation", step=time)
        require_some_action(mask, np.ones(self.n, dtype=bool) if running is None else running, step=time)
        return Frame(seen, world, mask)

    def _team(self, rewards: Any) -> NDArray[np.float64]:
        own = np.stack([np.asarray(rewards[agent], dtype=np.float64) for agent in self._agents], axis=1)
        if self.reward == "sum":
            return np.asarray(own.sum(1))
        if self.reward is None and not np.allclose(own, own[:, :1], equal_nan=True):
            raise InputError(
                f"the agents of {self.spec.name} are given different rewards",
                expected="reward='sum' or reward='mean', which makes one reward of the team",
            )
        return np.asarray(own.mean(1))

    def _undecided(self) -> NDArray[np.bool_]:
        """Whether both sides still have units: then a battle's end is the end of its time."""
        alive = np.asarray(self._inner.state.unit_alive, dtype=bool)
        ours = len(self._agents)
        return np.asarray(alive[:, :ours].any(1) & alive[:, ours:].any(1))


def make_smax(name: str, n: int = 16, *, reward: Scalarisation | None = None, seed: int = 0, **options: Any) -> SMAXEnv:
    """A map of SMAX, such as ``3m`` or ``5m_vs_6m``, against its scripted enemy.

    Parameters
    ----------
    name : str
        The map.
    n : int
        Instances.
    reward : {"sum", "mean"}, optional
        How to make one reward of those of the agents.
    seed : int
        Of the battles.
    **options
        For ``jaxmarl.environments.smax.HeuristicEnemySMAX``.

    Returns
    -------
    SMAXEnv
    """
    _jax()
    try:
        smax = importlib.import_module("jaxmarl.environments.smax")
    except ImportError as error:
        raise MissingPackageError("jaxmarl", what=f"smax:{name}", extra="marl-jax") from error
    try:
        scenario = smax.map_name_to_scenario(name)
    except KeyError:
        raise InputError(f"SMAX has no map {name!r}", expected="a map such as 3m, 2s3z or 5m_vs_6m") from None
    env = smax.HeuristicEnemySMAX(scenario=scenario, **options)
    return SMAXEnv(env, n, reward=reward, name=f"smax {name}", seed=seed)


def _jax() -> Any:
    try:
        return importlib.import_module("jax")
    except ImportError as error:
        raise MissingPackageError("jaxmarl", what="SMAX", extra="marl-jax") from error
