"""The composite log-likelihood of distinct events, and its gradient.

An event about three items is "X_a > X_b and X_c > X_d", with (a, b, c, d) = (i, j, j, k) for an order, (i, j, i, k)
for a best and (i, k, j, k) for a worst. Its probability is a bivariate normal one, and depends on the means and on
the variances S_ab of differences only: with s = sqrt(S), h = (mu_a - mu_b) / s_ab, k = (mu_c - mu_d) / s_cd and rho =
(S_ad + S_bc - S_ac - S_bd) / (2 s_ab s_cd). So an evaluation costs the number of distinct events, whatever the number
of items or answers.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from assay.probit.bivariate import HALF_LOG_2PI, bvn_logcdf, log_bvn_scores, log_normal_cdf
from assay.probit.choices import BEST, ORDER, WORST, Distinct

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

__all__ = ["FLOOR", "OUTCOMES", "QUADS", "Objective", "event_scores", "log_likelihood", "triple_outcomes"]

FLOOR = 1e-9
"""The variance of its own that every utility has in a full-rank model: no two items coincide, so that correlations stay
inside (-1, 1) by themselves and no gradient is lost to a clamp.
"""

QUADS = {ORDER: (0, 1, 1, 2), BEST: (0, 1, 0, 2), WORST: (0, 2, 1, 2)}
"""Which of an event's items are a, b, c and d."""

OUTCOMES = {
    ORDER: ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)),
    BEST: ((0, 1, 2), (1, 0, 2), (2, 0, 1)),
    WORST: ((1, 2, 0), (0, 2, 1), (0, 1, 2)),
}
"""All answers to a question about three items, as orders of them."""

PARTS = 16
"""Events are summed in so many parts, whatever the number of threads, so that sums don't depend on it."""


@njit(cache=True, nogil=True)
def _sum_triples(
    quads: Any, weights: Any, mu: Any, squares: Any, start: int, stop: int, d_mu: Any, d_squares: Any
) -> float:
    total = 0.0
    for event in range(start, stop):
        a, b, c, d = quads[event, 0], quads[event, 1], quads[event, 2], quads[event, 3]
        weight = weights[event]
        s_ab, s_cd = math.sqrt(squares[a, b]), math.sqrt(squares[c, d])
        h, k = (mu[a] - mu[b]) / s_ab, (mu[c] - mu[d]) / s_cd
        rho = 0.5 * (squares[a, d] + squares[b, c] - squares[a, c] - squares[b, d]) / (s_ab * s_cd)
        log_p, d_h, d_k, d_rho = log_bvn_scores(h, k, rho)
        total += weight * log_p
        d_h, d_k, d_rho = weight * d_h, weight * d_k, weight * d_rho
        d_mu[a] += d_h / s_ab
        d_mu[b] -= d_h / s_ab
        d_mu[c] += d_k / s_cd
        d_mu[d] -= d_k / s_cd
        d_squares[a, b] -= 0.5 * (d_h * h + d_rho * rho) / squares[a, b]
        d_squares[c, d] -= 0.5 * (d_k * k + d_rho * rho) / squares[c, d]
        inner = 0.5 * d_rho / (s_ab * s_cd)
        d_squares[a, d] += inner
        d_squares[b, c] += inner
        d_squares[a, c] -= inner
        d_squares[b, d] -= inner
    return total


@njit(cache=True, nogil=True)
def _sum_pairs(pairs: Any, weights: Any, mu: Any, squares: Any, d_mu: Any, d_squares: Any) -> float:
    total = 0.0
    for event in range(len(pairs)):
        a, b = pairs[event, 0], pairs[event, 1]
        s = math.sqrt(squares[a, b])
        h = (mu[a] - mu[b]) / s
        log_p = log_normal_cdf(h)
        total += weights[event] * log_p
        d_h = weights[event] * math.exp(-0.5 * h * h - HALF_LOG_2PI - log_p)
        d_mu[a] += d_h / s
        d_mu[b] -= d_h / s
        d_squares[a, b] -= 0.5 * d_h * h / squares[a, b]
    return total


def quads_of(triples: Ints, kinds: Ints) -> Ints:
    """The items a, b, c, d of each event, shape (events, 4)."""
    places = np.array([QUADS[kind] for kind in (ORDER, BEST, WORST)])[kinds]
    return np.take_along_axis(triples, places, axis=1)


@dataclass
class Objective:
    """The mean log-likelihood of events as a function of the means and the variances of differences.

    Parameters
    ----------
    distinct : Distinct
        The events.
    n_items : int
        How many items there are.
    threads : int
        Threads among which the events are divided.
    """

    distinct: Distinct
    n_items: int
    threads: int = 1

    def __post_init__(self) -> None:
        self.total = self.distinct.total
        self._quads = quads_of(self.distinct.triples, self.distinct.kinds)
        bounds = np.linspace(0, len(self._quads), PARTS + 1).astype(np.int64)
        self._parts = [(int(a), int(b)) for a, b in pairwise(bounds) if b > a]

    def __call__(self, mu: Floats, squares: Floats) -> tuple[float, Floats, Floats]:
        """The mean log-likelihood, its gradient in `mu`, and in `squares` (symmetric, each pair's whole "
        "derivative).
        """
        n = self.n_items
        mu, squares = np.ascontiguousarray(mu), np.ascontiguousarray(squares)

        def part(bounds: tuple[int, int]) -> tuple[float, Floats, Floats]:
            d_mu, d_squares = np.zeros(n), np.zeros((n, n))
            value = _sum_triples(self._quads, self.distinct.weights, mu, squares, *bounds, d_mu, d_squares)
            return value, d_mu, d_squares

        if self.threads > 1 and len(self._parts) > 1:
            with ThreadPoolExecutor(self.threads) as pool:
                found = list(pool.map(part, self._parts))
        else:
            found = [part(bounds) for bounds in self._parts]
        d_mu, d_squares = np.zeros(n), np.zeros((n, n))
        value = 0.0
        for one, one_mu, one_squares in found:
            value += one
            d_mu += one_mu
            d_squares += one_squares
        if len(self.distinct.pairs):
            value += _sum_pairs(self.distinct.pairs, self.distinct.pair_weights, mu, squares, d_mu, d_squares)
        d_squares = d_squares + d_squares.T
        np.fill_diagonal(d_squares, 0.0)
        return value / self.total, d_mu / self.total, d_squares / self.total

    def sample(self, size: int, *, rng: np.random.Generator) -> Objective:
        """A mini-batch: `size` answers drawn with the events' weights, as an objective of its own."""
        weights = np.concatenate([self.distinct.weights, self.distinct.pair_weights])
        drawn = rng.multinomial(size, weights / weights.sum())
        of_triples, of_pairs = drawn[: len(self.distinct.weights)], drawn[len(self.distinct.weights) :]
        empty = np.empty(0, dtype=np.int64)
        batch = Distinct(
            triples=self.distinct.triples[of_triples > 0],
            kinds=self.distinct.kinds[of_triples > 0],
            weights=of_triples[of_triples > 0].astype(np.float64),
            pairs=self.distinct.pairs[of_pairs > 0],
            pair_weights=of_pairs[of_pairs > 0].astype(np.float64),
            triple_index=empty,
            pair_index=empty,
            answer_weights=np.empty(0),
            pair_answer_weights=np.empty(0),
        )
        return Objective(batch, self.n_items, self.threads)


def log_likelihood(distinct: Distinct, mu: Floats, squares: Floats) -> float:
    """The mean log-likelihood of events."""
    return Objective(distinct, len(mu))(mu, squares)[0]


def event_scores(
    kind: int, mu: Floats, squares: Floats, order: tuple[int, int, int] = (0, 1, 2)
) -> tuple[Floats, Floats]:
    """Log-probabilities of one answer to many questions about three items, with scores.

    Parameters
    ----------
    kind : int
        `ORDER`, `BEST` or `WORST`.
    mu : ndarray of float64, shape (questions, 3)
        The items' means.
    squares : ndarray of float64, shape (questions, 3)
        S_01, S_02, S_12.
    order : tuple of int
        Which item is first, second and third.

    Returns
    -------
    log_p : ndarray of float64, shape (questions,)
    scores : ndarray of float64, shape (questions, 6)
        Derivatives of `log_p` in the three means and the three squares.
    """
    a, b, c, d = (order[place] for place in QUADS[kind])
    column = {(0, 1): 0, (0, 2): 1, (1, 2): 2}

    def square(x: int, y: int) -> Floats | float:
        return 0.0 if x == y else squares[:, column[min(x, y), max(x, y)]]

    s_ab, s_cd = np.sqrt(square(a, b)), np.sqrt(square(c, d))
    h, k = (mu[:, a] - mu[:, b]) / s_ab, (mu[:, c] - mu[:, d]) / s_cd
    rho = 0.5 * (square(a, d) + square(b, c) - square(a, c) - square(b, d)) / (s_ab * s_cd)
    log_p, d_h, d_k, d_rho = bvn_logcdf(h, k, rho)
    scores = np.zeros((len(mu), 6))
    for item, derivative in ((a, d_h / s_ab), (b, -d_h / s_ab), (c, d_k / s_cd), (d, -d_k / s_cd)):
        scores[:, item] += derivative
    inner = 0.5 * d_rho / (s_ab * s_cd)
    for x, y, derivative in (
        (a, b, -0.5 * (d_h * h + d_rho * rho) / square(a, b)),
        (c, d, -0.5 * (d_k * k + d_rho * rho) / square(c, d)),
        (a, d, inner),
        (b, c, inner),
        (a, c, -inner),
        (b, d, -inner),
    ):
        if x != y:
            scores[:, 3 + column[min(x, y), max(x, y)]] += derivative
    return log_p, scores


def triple_outcomes(kind: int, mu: Floats, squares: Floats) -> tuple[Floats, Floats]:
    """Probabilities of all answers to questions about three items, with scores.

    Parameters
    ----------
    kind, mu, squares
        As for `event_scores`.

    Returns
    -------
    p : ndarray of float64, shape (questions, answers)
        In the order of `OUTCOMES`.
    scores : ndarray of float64, shape (questions, answers, 6)
        Derivatives of log p.
    """
    found = [event_scores(kind, mu, squares, order) for order in OUTCOMES[kind]]
    return np.exp(np.column_stack([log_p for log_p, _ in found])), np.stack([scores for _, scores in found], axis=1)
