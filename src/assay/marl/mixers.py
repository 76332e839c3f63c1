"""Mixers: from the agents' utilities of chosen actions to one joint value whose best joint action is each agent's best.

VDN (sum), QMIX (monotone in every utility, weights made from the state) and QPLEX (duplex duelling). All have one
signature, so that a learner can take any of them.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.core.errors import InputError

__all__ = ["MIXERS", "IndependentMixer", "QMixer", "QPlexMixer", "VDNMixer", "make_mixer"]

MIXERS = ("qmix", "vdn", "qplex", "none")
TINY = 1e-10
"""Keeps the weights of QPLEX above zero, so that the order of the actions is kept."""


class VDNMixer(nn.Module):
    """The sum of the utilities.

    Examples
    --------
    >>> import torch
    >>> VDNMixer()(torch.tensor([[1.0, 2.0]]))
    tensor([3.])
    """

    def __init__(self) -> None:
        super().__init__()

    def forward(
        self,
        chosen: Tensor,
        state: Tensor | None = None,
        *,
        best: Tensor | None = None,
        actions: Tensor | None = None,
    ) -> Tensor:
        """The joint value.

        Parameters
        ----------
        chosen : Tensor, shape (…, N)
            Each agent's utility of its action.
        state, best, actions : Tensor, optional
            Not looked at; other mixers need them.

        Returns
        -------
        Tensor, shape (…)
            The joint value.
        """
        return chosen.sum(-1)


class IndependentMixer(nn.Module):
    """No mixing: each agent's utility stays a value of its own, as independent Q-learning has it.

    Examples
    --------
    >>> import torch
    >>> IndependentMixer()(torch.tensor([[1.0, 2.0]]))
    tensor([[1., 2.]])
    """

    def forward(
        self,
        chosen: Tensor,
        state: Tensor | None = None,
        *,
        best: Tensor | None = None,
        actions: Tensor | None = None,
    ) -> Tensor:
        """The utilities as they are, shape (…, N)."""
        return chosen


class QMixer(nn.Module):
    """QMIX: ELU(q · abs(w₁(s)) + b₁(s)) · abs(w₂(s)) + b₂(s), monotone in every utility.

    Parameters
    ----------
    n_agents, state_size : int
        N, S.
    embed : int
        Width of the mixing layer.
    hypernet : int
        Width of the inner layer of the networks that make the weights.
    hypernet_layers : int
        2, or 1 for weights that are linear in the state.

    Examples
    --------
    >>> import torch
    >>> QMixer(2, 5)(torch.zeros(7, 2), torch.zeros(7, 5)).shape
    torch.Size([7])
    """

    def __init__(
        self, n_agents: int, state_size: int, *, embed: int = 32, hypernet: int = 64, hypernet_layers: int = 2
    ) -> None:
        super().__init__()
        if hypernet_layers not in (1, 2):
            raise InputError(f"hypernet_layers is {hypernet_layers}", expected="1 or 2")
        self.n_agents, self.embed = n_agents, embed

        def weights(outputs: int) -> nn.Module:
            if hypernet_layers == 1:
                return nn.Linear(state_size, outputs)
            return nn.Sequential(nn.Linear(state_size, hypernet), nn.ReLU(), nn.Linear(hypernet, outputs))

        self.weight_1, self.weight_2 = weights(n_agents * embed), weights(embed)
        self.bias_1 = nn.Linear(state_size, embed)
        self.bias_2 = nn.Sequential(nn.Linear(state_size, embed), nn.ReLU(), nn.Linear(embed, 1))

    def forward(
        self,
        chosen: Tensor,
        state: Tensor,
        *,
        best: Tensor | None = None,
        actions: Tensor | None = None,
    ) -> Tensor:
        """The joint value.

        Parameters
        ----------
        chosen : Tensor, shape (…, N)
            Each agent's utility of its action.
        state : Tensor, shape (…, S)
            The state, with the same leading axes.
        best, actions : Tensor, optional
            Not looked at.

        Returns
        -------
        Tensor, shape (…)
            The joint value.
        """
        weight_1 = self.weight_1(state).abs().unflatten(-1, (self.n_agents, self.embed))
        inner = functional.elu((chosen.unsqueeze(-1) * weight_1).sum(-2) + self.bias_1(state))
        joint: Tensor = (inner * self.weight_2(state).abs()).sum(-1) + self.bias_2(state).squeeze(-1)
        return joint


class QPlexMixer(nn.Module):
    """QPLEX: Σ (wᵢ(s) qᵢ + bᵢ(s)) plus (λᵢ(s, a) − 1) times each agent's advantage, with wᵢ, λᵢ > 0.

    The advantages pass no gradient, as in the authors' own implementation; the importance λ is a product of three
    positive heads of the state, the agents and the joint action.

    Parameters
    ----------
    n_agents, n_actions, state_size : int
        N, A, S.
    heads : int
        Products that λ sums.
    hypernet : int
        Width of the inner layers.

    Examples
    --------
    >>> import torch
    >>> chosen = torch.zeros(7, 2)
    >>> QPlexMixer(2, 3, 5)(chosen, torch.zeros(7, 5), best=chosen, actions=torch.zeros(7, 2, 3)).shape
    torch.Size([7])
    """

    def __init__(self, n_agents: int, n_actions: int, state_size: int, *, heads: int = 4, hypernet: int = 64) -> None:
        super().__init__()
        self.n_agents, self.heads = n_agents, heads

        def network(inputs: int, outputs: int) -> nn.Module:
            return nn.Sequential(nn.Linear(inputs, hypernet), nn.ReLU(), nn.Linear(hypernet, outputs))

        self.scale, self.shift = network(state_size, n_agents), network(state_size, n_agents)
        self.keys, self.agents = network(state_size, heads), network(state_size, heads * n_agents)
        self.joint = network(state_size + n_agents * n_actions, heads * n_agents)

    def forward(self, chosen: Tensor, state: Tensor, *, best: Tensor, actions: Tensor) -> Tensor:
        """The joint value.

        Parameters
        ----------
        chosen : Tensor, shape (…, N)
            Each agent's utility of its action.
        state : Tensor, shape (…, S)
            The state.
        best : Tensor, shape (…, N)
            Each agent's utility of its best available action.
        actions : Tensor, shape (…, N, A)
            The actions, one-hot.

        Returns
        -------
        Tensor, shape (…)
            The joint value.
        """
        scale = self.scale(state).abs() + TINY
        key = (self.keys(state).abs() + TINY).unsqueeze(-1)
        of_agents = self.agents(state).sigmoid().unflatten(-1, (self.heads, self.n_agents))
        seen = torch.cat([state, actions.flatten(-2)], -1)
        of_actions = self.joint(seen).sigmoid().unflatten(-1, (self.heads, self.n_agents))
        importance = (key * of_agents * of_actions).sum(-2) + TINY
        advantage = (scale * (chosen - best)).detach()
        joint: Tensor = (scale * chosen + self.shift(state) + (importance - 1) * advantage).sum(-1)
        return joint


def make_mixer(
    name: str,
    *,
    n_agents: int,
    n_actions: int,
    state_size: int,
    embed: int = 32,
    hypernet: int = 64,
    hypernet_layers: int = 2,
) -> nn.Module:
    """The mixer of a name.

    Parameters
    ----------
    name : str
        ``qmix``, ``vdn``, ``qplex``, or ``none`` for independent values.
    n_agents, n_actions, state_size : int
        N, A, S.
    embed, hypernet, hypernet_layers : int
        As for `QMixer`.

    Returns
    -------
    Module
        Called with chosen utilities (…, N) and state (…, S), and by name ``best`` and one-hot ``actions``.

    Raises
    ------
    InputError
        The name is none of these.
    """
    if name == "qmix":
        return QMixer(n_agents, state_size, embed=embed, hypernet=hypernet, hypernet_layers=hypernet_layers)
    if name == "qplex":
        return QPlexMixer(n_agents, n_actions, state_size, hypernet=hypernet)
    if name in ("vdn", "none"):
        return VDNMixer() if name == "vdn" else IndependentMixer()
    raise InputError(f"mixer '{name}'", expected=f"one of {', '.join(MIXERS)}")
