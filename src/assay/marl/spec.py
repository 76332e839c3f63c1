"""What a learner must know of an environment before the first step."""

from __future__ import annotations

from dataclasses import dataclass

from assay.core.errors import InputError

__all__ = ["EnvSpec"]


@dataclass(frozen=True)
class EnvSpec:
    """The sizes of a cooperative environment with discrete actions.

    Parameters
    ----------
    n_agents : int
        Agents in the team, n.
    n_actions : int
        Actions of each agent, A; where agents have fewer, the others are masked.
    obs_size : int
        Numbers in an agent's observation, O.
    state_size : int
        Numbers in the state that training sees, S.
    horizon : int, optional
        Most steps of an episode, T; None where nothing bounds it.
    name : str
        What people call it.
    agent_ids : bool
        Whether agents must be told apart by their number, because their observations don't show what they are.

    Examples
    --------
    >>> EnvSpec(n_agents=2, n_actions=3, obs_size=1, state_size=1, horizon=1, name="game").n_joint_actions
    9
    """

    n_agents: int
    n_actions: int
    obs_size: int
    state_size: int
    horizon: int | None
    name: str = ""
    agent_ids: bool = False

    def __post_init__(self) -> None:
        for field in ("n_agents", "n_actions", "obs_size", "state_size"):
            if getattr(self, field) < 1:
                raise InputError(f"{field} is {getattr(self, field)}", expected="at least 1")
        if self.horizon is not None and self.horizon < 1:
            raise InputError(f"horizon is {self.horizon}", expected="at least 1, or None")

    @property
    def n_joint_actions(self) -> int:
        """The number of joint actions, A to the power of n."""
        return int(self.n_actions**self.n_agents)
