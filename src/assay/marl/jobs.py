"""The commands on a user's files and environments: ``assay marl train``, ``eval`` and ``game``."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from cyclopts import App, Group, Parameter

from assay.core.errors import InputError
from assay.core.jobs import (
    STREAM,
    Flag,
    Reporting,
    WholeNumber,
    naming_options,
    print_summary,
    require_streams,
    shows_progress,
    stop_that_says,
    warnings_in_one_line,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from assay.marl.learner import Candidates, Evaluation, Learner
    from assay.marl.one_step import OneStepRun
    from assay.marl.payoff_files import Game
    from assay.marl.runs import RunPlan

__all__ = ["app", "evaluate", "game", "train"]

app = App(
    name="marl",
    help="Teams of agents that keep several joint actions in mind, and follow the best when it moves.",
    help_format="rst",
    version_flags=[],
)

Source: TypeAlias = Annotated[str, Parameter(allow_leading_hyphen=True)]
OutFolder: TypeAlias = Annotated[str, Parameter(alias="-o", allow_leading_hyphen=True)]
OutFile: TypeAlias = Annotated[str | None, Parameter(alias="-o", allow_leading_hyphen=True)]
Algorithm: TypeAlias = Literal["s2q", "qmix", "vdn", "iql", "owqmix", "cwqmix"]
Algorithms: TypeAlias = Annotated[tuple[Algorithm, ...], Parameter(negative="")]
Selector: TypeAlias = Literal["coordinator", "oracle", "uniform", "independent", "greedy"]
Mixer: TypeAlias = Literal["qmix", "vdn", "qplex"]
EVERYONE: tuple[Algorithm, ...] = ("s2q", "qmix", "vdn", "iql", "owqmix", "cwqmix")
PUBLISHED_EPSILON_STEPS = 100_000
GAME, RECOVERY_TABLE, RECOVERY, LEVELS = "game.json", "recovery.csv", "recovery.png", "levels.png"
MOST_SEEDS = 1000
OPTIONS = {
    name: f"--{name.replace('_', '-')}"
    for name in ("alpha", "batch_size", "buffer_size", "floor", "hidden", "horizon", "mix", "reward", "temperature")
} | {"K": "--k", "learning_rate": "--lr"}
"""Arguments of the library that its errors name, by how they are typed here."""


@Parameter(name="*", group=Group("Learning", sort_key=2))
@dataclass(frozen=True)
class Learning:
    """How the team learns. The other algorithms take of this what they have.

    Parameters
    ----------
    k
        Sub-values beyond the first.
    temperature
        T of the distribution over sub-values, in units of return; or auto, which follows the spread of their values.
    suppression
        paper, or code as in the published program.
    alpha
        Strength of the suppression; or auto.
    floor
        C: what suppression takes away at least. With negative returns, at least the range of returns.
    mixer
        How the sub-values are mixed.
    selector
        Who chooses which sub-value the team follows.
    mix
        Probability that an episode is one in which sub-values are drawn: 0.5 in the published program, 1 in the paper.
    weighting
        Of the squared errors: s2q, ow, cw or none.
    comm
        S2Q-Comm: agents hear the coordinator's code, at test time too.
    feed_forward
        No memory: for environments that show everything.
    hidden
        Size of the networks.
    lr
        Adam's learning rate.
    gamma
        Discount.
    batch_size
        Episodes of a gradient step (128 in the paper).
    buffer_size
        Episodes that are kept.
    epsilon_steps
        Environment steps over which exploration falls from 1 to 0.05; by default half of all, at most the published
        100000.
    device
        auto, cpu, cuda or cuda:N.
    threads
        Of PyTorch on a CPU. Networks of this size gain little from a second one, and lose much where cores are shared.
    """

    k: WholeNumber = 2
    temperature: str = "0.1"
    suppression: Literal["paper", "code"] = "paper"
    alpha: str = "1"
    floor: float = 1.0
    mixer: Mixer = "qmix"
    selector: Selector = "coordinator"
    mix: float = 0.5
    weighting: Literal["s2q", "ow", "cw", "none"] = "s2q"
    comm: Flag = False
    feed_forward: Flag = False
    hidden: WholeNumber = 64
    lr: float = 1e-3
    gamma: float = 0.99
    batch_size: WholeNumber = 32
    buffer_size: WholeNumber = 5000
    epsilon_steps: WholeNumber | None = None
    device: str = "auto"
    threads: WholeNumber = 1


BY_DEFAULT, AS_USUAL = Learning(), Reporting()


@app.command
def train(
    *,
    env: Source,
    out: OutFolder,
    algo: Algorithms = ("s2q",),
    steps: WholeNumber = 50_000,
    seeds: str = "0-2",
    instances: WholeNumber = 8,
    reward: Literal["sum", "mean"] | None = None,
    standardise: Literal["scale", "full"] | None = None,
    horizon: WholeNumber | None = None,
    eval_every: WholeNumber | None = None,
    eval_episodes: WholeNumber = 32,
    resume: Flag = False,
    learning: Learning = BY_DEFAULT,
    reporting: Reporting = AS_USUAL,
) -> None:
    """Train a team in an environment, with several seeds, and with several algorithms to compare.

    Environments: staghunt:penalty=-2,grid=6x6; chain:3; matrix:payoff.csv; lbf:NAME (level-based foraging); rware:NAME;
    mpe:NAME; smax:MAP (with JAX); smac:MAP, smacv2:RACE_5_vs_5, football:NAME (with the game); gym:NAME;
    pettingzoo:package.module; factory:package.module:function (yours). Options of the environment follow after commas.

    Example: ``assay marl train --env staghunt:penalty=-2 --algo s2q --algo qmix --steps 50000 --seeds 0-4 --out hunt``

    Parameters
    ----------
    env
        The environment.
    out
        The folder to write: log.csv, curves.png, summary.json, and a checkpoint ALGORITHM-SEED.safetensors a run. A
        stopped run goes on with --resume.
    algo
        s2q, qmix, vdn, iql, owqmix or cwqmix; may be repeated.
    steps
        Environment steps of each run.
    seeds
        Such as 0-4 or 0,2,5.
    instances
        Instances of the environment that are stepped together.
    reward
        How to make one reward of those of the agents; needed where they differ.
    standardise
        Divide rewards by their running standard deviation (scale), after subtracting their mean (full). The log's
        returns stay in the environment's units.
    horizon
        Where to truncate episodes, besides what the environment does.
    eval_every
        Environment steps between evaluations; by default a twentieth of all.
    eval_episodes
        Episodes of an evaluation.
    resume
        Go on where a stopped command with the same options left off.
    """
    from assay.marl.runs import RunPlan, read_plan, train_runs

    numbers = _seeds(seeds)
    _require_counts(steps=steps, instances=instances, eval_episodes=eval_episodes)
    for name, value in (("eval-every", eval_every), ("horizon", horizon), ("epsilon-steps", learning.epsilon_steps)):
        if value is not None and value < 1:
            raise InputError(f"--{name} is {value}", expected="at least 1")
    _require_counts(threads=learning.threads)
    folder = _check_folder(out, resume=resume, force=reporting.force)
    _use_threads(learning.threads)
    with naming_options(OPTIONS):
        settings = _settings(learning, steps)
    plan = RunPlan(
        env=env,
        algorithms=tuple(dict.fromkeys(algo)),
        seeds=numbers,
        steps=steps,
        instances=instances,
        reward=reward,
        standardise=standardise,
        horizon=horizon,
        eval_every=eval_every or max(1, steps // 20),
        eval_episodes=eval_episodes,
        settings=settings,
    )
    if resume and read_plan(folder) is None:
        raise InputError("holds no runs", file=out, expected="the folder of a stopped run, or no --resume")
    way_on = f"stopped; {folder} holds log and checkpoint, and the same command with --resume goes on"
    with (
        warnings_in_one_line(reporting),
        _training_progress(plan, reporting) as watch,
        stop_that_says(way_on),
        naming_options(OPTIONS),
    ):
        summary = train_runs(plan, folder, resume=resume, watch=watch)
    lines = [f"{'algorithm':10} {'return':>10} {'':>20} {'updates':>8} {'steps/s':>9}"]
    for name, found in summary["results"].items():
        around = f"{found['low']:.4g} to {found['high']:.4g}"
        lines.append(
            f"{name:10} {found['interquartile_mean']:10.4g} {around:>20} {found['updates']:8} "
            f"{found['steps_per_second']:9,.0f}"
        )
    kind = next(iter(summary["results"].values()))["interval"]
    lines.append(f"interquartile means of greedy returns over {len(numbers)} seeds, with the {kind}")
    print_summary({**summary, "output": out}, lines, reporting=reporting, out=out)


@app.command(name="eval")
def evaluate(
    checkpoint: Source,
    /,
    *,
    episodes: WholeNumber = 100,
    render: str | None = None,
    out: OutFile = None,
    env: str | None = None,
    reward: Literal["sum", "mean"] | None = None,
    horizon: WholeNumber | None = None,
    seed: WholeNumber = 30_000,
    device: str = "auto",
    reporting: Reporting = AS_USUAL,
) -> None:
    """Play episodes with a trained team: greedily, each agent from its own observations.

    Also says which joint actions it holds at an episode's start, level by level.

    Example: ``assay marl eval hunt/s2q-0.safetensors --episodes 100 --render gif``

    Parameters
    ----------
    checkpoint
        What assay marl train wrote.
    episodes
        How many.
    render
        Film the first of them: a file that ends in .gif, or gif for one beside the checkpoint.
    out
        A table with a line an episode: .csv, or - for standard output.
    env
        Where to play; by default where it was trained, which run.json beside the checkpoint says.
    reward
        How to make one reward of those of the agents, with --env.
    horizon
        Where to truncate episodes, with --env.
    seed
        Of the episodes.
    device
        auto, cpu, cuda or cuda:N.
    """
    from assay.core.files import check_output, write_text
    from assay.marl.learner import load_learner
    from assay.marl.runs import evaluation_facts, film_episode

    require_streams(out, reporting)
    _require_counts(episodes=episodes)
    if horizon is not None and horizon < 1:
        raise InputError(f"--horizon is {horizon}", expected="at least 1")
    _require_seed(seed)
    film = _film_name(render, checkpoint)
    for file in (film, out):
        if file is not None and file != STREAM:
            check_output(file, force=reporting.force)
    if out is not None and out != STREAM and not out.lower().endswith(".csv"):
        raise InputError(f"unknown ending '{Path(out).suffix}'", file=out, expected=".csv")
    _use_threads(1)
    learner = load_learner(checkpoint, device=_device(device))
    plan = _plan_of(checkpoint, env=env, reward=reward, horizon=horizon)
    with warnings_in_one_line(reporting), stop_that_says("stopped; nothing was written"), naming_options(OPTIONS):
        arena = plan.make_env(seed=seed, instances=min(plan.instances, episodes))
        found = learner.evaluate(arena, episodes, seed=seed)
        held = _first_candidates(learner, arena, seed)
        arena.close()
        filmed = None
        if film is not None:
            screen = plan.make_env(seed=seed, instances=1, render=True)
            filmed = film_episode(learner, screen, film, seed=seed, force=reporting.force)
            screen.close()
    facts = evaluation_facts(found)
    summary = {
        "checkpoint": checkpoint,
        "algorithm": learner.algorithm,
        "env": plan.env,
        "trained_steps": learner.steps,
        **facts,
        "candidates": _candidate_rows(held),
        "film": film,
        "film_return": filmed,
        "output": out,
    }
    if out is not None:
        _write_text_or_print(
            _episode_table(found), out, write=lambda text: write_text(out, text, force=reporting.force)
        )
    lines = [
        f"team         {learner.algorithm}, trained for {learner.steps:,} steps, in {plan.env}",
        f"return       {facts['interquartile_mean']:.4g} ({facts['low']:.4g} to {facts['high']:.4g}; mean "
        f"{facts['mean_return']:.4g}) in {facts['episodes']} episodes of {facts['mean_length']:.1f} steps on average",
    ]
    lines += [
        f"level {row['level']}      {tuple(row['actions'])}  Q_{row['level']} {row['value']:.4g}"
        + ("" if row["reference"] is None else f"  Q* {row['reference']:.4g}  P {row['probability']:.3f}")
        for row in summary["candidates"]
    ]
    if film is not None:
        lines.append(f"filmed       {film} (return {filmed:.4g})")
    print_summary(summary, lines, reporting=reporting, out=out)


@app.command
def game(
    payoff: Source,
    /,
    *,
    shift: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    algo: Algorithms = EVERYONE,
    updates: WholeNumber = 3000,
    seeds: str = "0-19",
    k: WholeNumber = 2,
    temperature: str = "1",
    suppression: Literal["paper", "code"] = "paper",
    alpha: float = 1.0,
    floor: float | None = None,
    mixer: Mixer = "qmix",
    selector: Selector = "coordinator",
    mix: float = 1.0,
    noise: float = 0.0,
    rescale: Flag = False,
    flush: Flag = False,
    out: Annotated[str | None, Parameter(alias="-o", allow_leading_hyphen=True)] = None,
    reporting: Reporting = AS_USUAL,
) -> None:
    """Say of a payoff table which methods can find its optimum, and which follow it when it moves.

    Reads a square .csv or .tsv table (rows are the first agent's actions, columns the second's, with or without names),
    a .csv with a column an agent and a last column called payoff, or a .npy array with an axis an agent. First it says
    what a monotone method (QMIX) and a sum of utilities (VDN) can represent, then all algorithms learn the game.

    Example: ``assay marl game payoff.csv --shift later.csv@1500 --out game``

    Parameters
    ----------
    payoff
        The team's reward for each joint action.
    shift
        The payoff from some update on, as later.csv@1500; may be repeated.
    algo
        Which algorithms; may be repeated. All by default.
    updates
        Gradient steps, each after 8 episodes.
    seeds
        Such as 0-19 or 0,2,5; all are trained as one batch.
    k
        Sub-values beyond the first.
    temperature
        T, in units of the payoff: compare it to the gaps between the best joint actions. Or auto.
    suppression
        paper, or code as in the published program.
    alpha
        Strength of the suppression.
    floor
        C, what suppression takes away at least. By default 1, or the range of the payoffs where 1 doesn't sort them.
    mixer
        How S2Q's sub-values are mixed.
    selector
        Who chooses which sub-value S2Q's team follows.
    mix
        Probability that an episode is one in which sub-values are drawn.
    noise
        Standard deviation of Gaussian noise on the reward.
    rescale
        Learn the payoffs shifted and scaled so that they go from 0 to 8. Their order stays, and the learning rate, T
        and C then suit them whatever their units are.
    flush
        Forget old episodes when the payoff changes. By default the last 1000 stay until they are pushed out.
    out
        The folder to write: game.json, recovery.csv, recovery.png, and levels.png for games of two agents.
    """
    from assay.marl.payoff_files import parse_shift, read_game
    from assay.marl.payoff_report import describe_payoff, describe_run, rescaled, sufficient_floor

    numbers = _seeds(seeds)
    _require_counts(updates=updates)
    if k < 0:
        raise InputError(f"--k is {k}", expected="at least 0")
    if not 0 < alpha < math.inf:
        raise InputError(f"--alpha is {alpha:g}", expected="a number above 0")
    folder = None if out is None else _check_folder(out, resume=False, force=reporting.force)
    first = read_game(payoff)
    later = _read_shifts([parse_shift(text) for text in shift], first, updates)
    tables = [first.payoff, *(table for _, table in later)]
    learned = rescaled(tables) if rescale else tables
    if k >= first.payoff.size:
        raise InputError(f"--k is {k}", expected=f"less than the {first.payoff.size} joint actions")
    with naming_options(OPTIONS):
        chosen = sufficient_floor(learned, K=k, alpha=alpha) if floor is None else floor
        reports = [describe_payoff(table, K=k, alpha=alpha, floor=chosen) for table in learned]
        reports = [replace(report, value=float(table.max())) for report, table in zip(reports, tables, strict=True)]
    sources = [payoff, *shift]
    settings = {
        "K": k,
        "temperature": _number_or_auto(temperature, "--temperature"),
        "suppression": suppression,
        "alpha": alpha,
        "floor": chosen,
        "mixer": mixer,
        "selector": selector,
        "mix": mix,
        "noise": noise,
        "flush": flush,
    }
    _use_threads(1)
    runs: dict[str, OneStepRun] = {}
    updates_of_shifts = [update for update, _ in later]
    stopped = ""
    with warnings_in_one_line(reporting), naming_options(OPTIONS):
        try:
            _train_games(runs, algo, learned, updates_of_shifts, updates, numbers, settings, reporting)
        except KeyboardInterrupt:
            stopped = f"stopped; {', '.join(runs) or 'nothing'} was learned"
    facts = {name: describe_run(run) for name, run in runs.items()}
    summary = {
        "game": payoff,
        "shifts": list(shift),
        "seeds": list(numbers),
        "updates": updates,
        "rescaled": rescale,
        "settings": settings,
        "payoffs": [{"source": name, **report.facts()} for name, report in zip(sources, reports, strict=True)],
        "results": facts,
        "output": out,
    }
    if folder is not None and runs:
        _write_game(folder, first, learned[-1], runs, summary, updates_of_shifts)
    lines = []
    for name, report in zip(sources, reports, strict=True):
        if len(sources) > 1:
            lines.append(f"{name}:")
        lines += report.lines(first)
    lines += _recovery_lines(facts, sources, len(numbers))
    print_summary(summary, lines, reporting=reporting, out=out if runs else None)
    if stopped:
        raise KeyboardInterrupt(stopped)


def _train_games(
    runs: dict[str, OneStepRun],
    algorithms: Sequence[Algorithm],
    tables: Sequence[NDArray[np.float64]],
    changes: Sequence[int],
    updates: int,
    seeds: tuple[int, ...],
    settings: Mapping[str, Any],
    reporting: Reporting,
) -> None:
    """Train each algorithm; those that are done are in `runs` when it is stopped."""
    from assay.marl.one_step import OneStepSettings, train_one_step

    chosen = tuple(dict.fromkeys(algorithms))
    with _game_progress(chosen, updates, reporting) as watch:
        for name in chosen:
            own = OneStepSettings(**settings)
            runs[name] = train_one_step(
                tables[0],
                name,
                shifts=list(zip(changes, tables[1:], strict=True)),
                updates=updates,
                seeds=seeds,
                settings=own if name == "s2q" else replace(own, mixer="qmix"),
                watch=watch(name),
            )


def _recovery_lines(facts: Mapping[str, Mapping[str, Any]], sources: Sequence[str], seeds: int) -> list[str]:
    """Who is optimal at the end of each payoff, and after how many updates."""
    if not facts:
        return []
    lines = [f"{'algorithm':10} " + "  ".join(f"{Path(name).name[-22:]:>22}" for name in sources) + "  levels locked"]
    for name, found in facts.items():
        cells = []
        for part in found["payoffs"]:
            after = "never" if part["recovery"] is None else f"+{part['recovery']}"
            cells.append(f"{part['optimal']:>3}/{part['seeds']} optimal, {after:>6}")
        locked = " ".join(f"{rate:.2f}" for rate in found["payoffs"][-1]["lock_rate"])
        lines.append(f"{name:10} " + "  ".join(f"{cell:>22}" for cell in cells) + f"  {locked}")
    lines.append(f"updates until 90 % of {seeds} seeds are optimal and stay so for 100 updates; levels at the end")
    return lines


def _write_game(
    folder: Path,
    table: Game,
    learned: NDArray[np.float64],
    runs: Mapping[str, OneStepRun],
    summary: Mapping[str, Any],
    changes: Sequence[int],
) -> None:
    import numpy as np

    from assay.core.files import atomic_path, write_text
    from assay.marl.payoff_report import recovery_curve, recovery_rows
    from assay.marl.plots import plot_curves, plot_levels

    folder.mkdir(exist_ok=True)
    write_text(folder / GAME, json.dumps(summary, indent=1) + "\n", force=True)
    write_text(folder / RECOVERY_TABLE, _table(recovery_rows(runs)), force=True)
    curves = {name: recovery_curve(run) for name, run in runs.items()}
    title = f"{Path(summary['game']).name}: seeds whose joint action is best, with 95 % intervals"
    figure = plot_curves(curves, title=title, along="updates", quantity="share of seeds", changes=changes)
    with atomic_path(folder / RECOVERY, force=True) as temporary:
        figure.savefig(temporary, format="png", dpi=150)
    if "s2q" in runs and table.payoff.ndim == 2:
        run = runs["s2q"]
        held = [_most_common(level) for level in np.moveaxis(run.greedy[-1], 1, 0)]
        figure = plot_levels(
            learned,
            run.values.mean(0),
            held=held,
            actions=table.actions,
            title=f"s2q at the end, mean of {len(run.values)} seeds; framed: what most seeds hold",
        )
        with atomic_path(folder / LEVELS, force=True) as temporary:
            figure.savefig(temporary, format="png", dpi=150)


def _most_common(joints: NDArray[np.uint8]) -> tuple[int, int]:
    from collections import Counter

    (found, _), *_ = Counter(map(tuple, joints.tolist())).most_common(1)
    return found


def _read_shifts(given: Sequence[tuple[str, int]], first: Game, updates: int) -> list[tuple[int, NDArray[np.float64]]]:
    """The later payoffs; refuses those of another shape, and updates that don't rise or aren't reached."""
    from assay.marl.payoff_files import read_game

    later: list[tuple[int, NDArray[np.float64]]] = []
    before = 0
    for path, update in given:
        table = read_game(path)
        if table.payoff.shape != first.payoff.shape:
            raise InputError(
                f"has the shape {table.payoff.shape}", file=path, expected=f"{first.payoff.shape}, as the first payoff"
            )
        if table.actions != first.actions:
            raise InputError("names other actions", file=path, expected="the actions of the first payoff, in its order")
        if not before < update < updates:
            raise InputError(f"--shift is at update {update}", expected=f"updates that rise, below --updates {updates}")
        later.append((update, table.payoff))
        before = update
    return later


def _settings(learning: Learning, steps: int) -> dict[str, Any]:
    """The learners' settings, checked."""
    from assay.marl.settings import Settings

    if learning.k < 0:
        raise InputError(f"--k is {learning.k}", expected="at least 0")
    for name, value in (("floor", learning.floor), ("lr", learning.lr)):
        if not 0 < value < math.inf:
            raise InputError(f"--{name} is {value}", expected="a number above 0")
    if not 0 <= learning.gamma <= 1:
        raise InputError(f"--gamma is {learning.gamma}", expected="0 to 1")
    given = {
        "K": learning.k,
        "temperature": _number_or_auto(learning.temperature, "--temperature"),
        "suppression": learning.suppression,
        "alpha": _number_or_auto(learning.alpha, "--alpha"),
        "floor": learning.floor,
        "mixer": learning.mixer,
        "selector": learning.selector,
        "mix": learning.mix,
        "weighting": learning.weighting,
        "comm": learning.comm,
        "recurrent": not learning.feed_forward,
        "hidden": learning.hidden,
        "learning_rate": learning.lr,
        "gamma": learning.gamma,
        "batch_size": learning.batch_size,
        "buffer_size": learning.buffer_size,
        "epsilon_steps": learning.epsilon_steps or min(PUBLISHED_EPSILON_STEPS, max(1, steps // 2)),
        "device": _device(learning.device),
    }
    checked = asdict(Settings().changed(**given))
    return {name: checked[name] for name in given}


def _number_or_auto(text: str, option: str) -> float | str:
    if text == "auto":
        return text
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise InputError(f"{option} is '{text}'", expected="a number above 0, or auto")
    return value


def _device(name: str) -> str:
    from assay.core.device import resolve_device

    return str(resolve_device(name))


def _use_threads(number: int) -> None:
    import torch

    torch.set_num_threads(number)


def _seeds(text: str) -> tuple[int, ...]:
    """``0-4`` or ``0,2,5``."""
    found: list[int] = []
    for part in text.split(","):
        span = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", part.strip())
        seeds = range(int(span[1]), int(span[2] or span[1]) + 1) if span is not None else range(0)
        if not seeds:
            raise InputError(f"--seeds is '{text}'", expected="seeds such as 0-4 or 0,2,5")
        if len(found) + len(seeds) > MOST_SEEDS:
            raise InputError(f"--seeds is '{text}'", expected=f"at most {MOST_SEEDS} seeds")
        found.extend(seeds)
    return tuple(dict.fromkeys(found))


def _require_seed(seed: int) -> None:
    if not 0 <= seed < 1 << 32:
        raise InputError(f"--seed is {seed}", expected="a whole number from 0 to 4294967295")


def _require_counts(**counts: int) -> None:
    for name, value in counts.items():
        if value < 1:
            raise InputError(f"--{name.replace('_', '-')} is {value}", expected="at least 1")


def _check_folder(out: str, *, resume: bool, force: bool) -> Path:
    if out == STREAM:
        raise InputError("--out is -", expected="the name of a folder to write")
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise InputError("is a file", file=out, expected="the name of a folder to write")
    if not folder.parent.is_dir():
        raise InputError(f"the folder {folder.parent} doesn't exist", file=out, expected="an existing folder")
    if not os.access(folder if folder.is_dir() else folder.parent, os.W_OK):
        raise InputError("no permission to write", file=out, expected="a writable folder")
    if not resume and folder.is_dir() and any(folder.iterdir()) and not force:
        hint = "--resume to go on, or --force" if (folder / "run.json").is_file() else "another name, or --force"
        raise InputError("exists already", file=out, expected=hint)
    return folder


def _film_name(render: str | None, checkpoint: str) -> str | None:
    if render is None:
        return None
    if render.lower() == "gif":
        return str(Path(checkpoint).with_suffix(".gif"))
    if not render.lower().endswith(".gif"):
        raise InputError(f"--render is '{render}'", expected="gif, or a file that ends in .gif")
    return render


def _plan_of(checkpoint: str, *, env: str | None, reward: str | None, horizon: int | None) -> RunPlan:
    """Where a team was trained, or where it shall play."""
    from assay.marl.runs import RunPlan, read_plan

    held = read_plan(Path(checkpoint).parent)
    if env is not None:
        return RunPlan(env, (), (), 1, 8 if held is None else held.instances, reward, None, horizon, 1, 1, {})
    if held is None:
        raise InputError("has no run.json beside it that says where it was trained", file=checkpoint, expected="--env")
    if reward is not None or horizon is not None:
        raise InputError("--reward and --horizon are given without --env", expected="--env with them")
    return held


def _first_candidates(learner: Learner, arena: Any, seed: int) -> Candidates:
    frame = arena.reset(seed)
    return learner.candidates(frame.obs[0], frame.state[0], frame.avail[0])


def _candidate_rows(held: Candidates) -> list[dict[str, Any]]:
    rows = []
    for level, actions in enumerate(held.actions.tolist()):
        reference = float(held.reference[level])
        known = math.isfinite(reference)
        rows.append(
            {
                "level": level,
                "actions": actions,
                "value": float(held.values[level]),
                "reference": reference if known else None,
                "probability": float(held.probability[level]) if known else None,
            }
        )
    return rows


def _episode_table(found: Evaluation) -> str:
    return _table(
        [
            {"episode": number, "return": value, "length": length}
            for number, (value, length) in enumerate(zip(found.returns.tolist(), found.lengths.tolist(), strict=True))
        ]
    )


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def _write_text_or_print(text: str, out: str, *, write: Callable[[str], object]) -> None:
    if out == STREAM:
        print(text, end="")
    else:
        write(text)


@contextmanager
def _training_progress(plan: RunPlan, reporting: Reporting) -> Iterator[Callable[[str, int, Mapping[str, Any]], None]]:
    """A line that is renewed on a terminal; nothing in a pipe."""
    if not shows_progress(reporting):
        yield lambda algorithm, seed, row: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    every = [(algorithm, seed) for algorithm in plan.algorithms for seed in plan.seeds]
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        line = bar.add_task("", total=plan.steps * len(every))
        greedy: dict[tuple[str, int], float] = {}

        def watch(algorithm: str, seed: int, row: Mapping[str, Any]) -> None:
            greedy[algorithm, seed] = row.get("eval_return", greedy.get((algorithm, seed), math.nan))
            done = every.index((algorithm, seed)) * plan.steps + min(row["steps"], plan.steps)
            bar.update(line, completed=done, description=_progress_line(algorithm, seed, row, greedy[algorithm, seed]))

        yield watch


def _progress_line(algorithm: str, seed: int, row: Mapping[str, Any], greedy: float) -> str:
    """Speed, exploration, returns, and how evenly the coordinator draws levels."""

    def shown(value: float, form: str) -> str:
        return "–" if math.isnan(value) else format(value, form)

    return (
        f"{algorithm} seed {seed}  {shown(row['steps_per_second'], ',.0f')} steps/s  ε {row['epsilon']:.2f}  "
        f"return {shown(row['train_return'], '.3g')} (greedy {shown(greedy, '.3g')})  "
        f"P̂ entropy {shown(row.get('entropy', math.nan), '.2f')}"
    )


@contextmanager
def _game_progress(
    algorithms: Sequence[str], updates: int, reporting: Reporting
) -> Iterator[Callable[[str], Callable[[int], None] | None]]:
    if not shows_progress(reporting):
        yield lambda name: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        line = bar.add_task("", total=updates * len(algorithms))

        def watch(name: str) -> Callable[[int], None]:
            before = list(algorithms).index(name) * updates
            return lambda update: bar.update(line, completed=before + update + 1, description=name)

        yield watch
