"""Recall curves of the memory's study, simulated and predicted, drawn from the committed results::

    ```{recall} edge a=0.2 m=0.6
    ```

The points are the overlaps of the sweeps that the trials kept: medians over sets of patterns, with their range.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from assay.core.ledger import Record
from assay.core.report import Point, Series, curve_plot, read_results

RESULTS = Path(__file__).parents[1] / "results" / "memory"
SCALE = "laptop"
NAMES = {"gfa": "exact dynamics", "corollary1": "without self-interaction"}


class Recall(SphinxDirective):
    """The overlap after each sweep of one case."""

    required_arguments = 1
    final_argument_whitespace = True
    option_spec: ClassVar = {}

    def run(self) -> list[nodes.Node]:
        """Return the chart, or a note when there are no results yet."""
        table = RESULTS / f"{SCALE}.parquet"
        self.env.note_dependency(str(table))
        if not table.exists():
            return [nodes.note("", nodes.paragraph("", f"No results are committed yet at the scale {SCALE}."))]
        case = self.arguments[0]
        trials = [
            record
            for record in read_results(RESULTS, method="memory", scale=SCALE).records
            if record.case == case and "overlap_1" in record.measurements
        ]
        if not trials:
            return [nodes.note("", nodes.paragraph("", f"The committed results hold no overlaps of {case}."))]
        chart = recall_chart(case, trials)
        return [nodes.raw("", f'<div class="assay">{chart}</div>', format="html")]


def recall_chart(case: str, trials: Sequence[Record]) -> str:
    """Draw what a case's trials measured and what the theories say of it."""
    arms = [arm for arm in NAMES if any(record.arm == arm for record in trials)]
    of_arm = {arm: [record for record in trials if record.arm == arm] for arm in arms}
    series = [
        Series(NAMES[arm], points_of(of_arm[arm], r"predicted_overlap_(\d+)"), method=arm == "gfa") for arm in arms
    ]
    series.append(
        Series("simulated", points_of(of_arm["gfa"], r"overlap_(\d+)"), note=f"{len(of_arm['gfa'])} memories")
    )
    return curve_plot(
        series,
        id=f"recall-{re.sub('[^a-z0-9]+', '-', case)}",
        title=f"Recall, {case}",
        x_label="sweep",
        y_label="overlap with the stored pattern",
        log_x=False,
        log_y=False,
    )


def points_of(records: Sequence[Record], name: str) -> tuple[Point, ...]:
    """Medians and ranges of the measurements that are named after a sweep."""
    found: dict[int, list[float]] = {}
    for record in records:
        for measure, value in record.measurements.items():
            if matched := re.fullmatch(name, measure):
                found.setdefault(int(matched[1]), []).append(value)
    return tuple(
        Point(sweep, float(np.median(values)), low=min(values), high=max(values))
        for sweep, values in sorted(found.items())
    )


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("recall", Recall)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
