"""Rewards on a scale that doesn't depend on the units of the payoff."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import InputError
from assay.marl.environments.vector import Frame, Step, VecEnv

__all__ = ["Standardisation", "StandardisedRewards"]

Standardisation: TypeAlias = Literal["scale", "full"]

LEAST_DEVIATION = 1e-6
"""Rewards that vary less than this are left as large as they are: dividing would only enlarge rounding errors."""


class StandardisedRewards(VecEnv):
    """An environment whose rewards are divided by their running standard deviation.

    Learning rates and temperatures then mean the same on every scale of payoff. Returns are no longer in the units of
    the environment; `Step.info` keeps the reward as it was under ``"raw_reward"``.

    Parameters
    ----------
    env : VecEnv
        The environment.
    kind : {"scale", "full"}
        ``"full"`` subtracts the running mean too. That changes the best policy where episodes can end early, because
        each further step then costs or earns the mean; for games of fixed length it changes nothing.

    Attributes
    ----------
    mean, variance : float
        Of all rewards so far.
    count : int
        How many those are.

    Examples
    --------
    >>> from assay.marl.environments import MatrixGame
    >>> env = StandardisedRewards(MatrixGame([[0.0, 40.0], [20.0, 0.0]], n=2))
    >>> frame = env.reset()
    >>> env.step(np.array([[0, 1], [1, 0]])).reward  # the standard deviation of 40 and 20 is 10
    array([4., 2.], dtype=float32)
    """

    def __init__(self, env: VecEnv, kind: Standardisation = "scale") -> None:
        if kind not in ("scale", "full"):
            raise InputError(f"kind is {kind!r}", expected="'scale' or 'full'")
        self.env = env
        self.kind = kind
        self.spec = env.spec
        self.n = env.n
        self.count = 0
        self.mean = 0.0
        self._squares = 0.0
        self._running = np.zeros(env.n, dtype=bool)

    @property
    def variance(self) -> float:
        """The variance of all rewards so far."""
        return self._squares / self.count if self.count else 0.0

    def reset(self, seed: int | None = None) -> Frame:
        """Start a new episode in every instance; what is known of the rewards stays."""
        self._running[:] = True
        return self.env.reset(seed)

    def step(self, actions: NDArray[np.integer[Any]]) -> Step:
        """Take a step and standardise its rewards, which count already."""
        step = self.env.step(actions)
        raw = step.reward
        self._count(raw[self._running].astype(np.float64))
        deviation = float(np.sqrt(self.variance))
        scaled = raw - (self.mean if self.kind == "full" else 0.0)
        if deviation > LEAST_DEVIATION:
            scaled = scaled / deviation
        step.reward = np.where(self._running, scaled, 0.0).astype(np.float32)
        step.info = {**step.info, "raw_reward": raw}
        self._running = ~(step.terminated | step.truncated)
        return step

    def render(self, index: int = 0) -> NDArray[np.uint8]:
        """A picture of an instance."""
        return self.env.render(index)

    def close(self) -> None:
        """Give back what the environment holds."""
        self.env.close()

    def get_rng_state(self) -> dict[str, Any]:
        """What decides the coming episodes, and what is known of the rewards."""
        known = {"count": self.count, "mean": self.mean, "squares": self._squares}
        return {"rewards": known, "env": self.env.get_rng_state()}

    def set_rng_state(self, state: dict[str, Any]) -> None:
        """Put back what `get_rng_state` gave."""
        known = state["rewards"]
        self.count, self.mean, self._squares = int(known["count"]), float(known["mean"]), float(known["squares"])
        self.env.set_rng_state(state["env"])

    def _count(self, new: NDArray[np.float64]) -> None:
        """Join the moments of a batch to those so far (Chan, Golub and LeVeque 1979, equation 2.1)."""
        if not len(new):
            return
        total = self.count + len(new)
        apart = float(new.mean()) - self.mean
        self._squares += float(((new - new.mean()) ** 2).sum()) + apart**2 * self.count * len(new) / total
        self.mean += apart * len(new) / total
        self.count = total
