"""The study's own machinery: its trials against what is known, and its claims against each other."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from assay.core.study import Trial
from assay.marl.networks import AgentNet
from assay.marl.peers import torchrl_qmix_step
from assay.marl.spec import EnvSpec
from assay.marl.study import ARMS, DIAGONAL, FOUR, LAPTOP, NEGATIVE, PAPER, SMALL, SMOKE, STUDY
from assay.marl.trials import _allowed, _random_batch, payoff_of, run_trial


def trial_of(arm: str, case: str, *, seed: int = 1000, **changes) -> Trial:
    settings = next(one.settings for one in SMOKE.cases if one.name == case)
    return Trial("marl", arm, case, seed, "smoke", ARMS[arm].settings, {**settings, **changes})


def test_payoffs_are_those_of_the_specification():
    assert payoff_of(DIAGONAL, "before").tolist() == np.diag([8.0, 4.0, 6.0]).tolist()
    assert payoff_of(DIAGONAL, "after")[2, 2] == 12
    assert payoff_of(SMALL, "after")[2, 2] == pytest.approx(1.2)
    np.testing.assert_allclose(payoff_of(NEGATIVE, "before"), np.diag([2.0, 1.0, 1.5]) - 4)
    four = payoff_of(FOUR, "after")
    assert four.shape == (4,) * 4
    assert four.sum() == 8 + 4 + 12 + 2


def test_a_game_gives_shares_of_its_seeds():
    found = run_trial(trial_of("qmix", "shift", games=2, shift=110, updates=215))
    assert found["games"] == 2
    assert {"optimal_before", "recovered", "optimal_at_end", "lock_0"} <= set(found)
    assert all(0 <= found[name] <= 1 for name in ("optimal_before", "recovered", "lock_0"))
    assert "recovery_updates" not in found or found["recovery_steps"] == 8 * found["recovery_updates"]


def test_a_game_keeps_its_curve_for_the_report():
    trial = trial_of("iql", "shift", seed=0, games=2, shift=20, updates=40)
    run_trial(trial)
    assert trial.artifacts["recovery.svg"].lstrip().startswith(b"<?xml")


def test_no_random_table_is_sorted_wrongly():
    found = run_trial(trial_of("table", "table", payoffs=200))
    assert found == {"payoffs": 200.0, "violations": 0.0}


def test_a_team_learns_and_is_evaluated_and_a_users_own_arm_too():
    found = run_trial(trial_of("qmix", "staghunt", steps=900, eval_every=900))
    assert found["updates"] >= 1
    assert np.isfinite(found["return"])
    own = trial_of("qmix", "staghunt", episodes=12)
    own.function = lambda env, steps, seed: lambda obs, avail, state: np.full(avail.shape[:2], 4)
    assert run_trial(own) == {"return": 0.0, "success": 0.0}


def test_a_step_is_timed_for_us_and_for_torchrl():
    for arm in ("qmix-linear", "torchrl"):
        found = run_trial(trial_of(arm, "step-peers", episodes=2, steps=3))
        assert found["step_seconds"] > 0


def test_the_peers_step_learns_with_as_many_weights_as_ours():
    spec = EnvSpec(n_agents=2, n_actions=3, obs_size=4, state_size=5, horizon=4)
    batch = _random_batch(spec, 3, 4, np.random.default_rng(0))
    torch.manual_seed(0)
    step = torchrl_qmix_step(spec, batch, hidden=8, embed=4)
    closure = dict(zip(step.__code__.co_freevars, (cell.cell_contents for cell in step.__closure__), strict=True))
    theirs = sum(parameter.numel() for parameter in closure["parameters"])
    agent = sum(parameter.numel() for parameter in AgentNet(4 + 3, 8, 3).parameters())
    mixer = 5 * (2 * 4 + 4 + 4) + 2 * 4 + 4 + 4 + 5 * 4 + 4 + 4 + 1
    assert theirs == agent + mixer
    before = [parameter.detach().clone() for parameter in closure["parameters"]]
    step()
    assert any(not torch.equal(old, new) for old, new in zip(before, closure["parameters"], strict=True))


def test_stored_episodes_are_smaller_than_the_padded_layout():
    assert run_trial(trial_of("replay", "replay-staghunt"))["share_of_usual"] <= 0.4


@pytest.mark.parametrize("env", ["matrix", "staghunt"])
def test_environments_are_stepped_in_both_ways(env):
    for arm in ("vectorised", "pettingzoo"):
        assert run_trial(trial_of(arm, f"stepping-{env}", instances=4, steps=5))["steps_per_second"] > 0


def test_random_actions_are_available_ones_and_equally_likely():
    avail = np.array([[False, True, False, True]])
    draws = np.linspace(0, 0.999, 1000)[:, None]
    actions = _allowed(np.broadcast_to(avail, (1000, 1, 4)), draws)
    assert np.unique(actions, return_counts=True)[1].tolist() == pytest.approx([500, 500], abs=1)
    assert set(actions.ravel().tolist()) == {1, 3}


def test_every_seed_that_decides_is_below_those_of_the_tuning():
    for scale in (SMOKE, LAPTOP, PAPER):
        assert max([scale.seeds, *(case.seeds or 0 for case in scale.cases)]) < 1000


def test_baselines_differ_from_the_method_in_named_switches_alone():
    names = {"algorithm", "game", "learner", "team", "step", "step_settings", "stepping"}
    assert all(set(arm.settings) <= names for arm in ARMS.values())
    assert json.loads(json.dumps({name: dict(arm.settings) for name, arm in ARMS.items()}))


def test_claims_about_one_case_name_one_that_the_laptop_scale_has():
    names = {case.name for case in LAPTOP.cases}
    for claim in STUDY.claims:
        if claim.scales and "laptop" in claim.scales:
            assert claim.test.cases, claim.id
            for pattern in claim.test.cases:
                assert any(pattern == name or pattern.rstrip("*") in name for name in names), claim.id


def test_paper_cases_say_what_they_need():
    foreign = [case for case in PAPER.cases if case.settings["kind"] == "team"]
    assert foreign
    for case in foreign:
        assert case.lacks is not None
        missing = replace(case).lacks()
        assert missing == "" or "StarCraft" in missing or "Football" in missing
