"""One trial of the study: an arm on a case, measured.

A case says what kind of trial it is: hold the theorems to random models, predict the order of two items from that of
four others, follow the error as answers grow, or time a fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.core.errors import InputError
from assay.core.measure import peak_memory, stopwatch
from assay.core.study import Trial
from assay.probit import baselines, datasets, peers
from assay.probit._likelihood import Objective
from assay.probit.baselines import Query
from assay.probit.choices import ChoiceData, Distinct
from assay.probit.geometry import normalise, squared_distances
from assay.probit.identification import pair_witness
from assay.probit.information import coordinates, design, gather, gauge, question_information
from assay.probit.model import CorrelatedProbit
from assay.probit.moments import exact_table, moments_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["run_trial"]

Measurements = dict[str, float]
SIX = 6
TESTED = 2000
"""People of the synthetic table whose orders are predicted."""

TESTED_REAL = 250
"""Held-out people of real data, at most, whose orders of six are predicted."""

LEAST_ANGLE = 0.05
DRAWS = 50
COMPLETE = 100
"""The first of 50 draws of six that so many people rated whole is taken; else the one that most did."""

FOLDS = 4
TRIPLES = 200
"""Triples of a person, at most, where many items are fitted together."""


def run_trial(trial: Trial) -> Measurements:
    """Run one arm on one case with one seed.

    Parameters
    ----------
    trial : Trial
        ``case_settings["kind"]`` says what is done.

    Returns
    -------
    dict of str to float
        See the study's `measures`.
    """
    return _KINDS[trial.case_settings["kind"]](trial)


def _random_model(n: int, rng: np.random.Generator, *, wide: int = 2) -> tuple[Floats, Floats]:
    root = rng.standard_normal((n, n + wide))
    return normalise(rng.standard_normal(n), root @ root.T)


def _smallest_angle(covariance: Floats) -> float:
    squares = squared_distances(covariance)
    least = math.pi
    for triple in combinations(range(len(covariance)), 3):
        for i, j, k in (triple, (triple[1], triple[0], triple[2]), (triple[2], triple[0], triple[1])):
            cosine = (squares[i, j] + squares[i, k] - squares[j, k]) / (2 * math.sqrt(squares[i, j] * squares[i, k]))
            least = min(least, math.acos(min(1.0, max(-1.0, cosine))))
    return least


def _fit(data: ChoiceData, **settings: Any) -> CorrelatedProbit:
    return CorrelatedProbit(**{"n_init": 1, "stderr": "none", "n_jobs": 1, "rank": "full", **settings}).fit(data)


def _witness(trial: Trial) -> Measurements:
    """Build a second model for many random ones, and compare all pairs and triples."""
    rng = trial.rng("models")
    pair_gaps, triple_gaps = [], []
    for number in range(trial.case_settings["models"]):
        witness = pair_witness(*_random_model(3 + number % 6, rng))
        pair_gaps.append(witness.pair_gap)
        triple_gaps.append(witness.triple_gap)
    return {"models": float(len(pair_gaps)), "pair_gap": max(pair_gaps), "triple_gap": min(triple_gaps)}


def _recovery(trial: Trial) -> Measurements:
    """Give the moment estimator exact probabilities of random models, and compare with the models."""
    rng = trial.rng("models")
    aggregation = trial.arm_settings.get("aggregation", "lsq")
    worst, done = 0.0, 0
    while done < trial.case_settings["models"]:
        n = 3 + done % 10
        mu, covariance = _random_model(n, rng, wide=2 * n)
        if _smallest_angle(covariance) <= LEAST_ANGLE:
            continue
        found = moments_of(exact_table(mu, covariance), n, smoothing=0.0, aggregation=aggregation)
        worst = max(worst, float(np.abs(found.mu - mu).max()), float(np.abs(found.covariance - covariance).max()))
        done += 1
    return {"models": float(done), "error": worst}


def _table(trial: Trial) -> Measurements:
    """A cell of the paper's synthetic table: rankings of three train, orders of four given predict the other two."""
    settings = trial.case_settings
    rng = trial.rng("model")
    mu, covariance = datasets.synthetic(settings["mu"], settings["sigma"], SIX, rng=rng)
    truth = CorrelatedProbit.from_parameters(mu, covariance)
    people = truth.draw(settings["answers"], rng=rng)
    asked = np.argsort(rng.random(people.shape), axis=1)[:, :3]
    chosen = np.take_along_axis(people, asked, axis=1)
    data = ChoiceData.from_rankings(np.take_along_axis(asked, np.argsort(-chosen, axis=1), axis=1), items=range(SIX))
    scores = np.full(people.shape, np.nan)
    np.put_along_axis(scores, asked, np.argsort(np.argsort(chosen, axis=1), axis=1).astype(np.float64), axis=1)
    tested = truth.draw(TESTED, rng=rng)
    queries, truths, rows = [], [], []
    for row in range(TESTED):
        targets = rng.permutation(SIX)[:2].tolist()
        queries.append(_query(tested[row], targets))
        truths.append(bool(tested[row, targets[0]] > tested[row, targets[1]]))
        rows.append(row)
    p = _predictions(trial, data, scores, tested, queries, rows, truth=(mu, covariance))
    return _scored(p, np.array(truths), np.array(rows))


def _query(values: Floats, targets: Sequence[int]) -> Query:
    """Who orders all other items so: which of two targets?"""
    others = [item for item in range(len(values)) if item not in targets and not np.isnan(values[item])]
    levels = sorted({float(values[item]) for item in others}, reverse=True)
    groups = tuple(tuple(item for item in others if values[item] == level) for level in levels)
    return Query(groups, targets[0], targets[1])


def _predictions(
    trial: Trial,
    data: ChoiceData,
    scores: Floats,
    tested: Floats,
    queries: list[Query],
    rows: list[int],
    *,
    truth: tuple[Floats, Floats] | None,
) -> Floats:
    """P(a over b | context) of the trial's arm for each query."""
    settings = trial.arm_settings
    name, rng = settings["model"], trial.rng("fit")
    n = data.n_items
    if name == "logit":
        return baselines.predict_by_mean(baselines.plackett_luce(data), queries)
    if name == "independent":
        model = _fit(data, rank=0)
        return baselines.predict_by_model(model.mu_, model.covariance_, queries)
    if name == "pairwise":
        return baselines.predict_by_model(*baselines.pairwise_probit(data, ridge=settings["ridge"], rng=rng), queries)
    if name == "matrix":
        known = np.full((len(queries), n), np.nan)
        for place, (query, row) in enumerate(zip(queries, rows, strict=True)):
            items = [item for group in query.context for item in group]
            values = tested[row, items]
            known[place, items] = np.argsort(np.argsort(values)) if truth is not None else values
        completed = baselines.matrix_completion(scores, known, rng=rng)
        gap = np.array([completed[place, query.a] - completed[place, query.b] for place, query in enumerate(queries)])
        return np.asarray(1.0 / (1.0 + np.exp(-gap)))
    if name == "mixed-logit":
        return peers.predict_by_constants(*peers.mixed_logit(data, seed=trial.seed), queries, seed=trial.seed)
    if name in ("mnp", "bayesm"):
        posterior = {"mnp": peers.mnp, "bayesm": peers.bayesm}[name](scores, seed=trial.seed)
        return baselines.predict_by_model(*peers.pooled(*posterior), queries)
    if name == "direct":
        if truth is not None:
            return baselines.predict_by_model(*truth, queries)
        return baselines.conditional_frequency(scores, queries)
    if name == "coin":
        return np.full(len(queries), 0.5)
    model = _fit(data, estimator=settings.get("estimator", "moments+mle"), ridge=trial.case_settings.get("ridge", 0.0))
    return baselines.predict_by_model(model.mu_, model.covariance_, queries)


def _scored(p: Floats, truths: NDArray[np.bool_], rows: NDArray[np.int64]) -> Measurements:
    """Accuracy, log-loss and Brier score, every person counting the same."""
    p = np.clip(p, 1e-6, 1 - 1e-6)
    hit = np.where(p == 0.5, 0.5, (p > 0.5) == truths)
    weight = 1.0 / np.bincount(rows)[rows]
    weight /= weight.sum()
    chosen = np.where(truths, p, 1 - p)
    return {
        "accuracy": float(weight @ hit),
        "log_loss": float(-weight @ np.log(chosen)),
        "brier": float(weight @ (1 - chosen) ** 2),
        "people": float(len(np.unique(rows))),
        "predictions": float(len(rows)),
    }


def _ratings(name: str) -> tuple[Floats, tuple[str, ...]]:
    if name == "films":
        return datasets.movielens(40)
    if name == "big-five":
        return datasets.big_five()
    if name in ("sushi-a", "sushi-b"):
        return _sushi(name[-1])
    raise InputError(f"no data set {name!r}", expected="films, big-five, sushi-a or sushi-b")


@lru_cache(maxsize=2)
def _sushi(which: str) -> tuple[Floats, tuple[str, ...]]:
    file = datasets.sushi_file(which)
    if file is None:
        raise InputError("the sushi data aren't here", expected=datasets.lacking_sushi(which))
    rows = [
        [int(word) for word in line.split()[2:]]
        for line in file.read_text(encoding="utf-8").splitlines()[1:]
        if line.strip()
    ]
    n = 1 + max(max(row) for row in rows)
    ratings = np.full((len(rows), n), np.nan)
    for person, order in enumerate(rows):
        ratings[person, order] = -np.arange(len(order), dtype=np.float64)
    return ratings, tuple(str(item) for item in range(n))


def _data_of(ratings: Floats, users: NDArray[np.int64], *, most: int = 2000) -> ChoiceData:
    row, column = np.nonzero(~np.isnan(ratings[users]))
    table = {"user": users[row], "item": column, "rating": ratings[users][row, column]}
    return ChoiceData.from_ratings(table, items=range(ratings.shape[1]), max_triples_per_user=most)


def _draws_of_six(trial: Trial) -> Measurements:
    """Six items, people in four folds: train on three, predict two items from the order of four in the other."""
    rng = trial.rng("draw")
    ratings, _ = _ratings(trial.case_settings["data"])
    with_enough = np.array([rng.choice(ratings.shape[1], SIX, replace=False) for _ in range(DRAWS)])
    complete = [(~np.isnan(ratings[:, items])).all(axis=1).sum() for items in with_enough]
    items = with_enough[int(np.argmax(np.array(complete) >= min(COMPLETE, max(complete))))]
    six = ratings[:, items]
    people = rng.permutation(np.flatnonzero((~np.isnan(six)).sum(axis=1) >= 3))[: trial.case_settings["people"]]
    folds = np.array_split(people, FOLDS)
    found_p, found_truth, found_rows = [], [], []
    for number, test in enumerate(folds):
        train = np.concatenate([fold for other, fold in enumerate(folds) if other != number])
        data = _data_of(six, np.sort(train))
        queries, truths, rows = [], [], []
        for person in test[(~np.isnan(six[test])).all(axis=1)][: TESTED_REAL // FOLDS].tolist():
            for targets in combinations(range(SIX), 2):
                if six[person, targets[0]] != six[person, targets[1]]:
                    queries.append(_query(six[person], targets))
                    truths.append(bool(six[person, targets[0]] > six[person, targets[1]]))
                    rows.append(person)
        found_p.append(_predictions(trial, data, six[train], six, queries, rows, truth=None))
        found_truth += truths
        found_rows += rows
    _, places = np.unique(found_rows, return_inverse=True)
    return _scored(np.concatenate(found_p), np.array(found_truth), places)


def _rate(trial: Trial) -> Measurements:
    """The error at growing numbers of answers, and its slope on logarithmic axes."""
    settings = trial.case_settings
    rng = trial.rng("model")
    mu, covariance = _random_model(SIX, rng)
    truth = CorrelatedProbit.from_parameters(mu, covariance)
    sizes, errors = settings["answers"], []
    found: Measurements = {}
    for size in sizes:
        squared = []
        for repeat in range(settings["repeats"]):
            model = _fit(
                truth.simulate(size, random_state=trial.seed * 1000 + repeat),
                estimator=trial.arm_settings.get("estimator", "moments+mle"),
            )
            squared.append(
                max(float(np.abs(model.mu_ - mu).max()), float(np.abs(model.covariance_ - covariance).max())) ** 2
            )
        errors.append(math.sqrt(float(np.mean(squared))))
        found[f"error_{size}"] = errors[-1]
    found["slope"] = float(np.polyfit(np.log(sizes), np.log(errors), 1)[0])
    if trial.seed == 0:
        trial.keep("error.svg", _error_picture(trial.arm, list(zip(map(float, sizes), errors, strict=True))))
    return found


def _error_picture(name: str, points: list[tuple[float, float]]) -> bytes:
    from io import BytesIO

    from assay.probit.plots import plot_error

    stream = BytesIO()
    plot_error({name: points}).savefig(stream, format="svg", bbox_inches="tight")
    return stream.getvalue()


def _scaling(trial: Trial) -> Measurements:
    """Answers that an error of 0.25 takes, over n squared, for growing n: from the error at 200 n squared answers.

    An error falls as one over the square root of the answers, so N(0.25) / n^2 = 200 (error / 0.25)^2.
    """
    rng = trial.rng("model")
    needed, needed_rms = [], []
    found: Measurements = {}
    for n in trial.case_settings["sizes"]:
        mu, covariance = _random_model(n, rng, wide=n)
        truth = CorrelatedProbit.from_parameters(mu, covariance)
        worst_squares, squares = [], []
        # Small problems are noisy and cheap, so that they are averaged over several data sets.
        for repeat in range(max(1, 40 // n)):
            model = _fit(truth.simulate(200 * n * n, random_state=trial.seed * 1000 + repeat))
            gap = model.covariance_ - covariance
            worst_squares.append(max(float(np.abs(model.mu_ - mu).max()), float(np.abs(gap).max())) ** 2)
            squares.append(float(np.mean(gap**2)))
        worst, rms = math.sqrt(float(np.mean(worst_squares))), math.sqrt(float(np.mean(squares)))
        needed.append(200 * (worst / 0.25) ** 2)
        needed_rms.append(200 * (rms / 0.25) ** 2)
        found |= {f"needed_{n}": needed[-1], f"needed_rms_{n}": needed_rms[-1]}
    return {**found, "spread": max(needed) / min(needed), "spread_rms": max(needed_rms) / min(needed_rms)}


def _thin(trial: Trial) -> Measurements:
    """One pair is shown in m answers only: the error of its spread against m."""
    rng = trial.rng("model")
    mu, covariance = _random_model(SIX, rng, wide=SIX)
    truth = CorrelatedProbit.from_parameters(mu, covariance)
    target = math.log(float(squared_distances(covariance)[0, 1]))
    triples = [triple for triple in combinations(range(SIX), 3) if not {0, 1} <= set(triple)]
    shown = [triple for triple in combinations(range(SIX), 3) if {0, 1} <= set(triple)]
    errors, sizes = [], trial.case_settings["shown"]
    for m in sizes:
        gaps = []
        for _ in range(trial.case_settings["repeats"]):
            plan = np.array([triples[index] for index in rng.integers(0, len(triples), trial.case_settings["others"])])  # type: ignore[attr-defined]
            thin = np.array([shown[index] for index in rng.integers(0, len(shown), m)])
            asked = np.concatenate([plan, thin])
            chosen = np.take_along_axis(truth.draw(len(asked), rng=rng), asked, axis=1)
            data = ChoiceData.from_rankings(
                np.take_along_axis(asked, np.argsort(-chosen, axis=1), axis=1), items=range(SIX)
            )
            gaps.append(math.log(float(squared_distances(_fit(data).covariance_)[0, 1])) - target)
        errors.append(math.sqrt(float(np.mean(np.square(gaps)))))
    slope = float(np.polyfit(np.log(sizes), np.log(errors), 1)[0])
    return {"slope": slope, **{f"error_{m}": error for m, error in zip(sizes, errors, strict=True)}}


def _coverage(trial: Trial) -> Measurements:
    """How often 95 % intervals hold the truth, over simulated data sets."""
    rng = trial.rng("model")
    mu, covariance = _random_model(4, rng)
    truth = CorrelatedProbit.from_parameters(mu, covariance)
    upper = np.triu_indices(4)
    hits = []
    for repeat in range(trial.case_settings["sets"]):
        model = _fit(
            truth.simulate(trial.case_settings["answers"], random_state=trial.seed * 1000 + repeat), stderr="sandwich"
        )
        assert model.stderr_ is not None
        hits += [
            np.abs(model.mu_ - mu) < 1.96 * model.stderr_.mu,
            (np.abs(model.covariance_ - covariance) < 1.96 * model.stderr_.covariance)[upper],
        ]
    return {"coverage": float(np.concatenate(hits).mean()), "sets": float(trial.case_settings["sets"])}


def _copies(trial: Trial) -> Measurements:
    """One answer A and three near-copies of a better answer B: what each model says of their gap as the copies "
    "converge.
    """
    from scipy.optimize import brentq

    delta, rng = trial.case_settings["delta"], trial.rng("people")
    inside, gaps = [], []
    found: Measurements = {}
    for rho in trial.case_settings["correlations"]:
        covariance = np.eye(4)
        covariance[1:, 1:] += rho * (1 - np.eye(3))
        truth = CorrelatedProbit.from_parameters(np.array([0.0, delta, delta, delta]), covariance)
        data = truth.simulate(trial.case_settings["answers"], random_state=int(rng.integers(2**31)))
        model = _fit(data, stderr="sandwich")
        assert model.stderr_ is not None
        # Means sum to zero: B - A is -4/3 of the mean of A.
        estimate, true = -4 / 3 * float(model.mu_[0]), -4 / 3 * float(truth.mu_[0])
        inside.append(abs(estimate - true) < 2 * 4 / 3 * float(model.stderr_.mu[0]))
        gaps.append(estimate / true - 1)
        found[f"luce_gap_{rho:g}"] = _luce_gap(delta, rho)
    flip = float(brentq(lambda rho: _luce_gap(delta, rho), 0.01, 0.99))
    return {**found, "inside": float(np.mean(inside)), "relative_error": float(np.max(np.abs(gaps))), "flip": flip}


def _luce_gap(delta: float, rho: float) -> float:
    """What Plackett-Luce concludes of A against a copy: log(3 p / (1 - p)) with p = P(A is the best of four)."""
    from scipy.stats import norm

    # A over all copies: condition on A and on what the copies share; their own parts are independent.
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    weights = weights / weights.sum()
    a, shared = np.meshgrid(nodes, nodes, indexing="ij")
    single = norm.cdf((a - delta - math.sqrt(rho) * shared) / math.sqrt(1 - rho))
    p = float(np.einsum("i,j,ij->", weights, weights, single**3))
    return math.log(3 * p / (1 - p))


def _traits(trial: Trial) -> Measurements:
    """Correlations of 25 statements: same factor and key against same factor and opposite keys."""
    answers, names = datasets.big_five()
    rng = trial.rng("people")
    people = rng.choice(len(answers), trial.case_settings["people"], replace=False)
    model = _fit(_data_of(answers, np.sort(people), most=TRIPLES), rank="full")
    matrix = model.correlation()
    keys = np.array([datasets.BFI_KEYS[name] for name in names])
    factors = np.array([name[0] for name in names])
    first, second = np.triu_indices(len(names), 1)
    values = matrix[first, second]

    def statistic(order: NDArray[np.int64]) -> float:
        same = factors[order][first] == factors[order][second]
        agree = keys[order][first] == keys[order][second]
        return float(values[same & agree].mean() - values[same & ~agree].mean())

    plain = np.arange(len(names))
    same = factors[first] == factors[second]
    agree = keys[first] == keys[second]
    seen = statistic(plain)
    drawn = [statistic(rng.permutation(len(names))) for _ in range(trial.case_settings["permutations"])]
    return {
        "same_keyed": float(values[same & agree].mean()),
        "opposite_keyed": float(values[same & ~agree].mean()),
        "p": (1 + sum(value >= seen for value in drawn)) / (1 + len(drawn)),
    }


def _sequels(trial: Trial) -> Measurements:
    """The centred correlation of two films of one series, fitted to a random share of people."""
    ratings, titles = datasets.movielens(trial.case_settings["films"])
    rng = trial.rng("people")
    people = rng.choice(len(ratings), int(trial.case_settings["share"] * len(ratings)), replace=False)
    model = _fit(_data_of(ratings, np.sort(people), most=TRIPLES), rank=5)
    matrix = model.correlation(kind="centered")
    one, other = (
        next(place for place, title in enumerate(titles) if title.startswith(name))
        for name in ("Star Wars", "Return of the Jedi")
    )
    if trial.seed == 0:
        model.items_ = titles
        trial.keep("map.svg", _map_picture(model))
    return {"correlation": float(matrix[one, other])}


def _map_picture(model: CorrelatedProbit) -> bytes:
    from io import BytesIO

    from assay.probit.plots import plot_map

    stream = BytesIO()
    plot_map(model, title="Films by who likes them").savefig(stream, format="svg", bbox_inches="tight")
    return stream.getvalue()


def _parties(trial: Trial) -> Measurements:
    """Four Japanese parties against the posterior of R's MNP for the same voters: strict triples, base JCP, trace 3."""
    ratings, names = datasets.parties()
    rows = np.arange(len(ratings))
    if trial.seed:
        rows = trial.rng("voters").integers(0, len(ratings), len(ratings))
    table = {
        "user": np.repeat(np.arange(len(rows)), 4),
        "item": np.tile(names, len(rows)),
        "rating": ratings[rows].ravel(),
    }
    data = ChoiceData.from_ratings(table, items=names)
    strict = data.kinds == 0
    only = ChoiceData(
        data.items,
        data.users,
        data.triples[strict],
        data.kinds[strict],
        data.triple_users[strict],
        data.pairs,
        data.pair_users,
    )
    model = (
        _fit(_whole_orders(ratings[rows], names), weight="triple", exact=True)
        if trial.arm_settings.get("exact")
        else _fit(only, weight="triple")
    )
    contrast = np.column_stack([np.eye(3), -np.ones(3)])
    covariance = contrast @ model.covariance_ @ contrast.T
    scale = 3 / float(np.trace(covariance))
    means, covariances = peers.mnp(ratings[rows], seed=trial.seed)
    gap = np.abs(scale * covariance - covariances.mean(axis=0))
    return {
        "covariance_gap": float(gap.max()),
        "deviations": float((gap / covariances.std(axis=0, ddof=1)).max()),
        "mean_gap": float(np.abs(math.sqrt(scale) * contrast @ model.mu_ - means.mean(axis=0)).max()),
        "triples": float(strict.sum()),
    }


def _whole_orders(ratings: Floats, names: Sequence[str]) -> ChoiceData:
    """Everyone's ratings as one weak order of all items."""
    rankings = [
        [
            [name for name, value in zip(names, row, strict=True) if value == level]
            for level in sorted(set(row), reverse=True)
        ]
        for row in ratings.tolist()
    ]
    return ChoiceData.from_rankings(rankings, items=names)


def _voters(trial: Trial) -> Measurements:
    """Japanese parties, two thirds of the voters train: two parties of the others from their order of the other two."""
    ratings, _ = datasets.parties()
    order = trial.rng("voters").permutation(len(ratings))
    cut = 2 * len(ratings) // 3
    train, test = ratings[np.sort(order[:cut])], ratings[np.sort(order[cut:])]
    queries, truths, rows = [], [], []
    for row, voter in enumerate(test):
        for targets in combinations(range(len(voter)), 2):
            if voter[targets[0]] != voter[targets[1]]:
                queries.append(_query(voter, targets))
                truths.append(bool(voter[targets[0]] > voter[targets[1]]))
                rows.append(row)
    data = _data_of(train, np.arange(len(train)))
    p = _predictions(trial, data, train, test, queries, rows, truth=None)
    _, places = np.unique(rows, return_inverse=True)
    return _scored(p, np.array(truths), places)


def _slates(trial: Trial) -> Measurements:
    """Held-out people's best item on a greedy slate against that of the items liked most on average."""
    settings, rng = trial.case_settings, trial.rng("people")
    if settings["data"] == "synthetic":
        mu, covariance = _random_model(12, rng)
        truth = CorrelatedProbit.from_parameters(mu * settings["spread"], covariance)
        utilities = truth.draw(20_000, rng=rng)
        model = _fit(truth.simulate(settings["answers"], random_state=trial.seed))
    else:
        answers, _ = datasets.big_five()
        whole = rng.permutation(np.flatnonzero(~np.isnan(answers).any(axis=1)))
        cut = len(whole) // 2
        model = _fit(_data_of(answers, np.sort(whole[:cut]), most=TRIPLES))
        utilities = answers[whole[cut:]] - answers[whole[cut:]].mean(axis=1, keepdims=True)
    slate = model.slate(settings["k"])
    greedy, top = ([model.position(item) for item in items] for items in (slate.items, slate.top))
    gain = utilities[:, greedy].max(axis=1) - utilities[:, top].max(axis=1)
    return {
        "gain": float(gain.mean()),
        "expected_gain": slate.gain,
        "best": float(utilities[:, greedy].max(axis=1).mean()),
    }


def _personal(trial: Trial) -> Measurements:
    """60 films: held-out people give half of their ratings as context, and pairs of the other half are predicted."""
    ratings, _ = datasets.movielens(60)
    rng = trial.rng("people")
    order = rng.permutation(len(ratings))
    cut = len(ratings) // 4
    test, train = order[:cut], order[cut:]
    name = trial.arm_settings["model"]
    truths, p, rows = [], [], []
    model = (
        None
        if name == "matrix"
        else _fit(
            _data_of(ratings, np.sort(train), most=TRIPLES),
            rank=6 if name == "best-of-three" else 0,
            ridge=trial.case_settings.get("ridge", 0.0),
        )
    )
    halves = {}
    known = np.full((len(test), ratings.shape[1]), np.nan)
    for row, person in enumerate(test.tolist()):
        rated = rng.permutation(np.flatnonzero(~np.isnan(ratings[person])))
        if len(rated) >= 6:
            halves[row] = (person, np.sort(rated[: len(rated) // 2]), rated[len(rated) // 2 :])
            known[row, halves[row][1]] = ratings[person, halves[row][1]]
    settings = trial.arm_settings
    completed = None
    if model is None:
        completed = baselines.matrix_completion(
            ratings[train], known, rank=settings["rank"], ridge=settings["ridge"], rng=trial.rng("fit")
        )
    for row, (person, context, targets) in halves.items():
        if completed is not None:
            utilities = completed[row]
        elif model is not None and name == "best-of-three":
            levels = sorted(set(ratings[person, context].tolist()), reverse=True)
            groups = [[int(item) for item in context if ratings[person, item] == level] for level in levels]
            utilities = model.posterior([groups] if len(groups) > 1 else None).mean
        else:
            assert model is not None
            utilities = model.mu_
        for a, b in combinations(targets.tolist(), 2):
            if ratings[person, a] != ratings[person, b]:
                truths.append(bool(ratings[person, a] > ratings[person, b]))
                p.append(1 / (1 + math.exp(-float(utilities[a] - utilities[b]))))
                rows.append(row)
    _, places = np.unique(rows, return_inverse=True)
    return _scored(np.array(p), np.array(truths), places)


def _likelihood_speed(trial: Trial) -> Measurements:
    """One log-likelihood with its scores of rankings of three, each counted by itself."""
    count, rng = trial.case_settings["answers"], trial.rng("answers")
    mu, loadings = rng.standard_normal(3), rng.standard_normal((3, 2))
    orders = np.argsort(rng.random((count, 3)), axis=1)
    if trial.arm_settings["model"] == "winning":
        from winning.likelihood import ranking_loglik_and_score

        utilities, listed = np.tile(mu, (count, 1)), list(orders)
        ranking_loglik_and_score(utilities[:10], loadings, listed[:10])
        with stopwatch() as watch:
            ranking_loglik_and_score(utilities, loadings, listed)
    else:
        none = np.empty(0, dtype=np.int64)
        distinct = Distinct(
            orders.astype(np.int64),
            np.zeros(count, dtype=np.int64),
            np.ones(count),
            np.empty((0, 2), np.int64),
            np.empty(0),
            none,
            none,
            np.ones(count),
            np.empty(0),
        )
        squares = squared_distances(loadings @ loadings.T + np.eye(3))
        objective = Objective(distinct, 3)
        objective(mu, squares)
        with stopwatch() as watch:
            objective(mu, squares)
    return {
        "cpu_seconds": watch.cpu_seconds,
        "seconds": watch.seconds,
        "answers": float(count),
        "rate": count / watch.seconds,
    }


def _fit_speed(trial: Trial) -> Measurements:
    """The time and memory of a fit, without the time to draw the answers."""
    settings = trial.case_settings
    n, rng = settings["n"], trial.rng("model")
    mu, covariance = _random_model(n, rng, wide=n)
    truth = CorrelatedProbit.from_parameters(0.5 * mu, covariance)
    data = truth.simulate(settings["answers"], random_state=trial.seed)
    _fit(truth.simulate(200, random_state=1)) if n < 10 else _fit(
        CorrelatedProbit.from_parameters([0, 0, 0], np.eye(3)).simulate(200)
    )
    with peak_memory() as peak, stopwatch() as watch:
        model = _fit(
            data,
            estimator=trial.arm_settings.get("estimator", "moments+mle"),
            rank=settings.get("rank", "full"),
            n_jobs=trial.threads,
        )
    found = {
        "n": float(n),
        "answers": float(settings["answers"]),
        "seconds": watch.seconds,
        "cpu_seconds": watch.cpu_seconds,
        "bytes": peak.bytes,
        "error": float(np.sqrt(np.mean((model.covariance_ - truth.covariance_) ** 2))),
        "iterations": float(model.n_iter_),
    }
    return found


def _counted_speed(trial: Trial) -> Measurements:
    """The time of a fit once answers are counted: all orders of all triples are there from the first size on."""
    settings = trial.case_settings
    mu, covariance = _random_model(SIX, trial.rng("model"), wide=SIX)
    truth = CorrelatedProbit.from_parameters(0.5 * mu, covariance)
    distinct = truth.simulate(settings["answers"], random_state=trial.seed).distinct("triple")
    from assay.probit._likelihood import FLOOR
    from assay.probit.fitting import Settings, fit_covariance, start_from

    def once() -> int:
        return fit_covariance(distinct, SIX, Settings(SIX - 1, FLOOR), start=start_from(distinct, SIX)).n_iter

    once()
    with stopwatch() as watch:
        iterations = sum(once() for _ in range(20))
    return {
        "n": float(settings["answers"]),
        "cpu_seconds": watch.cpu_seconds / iterations,
        "distinct": float(len(distinct.weights)),
    }


def _head_speed(trial: Trial) -> Measurements:
    """A training step of an encoder with the shape of MiniLM (6 layers, 384 wide), alone and what the head adds."""
    import torch

    from assay.probit.head import CorrelatedProbitHead, best_of_three_loss

    torch.manual_seed(trial.seed)
    layer = torch.nn.TransformerEncoderLayer(384, 12, 1536, batch_first=True, dropout=0.0)
    encoder = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
    head = CorrelatedProbitHead(384, rank=4)
    tokens = torch.randn(24, 32, 384)
    order = torch.argsort(torch.rand(8, 3), dim=1)

    def step() -> tuple[float, float]:
        with stopwatch() as whole:
            pooled = encoder(tokens).mean(dim=1)
            leaf = pooled.detach().requires_grad_()
            with stopwatch() as part:
                mean, factor = head(leaf.reshape(8, 3, 384))
                best_of_three_loss(mean, factor, order, head.log_psi).backward()
            assert leaf.grad is not None
            pooled.backward(leaf.grad)
        return part.cpu_seconds, whole.cpu_seconds - part.cpu_seconds

    step()
    measured = np.array([step() for _ in range(trial.case_settings["steps"])])
    added, encoding = np.median(measured, axis=0)
    return {"head_seconds": float(added), "encoder_seconds": float(encoding), "share": float(added / encoding)}


def _design_gain(trial: Trial) -> Measurements:
    """How many balanced questions a D-optimal one is worth: the D-efficiency over the identified directions."""
    mu, covariance = _random_model(SIX, trial.rng("model"))
    model = CorrelatedProbit.from_parameters(mu, covariance)
    squares = squared_distances(covariance)
    size, budget = SIX + SIX * (SIX - 1) // 2, trial.case_settings["budget"]
    basis = np.linalg.svd(gauge(mu, squares), full_matrices=True)[0][:, 2:]
    log_dets = []
    for plan in (design(SIX, budget, model=model), design(SIX, budget)):
        triples = np.array(plan.triples, dtype=np.int64)
        blocks = question_information(triples, mu, squares)
        total = gather(blocks, coordinates(triples, SIX), np.ones(len(triples)), size)
        log_dets.append(float(np.linalg.slogdet(basis.T @ total @ basis)[1]))
    return {"d_efficiency": math.exp((log_dets[0] - log_dets[1]) / basis.shape[1])}


_KINDS: Mapping[str, Callable[[Trial], Measurements]] = {
    "witness": _witness,
    "recovery": _recovery,
    "table": _table,
    "six": _draws_of_six,
    "rate": _rate,
    "scaling": _scaling,
    "thin": _thin,
    "coverage": _coverage,
    "copies": _copies,
    "traits": _traits,
    "sequels": _sequels,
    "parties": _parties,
    "voters": _voters,
    "slates": _slates,
    "personal": _personal,
    "likelihood-speed": _likelihood_speed,
    "fit-speed": _fit_speed,
    "counted-speed": _counted_speed,
    "head-speed": _head_speed,
    "design": _design_gain,
}
