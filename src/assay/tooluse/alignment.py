"""Which predicted call stands for which reference call: an optimal assignment, never first come, first served.

Only calls of one tool may be paired, so each tool's calls are assigned by themselves: directly where a tool is called
once on both sides, in order where all of them agree, and otherwise by `scipy.optimize.linear_sum_assignment`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.tooluse.matchers import Matcher
from assay.tooluse.trajectories import Call, Gold, Trajectory

__all__ = ["Alignment", "CallCounts", "align", "align_calls", "count_calls"]

EQUAL_WEIGHT = 1e4
"""What equal arguments weigh: more than all shares of matched arguments together."""
RANK_WEIGHT = 1e-6
"""What a difference of positions costs: it decides between pairs that are equally good."""
TIE_WEIGHT = 1e-9
"""What a later place is worth where that ties: a call before its time shifts the right one back by one."""
DEFAULT = Matcher()


@dataclass(slots=True, frozen=True)
class Alignment:
    """Pairs of a reference call and a predicted call.

    Attributes
    ----------
    pairs : tuple of (int, int)
        Index of the reference call, index of the predicted call; by reference call.
    equal : tuple of bool
        Whether the pair's arguments are equal.
    n_reference, n_predicted : int
        How many calls there are on each side.
    """

    pairs: tuple[tuple[int, int], ...]
    equal: tuple[bool, ...]
    n_reference: int
    n_predicted: int

    @property
    def missing(self) -> tuple[int, ...]:
        """Reference calls that no predicted call stands for."""
        paired = {reference for reference, _ in self.pairs}
        return tuple(i for i in range(self.n_reference) if i not in paired)

    @property
    def extra(self) -> tuple[int, ...]:
        """Predicted calls that stand for no reference call."""
        paired = {predicted for _, predicted in self.pairs}
        return tuple(i for i in range(self.n_predicted) if i not in paired)

    def weight(self, predicted: Sequence[Call], gold: Sequence[Call], matcher: Matcher = DEFAULT) -> float:
        """The assignment's total weight, which no other assignment exceeds."""
        return sum(pair_weight(predicted[j], gold[i], j, i, matcher) for i, j in self.pairs)


@dataclass(slots=True, frozen=True)
class CallCounts:
    """How many calls agree: in name, and in name and arguments.

    Attributes
    ----------
    reference, predicted : int
        Calls on each side.
    named : int
        Predicted calls that are paired with a reference call of the same name.
    equal : int
        Pairs with equal arguments.
    """

    reference: int
    predicted: int
    named: int
    equal: int

    @property
    def recall(self) -> float:
        """The share of reference calls that were made with equal arguments."""
        return _share(self.equal, self.reference, self.predicted == 0 or self.reference == 0)

    @property
    def precision(self) -> float:
        """The share of predicted calls that a reference call asks for."""
        if self.predicted == 0:
            return 1.0 if self.reference == 0 else 0.0
        return self.equal / self.predicted

    @property
    def f1(self) -> float:
        """The harmonic mean of the two."""
        total = self.reference + self.predicted
        return 2 * self.equal / total if total else 1.0


def _share(part: int, whole: int, empty: bool) -> float:
    return part / whole if whole else (1.0 if empty else 0.0)


class Prepared:
    """What is looked up again and again of a reference: its calls by name, and which arguments need no second look."""

    __slots__ = ("args", "by_name", "plain", "single")

    def __init__(self, calls: Sequence[Call]) -> None:
        self.args = args = [call.args for call in calls]
        self.plain = plain = list(map(_is_plain, args))
        self.by_name: dict[str, list[int]] = {}
        by_name = self.by_name
        for index, call in enumerate(calls):
            if call.name in by_name:
                by_name[call.name].append(index)
            else:
                by_name[call.name] = [index]
        self.single = {name: (args[where[0]], plain[where[0]]) for name, where in by_name.items() if len(where) == 1}


def prepared(gold: Gold) -> Prepared:
    """The gold's look-up tables, made once."""
    if gold._prepared is None:
        gold._prepared = Prepared(gold.calls)
    found: Prepared = gold._prepared
    return found


def _is_plain(value: Any) -> bool:
    """Whether Python's equality is JSON's: no true, false, 0 or 1 in it, which Python takes for one another."""
    kind = type(value)
    if kind is str or value is None:
        return True
    if kind is int or kind is float:
        return bool(value != 0 and value != 1)
    if kind is dict or kind is list:
        for one in value.values() if kind is dict else value:
            if type(one) is not str and not _is_plain(one):
                return False
        return True
    # Anything else, true and false among it, is looked at type by type.
    return False


def pair_weight(predicted: Call, reference: Call, j: int, i: int, matcher: Matcher) -> float:
    """What pairing predicted call j with reference call i is worth."""
    if predicted.name != reference.name:
        raise ValueError("calls of two tools can't be paired")
    equal = predicted.parse_error is None and matcher.args_equal(reference.name, predicted.args, reference.args)
    share = _matched_share(predicted, reference, matcher)
    return EQUAL_WEIGHT * equal + share - RANK_WEIGHT * abs(i - j)


def _matched_share(predicted: Call, reference: Call, matcher: Matcher) -> float:
    if predicted.parse_error is not None:
        return 0.0
    if not reference.args:
        return 1.0
    return matcher.matched(reference.name, predicted.args, reference.args) / len(reference.args)


def align(
    pred: Trajectory | Sequence[Call], gold: Gold | Sequence[Call], *, matcher: Matcher | None = None
) -> Alignment:
    """Pair predicted with reference calls so that as many arguments as possible agree.

    The assignment has the largest total weight; a pair of calls of one tool weighs 10⁴ where all arguments are equal,
    plus the share of the reference's arguments that match, less 10⁻⁶ for every position between the two.

    Parameters
    ----------
    pred : Trajectory or sequence of Call
        What was called.
    gold : Gold or sequence of Call
        The reference.
    matcher : Matcher, optional
        How arguments are compared.

    Returns
    -------
    Alignment

    Examples
    --------
    >>> from assay.tooluse.trajectories import make_calls
    >>> reference = make_calls([("search", {"q": "a"}), ("search", {"q": "a", "n": 5})])
    >>> predicted = make_calls([("search", {"q": "a", "n": 5}), ("search", {"q": "a"})])
    >>> align(predicted, reference, matcher=Matcher(arguments="superset")).pairs
    ((0, 1), (1, 0))
    """
    calls = pred.calls if isinstance(pred, Trajectory) else pred
    known = prepared(gold) if isinstance(gold, Gold) else Prepared(gold)
    reference = gold.calls if isinstance(gold, Gold) else gold
    rules = gold.matchers if isinstance(gold, Gold) else {}
    return align_calls(calls, reference, known, (matcher or DEFAULT).with_rules(rules))


def align_calls(calls: Sequence[Call], reference: Sequence[Call], known: Prepared, matcher: Matcher) -> Alignment:
    """`align` with the reference's look-up tables at hand."""
    by_name: dict[str, list[int]] = {}
    for index, call in enumerate(calls):
        if call.name in known.by_name:
            by_name.setdefault(call.name, []).append(index)
    found: list[tuple[int, int, bool]] = []
    for name, predicted in by_name.items():
        wanted = known.by_name[name]
        if len(predicted) == len(wanted):
            pairs = [(i, j, _equal(calls[j], i, known, name, matcher)) for i, j in zip(wanted, predicted, strict=True)]
            if len(wanted) == 1 or all(equal for _, _, equal in pairs):
                found += pairs
                continue
        found += _assign(name, predicted, wanted, calls, reference, known, matcher)
    found.sort()
    return Alignment(
        tuple((i, j) for i, j, _ in found), tuple(equal for _, _, equal in found), len(reference), len(calls)
    )


def _equal(call: Call, i: int, known: Prepared, name: str, matcher: Matcher) -> bool:
    if call.parse_error is not None:
        return False
    want = known.args[i]
    if known.plain[i] and call.args == want:
        return True
    return matcher.args_equal(name, call.args, want)


def _assign(
    name: str,
    predicted: Sequence[int],
    wanted: Sequence[int],
    calls: Sequence[Call],
    reference: Sequence[Call],
    known: Prepared,
    matcher: Matcher,
) -> list[tuple[int, int, bool]]:
    """The heaviest assignment of one tool's calls."""
    import numpy as np
    from scipy.optimize import linear_sum_assignment

    equal = [[_equal(calls[j], i, known, name, matcher) for j in predicted] for i in wanted]
    weights = np.empty((len(wanted), len(predicted)))
    for row, i in enumerate(wanted):
        for column, j in enumerate(predicted):
            identical = equal[row][column] and reference[i].args == calls[j].args
            share = 1.0 if identical else _matched_share(calls[j], reference[i], matcher)
            weights[row, column] = EQUAL_WEIGHT * equal[row][column] + share - RANK_WEIGHT * abs(i - j) + TIE_WEIGHT * j
    rows, columns = linear_sum_assignment(weights, maximize=True)
    return [(wanted[r], predicted[c], equal[r][c]) for r, c in zip(rows, columns, strict=True)]


def count_calls(
    calls: Sequence[Mapping[str, Any]] | Sequence[Call], gold: Gold, matcher: Matcher = DEFAULT
) -> CallCounts:
    """How many calls agree with the reference under the optimal assignment: the fast way to `call_f1`.

    Parameters
    ----------
    calls : sequence of Call, or of dict with ``name`` and ``args``
        What was called.
    gold : Gold
        The reference; its look-up tables are kept with it.
    matcher : Matcher, optional
        How arguments are compared.

    Returns
    -------
    CallCounts

    Examples
    --------
    >>> from assay.tooluse.trajectories import make_calls
    >>> gold = Gold(make_calls([("weather", {"city": "Paris"}), ("news", {})]))
    >>> count_calls([{"name": "weather", "args": {"city": "Paris"}}], gold).f1
    0.6666666666666666
    """
    known = prepared(gold)
    if gold.matchers:
        matcher = matcher.with_rules(gold.matchers)
    plain = matcher.plain and not matcher.rules
    named = equal = 0
    seen: set[str] = set()
    again: dict[str, list[Any]] | None = None
    single, by_name = known.single, known.by_name
    for call in calls:
        if isinstance(call, dict):
            name, args, broken = call["name"], call["args"], False
        else:
            name, args, broken = call.name, call.args, call.parse_error is not None  # type: ignore[union-attr]
        if name in seen or name not in single:
            if name in by_name:
                again = again or {}
                again.setdefault(name, [])
            continue
        seen.add(name)
        want, simple = single[name]
        named += 1
        if (plain and simple and args == want and not broken) or (not broken and matcher.args_equal(name, args, want)):
            equal += 1
    if again is None:
        return CallCounts(len(gold.calls), len(calls), named, equal)
    objects = [call if isinstance(call, Call) else Call(call["name"], call["args"]) for call in calls]
    found = align_calls(objects, gold.calls, known, matcher)
    return CallCounts(len(gold.calls), len(calls), len(found.pairs), sum(found.equal))
