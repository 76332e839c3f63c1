"""Pictures of learning curves, of recoveries, and of what each level holds: made by matplotlib without a display."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import MissingPackageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Curve", "plot_curves", "plot_levels"]

COLOURS = {
    "s2q": "#1f6f8b",
    "qmix": "#c8553d",
    "vdn": "#6b8f3c",
    "iql": "#8a8a8a",
    "owqmix": "#b8860b",
    "cwqmix": "#7b4f9e",
}
OTHER = "#22303c"
MOST_WORDS = 12
"""Actions whose values are written into the cells of a heat map; more would not be legible."""


@dataclass(frozen=True)
class Curve:
    """A quantity over steps, with its interval over seeds.

    Attributes
    ----------
    steps : (M,) array of float
        Where.
    middle, low, high : (M,) array of float
        The value, and its interval.
    """

    steps: NDArray[np.float64]
    middle: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def plot_curves(
    curves: Mapping[str, Curve],
    *,
    title: str = "",
    along: str = "environment steps",
    quantity: str = "greedy return",
    changes: Sequence[float] = (),
) -> Figure:
    """Plot curves of several algorithms, each with its interval as a band.

    Parameters
    ----------
    curves : mapping of str to Curve
        By algorithm.
    title : str
        What the figure is of.
    along, quantity : str
        What is on the axes.
    changes : sequence of float
        Where the payoff changes: a vertical line each.

    Returns
    -------
    Figure
    """
    figure, axes = _figure()
    _style(axes, title)
    for name, curve in curves.items():
        colour = COLOURS.get(name, OTHER)
        axes.fill_between(curve.steps, curve.low, curve.high, color=colour, alpha=0.15, linewidth=0)
        axes.plot(curve.steps, curve.middle, color=colour, label=name, linewidth=1.5)
    for change in changes:
        axes.axvline(change, color=OTHER, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.set_xlabel(along)
    axes.set_ylabel(quantity)
    if curves:
        axes.legend(frameon=False, ncols=2)
    return figure


def plot_levels(
    payoff: NDArray[np.float64],
    levels: NDArray[np.floating[Any]],
    *,
    held: Sequence[tuple[int, int]],
    actions: Sequence[Sequence[str]],
    title: str = "",
) -> Figure:
    """Plot the payoff of a game of two agents beside what each level makes of it.

    Parameters
    ----------
    payoff : (A, A) array of float
        The payoff in force.
    levels : (L, A, A) array of float
        The value of each joint action, by level.
    held : sequence of (int, int)
        The joint action that each level holds: it gets a frame.
    actions : sequence of two sequences of str
        The names of each agent's actions.
    title : str
        What the figure is of.

    Returns
    -------
    Figure
    """
    size = max(2.2, 0.34 * len(payoff))
    figure, _ = _figure(width=(len(levels) + 1) * size + 0.8, height=size + 1.2)
    figure.clear()
    panels = figure.subplots(1, len(levels) + 1, squeeze=False)[0]
    pictures = [payoff, *levels]
    names = ["payoff", *(f"$Q_{level}$" for level in range(len(levels)))]
    best = np.unravel_index(int(np.argmax(payoff)), payoff.shape)
    frames = [tuple(map(int, best)), *held]
    for axes, values, name, frame in zip(panels, pictures, names, frames, strict=True):
        axes.imshow(values, cmap="viridis")
        axes.set_title(name, fontsize=10, color=OTHER)
        axes.set_xticks(range(len(payoff)), labels=list(actions[1]), fontsize=7, rotation=45)
        axes.set_yticks(range(len(payoff)), labels=list(actions[0]), fontsize=7)
        axes.add_patch(_frame(frame))
        if len(payoff) <= MOST_WORDS:
            _write_values(axes, values)
    figure.suptitle(title, fontsize=10, color=OTHER, x=0.02, ha="left")
    figure.tight_layout()
    return figure


def _frame(cell: tuple[int, ...]) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((cell[1] - 0.5, cell[0] - 0.5), 1, 1, fill=False, edgecolor="#d7263d", linewidth=2)


def _write_values(axes: Axes, values: NDArray[np.floating[Any]]) -> None:
    middle = (float(values.min()) + float(values.max())) / 2
    for row, column in np.ndindex(values.shape):
        colour = "white" if values[row, column] < middle else "black"
        axes.text(column, row, f"{values[row, column]:.3g}", ha="center", va="center", fontsize=7, color=colour)


def _figure(*, width: float = 7, height: float = 4.4) -> tuple[Figure, Axes]:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingPackageError("matplotlib", what="a plot", extra="marl") from error
    figure = Figure(figsize=(width, height), layout=None)
    return figure, figure.add_subplot()


def _style(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=10, color=OTHER)
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
