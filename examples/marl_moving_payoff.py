"""Two shops choose together among three offers, and one day another offer pays best: who notices?

Before anything is learned, the exact fits say what a monotone method can represent of the payoff. Then QMIX and S2Q
learn it, and after 300 of 700 updates the payoff moves.
"""

from __future__ import annotations

import numpy as np
import torch

from assay.marl import monotone_projection, successive_ranking, train_one_step

OFFERS = ("tea", "coffee", "lunch")
BEFORE = np.diag([8.0, 4.0, 6.0])
AFTER = np.diag([8.0, 4.0, 12.0])


def main() -> None:
    torch.set_num_threads(1)
    for name, payoff in (("before", BEFORE), ("after", AFTER)):
        fit = monotone_projection(payoff)
        ranking = [OFFERS[first] for first, _ in successive_ranking(payoff, K=2).actions]
        print(f"{name}: QMIX's best fit finds the optimum: {fit.finds_optimum}; by value: {', '.join(ranking)}")

    for algorithm in ("qmix", "s2q"):
        run = train_one_step(BEFORE, algorithm, shifts=[(300, AFTER)], updates=700, seeds=range(4), epsilon_updates=250)
        before, after = run.optimal[299].mean(), run.optimal[-1].mean()
        print(f"{algorithm}: {before:.0%} of the seeds are right before, {after:.0%} after")


if __name__ == "__main__":
    main()
