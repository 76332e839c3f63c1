"""When an argument equals its reference: rules by tool and parameter, and what holds where no rule is given."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from datetime import date as Date
from datetime import datetime as DateTime
from functools import lru_cache
from inspect import signature
from typing import Any, Literal, TypeAlias, get_args

from assay.core.errors import InputError
from assay.tooluse.trajectories import Tool

__all__ = ["Arguments", "Match", "Matcher", "make_match"]

Arguments: TypeAlias = Literal["exact", "superset", "subset", "ignore"]
Compare: TypeAlias = Callable[[Any, Any], bool]
EARTH_KM = 6371.0088
BLANKS = re.compile(r"\s+")
MISSING = object()


def squeeze(text: str) -> str:
    """The text without outer blanks and with single blanks inside."""
    return BLANKS.sub(" ", text.strip())


def as_number(value: Any) -> int | float | None:
    """The number that a value or its text is; whole numbers stay exact."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return value
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            pass
        try:
            return float(value)
        except ValueError:
            return None
    return None


def as_boolean(value: Any) -> bool | None:
    """The truth that a value or its text is."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip().lower())
    return None


def as_date(value: Any) -> Date | None:
    """The date of an ISO text, whose parts may lack leading zeros."""
    found = re.fullmatch(r"\s*(\d{4})[-/](\d{1,2})[-/](\d{1,2})(?:[T ]00:00(?::00)?Z?)?\s*", str(value))
    if not found:
        return None
    try:
        return Date(*map(int, found.groups()))
    except ValueError:
        return None


def as_datetime(value: Any) -> DateTime | None:
    """The time of an ISO text; without a zone it is taken as UTC."""
    try:
        found = DateTime.fromisoformat(str(value).strip())
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def equal_json(got: Any, want: Any) -> bool:
    """Equal as JSON values: true isn't 1, and texts are compared after blanks are squeezed."""
    if isinstance(want, str):
        return isinstance(got, str) and (got == want or squeeze(got) == squeeze(want))
    if isinstance(want, bool) or isinstance(got, bool):
        return got is want
    if isinstance(want, Mapping):
        return isinstance(got, Mapping) and got.keys() == want.keys() and all(equal_json(got[k], want[k]) for k in want)
    if isinstance(want, list | tuple):
        return isinstance(got, list | tuple) and len(got) == len(want) and all(map(equal_json, got, want))
    return bool(got == want or (got != got and want != want))


def equal_numbers(left: float, right: float) -> bool:
    """Equal, or both no number."""
    return left == right or (left != left and right != right)


def equal_typed(got: Any, want: Any, kind: str = "", form: str = "") -> bool:
    """Equal for a parameter of a JSON Schema type; without one, as the type of the reference suggests."""
    if form == "date" and (wanted := as_date(want)) is not None:
        return as_date(got) == wanted
    if form == "date-time" and (instant := as_datetime(want)) is not None:
        return as_datetime(got) == instant
    if kind in ("number", "integer") or (not kind and isinstance(want, int | float) and not isinstance(want, bool)):
        left, right = as_number(got), as_number(want)
        return left is not None and right is not None and equal_numbers(left, right)
    if kind == "boolean" or (not kind and isinstance(want, bool)):
        left_, right_ = as_boolean(got), as_boolean(want)
        return left_ is not None and left_ == right_
    return equal_json(got, want)


def _exact() -> Compare:
    return equal_json


def _number(rtol: float = 0.0, atol: float = 0.0) -> Compare:
    if not (math.isfinite(rtol) and math.isfinite(atol) and rtol >= 0 and atol >= 0):
        raise ValueError("a tolerance below 0")

    def compare(got: Any, want: Any) -> bool:
        left, right = as_number(got), as_number(want)
        if left is None or right is None:
            return False
        try:
            return equal_numbers(left, right) or abs(left - right) <= max(rtol * abs(right), atol) > 0
        except OverflowError:  # a whole number that no float holds, beside a float
            return False

    return compare


def _date() -> Compare:
    return lambda got, want: (wanted := as_date(want)) is not None and as_date(got) == wanted


def _datetime(tz: str | None = None) -> Compare:
    from zoneinfo import ZoneInfo

    zone = ZoneInfo(tz) if tz else UTC

    def read(value: Any) -> DateTime | None:
        try:
            found = DateTime.fromisoformat(str(value).strip())
        except ValueError:
            return None
        return found if found.tzinfo else found.replace(tzinfo=zone)

    return lambda got, want: (wanted := read(want)) is not None and read(got) == wanted


def _casefold() -> Compare:
    return lambda got, want: squeeze(str(got)).casefold() == squeeze(str(want)).casefold()


def _text(min_ratio: float = 0.9) -> Compare:
    if not 0 <= min_ratio <= 1:
        raise ValueError("a ratio out of range")

    def compare(got: Any, want: Any) -> bool:
        from rapidfuzz.fuzz import ratio

        return ratio(squeeze(str(got)).casefold(), squeeze(str(want)).casefold()) / 100 >= min_ratio

    return compare


def _set() -> Compare:
    def items(value: Any) -> list[Any]:
        return list(value) if isinstance(value, list | tuple) else [squeeze(one) for one in str(value).split(",")]

    def compare(got: Any, want: Any) -> bool:
        left, right = items(got), items(want)
        return all(any(equal_json(a, b) for b in right) for a in left) and all(
            any(equal_json(a, b) for a in left) for b in right
        )

    return compare


def _regex(pattern: str | None = None) -> Compare:
    fixed = None if pattern is None else re.compile(pattern)

    def compare(got: Any, want: Any) -> bool:
        try:
            return (fixed or re.compile(str(want))).fullmatch(str(got)) is not None
        except re.error as error:
            raise InputError(f"the reference '{want}' is no regular expression", expected=str(error)) from error

    return compare


def _any_of(values: Sequence[Any] = ()) -> Compare:
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise TypeError("values of another type")
    return lambda got, want: any(equal_typed(got, one) for one in (*values, want))


def _any() -> Compare:
    return lambda got, want: True


def _json_subset() -> Compare:
    def compare(got: Any, want: Any) -> bool:
        if isinstance(want, Mapping):
            return isinstance(got, Mapping) and all(k in got and compare(got[k], want[k]) for k in want)
        if isinstance(want, list | tuple):
            return isinstance(got, list | tuple) and all(any(compare(a, b) for a in got) for b in want)
        return equal_typed(got, want)

    return compare


def _geo(tol_km: float = 1.0) -> Compare:
    if not tol_km >= 0:
        raise ValueError("a distance below 0")

    def point(value: Any) -> tuple[float, float] | None:
        if isinstance(value, Mapping):
            parts = [
                value.get("lat", value.get("latitude")),
                value.get("lon", value.get("lng", value.get("longitude"))),
            ]
        else:
            listed = list(value) if isinstance(value, list | tuple) else []
            parts = value.split(",") if isinstance(value, str) else listed
        numbers = [as_number(part) for part in parts]
        if len(numbers) != 2 or None in numbers:
            return None
        return float(numbers[0] or 0), float(numbers[1] or 0)

    def compare(got: Any, want: Any) -> bool:
        left, right = point(got), point(want)
        return left is not None and right is not None and haversine_km(*left, *right) <= tol_km

    return compare


def haversine_km(lat1: float, lon1: float, lat2: float, lon2: float) -> float:
    """The great-circle distance on a sphere of the Earth's mean radius, in kilometres."""
    a, b = math.radians(lat1), math.radians(lat2)
    half = math.sin((b - a) / 2) ** 2 + math.cos(a) * math.cos(b) * math.sin(math.radians(lon2 - lon1) / 2) ** 2
    return 2 * EARTH_KM * math.asin(min(1.0, math.sqrt(half)))


def _semantic(min_cos: float = 0.8, embed: Callable[[Sequence[str]], Any] | None = None) -> Compare:
    if not -1 <= min_cos <= 1:
        raise ValueError("a cosine out of range")

    def compare(got: Any, want: Any) -> bool:
        from assay.tooluse.retrieval import minilm

        left, right = (embed or minilm())([str(got), str(want)])
        return bool(left @ right >= min_cos * math.sqrt(float(left @ left) * float(right @ right)))

    return compare


def _custom(function: Compare) -> Compare:
    if not callable(function):
        raise TypeError("no function")
    return function


KINDS: Mapping[str, Callable[..., Compare]] = {
    "any": _any,
    "any_of": _any_of,
    "casefold": _casefold,
    "custom": _custom,
    "date": _date,
    "datetime": _datetime,
    "exact": _exact,
    "geo": _geo,
    "json_subset": _json_subset,
    "number": _number,
    "regex": _regex,
    "semantic": _semantic,
    "set": _set,
    "text": _text,
}


OPTIONS_OF: Mapping[str, str] = {
    "any_of": "values, a list",
    "custom": "function, which only Python can give",
    "datetime": "tz, a time zone such as Europe/Zurich",
    "geo": "tol_km, a number of at least 0",
    "number": "rtol and atol, numbers of at least 0",
    "regex": "pattern, a regular expression",
    "semantic": "min_cos, a number from -1 to 1",
    "text": "min_ratio, a number from 0 to 1",
}
"""What is said where an option can't be used."""


@dataclass(frozen=True, slots=True)
class Match:
    """A rule: its kind and options, and whether a value passes.

    Parameters
    ----------
    kind : str
        ``exact``, ``number`` (rtol, atol), ``date``, ``datetime`` (tz), ``casefold``, ``text`` (min_ratio), ``set``,
        ``regex`` (pattern), ``any_of`` (values), ``any``, ``json_subset``, ``geo`` (tol_km), ``semantic`` (min_cos) or
        ``custom`` (function).
    options : dict
        The options of the kind.
    """

    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)
    compare: Compare = field(default=equal_json, repr=False, compare=False)

    def __call__(self, got: Any, want: Any) -> bool:
        """Whether `got` passes for the reference `want`."""
        return self.compare(got, want)


def make_match(rule: Any) -> Match:
    """A rule from its name, its JSON form, a function, or itself.

    Parameters
    ----------
    rule : str, mapping, callable or Match
        ``"casefold"``, ``{"kind": "number", "rtol": 1e-3}``, or ``f(got, want)``.

    Returns
    -------
    Match

    Raises
    ------
    InputError
        The kind is unknown, or has no such option.

    Examples
    --------
    >>> make_match({"kind": "number", "atol": 0.5})("3.2", 3)
    True
    """
    if isinstance(rule, Match):
        return rule
    if callable(rule):
        return Match("custom", {}, rule)
    options = dict(rule) if isinstance(rule, Mapping) else {"kind": rule}
    kind = options.pop("kind", None)
    if not isinstance(kind, str) or kind not in KINDS:
        raise InputError(f"matcher kind '{kind}'", expected=f"one of: {', '.join(KINDS)}")
    if unknown := set(options) - set(signature(KINDS[kind]).parameters):
        known = ", ".join(signature(KINDS[kind]).parameters) or "no option"
        raise InputError(f"matcher {kind} with {', '.join(sorted(unknown))}", expected=known)
    try:
        return Match(kind, options, KINDS[kind](**options))
    except (TypeError, ValueError, LookupError, OSError, re.error) as error:
        told = ", ".join(f"{name} {value}" for name, value in options.items()) or "no option"
        raise InputError(f"matcher {kind} with {told}", expected=OPTIONS_OF.get(kind, "other options")) from error


class Matcher:
    """Compares the arguments of calls.

    Parameters
    ----------
    rules : mapping of str to rule, optional
        Rules by ``tool.parameter``, ``*.parameter`` or ``tool.*``; the most special one counts. See `make_match`.
    tools : sequence of Tool, optional
        Their schemas say each parameter's type and default. An argument that is left out equals its default.
    arguments : {'exact', 'superset', 'subset', 'ignore'}
        Whether a call may have arguments beside the reference's (superset), may lack some (subset), or any at all.

    Raises
    ------
    InputError
        A rule or mode is unknown.

    Examples
    --------
    >>> matcher = Matcher({"*.city": "casefold"})
    >>> matcher.args_equal("weather", {"city": "PARIS", "days": "3"}, {"city": "Paris", "days": 3})
    True
    """

    def __init__(
        self,
        rules: Mapping[str, Any] | None = None,
        *,
        tools: Iterable[Tool] = (),
        arguments: Arguments = "exact",
    ) -> None:
        if arguments not in get_args(Arguments):
            raise InputError(f"arguments is '{arguments}'", expected=f"one of: {', '.join(get_args(Arguments))}")
        self.rules = {key: make_match(rule) for key, rule in (rules or {}).items()}
        self.tools = {tool.name: tool for tool in tools}
        self.arguments = arguments
        self._compare_of = lru_cache(maxsize=None)(self._find)

    def __getstate__(self) -> dict[str, Any]:
        """Without the cache, which another process fills anew."""
        return {"rules": self.rules, "tools": self.tools, "arguments": self.arguments}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Take what was kept, and start a cache."""
        self.__dict__.update(state)
        self._compare_of = lru_cache(maxsize=None)(self._find)

    @property
    def plain(self) -> bool:
        """Whether equal JSON values are equal arguments, so that equality of dictionaries decides at once."""
        return self.arguments == "exact"

    def with_rules(self, rules: Mapping[str, Any]) -> Matcher:
        """The same with more rules, which count before those that are there."""
        if not rules:
            return self
        merged = Matcher({**self.rules, **rules}, arguments=self.arguments)
        merged.tools = self.tools
        return merged

    def default(self, tool: str, parameter: str) -> Any:
        """A parameter's declared default, or `MISSING`."""
        known = self.tools.get(tool)
        return MISSING if known is None else known.properties.get(parameter, {}).get("default", MISSING)

    def equal(self, tool: str, parameter: str, got: Any, want: Any) -> bool:
        """Whether one argument equals its reference."""
        return self._compare_of(tool, parameter)(got, want)

    def args_equal(self, tool: str, got: Mapping[str, Any], want: Mapping[str, Any]) -> bool:
        """Whether the arguments of two calls of a tool are equal."""
        if self.arguments == "ignore":
            return True
        for name, value in want.items():
            if name in got:
                if not self._compare_of(tool, name)(got[name], value):
                    return False
            elif self.arguments != "subset":
                default = self.default(tool, name)
                if default is MISSING or not self._compare_of(tool, name)(default, value):
                    return False
        if self.arguments == "superset":
            return True
        for name, value in got.items():
            if name not in want:
                default = self.default(tool, name)
                if default is MISSING or not self._compare_of(tool, name)(value, default):
                    return False
        return True

    def matched(self, tool: str, got: Mapping[str, Any], want: Mapping[str, Any]) -> int:
        """How many of the reference's arguments are matched."""
        count = 0
        for name, value in want.items():
            given = got[name] if name in got else self.default(tool, name)
            count += given is not MISSING and self._compare_of(tool, name)(given, value)
        return count

    def _find(self, tool: str, parameter: str) -> Compare:
        for key in (f"{tool}.{parameter}", f"*.{parameter}", f"{tool}.*", "*.*"):
            if key in self.rules:
                return self.rules[key]
        known = self.tools.get(tool)
        schema = {} if known is None else known.properties.get(parameter, {})
        kind, form = schema.get("type", ""), schema.get("format", "")
        kind = kind if isinstance(kind, str) else ""
        return lambda got, want: equal_typed(got, want, kind, form)
