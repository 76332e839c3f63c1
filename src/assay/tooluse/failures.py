"""What went wrong, as labels: rules, not a judge. A call that equals its reference call is never to blame."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from assay.tooluse.alignment import Alignment
from assay.tooluse.provenance import Origin, Sources, leaves
from assay.tooluse.trajectories import Call, Edge, Gold, Tool, Trajectory

__all__ = ["LABELS", "Similarity", "failure_labels", "first_error", "word_similarity"]

Similarity: TypeAlias = Callable[[Tool, Tool], float]
LABELS = (
    "no_tool_used",
    "unparsable_call",
    "unknown_tool",
    "schema_violation",
    "similar_tool_confusion",
    "parameter_blind",
    "missing_call",
    "redundant",
    "wrong_arguments",
    "unsupported_argument",
    "premature_argument",
    "wrong_order",
    "broken_dependency",
    "intent",
)
"""In the order in which one of them explains the next: the first that applies is a run's first error."""
SIMILAR = 0.75
"""Cosine of descriptions from which two tools count as alike (specification of the method)."""
CARRIES = 0.5
"""Jaccard similarity of parameter names from which a tool can carry another's arguments."""
WORD = re.compile(r"[a-z0-9]+")


@lru_cache(maxsize=4096)
def _words(text: str) -> Counter[str]:
    return Counter(WORD.findall(text.lower()))


def word_similarity(one: Tool, other: Tool) -> float:
    """The cosine of two descriptions' word counts."""
    a, b = _words(one.description), _words(other.description)
    norm = math.sqrt(sum(n * n for n in a.values()) * sum(n * n for n in b.values()))
    return sum(n * b[word] for word, n in a.items()) / norm if norm else 0.0


def first_error(labels: Sequence[str]) -> str:
    """The label that explains the others; empty for a run without any."""
    return min(labels, key=LABELS.index, default="")


def failure_labels(
    run: Trajectory,
    plan: Gold,
    alignment: Alignment,
    *,
    values: Mapping[str, float],
    origins: Sequence[Mapping[str, Origin]],
    broken: Sequence[Edge],
    tools: Mapping[str, Tool],
    similarity: Similarity | None,
    query: str,
) -> tuple[str, ...]:
    """All labels of a run, in the order of `LABELS`."""
    if not run.calls:
        return ("no_tool_used",) if plan.calls else ()
    right = {j for (_, j), equal in zip(alignment.pairs, alignment.equal, strict=True) if equal}
    partner = {j: i for i, j in alignment.pairs}
    found: set[str] = set()
    for j, call in enumerate(run.calls):
        if call.parse_error is not None:
            found.add("unparsable_call")
        if j in right:
            continue
        if tools and call.name not in tools:
            found.add("unknown_tool")
        elif tools and call.parse_error is None and _violates_schema(tools[call.name], call.args):
            found.add("schema_violation")
        reference = plan.calls[partner[j]].args if j in partner else {}
        blamed = {origin for name, origin in origins[j].items() if call.args[name] != reference.get(name)}
        if "unsupported" in blamed:
            found.add("unsupported_argument")
        if "premature" in blamed:
            found.add("premature_argument")
    if not all(alignment.equal):
        found.add("wrong_arguments")
    if values["order_accuracy"] < 1:
        found.add("wrong_order")
    if broken:
        found.add("broken_dependency")
    found |= _selection_labels(run, plan, alignment, tools, similarity or word_similarity, query)
    return tuple(label for label in LABELS if label in found)


def _selection_labels(
    run: Trajectory,
    plan: Gold,
    alignment: Alignment,
    tools: Mapping[str, Tool],
    similarity: Similarity,
    query: str,
) -> set[str]:
    """What the calls beside the alignment are: stand-ins for a missing call, or simply too many."""
    missing, extra = list(alignment.missing), list(alignment.extra)
    found: set[str] = set()
    alike = sorted(
        (
            (-_likeness(tools[run.calls[j].name], tools[plan.calls[i].name], similarity), i, j)
            for i in missing
            for j in extra
            if run.calls[j].name in tools and plan.calls[i].name in tools and run.calls[j].name != plan.calls[i].name
        ),
    )
    for likeness, i, j in alike:
        if -likeness < SIMILAR:
            break
        if i not in missing or j not in extra:
            continue
        missing.remove(i)
        extra.remove(j)
        blind = not _can_carry(tools[run.calls[j].name], tools[plan.calls[i].name], run, j, query)
        found.add("parameter_blind" if blind else "similar_tool_confusion")
    if missing:
        found.add("missing_call")
    if extra:
        found.add("redundant")
    return found


def _likeness(one: Tool, other: Tool, similarity: Similarity) -> float:
    return 1.0 if set(one.groups) & set(other.groups) else similarity(one, other)


def _can_carry(chosen: Tool, wanted: Tool, run: Trajectory, j: int, query: str) -> bool:
    """Whether the chosen tool can take what the wanted one needs, and its own needs are known."""
    ours, theirs = set(chosen.properties), set(wanted.properties)
    if (ours or theirs) and len(ours & theirs) / len(ours | theirs) < CARRIES:
        return False
    call = run.calls[j]
    seen = Sources([query, *(one.result for one in run.calls if one.turn < call.turn)])
    for name in chosen.required:
        if name not in call.args:
            return False
        if not all(seen.hold(leaf) for leaf in leaves(call.args[name])):
            return False
    return True


@lru_cache(maxsize=1024)
def _validator(schema_text: str) -> Any:
    import json

    from jsonschema.validators import validator_for

    schema = json.loads(schema_text)
    return validator_for(schema)(schema)


def _violates_schema(tool: Tool, args: Mapping[str, Any]) -> bool:
    import json

    if not tool.parameters:
        return False
    validator = _validator(json.dumps(tool.parameters, sort_keys=True))
    return not validator.is_valid(_loosely_typed(tool, args))


def _loosely_typed(tool: Tool, args: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with numbers and truths that were given as text read as what the schema wants."""
    from assay.tooluse.matchers import as_boolean, as_number

    read = {"number": as_number, "integer": as_number, "boolean": as_boolean}
    values: dict[str, Any] = {}
    for name, value in args.items():
        kind = tool.properties.get(name, {}).get("type")
        parsed = read[kind](value) if kind in read and isinstance(value, str) else None
        values[name] = value if parsed is None else parsed
    return values


def call_violates(tool: Tool, call: Call) -> bool:
    """Whether a call's arguments break the tool's schema."""
    return call.parse_error is None and _violates_schema(tool, call.args)
