"""A projection onto a few directions as an object, for plugging into other optimisers: cosines, or the SVD's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

import torch
from torch import Tensor

from assay.core.errors import InputError
from assay.lowrank.basis import Basis, Transform, make_basis
from assay.lowrank.selection import Carry, largest_columns, require_norm, resolve_rank
from assay.lowrank.transforms import working_dtype

__all__ = ["DCTProjector", "Projector", "SVDProjector"]


class Projector(Protocol):
    """What an optimiser asks of a projection of rows of length n onto r directions."""

    def fit(self, A: Tensor) -> Projector:
        """Choose the directions by the rows of A, shape (rows, n)."""
        ...

    def down(self, A: Tensor) -> Tensor:
        """The coefficients of rows, shape (rows, n) to (rows, r)."""
        ...

    def up(self, a: Tensor) -> Tensor:
        """The rows that have these coefficients, shape (rows, r) to (rows, n)."""
        ...

    def carry(self, state: Tensor) -> Tensor:
        """A state of the directions before the last `fit`, in the present ones; shape (rows, r)."""
        ...


class DCTProjector:
    """Projection onto the r columns of an orthonormal basis that are most similar to the rows of a matrix.

    Parameters
    ----------
    rank : int or float
        Columns, or their share of n.
    basis : str
        ``dct2``, ``dct3``, ``hadamard``, ``random`` or ``identity``.
    norm : int
        2 or 1; see `select_columns`.
    transform : str
        ``fft``, ``matmul`` or ``auto``.

    Attributes
    ----------
    index_ : Tensor of int32, shape (r,)
        The chosen columns, ascending; after `fit`.

    Raises
    ------
    InputError
        `rank`, `basis` or `norm` is wrong, or a method is called before `fit`.

    Examples
    --------
    >>> import torch
    >>> A = torch.randn(6, 16)
    >>> projector = DCTProjector(16).fit(A)
    >>> bool(torch.allclose(projector.up(projector.down(A)), A, atol=1e-5))
    True
    """

    def __init__(
        self,
        rank: float,
        *,
        basis: str = "dct2",
        norm: Literal[1, 2] = 2,
        transform: Transform = "auto",
    ) -> None:
        resolve_rank(rank, 1 << 62)
        require_norm(norm)
        self.rank, self.basis, self.norm, self.transform = rank, basis, norm, transform
        self.index_: Tensor | None = None
        self._previous: Tensor | None = None
        self._basis: Basis | None = None

    def fit(self, A: Tensor, *, reduce: Callable[[Tensor], None] | None = None) -> DCTProjector:
        """Choose the columns by the rows of A, shape (rows, n).

        `reduce` sums a tensor in place over the processes among which the rows are divided.
        """
        if A.ndim != 2:
            raise InputError(f"A has shape {tuple(A.shape)}", expected="a matrix")
        if self._basis is None or self._basis.n != A.shape[1]:
            self._basis = make_basis(self.basis, A.shape[1], transform=self.transform, dtype=A.dtype, device=A.device)
            self.index_ = None
        power = self._basis.power(self._basis.coordinates(self._stack(A)), self.norm)
        if reduce is not None:
            reduce(power)
        index = largest_columns(power, resolve_rank(self.rank, A.shape[1]))[0]
        self._previous = index if self.index_ is None else self.index_
        self.index_ = index
        return self

    def down(self, A: Tensor) -> Tensor:
        """``A B_i``, shape (rows, n) to (rows, r)."""
        basis, index = self._fitted()
        return basis.down(self._stack(A), index)[0]

    def up(self, a: Tensor) -> Tensor:
        """``a B_iᵀ``, shape (rows, r) to (rows, n)."""
        basis, index = self._fitted()
        return basis.lift(self._stack(a), index)[0]

    def carry(self, state: Tensor) -> Tensor:
        """A state (rows, r) of the columns before the last `fit`: those that stay are kept, others are zero."""
        _, index = self._fitted()
        assert self._previous is not None
        return Carry(self._previous.unsqueeze(0), index)(state.unsqueeze(0))[0]

    def restore(self, index: Tensor, n: int, *, dtype: torch.dtype, device: torch.device) -> DCTProjector:
        """Take columns that were chosen earlier, of rows of length n."""
        if self._basis is None or self._basis.n != n:
            self._basis = make_basis(self.basis, n, transform=self.transform, dtype=dtype, device=device)
        self.index_ = self._previous = index
        return self

    def _stack(self, A: Tensor) -> Tensor:
        return A.to(working_dtype(A.dtype)).unsqueeze(0)

    def _fitted(self) -> tuple[Basis, Tensor]:
        if self._basis is None or self.index_ is None:
            raise InputError("the projector has no columns yet", expected="a call of fit before")
        return self._basis, self.index_.unsqueeze(0)


class SVDProjector:
    """Projection onto the r leading right singular vectors, as GaLore's; the best possible, at the price of an SVD.

    Parameters
    ----------
    rank : int or float
        Vectors, or their share of n.

    Attributes
    ----------
    vectors_ : Tensor, shape (n, r)
        The singular vectors; after `fit`.
    """

    def __init__(self, rank: float) -> None:
        resolve_rank(rank, 1 << 62)
        self.rank = rank
        self.vectors_: Tensor | None = None
        self._previous: Tensor | None = None

    def fit(self, A: Tensor) -> SVDProjector:
        """Take the leading vectors of A, shape (rows, n)."""
        r = resolve_rank(self.rank, A.shape[1])
        vectors = torch.linalg.svd(A, full_matrices=A.shape[0] < r).Vh[:r].mT.contiguous()
        self._previous = vectors if self.vectors_ is None else self.vectors_
        self.vectors_ = vectors
        return self

    def down(self, A: Tensor) -> Tensor:
        """``A V``."""
        assert self.vectors_ is not None
        return A @ self.vectors_

    def up(self, a: Tensor) -> Tensor:
        """``a Vᵀ``."""
        assert self.vectors_ is not None
        return a @ self.vectors_.mT

    def carry(self, state: Tensor) -> Tensor:
        """A first moment in the new vectors."""
        assert self._previous is not None and self.vectors_ is not None
        return state @ (self._previous.mT @ self.vectors_)

    def restore(self, vectors: Tensor) -> SVDProjector:
        """Take vectors that were computed earlier."""
        self.vectors_ = self._previous = vectors
        return self
