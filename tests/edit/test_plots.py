"""The pictures: what stands in them, and what has no picture."""

from __future__ import annotations

import numpy as np
import pytest

from assay.core.errors import InputError
from assay.edit.pictures import check_pictures, draw
from assay.edit.plots import (
    picture_bytes,
    plot_decay,
    plot_difficulty,
    plot_interference,
    plot_old_answers,
    plot_shifts,
)


def test_the_curve_through_difficulty_is_monotone_and_keeps_the_mean():
    rng = np.random.default_rng(0)
    scores, costs = rng.normal(size=20), rng.normal(size=20)
    for rising in (True, False):
        line = plot_difficulty(scores, [*costs[:-1], np.nan], rising=rising).axes[0].lines[0]
        heights = np.asarray(line.get_ydata())
        assert (np.diff(heights) * (1 if rising else -1) >= 0).all()
        assert (np.diff(line.get_xdata()) >= 0).all()
        assert heights.mean() == pytest.approx(costs[:-1].mean())


def test_old_answers_have_a_mark_each_and_a_density_of_mass_one_where_there_are_enough():
    lines = plot_old_answers([1.0, 2.0, 4.0, np.nan], [3.0, 3.0]).axes[0].lines
    assert [len(line.get_xdata()) for line in lines] == [3, 200, 2]
    wide = plot_old_answers(np.linspace(0, 1, 50), []).axes[0].lines[1]
    assert np.trapezoid(wide.get_ydata(), wide.get_xdata()) == pytest.approx(1, abs=0.1)


def test_a_heat_map_holds_the_matrix_and_numbers_its_cells():
    matrix = np.array([[1.0, -0.25], [0.5, 2.0], [0.0, 0.1]])
    axes = plot_interference(matrix, names=["one", "two", "three"]).axes[0]
    assert np.array_equal(axes.images[0].get_array(), matrix)
    assert [text.get_text() for text in axes.texts] == ["1.00", "-0.25", "0.50", "2.00", "0.00", "0.10"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["one", "two", "three"]


def test_shifts_stand_longest_first_and_decay_has_a_panel_a_measure():
    bars = plot_shifts([1.0, np.nan, 3.0]).axes[0].patches
    assert [bar.get_height() for bar in bars] == [3.0, 1.0]
    panels = plot_decay({"cost": [1.0, 2.0], "drift": [0.1, 0.2]}).axes
    assert [panel.get_title(loc="left") for panel in panels] == ["cost", "drift"]
    assert panels[1].lines[0].get_ydata().tolist() == [0.1, 0.2]


def test_equal_figures_are_equal_files():
    assert picture_bytes(plot_shifts([1.0])) == picture_bytes(plot_shifts([1.0]))
    assert picture_bytes(plot_shifts([1.0]), kind="png").startswith(b"\x89PNG")


def test_nothing_to_draw_is_said_and_leaves_out_the_picture(tmp_path):
    for empty in (
        lambda: plot_shifts([]),
        lambda: plot_old_answers([np.nan], []),
        lambda: plot_difficulty([1.0], [np.nan]),
    ):
        with pytest.raises(InputError):
            empty()
    folder = tmp_path / "pictures"
    written = draw(str(folder), {"none": lambda: plot_shifts([]), "one": lambda: plot_shifts([2.0])})
    assert written == [str(folder / "one.svg")]
    with pytest.raises(InputError, match=r"one\.svg: exists already"):
        check_pictures(str(folder), ["one"])
    check_pictures(str(folder), ["two"])
    for name, message in (
        ("", "is empty"),
        (str(folder / "one.svg"), "is a file"),
        (str(tmp_path / "a" / "b"), "doesn't exist"),
    ):
        with pytest.raises(InputError, match=message):
            check_pictures(name, ["one"])
