"""What choices can't tell: two models with equal pair probabilities (Theorem 3.2), and the rank of what was asked.

For any smooth increasing g near the identity, mu' = g(mu) and s'_ij = s_ij (mu'_i - mu'_j) / (mu_i - mu_j) leave
every alpha_ij, and so every pair probability, as it was. With g(m) = m + delta m^2 the distances are s_ij (1 + delta
(mu_i + mu_j)), and -1/2 J [s'^2] J is a covariance when it has no negative eigenvalue, which it hasn't for small
delta when Sigma has rank n - 1.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.core.errors import InputError
from assay.probit._likelihood import triple_outcomes
from assay.probit.choices import ORDER, ChoiceData, require_choices, shown
from assay.probit.geometry import centring, normalise, normalised, squared_distances
from assay.probit.information import LARGEST_RANK_TEST, fisher, rank_needed, spectrum

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

__all__ = ["Identifiability", "PairWitness", "identifiability", "pair_witness"]

DELTA = 0.3
HALVINGS = 60
THIN = 10
"""A pair that fewer answers showed is called thin."""


@dataclass(frozen=True)
class PairWitness:
    """Two models that pairs can't tell apart.

    Attributes
    ----------
    mu, covariance : ndarray of float64
        The first, normalised.
    other_mu, other_covariance : ndarray of float64
        The second, normalised.
    pair_gap : float
        The largest difference of a pair probability.
    triple : tuple
        The order of three items on which they disagree most.
    probability, other_probability : float
        What each gives to that order.
    delta : float
        The step that was taken.
    """

    mu: Floats
    covariance: Floats
    other_mu: Floats
    other_covariance: Floats
    pair_gap: float
    triple: tuple[Hashable, ...]
    probability: float
    other_probability: float
    delta: float

    @property
    def triple_gap(self) -> float:
        """How much the two models differ on `triple`."""
        return abs(self.probability - self.other_probability)

    def sentence(self) -> str:
        """The witness in one line."""
        return (
            f"two models agree on all pairs to {self.pair_gap:.0e} and give {'>'.join(map(str, self.triple))} the "
            "probabilities "
            f"{self.probability:.3f} and {self.other_probability:.3f}"
        )


@dataclass(frozen=True)
class Identifiability:
    """What some choices identify.

    Attributes
    ----------
    identified : bool
        Whether means and covariance are.
    means_identified : bool
        Whether the means of an independent model are.
    rank, needed : int
        Rank of the information of the questions, and the rank at which all is identified; the rank is -1 where it is
        too large to compute and overlaps were looked at instead.
    reasons : tuple of str
        Why not, one line each.
    free_directions : tuple of str
        What could change without any answer becoming more or less likely; at most ten.
    thin_pairs : tuple of tuple
        Pairs that fewer than ten answers showed, with their number, the thinnest first.
    witness : PairWitness or None
        For pairs alone: two models that explain them equally well.
    """

    identified: bool
    means_identified: bool
    rank: int
    needed: int
    reasons: tuple[str, ...]
    free_directions: tuple[str, ...]
    thin_pairs: tuple[tuple[Hashable, Hashable, int], ...]
    witness: PairWitness | None

    def __bool__(self) -> bool:
        return self.identified


def pair_witness(
    mu: ArrayLike, covariance: ArrayLike, *, delta: float = DELTA, items: tuple[Hashable, ...] | None = None
) -> PairWitness:
    """Another model with the same pair probabilities as this one (Theorem 3.2).

    Parameters
    ----------
    mu : array_like, shape (n,)
        Means.
    covariance : array_like, shape (n, n)
        A covariance whose rank is n - 1 after centring, or any where all means are equal.
    delta : float
        The step; halved until the second covariance is one.
    items : tuple, optional
        Names for the triple on which they disagree.

    Returns
    -------
    PairWitness

    Raises
    ------
    InputError
        There are fewer than three items, or no step gives a covariance.

    Examples
    --------
    >>> import numpy as np
    >>> witness = pair_witness([1.0, 0.0, -1.0], np.eye(3))
    >>> witness.pair_gap < 1e-12, witness.triple_gap > 1e-4
    (True, True)
    """
    mean, matrix = normalise(mu, covariance)
    n = len(mean)
    if n < 3:
        raise InputError(f"{n} items", expected="at least 3")
    names = tuple(range(n)) if items is None else items
    squares = squared_distances(matrix)
    j = centring(n)
    if float(np.abs(mean).max()) < 1e-9:
        # All pairs are even, whatever the covariance.
        stretched = np.diag(np.sqrt(np.linspace(0.5, 1.5, n)))
        return _compared(
            mean,
            matrix,
            *normalised(mean, stretched @ matrix @ stretched + 0.1 * np.diag(np.linspace(0, 1, n))),
            names,
            0.0,
        )
    for _ in range(HALVINGS):
        stretch = 1 + delta * (mean[:, None] + mean[None, :])
        other = -0.5 * j @ (squares * stretch**2) @ j
        values = np.linalg.eigvalsh((other + other.T) / 2)
        off = ~np.eye(n, dtype=bool)
        if (stretch[off] > 0).all() and values[0] >= -1e-14 * values[-1]:
            moved = mean + delta * mean**2
            return _compared(mean, matrix, *normalised(moved, other), names, delta)
        delta /= 2
    raise InputError("no second covariance was found", expected="a covariance of rank n - 1 after centring")


def _compared(
    mu: Floats,
    covariance: Floats,
    other_mu: Floats,
    other_covariance: Floats,
    names: tuple[Hashable, ...],
    delta: float,
) -> PairWitness:
    from scipy.special import ndtr

    n = len(mu)
    first, second = np.triu_indices(n, 1)
    pairs, tables = [], []
    triples = np.array(list(combinations(range(n), 3)), dtype=np.int64)
    i, j, k = triples.T
    for mean, matrix in ((mu, covariance), (other_mu, other_covariance)):
        squares = squared_distances(matrix)
        pairs.append(ndtr((mean[first] - mean[second]) / np.sqrt(squares[first, second])))
        p, _ = triple_outcomes(ORDER, mean[triples], np.column_stack([squares[i, j], squares[i, k], squares[j, k]]))
        tables.append(p)
    gaps = np.abs(tables[0] - tables[1])
    row, column = np.unravel_index(gaps.argmax(), gaps.shape)
    order = ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))[int(column)]
    return PairWitness(
        mu,
        covariance,
        other_mu,
        other_covariance,
        float(np.abs(pairs[0] - pairs[1]).max()),
        tuple(names[int(triples[row, place])] for place in order),
        float(tables[0][row, column]),
        float(tables[1][row, column]),
        delta,
    )


def identifiability(data: ChoiceData) -> Identifiability:
    """Say what choices identify, and show it.

    The rank of the Fisher information of the questions is taken at a model without special positions. For pairs alone
    a witness is built from the independent model that fits them: another model, with a covariance, that fits them as
    well.

    Parameters
    ----------
    data : ChoiceData
        The choices.

    Returns
    -------
    Identifiability

    Examples
    --------
    >>> found = identifiability(ChoiceData.from_pairs([("a", "b"), ("b", "c"), ("c", "a"), ("b", "a")]))
    >>> found.identified, found.means_identified, found.witness.pair_gap < 1e-12
    (False, True, True)
    """
    require_choices(data)
    counts = data.pair_counts()
    n = data.n_items
    reasons: list[str] = []
    never = [data.items[index] for index in np.flatnonzero(counts.sum(axis=1) == 0)]
    if never:
        reasons.append(f"never compared: {shown(never)}")
    groups = data.components()
    whole = len(groups) == 1
    if not whole and not never:
        reasons.append(f"{len(groups)} groups of items are never compared with one another: {_groups(groups)}")
    needed = rank_needed(n)
    rank = -1
    free: tuple[str, ...] = ()
    if data.n_users == 1:
        reasons.append("all answers are one person's: they say nothing about differences between people")
    if data.pairs_only:
        reasons.append("only pairs were asked, which identify means and no covariance (Theorem 3.2)")
    elif n <= LARGEST_RANK_TEST:
        rank, free = _rank(data)
        if rank < needed:
            reasons.append(f"the questions identify {rank} of {needed} directions")
    else:
        reasons.extend(_overlaps(data))
    first, second = np.triu_indices(n, 1)
    seen = counts[first, second]
    thin = [
        (data.items[first[index]], data.items[second[index]], int(seen[index]))
        for index in np.argsort(seen, kind="stable")
        if seen[index] < THIN
    ]
    return Identifiability(
        identified=not reasons,
        means_identified=whole and not never,
        rank=rank,
        needed=needed,
        reasons=tuple(reasons),
        free_directions=free,
        thin_pairs=tuple(thin),
        witness=_witness(data) if data.pairs_only and whole else None,
    )


def _witness(data: ChoiceData) -> PairWitness | None:
    from assay.probit.fitting import fit_independent

    mu = fit_independent(data.distinct("triple"), data.n_items)
    # Means that the data drive to infinity would make the stretch vanish.
    limit = float(np.abs(mu).max())
    return pair_witness(mu * min(1.0, 2.0 / max(limit, 1e-300)), np.eye(data.n_items), items=data.items)


def _rank(data: ChoiceData) -> tuple[int, tuple[str, ...]]:
    from assay.probit.information import generic_model

    mu, squares = generic_model(data.n_items)
    rank, directions = spectrum(fisher(data.distinct("triple"), mu, squares), mu, squares)
    return rank, tuple(_direction(direction, data) for direction in directions.T[:10])


def _direction(direction: Floats, data: ChoiceData) -> str:
    """The largest entries of a direction in words."""
    n = data.n_items
    first, second = np.triu_indices(n, 1)
    names = [f"mean of {item}" for item in data.items]
    names += [
        f"spread of {data.items[a]} - {data.items[b]}" for a, b in zip(first.tolist(), second.tolist(), strict=True)
    ]
    size = np.abs(direction)
    kept = [index for index in np.argsort(-size)[:4] if size[index] > 0.2 * size.max()]
    return ", ".join(f"{names[index]} {'up' if direction[index] > 0 else 'down'}" for index in kept)


def _overlaps(data: ChoiceData) -> list[str]:
    """For many items: every pair in some triple, and triples that overlap in pairs, are enough for whole rankings."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n = data.n_items
    whole = np.unique(np.sort(data.triples[data.kinds == ORDER], axis=1), axis=0)
    first, second = np.triu_indices(n, 1)
    index = np.zeros((n, n), dtype=np.int64)
    index[first, second] = np.arange(len(first))
    i, j, k = whole.T
    edges = np.concatenate([np.column_stack([index[i, j], index[i, k]]), np.column_stack([index[i, j], index[j, k]])])
    links: Any = coo_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(len(first), len(first)))
    labels = connected_components(links, directed=False)[1]
    seen = np.zeros(len(first), dtype=bool)
    seen[edges.ravel()] = True
    reasons = []
    if not seen.all():
        reasons.append(
            f"{int((~seen).sum())} of {len(seen)} pairs are in no ranking of three: a free covariance leaves "
            "their spread open"
        )
    if len(np.unique(labels[seen])) > 1:
        reasons.append("the rankings fall into groups that share no pair: their scales can't be compared")
    return reasons


def _groups(groups: list[list[Any]]) -> str:
    return " | ".join(shown(group, most=4) for group in groups[:4]) + (
        f" | … ({len(groups)} in all)" if len(groups) > 4 else ""
    )
