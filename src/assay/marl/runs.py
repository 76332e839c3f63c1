"""Runs of several algorithms and seeds in one environment, and what they leave in a folder.

A folder holds ``run.json`` (what was asked for), ``log.csv`` (a line a report), ``curves.png``, ``summary.json``, and a
checkpoint a run, ``<algorithm>-<seed>.safetensors``. A stopped run's checkpoint has its replay, from which it goes on
bit for bit; that of a finished run has not.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import InputError
from assay.core.files import atomic_path, existing_file, write_text
from assay.marl.environments import VecEnv, make_vec_env
from assay.marl.learner import IQL, QMIX, S2Q, VDN, WQMIX, Evaluation, Learner, load_learner
from assay.marl.plots import Curve, plot_curves
from assay.marl.spec import EnvSpec
from assay.marl.statistics import summarise

__all__ = [
    "ALGORITHMS",
    "FEWEST_BOOTSTRAPPED",
    "RUN",
    "RunPlan",
    "checkpoint_of",
    "film_episode",
    "make_learner",
    "read_plan",
    "train_runs",
]

ALGORITHMS = ("s2q", "qmix", "vdn", "iql", "owqmix", "cwqmix")
RUN, LOG, SUMMARY, CURVES = "run.json", "log.csv", "summary.json", "curves.png"
FORMAT = "assay.marl.run"
FEWEST_BOOTSTRAPPED = 5
"""With fewer seeds an interval by resampling is narrower than it claims: then the range of the seeds is shown."""
CHECKPOINTS = 4
"""How many checkpoints a run writes on its way; each holds the whole replay."""
FRAMES_PER_SECOND = 5

Row = Mapping[str, Any]


@dataclass(frozen=True)
class RunPlan:
    """What is to be trained.

    Parameters
    ----------
    env : str
        The environment's word.
    algorithms : tuple of str
        Of `ALGORITHMS`.
    seeds : tuple of int
        Each algorithm is trained with each.
    steps : int
        Environment steps of a run.
    instances : int
        Instances that are stepped together.
    reward, standardise, horizon
        As for `make_vec_env`.
    eval_every, eval_episodes : int
        Environment steps between evaluations, and the episodes of one.
    settings : dict
        Fields of `Settings`.
    """

    env: str
    algorithms: tuple[str, ...]
    seeds: tuple[int, ...]
    steps: int
    instances: int
    reward: str | None
    standardise: str | None
    horizon: int | None
    eval_every: int
    eval_episodes: int
    settings: dict[str, Any]

    def make_env(self, *, instances: int | None = None, seed: int = 0, render: bool = False) -> VecEnv:
        """The environment, with as many instances as the plan says or as are asked for."""
        return make_vec_env(
            self.env,
            instances or self.instances,
            reward=self.reward,  # type: ignore[arg-type]
            standardise=self.standardise,  # type: ignore[arg-type]
            horizon=self.horizon,
            seed=seed,
            render=render,
        )


def make_learner(algorithm: str, spec: EnvSpec, *, seed: int, settings: Mapping[str, Any]) -> Learner:
    """Make the learner of an algorithm.

    Parameters
    ----------
    algorithm : str
        One of `ALGORITHMS`.
    spec : EnvSpec
        The environment's sizes.
    seed : int
        Where all its chance comes from.
    settings : mapping
        Fields of `Settings`; those that the algorithm fixes are fixed.

    Returns
    -------
    Learner
    """
    if algorithm not in ALGORITHMS:
        raise InputError(f"the algorithm is '{algorithm}'", expected=f"one of {', '.join(ALGORITHMS)}")
    if algorithm in ("owqmix", "cwqmix"):
        own = {name: value for name, value in settings.items() if name not in ("weighting", "w_c")}
        return WQMIX(spec, weighting=algorithm[:2], seed=seed, **own)
    kinds: dict[str, type[Learner]] = {"s2q": S2Q, "qmix": QMIX, "vdn": VDN, "iql": IQL}
    return kinds[algorithm](spec, seed=seed, **settings)


def checkpoint_of(folder: Path, algorithm: str, seed: int) -> Path:
    """Where a run's learner is kept."""
    return folder / f"{algorithm}-{seed}.safetensors"


def read_plan(folder: Path) -> RunPlan | None:
    """The plan of the runs in a folder; None where there is none."""
    file = folder / RUN
    if not file.is_file():
        return None
    try:
        held = json.loads(file.read_text(encoding="utf-8"))
        if held["format"] != FORMAT:
            raise InputError(f"has the format {held['format']!r}", file=file, expected=FORMAT)
        known = held["plan"]
        lists = {"algorithms": tuple(known["algorithms"]), "seeds": tuple(known["seeds"])}
        return RunPlan(**{**known, **lists})
    except (json.JSONDecodeError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise InputError("is damaged", file=file, expected="what assay marl train wrote") from error


def train_runs(
    plan: RunPlan,
    folder: Path,
    *,
    resume: bool = False,
    watch: Callable[[str, int, Row], object] = lambda algorithm, seed, row: None,
) -> dict[str, Any]:
    """Train every algorithm with every seed, and write a folder.

    Parameters
    ----------
    plan : RunPlan
        What to train.
    folder : Path
        Where to write; made if it isn't there.
    resume : bool
        Whether to go on from the checkpoints that are there; finished runs are left as they are.
    watch : callable
        Called with algorithm, seed and every new row of the log.

    Returns
    -------
    dict
        The summary, as it is written.

    Raises
    ------
    InputError
        The environment can't be learned from; or the folder's plan is another.
    KeyboardInterrupt
        After Ctrl-C: checkpoint and log are written.
    """
    if resume:
        _require_same_plan(plan, folder)
    first = plan.make_env()
    for algorithm in plan.algorithms:
        make_learner(algorithm, first.spec, seed=plan.seeds[0], settings=plan.settings)
    first.close()
    folder.mkdir(exist_ok=True)
    write_text(folder / RUN, json.dumps({"format": FORMAT, "plan": asdict(plan)}, indent=1) + "\n", force=True)
    logs: dict[tuple[str, int], Sequence[Row]] = {}
    for algorithm in plan.algorithms:
        for seed in plan.seeds:
            logs[algorithm, seed] = []

            def report(learner: Learner, row: Row, run: tuple[str, int] = (algorithm, seed)) -> None:
                logs[run] = learner.log
                _write_log(logs, folder)
                watch(*run, row)

            logs[algorithm, seed] = _train(plan, algorithm, seed, folder=folder, resume=resume, report=report)
            _write_log(logs, folder)
    curves = {algorithm: curve_of([logs[algorithm, seed] for seed in plan.seeds]) for algorithm in plan.algorithms}
    interval = "interval" if len(plan.seeds) >= FEWEST_BOOTSTRAPPED else "range"
    with atomic_path(folder / CURVES, force=True) as temporary:
        title = f"{plan.env}: interquartile mean of {len(plan.seeds)} seeds and its {interval}"
        plot_curves(curves, title=title).savefig(temporary, format="png", dpi=150)
    summary = _summary(plan, logs)
    write_text(folder / SUMMARY, json.dumps(_plain(summary), indent=1) + "\n", force=True)
    return summary


def curve_of(logs: Sequence[Sequence[Row]], quantity: str = "eval_return") -> Curve:
    """The interquartile mean over runs at the evaluations of the first, with its interval.

    Parameters
    ----------
    logs : sequence of logs
        One a run. Evaluations of other runs are taken between theirs along a line.
    quantity : str
        Of the rows.

    Returns
    -------
    Curve
        With the 95 % interval of 2000 resamples; with fewer than 5 runs, with their range.
    """
    points = [[(row["steps"], row[quantity]) for row in log if quantity in row] for log in logs]
    steps = np.array([step for step, _ in points[0]], dtype=np.float64)
    runs = np.stack([np.interp(steps, [step for step, _ in own], [value for _, value in own]) for own in points])
    found = [summarise(values) for values in runs.T]
    enough = len(runs) >= FEWEST_BOOTSTRAPPED
    low = np.array([one.low for one in found]) if enough else runs.min(0)
    high = np.array([one.high for one in found]) if enough else runs.max(0)
    return Curve(steps, np.array([one.interquartile_mean for one in found]), low, high)


def film_episode(learner: Learner, env: VecEnv, path: str | os.PathLike[str], *, seed: int, force: bool) -> float:
    """Play an episode greedily and write it as a GIF.

    Parameters
    ----------
    learner : Learner
        Who plays.
    env : VecEnv
        Where; its first instance is filmed.
    path : path
        The file.
    seed : int
        With which the environment starts.
    force : bool
        Replace an existing file.

    Returns
    -------
    float
        The episode's return.
    """
    import imageio.v3 as imageio

    frame = env.reset(seed)
    learner.reset()
    pictures = [env.render()]
    total, over = 0.0, False
    while not over:
        step = env.step(learner.act(frame.obs, frame.avail, frame.state))
        total += float(step.info.get("raw_reward", step.reward)[0])
        over = bool(step.terminated[0] | step.truncated[0])
        pictures.append(env.render())
        frame = step
    learner.reset()
    with atomic_path(path, force=force) as temporary:
        milliseconds = 1000 / FRAMES_PER_SECOND
        imageio.imwrite(temporary, np.stack(pictures), extension=".gif", duration=milliseconds, loop=0)
    return total


def evaluation_facts(evaluation: Evaluation) -> dict[str, Any]:
    """An evaluation in numbers."""
    returns: NDArray[np.float64] = evaluation.returns
    found = summarise(returns)
    return {
        "episodes": len(returns),
        "mean_return": found.mean,
        "interquartile_mean": found.interquartile_mean,
        "low": found.low,
        "high": found.high,
        "least": float(returns.min()),
        "most": float(returns.max()),
        "mean_length": float(evaluation.lengths.mean()),
    }


def _require_same_plan(plan: RunPlan, folder: Path) -> None:
    held = read_plan(folder)
    if held is None:
        raise InputError("holds no runs", file=folder, expected="the folder of a stopped run, or no --resume")
    for field in fields(RunPlan):
        was, now = getattr(held, field.name), getattr(plan, field.name)
        if was != now:
            if field.name == "settings":
                changed = next(name for name in {**was, **now} if was.get(name) != now.get(name))
                was, now, name = was.get(changed), now.get(changed), changed
            else:
                name = field.name
            raise InputError(f"{name} was {was} and is {now}", file=folder / RUN, expected="the same, to go on")


def _train(
    plan: RunPlan,
    algorithm: str,
    seed: int,
    *,
    folder: Path,
    resume: bool,
    report: Callable[[Learner, Row], object],
) -> list[dict[str, float]]:
    """One run, from its start or from its checkpoint."""
    file = checkpoint_of(folder, algorithm, seed)
    env = plan.make_env(seed=seed)
    try:
        if resume and file.is_file():
            learner = load_learner(existing_file(file))
        else:
            learner = make_learner(algorithm, env.spec, seed=seed, settings=plan.settings)
        if learner.steps < plan.steps:
            learner.fit(
                env,
                plan.steps,
                eval_every=plan.eval_every,
                eval_episodes=plan.eval_episodes,
                log_every=max(1, min(plan.eval_every, plan.steps // 100)),
                callbacks=[report],
                checkpoint=file,
                checkpoint_every=max(1, plan.steps // CHECKPOINTS),
            )
            learner.save(file, replay=False, force=True)
        return learner.log
    finally:
        env.close()


def _write_log(logs: Mapping[tuple[str, int], Sequence[Row]], folder: Path) -> None:
    rows = [{"algorithm": algorithm, "seed": seed, **row} for (algorithm, seed), log in logs.items() for row in log]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    stream = io.StringIO()
    writer = csv.DictWriter(stream, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(folder / LOG, stream.getvalue(), force=True)


def _summary(plan: RunPlan, logs: Mapping[tuple[str, int], Sequence[Row]]) -> dict[str, Any]:
    results = {}
    for algorithm in plan.algorithms:
        last = [logs[algorithm, seed][-1] for seed in plan.seeds]
        returns = np.array([row["eval_return"] for row in last])
        found = summarise(returns)
        enough = len(returns) >= FEWEST_BOOTSTRAPPED
        results[algorithm] = {
            "mean": found.mean,
            "interquartile_mean": found.interquartile_mean,
            "low": found.low if enough else float(returns.min()),
            "high": found.high if enough else float(returns.max()),
            "interval": "95 % percentile bootstrap" if enough else "range of the seeds",
            "by_seed": dict(zip(map(str, plan.seeds), returns.tolist(), strict=True)),
            "updates": int(np.median([row["updates"] for row in last])),
            "seconds": float(np.mean([row["seconds"] for row in last])),
            "steps_per_second": float(np.mean([row["steps"] / row["seconds"] for row in last])),
        }
    return {"env": plan.env, "steps": plan.steps, "seeds": list(plan.seeds), "results": results}


def _plain(value: Any) -> Any:
    """JSON has no NaN: it becomes null."""
    if isinstance(value, Mapping):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
