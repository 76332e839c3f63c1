"""Agents' utilities, and the coordinator that guesses the state and which sub-value is worth following.

Tensor names carry their axes: T time, R rows (episodes × agents), B episodes, N agents, I inputs, H hidden, A actions,
S state, K sub-values. Time comes first, as recurrent kernels want it. torch's default initialisation everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["AgentNet", "Coordinator", "agent_inputs", "one_hot", "run_together", "seeded"]

CODE = 32
"""Size of the code z that the coordinator makes of all agents' recurrent states."""


@contextmanager
def seeded(*key: int) -> Iterator[None]:
    """Let torch's global generator start from `key`, and give it back as it was.

    Parameters
    ----------
    *key : int
        Whole numbers ≥ 0; each combination is a stream of its own.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> np.uint64(1)))
        yield


def one_hot(index: Tensor, size: int, *, dtype: torch.dtype) -> Tensor:
    """Zeros with a one at `index` along a new last axis; nothing but zeros for a negative index."""
    return (index.unsqueeze(-1) == torch.arange(size, device=index.device)).to(dtype)


def agent_inputs(
    obs_TBNO: Tensor, last_action_TBN: Tensor, *, n_actions: int, last_action: bool, agent_id: bool
) -> Tensor:
    """What an agent's network sees: its observation, and if wanted its last action and its own number, one-hot.

    Parameters
    ----------
    obs_TBNO : Tensor, shape (T, B, N, O)
        Observations.
    last_action_TBN : Tensor, shape (T, B, N)
        Actions of the step before; −1 at an episode's start.
    n_actions : int
        A.
    last_action, agent_id : bool
        What is appended.

    Returns
    -------
    Tensor, shape (T, B, N, I)
        The inputs.
    """
    parts = [obs_TBNO]
    if last_action:
        parts.append(one_hot(last_action_TBN, n_actions, dtype=obs_TBNO.dtype))
    if agent_id:
        n_agents = obs_TBNO.shape[-2]
        parts.append(torch.eye(n_agents, dtype=obs_TBNO.dtype, device=obs_TBNO.device).expand(*obs_TBNO.shape[:-1], -1))
    return torch.cat(parts, -1) if len(parts) > 1 else obs_TBNO


class AgentNet(nn.Module):
    """The utilities of an agent's actions given its history; all agents of a team share it.

    Linear → ReLU → GRU → Linear, or with a linear layer and a ReLU in place of the GRU.

    Parameters
    ----------
    inputs, hidden, outputs : int
        I, H, A.
    recurrent : bool
        Whether it remembers; without, it sees the present step alone.

    Examples
    --------
    >>> import torch
    >>> q, hidden = AgentNet(5, 8, 3)(torch.zeros(4, 2, 5))
    >>> q.shape, hidden.shape
    (torch.Size([4, 2, 3]), torch.Size([4, 2, 8]))
    """

    def __init__(self, inputs: int, hidden: int, outputs: int, *, recurrent: bool = True) -> None:
        super().__init__()
        self.recurrent, self.hidden = recurrent, hidden
        self.into = nn.Linear(inputs, hidden)
        self.core = nn.GRU(hidden, hidden) if recurrent else nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, outputs)

    def forward(self, x_TRI: Tensor, state_RH: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The utilities and the recurrent states of all steps.

        Parameters
        ----------
        x_TRI : Tensor, shape (T, R, I)
            Inputs.
        state_RH : Tensor, shape (R, H), optional
            The recurrent state before the first step; zeros if left out.

        Returns
        -------
        q_TRA : Tensor, shape (T, R, A)
            Utilities.
        hidden_TRH : Tensor, shape (T, R, H)
            The state after each step.
        """
        # Rows are flattened first: what a linear layer makes of a matrix may be changed in place at no cost.
        inner = torch.relu_(self.into(x_TRI.flatten(0, 1)))
        return self.remember(inner.unflatten(0, x_TRI.shape[:2]), state_RH)

    def remember(self, inner_TRH: Tensor, state_RH: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """What follows the first layer; as `forward` otherwise.

        Parameters
        ----------
        inner_TRH : Tensor, shape (T, R, H)
            What the first layer and its ReLU have made of the inputs.
        state_RH : Tensor, shape (R, H), optional
            The recurrent state before the first step.

        Returns
        -------
        q_TRA : Tensor, shape (T, R, A)
            Utilities.
        hidden_TRH : Tensor, shape (T, R, H)
            The state after each step.
        """
        shape = inner_TRH.shape[:2]
        if self.recurrent:
            hidden_TRH, _ = self.core(inner_TRH, None if state_RH is None else state_RH.unsqueeze(0))
        else:
            hidden_TRH = torch.relu_(self.core(inner_TRH.flatten(0, 1))).unflatten(0, shape)
        return self.out(hidden_TRH.flatten(0, 1)).unflatten(0, shape), hidden_TRH


def run_together(nets: Sequence[AgentNet], x_TBNI: Tensor) -> list[tuple[Tensor, Tensor]]:
    """All steps of all agents of all episodes in several networks, whose first layers are one product.

    Parameters
    ----------
    nets : sequence of AgentNet
        Of one size.
    x_TBNI : Tensor, shape (T, B, N, I)
        Their common inputs.

    Returns
    -------
    list of (Tensor, Tensor)
        For each network the utilities, shape (T, B, N, A), and the recurrent states, shape (T, B, N, H).
    """
    steps, *teams = x_TBNI.shape[:3]
    weight, bias = (torch.cat([getattr(net.into, name) for net in nets]) for name in ("weight", "bias"))
    inner = torch.relu_(functional.linear(x_TBNI.flatten(0, 2), weight, bias)).unflatten(0, (steps, -1))
    found = []
    for net, part_TRH in zip(nets, inner.chunk(len(nets), -1), strict=True):
        q_TRA, hidden_TRH = net.remember(part_TRH)
        found.append((q_TRA.unflatten(1, teams), hidden_TRH.unflatten(1, teams)))
    return found


class Coordinator(nn.Module):
    """An encoder of all agents' recurrent states, and a decoder that predicts the state and which sub-value to follow.

    Parameters
    ----------
    inputs : int
        N · H.
    state_size : int
        S.
    levels : int
        Sub-values, K + 1.
    hidden : int
        Width of the inner layers.
    """

    def __init__(self, inputs: int, state_size: int, levels: int, *, hidden: int = 64) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, CODE)
        )
        self.trunk = nn.Sequential(nn.Linear(CODE, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.state_head = nn.Linear(hidden, state_size)
        self.level_head = nn.Linear(hidden, levels)

    def encode(self, hidden: Tensor) -> Tensor:
        """The code of recurrent states of shape (…, N · H); shape (…, 32)."""
        code: Tensor = self.encoder(hidden)
        return code

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """The predicted state, shape (…, S), and the logits of the sub-values, shape (…, K + 1)."""
        inner = self.trunk(self.encode(hidden))
        return self.state_head(inner), self.level_head(inner)
