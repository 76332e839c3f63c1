"""Pictures of trees and of what they cost: made by matplotlib without a display."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.core.errors import InputError, MissingPackageError
from assay.core.files import atomic_path, check_output

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

__all__ = [
    "check_figure_output",
    "plot_budgets",
    "plot_component_sizes",
    "plot_dendrogram",
    "plot_tree",
    "principal_plane",
    "save_figure",
    "tree_layout",
]

FIGURE_SUFFIXES = (".png", ".svg", ".pdf")
INK, ACCENT, SECOND, THIRD = "#22303c", "#1f6f8b", "#c8553d", "#6b8f3c"
VECTOR_EDGES = 20_000
"""Edges up to which SVG and PDF keep every line; a larger tree becomes one image inside the page."""


def check_figure_output(path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Refuse a name that no figure can be written to, before any work is done."""
    suffix = Path(path).suffix.lower()
    if suffix not in FIGURE_SUFFIXES:
        raise InputError(f"unknown ending '{suffix}'", file=path, expected=f"one of {', '.join(FIGURE_SUFFIXES)}")
    check_output(path, force=force)


def save_figure(figure: Figure, path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Write a figure as ``.png`` (150 dots an inch), ``.svg`` or ``.pdf``, whole or not at all."""
    check_figure_output(path, force=force)
    with atomic_path(path, force=force) as temporary:
        figure.savefig(temporary, format=Path(path).suffix.lower()[1:], dpi=150, bbox_inches="tight")


def plot_budgets(rows: Sequence[Mapping[str, float]], *, title: str = "") -> Figure:
    """Plot α, β and the cost ratio of completions against the distance calls that they took.

    Parameters
    ----------
    rows : sequence of mappings
        One a budget, with ``calls`` and ``alpha``, and perhaps ``beta`` and ``ratio`` (the weight over that of the best
        completion of the same forest). A quantity is left out where its value is missing or not finite.
    title : str
        What the figure is of.

    Returns
    -------
    Figure
        Logarithmic axes: excess over 1 against calls. An excess of 0 stands on the bottom line.
    """
    figure, axes = _figure(title)
    calls = np.array([row["calls"] for row in rows], dtype=np.float64)
    curves = {
        "alpha": ("α, certified", ACCENT, "o"),
        "beta": ("β, certified", THIRD, "s"),
        "ratio": ("cost ratio", SECOND, "D"),
    }
    excesses = {name: np.array([row.get(name, np.nan) for row in rows], dtype=np.float64) - 1 for name in curves}
    positive = np.concatenate([excess[excess > 0] for excess in excesses.values()])
    floor = positive.min() / 3 if len(positive) else 1e-12
    for name, (label, colour, marker) in curves.items():
        known = np.isfinite(excesses[name])
        if known.any():
            heights = np.maximum(excesses[name][known], floor)
            axes.plot(calls[known], heights, marker=marker, color=colour, label=label, linewidth=1.4, markersize=5)
    axes.set_xscale("log")
    axes.set_yscale("log")
    _plain_numbers(axes.xaxis)
    axes.set_xlabel("distance calls")
    axes.set_ylabel("excess over the best completion (value − 1)")
    axes.legend(frameon=False)
    return figure


def plot_component_sizes(sizes: Mapping[str, NDArray[np.int64]], *, title: str = "") -> Figure:
    """Plot how many components of a forest have which size.

    Parameters
    ----------
    sizes : mapping of str to ndarray of int64, shape (t,)
        Component sizes by the name of the forest.
    title : str
        What the figure is of.

    Returns
    -------
    Figure
        A histogram a forest, with logarithmic bins and the largest component marked.
    """
    figure, first = _figure(title, height=1.2 + 2.2 * len(sizes))
    first.remove()
    panels = figure.subplots(len(sizes), sharex=True, squeeze=False)[:, 0]
    largest = max(int(values.max()) for values in sizes.values())
    bins = np.unique(np.floor(np.geomspace(1, largest + 1, 24))) - 0.5
    bins = np.append(bins[bins < largest], largest + 0.5)
    for axes, (name, values), colour in zip(panels, sizes.items(), (ACCENT, SECOND, THIRD), strict=False):
        _style(axes, f"{name}: {len(values):,} components, the largest of {int(values.max()):,} points")
        axes.hist(values, bins=bins, color=colour, edgecolor="white", linewidth=0.4)
        axes.axvline(values.max(), color=INK, linewidth=1, linestyle=":")
        axes.yaxis.get_major_locator().set_params(integer=True)
        axes.set_ylabel("components")
    panels[-1].set_xscale("log")
    panels[-1].set_xlim(0.9, 1.1 * largest)
    _plain_numbers(panels[-1].xaxis)
    panels[-1].set_xlabel("points in the component")
    figure.suptitle(title, x=0.06, ha="left", fontsize=11, color=INK)
    figure.tight_layout()
    return figure


def plot_dendrogram(
    merges: NDArray[np.float64], *, names: Sequence[str] | None = None, shown: int = 60, title: str = ""
) -> Figure:
    """Plot a single-linkage dendrogram.

    Parameters
    ----------
    merges : ndarray of float64, shape (n - 1, 4)
        A linkage as scipy's.
    names : sequence of n str, optional
        Labels of the leaves.
    shown : int
        Leaves that are drawn. With more points, the lowest merges are folded into leaves that show their size in
        brackets.
    title : str
        What the figure is of.
    """
    from scipy.cluster.hierarchy import dendrogram

    if not len(merges):
        raise InputError("a tree of one point has no dendrogram", expected="at least 2 points")
    figure, axes = _figure(title)
    n_points = len(merges) + 1
    label = None if names is None else (lambda node: str(names[node])[:24] if node < n_points else "")
    folded = n_points > shown
    drawing = dendrogram(
        merges,
        ax=axes,
        truncate_mode="lastp" if folded else None,
        p=shown,
        labels=None if folded or label is None else [label(point) for point in range(n_points)],
        color_threshold=0,
        above_threshold_color=ACCENT,
        leaf_rotation=90,
        leaf_font_size=7,
    )
    if folded and label is not None:
        axes.set_xticklabels(
            [label(node) or text for node, text in zip(drawing["leaves"], drawing["ivl"], strict=True)]
        )
    axes.grid(False, axis="x")
    axes.set_ylabel("distance at which groups merge")
    return figure


def plot_tree(
    positions: NDArray[np.float64],
    edges: NDArray[np.int64],
    *,
    weights: NDArray[np.float64] | None = None,
    title: str = "",
    axis_labels: tuple[str, str] | None = None,
) -> Figure:
    """Draw a tree in the plane.

    Parameters
    ----------
    positions : ndarray of float64, shape (n, 2)
        Where the points stand.
    edges : ndarray of int64, shape (n - 1, 2)
        The tree.
    weights : ndarray of float64, shape (n - 1,), optional
        Shown as the colour of the edges.
    title : str
        What the figure is of.
    axis_labels : pair of str, optional
        What the axes mean; without it they carry no scale.
    """
    from matplotlib.collections import LineCollection

    figure, axes = _figure(title)
    many = len(edges) > VECTOR_EDGES
    width = float(np.clip(30 / np.sqrt(len(edges) + 1), 0.1, 1.2))
    lines = LineCollection(list(positions[edges]), linewidths=width, rasterized=many, zorder=1, cmap="viridis_r")
    if weights is None or not len(weights):
        lines.set_color(INK)
    else:
        lines.set_array(weights)
        lines.set_clim(0, float(np.quantile(weights, 0.99)) or 1.0)
        figure.colorbar(lines, ax=axes, label="edge weight", shrink=0.8)
    axes.add_collection(lines)
    if len(positions) <= VECTOR_EDGES:
        size = float(np.clip(4000 / len(positions), 0.2, 18))
        axes.scatter(positions[:, 0], positions[:, 1], s=size, color=INK, linewidths=0, zorder=2)
    axes.autoscale()
    axes.set_aspect("equal")
    axes.grid(False)
    if axis_labels is None:
        axes.set_axis_off()
    else:
        axes.set_xlabel(axis_labels[0])
        axes.set_ylabel(axis_labels[1])
    return figure


def tree_layout(edges: NDArray[np.int64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Place the points of a tree in the plane so that no edges cross and edge lengths are the weights.

    Each subtree gets a wedge as wide as its share of the leaves (the equal-angle method for unrooted trees). It needs
    no coordinates, so it draws trees of strings and sets.

    Parameters
    ----------
    edges : ndarray of int64, shape (n - 1, 2)
        A spanning tree of the points 0 to n - 1.
    weights : ndarray of float64, shape (n - 1,)
        Edge lengths; zeros put points on one place.

    Returns
    -------
    ndarray of float64, shape (n, 2)
        Positions, in the units of the weights.

    Raises
    ------
    InputError
        The edges aren't a spanning tree.

    References
    ----------
    C. Meacham's equal-angle method, as described in J. Felsenstein, *Inferring Phylogenies*, 2004, chapter 34.
    """
    order, parent, length = _rooted(edges, weights)
    leaves = [0] * len(order)
    for node in reversed(order[1:]):
        leaves[node] = max(1, leaves[node])
        leaves[parent[node]] += leaves[node]
    x, y = [0.0] * len(order), [0.0] * len(order)
    # The wedge of a point: where it starts, how wide it is, and how much of it its first children have taken.
    start, width, used = [0.0] * len(order), [0.0] * len(order), [0.0] * len(order)
    width[order[0]] = 2 * math.pi
    for node in order[1:]:
        above = parent[node]
        width[node] = width[above] * leaves[node] / leaves[above]
        start[node] = start[above] + used[above]
        used[above] += width[node]
        angle = start[node] + width[node] / 2
        x[node] = x[above] + length[node] * math.cos(angle)
        y[node] = y[above] + length[node] * math.sin(angle)
    return np.column_stack([x, y])


def principal_plane(points: NDArray[Any]) -> tuple[NDArray[np.float64], tuple[str, str]]:
    """Project vectors to the plane that shows most of their variance.

    Parameters
    ----------
    points : ndarray, shape (n, d)
        One or two dimensions are taken as they are.

    Returns
    -------
    positions : ndarray of float64, shape (n, 2)
    axis_labels : pair of str
        What the two axes are, with the share of variance of principal components.
    """
    n_points, dimensions = points.shape
    if dimensions == 1:
        return np.column_stack([points[:, 0], np.zeros(n_points)]).astype(np.float64), ("coordinate 0", "")
    if dimensions == 2:
        return np.asarray(points, dtype=np.float64), ("coordinate 0", "coordinate 1")
    centred = np.asarray(points, dtype=np.float64) - points.mean(axis=0, dtype=np.float64)
    variances, axes = np.linalg.eigh(centred.T @ centred)
    total = variances.sum() or 1.0
    first, second = 100 * variances[-1] / total, 100 * variances[-2] / total
    labels = (f"principal component 1 ({first:.0f} %)", f"principal component 2 ({second:.0f} %)")
    return centred @ axes[:, [-1, -2]], labels


def _rooted(edges: NDArray[np.int64], weights: NDArray[np.float64]) -> tuple[list[int], list[int], list[float]]:
    """Points in breadth-first order from the middle of the longest hop path, their parents and the edges to them."""
    n_points = len(edges) + 1
    if len(edges) and int(edges.max()) >= n_points:
        raise InputError(f"an edge names point {int(edges.max())}", expected=f"a spanning tree of {n_points} points")
    ends = np.concatenate([edges[:, 0], edges[:, 1]])
    by_end = np.argsort(ends, kind="stable")
    neighbours = np.concatenate([edges[:, 1], edges[:, 0]])[by_end].tolist()
    lengths = np.concatenate([weights, weights])[by_end].tolist()
    first = np.searchsorted(ends[by_end], np.arange(n_points + 1)).tolist()

    def search(root: int) -> tuple[list[int], list[int], list[float]]:
        parent, length = [-1] * n_points, [0.0] * n_points
        parent[root] = root
        order = [root]
        for node in order:
            for slot in range(first[node], first[node + 1]):
                other = neighbours[slot]
                if parent[other] < 0:
                    parent[other] = node
                    length[other] = lengths[slot]
                    order.append(other)
        if len(order) < n_points:
            raise InputError(f"the edges reach {len(order)} of {n_points} points", expected="a spanning tree")
        return order, parent, length

    far = search(0)[0][-1]
    order, parent, _ = search(far)
    path = [order[-1]]
    while path[-1] != far:
        path.append(parent[path[-1]])
    return search(path[len(path) // 2])


def _figure(title: str, *, height: float = 4.6) -> tuple[Figure, Axes]:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingPackageError("matplotlib", what="a plot", extra="mst") from error
    figure = Figure(figsize=(7, height))
    axes = figure.add_subplot()
    _style(axes, title)
    return figure, axes


def _style(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=10, color=INK)
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _plain_numbers(axis: Any) -> None:
    """Label a logarithmic axis at 1, 2, 5, 10, … as 20 k or 3 M instead of with powers."""
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(EngFormatter(places=None, sep="\u2009"))
    axis.set_minor_formatter(NullFormatter())
