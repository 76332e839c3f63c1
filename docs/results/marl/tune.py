"""Try settings on seeds that decide nothing (1000 and on), and write down what came of them: tuning.json."""

from __future__ import annotations

import json
from pathlib import Path

from assay.marl.one_step import train_one_step
from assay.marl.study import DIAGONAL
from assay.marl.trials import payoff_of

GRID = {
    "qmix": ({"lr": 1e-3}, {"lr": 5e-3}, {"lr": 1e-2}),
    "owqmix": ({"w_c": 0.1}, {"w_c": 0.5}, {"w_c": 0.75}, {"w_c": 0.1, "lr": 1e-2}),
    "cwqmix": ({"w_c": 0.1}, {"w_c": 0.5}, {"w_c": 0.75}, {"w_c": 0.1, "lr": 1e-2}),
    "s2q": ({},),
}
SEEDS = range(1000, 1008)


def main() -> None:
    """Train every setting on the study's game."""
    shifts = [(DIAGONAL["shift"], payoff_of(DIAGONAL, "after"))]
    rows = []
    for algorithm, grid in GRID.items():
        for settings in grid:
            run = train_one_step(
                payoff_of(DIAGONAL, "before"),
                algorithm,
                shifts=shifts,
                updates=DIAGONAL["updates"],
                seeds=SEEDS,
                **settings,
            )
            rows.append(
                {
                    "case": "shift",
                    "algorithm": algorithm,
                    "settings": settings,
                    "seeds": len(SEEDS),
                    "optimal_before": float(run.seeds_recovered(0).mean()),
                    "recovered": float(run.seeds_recovered(1).mean()),
                }
            )
    Path(__file__).with_name("tuning.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
