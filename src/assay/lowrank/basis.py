"""Orthogonal bases whose columns are candidate directions, and what an optimiser asks of them.

For the rows A of a gradient, ``S = A B`` holds the similarity of every row to every column of B. `dct2` has the cosine
vectors as columns (S is the DCT-II of the rows); `dct3` is its transpose, another basis (S is the DCT-III).
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from assay.core.errors import InputError
from assay.lowrank.transforms import CosineTransform, coordinate_order, dct_matrix, working_dtype

__all__ = [
    "BASES",
    "Basis",
    "OrderedBasis",
    "Transform",
    "choose_transform",
    "make_basis",
    "measure_transform",
    "require_orthogonal",
]

Transform = Literal["auto", "measure", "fft", "matmul"]
BASES = ("dct2", "dct3", "hadamard", "random", "identity", "user")
FAST = ("dct2", "dct3")
"""The bases with a fast transform."""

CROSSOVER = {"cpu": 256, "cuda": 4096}
"""The size from which ``transform="auto"`` takes the FFT: where it began to win on one CPU core, and beyond what the
paper
found for the H100 (Section 4), whose matrix units win to at least 2048."""
ORTHOGONAL_TO = 1e-4
"""Largest entry of ``|BᵀB - I|`` of a user's basis; float32 QR of a few thousand rows stays well below."""
RANDOM_SEED = 20250517
"""The seed of the basis `random`, so that a resumed run has the same one."""


class Basis(ABC):
    """An orthogonal n × n matrix B.

    The similarities ``S = A B`` are kept in *coordinates*: an order of the columns, and signs, that come at no cost.
    Only the basis reads them.

    Attributes
    ----------
    kind : str
        Its name.
    n : int
        Its size.
    dtype : torch.dtype
        Of the computation.
    nbytes : int
        Bytes that are kept for it.
    """

    kind: str
    n: int
    dtype: torch.dtype
    nbytes: int
    _slot: Tensor | None = None
    _sign: Tensor | None = None

    @abstractmethod
    def coordinates(self, rows: Tensor) -> Tensor:
        """``S = A B`` in coordinates, shape (b, rows, n) to (b, rows, n); need not be contiguous."""

    @abstractmethod
    def rows(self, coordinates: Tensor) -> Tensor:
        """The rows A that have these coordinates."""

    @abstractmethod
    def _lift(self, values: Tensor, slots: Tensor) -> Tensor:
        """The rows whose coordinates are `values` (b, rows, r) at `slots` (b, r) and zero elsewhere."""

    def power(self, coordinates: Tensor, p: int) -> Tensor:
        """The sum over rows of ``|S|^p`` of every column, shape (b, n)."""
        found = (coordinates.abs() if p == 1 else coordinates.square()).sum(dim=-2)
        return found if self._slot is None else found.index_select(-1, self._slot)

    def take(self, coordinates: Tensor, index: Tensor) -> Tensor:
        """The columns `index` (b, r) of S, shape (b, rows, r)."""
        taken = _columns_of(coordinates, self.slots(index))
        return taken if self._sign is None else taken.mul_(self._sign[index].unsqueeze(-2))

    def lift(self, coefficients: Tensor, index: Tensor) -> Tensor:
        """``a B_iᵀ``: from coefficients (b, rows, r) of the columns `index` (b, r) to rows (b, rows, n)."""
        if self._sign is not None:
            coefficients = coefficients * self._sign[index].unsqueeze(-2)
        return self._lift(coefficients, self.slots(index))

    def down(self, rows: Tensor, index: Tensor) -> Tensor:
        """``A B_i`` for the columns `index` (b, r), shape (b, rows, r)."""
        return self.take(self.coordinates(rows), index)

    def factors(self, index: Tensor, value: float) -> Tensor:
        """Factors of the coordinates, shape (b, 1, n): `value` at the columns `index` (b, r), and one elsewhere."""
        factors = torch.ones(len(index), self.n, dtype=self.dtype, device=index.device)
        return factors.scatter_(1, self.slots(index), value).unsqueeze(1)

    def columns(self, index: Tensor) -> Tensor:
        """The columns `index` (r,) as a dense matrix (n, r)."""
        unit = torch.eye(len(index), dtype=torch.float64, device=index.device).unsqueeze(0)
        return self.lift(unit.to(self.dtype), index.unsqueeze(0))[0].mT

    def slots(self, index: Tensor) -> Tensor:
        """The coordinates of columns, int64."""
        return index.long() if self._slot is None else self._slot[index]


def _columns_of(matrices: Tensor, place: Tensor) -> Tensor:
    """The columns `place` (b, r) of matrices (b, rows, n)."""
    batch, rows, n = matrices.shape
    pitch = matrices.stride(1)
    if batch > 1 or matrices.stride(2) != 1 or pitch < n or torch.compiler.is_compiling():
        return matrices.gather(2, place.unsqueeze(1).expand(-1, rows, -1))
    # One matrix alone has a faster way, which would copy a view whole: so take from the rows that it is cut from.
    before = int(matrices.storage_offset()) % pitch if pitch > n else 0
    whole = matrices.as_strided((rows, pitch), (pitch, 1), matrices.storage_offset() - before)
    return whole.index_select(1, place[0] + before).unsqueeze(0)


class _Cosines(Basis):
    """DCT-II by FFT: no matrix is ever made."""

    kind = "dct2"

    def __init__(self, n: int, *, dtype: torch.dtype, device: torch.device) -> None:
        self.n, self.dtype, self.nbytes = n, dtype, 0
        self._transform = CosineTransform(n, dtype=dtype, device=device)
        self._slot, self._sign = self._transform.slot, self._transform.sign

    def coordinates(self, rows: Tensor) -> Tensor:
        return self._transform.coordinates(rows)

    def rows(self, coordinates: Tensor) -> Tensor:
        return self._transform.rows_of_coordinates(coordinates)

    def _lift(self, values: Tensor, slots: Tensor) -> Tensor:
        return self._transform.rows_of_some(values, slots)


class _InverseCosines(Basis):
    """DCT-III by FFT: no matrix is ever made."""

    kind = "dct3"

    def __init__(self, n: int, *, dtype: torch.dtype, device: torch.device) -> None:
        self.n, self.dtype, self.nbytes = n, dtype, 0
        self._transform = CosineTransform(n, dtype=dtype, device=device)

    def coordinates(self, rows: Tensor) -> Tensor:
        return self._transform.backward(rows)

    def rows(self, coordinates: Tensor) -> Tensor:
        return self._transform.forward(coordinates)

    def _lift(self, values: Tensor, slots: Tensor) -> Tensor:
        return self._transform.forward(_spread(values, slots, self.n))


class _Identity(Basis):
    """The unit vectors: selection of the gradient's own columns."""

    kind = "identity"

    def __init__(self, n: int, *, dtype: torch.dtype) -> None:
        self.n, self.dtype, self.nbytes = n, dtype, 0

    def coordinates(self, rows: Tensor) -> Tensor:
        return rows

    def rows(self, coordinates: Tensor) -> Tensor:
        return coordinates

    def _lift(self, values: Tensor, slots: Tensor) -> Tensor:
        return _spread(values, slots, self.n)


class _Matrix(Basis):
    """Any orthogonal matrix, kept whole with its columns as rows.

    The DCT-II has its columns in the order and with the signs of the fast transform, so that a state that was made by
    one goes on with the other.
    """

    def __init__(self, kind: str, transposed: Tensor, *, dtype: torch.dtype, device: torch.device) -> None:
        self.kind, self.n, self.dtype = kind, len(transposed), dtype
        if kind == "dct2":
            slot, sign = coordinate_order(self.n)
            transposed = (sign.unsqueeze(1) * transposed)[slot.argsort()]
            self._slot, self._sign = slot.to(device), sign.to(device=device, dtype=dtype)
        self._transposed = transposed.to(device=device, dtype=dtype).contiguous()
        self.nbytes = self._transposed.nbytes

    def coordinates(self, rows: Tensor) -> Tensor:
        return rows @ self._transposed.mT

    def rows(self, coordinates: Tensor) -> Tensor:
        return coordinates @ self._transposed

    def down(self, rows: Tensor, index: Tensor) -> Tensor:
        taken = rows @ self._transposed[self.slots(index)].mT
        return taken if self._sign is None else taken.mul_(self._sign[index].unsqueeze(-2))

    def _lift(self, values: Tensor, slots: Tensor) -> Tensor:
        return values @ self._transposed[slots]


class OrderedBasis(Basis):
    """A basis for rows whose entries are put into another order first.

    Parameters
    ----------
    inner : Basis
        What sees the rows in their new order.
    order : Tensor of int, shape (b, n)
        Which entry comes first, second and so on, for each matrix of a batch.
    """

    def __init__(self, inner: Basis, order: Tensor) -> None:
        self.inner, self.kind, self.n, self.dtype, self.nbytes = inner, inner.kind, inner.n, inner.dtype, 0
        self._slot, self._sign = inner._slot, inner._sign
        self._order = order.long()
        self._order_back = self._order.argsort(dim=-1)

    def coordinates(self, rows: Tensor) -> Tensor:
        return self.inner.coordinates(self._turn(rows, self._order))

    def rows(self, coordinates: Tensor) -> Tensor:
        return self._turn(self.inner.rows(coordinates), self._order_back)

    def down(self, rows: Tensor, index: Tensor) -> Tensor:
        return self.inner.down(self._turn(rows, self._order), index)

    def _lift(self, values: Tensor, slots: Tensor) -> Tensor:
        return self._turn(self.inner._lift(values, slots), self._order_back)

    @staticmethod
    def _turn(rows: Tensor, order: Tensor) -> Tensor:
        return rows.gather(2, order.unsqueeze(1).expand(-1, rows.shape[1], -1))


def _spread(values: Tensor, slots: Tensor, n: int) -> Tensor:
    """Put columns at their places among zeros."""
    batch, rows, _ = values.shape
    whole = values.new_zeros(batch, rows, n)
    return whole.scatter_(2, slots.unsqueeze(1).expand(-1, rows, -1), values)


def make_basis(
    kind: str,
    n: int,
    *,
    transform: Transform = "auto",
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    user: Tensor | Mapping[int, Tensor] | None = None,
) -> Basis:
    """Make a basis.

    Parameters
    ----------
    kind : str
        One of `BASES`.
    n : int
        The length of the rows to project.
    transform : str
        ``fft`` for the fast transform without a matrix, ``matmul`` for a matrix, ``auto`` by size. Bases without a fast
        transform are matrices.
    dtype : torch.dtype
        Of the computation: float32 or float64.
    device : torch.device
        Where the rows are.
    user : Tensor, or mapping of n to Tensor
        For ``user``: the matrix whose columns are the directions.

    Raises
    ------
    InputError
        An unknown kind, ``hadamard`` with n not a power of 2, or a user's matrix of another size or not orthogonal.
    """
    device = torch.device(device)
    dtype = working_dtype(dtype)
    if kind not in BASES:
        raise InputError(f"basis is {kind!r}", expected=f"one of: {', '.join(BASES)}")
    if transform not in ("auto", "measure", "fft", "matmul"):
        raise InputError(f"transform is {transform!r}", expected="auto, measure, fft or matmul")
    if kind == "identity":
        return _Identity(n, dtype=dtype)
    if kind in FAST and choose_transform(transform, n, device=device) == "fft":
        fast = _Cosines if kind == "dct2" else _InverseCosines
        return fast(n, dtype=dtype, device=device)
    return _Matrix(kind, _columns(kind, n, user).mT, dtype=dtype, device=device)


def choose_transform(transform: Transform, n: int, *, device: torch.device) -> str:
    """``fft`` or ``matmul``: what was asked for, or by size where it was left open.

    The rule is a table and no measurement, since a measured choice can differ from run to run, and with it the
    rounding. `measure_transform` measures.
    """
    if transform in ("fft", "matmul"):
        return transform
    return "fft" if n >= CROSSOVER.get(device.type, CROSSOVER["cuda"]) else "matmul"


def measure_transform(
    rows: int, n: int, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
) -> str:
    """Time both ways on random rows of the given size, and name the faster one.

    Parameters
    ----------
    rows, n : int
        The size of the matrix whose rows are transformed and lifted back.
    dtype, device
        Of the rows.

    Returns
    -------
    str
        ``"fft"`` or ``"matmul"``.
    """
    device = torch.device(device)
    sample = torch.randn(1, rows, n, dtype=working_dtype(dtype), device=device)
    index = torch.arange(max(1, n // 4), device=device).unsqueeze(0)
    seconds = {}
    ways: tuple[Transform, ...] = ("fft", "matmul")
    for way in ways:
        basis = make_basis("dct2", n, transform=way, dtype=dtype, device=device)
        timings = []
        for _ in range(4):
            _synchronise(device)
            start = time.perf_counter()
            basis.lift(basis.down(sample, index), index)
            _synchronise(device)
            timings.append(time.perf_counter() - start)
        seconds[way] = min(timings[1:])
    return min(seconds, key=lambda way: seconds[way])


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _columns(kind: str, n: int, user: Tensor | Mapping[int, Tensor] | None) -> Tensor:
    """The basis as a float64 matrix on the CPU."""
    if kind == "dct2":
        return dct_matrix(n).mT
    if kind == "dct3":
        return dct_matrix(n)
    if kind == "hadamard":
        return _hadamard(n)
    if kind == "random":
        generator = torch.Generator().manual_seed(RANDOM_SEED)
        rotation: Tensor = torch.linalg.qr(torch.randn(n, n, dtype=torch.float64, generator=generator))[0]
        return rotation
    matrix = user.get(n) if isinstance(user, Mapping) else user
    if matrix is None or tuple(matrix.shape) != (n, n):
        held = "nothing" if matrix is None else f"shape {tuple(matrix.shape)}"
        raise InputError(f"the user's basis for rows of length {n} is {held}", expected=f"a matrix of shape ({n}, {n})")
    require_orthogonal(matrix)
    return matrix.detach().cpu().double()


def require_orthogonal(matrix: Tensor) -> None:
    """Refuse a matrix that isn't square and orthogonal, with the largest entry of ``|BᵀB - I|``."""
    if not isinstance(matrix, Tensor) or not matrix.is_floating_point():
        raise InputError(f"the basis is {getattr(matrix, 'dtype', type(matrix).__name__)}", expected="a real matrix")
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise InputError(f"the basis has shape {tuple(matrix.shape)}", expected="a square matrix")
    whole = matrix.detach().double()
    error = (whole.mT @ whole - torch.eye(len(whole), dtype=torch.float64, device=whole.device)).abs().max().item()
    if not error <= ORTHOGONAL_TO:
        raise InputError(
            f"the basis is not orthogonal: max |BᵀB - I| is {error:.3g}", expected=f"at most {ORTHOGONAL_TO}"
        )


def _hadamard(n: int) -> Tensor:
    """Sylvester's matrix, normalised."""
    if n < 1 or n & (n - 1):
        raise InputError(f"basis 'hadamard' for rows of length {n}", expected="a power of 2")
    matrix = torch.ones(1, 1, dtype=torch.float64)
    while len(matrix) < n:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)], 0)
    return matrix / math.sqrt(n)
