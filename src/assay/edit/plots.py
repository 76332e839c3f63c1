"""Pictures of edits: made by matplotlib without a display."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import InputError, MissingPackageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "picture_bytes",
    "plot_decay",
    "plot_difficulty",
    "plot_interference",
    "plot_old_answers",
    "plot_shifts",
]

INK, ACCENT, SECOND = "#22303c", "#1f6f8b", "#c8553d"
Numbers = Sequence[float] | NDArray[np.float64]
MOST_NAMED = 24
"""Edits up to which a heat map names and numbers its cells."""


def plot_difficulty(
    scores: Numbers, outcomes: Numbers, *, rising: bool = True, outcome: str = "", title: str = ""
) -> Figure:
    """Plot what an edit came to against its TangleScore, with the monotone curve that fits best.

    Parameters
    ----------
    scores, outcomes : sequence of float
        One of each an edit; pairs with one that isn't a number are left out.
    rising : bool
        Whether the curve rises (a cost) or falls (a score).
    outcome : str
        What the outcome is, for its axis.
    title : str
        What the figure is of.

    Returns
    -------
    Figure

    Raises
    ------
    InputError
        No pair is left.
    """
    from scipy.optimize import isotonic_regression

    x, y = np.asarray(scores, dtype=np.float64), np.asarray(outcomes, dtype=np.float64)
    known = np.isfinite(x) & np.isfinite(y)
    x, y = x[known], y[known]
    if not len(x):
        raise InputError("no edit has both a TangleScore and an outcome", expected="at least one")
    order = np.lexsort((y, x))
    figure, axes = _figure(title)
    axes.plot(x[order], isotonic_regression(y[order], increasing=rising).x, color=SECOND, linewidth=1.4)
    axes.scatter(x, y, color=ACCENT, s=22, zorder=3)
    axes.set_xlabel("TangleScore before the edit")
    axes.set_ylabel(outcome)
    return figure


def plot_old_answers(before: Numbers, after: Numbers, *, title: str = "") -> Figure:
    """Plot the densities of what the old answers cost before and after an edit.

    Parameters
    ----------
    before, after : sequence of float
        Nats a token, one an edit; what isn't a number is left out.
    title : str
        What the figure is of.

    Returns
    -------
    Figure
        Gaussian kernel densities over marks of the single values; marks alone where there are fewer than three
        different values.

    Raises
    ------
    InputError
        Neither side has a number.
    """
    from scipy.stats import gaussian_kde

    sides = [np.asarray(side, dtype=np.float64) for side in (before, after)]
    sides = [side[np.isfinite(side)] for side in sides]
    if not any(len(side) for side in sides):
        raise InputError("no request has an old answer", expected="at least one ground truth")
    whole = np.concatenate(sides)
    margin = 0.25 * (np.ptp(whole) or 1.0)
    places = np.linspace(whole.min() - margin, whole.max() + margin, 200)
    figure, axes = _figure(title)
    for side, label, colour in zip(sides, ("before", "after"), (ACCENT, SECOND), strict=True):
        axes.plot(side, np.zeros_like(side), "|", color=colour, markersize=14, label=label)
        if len(np.unique(side)) >= 3:
            axes.plot(places, gaussian_kde(side)(places), color=colour, linewidth=1.4)
    axes.set_xlabel("old answer, nats a token")
    axes.set_ylabel("density")
    axes.legend(frameon=False)
    return figure


def plot_interference(costs: NDArray[np.float64], *, names: Sequence[str] = (), title: str = "") -> Figure:
    """Plot what each patch does to each edit, as a heat map.

    Parameters
    ----------
    costs : ndarray of float64, shape (edits, patches)
        By how much the answer of an edit becomes cheaper under a patch, in nats a token.
    names : sequence of str
        Of the edits and patches, in this order; numbers without.
    title : str
        What the figure is of.

    Returns
    -------
    Figure
    """
    count, patches = costs.shape
    figure, axes = _figure(title, height=min(9.0, 2.2 + 0.45 * count))
    limit = float(np.nanmax(np.abs(costs))) or 1.0
    image = axes.imshow(costs, cmap="RdBu", vmin=-limit, vmax=limit, aspect="auto")
    figure.colorbar(image, ax=axes, label="cheaper by, nats a token")
    axes.grid(visible=False)
    axes.set_xlabel("patch")
    axes.set_ylabel("edit")
    if max(count, patches) <= MOST_NAMED:
        axes.set_xticks(range(patches), [str(number + 1) for number in range(patches)])
        axes.set_yticks(range(count), [_short(names[row]) if names else str(row + 1) for row in range(count)])
        for row, column in np.ndindex(costs.shape):
            value = costs[row, column]
            colour = "white" if abs(value) > 0.6 * limit else INK
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=7, color=colour)
    return figure


def plot_shifts(shifts: Numbers, *, title: str = "") -> Figure:
    """Plot how long the shifts of the residual stream are, longest first.

    Parameters
    ----------
    shifts : sequence of float
        Norms, one an edit; what isn't a number is left out.
    title : str
        What the figure is of.

    Returns
    -------
    Figure

    Raises
    ------
    InputError
        None is a number.
    """
    norms = np.asarray(shifts, dtype=np.float64)
    norms = np.sort(norms[np.isfinite(norms)])[::-1]
    if not len(norms):
        raise InputError("no request has a shift", expected="a patch fitted to target keys")
    figure, axes = _figure(title)
    axes.bar(np.arange(1, len(norms) + 1), norms, color=ACCENT)
    axes.set_xlabel("edit, longest shift first")
    axes.set_ylabel("norm of the shift")
    return figure


def plot_decay(curves: Mapping[str, Numbers], *, title: str = "") -> Figure:
    """Plot what becomes of the first edit, and of everything else, as more edits follow.

    Parameters
    ----------
    curves : mapping of str to sequence of float
        One value an edit, by what it measures; each gets a panel.
    title : str
        What the figure is of.

    Returns
    -------
    Figure
    """
    figure, first = _figure(title, height=1.2 + 2.2 * len(curves))
    first.remove()
    panels = figure.subplots(len(curves), sharex=True, squeeze=False)[:, 0]
    for axes, (name, values), colour in zip(panels, curves.items(), (ACCENT, SECOND, INK) * len(curves), strict=False):
        _style(axes, name)
        axes.plot(np.arange(1, len(values) + 1), values, marker="o", markersize=3, color=colour, linewidth=1.4)
    panels[-1].set_xlabel("edits made")
    return figure


def picture_bytes(figure: Figure, *, kind: str = "svg") -> bytes:
    """A figure as the bytes of a file of this kind: ``"svg"``, ``"png"`` or ``"pdf"``."""
    import matplotlib

    stream = io.BytesIO()
    # Without a date and with ids of their own, equal figures are equal files.
    metadata: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
    with matplotlib.rc_context({"svg.hashsalt": "assay", "svg.fonttype": "none"}):
        figure.savefig(stream, format=kind, dpi=150, bbox_inches="tight", metadata=metadata)
    return stream.getvalue()


def _figure(title: str, *, height: float = 4.2) -> tuple[Figure, Axes]:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingPackageError("matplotlib", what="a plot", extra="edit") from error
    figure = Figure(figsize=(7, height))
    axes = figure.add_subplot()
    _style(axes, title)
    return figure, axes


def _style(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=10, color=INK)
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _short(text: str) -> str:
    return text if len(text) <= 28 else f"{text[:26]}…"
