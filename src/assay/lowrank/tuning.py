"""How the learning rates of the study were chosen: every arm alike, on other seeds than those that decide.

Each arm that trains is run at learning rates a factor of 2 apart, on the seeds 1000 and 1001 of the laptop scale's own
case. The grid of an arm grows on the side where its best rate is the last one, until the best is inside. Then the best
rate and its two neighbours are run on two seeds more, and the mean of all four decides. Run it with
``python -m assay.lowrank.tuning docs/results/lowrank/tuning.json``; a stopped run goes on.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed

from assay.core.errors import InputError
from assay.core.files import write_text
from assay.core.study import Trial
from assay.lowrank.study import ARMS, LAPTOP, TRAINED
from assay.lowrank.trials import run_trial

__all__ = ["best_rates", "tune"]

SEEDS = ((1000, 1001), (1002, 1003))
"""Of the grid, and of the best rate with its neighbours besides."""
FACTOR = 2.0
WIDTH = 2
"""Rates on either side of the middle of the first grid."""
MIDDLE = {"adamw": 0.003, "frugal": 0.004, "dct-frugal": 0.004}
"""Where an arm's first grid is; 0.02 for others. It moves on from a wrong place."""
EXPLODED = 100.0
Table = dict[str, dict[str, list[float]]]


def tune(file: Path, *, workers: int = 2) -> Table:
    """Run what the file doesn't hold yet.

    Parameters
    ----------
    file : Path
        JSON: by arm and learning rate, the mean held-out loss on each pair of seeds; written as it grows.
    workers : int
        Processes.

    Returns
    -------
    dict
        What the file holds in the end.
    """
    table: Table = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    with Parallel(n_jobs=workers) as pool:
        for arm in TRAINED:
            while runs := _missing(arm, table.get(arm, {})):
                losses = iter(pool(delayed(_loss)(arm, rate, seed) for rate, stage in runs for seed in SEEDS[stage]))
                row = dict(table.get(arm, {}))
                for rate, stage in runs:
                    found = [next(losses) for _ in SEEDS[stage]]
                    row[f"{rate:.6g}"] = [*row.get(f"{rate:.6g}", []), round(sum(found) / len(found), 5)]
                table[arm] = dict(sorted(row.items(), key=lambda entry: float(entry[0])))
                write_text(file, json.dumps(table, indent=1) + "\n", force=True)
    return table


def best_rates(table: Table) -> dict[str, float]:
    """The rate of each arm with the lowest mean loss on all seeds, among those that were run on all."""
    return {arm: _best(row) for arm, row in table.items()}


def _best(row: dict[str, list[float]]) -> float:
    """By all seeds where some rates were run on all, else by the first ones."""
    most = max(len(losses) for losses in row.values())
    whole = {rate: losses for rate, losses in row.items() if len(losses) == most}
    return float(min(whole, key=lambda rate: sum(whole[rate])))


def _missing(arm: str, row: dict[str, list[float]]) -> list[tuple[float, int]]:
    """The rates that an arm still lacks, each with its stage.

    First the grid, then what lies beyond a best rate at its edge, then the best rate and its neighbours on all seeds,
    until the best of these has two such neighbours.
    """
    if not row:
        middle = MIDDLE.get(arm, 0.02)
        return [(middle * FACTOR**power, 0) for power in range(-WIDTH, WIDTH + 1)]
    rates = sorted(float(rate) for rate in row)
    place = rates.index(_best(row))
    if place == 0:
        return [(rates[0] / FACTOR, 0)]
    if place == len(rates) - 1:
        return [(rates[-1] * FACTOR, 0)]
    near = rates[place - 1 : place + 2]
    return [(rate, 1) for rate in near if len(row[f"{rate:.6g}"]) == 1]


def _loss(arm: str, rate: float, seed: int) -> float:
    case = next(one for one in LAPTOP.cases if one.settings.get("kind") == "training")
    settings: dict[str, Any] = {**ARMS[arm].settings, "lr": rate}
    try:
        found = run_trial(Trial("lowrank", arm, case.name, seed, "tuning", settings, case.settings))
    except InputError:
        # A rate that explodes is worse than any other.
        return EXPLODED
    return found["validation_loss"]


if __name__ == "__main__":
    for name, found in best_rates(tune(Path(sys.argv[1]))).items():
        print(f"{name:24} {found:g}")
