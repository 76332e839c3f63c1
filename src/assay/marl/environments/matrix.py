"""Games of one step: a payoff for each joint action, which may change while learning goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import InputError
from assay.marl.environments.vector import Frame, Step, VecEnv, require_actions
from assay.marl.payoff_files import require_payoff
from assay.marl.spec import EnvSpec

__all__ = ["MatrixGame", "require_payoff"]


class MatrixGame(VecEnv):
    """A game of one step, in N instances.

    Parameters
    ----------
    payoff : (A, ..., A) array_like
        The team's reward for each joint action, one axis an agent.
    n : int
        Instances, N.
    shifts : sequence of (int, array_like)
        When the payoff changes, and to what: after so many steps of all instances together.
    noise : float
        Standard deviation of Gaussian noise on the reward.
    seed : int
        Of the noise.

    Attributes
    ----------
    spec : EnvSpec
        Observation and state are the number 1.
    steps : int
        Steps of all instances together so far.

    Examples
    --------
    The payoff that moves its optimum from the first joint action to the last:

    >>> game = MatrixGame(np.diag([8.0, 4.0, 6.0]), n=2, shifts=[(2, np.diag([8.0, 4.0, 12.0]))])
    >>> frame = game.reset()
    >>> game.step(np.array([[0, 0], [2, 2]])).reward
    array([8., 6.], dtype=float32)
    >>> frame = game.reset()
    >>> game.step(np.array([[0, 0], [2, 2]])).reward
    array([ 8., 12.], dtype=float32)
    """

    def __init__(
        self,
        payoff: ArrayLike,
        n: int = 1,
        *,
        shifts: Sequence[tuple[int, ArrayLike]] = (),
        noise: float = 0.0,
        seed: int = 0,
    ) -> None:
        first = require_payoff(payoff)
        if n < 1:
            raise InputError(f"n is {n}", expected="at least 1")
        if not noise >= 0:
            raise InputError(f"noise is {noise}", expected="0 or a positive standard deviation")
        self.n = n
        self.noise = noise
        self._payoffs = [(0, first)]
        for step, changed in shifts:
            later = require_payoff(changed, what=f"the payoff from step {step} on")
            if later.shape != first.shape:
                raise InputError(
                    f"the payoff from step {step} on has the shape {later.shape}", expected=f"{first.shape}"
                )
            if step <= self._payoffs[-1][0]:
                raise InputError(f"a shift is at step {step}", expected="steps that rise")
            self._payoffs.append((step, later))
        self.spec = EnvSpec(
            n_agents=first.ndim, n_actions=first.shape[0], obs_size=1, state_size=1, horizon=1, name="matrix game"
        )
        self.steps = 0
        self._rng = np.random.default_rng(seed)
        self._running = np.zeros(n, dtype=bool)
        self._obs = np.ones((n, first.ndim, 1), dtype=np.float32)
        self._state = np.ones((n, 1), dtype=np.float32)
        self._avail = np.ones((n, first.ndim, first.shape[0]), dtype=bool)

    @property
    def payoff(self) -> NDArray[np.float64]:
        """The payoff that holds now."""
        return [payoff for step, payoff in self._payoffs if step <= self.steps][-1]

    def reset(self, seed: int | None = None) -> Frame:
        """Start a new episode in every instance; `seed` sets the noise, and the steps that shifts count go on."""
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self._running[:] = True
        return Frame(self._obs, self._state, self._avail)

    def step(self, actions: NDArray[np.integer[Any]]) -> Step:
        """Pay what the joint actions are worth, and end every episode."""
        chosen = require_actions(actions, self._avail, self._running)
        reward = self.payoff[tuple(np.clip(chosen, 0, self.spec.n_actions - 1).T)]
        if self.noise:
            reward = reward + self.noise * self._rng.standard_normal(self.n)
        reward = np.where(self._running, reward, 0.0).astype(np.float32)
        self.steps += int(self._running.sum())
        self._running[:] = False
        over, late = np.ones(self.n, dtype=bool), np.zeros(self.n, dtype=bool)
        return Step(self._obs, self._state, self._avail, reward, over, late)

    def get_rng_state(self) -> dict[str, Any]:
        """The steps so far and the generator of the noise."""
        return {"steps": self.steps, "generator": self._rng.bit_generator.state}

    def set_rng_state(self, state: dict[str, Any]) -> None:
        """Put back what `get_rng_state` gave."""
        self.steps = int(state["steps"])
        self._rng.bit_generator.state = state["generator"]
        self._running[:] = False
