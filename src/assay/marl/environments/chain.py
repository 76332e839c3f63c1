"""Games of several stages: what a joint action is worth depends on what the team can do afterwards.

The payoff never changes here. The best first joint action moves while the team learns, because it becomes worth going
on only when the later stages are known.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import InputError
from assay.marl.environments.matrix import require_payoff
from assay.marl.environments.vector import Frame, Step, VecEnv, require_actions
from assay.marl.spec import EnvSpec

__all__ = ["ChainGame"]

DIAGONAL = (8.0, 4.0, 6.0)
"""The default payoff of a stage: the last joint action pays less than the first and leads on."""


class ChainGame(VecEnv):
    """A chain of one-step games, in N instances.

    Parameters
    ----------
    payoffs : int or sequence of h (A, ..., A) array_like
        The team's reward for each joint action at each of the h stages. A number stands for so many stages of two
        agents with three actions each, which earn 8, 4 or 6 when they agree and nothing otherwise.
    n : int
        Instances, N.
    goes_on : (h, A, ..., A) array_like of bool, optional
        Which joint actions lead to the next stage; the others end the episode, and so does the last stage. By default
        the joint action in which every agent takes its last action.
    noise : float
        Standard deviation of Gaussian noise on the reward.
    seed : int
        Of the noise.

    Attributes
    ----------
    spec : EnvSpec
        Observation and state say which stage it is, as a vector with a single 1.

    Examples
    --------
    >>> chain = ChainGame(2)
    >>> frame = chain.reset()
    >>> step = chain.step(np.array([[2, 2]]))
    >>> step.reward, step.terminated, step.state
    (array([6.], dtype=float32), array([False]), array([[0., 1.]], dtype=float32))
    >>> chain.best_return(0.99)  # 6 now and 8 later, against 8 at once
    13.92
    """

    def __init__(
        self,
        payoffs: int | Iterable[ArrayLike],
        n: int = 1,
        *,
        goes_on: ArrayLike | None = None,
        noise: float = 0.0,
        seed: int = 0,
    ) -> None:
        if isinstance(payoffs, int):
            if payoffs < 1:
                raise InputError(f"the number of stages is {payoffs}", expected="at least 1")
            payoffs = [np.diag(DIAGONAL)] * payoffs
        stages = [require_payoff(stage, what=f"the payoff of stage {h}") for h, stage in enumerate(payoffs)]
        if n < 1:
            raise InputError(f"n is {n}", expected="at least 1")
        if not noise >= 0:
            raise InputError(f"noise is {noise}", expected="0 or a positive standard deviation")
        if not stages:
            raise InputError("the number of stages is 0", expected="at least 1")
        for h, stage in enumerate(stages):
            if stage.shape != stages[0].shape:
                raise InputError(f"the payoff of stage {h} has the shape {stage.shape}", expected=f"{stages[0].shape}")
        self.payoffs: NDArray[Any] = np.stack(stages)
        if goes_on is None:
            leads = np.zeros(self.payoffs.shape, dtype=bool)
            leads.reshape(len(stages), -1)[:, -1] = True
        else:
            leads = np.array(goes_on, dtype=bool)
        if leads.shape != self.payoffs.shape:
            raise InputError(f"goes_on has the shape {leads.shape}", expected=f"{self.payoffs.shape}")
        leads[-1] = False
        self.goes_on = leads
        self.n = n
        self.noise = noise
        h, n_actions = len(stages), len(stages[0])
        self.spec = EnvSpec(
            n_agents=self.payoffs.ndim - 1, n_actions=n_actions, obs_size=h, state_size=h, horizon=h, name="chain game"
        )
        self._rng = np.random.default_rng(seed)
        self._stage = np.zeros(n, dtype=np.int64)
        self._running = np.zeros(n, dtype=bool)
        self._avail = np.ones((n, self.spec.n_agents, n_actions), dtype=bool)
        self._one_hot = np.eye(h, dtype=np.float32)

    def best_return(self, gamma: float = 1.0) -> float:
        """The discounted return of the best joint actions."""
        value = 0.0
        for payoff, leads in zip(self.payoffs[::-1], self.goes_on[::-1], strict=True):
            value = float((payoff + gamma * value * leads).max())
        return value

    def reset(self, seed: int | None = None) -> Frame:
        """Put every instance to the first stage; `seed` sets the noise."""
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self._stage[:] = 0
        self._running[:] = True
        return self._frame()

    def step(self, actions: NDArray[np.integer[Any]]) -> Step:
        """Pay what the joint actions are worth, and go on or end."""
        chosen = require_actions(actions, self._avail, self._running)
        cell = (self._stage, *np.clip(chosen, 0, self.spec.n_actions - 1).T)
        reward = self.payoffs[cell]
        if self.noise:
            reward = reward + self.noise * self._rng.standard_normal(self.n)
        reward = np.where(self._running, reward, 0.0).astype(np.float32)
        self._running &= self.goes_on[cell]
        self._stage += self._running
        frame = self._frame()
        over = ~self._running
        return Step(frame.obs, frame.state, frame.avail, reward, over, np.zeros(self.n, dtype=bool))

    def get_rng_state(self) -> dict[str, Any]:
        """The generator of the noise."""
        return {"generator": self._rng.bit_generator.state}

    def set_rng_state(self, state: dict[str, Any]) -> None:
        """Put back what `get_rng_state` gave."""
        self._rng.bit_generator.state = state["generator"]
        self._running[:] = False

    def _frame(self) -> Frame:
        state = self._one_hot[self._stage]
        obs = np.repeat(state[:, None], self.spec.n_agents, axis=1)
        return Frame(obs, state, self._avail)
