"""Distances among the rows of a torch tensor that lives on an accelerator, computed where it lives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import InputError
from assay.mst._contract import Indices, Metric, as_array, square_in_strips
from assay.mst._magnitude import PLAIN, Scaling, scaling

if TYPE_CHECKING:
    import torch

__all__ = ["TorchMetric", "in_host_memory", "on_device"]

BLOCK = 1 << 24
"""Intermediate float64 values on the device at a time (128 MiB)."""

SQUARE_ROWS = 1024


def on_device(X: Any) -> bool:
    """Return whether the tensor `X` lives elsewhere than in the host's memory."""
    return bool(X.device.type != "cpu")


def in_host_memory(X: torch.Tensor, name: str) -> NDArray[Any]:
    """Return the tensor `X`, which lies in the host's memory, as an array: without a copy, unless numpy lacks its type.

    Raises
    ------
    InputError
        For a sparse or complex tensor.
    """
    import torch

    if X.layout != torch.strided:
        raise InputError("X is a sparse tensor", expected=f"a dense array (n, d) for metric={name!r}")
    if X.is_complex():
        raise InputError(f"X has dtype {X.dtype}", expected=f"real numbers for metric={name!r}")
    X = X.detach()
    if X.is_floating_point() and X.dtype not in (torch.float32, torch.float64):
        X = X.float()
    return X.numpy()


class TorchMetric(Metric):
    """A vector metric on the device of its tensor.

    Differences are taken directly in float64, coordinate chunk by coordinate chunk, so that no value cancels and
    results agree with the host's to rounding.

    Parameters
    ----------
    X : torch.Tensor, shape (n, d)
    name : str
        A vector metric.
    p : float
        Exponent of minkowski.
    """

    trusted = True

    def __init__(self, X: torch.Tensor, name: str, *, p: float = 2.0) -> None:
        import torch

        if X.ndim != 2 or X.shape[1] == 0:
            raise InputError(f"X has shape {tuple(X.shape)}", expected=f"(n, d) with d >= 1 for metric={name!r}")
        if X.is_complex():
            raise InputError(f"X has dtype {X.dtype}", expected=f"real numbers for metric={name!r}")
        bad = torch.nonzero(~torch.isfinite(X).all(dim=1)).flatten()
        if len(bad):
            listed = ", ".join(str(int(row)) for row in bad[:5])
            raise InputError(f"X holds NaN or infinite values (rows counted from 0: {listed}; {len(bad)} in all)")
        self.name, self.p, self.is_metric = name, p, name != "sqeuclidean"
        X = X.detach()
        if name == "haversine":
            X = _on_sphere(X)
        self.X, self.scaling = X, PLAIN
        self._norms = None
        if name == "cosine":
            self._norms, self._greatest = _lengths(X)
            zero = torch.nonzero(self._norms == 0).flatten()
            if len(zero):
                raise InputError(
                    f"metric='cosine': X has rows of zeros, which have no direction (first: {int(zero[0])}, from 0)"
                )
        self.scaling = self._scaling()

    def _scaling(self) -> Scaling:
        if not self.X.is_floating_point() or not len(self.X):
            return PLAIN
        magnitude = self.X.abs()
        largest = float(magnitude.max())
        smallest = float(magnitude.masked_fill_(magnitude == 0, np.inf).min())
        power = self._power()
        if self.name == "cosine":
            # The smallest coordinate of a direction is not below the smallest of all over the largest.
            largest, smallest = 1.0, smallest / (largest * self.X.shape[1])
        shape = self.X.shape[0], self.X.shape[1]
        return scaling(largest, smallest, power=1.0 if power == np.inf else power, shape=shape, name=self.name)

    def __len__(self) -> int:
        return len(self.X)

    def _rows(self, indices: Indices | torch.Tensor) -> torch.Tensor:
        import torch

        at: Any = indices
        if isinstance(indices, np.ndarray):
            at = torch.from_numpy(np.ascontiguousarray(indices, dtype=np.int64)).to(self.X.device)
        rows = self.X[at].double()
        if self._norms is None:
            return rows
        # Two divisions, because the product of the two lengths may overflow.
        return rows / self._greatest[at][:, None] / self._norms[at][:, None]

    def _scaled(self, indices: Indices) -> torch.Tensor:
        return _shifted(self._rows(indices), -self.scaling.exponent)

    def block(self, queries: Indices, targets: Indices) -> NDArray[np.float64]:
        """Return the distances from every query to every target; see :meth:`Metric.block`."""
        import torch

        rows, columns = self._scaled(queries), self._scaled(targets)
        total = torch.zeros((len(rows), len(columns)), dtype=torch.float64, device=self.X.device)
        step = max(1, BLOCK // max(1, total.numel()))
        for start in range(0, rows.shape[1], step):
            difference = rows[:, None, start : start + step] - columns[None, :, start : start + step]
            self._add(total, difference)
        values = self._finish(total)
        close = torch.nonzero(values < self.scaling.floor).cpu().numpy()
        first, second = as_array(queries, len(self))[close[:, 0]], as_array(targets, len(self))[close[:, 1]]
        return self._restored(values, close, first, second)

    def pairs(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the distances of pairs; see :meth:`Metric.pairs`."""
        import torch

        total = torch.zeros(len(first), dtype=torch.float64, device=self.X.device)
        step = max(1, BLOCK // self.X.shape[1])
        for start in range(0, len(first), step):
            part = slice(start, start + step)
            self._add(total[part], self._scaled(first[part]) - self._scaled(second[part]))
        values = self._finish(total)
        close = torch.nonzero(values < self.scaling.floor).cpu().numpy()
        return self._restored(values, close, first[close[:, 0]], second[close[:, 0]])

    def _restored(
        self,
        values: torch.Tensor,
        close: NDArray[np.int64],
        first: NDArray[np.int64],
        second: NDArray[np.int64],
    ) -> NDArray[np.float64]:
        """Return distances of scaled rows in their own unit, and those at the positions `close` anew."""
        result: NDArray[np.float64] = _shifted(values, self.scaling.exponent).cpu().numpy()
        step = max(1, BLOCK // self.X.shape[1])
        for start in range(0, len(close), step):
            part = slice(start, start + step)
            result[tuple(close[part].T)] = self._close_pairs(first[part], second[part])
        return result

    def _close_pairs(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return distances whose sums of powers leave float64: each pair's differences over their greatest."""
        import torch

        difference = self._rows(first) - self._rows(second)
        greatest = difference.abs().amax(dim=1)
        ratio = difference / torch.where(greatest > 0, greatest, 1.0)[:, None]
        total = torch.zeros_like(greatest)
        self._add(total, ratio)
        power = self._power()
        chord = greatest * (total.sqrt() if power == 2 else total.pow(1.0 / power))
        result: NDArray[np.float64] = (self._angle(chord) if self.name == "haversine" else chord).cpu().numpy()
        return result

    def square(self, members: Indices) -> NDArray[np.float64]:
        """Return all distances among `members`; see :meth:`Metric.square`."""
        return square_in_strips(self, members, rows=SQUARE_ROWS)

    def subset(self, members: NDArray[np.int64]) -> TorchMetric:
        """Return the metric on a copy of the rows `members`; see :meth:`Metric.subset`."""
        import torch

        at = torch.from_numpy(np.ascontiguousarray(members, dtype=np.int64)).to(self.X.device)
        view = object.__new__(TorchMetric)
        view.__dict__.update(self.__dict__)
        view.X = self.X[at]
        if self._norms is not None:
            view._norms, view._greatest = self._norms[at], self._greatest[at]
        return view

    def _power(self) -> float:
        return {"cityblock": 1.0, "chebyshev": np.inf, "minkowski": self.p}.get(self.name, 2.0)

    def _add(self, total: torch.Tensor, difference: torch.Tensor) -> None:
        """Accumulate, in place, what the coordinates on the last axis of `difference` contribute."""
        import torch

        power = self._power()
        if power == np.inf:
            torch.maximum(total, difference.abs().amax(dim=-1), out=total)
        elif power == 2:
            total += difference.square().sum(dim=-1)
        else:
            total += difference.abs().pow(power).sum(dim=-1)

    def _finish(self, total: torch.Tensor) -> torch.Tensor:
        power = self._power()
        if self.name == "sqeuclidean" or power in (1.0, np.inf):
            return total
        root = total.sqrt() if power == 2 else total.pow(1.0 / power)
        return self._angle(root) if self.name == "haversine" else root

    def _angle(self, chord: torch.Tensor) -> torch.Tensor:
        return 2 * (chord / 2).clamp(max=1.0).asin()


def _shifted(values: torch.Tensor, exponent: int) -> torch.Tensor:
    """Return ``values * 2 ** exponent``, in two steps, because the power itself may be no float64."""
    half = exponent // 2
    return values * 2.0**half * 2.0 ** (exponent - half) if exponent else values


def _lengths(X: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the lengths of rows over their greatest coordinates, and these (1 for rows of zeros)."""
    import torch

    greatest = X.double().abs().amax(dim=1)
    greatest = torch.where(greatest > 0, greatest, 1.0)
    return (X.double() / greatest[:, None]).square().sum(dim=1).sqrt(), greatest


def _on_sphere(X: torch.Tensor) -> torch.Tensor:
    import torch

    if X.shape[1] != 2:
        raise InputError(f"X has {X.shape[1]} columns", expected="2 for metric='haversine': latitude and longitude")
    latitude, longitude = X.double().unbind(dim=1)
    if bool((latitude.abs() > np.pi / 2 + 1e-9).any()):
        raise InputError("metric='haversine': X has latitudes beyond pi/2; give radians, not degrees")
    across = latitude.cos()
    return torch.stack((across * longitude.cos(), across * longitude.sin(), latitude.sin()), dim=1)
