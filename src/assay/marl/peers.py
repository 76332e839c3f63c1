"""QMIX as TorchRL has it, around the same agent network, to compare the time of a gradient step with."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from assay.marl.networks import AgentNet, agent_inputs
from assay.marl.replay import EpisodeBatch
from assay.marl.spec import EnvSpec

__all__ = ["torchrl_qmix_step"]


class _OverTime(nn.Module):
    """The agent network on inputs of shape (B, T, N, I), as a TorchRL module is called."""

    def __init__(self, net: AgentNet) -> None:
        super().__init__()
        self.net = net

    def forward(self, inputs_BTNI: Tensor) -> Tensor:
        episodes, agents = inputs_BTNI.shape[0], inputs_BTNI.shape[2]
        q_TRA, _ = self.net(inputs_BTNI.transpose(0, 1).flatten(1, 2))
        q_BTNA: Tensor = q_TRA.unflatten(1, (episodes, agents)).transpose(0, 1).contiguous()
        return q_BTNA


def torchrl_qmix_step(
    spec: EnvSpec, batch: EpisodeBatch, *, hidden: int = 64, embed: int = 32, learning_rate: float = 1e-3
) -> Callable[[], None]:
    """A function that takes one gradient step of TorchRL's QMIX on a batch of episodes.

    Its hypernetworks are linear in the state, and its targets are one-step ones, which cost less than λ-returns.

    Parameters
    ----------
    spec : EnvSpec
        The sizes.
    batch : EpisodeBatch
        On what.
    hidden, embed : int
        Widths of agents and mixer.
    learning_rate : float
        Of Adam.

    Returns
    -------
    callable
        Takes the step.

    Notes
    -----
    Needs ``torchrl`` and ``tensordict``.
    """
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule
    from torchrl.modules import QMixer, QValueModule, SafeSequential
    from torchrl.objectives.multiagent import QMixerLoss

    inputs = spec.obs_size + spec.n_actions + spec.n_agents * spec.agent_ids
    net = TensorDictModule(
        _OverTime(AgentNet(inputs, hidden, spec.n_actions)),
        in_keys=[("agents", "observation")],
        out_keys=[("agents", "action_value")],
    )
    choice = QValueModule(
        action_value_key=("agents", "action_value"),
        out_keys=[("agents", "action"), ("agents", "action_value"), ("agents", "chosen_action_value")],
        action_space="categorical",
    )
    mixer = TensorDictModule(
        QMixer(state_shape=(spec.state_size,), mixing_embed_dim=embed, n_agents=spec.n_agents, device="cpu"),
        in_keys=[("agents", "chosen_action_value"), "state"],
        out_keys=["chosen_action_value"],
    )
    loss: Any = QMixerLoss(SafeSequential(net, choice), mixer, delay_value=True, action_space="categorical")
    loss.make_value_estimator(gamma=0.99)
    # Its target copies are never updated here, of which it would warn.
    warnings.filterwarnings("ignore", message="No target network updater", category=UserWarning)
    parameters = [parameter for parameter in loss.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(parameters, lr=learning_rate, fused=True)
    data = _as_tensordict(TensorDict, spec, batch)

    def step() -> None:
        value = loss(data)["loss"]
        optimizer.zero_grad(set_to_none=True)
        value.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 10.0)
        optimizer.step()

    return step


def _as_tensordict(kind: Any, spec: EnvSpec, batch: EpisodeBatch) -> Any:
    episodes, steps, agents = batch.actions.shape
    before = torch.full_like(batch.actions[:, :1], -1)
    seen = agent_inputs(
        batch.obs,
        torch.cat([before, batch.actions], 1),
        n_actions=spec.n_actions,
        last_action=True,
        agent_id=spec.agent_ids,
    )
    done = batch.terminated.unsqueeze(-1).bool()
    shape, by_agent = [episodes, steps], [episodes, steps, agents]
    following = {
        "agents": kind({"observation": seen[:, 1:].contiguous()}, by_agent),
        "state": batch.state[:, 1:].contiguous(),
        "reward": batch.reward.unsqueeze(-1),
        "done": done,
        "terminated": done,
    }
    return kind(
        {
            "agents": kind({"observation": seen[:, :-1].contiguous(), "action": batch.actions}, by_agent),
            "state": batch.state[:, :-1].contiguous(),
            "next": kind(following, shape),
        },
        shape,
    )
