"""The learners: S2Q, and QMIX, VDN, weighted QMIX and independent Q-learning as the same code with a switch."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.core.device import resolve_device, resolve_dtype
from assay.core.errors import AssayError, InputError
from assay.core.interruption import stop_between_steps
from assay.marl.checkpoint import read_checkpoint, write_checkpoint
from assay.marl.environments.vector import Frame, VecEnv, require_finite, require_some_action
from assay.marl.losses import S2QLoss, candidate_distribution
from assay.marl.replay import Episode, EpisodeBatch, EpisodeReplay
from assay.marl.selection import (
    Choice,
    LinearSchedule,
    TeamMemory,
    choose_actions,
    choose_levels,
    require_selector,
)
from assay.marl.settings import Settings
from assay.marl.spec import EnvSpec

__all__ = ["IQL", "QMIX", "S2Q", "VDN", "WQMIX", "Candidates", "Evaluation", "Learner", "load_learner"]

ONE_SIDED = 0.999
"""Where the likeliest level is likelier than this for a whole window, the others are never tried."""

Row = dict[str, float]
Callback = Callable[["Learner", Row], object]


@dataclass(frozen=True)
class Candidates:
    """The joint actions that a learner holds for a state, the level's number first.

    Attributes
    ----------
    actions : (K + 1, n) array of int64
        Each level's greedy joint action.
    reference : (K + 1,) array of float
        Q̄* of them; NaN for learners without a central value.
    values : (K + 1,) array of float
        Q_k of them; the sum of the agents' values where nothing mixes them.
    probability : (K + 1,) array of float
        P.
    """

    actions: NDArray[np.int64]
    reference: NDArray[np.float64]
    values: NDArray[np.float64]
    probability: NDArray[np.float64]


@dataclass(frozen=True)
class Evaluation:
    """Episodes with ε = 0 and k = 0.

    Attributes
    ----------
    returns : (episodes,) array of float
        Sums of rewards, undiscounted, in the environment's own unit.
    lengths : (episodes,) array of int64
        Steps.
    """

    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]

    @property
    def mean(self) -> float:
        """The mean return."""
        return float(self.returns.mean())


@dataclass
class _Played:
    """What a batch of episodes was like."""

    episodes: list[Episode]
    returns: NDArray[np.float64]
    entropy: float
    coordination: float


class Learner:
    """A team's sub-values, how they are learnt, and everything needed to go on later.

    Parameters
    ----------
    spec : EnvSpec
        The environment's sizes.
    settings : Settings, optional
        How it learns.
    seed : int
        Where all its chance comes from.

    Attributes
    ----------
    steps, episodes, updates : int
        What it has seen and done.
    log : list of dict
        One row a report: ``steps``, ``episodes``, ``updates``, ``seconds``, ``steps_per_second``, ``epsilon``,
        ``train_return``, ``entropy`` of the distribution that levels are drawn from in the episodes that draw,
        ``coordination`` (the share of drawn steps in which all agents followed one level), the means of the losses
        since the last report, and ``eval_return`` and ``eval_length`` where it was evaluated.

    Raises
    ------
    InputError
        A setting has no meaning.

    Examples
    --------
    >>> spec = EnvSpec(n_agents=2, n_actions=3, obs_size=4, state_size=5, horizon=6)
    >>> Learner(spec, Settings(K=1, mixer="vdn", hidden=8), seed=0).act(np.zeros((2, 4))).shape
    (2,)
    """

    algorithm: ClassVar[str] = "learner"

    def __init__(self, spec: EnvSpec, settings: Settings | None = None, *, seed: int = 0) -> None:
        self.spec, self.settings, self.seed = spec, settings or Settings(), seed
        s = self.settings
        require_selector(s.selector, central=s.central)
        self.device, self.dtype = resolve_device(s.device), resolve_dtype(s.dtype)
        self.loss = S2QLoss(spec, seed=seed, **s.for_loss()).to(self.device, self.dtype)
        self._program = torch.compile(self.loss) if s.compile else self.loss
        self._trained = [parameter for parameter in self.loss.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.Adam(self._trained, lr=s.learning_rate, fused=True)
        self.replay = EpisodeReplay(spec, capacity=s.buffer_size)
        self.epsilon = LinearSchedule(s.epsilon_start, s.epsilon_end, s.epsilon_steps)
        streams = np.random.SeedSequence(seed).spawn(3)
        self._explore_rng, self._level_rng, self._replay_rng = (np.random.default_rng(stream) for stream in streams)
        self.steps = self.episodes = self.updates = 0
        self._owed = self._since_targets = 0
        self.seconds = 0.0
        self.log: list[Row] = []
        self._window: dict[str, list[float]] = {}
        self._env: VecEnv | None = None
        self._env_state: Mapping[str, Any] | None = None
        self._memory: TeamMemory | None = None
        self._asked_to_stop: Callable[[], bool] = _never

    def fit(
        self,
        env: VecEnv,
        total_steps: int,
        *,
        eval_every: int | None = None,
        eval_episodes: int = 32,
        eval_env: VecEnv | None = None,
        eval_seed: int = 20_000,
        log_every: int | None = None,
        callbacks: Sequence[Callback] = (),
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: int | None = None,
    ) -> list[Row]:
        """Learn until `total_steps` environment steps have been made, those of earlier calls included.

        Parameters
        ----------
        env : VecEnv
            Where to learn. Random numbers go on from where a loaded checkpoint left them.
        total_steps : int
            When to stop. The episodes that are running then are finished.
        eval_every : int, optional
            Environment steps between evaluations; none if left out.
        eval_episodes : int
            Episodes of an evaluation.
        eval_env : VecEnv, optional
            Where to evaluate; `env` if left out, whose course isn't changed by it.
        eval_seed : int
            With which evaluations start, so that all see the same episodes' beginnings.
        log_every : int, optional
            Environment steps between rows of the log; `eval_every` if left out, or a hundredth of `total_steps`.
        callbacks : sequence of callable
            Each is called with the learner and every new row.
        checkpoint : path, optional
            Written, over an older one, now and then, at the end, and when learning is stopped by Ctrl-C or by an error.
        checkpoint_every : int, optional
            Environment steps between checkpoints; as between rows if left out.

        Returns
        -------
        list of dict
            The log, from the first step on.

        Raises
        ------
        InputError
            The environment has other sizes, gives NaN or infinity, or leaves an agent without an action.
        AssayError
            The loss or its gradient is no longer finite.
        KeyboardInterrupt
            After Ctrl-C, when the checkpoint is written.
        """
        self._require_env(env)
        self._env = env
        if self._env_state is not None:
            env.set_rng_state(dict(self._env_state))
            self._env_state = None
        log_every = log_every or eval_every or max(1, total_steps // 100)
        rows, evals = _Ticks(log_every, self.steps), _Ticks(eval_every, self.steps)
        checkpoints = _Ticks(checkpoint_every or log_every, self.steps)
        evaluated = {"env": eval_env or env, "episodes": eval_episodes, "seed": eval_seed}
        began, before = time.perf_counter(), self.seconds
        try:
            with stop_between_steps() as self._asked_to_stop:
                while self.steps < total_steps:
                    self._collect_and_learn(env)
                    self.seconds = before + time.perf_counter() - began
                    last = self.steps >= total_steps
                    evaluates = evals.due(self.steps) or (last and eval_every is not None)
                    if rows.due(self.steps) or evaluates or last:
                        self._report(evaluated if evaluates else None, callbacks)
                    if checkpoint is not None and (checkpoints.due(self.steps) or last):
                        self.save(checkpoint, force=True)
                if self._asked_to_stop():
                    raise KeyboardInterrupt
        except (KeyboardInterrupt, AssayError):
            if checkpoint is not None:
                self.save(checkpoint, force=True)
            raise
        finally:
            self._asked_to_stop = _never
        return self.log

    def update(self, batch: EpisodeBatch | None = None) -> dict[str, float]:
        """One gradient step.

        Parameters
        ----------
        batch : EpisodeBatch, optional
            On what; drawn from the replay if left out.

        Returns
        -------
        dict of str to float
            The losses before the step, and ``gradient_norm``.

        Raises
        ------
        AssayError
            Loss or gradient isn't finite. Nothing was changed then.
        """
        s = self.settings
        if batch is None:
            batch = self.replay.sample(s.batch_size, self._replay_rng, bucket=s.bucket)
        losses: dict[str, Tensor] = self._program(**batch.to(self.device, self.dtype).as_dict())
        self.optimizer.zero_grad(set_to_none=True)
        losses["loss"].backward()
        norm = torch.nn.utils.clip_grad_norm_(self._trained, s.clip)
        numbers = torch.stack([value.detach() for value in losses.values()] + [norm.detach()]).tolist()
        found = dict(zip([*losses, "gradient_norm"], numbers, strict=True))
        if not np.isfinite([found["loss"], found["gradient_norm"]]).all():
            raise AssayError(
                f"the loss is {found['loss']:g} and its gradient's norm {found['gradient_norm']:g} at update "
                f"{self.updates + 1}; the weights are those of the last good step"
            )
        self.optimizer.step()
        self.loss.track(losses)
        self.updates += 1
        return found

    def _collect_and_learn(self, env: VecEnv) -> None:
        """One batch of episodes and the gradient steps that it pays for; whole, or nothing but its warnings."""
        chance = self._chance(env)
        try:
            played = self._play(env)
        except BaseException:
            self._restore_chance(env, chance)
            raise
        s = self.settings
        for episode in played.episodes:
            self.replay.add(episode)
            self.steps += episode.length
        self.episodes += len(played.episodes)
        self._owed += len(played.episodes)
        self._since_targets += len(played.episodes)
        self._note(train_return=float(played.returns.mean()), entropy=played.entropy, coordination=played.coordination)
        if len(self.replay) < min(s.batch_size, s.buffer_size):
            self._owed %= s.episodes_per_update
        while self._owed >= s.episodes_per_update:
            self._owed -= s.episodes_per_update
            self._note(**self.update())
        if self._since_targets >= s.target_every:
            self._since_targets = 0
            self.loss.update_targets()

    def _play(self, env: VecEnv) -> _Played:
        """An episode in every instance."""
        s = self.settings
        mixed = self._level_rng.random(env.n) < s.mix
        if self.updates == 0 or s.K == 0 or s.selector == "greedy":
            mixed[:] = False
        levels = s.K + 1 if mixed.any() else 1
        memory = TeamMemory(
            self.loss,
            env.n,
            levels=levels,
            reference=s.selector == "oracle" and bool(mixed.any()),
            hears=self.updates > 0,
        )
        frame = env.reset()
        frames: list[Frame] = [frame]
        choices: list[NDArray[np.int64]] = []
        rewards: list[NDArray[np.float32]] = []
        raw: list[NDArray[np.float32]] = []
        running = np.ones(env.n, np.bool_)
        length, terminated = np.zeros(env.n, np.int64), np.zeros(env.n, np.bool_)
        entropies, together, drawn = 0.0, 0, 0
        while running.any():
            if self._asked_to_stop():
                raise KeyboardInterrupt
            step = len(choices)
            _check_frame(frame, running, step=step)
            choice = self._choose(memory, frame, mixed, self.epsilon(self.steps + int(length.sum())))
            draws = mixed & running
            drawn += int(draws.sum())
            entropies += float(_entropy(choice.probability)[draws].sum())
            together += int((choice.levels == choice.levels[:, :1]).all(1)[draws].sum())
            outcome = env.step(choice.actions)
            require_finite(np.where(running, outcome.reward, 0), "reward", step=step)
            choices.append(choice.actions)
            rewards.append(np.where(running, outcome.reward, 0))
            raw.append(np.where(running, outcome.info.get("raw_reward", outcome.reward), 0))
            length += running
            terminated |= outcome.terminated & running
            _check_frame(outcome, running & ~outcome.terminated, step=step + 1)
            running &= ~(outcome.terminated | outcome.truncated)
            frame = outcome
            frames.append(outcome)
        return _Played(
            _cut(frames, np.stack(choices), np.stack(rewards), length, terminated),
            np.stack(raw).sum(0, dtype=np.float64),
            entropies / drawn if drawn else float("nan"),
            together / drawn if drawn else float("nan"),
        )

    def _choose(self, memory: TeamMemory, frame: Frame, mixed: NDArray[np.bool_], epsilon: float) -> Choice:
        s = self.settings
        _, greedy = memory.look(frame.obs, frame.avail)
        if memory.levels == 1:
            probability = np.ones((memory.instances, 1))
        elif s.selector == "uniform":
            probability = np.full((memory.instances, memory.levels), 1 / memory.levels)
        elif s.selector == "oracle":
            probability = memory.oracle_distribution(greedy, frame.state)
        else:
            probability = memory.coordinator_distribution()
        levels = choose_levels(
            probability, mixed, self.spec.n_agents, shared=s.selector != "independent", rng=self._level_rng
        )
        wanted = np.take_along_axis(greedy, levels[None], 0)[0]
        actions = choose_actions(wanted, frame.avail, epsilon=epsilon, rng=self._explore_rng)
        memory.last_actions = actions
        return Choice(actions, levels, probability)

    def evaluate(self, env: VecEnv, episodes: int = 32, *, seed: int | None = None) -> Evaluation:
        """Play greedily with Q₀ alone.

        Parameters
        ----------
        env : VecEnv
            Where; its random numbers are put back afterwards.
        episodes : int
            How many.
        seed : int, optional
            With which the environment starts.

        Returns
        -------
        Evaluation
        """
        self._require_env(env)
        if episodes < 1:
            raise InputError(f"episodes is {episodes}", expected="at least 1")
        state = env.get_rng_state()
        returns: list[float] = []
        lengths: list[int] = []
        try:
            while len(returns) < episodes:
                sums, steps = self._play_greedily(env, seed if not returns else None)
                returns.extend(sums.tolist())
                lengths.extend(steps.tolist())
        finally:
            env.set_rng_state(state)
        return Evaluation(np.array(returns[:episodes]), np.array(lengths[:episodes]))

    def act(
        self,
        obs: NDArray[np.floating[Any]],
        avail: NDArray[np.bool_] | None = None,
        state: NDArray[np.floating[Any]] | None = None,
    ) -> NDArray[np.int64]:
        """The team's actions: each agent's best by Q₀, given what it has seen since `reset`.

        Parameters
        ----------
        obs : (n, O) or (N, n, O) array of float
            Observations, of one team or of N.
        avail : array of bool, shape (n, A) or (N, n, A), optional
            Available actions; all if left out.
        state : array of float, optional
            Not needed to act; taken so that loops can hand over all they have.

        Returns
        -------
        (n,) or (N, n) array of int64

        Raises
        ------
        InputError
            A shape is wrong, or an agent has no available action.
        """
        teams, single = self._teams(obs)
        mask = self._mask(avail, teams)
        if self._memory is None or self._memory.instances != len(teams):
            self._memory = TeamMemory(self.loss, len(teams), levels=1, hears=self.updates > 0)
        everyone = np.ones(len(teams), np.bool_)
        require_some_action(mask, everyone, step=0)
        require_finite(teams, "observation", step=0)
        _, greedy = self._memory.look(teams, mask)
        actions: NDArray[np.int64] = greedy[0]
        self._memory.last_actions = actions
        return actions[0] if single else actions

    def reset(self, mask: NDArray[np.bool_] | None = None) -> None:
        """Forget what `act` has seen.

        Parameters
        ----------
        mask : (N,) array of bool, optional
            Of which teams; of all if left out.
        """
        if mask is None or self._memory is None:
            self._memory = None
            return
        wanted = np.asarray(mask, np.bool_)
        if wanted.shape != (self._memory.instances,):
            raise InputError(f"mask has the shape {wanted.shape}", expected=f"({self._memory.instances},)")
        self._memory.reset(wanted)

    @torch.no_grad()
    def candidates(
        self,
        obs: NDArray[np.floating[Any]],
        state: NDArray[np.floating[Any]] | None = None,
        avail: NDArray[np.bool_] | None = None,
        *,
        actions: NDArray[np.integer[Any]] | None = None,
    ) -> Candidates:
        """The joint actions that the levels hold, with their values.

        Parameters
        ----------
        obs : (n, O) or (T, n, O) array of float
            Observations of an episode's first step, or of its first T steps, of which the last is asked about.
        state : (S,) or (T, S) array of float, optional
            The states; the joined observations if left out, where they have that size.
        avail : (n, A) or (T, n, A) array of bool, optional
            Available actions; all if left out.
        actions : (T − 1, n) array of integers, optional
            What was done before; needed with more than one step.

        Returns
        -------
        Candidates

        Raises
        ------
        InputError
            A shape is wrong.
        """
        history, single = self._teams(obs)
        mask = self._mask(avail, history)
        steps = len(history)
        if steps > 1 and (actions is None or np.shape(actions) != (steps - 1, self.spec.n_agents)):
            raise InputError(
                f"actions have the shape {None if actions is None else np.shape(actions)}",
                expected=f"{(steps - 1, self.spec.n_agents)}, what was done before the last step",
            )
        states = self._states(state, history, single=single)
        memory = TeamMemory(
            self.loss, 1, levels=self.loss.levels, reference=self.settings.central, hears=self.updates > 0
        )
        reference: Tensor | None = None
        for t in range(steps):
            q, greedy = memory.look(history[t : t + 1], mask[t : t + 1])
            if self.settings.central:
                reference = memory.reference_values(greedy, states[t : t + 1])[:, 0]
            if actions is not None and t < steps - 1:
                memory.last_actions = np.asarray(actions[t : t + 1], np.int64)
        own = self.loss.joint_values(q, torch.from_numpy(greedy).to(self.device), memory.tensor(states[-1:]))[:, 0]
        if reference is None:
            reference, probability = torch.full_like(own, torch.nan), torch.ones_like(own)
        else:
            probability = candidate_distribution(reference, self.loss.current_temperature())
        numbers = [x.double().cpu().numpy() for x in (reference, own, probability)]
        return Candidates(greedy[:, 0], *numbers)

    def save(self, path: str | os.PathLike[str], *, replay: bool = True, force: bool = False) -> None:
        """Write everything: all networks, the optimiser, the replay, random numbers, schedules, settings, the log.

        Parameters
        ----------
        path : path
            The file, of safetensors.
        replay : bool
            Whether the episodes are written too. Without, the file is small and good for acting, and learning goes on
            with an empty replay.
        force : bool
            Replace an existing file.

        Raises
        ------
        InputError
            The file exists already, or can't be written.
        """
        arrays = {f"loss.{name}": _array(value) for name, value in self.loss.state_dict().items()}
        for index, parameter in enumerate(self._trained):
            for name, value in self.optimizer.state.get(parameter, {}).items():
                arrays[f"optimizer.{index}.{name}"] = _array(value)
        if replay:
            arrays |= {f"replay.{name}": array for name, array in self.replay.state_dict().items()}
        counts = ("steps", "episodes", "updates", "_owed", "_since_targets", "seconds")
        facts = {
            "algorithm": self.algorithm,
            "spec": asdict(self.spec),
            "settings": asdict(self.settings),
            "seed": self.seed,
            "counts": {name: getattr(self, name) for name in counts},
            "chance": self._chance(self._env),
            "log": self.log,
            "window": self._window,
        }
        write_checkpoint(path, arrays, facts, force=force)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, device: str | None = None) -> Self:
        """Read what `save` wrote; `fit` then goes on bit for bit, on one machine with one device.

        Parameters
        ----------
        path : path
            The file.
        device : str, optional
            Where the networks shall be, if not where they were.

        Returns
        -------
        Learner
            Of the class that was saved.

        Raises
        ------
        InputError
            The file is missing, damaged, or holds another kind of learner.
        """
        arrays, facts = read_checkpoint(path)
        kind = _ALGORITHMS.get(facts["algorithm"])
        if kind is None or not issubclass(kind, cls):
            raise InputError(f"holds the learner {facts['algorithm']}", file=path, expected=cls.__name__)
        settings = Settings(**facts["settings"])
        learner = kind.__new__(kind)
        Learner.__init__(
            learner,
            EnvSpec(**facts["spec"]),
            settings if device is None else settings.changed(device=device),
            seed=facts["seed"],
        )
        learner._restore(arrays, facts)
        return learner

    def _restore(self, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> None:
        def under(prefix: str) -> dict[str, NDArray[Any]]:
            return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}

        self.loss.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in under("loss.").items()})
        for index, parameter in enumerate(self._trained):
            moments = under(f"optimizer.{index}.")
            if moments:
                self.optimizer.state[parameter] = {
                    name: torch.from_numpy(array.copy()).to(self.device) for name, array in moments.items()
                }
        replay = under("replay.")
        if replay:
            self.replay.load_state_dict(replay)
        for name, value in facts["counts"].items():
            setattr(self, name, value)
        self.log = facts["log"]
        self._window = facts["window"]
        self._restore_chance(None, facts["chance"])
        self._env_state = facts["chance"]["env"]

    def _chance(self, env: VecEnv | None) -> dict[str, Any]:
        """Where all random numbers stand."""
        return {
            "explore": self._explore_rng.bit_generator.state,
            "level": self._level_rng.bit_generator.state,
            "replay": self._replay_rng.bit_generator.state,
            "env": self._env_state if env is None else env.get_rng_state(),
        }

    def _restore_chance(self, env: VecEnv | None, chance: Mapping[str, Any]) -> None:
        self._explore_rng.bit_generator.state = chance["explore"]
        self._level_rng.bit_generator.state = chance["level"]
        self._replay_rng.bit_generator.state = chance["replay"]
        if env is not None:
            env.set_rng_state(chance["env"])

    def _play_greedily(self, env: VecEnv, seed: int | None) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        memory = TeamMemory(self.loss, env.n, levels=1, hears=self.updates > 0)
        frame = env.reset(seed) if seed is not None else env.reset()
        running = np.ones(env.n, np.bool_)
        sums, length = np.zeros(env.n), np.zeros(env.n, np.int64)
        while running.any():
            if self._asked_to_stop():
                raise KeyboardInterrupt
            _check_frame(frame, running, step=int(length.max()))
            _, greedy = memory.look(frame.obs, frame.avail)
            memory.last_actions = greedy[0]
            outcome = env.step(greedy[0])
            sums += np.where(running, outcome.info.get("raw_reward", outcome.reward), 0)
            length += running
            running &= ~(outcome.terminated | outcome.truncated)
            frame = outcome
        return sums, length

    def _note(self, **numbers: float) -> None:
        for name, number in numbers.items():
            self._window.setdefault(name, []).append(number)

    def _report(self, evaluated: Mapping[str, Any] | None, callbacks: Sequence[Callback]) -> None:
        past = self.log[-1] if self.log else {"steps": 0, "seconds": 0.0}
        taken = self.seconds - past["seconds"]
        row: Row = {
            "steps": self.steps,
            "episodes": self.episodes,
            "updates": self.updates,
            "seconds": self.seconds,
            "steps_per_second": (self.steps - past["steps"]) / taken if taken > 0 else float("nan"),
            "epsilon": self.epsilon(self.steps),
        }
        for name, numbers in self._window.items():
            finite = [number for number in numbers if np.isfinite(number)]
            row[name] = float(np.mean(finite)) if finite else float("nan")
        self._warn_if_one_sided()
        self._window = {}
        if evaluated is not None:
            result = self.evaluate(evaluated["env"], evaluated["episodes"], seed=evaluated["seed"])
            row["eval_return"], row["eval_length"] = result.mean, float(result.lengths.mean())
        self.log.append(row)
        for callback in callbacks:
            callback(self, row)

    def _warn_if_one_sided(self) -> None:
        shares = self._window.get("p_max", [])
        s = self.settings
        if shares and min(shares) > ONE_SIDED and s.K > 0 and s.selector not in ("greedy", "uniform"):
            warnings.warn(
                f"one sub-value was chosen with probability above {ONE_SIDED} throughout the last window, so the "
                f"others are never tried: temperature={s.temperature} is small beside the gaps between the candidates' "
                "values; temperature='auto' follows them",
                stacklevel=3,
            )

    def _require_env(self, env: VecEnv) -> None:
        for name in ("n_agents", "n_actions", "obs_size", "state_size"):
            if getattr(env.spec, name) != getattr(self.spec, name):
                raise InputError(
                    f"the environment's {name} is {getattr(env.spec, name)}",
                    expected=f"{getattr(self.spec, name)}, as the learner was made for",
                )

    def _teams(self, obs: NDArray[np.floating[Any]]) -> tuple[NDArray[np.float32], bool]:
        array = np.asarray(obs, np.float32)
        single = array.ndim == 2
        teams = array[None] if single else array
        if teams.ndim != 3 or teams.shape[1:] != (self.spec.n_agents, self.spec.obs_size):
            raise InputError(
                f"obs has the shape {array.shape}", expected=f"(…, {self.spec.n_agents}, {self.spec.obs_size})"
            )
        return teams, single

    def _mask(self, avail: NDArray[np.bool_] | None, teams: NDArray[np.float32]) -> NDArray[np.bool_]:
        shape = (*teams.shape[:2], self.spec.n_actions)
        if avail is None:
            return np.ones(shape, np.bool_)
        mask = np.asarray(avail, np.bool_)
        mask = mask[None] if mask.ndim == 2 else mask
        if mask.shape != shape:
            raise InputError(f"avail has the shape {np.shape(avail)}", expected=f"{shape}")
        return mask

    def _states(
        self, state: NDArray[np.floating[Any]] | None, history: NDArray[np.float32], *, single: bool
    ) -> NDArray[np.float32]:
        size = self.spec.state_size
        if state is None:
            joined = history.reshape(len(history), -1)
            if joined.shape[1] != size:
                raise InputError("state is missing", expected=f"({size},), because it isn't the joined observations")
            return joined
        states = np.asarray(state, np.float32)
        states = states[None] if states.ndim == 1 else states
        if states.shape != (len(history), size):
            raise InputError(f"state has the shape {np.shape(state)}", expected=f"({len(history)}, {size})")
        return states


class _Ticks:
    """Says when a multiple of a number of steps has been passed; the same after a resume as without one."""

    def __init__(self, every: int | None, now: int) -> None:
        if every is not None and every < 1:
            raise InputError(f"a report every {every} steps", expected="at least 1")
        self.every = every
        self.passed = now // every if every else 0

    def due(self, now: int) -> bool:
        if not self.every or now // self.every <= self.passed:
            return False
        self.passed = now // self.every
        return True


class S2Q(Learner):
    """Successive sub-value Q-learning: K + 1 sub-values, each on the next best joint action.

    Parameters
    ----------
    spec : EnvSpec
        The environment's sizes.
    K : int
        Further sub-values.
    seed : int
        Where all its chance comes from.
    **settings
        Any other field of `Settings`.

    Examples
    --------
    >>> from assay.marl.environments import MatrixGame
    >>> env = MatrixGame([[8.0, 0, 0], [0, 4, 0], [0, 0, 6]], n=8)
    >>> agent = S2Q(env.spec, K=1, hidden=8, batch_size=8, seed=0)
    >>> log = agent.fit(env, total_steps=64)
    >>> log[-1]["steps"], agent.updates
    (64, 8)
    """

    algorithm = "s2q"

    def __init__(self, spec: EnvSpec, K: int = 2, *, seed: int = 0, **settings: Any) -> None:
        super().__init__(spec, Settings().changed(K=K, **settings), seed=seed)


class QMIX(Learner):
    """QMIX: one monotone value, its own target copy, no central value.

    Parameters
    ----------
    spec : EnvSpec
        The environment's sizes.
    seed : int
        Where all its chance comes from.
    **settings
        Any other field of `Settings`.

    Examples
    --------
    >>> from assay.marl.environments import MatrixGame
    >>> env = MatrixGame([[8.0, 0], [0, 4]], n=8)
    >>> agent = QMIX(env.spec, hidden=8, batch_size=8, seed=0)
    >>> agent.fit(env, total_steps=64)[-1]["updates"]
    8
    """

    algorithm = "qmix"

    def __init__(self, spec: EnvSpec, *, seed: int = 0, **settings: Any) -> None:
        super().__init__(spec, _plain_settings("qmix", settings), seed=seed)


class VDN(Learner):
    """Value decomposition: the sum of the agents' utilities, its own target copy.

    Parameters
    ----------
    spec : EnvSpec
        The environment's sizes.
    seed : int
        Where all its chance comes from.
    **settings
        Any other field of `Settings`.

    Examples
    --------
    >>> from assay.marl.environments import MatrixGame
    >>> env = MatrixGame([[8.0, 0], [0, 4]], n=8)
    >>> agent = VDN(env.spec, hidden=8, batch_size=8, seed=0)
    >>> agent.fit(env, total_steps=64)[-1]["updates"]
    8
    """

    algorithm = "vdn"

    def __init__(self, spec: EnvSpec, *, seed: int = 0, **settings: Any) -> None:
        super().__init__(spec, _plain_settings("vdn", settings), seed=seed)


class IQL(Learner):
    """Independent Q-learning: each agent's value alone, from the team's reward.

    Parameters
    ----------
    spec : EnvSpec
        The environment's sizes.
    seed : int
        Where all its chance comes from.
    **settings
        Any other field of `Settings`.

    Examples
    --------
    >>> from assay.marl.environments import MatrixGame
    >>> env = MatrixGame([[8.0, 0], [0, 4]], n=8)
    >>> agent = IQL(env.spec, hidden=8, batch_size=8, seed=0)
    >>> agent.fit(env, total_steps=64)[-1]["updates"]
    8
    """

    algorithm = "iql"

    def __init__(self, spec: EnvSpec, *, seed: int = 0, **settings: Any) -> None:
        super().__init__(spec, _plain_settings("none", settings), seed=seed)


class WQMIX(Learner):
    """Weighted QMIX: a monotone value with an unrestricted central value, errors weighted.

    Parameters
    ----------
    spec : EnvSpec
        The environment's sizes.
    weighting : str
        ``ow``, optimistic, or ``cw``, central.
    w_c : float
        The smaller weight.
    seed : int
        Where all its chance comes from.
    **settings
        Any other field of `Settings`.

    Examples
    --------
    >>> from assay.marl.environments import MatrixGame
    >>> env = MatrixGame([[8.0, 0], [0, 4]], n=8)
    >>> agent = WQMIX(env.spec, weighting="cw", hidden=8, batch_size=8, seed=0)
    >>> agent.fit(env, total_steps=64)[-1]["updates"]
    8
    """

    algorithm = "wqmix"

    def __init__(
        self, spec: EnvSpec, *, weighting: str = "ow", w_c: float = 0.5, seed: int = 0, **settings: Any
    ) -> None:
        if weighting not in ("ow", "cw"):
            raise InputError(f"weighting '{weighting}'", expected="ow or cw")
        fixed = {"K": 0, "weighting": weighting, "w_c": w_c, "mix": 0.0, "selector": "greedy"}
        super().__init__(spec, Settings().changed(**{**settings, **fixed}), seed=seed)


_ALGORITHMS: dict[str, type[Learner]] = {kind.algorithm: kind for kind in (Learner, S2Q, QMIX, VDN, IQL, WQMIX)}


def load_learner(path: str | os.PathLike[str], *, device: str | None = None) -> Learner:
    """Read any learner that was saved.

    Parameters
    ----------
    path : path
        The file.
    device : str, optional
        Where its networks shall be, if not where they were.

    Returns
    -------
    Learner
        Of the class that was saved.

    Raises
    ------
    InputError
        The file is missing, damaged, or of another kind.

    Examples
    --------
    >>> import tempfile
    >>> agent = QMIX(EnvSpec(n_agents=2, n_actions=3, obs_size=4, state_size=5, horizon=6), hidden=8)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     agent.save(f"{folder}/team.safetensors")
    ...     load_learner(f"{folder}/team.safetensors").algorithm
    'qmix'
    """
    return Learner.load(path, device=device)


def _plain_settings(mixer: str, settings: Mapping[str, Any]) -> Settings:
    fixed = {"K": 0, "mixer": mixer, "central": False, "weighting": "none", "mix": 0.0, "selector": "greedy"}
    return Settings().changed(**{**settings, **fixed})


def _never() -> bool:
    return False


def _check_frame(frame: Frame, running: NDArray[np.bool_], *, step: int) -> None:
    require_finite(np.where(running[:, None, None], frame.obs, 0), "observation", step=step)
    require_finite(np.where(running[:, None], frame.state, 0), "state", step=step)
    require_some_action(frame.avail, running, step=step)


def _cut(
    frames: Sequence[Frame],
    actions: NDArray[np.int64],
    rewards: NDArray[np.float32],
    length: NDArray[np.int64],
    terminated: NDArray[np.bool_],
) -> list[Episode]:
    """Each instance's own episode, without what its neighbours did longer."""
    obs, state, avail = (np.stack([getattr(frame, name) for frame in frames]) for name in ("obs", "state", "avail"))
    episodes = []
    for index, steps in enumerate(length.tolist()):
        episodes.append(
            Episode(
                np.nan_to_num(obs[: steps + 1, index]) if terminated[index] else obs[: steps + 1, index],
                np.nan_to_num(state[: steps + 1, index]) if terminated[index] else state[: steps + 1, index],
                actions[:steps, index],
                avail[: steps + 1, index],
                rewards[:steps, index],
                bool(terminated[index]),
            )
        )
    return episodes


def _entropy(probability: NDArray[np.float64]) -> NDArray[np.float64]:
    entropy: NDArray[np.float64] = -(probability * np.log(np.maximum(probability, 1e-300))).sum(1)
    return entropy


def _array(value: Tensor) -> NDArray[Any]:
    array: NDArray[Any] = value.detach().cpu().numpy()
    return array
