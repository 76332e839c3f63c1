"""Fragments of a method's page for other pages, such as the documentation, from committed results."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from assay.core.card import Card
from assay.core.claim import Outcome, Verdict
from assay.core.report.charts import chart_css
from assay.core.report.pages import method_parts, parts_css, render, slug
from assay.core.report.results import read_results
from assay.core.study import Study

__all__ = ["MethodSections", "fragment_css", "method_sections"]


@dataclass(frozen=True)
class MethodSections:
    """A method's results as fragments of HTML; each is empty where there is nothing to show.

    They bring no heading, so that the page that takes them keeps its own outline, and expect the style sheet of
    `fragment_css` once in that page. All ids start with the method's name.

    Attributes
    ----------
    summary : str
        Counts of verdicts, scale, number of trials, time and date.
    scoreboard : str
        The claims as a table: verdict, statement, finding; each links to its place in `claims`.
    claims : str
        Each claim with statement, source, verdict, finding, interval plot, p-values and figures by case.
    curves : str
        Growth, and cost against quality.
    arms : str
        A table a case: arms, and median and range of each measurement.
    failures : str
        Trials without a result, with their tracebacks.
    environment : str
        The machines.
    command : str
        The command that runs the trials again, as plain text.
    verdicts : tuple of Verdict
    counts : mapping of str to int
        How many verdicts there are of each kind.
    when : str
        When the last trial started, in ISO 8601.
    seconds : float
        Seconds that the trials took, added up.
    """

    summary: str
    scoreboard: str
    claims: str
    curves: str
    arms: str
    failures: str
    environment: str
    command: str
    verdicts: tuple[Verdict, ...]
    counts: Mapping[Outcome, int]
    when: str
    seconds: float


def fragment_css() -> str:
    """The style sheet for fragments: all rules are for elements within the class ``assay``, and for the charts.

    Examples
    --------
    >>> ".assay .verdict" in fragment_css()
    True
    """
    return chart_css() + parts_css()


def method_sections(
    method: str,
    folder: str | os.PathLike[str],
    *,
    scale: str = "laptop",
    card: Card | None = None,
    study: Study | None = None,
) -> MethodSections:
    """Make the fragments of one method's page from ``<folder>/<scale>.parquet`` and ``<folder>/environment.json``.

    Parameters
    ----------
    method : str
        The method's name.
    folder : path
        Where `export_results` wrote, such as ``docs/results/mst``.
    scale : str
        Which results.
    card, study : optional
        What is installed of the method; without a study there are no claims and verdicts.

    Returns
    -------
    MethodSections

    Raises
    ------
    InputError
        The results are missing or damaged.

    Examples
    --------
    >>> import tempfile
    >>> from assay.core.ledger import Record, write_parquet
    >>> folder, when = tempfile.mkdtemp(), "2026-01-01T00:00:00+00:00"
    >>> trial = Record("k", "mst", "mfc", "words", 0, "laptop", "done", {"seconds": 1.5}, 2.0, when, "", "")
    >>> write_parquet(f"{folder}/laptop.parquet", [trial])
    >>> method_sections("mst", folder).command
    'assay check mst --scale laptop'
    """
    results = read_results(folder, method=method, scale=scale, card=card, study=study)
    parts = method_parts(results, prefix=f"{slug(method)}-")

    def fragment(name: str) -> str:
        return render("fragment.html.j2", part=name, **parts).strip()

    return MethodSections(
        summary=fragment("summary"),
        scoreboard=fragment("scoreboard"),
        claims=fragment("claims"),
        curves=fragment("curves"),
        arms=fragment("arms"),
        failures=fragment("failures"),
        environment=fragment("environment"),
        command=parts["command"],
        verdicts=results.verdicts,
        counts=parts["counts"],
        when=results.when,
        seconds=results.seconds,
    )
