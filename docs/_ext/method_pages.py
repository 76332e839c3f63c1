"""A page for each method of this package, from its card, its prose, its docstrings and its committed results.

The prose is `methods_text/<method>.md`. In it, and in any other page, a directive shows a part of the results::

    ```{results} mst
    :part: claims
    ```

Parts are those of `assay.core.report.MethodSections`: scoreboard, claims, curves, arms, failures, environment, command,
summary. What stands in the page is therefore always what the committed trials say.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from assay.core.card import Card, load_cards
from assay.core.errors import MissingPackageError
from assay.core.report import MethodSections, fragment_css, method_sections
from assay.core.study import Study, load_study

DOCS = Path(__file__).parents[1]
PARTS = [field.name for field in fields(MethodSections) if field.type == "str"]
SHOWN_SCALE = "laptop"


class Results(SphinxDirective):
    """A part of a method's committed results."""

    required_arguments = 1
    option_spec: ClassVar = {"part": lambda text: directives.choice(text, PARTS), "scale": directives.unchanged}

    def run(self) -> list[nodes.Node]:
        """Return the part as HTML, or a note when the method has no results yet."""
        method = self.arguments[0]
        scale = self.options.get("scale", SHOWN_SCALE)
        table = DOCS / "results" / method / f"{scale}.parquet"
        self.env.note_dependency(str(table))
        if not table.exists():
            return [nodes.note("", nodes.paragraph("", f"No results are committed yet at the scale {scale}."))]
        text = getattr(sections(method, scale), self.options["part"])
        if self.options["part"] == "command":
            return [nodes.literal_block(text, text, language="sh")]
        return [nodes.raw("", f'<div class="assay">{text}</div>', format="html")] if text else []


@cache
def sections(method: str, scale: str) -> MethodSections:
    """The fragments of one method."""
    card = load_cards()[method]
    return method_sections(method, DOCS / "results" / method, scale=scale, card=card, study=study_of(card))


def study_of(card: Card) -> Study | None:
    """The study, where its packages are installed."""
    try:
        return load_study(card)
    except MissingPackageError:
        return None


def write_pages(_app: Sphinx) -> None:
    """Write `methods/<method>.md` for each method, `methods/index.md`, and the style sheet of the results."""
    cards = [card for card in load_cards().values() if card.package.startswith("assay.")]
    for card in cards:
        write(DOCS / "methods" / f"{card.name}.md", "\n".join(page(card)))
    write(DOCS / "methods" / "index.md", "\n".join(index(cards)))
    write(DOCS / "_static" / "results.css", fragment_css())


def write(file: Path, text: str) -> None:
    """Write a file, unless it says that already, so that only what changed is read again."""
    file.parent.mkdir(exist_ok=True)
    if not file.exists() or file.read_text(encoding="utf-8") != text:
        file.write_text(text, encoding="utf-8")


def page(card: Card) -> Iterable[str]:
    """The lines of one method's page."""
    yield from (f"# {card.title}", "", card.job, "")
    yield from (
        "```sh",
        f"pip install 'assay[{card.extra}]'" if card.extra else f"pip install {card.package}",
        "```",
        "",
    )
    prose = DOCS / "methods_text" / f"{card.name}.md"
    yield prose.read_text(encoding="utf-8") if prose.exists() else card.summary
    yield from ("", "## Commands", "", "| command | what it does |", "|---|---|")
    yield from (f"| `assay {card.name} {job.verb}` | {job.summary} |" for job in card.jobs)
    yield from (
        "",
        f"`assay {card.name} VERB --help` shows all options. An example of each, on a file made for it:",
        "",
    )
    for job in card.jobs:
        yield from ("```sh", *filter(None, (job.setup, job.example)), "```", "")
    yield from ("## Public names", "")
    package = importlib.import_module(card.package)
    for name in package.__all__:
        yield from api_entry(f"{card.package}.{name}", getattr(package, name))


def api_entry(path: str, value: Any) -> Iterable[str]:
    """The lines that describe one public name."""
    if inspect.isclass(value):
        directive, options = "autoclass", ["   :members:"]
        if issubclass(value, BaseException):
            directive, options = "autoexception", []
    elif callable(value):
        directive, options = "autofunction", []
    else:
        directive, options = "autodata", []
    yield from ("```{eval-rst}", f".. {directive}:: {path}", *options, "```", "")


def index(cards: list[Card]) -> Iterable[str]:
    """The lines of the list of methods."""
    yield from ("# Methods", "", "| method | job | paper |", "|---|---|---|")
    yield from (
        f"| [{card.name}]({card.name}.md) | {card.job} | {card.paper.title} ({card.paper.venue}) |" for card in cards
    )
    yield from ("", "```{toctree}", ":hidden:", "", *(card.name for card in cards), "```", "")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive and the writer."""
    app.add_directive("results", Results)
    app.connect("builder-inited", write_pages)
    app.add_css_file("results.css")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
