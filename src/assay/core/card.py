"""The card of a method: what it is, for whom, and from which paper. Data, read without importing the method."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError, InputError

__all__ = [
    "COMMANDS",
    "Card",
    "JobCard",
    "Paper",
    "find_card",
    "job_lines",
    "load_cards",
    "read_card",
    "unusable_methods",
]

ENTRY_POINTS = "assay.methods"
COMMANDS = frozenset({"check", "doctor", "list", "new", "report", "show"})
"""The names that a method can't have."""


@dataclass(frozen=True)
class Paper:
    """Where a method comes from."""

    title: str
    authors: tuple[str, ...]
    venue: str
    year: int
    openreview: str = ""
    arxiv: str = ""
    doi: str = ""
    code: str = ""


@dataclass(frozen=True)
class JobCard:
    """One command of a method: its verb, what it does, and an example that runs as it stands after `setup`."""

    verb: str
    summary: str
    example: str
    setup: str = ""


@dataclass(frozen=True)
class Card:
    """What a reader needs to know of a method before it is imported.

    Attributes
    ----------
    name : str
        The name of the package under ``assay`` and of the command.
    package : str
        The import path, such as ``"assay.mst"``.
    title, job, summary : str
        A heading, the job in one sentence, and a paragraph.
    extra : str
        The extra that brings what the method needs; empty for a plug-in that is a distribution of its own.
    needs : tuple of str
        The modules that must be importable for the method to work.
    paper : Paper
        The source.
    jobs : tuple of JobCard
        The commands on a user's files.
    folder : Path
        Where the method's files are.
    """

    name: str
    package: str
    title: str
    job: str
    summary: str
    extra: str
    needs: tuple[str, ...]
    paper: Paper
    jobs: tuple[JobCard, ...]
    folder: Path
    keywords: tuple[str, ...] = field(default=())

    @property
    def missing(self) -> tuple[str, ...]:
        """The modules that the method needs and that aren't installed."""
        return tuple(module for module in self.needs if importlib.util.find_spec(module) is None)


_REQUIRED = {"name": str, "title": str, "job": str, "summary": str, "extra": str, "needs": list, "paper": dict}
_PAPER = {"title": str, "authors": list, "venue": str, "year": int}
_PAPER_OPTIONAL = {"openreview": str, "arxiv": str, "doi": str, "code": str}
_JOB = {"verb": str, "summary": str, "example": str}


def read_card(folder: Path, *, package: str) -> Card:
    """Read ``card.toml`` in `folder`.

    Raises
    ------
    InputError
        The file is missing, isn't TOML, or lacks a field or holds one of another type or name.
    """
    file = folder / "card.toml"
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError("no such file", file=file, expected="the card of the method") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(str(error), file=file, expected="TOML") from error
    _require(data, _REQUIRED, optional={"keywords": list, "jobs": list}, where="", file=file)
    _require(data["paper"], _PAPER, optional=_PAPER_OPTIONAL, where="paper.", file=file)
    for number, job in enumerate(data.get("jobs", []), start=1):
        _require(job, _JOB, optional={"setup": str}, where=f"jobs[{number}].", file=file)
    return Card(
        name=data["name"],
        package=package,
        title=data["title"],
        job=data["job"],
        summary=data["summary"],
        extra=data["extra"],
        needs=tuple(data["needs"]),
        keywords=tuple(data.get("keywords", ())),
        paper=Paper(**{**data["paper"], "authors": tuple(data["paper"]["authors"])}),
        jobs=tuple(JobCard(**job) for job in data.get("jobs", [])),
        folder=folder,
    )


def load_cards() -> dict[str, Card]:
    """Return the cards of all installed methods by name, in alphabetical order, importing none of them.

    Those whose card can't be read are left out here, and named by `unusable_methods`.
    """
    return {name: card for name, card in _cards_or_reasons().items() if isinstance(card, Card)}


def unusable_methods() -> dict[str, str]:
    """Return the installed methods whose card can't be read or whose name is taken, each with the reason."""
    return {name: reason for name, reason in _cards_or_reasons().items() if isinstance(reason, str)}


def job_lines() -> dict[str, str]:
    """Return the job of each installed method by name, or why the method can't be used."""
    return {
        name: card.job if isinstance(card, Card) else f"(can't be used: {card})"
        for name, card in _cards_or_reasons().items()
    }


def find_card(name: str) -> Card:
    """Return the card of one method.

    Raises
    ------
    InputError
        No installed method has that name, or its card is wrong.
    AssayError
        Several packages bring a method of that name, the name is that of a command, or the package can't be found.
    """
    return _card(name, _entry_points())


def _cards_or_reasons() -> dict[str, Card | str]:
    # Reading the entry points of all installed packages takes longer than reading the cards.
    packages = _entry_points()
    found: dict[str, Card | str] = {}
    for name in sorted(packages):
        try:
            found[name] = _card(name, packages)
        except AssayError as error:
            found[name] = str(error)
    return found


def _card(name: str, packages: Mapping[str, list[str]]) -> Card:
    if name not in packages:
        known = ", ".join(sorted(packages)) or "none is installed"
        raise InputError(f"no method '{name}'", expected=f"one of: {known}")
    if name in COMMANDS:
        raise AssayError(f"the method {name} of {packages[name][0]} can't be used: assay has a command of that name")
    if len(packages[name]) > 1:
        raise AssayError(f"several packages bring a method {name}: {', '.join(packages[name])}")
    return read_card(_folder(packages[name][0]), package=packages[name][0])


def _entry_points() -> Mapping[str, list[str]]:
    packages: dict[str, list[str]] = {}
    for point in importlib.metadata.entry_points(group=ENTRY_POINTS):
        found = packages.setdefault(point.name, [])
        if point.value not in found:
            found.append(point.value)
    return packages


def _folder(package: str) -> Path:
    """Find the folder of `package` without importing it (only its parents, which import nothing else)."""
    try:
        spec = importlib.util.find_spec(package)
    except ImportError as error:
        raise AssayError(f"the method package {package} can't be found: {error}") from error
    if spec is None or not spec.submodule_search_locations:
        raise AssayError(f"the method package {package} can't be found")
    return Path(next(iter(spec.submodule_search_locations)))


def _require(
    data: Mapping[str, Any], fields: Mapping[str, type], *, optional: Mapping[str, type], where: str, file: Path
) -> None:
    for name, kind in fields.items():
        if name not in data:
            raise InputError(f"lacks the field {where}{name}", file=file, expected=f"a value of type {kind.__name__}")
    for name, value in data.items():
        kind = fields.get(name) or optional.get(name) or None.__class__
        if kind is None.__class__:
            raise InputError(
                f"unknown field {where}{name}", file=file, expected=f"one of {', '.join([*fields, *optional])}"
            )
        if not isinstance(value, kind):
            raise InputError(f"{where}{name} is {value!r}", file=file, expected=f"a value of type {kind.__name__}")
