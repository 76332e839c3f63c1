"""The study measures what it says: claims point at trials that exist, and trials give what claims look at."""

from __future__ import annotations

import math
from dataclasses import replace
from fnmatch import fnmatchcase

import numpy as np
import pytest

from assay.core.claim import Always, conclude
from assay.core.errors import InputError
from assay.core.ledger import Record
from assay.core.study import Arm, Case, Scale, Study, Trial
from assay.mst import trials
from assay.mst.study import STUDY


def trial_of(
    arm: str, settings: dict[str, object], *, seed: int = 1000, function: object = None, **options: object
) -> Trial:
    return Trial(
        method="mst",
        arm=arm,
        case="a case of the tests",
        seed=seed,
        scale="smoke",
        arm_settings={} if function else STUDY.arms[arm].settings,
        case_settings=settings,
        function=function,  # type: ignore[arg-type]
        **options,  # type: ignore[arg-type]
    )


GAUSSIAN = {"kind": "tree", "data": "gaussian", "n": 500, "d": 4}


@pytest.mark.parametrize("claim", STUDY.claims, ids=lambda claim: claim.id)
def test_every_claim_rests_on_trials_of_every_scale_at_which_it_is_decided(claim: object) -> None:
    test = claim.test  # type: ignore[attr-defined]
    for name in claim.scales or STUDY.scales:  # type: ignore[attr-defined]
        wanted = [trial for trial in STUDY.trials("mst", name, seeds=1) if test.wants(trial.arm, trial.case, STUDY)]
        if claim.scales:  # type: ignore[attr-defined]
            assert wanted, f"no trial of scale {name}"
            # A pair needs both arms on every case.
            arms = {(trial.case, trial.arm) for trial in wanted}
            if not isinstance(test, Always):
                for case in {trial.case for trial in wanted}:
                    assert {arm for place, arm in arms if place == case} == set(test.arms)


def test_what_each_trial_of_smoke_measures_is_explained() -> None:
    scale = STUDY.scale("smoke")
    # One case of each kind; the smallest there is.
    seen = set()
    for trial in STUDY.trials("mst", "smoke", seeds=1):
        kind = trial.case_settings["kind"]
        if kind in seen or trial.arm in ("fast-hdbscan", "neighbour-graph"):
            continue
        seen.add(kind)
        smaller = {"metrics": 3, "instances": 2, "repetitions": 2, "n": 400}
        settings = {name: smaller.get(name, value) for name, value in trial.case_settings.items()}
        found = trials.run_trial(replace(trial, case_settings=settings))
        assert set(found) <= set(STUDY.measures), set(found) - set(STUDY.measures)
        assert all(isinstance(value, float) for value in found.values())
    assert seen == {case.settings["kind"] for case in scale.cases}


def test_tree_trials_weigh_the_tree_and_count_its_calls() -> None:
    exact = trials.run_trial(trial_of("exact", GAUSSIAN))
    assert exact["calls"] == 500 * 499 / 2
    assert exact["calls_share"] == 1
    union = trials.run_trial(trial_of("union-4", GAUSSIAN))
    assert exact["weight"] * (1 - 1e-12) <= union["weight"] <= 1.05 * exact["weight"]
    for peer in ("mlpack", "quitefastmst", "scipy"):
        assert trials.run_trial(trial_of(peer, GAUSSIAN))["weight"] == pytest.approx(exact["weight"], rel=1e-9)


def test_equal_seeds_give_equal_measurements_and_other_seeds_other_objects() -> None:
    def quality(seed: int) -> dict[str, float]:
        found = trials.run_trial(trial_of("union-2", GAUSSIAN, seed=seed))
        return {name: value for name, value in found.items() if "seconds" not in name}

    assert quality(1000) == quality(1000)
    assert quality(1000)["weight"] != quality(1001)["weight"]


def chain(X: object, metric: str, rng: np.random.Generator) -> np.ndarray:
    """A user's arm: a path through the objects in their order."""
    count = len(X)  # type: ignore[arg-type]
    return np.column_stack([np.arange(count - 1), np.arange(1, count)])


@pytest.mark.parametrize(
    "case", [case for case in STUDY.scale("smoke").cases if case.name != "tight-1000"], ids=lambda case: case.name
)
def test_a_users_arm_builds_a_tree_on_every_case(case: Case) -> None:
    settings = {name: min(value, 500) if name == "n" else value for name, value in case.settings.items()}
    found = trials.run_trial(trial_of("mine", settings, function=chain))
    assert found["n"] > 1
    assert found["weight"] > 0


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        (lambda n: np.zeros((n - 2, 2), dtype=np.int64), "expected whole numbers"),
        (lambda n: np.column_stack([np.arange(n - 1), np.arange(1, n)]).astype(float), "expected whole numbers"),
        (lambda n: np.column_stack([np.arange(n - 1), np.arange(2, n + 1)]), "out of range"),
        (lambda n: np.column_stack([np.zeros(n - 1, dtype=np.int64), np.ones(n - 1, dtype=np.int64)]), "spanning tree"),
    ],
    ids=["too-few", "floats", "out-of-range", "not-connected"],
)
def test_what_a_users_arm_returns_is_checked(edges: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        trials.run_trial(trial_of("mine", GAUSSIAN, function=lambda X, metric, rng: edges(len(X))))  # type: ignore[operator]


def test_allocations_share_forest_and_optimum_and_order_as_they_must() -> None:
    settings = {"kind": "allocation", "data": "gaussian", "n": 700, "d": 6}
    found = {arm: trials.run_trial(trial_of(arm, settings)) for arm in ("dp", "greedy", "fixed", "hull")}
    for name in ("forest_weight", "completion_weight", "ratio_0", "alpha_0"):
        assert len({one[name] for one in found.values()}) == 1
    for one in found.values():
        assert one["ratio_0"] >= 1
        assert one["alpha_slack"] >= -1e-12
    for budget in (2, 4, 10):
        least = min(found["greedy"][f"alpha_{budget}"], found["fixed"][f"alpha_{budget}"])
        assert found["dp"][f"alpha_{budget}"] <= least + 1e-12
    assert found["dp"]["alpha_lead"] >= -1e-12


def test_an_allocations_calls_are_those_of_a_completion_on_its_own() -> None:
    from assay.mst.completion import complete_forest
    from assay.mst.forest import build_forest
    from assay.mst.metrics import CountedMetric, make_metric

    settings = {"kind": "allocation", "data": "gaussian", "n": 600, "d": 6}
    for arm in ("dp", "greedy", "fixed", "hull"):
        trial = trial_of(arm, settings)
        found = trials.run_trial(trial)
        counted = CountedMetric(make_metric(trials._objects(trial)[0]))
        forest = build_forest(counted, forest="kcenter", max_component=600)
        for budget in (0, 2, 10):
            tree = complete_forest(
                counted, forest=forest, budget=budget * forest.n_components, allocation=arm, extra_edge=False
            )
            calls = tree.n_distance_calls["representatives"] + tree.n_distance_calls["completion"]
            assert found[f"calls_{budget}"] == calls


def test_a_violated_guarantee_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of random metrics fails when trees are worse than promised."""
    settings = {"kind": "random-metrics", "metric": "euclidean", "metrics": 20, "largest": 20}
    assert trials.run_trial(trial_of("mfc-approx", settings))["violations"] == 0
    honest = trials._brute_force
    monkeypatch.setattr(trials, "_brute_force", lambda *given: (honest(*given)[0] / 2.5, *honest(*given)[1:]))
    assert trials.run_trial(trial_of("mfc-approx", settings))["violations"] > 10


def test_the_worst_instance_reaches_the_bound() -> None:
    settings = {"kind": "tight", "instances": 1, "least_p": 1000, "most_p": 1000, "ell": 3, "epsilon": 0.001}
    found = trials.run_trial(trial_of("mfc-approx", settings))
    assert found["ratio"] == pytest.approx(1.99502, abs=5e-6)
    assert found["error"] <= 1e-12


def test_a_certificate_that_is_too_bold_loses_coverage(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"kind": "certificate", "data": "gaussian", "n": 300, "d": 4, "rows": 40, "repetitions": 20}
    found = trials.run_trial(trial_of("union-1", settings))
    assert found["coverage"] >= 0.9
    assert found["coverage_bernstein"] == 1
    assert 1 <= found["mst_ratio"] <= found["mst_ratio_upper"] <= found["mst_ratio_upper_bernstein"]
    honest = trials.certify

    def bold(*given: object, **options: object) -> object:
        made = honest(*given, **options)  # type: ignore[arg-type]
        return replace(made, mst_lower_bound=made.mst_lower_bound * 1.5)

    monkeypatch.setattr(trials, "certify", bold)
    assert trials.run_trial(trial_of("union-1", settings))["coverage"] < 0.5


def test_dendrograms_of_the_exact_tree_agree_with_themselves() -> None:
    settings = {"kind": "dendrogram", "data": "gaussian", "n": 600, "d": 3}
    exact = trials.run_trial(trial_of("exact", settings))
    assert exact["mst_ratio"] == pytest.approx(1, rel=1e-12)
    assert exact["cophenetic_correlation"] == pytest.approx(1, rel=1e-9)
    assert exact["adjusted_rand"] == 1
    assert exact["height_error"] <= 1e-12
    one = trials.run_trial(trial_of("union-1", settings))
    assert one["mst_ratio"] > 1
    assert one["cophenetic_correlation"] < 1


def test_memory_is_measured_against_the_input() -> None:
    settings = {**GAUSSIAN, "n": 5000, "memory": True}
    found = trials.run_trial(trial_of("union-1", settings))
    assert found["input_bytes"] == 5000 * 4 * 4
    assert found["total_bytes"] >= found["input_bytes"]
    assert found["memory_used"] == pytest.approx(found["total_bytes"] / (3 * found["input_bytes"] + 100e6))


def test_without_the_papers_files_its_claims_are_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASSAY_DATA", raising=False)
    verdicts = {verdict.claim: verdict for verdict in conclude(STUDY, "mst", "laptop", [])}
    assert verdicts["budget-2t-cooking"].outcome == "not run"
    assert "cooking.txt" in verdicts["budget-2t-cooking"].finding
    assert "paper scale" in verdicts["paper-mst-cooking"].finding
    assert {verdict.outcome for verdict in verdicts.values()} == {"not run"}


def test_the_speed_claims_follow_the_measurements() -> None:
    """Made-up trials on either side of the limit give either verdict."""

    def record(arm: str, seed: int, cpu: float) -> Record:
        place = ("mst", arm, "speed-gaussian-100000", seed, "laptop")
        return Record(f"{arm}{seed}", *place, "done", {"cpu_seconds": cpu, "weight": 1.0}, 1.0, "now", "", "")

    claim = next(claim for claim in STUDY.claims if claim.id == "faster-than-mlpack")
    for ours, outcome in ((9.0, "holds"), (11.0, "fails")):
        records = [record(arm, seed, cpu) for seed in range(5) for arm, cpu in (("union-4", ours), ("mlpack", 40.0))]
        assert claim.test.conclude(records).outcome == outcome


def test_timed_cases_run_alone_and_the_one_for_memory_in_its_own_process() -> None:
    cases = STUDY.scale("laptop").cases
    for case in cases:
        if (
            fnmatchcase(case.name, "speed-*")
            or fnmatchcase(case.name, "growth-*")
            or case.name in ("million", "words-100000")
        ):
            assert case.alone
        assert case.own_process == bool(case.settings.get("memory"))


def test_arms_and_cases_make_a_study_of_their_own() -> None:
    """The pieces fit other studies: one arm on one case, through the runner's own interface."""
    study = Study(
        trial=trials.run_trial,
        arms={"exact": STUDY.arms["exact"], "mine": Arm(role="user", function=chain)},
        scales={"smoke": Scale((Case("small", GAUSSIAN),), seeds=1)},
        claims=(),
    )
    weights = {trial.arm: trials.run_trial(trial)["weight"] for trial in study.trials("mst", "smoke")}
    assert weights["exact"] < weights["mine"]
    assert all(math.isfinite(weight) for weight in weights.values())
