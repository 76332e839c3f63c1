"""The study's own parts: its arms edit what they say, and its measurements are what their names say."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.stats import spearmanr

from assay.core.study import Trial
from assay.edit.study import SMALL_RATE, STUDY
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
                    "settings": {"preset": "adaptive", "fit_rate": SMALL_RATE, "alpha": 0.5, "purge": False},
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


def test_a_batch_of_one_keeps_all_that_edits_alone_gain():
    found = run_trial(trial("adaptive", "batches", sizes=[1, 1]))
    assert found["batch_kept_original"] == pytest.approx(1.0)
    assert found["batch_kept_paraphrase"] in (0.0, pytest.approx(1.0))


def test_the_first_edit_of_a_sequence_has_kept_all_at_once_and_its_decay_is_drawn():
    one = trial("adaptive", "sequence")
    found = run_trial(one)
    assert found["share_kept_1"] == pytest.approx(1.0)
    assert found["batches"] == 3
    assert one.artifacts["decay.svg"].startswith(b"<?xml")


def test_the_interference_of_patches_is_a_difference_of_what_answers_cost():
    from assay.edit.trials import _costs, _invented, _model

    one = trial("adaptive", "interference", count=2)
    found = run_trial(one)
    lm = _model("random-llama", "cpu")
    plain = _costs(lm, _invented(one.case_settings, 0))["original"]
    assert found["gain_own"] < plain
    assert found["joint_over_added"] == pytest.approx(found["gain_joint"] - found["gain_added"])
    assert b"svg" in one.artifacts["interference.svg"]


def test_memory_is_told_in_blocks_with_and_without_what_a_backward_pass_keeps():
    case = {"kind": "memory", "model": "random-llama", "count": 2}
    whole, fit = (
        run_trial(dataclasses.replace(trial("adaptive", "exact"), case_settings={**case, "part": part}))
        for part in ("all", "fit")
    )
    for found in (whole, fit):
        beside = (found["peak_bytes"] - found["kept_bytes"] - found["activation_bytes"]) / found["block_bytes"]
        assert found["blocks_beside_activations"] == pytest.approx(beside)
        assert found["activation_bytes"] > 0
    # Eight projections of the residual a token, at the least, are kept for the backward pass of one block.
    assert fit["activation_bytes"] > 8 * fit["kept_bytes"] / 3


def test_structured_records_are_asked_from_the_subject_s_and_from_the_object_s_side():
    found = run_trial(trial("adaptive", "facts-random", facts="short", count=2, structured=True))
    assert {"right_original", "right_paraphrase", "right_source", "right_target"} <= set(found)
    assert found["right_source"] in (0.0, 0.5, 1.0)


def test_gates_aren_t_set_by_the_wordings_that_rate_them(monkeypatch):
    from assay.edit import trials

    seen = []
    real = trials.fit_gated
    monkeypatch.setattr(
        trials, "fit_gated", lambda editor, records, **rest: seen.extend(records) or real(editor, records, **rest)
    )
    run_trial(trial("gated", "facts-random"))
    rated = {
        text for one in trials._prepared("random-llama", "cpu", "novel", 3, 0, 8).records for text in one.paraphrases
    }
    assert seen
    assert not rated & {text for one in seen for text in one.paraphrases}
