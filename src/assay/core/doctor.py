"""What each extra of the installed distribution lacks."""

from __future__ import annotations

from importlib import metadata

from packaging.requirements import Requirement

__all__ = ["extras"]

DISTRIBUTION = "assay"


def extras() -> dict[str, list[str]]:
    """The extras by name, each with the requirements that aren't met: missing packages, and ones of another version."""
    requirements = [Requirement(text) for text in metadata.requires(DISTRIBUTION) or ()]
    names = sorted(metadata.metadata(DISTRIBUTION).get_all("Provides-Extra") or ())
    return {name: sorted(_lacking(name, requirements, seen=set())) for name in names}


def _lacking(extra: str, requirements: list[Requirement], *, seen: set[str]) -> set[str]:
    """Follow extras that consist of other extras of this distribution."""
    seen.add(extra)
    lacking: set[str] = set()
    for requirement in requirements:
        if requirement.marker is None or not requirement.marker.evaluate({"extra": extra}):
            continue
        if requirement.name == DISTRIBUTION:
            for other in requirement.extras - seen:
                lacking |= _lacking(other, requirements, seen=seen)
        elif (problem := _problem(requirement)) is not None:
            lacking.add(problem)
    return lacking


def _problem(requirement: Requirement) -> str | None:
    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return requirement.name
    if requirement.specifier.contains(version, prereleases=True):
        return None
    return f"{requirement.name}{requirement.specifier} (here {version})"
