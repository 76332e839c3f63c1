"""The scores of one trajectory against its reference: names, calls, arguments, order, dependencies, origins, effort."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, get_args

from assay.core.errors import InputError
from assay.tooluse.alignment import Alignment, CallCounts, align_calls, prepared
from assay.tooluse.failures import Similarity, failure_labels
from assay.tooluse.matchers import Matcher
from assay.tooluse.official import official_scores
from assay.tooluse.provenance import Derive, Origin, Sources, provenance
from assay.tooluse.trajectories import Call, Gold, Tool, Trajectory, resolve_path

__all__ = ["EXACT_METRICS", "OFFICIAL_METRICS", "Profile", "Scores", "explain", "order_pairs", "score"]

Profile: TypeAlias = Literal["exact", "official"]
NOT_A_NUMBER = math.nan
EXACT_METRICS = (
    "name_em",
    "name_recall",
    "name_precision",
    "name_f1",
    "call_em",
    "call_recall",
    "call_precision",
    "call_f1",
    "args_accuracy",
    "arg_precision",
    "arg_recall",
    "arg_f1",
    "order_accuracy",
    "order_recall",
    "lcs_ratio",
    "dependency_satisfaction",
    "unsupported_rate",
    "redundancy",
    "satisfaction",
    "end_state",
    "extra_calls",
    "duplicate_calls",
    "error_calls",
    "recovered_errors",
    "n_calls",
    "parallelism",
    "tokens",
    "seconds",
)
OFFICIAL_METRICS = ("em", "inclusion", "usage", "usage_tools")


@dataclass(slots=True)
class Scores:
    """What one trajectory scores.

    Attributes
    ----------
    id, trial : str, int
        Which run.
    values : dict of str to float
        The metrics by name; NaN where one is undefined (order with fewer than two aligned calls, say).
    labels : tuple of str
        What went wrong, see `assay.tooluse.failures`.
    alignment : Alignment or None
        Which call stands for which; None under the official profile.
    plan : int
        Which plan of the reference scored best: 0 for the reference itself, then its alternatives.
    usage : tuple of bool
        Under the official profile: for every tool in common whether its parameters are equal.
    error : str or None
        Why the run is no evidence; its metrics are NaN.
    """

    id: str = ""
    trial: int = 0
    values: dict[str, float] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    alignment: Alignment | None = None
    plan: int = 0
    usage: tuple[bool, ...] = ()
    error: str | None = None

    def __getitem__(self, metric: str) -> float:
        """A metric by name."""
        return self.values[metric]


def score(
    pred: Trajectory | Sequence[Call],
    gold: Gold,
    *,
    profile: Profile = "exact",
    matcher: Matcher | None = None,
    tools: Iterable[Tool] = (),
    similarity: Similarity | None = None,
    derive: Derive | None = None,
) -> Scores:
    """Score a trajectory.

    Parameters
    ----------
    pred : Trajectory or sequence of Call
        What was called.
    gold : Gold
        The reference; of its plans the one with the highest call F1 counts.
    profile : {'exact', 'official'}
        Ours, or the released code's with its quirks.
    matcher : Matcher, optional
        How arguments are compared; by default as the tools' schemas say.
    tools : sequence of Tool, optional
        The tools that were on offer: for schemas, defaults and the labels that need them.
    similarity : callable, optional
        ``similarity(tool, other)``: how alike two tools are, 1 for equal; by default the cosine of their descriptions'
        words.
    derive : callable, optional
        See `assay.tooluse.provenance.provenance`.

    Returns
    -------
    Scores

    Raises
    ------
    InputError
        The profile is unknown.

    Examples
    --------
    >>> from assay.tooluse.trajectories import make_calls
    >>> gold = Gold(make_calls([("a", {}), ("b", {}), ("c", {})]), structure="sequential")
    >>> found = score(make_calls([("a", {}), ("c", {}), ("d", {})]), gold)
    >>> round(found["call_f1"], 3), found["order_accuracy"], found.labels
    (0.667, 1.0, ('missing_call', 'redundant'))
    """
    if profile not in get_args(Profile):
        raise InputError(f"profile is '{profile}'", expected=f"one of: {', '.join(get_args(Profile))}")
    run = pred if isinstance(pred, Trajectory) else Trajectory(list(pred), id=gold.id)
    toolbox = {tool.name: tool for tool in tools} or (matcher.tools if matcher is not None else {})
    if run.error is not None:
        names = EXACT_METRICS if profile == "exact" else OFFICIAL_METRICS
        return Scores(run.id, run.trial, dict.fromkeys(names, NOT_A_NUMBER), error=run.error)
    if profile == "official":
        return _official(run, gold, toolbox)
    matcher = matcher or Matcher(tools=toolbox.values())
    plans = [_exact(run, plan, gold, matcher, toolbox, similarity, derive) for plan in _plans(gold)]
    best = max(range(len(plans)), key=lambda i: (plans[i]["call_f1"], plans[i]["name_f1"], -i))
    return replace(plans[best], plan=best)


def _plans(gold: Gold) -> tuple[Gold, ...]:
    return (gold, *gold.alternatives)


def _official(run: Trajectory, gold: Gold, tools: Mapping[str, Tool]) -> Scores:
    found = official_scores(run.calls, gold, tools=tools)
    values = {
        "em": float(found.em),
        "inclusion": found.inclusion,
        "usage": sum(found.usage) / len(found.usage) if found.usage else 0.0,
        "usage_tools": float(len(found.usage)),
    }
    return Scores(run.id, run.trial, values, usage=tuple(found.usage))


def _exact(
    run: Trajectory,
    plan: Gold,
    task: Gold,
    matcher: Matcher,
    tools: Mapping[str, Tool],
    similarity: Similarity | None,
    derive: Derive | None,
) -> Scores:
    matcher = matcher.with_rules({**task.matchers, **plan.matchers})
    alignment = align_calls(run.calls, plan.calls, prepared(plan), matcher)
    plan, alignment = _without_skipped(plan, alignment)
    query = task.query or run.query
    origins = provenance(run.calls, query, matcher=matcher, derive=derive) if query else [{} for _ in run.calls]
    values: dict[str, float] = {}
    values.update(_names(run, plan))
    values.update(_calls(alignment))
    values.update(_arguments(run, plan, alignment, matcher))
    values.update(_order(run, plan, alignment))
    satisfied = [_edge_holds(edge, run, plan, alignment, matcher) for edge in plan.edges]
    values["dependency_satisfaction"] = sum(satisfied) / len(satisfied) if satisfied else NOT_A_NUMBER
    values.update(_origins(origins))
    values.update(_effort(run, alignment))
    values["satisfaction"] = _satisfaction(run, task)
    values["end_state"] = NOT_A_NUMBER if task.end_state is None else float(run.end_state == task.end_state)
    labels = failure_labels(
        run,
        plan,
        alignment,
        values=values,
        origins=origins,
        broken=[edge for edge, holds in zip(plan.edges, satisfied, strict=True) if not holds],
        tools=tools,
        similarity=similarity,
        query=query,
    )
    return Scores(run.id, run.trial, values, labels, alignment)


def _without_skipped(plan: Gold, alignment: Alignment) -> tuple[Gold, Alignment]:
    """The plan without its optional calls that weren't made, and the alignment's indices within it."""
    skipped = [i for i in alignment.missing if i in plan.optional] if plan.optional else []
    if not skipped:
        return plan, alignment
    kept = [i for i in range(len(plan.calls)) if i not in skipped]
    place = {old: new for new, old in enumerate(kept)}
    edges = tuple(
        replace(edge, producer=place[edge.producer], consumer=place[edge.consumer])
        for edge in plan.edges
        if edge.producer in place and edge.consumer in place
    )
    order = tuple((place[a], place[b]) for a, b in plan.order if a in place and b in place)
    shorter = replace(plan, calls=[plan.calls[i] for i in kept], edges=edges, order=order, optional=frozenset())
    pairs = tuple((place[i], j) for i, j in alignment.pairs)
    return shorter, replace(alignment, pairs=pairs, n_reference=len(kept))


def _ratio(part: float, whole: float, *, empty: float) -> float:
    return part / whole if whole else empty


def _f1(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _names(run: Trajectory, plan: Gold) -> dict[str, float]:
    predicted, reference = [call.name for call in run.calls], [call.name for call in plan.calls]
    shared = (Counter(predicted) & Counter(reference)).total()
    both_empty = not predicted and not reference
    recall = _ratio(shared, len(reference), empty=1.0)
    precision = _ratio(shared, len(predicted), empty=1.0 if both_empty else 0.0)
    if plan.structure == "sequential":
        em = predicted == reference
    else:
        em = shared == len(predicted) == len(reference)
        if em and plan.structure == "dag":
            em = _is_linear_extension(run, plan)
    return {
        "name_em": float(em),
        "name_recall": recall,
        "name_precision": precision,
        "name_f1": 1.0 if both_empty else _f1(precision, recall),
        "lcs_ratio": _ratio(_lcs(predicted, reference), max(len(predicted), len(reference)), empty=1.0),
    }


def _is_linear_extension(run: Trajectory, plan: Gold) -> bool:
    """Whether the predicted names can be read as the DAG's calls in an allowed order.

    Calls that share a name are interchangeable here, so a search over which call each name stands for decides.
    """
    before: dict[int, set[int]] = {i: set() for i in range(len(plan.calls))}
    for first, second in order_pairs(plan):
        before[second].add(first)
    names = [call.name for call in run.calls]
    failed: set[frozenset[int]] = set()

    def extend(done: frozenset[int]) -> bool:
        if len(done) == len(names):
            return True
        if done in failed:
            return False
        wanted = names[len(done)]
        for i, call in enumerate(plan.calls):
            if i not in done and call.name == wanted and before[i] <= done and extend(done | {i}):
                return True
        failed.add(done)
        return False

    return extend(frozenset())


def _lcs(a: Sequence[str], b: Sequence[str]) -> int:
    """The length of the longest common subsequence."""
    row = [0] * (len(b) + 1)
    for x in a:
        corner = 0
        for j, y in enumerate(b, start=1):
            corner, row[j] = row[j], corner + 1 if x == y else max(row[j], row[j - 1])
    return row[-1]


def _calls(alignment: Alignment) -> dict[str, float]:
    counts = CallCounts(alignment.n_reference, alignment.n_predicted, len(alignment.pairs), sum(alignment.equal))
    everything = counts.equal == counts.reference == counts.predicted
    return {
        "call_em": float(everything),
        "call_recall": counts.recall,
        "call_precision": counts.precision,
        "call_f1": counts.f1,
        "args_accuracy": _ratio(counts.equal, counts.named, empty=NOT_A_NUMBER),
    }


def _arguments(run: Trajectory, plan: Gold, alignment: Alignment, matcher: Matcher) -> dict[str, float]:
    """Single arguments of aligned calls; a call that equals its reference by a default counts with all of them."""
    matched = given = wanted = 0
    for (i, j), equal in zip(alignment.pairs, alignment.equal, strict=True):
        got, want = run.calls[j].args, plan.calls[i].args
        wanted += len(want)
        given += len(want) if equal else len(got)
        matched += len(want) if equal else matcher.matched(plan.calls[i].name, got, want)
    precision = _ratio(min(matched, given), given, empty=1.0 if not wanted else 0.0)
    recall = _ratio(matched, wanted, empty=1.0)
    if not alignment.pairs:
        precision = recall = NOT_A_NUMBER
    both = precision == precision and recall == recall
    return {
        "arg_precision": precision,
        "arg_recall": recall,
        "arg_f1": _f1(precision, recall) if both else NOT_A_NUMBER,
    }


def order_pairs(plan: Gold) -> list[tuple[int, int]]:
    """All pairs of reference calls of which the first must come before the second.

    Parameters
    ----------
    plan : Gold
        Sequential: every pair in order. DAG: the transitive closure of its order and edges. Parallel: none, beside its
        edges' closure.

    Returns
    -------
    list of (int, int)

    Examples
    --------
    >>> from assay.tooluse.trajectories import make_calls
    >>> calls = make_calls([("a", {}), ("b", {}), ("c", {})])
    >>> order_pairs(Gold(calls, structure="dag", order=((0, 1), (1, 2))))
    [(0, 1), (0, 2), (1, 2)]
    """
    count = len(plan.calls)
    if plan.structure == "sequential":
        return [(i, j) for i in range(count) for j in range(i + 1, count)]
    direct = {*plan.order, *((edge.producer, edge.consumer) for edge in plan.edges)}
    if not direct:
        return []
    import networkx as nx

    graph = nx.DiGraph(direct)
    if not nx.is_directed_acyclic_graph(graph):
        raise InputError(f"the order of gold '{plan.id}' has a cycle", expected="a directed graph without cycles")
    return sorted(nx.transitive_closure_dag(graph).edges)


def _comes_before(first: Call, second: Call) -> bool:
    if first.parallel_group is not None and first.parallel_group == second.parallel_group:
        return False
    return first.index < second.index


def _order(run: Trajectory, plan: Gold, alignment: Alignment) -> dict[str, float]:
    pairs = order_pairs(plan)
    place = dict(alignment.pairs)
    both = [(u, v) for u, v in pairs if u in place and v in place]
    kept = sum(_comes_before(run.calls[place[u]], run.calls[place[v]]) for u, v in both)
    return {
        "order_accuracy": _ratio(kept, len(both), empty=NOT_A_NUMBER),
        "order_recall": _ratio(kept, len(pairs), empty=NOT_A_NUMBER),
    }


def _edge_holds(edge: Any, run: Trajectory, plan: Gold, alignment: Alignment, matcher: Matcher) -> bool:
    """Whether a dependency was honoured: seen before it was used, and used as it was seen."""
    place = dict(alignment.pairs)
    if edge.producer not in place or edge.consumer not in place:
        return False
    producer, consumer = run.calls[place[edge.producer]], run.calls[place[edge.consumer]]
    if producer.turn >= consumer.turn or edge.parameter not in consumer.args:
        return False
    wanted = plan.calls[edge.consumer].args.get(edge.parameter)
    if producer.result is not None:
        try:
            wanted = resolve_path(producer.result, edge.path)
        except KeyError:
            return False
    return matcher.equal(consumer.name, edge.parameter, consumer.args[edge.parameter], wanted)


def _origins(origins: Sequence[Mapping[str, Origin]]) -> dict[str, float]:
    every = [origin for call in origins for origin in call.values()]
    invented = sum(origin == "unsupported" for origin in every)
    return {"unsupported_rate": _ratio(invented, len(every), empty=NOT_A_NUMBER)}


def _effort(run: Trajectory, alignment: Alignment) -> dict[str, float]:
    calls = run.calls
    duplicates = 0
    seen: dict[str, list[dict[str, Any]]] = {}
    for call in calls:
        known = seen.setdefault(call.name, [])
        duplicates += call.args in known and call.parse_error is None
        known.append(call.args)
    errors = [call for call in calls if call.is_error]
    recovered = sum(
        any(later.name == call.name and not later.is_error for later in calls[call.index + 1 :]) for call in errors
    )
    turns = len({call.turn for call in calls})
    starts = [call.t_start for call in calls if call.t_start is not None]
    ends = [call.t_end for call in calls if call.t_end is not None]
    extra = alignment.n_predicted - len(alignment.pairs)
    return {
        "extra_calls": float(extra),
        "redundancy": _ratio(extra, alignment.n_predicted, empty=0.0),
        "duplicate_calls": float(duplicates),
        "error_calls": float(len(errors)),
        "recovered_errors": float(recovered),
        "n_calls": float(len(calls)),
        "parallelism": _ratio(len(calls), turns, empty=NOT_A_NUMBER),
        "tokens": float(sum(run.usage.values())) if run.usage else NOT_A_NUMBER,
        "seconds": max(ends) - min(starts) if starts and ends else NOT_A_NUMBER,
    }


def _satisfaction(run: Trajectory, task: Gold) -> float:
    """The share of the required facts that the tools' results contain."""
    if not task.facts:
        return NOT_A_NUMBER
    seen = Sources([call.result for call in run.calls if not call.is_error])
    return sum(seen.hold(fact) for fact in task.facts) / len(task.facts)


def explain(
    pred: Trajectory | Sequence[Call], gold: Gold, *, matcher: Matcher | None = None, tools: Iterable[Tool] = ()
) -> str:
    """Say in words where a trajectory leaves its reference.

    Parameters
    ----------
    pred : Trajectory or sequence of Call
        What was called.
    gold : Gold
        The reference.
    matcher : Matcher, optional
        How arguments are compared.
    tools : sequence of Tool, optional
        As for `score`.

    Returns
    -------
    str
        One line a call: ``=`` as the reference, ``~`` other arguments, ``-`` missing, ``+`` extra.

    Examples
    --------
    >>> from assay.tooluse.trajectories import make_calls
    >>> gold = Gold(make_calls([("weather", {"city": "Paris"}), ("news", {})]))
    >>> print(explain(make_calls([("weather", {"city": "Rome"})]), gold))
    call_f1 0.000, name_em 0: missing_call, wrong_arguments
    ~ weather(city='Rome')
        city: 'Rome', expected 'Paris'
    - news()
    """
    tools = list(tools)
    run = pred if isinstance(pred, Trajectory) else Trajectory(list(pred), id=gold.id)
    found = score(run, gold, matcher=matcher, tools=tools)
    if found.alignment is None:
        return f"not scored: {found.error}"
    plan = _plans(gold)[found.plan]
    matcher = (matcher or Matcher(tools=tools)).with_rules({**gold.matchers, **plan.matchers})
    whole = align_calls(run.calls, plan.calls, prepared(plan), matcher)
    labels = ", ".join(found.labels) or "as the reference"
    lines = [f"call_f1 {found['call_f1']:.3f}, name_em {found['name_em']:.0f}: {labels}"]
    partner = {j: (i, equal) for (i, j), equal in zip(whole.pairs, whole.equal, strict=True)}
    for j, call in enumerate(run.calls):
        if j not in partner:
            lines.append(f"+ {show_call(call)}")
            continue
        i, equal = partner[j]
        lines.append(f"{'=' if equal else '~'} {show_call(call)}")
        if not equal:
            lines += [f"    {line}" for line in argument_differences(call, plan.calls[i], matcher)]
    lines += [f"- {show_call(plan.calls[i])}{' (optional)' if i in plan.optional else ''}" for i in whole.missing]
    return "\n".join(lines)


def show_call(call: Call) -> str:
    """``name(parameter=value, ...)``."""
    if call.parse_error is not None:
        return f"{call.name}({call.raw_args!s:.200}) [{call.parse_error}]"
    return f"{call.name}({', '.join(f'{key}={value!r}' for key, value in call.args.items())})"


def argument_differences(call: Call, reference: Call, matcher: Matcher) -> list[str]:
    """One line for each argument that isn't the reference's."""
    lines = []
    for name, want in reference.args.items():
        if name not in call.args:
            if not matcher.args_equal(reference.name, {}, {name: want}):
                lines.append(f"{name}: missing, expected {want!r}")
        elif not matcher.equal(reference.name, name, call.args[name], want):
            lines.append(f"{name}: {call.args[name]!r}, expected {want!r}")
    lines += [f"{name}: {value!r}, not expected" for name, value in call.args.items() if name not in reference.args]
    return lines


Scorer: TypeAlias = Callable[[Trajectory, Gold], Scores]
