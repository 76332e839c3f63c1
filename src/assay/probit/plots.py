"""Pictures: who is liked together, a map of items, calibration, and how often pairs were shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from assay.core.errors import InputError
from assay.core.files import atomic_path
from assay.probit._likelihood import triple_outcomes
from assay.probit.choices import KIND_NAMES, ChoiceData
from assay.probit.geometry import squared_distances
from assay.probit.information import local_squares

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from assay.probit.model import CorrelatedProbit

    Floats = NDArray[np.float64]

__all__ = [
    "PICTURE_SUFFIXES",
    "plot_correlation",
    "plot_error",
    "plot_map",
    "plot_pairs",
    "plot_reliability",
    "reliability",
    "save_figure",
]

INK = "#222222"
PICTURE_SUFFIXES = (".png", ".svg", ".pdf")
LABELLED = 60
"""Items up to which each gets its name."""

BINS = 10


def plot_correlation(
    model: CorrelatedProbit, *, kind: Literal["shifted", "centered"] = "shifted", title: str = ""
) -> Figure:
    """Correlations as a matrix, with items that go together side by side (average linkage, optimal leaf order)."""
    from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering
    from scipy.spatial.distance import squareform

    matrix = model.correlation(kind=kind)
    n = len(matrix)
    gaps = squareform(np.maximum(1 - matrix, 0.0), checks=False)
    order = leaves_list(optimal_leaf_ordering(linkage(gaps, "average"), gaps)) if n > 2 else np.arange(n)
    side = float(np.clip(2.5 + 0.24 * n, 4.5, 14.0))
    figure, axes = _figure(title or "Correlation of utilities", width=side + 1.2, height=side)
    axes.grid(False)
    image = axes.imshow(matrix[np.ix_(order, order)], cmap="RdBu_r", vmin=-1, vmax=1)
    names = [_short(model.items_[index]) for index in order] if n <= LABELLED else []
    axes.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
    axes.set_yticks(range(len(names)), names, fontsize=7)
    bar = figure.colorbar(image, ax=axes, shrink=0.8)
    bar.set_label(_KIND_SENTENCE[kind], fontsize=8)
    return figure


_KIND_SENTENCE = {
    "shifted": "correlation, shifted: the mean off the diagonal is a covariance of 0",
    "centered": "correlation, centred: independent items have -1/(n - 1)",
}


def plot_map(model: CorrelatedProbit, *, title: str = "") -> Figure:
    """Items in the plane of the covariance's two leading directions (classical scaling), coloured by their means.

    Items that the same people like are near each other.
    """
    values, vectors = np.linalg.eigh(model.covariance_)
    places = vectors[:, -2:][:, ::-1] * np.sqrt(np.maximum(values[-2:][::-1], 0.0))
    share = float(np.maximum(values[-2:], 0).sum() / np.maximum(values, 0).sum())
    figure, axes = _figure(title or f"Items by who likes them: {share:.0%} of the variance", width=7.5, height=6.0)
    scatter = axes.scatter(places[:, 0], places[:, 1], c=model.mu_, cmap="viridis", s=30, zorder=2)
    if len(model.items_) <= LABELLED:
        for item, (x, y) in zip(model.items_, places.tolist(), strict=True):
            axes.annotate(_short(item), (x, y), xytext=(4, 3), textcoords="offset points", fontsize=7, color=INK)
    axes.set_xlabel("first direction (units of a utility)")
    axes.set_ylabel("second direction")
    axes.set_aspect("equal", adjustable="datalim")
    figure.colorbar(scatter, ax=axes, shrink=0.8).set_label("mean utility", fontsize=8)
    return figure


def reliability(model: CorrelatedProbit, data: ChoiceData, *, bins: int = BINS) -> tuple[Floats, Floats, Floats]:
    """How often answers came that the model gives a probability, by that probability.

    Every question about three items has all its possible answers, each with the model's probability and whether it
    was given.

    Parameters
    ----------
    model : CorrelatedProbit
        Fitted to other people.
    data : ChoiceData
        Their answers, to the model's items.
    bins : int
        Bins of equal counts.

    Returns
    -------
    predicted, observed, counts : ndarray of float64, shape (bins,)
        Mean probability, share of answers, and how many answers were possible in each bin.
    """
    from assay.probit._likelihood import OUTCOMES

    place = np.array([model.position(item) for item in data.items], dtype=np.int64)
    squares = np.maximum(squared_distances(model.covariance_), 1e-9)
    predicted, given = [], []
    for kind in range(len(KIND_NAMES)):
        triples = place[data.triples[data.kinds == kind]]
        if not len(triples):
            continue
        p, _ = triple_outcomes(kind, model.mu_[triples], local_squares(triples, squares))
        predicted.append(p.ravel())
        given.append(np.tile([float(_was_given(kind, order)) for order in OUTCOMES[kind]], len(triples)))
    if not predicted:
        raise InputError("the data hold no question about three items", expected="rankings or best-of-three answers")
    x, y = np.concatenate(predicted), np.concatenate(given)
    parts = [part for part in np.array_split(np.argsort(x, kind="stable"), bins) if len(part)]
    return (
        np.array([x[part].mean() for part in parts]),
        np.array([y[part].mean() for part in parts]),
        np.array([float(len(part)) for part in parts]),
    )


def _was_given(kind: int, order: tuple[int, int, int]) -> bool:
    """Whether an answer is the one that was given: the identity order, or one that names the same item."""
    return (order == (0, 1, 2), order[0] == 0, order[2] == 2)[kind]


def plot_reliability(model: CorrelatedProbit, data: ChoiceData, *, title: str = "") -> Figure:
    """Observed shares against predicted probabilities, with two standard errors."""
    predicted, observed, counts = reliability(model, data)
    figure, axes = _figure(title or "Reliability: answers about three items", width=5.5, height=5.0)
    top = float(max(predicted.max(), observed.max())) * 1.1
    axes.plot([0, top], [0, top], color="#999999", linewidth=1)
    error = 2 * np.sqrt(np.maximum(observed * (1 - observed), 1e-12) / counts)
    axes.errorbar(predicted, observed, yerr=error, fmt="o", color="#1f5fa8", markersize=4, linewidth=1)
    axes.set_xlabel("predicted probability")
    axes.set_ylabel("share of answers")
    return figure


def plot_pairs(data: ChoiceData, *, title: str = "") -> Figure:
    """How many answers showed both items of each pair."""
    counts = data.pair_counts().astype(np.float64)
    n = data.n_items
    side = float(np.clip(2.5 + 0.24 * n, 4.5, 14.0))
    figure, axes = _figure(title or "Answers that showed both items", width=side + 1.2, height=side)
    axes.grid(False)
    np.fill_diagonal(counts, np.nan)
    image = axes.imshow(counts, cmap="viridis", vmin=0)
    names = [_short(item) for item in data.items] if n <= LABELLED else []
    axes.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
    axes.set_yticks(range(len(names)), names, fontsize=7)
    figure.colorbar(image, ax=axes, shrink=0.8).set_label("answers", fontsize=8)
    return figure


def plot_error(errors: Mapping[str, Sequence[tuple[float, float]]], *, title: str = "") -> Figure:
    """Error against the number of answers on logarithmic axes, one line an estimator, with the slope of -1/2.

    Parameters
    ----------
    errors : mapping
        From an estimator's name to pairs of answers and error.
    title : str
        A heading.
    """
    figure, axes = _figure(title or "Error against answers", width=6.5, height=4.6)
    for name, points in errors.items():
        x, y = np.array(sorted(points)).T
        axes.plot(x, y, marker="o", markersize=4, label=name)
    first = np.array(sorted(next(iter(errors.values()))))
    axes.plot(
        first[:, 0],
        first[0, 1] * np.sqrt(first[0, 0] / first[:, 0]),
        color="#999999",
        linestyle="--",
        label="slope -1/2",
    )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("answers")
    axes.set_ylabel("largest error of the covariance")
    axes.legend(frameon=False, fontsize=8)
    return figure


def save_figure(figure: Figure, path: str | PathLike[str], *, force: bool = False) -> None:
    """Write a figure as .png, .svg or .pdf.

    Raises
    ------
    InputError
        The name ends otherwise, or the file exists.
    """
    if Path(path).suffix.lower() not in PICTURE_SUFFIXES:
        raise InputError(
            f"unknown ending '{Path(path).suffix}'", file=path, expected=f"one of {', '.join(PICTURE_SUFFIXES)}"
        )
    with atomic_path(path, force=force) as temporary:
        figure.savefig(temporary, dpi=150, bbox_inches="tight")


def _short(item: Any, *, most: int = 24) -> str:
    text = str(item)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _figure(title: str, *, width: float, height: float) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontsize=10, color=INK)
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes
