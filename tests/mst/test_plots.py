"""Pictures show the numbers that they were given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.cluster.hierarchy import linkage

from assay.core.errors import InputError
from assay.mst.plots import (
    check_figure_output,
    plot_budgets,
    plot_component_sizes,
    plot_dendrogram,
    plot_tree,
    save_figure,
    tree_layout,
)


def random_tree(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    names = rng.permutation(n)
    edges = np.column_stack([np.arange(1, n), [rng.integers(0, child) for child in range(1, n)]])
    return names[edges], rng.uniform(0.1, 2.0, n - 1)


def cross(p: np.ndarray, q: np.ndarray, r: np.ndarray, s: np.ndarray) -> bool:
    def side(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> float:
        return float((b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]))

    slack = 1e-9
    return side(p, q, r) * side(p, q, s) < -slack and side(r, s, p) * side(r, s, q) < -slack


@pytest.mark.parametrize("seed", range(5))
def test_the_layout_keeps_edge_lengths_and_crosses_no_edges(seed: int) -> None:
    edges, weights = random_tree(25, seed)
    places = tree_layout(edges, weights)
    np.testing.assert_allclose(np.linalg.norm(places[edges[:, 0]] - places[edges[:, 1]], axis=1), weights)
    for first in range(len(edges)):
        for second in range(first):
            if not set(edges[first]) & set(edges[second]):
                assert not cross(*places[edges[first]], *places[edges[second]])


def test_the_layout_refuses_what_is_no_spanning_tree() -> None:
    with pytest.raises(InputError, match="reach 2 of 4 points"):
        tree_layout(np.array([[0, 1], [2, 3], [3, 2]]), np.ones(3))
    with pytest.raises(InputError, match="names point 7; expected a spanning tree of 2 points"):
        tree_layout(np.array([[0, 7]]), np.ones(1))


def test_a_single_point_has_a_place() -> None:
    assert tree_layout(np.empty((0, 2), dtype=np.int64), np.empty(0)).tolist() == [[0.0, 0.0]]


def test_budget_curves_show_excess_over_calls_and_leave_out_what_is_unknown() -> None:
    rows = [{"calls": 10.0, "alpha": 1.5, "ratio": 1.2}, {"calls": 100.0, "alpha": 1.25, "ratio": 1.0}]
    axes = plot_budgets(rows).axes[0]
    curves = {line.get_label(): line.get_xydata() for line in axes.get_lines()}
    assert set(curves) == {"α, certified", "cost ratio"}
    np.testing.assert_allclose(curves["α, certified"], [[10, 0.5], [100, 0.25]])
    np.testing.assert_allclose(curves["cost ratio"], [[10, 0.2], [100, 0.2 / 3]])


def test_the_histogram_counts_every_component_once() -> None:
    sizes = {"random": np.array([1, 1, 2, 5, 5, 400]), "kcenter": np.array([1, 1000])}
    panels = plot_component_sizes(sizes).axes
    for axes, values in zip(panels, sizes.values(), strict=True):
        assert sum(patch.get_height() for patch in axes.patches) == len(values)
        assert axes.patches[0].get_height() == (values == 1).sum()
    assert panels[1].get_title(loc="left") == "kcenter: 2 components, the largest of 1,000 points"


@pytest.mark.parametrize("n", [2, 40, 5000])
def test_a_dendrogram_of_any_size_is_drawn_with_its_names(n: int) -> None:
    points = np.arange(n, dtype=float)[:, None] ** 1.01
    axes = plot_dendrogram(linkage(points, "single"), names=[f"p{i}" for i in range(n)], shown=50).axes[0]
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert len(labels) == min(n, 50)
    assert sum(label.startswith("p") for label in labels) >= min(n, 49)


def test_a_dendrogram_of_one_point_is_refused() -> None:
    with pytest.raises(InputError, match="at least 2 points"):
        plot_dendrogram(np.empty((0, 4)))


@pytest.mark.parametrize(("ending", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")])
def test_a_tree_is_drawn_in_every_format(tmp_path: Path, ending: str, start: bytes) -> None:
    edges, weights = random_tree(30, 0)
    figure = plot_tree(tree_layout(edges, weights), edges, weights=weights, title="thirty points")
    segments = figure.axes[0].collections[0].get_segments()
    assert len(segments) == 29
    save_figure(figure, tmp_path / f"ü picture{ending}")
    assert (tmp_path / f"ü picture{ending}").read_bytes().startswith(start)


def test_a_figure_is_not_written_over_a_file_or_in_an_unknown_format(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"precious")
    with pytest.raises(InputError, match="exists already"):
        check_figure_output(tmp_path / "a.png")
    with pytest.raises(InputError, match=r"unknown ending '.gif'; expected one of .png, .svg, .pdf"):
        check_figure_output(tmp_path / "a.gif")
