"""Choices from every source: which events they become, and what is refused."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from itertools import combinations, permutations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.core.errors import InputError
from assay.probit import ChoiceData
from assay.probit.choices import BEST, ORDER, WORST, parse_answer


def events(data: ChoiceData) -> list[tuple]:
    """Events by name, with what can be exchanged in order."""
    found = []
    for (i, j, k), kind in zip(data.triples.tolist(), data.kinds.tolist(), strict=True):
        i, j, k = data.items[i], data.items[j], data.items[k]
        found.append(
            (kind, i, j, k)
            if kind == ORDER
            else (kind, i, *sorted((j, k)))
            if kind == BEST
            else (kind, *sorted((i, j)), k)
        )
    found += [("pair", data.items[a], data.items[b]) for a, b in data.pairs.tolist()]
    return sorted(found, key=lambda event: (isinstance(event[0], int), str(event)))


def by_rules(ratings: dict[str, float]) -> list[tuple]:
    """The same by looking at every three items."""
    found = []
    for three in combinations(sorted(ratings), 3):
        for i, j, k in permutations(three):
            if ratings[i] > ratings[j] > ratings[k]:
                found.append((ORDER, i, j, k))
            if j < k and ratings[i] > ratings[j] == ratings[k]:
                found.append((BEST, i, j, k))
            if i < j and ratings[i] == ratings[j] > ratings[k]:
                found.append((WORST, i, j, k))
    return sorted(found, key=lambda event: (isinstance(event[0], int), str(event)))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=3, max_size=7))
def test_ratings_become_the_events_that_the_rules_say(values: list[int]) -> None:
    ratings = dict(zip("abcdefg", values, strict=False))
    table = {"user": ["u"] * len(values), "item": list(ratings), "rating": values}
    assert events(ChoiceData.from_ratings(table)) == by_rules(ratings)


def test_a_long_ranking_becomes_all_its_triples() -> None:
    data = ChoiceData.from_rankings([["d", ["a", "c"], "b"]])
    assert events(data) == by_rules({"d": 3, "a": 2, "c": 2, "b": 1})
    assert data.long_answers == ((0, ((3,), (0, 2), (1,))),)
    assert data.long_mask.all()
    assert data.short_answers().n_events == 0


def test_ways_to_say_the_same_give_the_same_data() -> None:
    best = ChoiceData.from_best([["a", "b", "c"], ["a", "d"]], ["b", "d"])
    ranked = ChoiceData.from_rankings([["b", ["a", "c"]], ["d", "a"]])
    assert events(best) == events(ranked) == [("pair", "d", "a"), (BEST, "b", "a", "c")]
    rows = [
        {"prompt": "p", "completions": ["x", "y", "z"], "models": ["a", "b", "c"], "ratings": [1, 3, 1]},
        {"prompt": "q", "completions": ["x", "y"], "models": ["d", "a"], "ranking": [0, 1]},
    ]
    assert events(ChoiceData.from_completions(rows)) == events(best)


def test_arrays_of_rankings_are_read_as_lists_of_them_are() -> None:
    rankings = np.random.default_rng(0).permuted(np.tile(np.arange(3), (50, 1)), axis=1)
    fast, slow = ChoiceData.from_rankings(rankings), ChoiceData.from_rankings(rankings.tolist())
    assert fast.items == slow.items
    assert np.array_equal(fast.triples, slow.triples)


def test_chat_messages_are_read_as_their_text() -> None:
    rows = [
        {"chosen": [{"role": "assistant", "content": "yes"}], "rejected": [{"role": "assistant", "content": "no"}]},
        {"chosen": "no", "rejected": "perhaps"},
    ]
    assert ChoiceData.from_trl(rows).items == ("no", "perhaps", "yes")


def test_frames_of_pandas_and_polars_are_read_alike() -> None:
    polars = pytest.importorskip("polars")
    table = {"user": [1, 1, 1, 2, 2, 2], "item": list("abcabc"), "rating": [3.0, 2.0, 1.0, 1.0, np.nan, 3.0]}
    first, second = ChoiceData.from_ratings(pd.DataFrame(table)), ChoiceData.from_ratings(polars.DataFrame(table))
    assert events(first) == events(second) == [("pair", "c", "a"), (ORDER, "a", "b", "c")]
    assert first.dropped == {"ratings that are NaN": 1}


def test_counts_add_up_over_shards() -> None:
    rng = np.random.default_rng(0)
    rankings = np.argsort(rng.random((300, 5)), axis=1)[:, :3]
    whole = ChoiceData.from_rankings(rankings, items=range(5), users=list(range(300)))
    parts = [
        ChoiceData.from_rankings(rankings[rows], items=range(5), users=rows)
        for rows in (list(range(100)), list(range(100, 300)))
    ]
    joined = ChoiceData.concat(parts)
    assert joined.n_users == 300
    for name in ("triples", "kinds", "weights"):
        assert np.array_equal(getattr(joined.distinct(), name), getattr(whole.distinct(), name))


def shard(rows: list[list[str]]) -> ChoiceData:
    """What one process makes of its share of the answers."""
    return ChoiceData.from_rankings(rows, users=[f"{row}" for row in rows])


def test_shards_of_two_processes_are_fitted_as_the_whole() -> None:
    rng = np.random.default_rng(1)
    rows = [list(rng.permutation(list("abcde"))[:3]) for _ in range(400)]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        parts = list(pool.map(shard, [rows[:150], rows[150:]]))
    joined, whole = ChoiceData.concat(parts).distinct("triple"), shard(rows).distinct("triple")
    assert np.array_equal(joined.triples, whole.triples)
    assert np.array_equal(joined.weights, whole.weights)


def test_everyone_weighs_the_same_by_default() -> None:
    data = ChoiceData.from_rankings([["a", "b", "c", "d"], ["b", "c", "d"]], users=["much", "little"])
    each = data.distinct("user")
    assert each.answer_weights[data.triple_users == 0].sum() == pytest.approx(
        each.answer_weights[data.triple_users == 1].sum()
    )
    assert each.total == pytest.approx(data.n_events)
    assert np.array_equal(data.distinct("triple").answer_weights, np.ones(5))


def test_rankings_may_be_text() -> None:
    assert events(ChoiceData.from_rankings(["a>b~c", "b > c > a"])) == [(ORDER, "b", "c", "a"), (BEST, "a", "b", "c")]


def test_ratings_of_completions_that_are_missing_are_left_out_and_counted() -> None:
    rows = [{"completions": list("abcd"), "ratings": [3, None, float("nan"), 1]}]
    data = ChoiceData.from_completions([*rows, {"completions": list("abc"), "ranking": [0, 1, 2]}])
    assert events(data) == [("pair", "a", "d"), (ORDER, "a", "b", "c")]
    assert data.dropped == {"ratings that are NaN": 2}


def test_the_limit_per_user_keeps_so_many_triples_and_says_what_it_left_out() -> None:
    table = {"user": ["u"] * 40, "item": list(range(40)), "rating": np.arange(40.0)}
    data = ChoiceData.from_ratings(table, max_triples_per_user=100)
    assert data.n_events == 100
    assert data.dropped == {"triples above max_triples_per_user": 9880 - 100}
    again = ChoiceData.from_ratings(table, max_triples_per_user=100)
    assert np.array_equal(data.triples, again.triples)


def test_choices_of_some_users_are_those_of_nobody_else() -> None:
    data = ChoiceData.from_rankings([["a", "b", "c"], ["c", "b"], ["b", "a", "c", "d"]], users=["x", "y", "x"])
    assert events(data.of_users([1])) == [("pair", "c", "b")]
    assert len(data.of_users([0]).triples) == 5


def test_pairs_of_answers_are_what_they_imply() -> None:
    data = ChoiceData.from_rankings([["a", "b", "c"], ["a", ["b", "c"]], [["a", "b"], "c"]])
    wins = data.wins()
    assert wins.tolist() == [[0, 2, 3], [0, 0, 2], [0, 0, 0]]
    assert data.pair_counts()[0, 1] == 3


def test_ties_of_everything_carry_nothing_and_are_counted() -> None:
    data = ChoiceData.from_rankings([["a", "b", "c"], [["a", "b", "c"]], ["a"]])
    assert data.n_events == 1
    assert data.dropped == {"answers in which all is tied": 1, "answers with one item": 1}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ChoiceData.from_rankings([["a", "b", "a"], ["a", "b", "c"]]), "twice"),
        (lambda: ChoiceData.from_rankings(np.array([[1, 2, 3], [1, 1, 2]])), "ranking 1 holds an item twice"),
        (lambda: ChoiceData.from_rankings([["a", "b"]]), "2 items; expected at least 3"),
        (lambda: ChoiceData.from_rankings([["a", "x", "b"]], items="abc"), "unknown item 'x'"),
        (lambda: ChoiceData.from_rankings([["a", "b", "c"]], users=["u", "v"]), "users has 2 entries"),
        (lambda: ChoiceData.from_best([["a", "b", "c"]], ["d"]), "'d' wasn't shown"),
        (lambda: ChoiceData.from_pairs([("a", "b", "c")]), "pair 0 has 3 items"),
        (lambda: ChoiceData.from_ratings({"user": [1], "item": ["a"]}), "no column 'rating'"),
        (
            lambda: ChoiceData.from_ratings({"user": [1], "item": ["a"], "rating": ["good"]}),
            "something else than numbers",
        ),
        (
            lambda: ChoiceData.from_ratings({"user": [1] * 4, "item": list("abca"), "rating": [1, 2, 3, 4]}),
            "rated the item 'a' twice",
        ),
        (lambda: ChoiceData.from_completions([{"completions": ["a", "b", "c"]}]), "neither 'ranking' nor 'ratings'"),
        (lambda: ChoiceData.from_completions([{"completions": ["a", "b", "c"], "ranking": [0, 1, 3]}]), "holds 3"),
        (
            lambda: ChoiceData.from_completions([{"completions": ["a", "b", "c"], "ratings": [1]}]),
            "row 0: has 1 ratings and 3 completions",
        ),
        (lambda: ChoiceData.from_trl([{"chosen": "a"}]), "row 0: has no 'rejected'"),
        (lambda: ChoiceData.from_rankings([["a", "b", "c"]], max_triples_per_user=0), "max_triples_per_user is 0"),
        (lambda: ChoiceData.from_rankings([["a", "b", "c"]]).distinct("item"), "weight is 'item'"),
        (lambda: ChoiceData.from_rankings([["a", "b", "c"]], random_state=-1), "random_state is -1"),
        (lambda: ChoiceData.from_rankings([["a", "b", "c"]], users=[["u"]]), "a user isn't hashable"),
        (lambda: ChoiceData.from_completions([{"completions": ["a", "b"], "ratings": [1, "x"]}]), "the rating 'x'"),
        (lambda: ChoiceData.from_rankings(np.array([[1, 2, np.nan], [1, 2, 3]])), "ranking 0 holds None or NaN"),
        (
            lambda: ChoiceData.from_rankings(np.array([["a", "b", "c"], ["a", "b", None]])),
            "ranking 1 holds None or NaN",
        ),
        (lambda: ChoiceData.from_rankings([[1, 2, float("nan")], [1, 2, 3]]), "an item is None or NaN"),
        (lambda: ChoiceData.from_rankings(np.array([1, 2, 3])), "ranking 0 is"),
        (lambda: ChoiceData.from_rankings(np.zeros((2, 3, 4))), "rankings is of shape (2, 3, 4)"),
        (lambda: ChoiceData.from_rankings("abc"), "rankings is text"),
        (lambda: ChoiceData.from_rankings(["abc", "bca"]), "ranking 0 is the text 'abc'"),
        (lambda: ChoiceData.from_best([["a", "b", "c"]], ["a", "b"]), "chosen has 2 entries"),
        (lambda: ChoiceData.from_ratings({"user": [1], "item": [1, 2], "rating": [1, 2]}), "1, 2 and 2 rows"),
        (lambda: ChoiceData.from_ratings([[1, 2, 3]]), "ratings is a list"),
        (
            lambda: ChoiceData.from_ratings({"user": ["u", None, "u"], "item": list("abc"), "rating": [1, 2, 3]}),
            "column 'user' holds None or NaN",
        ),
        (lambda: ChoiceData.from_trl([1]), "row 0 is a int"),
        (lambda: ChoiceData.from_completions(["a"]), "row 0 is a str"),
        (lambda: ChoiceData.concat([]), "aren't all ChoiceData"),
        (lambda: parse_answer("a>>b"), "empty item"),
    ],
)
def test_what_is_wrong_is_refused_in_one_line(make, said: str) -> None:
    with pytest.raises(InputError) as refusal:
        make()
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)
