"""A small study for the tests of core: its trials are arithmetic, and some misbehave on purpose."""

from __future__ import annotations

import os
import time

from assay.core.claim import Claim, PaperFigure, always, better, ratio, within
from assay.core.study import Arm, Case, Scale, Study, Trial


def run_trial(trial: Trial) -> dict[str, float]:
    """Return numbers that depend on case, seed and arm in a known way."""
    conduct = trial.arm_settings.get("conduct")
    if conduct == "raises":
        raise ValueError("this arm always raises")
    if conduct == "sleeps":
        time.sleep(60)
    if conduct == "dies":
        os._exit(9)
    if conduct == "prints":
        os.write(1, b"noise on standard output\n")
    if trial.function is not None:
        return {"cost": float(trial.function(trial.seed)), "seconds": 1.0}
    noise = trial.rng("noise").random()
    trial.keep("note.txt", f"{trial.arm} {trial.seed}".encode())
    factor = trial.arm_settings.get("factor", 1.0)
    return {
        "cost": factor * (1 + noise),
        "seconds": factor,
        "n": float(trial.case_settings.get("n", 1)),
        "pid": float(os.getpid()),
        "threads": float(os.environ.get("OMP_NUM_THREADS", 0)),
    }


STUDY = Study(
    trial=run_trial,
    arms={
        "ours": Arm(label="ours", settings={"factor": 1.0}),
        "slow": Arm(role="baseline", settings={"factor": 2.0}),
        "absent": Arm(role="peer", needs=("no_such_module",)),
    },
    scales={
        "smoke": Scale(cases=(Case("small", {"n": 10}), Case("large", {"n": 100})), seeds=5),
        "laptop": Scale(cases=(Case("small", {"n": 10}),), seeds=30),
        "paper": Scale(cases=(Case("huge", {"n": 10**9}),), requires="a cluster"),
    },
    claims=(
        Claim("positive", "Costs are positive", source="ours", test=always(lambda t: t["cost"] > 0, rate=0.3)),
        Claim("cheaper", "Ours costs less", source="Table 1", test=better("cost", "ours", than="slow")),
        Claim(
            "half",
            "Ours takes at most half the time",
            source="Table 2",
            test=ratio("seconds", "ours", over="slow", at_most=0.5),
            paper=(PaperFigure("the paper", 0.4),),
        ),
        Claim("peer", "Ours beats the peer", source="ours", test=ratio("seconds", "ours", over="absent", at_most=1)),
        Claim("huge", "It scales", source="Figure 3", test=within("cost", "ours", high=3), scales=("paper",)),
    ),
    arm_signature="function(seed) -> cost",
    measures={"cost": "cost", "seconds": "seconds (s)"},
)
