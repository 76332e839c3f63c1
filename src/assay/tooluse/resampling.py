"""Intervals and tests for scores that come in clusters, and pass rates over repeated trials."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Estimate", "cluster_bootstrap", "mcnemar", "paired_difference", "pass_at_k", "pass_hat_k"]

RESAMPLES = 2000
CONFIDENCE = 0.95
BLOCK = 4_000_000
"""Weights held at once while resampling: 32 MB."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its 95 % interval.

    Attributes
    ----------
    mean, low, high : float
        NaN where there is no value.
    n, clusters : int
        Values, and independent groups of them.
    """

    mean: float
    low: float
    high: float
    n: int
    clusters: int


def cluster_bootstrap(
    values: Sequence[float] | NDArray[Any],
    clusters: Sequence[Any] | NDArray[Any] | None = None,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """The mean with a percentile bootstrap interval that resamples whole clusters.

    Parameters
    ----------
    values : sequence of float
        Scores; NaN is left out.
    clusters : sequence, optional
        Which values belong together (twins, trials of one task); by default each stands alone.
    resamples : int
        Bootstrap samples.
    seed : int
        Of the resampling.

    Returns
    -------
    Estimate

    Examples
    --------
    >>> cluster_bootstrap([1.0, 0.0, 1.0, 1.0]).mean
    0.75
    """
    found = np.asarray(values, dtype=np.float64)
    labels = np.arange(len(found)) if clusters is None else np.asarray(clusters)
    kept = ~np.isnan(found)
    found, labels = found[kept], labels[kept]
    if not len(found):
        return Estimate(math.nan, math.nan, math.nan, 0, 0)
    _, member = np.unique(labels, return_inverse=True)
    count = int(member.max()) + 1
    sums = np.asarray(np.bincount(member, weights=found), dtype=np.float64)
    sizes = np.bincount(member).astype(np.float64)
    if sums.min() == sums.max() and sizes.min() == sizes.max():
        mean = float(sums[0] / sizes[0])
        return Estimate(mean, mean, mean, len(found), count)
    means = _resampled_means(sums, sizes, resamples=resamples, seed=seed)
    low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Estimate(float(found.mean()), float(low), float(high), len(found), count)


def _resampled_means(
    sums: NDArray[np.float64], sizes: NDArray[np.float64], *, resamples: int, seed: int
) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    count = len(sums)
    block = max(1, BLOCK // count)
    means = []
    for start in range(0, resamples, block):
        drawn = rng.integers(count, size=(min(block, resamples - start), count))
        means.append(sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1))
    return np.concatenate(means)


def paired_difference(
    first: Sequence[float],
    second: Sequence[float],
    clusters: Sequence[Any] | None = None,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """The mean of ``first - second`` over pairs, with its clustered interval.

    Parameters
    ----------
    first, second : sequence of float
        Scores of the same tasks in the same order; a pair with NaN is left out.
    clusters : sequence, optional
        As for `cluster_bootstrap`.
    resamples, seed : int
        As for `cluster_bootstrap`.

    Returns
    -------
    Estimate

    Examples
    --------
    >>> paired_difference([1.0, 1.0, 0.0], [0.0, 1.0, 0.0]).mean
    0.3333333333333333
    """
    difference = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    return cluster_bootstrap(difference, clusters, resamples=resamples, seed=seed)


def mcnemar(first: Sequence[bool], second: Sequence[bool]) -> float:
    """The exact two-sided p-value of McNemar's test: do two agents solve the same tasks equally often?

    Parameters
    ----------
    first, second : sequence of bool
        Whether each task was solved, in the same order.

    Returns
    -------
    float

    Examples
    --------
    >>> mcnemar([True] * 6 + [False], [False] * 6 + [False])
    0.03125
    """
    from scipy.stats import binomtest

    only_first = sum(bool(a) and not b for a, b in zip(first, second, strict=True))
    only_second = sum(bool(b) and not a for a, b in zip(first, second, strict=True))
    discordant = only_first + only_second
    return float(binomtest(only_first, discordant, 0.5).pvalue) if discordant else 1.0


def pass_at_k(n: int, c: int, k: int) -> float:
    """The chance that at least one of k trials succeeds, unbiased from c successes in n: 1 - C(n-c, k) / C(n, k).

    Parameters
    ----------
    n, c, k : int
        Trials, successes among them, and how many are looked at.

    Returns
    -------
    float

    Raises
    ------
    InputError
        k isn't from 1 to n.

    Examples
    --------
    >>> pass_at_k(4, 1, 2)
    0.5
    """
    _require_k(n, k)
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def pass_hat_k(n: int, c: int, k: int) -> float:
    """The chance that all of k trials succeed, unbiased from c successes in n: C(c, k) / C(n, k).

    Parameters
    ----------
    n, c, k : int
        Trials, successes among them, and how many are looked at.

    Returns
    -------
    float

    Raises
    ------
    InputError
        k isn't from 1 to n.

    Examples
    --------
    >>> pass_hat_k(4, 2, 2)
    0.16666666666666666
    """
    _require_k(n, k)
    return math.comb(c, k) / math.comb(n, k)


def _require_k(n: int, k: int) -> None:
    from assay.core.errors import InputError

    if not 1 <= k <= n:
        raise InputError(f"k is {k} with {n} trials", expected=f"from 1 to {n}")
