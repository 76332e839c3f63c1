"""Other people's models of choices, fitted to the same answers: a mixed logit, and R's Bayesian probits.

Mixed logit has random constants under Gumbel noise, which `xlogit` draws independently; rankings are taken apart into
choices, of the best, then of the best of the rest (the "exploded" logit), which share their person's constants. R's
packages ``MNP`` and ``bayesm`` sample the posterior of a multinomial probit; they run in a process of their own and
only where they are installed.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.core.errors import AssayError, MissingPackageError
from assay.probit.baselines import Query
from assay.probit.choices import BEST, ORDER, ChoiceData
from assay.probit.geometry import normalise

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

__all__ = ["bayesm", "lacking_r", "mixed_logit", "mnp", "pooled", "predict_by_constants"]

DRAWS = 100
"""Halton draws of the random constants in a fit."""

PREDICTION_DRAWS = 4000
MNP_DRAWS, MNP_BURN_IN = 10_000, 2_000
BAYESM_DRAWS, BAYESM_BURN_IN = 10_000, 2_000
R_SECONDS = 200.0

_MNP = """
suppressMessages(library(MNP))
arguments <- commandArgs(trailingOnly = TRUE)
set.seed(as.integer(arguments[3]))
ratings <- as.matrix(read.csv(arguments[1]))
fit <- mnp(ratings ~ 1, n.draws = DRAWS + BURN, burnin = BURN, verbose = FALSE)
write.csv(fit$param, arguments[2], row.names = FALSE)
"""

_BAYESM = """
suppressMessages(library(bayesm))
arguments <- commandArgs(trailingOnly = TRUE)
set.seed(as.integer(arguments[3]))
chosen <- read.csv(arguments[1])
p <- chosen$p[1]
x <- matrix(rep(t(diag(p - 1)), nrow(chosen)), ncol = p - 1, byrow = TRUE)
sink("/dev/null")
fit <- rmnpGibbs(Data = list(p = p, y = chosen$y, X = x), Mcmc = list(R = DRAWS + BURN, keep = 2, nprint = 0))
sink()
kept <- seq(BURN / 2 + 1, nrow(fit$betadraw))
write.csv(cbind(fit$betadraw[kept, ], fit$sigmadraw[kept, ]), arguments[2], row.names = FALSE)
"""


@cache
def lacking_r(package: str) -> str:
    """What is missing, in words, where R or one of its packages isn't here; else empty."""
    program = shutil.which("Rscript")
    if program is not None:
        found = subprocess.run(
            [program, "-e", f"quit(status = !requireNamespace('{package}', quietly = TRUE))"], capture_output=True
        )
        if found.returncode == 0:
            return ""
    return f"R package {package}"


def _run_r(program: str, package: str, table: Floats, names: Sequence[str], *, seed: int) -> Floats:
    """Run an R program that reads a table and writes draws, one a row."""
    missing = lacking_r(package)
    if missing:
        raise MissingPackageError(package, what="R's posterior")
    with tempfile.TemporaryDirectory() as folder:
        source, given, drawn = (Path(folder, name) for name in ("fit.R", "given.csv", "drawn.csv"))
        source.write_text(program, encoding="utf-8")
        np.savetxt(given, table, delimiter=",", header=",".join(names), comments="")
        ended = subprocess.run(
            ["Rscript", "--vanilla", source, given, drawn, str(seed + 1)],
            capture_output=True,
            text=True,
            timeout=R_SECONDS,
        )
        if ended.returncode:
            raise AssayError(f"R's {package} failed: {' '.join(ended.stderr.split())[-300:]}")
        return np.loadtxt(drawn, delimiter=",", skiprows=1, ndmin=2)


def mnp(ratings: Floats, *, seed: int) -> tuple[Floats, Floats]:
    """Draws from the posterior of R's MNP (Imai and van Dyk 2005) on ratings of all items, ties allowed.

    Parameters
    ----------
    ratings : ndarray of float64, shape (people, n)
        Higher is better. The last item is the base.
    seed : int
        R's seed.

    Returns
    -------
    means : ndarray of float64, shape (draws, n - 1)
        Of utilities above the base's.
    covariances : ndarray of float64, shape (draws, n - 1, n - 1)
        With trace n - 1.
    """
    p = ratings.shape[1] - 1
    program = _MNP.replace("DRAWS", str(MNP_DRAWS)).replace("BURN", str(MNP_BURN_IN))
    drawn = _run_r(program, "MNP", ratings, [f"item{item}" for item in range(p + 1)], seed=seed)
    covariances = np.empty((len(drawn), p, p))
    first, second = np.triu_indices(p)
    covariances[:, first, second] = covariances[:, second, first] = drawn[:, p:]
    return drawn[:, :p], covariances


def bayesm(ratings: Floats, *, seed: int) -> tuple[Floats, Floats]:
    """Draws from the posterior of R's bayesm (McCulloch and Rossi 1994), which takes the best item alone.

    Parameters
    ----------
    ratings, seed
        As for `mnp`; people whose best item is tied are left out.

    Returns
    -------
    means, covariances
        As for `mnp`, in the sampler's own unidentified scale: `pooled` normalises them.
    """
    p = ratings.shape[1]
    untied = (ratings == ratings.max(axis=1, keepdims=True)).sum(axis=1) == 1
    table = np.column_stack([ratings[untied].argmax(axis=1) + 1.0, np.full(int(untied.sum()), float(p))])
    program = _BAYESM.replace("DRAWS", str(BAYESM_DRAWS)).replace("BURN", str(BAYESM_BURN_IN))
    drawn = _run_r(program, "bayesm", table, ["y", "p"], seed=seed)
    return drawn[:, : p - 1], drawn[:, p - 1 :].reshape(-1, p - 1, p - 1)


def pooled(means: Floats, covariances: Floats) -> tuple[Floats, Floats]:
    """Posterior means of the normalised model, from draws of differences to the last item."""
    n = means.shape[1] + 1
    total_mu, total = np.zeros(n), np.zeros((n, n))
    thin = max(1, len(means) // 1000)
    for mean, covariance in zip(means[::thin], covariances[::thin], strict=True):
        wide = np.zeros((n, n))
        wide[:-1, :-1] = (covariance + covariance.T) / 2
        mu, sigma = normalise(np.r_[mean, 0.0], wide)
        total_mu += mu
        total += sigma
    return normalise(total_mu / len(means[::thin]), total / len(means[::thin]))


def exploded(data: ChoiceData) -> tuple[Ints, Ints]:
    """Answers taken apart into choices.

    Returns
    -------
    shown : ndarray of int64, shape (choices, 3)
        The items of each choice, the chosen first; -1 where only two were left.
    people : ndarray of int64, shape (choices,)
        Whose choice it was.

    Notes
    -----
    Answers in which the best two are tied aren't choices and are left out.
    """
    order, best = data.kinds == ORDER, data.kinds == BEST
    first = data.triples[order | best]
    second = np.column_stack([data.triples[order][:, 1:], np.full(int(order.sum()), -1)])
    pairs = np.column_stack([data.pairs, np.full(len(data.pairs), -1)])
    shown = np.concatenate([first, second, pairs])
    people = np.concatenate([data.triple_users[order | best], data.triple_users[order], data.pair_users])
    return shown, people


def _long_table(data: ChoiceData) -> tuple[Floats, Ints, Ints, Ints, Ints]:
    """Choices in long form, grouped by person: design of constants, chosen, choice, person, whether it was shown."""
    shown, people = exploded(data)
    grouped = np.argsort(people, kind="stable")
    shown, people = shown[grouped], people[grouped]
    n = data.n_items
    design = np.zeros((len(shown), 3, n))
    rows, places = np.nonzero(shown >= 0)
    design[rows, places, shown[rows, places]] = 1.0
    chosen = np.tile([1, 0, 0], (len(shown), 1))
    return (
        design.reshape(-1, n)[:, :-1],
        chosen.ravel(),
        np.repeat(np.arange(len(shown)), 3),
        np.repeat(people, 3),
        (shown >= 0).astype(np.int64).ravel(),
    )


def mixed_logit(data: ChoiceData, *, seed: int) -> tuple[Floats, Floats]:
    """Independent normal constants under Gumbel noise, by simulated likelihood (package xlogit).

    Parameters
    ----------
    data : ChoiceData
        The answers.
    seed : int
        Of the draws.

    Returns
    -------
    mean : ndarray of float64, shape (n,)
    covariance : ndarray of float64, shape (n, n)
        Of the constants; the last item's is 0.
    """
    try:
        from xlogit import MixedLogit
    except ImportError as error:
        raise MissingPackageError("xlogit", what="the mixed logit", extra="xlogit") from error
    design, chosen, choice, person, available = _long_table(data)
    names = [f"item{item}" for item in range(design.shape[1])]
    model = MixedLogit()
    model.fit(
        design,
        chosen,
        names,
        np.tile([0, 1, 2], len(design) // 3),
        choice,
        randvars=dict.fromkeys(names, "n"),
        panels=person,
        avail=available,
        n_draws=DRAWS,
        random_state=seed,
        skip_std_errs=True,
        verbose=0,
    )
    p = len(names)
    return np.r_[model.coeff_[:p], 0.0], np.diag(np.r_[model.coeff_[p:] ** 2, 0.0])


def predict_by_constants(mean: Floats, covariance: Floats, queries: Sequence[Query], *, seed: int) -> Floats:
    """P(a over b | context) of a mixed logit: drawn people are weighted by how likely their context order is.

    Parameters
    ----------
    mean, covariance : ndarray of float64
        Of the constants.
    queries : sequence of Query
        What is asked. A tie in a context is the choice of any of the tied.
    seed : int
        Of the draws.

    Returns
    -------
    ndarray of float64, shape (queries,)
    """
    values, vectors = np.linalg.eigh(covariance)
    noise = np.random.default_rng(seed).standard_normal((PREDICTION_DRAWS, len(mean)))
    people = mean + noise @ (vectors * np.sqrt(np.maximum(values, 0.0))).T
    known: dict[Query, float] = {}
    for query in dict.fromkeys(queries):
        log_weight = np.zeros(len(people))
        for place, group in enumerate(query.context[:-1]):
            rest = [item for later in query.context[place:] for item in later]
            log_weight += _log_sum(people[:, group]) - _log_sum(people[:, rest])
        weight = np.exp(log_weight - log_weight.max())
        share = 1.0 / (1.0 + np.exp(people[:, query.b] - people[:, query.a]))
        known[query] = float(weight @ share / weight.sum())
    return np.array([known[query] for query in queries])


def _log_sum(values: Any) -> Floats:
    top = values.max(axis=1)
    return np.asarray(top + np.log(np.exp(values - top[:, None]).sum(axis=1)))
