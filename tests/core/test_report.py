"""The charts hold their numbers, the pages are sound HTML that nothing breaks out of, and the folder is safe."""

from __future__ import annotations

import json
import math
import re
import time
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from statistics import median
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.core.claim import CaseFinding, Conclusion, PaperFigure, conclude
from assay.core.errors import AssayError, InputError
from assay.core.ledger import Ledger
from assay.core.report import (
    Point,
    Series,
    curve_plot,
    dot_plot,
    export_results,
    fragment_css,
    gather_results,
    growth_plot,
    interval_plot,
    method_sections,
    read_results,
    write_report,
)
from assay.core.report.axes import Axis, fit_axis
from assay.core.report.pages import Media, check_command, index_page, method_page, page_name, slug
from assay.core.report.results import Results
from assay.core.report.tables import case_tables, environment_rows, failures
from assay.core.report.wording import format_count, format_duration, format_number, format_when
from assay.core.study import Case, Scale
from tests.core.sample_ledger import (
    CARD,
    EVIL_ARM,
    EVIL_CASE,
    PLUGIN,
    SCRIPT,
    STUDY,
    USER_ARM,
    fill_ledger,
    record,
)

SVG = "{http://www.w3.org/2000/svg}"
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
SUPERSCRIPTS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
finite = st.floats(allow_nan=False, allow_infinity=False)


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    return fill_ledger(tmp_path_factory.mktemp("measured") / "ledger")


@pytest.fixture(scope="module")
def site(ledger: Ledger, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(
        ledger, tmp_path_factory.mktemp("written") / "site", cards={"trees": CARD}, studies={"trees": STUDY}
    ).parent


@pytest.fixture(scope="module")
def results(ledger: Ledger) -> Results:
    return gather_results(ledger, "trees", card=CARD, study=STUDY)


class Page(HTMLParser):
    """Reads a page strictly: every element is closed where it was opened."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open, f"left open: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice"
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1:] == [tag], f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self.open):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def having(self, attribute: str) -> list[str]:
        return [attributes[attribute] for _, attributes in self.elements if attribute in attributes]


def pages(site: Path) -> dict[str, Page]:
    return {file.name: Page(file.read_text(encoding="utf-8")) for file in sorted(site.glob("*.html"))}


def conclusion(**changes: object) -> Conclusion:
    fields = {
        "outcome": "holds",
        "finding": "a finding",
        "quantity": "median ratio of seconds, a over b",
        "estimate": 0.4,
        "low": 0.3,
        "high": 0.55,
        "confidence": 0.95,
        "threshold_low": None,
        "threshold_high": 0.9,
        "n": 20,
        "p": 0.01,
        "method": "exact order statistics",
        "by_case": (CaseFinding("one", 0.35, 0.3, 0.4, 10), CaseFinding("two", 0.5, 0.45, 0.7, 10)),
    }
    return Conclusion(**{**fields, **changes})  # type: ignore[arg-type]


def parse(svg: str) -> ET.Element:
    return ET.fromstring(svg)


def value(text: str) -> float:
    text = text.replace("\N{MINUS SIGN}", "-").replace("\N{NARROW NO-BREAK SPACE}", "")
    mantissa, times, power = text.partition("×10")
    return float(mantissa) * (10.0 ** int(power.translate(SUPERSCRIPTS)) if times else 1.0)


def by_ticks(root: ET.Element, *, log: bool = False, vertical: bool = False) -> object:
    """The map from values to pixels that the labels of an axis's ticks announce."""
    kind, line, side = ("tick end", "grid", "y") if vertical else ("tick middle", "axis", "x")
    lines = [
        one
        for one in root.iter(f"{SVG}line")
        if one.get("class") == line and one.get(f"{side}1") == one.get(f"{side}2")
    ]
    pixels = [float(one.get(f"{side}1") or 0) for one in lines]
    found = []
    for text in root.iter(f"{SVG}text"):
        if text.get("class") == kind:
            label = float(text.get(side) or 0) - (4 if vertical else 0)
            found.append((value(text.text or ""), min(pixels, key=lambda pixel: abs(pixel - label))))
    (first, x_first), (last, x_last) = min(found), max(found)
    form = math.log if log else float

    def place(one: float) -> float:
        return x_first + (form(one) - form(first)) / (form(last) - form(first)) * (x_last - x_first)

    return place


def group(root: ET.Element, kind: str) -> list[ET.Element]:
    return [one for one in root.iter(f"{SVG}g") if one.get("class") == kind]


def test_axis_places_equal_differences_and_equal_ratios_at_equal_lengths() -> None:
    linear, log = Axis(-1.0, 3.0, 100.0, 300.0), Axis(0.01, 100.0, 300.0, 100.0, log=True)
    assert [linear.place(one) for one in (-1, 0, 1, 3)] == [100, 150, 200, 300]
    assert [log.place(one) for one in (0.01, 0.1, 1, 100)] == pytest.approx([300, 250, 200, 100])
    assert linear.place(math.inf) == 300
    assert linear.place(-math.inf) == 100
    assert log.place(0.0) == 300


@given(finite, finite, st.booleans())
def test_axis_has_a_few_ticks_within_itself_in_order(one: float, other: float, log: bool) -> None:
    axis = fit_axis((one, other, math.nan, math.inf), start=0, end=100, log=True if log else None)
    ticks = [tick for tick, _ in axis.ticks()]
    assert len(ticks) <= 5
    assert ticks == sorted(ticks)
    slack = 1e-6 * (axis.high - axis.low)
    assert all(axis.low - slack <= tick <= axis.high + slack for tick in ticks)


def test_axis_is_logarithmic_when_positive_values_spread_widely() -> None:
    assert fit_axis((1, 29), start=0, end=1).log is False
    assert fit_axis((1, 31), start=0, end=1).log is True
    assert fit_axis((0, 1000), start=0, end=1).log is False


@given(st.floats(min_value=-1e30, max_value=1e30).filter(lambda one: one == 0 or abs(one) > 1e-30))
def test_written_number_is_the_number_to_three_digits(number: float) -> None:
    assert value(format_number(number)) == pytest.approx(number, rel=5.1e-3)


def test_words_for_times_and_counts() -> None:
    assert format_duration(59.7) == "1 min"
    assert format_duration(3 * 86400 + 3600) == "3 days 1 h"
    assert format_duration(math.nan) == "an unknown time"
    assert format_count(1200, "trial") == "1\N{NARROW NO-BREAK SPACE}200 trials"
    assert format_when("2026-05-04T03:02:01+00:00") == "2026-05-04 03:02 UTC"
    assert format_when("yesterday") == "yesterday"


@given(st.text(max_size=20), st.text(max_size=20))
def test_different_names_have_different_slugs_that_need_no_quoting(one: str, other: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_-]+", slug(one))
    assert (slug(one) == slug(other)) == (one == other)


@pytest.mark.parametrize("log", [False, True])
def test_interval_plot_puts_marks_where_its_ticks_say(log: bool) -> None:
    factor = 100.0 if log else 1.0
    found = conclusion(
        by_case=(CaseFinding("one", 0.35, 0.3, 0.4, 10), CaseFinding("two", 0.5 * factor, 0.45, 0.7 * factor, 10))
    )
    root = parse(interval_plot(found, id="p", title="t", paper=(PaperFigure("Table 2", 0.62),), standalone=True))
    place = by_ticks(root, log=log)
    (estimate,) = group(root, "estimate")
    square = estimate.find(f"{SVG}rect")
    assert square is not None
    assert float(square.get("x") or 0) + float(square.get("width") or 0) / 2 == pytest.approx(place(0.4), abs=0.2)
    rows = [(estimate, 0.3, 0.55)]
    rows += [(row, case.low, case.high) for row, case in zip(group(root, "case"), found.by_case, strict=True)]
    for row, low, high in rows:
        path = row.find(f"{SVG}path")
        assert path is not None
        left, right = re.match(r"M([\d.]+) .*H([\d.]+)", path.get("d") or "").groups()  # type: ignore[union-attr]
        assert float(left) == pytest.approx(place(low), abs=0.2)
        assert float(right) == pytest.approx(place(high), abs=0.2)
    for row, case in zip(group(root, "case"), found.by_case, strict=True):
        circle = row.find(f"{SVG}circle")
        assert circle is not None
        assert float(circle.get("cx") or 0) == pytest.approx(place(case.estimate), abs=0.2)
    (paper,) = group(root, "paper")
    diamond = paper.find(f"{SVG}path")
    assert diamond is not None
    assert float(re.match(r"M([\d.]+)", diamond.get("d") or "").group(1)) == pytest.approx(place(0.62), abs=0.2)  # type: ignore[union-attr]


@pytest.mark.parametrize(("low", "high"), [(None, 0.9), (0.35, None), (0.35, 0.9)])
def test_claimed_region_reaches_from_limit_to_limit_or_edge(low: float | None, high: float | None) -> None:
    root = parse(interval_plot(conclusion(threshold_low=low, threshold_high=high), id="p", title="t", standalone=True))
    place = by_ticks(root)
    region = [one for one in root.iter(f"{SVG}rect") if one.get("class") == "claimed"][1]
    left = float(region.get("x") or 0)
    right = left + float(region.get("width") or 0)
    assert left == pytest.approx(0 if low is None else place(low), abs=0.2)
    assert right == pytest.approx(360 if high is None else place(high), abs=0.2)


def test_interval_plot_says_its_numbers_and_leaves_none_out() -> None:
    root = parse(
        interval_plot(conclusion(), id="p", title="A title", paper=(PaperFigure("Table 2", 0.62),), standalone=True)
    )
    description = root.findtext(f"{SVG}desc") or ""
    assert root.findtext(f"{SVG}title") == "A title"
    for number in ("0.4", "0.3", "0.55", "0.9", "0.62", "0.45", "0.7", "n = 20"):
        assert number in description
    assert root.get("role") == "img"
    ids = {one.get("id") for one in root.iter() if one.get("id")}
    assert {root.get("aria-labelledby"), root.get("aria-describedby")} == ids


def test_infinite_estimate_points_beyond_the_axis_and_nan_has_no_mark() -> None:
    infinite = conclusion(estimate=math.inf, low=0.5, high=math.inf, by_case=())
    root = parse(interval_plot(infinite, id="p", title="t", standalone=True))
    (row,) = group(root, "estimate")
    assert row.find(f"{SVG}rect") is None
    arrow = next(path for path in row.iter(f"{SVG}path") if path.get("class") == "mark")
    assert float(re.match(r"M([\d.]+)", arrow.get("d") or "").group(1)) > 346  # type: ignore[union-attr]
    lost = conclusion(by_case=(CaseFinding("one", math.nan, math.nan, math.nan, 0), CaseFinding("two", 1, 1, 1, 1)))
    root = parse(interval_plot(lost, id="p", title="t", standalone=True))
    assert [one.get("class") for one in group(root, "case")[0]] == ["label", "label end"]
    assert "one: no value." in (root.findtext(f"{SVG}desc") or "")


def test_interval_plot_of_many_cases_says_how_many_it_leaves_to_the_table() -> None:
    cases = tuple(CaseFinding(f"case {number}", 0.4, 0.3, 0.5, 3) for number in range(60))
    root = parse(interval_plot(conclusion(by_case=cases), id="p", title="t", standalone=True))
    assert len(group(root, "case")) == 40
    assert "and 20 cases more, in the table" in "".join(root.itertext())


def test_growth_plot_finds_the_exponent_and_draws_a_power_as_a_line() -> None:
    points = tuple(Point(n, 3 * n**1.5) for n in (100.0, 1000.0, 10000.0))
    svg = growth_plot(
        (Series("mine", points, method=True), Series("peer", tuple(Point(p.x, p.x**2) for p in points))),
        id="g",
        title="t",
        x_label="n",
        y_label="seconds",
        standalone=True,
    )
    root = parse(svg)
    text = "".join(root.itertext())
    assert "exponent 1.5" in text
    assert "exponent 2" in text
    line = next(one for one in root.iter(f"{SVG}polyline"))
    corners = [tuple(map(float, pair.split(","))) for pair in (line.get("points") or "").split()]
    (x1, y1), (x2, y2), (x3, y3) = corners
    assert (x2 - x1, y2 - y1) == pytest.approx((x3 - x2, y3 - y2), abs=0.2)
    x, y = by_ticks(root, log=True), by_ticks(root, log=True, vertical=True)
    assert corners[0] == pytest.approx((x(100), y(3 * 100**1.5)), abs=0.3)
    assert corners[2] == pytest.approx((x(10000), y(3 * 10000**1.5)), abs=0.3)


def test_curve_plot_counts_the_points_that_an_axis_cannot_show() -> None:
    series = (Series("a", (Point(1, 1), Point(2, math.inf), Point(0, 3), Point(4, math.nan))),)
    root = parse(curve_plot(series, id="c", title="t", x_label="x", y_label="y", log_x=True, standalone=True))
    assert "3 points can't be drawn" in (root.findtext(f"{SVG}desc") or "")
    assert len(list(root.iter(f"{SVG}circle"))) == 2  # the point, and the legend's


def test_arms_are_told_apart_without_colour() -> None:
    series = tuple(Series(str(number), (Point(1, number), Point(2, number))) for number in range(8))
    root = parse(curve_plot(series, id="c", title="t", x_label="x", y_label="y", standalone=True))
    shapes = set()
    for one in list(root.iter(f"{SVG}g"))[8:]:
        mark = next(part for part in one if part.get("class") == "mark")
        shapes.add(mark.tag if mark.tag.endswith("circle") else re.sub(r"^M[\d.]+ [\d.]+", "", mark.get("d") or ""))
    assert len(shapes) == 8


def test_dot_plot_has_a_dot_a_value_and_the_median() -> None:
    axis = Axis(0.0, 10.0, 4.0, 92.0)
    root = parse(dot_plot([0.0, 5.0, 10.0, math.nan, math.inf], axis=axis, title="three values"))
    dots, middle = (one.get("d") or "" for one in root)
    assert re.findall(r"M(\d+) ", dots) == ["4", "48", "92"]
    assert middle.startswith("M48.0 ")
    assert root.get("aria-label") == "three values"
    assert parse(dot_plot([1.0], axis=axis)).get("aria-hidden") == "true"


@given(st.text(max_size=60))
def test_no_name_breaks_out_of_a_chart(name: str) -> None:
    found = conclusion(quantity=name, by_case=(CaseFinding(name, 1, 1, 1, 1), CaseFinding("b", 2, 2, 2, 1)))
    svg = interval_plot(found, id=slug(name), title=name, paper=(PaperFigure(name, 1.0),))
    curve = curve_plot((Series(name, (Point(1, 2),), note=name),), id="c", title=name, x_label=name, y_label=name)
    for text in (svg, curve, dot_plot([1.0], axis=Axis(0, 1, 0, 1), title=name)):
        tags = {element.tag for element in parse(text).iter()}
        assert tags <= {"svg", "title", "desc", "g", "text", "line", "rect", "circle", "path", "polyline"}


def test_every_page_is_sound(site: Path) -> None:
    for name, page in pages(site).items():
        ids = page.having("id")
        assert len(ids) == len(set(ids)), name
        for attribute in ("for", "aria-labelledby", "aria-describedby", "aria-controls"):
            for target in page.having(attribute):
                assert set(target.split()) <= set(ids), (name, attribute, target)
        assert [tag for tag, _ in page.elements].count("h1") == 1
        assert ("html", {"lang": "en"}) in page.elements


def test_every_link_resolves(site: Path) -> None:
    ids = {name: set(page.having("id")) for name, page in pages(site).items()}
    seen = 0
    for name, page in pages(site).items():
        for target in page.having("href") + page.having("src"):
            parts = urlsplit(target)
            if parts.scheme in ("https", "data"):
                continue
            assert parts.scheme == ""
            file = unquote(parts.path) or name
            assert (site / file).is_file(), target
            if parts.fragment:
                assert unquote(parts.fragment) in ids[file], target
            seen += 1
    assert seen > 50


def test_hostile_names_stay_text(site: Path) -> None:
    for page in pages(site).values():
        assert [tag for tag, _ in page.elements].count("script") == 1
        assert not {tag for tag, _ in page.elements} & {"b", "i", "iframe", "object", "form"} - {"form"}
        assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
        assert not [target for target in page.having("href") if target.startswith("javascript")]
    method = pages(site)["trees.html"].text
    assert EVIL_ARM in method
    assert EVIL_CASE in method
    assert "<em>Not markup.</em>" in method
    assert PLUGIN in pages(site)["index.html"].text


def test_scoreboard_has_each_claim_with_verdict_finding_time_and_scale(site: Path, results: Results) -> None:
    text = pages(site)["index.html"].text
    verdicts = conclude(STUDY, "trees", "laptop", results.records)
    assert {verdict.outcome for verdict in verdicts} == {"holds", "fails", "undecided", "not run"}
    for verdict in verdicts:
        assert " ".join(verdict.statement.split()) in text
        assert " ".join(verdict.finding.split()) in text
    assert "took 3 min 36 s" in text  # 144 trials of 1.5 s
    assert "scale laptop" in text
    assert "2026-01-12 10:00 UTC" in text


def test_verdict_is_a_word_and_a_symbol_beside_its_colour(site: Path) -> None:
    text = (site / "trees.html").read_text(encoding="utf-8")
    for kind, symbol in (("holds", "✓"), ("fails", "✗"), ("undecided", "?"), ("not run", "–")):
        assert f'verdict-{kind.replace(" ", "-")}"><span aria-hidden="true">{symbol}</span>{kind}</span>' in text


def test_claim_shows_holm_and_the_papers_figures(results: Results) -> None:
    page = Page(method_page(results, media=Media(), ledger="l", made="2026-01-01T00:00:00+00:00")).text
    faster = next(verdict for verdict in results.verdicts if verdict.claim == "faster")
    assert faster.p_holm is not None
    assert f"p after Holm’s correction {format_number(faster.p_holm, digits=2)}" in page
    assert "the paper’s Table 2, GoogleNews 0.31" in page
    assert "paper: Table 2, GoogleNews" in page


def test_arms_table_holds_medians_and_ranges(results: Results) -> None:
    table = next(table for table in case_tables(results) if table.case == "n=2000")
    column = [name for name, _ in table.measures].index("seconds")
    for row in table.rows:
        values = [
            one.measurements["seconds"]
            for one in results.records
            if (one.case, one.arm, one.status) == ("n=2000", row.arm, "done")
        ]
        cell = row.cells[column]
        assert cell is not None
        assert (cell.median, cell.low, cell.high) == pytest.approx((median(values), min(values), max(values)))
        assert row.n == len(values)
    assert [(row.arm, row.failed) for row in table.rows] == [(USER_ARM, 0), ("mfc", 0), ("mfc-plain", 1), (EVIL_ARM, 0)]


def test_not_a_number_is_counted_and_infinity_is_shown(results: Results) -> None:
    table = case_tables(results)[0]
    odd = [name for name, _ in table.measures].index("odd")
    cells = {row.arm: row.cells[odd] for row in table.rows}
    assert cells["mfc"].text == "not a number"  # type: ignore[union-attr]
    assert cells["mfc"].not_numbers == 12  # type: ignore[union-attr]
    assert cells["mfc-plain"].text == "∞"  # type: ignore[union-attr]


def test_cases_come_in_the_studys_order(results: Results) -> None:
    assert [table.case for table in case_tables(results)] == ["n=1000", "n=2000", EVIL_CASE]
    conclusion = next(verdict.conclusion for verdict in results.verdicts if verdict.claim == "faster")
    assert conclusion is not None
    assert [case.case for case in conclusion.by_case] == ["n=1000", "n=2000", EVIL_CASE]


def test_users_arm_is_marked_and_in_the_command(site: Path, results: Results) -> None:
    assert f"{USER_ARM} yours" in pages(site)["trees.html"].text
    assert check_command(results) == f"assay check trees --scale laptop --arm {USER_ARM}"
    hostile = replace(results, method="a b; rm", records=())
    assert check_command(hostile) == "assay check 'a b; rm' --scale laptop"


def test_failed_trials_are_counted_with_their_last_line_and_traceback(site: Path) -> None:
    text = pages(site)["trees.html"].text
    assert "1 trial of 144 gave no result" in text
    assert "failed: MemoryError: <img src=x onerror=alert(1)>" in text
    assert 'File "trees.py", line 3, in grow' in text


def test_failures_of_one_kind_are_one_row(results: Results) -> None:
    first = results.records[0]
    broken = [replace(first, seed=seed, status="died", error="signal 9") for seed in range(30)]
    (row,) = failures([*broken, first])
    assert (row.last_line, row.seeds) == ("signal 9", list(range(30)))


def test_growth_chart_joins_cases_that_differ_in_size_alone(site: Path) -> None:
    text = pages(site)["trees.html"].text
    assert "seconds as n grows, data = uniform" in text
    exponents = dict(re.findall(r"(\S+) \(exponent ([\d.]+)\)", text))
    assert float(exponents["mfc"]) == pytest.approx(1.5, abs=0.1)
    assert float(exponents["mfc-plain"]) == pytest.approx(2.0, abs=0.1)


def test_artifacts_are_copied_and_shown_by_kind(site: Path, ledger: Ledger) -> None:
    page = pages(site)["trees.html"]
    images = [attributes for tag, attributes in page.elements if tag == "img"]
    assert len(images) == 6
    assert all(image["alt"] for image in images)
    assert len([tag for tag, _ in page.elements if tag == "audio"]) == 2
    downloads = [attributes["href"] for tag, attributes in page.elements if tag == "a" and "download" in attributes]
    assert {Path(unquote(one)).suffix for one in downloads} == {".glb", ".json", ".csv", ".txt"}
    kept = next(one for one in ledger.read("trees") if one.artifacts and one.scale == "laptop")
    copied = site / "artifacts" / "trees" / kept.key / "mesh.glb"
    assert copied.read_bytes() == ledger.artifact(kept, "mesh.glb")
    assert "<i>0.25</i>" in page.text


def test_lost_artifact_is_said_to_be_lost(tmp_path: Path) -> None:
    ledger = fill_ledger(tmp_path / "ledger", seeds=1)
    for file in (tmp_path / "ledger" / "trees" / "artifacts").rglob("mesh.glb"):
        file.unlink()
    page = write_report(ledger, tmp_path / "site", cards={"trees": CARD}, studies={"trees": STUDY})
    assert "mesh.glb (lost from the ledger)" in Page((page.parent / "trees.html").read_text(encoding="utf-8")).text


def test_method_that_is_not_installed_has_a_page_without_verdicts(site: Path) -> None:
    page = pages(site)[page_name(PLUGIN)]
    assert "isn't installed here" in page.text
    scoreboard = pages(site)["index.html"].text
    assert scoreboard.index("Trees that are nearly minimal") < scoreboard.rindex(PLUGIN)
    assert "loss" in page.text
    assert "the process ended with signal 9" in page.text
    assert not [one for one in page.having("class") if one.startswith("verdict")]


def test_method_that_lacks_a_package_says_which(ledger: Ledger) -> None:
    results = gather_results(ledger, "trees", card=replace(CARD, needs=("no_such_module_here",)))
    assert "needs no_such_module_here" in results.notices[0]
    assert results.verdicts == ()


def test_trials_of_older_code_are_left_out_and_counted(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    trials = list(STUDY.trials("trees", "smoke", arms=["mfc"]))
    ledger.add(record(trials[0]))
    ledger.add(record(trials[1], source="0" * 24, key="old"))
    results = gather_results(ledger, "trees", study=STUDY)
    assert [one.seed for one in results.records] == [0]
    assert results.notices == ("1 trial of older code or settings in the ledger is left out.",)


def test_study_whose_claim_looks_for_a_missing_measurement_still_has_a_page(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    for trial in STUDY.trials("trees", "smoke", arms=["mfc"]):
        ledger.add(record(trial, measurements={"seconds": 1.0}))
    results = gather_results(ledger, "trees", study=STUDY)
    assert results.verdicts == ()
    assert "weight_ratio" in results.notices[0]


def test_scale_is_chosen_or_the_largest(ledger: Ledger, results: Results, tmp_path: Path) -> None:
    assert results.scale == "laptop"
    assert results.other_scales == {"smoke": 8}
    assert gather_results(ledger, "trees", study=STUDY, scale="smoke").scale == "smoke"
    with pytest.raises(InputError, match="no scale 'huge'; expected one of: smoke, laptop, paper"):
        write_report(ledger, tmp_path / "site", cards={}, studies={"trees": STUDY}, scale="huge")


def test_environment_is_listed(results: Results) -> None:
    (rows,) = environment_rows(results.environments)
    assert ("processor", "Example <CPU> 3000") in rows
    assert any(name == "numpy" for name, _ in rows)


def test_empty_ledger_makes_a_report_that_says_so(tmp_path: Path) -> None:
    page = write_report(Ledger(tmp_path / "none"), tmp_path / "site", cards={}, studies={})
    assert "No method has trials yet" in Page(page.read_text(encoding="utf-8")).text


def test_study_without_trials_is_not_run(tmp_path: Path) -> None:
    page = write_report(Ledger(tmp_path / "none"), tmp_path / "site", cards={"trees": CARD}, studies={"trees": STUDY})
    assert "no trial yet" in Page(page.read_text(encoding="utf-8")).text


def test_older_report_is_replaced_as_a_whole(tmp_path: Path) -> None:
    ledger = fill_ledger(tmp_path / "ledger", seeds=1)
    folder = tmp_path / "site"
    write_report(ledger, folder, cards={"trees": CARD}, studies={"trees": STUDY})
    assert (folder / page_name(PLUGIN)).exists()
    for one in ledger.read(PLUGIN):
        ledger.remove(one)
    write_report(ledger, folder, cards={"trees": CARD}, studies={"trees": STUDY})
    assert not (folder / page_name(PLUGIN)).exists()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["ledger", "site"]


def test_foreign_folder_is_refused_and_untouched(tmp_path: Path) -> None:
    folder = tmp_path / "thesis"
    folder.mkdir()
    (folder / "index.html").write_text("mine")
    with pytest.raises(InputError, match="holds files that aren't a report"):
        write_report(Ledger(tmp_path / "l"), folder, cards={}, studies={}, force=True)
    assert (folder / "index.html").read_text() == "mine"


def test_report_with_a_users_file_is_kept_unless_forced(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l")
    page = write_report(ledger, tmp_path / "site", cards={}, studies={})
    (page.parent / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"holds notes\.txt"):
        write_report(ledger, tmp_path / "site", cards={}, studies={})
    write_report(ledger, tmp_path / "site", cards={}, studies={}, force=True)
    assert not (page.parent / "notes.txt").exists()


@pytest.mark.parametrize("kind", ["file", "no parent"])
def test_impossible_place_is_refused(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "taken" if kind == "file" else tmp_path / "no" / "site"
    if kind == "file":
        place.write_text("x")
    with pytest.raises(InputError, match="is a file" if kind == "file" else "doesn't exist"):
        write_report(Ledger(tmp_path / "l"), place, cards={}, studies={})


def test_failing_write_keeps_the_older_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(tmp_path / "l")
    page = write_report(ledger, tmp_path / "site", cards={}, studies={})
    before = page.read_text(encoding="utf-8")

    def full(*_: object, **__: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("assay.core.report.site.index_page", full)
    with pytest.raises(AssayError, match="No space left"):
        write_report(ledger, tmp_path / "site", cards={}, studies={})
    assert page.read_text(encoding="utf-8") == before
    assert [one.name for one in tmp_path.iterdir()] == ["site"]


def test_exported_results_give_the_same_verdicts_and_figures(ledger: Ledger, results: Results, tmp_path: Path) -> None:
    table, description = export_results(ledger, "trees", study=STUDY, scale="laptop", folder=tmp_path / "trees")
    export_results(ledger, "trees", study=STUDY, scale="smoke", folder=tmp_path / "trees")
    assert table.name == "laptop.parquet"
    assert len(json.loads(description.read_text(encoding="utf-8"))) == 1
    again = read_results(tmp_path / "trees", method="trees", scale="laptop", study=STUDY)
    assert [one.as_dict() for one in again.verdicts] == [one.as_dict() for one in results.verdicts]
    assert environment_rows(again.environments) == environment_rows(results.environments)
    with pytest.raises(InputError, match="exists already"):
        export_results(ledger, "trees", study=STUDY, scale="laptop", folder=tmp_path / "trees")


def test_results_of_another_method_or_a_damaged_description_are_refused(ledger: Ledger, tmp_path: Path) -> None:
    export_results(ledger, "trees", study=STUDY, scale="smoke", folder=tmp_path)
    with pytest.raises(InputError, match=r"smoke\.parquet: no trial of other at scale smoke"):
        read_results(tmp_path, method="other", scale="smoke")
    with pytest.raises(InputError, match="no such file"):
        read_results(tmp_path, method="trees", scale="laptop")
    (tmp_path / "environment.json").write_text("{")
    with pytest.raises(InputError, match=r"environment\.json: .*expected JSON"):
        read_results(tmp_path, method="trees", scale="smoke")
    with pytest.raises(InputError, match=r"environment\.json: .*expected JSON"):
        export_results(ledger, "trees", study=STUDY, scale="laptop", folder=tmp_path)
    with pytest.raises(InputError, match="no trial of trees at scale paper"):
        export_results(ledger, "trees", study=STUDY, scale="paper", folder=tmp_path)


def test_machine_of_a_description_without_digests_is_shown(ledger: Ledger, tmp_path: Path) -> None:
    export_results(ledger, "trees", study=STUDY, scale="smoke", folder=tmp_path)
    (tmp_path / "environment.json").write_text('{"cores": 2, "packages": {"numpy": "2.0"}}')
    results = read_results(tmp_path, method="trees", scale="smoke")
    assert environment_rows(results.environments) == [[("cores", "2"), ("numpy", "2.0")]]


def test_sections_are_sound_fragments_whose_ids_start_with_the_method(ledger: Ledger, tmp_path: Path) -> None:
    export_results(ledger, "trees", study=STUDY, scale="laptop", folder=tmp_path)
    sections = method_sections("trees", tmp_path, card=CARD, study=STUDY)
    parts = [sections.summary, sections.scoreboard, sections.claims, sections.curves, sections.arms]
    parts += [sections.failures, sections.environment]
    whole = Page("".join(parts))
    ids = whole.having("id")
    assert len(ids) == len(set(ids))
    assert all(one.startswith("trees-") for one in ids)
    assert {target.removeprefix("#") for target in whole.having("href")} <= set(ids)
    assert not [tag for tag, _ in whole.elements if re.fullmatch("h[1-6]|script|style", tag)]
    assert all(part.startswith('<div class="assay">') for part in parts)
    assert sections.counts == {"holds": 3, "fails": 2, "undecided": 2, "not run": 2}
    assert sections.command.startswith("assay check trees --scale laptop")
    assert sections.seconds == pytest.approx(216)
    assert "prefers-color-scheme: dark" in fragment_css()


def test_sections_without_a_study_have_no_claims(ledger: Ledger, tmp_path: Path) -> None:
    export_results(ledger, "trees", study=STUDY, scale="laptop", folder=tmp_path)
    sections = method_sections("trees", tmp_path)
    assert sections.claims == sections.scoreboard == ""
    assert "weight_ratio" in sections.arms


def test_five_thousand_trials_make_a_small_page_fast() -> None:
    cases = tuple(Case(f"n={n}", {"n": n, "data": "uniform"}) for n in range(500, 13000, 500))
    arms = {name: arm for name, arm in STUDY.arms.items() if name != "absent"}
    study = replace(STUDY, arms={**arms, "another": arms[EVIL_ARM]}, scales={"laptop": Scale(cases, seeds=50)})
    records = tuple(record(trial, study=study) for trial in study.trials("trees", "laptop"))
    failed = tuple(
        replace(one, status="failed", measurements={}, error=f"Traceback\n{'x' * 3000}\nError: {number}")
        for number, one in enumerate(records[:500])
    )
    verdicts = tuple(conclude(study, "trees", "laptop", records[-300:]))
    results = Results("trees", "laptop", (*failed, *records[500:]), {}, CARD, study, verdicts)
    assert len(results.records) == 5000
    started = time.process_time()
    page = method_page(results, media=Media(), ledger="l", made="2026-01-01T00:00:00+00:00")
    index_page([results], ledger="l", made="2026-01-01T00:00:00+00:00")
    assert time.process_time() - started < 3
    assert len(page.encode()) < 3_000_000
    assert SCRIPT not in page.replace(json.dumps(SCRIPT), "")
