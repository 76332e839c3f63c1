"""Normalisation, witnesses against pairs, closed-form inversion and its aggregation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.core.errors import InputError
from assay.probit import ChoiceData, CorrelatedProbit, identifiability, normalise, pair_witness
from assay.probit._likelihood import OUTCOMES, triple_outcomes
from assay.probit.choices import BEST, ORDER, WORST
from assay.probit.geometry import correlation_of, squared_distances
from assay.probit.moments import exact_table, moments_of, triangle_angles
from tests.probit.oracles import random_model, smallest_angle

seeds = st.integers(0, 10_000)


@settings(max_examples=30, deadline=None)
@given(st.integers(3, 8), seeds)
def test_normalising_twice_changes_nothing_and_fixes_mean_rows_and_trace(n: int, seed: int) -> None:
    mu, covariance = random_model(n, seed=seed)
    again = normalise(mu, covariance)
    assert np.abs(again[0] - mu).max() < 1e-12
    assert np.abs(again[1] - covariance).max() < 1e-12
    assert abs(mu.sum()) < 1e-12
    assert np.abs(covariance.sum(axis=0)).max() < 1e-12
    assert np.trace(covariance) == pytest.approx(n)


@settings(max_examples=20, deadline=None)
@given(st.integers(3, 6), seeds, st.floats(0.1, 10), st.floats(-3, 3), st.floats(0, 5))
def test_shift_scale_and_a_common_part_of_utilities_show_in_no_probability(
    n: int, seed: int, scale: float, shift: float, common: float
) -> None:
    mu, covariance = random_model(n, seed=seed)
    plain = CorrelatedProbit.from_parameters(mu, covariance)
    moved = CorrelatedProbit.from_parameters(scale * mu + shift, scale**2 * covariance + common)
    for order in ([0, 1], [2, 0, 1], [1, [0, 2]]):
        assert moved.prob(order) == pytest.approx(plain.prob(order), abs=1e-10)


def test_relabelling_items_relabels_probabilities() -> None:
    mu, covariance = random_model(5, seed=3)
    order = np.array([3, 0, 4, 1, 2])
    plain = CorrelatedProbit.from_parameters(mu, covariance, items="abcde")
    moved = CorrelatedProbit.from_parameters(
        mu[order], covariance[np.ix_(order, order)], items=np.array(list("abcde"))[order].tolist()
    )
    for text in ("a>b", "c>a>e", "a>b~d", "a>b>c>d"):
        assert moved.prob(text) == pytest.approx(plain.prob(text), abs=2e-4)


@settings(max_examples=30, deadline=None)
@given(st.integers(3, 7), seeds)
def test_all_answers_about_a_triple_sum_to_one(n: int, seed: int) -> None:
    mu, covariance = random_model(n, seed=seed)
    squares = squared_distances(covariance)
    three = np.array([[squares[0, 1], squares[0, 2], squares[1, 2]]])
    tables = {kind: triple_outcomes(kind, mu[None, :3], three)[0][0] for kind in (ORDER, BEST, WORST)}
    for table in tables.values():
        assert table.sum() == pytest.approx(1, abs=1e-12)
    for first in range(3):
        orders = [p for order, p in zip(OUTCOMES[ORDER], tables[ORDER], strict=True) if order[0] == first]
        assert sum(orders) == pytest.approx(tables[BEST][first], abs=1e-12)


def test_a_pairs_probability_is_the_same_from_any_third_item() -> None:
    mu, covariance = random_model(6, seed=2)
    table = exact_table(mu, covariance)
    found = [
        table.orders[row, [0, 1, 4]].sum() for row, triple in enumerate(table.triples.tolist()) if triple[:2] == [0, 1]
    ]
    assert np.ptp(found) < 1e-12


def test_scores_of_all_events_are_those_of_central_differences() -> None:
    mu, covariance = random_model(3, seed=9)
    squares = squared_distances(covariance)
    theta = np.r_[mu, squares[0, 1], squares[0, 2], squares[1, 2]]
    for kind in (ORDER, BEST, WORST):
        _, scores = triple_outcomes(kind, theta[None, :3], theta[None, 3:])
        for place in range(6):
            moved = []
            for sign in (1, -1):
                at = theta.copy()
                at[place] += sign * 1e-5
                moved.append(np.log(triple_outcomes(kind, at[None, :3], at[None, 3:])[0][0]))
            assert np.abs((moved[0] - moved[1]) / 2e-5 - scores[0, :, place]).max() < 1e-7


@settings(max_examples=25, deadline=None)
@given(st.integers(3, 8), seeds)
def test_the_witness_agrees_on_every_pair_and_disagrees_on_a_triple(n: int, seed: int) -> None:
    mu, covariance = random_model(n, seed=seed)
    witness = pair_witness(mu, covariance)
    assert witness.pair_gap < 1e-12
    assert witness.triple_gap > 1e-4
    assert np.linalg.eigvalsh(witness.other_covariance)[0] > -1e-10


def test_with_equal_means_any_covariance_is_a_witness() -> None:
    witness = pair_witness(np.zeros(4), np.eye(4))
    assert witness.pair_gap == 0
    assert witness.triple_gap > 1e-3


@pytest.mark.parametrize("aggregation", ["lsq", "anchor"])
@pytest.mark.parametrize("n", [3, 4, 6, 9, 12])
def test_exact_probabilities_give_the_model_back(n: int, aggregation: str) -> None:
    done = 0
    for seed in range(60):
        mu, covariance = random_model(n, seed=seed, rank=3 * n)
        if smallest_angle(covariance) > 0.05:
            found = moments_of(exact_table(mu, covariance), n, smoothing=0, aggregation=aggregation)
            assert np.abs(found.mu - mu).max() < 1e-10
            assert np.abs(found.covariance - covariance).max() < 1e-10
            done += 1
        if done == 4:
            break
    assert done == 4


def test_equal_means_give_angles_from_the_best_of_three_alone() -> None:
    mu, covariance = random_model(3, seed=1, spread=0.0)
    table = exact_table(mu, covariance)
    _, angles, _ = triangle_angles(table, smoothing=0)
    best = table.orders[0, [0, 2, 4]] + table.orders[0, [1, 3, 5]]
    assert np.abs(angles[0] - np.pi * (1 - 2 * best)).max() < 1e-10


def test_independent_utilities_make_equilateral_triangles() -> None:
    found = moments_of(exact_table(np.zeros(5), np.eye(5) - 0.2), 5, smoothing=0)
    assert np.abs(found.covariance - 1.25 * (np.eye(5) - 0.2)).max() < 1e-12


def test_red_bus_and_blue_bus_share_what_one_bus_had() -> None:
    """Two items that are nearly one: P(best) tends to 1/4, 1/4, 1/2."""
    root = np.array([[1.0, 0.0], [1.0, 1e-4], [-1.0, 0.0]])
    model = CorrelatedProbit.from_parameters(np.zeros(3), root @ root.T, items=["red", "blue", "car"])
    everything = ["red", "blue", "car"]
    found = [model.prob_best(item, everything) for item in everything]
    assert found == pytest.approx([0.25, 0.25, 0.5], abs=1e-3)


def test_shifted_correlations_of_independent_utilities_are_zero() -> None:
    covariance = normalise(np.zeros(6), np.eye(6))[1]
    off = ~np.eye(6, dtype=bool)
    assert np.abs(correlation_of(covariance)[off]).max() < 1e-12
    assert correlation_of(covariance, kind="centered")[off] == pytest.approx(-1 / 5)


def test_moments_from_best_of_three_with_pairs_beside_them() -> None:
    mu, covariance = random_model(4, seed=8, spread=0.4)
    truth = CorrelatedProbit.from_parameters(mu, covariance)
    parts = [truth.simulate(60_000, kind="best", random_state=0), truth.simulate(60_000, size=2, random_state=1)]
    data = ChoiceData.concat(parts)
    found = CorrelatedProbit("full", estimator="moments").fit(data)
    assert np.abs(found.mu_ - mu).max() < 0.05
    assert np.abs(found.covariance_ - covariance).max() < 0.15


@pytest.mark.parametrize(
    ("covariance", "said"),
    [
        ([[1, 0.5, 0], [0, 1, 0], [0, 0, 1]], "isn't symmetric"),
        ([[1, 2, 0], [2, 1, 0], [0, 0, 1]], "eigenvalue -1"),
        ([[1, 0, np.nan], [0, 1, 0], [np.nan, 0, 1]], "NaN or infinity"),
        ([[1, 0], [0, 1], [0, 0]], "shape (3, 2)"),
        ([[1, 1, 1], [1, 1, 1], [1, 1, 1]], "no variance"),
    ],
)
def test_what_is_no_covariance_is_refused(covariance: list, said: str) -> None:
    with pytest.raises(InputError) as refusal:
        CorrelatedProbit.from_parameters([0.0, 0.0, 0.0], covariance)
    assert said in str(refusal.value)


def test_rank_of_best_of_three_grows_with_items_as_counts_say() -> None:
    """n = 3: two numbers for four unknowns; n = 4: eight for eight; n = 5: enough."""
    ranks = {}
    for n in (3, 4, 5):
        model = CorrelatedProbit.from_parameters(*random_model(n, seed=n))
        found = identifiability(model.simulate(3000, kind="best"))
        ranks[n] = (found.rank, found.needed, found.identified)
    assert ranks == {3: (2, 4, False), 4: (8, 8, True), 5: (13, 13, True)}


def test_rankings_of_one_triple_identify_it() -> None:
    found = identifiability(CorrelatedProbit.from_parameters(*random_model(3, seed=0)).simulate(500))
    assert found.identified
    assert found.rank == 4
