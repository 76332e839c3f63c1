"""Scores against the oracles of the method's specification."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.core.errors import InputError
from assay.tooluse.alignment import align, count_calls
from assay.tooluse.matchers import Matcher, make_match
from assay.tooluse.official import normalise, official_scores, same_parameters
from assay.tooluse.scoring import explain, order_pairs, score
from assay.tooluse.trajectories import Call, Edge, Gold, Tool, Trajectory, make_calls
from tests.tooluse.oracles import best_weight_by_permutations, rename


def named(*names: str) -> list[Call]:
    return make_calls([(name, {}) for name in names])


values = st.one_of(st.integers(-3, 3), st.booleans(), st.sampled_from(["a", "b", "1", "yes"]))
calls = st.lists(
    st.tuples(st.sampled_from(["f", "g"]), st.dictionaries(st.sampled_from(["x", "y"]), values, max_size=2)),
    max_size=6,
).map(make_calls)


# --- Oracle 2: nothing predicted


def test_an_empty_prediction_recalls_nothing_and_is_labelled() -> None:
    found = score([], Gold(named("a", "b")))
    assert (found["name_recall"], found["name_precision"], found["call_f1"], found["name_em"]) == (0, 0, 0, 0)
    assert found.labels == ("no_tool_used",)


def test_an_empty_reference_asks_for_no_call() -> None:
    nothing, something = score([], Gold([])), score(named("a"), Gold([]))
    assert (nothing["name_recall"], nothing["name_precision"], nothing["call_f1"]) == (1, 1, 1)
    assert (something["name_recall"], something["name_precision"]) == (1, 0)
    assert something.labels == ("redundant",)


# --- Oracles 3 and 4: official and exact metrics on repeated names


def test_official_inclusion_is_below_one_for_a_perfect_run_that_repeats_a_tool() -> None:
    gold = Gold(named("A", "A", "B"))
    official = score(gold.as_trajectory(), gold, profile="official")
    assert official["inclusion"] == pytest.approx(2 / 3)
    assert official["em"] == 1
    assert score(gold.as_trajectory(), gold)["name_recall"] == 1


def test_official_em_overlooks_a_missing_repetition() -> None:
    gold = Gold(named("A", "A", "B"))
    assert score(named("A", "B"), gold, profile="official")["em"] == 1
    exact = score(named("A", "B"), gold)
    assert exact["name_em"] == 0
    assert exact["name_recall"] == pytest.approx(2 / 3)


def test_one_wrong_name_of_three() -> None:
    gold = Gold(named("A", "B", "C"), structure="sequential")
    found = score(named("A", "C", "D"), gold)
    assert score(named("A", "C", "D"), gold, profile="official")["inclusion"] == pytest.approx(2 / 3)
    for metric in ("name_precision", "name_recall", "name_f1", "lcs_ratio"):
        assert found[metric] == pytest.approx(2 / 3)


# --- Oracle 5: the official normalisation


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("yes", 1, True),
        ("yes", True, True),
        ("007", 7, True),
        ("02139", 2139, True),
        ("San Francisco, CA", "San Francisco , Canada", True),
        ("San Francisco, CA", "San Francisco, California", False),
        ("Paris", "paris", False),
        ("2024-1-5", "2024-01-05", True),
        ("1e3", 1000, True),
        ("off", False, True),
        ("a  b", "a b", True),
        ("[1, 2]", [1, 2], True),
    ],
)
def test_official_normalisation(one: Any, other: Any, equal: bool) -> None:
    assert (normalise(one) == normalise(other)) is equal


def test_official_parameters_in_the_wrong_bucket_differ() -> None:
    want = Call("t", {"a": 1, "b": 2}, required=("a",))
    assert same_parameters(Call("t", {"b": 2, "a": 1}, required=("a",)), want)
    assert not same_parameters(Call("t", {"a": 1, "b": 2}, required=("a", "b")), want)
    assert same_parameters(Call("t", {"a": 1, "b": 2, "c": " ", "d": None}), want)


def test_official_usage_compares_the_first_call_of_each_name() -> None:
    gold = Gold(make_calls([("a", {"x": 1}), ("a", {"x": 2}), ("b", {"y": 1}), ("c", {})]))
    run = make_calls([("a", {"x": 1}), ("a", {"x": 9}), ("b", {"y": 3})])
    assert official_scores(run, gold).usage == [True, False]


def test_exact_comparison_is_stricter_where_the_schema_says_text() -> None:
    tool = Tool("post", parameters={"properties": {"zip": {"type": "string"}, "n": {"type": "integer"}}})
    matcher = Matcher(tools=[tool])
    assert not matcher.equal("post", "zip", 2139, "02139")
    assert not matcher.equal("post", "zip", "2139", "02139")
    assert not matcher.equal("post", "n", "yes", 1)
    assert not matcher.equal("post", "n", True, 1)
    assert matcher.equal("post", "n", "5", 5)
    assert matcher.equal("post", "zip", " 02139 ", "02139")


@pytest.mark.parametrize(
    ("rule", "got", "want", "passes"),
    [
        ("exact", True, 1, False),
        ({"kind": "number", "rtol": 0.01}, "101", 100, True),
        ({"kind": "number", "atol": 0.5}, 101, 100, False),
        ("number", 2**70 + 1, 2**70, False),
        ("date", "2024/1/5", "2024-01-05", True),
        ({"kind": "datetime", "tz": "Europe/Paris"}, "2024-01-01T12:00", "2024-01-01T11:00+00:00", True),
        ("casefold", "PARIS", "paris ", True),
        ({"kind": "text", "min_ratio": 0.8}, "colour", "color", True),
        ("set", "b, a", ["a", "b"], True),
        ("set", ["a"], ["a", "b"], False),
        ({"kind": "regex", "pattern": r"\d+"}, "12", "", True),
        ({"kind": "any_of", "values": ["x"]}, "x", "y", True),
        ("any", object(), None, True),
        ("json_subset", {"a": 1, "b": [1, 2]}, {"b": [2]}, True),
        ("json_subset", {"a": 1}, {"a": 2}, False),
        ({"kind": "geo", "tol_km": 1}, {"lat": 48.8566, "lon": 2.3522}, "48.857, 2.352", True),
        ({"kind": "geo", "tol_km": 1}, "48.9, 2.3522", "48.857, 2.352", False),
    ],
)
def test_matchers(rule: Any, got: Any, want: Any, passes: bool) -> None:
    assert make_match(rule)(got, want) is passes


def test_a_matcher_of_an_unknown_kind_names_the_known_ones() -> None:
    with pytest.raises(InputError, match="matcher kind 'fuzzy'; expected one of: any, any_of, casefold"):
        make_match("fuzzy")


def test_an_argument_left_out_equals_its_default() -> None:
    schema = {"properties": {"q": {"type": "string"}, "n": {"type": "integer", "default": 10}}}
    matcher = Matcher(tools=[Tool("s", parameters=schema)])
    assert matcher.args_equal("s", {"q": "a"}, {"q": "a", "n": 10})
    assert matcher.args_equal("s", {"q": "a", "n": "10"}, {"q": "a"})
    assert not matcher.args_equal("s", {"q": "a", "n": 9}, {"q": "a"})


# --- Oracle 6: the alignment is optimal


def test_the_greedy_trap() -> None:
    predicted = make_calls([("search", {"q": "a", "n": 5}), ("search", {"q": "a"})])
    reference = make_calls([("search", {"q": "a"}), ("search", {"q": "a", "n": 5})])
    found = align(predicted, reference, matcher=Matcher(arguments="superset"))
    assert found.equal == (True, True)


def test_agentevals_fails_in_the_greedy_trap() -> None:
    """First come, first served: the reason for an assignment."""
    from agentevals.trajectory.match import create_trajectory_match_evaluator

    def messages(arguments: list[str]) -> list[dict[str, Any]]:
        tool_calls = [{"function": {"name": "search", "arguments": one}} for one in arguments]
        return [{"role": "user", "content": "q"}, {"role": "assistant", "content": "", "tool_calls": tool_calls}]

    evaluate = create_trajectory_match_evaluator(trajectory_match_mode="superset", tool_args_match_mode="superset")
    found = evaluate(
        outputs=messages(['{"q": "a", "n": 5}', '{"q": "a"}']),
        reference_outputs=messages(['{"q": "a"}', '{"q": "a", "n": 5}']),
    )
    assert found["score"] is False


@pytest.mark.parametrize("arguments", ["exact", "superset", "subset"])
def test_alignment_weighs_as_much_as_the_best_permutation(arguments: Any) -> None:
    """2,000 random pairs in all three modes together."""
    rng = random.Random(arguments)
    matcher = Matcher(arguments=arguments)

    def side() -> list[Call]:
        return make_calls(
            [
                (rng.choice("fg"), {key: rng.choice([0, 1, "a"]) for key in "xyz"[: rng.randint(0, 3)]})
                for _ in range(rng.randint(0, 6))
            ]
        )

    for _ in range(667):
        predicted, reference = side(), side()
        found = align(predicted, reference, matcher=matcher)
        best = best_weight_by_permutations(predicted, reference, matcher)
        assert found.weight(predicted, reference, matcher) == pytest.approx(best, abs=1e-9)


@given(calls, calls)
@settings(max_examples=200, deadline=None)
def test_the_fast_counts_are_those_of_the_alignment(predicted: list[Call], reference: list[Call]) -> None:
    gold = Gold(reference)
    slow = align(predicted, gold)
    as_calls = count_calls(predicted, gold)
    as_dicts = count_calls([{"name": call.name, "args": call.args} for call in predicted], gold)
    assert (as_calls.named, as_calls.equal) == (len(slow.pairs), sum(slow.equal))
    assert as_dicts == as_calls
    assert score(predicted, gold)["call_f1"] == pytest.approx(as_calls.f1)


# --- Oracle 8: order


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_mean_order_accuracy_over_all_permutations_is_one_half(n: int) -> None:
    names = [f"t{i}" for i in range(n)]
    gold = Gold(named(*names), structure="sequential")
    found = [score(named(*order), gold)["order_accuracy"] for order in itertools.permutations(names)]
    assert math.fsum(found) / len(found) == pytest.approx(0.5, abs=1e-12)
    assert score(named(*reversed(names)), gold)["order_accuracy"] == 0


def test_calls_issued_together_violate_an_order_between_them() -> None:
    gold = Gold(named("a", "b"), structure="sequential")
    together = [replace(call, turn=0, parallel_group=0) for call in named("a", "b")]
    assert score(together, gold)["order_accuracy"] == 0
    assert score(together, gold)["name_em"] == 1


def test_a_dag_accepts_every_linear_extension_and_no_other_order() -> None:
    gold = Gold(named("a", "b", "c"), structure="dag", order=((0, 2), (1, 2)))
    accepted = {order for order in itertools.permutations("abc") if score(named(*order), gold)["name_em"] == 1}
    assert accepted == {("a", "b", "c"), ("b", "a", "c")}
    assert order_pairs(gold) == [(0, 2), (1, 2)]


def test_order_of_fewer_than_two_aligned_calls_is_undefined() -> None:
    assert math.isnan(score(named("a"), Gold(named("a", "b"), structure="sequential"))["order_accuracy"])


def test_a_cycle_in_a_reference_is_refused() -> None:
    gold = Gold(named("a", "b"), structure="dag", order=((0, 1), (1, 0)))
    with pytest.raises(InputError, match="has a cycle"):
        score(named("a", "b"), gold)


# --- Dependencies and origins

CHAIN = Gold(
    [
        Call("locate", {"city": "Paris"}, result={"lat": 48.85}),
        Call("zone", {"lat": 48.85}, index=1, turn=1, result={"zone": "Europe/Paris"}),
    ],
    structure="sequential",
    query="Which zone is Paris in?",
    edges=(Edge(0, 1, "lat", "$.lat"),),
)


def test_a_dependency_takes_the_value_that_was_seen() -> None:
    run = CHAIN.as_trajectory()
    assert score(run, CHAIN)["dependency_satisfaction"] == 1
    run.calls[0].result = {"lat": 10}
    assert score(run, CHAIN)["dependency_satisfaction"] == 0
    assert "broken_dependency" in score(run, CHAIN).labels
    run.calls[1].args = {"lat": 10}
    assert score(run, CHAIN)["dependency_satisfaction"] == 1


def test_a_dependency_needs_its_result_before_the_consumer_is_issued() -> None:
    run = CHAIN.as_trajectory()
    run.calls[1].turn = 0
    assert score(run, CHAIN)["dependency_satisfaction"] == 0


def test_a_value_from_a_later_result_is_premature_and_one_from_nowhere_is_unsupported() -> None:
    run = CHAIN.as_trajectory()
    run.calls = [replace(run.calls[1], index=0, turn=0), replace(run.calls[0], index=1, turn=1)]
    run.calls[0].args = {"lat": 48.8}
    assert "unsupported_argument" in score(run, CHAIN).labels
    run.calls[0].args = {"lat": 48.85}
    gold = replace(CHAIN, calls=[CHAIN.calls[0], replace(CHAIN.calls[1], args={"lat": 1})], edges=())
    assert "premature_argument" in score(run, gold).labels


def test_alternatives_and_optional_calls() -> None:
    gold = Gold(
        named("a", "b", "c"),
        structure="sequential",
        optional=frozenset({1}),
        alternatives=(Gold(named("x", "y")),),
    )
    assert score(named("a", "c"), gold)["call_em"] == 1
    assert score(named("a", "c"), gold).labels == ()
    assert score(named("a", "b", "c"), gold)["name_em"] == 1
    other = score(named("x", "y"), gold)
    assert (other["call_em"], other.plan) == (1, 1)


def test_an_unparsable_call_matches_by_name_and_never_by_arguments() -> None:
    run = [Call("a", {}, raw_args="{", parse_error="not JSON")]
    found = score(run, Gold(named("a")))
    assert (found["name_em"], found["call_em"]) == (1, 0)
    assert found.labels == ("unparsable_call", "wrong_arguments")


def test_a_run_that_failed_for_the_service_is_no_evidence() -> None:
    found = score(Trajectory(error="rate limit"), Gold(named("a")))
    assert found.error == "rate limit"
    assert math.isnan(found["call_f1"])


def test_the_difference_is_told_in_words() -> None:
    gold = Gold(make_calls([("weather", {"city": "Paris", "days": 3}), ("news", {})]))
    text = explain(make_calls([("weather", {"city": "Rome", "unit": "c"}), ("stocks", {})]), gold)
    assert text.splitlines() == [
        "call_f1 0.000, name_em 0: missing_call, redundant, wrong_arguments",
        "~ weather(city='Rome', unit='c')",
        "    city: 'Rome', expected 'Paris'",
        "    days: missing, expected 3",
        "    unit: 'c', not expected",
        "+ stocks()",
        "- news()",
    ]


# --- Oracle 10: invariances


@given(calls, calls, st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_parallel_scores_ignore_order_ids_key_order_and_names(
    predicted: list[Call], reference: list[Call], rng: random.Random
) -> None:
    def scores(run: list[Call], want: list[Call]) -> list[float]:
        found = score([replace(call, index=i) for i, call in enumerate(run)], Gold(want))
        names = ("name_em", "name_f1", "call_em", "call_recall", "call_precision", "args_accuracy")
        return [-1.0 if math.isnan(found[name]) else found[name] for name in names]

    shuffled = [replace(call, id=str(rng.random()), args=dict(reversed(call.args.items()))) for call in predicted]
    rng.shuffle(shuffled)
    other = rng.sample(reference, len(reference))
    assert scores(shuffled, other) == pytest.approx(scores(predicted, reference))
    names = {"f": "uno", "g": "due"}
    assert scores(rename(predicted, names), rename(reference, names)) == scores(predicted, reference)


@given(calls, calls)
@settings(max_examples=100, deadline=None)
def test_an_extra_call_lowers_precision_only(predicted: list[Call], reference: list[Call]) -> None:
    gold = Gold(reference)
    longer = [*predicted, Call("other", {}, index=len(predicted), turn=len(predicted))]
    before, after = score(predicted, gold), score(longer, gold)
    assert after["name_recall"] == before["name_recall"]
    assert after["call_recall"] == before["call_recall"]
    assert after["name_precision"] <= before["name_precision"]


@given(calls, calls)
@settings(max_examples=200, deadline=None)
def test_name_recall_is_at_least_name_em(predicted: list[Call], reference: list[Call]) -> None:
    for structure in ("parallel", "sequential"):
        found = score(predicted, Gold(reference, structure=structure))  # type: ignore[arg-type]
        assert found["name_recall"] >= found["name_em"]


def test_an_unknown_profile_or_structure_is_refused() -> None:
    with pytest.raises(InputError, match="profile is 'strict'"):
        score([], Gold([]), profile="strict")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="structure is 'tree'"):
        Gold([], structure="tree")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="joins calls 0 and 3"):
        Gold(named("a"), edges=(Edge(0, 3, "x"),))
