"""Pages and fragments of pages, filled in from templates that escape everything."""

from __future__ import annotations

import base64
import hashlib
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import quote, urlsplit

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from assay import __version__
from assay.core.card import Paper
from assay.core.claim import Outcome, Verdict
from assay.core.report.charts import chart_css, interval_plot
from assay.core.report.results import Results
from assay.core.report.tables import (
    MOST_FAILURES,
    case_tables,
    cost_charts,
    environment_rows,
    failures,
    growth_charts,
    role_of,
)
from assay.core.report.wording import format_count, format_duration, format_number, format_when

__all__ = ["OUTCOMES", "Artifact", "Media", "check_command", "index_page", "method_page", "render", "slug"]

OUTCOMES: tuple[Outcome, ...] = ("holds", "fails", "undecided", "not run")
SYMBOLS: Mapping[Outcome, str] = {"holds": "✓", "fails": "✗", "undecided": "?", "not run": "–"}
OPEN_TABLES = 4
"""So many cases have their table open when the page does; the others are folded."""


@dataclass(frozen=True)
class Artifact:
    """Something that a trial kept, with its place in the site; ``href`` is empty when it is lost."""

    name: str
    arm: str
    case: str
    seed: int
    href: str
    kind: str
    table: tuple[tuple[str, ...], ...] = ()
    more_rows: int = 0


@dataclass(frozen=True)
class Media:
    """A method's artifacts in its page, and how many more the ledger holds."""

    shown: tuple[Artifact, ...] = ()
    left_out: int = 0


def slug(text: str) -> str:
    """Turn any name into one for files and ids; different names stay different.

    Examples
    --------
    >>> slug("within-2gamma")
    'within-2gamma'
    """
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-")
    if plain == text and plain:
        return plain
    return f"{plain or 'x'}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def page_name(method: str) -> str:
    """The file name of a method's page."""
    name = slug(method)
    return "index-method.html" if name.lower() == "index" else f"{name}.html"


def check_command(results: Results) -> str:
    """The command that runs these trials again."""
    parts = ["assay", "check", results.method, "--scale", results.scale]
    for arm in sorted({record.arm for record in results.records if role_of(results, record.arm) == "user"}):
        parts += ["--arm", arm]
    return shlex.join(parts)


def index_page(methods: Sequence[Results], *, ledger: str, made: str) -> str:
    """The scoreboard."""
    verdicts = [verdict for results in methods for verdict in results.verdicts]
    return render(
        "index.html.j2", methods=methods, counts=count_outcomes(verdicts), total=len(verdicts), ledger=ledger, made=made
    )


def method_page(results: Results, *, media: Media, ledger: str, made: str) -> str:
    """The page of one method."""
    return render("method.html.j2", **method_parts(results), media=media, ledger=ledger, made=made)


def method_parts(results: Results, *, prefix: str = "") -> dict[str, Any]:
    """What the templates of a method need, from its results.

    Parameters
    ----------
    prefix : str
        A start for all ids, where several methods share a page.
    """
    found = failures(results.records)
    return {
        "results": results,
        "prefix": prefix,
        "counts": count_outcomes(results.verdicts),
        "plots": {verdict.claim: claim_plot(verdict, prefix=prefix) for verdict in results.verdicts},
        "tables": case_tables(results),
        "open_tables": OPEN_TABLES,
        "failures": found[:MOST_FAILURES],
        "failed": sum(len(one.seeds) for one in found),
        "failures_left_out": sum(len(one.seeds) for one in found[MOST_FAILURES:]),
        "growth": growth_charts(results, prefix=prefix),
        "cost": cost_charts(results, prefix=prefix),
        "machines": environment_rows(results.environments),
        "command": check_command(results),
    }


def claim_id(verdict: Verdict, *, prefix: str = "") -> str:
    """The id of a claim's section in a page."""
    return f"{prefix}claim-{slug(verdict.claim)}"


def claim_plot(verdict: Verdict, *, prefix: str = "") -> Markup:
    """The interval plot of a verdict; empty when nothing was concluded."""
    if verdict.conclusion is None or verdict.conclusion.n == 0:
        return Markup("")
    svg = interval_plot(
        verdict.conclusion,
        id=f"{claim_id(verdict, prefix=prefix)}-plot",
        title=f"{verdict.conclusion.quantity}, with what is claimed",
        paper=verdict.paper,
    )
    return Markup(svg)


def count_outcomes(verdicts: Sequence[Verdict]) -> dict[Outcome, int]:
    """How many verdicts there are of each kind."""
    return {outcome: sum(verdict.outcome == outcome for verdict in verdicts) for outcome in OUTCOMES}


def parts_css() -> str:
    """The style of what a page and a fragment share."""
    return _read("static/parts.css")


def render(template: str, **values: Any) -> str:
    """Fill in a template of this package."""
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(lambda name: _read(f"templates/{name}")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = _read("static/report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment.globals.update(
        outcomes=OUTCOMES,
        symbols=SYMBOLS,
        version=__version__,
        style=Markup(chart_css() + parts_css() + _read("static/page.css")),
        script=Markup(script),
        policy=(
            f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
            "img-src 'self' file: data:; media-src 'self' file:; base-uri 'none'; form-action 'none'"
        ),
        claim_id=claim_id,
        count_outcomes=count_outcomes,
        page_name=page_name,
        slug=slug,
        paper_links=paper_links,
    )
    environment.filters.update(
        number=format_number,
        duration=format_duration,
        when=format_when,
        counted=format_count,
        sha=lambda text: text[:12],
    )
    return environment


def paper_links(paper: Paper) -> list[tuple[str, str]]:
    """Where the paper and its code are on the web; only addresses of the web's own kind become links."""
    places = {
        "OpenReview": ("https://openreview.net/forum?id=", paper.openreview),
        "arXiv": ("https://arxiv.org/abs/", paper.arxiv),
        "DOI": ("https://doi.org/", paper.doi),
        "code": ("", paper.code),
    }
    links = []
    for name, (base, place) in places.items():
        if not place:
            continue
        address = place if urlsplit(place).scheme else base + quote(place, safe="/.:()")
        if urlsplit(address).scheme in ("http", "https"):
            links.append((name, address))
    return links


def _read(name: str) -> str:
    return files("assay.core.report").joinpath(name).read_text(encoding="utf-8")
