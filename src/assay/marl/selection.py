"""How a team chooses its actions while it learns: which sub-value it follows, and when it does something else.

All draws of a step are made whether they are needed or not, so that the stream of random numbers doesn't depend on the
settings, and two learners with one seed differ in nothing but the switch between them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.core.errors import InputError
from assay.marl.critic import CentralCritic
from assay.marl.losses import S2QLoss, candidate_distribution, greedy_actions
from assay.marl.networks import CODE, agent_inputs

__all__ = ["SELECTORS", "Choice", "LinearSchedule", "TeamMemory", "choose_actions", "choose_levels"]

SELECTORS = ("coordinator", "oracle", "uniform", "independent", "greedy")


@dataclass(frozen=True)
class LinearSchedule:
    """A number that goes from `start` to `end` in a straight line over `steps`, and stays.

    Examples
    --------
    >>> LinearSchedule(1.0, 0.05, 100)(50)
    0.525
    """

    start: float
    end: float
    steps: int

    def __call__(self, step: int) -> float:
        """The number at a step, counted from 0."""
        share = min(step / self.steps, 1.0) if self.steps else 1.0
        return self.start + (self.end - self.start) * share


@dataclass(frozen=True)
class Choice:
    """What a team does in a step.

    Attributes
    ----------
    actions : (N, n) array of int64
        The joint actions.
    levels : (N, n) array of int64
        Which sub-value each agent followed.
    probability : (N, K + 1) array of float
        With what probability the levels were drawn where they were.
    """

    actions: NDArray[np.int64]
    levels: NDArray[np.int64]
    probability: NDArray[np.float64]


def choose_levels(
    probability: NDArray[np.float64],
    mixed: NDArray[np.bool_],
    n_agents: int,
    *,
    shared: bool,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Draw the sub-value that each agent follows.

    Parameters
    ----------
    probability : (N, K + 1) array of float
        Of the levels.
    mixed : (N,) array of bool
        Which instances draw; the others follow level 0.
    n_agents : int
        n.
    shared : bool
        Whether a team draws once. Otherwise each agent draws for itself.
    rng : numpy.random.Generator
        Where chance comes from.

    Returns
    -------
    (N, n) array of int64

    Examples
    --------
    >>> p = np.array([[0.0, 1.0], [0.0, 1.0]])
    >>> choose_levels(p, np.array([True, False]), 2, shared=True, rng=np.random.default_rng(0)).tolist()
    [[1, 1], [0, 0]]
    """
    draws = rng.random((len(probability), n_agents))
    if shared:
        draws = np.broadcast_to(draws[:, :1], draws.shape)
    below = np.cumsum(probability, 1)[:, None, :-1]
    levels: NDArray[np.int64] = (draws[:, :, None] >= below).sum(-1)
    return np.where(mixed[:, None], levels, 0)


def choose_actions(
    greedy: NDArray[np.int64], avail: NDArray[np.bool_], *, epsilon: float, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Each agent's greedy action, or with probability ε any available one.

    Parameters
    ----------
    greedy : (N, n) array of int64
        What they would do.
    avail : (N, n, A) array of bool
        What they may do.
    epsilon : float
        ε.
    rng : numpy.random.Generator
        Where chance comes from.

    Returns
    -------
    (N, n) array of int64
    """
    explores = rng.random(greedy.shape) < epsilon
    anything = (rng.random(avail.shape) + avail).argmax(-1)
    return np.where(explores, anything, greedy)


class TeamMemory:
    """What N teams carry from step to step: recurrent states, last actions and, with S2Q-Comm, the code they hear.

    Parameters
    ----------
    loss : S2QLoss
        Whose networks are followed.
    instances : int
        N.
    levels : int
        How many sub-values are followed.
    reference : bool
        Whether the target copy of Q* is followed too, for the selector ``oracle``.
    hears : bool
        Whether the code is passed on; before the first update all hear zeros.
    """

    def __init__(
        self, loss: S2QLoss, instances: int, *, levels: int, reference: bool = False, hears: bool = True
    ) -> None:
        self.loss, self.instances, self.levels, self.hears = loss, instances, levels, hears
        self.reference = loss.target_critic if reference else None
        self._parameter = next(loss.parameters())
        n = loss.spec.n_agents
        self.last_actions = np.full((instances, n), -1, np.int64)
        self.hidden: list[Tensor | None] = [None] * levels
        self.reference_hidden: Tensor | None = None

    def reset(self, mask: NDArray[np.bool_]) -> None:
        """Let the instances that `mask` names, shape (N,), begin anew."""
        self.last_actions[mask] = -1
        rows = torch.from_numpy(np.repeat(mask, self.loss.spec.n_agents)).to(self._parameter.device).unsqueeze(-1)
        self.hidden = [None if state is None else state.masked_fill(rows, 0) for state in self.hidden]
        if self.reference_hidden is not None:
            self.reference_hidden = self.reference_hidden.masked_fill(rows, 0)

    @torch.no_grad()
    def look(self, obs: NDArray[np.float32], avail: NDArray[np.bool_]) -> tuple[list[Tensor], NDArray[np.int64]]:
        """Take in a step's observations.

        Parameters
        ----------
        obs : (N, n, O) array of float32
            Observations.
        avail : (N, n, A) array of bool
            Available actions.

        Returns
        -------
        q : list of Tensor, shape (N, n, A)
            Utilities of each level.
        greedy : (levels, N, n) array of int64
            Each level's greedy joint actions.
        """
        loss = self.loss
        x_BNI = agent_inputs(
            self.tensor(obs),
            torch.from_numpy(self.last_actions).to(self._parameter.device),
            n_actions=loss.spec.n_actions,
            last_action=loss.last_action,
            agent_id=loss.agent_id,
        )
        if loss.comm:
            x_BNI = torch.cat([x_BNI, self._code().unsqueeze(1).expand(*x_BNI.shape[:2], CODE)], -1)
        self._x_BNI = x_BNI
        states = self.hidden if loss.recurrent else [None] * self.levels
        q, hidden = loss.act_values(x_BNI, states, self.levels)
        self.hidden = list(hidden)
        mask = torch.from_numpy(avail).to(self._parameter.device)
        return q, torch.stack([greedy_actions(values, mask) for values in q]).cpu().numpy()

    @torch.no_grad()
    def coordinator_distribution(self) -> NDArray[np.float64]:
        """P̂ after the last `look`, shape (N, K + 1)."""
        assert self.loss.coordinator is not None
        _, logits = self.loss.coordinator(self._team_hidden())
        probability: NDArray[np.float64] = torch.softmax(logits.double(), -1).cpu().numpy()
        return probability

    @torch.no_grad()
    def reference_values(self, greedy: NDArray[np.int64], state: NDArray[np.float32]) -> Tensor:
        """Q̄* of each level's greedy joint action, shape (levels, N); once after each `look`.

        Parameters
        ----------
        greedy : (levels, N, n) array of int64
            From `look`.
        state : (N, S) array of float32
            States.

        Returns
        -------
        Tensor, shape (levels, N)
        """
        critic = self.reference
        assert isinstance(critic, CentralCritic)
        before = self.reference_hidden if self.loss.recurrent else None
        q, hidden = critic.agent(self._x_BNI.flatten(0, 1).unsqueeze(0), before)
        self.reference_hidden = hidden[0]
        q_BNA = q[0].unflatten(0, self._x_BNI.shape[:2])
        actions = torch.from_numpy(greedy).to(q_BNA.device)
        chosen = q_BNA.expand(len(greedy), *q_BNA.shape).gather(-1, actions.unsqueeze(-1)).squeeze(-1)
        values: Tensor = critic(chosen, self.tensor(state))
        return values

    def oracle_distribution(self, greedy: NDArray[np.int64], state: NDArray[np.float32]) -> NDArray[np.float64]:
        """P after the last `look`, shape (N, K + 1), from Q̄* itself."""
        values = self.reference_values(greedy, state)
        with torch.no_grad():
            temperature = self.loss.current_temperature().double()
            probability = candidate_distribution(values.double(), temperature).T
        shares: NDArray[np.float64] = probability.cpu().numpy()
        return shares

    def _team_hidden(self) -> Tensor:
        hidden = self.hidden[0]
        assert hidden is not None
        joined: Tensor = hidden.unflatten(0, (self.instances, -1)).flatten(1)
        return joined

    def _code(self) -> Tensor:
        coordinator = self.loss.coordinator
        assert coordinator is not None
        if not self.hears:
            return self._parameter.new_zeros(self.instances, CODE)
        if self.hidden[0] is None:
            inputs = coordinator.encoder[0]
            assert isinstance(inputs, torch.nn.Linear)
            return coordinator.encode(self._parameter.new_zeros(self.instances, inputs.in_features))
        return coordinator.encode(self._team_hidden())

    def tensor(self, array: NDArray[np.float32]) -> Tensor:
        """An array on the networks' device and in their dtype."""
        return torch.from_numpy(np.ascontiguousarray(array)).to(self._parameter.device, self._parameter.dtype)


def require_selector(selector: str, *, central: bool) -> None:
    """Refuse a selector that doesn't exist, or that needs a central value where there is none.

    Raises
    ------
    InputError
        Naming what would be right.
    """
    if selector not in SELECTORS:
        raise InputError(f"selector '{selector}'", expected=f"one of {', '.join(SELECTORS)}")
    if selector == "oracle" and not central:
        raise InputError("selector 'oracle' without a central value", expected="central=True")
