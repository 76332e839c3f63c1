"""The exact likelihood of long answers: orthant probabilities by GHK, differentiated by torch.

A ranking of m items is m - 1 constraints on adjacent differences, a best of K is K - 1. All distinct answers of one
length are simulated together, with the same scrambled Sobol points at every evaluation, so that the objective is
smooth. Some ties, as in a~b > c~d or a > b~c > d, would give more constraints than there are differences, and the last
of them would be a step: a tied group is taken in each of its orders instead, whose probabilities add up.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from itertools import permutations, product
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.core.errors import InputError, MissingPackageError
from assay.probit.person import constraints_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from assay.probit.choices import ChoiceData

    Floats = NDArray[np.float64]

__all__ = ["exact_long_likelihood", "refinements"]

MOST_REFINEMENTS = 5040
"""Orders of tied items that are added up for one answer: seven tied items beside others."""

POINTS = 128
JITTER = 1e-9


def exact_long_likelihood(
    data: ChoiceData, *, psi: float, points: int = POINTS, seed: int = 0, weights: Floats | None = None
) -> tuple[Callable[[Floats, Floats], tuple[float, Floats, Floats]], float]:
    """The log-likelihood of the answers about more than three items.

    Parameters
    ----------
    data : ChoiceData
        The choices.
    psi : float
        Variance of its own that each utility has beside A A'.
    points : int
        Simulation points an answer.
    seed : int
        Their seed.
    weights : ndarray of float64, shape (users,), optional
        What each person's answers weigh; 1 when left out.

    Returns
    -------
    function : callable
        ``(mu, A) -> (log-likelihood, gradient in mu, gradient in A)``.
    total : float
        The weight of all answers.

    Raises
    ------
    MissingPackageError
        torch isn't installed.
    """
    try:
        import torch
    except ImportError as error:
        raise MissingPackageError("torch", what="the exact likelihood of long answers", extra="probit") from error

    counted: Counter[tuple[tuple[int, ...], ...]] = Counter()
    for user, groups in data.long_answers:
        counted[groups] += 1.0 if weights is None else float(weights[user])  # type: ignore[assignment]
    by_size: dict[int, list[tuple[NDArray[np.int64], int]]] = {}
    for place, groups in enumerate(counted):
        for refined in refinements(groups):
            pairs = constraints_of([[list(group) for group in refined]], lambda item: item)  # type: ignore[arg-type, return-value]
            by_size.setdefault(len(pairs), []).append((pairs, place))
    weight_A = torch.tensor(list(counted.values()), dtype=torch.float64)
    batches: list[tuple[Any, Any, Any]] = []
    for size, answers in sorted(by_size.items()):
        pairs_BD2 = torch.from_numpy(np.stack([pairs for pairs, _ in answers]))
        answer_B = torch.tensor([place for _, place in answers], dtype=torch.int64)
        uniform = torch.quasirandom.SobolEngine(max(size - 1, 1), scramble=True, seed=seed).draw(
            points, dtype=torch.float64
        )
        batches.append((pairs_BD2, answer_B, uniform.clamp(1e-12, 1 - 1e-12)))

    def evaluate(mu: Floats, a: Floats) -> tuple[float, Floats, Floats]:
        mu_N = torch.tensor(mu, dtype=torch.float64, requires_grad=True)
        a_NR = torch.tensor(a, dtype=torch.float64, requires_grad=True)
        logs, places = [], []
        for pairs_BD2, answer_B, uniform in batches:
            logs.append(_log_orthant(mu_N, a_NR, pairs_BD2, uniform, psi))
            places.append(answer_B)
        total = (weight_A * log_sums(torch.cat(logs), torch.cat(places), len(weight_A))).sum()
        total.backward()
        assert mu_N.grad is not None and a_NR.grad is not None
        return float(total.detach()), mu_N.grad.numpy(), a_NR.grad.numpy()

    return evaluate, float(sum(counted.values()))


def refinements(groups: tuple[tuple[int, ...], ...]) -> list[tuple[tuple[int, ...], ...]]:
    """Answers whose probabilities add up to this one's, each with as many constraints as differences between items.

    Ties may stay in the first and in the last group where the next group has one item.

    Parameters
    ----------
    groups : tuple of tuple of int
        Items from best to worst, ties together.

    Returns
    -------
    list of tuple
        The answer itself where its ties are like that already.

    Raises
    ------
    InputError
        There would be more than 5040.
    """
    if len(groups) == 2:
        smaller = 0 if len(groups[0]) <= len(groups[1]) else 1
        ordered = [place == smaller and min(map(len, groups)) > 1 for place in range(2)]
    else:
        ordered = [0 < place < len(groups) - 1 and len(group) > 1 for place, group in enumerate(groups)]
    count = math.prod(math.factorial(len(group)) for group, take in zip(groups, ordered, strict=True) if take)
    if count > MOST_REFINEMENTS:
        raise InputError(
            f"exact is true, and an answer ties so many items that {count} orders would be added up",
            expected="answers with smaller ties",
        )
    choices = [
        [tuple((item,) for item in order) for order in permutations(group)] if take else [(group,)]
        for group, take in zip(groups, ordered, strict=True)
    ]
    return [tuple(group for part in parts for group in part) for parts in product(*choices)]


def log_sums(logs_B: Any, place_B: Any, count: int) -> Any:
    """Logarithms of the sums of exp(logs) of each place, shape (count,)."""
    import torch

    top = torch.full((count,), -torch.inf, dtype=torch.float64).scatter_reduce(0, place_B, logs_B.detach(), "amax")
    sums = torch.zeros(count, dtype=torch.float64).index_add(0, place_B, torch.exp(logs_B - top[place_B]))
    return top + torch.log(sums)


def _log_orthant(mu_N: Any, a_NR: Any, pairs_BD2: Any, uniform_PD: Any, psi: float) -> Any:
    """Log of the mean GHK weight of each answer, shape (B,)."""
    import torch

    winner_BD, loser_BD = pairs_BD2[..., 0], pairs_BD2[..., 1]
    mean_BD = mu_N[winner_BD] - mu_N[loser_BD]
    rows_BDR = a_NR[winner_BD] - a_NR[loser_BD]
    # Each utility's own part is shared by the constraints that hold it.
    shared = (
        (winner_BD[:, :, None] == winner_BD[:, None, :]).double()
        + (loser_BD[:, :, None] == loser_BD[:, None, :]).double()
        - (winner_BD[:, :, None] == loser_BD[:, None, :]).double()
        - (loser_BD[:, :, None] == winner_BD[:, None, :]).double()
    )
    size = mean_BD.shape[1]
    covariance = rows_BDR @ rows_BDR.transpose(1, 2) + psi * shared + JITTER * torch.eye(size, dtype=torch.float64)
    cholesky = torch.linalg.cholesky(covariance)
    log_weight = torch.zeros(len(mean_BD), len(uniform_PD), dtype=torch.float64)
    drawn: list[Any] = []
    for q in range(size):
        shift = mean_BD[:, q, None]
        for earlier, value in enumerate(drawn):
            shift = shift + cholesky[:, q, earlier, None] * value
        limit = shift / cholesky[:, q, q, None]
        log_weight = log_weight + torch.special.log_ndtr(limit)
        if q + 1 < size:
            mass = torch.special.ndtr(limit)
            drawn.append(-torch.special.ndtri(((1 - uniform_PD[None, :, q]) * mass).clamp(1e-300, 1 - 1e-16)))
    return torch.logsumexp(log_weight, dim=1) - float(np.log(len(uniform_PD)))
