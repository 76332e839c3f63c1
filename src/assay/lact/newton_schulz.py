"""The Newton–Schulz iteration of the step ``muon``: singular values towards 1, differentiable and batched.

Coefficients: ``keller`` is what the paper and its view and video code use, ``tuned`` what its language code uses.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from assay.core.errors import InputError

__all__ = ["COEFFICIENTS", "Coefficients", "newton_schulz", "singular_value_after"]

Coefficients = Literal["keller", "tuned"]
Form = Literal["auto", "gram", "plain"]

COEFFICIENTS: dict[str, tuple[tuple[float, float, float], ...]] = {
    "keller": ((3.4445, -4.7750, 2.0315),) * 5,
    "tuned": (
        (4.0848, -6.8946, 2.9270),
        (3.9505, -6.3029, 2.6377),
        (3.7418, -5.5913, 2.3037),
        (2.8769, -3.1427, 1.2046),
        (2.8366, -3.0525, 1.2012),
    ),
}
"""The polynomials a x + b x³ + c x⁵ of the five iterations."""

NEVER_ZERO = 1e-7
"""Added to the norm by which a matrix is divided."""
GRAM_FROM = 2.0
"""The ratio of the sides from which the Gram form takes fewer operations: 4 r²R + 42 r³ against 20 r²R + 10 r³."""


def newton_schulz(gradient: Tensor, *, coefficients: Coefficients = "keller", form: Form = "auto") -> Tensor:
    """Take the singular values of matrices towards 1 and keep their singular vectors.

    Parameters
    ----------
    gradient : Tensor, shape (..., rows, columns)
        The matrices; of any floating dtype.
    coefficients : {"keller", "tuned"}
        Which polynomials are iterated.
    form : {"auto", "gram", "plain"}
        ``plain`` iterates on the matrix, ``gram`` on the product of its shorter side, which is the same mathematics
        with fewer operations for long matrices; ``auto`` takes the cheaper one.

    Returns
    -------
    Tensor, shape (..., rows, columns)
        Zero where the matrix is zero.

    Raises
    ------
    InputError
        Unknown coefficients or form.

    Examples
    --------
    >>> newton_schulz(torch.eye(1), coefficients="tuned").item().__format__(".4f")
    '0.9783'
    """
    check_coefficients(coefficients)
    if form not in get_args(Form):
        raise InputError(f"form is {form!r}", expected=f"one of: {', '.join(get_args(Form))}")
    rows, columns = gradient.shape[-2:]
    if gradient.numel() == 0:
        return gradient
    norm = torch.linalg.matrix_norm(gradient, keepdim=True) if not gradient.requires_grad else _norm(gradient)
    X = gradient / (norm + NEVER_ZERO)
    if rows > columns:
        X = X.mT
    long = max(rows, columns) / min(rows, columns) >= GRAM_FROM
    X = _gram(X, coefficients) if form == "gram" or (form == "auto" and long) else _plain(X, coefficients)
    return X.mT if rows > columns else X


def singular_value_after(value: float, *, coefficients: Coefficients = "keller") -> float:
    """What the iteration makes of one singular value of a matrix of unit norm."""
    for a, b, c in COEFFICIENTS[coefficients]:
        value = a * value + b * value**3 + c * value**5
    return value


def check_coefficients(name: str) -> None:
    """Refuse unknown coefficients.

    Raises
    ------
    InputError
        `name` is unknown.
    """
    if name not in COEFFICIENTS:
        raise InputError(f"ns is {name!r}", expected=f"one of: {', '.join(COEFFICIENTS)}")


def _norm(gradient: Tensor) -> Tensor:
    """The Frobenius norm, with the gradient 0 at the zero matrix."""
    squares = gradient.square().sum((-2, -1), keepdim=True)
    zero = squares == 0
    return torch.where(zero, 0.0, torch.where(zero, 1.0, squares).sqrt())


def _plain(X: Tensor, coefficients: Coefficients) -> Tensor:
    shape = X.shape
    X = X.reshape(-1, *shape[-2:])
    for a, b, c in COEFFICIENTS[coefficients]:
        A = X @ X.mT
        B = torch.baddbmm(A, A, A, beta=b, alpha=c)
        X = torch.baddbmm(X, B, X, beta=a)
    return X.reshape(shape)


def _gram(X: Tensor, coefficients: Coefficients) -> Tensor:
    """All factors are polynomials in A = X Xᵀ, so that they commute: X_k = P_k X and A_k = A_{k-1} Q_k²."""
    shape = X.shape
    X = X.reshape(-1, *shape[-2:])
    A = X @ X.mT
    identity = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    P: Tensor | None = None
    last = len(COEFFICIENTS[coefficients]) - 1
    for step, (a, b, c) in enumerate(COEFFICIENTS[coefficients]):
        Q = torch.baddbmm(A, A, A, beta=b, alpha=c) + a * identity
        P = Q if P is None else Q @ P
        if step < last:
            A = A @ Q @ Q
    assert P is not None
    return (P @ X).reshape(shape)
