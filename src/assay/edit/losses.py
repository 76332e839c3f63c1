"""What an edited block is fitted to: the new keys, the old outputs elsewhere, and away from the old key.

The three presets are one function with named switches. Their weights differ because the paper's formulas, its words and
its released code do; the method's page says where.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.core.errors import InputError
from assay.edit.tangle import Calibration

__all__ = ["PRESETS", "LossSettings", "Parts", "block_loss", "purge_term", "weights"]

Combination: TypeAlias = Literal["official", "paper", "adaptive", "unke"]
LARGEST_RATE, SMALLEST_RATE = 1e-3, 1e-4
"""lambda_max and lambda_min of the paper's schedule."""

GAMMA = math.log(LARGEST_RATE) / math.log(SMALLEST_RATE)
OFFICIAL_RATE = 0.1
CLAMP_IN_RMS = 10.0
"""The clamp of the adaptive purge, in root mean squares of the residual."""


def _either(value: object, names: tuple[str, ...], low: float, high: float) -> bool:
    if isinstance(value, str):
        return value in names
    return isinstance(value, int | float) and low <= float(value) <= high


@dataclass(frozen=True)
class LossSettings:
    """Which terms a block is fitted with, and how they are weighed.

    Attributes
    ----------
    combination : str
        ``"official"`` (the released code), ``"paper"``, ``"adaptive"``, or ``"unke"`` (fit and preservation,
        unweighted).
    alpha : str or float
        The weight of the edit against preservation: ``"sigmoid"`` of the score, ``"calibrated"`` (sigmoid of the
        standardised score), or a number.
    purge : bool
        Whether the old key repels.
    rate : str or float
        The purge's weight: ``"linear"`` in the score (the code), ``"literal"`` (the paper's formula, which falls as
        the score rises), ``"ranked"`` (the paper's words: rising with the score's rank), or a number.
    gain : float
        What the purge's weight is multiplied by.
    reference : str
        What repels: the ``"original"`` key, or the new ``"target"`` (the released code).
    clamp : float or "auto"
        Beyond which distance a coordinate is repelled no more; ``"auto"`` is 10 root mean squares of the residual.
    imprint : bool
        Whether the new key attracts; without it the edit only unlearns.
    scaled : bool
        Whether squared errors are divided by the residual's mean square.
    padding : bool
        Whether means run over padding too, as the released code's do.
    decay_norms : bool
        Whether the norms' weights decay like all others.
    bounded : bool
        Whether the purge is the clamped one; otherwise the squared error is ascended, which has no bound.
    """

    combination: Combination = "adaptive"
    alpha: Literal["sigmoid", "calibrated"] | float = "calibrated"
    purge: bool = True
    rate: Literal["linear", "literal", "ranked"] | float = "ranked"
    gain: float = 1.0
    reference: Literal["original", "target"] = "original"
    clamp: float | Literal["auto"] = "auto"
    imprint: bool = True
    scaled: bool = True
    padding: bool = False
    decay_norms: bool = False
    bounded: bool = True

    def __post_init__(self) -> None:
        checks = (
            (
                self.combination in ("official", "paper", "adaptive", "unke"),
                "combination",
                "official, paper, adaptive, unke",
            ),
            (
                _either(self.alpha, ("sigmoid", "calibrated"), 0, 1),
                "alpha",
                "sigmoid, calibrated, or a number from 0 to 1",
            ),
            (
                _either(self.rate, ("linear", "literal", "ranked"), 0, math.inf),
                "rate",
                "linear, literal, ranked, or 0 or more",
            ),
            (self.reference in ("original", "target"), "reference", "original or target"),
            (self.clamp == "auto" or _either(self.clamp, (), 1e-30, math.inf), "clamp", "auto, or a positive number"),
            (_either(self.gain, (), 0, math.inf), "gain", "0 or more"),
        )
        for right, name, expected in checks:
            if not right:
                raise InputError(f"{name} is {getattr(self, name)!r}", expected=expected)

    def changed(self, **switches: Any) -> LossSettings:
        """The same settings with some switches changed."""
        return replace(self, **switches)


PRESETS: dict[str, LossSettings] = {
    "adaptive": LossSettings(),
    "paper": LossSettings(combination="paper", alpha="sigmoid", rate="literal", clamp=1.0, scaled=False),
    "official": LossSettings(
        combination="official",
        alpha="sigmoid",
        rate="linear",
        reference="target",
        clamp=1.0,
        scaled=False,
        padding=True,
        decay_norms=True,
    ),
    "unke": LossSettings(combination="unke", alpha=0.5, purge=False, rate=0.0, clamp=1.0, scaled=False),
}
"""The named settings."""


def weights(
    scores: NDArray[np.float64], settings: LossSettings, calibration: Calibration
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The weights alpha and PR of each request.

    Parameters
    ----------
    scores : ndarray of float64, shape (requests,)
        TangleScores.
    settings : LossSettings
        Which formulas.
    calibration : Calibration
        Where the model's scores lie.

    Returns
    -------
    alpha, rate : ndarray of float64, shape (requests,)
    """
    if settings.alpha == "sigmoid":
        alpha = 1 / (1 + np.exp(-scores))
    elif settings.alpha == "calibrated":
        alpha = 1 / (1 + np.exp(-np.clip(calibration.standardised(scores), -50, 50)))
    else:
        alpha = np.full_like(scores, settings.alpha)
    if not settings.purge:
        return alpha, np.zeros_like(scores)
    if settings.rate == "linear":
        rate = OFFICIAL_RATE * scores
    elif settings.rate == "literal":
        rate = LARGEST_RATE ** (GAMMA * scores)
    elif settings.rate == "ranked":
        rate = SMALLEST_RATE * (LARGEST_RATE / SMALLEST_RATE) ** np.clip(calibration.rank(scores), 0, 1)
    else:
        rate = np.full_like(scores, settings.rate)
    return alpha, settings.gain * rate


@dataclass(frozen=True)
class Parts:
    """What a block's outputs are compared with, fixed before the first step.

    Attributes
    ----------
    keys : Tensor, shape (prompts, tokens, d)
        The old outputs with the new keys written in.
    original : Tensor, shape (prompts, tokens, d)
        The old outputs.
    real : Tensor of bool, shape (prompts, tokens)
        Which tokens aren't padding.
    edited : Tensor of bool, shape (prompts, tokens)
        Where new keys were written.
    preserved : Tensor or None, shape (texts, tokens, d)
        The old outputs on the texts to preserve.
    preserved_real : Tensor of bool or None, shape (texts, tokens)
        Which of their tokens aren't padding.
    """

    keys: Tensor
    original: Tensor
    real: Tensor
    edited: Tensor
    preserved: Tensor | None = None
    preserved_real: Tensor | None = None


def block_loss(
    outputs: Tensor,
    preserved: Tensor | None,
    parts: Parts,
    *,
    alpha: Tensor,
    rate: Tensor,
    settings: LossSettings,
) -> Tensor:
    """The loss of a block that says `outputs` on the prompts and `preserved` on the texts to preserve.

    Parameters
    ----------
    outputs : Tensor, shape (prompts, tokens, d)
        The block's outputs on the prompts.
    preserved : Tensor or None, shape (texts, tokens, d)
        On the texts to preserve.
    parts : Parts
        What they are compared with.
    alpha, rate : Tensor, shape (prompts,)
        The weights of each request.
    settings : LossSettings
        Which terms.

    Returns
    -------
    Tensor
        A scalar.
    """
    error = (outputs - parts.keys).square().mean(-1)
    keep = torch.zeros((), device=outputs.device, dtype=outputs.dtype)
    if preserved is not None and parts.preserved is not None and parts.preserved_real is not None:
        errors = (preserved - parts.preserved).square().mean(-1)
        keep = errors.mean() if settings.padding else errors[parts.preserved_real].mean()
    rms = parts.original[parts.edited].square().mean().sqrt()
    scale = rms.square() if settings.scaled else 1.0
    clamp = CLAMP_IN_RMS * rms if settings.clamp == "auto" else settings.clamp
    reference = parts.keys if settings.reference == "target" else parts.original
    whole = torch.ones_like(parts.real) if settings.padding else parts.real
    if settings.combination in ("official", "unke"):
        fit = error[whole].mean() if settings.imprint else 0.0 * error.sum()
        if settings.combination == "unke":
            return fit / scale + keep / scale
        purge = purge_term(outputs, reference, clamp=clamp, bounded=settings.bounded)[whole].mean()
        return alpha.sum() * fit / scale + (1 - alpha).sum() * keep / scale + rate.sum() * purge
    last = _row_mean(error, parts.edited)
    rest = _row_mean(error, parts.real & ~parts.edited)
    imprinted = last if settings.imprint else 0.0 * last
    repelled = _row_mean(purge_term(outputs, reference, clamp=clamp, bounded=settings.bounded), parts.edited)
    if settings.combination == "paper":
        return (rate * repelled + (alpha * rest + (1 - alpha) * keep + imprinted) / scale).sum()
    return (alpha * (imprinted + rest) / scale + rate * repelled).mean() + (1 - alpha).mean() * keep / scale


def purge_term(outputs: Tensor, reference: Tensor, *, clamp: float | Tensor, bounded: bool = True) -> Tensor:
    """How near the outputs still are to what they should leave: ``mean max(0, 1 - |f - ref| / c)²`` over dimensions.

    Its gradient is at most ``2 / (c d)`` a coordinate, 0 from the distance c on, and 0 at the reference itself, where
    the absolute value has none. Without the bound it is ``-mean (f - ref)²``, whose descent never ends.

    Parameters
    ----------
    outputs, reference : Tensor, shape (…, d)
        What the block says, and what repels.
    clamp : float or Tensor
        The distance c.
    bounded : bool
        Which of the two.

    Returns
    -------
    Tensor, shape (…)
    """
    if not bounded:
        return -(outputs - reference).square().mean(-1)
    return torch.clamp(1 - (outputs - reference).abs() / clamp, min=0).square().mean(-1)


def _row_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Means over marked tokens by row; 0 where none is marked."""
    return (values * mask).sum(1) / mask.sum(1).clamp(min=1)
