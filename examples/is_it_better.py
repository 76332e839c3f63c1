"""You have two functions and a claim: is the median the better estimate of the centre of heavy-tailed numbers?

A study needs no method of this package: arms, cases and a claim are enough. Trials go into a ledger, so a second run of
this script runs none again.
"""

from __future__ import annotations

import numpy as np

from assay.core.claim import Claim, better, conclude, no_worse
from assay.core.ledger import Ledger
from assay.core.runner import run
from assay.core.study import Arm, Case, Scale, Study, Trial

ESTIMATORS = {"median": np.median, "mean": np.mean}


def estimate_centre(trial: Trial) -> dict[str, float]:
    """One sample of numbers whose centre is 0; both arms see the same sample."""
    sample = trial.rng("sample").standard_t(trial.case_settings["freedom"], size=200)
    return {"error": abs(float(ESTIMATORS[trial.arm](sample)))}


STUDY = Study(
    trial=estimate_centre,
    arms={"median": Arm(), "mean": Arm(role="baseline")},
    scales={"smoke": Scale(cases=(Case("heavy", {"freedom": 1.5}), Case("light", {"freedom": 30})), seeds=40)},
    claims=(
        Claim(
            "heavy",
            "With heavy tails the median's error is smaller",
            source="ours",
            test=better("error", "median", than="mean", cases=["heavy"]),
        ),
        Claim(
            "light",
            "With light tails the median's error is larger by less than 0.1",
            source="ours",
            test=no_worse("error", "median", than="mean", margin=0.1, cases=["light"]),
        ),
    ),
)

if __name__ == "__main__":
    ledger = Ledger("centre-ledger")
    done = run(STUDY, "centre", "smoke", ledger=ledger)
    print(f"{len(done.records)} trials run")
    for verdict in conclude(STUDY, "centre", "smoke", ledger.read("centre")):
        print(f"{verdict.outcome:10} {verdict.statement}\n           {verdict.finding}")
