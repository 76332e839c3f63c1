"""Fits, predictions, standard errors, designs and files of `CorrelatedProbit`, held to independent oracles."""

from __future__ import annotations

import warnings
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from assay.core.errors import InputError
from assay.probit import ChoiceData, CorrelatedProbit, ProbitWarning, design, identifiability, sample_size
from assay.probit._likelihood import FLOOR, Objective
from assay.probit.choices import ORDER, Distinct
from assay.probit.fitting import Settings, fit_covariance, squares_of, start_of
from assay.probit.geometry import factor, squared_distances
from assay.probit.information import coordinates, gather, gauge, question_information, rank_needed
from assay.probit.long_rankings import exact_long_likelihood, refinements
from assay.probit.moments import exact_table
from tests.probit.oracles import agrees, people, random_model


def exact_events(mu: np.ndarray, covariance: np.ndarray) -> tuple[Distinct, float]:
    """Every order of every triple with its probability as weight, and the mean entropy."""
    table = exact_table(mu, covariance)
    places = [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
    triples = np.concatenate([table.triples[:, place] for place in places])
    p = table.orders.T.ravel()
    none = np.empty(0, np.int64)
    distinct = Distinct(
        triples,
        np.full(len(p), ORDER),
        p,
        np.empty((0, 2), np.int64),
        np.empty(0),
        none,
        none,
        np.empty(0),
        np.empty(0),
    )
    return distinct, float(-(p * np.log(p)).sum() / p.sum())


def test_maximum_likelihood_on_exact_probabilities_is_the_model_and_its_entropy() -> None:
    mu, covariance = random_model(5, seed=4)
    distinct, entropy = exact_events(mu, covariance)
    away = start_of(0.5 * mu, 0.5 * covariance + 0.5 * (np.eye(5) - 0.2) * 1.25)
    fit = fit_covariance(distinct, 5, Settings(4, FLOOR, tol=1e-10), start=away)
    assert np.abs(fit.mu - mu).max() < 1e-4
    assert np.abs(fit.covariance - covariance).max() < 1e-4
    assert fit.loglik == pytest.approx(-entropy, abs=1e-8)


def test_the_gradient_of_the_likelihood_is_that_of_central_differences() -> None:
    data = ChoiceData.concat(
        [
            CorrelatedProbit.from_parameters(*random_model(4, seed=1)).simulate(200, kind=kind, size=size)
            for kind, size in (("ranking", 3), ("best", 3), ("ranking", 2))
        ]
    )
    objective = Objective(data.distinct(), 4, threads=1)
    rng = np.random.default_rng(0)
    mu, a = rng.standard_normal(4), rng.standard_normal((4, 3))
    _, d_mu, d_squares = objective(mu, squares_of(a, 0.1))
    d_a = 2 * (d_squares.sum(axis=1)[:, None] * a - d_squares @ a)
    for place in range(4):
        step = 1e-6 * np.eye(4)[place]
        numeric = (objective(mu + step, squares_of(a, 0.1))[0] - objective(mu - step, squares_of(a, 0.1))[0]) / 2e-6
        assert numeric == pytest.approx(d_mu[place], abs=1e-7)
        for column in range(3):
            moved = np.zeros_like(a)
            moved[place, column] = 1e-6
            numeric = (
                objective(mu, squares_of(a + moved, 0.1))[0] - objective(mu, squares_of(a - moved, 0.1))[0]
            ) / 2e-6
            assert numeric == pytest.approx(d_a[place, column], abs=1e-7)


def test_estimates_approach_the_truth_and_likelihood_beats_moments() -> None:
    mu, covariance = random_model(5, seed=2)
    truth = CorrelatedProbit.from_parameters(mu, covariance)
    errors = {}
    for estimator in ("moments", "moments+mle"):
        for count in (2000, 32_000):
            model = CorrelatedProbit("full", estimator=estimator, n_init=1, stderr="none")
            fits = [model.fit(truth.simulate(count, random_state=seed)).covariance_ for seed in range(6)]
            errors[estimator, count] = np.sqrt(np.mean((np.array(fits) - covariance) ** 2))
    assert errors["moments+mle", 32_000] < 0.03
    # A sixteenth of the variance is a quarter of the error.
    assert errors["moments+mle", 2000] / errors["moments+mle", 32_000] == pytest.approx(4, rel=0.4)
    assert errors["moments+mle", 32_000] <= errors["moments", 32_000]


def test_starts_agree_and_threads_and_the_order_of_people_change_nothing() -> None:
    data = CorrelatedProbit.from_parameters(*random_model(5, seed=3)).simulate(3000)
    model = CorrelatedProbit("full", n_init=3, n_jobs=1).fit(data)
    assert model.init_spread_ < 1e-6
    again = CorrelatedProbit("full", n_init=3, n_jobs=4).fit(data)
    assert np.array_equal(model.covariance_, again.covariance_)
    shuffled = data.of_users(np.random.default_rng(0).permutation(data.n_users))
    assert np.allclose(
        CorrelatedProbit("full", n_init=1).fit(shuffled).covariance_,
        CorrelatedProbit("full", n_init=1).fit(data).covariance_,
        atol=1e-6,
    )


def test_the_cost_of_a_fit_does_not_depend_on_how_often_answers_repeat() -> None:
    data = CorrelatedProbit.from_parameters(*random_model(4, seed=3)).simulate(500)
    copies = ChoiceData.concat([data.of_users(range(data.n_users))] * 20)
    assert len(copies.distinct("triple").weights) == len(data.distinct("triple").weights)
    once, often = (
        CorrelatedProbit("full", weight="triple", n_init=1, stderr="none").fit(one) for one in (data, copies)
    )
    assert np.allclose(once.covariance_, often.covariance_, atol=1e-5)


def test_a_factor_model_finds_its_factor() -> None:
    rng = np.random.default_rng(0)
    loadings = rng.standard_normal((8, 1))
    truth = CorrelatedProbit.from_parameters(rng.standard_normal(8), loadings @ loadings.T + np.eye(8))
    fit = CorrelatedProbit(1, n_init=1).fit(truth.simulate(20_000))
    assert np.abs(fit.covariance_ - truth.covariance_).max() < 0.15
    assert np.isfinite(fit.stderr_.covariance).all()
    gap = np.abs(fit.mu_ - truth.mu_) / fit.stderr_.mu
    assert gap.max() < 4


def test_mini_batches_end_near_the_full_optimum() -> None:
    data = CorrelatedProbit.from_parameters(*random_model(4, seed=6)).simulate(20_000)
    full, batched = (
        CorrelatedProbit("full", optimizer=name, n_init=1, stderr="none").fit(data) for name in ("lbfgs", "adam")
    )
    assert batched.loglik_ == pytest.approx(full.loglik_, abs=1e-4)


def test_features_carry_tastes_to_items_that_nobody_has_seen() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((16, 3))
    beta, taste = np.array([1.0, -0.5, 0.0]), np.array([[0.0], [1.5], [-1.5]])
    mu, loadings = x @ beta, x @ taste
    old = CorrelatedProbit.from_parameters(mu[:12], loadings[:12] @ loadings[:12].T + np.eye(12))
    new = CorrelatedProbit.from_parameters(mu[12:], loadings[12:] @ loadings[12:].T + np.eye(4))
    fit = CorrelatedProbit(1, features=x[:12], n_init=1).fit(old.simulate(20_000)).transfer([0, 1, 2, 3], x[12:])
    assert np.abs(fit.correlation() - new.correlation()).max() < 0.1
    assert fit.prob([0, 1, 2]) == pytest.approx(new.prob([0, 1, 2]), abs=0.03)


def test_auto_rank_is_full_for_few_items_and_held_out_for_many() -> None:
    few = CorrelatedProbit.from_parameters(*random_model(4, seed=0)).simulate(500)
    assert CorrelatedProbit(n_init=1, stderr="none").fit(few).rank_ == 3
    rng = np.random.default_rng(0)
    loadings = 2 * rng.standard_normal((18, 1))
    many = CorrelatedProbit.from_parameters(np.zeros(18), loadings @ loadings.T + np.eye(18)).simulate(6000)
    assert CorrelatedProbit(n_init=1, stderr="none").fit(many).rank_ in (1, 2)


def test_sandwich_errors_are_those_of_a_bootstrap_over_people_with_many_answers() -> None:
    truth = CorrelatedProbit.from_parameters(*random_model(4, seed=5))
    utilities = people(truth.mu_, truth.covariance_, 800, seed=0)
    data = ChoiceData.from_rankings(np.argsort(-utilities, axis=1))
    fit = CorrelatedProbit("full", n_init=1).fit(data)
    boot = fit.bootstrap(data, draws=100, random_state=1)
    assert fit.stderr_.mu == pytest.approx(boot.mu, rel=0.35)
    assert np.diag(fit.stderr_.covariance) == pytest.approx(np.diag(boot.covariance), rel=0.35)


def test_intervals_cover_the_truth_in_200_simulated_data_sets() -> None:
    mu, covariance = random_model(4, seed=7)
    truth = CorrelatedProbit.from_parameters(mu, covariance)
    upper = np.triu_indices(4)
    hits = []
    for seed in range(200):
        fit = CorrelatedProbit("full", n_init=1, n_jobs=1, tol=1e-6).fit(truth.simulate(2000, random_state=seed))
        hits.append(np.abs(fit.mu_ - mu) < 1.96 * fit.stderr_.mu)
        hits.append((np.abs(fit.covariance_ - covariance) < 1.96 * fit.stderr_.covariance)[upper])
    covered = float(np.concatenate(hits).mean())
    assert 0.90 <= covered <= 0.98


@pytest.mark.parametrize(
    ("order", "given", "tolerance"),
    [
        ([0, 1, 2], None, 2e-3),
        ([3, 1, 0, 2], None, 2e-3),
        ([3, 1, 0, 4, 2], None, 2e-3),
        ([0, 1], [[2, 3, 4]], 4e-3),
        ([0, 1], [[2, 3], [4, 0], [1, 3]], 4e-3),
        ([4, 0, 1], [[2, 3]], 4e-3),
    ],
)
def test_probabilities_are_those_of_drawn_people(order: list[int], given: list | None, tolerance: float) -> None:
    mu, covariance = random_model(5, seed=11)
    drawn = people(mu, covariance, 400_000, seed=1)
    kept = np.ones(len(drawn), dtype=bool)
    for answer in given or []:
        kept &= agrees(drawn, answer)
    share = agrees(drawn, order)[kept].mean()
    found = CorrelatedProbit.from_parameters(mu, covariance).probability(order, given=given)
    assert found.value == pytest.approx(share, abs=tolerance)
    assert found.error < tolerance


def test_best_of_many_sums_to_one() -> None:
    model = CorrelatedProbit.from_parameters(*random_model(6, seed=1))
    assert sum(model.prob_best(item, range(6)) for item in range(6)) == pytest.approx(1, abs=3e-3)


def test_what_is_given_decides_what_follows() -> None:
    model = CorrelatedProbit.from_parameters(*random_model(4, seed=1), items="abcd")
    assert model.predict_pair("a", "c", given=["a>b", "b>c"]) == pytest.approx(1, abs=1e-6)
    assert model.prob("c>a", given="a>b>c") == 0.0


def test_gibbs_draws_obey_the_answers_and_agree_with_exact_probabilities() -> None:
    model = CorrelatedProbit.from_parameters(*random_model(5, seed=12), items="abcde")
    found = model.posterior(["a>b>c", "d>e"], method="gibbs", draws=4000)
    assert (found.draws[:, 0] > found.draws[:, 1]).all()
    assert (found.draws[:, 3] > found.draws[:, 4]).all()
    for pair in ("ad", "be", "cd"):
        exact = model.predict_pair(*pair, given=["a>b>c", "d>e"], method="exact")
        assert model.predict_pair(*pair, given=["a>b>c", "d>e"], method="gibbs") == pytest.approx(exact, abs=0.03)


def test_laplace_moves_where_exact_draws_move() -> None:
    model = CorrelatedProbit.from_parameters(*random_model(5, seed=13), items="abcde")
    plain, exact = (model.posterior(["e>a", "d>b"], method=method).mean - model.mu_ for method in ("laplace", "gibbs"))
    assert np.corrcoef(plain, exact)[0, 1] > 0.97


def test_greedy_slates_are_near_the_best_and_all_items_are_the_expected_maximum() -> None:
    mu, covariance = random_model(8, seed=3)
    model = CorrelatedProbit.from_parameters(mu, covariance)
    drawn = model.draw(20_000, rng=np.random.default_rng(0))
    for k in (2, 3):
        best = max(drawn[:, list(chosen)].max(axis=1).mean() for chosen in combinations(range(8), k))
        slate = model.slate(k)
        assert slate.expected >= (1 - 1 / np.e) * best
        assert slate.expected == pytest.approx(drawn[:, list(slate.items)].max(axis=1).mean(), abs=1e-12)
        assert slate.expected >= slate.top_expected
    assert model.slate(8).expected == pytest.approx(
        people(mu, covariance, 400_000, seed=2).max(axis=1).mean(), abs=0.02
    )


def test_pairs_alone_give_means_and_the_covariance_is_refused_with_a_witness() -> None:
    data = CorrelatedProbit.from_parameters(*random_model(4, seed=1), items="abcd").simulate(2000, size=2)
    model = CorrelatedProbit().fit(data)
    assert abs(model.mu_.sum()) < 1e-9
    assert not model.identified_
    with pytest.raises(InputError, match=r"two models agree on all pairs to .* and give"):
        _ = model.covariance_
    witness = identifiability(data).witness
    assert witness.pair_gap < 1e-12
    assert witness.triple_gap > 1e-3


def test_an_independent_model_and_plackett_luce_order_items_alike_on_gumbel_data() -> None:
    choix = pytest.importorskip("choix")
    rng = np.random.default_rng(0)
    strength = np.array([1.0, 0.6, 0.2, -0.2, -0.6, -1.0])
    asked = np.argsort(rng.random((20_000, 6)), axis=1)[:, :3]
    utilities = strength[asked] + rng.gumbel(size=asked.shape)
    ranked = np.take_along_axis(asked, np.argsort(-utilities, axis=1), axis=1)
    theirs = choix.ilsr_rankings(6, ranked.tolist(), alpha=1e-3)
    ours = CorrelatedProbit(0).fit(ChoiceData.from_rankings(ranked))
    assert np.array_equal(np.argsort(ours.mu_), np.argsort(theirs))
    for i, j in combinations(range(6), 2):
        assert ours.prob([i, j]) == pytest.approx(1 / (1 + np.exp(theirs[j] - theirs[i])), abs=0.02)


def test_weak_orders_of_a_preflib_file_give_the_model_of_those_who_gave_them(tmp_path: Path) -> None:
    """Four parties, as R's MNP finds them for Japan in 1995; some voters are asked for the best or the worst only."""
    contrast = np.array([[0.984, 1.032, 0.704, 0], [1.032, 1.342, 0.742, 0], [0.704, 0.742, 0.674, 0], [0, 0, 0, 0]])
    truth = CorrelatedProbit.from_parameters([1.228, 1.108, 0.835, 0.0], contrast, items=["LDP", "NFP", "SKG", "JCP"])
    rng = np.random.default_rng(0)
    orders = 1 + np.argsort(-truth.draw(6000, rng=rng), axis=1)
    shapes = ("{},{},{},{}", "{},{{{},{},{}}}", "{{{},{},{}}},{}", "{},{},{{{},{}}}")
    lines = [f"# ALTERNATIVE NAME {1 + place}: {name}" for place, name in enumerate(truth.items_)]
    lines += [f"1: {shapes[rng.integers(4)].format(*order)}" for order in orders.tolist()]
    (tmp_path / "parties.toc").write_text("\n".join(lines))
    data = ChoiceData.from_preflib(tmp_path / "parties.toc")
    assert data.n_users == 6000
    assert data.items == truth.items_
    assert np.bincount(data.kinds).min() > 3000
    model = CorrelatedProbit("full", n_init=1).fit(data)
    assert model.stderr_ is not None
    assert np.abs((model.mu_ - truth.mu_) / model.stderr_.mu).max() < 3.5
    assert np.abs((model.covariance_ - truth.covariance_) / model.stderr_.covariance).max() < 3.5
    assert np.abs(model.covariance_ - truth.covariance_).max() < 0.1


def test_exact_and_composite_likelihood_of_long_rankings_agree_on_large_samples() -> None:
    truth = CorrelatedProbit.from_parameters(*random_model(4, seed=2))
    data = truth.simulate(4000, size=4)
    exact, composite = (
        CorrelatedProbit("full", exact=flag, n_init=1, stderr="none").fit(data) for flag in (True, False)
    )
    assert np.abs(exact.covariance_ - composite.covariance_).max() < 0.1
    assert np.abs(exact.covariance_ - truth.covariance_).max() < 0.2


@pytest.mark.parametrize("kind", ["ranking", "best"])
def test_the_exact_likelihood_is_that_of_orthants_and_its_gradient_that_of_differences(kind: str) -> None:
    mu, covariance = random_model(5, seed=2)
    truth = CorrelatedProbit.from_parameters(mu, covariance)
    data = truth.simulate(6, size=5, kind=kind)
    a = factor(covariance)
    function, total = exact_long_likelihood(data, psi=FLOOR, points=1024)
    value, d_mu, d_a = function(mu, a)
    assert total == 6
    logs = [
        np.log(truth.prob([[truth.items_[item] for item in group] for group in groups], points=8192))
        for _, groups in data.long_answers
    ]
    assert value == pytest.approx(sum(logs), abs=0.02)
    step = 1e-5
    for place in range(5):
        moved = step * np.eye(5)[place]
        assert (function(mu + moved, a)[0] - function(mu - moved, a)[0]) / (2 * step) == pytest.approx(
            d_mu[place], abs=1e-5
        )
    for place, column in ((0, 0), (2, 1), (4, 3)):
        moved = np.zeros_like(a)
        moved[place, column] = step
        assert (function(mu, a + moved)[0] - function(mu, a - moved)[0]) / (2 * step) == pytest.approx(
            d_a[place, column], abs=1e-5
        )


TIED = {
    "two pairs": [["a", "b"], ["c", "d"]],
    "a pair within": ["a", ["b", "c"], "d"],
    "a pair within pairs": [["a", "b"], ["c", "d"], "e"],
    "best of four": ["a", ["b", "c", "d"]],
    "strict": ["d", "a", "c", "b"],
}


@pytest.mark.parametrize("answer", TIED.values(), ids=TIED)
def test_the_exact_likelihood_of_ties_is_smooth_and_that_of_drawn_people(answer: list) -> None:
    mu, covariance = random_model(5, seed=2)
    data = ChoiceData.from_rankings([answer], items="abcde")
    function, _ = exact_long_likelihood(data, psi=FLOOR, points=4096)
    a = factor(covariance)
    value, d_mu, d_a = function(mu, a)
    levels = {item: -place for place, group in enumerate(answer) for item in group}
    drawn = people(mu, covariance, 400_000, seed=3)
    above = [(i, j) for i in levels for j in levels if levels[i] > levels[j]]
    held = np.all([drawn[:, "abcde".index(i)] > drawn[:, "abcde".index(j)] for i, j in above], axis=0)
    assert np.exp(value) == pytest.approx(held.mean(), abs=4 * np.sqrt(held.mean() / len(drawn)) + 1e-3)
    step = 1e-5
    for place in range(5):
        moved = step * np.eye(5)[place]
        assert (function(mu + moved, a)[0] - function(mu - moved, a)[0]) / (2 * step) == pytest.approx(
            d_mu[place], abs=1e-5
        )
        wide = np.zeros_like(a)
        wide[place, 0] = step
        assert (function(mu, a + wide)[0] - function(mu, a - wide)[0]) / (2 * step) == pytest.approx(
            d_a[place, 0], abs=1e-5
        )


def test_ties_are_taken_apart_only_where_they_must_be() -> None:
    assert refinements(((0,), (1, 2, 3))) == [((0,), (1, 2, 3))]
    assert refinements(((0, 1), (2,), (3, 4))) == [((0, 1), (2,), (3, 4))]
    assert refinements(((0, 1), (2, 3, 4))) == [((0,), (1,), (2, 3, 4)), ((1,), (0,), (2, 3, 4))]
    assert refinements(((0,), (1, 2), (3,))) == [((0,), (1,), (2,), (3,)), ((0,), (2,), (1,), (3,))]
    with pytest.raises(InputError, match="ties so many items that 40320 orders"):
        refinements((tuple(range(8)), tuple(range(8, 20))))


def test_exact_fits_of_weak_orders_end_at_the_same_optimum_from_every_start() -> None:
    truth = CorrelatedProbit.from_parameters(*random_model(4, seed=8), items="abcd")
    levels = np.round(people(truth.mu_, truth.covariance_, 300, seed=4))
    answers = [
        [["abcd"[item] for item in range(4) if row[item] == level] for level in sorted(set(row), reverse=True)]
        for row in levels.tolist()
    ]
    data = ChoiceData.from_rankings(answers, items="abcd")
    model = CorrelatedProbit("full", exact=True, n_init=3, stderr="none").fit(data)
    assert model.init_spread_ < 1e-5


def test_exact_fits_without_whole_answers_say_so() -> None:
    table = {"user": [1] * 4 + [2] * 4, "item": list("abcd") * 2, "rating": [4, 3, 2, 1, 1, 2, 3, 4]}
    with pytest.warns(ProbitWarning, match="exact changes nothing"):
        CorrelatedProbit("full", exact=True, n_init=1, stderr="none", ridge=0.1).fit(ChoiceData.from_ratings(table))


def test_balanced_designs_show_pairs_equally_and_optimal_ones_inform_more() -> None:
    plan = design(6, 20)
    off = ~np.eye(6, dtype=bool)
    assert set(plan.pair_information[off]) == {4.0}
    assert plan.rank == plan.needed == rank_needed(6)
    assert np.ptp(design(7, 24).pair_information[~np.eye(7, dtype=bool)]) <= 2
    model = CorrelatedProbit.from_parameters(*random_model(5, seed=1))

    def log_det(triples: list) -> float:
        chosen = np.array(triples)
        squares = squared_distances(model.covariance_)
        total = gather(
            question_information(chosen, model.mu_, squares), coordinates(chosen, 5), np.ones(len(chosen)), 15
        )
        basis = np.linalg.svd(gauge(model.mu_, squares), full_matrices=True)[0][:, 2:]
        return float(np.linalg.slogdet(basis.T @ total @ basis)[1])

    best = design(5, 40, model=model)
    assert best.log_det == pytest.approx(log_det(best.triples), abs=1e-8)
    assert best.log_det > log_det(design(5, 40).triples)


def test_designs_of_many_items_are_balanced_and_quick() -> None:
    plan = design(80, 3000, random_state=1)
    shown = plan.pair_information[~np.eye(80, dtype=bool)]
    assert (shown.min(), shown.max(), plan.rank) == (2, 4, -1)
    assert plan.triples == design(80, 3000, random_state=1).triples


def test_orders_are_the_same_by_every_method_within_their_errors() -> None:
    model = CorrelatedProbit.from_parameters(*random_model(5, seed=12), items="abcde")
    exact = model.prob("a>b>c", given="d>e")
    assert model.prob("a>b>c", given="d>e", method="gibbs") == pytest.approx(exact, abs=0.03)
    assert model.prob("a>b>c", given="d>e", method="laplace") == pytest.approx(exact, abs=0.1)
    assert model.prob("a>b>c", method="laplace") == pytest.approx(model.prob("a>b>c"), abs=1e-9)


def test_a_fit_tells_how_far_it_is() -> None:
    lines: list[str] = []
    CorrelatedProbit("full", n_init=1).fit(fitted().simulate(200), told=lines.append)
    assert lines[0].startswith("2 directions, evaluation 1: log-likelihood -")


def test_the_sample_size_gives_intervals_of_the_wanted_width() -> None:
    truth = CorrelatedProbit.from_parameters(*random_model(4, seed=2))
    needed = sample_size(truth, 0.2)
    fit = CorrelatedProbit("full", n_init=1).fit(truth.simulate(needed, random_state=3))
    widest = 1.96 * max(float(fit.stderr_.mu.max()), float(fit.stderr_.covariance.max()))
    assert widest == pytest.approx(0.2, rel=0.3)


@pytest.mark.parametrize("rank", ["full", 1, 0])
def test_a_saved_model_predicts_the_same(rank, tmp_path: Path) -> None:
    model = CorrelatedProbit(rank, n_init=1).fit(
        CorrelatedProbit.from_parameters(*random_model(4, seed=2), items="abcd").simulate(500)
    )
    model.save(tmp_path / "m.npz")
    again = CorrelatedProbit.load(tmp_path / "m.npz")
    assert again.get_params() == model.get_params()
    assert again.items_ == model.items_
    assert np.array_equal(again.covariance_, model.covariance_)
    assert again.prob("a>b>c", given="c>d") == model.prob("a>b>c", given="c>d")
    if rank != 0:
        assert np.array_equal(again.stderr_.covariance, model.stderr_.covariance)


def test_a_model_of_pairs_stays_refusing_when_it_is_loaded(tmp_path: Path) -> None:
    CorrelatedProbit().fit(ChoiceData.from_pairs([("a", "b"), ("b", "c"), ("c", "a"), ("b", "a")])).save(
        tmp_path / "m.npz"
    )
    with pytest.raises(InputError, match="isn't identified"):
        _ = CorrelatedProbit.load(tmp_path / "m.npz").covariance_


@pytest.mark.parametrize("damage", ["other", "cut", "text"])
def test_files_of_another_kind_are_refused(damage: str, tmp_path: Path) -> None:
    file = tmp_path / "m.npz"
    if damage == "other":
        np.savez(file, x=np.zeros(3))
    else:
        CorrelatedProbit.from_parameters([0, 0, 0], np.eye(3), items="abc").save(file)
        file.write_bytes(file.read_bytes()[:200] if damage == "cut" else b"not a model")
    with pytest.raises(InputError) as refusal:
        CorrelatedProbit.load(file)
    assert "\n" not in str(refusal.value)


def fitted() -> CorrelatedProbit:
    return CorrelatedProbit.from_parameters([0.1, 0, -0.1], np.eye(3), items="abc")


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (
            lambda: CorrelatedProbit().fit(ChoiceData.from_rankings([["a", "b", "c"]], items="abcd")),
            "never compared: d",
        ),
        (
            lambda: CorrelatedProbit().fit(ChoiceData.from_rankings([["a", "b", "c"], ["d", "e", "f"]])),
            "2 groups of items are never compared with one another: a, b, c | d, e, f",
        ),
        (lambda: CorrelatedProbit().fit(ChoiceData.from_rankings([[["a", "b", "c"]]])), "no comparison"),
        (lambda: CorrelatedProbit().fit([["a", "b", "c"]]), "data is a list"),
        (lambda: CorrelatedProbit("half").fit(fitted().simulate(9)), "rank is 'half'"),
        (lambda: CorrelatedProbit(3).fit(fitted().simulate(99)), "rank is 3"),
        (lambda: CorrelatedProbit(ridge=-1).fit(fitted().simulate(9)), "ridge is -1"),
        (lambda: CorrelatedProbit(1, features=np.ones((2, 2))).fit(fitted().simulate(99)), "features has shape (2, 2)"),
        (lambda: CorrelatedProbit(1, features={"a": [1.0]}).fit(fitted().simulate(99)), "no features of b, c"),
        (lambda: fitted().prob("a>x"), "unknown item 'x'"),
        (lambda: fitted().prob("a>b", given=["a>b", "b>a"]), "contradict each other"),
        (lambda: fitted().prob("a>b", given=["a>b>c", "c>a"]), "contradict each other"),
        (lambda: fitted().prob_best("a", ["a"]), "nothing but 'a'"),
        (lambda: fitted().predict_pair("a", "a"), "both items are 'a'"),
        (lambda: fitted().posterior("a>b", method="magic"), "method is 'magic'"),
        (lambda: fitted().slate(4), "k is 4"),
        (lambda: fitted().slate(1.5), "k is 1.5"),
        (lambda: fitted().prob("a"), "prefers nothing"),
        (lambda: fitted().prob(["a"]), "prefers nothing"),
        (lambda: fitted().prob("a>b", given="c"), "the answer 'c' prefers nothing"),
        (lambda: fitted().prob("a>b", method="magic"), "method is 'magic'"),
        (lambda: fitted().simulate(10, random_state=-1), "random_state is -1"),
        (lambda: fitted().simulate(2.5), "people is 2.5"),
        (lambda: fitted().bootstrap(fitted().simulate(9), draws=1), "draws is 1"),
        (lambda: CorrelatedProbit(random_state=-1).fit(fitted().simulate(9)), "random_state is -1"),
        (lambda: CorrelatedProbit(n_init=2.0).fit(fitted().simulate(9)), "n_init is 2.0"),
        (lambda: CorrelatedProbit(exact=True, estimator="moments").fit(fitted().simulate(9)), "exact is true"),
        (lambda: CorrelatedProbit(optimizer="sgd").fit(fitted().simulate(9)), "optimizer is 'sgd'"),
        (lambda: design(5, 5, random_state=-1), "random_state is -1"),
        (lambda: sample_size(fitted(), float("inf")), "eps is inf"),
        (lambda: fitted().simulate(10, size=4), "size is 4"),
        (lambda: fitted().transfer(["d"], [[1.0]]), "without features"),
        (lambda: fitted().correlation(kind="raw"), "kind is 'raw'"),
        (lambda: fitted().score(ChoiceData.from_rankings([["a", "b", "x"]])), "unknown items: x"),
        (lambda: fitted().prob("a>b", given=3), "given is 3"),
        (lambda: fitted().prob("a>b", given={"a": 1}), "given is {'a': 1}"),
        (lambda: fitted().score([1]), "data is a list"),
        (lambda: identifiability([1]), "data is a list"),
        (lambda: CorrelatedProbit(ridge="x").fit(fitted().simulate(9)), "ridge is 'x'"),
        (lambda: CorrelatedProbit(1, features=[["a"], ["b"], ["c"]]).fit(fitted().simulate(99)), "else than numbers"),
        (lambda: sample_size(fitted(), 0.1, triples=[("a", "b")]), "three different items"),
        (lambda: design(2, 5), "n is 2"),
        (lambda: design(5, 0), "budget is 0"),
        (lambda: design(5, 5, model=fitted()), "the model has 3 items"),
        (lambda: sample_size(fitted(), -1), "eps is -1"),
        (lambda: sample_size(fitted(), 0.1, kind="best"), "the questions have rank 2"),
        (
            lambda: CorrelatedProbit("full", estimator="moments").fit(
                CorrelatedProbit.from_parameters(*random_model(4, seed=0)).simulate(300, kind="best")
            ),
            "no whole order",
        ),
        (
            lambda: CorrelatedProbit("full", estimator="moments").fit(
                ChoiceData.from_rankings([["a", "b", "c"], ["c", "b", "a"], ["b", "c", "d"], ["d", "c", "b"]] * 5)
            ),
            "no question about three items shows a and d",
        ),
    ],
)
def test_bad_input_is_refused_in_one_line(act, said: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ProbitWarning)
        with pytest.raises(InputError) as refusal:
            act()
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_model_that_is_not_fitted_says_so() -> None:
    for act in (lambda model: model.prob("a>b"), lambda model: model.covariance_, lambda model: model.slate(1)):
        with pytest.raises(NotFittedError, match="before fit"):
            act(CorrelatedProbit())
    assert not hasattr(CorrelatedProbit(), "mu_")


def test_an_item_that_always_wins_gets_a_finite_mean_and_a_warning() -> None:
    data = ChoiceData.from_rankings([["a", "b", "c"], ["a", "c", "b"], ["a", "b", "c"]] * 20)
    with pytest.warns(ProbitWarning, match="always first: a"):
        model = CorrelatedProbit(n_init=1, stderr="none").fit(data)
    assert np.isfinite(model.mu_).all()
    assert model.mu_.argmax() == 0


def test_answers_of_one_person_are_no_population() -> None:
    rankings = [["a", "b", "c"], ["c", "a", "b"], ["b", "c", "a"]] * 10
    with pytest.warns(ProbitWarning, match="one person's"):
        model = CorrelatedProbit(n_init=1, stderr="none").fit(ChoiceData.from_rankings(rankings, users=["u"] * 30))
    assert not model.identified_
    assert "one person's" in model.identified_.reasons[0]
