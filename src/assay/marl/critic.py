"""The unrestricted central value Q*(s, τ, a), which no monotone mixer binds."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.marl.networks import AgentNet

__all__ = ["CentralCritic"]


class CentralCritic(nn.Module):
    """An agent network of its own, whose chosen entries and the state go through a plain network, plus V(s).

    Parameters
    ----------
    inputs, n_agents, n_actions, state_size : int
        I, N, A, S.
    hidden : int
        Width of the agent network, H.
    width : int
        Width of the three inner layers.
    recurrent : bool
        Whether the agent network remembers.

    Notes
    -----
    The state's part of the first layer is computed once for all joint actions that are evaluated in it.
    """

    def __init__(
        self,
        inputs: int,
        n_agents: int,
        n_actions: int,
        state_size: int,
        *,
        hidden: int = 64,
        width: int = 256,
        recurrent: bool = True,
    ) -> None:
        super().__init__()
        self.n_agents = n_agents
        self.agent = AgentNet(inputs, hidden, n_actions, recurrent=recurrent)
        self.first = nn.Linear(n_agents + state_size, width)
        self.rest = nn.Sequential(
            nn.Linear(width, width),
            nn.ReLU(inplace=True),
            nn.Linear(width, width),
            nn.ReLU(inplace=True),
            nn.Linear(width, 1),
        )
        self.baseline = nn.Sequential(nn.Linear(state_size, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, chosen: Tensor, state: Tensor) -> Tensor:
        """The values of joint actions.

        Parameters
        ----------
        chosen : Tensor, shape (…, N) or (L, …, N)
            The agent network's entries of the joint actions; several joint actions of a state along a leading axis.
        state : Tensor, shape (…, S)
            The states.

        Returns
        -------
        Tensor, shape (…) or (L, …)
            Q*.
        """
        of_state = functional.linear(state, self.first.weight[:, self.n_agents :], self.first.bias)
        inner = torch.relu_(functional.linear(chosen, self.first.weight[:, : self.n_agents]) + of_state)
        # Rows are flattened first: what a linear layer makes of a matrix may be changed in place at no cost.
        value: Tensor = self.rest(inner.flatten(0, -2)).view(inner.shape[:-1])
        total: Tensor = value + self.baseline(state).squeeze(-1)
        return total
