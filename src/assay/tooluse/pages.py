"""What is shown of a report: a page that stands alone, and JUnit's XML."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from assay.tooluse.alignment import align_calls, prepared
from assay.tooluse.matchers import Matcher
from assay.tooluse.scoring import Scores, argument_differences, explain, show_call
from assay.tooluse.trajectories import Gold, Trajectory

if TYPE_CHECKING:
    from assay.tooluse.batch import Report

__all__ = ["junit", "page"]

SHOWN_RUNS = 300
"""Runs whose calls a page shows: those with labels first."""
SHOWN_TOOLS = 25
WIDTH, HEIGHT, MARGIN = 560, 240, 44
PALETTE = ("#3b6fb6", "#c0504d", "#d79b3c", "#6a9a58", "#8064a2", "#4bacc6", "#7f7f7f", "#b65f8e", "#5b7f95", "#a07a4f")

TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Tool use: {{ runs }} runs</title>
<style>
:root { color-scheme: light dark; --line: #8885; --soft: #8882; --bad: #c0504d; --good: #4a8f4a; --other: #b07d1a; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: .6rem 0; }
th, td { padding: .2rem .7rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
code, pre { font: 13px/1.45 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
.equal { color: var(--good); } .extra, .missing { color: var(--bad); } .changed { color: var(--other); }
details { border-bottom: 1px solid var(--line); padding: .3rem 0; }
summary { cursor: pointer; } .label { background: var(--soft); border-radius: .3rem; padding: 0 .35rem; }
svg text { fill: currentColor; font: 12px system-ui, sans-serif; }
</style></head><body>
<h1>Tool use: {{ runs }} runs of {{ tasks }} tasks</h1>
<p>Profile {{ profile }}. {{ structures }}.{% if errors %} <strong>{{ errors }} runs failed for a reason of the
service and count in no mean.</strong>{% endif %}{% if notes %} {{ notes }} oddities in the recordings.{% endif %}</p>
<h2>Scores</h2>
<div class="scroll"><table><tr><th>metric</th><th>mean</th><th>95 % interval</th><th>runs</th></tr>
{% for row in rows %}<tr><td>{{ row.name }}</td><td class="n">{{ row.mean }}</td><td class="n">{{ row.interval }}</td>
<td class="n">{{ row.n }}</td></tr>
{% endfor %}</table></div>
<p>Intervals resample whole reference trajectories, so that twins and repeated trials count as one.</p>
{% if curve %}<h2>{{ em }} by the number of reference calls</h2>{{ curve|safe }}
<p>Points: mean with interval. Dashed: what independent errors would give, p to the power n, with the mean share of
right names as p.</p>{% endif %}
{% if flow %}<h2>What went wrong first</h2>{{ flow|safe }}{% endif %}
{% if confusion %}<h2>Tools called for others</h2><div class="scroll"><table>
<tr><th>wanted</th><th>called</th><th>times</th></tr>
{% for wanted, got, count in confusion %}<tr><td><code>{{ wanted }}</code></td><td><code>{{ got }}</code></td>
<td class="n">{{ count }}</td></tr>
{% endfor %}</table></div>{% endif %}
<h2>Runs</h2>{% if hidden %}<p>{{ hidden }} more runs are not shown.</p>{% endif %}
{% for run in shown %}<details{% if loop.first and run.labels %} open{% endif %}><summary><code>{{ run.id }}</code>
{% if run.trial %}trial {{ run.trial }} {% endif %}{{ run.headline }}
{% for label in run.labels %}<span class="label">{{ label }}</span> {% endfor %}</summary>
{% if run.query %}<p>{{ run.query }}</p>{% endif %}
<div class="scroll"><table><tr><th>reference</th><th>called</th></tr>
{% for line in run.lines %}<tr class="{{ line.kind }}"><td><code>{{ line.want }}</code></td>
<td><code>{{ line.got }}</code>
{% for one in line.differences %}<br><code>{{ one }}</code>{% endfor %}</td></tr>
{% endfor %}</table></div>
{% for note in run.notes %}<p>{{ note }}</p>{% endfor %}</details>
{% endfor %}
</body></html>
"""


def page(report: Report) -> str:
    """The page."""
    from jinja2 import Environment

    template = Environment(autoescape=True, trim_blocks=True).from_string(TEMPLATE)
    summary = report.summary()
    told = report.as_dict()
    order = sorted(range(len(report.scores)), key=lambda i: (not report.scores[i].labels, i))
    shown = [_shown(report, i) for i in order[:SHOWN_RUNS]]
    em = "name_em" if report.profile == "exact" else "em"
    return template.render(
        runs=told["runs"],
        tasks=told["tasks"],
        profile=report.profile,
        structures=", ".join(f"{count} {name}" for name, count in told["structures"].items()),
        errors=told["errors"],
        notes=told["notes"],
        rows=[
            {
                "name": name,
                "mean": _number(one.mean),
                "interval": f"{_number(one.low)} to {_number(one.high)}",
                "n": one.n,
            }
            for name, one in summary.items()
            if one.n
        ],
        em=em,
        curve=curve_svg(report, em),
        flow=flow_svg(report.first_errors()) if report.profile == "exact" else "",
        confusion=_confusions(report) if report.profile == "exact" else [],
        shown=shown,
        hidden=len(order) - len(shown),
    )


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.3f}"


def _shown(report: Report, index: int) -> dict[str, Any]:
    scores, run = report.scores[index], report.runs[index]
    gold = report.golds[scores.id]
    plan = (gold, *gold.alternatives)[scores.plan]
    first = "call_f1" if report.profile == "exact" else "em"
    return {
        "id": scores.id,
        "trial": scores.trial,
        "headline": f"error: {scores.error}" if scores.error else f"{first} {_number(scores.values[first])}",
        "labels": scores.labels,
        "query": gold.query or run.query,
        "notes": run.notes,
        "lines": [] if scores.error else aligned_lines(run, plan, report.matcher or Matcher(tools=report.tools)),
    }


def aligned_lines(run: Trajectory, plan: Gold, matcher: Matcher) -> list[dict[str, Any]]:
    """Reference and called side by side, in the order of the run, and then what is missing."""
    matcher = matcher.with_rules(plan.matchers)
    found = align_calls(run.calls, plan.calls, prepared(plan), matcher)
    partner = {j: (i, equal) for (i, j), equal in zip(found.pairs, found.equal, strict=True)}
    lines: list[dict[str, Any]] = []
    for j, call in enumerate(run.calls):
        if j not in partner:
            lines.append({"kind": "extra", "want": "", "got": show_call(call), "differences": []})
            continue
        i, equal = partner[j]
        differences = [] if equal else argument_differences(call, plan.calls[i], matcher)
        kind = "equal" if equal else "changed"
        lines.append(
            {"kind": kind, "want": show_call(plan.calls[i]), "got": show_call(call), "differences": differences}
        )
    for i in found.missing:
        optional = " (optional)" if i in plan.optional else ""
        lines.append({"kind": "missing", "want": show_call(plan.calls[i]) + optional, "got": "", "differences": []})
    return lines


def _confusions(report: Report) -> list[tuple[str, str, int]]:
    table = report.confusion()
    found = [
        (str(wanted), str(got), int(table.loc[wanted, got]))
        for wanted in table.index
        for got in table.columns
        if table.loc[wanted, got]
    ]
    return sorted(found, key=lambda one: (-one[2], one))[:SHOWN_TOOLS]


def curve_svg(report: Report, metric: str) -> str:
    """A metric by the number of reference calls, with intervals and the curve of independent errors."""
    table = report.by("n_tools")
    if len(table) < 2:
        return ""
    recall = report.summary()["name_recall" if report.profile == "exact" else "inclusion"].mean
    low, high = int(table["n_tools"].min()), int(table["n_tools"].max())

    def x(n: float) -> float:
        return MARGIN + (n - low) / (high - low) * (WIDTH - 2 * MARGIN)

    def y(value: float) -> float:
        return HEIGHT - MARGIN - value * (HEIGHT - 2 * MARGIN)

    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img" aria-label="{metric} by number of calls">',
        f'<path d="M{MARGIN},{y(1):.1f}V{y(0):.1f}H{WIDTH - MARGIN}" fill="none" stroke="currentColor"/>',
        *(f'<text x="{MARGIN - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>' for value in (0, 0.5, 1)),
    ]
    steps = [low + (high - low) * i / 40 for i in range(41)]
    null = " ".join(f"{'M' if i == 0 else 'L'}{x(n):.1f},{y(recall**n):.1f}" for i, n in enumerate(steps))
    parts.append(f'<path d="{null}" fill="none" stroke="{PALETTE[1]}" stroke-dasharray="5 4"/>')
    for row in table.to_dict("records"):
        n, mean = row["n_tools"], row[metric]
        if math.isnan(mean):
            continue
        parts.append(
            f'<path d="M{x(n):.1f},{y(row[f"{metric}_low"]):.1f}V{y(row[f"{metric}_high"]):.1f}" '
            f'stroke="{PALETTE[0]}" stroke-width="2"/>'
            f'<circle cx="{x(n):.1f}" cy="{y(mean):.1f}" r="4" fill="{PALETTE[0]}"/>'
            f'<text x="{x(n):.1f}" y="{HEIGHT - MARGIN + 18}" text-anchor="middle">{n}</text>'
        )
    return "".join([*parts, "</svg>"])


def flow_svg(counts: Mapping[str, int]) -> str:
    """All runs on the left, flowing to what went wrong first on the right."""
    total = sum(counts.values())
    if not total:
        return ""
    gap, bar = 8, 14
    space = 26 * len(counts) + 60
    scale = space / total
    height = space + gap * (len(counts) - 1) + 20
    parts = [f'<svg viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" role="img" aria-label="first errors">']
    parts.append(f'<rect x="60" y="10" width="{bar}" height="{space:.1f}" fill="#7f7f7f"/>')
    parts.append(f'<text x="52" y="{10 + space / 2:.1f}" text-anchor="end">{total}</text>')
    left = right = 10.0
    ordered = sorted(counts.items(), key=lambda one: (one[0] != "none", -one[1]))
    for number, (label, count) in enumerate(ordered):
        thick = count * scale
        colour = "#6a9a58" if label == "none" else PALETTE[1 + number % (len(PALETTE) - 1)]
        a, b, middle = 60 + bar, 300, 185
        parts.append(
            f'<path d="M{a},{left:.1f}C{middle},{left:.1f} {middle},{right:.1f} {b},{right:.1f}'
            f"V{right + thick:.1f}C{middle},{right + thick:.1f} {middle},{left + thick:.1f} {a},{left + thick:.1f}Z"
            f'" fill="{colour}" fill-opacity="0.35"/>'
            f'<rect x="{b}" y="{right:.1f}" width="{bar}" height="{max(thick, 1):.1f}" fill="{colour}"/>'
            f'<text x="{b + bar + 8}" y="{right + thick / 2 + 4:.1f}">'
            f"{'as the reference' if label == 'none' else label.replace('_', ' ')}: {count}</text>"
        )
        left += thick
        right += max(thick, 18) + gap
    return "".join([*parts, "</svg>"])


def junit(report: Report, thresholds: Mapping[str, float]) -> str:
    """JUnit's XML."""
    suite = ElementTree.Element("testsuite", name="tool use", tests=str(len(report.scores)))
    failures = 0
    for scores, run in zip(report.scores, report.runs, strict=True):
        name = scores.id + (f" [trial {scores.trial}]" if scores.trial else "")
        case = ElementTree.SubElement(suite, "testcase", classname="assay.tooluse", name=_xml(name))
        if scores.error is not None:
            ElementTree.SubElement(case, "error", message=_xml(scores.error))
            continue
        below = [
            f"{metric} {scores.values[metric]:.3f} is below {least:g}"
            for metric, least in thresholds.items()
            if not math.isnan(scores.values.get(metric, math.nan)) and scores.values[metric] < least
        ]
        if below:
            failures += 1
            failure = ElementTree.SubElement(case, "failure", message=_xml("; ".join(below)), type="below")
            failure.text = _xml(_told(scores, run, report))
    suite.set("failures", str(failures))
    suite.set("errors", str(len(report.errors)))
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


def _told(scores: Scores, run: Trajectory, report: Report) -> str:
    return explain(run, report.golds[scores.id], matcher=report.matcher, tools=report.tools)


def _xml(text: str) -> str:
    """The text without characters that XML can't hold."""
    return "".join(one for one in text if one in "\t\n\r" or (one >= " " and one not in "\ufffe\uffff"))


def lines_of(values: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Lines for a terminal: metric, mean and interval."""
    width = max(map(len, names), default=0)
    return [
        f"{name:<{width}}  {_number(values[name].mean)}  ({_number(values[name].low)} to {_number(values[name].high)})"
        for name in names
        if name in values and values[name].n
    ]
