"""Games of one step, with all seeds trained as one batched problem.

Every parameter has a leading axis of seeds, and one traced program takes the gradients of `S2QLoss` for all of them:
the loss is the one that any environment is trained with. A game of one step has one observation, so that a batch of
episodes is known by how often each pair of joint action and reward occurs in it; the loss is evaluated once a pair,
weighted by that number, wherever there are fewer pairs than episodes. Axes: G seeds, L sub-values, N agents,
P parameters, U updates, E environments, B episodes of a batch, C joint actions, V payoffs one after the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, stack_module_state, vmap
from torch.fx.experimental.proxy_tensor import make_fx

from assay.core.errors import InputError
from assay.marl.environments.matrix import require_payoff
from assay.marl.losses import S2QLoss, candidate_distribution, chosen_values, greedy_actions
from assay.marl.monotone import joint_actions
from assay.marl.networks import agent_inputs, one_hot
from assay.marl.spec import EnvSpec

__all__ = ["ALGORITHMS", "SELECTORS", "OneStepRun", "OneStepSettings", "train_one_step"]

SELECTORS = ("coordinator", "oracle", "uniform", "independent", "greedy")
BLOCK = 256
"""Updates for which random numbers are drawn at once."""
STAYS = 100
"""Updates for which the optimum must be kept to count as found."""
SHARE_OF_SEEDS = 0.9
TRACED_FROM = 50
"""Tracing takes about as long as so many updates, so shorter runs do without."""

ALGORITHMS: Mapping[str, Mapping[str, Any]] = {
    "s2q": {},
    "qmix": {"K": 0, "central": False, "weighting": "none", "selector": "greedy"},
    "vdn": {"K": 0, "central": False, "weighting": "none", "selector": "greedy", "mixer": "vdn"},
    "iql": {"K": 0, "central": False, "weighting": "none", "selector": "greedy", "mixer": "none"},
    "owqmix": {"K": 0, "weighting": "ow", "w_c": 0.5, "selector": "greedy"},
    "cwqmix": {"K": 0, "weighting": "cw", "w_c": 0.5, "selector": "greedy"},
}
"""What each algorithm changes of the settings; all of them are the same code."""


@dataclass(frozen=True)
class OneStepSettings:
    """How a game of one step is learned; the defaults are those of the study.

    Parameters
    ----------
    K, mixer, central, temperature, suppression, alpha, floor, weighting, w_c
        As for `S2QLoss`.
    selector : str
        Who chooses the level that a team follows: ``coordinator`` (the learnt distribution), ``oracle`` (the exact
        one), ``uniform``, ``independent`` (each agent draws its own) or ``greedy`` (always level 0).
    mix : float
        The probability that an episode follows a drawn level at all.
    hidden, embed, hypernet, critic_width : int
        Sizes of the networks.
    environments : int
        Episodes collected before each gradient step, E.
    batch : int
        Episodes of a gradient step, B.
    replay : int
        Episodes that are kept.
    flush : bool
        Whether the replay is emptied when the payoff changes; without it, old rewards stay until they are pushed out.
    lr : float
        Adam's step size.
    clip : float
        Largest norm of a seed's gradient.
    epsilon_end : float
        Exploration falls linearly from 1 to this,
    epsilon_updates : int
        over so many updates.
    target_every : int
        Updates between copies to the target networks.
    noise : float
        Standard deviation of Gaussian noise on every reward.
    """

    K: int = 2
    mixer: str = "qmix"
    central: bool = True
    temperature: float | str = 1.0
    suppression: str = "paper"
    alpha: float | str = 1.0
    floor: float = 1.0
    weighting: str = "s2q"
    w_c: float = 0.9
    selector: str = "coordinator"
    mix: float = 1.0
    hidden: int = 32
    embed: int = 16
    hypernet: int = 32
    critic_width: int = 32
    environments: int = 8
    batch: int = 64
    replay: int = 1000
    flush: bool = False
    lr: float = 5e-3
    clip: float = 10.0
    epsilon_end: float = 0.05
    epsilon_updates: int = 800
    target_every: int = 25
    noise: float = 0.0

    def __post_init__(self) -> None:
        if self.selector not in SELECTORS:
            raise InputError(f"selector '{self.selector}'", expected=f"one of {', '.join(SELECTORS)}")
        for name in ("environments", "batch", "replay", "target_every", "epsilon_updates"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}", expected="at least 1")
        if self.replay < self.batch:
            raise InputError(f"replay is {self.replay}", expected=f"at least the batch's {self.batch} episodes")
        if not 0 <= self.mix <= 1:
            raise InputError(f"mix is {self.mix}", expected="a probability")


@dataclass(frozen=True)
class OneStepRun:
    """What happened in the games of all seeds.

    Attributes
    ----------
    payoffs : tuple of (int, ndarray)
        From which update on which payoff was in force.
    greedy : ndarray of uint8, shape (U, G, L, N)
        The greedy joint action of each level before each update.
    probabilities : ndarray of float32, shape (U, G, L)
        What the team's level was drawn from.
    entries : ndarray of int64, shape (U, G)
        How often level 0's joint action had been visited within the replay, before each update.
    values : ndarray of float32, shape (G, L, A, ..., A)
        The joint values of each level at the end.
    visits : ndarray of int64, shape (V, G, A, ..., A)
        How often each joint action was taken under each payoff.
    seconds : float
        Wall-clock time of the training, without tracing.
    environments : int
        Environment steps an update.
    """

    payoffs: tuple[tuple[int, NDArray[np.float64]], ...]
    greedy: NDArray[np.uint8]
    probabilities: NDArray[np.float32]
    entries: NDArray[np.int64]
    values: NDArray[np.float32]
    visits: NDArray[np.int64]
    seconds: float
    environments: int

    @property
    def returns(self) -> NDArray[np.float64]:
        """The payoff of each seed's greedy joint action at each update, shape (U, G)."""
        found = np.empty(self.greedy.shape[:2])
        for start, end, payoff in self._spans():
            found[start:end] = payoff[tuple(np.moveaxis(self.greedy[start:end, :, 0], -1, 0))]
        return found

    @property
    def optimal(self) -> NDArray[np.bool_]:
        """Whether each seed's greedy joint action has the highest payoff at each update, shape (U, G)."""
        found = self.returns
        for start, end, payoff in self._spans():
            found[start:end] -= payoff.max()
        return np.asarray(found == 0)

    def locked(self, update: int) -> NDArray[np.bool_]:
        """Whether each seed's level k is the joint action of rank k + 1 before an update, shape (G, L).

        Joint actions with equal payoffs share their ranks, and a level that repeats a lower one doesn't count.
        """
        payoff = next(payoff for start, payoff in reversed(self.payoffs) if start <= update)
        greedy = self.greedy[update].astype(np.int64)
        ranked = np.sort(payoff, axis=None)[::-1][: greedy.shape[1]]
        right = np.asarray(payoff[tuple(np.moveaxis(greedy, -1, 0))] == ranked)
        for level in range(1, greedy.shape[1]):
            right[:, level] &= (greedy[:, level, None] != greedy[:, :level]).any(axis=-1).all(axis=1)
        return right

    def lock_rate(self, update: int) -> NDArray[np.float64]:
        """The share of seeds whose level k is the joint action of rank k + 1 before an update, shape (L,)."""
        return np.asarray(self.locked(update).mean(axis=0))

    def recovery(self, change: int = 0, *, share: float = SHARE_OF_SEEDS) -> int | None:
        """Updates after the payoff came into force until a share of the seeds is optimal and stays so.

        Parameters
        ----------
        change : int
            Which of the payoffs.
        share : float
            The share of seeds.

        Returns
        -------
        int or None
            None where it never happens, or where fewer than the 100 updates that it must last are left.
        """
        start, end, _ = self._spans()[change]
        enough = self.optimal[start:end].mean(axis=1) >= share
        return _first_lasting(enough)

    def seeds_recovered(self, change: int = 0) -> NDArray[np.bool_]:
        """Which seeds are optimal over the last 100 updates of a payoff, shape (G,)."""
        _, end, _ = self._spans()[change]
        return np.asarray(self.optimal[max(0, end - STAYS) : end].all(axis=0))

    def _spans(self) -> list[tuple[int, int, NDArray[np.float64]]]:
        starts = [start for start, _ in self.payoffs]
        ends = [*starts[1:], len(self.greedy)]
        return [(start, end, payoff) for (start, payoff), end in zip(self.payoffs, ends, strict=True)]


def _first_lasting(enough: NDArray[np.bool_]) -> int | None:
    if len(enough) < STAYS:
        return None
    lasting = np.lib.stride_tricks.sliding_window_view(enough, STAYS).all(axis=1)
    return int(np.argmax(lasting)) if lasting.any() else None


def train_one_step(
    payoff: ArrayLike,
    algorithm: str = "s2q",
    *,
    shifts: Sequence[tuple[int, ArrayLike]] = (),
    updates: int = 3000,
    seeds: Sequence[int] = tuple(range(20)),
    settings: OneStepSettings | None = None,
    watch: Callable[[int], None] | None = None,
    **overrides: Any,
) -> OneStepRun:
    """Train an algorithm on a game of one step, for many seeds at once.

    Parameters
    ----------
    payoff : array_like, shape (A, ..., A)
        The team's reward for each joint action, one axis an agent.
    algorithm : str
        ``s2q``, ``qmix``, ``vdn``, ``iql``, ``owqmix`` or ``cwqmix``.
    shifts : sequence of (int, array_like)
        From which update on the payoff is another; all of the same shape.
    updates : int
        Gradient steps in all.
    seeds : sequence of int
        Seeds of the games; each seed's initial weights and random numbers depend on it alone.
    settings : OneStepSettings, optional
        The defaults when left out; what the algorithm and `overrides` change is changed in them.
    watch : callable, optional
        Called with the number of each update.
    **overrides : Any
        Fields of the settings.

    Returns
    -------
    OneStepRun

    Raises
    ------
    InputError
        A payoff isn't a hypercube of finite numbers, a shift isn't within the run, or a setting has no meaning.

    Examples
    --------
    >>> run = train_one_step([[1, 0], [0, 2]], "qmix", updates=150, seeds=(0, 1), epsilon_updates=50)
    >>> run.optimal[-1].tolist()
    [True, True]
    """
    if algorithm not in ALGORITHMS:
        raise InputError(f"algorithm '{algorithm}'", expected=f"one of {', '.join(ALGORITHMS)}")
    unknown = set(overrides) - {field.name for field in fields(OneStepSettings)}
    if unknown:
        raise InputError(f"{min(unknown)} is no setting of a one-step game", expected="a field of OneStepSettings")
    settings = replace(settings or OneStepSettings(), **{**ALGORITHMS[algorithm], **overrides})
    return _Trainer(_schedule(payoff, shifts, updates), updates, tuple(seeds), settings).run(watch)


def _schedule(
    payoff: ArrayLike, shifts: Sequence[tuple[int, ArrayLike]], updates: int
) -> tuple[tuple[int, NDArray[np.float64]], ...]:
    first = require_payoff(payoff)
    schedule = [(0, first)]
    for update, changed in shifts:
        later = require_payoff(changed, what=f"the payoff from update {update} on")
        if later.shape != first.shape:
            raise InputError(
                f"the payoff from update {update} on has the shape {later.shape}", expected=f"{first.shape}"
            )
        if not schedule[-1][0] < update < updates:
            raise InputError(f"the payoff changes at update {update}", expected=f"updates that rise, below {updates}")
        schedule.append((update, later))
    return tuple(schedule)


class _Game(nn.Module):
    """What a game asks of a learner's networks: its losses, its candidates, and its values of all joint actions."""

    def __init__(self, learner: S2QLoss, selector: str) -> None:
        super().__init__()
        self.learner, self.selector = learner, selector

    def forward(self, what: str, *given: Tensor) -> Any:
        parts: Mapping[str, Callable[..., Any]] = {
            "losses": self._losses,
            "candidates": self._candidates,
            "values": self._values,
        }
        return parts[what](*given)

    def _losses(self, actions_BTN: Tensor, reward_BT: Tensor, filled_BT: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        spec = self.learner.spec
        losses = self.learner(
            obs=torch.ones(1, 1, spec.n_agents, 1),
            state=torch.ones(1, 1, 1),
            actions=actions_BTN,
            avail=torch.ones(1, 1, spec.n_agents, spec.n_actions, dtype=torch.bool),
            reward=reward_BT,
            terminated=torch.ones_like(reward_BT),
            filled=filled_BT,
        )
        return losses["loss"], {name: losses[name] for name in ("value_range", "value_spread") if name in losses}

    def _inputs(self) -> Tensor:
        spec = self.learner.spec
        return agent_inputs(
            torch.ones(1, 1, spec.n_agents, 1),
            torch.full((1, 1, spec.n_agents), -1),
            n_actions=spec.n_actions,
            last_action=False,
            agent_id=True,
        )[0]

    def _utilities(self) -> tuple[Tensor, Tensor]:
        levels = self.learner.levels
        q, hidden = self.learner.act_values(self._inputs(), [None] * levels, levels)
        return torch.stack(q)[:, 0], hidden[0]

    def _candidates(self) -> tuple[Tensor, Tensor]:
        """The greedy joint actions, shape (L, N), and the distribution over them, shape (L,)."""
        q_LNA, hidden_NH = self._utilities()
        greedy_LN = greedy_actions(q_LNA, torch.ones_like(q_LNA, dtype=torch.bool))
        learner, levels = self.learner, self.learner.levels
        if self.selector == "greedy" or learner.coordinator is None:
            return greedy_LN, one_hot(torch.tensor(0), levels, dtype=q_LNA.dtype)
        if self.selector == "uniform":
            return greedy_LN, q_LNA.new_full((levels,), 1 / levels)
        if self.selector == "oracle":
            assert learner.target_critic is not None
            q_NA = learner.target_critic.agent(self._inputs())[0][0]
            chosen_LN = chosen_values(q_NA.expand(levels, -1, -1), greedy_LN)
            values_L = learner.target_critic(chosen_LN, q_LNA.new_ones(levels, 1))
            return greedy_LN, candidate_distribution(values_L, learner.current_temperature())
        _, logits = learner.coordinator(hidden_NH.flatten().unsqueeze(0))
        return greedy_LN, torch.softmax(logits[0], -1)

    def _values(self, actions_CN: Tensor) -> Tensor:
        """Every level's value of each joint action, shape (L, C)."""
        q_LNA, _ = self._utilities()
        known = one_hot(actions_CN, self.learner.spec.n_actions, dtype=q_LNA.dtype)
        state = q_LNA.new_ones(len(actions_CN), 1)
        values = []
        for mixer, q_NA in zip(self.learner.mixers, q_LNA, strict=True):
            chosen = chosen_values(q_NA.expand(len(actions_CN), -1, -1), actions_CN)
            best = q_NA.amax(-1).expand_as(chosen)
            joint = mixer(chosen, state, best=best, actions=known)
            values.append(joint.sum(-1) if self.learner.mixer == "none" else joint)
        return torch.stack(values)


class _Trainer:
    """The training loop over all seeds."""

    def __init__(
        self,
        payoffs: tuple[tuple[int, NDArray[np.float64]], ...],
        updates: int,
        seeds: tuple[int, ...],
        settings: OneStepSettings,
    ) -> None:
        if updates < 1 or not seeds:
            raise InputError(f"updates is {updates}, with {len(seeds)} seeds", expected="at least 1 of each")
        self.payoffs, self.updates, self.seeds, self.settings = payoffs, updates, seeds, settings
        shape = payoffs[0][1].shape
        self.shape, self.cells = shape, joint_actions(shape)
        self.rewards_VC = np.stack([payoff.ravel() for _, payoff in payoffs])
        self.merged = not settings.noise and self.rewards_VC.size <= settings.batch
        self.n, self.A, self.G = len(shape), shape[0], len(seeds)
        self._build_networks()
        self.rngs = [np.random.default_rng([seed, 1]) for seed in seeds]
        self.memory_cell = np.zeros((self.G, settings.replay), dtype=np.int64)
        self.memory_version = np.zeros((self.G, settings.replay), dtype=np.int64)
        self.memory_reward = np.zeros((self.G, settings.replay), dtype=np.float32)
        self.stored = self.written = 0

    def _build_networks(self) -> None:
        s = self.settings
        spec = EnvSpec(self.n, self.A, obs_size=1, state_size=1, horizon=1, name="one-step game", agent_ids=True)
        learners = [
            S2QLoss(
                spec,
                K=s.K,
                mixer=s.mixer,
                central=s.central,
                recurrent=False,
                hidden=s.hidden,
                embed=s.embed,
                hypernet=s.hypernet,
                critic_width=s.critic_width,
                temperature=s.temperature,
                suppression=s.suppression,
                alpha=s.alpha,
                floor=s.floor,
                weighting=s.weighting,
                w_c=s.w_c,
                last_action=False,
                seed=seed,
            )
            for seed in self.seeds
        ]
        games = [_Game(learner, s.selector) for learner in learners]
        self.game = games[0]
        every, self.buffers = stack_module_state(games)
        trainable = [name for name, parameter in self.game.named_parameters() if parameter.requires_grad]
        self.fixed = {name: value.detach() for name, value in every.items() if name not in trainable}
        self.flat_GP = torch.cat([every[name].detach().reshape(self.G, -1) for name in trainable], 1)
        self.learnt: dict[str, Tensor] = {}
        start = 0
        for name in trainable:
            shape = every[name].shape
            size = every[name][0].numel()
            self.learnt[name] = self.flat_GP[:, start : start + size].view(shape)
            start += size
        self.copies = [(value, self.learnt[_source_of(name)]) for name, value in self.fixed.items() if _source_of(name)]
        self.flat_GP.requires_grad_(True)
        self.optimizer = torch.optim.Adam([self.flat_GP], lr=s.lr)

    def _losses(
        self, learnt: dict[str, Tensor], rest: dict[str, Tensor], actions: Tensor, reward: Tensor, filled: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        found: tuple[Tensor, dict[str, Tensor]] = functional_call(
            self.game, {**rest, **learnt}, ("losses", actions, reward, filled)
        )
        return found

    def _candidates(self, values: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        found: tuple[Tensor, Tensor] = functional_call(self.game, values, ("candidates",))
        return found

    @torch.no_grad()
    def run(self, watch: Callable[[int], None] | None) -> OneStepRun:
        s, G, L = self.settings, self.G, self.game.learner.levels
        example = self._merged_batch if self.merged else self._plain_batch
        candidates: Callable[..., Any] = vmap(self._candidates)
        gradients: Callable[..., Any] = vmap(grad_and_value(self._losses, has_aux=True))
        if self.updates >= TRACED_FROM:
            rest = {**self.fixed, **self.buffers}
            candidates = _traced(candidates, {**rest, **self.learnt})
            gradients = _traced(gradients, self.learnt, rest, *example(np.zeros((G, s.batch))))
        greedy_UGLN = np.empty((self.updates, G, L, self.n), dtype=np.uint8)
        probabilities_UGL = np.empty((self.updates, G, L), dtype=np.float32)
        entries_UG = np.empty((self.updates, G), dtype=np.int64)
        visits_VGC = np.zeros((len(self.payoffs), G, len(self.cells)), dtype=np.int64)
        begun = time.perf_counter()
        warm_up = -(-s.batch // s.environments)
        version = 0
        for step in range(self.updates + warm_up - 1):
            update = step - warm_up + 1
            if version + 1 < len(self.payoffs) and update >= self.payoffs[version + 1][0]:
                version += 1
                if s.flush:
                    self.stored = self.written = 0
            at = step % BLOCK
            if at == 0:
                draws = self._draws()
            greedy_GLN, probability_GL = (x.numpy() for x in candidates({**self.fixed, **self.buffers, **self.learnt}))
            self._collect(greedy_GLN, probability_GL, draws, at, max(update, 0), version, visits_VGC)
            if update < 0:
                continue
            greedy_UGLN[update], probabilities_UGL[update] = greedy_GLN, probability_GL
            top_G = np.ravel_multi_index(tuple(np.moveaxis(greedy_GLN[:, 0], -1, 0)), self.shape)
            entries_UG[update] = (self.memory_cell[:, : self.stored] == top_G[:, None]).sum(axis=1)
            if self.stored >= s.batch:
                self._learn(gradients, example(draws["batch"][:, at]), update)
            if watch is not None:
                watch(update)
        values = vmap(lambda values: functional_call(self.game, values, ("values", torch.from_numpy(self.cells))))(
            {**self.fixed, **self.buffers, **self.learnt}
        )
        return OneStepRun(
            payoffs=self.payoffs,
            greedy=greedy_UGLN,
            probabilities=probabilities_UGL,
            entries=entries_UG,
            values=values.numpy().reshape(G, L, *self.shape),
            visits=visits_VGC.reshape(len(self.payoffs), G, *self.shape),
            seconds=time.perf_counter() - begun,
            environments=s.environments,
        )

    def _draws(self) -> dict[str, NDArray[np.float64]]:
        """Uniform numbers for a block of updates, from each seed's own stream, shapes (G, block, ...)."""
        E, n, B = self.settings.environments, self.n, self.settings.batch
        shapes = {"mode": (E,), "level": (E, n), "explore": (E, n), "action": (E, n), "batch": (B,), "noise": (E,)}
        return {
            name: np.stack(
                [
                    rng.standard_normal((BLOCK, *shape)) if name == "noise" else rng.random((BLOCK, *shape))
                    for rng in self.rngs
                ]
            )
            for name, shape in shapes.items()
        }

    def _collect(
        self,
        greedy_GLN: NDArray[np.int64],
        probability_GL: NDArray[np.float32],
        draws: Mapping[str, NDArray[np.float64]],
        at: int,
        update: int,
        version: int,
        visits_VGC: NDArray[np.int64],
    ) -> None:
        """One episode in each environment: a level for the team (or each agent), then ε-greedy actions."""
        s, G = self.settings, self.G
        level_GEN = np.zeros((G, s.environments, self.n), dtype=np.int64)
        if s.selector != "greedy" and probability_GL.shape[1] > 1:
            drawn = draws["level"][:, at]
            if s.selector != "independent":
                drawn = np.broadcast_to(drawn[..., :1], drawn.shape)
            cumulative_GL = np.cumsum(probability_GL, axis=1, dtype=np.float64)[:, :-1]
            mixed_GE1 = draws["mode"][:, at, :, None] < s.mix
            level_GEN = mixed_GE1 * (drawn[..., None] >= cumulative_GL[:, None, None]).sum(axis=-1)
        seed_G11, agent_N = np.arange(G)[:, None, None], np.arange(self.n)
        actions_GEN = greedy_GLN[seed_G11, level_GEN, agent_N]
        epsilon = 1 + min(1.0, update / s.epsilon_updates) * (s.epsilon_end - 1)
        random_GEN = np.minimum((draws["action"][:, at] * self.A).astype(np.int64), self.A - 1)
        actions_GEN = np.where(draws["explore"][:, at] < epsilon, random_GEN, actions_GEN)
        cell_GE = np.ravel_multi_index(tuple(np.moveaxis(actions_GEN, -1, 0)), self.shape)
        reward_GE = self.rewards_VC[version, cell_GE] + s.noise * draws["noise"][:, at]
        np.add.at(visits_VGC[version], (np.arange(G)[:, None], cell_GE), 1)
        places = (self.written + np.arange(s.environments)) % s.replay
        self.memory_cell[:, places], self.memory_reward[:, places] = cell_GE, reward_GE
        self.memory_version[:, places] = version
        self.written = (self.written + s.environments) % s.replay
        self.stored = min(self.stored + s.environments, s.replay)

    def _sampled(self, draws_GB: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return np.arange(self.G)[:, None], (draws_GB * self.stored).astype(np.int64)

    def _merged_batch(self, draws_GB: NDArray[np.float64]) -> tuple[Tensor, Tensor, Tensor]:
        """Each pair of payoff and joint action as an episode; `filled` says how often it was sampled."""
        rows, chosen = self._sampled(draws_GB)
        versions, cells = self.rewards_VC.shape
        pair = (rows * versions + self.memory_version[rows, chosen]) * cells + self.memory_cell[rows, chosen]
        counts = np.bincount(pair.ravel(), minlength=self.G * versions * cells).reshape(self.G, -1, 1)
        actions = torch.from_numpy(np.tile(self.cells, (versions, 1)))[None, :, None].expand(self.G, -1, -1, -1)
        reward = torch.from_numpy(self.rewards_VC.astype(np.float32).reshape(1, -1, 1)).expand(self.G, -1, -1)
        return actions, reward, torch.from_numpy(counts.astype(np.float32))

    def _plain_batch(self, draws_GB: NDArray[np.float64]) -> tuple[Tensor, Tensor, Tensor]:
        rows, chosen = self._sampled(draws_GB)
        actions = self.cells[self.memory_cell[rows, chosen]][:, :, None]
        reward = torch.from_numpy(self.memory_reward[rows, chosen][:, :, None])
        return torch.from_numpy(actions), reward, torch.ones_like(reward)

    def _learn(self, gradients: Callable[..., Any], batch: tuple[Tensor, Tensor, Tensor], update: int) -> None:
        found, (_, tracked) = gradients(self.learnt, {**self.fixed, **self.buffers}, *batch)
        flat_GP = torch.cat([found[name].reshape(self.G, -1) for name in self.learnt], 1)
        norm_G1 = flat_GP.norm(dim=1, keepdim=True)
        self.flat_GP.grad = flat_GP * (self.settings.clip / (norm_G1 + 1e-6)).clamp(max=1.0)
        self.optimizer.step()
        if tracked:
            self.buffers["learner.value_range"].copy_(tracked["value_range"])
            self.buffers["learner.value_spread"].copy_(tracked["value_spread"])
            self.buffers["learner.tracked"].fill_(1.0)
        if (update + 1) % self.settings.target_every == 0:
            for copy, source in self.copies:
                copy.copy_(source)


def _source_of(name: str) -> str:
    """The parameter that a target copy's parameter is a copy of."""
    for copy, source in (("target_critic.", "critic."), ("target_agent.", "agents.0."), ("target_mixer.", "mixers.0.")):
        if name.startswith(f"learner.{copy}"):
            return f"learner.{source}{name.removeprefix(f'learner.{copy}')}"
    return ""


def _traced(function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
    """The function as a flat program of array operations, without the cost of batching and differentiating anew."""
    program = make_fx(lambda *given: function(*given))(*arguments)
    program.graph.eliminate_dead_code()
    program.recompile()
    return program
