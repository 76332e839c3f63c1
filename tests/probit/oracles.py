"""What the tests compare with: random models, brute force over drawn people, and enumeration."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from assay.probit.geometry import normalise


def random_model(n: int, *, seed: int, spread: float = 0.7, rank: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """A normalised model with a Wishart covariance."""
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((n, rank or n + 2))
    return normalise(spread * rng.standard_normal(n), root @ root.T)


def smallest_angle(covariance: np.ndarray) -> float:
    """The smallest interior angle of any triangle of items."""
    n = len(covariance)
    diagonal = np.diag(covariance)
    squares = diagonal[:, None] + diagonal[None, :] - 2 * covariance
    least = np.pi
    for triple in combinations(range(n), 3):
        for corner in range(3):
            i, j, k = (triple[(corner + shift) % 3] for shift in range(3))
            cosine = (squares[i, j] + squares[i, k] - squares[j, k]) / (2 * np.sqrt(squares[i, j] * squares[i, k]))
            least = min(least, float(np.arccos(np.clip(cosine, -1, 1))))
    return least


def people(mu: np.ndarray, covariance: np.ndarray, count: int, *, seed: int) -> np.ndarray:
    """Utilities of random people, by an eigendecomposition of their own."""
    values, vectors = np.linalg.eigh(covariance)
    z = np.random.default_rng(seed).standard_normal((count, len(mu)))
    return mu + (z * np.sqrt(np.maximum(values, 0))) @ vectors.T


def agrees(utilities: np.ndarray, order: list[int]) -> np.ndarray:
    """Who ranks the items in that order."""
    ranked = utilities[:, order]
    return (ranked[:, :-1] > ranked[:, 1:]).all(axis=1)
