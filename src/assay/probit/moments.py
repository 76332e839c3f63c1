"""Moments: angles of triangles from three-item probabilities, and one covariance from overlapping triangles.

For a triangle of items i, j, k let alpha_ij = (mu_i - mu_j) / s_ij, which is the normal quantile of P(i over j)
(Lemma 4.2), and let A_i be the interior angle at i, whose cosine is the correlation of X_i - X_j and X_i - X_k. P(i
best) is Phi2(alpha_ij, alpha_ik; cos A_i), strictly increasing in the last argument (Lemma 4.3), so the angle can be
solved for. The law of sines then gives the triangle up to one scale (Theorem 4.1). Triangles that share a pair share
its s_ij, which ties their scales together (Theorem 4.4): along anchors, as the paper does, or by least squares over
all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numba import njit

from assay.core.errors import InputError
from assay.probit.bivariate import bvn, bvn_cdf
from assay.probit.choices import BEST, ORDER, WORST, Distinct, shown
from assay.probit.geometry import covariance_of_distances, normalised

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

__all__ = ["Moments", "TripleTable", "exact_table", "moments_of", "solve_cosine", "triangle_angles"]

SMOOTHING = 0.5
"""Added to each of the six orders of a triple: a cell that was never seen would make a quantile infinite."""

FLAT = 0.02
"""A triangle with an angle this close to 0 or pi (radians) says nothing about the ratio of its sides."""

FLAT_WEIGHT = 1e-6
"""What such a triangle weighs beside others: enough to connect pairs that nothing else connects."""

LONGEST_SEARCH = 80


@dataclass(frozen=True)
class TripleTable:
    """Answers to questions about three items, gathered by question.

    Attributes
    ----------
    triples : ndarray of int64, shape (questions, 3)
        i < j < k.
    orders : ndarray of float64, shape (questions, 6)
        How often each order was given: ijk, ikj, jik, jki, kij, kji.
    best, worst : ndarray of float64, shape (questions, 3)
        How often each item was best, or worst, with the others tied or unasked.
    wins : ndarray of float64, shape (n, n)
        How often the row's item beat the column's in questions about two.
    """

    triples: Ints
    orders: Floats
    best: Floats
    worst: Floats
    wins: Floats


@dataclass(frozen=True)
class Moments:
    """The moment estimate.

    Attributes
    ----------
    mu, covariance : ndarray of float64
        Normalised means, shape (n,), and covariance, shape (n, n).
    clipped : float
        How negative the smallest eigenvalue was before it was clipped at 0.
    missing : int
        Pairs that no question about three items showed, whose s was set to the mean.
    residual : float
        Weighted root mean square of the log-scale residuals: 0 for probabilities that a model has.
    """

    mu: Floats
    covariance: Floats
    clipped: float
    missing: int
    residual: float


@njit(cache=True, nogil=True)
def _solve(h: Any, k: Any, p: Any, out: Any) -> None:
    """Newton's method on Phi2(h, k; x) = p, kept inside a shrinking bracket."""
    for index in range(len(h)):
        low, high = -1.0, 1.0
        x = 0.0
        for _ in range(LONGEST_SEARCH):
            gap = bvn(h[index], k[index], x) - p[index]
            if gap > 0:
                high = x
            else:
                low = x
            square = (1.0 - x) * (1.0 + x)
            quadratic = (h[index] ** 2 - 2.0 * x * h[index] * k[index] + k[index] ** 2) / (2.0 * square)
            slope = np.exp(-quadratic) / (2.0 * np.pi * np.sqrt(square))
            step = x - gap / slope if slope > 1e-300 else 2.0
            new = step if low < step < high else 0.5 * (low + high)
            if abs(new - x) <= 4e-16:
                x = new
                break
            x = new
        out[index] = x


def solve_cosine(h: Floats, k: Floats, p: Floats) -> Floats:
    """The correlation x at which Phi2(h, k; x) = p (Lemma 4.3).

    Parameters
    ----------
    h, k : ndarray of float64, shape (questions,)
        Standardised differences.
    p : ndarray of float64, shape (questions,)
        Probabilities; those that no correlation gives are moved to the nearest that one does.

    Returns
    -------
    ndarray of float64, shape (questions,)
    """
    low = np.maximum(0.0, bvn_cdf(h, k, -1.0))
    high = np.minimum(_cdf(h), _cdf(k))
    inside = np.clip(p, low, high)
    out = np.empty(len(inside))
    _solve(np.ascontiguousarray(h), np.ascontiguousarray(k), np.ascontiguousarray(inside), out)
    return np.clip(out, -1.0, 1.0)


def _cdf(x: Floats) -> Floats:
    from scipy.special import ndtr

    return np.asarray(ndtr(x), dtype=np.float64)


def _quantile(p: Floats) -> Floats:
    from scipy.special import ndtri

    return np.asarray(ndtri(np.clip(p, 1e-15, 1 - 1e-15)), dtype=np.float64)


def table_of(distinct: Distinct, n: int) -> TripleTable:
    """Gather distinct events by question."""
    ordered = np.sort(distinct.triples, axis=1)
    keys, index = np.unique((ordered[:, 0] * n + ordered[:, 1]) * n + ordered[:, 2], return_inverse=True)
    triples = np.column_stack([keys // n**2, keys // n % n, keys % n])
    rank = np.argsort(np.argsort(distinct.triples, axis=1), axis=1)
    orders, best, worst = np.zeros((len(keys), 6)), np.zeros((len(keys), 3)), np.zeros((len(keys), 3))
    for cells, kind, column in (
        # Orders of ranks 012, 021, 102, 120, 201, 210 are cells 0 to 5.
        (orders, ORDER, 2 * rank[:, 0] + (rank[:, 1] > rank[:, 2])),
        (best, BEST, rank[:, 0]),
        (worst, WORST, rank[:, 2]),
    ):
        chosen = distinct.kinds == kind
        np.add.at(cells, (index[chosen], column[chosen]), distinct.weights[chosen])
    wins = np.zeros((n, n))
    np.add.at(wins, (distinct.pairs[:, 0], distinct.pairs[:, 1]), distinct.pair_weights)
    return TripleTable(triples.astype(np.int64), orders, best, worst, wins)


def exact_table(mu: Floats, covariance: Floats, *, triples: Ints | None = None) -> TripleTable:
    """The table that a model gives: probabilities of all orders instead of counts.

    Parameters
    ----------
    mu, covariance : ndarray of float64
        The model.
    triples : ndarray of int64, shape (questions, 3), optional
        Which questions; all when left out.

    Returns
    -------
    TripleTable
    """
    from itertools import combinations

    from assay.probit._likelihood import triple_outcomes
    from assay.probit.geometry import squared_distances

    n = len(mu)
    chosen = np.array(list(combinations(range(n), 3)), dtype=np.int64) if triples is None else np.sort(triples, axis=1)
    i, j, k = chosen.T
    squares = squared_distances(covariance)
    p, _ = triple_outcomes(ORDER, mu[chosen], np.column_stack([squares[i, j], squares[i, k], squares[j, k]]))
    return TripleTable(chosen, p, np.zeros((len(p), 3)), np.zeros((len(p), 3)), np.zeros((n, n)))


def triangle_angles(
    table: TripleTable, *, smoothing: float = SMOOTHING, alphas: Floats | None = None
) -> tuple[Floats, Floats, Floats]:
    """Invert three-item probabilities (Theorem 4.1).

    Parameters
    ----------
    table : TripleTable
        Counts or probabilities.
    smoothing : float
        Added to each order; 0 for exact probabilities.
    alphas : ndarray of float64, shape (n, n), optional
        alpha_ij for questions whose answers hold no whole order.

    Returns
    -------
    alpha : ndarray of float64, shape (questions, 3)
        alpha_ij, alpha_ik, alpha_jk.
    angles : ndarray of float64, shape (questions, 3)
        At i, j and k in radians, scaled to sum to pi.
    weight : ndarray of float64, shape (questions,)
        How many answers each rests on.

    Raises
    ------
    InputError
        A question has no order, and `alphas` is left out.
    """
    cells = table.orders + smoothing
    total = cells.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        above = np.column_stack(
            [cells[:, [0, 1, 4]].sum(axis=1), cells[:, [0, 1, 2]].sum(axis=1), cells[:, [0, 2, 3]].sum(axis=1)]
        )
        alpha = _quantile(above / total[:, None])
    without = table.orders.sum(axis=1) == 0
    if without.any():
        if alphas is None:
            raise InputError(
                f"{int(without.sum())} questions have no whole order, from which alone pairs can't be told",
                expected="rankings of three, or pairs beside the best of three",
            )
        i, j, k = table.triples[without].T
        alpha[without] = np.column_stack([alphas[i, j], alphas[i, k], alphas[j, k]])
    first = cells[:, [0, 2, 4]] + cells[:, [1, 3, 5]] + table.best
    last = cells[:, [3, 1, 0]] + cells[:, [5, 4, 2]] + table.worst
    with np.errstate(invalid="ignore", divide="ignore"):
        p_first, p_last = first / first.sum(axis=1, keepdims=True), last / last.sum(axis=1, keepdims=True)
    signs = np.array([1.0, 1.0, -1.0, 1.0, -1.0, -1.0])
    sides = [(0, 1), (0, 2), (1, 2)]
    directed = alpha[:, [side for pair in sides for side in pair]] * signs
    # The corner at j compares j with i and with k: alpha_ji = -alpha_ij, alpha_jk; that at k: -alpha_ik, -alpha_jk.
    angles = np.empty_like(alpha)
    only_worst = (table.orders.sum(axis=1) + table.best.sum(axis=1) == 0) & (table.worst.sum(axis=1) > 0)
    for corner, (one, other) in enumerate(((0, 1), (2, 3), (4, 5))):
        h, k = directed[:, one], directed[:, other]
        cosine = solve_cosine(
            np.where(only_worst, -h, h),
            np.where(only_worst, -k, k),
            np.where(only_worst, p_last[:, corner], p_first[:, corner]),
        )
        angles[:, corner] = np.arccos(cosine)
    angles *= np.pi / angles.sum(axis=1, keepdims=True)
    weight = table.orders.sum(axis=1) + table.best.sum(axis=1) + table.worst.sum(axis=1)
    return alpha, angles, weight


def moments_of(
    table: TripleTable,
    n: int,
    *,
    aggregation: Literal["lsq", "anchor"] = "lsq",
    smoothing: float = SMOOTHING,
    alphas: Floats | None = None,
    fill: bool = False,
    names: Sequence[Any] | None = None,
) -> Moments:
    """Means and covariance of all items from the triangles (Theorem 4.4).

    Parameters
    ----------
    table : TripleTable
        Counts or probabilities.
    n : int
        How many items.
    aggregation : {"lsq", "anchor"}
        Least squares over all triangles, or the paper's propagation from one reference pair.
    smoothing, alphas
        As for `triangle_angles`.
    fill : bool
        Give pairs that no question showed the mean s; else refuse.
    names : sequence, optional
        The items' names for messages.

    Returns
    -------
    Moments

    Raises
    ------
    InputError
        Pairs are never seen together, or scales can't be compared (naming items).
    """
    if aggregation not in ("lsq", "anchor"):
        raise InputError(f"aggregation is {aggregation!r}", expected="'lsq' or 'anchor'")
    alpha, angles, weight = triangle_angles(table, smoothing=smoothing, alphas=alphas)
    align = _least_squares if aggregation == "lsq" else _anchors
    scales, residual = align(table.triples, angles, weight, n, fill, names)
    missing = int(np.isnan(scales[np.triu_indices(n, 1)]).sum())
    if missing:
        scales = np.where(np.isnan(scales), np.sqrt(np.nanmean(scales[np.triu_indices(n, 1)] ** 2)), scales)
        np.fill_diagonal(scales, 0.0)
    mean_alpha, pair_weight = _mean_alpha(table, alpha, weight, n)
    mu = _means(mean_alpha * scales, pair_weight, n)
    covariance, clipped = covariance_of_distances(scales**2)
    mu, covariance = normalised(mu, covariance)
    return Moments(mu, covariance, clipped * n / max(float(np.trace(covariance)), 1e-300), missing, residual)


def _pair_index(n: int) -> Ints:
    index = np.zeros((n, n), dtype=np.int64)
    first, second = np.triu_indices(n, 1)
    index[first, second] = index[second, first] = np.arange(len(first))
    return index


def _least_squares(
    triples: Ints, angles: Floats, weight: Floats, n: int, fill: bool, names: Sequence[Any] | None
) -> tuple[Floats, float]:
    """Solve l_jk - l_ik = log sin A_i - log sin A_j and its mates for l = log s, weighted by answers and by "
    "min(sin A)^2.
    """
    from scipy.sparse import coo_array, csr_array, diags_array
    from scipy.sparse.csgraph import connected_components
    from scipy.sparse.linalg import cg

    count = n * (n - 1) // 2
    index = _pair_index(n)
    i, j, k = triples.T
    opposite = [index[j, k], index[i, k], index[i, j]]
    flat = (angles < FLAT).any(axis=1) | (angles > np.pi - FLAT).any(axis=1)
    sines = np.log(np.sin(np.clip(angles, FLAT / 2, np.pi - FLAT / 2)))
    trust = weight * np.exp(2 * sines.min(axis=1)) * np.where(flat, FLAT_WEIGHT, 1.0)
    rows, columns, gaps, trusts = [], [], [], []
    for one, other in ((0, 1), (1, 2), (2, 0)):
        rows.append(opposite[one])
        columns.append(opposite[other])
        gaps.append(sines[:, one] - sines[:, other])
        trusts.append(trust)
    row, column, gap, w = (np.concatenate(parts) for parts in (rows, columns, gaps, trusts))
    links = csr_array(coo_array((w, (row, column)), shape=(count, count)))
    links = links + links.T
    _, labels = connected_components(links, directed=False)
    seen = np.asarray(links.sum(axis=1)).ravel() > 0
    _require_one_group(labels, seen, n, fill, names)
    degree = np.asarray(links.sum(axis=1)).ravel()
    right = np.bincount(row, weights=w * gap, minlength=count) - np.bincount(column, weights=w * gap, minlength=count)
    scale = np.where(degree > 0, degree, 1.0)
    laplacian = diags_array(degree) - links
    # The mean of each connected part is free; conjugate gradients from 0 on a consistent system leave it there.
    solution, _ = cg(laplacian, right, rtol=1e-14, atol=0.0, maxiter=20 * count + 200, M=diags_array(1.0 / scale))
    values = np.where(seen, solution, np.nan)
    residual = gap - (solution[row] - solution[column])
    scales = np.full((n, n), np.nan)
    first, second = np.triu_indices(n, 1)
    largest = np.bincount(labels[seen]).argmax()
    values[labels != largest] = np.nan
    scales[first, second] = scales[second, first] = np.exp(values - np.nanmean(values))
    np.fill_diagonal(scales, 0.0)
    return scales, float(np.sqrt(np.average(residual**2, weights=w)))


def _require_one_group(labels: Ints, seen: NDArray[np.bool_], n: int, fill: bool, names: Sequence[Any] | None) -> None:
    if fill:
        return
    first, second = np.triu_indices(n, 1)
    called = list(range(n)) if names is None else list(names)
    if not seen.all():
        absent = [f"{called[first[index]]} and {called[second[index]]}" for index in np.flatnonzero(~seen)]
        raise InputError(
            f"no question about three items shows {shown(absent, most=3)}",
            expected="every pair in some triple for the moment estimator; maximum likelihood needs fewer",
        )
    if len(np.unique(labels)) > 1:
        groups = [
            "/".join(
                sorted(
                    {
                        str(called[item])
                        for pair in np.flatnonzero(labels == label)
                        for item in (first[pair], second[pair])
                    }
                )
            )
            for label in np.unique(labels)
        ]
        raise InputError(
            f"the scales of these groups of items can't be compared: {shown(groups, most=4)}",
            expected="triples that overlap in pairs",
        )


def _anchors(
    triples: Ints, angles: Floats, weight: Floats, n: int, fill: bool, names: Sequence[Any] | None
) -> tuple[Floats, float]:
    """The paper's economical scheme: triples with a reference pair (a, b), then triples with a."""
    at = {tuple(triple): place for place, triple in enumerate(triples.tolist())}

    def angle(corner: int, one: int, other: int) -> float:
        ordered = sorted((corner, one, other))
        place = at.get(tuple(ordered))
        return float("nan") if place is None else float(angles[place, ordered.index(corner)])

    smallest = np.full((n, n), np.inf)
    count = np.zeros((n, n), dtype=np.int64)
    per_item = np.full(n, np.inf)
    item_count = np.zeros(n, dtype=np.int64)
    least = angles.min(axis=1)
    for one, other in ((0, 1), (0, 2), (1, 2)):
        np.minimum.at(smallest, (triples[:, one], triples[:, other]), least)
        np.add.at(count, (triples[:, one], triples[:, other]), 1)
    smallest, count = np.minimum(smallest, smallest.T), count + count.T
    for column in range(3):
        np.minimum.at(per_item, triples[:, column], least)
        np.add.at(item_count, triples[:, column], 1)
    whole = item_count == (n - 1) * (n - 2) // 2
    usable = (count == n - 2) & whole[:, None]
    if not usable.any():
        raise InputError(
            "no item is in a triple with every two others", expected="all triples of one item, or aggregation='lsq'"
        )
    worth = np.where(usable, np.minimum(smallest, per_item[:, None]), -1.0)
    a, b = (int(place) for place in np.unravel_index(worth.argmax(), worth.shape))
    scales = np.zeros((n, n))
    scales[a, b] = scales[b, a] = 1.0
    for k in range(n):
        if k not in (a, b):
            scales[a, k] = scales[k, a] = np.sin(angle(b, a, k)) / np.sin(angle(k, a, b))
    for i in range(n):
        for j in range(i + 1, n):
            if a not in (i, j):
                scales[i, j] = scales[j, i] = scales[a, i] * np.sin(angle(a, i, j)) / np.sin(angle(j, a, i))
    return scales, 0.0


def _mean_alpha(table: TripleTable, alpha: Floats, weight: Floats, n: int) -> tuple[Floats, Floats]:
    """alpha_ij averaged over the triples that hold the pair, and over questions about the pair alone."""
    total, weights = np.zeros((n, n)), np.zeros((n, n))
    for side, (one, other) in enumerate(((0, 1), (0, 2), (1, 2))):
        place = (table.triples[:, one], table.triples[:, other])
        np.add.at(total, place, weight * alpha[:, side])
        np.add.at(weights, place, weight)
    asked = table.wins + table.wins.T
    shown_pairs = np.triu(asked, 1) > 0
    direct = _quantile((table.wins + SMOOTHING) / (asked + 2 * SMOOTHING))
    total += np.where(shown_pairs, asked * direct, 0.0)
    weights += np.where(shown_pairs, asked, 0.0)
    mean = np.divide(total, weights, out=np.zeros((n, n)), where=weights > 0)
    return mean - mean.T, weights + weights.T


def _means(gaps: Floats, weights: Floats, n: int) -> Floats:
    """Mu from mu_i - mu_j: the row means where every pair was seen, else weighted least squares."""
    if (weights[~np.eye(n, dtype=bool)] > 0).all():
        return np.asarray(gaps.mean(axis=1))
    laplacian = np.diag(weights.sum(axis=1)) - weights
    return np.asarray(np.linalg.lstsq(laplacian, (weights * gaps).sum(axis=1), rcond=None)[0])
