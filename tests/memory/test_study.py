"""The study's machinery, and the facts of its trials that need no statistics."""

from __future__ import annotations

import math

import numpy as np
import pytest

from assay.core.study import Trial
from assay.memory.study import STUDY
from assay.memory.trials import digits, run_trial


def trial(scale: str, case: str, arm: str, *, seed: int = 0) -> Trial:
    found = [one for one in STUDY.trials("memory", scale, cases=[case], arms=[arm]) if one.seed == seed]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize(
    ("case", "arm"),
    [
        ("edge a=0.2 m=0.55", "corollary1"),
        ("size N=128", "gfa"),
        ("abbott N=128", "gfa"),
        ("noise n=3 m=0.6", "gfa"),
        ("collapse n=4", "memory"),
        ("recall a=0.1", "hamming"),
        ("sweep M=8192 batch=1", "memory"),
        ("cues n=2 batch=16", "hopfield"),
        ("solver", "gfa"),
    ],
)
def test_a_trial_measures_what_the_study_describes(case, arm):
    if arm == "hamming":
        pytest.importorskip("faiss")
    measured = run_trial(trial("smoke", case, arm))
    assert set(measured) <= set(STUDY.measures)
    assert all(math.isfinite(value) for name, value in measured.items() if name != "settled")


def test_paired_arms_see_the_same_patterns_and_cues():
    exact, without = (run_trial(trial("smoke", "edge a=0.2 m=0.55", arm)) for arm in ("gfa", "corollary1"))
    assert exact["final_overlap"] == without["final_overlap"]
    assert exact["predicted_overlap"] != without["predicted_overlap"]


def test_a_trial_repeats_itself():
    first, second = (run_trial(trial("smoke", "noise n=2 m=0.3", "gfa")) for _ in range(2))
    assert first == second


def test_an_exact_lookup_finds_every_pattern():
    pytest.importorskip("faiss")
    measured = run_trial(trial("smoke", "recall a=0.1", "hamming"))
    assert (measured["bit_error"], measured["right"]) == (0.0, 1.0)


def test_noise_is_what_the_theory_says_within_a_disorder():
    measured = run_trial(trial("laptop", "noise n=2 m=0.3", "gfa"))
    assert measured["predicted_noise_ratio"] == pytest.approx(4.223, abs=0.08)
    assert measured["noise_over_theory"] == pytest.approx(1, abs=0.15)


def test_digits_are_distinct_images_of_two_levels():
    patterns, shape = digits()
    assert patterns.shape == (1750, 64)
    assert shape == (8, 8)
    assert set(np.unique(patterns)) == {-1, 1}
