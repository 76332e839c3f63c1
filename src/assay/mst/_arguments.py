"""Checks of arguments that several modules share; each refusal names the argument and its value."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from assay.core.errors import InputError

__all__ = ["random_generator", "require_flag", "require_number", "require_share", "seed_of"]

RANDOM_STATES = "a whole number >= 0 or None, or a numpy Generator or RandomState"


def require_flag(name: str, value: Any) -> None:
    """Refuse what is neither true nor false: a text such as "no" would count as true."""
    if not isinstance(value, (bool, np.bool_)):
        raise InputError(f"{name} is {value!r}", expected="True or False")


def require_number(name: str, value: Any, *, least: float = -math.inf, expected: str) -> None:
    """Refuse what is no real number of at least `least`; NaN is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)) or not value >= least:
        raise InputError(f"{name} is {value!r}", expected=expected)


def require_share(name: str, value: Any) -> None:
    """Refuse what is no number between 0 and 1."""
    require_number(name, value, expected="a number between 0 and 1")
    if not 0 < value < 1:
        raise InputError(f"{name} is {value!r}", expected="a number between 0 and 1")


def seed_of(random_state: Any) -> int:
    """Return the seed that `random_state` stands for; a generator, as scikit-learn takes one, draws it."""
    if random_state is None:
        entropy = np.random.SeedSequence().entropy
        assert isinstance(entropy, int)
        return entropy
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    if isinstance(random_state, bool) or not isinstance(random_state, (int, np.integer)) or random_state < 0:
        raise InputError(f"random_state is {random_state!r}", expected=RANDOM_STATES)
    return int(random_state)


def random_generator(random_state: Any) -> np.random.Generator:
    """Return the source of random numbers that `random_state` stands for; a Generator is used itself."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    return np.random.default_rng(seed_of(random_state))
