"""Devices, dtypes and seeds for the methods that use torch. Without torch there are no GPUs, and that is all."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from assay.core.errors import InputError, MissingPackageError

if TYPE_CHECKING:
    import torch

__all__ = ["gpu_names", "resolve_device", "resolve_dtype", "torch_generator"]

_DTYPES = ("float32", "float64", "bfloat16", "float16")


def gpu_names() -> list[str]:
    """The names of the CUDA devices that torch sees; empty without torch."""
    if importlib.util.find_spec("torch") is None:
        return []
    import torch

    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]


def resolve_device(name: str = "auto") -> torch.device:
    """Turn a name into a device; ``"auto"`` is the first GPU, or the CPU.

    Raises
    ------
    InputError
        torch doesn't know the name, or the machine lacks the device.
    MissingPackageError
        torch isn't installed.
    """
    _require_torch("a device")
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"device '{name}'", expected="auto, cpu, cuda or cuda:N") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(
            f"device '{name}'", expected=f"a device of this machine, which has {torch.cuda.device_count()} GPUs"
        )
    return device


def resolve_dtype(name: str) -> torch.dtype:
    """Turn the name of a floating dtype into the dtype.

    Raises
    ------
    InputError
        The name is none of float32, float64, bfloat16, float16.
    """
    _require_torch("a dtype")
    import torch

    if name not in _DTYPES:
        raise InputError(f"dtype '{name}'", expected=f"one of: {', '.join(_DTYPES)}")
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def torch_generator(seed: int, *, device: str | torch.device = "cpu") -> torch.Generator:
    """A seeded generator on a device."""
    _require_torch("a generator")
    import torch

    return torch.Generator(device=device).manual_seed(seed)


def _require_torch(what: str) -> None:
    if importlib.util.find_spec("torch") is None:
        raise MissingPackageError("torch", what=what, extra="torch")
