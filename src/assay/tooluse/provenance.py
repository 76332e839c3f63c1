"""Where the value of an argument comes from: the query, an earlier result, a default, or nowhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from assay.tooluse.matchers import MISSING, Matcher, equal_typed, squeeze
from assay.tooluse.trajectories import Call

__all__ = ["Origin", "Sources", "leaves", "provenance"]

Origin: TypeAlias = Literal["query", "observation", "default", "derived", "premature", "unsupported"]
Derive: TypeAlias = Callable[[Any, str, Sequence[Any]], bool]
NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?(?!\w)")
WORD = re.compile(r"\w+", re.UNICODE)


def leaves(value: Any) -> Iterator[Any]:
    """The texts, numbers and truths within a JSON value."""
    if isinstance(value, Mapping):
        for one in value.values():
            yield from leaves(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from leaves(one)
    elif value is not None:
        yield value


class Sources:
    """A text or a JSON value in which values are looked for.

    Parameters
    ----------
    values : sequence of object
        Texts and JSON values.
    """

    def __init__(self, values: Sequence[Any]) -> None:
        texts = [str(leaf) for value in values for leaf in leaves(value)]
        self._text = f" {' '.join(WORD.findall(' | '.join(texts).casefold()))} "
        self._numbers = {float(found.replace(",", "")) for text in texts for found in NUMBER.findall(text)}

    def hold(self, value: Any) -> bool:
        """Whether the value occurs: a number as a number, a text as whole words."""
        if isinstance(value, bool):
            return f" {str(value).casefold()} " in self._text
        if isinstance(value, int | float):
            return float(value) in self._numbers
        text = squeeze(str(value))
        if NUMBER.fullmatch(text) and float(text.replace(",", "")) in self._numbers:
            return True
        words = " ".join(WORD.findall(text.casefold()))
        return not words or f" {words} " in self._text


def provenance(
    calls: Sequence[Call], query: str, *, matcher: Matcher, derive: Derive | None = None
) -> list[dict[str, Origin]]:
    """The origin of each argument of each call, by parameter.

    An argument with parts takes the worst of their origins. An observation counts when its turn is over before the call
    was issued; one that comes later makes the value `premature`.

    Parameters
    ----------
    calls : sequence of Call
        A trajectory's calls.
    query : str
        What the user asked.
    matcher : Matcher
        Knows the defaults.
    derive : callable, optional
        ``derive(value, query, earlier results)`` says whether a value follows from them.

    Returns
    -------
    list of dict
    """
    asked = Sources([query])
    before: dict[int, Sources] = {}
    after: dict[int, Sources] = {}
    found: list[dict[str, Origin]] = []
    for call in calls:
        origins: dict[str, Origin] = {}
        for name, value in call.args.items():
            if all(asked.hold(leaf) for leaf in leaves(value)):
                origins[name] = "query"
                continue
            if call.turn not in before:
                before[call.turn] = Sources([one.result for one in calls if one.turn < call.turn])
                after[call.turn] = Sources([one.result for one in calls if one.turn >= call.turn and not one.is_error])
            earlier = before[call.turn]
            default = matcher.default(call.name, name)
            if all(asked.hold(leaf) or earlier.hold(leaf) for leaf in leaves(value)):
                origins[name] = "observation"
            elif default is not MISSING and equal_typed(value, default):
                origins[name] = "default"
            elif derive is not None and derive(value, query, [one.result for one in calls if one.turn < call.turn]):
                origins[name] = "derived"
            elif all(earlier.hold(leaf) or asked.hold(leaf) or after[call.turn].hold(leaf) for leaf in leaves(value)):
                origins[name] = "premature"
            else:
                origins[name] = "unsupported"
        found.append(origins)
    return found
