"""The study's own machinery: its trials against what is known, at the smallest scale."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch

from assay.core.study import Trial
from assay.lact import trials
from assay.lact.functional import lact
from assay.lact.reference import reference_lact
from assay.lact.study import ARMS, CLAIMS, MEASURES, RECALLERS, SCALES, STUDY
from assay.lact.trials import run_trial

SMOKE = {case.name: case for case in SCALES["smoke"].cases}


def trial_of(arm: str, case: str, seed: int = 0, **changes: object) -> Trial:
    settings = {**SMOKE[case].settings, **changes}
    return Trial("lact", arm, case, seed, "smoke", ARMS[arm].settings, settings)


def test_nothing_violates_exactness() -> None:
    found = run_trial(trial_of("lact", "exact"))
    assert found["checks"] == 48
    assert found["violations"] == 0
    assert 0 < found["worst"] < 1


def test_a_wrong_answer_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams that forget what they have read are found out."""
    monkeypatch.setattr(trials, "_streamed", lambda tokens, beta, w_init, cuts, given: torch.zeros_like(tokens[2]))
    assert run_trial(trial_of("lact", "exact"))["violations"] >= 16


def test_rates_matter_to_gradient_descent_alone() -> None:
    assert run_trial(trial_of("lact", "rates"))["rate_change"] < 1e-3
    assert run_trial(trial_of("lact-gd", "rates"))["rate_change"] > 0.05


def test_the_state_has_one_size() -> None:
    found = run_trial(trial_of("lact", "state"))
    assert found["state_growth"] == 1
    # Three matrices with norms, three sums, and one number each for momenta and tokens.
    assert found["state_bytes"] == 4 * (2 * 3 * 64 + 3 * 8 + 1) + 8
    assert found["cache_over_state"] == 2 * 1_048_576 * 8 * 4 / found["state_bytes"]


def test_two_processes_equal_one() -> None:
    found = run_trial(trial_of("lact", "two processes"))
    assert found["parallel_error"] < 1e-5
    assert math.isfinite(found["parallel_overhead"])


@pytest.mark.parametrize("arm", ["lact", "lact-gd"])
def test_utilisation_is_a_share_of_the_peak(arm: str) -> None:
    found = run_trial(trial_of(arm, "chunks", rounds=1))
    shares = [found[f"utilisation_{chunk}"] for chunk in SMOKE["chunks"].settings["chunks"]]
    assert all(0 < share < 1.5 for share in shares)
    assert found["rise"] == pytest.approx(shares[-1] / shares[0])
    assert found["least_step"] == pytest.approx(min(b / a for a, b in pairwise(shares)))


@pytest.mark.parametrize("arm", ["lact", "lact-gd", "sdpa"])
def test_reading_is_timed(arm: str) -> None:
    found = run_trial(trial_of(arm, "read 512", rounds=1))
    assert found["n"] == 512
    assert found["tokens_per_second"] == pytest.approx(512 / found["cpu_seconds"])


def test_the_arms_of_equal_mathematics_answer_alike() -> None:
    tokens, w_init = trials._problem(0, length=96, dim=16)
    for rule in ("gd", "muon"):
        ours = lact(*tokens, w_init, chunk_size=32, rule=rule)
        theirs = reference_lact(*tokens, w_init, chunk_size=32, rule=rule)
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("arm", ["lact", "eager"])
def test_training_is_measured(arm: str) -> None:
    found = run_trial(trial_of(arm, "train muon"))
    assert found["training_seconds"] > 0
    assert found["peak_bytes"] >= 0


def test_decoding_is_timed_at_every_position() -> None:
    found = run_trial(trial_of("lact", "decode"))
    assert found["decode_seconds_128"] > 0
    assert found["decode_growth"] == pytest.approx(found["decode_seconds_512"] / found["decode_seconds_128"])


@pytest.mark.parametrize("arm", RECALLERS)
def test_every_arm_learns_recall_and_the_same_again(arm: str) -> None:
    first, again = (run_trial(trial_of(arm, "recall")) for _ in range(2))
    assert first["accuracy"] == again["accuracy"] and first["loss"] == again["loss"]
    assert first["chance"] == 1 / 16


def test_the_states_of_the_sizes_are_what_they_are_called() -> None:
    sizes = {arm: run_trial(trial_of(arm, "recall"))["state_bytes"] for arm in ("lact", "lact-linear", "lact-8-heads")}
    assert sizes["lact"] > sizes["lact-linear"] > sizes["lact-8-heads"]


def test_what_is_asked_lies_beyond_the_windows_of_all_layers() -> None:
    for scale in SCALES.values():
        case = next(case for case in scale.cases if case.name == "recall")
        task, model = case.settings["task"], case.settings["model"]
        gap = task["length"] - 4 * task["pairs"]
        assert gap > model["num_hidden_layers"] * (model["window"] - 1)


def test_text_is_read_by_its_arms() -> None:
    found = run_trial(trial_of("lact", "text"))
    assert 4 < found["last_quarter"] < 7


def test_views_have_their_controls() -> None:
    blind = run_trial(trial_of("none", "views"))
    assert blind["over_wrong_scene"] == 0 == blind["gain_of_8_over_4"]
    assert run_trial(trial_of("lact", "views"))["psnr_4"] > 0


def test_the_cost_of_views_is_fitted() -> None:
    found = run_trial(trial_of("full", "view costs"))
    assert found["state_growth"] == 4
    assert math.isfinite(found["prefill_exponent"])
    assert trials._slope([0.0, 1.0, 2.0], [1.0, 3.0, 5.0]) == pytest.approx(2)


def test_video_is_denoised_before_and_after() -> None:
    found = run_trial(trial_of("lact", "video"))
    assert 0 < found["loss_after"] < 10 > found["loss_before"]


def test_every_measure_of_a_claim_is_explained() -> None:
    measured = {claim.test.measure for claim in CLAIMS if hasattr(claim.test, "measure")}
    assert measured <= set(MEASURES)
    assert STUDY.trial is run_trial
