"""What is wrong with a data set of tools and reference trajectories, counted."""

from __future__ import annotations

import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.core.errors import InputError
from assay.core.files import STREAM
from assay.tooluse.provenance import Sources, leaves
from assay.tooluse.reading import (
    gold_from_dict,
    gold_from_trajectory,
    naming_record,
    read_record,
    records,
    tool_from_dict,
)
from assay.tooluse.trajectories import Call, Gold, Tool

__all__ = ["Audit", "Finding", "audit"]

ERROR_MARKS = ("error", "exception", "failed to", "not found", "invalid")
MISTAKES = frozenset(
    {
        "tool_name_repeated",
        "wrong_bucket",
        "undeclared_parameter",
        "missing_required",
        "blank_value",
        "unknown_tool",
        "error_as_value",
        "empty_reference",
        "duplicate_id",
        "not_a_number",
    }
)
"""Findings that make an audit fail; the others describe the data."""
EXAMPLES = 5


@dataclass(slots=True)
class Finding:
    """How often something was found.

    Attributes
    ----------
    count, of : int
        How many of how many.
    unit : str
        What is counted.
    examples : list of str
        Where, for the first few.
    """

    count: int = 0
    of: int = 0
    unit: str = ""
    examples: list[str] = field(default_factory=list)

    def see(self, where: str) -> None:
        """Count one more."""
        self.count += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(where)


@dataclass(slots=True)
class Audit:
    """What an audit found.

    Attributes
    ----------
    findings : dict of str to Finding
        By name.
    files : int
        How many files were read.
    """

    findings: dict[str, Finding]
    files: int

    @property
    def mistakes(self) -> dict[str, Finding]:
        """The findings that are faults of the data, where there are any."""
        return {name: one for name, one in self.findings.items() if name in MISTAKES and one.count}

    def as_dict(self) -> dict[str, Any]:
        """What a program reads."""
        return {
            name: {"count": one.count, "of": one.of, "unit": one.unit, "examples": one.examples}
            for name, one in self.findings.items()
        }


def audit(path: str | os.PathLike[str]) -> Audit:
    """Look through a data set's tools and reference trajectories.

    Parameters
    ----------
    path : path
        A folder with tool files and trajectory files, in TRAJECT-Bench's layout or our own; or one such file.

    Returns
    -------
    Audit

    Raises
    ------
    InputError
        Nothing can be read there.

    Examples
    --------
    >>> import json, tempfile
    >>> steps = [{"tool name": "a", "required parameters": [{"name": "x", "value": " "}]}]
    >>> with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
    ...     json.dump([{"query": "q", "tool list": steps}], file)
    ...     file.flush()
    ...     audit(file.name).findings["blank_value"].count
    1
    """
    tools: list[tuple[str, Tool]] = []
    golds: list[tuple[str, Gold]] = []
    files = _files(path)
    for file in files:
        for number, (row, record) in enumerate(records(file)):
            with naming_record(str(file), row):
                _sort(record, f"{file.name}[{number}]", file, tools, golds)
    if not tools and not golds:
        raise InputError("holds neither tools nor reference trajectories", file=path, expected="a data set of tool use")
    found: dict[str, Finding] = {}
    if tools:
        _look_at_tools([tool for _, tool in tools], found)
    if golds:
        _look_at_golds(golds, {tool.name: tool for _, tool in tools}, found)
    return Audit(found, len(files))


def _files(path: str | os.PathLike[str]) -> list[Path]:
    from assay.core.files import existing_file

    folder = Path(path)
    if os.fspath(path) == STREAM:
        return [folder]
    if not folder.is_dir():
        return [existing_file(path)]
    found = sorted(p for p in folder.rglob("*") if p.name.endswith((".json", ".jsonl", ".json.gz", ".jsonl.gz")))
    if not found:
        raise InputError("the folder holds no .json or .jsonl file", file=folder, expected="a data set of tool use")
    return found


def _sort(record: Any, place: str, file: Path, tools: list[tuple[str, Tool]], golds: list[tuple[str, Gold]]) -> None:
    """Put a record with the tools or with the references."""
    from assay.tooluse.formats import FORMATS, detect

    if not isinstance(record, Mapping):
        raise InputError(f"a record of type {type(record).__name__}", expected="an object")
    if "tool list" in record or "tool_list" in record:
        (run,) = read_record(FORMATS["traject"], record)
        sequential = "sequence_name" in record or "sequential" in file.parts
        gold = gold_from_trajectory(run, structure="sequential" if sequential else "parallel")
        gold.domain = str(record.get("domain", file.parent.name))
        golds.append((place, gold))
    elif "structure" in record and "calls" in record:
        golds.append((place, gold_from_dict(record)))
    elif "tool name" in record or "name" in record or "function" in record:
        tools.append((place, tool_from_dict(record)))
    else:
        known = detect(record)
        golds += [(place, gold_from_trajectory(run)) for run in read_record(known, record)]


def _look_at_tools(tools: Sequence[Tool], found: dict[str, Finding]) -> None:
    counts = Counter(tool.name for tool in tools)
    domains: dict[str, set[str]] = defaultdict(set)
    for tool in tools:
        domains[tool.name].add(tool.domain)
    found["tools"] = Finding(len(tools), len(tools), "tool records")
    found["distinct_tool_names"] = Finding(len(counts), len(tools), "names")
    repeated = found["tool_name_repeated"] = Finding(0, len(counts), "names")
    across = found["tool_name_across_domains"] = Finding(0, len(counts), "names")
    for name, count in counts.items():
        if count > 1:
            repeated.see(name)
            if len(domains[name]) > 1:
                across.see(name)


def _look_at_golds(golds: Sequence[tuple[str, Gold]], tools: Mapping[str, Tool], found: dict[str, Finding]) -> None:
    names = {
        "empty_reference": "trajectories",
        "duplicate_id": "trajectories",
        "repeats_a_tool": "trajectories",
        "repeats_a_call": "trajectories",
        "official_inclusion_below_one": "trajectories",
        "failed_step": "steps",
        "unknown_tool": "steps",
        "wrong_bucket": "steps",
        "undeclared_parameter": "steps",
        "missing_required": "steps",
        "blank_value": "values",
        "error_as_value": "values",
        "not_a_number": "values",
        "later_step": "steps",
        "later_without_arguments": "later steps",
        "later_all_in_query": "later steps",
        "later_true_dependency": "later steps",
    }
    for name, unit in names.items():
        found[name] = Finding(unit=unit)
    ids: set[str] = set()
    structures: Counter[str] = Counter()
    steps = values = later = 0
    for place, gold in golds:
        structures[gold.structure] += 1
        if not gold.calls:
            found["empty_reference"].see(place)
        if gold.id and gold.id in ids:
            found["duplicate_id"].see(f"{place} {gold.id}")
        ids.add(gold.id)
        called = [call.name for call in gold.calls]
        if len(set(called)) < len(called):
            found["repeats_a_tool"].see(place)
            found["official_inclusion_below_one"].see(place)
        if any(call.args == other.args and call.name == other.name
               for i, call in enumerate(gold.calls) for other in gold.calls[:i]):  # fmt: skip
            found["repeats_a_call"].see(place)
        for call in gold.calls:
            steps += 1
            values += len(call.args)
            for name in _faults(call, tools):
                found[name].see(f"{place} step {call.index} {call.name}")
        if gold.structure == "sequential":
            later += max(0, len(gold.calls) - 1)
            for name, index in _dependencies(gold):
                found[name].see(f"{place} step {index}")
    for name, unit in names.items():
        found[name].of = {"trajectories": len(golds), "steps": steps, "values": values, "later steps": later}[unit]
    found["trajectories"] = Finding(len(golds), len(golds), ", ".join(f"{n} {s}" for s, n in structures.items()))
    found["steps"] = Finding(steps, steps, "steps")
    found["later_step"].of = steps


def _faults(call: Call, tools: Mapping[str, Tool]) -> Iterator[str]:
    if call.is_error:
        yield "failed_step"
    for value in call.args.values():
        if value is None or (isinstance(value, str) and not value.strip()):
            yield "blank_value"
        if isinstance(value, str) and len(value) > 20 and any(mark in value.lower() for mark in ERROR_MARKS):
            yield "error_as_value"
        if any(isinstance(leaf, float) and not math.isfinite(leaf) for leaf in leaves(value)):
            yield "not_a_number"
    if not tools:
        return
    tool = tools.get(call.name)
    if tool is None:
        yield "unknown_tool"
        return
    filled = {name for name, value in call.args.items() if value is not None and str(value).strip()}
    if any(name not in tool.properties for name in call.args):
        yield "undeclared_parameter"
    if any(name not in filled for name in tool.required):
        yield "missing_required"
    if call.required is not None and any(
        (name in call.required) != (name in tool.required) for name in call.args if name in tool.properties
    ):
        yield "wrong_bucket"


def _dependencies(gold: Gold) -> Iterator[tuple[str, int]]:
    """What a chain's later steps take their values from."""
    asked = Sources([gold.query])
    for index, call in enumerate(gold.calls[1:], start=1):
        yield "later_step", index
        values = [leaf for value in call.args.values() for leaf in leaves(value) if str(leaf).strip()]
        if not values:
            yield "later_without_arguments", index
            continue
        unasked = [value for value in values if not asked.hold(value)]
        if not unasked:
            yield "later_all_in_query", index
        else:
            seen = Sources([earlier.result for earlier in gold.calls[:index]])
            if any(seen.hold(value) for value in unasked):
                yield "later_true_dependency", index
