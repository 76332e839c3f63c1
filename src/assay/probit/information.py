"""Fisher information of questions about three items: standard errors, what is identified, which questions to ask.

Coordinates are theta = (mu_1 .. mu_n, S_12 .. S_(n-1)n): the means and the variances of differences. An answer's
probability depends on six of them, and on none along two directions: a shift of all means, and a common scale (mu by
c, S by c^2). So a free covariance is identified when the information has rank n - 1 + n(n - 1)/2 - 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from assay.core.errors import InputError
from assay.probit._arguments import require_seed, require_whole
from assay.probit._likelihood import event_scores, triple_outcomes
from assay.probit.choices import BEST, ORDER, WORST, Distinct
from assay.probit.geometry import centring, normalise, squared_distances

if TYPE_CHECKING:
    from collections.abc import Hashable

    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

__all__ = ["Design", "design", "sample_size"]

NORMAL_975 = 1.959963984540054
RANK_TOLERANCE = 1e-9
"""Eigenvalues of the information, relative to the largest, below which a direction is not identified."""

LARGEST_RANK_TEST = 40
"""Items up to which the rank of the information is computed."""

LARGEST_PILOT = 100
"""Items up to which a sample size is computed: the information has n(n + 1)/2 rows."""

TINY, MOST_ANSWERS = 1e-100, 1e15

PRIOR = 1e-3
"""Information in every direction from which a D-optimal design starts, in answers: it makes the first choices "
"defined.
"""

Question = Literal["ranking", "best"]


def rank_needed(n: int) -> int:
    """How many directions a model of n items has that choices can show: n - 1 + n(n - 1)/2 - 1."""
    return n - 1 + n * (n - 1) // 2 - 1


def coordinates(triples: Ints, n: int) -> Ints:
    """Places of the six coordinates of each question in theta, shape (questions, 6)."""
    i, j, k = triples.T

    def pair(a: Ints, b: Ints) -> Ints:
        low, high = np.minimum(a, b), np.maximum(a, b)
        return np.asarray(n + low * (2 * n - low - 1) // 2 + high - low - 1)

    return np.column_stack([i, j, k, pair(i, j), pair(i, k), pair(j, k)])


def local_squares(triples: Ints, squares: Floats) -> Floats:
    """S_ij, S_ik, S_jk of each question, shape (questions, 3)."""
    i, j, k = triples.T
    return np.column_stack([squares[i, j], squares[i, k], squares[j, k]])


def question_information(triples: Ints, mu: Floats, squares: Floats, *, kind: int = ORDER) -> Floats:
    """Information of one answer to each question, sum over answers of p grad(log p) grad(log p)', shape "
    "(questions, 6, 6).
    """
    p, scores = triple_outcomes(kind, mu[triples], local_squares(triples, squares))
    return np.asarray(np.einsum("qo,qoi,qoj->qij", p, scores, scores))


def pair_information(pairs: Ints, mu: Floats, squares: Floats) -> Floats:
    """Information of one comparison in (mu_i, mu_j, S_ij), shape (pairs, 3, 3)."""
    p_win, up = pair_scores(pairs, mu, squares)
    p_loss, down = pair_scores(pairs[:, ::-1], mu, squares)
    down = down[:, [1, 0, 2]]
    return np.asarray(np.einsum("q,qi,qj->qij", p_win, up, up) + np.einsum("q,qi,qj->qij", p_loss, down, down))


def pair_scores(pairs: Ints, mu: Floats, squares: Floats) -> tuple[Floats, Floats]:
    """P(winner over loser), and the score in (mu_winner, mu_loser, S), shapes (pairs,) and (pairs, 3)."""
    from scipy.special import log_ndtr

    winner, loser = pairs.T
    square = squares[winner, loser]
    h = (mu[winner] - mu[loser]) / np.sqrt(square)
    log_p = log_ndtr(h)
    d_h = np.exp(-0.5 * h * h - 0.5 * math.log(2 * math.pi) - log_p)
    s = np.sqrt(square)
    return np.exp(log_p), np.column_stack([d_h / s, -d_h / s, -0.5 * d_h * h / square])


def pair_coordinates(pairs: Ints, n: int) -> Ints:
    """Places of (mu_winner, mu_loser, S) in theta, shape (pairs, 3)."""
    low, high = np.minimum(pairs[:, 0], pairs[:, 1]), np.maximum(pairs[:, 0], pairs[:, 1])
    return np.column_stack([pairs[:, 0], pairs[:, 1], n + low * (2 * n - low - 1) // 2 + high - low - 1])


def gather(blocks: Floats, places: Ints, weights: Floats, size: int) -> Floats:
    """Add small information matrices into a large one."""
    total = np.zeros((size, size))
    width = places.shape[1]
    rows, columns = np.repeat(places, width, axis=1), np.tile(places, (1, width))
    np.add.at(total, (rows.ravel(), columns.ravel()), (weights[:, None, None] * blocks).ravel())
    return total


def fisher(distinct: Distinct, mu: Floats, squares: Floats) -> Floats:
    """The expected information of the questions behind some events, in theta, shape (q, q)."""
    n = len(mu)
    size = n + n * (n - 1) // 2
    total = np.zeros((size, size))
    ordered = np.sort(distinct.triples, axis=1)
    for kind in (ORDER, BEST, WORST):
        chosen = distinct.kinds == kind
        if not chosen.any():
            continue
        keys, index = np.unique(
            (ordered[chosen, 0] * n + ordered[chosen, 1]) * n + ordered[chosen, 2], return_inverse=True
        )
        triples = np.column_stack([keys // n**2, keys // n % n, keys % n])
        weights = np.bincount(index, weights=distinct.weights[chosen]).astype(np.float64)
        total += gather(question_information(triples, mu, squares, kind=kind), coordinates(triples, n), weights, size)
    if len(distinct.pairs):
        pairs = np.sort(distinct.pairs, axis=1)
        total += gather(pair_information(pairs, mu, squares), pair_coordinates(pairs, n), distinct.pair_weights, size)
    return total


def respondent_scores(distinct: Distinct, triple_users: Ints, pair_users: Ints, mu: Floats, squares: Floats) -> Any:
    """Scores in theta summed over each person's answers, a sparse array of shape (users, q)."""
    from scipy.sparse import csr_array

    n = len(mu)
    size = n + n * (n - 1) // 2
    users = int(max(triple_users.max(initial=-1), pair_users.max(initial=-1))) + 1
    scores = np.empty((len(distinct.triples), 6))
    for kind in (ORDER, BEST, WORST):
        chosen = distinct.kinds == kind
        if chosen.any():
            triples = distinct.triples[chosen]
            _, scores[chosen] = event_scores(kind, mu[triples], local_squares(triples, squares))
    places = coordinates(distinct.triples, n)
    of_events = csr_array(
        (scores.ravel(), places.ravel(), np.arange(0, 6 * len(places) + 1, 6)), shape=(len(places), size)
    )
    to_users = csr_array((distinct.answer_weights, (triple_users, distinct.triple_index)), shape=(users, len(places)))
    total = to_users @ of_events
    if len(distinct.pairs):
        _, of_pairs = pair_scores(distinct.pairs, mu, squares)
        pair_places = pair_coordinates(distinct.pairs, n)
        matrix = csr_array(
            (of_pairs.ravel(), pair_places.ravel(), np.arange(0, 3 * len(pair_places) + 1, 3)),
            shape=(len(pair_places), size),
        )
        pair_to_users = csr_array(
            (distinct.pair_answer_weights, (pair_users, distinct.pair_index)), shape=(users, len(pair_places))
        )
        total = total + pair_to_users @ matrix
    return total


def gauge(mu: Floats, squares: Floats) -> Floats:
    """The two directions of theta that no choice shows, orthonormal, shape (q, 2)."""
    n = len(mu)
    flat = squares[np.triu_indices(n, 1)]
    shift = np.r_[np.ones(n), np.zeros(len(flat))]
    scale = np.r_[mu / 2, flat]
    basis, _ = np.linalg.qr(np.column_stack([shift, scale]))
    return np.asarray(basis)


def spectrum(information: Floats, mu: Floats, squares: Floats) -> tuple[int, Floats]:
    """The rank of an information matrix, and orthonormal directions that it lacks beside the two of the gauge.

    Coordinates are scaled by their own information first, so that rare items don't look unidentified.
    """
    own = np.sqrt(np.maximum(np.diag(information), 1e-300))
    own = np.where(np.diag(information) > 0, own, 1.0)
    values, vectors = np.linalg.eigh(information / np.outer(own, own))
    lacking = values <= RANK_TOLERANCE * values[-1]
    rank = int((~lacking).sum())
    directions = vectors[:, lacking] / own[:, None]
    basis = gauge(mu, squares)
    directions = directions - basis @ (basis.T @ directions)
    u, strengths, _ = np.linalg.svd(directions, full_matrices=False)
    free = rank_needed(len(mu)) - rank
    return rank, u[:, : max(free, 0)] if len(strengths) else u[:, :0]


def normalising_jacobian(mu: Floats, squares: Floats) -> Floats:
    """Derivatives of the normalised means and of the covariance's upper triangle (with diagonal) in theta.

    Shape (n + n(n + 1)/2, q). With Sigma = -1/2 J S J, c = n / tr Sigma: Sigma* = c Sigma and mu* = sqrt(c) J mu.
    """
    n = len(mu)
    j = centring(n)
    covariance = -0.5 * j @ squares @ j
    trace = float(np.trace(covariance))
    c = n / trace
    first, second = np.triu_indices(n, 1)
    upper = np.triu_indices(n)
    # dSigma/dS_ab = -(J_a J_b' + J_b J_a')/2, read at the upper triangle.
    d_covariance = (
        -0.5 * (j[first][:, upper[0]] * j[second][:, upper[1]] + j[second][:, upper[0]] * j[first][:, upper[1]]).T
    )
    diagonal = upper[0] == upper[1]
    d_trace = d_covariance[diagonal].sum(axis=0)
    d_c = -c / trace * d_trace
    size = n + len(first)
    jacobian = np.zeros((n + len(upper[0]), size))
    jacobian[:n, :n] = np.sqrt(c) * j
    jacobian[:n, n:] = np.outer(j @ mu, d_c / (2 * np.sqrt(c)))
    jacobian[n:, n:] = c * d_covariance + np.outer(covariance[upper], d_c)
    return jacobian


def standard_errors(
    information: Floats, outer: Any, jacobian: Floats, *, parameters: Floats | None = None
) -> tuple[Floats, int]:
    """Standard errors of functions of theta: the sandwich H^- G H^-, by the delta method.

    Parameters
    ----------
    information : ndarray of float64, shape (q, q)
        H.
    outer : sparse array, shape (users, q)
        Scores summed per person; G is its cross product.
    jacobian : ndarray of float64, shape (outputs, q)
        Derivatives of the functions.
    parameters : ndarray of float64, shape (q, m), optional
        Derivatives of theta in the parameters that were fitted, where they are fewer; theta itself when left out.

    Returns
    -------
    errors : ndarray of float64, shape (outputs,)
        NaN for functions that the information doesn't reach.
    rank : int
        The rank of the information in the fitted parameters.
    """
    k = np.eye(len(information)) if parameters is None else parameters
    h = k.T @ information @ k
    own = np.sqrt(np.where(np.diag(h) > 0, np.diag(h), 1.0))
    values, vectors = np.linalg.eigh(h / np.outer(own, own))
    kept = values > RANK_TOLERANCE * values[-1]
    basis = vectors[:, kept] / own[:, None]
    outputs = jacobian @ k
    bread = (outputs @ basis) / values[kept] @ basis.T
    scores = outer @ k
    meat = scores.T @ scores
    square = np.asarray(meat.todense() if hasattr(meat, "todense") else meat)
    variance = ((bread @ square) * bread).sum(axis=1)
    lost = vectors[:, ~kept] / own[:, None]
    if lost.shape[1]:
        # A direction without information matters only where the output changes along it; rotations of a factor don't.
        reach = np.abs(outputs @ lost)
        size = np.linalg.norm(outputs, axis=1, keepdims=True) * np.linalg.norm(lost, axis=0, keepdims=True)
        variance = np.where((reach > 1e-4 * np.maximum(size, 1e-300)).any(axis=1), np.nan, variance)
    return np.sqrt(variance), int(kept.sum())


@dataclass(frozen=True)
class Design:
    """Questions to ask.

    Attributes
    ----------
    triples : list of tuple
        The items of each question, with repetitions.
    counts : dict
        How often each question is asked.
    log_det : float
        Log-determinant of the information over the identified directions; NaN without a model.
    rank : int
        Rank of the information; -1 above 40 items, where it is too large to compute.
    needed : int
        The rank at which everything is identified.
    pair_information : ndarray of float64, shape (n, n)
        How often each pair is shown.
    """

    triples: list[tuple[Hashable, ...]]
    counts: dict[tuple[Hashable, ...], int]
    log_det: float
    rank: int
    needed: int
    pair_information: Floats


def design(
    n: int,
    budget: int,
    *,
    model: Any = None,
    kind: Question = "ranking",
    items: Sequence[Hashable] | None = None,
    random_state: int = 0,
) -> Design:
    """Choose which triples to ask about.

    With a model the choice is greedy D-optimal at its estimate: each question is the one that raises the determinant
    of the Fisher information most. Without one, questions are balanced: each pair is shown equally often, as far as
    that goes.

    Parameters
    ----------
    n : int
        How many items.
    budget : int
        How many questions.
    model : CorrelatedProbit or (mu, covariance), optional
        A pilot fit.
    kind : {"ranking", "best"}
        Whether all three are ranked, or only the best is named.
    items : sequence, optional
        Names of the items; the model's, or 0 to n - 1, when left out.
    random_state : int
        Breaks ties among equally good questions.

    Returns
    -------
    Design

    Raises
    ------
    InputError
        `n` is below 3, `budget` below 1, or the model has another number of items.

    Examples
    --------
    >>> plan = design(5, 10)
    >>> len(plan.triples), plan.pair_information[0].tolist()  # each pair three times
    (10, [0.0, 3.0, 3.0, 3.0, 3.0])
    """
    require_whole("n", n, least=3, what="items")
    require_whole("budget", budget, least=1)
    code = _kind_code(kind)
    rng = np.random.default_rng(require_seed(random_state))
    names: Sequence[Any]
    if model is None:
        names = list(range(n)) if items is None else items
        chosen = _balanced(n, budget, rng)
        mu, squares = generic_model(min(n, LARGEST_RANK_TEST))
    else:
        mu, covariance, model_items = pilot_model(model)
        if len(mu) != n:
            raise InputError(f"n is {n}, and the model has {len(mu)} items", expected="the same number")
        names = model_items if items is None else items
        squares = squared_distances(covariance)
        chosen = _d_optimal(mu, squares, budget, code)
    if len(names) != n:
        raise InputError(f"items has {len(names)} names", expected=f"{n}")
    triples = np.array(chosen, dtype=np.int64)
    unique, counts = np.unique(triples, axis=0, return_counts=True)
    rank, log_det = -1, float("nan")
    if n <= LARGEST_RANK_TEST:
        information = gather(
            question_information(unique, mu, squares, kind=code),
            coordinates(unique, n),
            counts.astype(float),
            n + n * (n - 1) // 2,
        )
        rank, _ = spectrum(information, mu, squares)
        if model is not None and rank == rank_needed(n):
            basis = np.linalg.svd(gauge(mu, squares), full_matrices=True)[0][:, 2:]
            log_det = float(np.linalg.slogdet(basis.T @ information @ basis)[1])
    shown = np.zeros((n, n))
    for one, other in ((0, 1), (0, 2), (1, 2)):
        np.add.at(shown, (triples[:, one], triples[:, other]), 1.0)
    return Design(
        [tuple(names[item] for item in triple) for triple in triples.tolist()],
        {
            tuple(names[item] for item in triple): int(count)
            for triple, count in zip(unique.tolist(), counts, strict=True)
        },
        log_det,
        rank,
        rank_needed(n),
        shown + shown.T,
    )


def sample_size(
    model: Any,
    eps: float,
    *,
    delta: float = 0.05,
    triples: Iterable[Sequence[Hashable]] | None = None,
    kind: Question = "ranking",
) -> int:
    """How many independent answers make every parameter's interval narrow enough, by Fisher information at a pilot fit.

    The constants of the paper's Theorem 5.2 grow as gamma to the -24 and are an artefact of its proof; this is the
    number that the information says.

    Parameters
    ----------
    model : CorrelatedProbit or (mu, covariance)
        The pilot fit.
    eps : float
        Wanted half-width of the interval of every normalised mean and covariance.
    delta : float
        One minus the confidence of each interval.
    triples : iterable, optional
        The questions, asked equally often; all triples of items when left out.
    kind : {"ranking", "best"}
        Whether all three are ranked, or only the best is named.

    Returns
    -------
    int
        Answers in all, each from another person.

    Raises
    ------
    InputError
        `eps` or `delta` is out of range, or the questions don't identify the model.

    Examples
    --------
    >>> import numpy as np
    >>> sample_size(([0.0, 0.0, 0.0], np.eye(3)), 0.1) > sample_size(([0.0, 0.0, 0.0], np.eye(3)), 0.2)
    True
    """
    from scipy.stats import norm

    if not 0 < eps < math.inf:
        raise InputError(f"eps is {eps}", expected="a finite number above 0")
    if not 0 < delta < 1:
        raise InputError(f"delta is {delta}", expected="a number between 0 and 1")
    mu, covariance, items = pilot_model(model)
    n = len(mu)
    if n > LARGEST_PILOT:
        raise InputError(f"the model has {n} items", expected=f"at most {LARGEST_PILOT}")
    if triples is None:
        asked = np.array(list(combinations(range(n), 3)), dtype=np.int64)
    else:
        at = {item: index for index, item in enumerate(items)}
        listed = [tuple(triple) for triple in triples]
        if not listed or any(len(set(triple)) != 3 for triple in listed):
            raise InputError("triples holds something else than three different items", expected="at least one triple")
        try:
            asked = np.sort(np.array([[at[item] for item in triple] for triple in listed], dtype=np.int64), axis=1)
        except KeyError as error:
            raise InputError(f"unknown item {error.args[0]!r} in a triple", expected="items of the model") from None
    squares = np.maximum(squared_distances(covariance), 1e-9)
    np.fill_diagonal(squares, 0.0)
    weights = np.full(len(asked), 1.0 / len(asked))
    blocks = question_information(asked, mu, squares, kind=_kind_code(kind))
    information = gather(blocks, coordinates(asked, n), weights, n + n * (n - 1) // 2)
    rank, _ = spectrum(information, mu, squares)
    if rank < rank_needed(n):
        raise InputError(
            f"the questions have rank {rank}", expected=f"{rank_needed(n)}, at which the covariance is identified"
        )
    jacobian = normalising_jacobian(mu, squares)
    inverse = np.linalg.pinv(information, rcond=1e-12, hermitian=True)
    variance = float(((jacobian @ inverse) * jacobian).sum(axis=1).max())
    needed = (float(norm.ppf(1 - delta / 2)) / eps) ** 2 * variance if eps > TINY else math.inf
    if needed > MOST_ANSWERS:
        raise InputError(f"eps is {eps}", expected=f"intervals for which {MOST_ANSWERS:.0e} answers are enough")
    return max(1, math.ceil(needed))


def _kind_code(kind: str) -> int:
    if kind not in ("ranking", "best"):
        raise InputError(f"kind is {kind!r}", expected="'ranking' or 'best'")
    return ORDER if kind == "ranking" else BEST


def pilot_model(model: Any) -> tuple[Floats, Floats, Sequence[Any]]:
    if hasattr(model, "covariance_"):
        return model.mu_, model.covariance_, list(model.items_)
    mu, covariance = model
    return (*normalise(_array(mu), _array(covariance)), list(range(len(mu))))


def _array(values: ArrayLike) -> Floats:
    return np.asarray(values, dtype=np.float64)


def generic_model(n: int) -> tuple[Floats, Floats]:
    """A model without special positions, at which rank is what it is almost everywhere."""
    rng = np.random.default_rng(0)
    root = np.eye(n) + 0.3 * rng.standard_normal((n, n)) / np.sqrt(n)
    mu, covariance = normalise(0.5 * rng.standard_normal(n), root @ root.T)
    return mu, squared_distances(covariance)


def _balanced(n: int, budget: int, rng: np.random.Generator) -> list[tuple[int, ...]]:
    """Triples whose pairs have been shown least so far, then the triple itself, then chance."""
    shown = np.zeros((n, n), dtype=np.int64)
    chosen: list[tuple[int, ...]] = []
    if math.comb(n, 3) <= 20_000:
        triples = np.array(list(combinations(range(n), 3)), dtype=np.int64)
        i, j, k = triples.T
        asked = np.zeros(len(triples), dtype=np.int64)
        # Every triple once shows all pairs equally often; only the rest needs a choice.
        chosen = [tuple(triple) for triple in triples.tolist()] * (budget // len(triples))
        for _ in range(budget % len(triples)):
            # The rise of the sum of squared counts: pairs that are behind come first.
            cost = shown[i, j] + shown[i, k] + shown[j, k] + 1e-3 * asked + 1e-6 * rng.random(len(triples))
            best = int(cost.argmin())
            asked[best] += 1
            a, b, c = triples[best].tolist()
            for one, other in ((a, b), (a, c), (b, c)):
                shown[one, other] += 1
                shown[other, one] += 1
            chosen.append((a, b, c))
        return chosen
    first, second = np.triu_indices(n, 1)
    while True:
        # Round by round: the pairs that are behind, in random order, each with the third item that is most behind.
        level = int(shown[first, second].min())
        behind = np.flatnonzero(shown[first, second] == level)
        for pair in rng.permutation(behind).tolist():
            a, b = int(first[pair]), int(second[pair])
            if shown[a, b] > level:
                continue
            third = shown[a] + shown[b] + rng.random(n)
            third[[a, b]] = np.inf
            c = int(third.argmin())
            for one, other in ((a, b), (a, c), (b, c)):
                shown[one, other] += 1
                shown[other, one] += 1
            chosen.append(tuple(sorted((a, b, c))))
            if len(chosen) == budget:
                return chosen


def _d_optimal(mu: Floats, squares: Floats, budget: int, kind: int) -> list[tuple[int, ...]]:
    """Greedy by the matrix determinant lemma: det(M + U U') = det(M) det(I + U' M^-1 U)."""
    n = len(mu)
    if math.comb(n, 3) > 20_000:
        raise InputError(
            f"a D-optimal design of {n} items weighs {math.comb(n, 3)} triples at every step",
            expected="at most 50 items, or no model",
        )
    triples = np.array(list(combinations(range(n), 3)), dtype=np.int64)
    floored = np.maximum(squares, 1e-9)
    blocks = question_information(triples, mu, floored, kind=kind)
    places = coordinates(triples, n)
    values, vectors = np.linalg.eigh(blocks)
    roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    inverse = np.eye(n + n * (n - 1) // 2) / PRIOR
    chosen = []
    for _ in range(budget):
        local = inverse[places[:, :, None], places[:, None, :]]
        gain = np.linalg.slogdet(np.eye(6) + np.einsum("qia,qij,qjb->qab", roots, local, roots))[1]
        best = int(gain.argmax())
        root, place = roots[best], places[best]
        wide = inverse[:, place] @ root
        small = np.eye(6) + root.T @ inverse[np.ix_(place, place)] @ root
        inverse = inverse - wide @ np.linalg.solve(small, wide.T)
        chosen.append(tuple(triples[best].tolist()))
    return chosen
