"""Refusals of arguments that several public functions take."""

from __future__ import annotations

from typing import Any

import numpy as np

from assay.core.errors import InputError

__all__ = ["require_seed", "require_whole"]


def require_whole(name: str, value: Any, *, least: int, most: int | None = None, what: str = "") -> int:
    """Return a whole number from `least` to `most`, and refuse anything else; `what` is what it counts."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise InputError(f"{name} is {value!r}", expected=f"a whole number{f' of {what}' if what else ''}")
    if value < least or (most is not None and value > most):
        limits = f"at least {least}" if most is None else f"{least} to {most}"
        raise InputError(f"{name} is {value}", expected=f"{limits} {what}".strip())
    return int(value)


def require_seed(value: Any, *, name: str = "random_state") -> int:
    """Return a seed, and refuse what is none."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise InputError(f"{name} is {value!r}", expected="a whole number from 0")
    return int(value)
