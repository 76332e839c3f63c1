"""Dynamic column selection: the columns of a basis to which a gradient's rows are most similar, and how states follow.

Paper, Section 3 and Algorithm 1. With the Euclidean norm the choice is the best of all subsets of r columns, and
``‖A - A B_i B_iᵀ‖² = ‖A‖² - Σ_{j in i} ‖S_j‖² ≤ (1 - r/n) ‖A‖²``, since the r largest of n parts are at least r/n of
the whole. With the 1-norm the choice is near that, and the bound doesn't follow.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from assay.core.errors import InputError
from assay.lowrank.basis import Basis, Transform, make_basis
from assay.lowrank.transforms import working_dtype

__all__ = ["Carry", "Side", "largest_columns", "projects_right", "require_norm", "resolve_rank", "select_columns"]

Side = Literal["auto", "right", "left", "smaller", "larger"]
SIDES = ("auto", "right", "left", "smaller", "larger")


def resolve_rank(rank: float, n: int) -> int:
    """The number of columns: `rank` itself, or the nearest to that share of n, between 1 and n.

    Raises
    ------
    InputError
        `rank` is neither a whole number from 1 on nor a share in (0, 1].
    """
    if isinstance(rank, bool) or not isinstance(rank, int | float):
        raise InputError(
            f"rank is {rank!r}", expected="a whole number from 1 on, or a share of the dimension in (0, 1]"
        )
    if isinstance(rank, int):
        if rank < 1:
            raise InputError(f"rank is {rank}", expected="at least 1, or a share of the dimension in (0, 1]")
        return min(rank, n)
    if not 0 < rank <= 1:
        raise InputError(f"rank is {rank}", expected="a whole number, or a share of the dimension in (0, 1]")
    return min(n, max(1, int(rank * n + 0.5)))


def require_norm(norm: int) -> None:
    """Refuse a norm that is neither 1 nor 2."""
    if norm not in (1, 2):
        raise InputError(f"norm is {norm!r}", expected="1 or 2")


def projects_right(side: str, rows: int, columns: int) -> bool:
    """Whether the columns of a weight (rows, columns) are compressed; otherwise its rows are. Ties go right."""
    if side not in SIDES:
        raise InputError(f"side is {side!r}", expected=f"one of: {', '.join(SIDES)}")
    if side in ("auto", "smaller"):
        return rows >= columns
    if side == "larger":
        return rows < columns
    return side == "right"


def largest_columns(power: Tensor, r: int) -> Tensor:
    """The places of the r largest values, ascending, int32; of equal values those with the lower place.

    Parameters
    ----------
    power : Tensor, shape (b, n)
        Norms, or any increasing function of them.
    r : int
        How many.

    Returns
    -------
    Tensor of int32, shape (b, r)
    """
    # A stable sort, since top-k breaks ties differently on every device.
    order = torch.sort(power, dim=-1, descending=True, stable=True).indices[..., :r]
    return order.sort(dim=-1).values.to(torch.int32)


def select_columns(
    A: Tensor,
    r: float,
    *,
    basis: str | Basis = "dct2",
    norm: Literal[1, 2] = 2,
    transform: Transform = "auto",
) -> tuple[Tensor, Tensor]:
    """Choose the r columns of a basis to which the rows of a matrix are most similar.

    Parameters
    ----------
    A : Tensor of float, shape (..., rows, n)
        The matrix, or a batch of them.
    r : int or float
        How many columns, or a share of n.
    basis : str or Basis
        Whose columns: ``dct2``, ``dct3``, ``hadamard``, ``random``, ``identity``, or one of your own.
    norm : int
        2 for the best choice, 1 for the published code's.
    transform : str
        ``fft``, ``matmul``, or ``auto``.

    Returns
    -------
    index : Tensor of int32, shape (..., r)
        The chosen columns, ascending.
    coefficients : Tensor, shape (..., rows, r)
        ``A B_i``; half precision is answered in float32.

    Raises
    ------
    InputError
        Something about `r`, `basis` or `norm` is wrong.

    Notes
    -----
    Paper, Algorithm 1. Energy kept is ``coefficients.square().sum() / A.square().sum()``.

    Examples
    --------
    >>> import torch
    >>> A = torch.ones(3, 8)
    >>> index, coefficients = select_columns(A, 1)
    >>> index.tolist(), bool(torch.allclose(coefficients, torch.full((3, 1), 8**0.5)))
    ([0], True)
    """
    if A.ndim < 2 or not A.is_floating_point():
        raise InputError(
            f"A has shape {tuple(A.shape)} and dtype {A.dtype}", expected="a real matrix or a batch of them"
        )
    require_norm(norm)
    n = A.shape[-1]
    if isinstance(basis, str):
        basis = make_basis(basis, n, transform=transform, dtype=A.dtype, device=A.device)
    if basis.n != n:
        raise InputError(f"the basis has size {basis.n}", expected=f"the rows' length {n}")
    stack = A.reshape(-1, *A.shape[-2:]).to(working_dtype(A.dtype))
    similarities = basis.coordinates(stack)
    index = largest_columns(basis.power(similarities, norm), resolve_rank(r, n))
    coefficients = basis.take(similarities, index)
    batch = A.shape[:-2]
    return index.reshape(*batch, -1), coefficients.reshape(*batch, A.shape[-2], -1)


class Carry:
    """How states follow when the chosen columns change: columns that stay are kept, new ones start at zero.

    Both index sets choose columns of one orthonormal basis, so ``B_iᵀ B_j`` is a partial permutation of zeros and ones:
    carrying is a gather, exact, and the same for first and second moments.

    Parameters
    ----------
    old, new : Tensor of int32, shape (b, r)
        The chosen columns before and after, each ascending.
    """

    def __init__(self, old: Tensor, new: Tensor) -> None:
        place = torch.searchsorted(old, new).clamp_(max=old.shape[-1] - 1)
        self._enters = old.gather(-1, place) != new
        self._place = place

    def __call__(self, state: Tensor) -> Tensor:
        """The state in the new columns, shape (b, rows, r) or (b, r), from that in the old ones."""
        # Filled and not multiplied by zero, since a second moment may have overflown to infinity.
        if state.ndim == 2:
            return state.gather(1, self._place).masked_fill_(self._enters, 0)
        enters = self._enters.unsqueeze(1)
        if state.shape[0] == 1:
            return state.index_select(2, self._place[0]).masked_fill_(enters, 0)
        place = self._place.unsqueeze(1).expand(-1, state.shape[1], -1)
        return state.gather(2, place).masked_fill_(enters, 0)

    @property
    def churn(self) -> Tensor:
        """The share of columns that are new, shape (b,)."""
        return 1 - (~self._enters).float().mean(dim=-1)
