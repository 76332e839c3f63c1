"""Means and covariances of utilities: what of them can be observed, and the triangle geometry behind it.

Adding a constant to all utilities of a person, or scaling them, changes no choice. So a covariance is only meaningful
after centring and scaling: `normalise` fixes the mean of mu at 0, the row sums of Sigma at 0 and its trace at n. The
standard deviations s_ij of X_i - X_j are then Euclidean distances between n points whose Gram matrix is Sigma.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from assay.core.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

__all__ = [
    "centring",
    "check_covariance",
    "correlation_of",
    "covariance_of_distances",
    "factor",
    "normalise",
    "squared_distances",
]

SYMMETRY = 1e-8
"""How far a covariance may be from symmetric, relative to its largest entry."""

NEGATIVE = -1e-8
"""The smallest eigenvalue, relative to the largest entry, that rounding explains."""


def centring(n: int) -> Floats:
    """The projection J = I - 11'/n."""
    return np.eye(n) - 1.0 / n


def check_covariance(covariance: ArrayLike, *, n: int | None = None, name: str = "covariance") -> Floats:
    """Return a covariance as float64, or say why it is none.

    Parameters
    ----------
    covariance : array_like, shape (n, n)
        What the user gave.
    n : int, optional
        How many items it must have.
    name : str
        What the message calls it.

    Returns
    -------
    ndarray of float64, shape (n, n)
        Symmetric.

    Raises
    ------
    InputError
        It isn't square, finite, symmetric or positive semi-definite (naming the smallest eigenvalue).
    """
    try:
        matrix = np.asarray(covariance, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} isn't an array of numbers", expected="a square matrix") from error
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or (n is not None and len(matrix) != n):
        raise InputError(f"{name} has shape {matrix.shape}", expected=f"({n or 'n'}, {n or 'n'})")
    if not np.isfinite(matrix).all():
        raise InputError(f"{name} holds NaN or infinity", expected="finite numbers")
    largest = float(np.abs(matrix).max())
    gap = float(np.abs(matrix - matrix.T).max())
    if gap > SYMMETRY * largest:
        raise InputError(f"{name} isn't symmetric: entries differ by {gap:.3g}", expected="a symmetric matrix")
    matrix = (matrix + matrix.T) / 2
    smallest = float(np.linalg.eigvalsh(matrix)[0])
    if smallest < NEGATIVE * max(largest, 1e-300):
        raise InputError(f"{name} has the eigenvalue {smallest:.3g}", expected="a positive semi-definite matrix")
    return matrix


def normalise(mu: ArrayLike, covariance: ArrayLike) -> tuple[Floats, Floats]:
    """Fix what choices don't show: centre both, and scale the trace of the covariance to n.

    Parameters
    ----------
    mu : array_like, shape (n,)
        Mean utilities.
    covariance : array_like, shape (n, n)
        Covariance of utilities.

    Returns
    -------
    mu : ndarray of float64, shape (n,)
        With mean 0.
    covariance : ndarray of float64, shape (n, n)
        With row sums 0 and trace n.

    Raises
    ------
    InputError
        The covariance isn't one, or has no variance after centring.

    Examples
    --------
    >>> import numpy as np
    >>> mu, covariance = normalise([1.0, 2.0, 3.0], 4 * np.eye(3))
    >>> np.round(mu, 3), np.round(covariance, 3)
    (array([-0.612,  0.   ,  0.612]), array([[ 1. , -0.5, -0.5],
           [-0.5,  1. , -0.5],
           [-0.5, -0.5,  1. ]]))
    """
    matrix = check_covariance(covariance)
    n = len(matrix)
    mean = np.asarray(mu, dtype=np.float64)
    if mean.shape != (n,) or not np.isfinite(mean).all():
        raise InputError(f"mu has shape {mean.shape}", expected=f"{n} finite numbers")
    return normalised(mean, matrix)


def normalised(mu: Floats, covariance: Floats) -> tuple[Floats, Floats]:
    """`normalise` for arrays that are known to be right."""
    n = len(mu)
    centred = covariance - covariance.mean(axis=0)
    centred = centred - centred.mean(axis=1, keepdims=True)
    trace = float(np.trace(centred))
    if not trace > 0:
        raise InputError("the covariance has no variance after centring", expected="items that differ between people")
    scale = n / trace
    return np.sqrt(scale) * (mu - mu.mean()), scale * (centred + centred.T) / 2


def squared_distances(covariance: Floats) -> Floats:
    """The variances s_ij^2 of X_i - X_j, shape (n, n), with zeros on the diagonal."""
    diagonal = np.diag(covariance)
    squares = diagonal[:, None] + diagonal[None, :] - 2 * covariance
    np.fill_diagonal(squares, 0.0)
    return np.maximum(squares, 0.0)


def covariance_of_distances(squares: Floats) -> tuple[Floats, float]:
    """The centred covariance of squared distances: -1/2 J S J (classical scaling), made positive semi-definite.

    Returns
    -------
    covariance : ndarray of float64, shape (n, n)
    clipped : float
        How negative its smallest eigenvalue was before it was clipped at 0, as a positive number.
    """
    j = centring(len(squares))
    raw = -0.5 * j @ squares @ j
    values, vectors = np.linalg.eigh((raw + raw.T) / 2)
    clipped = float(max(0.0, -values[0]))
    # What rounding made negative isn't reported as clipped.
    if clipped <= 1e-12 * max(1.0, float(values[-1])):
        return (raw + raw.T) / 2, 0.0
    return (vectors * np.maximum(values, 0.0)) @ vectors.T, clipped


def factor(covariance: Floats) -> Floats:
    """A matrix F with F F' = covariance and one column for each eigenvalue that isn't zero, shape (n, rank)."""
    values, vectors = np.linalg.eigh(covariance)
    kept = values > 1e-12 * max(float(values[-1]), 1e-300)
    return np.asarray(vectors[:, kept] * np.sqrt(values[kept]))


def correlation_of(covariance: Floats, *, kind: Literal["shifted", "centered"] = "shifted") -> Floats:
    """The correlation matrix that people mean.

    A centred covariance of independent utilities has correlations of -1/(n - 1) off the diagonal. ``"shifted"`` adds
    the multiple of 11' that makes the mean off-diagonal covariance 0; ``"centered"`` leaves the matrix as it is.

    Parameters
    ----------
    covariance : ndarray of float64, shape (n, n)
        Any covariance of utilities; it is centred first.
    kind : {"shifted", "centered"}
        Which of the two.

    Returns
    -------
    ndarray of float64, shape (n, n)

    Raises
    ------
    InputError
        `kind` is neither.
    """
    if kind not in ("shifted", "centered"):
        raise InputError(f"kind is {kind!r}", expected="'shifted' or 'centered'")
    j = centring(len(covariance))
    matrix = j @ covariance @ j
    if kind == "shifted":
        n = len(matrix)
        matrix = matrix - (matrix.sum() - np.trace(matrix)) / (n * (n - 1))
    deviation = np.sqrt(np.maximum(np.diag(matrix), 1e-300))
    result: Any = matrix / np.outer(deviation, deviation)
    np.fill_diagonal(result, 1.0)
    return np.asarray(np.clip(result, -1.0, 1.0), dtype=np.float64)
