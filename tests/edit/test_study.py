"""The study's own parts: its arms edit what they say, and its measurements are what their names say."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.stats import spearmanr

from assay.core.study import Trial
from assay.edit.study import STUDY
from assay.edit.trials import run_trial


def trial(arm: str, case: str, *, scale: str = "smoke", seed: int = 0, **settings) -> Trial:
    found = next(one for one in STUDY.trials("edit", scale) if (one.arm, one.case, one.seed) == (arm, case, seed))
    return dataclasses.replace(found, case_settings={**found.case_settings, **settings})


def test_the_same_trial_gives_the_same_numbers():
    first, second = (run_trial(trial("adaptive", "facts-random")) for _ in range(2))
    timed = {"seconds", "cpu_seconds"}
    assert {k: v for k, v in first.items() if k not in timed} == {k: v for k, v in second.items() if k not in timed}
    other = run_trial(trial("adaptive", "facts-random", seed=1))
    assert other["nll_original"] != first["nll_original"]


def test_arms_that_edit_lower_the_cost_and_those_that_do_not_leave_it():
    plain = run_trial(trial("unedited", "facts-random"))
    for arm in ("adaptive", "unke", "ft-l", "gated", "windows"):
        assert run_trial(trial(arm, "facts-random"))["nll_original"] < plain["nll_original"]
    assert "locality_kl" not in plain


def test_without_scores_that_differ_the_equal_weights_are_the_calibrated_ones():
    """Three requests calibrate nothing: then the adaptive weights are one half."""
    numbers = [run_trial(trial("no-purge", "facts-random"))["nll_original"]]
    found = trial("no-purge", "facts-random")
    numbers.append(
        run_trial(
            dataclasses.replace(
                found,
                arm_settings={
                    **found.arm_settings,
                    "settings": {"preset": "adaptive", "fit_rate": 5e-4, "alpha": 0.5, "purge": False},
                },
            )
        )["nll_original"]
    )
    assert numbers[0] == numbers[1]


def test_a_calibration_tells_hard_from_easy():
    found = trial("adaptive", "facts-random")
    low = run_trial(dataclasses.replace(found, case_settings={**found.case_settings, "calibration": [1e-6] * 9}))
    high = run_trial(dataclasses.replace(found, case_settings={**found.case_settings, "calibration": [9.0] * 9}))
    assert low["nll_original"] != high["nll_original"]


def test_difficulty_is_a_rank_correlation_with_the_paraphrases_cost():
    from assay.edit.trials import _difficulty, _prepared

    prepared = _prepared("random-llama", "cpu", "novel", 6, 3, 4)
    costs = np.random.default_rng(0).normal(size=6)
    found = _difficulty(prepared, [{"nll_paraphrase": float(cost)} for cost in costs])
    assert found["spearman_ts"] == pytest.approx(spearmanr(prepared.report.ts, costs).statistic)
    hard = prepared.report.ts > np.median(prepared.report.ts)
    assert found["hard_minus_easy"] == pytest.approx(costs[hard].mean() - costs[~hard].mean())


def test_a_user_s_own_arm_is_given_model_tokenizer_requests_and_seed():
    from assay.edit.fine_tuning import fine_tune

    given = []

    def own(model, tokenizer, requests, seed):
        given.append((len(requests), seed))
        return fine_tune(model, tokenizer, requests, steps=2)

    found = trial("adaptive", "facts-random")
    numbers = run_trial(dataclasses.replace(found, arm="own", arm_settings={"make": "user"}, function=own))
    assert given == [(3, 0)]
    assert numbers["change"] > 0


def test_the_plain_procedure_costs_more_at_a_batch():
    ours, theirs = (run_trial(trial(arm, "speed-4"))["cpu_seconds"] for arm in ("adaptive", "reference"))
    assert 0 < ours < theirs
