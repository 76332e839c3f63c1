"""The orthonormal cosine transform of rows by one real FFT, and its inverse, for every length.

Makhoul, "A fast cosine transform in one and two dimensions", IEEE Transactions on Acoustics, Speech, and Signal
Processing 28 (1980): put the even positions of a row first and the odd ones after them in descending order, transform,
and turn each coefficient by a quarter of its frequency. The input is real, so half of the spectrum is enough.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from assay.core.errors import InputError

__all__ = ["CosineTransform", "chunk_rows", "coordinate_order", "dct", "dct_matrix", "idct", "working_dtype"]


def working_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which to compute: float64 stays, everything else is float32, since few devices have half FFTs."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def dct_matrix(n: int, *, dtype: torch.dtype = torch.float64, device: torch.device | str = "cpu") -> Tensor:
    """The orthonormal DCT-II matrix D, whose row k is the k-th cosine vector.

    Parameters
    ----------
    n : int
        Its size.
    dtype, device
        Of the result; it is computed in float64.

    Returns
    -------
    Tensor, shape (n, n)
        ``D[k, j] = c_k sqrt(2/n) cos(pi k (2j + 1) / (2n))`` with ``c_0 = 1/sqrt(2)`` and ``c_k = 1``.
    """
    k = torch.arange(n, dtype=torch.int64)
    # The cosine's period is 4n in k(2j + 1); reducing whole numbers keeps large n exact.
    phase = (k[:, None] * (2 * k[None, :] + 1)) % (4 * n)
    matrix = torch.cos(phase.double() * (math.pi / (2 * n))) * math.sqrt(2 / n)
    matrix[0] *= math.sqrt(0.5)
    return matrix.to(device=device, dtype=dtype)


CACHED = 1 << 20
"""Bytes of the rows that a CPU works on at a time: a step's few copies of them fit into a core's own cache, and are
so small that they don't come as new pages from the system."""


def chunk_rows(n: int, like: Tensor) -> int:
    """How many rows of n numbers to work on at a time: what fits into a CPU's cache; elsewhere all."""
    if like.device.type != "cpu" or torch.compiler.is_compiling():
        return 1 << 62
    return max(1, CACHED // (n * like.element_size()))


class CosineTransform:
    """DCT-II and DCT-III of rows of one length, with the factors that they share kept.

    The turned half spectrum Z of a row holds all its coefficients: coefficient k is ``Re Z_k`` up to the middle and
    ``-Im Z_(n-k)`` beyond. Read as real numbers and without the parts that say nothing, it is a row of n *coordinates*,
    ``(Re Z_0, Re Z_1, Im Z_1, Re Z_2, …)``: the coefficients in another order, some with the other sign. An FFT gives
    them without a further pass over the data, and they are coordinates in an orthonormal basis as good as the cosines.

    Parameters
    ----------
    n : int
        The rows' length.
    dtype : torch.dtype
        float32 or float64.
    device : torch.device
        Where.

    Attributes
    ----------
    slot : Tensor of int64, shape (n,)
        At which coordinate each coefficient is.
    sign : Tensor, shape (n,)
        With which sign it is there.
    """

    def __init__(self, n: int, *, dtype: torch.dtype, device: torch.device) -> None:
        self.n = n
        self._width = 2 * (n // 2 + 1)
        k = torch.arange(n // 2 + 1, dtype=torch.float64)
        size = torch.full_like(k, math.sqrt(2 / n))
        size[0] = math.sqrt(1 / n)
        angle = k * (math.pi / (2 * n))
        complex_dtype = torch.complex128 if dtype == torch.float64 else torch.complex64
        self._forward_turn = torch.polar(size, -angle).to(device=device, dtype=complex_dtype)
        self._backward_turn = torch.polar(1 / size, angle).to(device=device, dtype=complex_dtype)
        every = torch.arange(n)
        order = torch.cat([every[::2], every[1::2].flip(0)])
        self._order, self._order_back = order.to(device), order.argsort().to(device)
        slot, sign = coordinate_order(n)
        self.slot, self.sign = slot.to(device), sign.to(device=device, dtype=dtype)

    def _spectrum(self, x: Tensor) -> Tensor:
        """The turned half spectrum as real numbers, shape (..., n) to (..., 2 (n // 2 + 1))."""
        return self._by_chunks(x, self._width, self._spectrum_of_rows)

    def _spectrum_of_rows(self, x: Tensor) -> Tensor:
        spectrum = torch.fft.rfft(x.index_select(-1, self._order)).mul_(self._forward_turn)
        return torch.view_as_real(spectrum).flatten(-2)

    def _rows(self, spectrum: Tensor) -> Tensor:
        """The inverse of `_spectrum`."""
        return self._by_chunks(spectrum, self.n, self._rows_of_spectrum)

    def _rows_of_spectrum(self, spectrum: Tensor) -> Tensor:
        turned = torch.view_as_complex(spectrum.view(len(spectrum), self.n // 2 + 1, 2))
        permuted: Tensor = torch.fft.irfft(turned * self._backward_turn, n=self.n)
        return permuted.index_select(-1, self._order_back)

    @staticmethod
    def _by_chunks(x: Tensor, width: int, function: Callable[[Tensor], Tensor]) -> Tensor:
        """Transform rows, shape (..., any) to (..., width), on a CPU so few at a time that they stay in its cache."""
        if x.numel() == 0:
            # Some back ends refuse to transform no rows.
            return x.new_empty(*x.shape[:-1], width)
        rows = x.reshape(-1, x.shape[-1])
        step = chunk_rows(x.shape[-1], x)
        # A caller that goes by chunks itself isn't divided again.
        if len(rows) <= 2 * step or x.requires_grad:
            return function(rows).view(*x.shape[:-1], width)
        result = rows.new_empty(len(rows), width)
        for part, into in zip(rows.split(step), result.split(step), strict=True):
            into.copy_(function(part))
        return result.view(*x.shape[:-1], width)

    def forward(self, x: Tensor) -> Tensor:
        """The coefficients of rows in order (DCT-II), shape (..., n) to (..., n)."""
        spectrum = self._spectrum(x)
        turned = spectrum.view(*spectrum.shape[:-1], self.n // 2 + 1, 2)
        return torch.cat([turned[..., 0], -turned[..., 1 : (self.n + 1) // 2, 1].flip(-1)], dim=-1)

    def backward(self, y: Tensor) -> Tensor:
        """The rows that have these coefficients (DCT-III), shape (..., n) to (..., n)."""
        real = y[..., : self.n // 2 + 1]
        imaginary = torch.cat([torch.zeros_like(y[..., :1]), -y.flip(-1)[..., : self.n // 2]], dim=-1)
        return self._rows(torch.stack([real, imaginary], dim=-1).flatten(-2))

    def coordinates(self, x: Tensor) -> Tensor:
        """The coordinates of rows, shape (..., n) to (..., n), as a view whose rows aren't next to each other."""
        spectrum = self._spectrum(x)
        # Im Z_0 is zero; Re Z_0 in its place makes the coordinates neighbours.
        spectrum[..., 1] = spectrum[..., 0]
        return spectrum[..., 1 : self.n + 1]

    def rows_of_coordinates(self, coordinates: Tensor) -> Tensor:
        """The rows that have these coordinates; the inverse of `coordinates`."""
        spectrum = coordinates.new_empty(*coordinates.shape[:-1], self._width)
        spectrum[..., 0] = coordinates[..., 0]
        spectrum[..., 1] = 0
        spectrum[..., 2 : self.n + 1] = coordinates[..., 1:]
        return self._rows(self._with_middle(spectrum))

    def rows_of_some(self, values: Tensor, slots: Tensor) -> Tensor:
        """The rows whose coordinates are zero but for some.

        Parameters
        ----------
        values : Tensor, shape (b, rows, r)
            The values.
        slots : Tensor of int64, shape (b, r)
            Their coordinates.

        Returns
        -------
        Tensor, shape (b, rows, n)
        """
        batch, rows, _ = values.shape
        spectrum = values.new_zeros(batch, rows, self._width)
        # Coordinate 0 is Re Z_0; all others are one place to the right, past Im Z_0.
        place = slots + (slots > 0).to(slots.dtype)
        if batch == 1:
            spectrum.index_copy_(2, place[0], values)
        else:
            spectrum.scatter_(2, place.unsqueeze(1).expand(-1, rows, -1), values)
        return self._rows(self._with_middle(spectrum))

    def _with_middle(self, spectrum: Tensor) -> Tensor:
        if self.n % 2 == 0:
            # At the middle frequency both parts carry the same coefficient: Z = y (1 - i).
            spectrum[..., self.n + 1] = -spectrum[..., self.n]
        return spectrum


def coordinate_order(n: int) -> tuple[Tensor, Tensor]:
    """At which coordinate of `CosineTransform` each coefficient is, and with which sign; shapes (n,)."""
    every = torch.arange(n)
    upper = every > n // 2
    slot = torch.where(upper, 2 * (n - every), (2 * every - 1).clamp_(min=0))
    return slot, torch.where(upper, -1.0, 1.0).double()


def dct(x: Tensor) -> Tensor:
    """The orthonormal DCT-II along the last axis.

    Parameters
    ----------
    x : Tensor of float, shape (..., n)
        Any n from 1 on; need not be contiguous. Half precision is computed in float32 and cast back.

    Returns
    -------
    Tensor, shape (..., n)
        The same dtype and device; equals ``scipy.fft.dct(x, norm="ortho")``. Gradients flow through it.

    Raises
    ------
    InputError
        `x` is no floating tensor with a last axis of at least 1.

    Examples
    --------
    >>> import torch
    >>> dct(torch.ones(4, dtype=torch.float64)).round(decimals=12).abs().tolist()
    [2.0, 0.0, 0.0, 0.0]
    """
    return _transform_of(x).forward(x.to(working_dtype(x.dtype))).to(x.dtype)


def idct(y: Tensor) -> Tensor:
    """The orthonormal DCT-III along the last axis, the inverse of `dct`.

    Parameters
    ----------
    y : Tensor of float, shape (..., n)
        Coefficients; half precision is computed in float32 and cast back.

    Returns
    -------
    Tensor, shape (..., n)
        The same dtype and device; equals ``scipy.fft.idct(y, norm="ortho")``.

    Raises
    ------
    InputError
        `y` is no floating tensor with a last axis of at least 1.

    Examples
    --------
    >>> import torch
    >>> x = torch.arange(5, dtype=torch.float64)
    >>> bool((idct(dct(x)) - x).abs().max() < 1e-12)
    True
    """
    return _transform_of(y).backward(y.to(working_dtype(y.dtype))).to(y.dtype)


def _transform_of(x: Tensor) -> CosineTransform:
    if not x.is_floating_point():
        raise InputError(f"the tensor has dtype {x.dtype}", expected="a real floating dtype")
    if x.ndim == 0 or x.shape[-1] == 0:
        raise InputError(f"the tensor has shape {tuple(x.shape)}", expected="a last axis of at least 1")
    return CosineTransform(x.shape[-1], dtype=working_dtype(x.dtype), device=x.device)
