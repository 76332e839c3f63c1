"""The Newton–Schulz iteration of the step ``muon``: singular values towards 1, differentiable and batched.

Coefficients: ``keller`` is what the paper and its view and video code use, ``tuned`` what its language code uses.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

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
    flat = X.reshape(-1, *X.shape[-2:])
    if torch.is_grad_enabled() and flat.requires_grad:
        iterated: Tensor = _Iterations.apply(flat, coefficients)  # type: ignore[no-untyped-call]
    else:
        for a, b, c in COEFFICIENTS[coefficients]:
            flat, _, _ = _iteration(flat, a, b, c)
        iterated = flat
    return iterated.reshape(X.shape)


def _iteration(X: Tensor, a: float, b: float, c: float) -> tuple[Tensor, Tensor, Tensor]:
    """One iteration, a X + B X, with A = X Xᵀ and B = b A + c A²; and A and B."""
    A = X @ X.mT
    B = torch.baddbmm(A, A, A, beta=b, alpha=c)
    return torch.baddbmm(X, B, X, beta=a), A, B


class _Iterations(torch.autograd.Function):
    """The iterations with a backward pass that uses the symmetry of A and B: 8 products an iteration instead of 12."""

    @staticmethod
    def forward(ctx: Any, X: Tensor, coefficients: Coefficients) -> Tensor:
        ctx.coefficients = coefficients
        kept = []
        for a, b, c in COEFFICIENTS[coefficients]:
            after, A, B = _iteration(X, a, b, c)
            kept += [X, A, B]
            X = after
        ctx.save_for_backward(*kept)
        return X

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        kept = ctx.saved_tensors
        for step in reversed(range(len(COEFFICIENTS[ctx.coefficients]))):
            a, b, c = COEFFICIENTS[ctx.coefficients][step]
            X, A, B = kept[3 * step : 3 * step + 3]
            to_B = gradient @ X.mT
            D = to_B + to_B.mT
            T = D @ A
            to_A = (T + T.mT).mul_(c).add_(D, alpha=b)  # that of A and of its transpose together
            gradient = torch.baddbmm(gradient, B, gradient, beta=a).baddbmm_(to_A, X)
        return gradient, None


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
