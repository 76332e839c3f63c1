"""The study's trials: games of one step with all seeds at once, teams in environments, and measurements of cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from assay.core.measure import peak_memory, stopwatch
from assay.core.study import Trial
from assay.marl.environments import InstanceEnv, MatrixGame, PettingZooView, StagHunt, VecEnv, make_vec_env
from assay.marl.learner import IQL, QMIX, S2Q, VDN, WQMIX, Learner
from assay.marl.one_step import OneStepRun, train_one_step
from assay.marl.ranking import successive_ranking, sufficient_alpha
from assay.marl.replay import EpisodeBatch, EpisodeReplay, padded_layout_bytes
from assay.marl.spec import EnvSpec

__all__ = ["payoff_of", "run_trial"]

Measurements = dict[str, float]

LEARNERS: Mapping[str, type[Learner]] = {"s2q": S2Q, "qmix": QMIX, "vdn": VDN, "iql": IQL, "wqmix": WQMIX}
MANY = 1_000_000
"""Seeds of games are this times the trial's number, plus the game's."""
EVALUATION_SEED = 50_000
STEP_SPEC = EnvSpec(n_agents=4, n_actions=8, obs_size=32, state_size=64, horizon=50)
TIMED_STEPS = 4


def run_trial(trial: Trial) -> Measurements:
    """Run one arm on one case with one seed.

    Parameters
    ----------
    trial : Trial
        The case says which kind of trial it is, the arm which algorithm runs.

    Returns
    -------
    dict of str to float
        Named measurements.
    """
    torch.set_num_threads(trial.threads)
    return _KINDS[trial.case_settings["kind"]](trial)


def payoff_of(settings: Mapping[str, Any], which: str) -> NDArray[np.float64]:
    """The payoff of a case: a diagonal, the same for any number of agents, and one number everywhere else.

    Parameters
    ----------
    settings : mapping
        ``agents``, ``scale``, ``elsewhere``, and the diagonal under the name `which`.
    which : str
        ``before`` or ``after``.

    Returns
    -------
    ndarray of float64, shape (A, ..., A)
    """
    diagonal = np.asarray(settings[which], dtype=np.float64)
    payoff = np.full((len(diagonal),) * settings.get("agents", 2), float(settings.get("elsewhere", 0.0)))
    payoff[(np.arange(len(diagonal)),) * payoff.ndim] = diagonal
    return np.asarray(payoff * settings.get("scale", 1.0))


def _game(trial: Trial) -> Measurements:
    """A game whose optimum moves; shares of seeds, and the updates until nine tenths of them have followed."""
    case, arm = trial.case_settings, trial.arm_settings
    shift, games = case["shift"], case["games"]
    settings = {**case.get("settings", {}), **arm.get("game", {})}
    run = train_one_step(
        payoff_of(case, "before"),
        arm["algorithm"],
        shifts=[(shift, payoff_of(case, "after"))],
        updates=case["updates"],
        seeds=[MANY * trial.seed + game for game in range(games)],
        **settings,
    )
    before, after = run.seeds_recovered(0), run.seeds_recovered(1)
    found: Measurements = {
        "games": float(games),
        "optimal_before": float(before.mean()),
        "recovered": float(after.mean()),
        "optimal_at_end": float(run.optimal[-1].mean()),
        "seconds": run.seconds,
        "visits_of_new_optimum": float(_visits(run, version=0, payoff=run.payoffs[1][1]).mean()),
    }
    found |= {f"lock_{level}": float(rate) for level, rate in enumerate(run.lock_rate(shift - 1))}
    if (updates := run.recovery(1)) is not None:
        found["recovery_updates"], found["recovery_steps"] = float(updates), float(updates * run.environments)
    if trial.seed == 0:
        trial.keep("recovery.svg", _recovery_picture(run, title=f"{trial.arm}, {trial.case}"))
    return found


def _visits(run: OneStepRun, *, version: int, payoff: NDArray[np.float64]) -> NDArray[np.float64]:
    """How often each seed has taken the joint actions that are best under a payoff."""
    return np.asarray(run.visits[version][:, payoff == payoff.max()].sum(axis=1), dtype=np.float64)


def _recovery_picture(run: OneStepRun, *, title: str) -> bytes:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 2.4), layout="constrained")
    axes = figure.subplots()
    axes.plot(run.optimal.mean(axis=1), linewidth=1)
    for start, _ in run.payoffs[1:]:
        axes.axvline(start, color="0.6", linewidth=0.8)
    axes.set(ylim=(-0.02, 1.02), xlabel="updates", ylabel="share of seeds optimal", title=title)
    stream = BytesIO()
    figure.savefig(stream, format="svg")
    return stream.getvalue()


def _table(trial: Trial) -> Measurements:
    """Successive suppression of random payoffs, against sorting them."""
    case, rng = trial.case_settings, trial.rng("payoffs")
    violations = 0
    for _ in range(case["payoffs"]):
        shape = (int(rng.integers(2, 5)),) * int(rng.integers(1, 5))
        payoff, floor = rng.normal(size=shape) * 5, float(rng.uniform(0.1, 5))
        levels = min(case["levels"], payoff.size - 1)
        ranking = successive_ranking(payoff, levels, sufficient_alpha(payoff, floor), floor)
        expected = np.sort(payoff, axis=None)[::-1][: levels + 1]
        violations += [payoff[action] for action in ranking.actions] != expected.tolist()
    return {"payoffs": float(case["payoffs"]), "violations": float(violations)}


def _team(trial: Trial) -> Measurements:
    """Learn in an environment, then play episodes greedily."""
    case, arm = trial.case_settings, trial.arm_settings
    env = make_vec_env(case["env"], case["environments"], reward=case.get("reward"), seed=trial.seed)
    if trial.function is not None:
        act = trial.function(env, case["steps"], trial.seed)
        returns = _played(env, act, case["episodes"])
        env.close()
        return {"return": float(returns.mean()), "success": float((returns > case.get("success", 0.0)).mean())}
    settings = {**case.get("settings", {}), **arm.get("team", {})}
    learner = LEARNERS[arm["learner"]](env.spec, seed=trial.seed, **settings)
    begun = time.process_time()
    log = learner.fit(env, case["steps"], eval_every=case["eval_every"], eval_episodes=case["eval_episodes"])
    seconds = time.process_time() - begun
    evaluation = learner.evaluate(env, case["episodes"], seed=EVALUATION_SEED + trial.seed)
    env.close()
    curve = [row["eval_return"] for row in log if "eval_return" in row]
    return {
        "return": evaluation.mean,
        "success": float((evaluation.returns > case.get("success", 0.0)).mean()),
        "mean_return_while_learning": float(np.mean(curve)),
        "updates": float(learner.updates),
        "cpu_seconds": seconds,
    }


def _played(env: VecEnv, act: Callable[..., NDArray[np.int64]], episodes: int) -> NDArray[np.float64]:
    """Returns of whole batches of episodes, with the actions of a user's own function."""
    returns: list[float] = []
    seed = EVALUATION_SEED
    while len(returns) < episodes:
        frame, total, over = env.reset(seed), np.zeros(env.n), np.zeros(env.n, dtype=bool)
        while not over.all():
            step = env.step(act(frame.obs, frame.avail, frame.state))
            total += step.reward
            over |= step.terminated | step.truncated
            frame = step
        returns += total.tolist()
        seed += 1
    return np.array(returns[:episodes])


def _step(trial: Trial) -> Measurements:
    """The time and memory of a gradient step on random episodes."""
    case, arm = trial.case_settings, trial.arm_settings
    spec = EnvSpec(
        n_agents=case.get("agents", STEP_SPEC.n_agents),
        n_actions=STEP_SPEC.n_actions,
        obs_size=STEP_SPEC.obs_size,
        state_size=STEP_SPEC.state_size,
        horizon=case["steps"],
    )
    _step_of(arm, case, spec, _random_batch(spec, 1, 2, trial.rng("small batch")))()
    step = _step_of(arm, case, spec, _random_batch(spec, case["episodes"], case["steps"], trial.rng("batch")))
    with peak_memory() as peak:
        step()
    seconds = []
    for _ in range(TIMED_STEPS):
        with stopwatch() as watch:
            step()
        seconds.append(watch.cpu_seconds)
    return {
        "step_seconds": float(np.median(seconds)),
        "peak_bytes": peak.bytes,
        "levels": float(case.get("K", 2) + 1),
        "steps": float(case["steps"]),
        "episodes": float(case["episodes"]),
        "agents": float(spec.n_agents),
    }


def _step_of(arm: Mapping[str, Any], case: Mapping[str, Any], spec: EnvSpec, batch: EpisodeBatch) -> Callable[[], Any]:
    if arm["step"] == "torchrl":
        from assay.marl.peers import torchrl_qmix_step

        return torchrl_qmix_step(spec, batch)
    settings = dict(arm.get("step_settings", {}))
    if arm["step"] == "s2q" and "K" in case:
        settings["K"] = case["K"]
    learner = LEARNERS[arm["step"]](spec, **settings)
    return lambda: learner.update(batch)


def _random_batch(spec: EnvSpec, episodes: int, steps: int, rng: np.random.Generator) -> EpisodeBatch:
    n = spec.n_agents
    terminated = np.zeros((episodes, steps), dtype=np.float32)
    terminated[:, -1] = 1
    return EpisodeBatch(
        obs=torch.from_numpy(rng.normal(size=(episodes, steps + 1, n, spec.obs_size)).astype(np.float32)),
        state=torch.from_numpy(rng.normal(size=(episodes, steps + 1, spec.state_size)).astype(np.float32)),
        avail=torch.ones(episodes, steps + 1, n, spec.n_actions, dtype=torch.bool),
        actions=torch.from_numpy(rng.integers(0, spec.n_actions, size=(episodes, steps, n))),
        reward=torch.from_numpy(rng.normal(size=(episodes, steps)).astype(np.float32)),
        terminated=torch.from_numpy(terminated),
        filled=torch.ones(episodes, steps),
    )


def _stepping(trial: Trial) -> Measurements:
    """Joint steps a second with random actions that were drawn before."""
    case, rng = trial.case_settings, trial.rng("actions")
    ways = {"vectorised": _vectorised_rate, "pettingzoo": _pettingzoo_rate, "adapter": _adapter_rate, "raw": _raw_rate}
    return {"steps_per_second": ways[trial.arm_settings["stepping"]](case, rng)}


def _own(case: Mapping[str, Any], n: int) -> VecEnv:
    if case["env"] == "matrix":
        return MatrixGame(np.diag([8.0, 4.0, 6.0]), n=n)
    return StagHunt(n=n)


def _allowed(avail: NDArray[np.bool_], draws: NDArray[np.float64]) -> NDArray[np.int64]:
    """A random available action for each agent."""
    which = (draws * avail.sum(axis=-1)).astype(np.int64)
    return np.asarray((which[..., None] < avail.cumsum(axis=-1)).argmax(axis=-1), dtype=np.int64)


def _vectorised_rate(case: Mapping[str, Any], rng: np.random.Generator) -> float:
    env = _own(case, case["instances"])
    draws = rng.random((64, env.n, env.spec.n_agents))
    frame = env.reset(0)
    over = np.zeros(env.n, dtype=bool)
    taken, spent = 0, 0.0
    for number in range(case["steps"]):
        if over.all():
            begun = time.process_time()
            frame = env.reset()
            spent += time.process_time() - begun
            over = np.zeros(env.n, dtype=bool)
        actions = _allowed(frame.avail, draws[number % 64])
        taken += int((~over).sum())
        begun = time.process_time()
        step = env.step(actions)
        spent += time.process_time() - begun
        over |= step.terminated | step.truncated
        frame = step
    return taken / spent


def _pettingzoo_rate(case: Mapping[str, Any], rng: np.random.Generator) -> float:
    view = PettingZooView(lambda: _own(case, 1))
    obs, _ = view.reset(seed=0)
    taken, spent = 0, 0.0
    for _ in range(case["steps"]):
        if not view.agents:
            begun = time.process_time()
            obs, _ = view.reset()
            spent += time.process_time() - begun
        avail = np.stack([obs[agent]["action_mask"] for agent in view.agents]).astype(bool)
        drawn = _allowed(avail, rng.random(len(avail)))
        actions = {agent: int(action) for agent, action in zip(view.agents, drawn, strict=True)}
        begun = time.process_time()
        obs, *_ = view.step(actions)
        spent += time.process_time() - begun
        taken += 1
    return taken / spent


def _adapter_rate(case: Mapping[str, Any], rng: np.random.Generator) -> float:
    env = make_vec_env(f"lbf:{case['env']}", case["instances"], reward="sum", seed=0)
    assert isinstance(env, InstanceEnv)
    draws = rng.integers(0, env.spec.n_actions, size=(64, env.n, env.spec.n_agents))
    env.reset(0)
    over = np.zeros(env.n, dtype=bool)
    taken, begun = 0, time.process_time()
    for number in range(case["steps"]):
        if over.all():
            env.reset()
            over = np.zeros(env.n, dtype=bool)
        taken += int((~over).sum())
        step = env.step(draws[number % 64])
        over |= step.terminated | step.truncated
    spent = time.process_time() - begun
    env.close()
    return taken / spent


def _raw_rate(case: Mapping[str, Any], rng: np.random.Generator) -> float:
    import gymnasium
    import lbforaging  # noqa: F401  (registers its environments)

    envs = [gymnasium.make(case["env"], disable_env_checker=True).unwrapped for _ in range(case["instances"])]
    space: Any = envs[0].action_space
    draws = rng.integers(0, space[0].n, size=(64, len(envs), len(space)))
    for number, env in enumerate(envs):
        env.reset(seed=number)
    over = [False] * len(envs)
    taken, begun = 0, time.process_time()
    for number in range(case["steps"]):
        if all(over):
            for env in envs:
                env.reset()
            over = [False] * len(envs)
        for place, env in enumerate(envs):
            if not over[place]:
                _, _, ended, cut, _ = env.step(tuple(draws[number % 64, place].tolist()))
                over[place] = bool(ended or cut)
                taken += 1
    return taken / (time.process_time() - begun)


def _replay(trial: Trial) -> Measurements:
    """Bytes of stored episodes, against the padded layout with one-hot actions."""
    case = trial.case_settings
    env = make_vec_env(case["env"], case["environments"], reward=case.get("reward"), seed=trial.seed)
    learner = QMIX(env.spec, seed=trial.seed, batch_size=MANY, buffer_size=MANY, hidden=8, hypernet=8)
    learner.fit(env, case["steps"])
    assert env.spec.horizon is not None
    replay: EpisodeReplay = learner.replay
    usual = padded_layout_bytes(env.spec, episodes=len(replay), steps=env.spec.horizon)
    env.close()
    return {"episodes": float(len(replay)), "bytes": float(replay.nbytes), "share_of_usual": replay.nbytes / usual}


_KINDS: Mapping[str, Callable[[Trial], Measurements]] = {
    "game": _game,
    "table": _table,
    "team": _team,
    "step": _step,
    "stepping": _stepping,
    "replay": _replay,
}
