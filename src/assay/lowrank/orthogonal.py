"""The Newton–Schulz iteration, which takes the singular values of a matrix towards 1, plain and through its Gram
matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

from assay.core.errors import InputError

__all__ = ["COEFFICIENTS", "Implementation", "newton_schulz", "scalar_map"]

Implementation = Literal["auto", "gram", "plain"]
Coefficients = Sequence[tuple[float, float, float]]

COEFFICIENTS: dict[str, Coefficients] = {
    "keller": [(3.4445, -4.7750, 2.0315)],
    "tuned": [
        (4.0848, -6.8946, 2.9270),
        (3.9505, -6.3029, 2.6377),
        (3.7418, -5.5913, 2.3037),
        (2.8769, -3.1427, 1.2046),
        (2.8366, -3.0525, 1.2012),
    ],
}
"""The polynomials a x + b x³ + c x⁵ of each iteration; the last one is repeated."""

NEVER_ZERO = 1e-7
"""Added to the norm by which the matrix is divided."""
GRAM_FROM = 1.5
"""The ratio of rows to columns from which the Gram form takes fewer operations: 10 r²R + 5 r³ against 2 r²R + 17 r³."""
DOUBLE_UP_TO = 64
"""The Gram form of so few columns is computed in float64 on a CPU: it is a small part of a step."""
PANELS, PANELS_FROM = 4, 384
"""In how many panels a symmetric product is computed, and from which size that saves time."""


def coefficients_of(name: str, steps: int) -> list[tuple[float, float, float]]:
    """The polynomials of `steps` iterations.

    Raises
    ------
    InputError
        An unknown name, or no step.
    """
    if name not in COEFFICIENTS:
        raise InputError(f"ns_coefficients is {name!r}", expected=f"one of: {', '.join(COEFFICIENTS)}")
    if not isinstance(steps, int) or steps < 1:
        raise InputError(f"ns_steps is {steps!r}", expected="a whole number, at least 1")
    given = list(COEFFICIENTS[name])
    return (given + [given[-1]] * steps)[:steps]


def scalar_map(value: float, *, coefficients: str = "keller", steps: int = 5) -> float:
    """What the iteration makes of one singular value of a matrix of unit norm."""
    for a, b, c in coefficients_of(coefficients, steps):
        value = a * value + b * value**3 + c * value**5
    return value


def newton_schulz(
    X: Tensor,
    *,
    steps: int = 5,
    coefficients: str = "keller",
    impl: Implementation = "auto",
    dtype: str | None = None,
    reduce: Callable[[Tensor], None] | None = None,
) -> Tensor:
    """Take the singular values of matrices towards 1 and keep the singular vectors.

    Parameters
    ----------
    X : Tensor, shape (..., rows, columns)
        The matrices.
    steps : int
        Iterations.
    coefficients : str
        ``keller`` or ``tuned``.
    impl : str
        ``plain``; ``gram``, which works on the columns × columns matrix XᵀX and touches X twice; or ``auto``.
    dtype : {None, "float32", "bfloat16"}
        In which the iteration computes. By default float64 for float64; of others the Gram form in float32, and the
        plain one in float32 on a CPU and bfloat16 on a GPU. bfloat16 is always plain.
    reduce : callable, optional
        Sums a tensor in place over the processes among which the rows are divided; only the Gram form can do that.

    Returns
    -------
    Tensor, shape (..., rows, columns)

    Raises
    ------
    InputError
        An unknown name, or no step.

    Examples
    --------
    >>> import torch
    >>> X = torch.diag(torch.tensor([3.0, 4.0]))
    >>> values = newton_schulz(X, coefficients="tuned").diagonal()
    >>> bool(((values - 1).abs() < 0.03).all())
    True
    """
    polynomials = coefficients_of(coefficients, steps)
    if impl not in ("auto", "gram", "plain"):
        raise InputError(f"ns_impl is {impl!r}", expected="auto, gram or plain")
    if reduce is not None:
        return _gram(X, polynomials, reduce)
    wide = X.shape[-2] < X.shape[-1]
    tall = X.mT if wide else X
    use_gram = impl == "gram" or (impl == "auto" and tall.shape[-2] >= GRAM_FROM * tall.shape[-1])
    if use_gram and dtype != "bfloat16":
        result = _gram(tall, polynomials, None)
    else:
        result = _plain(tall.mT, polynomials, _plain_dtype(X) if dtype is None else getattr(torch, dtype)).mT
    return result.mT if wide else result


def _plain(X: Tensor, polynomials: Coefficients, work: torch.dtype) -> Tensor:
    """The iteration on a wide matrix: A = X Xᵀ, X ← a X + (b A + c A²) X."""
    dtype = X.dtype
    norm = torch.linalg.vector_norm(
        X, dim=(-2, -1), keepdim=True, dtype=torch.float64 if dtype == torch.float64 else torch.float32
    )
    X = (X / (norm + NEVER_ZERO)).to(work).contiguous()
    for a, b, c in polynomials:
        A = X @ X.mT
        B = torch.baddbmm(A, A, A, beta=b, alpha=c) if A.ndim == 3 else b * A + c * (A @ A)
        X = torch.baddbmm(X, B, X, beta=a) if X.ndim == 3 else a * X + B @ X
    return X.to(dtype)


def _plain_dtype(X: Tensor) -> torch.dtype:
    if X.dtype == torch.float64:
        return torch.float64
    return torch.bfloat16 if X.device.type == "cuda" else torch.float32


def _gram(X: Tensor, polynomials: Coefficients, reduce: Callable[[Tensor], None] | None) -> Tensor:
    """The same on A = XᵀX alone: P ← P p(A), A ← p(A) A p(A); the result is X P.

    Never in half precision: A has the square of X's condition number. Where that costs nothing, in float64.
    """
    double = X.dtype == torch.float64 or (X.device.type == "cpu" and X.shape[-1] <= DOUBLE_UP_TO)
    work = X.double() if double else X.float()
    A = _symmetric_product(work.mT, work)
    if reduce is not None:
        reduce(A)
    norm = A.diagonal(dim1=-2, dim2=-1).sum(-1).sqrt()[..., None, None] + NEVER_ZERO
    A = A / norm.square()
    P = None
    for number, (a, b, c) in enumerate(polynomials):
        p = _symmetric_product(A, A).mul_(c).add_(A, alpha=b)
        p.diagonal(dim1=-2, dim2=-1).add_(a)
        # All of these are polynomials in A, so their products are symmetric; but where X has no rank, making P so
        # would turn rounding into directions of its own.
        P = p if P is None else P @ p
        if number < len(polynomials) - 1:
            A = _symmetric_product(_symmetric_product(p, A), p)
    assert P is not None
    return (work @ (P / norm)).to(X.dtype)


def _symmetric_product(A: Tensor, B: Tensor) -> Tensor:
    """``A B`` where that is symmetric: on a CPU only what isn't below the diagonal is computed, in panels."""
    size = A.shape[-2]
    if size < PANELS_FROM or A.device.type != "cpu" or torch.compiler.is_compiling():
        product = A @ B
        return (product + product.mT).div_(2)
    product = A.new_empty(*A.shape[:-1], size)
    width = -(-size // PANELS)
    for first in range(0, size, width):
        last = min(size, first + width)
        product[..., first:last, first:] = A[..., first:last, :] @ B[..., first:]
        product[..., first:last, :first] = product[..., :first, first:last].mT
    return product
