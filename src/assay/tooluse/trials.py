"""What a trial of the study does: an agent, a retriever, a scorer or a reader on one input."""

from __future__ import annotations

import gc
import json
import math
import os
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from assay.core.measure import peak_memory, stopwatch
from assay.core.study import Trial
from assay.tooluse.agents import split_sentences
from assay.tooluse.alignment import count_calls
from assay.tooluse.reading import iterate, read_gold, read_tools
from assay.tooluse.retrieval import Retriever
from assay.tooluse.scoring import score
from assay.tooluse.scripted import (
    add_calls,
    confuse_tools,
    ignore_parameters,
    shuffle_calls,
    wrong_arguments,
    wrong_names,
)
from assay.tooluse.streaming import score_stream
from assay.tooluse.tasks import make_tasks
from assay.tooluse.trajectories import Call, Gold, Structure, Tool, Trajectory
from assay.tooluse.world import ToolWorld

__all__ = ["PUBLIC", "public_data_lacks", "run_trial"]

PUBLIC = "ASSAY_TRAJECT_DATA"
"""The environment variable that names a folder with TRAJECT-Bench's public data."""
SHORTLIST = 5
"""Tools among which the language model chooses: those that word statistics find nearest."""
LEAST_PEAK = float(1 << 20)
"""Peaks below a mebibyte are that of the allocator."""
AGENT_RATES = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6)
EXACT_ONES = ("name_em", "name_f1", "call_em", "call_f1", "args_accuracy")


def run_trial(trial: Trial) -> Mapping[str, float]:
    """Run the task of the case with the arm's settings."""
    return TRIALS[trial.case_settings["task"]](trial)


def public_data_lacks() -> str:
    """What is missing for the cases on the public data; empty for nothing."""
    folder = os.environ.get(PUBLIC, "")
    return "" if folder and Path(folder).is_dir() else f"TRAJECT-Bench's data in the folder that {PUBLIC} names"


@lru_cache(maxsize=1)
def _world() -> ToolWorld:
    return ToolWorld.load()


@lru_cache(maxsize=4)
def _public(folder: str) -> tuple[list[Gold], list[Tool]]:
    golds = [gold for kind in ("parallel", "sequential") for gold in read_gold(Path(folder) / kind)]
    return golds, read_tools(Path(folder) / "tools")


def _seed(trial: Trial, purpose: str) -> int:
    return int(trial.rng(purpose).integers(2**31))


# --- Selection and retrieval: simple against hard


@lru_cache(maxsize=2)
def _language_model() -> Any:
    from assay.core.lm import load_language_model

    return load_language_model("smollm2")


def _model_scores(sentences: Sequence[str], tools: Sequence[Tool]) -> Any:
    """The log-probability of each shortlisted tool's name after the sentence; minus infinity for the other tools."""
    from assay.core.lm import chat_prompt, score_answers

    lm = _language_model()
    near = Retriever("bm25", text="name+description").scores(sentences, tools)
    found = np.full(near.shape, -np.inf)
    for row, sentence in enumerate(sentences):
        shortlist = np.argsort(-near[row], kind="stable")[:SHORTLIST]
        question = f"Name the tool that answers this request. {sentence}"
        prompt = chat_prompt(lm.tokenizer, question)
        names = [tools[i].name for i in shortlist]
        scored = score_answers(lm.model, lm.tokenizer, [prompt] * len(names), names, batch_size=SHORTLIST)
        for i, one in zip(shortlist, scored, strict=True):
            found[row, i] = float(one.log_probabilities.sum())
    return found


def _selector(trial: Trial) -> Callable[[Sequence[str], Sequence[Tool]], Any]:
    model = trial.arm_settings["selector"]
    if model == "smollm2":
        return _model_scores
    if model == "random":
        rng = trial.rng("random selection")
        return lambda sentences, tools: rng.random((len(sentences), len(tools)))
    return _retriever(model).scores


@lru_cache(maxsize=4)
def _retriever(encoder: str) -> Retriever:
    return Retriever(encoder)


def select(trial: Trial) -> dict[str, float]:
    """The best tool for each sentence, on twins; exact match of names by difficulty and by the number of calls."""
    case = trial.case_settings
    tasks = make_tasks(case["sizes"], "parallel", seed=_seed(trial, "tasks"), per_n=case["per_n"], world=_world())
    tools = _world().tools()
    scores = _selector(trial)
    right: dict[tuple[str, int], list[float]] = defaultdict(list)
    parts = [split_sentences(task.query) for task in tasks]
    rows = scores([one for part in parts for one in part], tools)
    start = 0
    for task, part in zip(tasks, parts, strict=True):
        chosen = [tools[int(np.argmax(row))].name for row in rows[start : start + len(part)]]
        start += len(part)
        run = [Call(name, {}, index=i, turn=i) for i, name in enumerate(chosen)]
        right[task.difficulty, len(task.calls)].append(score(run, task)["name_em"])
    measured = {}
    for level in ("simple", "hard"):
        values = [one for (difficulty, _), found in right.items() if difficulty == level for one in found]
        measured[f"em_{level}"] = float(np.mean(values))
    measured["em_drop"] = measured["em_simple"] - measured["em_hard"]
    if len(case["sizes"]) > 3:
        simple_and_hard = {n: right["simple", n] + right["hard", n] for n in case["sizes"]}
        measured.update(_fall({n: float(np.mean(found)) for n, found in simple_and_hard.items()}))
    return measured


def _fall(em: Mapping[int, float]) -> dict[str, float]:
    """How exact match falls with n: the absolute fall and the hazard, from 3 to 5 against later."""
    last = max(em)
    early, late = (em[3] - em[5]) / 2, (em[5] - em[last]) / (last - 5)

    def hazard(a: int, b: int) -> float:
        return 1 - (em[b] / em[a]) ** (1 / (b - a)) if em[a] > 0 else math.nan

    found = {f"em_{n}": value for n, value in em.items()}
    found["early_fall"], found["late_fall"] = early, late
    found["fall_excess"] = early - late
    first, second = hazard(3, 5), hazard(5, last)
    found["hazard_early"], found["hazard_late"] = first, second
    if not (math.isnan(first) or math.isnan(second)):
        found["hazard_excess"] = first - second
    return found


def scaling(trial: Trial) -> dict[str, float]:
    """Exact match by n of an agent whose calls fail independently."""
    rng = trial.rng("errors")
    rate = 1 - trial.arm_settings["p"]
    names = [f"tool{i}" for i in range(60)]
    em = {}
    for n in trial.case_settings["sizes"]:
        runs = []
        for _ in range(trial.case_settings["per_n"]):
            picked = rng.permutation(len(names) // 2)[:n]
            gold = Gold([Call(names[i], {}, index=k, turn=k) for k, i in enumerate(picked)])
            runs.append(score(wrong_names(gold, rng, rate=rate, names=names), gold)["name_em"])
        em[n] = float(np.mean(runs))
    return _fall(em)


def retrieval(trial: Trial) -> dict[str, float]:
    """The share of a task's tools among the nearest k to the whole query, on twins, in all tools and by domain."""
    case = trial.case_settings
    if case.get("public"):
        golds, tools = _public(os.environ[PUBLIC])
        tasks = [gold for gold in golds if gold.structure == "parallel"]
    else:
        tasks = make_tasks(case["sizes"], "parallel", seed=_seed(trial, "tasks"), per_n=case["per_n"], world=_world())
        tools = _world().tools()
    position = {tool.name: i for i, tool in enumerate(tools)}
    domain_of = np.array([tool.domain for tool in tools])
    if trial.arm_settings["selector"] == "random":
        scores = trial.rng("random retrieval").random((len(tasks), len(tools)))
    else:
        scores = _retriever(trial.arm_settings["selector"]).scores([task.query for task in tasks], tools)
    recalls: dict[tuple[str, str], list[float]] = defaultdict(list)
    for task, row in zip(tasks, scores, strict=True):
        wanted = {position[call.name] for call in task.calls if call.name in position}
        if not wanted:
            continue
        domains = {domain_of[i] for i in wanted}
        within = np.where(np.isin(domain_of, list(domains)), row, -np.inf)
        for pool, values in (("all", row), ("domain", within)):
            for k in case["k"]:
                nearest = set(np.argsort(-values, kind="stable")[:k].tolist())
                recalls[f"{pool}_{k}", task.difficulty].append(len(wanted & nearest) / len(wanted))
    means = {key: float(np.mean(values)) for key, values in recalls.items()}
    k = case["k"][0]
    return {
        **{f"recall_{pool}_{level}": value for (pool, level), value in means.items()},
        "recall_drop": means[f"all_{k}", "simple"] - means[f"all_{k}", "hard"],
        "domain_gain": min(means[f"domain_{k}", level] - means[f"all_{k}", level] for level in ("simple", "hard")),
    }


# --- Metrics on runs that are known


def _tasks_with_repeats(trial: Trial) -> list[Gold]:
    case = trial.case_settings
    if case.get("public"):
        return _public(os.environ[PUBLIC])[0]
    structures: tuple[Structure, ...] = ("parallel", "sequential", "dag")
    return [
        task
        for structure in structures
        for task in make_tasks(
            case["sizes"],
            structure,
            seed=_seed(trial, structure),
            per_n=case["per_n"],
            world=_world(),
        )
    ]


def perfect(trial: Trial) -> dict[str, float]:
    """The reference itself as prediction: what the official and the exact metrics say of it."""
    tasks = _tasks_with_repeats(trial)
    tools = () if trial.case_settings.get("public") else _world().tools()
    repeated = below = unlike = flawed = breaks = 0
    for task in tasks:
        names = [call.name for call in task.calls]
        official = score(task.as_trajectory(), task, profile="official", tools=tools)
        exact = score(task.as_trajectory(), task, tools=tools)
        repeats = len(set(names)) < len(names)
        repeated += repeats
        below += official["inclusion"] < 1
        unlike += (official["inclusion"] < 1) != repeats
        breaks += official["inclusion"] < official["em"]
        ones = all(exact[metric] == 1 or math.isnan(exact[metric]) for metric in EXACT_ONES)
        flawed += bool(exact.labels) or not ones
    return {
        "trajectories": float(len(tasks)),
        "repeated_share": repeated / len(tasks),
        "official_below_one": below / len(tasks),
        "official_unlike": float(unlike),
        "official_breaks": float(breaks),
        "exact_flawed": float(flawed),
    }


def inclusion(trial: Trial) -> dict[str, float]:
    """Random runs against random references: is recall of names ever below their exact match?"""
    rng = trial.rng("runs")
    violations = official = 0
    count = trial.case_settings["runs"]
    for _ in range(count):
        sides = [[Call(f"t{rng.integers(4)}", {}, index=i, turn=i) for i in range(rng.integers(0, 7))] for _ in "ab"]
        structure = ("parallel", "sequential")[int(rng.integers(2))]
        gold = Gold(sides[0], structure)  # type: ignore[arg-type]
        run = sides[0] if rng.random() < 0.3 else sides[1]
        found = score(run, gold)
        violations += found["name_recall"] < found["name_em"]
        theirs = score(run, gold, profile="official")
        official += theirs["inclusion"] < theirs["em"]
    return {"runs": float(count), "violations": float(violations), "official_violations": float(official)}


def satisfaction(trial: Trial) -> dict[str, float]:
    """Agents of known error rates: does the share of facts that they find follow their exact match?"""
    from scipy.stats import spearmanr

    case = trial.case_settings
    tasks = make_tasks(
        case["sizes"], "parallel", "simple", seed=_seed(trial, "tasks"), per_n=case["per_n"], world=_world()
    )
    names = list(_world().declarations)
    rng = trial.rng("errors")
    ems, served = [], []
    for rate in AGENT_RATES:
        found = [score(wrong_names(task, rng, rate=rate, names=names), task) for task in tasks]
        ems.append(float(np.mean([one["name_em"] for one in found])))
        served.append(float(np.mean([one["satisfaction"] for one in found])))
    return {"spearman": float(spearmanr(ems, served).statistic), "agents": float(len(AGENT_RATES))}


LABEL_OF = {
    "similar_tool_confusion": "confuse",
    "parameter_blind": "ignore",
    "redundant": "add",
    "wrong_order": "shuffle",
}


def failures(trial: Trial) -> dict[str, float]:
    """Agents that fail in one way each: does each get its own label, and no other the same?"""
    case = trial.case_settings
    world = _world()
    tools = world.tools()
    rng = trial.rng("errors")
    agents: dict[str, Callable[..., Trajectory | None]] = {
        "confuse": partial(confuse_tools, world=world),
        "ignore": partial(ignore_parameters, world=world),
        "add": add_calls,
        "shuffle": shuffle_calls,
    }
    structures: tuple[Structure, ...] = ("parallel", "sequential")
    tasks = [
        task
        for structure in structures
        for task in make_tasks(
            case["sizes"],
            structure,
            "simple",
            seed=_seed(trial, structure),
            per_n=case["per_n"],
            world=world,
        )
    ]
    seen: list[tuple[str, tuple[str, ...]]] = []
    for task in tasks:
        for name, agent in agents.items():
            if name == "shuffle" and task.structure == "parallel":
                continue
            run = agent(task, rng)
            if run is not None:
                seen.append((name, score(run, task, tools=tools).labels))
    measured = {}
    for label, agent_name in LABEL_OF.items():
        given = [name for name, labels in seen if label in labels]
        owed = [labels for name, labels in seen if name == agent_name]
        measured[f"precision_{label}"] = given.count(agent_name) / len(given) if given else math.nan
        measured[f"recall_{label}"] = sum(label in labels for labels in owed) / len(owed)
    measured["least_precision"] = min(v for k, v in measured.items() if k.startswith("precision"))
    measured["least_recall"] = min(v for k, v in measured.items() if k.startswith("recall"))
    return {**measured, "runs": float(len(seen))}


def rates(trial: Trial) -> dict[str, float]:
    """Agents of known error rates: the mean scores against what the rates say."""
    rng = trial.rng("errors")
    n, count = trial.case_settings["n"], trial.case_settings["runs"]
    q, r = 0.15, 0.25
    names = [f"tool{i}" for i in range(40)]
    gold = Gold([Call(names[i], {"x": i}, index=i, turn=i) for i in range(n)])
    by_name = [score(wrong_names(gold, rng, rate=q, names=names), gold) for _ in range(count)]
    by_args = [score(wrong_arguments(gold, rng, rate=r), gold) for _ in range(count)]
    return {
        "recall_error": abs(float(np.mean([one["name_recall"] for one in by_name])) - (1 - q)),
        "em_error": abs(float(np.mean([one["name_em"] for one in by_name])) - (1 - q) ** n),
        "args_error": abs(float(np.mean([one["args_accuracy"] for one in by_args])) - (1 - r)),
    }


# --- Speed and memory


def _messages(calls: Sequence[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    tool_calls = [
        {"id": str(i), "type": "function", "function": {"name": name, "arguments": json.dumps(args)}}
        for i, (name, args) in enumerate(calls)
    ]
    return [{"role": "user", "content": "q"}, {"role": "assistant", "content": "", "tool_calls": tool_calls}]


def _pairs(trial: Trial, count: int) -> list[tuple[list[tuple[str, dict[str, Any]]], list[tuple[str, dict[str, Any]]]]]:
    """Predictions and references of so many calls; a quarter of the predictions are wrong in one argument."""
    rng = trial.rng("pairs")
    calls = trial.case_settings["calls"]
    repeats = trial.case_settings.get("repeats", False)
    made = []
    for number in range(count):
        names = [f"tool{int(rng.integers(calls // 2)) if repeats else i}" for i in range(calls)]
        wanted = [(name, {"city": f"c{rng.integers(1000)}", "days": int(rng.integers(2, 30))}) for name in names]
        got = [(name, dict(args)) for name, args in wanted]
        if number % 4 == 0:
            got[int(rng.integers(calls))][1]["days"] = 99
        made.append((got, wanted))
    return made


def speed(trial: Trial) -> dict[str, float]:
    """Score trajectories one by one; the references' look-up tables are made within the measured time."""
    count = trial.arm_settings["count"]
    pairs = _pairs(trial, count)
    calls = trial.case_settings["calls"]
    if trial.arm_settings["scorer"] == "agentevals":
        from agentevals.trajectory.match import create_trajectory_match_evaluator

        evaluate = create_trajectory_match_evaluator(trajectory_match_mode="unordered")
        given = [(_messages(got), _messages(wanted)) for got, wanted in pairs]
        evaluate(outputs=given[0][0], reference_outputs=given[0][1])
        gc.disable()
        with stopwatch() as watch:
            right = sum(bool(evaluate(outputs=a, reference_outputs=b)["score"]) for a, b in given)
    else:
        inputs = [
            (
                [{"name": name, "args": args} for name, args in got],
                Gold([Call(name, args, index=i, turn=i) for i, (name, args) in enumerate(wanted)]),
            )
            for got, wanted in pairs
        ]
        gc.disable()  # as timeit does: the time is the scorer's, not that of the libraries' objects
        warm = Gold([Call("a", {}), Call("a", {"x": 1})])
        count_calls([{"name": "a", "args": {}}], warm)
        with stopwatch() as watch:
            right = sum(count_calls(run, gold).f1 == 1 for run, gold in inputs)
    gc.enable()
    return {
        "cpu_seconds": watch.cpu_seconds / count,
        "per_second": count / watch.cpu_seconds,
        "calls": float(calls),
        "right_share": right / count,
    }


def _recording(rng: np.random.Generator, number: int) -> bytes:
    """A run of eight calls as it is recorded in our own format: arguments and results of everyday length."""
    calls = [
        {
            "name": f"tool{i}",
            "args": {"city": f"city {rng.integers(1000)}", "days": int(rng.integers(2, 30))},
            "turn": i,
            "result": {
                "summary": " ".join(f"word{rng.integers(10**6)}" for _ in range(60)),
                "value": float(rng.random()),
            },
        }
        for i in range(8)
    ]
    return json.dumps({"id": f"run{number}", "query": "What should I pack?", "calls": calls}).encode() + b"\n"


def reading(trial: Trial) -> dict[str, float]:
    """Read a file of recorded runs, one by one."""
    rng = trial.rng("file")
    block = b"".join(_recording(rng, i) for i in range(200))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "runs.jsonl"
        with file.open("wb") as stream:
            for _ in range(max(1, round(trial.case_settings["megabytes"] * 1e6 / len(block)))):
                stream.write(block)
        size = file.stat().st_size
        for _ in zip(iterate(file), range(200), strict=False):
            pass
        with peak_memory() as peak, stopwatch() as watch:
            runs = sum(1 for _ in iterate(file))
    return {
        "megabytes_per_second": size / 1e6 / watch.cpu_seconds,
        "peak_bytes": max(peak.bytes, LEAST_PEAK),
        "n": float(size),
        "runs": float(runs),
    }


def million(trial: Trial) -> dict[str, float]:
    """Score a file of many runs of eight calls against a thousand references, on two processes."""
    rng = trial.rng("file")
    golds: dict[str, Gold] = {}
    lines = []
    for i in range(1000):
        calls = [
            Call(f"tool{k}", {"city": f"c{rng.integers(999)}", "days": int(rng.integers(2, 30))}) for k in range(8)
        ]
        golds[f"r{i}"] = Gold(calls, id=f"r{i}")
        called = [{"name": call.name, "args": call.args} for call in calls]
        lines.append(json.dumps({"id": f"r{i}", "calls": called}).encode() + b"\n")
    block = b"".join(lines)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "runs.jsonl"
        with file.open("wb") as stream:
            for _ in range(trial.case_settings["thousands"]):
                stream.write(block)
        with stopwatch() as watch:
            totals = score_stream(file, golds, n_jobs=2)
    return {
        "seconds": watch.seconds,
        "runs": float(totals.runs),
        "f1": totals.estimates()["call_f1"].mean,
        "seconds_per_million": watch.seconds * 1e6 / totals.runs,
    }


def endpoint(trial: Trial) -> dict[str, float]:
    """ReAct with static and dynamic retrieval against a capable model, on hard queries."""
    from assay.tooluse.clients import EndpointClient
    from assay.tooluse.running import evaluate

    case = trial.case_settings
    tasks = make_tasks(
        case["sizes"], "parallel", "hard", seed=_seed(trial, "tasks"), per_n=case["per_n"], world=_world()
    )
    client = EndpointClient(
        os.environ["ASSAY_TOOLUSE_ENDPOINT"],
        os.environ.get("ASSAY_TOOLUSE_MODEL", "default"),
        os.environ.get("OPENAI_API_KEY", "none"),
    )
    runs = evaluate(client, tasks, "retrieval:20", trial.arm_settings["agent"], world=_world())
    found = [score(run, task)["name_em"] for run, task in zip(runs, tasks, strict=True) if run.error is None]
    return {"em_hard": float(np.mean(found)), "runs": float(len(found))}


TRIALS: Mapping[str, Callable[[Trial], dict[str, float]]] = {
    "endpoint": endpoint,
    "failures": failures,
    "inclusion": inclusion,
    "million": million,
    "perfect": perfect,
    "rates": rates,
    "reading": reading,
    "retrieval": retrieval,
    "satisfaction": satisfaction,
    "scaling": scaling,
    "select": select,
    "speed": speed,
}
