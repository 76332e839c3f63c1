"""The metrics of the paper's released code, reproduced with their quirks: profile ``official``.

They treat the names of a trajectory as a set where they are counted, compare parameters of the first call of each name
only, and read values loosely ("yes" is 1, and the CA of a city in California is Canada). They are here to compare with
published figures; the exact metrics are the default.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.tooluse.trajectories import Call, Gold, Tool

__all__ = ["OfficialScores", "normalise", "official_scores", "retrieval_rate", "same_parameters"]

COUNTRIES = {
    "FR": "France", "US": "United States", "USA": "United States", "UK": "United Kingdom", "GB": "United Kingdom",
    "DE": "Germany", "IT": "Italy", "ES": "Spain", "JP": "Japan", "CN": "China", "AU": "Australia", "CA": "Canada",
    "IN": "India", "BR": "Brazil", "MX": "Mexico", "RU": "Russia", "KR": "South Korea", "NL": "Netherlands",
    "SE": "Sweden", "NO": "Norway", "DK": "Denmark", "FI": "Finland", "CH": "Switzerland", "AT": "Austria",
    "BE": "Belgium", "PT": "Portugal", "GR": "Greece", "TR": "Turkey", "PL": "Poland", "CZ": "Czech Republic",
    "HU": "Hungary", "RO": "Romania", "BG": "Bulgaria", "HR": "Croatia", "SI": "Slovenia", "SK": "Slovakia",
    "LT": "Lithuania", "LV": "Latvia", "EE": "Estonia",
}  # fmt: skip
SPELLINGS = {**COUNTRIES, **{name.upper(): name for name in COUNTRIES.values()}}
TRUE, FALSE = frozenset({"true", "1", "yes", "on"}), frozenset({"false", "0", "no", "off"})
YEAR_MONTH_DAY = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})")
LONGEST_LITERAL = 100_000


@dataclass(slots=True)
class OfficialScores:
    """What the released code gives for one query.

    Attributes
    ----------
    em : bool
        Exact match of names: as sets for a parallel reference, as lists for another.
    inclusion : float
        Names in common, over the length of the reference list.
    usage : list of bool
        For every name in common whether the parameters of its first calls are equal.
    """

    em: bool
    inclusion: float
    usage: list[bool]


def normalise(value: Any) -> Any:
    """A parameter's value as the released code compares it.

    Examples
    --------
    >>> normalise("San Francisco , CA"), normalise("007"), normalise("2024-1-5")
    ('San Francisco,Canada', 7, '2024-01-05')
    """
    if value is None:
        return None
    text = str(value).strip()
    try:
        read = ast.literal_eval(text) if len(text) <= LONGEST_LITERAL else text
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        read = text
    if not isinstance(read, str):
        return read
    read = re.sub(r"\s+", " ", re.sub(r"\s*,\s*", ",", read))
    if "," in read:
        read = ",".join(SPELLINGS.get(part.upper(), part) for part in read.split(","))
    if dated := YEAR_MONTH_DAY.fullmatch(read):
        return f"{dated[1]}-{int(dated[2]):02d}-{int(dated[3]):02d}"
    if read.lower() in TRUE:
        return True
    if read.lower() in FALSE:
        return False
    if read.isdecimal():
        return int(read)
    try:
        return float(read)
    except ValueError:
        return read


def _entries(items: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    kept = ((str(name).strip(), value) for name, value in items if value is not None and str(value).strip())
    return sorted(((name, normalise(value)) for name, value in kept), key=lambda entry: entry[0])


def same_parameters(got: Call, want: Call, *, tool: Tool | None = None) -> bool:
    """Whether the released code takes two calls' parameters as equal: the required ones, and the optional ones.

    Where a recording doesn't tell required from optional parameters, the tool's schema does, or else the reference.
    """
    declared = tool.required if tool is not None else None
    fallback = want.required if want.required is not None else declared
    for in_bucket in (True, False):
        sides = []
        for call in (got, want):
            required = call.required if call.required is not None else (fallback or ())
            sides.append(_entries((n, v) for n, v in call.args.items() if (n in required) is in_bucket))
        if sides[0] != sides[1]:
            return False
    return True


def official_scores(calls: Sequence[Call], gold: Gold, *, tools: Mapping[str, Tool] | None = None) -> OfficialScores:
    """The official metrics of one trajectory [official code].

    Parameters
    ----------
    calls : sequence of Call
        What was predicted.
    gold : Gold
        The reference.
    tools : mapping of str to Tool, optional
        Tells required parameters from optional ones where the recording doesn't.
    """
    predicted, reference = [call.name for call in calls], [call.name for call in gold.calls]
    common = set(predicted) & set(reference)
    em = set(predicted) == set(reference) if gold.structure == "parallel" else predicted == reference
    usage = [
        same_parameters(calls[predicted.index(name)], gold.calls[reference.index(name)], tool=(tools or {}).get(name))
        for name in dict.fromkeys(reference)
        if name in common
    ]
    return OfficialScores(em, len(common) / max(1, len(reference)), usage)


def retrieval_rate(retrieved: Iterable[str], gold: Gold) -> float:
    """The share of the reference's tools that were retrieved, over the length of the reference list [official code]."""
    names = [call.name for call in gold.calls]
    return len(set(names) & set(retrieved)) / max(1, len(names))
