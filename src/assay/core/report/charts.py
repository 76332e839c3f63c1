"""Charts as pure functions from numbers to SVG text.

Every chart is 360 units wide, the width of a phone's page, so that its text stays readable there. It carries its
title and its numbers as `<title>` and `<desc>`. Colours are CSS variables that follow the reader's light or dark theme:
a page takes the rules of `chart_css` once; a file of its own (``standalone=True``) brings them along.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files

import numpy as np

from assay.core.claim import CaseFinding, Conclusion, PaperFigure
from assay.core.report.axes import Axis, fit_axis
from assay.core.report.wording import format_count, format_number

__all__ = ["Point", "Series", "chart_css", "curve_plot", "dot_plot", "growth_plot", "interval_plot"]

WIDTH = 360
INSET = 14
"""Between a chart's edge and the outermost value, so that marks there are whole."""
ROW = 34
MOST_ROWS = 40
CHARACTER = 6.6
"""The mean width of a character at the charts' font size."""
BOLD_CHARACTER = 7.6
COLOURS = 8
_MARKERS = ("circle", "square", "triangle", "diamond", "cross", "plus", "wedge", "bar")


@dataclass(frozen=True)
class Point:
    """A point of a curve: a median, with the range of the values behind it.

    Parameters
    ----------
    x, y : float
        Where it lies.
    low, high : float
        The range in the direction of y; NaN where there is none.
    """

    x: float
    y: float
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True)
class Series:
    """The points of one arm.

    Parameters
    ----------
    name : str
        For the legend.
    points : sequence of Point
        Joined in the order of x.
    note : str
        What the legend adds to the name, such as the fitted exponent.
    method : bool
        Whether this is the method itself, which is drawn with a full, heavier line.
    """

    name: str
    points: tuple[Point, ...]
    note: str = ""
    method: bool = False


@cache
def chart_css() -> str:
    """The style sheet that the charts' classes and colours come from.

    Examples
    --------
    >>> ".assay-chart" in chart_css()
    True
    """
    return files("assay.core.report").joinpath("static/charts.css").read_text(encoding="utf-8")


def interval_plot(
    conclusion: Conclusion,
    *,
    id: str,
    title: str,
    paper: Sequence[PaperFigure] = (),
    standalone: bool = False,
) -> str:
    """Draw what a test found: the estimate with its interval, the claimed region, the paper's figures, each case.

    Parameters
    ----------
    conclusion : Conclusion
        What was found. Its `threshold_low` and `threshold_high` bound the shaded region.
    id : str
        Unique in the page; a start for the ids within the chart.
    title : str
        What the chart shows, in a line.
    paper : sequence of PaperFigure
        Marked by a diamond and a dotted line.
    standalone : bool
        Make a file of its own, with its style.

    Returns
    -------
    str
        An ``<svg>`` element.

    Examples
    --------
    >>> found = Conclusion("holds", "", "ratio of seconds", 0.5, 0.4, 0.6, 0.95, None, 0.9, 10, 0.01, "bootstrap")
    >>> svg = interval_plot(found, id="faster", title="How much faster", paper=[PaperFigure("Table 2", 0.45)])
    >>> "claimed: up to 0.9" in svg
    True
    """
    cases = conclusion.by_case if len(conclusion.by_case) > 1 else ()
    shown = cases[:MOST_ROWS]
    overall = CaseFinding(
        "all cases" if cases else "", conclusion.estimate, conclusion.low, conclusion.high, conclusion.n
    )
    if not cases and conclusion.by_case:
        overall = CaseFinding(conclusion.by_case[0].case, overall.estimate, overall.low, overall.high, overall.n)
    limits = [limit for limit in (conclusion.threshold_low, conclusion.threshold_high) if limit is not None]
    values = [*limits, *(figure.value for figure in paper)]
    for row in (overall, *shown):
        values += [row.estimate, row.low, row.high]
    axis = fit_axis(values, start=INSET, end=WIDTH - INSET)

    claimed = _claimed(conclusion)
    top = 24.0 if claimed else 4.0
    rows = [("estimate", overall), *(("case", case) for case in shown)]
    rest = len(cases) - len(shown)
    bottom = top + ROW * (len(rows) + len(paper)) + (20 if rest else 0) + 6
    parts = []
    if claimed:
        parts += [_rect("claimed", 0, 3, 14, 14), _text(20, 14, claimed, "label")]
        parts.append(_claimed_region(conclusion, axis, top, bottom))
    for number, (kind, row) in enumerate(rows):
        y = top + ROW * number
        parts += [_rule("limit", axis.place(limit), y) for limit in limits]
        parts += [_rule("paper-line", axis.place(figure.value), y) for figure in paper if math.isfinite(figure.value)]
        parts.append(_interval_row(kind, row, axis, y))
    y = top + ROW * len(rows)
    if rest:
        parts.append(_text(2, y + 14, f"and {format_count(rest, 'case')} more, in the table", "label quiet"))
        y += 20
    for figure in paper:
        parts.append(_paper_row(figure, axis, y))
        y += ROW
    parts.append(_horizontal_axis(axis, bottom))
    caption = _wrapped(conclusion.quantity + (", logarithmic axis" if axis.log else ""))
    parts += [_text(WIDTH / 2, bottom + 36 + 15 * n, line, "label quiet middle") for n, line in enumerate(caption)]
    description = [f"{conclusion.quantity}: {_words(overall)}.", *(f"{case.case}: {_words(case)}." for case in shown)]
    if claimed:
        description.insert(1, f"{claimed[0].upper()}{claimed[1:]}.")
    description += [f"The paper's {figure.label}: {format_number(figure.value)}." for figure in paper]
    return _svg(
        parts,
        id=id,
        title=title,
        description=" ".join(description),
        height=bottom + 44 + 15 * len(caption) - 8,
        standalone=standalone,
    )


def growth_plot(
    series: Sequence[Series], *, id: str, title: str, x_label: str, y_label: str, standalone: bool = False
) -> str:
    """Draw how a measurement grows with size: both axes logarithmic, each arm's fitted exponent in the legend.

    Parameters
    ----------
    series : sequence of Series
        One an arm.
    id, title : str
        As in `interval_plot`.
    x_label, y_label : str
        What the axes measure, with units.
    standalone : bool
        Make a file of its own, with its style.

    Returns
    -------
    str
        An ``<svg>`` element.

    Examples
    --------
    >>> squares = Series("peer", (Point(10, 100), Point(20, 400)))
    >>> svg = growth_plot([squares], id="growth", title="Time", x_label="n", y_label="seconds")
    >>> "peer (exponent 2)" in svg
    True
    """
    fitted = []
    for one in series:
        exponent = fitted_exponent(one.points)
        note = "" if exponent is None else f"exponent {format_number(exponent)}"
        fitted.append(Series(one.name, one.points, "; ".join(part for part in (note, one.note) if part), one.method))
    return curve_plot(
        fitted, id=id, title=title, x_label=x_label, y_label=y_label, log_x=True, log_y=True, standalone=standalone
    )


def fitted_exponent(points: Sequence[Point]) -> float | None:
    """The least-squares slope of log y over log x; None where fewer than two sizes can be used."""
    usable = [(point.x, point.y) for point in points if 0 < point.x < math.inf and 0 < point.y < math.inf]
    if len({x for x, _ in usable}) < 2:
        return None
    x, y = np.log(np.array(usable)).T
    return float(np.polyfit(x, y, 1)[0])


def curve_plot(
    series: Sequence[Series],
    *,
    id: str,
    title: str,
    x_label: str,
    y_label: str,
    log_x: bool | None = None,
    log_y: bool | None = None,
    joined: bool = True,
    standalone: bool = False,
) -> str:
    """Draw curves, or a cloud of points where they aren't `joined`, such as cost against quality.

    Parameters
    ----------
    series : sequence of Series
        One an arm; told apart by marker and line as well as by colour.
    id, title : str
        As in `interval_plot`.
    x_label, y_label : str
        What the axes measure, with units.
    log_x, log_y : bool, optional
        The kind of axis; chosen by the values' spread when left out.
    joined : bool
        Whether points of a series are joined.
    standalone : bool
        Make a file of its own, with its style.

    Returns
    -------
    str
        An ``<svg>`` element. Points that an axis can't show are counted in its description.

    Examples
    --------
    >>> arms = [Series("mine", (Point(0.2, 0.91),), method=True), Series("peer", (Point(1.5, 0.93),))]
    >>> svg = curve_plot(arms, id="cost", title="Cost", x_label="seconds", y_label="accuracy", joined=False)
    >>> svg.startswith("<svg")
    True
    """
    xs = [point.x for one in series for point in one.points]
    ys = [value for one in series for point in one.points for value in (point.y, point.low, point.high)]
    heading = _wrapped(y_label)
    top = 8.0 + 15 * len(heading)
    bottom = top + 200
    left = 58.0
    x_axis = fit_axis(xs, start=left + INSET, end=WIDTH - INSET, log=log_x)
    y_axis = fit_axis(ys, start=bottom - INSET, end=top + INSET, log=log_y)
    parts = [_text(2, 14 + 15 * n, line, "label quiet") for n, line in enumerate(heading)]
    parts += [
        _line("grid", left, y_axis.place(value), WIDTH, y_axis.place(value))
        + _text(left - 6, y_axis.place(value) + 4, label, "tick end")
        for value, label in y_axis.ticks()
    ]
    hidden = 0
    for number, one in enumerate(series):
        drawn = [
            point
            for point in sorted(one.points, key=lambda point: point.x)
            if _on(x_axis, point.x) and _on(y_axis, point.y)
        ]
        hidden += len(one.points) - len(drawn)
        parts.append(_curve(one, drawn, number, x_axis, y_axis, joined=joined))
    parts.append(_horizontal_axis(x_axis, bottom, left=left))
    caption = _wrapped(x_label)
    parts += [
        _text((left + WIDTH) / 2, bottom + 36 + 15 * n, line, "label quiet middle") for n, line in enumerate(caption)
    ]
    y = bottom + 44 + 15 * len(caption)
    for number, one in enumerate(series):
        note = f" ({one.note})" if one.note else ""
        kind = " own" if one.method else ""
        parts.append(
            f'<g class="series s{number % COLOURS}{kind}">'
            + (_line("curve", 2, y, 28, y) if joined else "")
            + f"{_marker(number, 15, y)}</g>"
            + _text(36, y + 4, _shortened(one.name, 46 - len(note)) + note, "label", full=one.name + note)
        )
        y += 20
    description = [
        f"{one.name}{f' ({one.note})' if one.note else ''}: "
        + ", ".join(f"{format_number(point.y)} at {format_number(point.x)}" for point in one.points)
        + "."
        for one in series
    ]
    if hidden:
        description.append(f"{format_count(hidden, 'point')} can't be drawn on these axes.")
    intro = f"Horizontally {x_label}, vertically {y_label}."
    return _svg(
        parts, id=id, title=title, description=" ".join([intro, *description]), height=y - 4, standalone=standalone
    )


def dot_plot(values: Sequence[float], *, axis: Axis, title: str = "") -> str:
    """Draw each value as a dot and the median as a line, small enough for a cell of a table.

    Parameters
    ----------
    values : sequence of float
        NaN and infinities aren't drawn.
    axis : Axis
        Shared by the cells that are compared.
    title : str
        What it shows; without one it is an ornament beside numbers that say the same, hidden from screen readers.

    Returns
    -------
    str
        An ``<svg>`` element.

    Examples
    --------
    >>> dot_plot([1.0, 2.0, 4.0], axis=Axis(0.0, 5.0, 4.0, 92.0), title="three trials").startswith("<svg")
    True
    """
    finite = sorted(value for value in values if math.isfinite(value) and (value > 0 or not axis.log))
    low, high = sorted((axis.start, axis.end))
    places = dict.fromkeys(f"{axis.place(value):.0f}" for value in finite)
    dots = "".join(f"M{place} 7h0" for place in places)
    median = f'<path class="median" d="M{axis.place(float(np.median(finite))):.1f} 1v12"/>' if finite else ""
    naming = f'role="img" aria-label="{_escaped(title)}"' if title else 'aria-hidden="true"'
    width = round(high + low)
    size = f'viewBox="0 0 {width} 14" width="{width}" height="14"'
    return f'<svg class="dots" {size} {naming}><path d="{dots}"/>{median}</svg>'


def _claimed(conclusion: Conclusion) -> str:
    low, high = conclusion.threshold_low, conclusion.threshold_high
    if low is not None and high is not None:
        return f"claimed: from {format_number(low)} to {format_number(high)}"
    if low is not None:
        return f"claimed: above {format_number(low)}"
    if high is not None:
        return f"claimed: up to {format_number(high)}"
    return ""


def _claimed_region(conclusion: Conclusion, axis: Axis, top: float, bottom: float) -> str:
    low, high = conclusion.threshold_low, conclusion.threshold_high
    left = 0.0 if low is None else axis.place(low)
    right = float(WIDTH) if high is None else axis.place(high)
    return _rect("claimed", left, top, right - left, bottom - top)


def _rule(kind: str, x: float, y: float) -> str:
    """A vertical line beside a row's interval; it leaves the row's text free."""
    return _line(kind, x, y + 16, x, y + 32)


def _interval_row(kind: str, row: CaseFinding, axis: Axis, y: float) -> str:
    middle = y + 24
    value = _range_text(row)
    room = int((WIDTH - 8) / (BOLD_CHARACTER if kind == "estimate" else CHARACTER)) - len(value)
    label = f"{row.case}, n = {row.n}" if row.case else f"n = {row.n}"
    marks = [
        _text(2, y + 13, _shortened(label, room), "label", full=label),
        _text(WIDTH - 2, y + 13, value, "label end"),
    ]
    if _on(axis, row.low) and _on(axis, row.high):
        left, right = axis.place(row.low), axis.place(row.high)
        marks.append(f'<path class="interval" d="M{left:.1f} {middle - 4}v8m0 -4H{right:.1f}m0 -4v8"/>')
    if math.isfinite(row.estimate):
        x = axis.place(row.estimate)
        marks.append(
            _rect("mark", x - 4.5, middle - 4.5, 9, 9) if kind == "estimate" else _circle("mark", x, middle, 3.5)
        )
    elif not math.isnan(row.estimate):
        edge, direction = (axis.end + INSET - 2, -8) if row.estimate > 0 else (axis.start - INSET + 2, 8)
        marks.append(f'<path class="mark" d="M{edge:.1f} {middle}l{direction} -5v10z"/>')
    return f'<g class="{kind}">{"".join(marks)}</g>'


def _paper_row(figure: PaperFigure, axis: Axis, y: float) -> str:
    value = format_number(figure.value)
    label = f"paper: {figure.label}"
    room = round((WIDTH - 8) / CHARACTER) - len(value)
    diamond = (
        f'<path class="mark" d="M{axis.place(figure.value):.1f} {y + 18}l6 6l-6 6l-6 -6z"/>'
        if math.isfinite(figure.value)
        else ""
    )
    return (
        f'<g class="paper">{_text(2, y + 13, _shortened(label, room), "label", full=label)}'
        f"{_text(WIDTH - 2, y + 13, value, 'label end')}{diamond}</g>"
    )


def _range_text(row: CaseFinding) -> str:
    if math.isnan(row.estimate):
        return "no value"
    if row.low == row.estimate == row.high:
        return format_number(row.estimate)
    return f"{format_number(row.estimate)} [{format_number(row.low)}, {format_number(row.high)}]"


def _words(row: CaseFinding) -> str:
    if math.isnan(row.estimate):
        return "no value"
    return (
        f"{format_number(row.estimate)}, interval from {format_number(row.low)} to {format_number(row.high)}, "
        f"n = {row.n}"
    )


def _horizontal_axis(axis: Axis, y: float, *, left: float = 0.0) -> str:
    parts = [_line("axis", left, y, WIDTH, y)]
    occupied = -math.inf
    for value, label in axis.ticks():
        x, half = axis.place(value), len(label) * CHARACTER / 2
        parts.append(_line("axis", x, y, x, y + 4))
        center = min(max(x, left + half), WIDTH - half)
        if center - half > occupied:
            parts.append(_text(center, y + 17, label, "tick middle"))
            occupied = center + half + 6
    return "".join(parts)


def _curve(one: Series, points: Sequence[Point], number: int, x_axis: Axis, y_axis: Axis, *, joined: bool) -> str:
    places = [(x_axis.place(point.x), y_axis.place(point.y)) for point in points]
    marks = []
    if joined and len(places) > 1:
        marks.append(f'<polyline class="curve" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in places)}"/>')
    for point, (x, y) in zip(points, places, strict=True):
        if _on(y_axis, point.low) and _on(y_axis, point.high) and point.low < point.high:
            marks.append(_line("range", x, y_axis.place(point.low), x, y_axis.place(point.high)))
        marks.append(_marker(number, x, y))
    return f'<g class="series s{number % COLOURS}{" own" if one.method else ""}">{"".join(marks)}</g>'


def _marker(number: int, x: float, y: float) -> str:
    shape = _MARKERS[(number + number // COLOURS) % len(_MARKERS)]
    if shape == "circle":
        return _circle("mark", x, y, 4)
    path = {
        "square": "m-4 -4h8v8h-8z",
        "triangle": "m0 -5l5 9h-10z",
        "diamond": "m0 -5.5l5.5 5.5l-5.5 5.5l-5.5 -5.5z",
        "cross": "m-4 -4l8 8m0 -8l-8 8",
        "plus": "m-5 0h10m-5 -5v10",
        "wedge": "m0 5l5 -9h-10z",
        "bar": "m-5 -2h10v4h-10z",
    }[shape]
    return f'<path class="mark" d="M{x:.1f} {y:.1f}{path}"/>'


def _on(axis: Axis, value: float) -> bool:
    return math.isfinite(value) and (value > 0 or not axis.log)


def _wrapped(text: str, *, most: int = 50) -> list[str]:
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > most:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return [_shortened(line, most) for line in lines]


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: max(1, most - 1)].rstrip()}…"


def _escaped(text: str) -> str:
    """Escape for HTML and XML, without the control characters that XML can't hold."""
    return escape("".join(one for one in text if one >= " " or one in "\n\t"))


def _text(x: float, y: float, text: str, kind: str, *, full: str = "") -> str:
    tip = f"<title>{_escaped(full)}</title>" if full and full != text else ""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{tip}{_escaped(text)}</text>'


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _rect(kind: str, x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"/>'


def _circle(kind: str, x: float, y: float, radius: float) -> str:
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"/>'


def _svg(parts: Sequence[str], *, id: str, title: str, description: str, height: float, standalone: bool) -> str:
    name = _escaped(id)
    space = ' xmlns="http://www.w3.org/2000/svg"' if standalone else ""
    style = f"<style>{chart_css()}</style>" if standalone else ""
    return (
        f'<svg{space} class="assay-chart" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" height="{height:.0f}" '
        f'role="img" aria-labelledby="{name}-title" aria-describedby="{name}-desc">'
        f'<title id="{name}-title">{_escaped(title)}</title><desc id="{name}-desc">{_escaped(description)}</desc>'
        f"{style}{''.join(parts)}</svg>"
    )
