"""Maximum likelihood: the independent model, a free or factor covariance, and means and tastes from item features.

Utilities are X = M beta + M L z + sqrt(psi) e with z and e standard normal; M is the matrix of item features, or the
identity. S_ij = |M_i L - M_j L|^2 + 2 psi depends on differences only, so centring needs no work. A free covariance
has n - 1 columns in L and psi of `FLOOR`; its scale is free, and a weak penalty pins it. A factor model has psi = 1,
which fixes the scale.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from threadpoolctl import threadpool_limits

from assay.core.errors import InputError
from assay.probit._likelihood import Objective
from assay.probit.geometry import centring, normalised
from assay.probit.moments import Moments, moments_of, table_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from assay.probit.choices import Distinct

    Floats = NDArray[np.float64]

__all__ = ["Fit", "Settings", "fit_covariance", "fit_independent", "start_from"]

SCALE_PENALTY = 1e-6
HISTORY = 20
BATCH_FROM = 1_000_000
"""Distinct events from which ``optimizer="auto"`` takes mini-batches."""

BATCH = 32_768
ADAM_STEPS = 1500
ADAM_RATE = 0.02
LEAST_SHARE = 0.02
"""Eigenvalues of a start are at least this share of their mean: a column of zeros would stay zero for ever."""


@dataclass(frozen=True)
class Settings:
    """How the likelihood is maximised.

    Attributes
    ----------
    rank : int
        Columns of L.
    psi : float
        Variance of the part of its own that each utility has.
    ridge : float
        Weight of |Sigma - J|^2 / n, on the normalised covariance.
    mean_ridge : float
        Weight of |mu|^2 / n, on the normalised means.
    tol : float
        Tolerance on the gradient of the mean log-likelihood.
    max_iter : int
        Most iterations.
    threads : int
        Threads.
    told : callable, optional
        Is called with a line about every evaluation.
    optimizer : {"auto", "lbfgs", "adam"}
        L-BFGS on all distinct events, or Adam on mini-batches.
    """

    rank: int
    psi: float
    ridge: float = 0.0
    mean_ridge: float = 0.0
    tol: float = 1e-7
    max_iter: int = 300
    threads: int = 1
    told: Callable[[str], None] | None = None
    optimizer: Literal["auto", "lbfgs", "adam"] = "auto"


@dataclass(frozen=True)
class Fit:
    """A maximum of the likelihood.

    Attributes
    ----------
    mu, covariance : ndarray of float64
        Normalised.
    beta : ndarray of float64, shape (d,)
        Effects of the features on the mean; the means themselves without features.
    loadings : ndarray of float64, shape (d, r)
        L.
    psi : float
        As given.
    loglik : float
        Mean log-likelihood without penalties.
    n_iter : int
        Iterations.
    converged : bool
        Whether the tolerance was reached.
    """

    mu: Floats
    covariance: Floats
    beta: Floats
    loadings: Floats
    psi: float
    loglik: float
    n_iter: int
    converged: bool


def fit_independent(
    distinct: Distinct, n: int, *, mean_ridge: float = 0.0, threads: int = 1, max_iter: int = 300
) -> Floats:
    """Normalised means when utilities are independent with equal variances: a concave problem.

    Parameters
    ----------
    distinct : Distinct
        The events.
    n : int
        How many items.
    mean_ridge : float
        Weight of |mu|^2 / n.
    threads, max_iter : int
        As in `Settings`.

    Returns
    -------
    ndarray of float64, shape (n,)
    """
    from scipy.optimize import minimize

    objective = Objective(distinct, n, threads)
    squares = independent_squares(n)

    def loss(mu: Floats) -> tuple[float, Floats]:
        value, d_mu, _ = objective(mu, squares)
        return -value + mean_ridge * float(mu @ mu) / n, -d_mu + 2 * mean_ridge * mu / n

    options = {"maxiter": max_iter, "maxcor": HISTORY, "gtol": 1e-8, "ftol": 1e-13}
    with threadpool_limits(1, user_api="blas"):
        found = minimize(loss, np.zeros(n), jac=True, method="L-BFGS-B", options=options)
    return np.asarray(found.x - found.x.mean())


def independent_squares(n: int) -> Floats:
    """Variances of differences when the normalised covariance is a multiple of J."""
    squares = np.full((n, n), 2.0 * n / (n - 1))
    np.fill_diagonal(squares, 0.0)
    return squares


def start_from(distinct: Distinct, n: int, *, smoothing: float = 0.5) -> Moments:
    """Moments as a start: pairs that no triple shows get the mean distance, pairs of a best-of-three an "
    "independent fit.
    """
    table = table_of(distinct, n)
    alphas = None
    if (table.orders.sum(axis=1) == 0).any():
        mu = fit_independent(distinct, n, max_iter=50)
        alphas = (mu[:, None] - mu[None, :]) / np.sqrt(np.where(np.eye(n) > 0, 1.0, independent_squares(n)))
    return moments_of(table, n, smoothing=smoothing, alphas=alphas, fill=True)


def squares_of(loadings: Floats, psi: float) -> Floats:
    """S_ij = |A_i - A_j|^2 + 2 psi."""
    products = loadings @ loadings.T
    diagonal = np.diag(products)
    squares = np.maximum(diagonal[:, None] + diagonal[None, :] - 2 * products, 0.0) + 2 * psi
    np.fill_diagonal(squares, 0.0)
    return squares


def initial(
    start: Moments, settings: Settings, features: Floats | None, *, noise: np.random.Generator | None
) -> tuple[Floats, Floats]:
    """The first beta and L: from moments, or I + 0.3 noise with a generator."""
    n = len(start.mu)
    rank = settings.rank
    if noise is not None:
        target = np.eye(n)[:, : min(rank, n)] - 1.0 / n
        target = np.pad(target, ((0, 0), (0, max(0, rank - n)))) + 0.3 * noise.standard_normal((n, rank))
        scale = 1.0 if settings.psi < 0.5 else np.sqrt(settings.psi)
    else:
        values, vectors = np.linalg.eigh(start.covariance)
        values, vectors = values[::-1][:rank], vectors[:, ::-1][:, :rank]
        rest = n - float(values.sum())
        if settings.psi < 0.5:
            scale = 1.0
            target = vectors * np.sqrt(np.maximum(values, LEAST_SHARE * n / rank))
        else:
            own = max(rest / max(n - 1 - rank, 1), 0.05)
            scale = np.sqrt(settings.psi / own)
            target = vectors * np.sqrt(np.maximum(values / own - 1.0, 0.1) * settings.psi)
        if target.shape[1] < rank:
            target = np.pad(target, ((0, 0), (0, rank - target.shape[1])))
    mu = start.mu * scale
    if features is None:
        return mu, target
    return (
        np.asarray(np.linalg.lstsq(features, mu, rcond=None)[0]),
        np.asarray(np.linalg.lstsq(features, target, rcond=None)[0])
        + 1e-2 * np.random.default_rng(0).standard_normal((features.shape[1], rank)),
    )


def fit_covariance(
    distinct: Distinct,
    n: int,
    settings: Settings,
    *,
    start: Moments,
    features: Floats | None = None,
    noise: np.random.Generator | None = None,
    extra: Callable[[Floats, Floats], tuple[float, Floats, Floats]] | None = None,
    extra_weight: float = 0.0,
) -> Fit:
    """Maximise the likelihood over means and covariance.

    Parameters
    ----------
    distinct : Distinct
        The events.
    n : int
        How many items.
    settings : Settings
        How.
    start : Moments
        Where to start.
    features : ndarray of float64, shape (n, d), optional
        M; the identity when left out.
    noise : numpy.random.Generator, optional
        Start from noise instead of from the moments.
    extra : callable, optional
        Another log-likelihood, of (mu, A) with A = M L, that returns its sum and its gradients: exact long rankings.
    extra_weight : float
        How many answers `extra` sums over.

    Returns
    -------
    Fit

    Raises
    ------
    InputError
        The likelihood isn't finite at the start.
    """
    objective = Objective(distinct, n, settings.threads) if distinct.total > 0 else None
    d = n if features is None else features.shape[1]
    rank = settings.rank
    weight = distinct.total + extra_weight
    j = centring(n)

    def unpack(x: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        beta, loadings = x[:d], x[d:].reshape(d, rank)
        return (
            (beta, loadings, beta, loadings)
            if features is None
            else (beta, loadings, features @ beta, features @ loadings)
        )

    evaluations = 0

    def loss(x: Floats, part: Objective | None = None) -> tuple[float, Floats]:
        nonlocal evaluations
        _, _, mu, a = unpack(x)
        squares = squares_of(a, settings.psi)
        value, d_mu, d_squares, d_a = 0.0, np.zeros(n), np.zeros((n, n)), np.zeros_like(a)
        judge = part or objective
        if judge is not None:
            share = judge.total / weight if part is None else 1.0
            one, one_mu, one_squares = judge(mu, squares)
            value, d_mu, d_squares = share * one, share * one_mu, share * one_squares
        if extra is not None:
            one, one_mu, one_a = extra(mu, a)
            value, d_mu, d_a = value + one / weight, d_mu + one_mu / weight, one_a / weight
        value, d_mu, d_squares = -value, -d_mu, -d_squares
        d_a = -d_a
        trace = float(squares.sum()) / (2 * n)
        if settings.psi < 0.5:
            gap = trace / n - 1
            value += SCALE_PENALTY * gap**2
            d_squares += SCALE_PENALTY * 2 * gap / n**2
        if settings.ridge:
            covariance = -0.5 * j @ squares @ j
            scaled = covariance * n / trace - j
            value += settings.ridge * float((scaled**2).sum()) / n
            pull = (
                2
                * settings.ridge
                / n
                * (n / trace * scaled - n / trace**2 * float((scaled * covariance).sum()) * np.eye(n))
            )
            pulled = -0.5 * j @ pull @ j
            d_squares += pulled + pulled.T
        if settings.mean_ridge:
            centred = mu - mu.mean()
            size = settings.mean_ridge / trace
            value += size * float(centred @ centred)
            d_mu = d_mu + 2 * size * centred
            d_squares -= size * float(centred @ centred) / trace / n
        np.fill_diagonal(d_squares, 0.0)
        d_a = d_a + 2 * (d_squares.sum(axis=1)[:, None] * a - d_squares @ a)
        if features is not None:
            d_mu, d_a = features.T @ d_mu, features.T @ d_a
        evaluations += 1
        if settings.told is not None:
            settings.told(f"{rank} directions, evaluation {evaluations}: log-likelihood {-value:.5f} an event")
        return value, np.concatenate([d_mu, d_a.ravel()])

    beta, loadings = initial(start, settings, features, noise=noise)
    x = np.concatenate([beta, loadings.ravel()])
    if not np.isfinite(loss(x)[0]):
        raise InputError("the likelihood isn't finite at the start", expected="finite data")
    batches = settings.optimizer == "adam" or (
        settings.optimizer == "auto" and len(distinct.triples) > BATCH_FROM and extra is None
    )
    if batches and objective is not None:
        x, steps = _adam(loss, x, objective, seed=0)
        n_iter, converged = steps, True
    else:
        x, n_iter, converged = _lbfgs(loss, x, settings)
    beta, loadings, mu, a = unpack(x)
    squares = squares_of(a, settings.psi)
    value = 0.0
    if objective is not None:
        value += objective(mu, squares)[0] * objective.total
    if extra is not None:
        value += extra(mu, a)[0]
    mu_n, covariance = normalised(mu, a @ a.T + settings.psi * np.eye(n))
    return Fit(mu_n, covariance, beta, loadings, settings.psi, value / weight, n_iter, converged)


def _lbfgs(loss: Callable[[Floats], tuple[float, Floats]], x: Floats, settings: Settings) -> tuple[Floats, int, bool]:
    from scipy.optimize import minimize

    options = {
        "maxiter": settings.max_iter,
        "maxcor": HISTORY,
        "gtol": settings.tol,
        "ftol": settings.tol * 1e-3,
        "maxfun": 4 * settings.max_iter,
    }
    # The optimiser's own matrices are tiny: threads of BLAS cost them more than they save.
    with threadpool_limits(1, user_api="blas"):
        found: Any = minimize(loss, x, jac=True, method="L-BFGS-B", options=options)
    return np.asarray(found.x), int(found.nit), bool(found.success)


def _adam(
    loss: Callable[..., tuple[float, Floats]], x: Floats, objective: Objective, *, seed: int
) -> tuple[Floats, int]:
    """Adam (Kingma and Ba 2015) on mini-batches, its rate falling to zero as half a cosine."""
    rng = np.random.default_rng(seed)
    first, second = np.zeros_like(x), np.zeros_like(x)
    for step in range(1, ADAM_STEPS + 1):
        _, gradient = loss(x, objective.sample(BATCH, rng=rng))
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        rate = ADAM_RATE * 0.5 * (1 + np.cos(np.pi * step / ADAM_STEPS))
        x = x - rate * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
    return x, ADAM_STEPS


def start_of(mu: Floats, covariance: Floats) -> Moments:
    """A start from a model that is known already."""
    return Moments(mu, covariance, 0.0, 0, 0.0)
