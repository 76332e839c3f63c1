"""How the settings of the study were chosen: every arm alike, on other seeds than those that decide.

Each arm's own setting is run at values a constant factor apart, on entrenched and on invented facts of the seeds from
1000 on, which the deciding seeds never draw. The best value is the one whose reworded questions cost least, among those
that move the next token on unrelated prompts by at most `MOST_KL`. The grid grows where its best value is the last
one. Run it with ``python -m assay.edit.tuning docs/results/edit/tuning.json``, perhaps with the arms' names; a stopped
run goes on.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError
from assay.core.files import write_text
from assay.core.study import Trial
from assay.edit.study import ARMS, SMALL
from assay.edit.trials import run_trial

__all__ = ["best_values", "tune"]

RECORDS = 4
FACTS = ("entrenched", "novel")
SEEDS = (1000,)
MOST_KL = 0.1
"""In nats: an edit that moves unrelated prompts farther isn't one that anybody would keep."""
MEASURES = ("nll_original", "nll_paraphrase", "locality_kl")
FAILED = dict.fromkeys(MEASURES, 100.0)
MOST_VALUES = 8
Row = Mapping[str, Mapping[str, Mapping[str, float]]]
Table = dict[str, dict[str, dict[str, dict[str, float]]]]


@dataclass(frozen=True)
class _Grid:
    """One setting of an arm: where it stands among the arm's settings, its first values, and the factor between."""

    path: tuple[str, ...]
    values: tuple[float, ...]
    factor: float = 2.0


GRIDS = {
    "adaptive": _Grid(("settings", "fit_rate"), (5e-4, 1e-3, 2e-3)),
    "unke": _Grid(("settings", "fit_rate"), (5e-4, 1e-3, 2e-3)),
    "ft-l": _Grid(("settings", "rate"), (2e-4, 4e-4, 8e-4)),
    "windows": _Grid(("settings", "fit_rate"), (5e-4, 1e-3)),
    "answers": _Grid(("settings", "fit_rate"), (2.5e-4, 5e-4)),
    "lora": _Grid(("settings", "rate"), (5e-4, 1e-3, 2e-3)),
    "ft": _Grid(("settings", "rate"), (2.5e-5, 5e-5, 1e-4)),
    "memit": _Grid(("weight",), (10.0, 100.0, 1000.0), 10.0),
    "alphaedit": _Grid(("threshold",), (2e-4, 2e-3, 2e-2), 10.0),
}


def tune(file: Path, *, arms: Sequence[str] = tuple(GRIDS)) -> Table:
    """Run what the file doesn't hold yet.

    Parameters
    ----------
    file : Path
        JSON: by arm, value, and facts with their seed, the measures; written after each run.
    arms : sequence of str
        Which arms.

    Returns
    -------
    dict
        What the file holds in the end.
    """
    table: Table = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    for arm in arms:
        row = table.setdefault(arm, {})
        while runs := _missing(arm, row):
            value, facts, seed = runs[0]
            row.setdefault(f"{value:.6g}", {})[f"{facts}-{seed}"] = _measured(arm, value, facts, seed)
            table[arm] = row = dict(sorted(row.items(), key=lambda entry: float(entry[0])))
            write_text(file, json.dumps(table, indent=1) + "\n", force=True)
    return table


def best_values(table: Table) -> dict[str, float]:
    """The value of each arm's setting that the rule chooses."""
    return {arm: float(_best(row)) for arm, row in table.items()}


def _best(row: Row) -> str:
    """The cheapest reworded questions among the mild values; the mildest value where none is mild."""
    means = {value: {name: _mean(found, name) for name in MEASURES} for value, found in row.items()}
    mild = [value for value in means if means[value]["locality_kl"] <= MOST_KL]
    if not mild:
        return min(means, key=lambda value: means[value]["locality_kl"])
    return min(mild, key=lambda value: means[value]["nll_paraphrase"])


def _mean(found: Mapping[str, Mapping[str, float]], name: str) -> float:
    return sum(one[name] for one in found.values()) / len(found)


def _missing(arm: str, row: Row) -> list[tuple[float, str, int]]:
    """Runs of the first grid, then of one value beyond a best one at the edge."""
    grid = GRIDS[arm]
    values = sorted({*grid.values, *map(float, row)})
    places = [(facts, seed) for facts in FACTS for seed in SEEDS]
    # All values on one set of facts before the next: what arms share there is made once.
    runs = [
        (value, facts, seed)
        for facts, seed in places
        for value in values
        if f"{facts}-{seed}" not in row.get(f"{value:.6g}", {})
    ]
    if runs or len(values) >= MOST_VALUES:
        return runs
    place = values.index(float(_best(row)))
    if 0 < place < len(values) - 1:
        return []
    beyond = values[0] / grid.factor if place == 0 else values[-1] * grid.factor
    return [(beyond, facts, seed) for facts, seed in places]


def _measured(arm: str, value: float, facts: str, seed: int) -> dict[str, float]:
    settings = _with(ARMS[arm].settings, GRIDS[arm].path, value)
    case: dict[str, Any] = {"kind": "edit", "facts": facts, "count": RECORDS, **SMALL}
    try:
        found = run_trial(Trial("edit", arm, facts, seed, "tuning", {**settings, "generated": False}, case))
    except AssayError:
        # A rate at which the loss explodes is worse than any other.
        return FAILED
    return {name: round(found[name], 4) for name in MEASURES}


def _with(settings: Mapping[str, Any], path: tuple[str, ...], value: float) -> dict[str, Any]:
    """Settings with one of them changed, however deep it stands."""
    name, *rest = path
    return {**settings, name: _with(settings.get(name, {}), tuple(rest), value) if rest else value}


if __name__ == "__main__":
    for name, found in best_values(tune(Path(sys.argv[1]), arms=sys.argv[2:] or tuple(GRIDS))).items():
        print(f"{name:12} {found:g}")
