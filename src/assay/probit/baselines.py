"""What one would use otherwise: Plackett-Luce, pairwise probit, matrix completion, and direct references."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.core.errors import MissingPackageError
from assay.probit._likelihood import FLOOR
from assay.probit.choices import ChoiceData
from assay.probit.fitting import Settings, fit_covariance, fit_independent, start_of
from assay.probit.geometry import centring, factor
from assay.probit.person import constraints_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = [
    "Query",
    "conditional_frequency",
    "matrix_completion",
    "pairwise_probit",
    "plackett_luce",
    "predict_by_mean",
    "predict_by_model",
]

PLACKETT_LUCE_ALPHA = 1e-3
ALS_RANK = 4
ALS_RIDGE = 3.0
ALS_SWEEPS = 15
LEAST_SEEN = 5
"""Training users with the same context order from which their frequency is used; below, that of everyone."""


@dataclass(frozen=True)
class Query:
    """Which of two items a person prefers, given how they ordered others.

    Attributes
    ----------
    context : tuple of tuples of int
        Groups of tied items, best first.
    a, b : int
        The two items.
    """

    context: tuple[tuple[int, ...], ...]
    a: int
    b: int


def plackett_luce(data: ChoiceData) -> Floats:
    """Strengths by iterative Luce spectral ranking on whole orders of three (Maystre and Grossglauser 2015, package
    choix).

    Answers with ties enter as the pairs that they imply, since the model has no ties.
    """
    try:
        import choix
    except ImportError as error:
        raise MissingPackageError("choix", what="Plackett-Luce", extra="peers") from error
    whole = data.triples[data.kinds == 0].tolist()
    rest = ChoiceData(
        data.items,
        data.users,
        data.triples[data.kinds != 0],
        data.kinds[data.kinds != 0],
        data.triple_users[data.kinds != 0],
        data.pairs,
        data.pair_users,
    ).as_pairs()
    return np.asarray(choix.ilsr_rankings(data.n_items, whole + rest.pairs.tolist(), alpha=PLACKETT_LUCE_ALPHA))


def pairwise_probit(data: ChoiceData, *, ridge: float, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """A free covariance fitted to pairs alone: L-BFGS finds *some* covariance, which the data don't identify."""
    distinct, n = data.as_pairs().distinct(), data.n_items
    start = start_of(fit_independent(distinct, n), centring(n) * n / (n - 1))
    settings = Settings(n - 1, FLOOR, ridge=ridge)
    fit = fit_covariance(distinct, n, settings, start=start, noise=rng)
    return fit.mu, fit.covariance


def predict_by_mean(strength: Floats, queries: Sequence[Query]) -> Floats:
    """P(a over b) of a logistic model, whatever the context."""
    return np.array([1.0 / (1.0 + np.exp(strength[query.b] - strength[query.a])) for query in queries])


def predict_by_model(mu: Floats, covariance: Floats, queries: Sequence[Query], *, points: int = 128) -> Floats:
    """P(a over b | context) of a correlated model, all queries of one size simulated together."""
    import torch

    from assay.probit.long_rankings import _log_orthant, log_sums, refinements

    mu_N, a_NR = torch.from_numpy(mu), torch.from_numpy(factor(covariance))
    # Contexts whose ties make steps are taken in several orders, whose probabilities add up.
    by_size: dict[int, list[tuple[NDArray[np.int64], int]]] = defaultdict(list)
    different = {query: place for place, query in enumerate(dict.fromkeys(queries))}
    listed = list(different)
    for place, query in enumerate(listed):
        for refined in refinements(query.context):
            known = constraints_of([[list(group) for group in refined]], lambda item: item)  # type: ignore[arg-type, return-value]
            by_size[len(known)].append((known, place))
    parts: dict[bool, list[Any]] = {False: [], True: []}
    owners: list[Any] = []
    for size, contexts in by_size.items():
        uniform = (
            torch.quasirandom.SobolEngine(max(size, 1), scramble=True, seed=0)
            .draw(points, dtype=torch.float64)
            .clamp(1e-12, 1 - 1e-12)
        )
        owners.append(torch.tensor([place for _, place in contexts]))
        for swap, found in parts.items():
            asked = [
                [(query.b, query.a) if swap else (query.a, query.b)]
                for query in (listed[place] for _, place in contexts)
            ]
            both = np.concatenate([np.stack([known for known, _ in contexts]), np.array(asked)], axis=1)
            found.append(_log_orthant(mu_N, a_NR, torch.from_numpy(both), uniform, FLOOR))
    won, lost = (log_sums(torch.cat(found), torch.cat(owners), len(listed)) for found in parts.values())
    return np.asarray(torch.sigmoid(won - lost).numpy()[[different[query] for query in queries]])


def matrix_completion(
    scores: Floats, tests: Floats, *, rank: int = ALS_RANK, ridge: float = ALS_RIDGE, rng: np.random.Generator
) -> Floats:
    """Complete rows by alternating least squares on scores centred by item and by row (Koren, Bell and Volinsky 2009).

    Parameters
    ----------
    scores : ndarray of float64, shape (users, n)
        Training rows; NaN where unknown.
    tests : ndarray of float64, shape (people, n)
        What is known of the people to predict.
    rank, ridge
        Of the factorisation.
    rng : numpy.random.Generator
        The start.

    Returns
    -------
    ndarray of float64, shape (people, n)
    """
    item_mean = np.nanmean(scores, axis=0)

    def centred(rows: Floats) -> tuple[Floats, Floats]:
        gap = rows - item_mean
        known = ~np.isnan(gap)
        mean = np.where(known, gap, 0.0).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
        return np.where(known, gap - mean[:, None], 0.0), known.astype(np.float64)

    values, known = centred(scores)
    items = 0.1 * rng.standard_normal((scores.shape[1], rank))

    def solve(values: Floats, known: Floats, others: Floats) -> Floats:
        grams = np.einsum("ui,ia,ib->uab", known, others, others) + ridge * np.eye(others.shape[1])
        return np.asarray(np.linalg.solve(grams, (values @ others)[:, :, None])[:, :, 0])

    for _ in range(ALS_SWEEPS):
        people = solve(values, known, items)
        items = solve(values.T, known.T, people)
    values, known = centred(tests)
    return np.asarray(item_mean + solve(values, known, items) @ items.T)


def conditional_frequency(train: Floats, queries: Sequence[Query]) -> Floats:
    """How often people who ordered the context so preferred a to b; everyone's share where they are too few."""
    overall: dict[tuple[int, int], float] = {}
    cache: dict[Query, float] = {}
    by_items: dict[tuple[int, ...], Counter[tuple[tuple[tuple[int, ...], ...], int]]] = {}
    found = []
    for query in queries:
        if query not in cache:
            pair = (query.a, query.b)
            gap = train[:, query.a] - train[:, query.b]
            if pair not in overall:
                wins, losses = int((gap > 0).sum()), int((gap < 0).sum())
                overall[pair] = (wins + 0.5) / (wins + losses + 1.0)
            items = tuple(sorted(item for group in query.context for item in group))
            key = (*items, *pair)
            if key not in by_items:
                counted: Counter[tuple[tuple[tuple[int, ...], ...], int]] = Counter()
                for row, difference in zip(train[:, items].tolist(), gap.tolist(), strict=True):
                    if difference != 0 and not any(np.isnan(row)) and not np.isnan(difference):
                        levels = sorted(set(row), reverse=True)
                        groups = tuple(
                            tuple(item for item, value in zip(items, row, strict=True) if value == level)
                            for level in levels
                        )
                        counted[groups, 1 if difference > 0 else -1] += 1
                by_items[key] = counted
            context = tuple(tuple(sorted(group)) for group in query.context)
            wins, losses = by_items[key][context, 1], by_items[key][context, -1]
            cache[query] = (wins + 0.5) / (wins + losses + 1.0) if wins + losses >= LEAST_SEEN else overall[pair]
        found.append(cache[query])
    return np.array(found)
