"""The losses of successive sub-value Q-learning, and by switches those of QMIX, VDN, weighted QMIX and independent
Q-learning.

The arithmetic of targets, suppression and weights is in pure functions; `S2QLoss` holds the networks and applies it.
Nothing here looks at values to decide what to compute, so that `torch.func.functional_call` and `torch.vmap` train many
seeds at once where the agents are feed-forward. Where all episodes of a batch show the same (one-step games), obs,
state and avail may have a batch axis of 1, and where all end by termination at the last step, they may lack the entry
behind it: both spare work and change no loss. Axes as in `networks`: T time first, B episodes, N agents, K levels.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TypeVar, cast

import torch
from torch import Tensor, nn

from assay.core.errors import InputError
from assay.marl.critic import CentralCritic
from assay.marl.mixers import make_mixer
from assay.marl.networks import CODE, AgentNet, Coordinator, agent_inputs, one_hot, run_together, seeded
from assay.marl.returns import lambda_return
from assay.marl.spec import EnvSpec

__all__ = [
    "SUPPRESSIONS",
    "WEIGHTINGS",
    "S2QLoss",
    "candidate_distribution",
    "chosen_values",
    "greedy_actions",
    "masked_mean",
    "same_joint_action",
    "suppressed_target",
    "underestimation_weight",
]

SUPPRESSIONS = ("paper", "code")
WEIGHTINGS = ("s2q", "ow", "cw", "none")
AUTO_TEMPERATURE = 0.5
"""``temperature="auto"`` is this share of the spread of the candidates' values (their standard deviation)."""
AVERAGING = 0.99
"""What a running statistic keeps of itself at every update."""
SMALLEST_TEMPERATURE = 1e-6

M = TypeVar("M", bound=nn.Module)


def greedy_actions(q: Tensor, avail: Tensor) -> Tensor:
    """Each agent's best available action.

    Parameters
    ----------
    q : Tensor, shape (…, A)
        Utilities.
    avail : Tensor of bool, shape (…, A)
        What is available. Where nothing is, the answer means nothing.

    Returns
    -------
    Tensor of int64, shape (…)
        The actions. The placeholder of what isn't available goes nowhere else.
    """
    return q.masked_fill(~avail, -torch.inf).argmax(-1)


def chosen_values(q: Tensor, actions: Tensor) -> Tensor:
    """The entries of `q`, shape (…, A), at `actions`, shape (…)."""
    return q.gather(-1, actions.unsqueeze(-1)).squeeze(-1)


def same_joint_action(actions: Tensor, others: Tensor) -> Tensor:
    """Where two joint actions, shape (…, N), agree in every agent; shape (…) of bool."""
    return (actions == others).all(-1)


def suppressed_target(
    target: Tensor, hit: Tensor, value: Tensor, *, alpha: Tensor | float = 1.0, floor: float | None = 1.0
) -> Tensor:
    """The target of a sub-value: lowered by α · max(value, C) where a better level already holds the joint action.

    Parameters
    ----------
    target : Tensor
        The λ-return y.
    hit : Tensor of bool
        Whether the joint action is the greedy one of an earlier level.
    value : Tensor
        The joint action's reference value.
    alpha : Tensor or float
        α > 0.
    floor : float or None
        C > 0 in the unit of returns; None takes the value as it is, as the published code does.

    Returns
    -------
    Tensor
        The lowered target.

    Examples
    --------
    >>> import torch
    >>> y, value = torch.tensor([-2.0, -2.0]), torch.tensor([-2.0, -2.0])
    >>> suppressed_target(y, torch.tensor([True, False]), value, floor=3.0)
    tensor([-5., -2.])
    >>> suppressed_target(y, torch.tensor([True, False]), value, floor=None)
    tensor([ 0., -2.])
    """
    subtracted = value if floor is None else value.clamp(min=floor)
    return target - alpha * torch.where(hit, subtracted, torch.zeros_like(subtracted))


def underestimation_weight(residual: Tensor, w_c: float) -> Tensor:
    """1 where the value is below its target, `w_c` elsewhere."""
    return torch.where(residual < 0, torch.ones_like(residual), torch.full_like(residual, w_c))


def candidate_distribution(values: Tensor, temperature: Tensor | float) -> Tensor:
    """Softmax over the levels of their greedy joint actions' values.

    Parameters
    ----------
    values : Tensor, shape (K + 1, …)
        Reference values of the levels' joint actions.
    temperature : Tensor or float
        T > 0, in the unit of returns.

    Returns
    -------
    Tensor, shape (K + 1, …)
        The probabilities.

    Examples
    --------
    >>> import torch
    >>> candidate_distribution(torch.tensor([1.0, 0.9, 0.5]), 0.1)
    tensor([0.7275, 0.2676, 0.0049])
    """
    return torch.softmax(values / temperature, 0)


def masked_mean(value: Tensor, mask: Tensor) -> Tensor:
    """Σ m · value / Σ m over all axes; what the mask leaves out may be anything."""
    kept = torch.where(mask > 0, value * mask, 0.0)
    return kept.sum() / mask.expand_as(kept).sum().clamp(min=1)


class S2QLoss(nn.Module):
    """All networks of a learner and its losses on a batch of episodes; for a training loop of your own.

    Parameters
    ----------
    spec : EnvSpec
        The sizes.
    K : int
        Further sub-values, 0 or more.
    mixer : str
        ``qmix``, ``vdn``, ``qplex``, or ``none`` for independent values (which needs ``K=0`` and ``central=False``).
    central : bool
        Whether targets come from the unrestricted central value Q*. Without it they come from a target copy of Q₀
        itself, as in QMIX (needs ``K=0``).
    recurrent : bool
        Whether agents remember.
    hidden, embed, hypernet, hypernet_layers, critic_width : int
        Widths: of the agents, of the mixing layer, of the networks that make the mixer's weights (and how many layers
        these have), of Q*'s inner layers.
    temperature : float or "auto"
        T of the softmax over candidates, in the unit of returns. ``"auto"`` (not in the paper) takes
        `temperature_factor` times the running spread of the candidates' values.
    temperature_factor : float
        See above.
    suppression : str
        ``paper`` lowers the targets of suppressed actions by α · max(Q̄*, C), ``code`` by α times the online Q*, as the
        authors' code does.
    alpha : float or "auto"
        α. ``"auto"`` (not in the paper) takes the running range of Q̄* over C, which is enough for the theorem.
    floor : float
        C > 0, in the unit of returns.
    weighting : str
        Of the squared errors: ``s2q``, ``ow``, ``cw`` or ``none``. ``ow`` and ``cw`` change the weight of Q₀.
    w_c : float
        The smaller weight.
    gamma, td_lambda : float
        γ and λ.
    coord_coef : float, optional
        Weight of the coordinator's KL divergence, 1 / (K + 1) if left out, which is what the authors' code amounts to.
    last_action, agent_id : bool
        What agents see besides their observation. `agent_id` left out follows the specification's flag.
    comm : bool
        S2Q-Comm: all agents hear the coordinator's code of the step before.
    double_q : bool
        Without a central value: whether the online values choose the action that the target copy values.
    seed : int, optional
        Of the initial weights, each network from a stream of its own, so that Q₀ doesn't depend on K. Left out, torch's
        global generator is used.

    Notes
    -----
    Source: Jo, Lee and Han, ICLR 2026, with what their published code adds. Choices of ours are named on the method's
    page. Running statistics change only in `track`, target copies only in `update_targets`.

    Raises
    ------
    InputError
        A setting has no meaning, or two don't go together.

    Examples
    --------
    >>> import torch
    >>> spec = EnvSpec(n_agents=2, n_actions=3, obs_size=4, state_size=5, horizon=6)
    >>> loss = S2QLoss(spec, K=1, hidden=8, seed=0)
    >>> batch = dict(
    ...     obs=torch.zeros(2, 7, 2, 4), state=torch.zeros(2, 7, 5), avail=torch.ones(2, 7, 2, 3, dtype=torch.bool),
    ...     actions=torch.zeros(2, 6, 2, dtype=torch.int64), reward=torch.ones(2, 6), terminated=torch.zeros(2, 6),
    ...     filled=torch.ones(2, 6))
    >>> losses = loss(**batch)
    >>> losses["loss"].backward()
    >>> [name for name in losses if name.startswith("loss_")]
    ['loss_0', 'loss_1', 'loss_reference', 'loss_coordinator']
    """

    value_range: Tensor
    value_spread: Tensor
    tracked: Tensor

    def __init__(
        self,
        spec: EnvSpec,
        *,
        K: int = 2,
        mixer: str = "qmix",
        central: bool = True,
        recurrent: bool = True,
        hidden: int = 64,
        embed: int = 32,
        hypernet: int = 64,
        hypernet_layers: int = 2,
        critic_width: int = 256,
        temperature: float | str = 0.1,
        temperature_factor: float = AUTO_TEMPERATURE,
        suppression: str = "paper",
        alpha: float | str = 1.0,
        floor: float = 1.0,
        weighting: str = "s2q",
        w_c: float = 0.9,
        gamma: float = 0.99,
        td_lambda: float = 0.6,
        coord_coef: float | None = None,
        last_action: bool = True,
        agent_id: bool | None = None,
        comm: bool = False,
        double_q: bool = True,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        _require_settings(K=K, mixer=mixer, central=central, comm=comm, suppression=suppression, weighting=weighting)
        _require_numbers(temperature=temperature, alpha=alpha, floor=floor, w_c=w_c, gamma=gamma, td_lambda=td_lambda)
        self.spec, self.K, self.mixer, self.central, self.recurrent = spec, K, mixer, central, recurrent
        self.temperature, self.temperature_factor = temperature, temperature_factor
        self.suppression, self.alpha, self.floor = suppression, alpha, floor
        self.weighting, self.w_c, self.gamma, self.td_lambda = weighting, w_c, gamma, td_lambda
        self.coord_coef = 1 / (K + 1) if coord_coef is None else coord_coef
        self.last_action, self.comm, self.double_q = last_action, comm, double_q
        self.agent_id = spec.agent_ids if agent_id is None else agent_id
        n, actions, state = spec.n_agents, spec.n_actions, spec.state_size
        inputs = spec.obs_size + last_action * actions + self.agent_id * n + comm * CODE
        base = torch.initial_seed() if seed is None else seed

        def agent() -> AgentNet:
            return AgentNet(inputs, hidden, actions, recurrent=recurrent)

        def mix() -> nn.Module:
            sizes = {"embed": embed, "hypernet": hypernet, "hypernet_layers": hypernet_layers}
            return make_mixer(mixer, n_agents=n, n_actions=actions, state_size=state, **sizes)

        self.agents, self.mixers = nn.ModuleList(), nn.ModuleList()
        for level in range(K + 1):
            with seeded(base, 0, level):
                self.agents.append(agent())
                self.mixers.append(mix())
        self.critic: CentralCritic | None = None
        self.target_critic: CentralCritic | None = None
        self.target_agent: AgentNet | None = None
        self.target_mixer: nn.Module | None = None
        if central:
            with seeded(base, 1):
                self.critic = CentralCritic(
                    inputs, n, actions, state, hidden=hidden, width=critic_width, recurrent=recurrent
                )
            self.target_critic = _frozen(self.critic)
        else:
            self.target_agent, self.target_mixer = _frozen(cast(AgentNet, self.agents[0])), _frozen(self.mixers[0])
        self.coordinator: Coordinator | None = None
        if K > 0 or comm:
            with seeded(base, 2):
                self.coordinator = Coordinator(n * hidden, state, K + 1)
        for name in ("value_range", "value_spread", "tracked"):
            self.register_buffer(name, torch.zeros(()))

    @property
    def levels(self) -> int:
        """The number of sub-values, K + 1."""
        return self.K + 1

    @torch.no_grad()
    def update_targets(self) -> None:
        """Copy what is learnt into the target copies."""
        if self.critic is not None and self.target_critic is not None:
            self.target_critic.load_state_dict(self.critic.state_dict())
        if self.target_agent is not None and self.target_mixer is not None:
            self.target_agent.load_state_dict(self.agents[0].state_dict())
            self.target_mixer.load_state_dict(self.mixers[0].state_dict())

    @torch.no_grad()
    def track(self, losses: dict[str, Tensor]) -> None:
        """Take over the running statistics that a call of `forward` gave; ``"auto"`` settings need it.

        Parameters
        ----------
        losses : dict of str to Tensor
            What `forward` returned.
        """
        if "value_range" in losses:
            self.value_range.copy_(losses["value_range"])
            self.value_spread.copy_(losses["value_spread"])
            self.tracked.fill_(1)

    def current_temperature(self) -> Tensor:
        """T as it is now; a running figure where it is ``"auto"``."""
        return self._temperature(self.value_spread)

    def forward(
        self,
        obs: Tensor,
        state: Tensor,
        actions: Tensor,
        avail: Tensor,
        reward: Tensor,
        terminated: Tensor,
        filled: Tensor,
    ) -> dict[str, Tensor]:
        """The losses of a batch of episodes.

        Parameters
        ----------
        obs : Tensor, shape (B, T + 1, N, O)
            Observations, those after the last step included; padding may be anything finite. See the module for when
            the axes may be 1 and T instead, here and in `state` and `avail`.
        state : Tensor, shape (B, T + 1, S)
            States.
        actions : Tensor of int64, shape (B, T, N)
            What was done.
        avail : Tensor of bool, shape (B, T + 1, N, A)
            What could be done.
        reward, terminated, filled : Tensor, shape (B, T)
            Rewards; 1 where an episode truly ended; 1 for real steps, before all padding.

        Returns
        -------
        dict of str to Tensor
            ``loss`` is what to minimise: the sum of ``loss_0`` … ``loss_K``, ``loss_reference`` and
            ``loss_coordinator``, as far as the settings have them. The others carry no gradient: ``kl``,
            ``state_error``, ``p_max`` and ``entropy`` of the distribution over candidates, ``q_mean``,
            ``target_mean``, ``temperature``, ``value_range``, ``value_spread``.
        """
        obs, actions, avail = (x.transpose(0, 1) for x in (obs, actions, avail))
        state = state.transpose(0, 1).contiguous()
        reward, terminated, filled = (x.transpose(0, 1).to(obs.dtype) for x in (reward, terminated, filled))
        steps = len(actions)
        x_TBNI = self._inputs(obs, actions)
        found = run_together(self._online(), x_TBNI)
        q_K, hidden_TBNH = [q for q, _ in found[: self.levels]], found[0][1]
        greedy_KTBN = torch.stack([greedy_actions(q.detach(), avail) for q in q_K])
        joint_K = [
            self._mix(self.mixers[k], q[:steps], actions, state[:steps], best=greedy_KTBN[k, :steps])
            for k, q in enumerate(q_K)
        ]
        if self.mixer == "none":
            reward, terminated, filled = (x.unsqueeze(-1) for x in (reward, terminated, filled))
        if self.critic is None:
            with torch.no_grad():
                bootstrap = self._own_bootstrap(x_TBNI, state, avail, greedy_KTBN[0])
                target = self._returns(reward, bootstrap, terminated, filled)
            values = None
        else:
            with torch.no_grad():
                values = self._slow_reference(x_TBNI, greedy_KTBN, state)
                target = self._returns(reward, values[0], terminated, filled)
            taken = self.critic(_chosen_of_all(found[-1][0][:steps], actions), state[:steps])
        losses: dict[str, Tensor] = {}
        info = {"q_mean": masked_mean(joint_K[0].detach(), filled), "target_mean": masked_mean(target, filled)}
        if values is None:
            residual = joint_K[0] - target
            weight = self._own_weight(residual.detach())
            losses["loss_0"] = masked_mean(weight * residual.square(), filled)
        else:
            values = values[:, :steps]
            info |= self._statistics(values, filled)
            hits_KTB = same_joint_action(actions, greedy_KTBN[:, :steps])
            losses |= self._level_losses(joint_K, target, taken.detach(), values, hits_KTB, filled, info)
            losses["loss_reference"] = masked_mean((taken - target).square(), filled)
        if self.coordinator is not None and values is not None:
            losses["loss_coordinator"] = self._coordinate(hidden_TBNH[:steps], state[:steps], values, filled, info)
        total = sum(losses.values(), start=torch.zeros_like(losses["loss_0"]))
        return {"loss": total, **losses, **info}

    def act_values(
        self, x_BNI: Tensor, states: Sequence[Tensor | None], levels: int
    ) -> tuple[list[Tensor], list[Tensor]]:
        """One step of the first `levels` sub-values.

        Parameters
        ----------
        x_BNI : Tensor, shape (B, N, I)
            Inputs of the step.
        states : sequence of Tensor of shape (B · N, H) or None
            Each level's recurrent state.
        levels : int
            How many are wanted.

        Returns
        -------
        q : list of Tensor, shape (B, N, A)
            Utilities.
        hidden : list of Tensor, shape (B · N, H)
            The recurrent states afterwards.
        """
        rows = x_BNI.flatten(0, 1).unsqueeze(0)
        q, hidden = [], []
        for net, state in zip(self.agents[:levels], states, strict=False):
            q_row, hidden_row = net(rows, state)
            q.append(q_row[0].unflatten(0, x_BNI.shape[:2]))
            hidden.append(hidden_row[0])
        return q, hidden

    @torch.no_grad()
    def joint_values(self, q: Sequence[Tensor], actions_KBN: Tensor, state_BS: Tensor) -> Tensor:
        """Each sub-value of a joint action of its own.

        Parameters
        ----------
        q : sequence of Tensor, shape (B, N, A)
            Utilities of each level.
        actions_KBN : Tensor of int64, shape (K + 1, B, N)
            The joint action of each level, its greedy one.
        state_BS : Tensor, shape (B, S)
            States.

        Returns
        -------
        Tensor, shape (K + 1, B)
            Q_k; the sum over agents where nothing mixes their values.
        """
        values = [
            self._mix(mixer, q_k, actions, state_BS, best=actions)
            for mixer, q_k, actions in zip(self.mixers, q, actions_KBN, strict=True)
        ]
        return torch.stack([value.sum(-1) for value in values] if self.mixer == "none" else values)

    def _online(self) -> list[AgentNet]:
        """The agent networks that learn: of the sub-values, then of Q*."""
        nets = [cast(AgentNet, net) for net in self.agents]
        return nets if self.critic is None else [*nets, self.critic.agent]

    def _inputs(self, obs_TBNO: Tensor, actions_TBN: Tensor) -> Tensor:
        last_TBN = torch.cat([torch.full_like(actions_TBN[:1], -1), actions_TBN])[: len(obs_TBNO)]
        if self.last_action and len(obs_TBNO) == 1:
            last_TBN = last_TBN[:, : obs_TBNO.shape[1]]
        x_TBNI = agent_inputs(
            obs_TBNO,
            last_TBN,
            n_actions=self.spec.n_actions,
            last_action=self.last_action,
            agent_id=self.agent_id,
        )
        return self._with_messages(x_TBNI) if self.comm else x_TBNI

    def _with_messages(self, x_TBNI: Tensor) -> Tensor:
        """Append the code of the step before: the recurrent states pass no gradient, the encoder takes one."""
        assert self.coordinator is not None
        net, hidden = cast(AgentNet, self.agents[0]), None
        shape = (*x_TBNI.shape[1:3],)
        before_BH = x_TBNI.new_zeros(shape[0], shape[1] * net.hidden)
        heard = []
        for x_BNI in x_TBNI:
            code = self.coordinator.encode(before_BH).unsqueeze(-2).expand(*shape, CODE)
            heard.append(torch.cat([x_BNI, code], -1))
            with torch.no_grad():
                _, hidden_1RH = net(heard[-1].flatten(0, 1).unsqueeze(0), hidden)
                hidden = hidden_1RH[0] if self.recurrent else None
                before_BH = hidden_1RH[0].unflatten(0, shape).flatten(1)
        return torch.stack(heard)

    def _mix(self, mixer: nn.Module, q: Tensor, actions: Tensor, state: Tensor, *, best: Tensor) -> Tensor:
        chosen = _chosen_of_all(q, actions)
        if self.mixer != "qplex":
            joint: Tensor = mixer(chosen, state)
            return joint
        known = one_hot(actions, self.spec.n_actions, dtype=q.dtype)
        state = state.expand(*actions.shape[:-1], -1)
        joint = mixer(chosen, state, best=chosen_values(q, best), actions=known)
        return joint

    def _own_bootstrap(self, x_TBNI: Tensor, state: Tensor, avail: Tensor, greedy_TBN: Tensor) -> Tensor:
        assert self.target_agent is not None and self.target_mixer is not None
        ((q, _),) = run_together([self.target_agent], x_TBNI)
        best = greedy_actions(q, avail)
        return self._mix(self.target_mixer, q, greedy_TBN if self.double_q else best, state, best=best)

    def _slow_reference(self, x_TBNI: Tensor, actions_KTBN: Tensor, state: Tensor) -> Tensor:
        """Q̄* of several joint actions a state, shape (K + 1, T, B)."""
        assert self.target_critic is not None
        ((q_TBNA, _),) = run_together([self.target_critic.agent], x_TBNI)
        values: Tensor = self.target_critic(_chosen_of_all(q_TBNA, actions_KTBN), state)
        return values

    def _returns(self, reward: Tensor, bootstrap: Tensor, terminated: Tensor, filled: Tensor) -> Tensor:
        steps, episodes = reward.shape[:2]
        bootstrap = bootstrap.expand(-1, episodes, *bootstrap.shape[2:])
        if len(bootstrap) == steps:
            bootstrap = torch.cat([bootstrap, torch.zeros_like(bootstrap[:1])])
        shape = (steps, *bootstrap.shape[1:])
        reward, terminated, filled = (x.expand(shape) for x in (reward, terminated, filled))
        return lambda_return(reward, bootstrap, terminated, filled, gamma=self.gamma, lam=self.td_lambda, dim=0)

    def _own_weight(self, residual: Tensor) -> Tensor:
        return underestimation_weight(residual, self.w_c) if self.weighting == "ow" else torch.ones_like(residual)

    def _level_losses(
        self,
        joint_K: Sequence[Tensor],
        target: Tensor,
        taken: Tensor,
        values_KTB: Tensor,
        hits_KTB: Tensor,
        filled: Tensor,
        info: dict[str, Tensor],
    ) -> dict[str, Tensor]:
        """Weighted squared errors of all sub-values; level k is suppressed where a lower level's greedy action was."""
        losses = {}
        hit = torch.zeros_like(hits_KTB[0])
        held = torch.zeros_like(taken)
        alpha = info["value_range"] / self.floor if self.alpha == "auto" else float(self.alpha)
        for k, joint in enumerate(joint_K):
            # Where the action was a lower level's greedy one, that level's value is the action's: nothing is evaluated.
            value, floor = (held, self.floor) if self.suppression == "paper" else (taken, None)
            residual = joint - suppressed_target(target, hit, value, alpha=alpha, floor=floor)
            weight = self._weight(k, residual.detach(), taken, values_KTB, hits_KTB[0])
            losses[f"loss_{k}"] = masked_mean(weight * residual.square(), filled)
            held = torch.where(hits_KTB[k], values_KTB[k], held)
            hit = hit | hits_KTB[k]
        return losses

    def _weight(self, level: int, residual: Tensor, taken: Tensor, values_KTB: Tensor, hit: Tensor) -> Tensor:
        if self.weighting == "none":
            return torch.ones_like(residual)
        if level > 0 or self.weighting == "ow":
            return underestimation_weight(residual, self.w_c)
        best = (taken >= values_KTB).all(0) if self.weighting == "s2q" else hit | (taken > values_KTB[0])
        return torch.where(best, torch.ones_like(taken), torch.full_like(taken, self.w_c))

    def _coordinate(
        self, hidden_TBNH: Tensor, state: Tensor, values_KTB: Tensor, filled: Tensor, info: dict[str, Tensor]
    ) -> Tensor:
        assert self.coordinator is not None
        guessed_state, logits_TBK = self.coordinator(hidden_TBNH.detach().flatten(-2))
        info["temperature"] = self._temperature(info["value_spread"])
        wanted = candidate_distribution(values_KTB, info["temperature"])
        log_wanted = torch.log_softmax(values_KTB / info["temperature"], 0)
        kl = (wanted * (log_wanted - torch.log_softmax(logits_TBK, -1).movedim(-1, 0))).sum(0)
        kl_mean = masked_mean(kl, filled)
        state_error = masked_mean((guessed_state - state).square().mean(-1), filled)
        info["kl"], info["state_error"] = kl_mean.detach(), state_error.detach()
        info["p_max"] = masked_mean(wanted.amax(0), filled)
        info["entropy"] = masked_mean(-(wanted * log_wanted).sum(0), filled)
        return self.coord_coef * kl_mean + state_error

    def _statistics(self, values_KTB: Tensor, filled: Tensor) -> dict[str, Tensor]:
        """The running range of Q̄* over a batch, and the running spread of a state's candidates."""
        real = filled > 0
        high = torch.where(real, values_KTB.amax(0), -torch.inf).amax()
        low = torch.where(real, values_KTB.amin(0), torch.inf).amin()
        spread = masked_mean(values_KTB.std(0, correction=0), filled)
        kept = AVERAGING * self.tracked
        return {
            "value_range": kept * self.value_range + (1 - kept) * (high - low),
            "value_spread": kept * self.value_spread + (1 - kept) * spread,
        }

    def _temperature(self, spread: Tensor) -> Tensor:
        if isinstance(self.temperature, str):
            return (self.temperature_factor * spread).clamp(min=SMALLEST_TEMPERATURE)
        return torch.full_like(spread, self.temperature)


def _chosen_of_all(q: Tensor, actions: Tensor) -> Tensor:
    """As `chosen_values`, for utilities that may have fewer or shorter leading axes than the actions."""
    return chosen_values(q.expand(*actions.shape, q.shape[-1]), actions)


def _frozen(module: M) -> M:
    frozen = copy.deepcopy(module)
    frozen.requires_grad_(False)
    return frozen


def _require_settings(*, K: int, mixer: str, central: bool, comm: bool, suppression: str, weighting: str) -> None:
    if K < 0:
        raise InputError(f"K is {K}", expected="0 or more further sub-values")
    if suppression not in SUPPRESSIONS:
        raise InputError(f"suppression '{suppression}'", expected=f"one of {', '.join(SUPPRESSIONS)}")
    if weighting not in WEIGHTINGS:
        raise InputError(f"weighting '{weighting}'", expected=f"one of {', '.join(WEIGHTINGS)}")
    if not central and (K > 0 or comm):
        raise InputError(f"K={K}, comm={comm} without a central value", expected="central=True")
    if not central and weighting in ("s2q", "cw"):
        raise InputError(f"weighting '{weighting}' without a central value", expected="ow or none")
    if mixer == "none" and central:
        raise InputError("mixer 'none' with a central value", expected="central=False, for independent values")


def _require_numbers(
    *, temperature: float | str, alpha: float | str, floor: float, w_c: float, gamma: float, td_lambda: float
) -> None:
    for name, value in {"temperature": temperature, "alpha": alpha}.items():
        if isinstance(value, str) and value != "auto":
            raise InputError(f"{name} '{value}'", expected="a positive number, or auto")
    for name, number in {"temperature": temperature, "alpha": alpha, "floor": floor}.items():
        if not isinstance(number, str) and not 0 < number < float("inf"):
            raise InputError(f"{name} is {number}", expected="a positive number")
    if not 0 < w_c <= 1:
        raise InputError(f"w_c is {w_c}", expected="above 0 and at most 1")
    for name, share in {"gamma": gamma, "td_lambda": td_lambda}.items():
        if not 0 <= share <= 1:
            raise InputError(f"{name} is {share}", expected="0 to 1")
