"""Pictures: recall against theory, basins against load, images before and after. Made by matplotlib without a
display.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import InputError
from assay.core.files import atomic_path, check_output

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["check_figure_output", "plot_basins", "plot_images", "plot_recall", "save_figure"]

SUFFIXES = (".png", ".svg", ".pdf")
INK, ACCENT, SECOND, THIRD = "#22303c", "#1f6f8b", "#c8553d", "#6b8f3c"
COLOURS = (ACCENT, SECOND, THIRD, "#7a5195", INK)


def check_figure_output(path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Refuse a name that no figure can be written to, before any work is done."""
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"unknown ending '{suffix}'", file=path, expected=f"one of {', '.join(SUFFIXES)}")
    check_output(path, force=force)


def save_figure(figure: Figure, path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Write a figure as ``.png``, ``.svg`` or ``.pdf``, whole or not at all."""
    check_figure_output(path, force=force)
    with atomic_path(path, force=force) as temporary:
        figure.savefig(temporary, format=Path(path).suffix.lower()[1:], dpi=150, bbox_inches="tight")


def plot_recall(
    theory: Mapping[str, ArrayLike],
    simulations: Mapping[str, ArrayLike] | None = None,
    *,
    mean_field: Mapping[str, ArrayLike] | None = None,
    title: str = "",
) -> Figure:
    """Draw m(t): theory as lines, simulations as points with bands from the 5th to the 95th percentile.

    Parameters
    ----------
    theory : mapping of str to array_like, shape (sweeps + 1,)
        Curves by label.
    simulations : mapping of str to array_like, shape (cues, sweeps + 1), optional
        Overlaps of single cues, under the labels of `theory`.
    mean_field : mapping of str to array_like, optional
        Curves without self-interaction, dashed.
    title : str
        The heading.

    Returns
    -------
    matplotlib.figure.Figure
    """
    figure, axes = _figure(6.4, 4.0)
    for (label, curve), colour in zip(theory.items(), _colours(len(theory)), strict=True):
        axes.plot(np.asarray(curve), color=colour, label=label)
        if mean_field is not None and label in mean_field:
            axes.plot(np.asarray(mean_field[label]), color=colour, linestyle="--", linewidth=1)
        if simulations is not None and label in simulations:
            found = np.atleast_2d(np.asarray(simulations[label], dtype=np.float64))
            sweeps = np.arange(found.shape[1])
            axes.plot(sweeps, found.mean(axis=0), "o", color=colour, markersize=4)
            axes.fill_between(sweeps, *np.percentile(found, [5, 95], axis=0), color=colour, alpha=0.15, linewidth=0)
    axes.set(xlabel="sweeps t", ylabel="overlap m(t)", ylim=(-0.05, 1.05), title=title)
    axes.legend(frameon=False, fontsize=8)
    return figure


def plot_basins(
    loads: Sequence[float],
    edges: Sequence[float],
    *,
    mean_field: Sequence[float] | None = None,
    measured: Mapping[float, float] | None = None,
    title: str = "",
) -> Figure:
    """Draw the smallest overlap that is recalled against the load.

    Parameters
    ----------
    loads, edges : sequence of float
        ``alpha'`` and the edges of the basins by theory.
    mean_field : sequence of float, optional
        The edges without self-interaction.
    measured : mapping of float to float, optional
        Edges of simulations by load.
    title : str
        The heading.

    Returns
    -------
    matplotlib.figure.Figure
    """
    figure, axes = _figure(5.2, 4.0)
    axes.fill_between(loads, edges, 1.0, color=ACCENT, alpha=0.12, linewidth=0)
    axes.plot(loads, edges, color=ACCENT, label="theory")
    if mean_field is not None:
        axes.plot(loads, mean_field, color=INK, linestyle="--", linewidth=1, label="without self-interaction")
    if measured:
        axes.plot(list(measured), list(measured.values()), "o", color=SECOND, label="simulation, half of the cues")
    axes.text(0.03, 0.93, "recalled", transform=axes.transAxes, color=ACCENT)
    axes.set(xlabel="load α'", ylabel="overlap of the cue m(0)", ylim=(0, 1), title=title)
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    return figure


def plot_images(rows: Mapping[str, ArrayLike], shape: tuple[int, int], *, columns: int = 10, title: str = "") -> Figure:
    """Draw bits as images, a labelled row each: cues, what was recalled, what was stored.

    Parameters
    ----------
    rows : mapping of str to array_like, shape (images, height * width)
        Bits; 0 among ±1 is drawn grey.
    shape : tuple of int
        Height and width.
    columns : int
        Images shown at most.
    title : str
        The heading.

    Returns
    -------
    matplotlib.figure.Figure
    """
    from matplotlib.figure import Figure

    arrays = {label: _grey(np.asarray(bits)) for label, bits in rows.items()}
    count = min(columns, *(len(bits) for bits in arrays.values()))
    figure = Figure(figsize=(0.8 * count + 1.2, 0.9 * len(arrays) + 0.3), layout="constrained")
    grid = figure.subplots(len(arrays), count, squeeze=False)
    for (label, bits), line in zip(arrays.items(), grid, strict=True):
        for axes, image in zip(line, bits, strict=False):
            axes.imshow(image.reshape(shape), cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
            axes.set(xticks=[], yticks=[])
        line[0].set_ylabel(label, rotation=0, ha="right", va="center", fontsize=8)
    figure.suptitle(title, fontsize=9)
    return figure


def _grey(bits: NDArray[Any]) -> NDArray[np.float64]:
    values = bits.astype(np.float64)
    return (values + 1) / 2 if (values < 0).any() else values


def _figure(width: float, height: float) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _colours(count: int) -> list[str]:
    return [COLOURS[number % len(COLOURS)] for number in range(count)]
