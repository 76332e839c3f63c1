"""Claims: what each test concludes from trials whose truth is known."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from assay.core.claim import (
    Claim,
    PaperFigure,
    always,
    better,
    conclude,
    grows,
    holm,
    no_worse,
    ratio,
    within,
)
from assay.core.errors import AssayError
from assay.core.ledger import Record
from assay.core.study import Arm, Case, Scale, Study

BOUNDARY_RUNS = 800
NOISE = 3 * math.sqrt(0.05 * 0.95 / BOUNDARY_RUNS)


def _record(arm, measurements, *, case="one", seed=0, status="done"):
    return Record(
        key=f"{arm}-{case}-{seed}",
        method="sample",
        arm=arm,
        case=case,
        seed=seed,
        scale="smoke",
        status=status,
        measurements=measurements,
        seconds=1.0,
        started="2026-01-01T00:00:00+00:00",
        source="s",
        environment="e",
    )


def _records(measure, **arms):
    return [
        _record(arm, {measure: float(value)}, seed=seed)
        for arm, values in arms.items()
        for seed, value in enumerate(values)
    ]


def _study(*tests, seeds=10, cases=("one",)):
    return Study(
        trial=print,
        arms={"ours": Arm(), "other": Arm(role="baseline")},
        scales={
            "smoke": Scale(cases=tuple(Case(case) for case in cases), seeds=seeds),
            "paper": Scale(cases=(Case("big"),), requires="a cluster"),
        },
        claims=tuple(Claim(f"claim-{number}", "A claim", "ours", test) for number, test in enumerate(tests)),
    )


def _outcome(test, records, **study):
    return conclude(_study(test, **study), "sample", "smoke", records)[0].outcome


def _skewed(rng, n):
    """Values with median 0 and a long right tail."""
    return rng.lognormal(0, 1, n) - 1


@pytest.mark.parametrize("n", [10, 30])
@pytest.mark.parametrize("tail", [1, -1])
@pytest.mark.parametrize(
    ("test", "shift"),
    [
        (better("m", "ours", than="other"), 0.0),
        (better("m", "ours", than="other", higher=True), 0.0),
        (no_worse("m", "ours", than="other", margin=2.0), 2.0),
        (within("m", "ours", high=5.0), 5.0),
        (within("m", "ours", low=-20.0, high=5.0), 5.0),
    ],
    ids=["better", "better-higher", "no_worse", "within-high", "within-both"],
)
def test_holds_is_wrong_at_most_five_percent_at_the_boundary(test, shift, n, tail):
    rng = np.random.default_rng(n)
    wrong = 0
    for _ in range(BOUNDARY_RUNS):
        values = shift + tail * _skewed(rng, n)
        wrong += test.conclude(_records("m", ours=values, other=np.zeros(n))).outcome == "holds"
    assert wrong / BOUNDARY_RUNS <= 0.05 + NOISE


@pytest.mark.parametrize("limit", [{"at_most": 0.5}, {"at_least": 0.5}])
def test_ratio_holds_wrongly_at_most_five_percent_at_the_boundary(limit):
    rng = np.random.default_rng(0)
    test = ratio("m", "ours", over="other", **limit)
    wrong = 0
    for _ in range(BOUNDARY_RUNS):
        other = rng.lognormal(0, 0.5, 10)
        ours = other * 0.5 * np.exp(_skewed(rng, 10))
        wrong += test.conclude(_records("m", ours=ours, other=other)).outcome == "holds"
    assert wrong / BOUNDARY_RUNS <= 0.05 + NOISE


def test_grows_holds_wrongly_at_most_five_percent_at_the_boundary():
    rng = np.random.default_rng(0)
    test = grows("m", "ours", exponent_at_most=1.5)
    wrong = 0
    for _ in range(BOUNDARY_RUNS):
        records = [
            _record("ours", {"n": float(n), "m": n**1.5 * math.exp(rng.normal(0, 0.1))}, case=str(n), seed=seed)
            for seed in range(7)
            for n in (10, 100, 1000)
        ]
        wrong += test.conclude(records).outcome == "holds"
    assert wrong / BOUNDARY_RUNS <= 0.05 + NOISE


def test_always_holds_wrongly_at_most_five_percent_at_the_boundary():
    rng = np.random.default_rng(0)
    test = always(lambda t: t["m"] > 0.1, rate=0.1, arms=["ours"])
    wrong = sum(test.conclude(_records("m", ours=rng.random(29))).outcome == "holds" for _ in range(BOUNDARY_RUNS))
    assert wrong / BOUNDARY_RUNS <= 0.05 + NOISE


def test_clear_cases_are_decided_both_ways():
    low, high = np.linspace(1, 2, 10), np.linspace(3, 4, 10)
    assert _outcome(better("m", "ours", than="other"), _records("m", ours=low, other=high)) == "holds"
    assert _outcome(better("m", "ours", than="other"), _records("m", ours=high, other=low)) == "fails"
    assert _outcome(better("m", "ours", than="other", higher=True), _records("m", ours=high, other=low)) == "holds"
    assert _outcome(ratio("m", "ours", over="other", at_most=0.9), _records("m", ours=low, other=high)) == "holds"
    assert _outcome(ratio("m", "ours", over="other", at_least=0.9), _records("m", ours=low, other=high)) == "fails"
    assert _outcome(within("m", "ours", low=0, high=3), _records("m", ours=low, other=high)) == "holds"
    assert _outcome(within("m", "ours", low=2.5, high=3), _records("m", ours=low, other=high)) == "fails"


def test_equal_arms_are_not_better_and_are_no_worse():
    same = np.linspace(1, 2, 10)
    assert _outcome(better("m", "ours", than="other"), _records("m", ours=same, other=same)) == "fails"
    assert _outcome(no_worse("m", "ours", than="other", margin=0.1), _records("m", ours=same, other=same)) == "holds"


def test_few_seeds_decide_nothing():
    records = _records("m", ours=[1, 1, 1], other=[2, 2, 2])
    verdict = conclude(_study(better("m", "ours", than="other"), seeds=3), "sample", "smoke", records)[0]
    assert verdict.outcome == "undecided"
    assert "n = 3 gives no bound" in verdict.finding


def test_pairs_are_matched_by_case_and_seed():
    rng = np.random.default_rng(0)
    records = []
    for case, level in (("one", 0.0), ("two", 1000.0)):
        for seed in range(10):
            base = level + 100 * rng.random()
            records += [
                _record("ours", {"m": base - 1}, case=case, seed=seed),
                _record("other", {"m": base}, case=case, seed=seed),
            ]
    verdict = conclude(_study(better("m", "ours", than="other"), cases=("one", "two")), "sample", "smoke", records)[0]
    assert verdict.outcome == "holds"
    assert verdict.conclusion.estimate == pytest.approx(-1)
    assert {finding.case for finding in verdict.conclusion.by_case} == {"one", "two"}


def test_one_violation_refutes_a_guarantee():
    values = [0.5] * 40 + [1.5]
    verdict = conclude(_study(always(lambda t: t["m"] <= 1), seeds=41), "sample", "smoke", _records("m", ours=values))[
        0
    ]
    assert verdict.outcome == "fails"
    assert "violated in 1 of 41 trials" in verdict.finding


def test_guarantee_says_what_its_trials_exclude():
    verdict = conclude(_study(always(lambda t: t["m"] <= 1)), "sample", "smoke", _records("m", ours=[0.5] * 10))[0]
    assert verdict.outcome == "undecided"
    assert "excludes violation rates above 0.259" in verdict.finding


def test_checks_within_a_trial_count():
    records = [_record("ours", {"violations": 0.0, "trees": 100.0}, seed=seed) for seed in range(10)]
    test = always(lambda t: t["violations"] == 0, checks="trees", rate=0.01)
    verdict = conclude(_study(test), "sample", "smoke", records)[0]
    assert verdict.outcome == "holds"
    assert verdict.conclusion.n == 1000


def test_guarantee_looks_at_the_methods_own_arms_unless_told():
    records = _records("m", ours=[0.0] * 30, other=[9.0] * 30)
    assert _outcome(always(lambda t: t["m"] < 1), records, seeds=30) == "holds"
    assert _outcome(always(lambda t: t["m"] < 1, arms=["o*"]), records, seeds=30) == "fails"


def test_growth_is_the_slope_over_sizes():
    records = [
        _record("ours", {"n": float(n), "m": 3 * n**1.25}, case=str(n), seed=seed)
        for seed in range(5)
        for n in (10, 100, 1000)
    ]
    conclusion = grows("m", "ours", exponent_at_most=1.3).conclude(records)
    assert conclusion.outcome == "holds"
    assert conclusion.estimate == pytest.approx(1.25)


def test_failed_and_missing_trials_keep_a_claim_from_holding():
    test = better("m", "ours", than="other")
    records = _records("m", ours=np.zeros(10), other=np.ones(10))
    failed = [replace(records[0], status="failed"), *records[1:]]
    for evidence, words in [(failed, "1 of 20 trials failed"), (records[1:], "1 of 20 trials are missing")]:
        verdict = conclude(_study(test), "sample", "smoke", evidence)[0]
        assert verdict.outcome == "undecided"
        assert words in verdict.finding


def test_claim_of_another_scale_and_absent_package_are_not_run():
    study = _study(better("m", "ours", than="other"))
    elsewhere = replace(study.claims[0], scales=("paper",))
    assert "a cluster" in conclude(replace(study, claims=(elsewhere,)), "sample", "smoke", [])[0].finding
    lacking = replace(study, arms={**study.arms, "other": Arm(needs=("no_such_module",))})
    verdict = conclude(lacking, "sample", "smoke", _records("m", ours=np.zeros(10)))[0]
    assert (verdict.outcome, verdict.finding) == ("not run", "needs no_such_module")


def test_not_a_number_leaves_a_claim_undecided():
    records = _records("m", ours=[math.nan] + [1.0] * 9, other=np.ones(10))
    verdict = conclude(_study(better("m", "ours", than="other")), "sample", "smoke", records)[0]
    assert verdict.outcome == "undecided"
    assert "seed 0: m is not a number" in verdict.finding


def test_ratio_of_a_zero_leaves_a_claim_undecided():
    records = _records("m", ours=np.ones(10), other=np.zeros(10))
    assert _outcome(ratio("m", "ours", over="other", at_most=1), records) == "undecided"


def test_unknown_measurement_is_a_fault_of_the_study():
    with pytest.raises(AssayError, match="claim-0 of sample looks at a measurement that a trial lacks: 'seconds'"):
        conclude(_study(within("seconds", "ours", high=1)), "sample", "smoke", _records("m", ours=np.ones(10)))


def test_many_values_are_bootstrapped_and_ratios_on_the_logarithmic_scale():
    rng = np.random.default_rng(0)
    other = rng.lognormal(0, 1, 60)
    ours = other * np.exp(rng.normal(-1, 0.3, 60))
    conclusion = ratio("m", "ours", over="other", at_most=0.5).conclude(_records("m", ours=ours, other=other))
    assert conclusion.method == "BCa bootstrap"
    assert conclusion.quantity.startswith("geometric mean ratio")
    assert conclusion.estimate == pytest.approx(np.exp(np.log(ours / other).mean()))
    assert conclusion.outcome == "holds"


def test_holm_corrects_step_down():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
    assert holm([0.5, 0.9]) == [1.0, 1.0]


def test_correction_takes_back_what_holds_only_alone():
    strong = better("m", "ours", than="other")
    weak = within("m", "ours", high=8.5)
    records = _records("m", ours=range(10), other=[20] * 10)
    alone = conclude(_study(strong, weak), "sample", "smoke", records)
    together = conclude(_study(strong, weak), "sample", "smoke", records, correct=True)
    assert [verdict.outcome for verdict in alone] == ["holds", "holds"]
    assert [verdict.outcome for verdict in together] == ["holds", "holds"]
    many = _study(strong, *[within("m", "ours", high=8.5)] * 6)
    corrected = conclude(many, "sample", "smoke", records, correct=True)
    assert corrected[0].outcome == "holds"
    assert corrected[1].outcome == "undecided"
    assert "Holm" in corrected[1].finding


def test_verdict_is_json_with_the_papers_figures():
    claim = Claim("c", "A claim", "Table 1", within("m", "ours", high=1), paper=(PaperFigure("the paper", 0.7),))
    study = replace(_study(), claims=(claim,))
    verdict = conclude(study, "sample", "smoke", _records("m", ours=[0.5, 0.6]))[0]
    data = json.loads(json.dumps(verdict.as_dict(), allow_nan=False))
    assert data["paper"] == [{"label": "the paper", "value": 0.7}]
    assert data["conclusion"]["estimate"] == pytest.approx(0.55)


def test_claims_with_one_id_are_refused():
    claim = Claim("c", "A claim", "ours", within("m", "ours", high=1))
    with pytest.raises(ValueError, match="share an id"):
        replace(_study(), claims=(claim, claim))
