"""The orthonormal cosine transform of rows by one real FFT, and its inverse, for every length.

Makhoul, "A fast cosine transform in one and two dimensions", IEEE Transactions on Acoustics, Speech, and Signal
Processing 28 (1980): put the even positions of a row first and the odd ones after them in descending order, transform,
and turn each coefficient by a quarter of its frequency. The input is real, so half of the spectrum is enough.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from assay.core.errors import InputError

__all__ = ["CosineTransform", "dct", "dct_matrix", "idct", "working_dtype"]


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


class CosineTransform:
    """DCT-II and DCT-III of rows of one length, with the factors that they share kept.

    The *packed* form of a row's coefficients is the turned half spectrum Z as real numbers,
    ``(Re Z_0, Im Z_0, Re Z_1, …)``: coefficient k is ``Re Z_k`` up to the middle and ``-Im Z_(n-k)`` beyond. It is what
    the FFT gives, so norms and selected coefficients are read from it without another copy.

    Parameters
    ----------
    n : int
        The rows' length.
    dtype : torch.dtype
        float32 or float64.
    device : torch.device
        Where.
    """

    def __init__(self, n: int, *, dtype: torch.dtype, device: torch.device) -> None:
        self.n = n
        k = torch.arange(n // 2 + 1, dtype=torch.float64)
        size = torch.full_like(k, math.sqrt(2 / n))
        size[0] = math.sqrt(1 / n)
        angle = k * (math.pi / (2 * n))
        complex_dtype = torch.complex128 if dtype == torch.float64 else torch.complex64
        self.forward_turn = torch.polar(size, -angle).to(device=device, dtype=complex_dtype)
        self.backward_turn = torch.polar(1 / size, angle).to(device=device, dtype=complex_dtype)
        every = torch.arange(n)
        upper = every > n // 2
        self.place = torch.where(upper, 2 * (n - every) + 1, 2 * every).to(device=device)
        self.sign = torch.where(upper, -1.0, 1.0).to(device=device, dtype=dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of the kept factors."""
        return sum(one.nbytes for one in (self.forward_turn, self.backward_turn, self.place, self.sign))

    def packed(self, x: Tensor) -> Tensor:
        """The packed coefficients of rows, shape (..., n) to (..., 2 (n // 2 + 1))."""
        if x.numel() == 0:
            # Some back ends refuse to transform no rows.
            return x.new_empty(*x.shape[:-1], 2 * (self.n // 2 + 1))
        spectrum = torch.fft.rfft(torch.cat([x[..., ::2], x[..., 1::2].flip(-1)], dim=-1))
        return torch.view_as_real(spectrum * self.forward_turn).flatten(-2)

    def forward(self, x: Tensor) -> Tensor:
        """The coefficients of rows in order, shape (..., n) to (..., n)."""
        packed = self.packed(x)
        turned = packed.view(*packed.shape[:-1], self.n // 2 + 1, 2)
        return torch.cat([turned[..., 0], -turned[..., 1 : (self.n + 1) // 2, 1].flip(-1)], dim=-1)

    def rows_of_packed(self, packed: Tensor) -> Tensor:
        """The rows that have these packed coefficients; the inverse of `packed`."""
        if packed.numel() == 0:
            return packed.new_empty(*packed.shape[:-1], self.n)
        turned = torch.view_as_complex(packed.reshape(*packed.shape[:-1], self.n // 2 + 1, 2))
        permuted = torch.fft.irfft(turned * self.backward_turn, n=self.n)
        rows = torch.empty_like(permuted)
        middle = (self.n + 1) // 2
        rows[..., ::2] = permuted[..., :middle]
        rows[..., 1::2] = permuted[..., middle:].flip(-1)
        return rows

    def backward(self, y: Tensor) -> Tensor:
        """The rows that have these coefficients (DCT-III), shape (..., n) to (..., n)."""
        real = y[..., : self.n // 2 + 1]
        imaginary = torch.cat([torch.zeros_like(y[..., :1]), -y.flip(-1)[..., : self.n // 2]], dim=-1)
        return self.rows_of_packed(torch.stack([real, imaginary], dim=-1).flatten(-2))

    def scatter(self, coefficients: Tensor, index: Tensor) -> Tensor:
        """Packed coefficients that are zero but for some columns.

        Parameters
        ----------
        coefficients : Tensor, shape (b, rows, r)
            The values.
        index : Tensor of int, shape (b, r)
            Their columns.

        Returns
        -------
        Tensor, shape (b, rows, 2 (n // 2 + 1))
        """
        batch, rows, _ = coefficients.shape
        packed = coefficients.new_zeros(batch, rows, 2 * (self.n // 2 + 1))
        place, values = self.place[index], coefficients * self.sign[index].unsqueeze(-2)
        if batch == 1:
            packed.index_copy_(2, place[0], values)
        else:
            packed.scatter_(2, place.unsqueeze(1).expand(-1, rows, -1), values)
        if self.n % 2 == 0:
            # At the middle frequency both parts carry the same coefficient: Z = y (1 - i).
            packed[..., self.n + 1] = -packed[..., self.n]
        return packed


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
