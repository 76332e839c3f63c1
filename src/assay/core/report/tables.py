"""What the pages tabulate of the trials: arms on cases, failures, growth, cost against quality, environments."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from markupsafe import Markup

from assay.core.claim import Grows
from assay.core.ledger import Record
from assay.core.report.axes import fit_axis
from assay.core.report.charts import Point, Series, curve_plot, dot_plot, fitted_exponent, growth_plot
from assay.core.report.results import Results
from assay.core.report.wording import format_number

__all__ = [
    "ArmRow",
    "CaseTable",
    "Cell",
    "Failure",
    "case_tables",
    "cost_charts",
    "environment_rows",
    "failures",
    "growth_charts",
    "role_of",
]

DOTS_WIDTH = 96
GROWS_FROM = 0.5
SPREAD_FROM = 4.0
"""A measurement that no claim on growth names is drawn where it grows at least as fast as this power of size, for an
arm whose sizes spread by this factor."""
MOST_CHARTS = 6
MOST_FAILURES = 60
TRACEBACK_TAIL = 4000


@dataclass(frozen=True)
class Cell:
    """One measurement of an arm on a case: its median and range over the seeds, NaN left out."""

    median: float
    low: float
    high: float
    n: int
    not_numbers: int
    dots: Markup

    @property
    def text(self) -> str:
        """The median in words."""
        return format_number(self.median) if self.n else "not a number"

    @property
    def range(self) -> str:
        """The range in words; empty where it is a single value."""
        return "" if self.low == self.high or not self.n else f"{format_number(self.low)} – {format_number(self.high)}"

    @property
    def sort_value(self) -> str:
        """What a script sorts by; empty sorts last."""
        return "" if math.isnan(self.median) else repr(self.median)


@dataclass(frozen=True)
class ArmRow:
    """An arm on a case."""

    arm: str
    label: str
    role: str
    n: int
    failed: int
    cells: tuple[Cell | None, ...]


@dataclass(frozen=True)
class CaseTable:
    """All arms on one case, with the measurements that they gave."""

    case: str
    settings: str
    measures: tuple[tuple[str, str], ...]
    rows: tuple[ArmRow, ...]


@dataclass
class Failure:
    """Trials of an arm on a case that ended in the same way without a result."""

    arm: str
    case: str
    status: str
    last_line: str
    traceback: str
    seeds: list[int] = field(default_factory=list)


def role_of(results: Results, arm: str) -> str:
    """What an arm is for; a user's own isn't in the study, and is told by its name, ``module:function``."""
    known = results.study.arms.get(arm) if results.study else None
    if known is not None:
        return known.role
    return "user" if ":" in arm else ""


def case_tables(results: Results) -> list[CaseTable]:
    """Tabulate each case: a row an arm, in the study's order, a column a measurement."""
    by_case: dict[str, dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for record in results.records:
        by_case[record.case][record.arm].append(record)
    return [_case_table(results, case, arms) for case, arms in by_case.items()]


def failures(records: Iterable[Record]) -> list[Failure]:
    """Group the trials without a result by arm, case, and the last line of what went wrong."""
    groups: dict[tuple[str, str, str, str], Failure] = {}
    for record in records:
        if record.status == "done":
            continue
        lines = record.error.strip().splitlines()
        last = lines[-1].strip() if lines else record.status
        key = (record.arm, record.case, record.status, last)
        if key not in groups:
            text = record.error.strip()
            shown = text if len(text) <= TRACEBACK_TAIL else f"…{text[-TRACEBACK_TAIL:]}"
            groups[key] = Failure(record.arm, record.case, record.status, last, shown)
        groups[key].seeds.append(record.seed)
    return sorted(groups.values(), key=lambda one: (-len(one.seeds), one.case, one.arm))


def growth_charts(results: Results, *, prefix: str) -> list[Markup]:
    """Draw the measurements that grow with a case's size, both axes logarithmic.

    A size is the measurement ``n``, or one that a claim on growth names. Cases belong to one chart when their settings
    differ in the size alone.
    """
    tests = [claim.test for claim in results.study.claims if isinstance(claim.test, Grows)] if results.study else []
    sizes = dict.fromkeys(["n", *(test.size for test in tests)])
    asked = dict.fromkeys(test.measure for test in tests)
    done = [record for record in results.records if record.status == "done"]
    measures = dict.fromkeys([*asked, *_measures(results, done)])
    charts: list[Markup] = []
    for size in sizes:
        sized = [record for record in done if record.measurements.get(size, 0.0) > 0]
        for family, members in _families(sized, size).items():
            for measure in measures:
                if measure in sizes or len(charts) >= MOST_CHARTS:
                    continue
                series = _growth_series(results, members, size, measure)
                if not series or (measure not in asked and not any(map(_grows, series))):
                    continue
                where = f", {family}" if family else ""
                svg = growth_plot(
                    series,
                    id=f"{prefix}growth-{len(charts) + 1}",
                    title=f"{measure} as {size} grows{where}",
                    x_label=_described(results, size) + where,
                    y_label=_described(results, measure),
                )
                charts.append(Markup(svg))
    return charts


def cost_charts(results: Results, *, prefix: str, cost: str = "seconds") -> list[Markup]:
    """Draw cost against quality: a point an arm, for each case on which at least three arms give both.

    Quality is the first measurement other than the cost that a claim compares or bounds.
    """
    if results.study is None:
        return []
    tested = dict.fromkeys(
        claim.test.measure
        for claim in results.study.claims
        if hasattr(claim.test, "measure") and not isinstance(claim.test, Grows)
    )
    done = [record for record in results.records if record.status == "done" and cost in record.measurements]
    charts: list[Markup] = []
    for quality in tested:
        if quality == cost or len(charts) >= MOST_CHARTS:
            continue
        by_case: dict[str, dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
        for record in done:
            if not math.isnan(record.measurements.get(quality, math.nan)):
                by_case[record.case][record.arm].append(record)
        for case, arms in by_case.items():
            if len(arms) < 3 or len(charts) >= MOST_CHARTS:
                continue
            series = []
            for arm in _arm_order(results, arms):
                costs = [record.measurements[cost] for record in arms[arm]]
                values = [record.measurements[quality] for record in arms[arm]]
                point = Point(float(np.median(costs)), float(np.median(values)), min(values), max(values))
                series.append(Series(_arm_label(results, arm), (point,), method=role_of(results, arm) == "method"))
            if len({one.points[0].y for one in series}) < 2:
                continue
            svg = curve_plot(
                series,
                id=f"{prefix}cost-{len(charts) + 1}",
                title=f"{quality} against {cost} on {case}",
                x_label=f"{_described(results, cost)}, {case}",
                y_label=_described(results, quality),
                joined=False,
            )
            charts.append(Markup(svg))
        if charts:
            break
    return charts


def environment_rows(environments: Mapping[str, Mapping[str, Any]]) -> list[list[tuple[str, str]]]:
    """Each machine as rows of name and value; packages come last."""
    names = {"memory_gib": "memory (GiB)", "python": "Python", "gpu": "GPU", "gpus": "GPUs"}
    machines = []
    for environment in environments.values():
        rows = [
            (names.get(name, name), _in_words(value))
            for name, value in environment.items()
            if name != "packages" and value not in (None, "", [], {})
        ]
        packages = environment.get("packages")
        if isinstance(packages, Mapping):
            rows += [(name, str(version)) for name, version in sorted(packages.items())]
        if rows:
            machines.append(rows)
    return machines


def _case_table(results: Results, case: str, arms: Mapping[str, list[Record]]) -> CaseTable:
    done = {arm: [record for record in records if record.status == "done"] for arm, records in arms.items()}
    measures = _measures(results, [record for records in done.values() for record in records])
    axes = {}
    for measure in measures:
        values = [record.measurements.get(measure, math.nan) for records in done.values() for record in records]
        axes[measure] = fit_axis(values, start=4, end=DOTS_WIDTH - 4)
    rows = []
    for arm in _arm_order(results, arms):
        cells = tuple(
            _cell([record.measurements[m] for record in done[arm] if m in record.measurements], axes[m])
            for m in measures
        )
        rows.append(
            ArmRow(
                arm=arm,
                label=_label(results, arm),
                role=role_of(results, arm),
                n=len(done[arm]),
                failed=len(arms[arm]) - len(done[arm]),
                cells=cells,
            )
        )
    settings = next(iter(arms.values()))[0].case_settings
    described = results.study.measures if results.study else {}
    return CaseTable(
        case, _settings_in_words(settings), tuple((name, described.get(name, "")) for name in measures), tuple(rows)
    )


def _cell(values: Sequence[float], axis: Any) -> Cell | None:
    if not values:
        return None
    numbers = [value for value in values if not math.isnan(value)]
    lost = len(values) - len(numbers)
    if not numbers:
        return Cell(math.nan, math.nan, math.nan, 0, lost, Markup(""))
    dots = Markup(dot_plot(numbers, axis=axis)) if len(numbers) > 1 and min(numbers) < max(numbers) else Markup("")
    with np.errstate(invalid="ignore"):
        median = float(np.median(numbers))
    return Cell(median, min(numbers), max(numbers), len(numbers), lost, dots)


def _families(records: Sequence[Record], size: str) -> dict[str, list[Record]]:
    """Records whose cases differ in size alone, where there are at least two sizes."""
    families: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        value = record.measurements[size]
        rest = {name: setting for name, setting in record.case_settings.items() if name != size and setting != value}
        families[_settings_in_words(rest)].append(record)
    return {
        family: members
        for family, members in families.items()
        if len({record.measurements[size] for record in members}) >= 2
    }


def _growth_series(results: Results, records: Sequence[Record], size: str, measure: str) -> list[Series]:
    found: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        value = record.measurements.get(measure, math.nan)
        if 0 < value < math.inf:
            found[record.arm][record.measurements[size]].append(value)
    series = []
    for arm in _arm_order(results, found):
        if len(found[arm]) < 2:
            continue
        points = tuple(
            Point(n, float(np.median(values)), min(values), max(values)) for n, values in sorted(found[arm].items())
        )
        series.append(Series(_arm_label(results, arm), points, method=role_of(results, arm) == "method"))
    return series


def _grows(series: Series) -> bool:
    sizes = [point.x for point in series.points]
    exponent = fitted_exponent(series.points)
    return exponent is not None and exponent >= GROWS_FROM and max(sizes) >= SPREAD_FROM * min(sizes)


def _measures(results: Results, records: Iterable[Record]) -> list[str]:
    present = dict.fromkeys(name for record in records for name in record.measurements)
    described = results.study.measures if results.study else {}
    return [name for name in described if name in present] + sorted(name for name in present if name not in described)


def _described(results: Results, measure: str) -> str:
    text = results.study.measures.get(measure, "") if results.study else ""
    return f"{measure}: {text}" if text else measure


def _arm_order(results: Results, arms: Iterable[str]) -> list[str]:
    """A user's own arms first, then the study's in its order, in which the results are."""
    return sorted(arms, key=lambda arm: role_of(results, arm) != "user")


def _label(results: Results, arm: str) -> str:
    known = results.study.arms.get(arm) if results.study else None
    return known.label if known is not None else ""


def _arm_label(results: Results, arm: str) -> str:
    return f"{arm} (yours)" if role_of(results, arm) == "user" else arm


def _settings_in_words(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {_in_words(value)}" for name, value in settings.items())


def _in_words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return format_number(float(value), digits=6)
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple) and all(isinstance(one, str | int | float) for one in value):
        return ", ".join(_in_words(one) for one in value)
    return json.dumps(value, ensure_ascii=False, default=str)
