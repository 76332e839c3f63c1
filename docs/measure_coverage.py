"""How often the intervals hold the truth, and how often a claim at its boundary is said to hold: docs/coverage.csv.

Takes some minutes; run it again when `assay.core.intervals` changes.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import optimize, stats

from assay.core.intervals import BOOTSTRAP_FROM, locate

REPETITIONS_EXACT, REPETITIONS_BOOTSTRAP = 10_000, 2000
SIZES = (5, 6, 10, 30, 50, 100)

Groups = list[np.ndarray[Any, np.dtype[np.float64]]]


def one_case(distribution: Any) -> tuple[Callable[[np.random.Generator, int], Groups], float, float]:
    """All values from one distribution; with its median and mean."""
    return (
        lambda rng, n: [distribution.rvs(size=n, random_state=rng)],
        float(distribution.median()),
        float(distribution.mean()),
    )


def two_cases(first: Any, second: Any) -> tuple[Callable[[np.random.Generator, int], Groups], float, float]:
    """Half of the values from each of two distributions; with the median and mean of the even mixture."""

    def draw(rng: np.random.Generator, n: int) -> Groups:
        return [first.rvs(size=n - n // 2, random_state=rng), second.rvs(size=n // 2, random_state=rng)]

    middle = optimize.brentq(lambda x: first.cdf(x) + second.cdf(x) - 1, first.median(), second.median())
    return draw, float(middle), float((first.mean() + second.mean()) / 2)


SITUATIONS = {
    "normal": one_case(stats.norm()),
    "exponential": one_case(stats.expon()),
    "lognormal, shape 0.5": one_case(stats.lognorm(0.5)),
    "lognormal, shape 1": one_case(stats.lognorm(1.0)),
    "two cases: lognormal, shape 0.5, one scaled by 3": two_cases(stats.lognorm(0.5), stats.lognorm(0.5, scale=3.0)),
}


def main() -> None:
    """Simulate every situation at every size and write the table."""
    rows = []
    for name, (draw, median, mean) in SITUATIONS.items():
        for n in SIZES:
            truth, repetitions = (mean, REPETITIONS_BOOTSTRAP) if n >= BOOTSTRAP_FROM else (median, REPETITIONS_EXACT)
            rng = np.random.default_rng(n)
            covered = held_below = held_above = 0
            for _ in range(repetitions):
                found = locate(draw(rng, n))
                covered += found.low <= truth <= found.high
                held_below += found.upper < truth
                held_above += found.lower > truth
            rows.append(
                {
                    "values": name,
                    "n": n,
                    "centre": "mean" if n >= BOOTSTRAP_FROM else "median",
                    "interval covers": f"{covered / repetitions:.1%}",
                    "wrong “below”": f"{held_below / repetitions:.1%}",
                    "wrong “above”": f"{held_above / repetitions:.1%}",
                }
            )
            print(*rows[-1].values(), sep=", ", flush=True)
    with (Path(__file__).parent / "coverage.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
