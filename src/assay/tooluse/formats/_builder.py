"""What all formats share: a trajectory put together message by message, and arguments and results read from text."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from assay.tooluse.trajectories import Call, Trajectory

__all__ = [
    "Builder",
    "UnreadableError",
    "as_text",
    "dump",
    "load_json",
    "read_arguments",
    "read_result",
    "record_id",
    "turns_of",
    "whole_text",
]

ID_KEYS = ("id", "task_id", "trajectory_id", "uid", "question_id")
EXACT_FLOAT = 2.0**63
"""From here on a whole number that was read as a float has lost digits."""
DEEPEST = 100
"""Lists and objects within one another: deeper ones aren't read."""
TOO_DEEP = f"nested more than {DEEPEST} deep"
LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class UnreadableError(ValueError):
    """Data that can't be read as JSON; the message is the reason.

    Attributes
    ----------
    line : int or None
        Where, counted from 1 within the data, if that is known.
    """

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.line = line


def load_json(data: bytes | str) -> Any:
    """JSON with whole numbers of any length kept exact; NaN and Infinity are accepted, a lone surrogate becomes U+FFFD.

    Raises
    ------
    UnreadableError
        The text isn't JSON or not UTF-8, is nested too deeply, or has a number that Python doesn't read.
    """
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return _load_leniently(data)
    return _load_leniently(data) if _lost_digits(value, DEEPEST) else value


def _load_leniently(data: bytes | str) -> Any:
    """What the strict reader refuses or can't hold."""
    try:
        value = json.loads(data)
    except RecursionError as error:
        raise UnreadableError(TOO_DEEP) from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise UnreadableError("not UTF-8", line) from error
    except json.JSONDecodeError as error:
        raise UnreadableError("not JSON", error.lineno) from error
    except ValueError as error:
        raise UnreadableError("a number with too many digits") from error
    _lost_digits(value, DEEPEST)
    return _whole(value)


def _whole(value: Any) -> Any:
    """The value with each lone surrogate, which UTF-8 can't hold, as U+FFFD."""
    if isinstance(value, str):
        return whole_text(value)
    if isinstance(value, dict):
        return {whole_text(key): _whole(one) for key, one in value.items()}
    return [_whole(one) for one in value] if isinstance(value, list) else value


def whole_text(text: str) -> str:
    """The text with each lone surrogate, which UTF-8 can't hold, as U+FFFD."""
    return LONE_SURROGATE.sub("\ufffd", text)


def _lost_digits(value: Any, deepest: int) -> bool:
    """Whether a number is no longer what was written; and nothing may be nested deeper than that."""
    kind = type(value)
    if kind is float:
        return bool(value >= EXACT_FLOAT or value <= -EXACT_FLOAT)
    if kind is dict or kind is list:
        if not deepest:
            raise UnreadableError(TOO_DEEP)
        lost = False
        for one in value.values() if kind is dict else value:
            if (type(one) is float or type(one) is dict or type(one) is list) and _lost_digits(one, deepest - 1):
                lost = True
        return lost
    return False


def dump(value: Any) -> str:
    """Compact JSON; whole numbers of any length, and NaN and Infinity as `load_json` takes them."""
    try:
        data = orjson.dumps(value)
    except (TypeError, orjson.JSONEncodeError):
        return whole_text(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str))
    # The fast writer makes null of NaN and infinity.
    if b"null" in data and _has_no_number(value):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    return data.decode()


def _has_no_number(value: Any) -> bool:
    """Whether NaN or infinity is in it."""
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, Mapping):
        return any(map(_has_no_number, value.values()))
    return isinstance(value, list | tuple) and any(map(_has_no_number, value))


def as_text(value: Any) -> str:
    """A text as it is, anything else as JSON."""
    return value if isinstance(value, str) else dump(value)


def read_arguments(raw: Any) -> tuple[dict[str, Any], str | None, str | None]:
    """Arguments as a dictionary, what was recorded where that isn't possible, and why."""
    if isinstance(raw, dict):
        return raw, None, None
    if raw is None or raw == "":
        return {}, None, None
    if not isinstance(raw, str | bytes):
        return {}, dump(raw), f"the arguments are of type {type(raw).__name__}"
    try:
        value = load_json(raw)
    except UnreadableError as error:
        return {}, whole_text(str(raw)), f"the arguments are {error}"
    if isinstance(value, dict):
        return value, None, None
    return {}, str(raw), f"the arguments are of type {type(value).__name__}"


def read_result(value: Any) -> Any:
    """A tool's answer; text that holds a JSON object or array is read as that."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return load_json(value)
        except ValueError:
            return value
    return value


def record_id(record: Mapping[str, Any]) -> str:
    """The id of a record, or an empty text."""
    for key in ID_KEYS:
        if record.get(key) is not None:
            return str(record[key])
    return ""


class Builder:
    """Collects what was said and called, and makes a trajectory of it."""

    def __init__(self, *, id: str = "", trial: Any = 0) -> None:
        self.trajectory = Trajectory(id=id, trial=trial if isinstance(trial, int) else 0)
        self.calls: list[Call] = self.trajectory.calls
        self.notes = self.trajectory.notes
        self._by_id: dict[str, Call] = {}
        self._turn = -1
        self._open = False
        self._waiting: list[Call] = []

    def user(self, text: Any) -> None:
        """What the user said; the first is the query."""
        self._open = False
        if text and not self.trajectory.query:
            self.trajectory.query = as_text(text)

    def turn(self) -> None:
        """The model's next turn begins; it counts when something is called in it."""
        self._open = False

    def say(self, text: Any) -> None:
        """What the model said; the last that isn't followed by a call is the final answer."""
        if text:
            self.trajectory.final_answer = as_text(text)

    def call(
        self,
        name: Any,
        arguments: Any,
        *,
        id: str | None = None,
        t_start: float | None = None,
        t_end: float | None = None,
    ) -> Call:
        """A call that the model issued."""
        if not self._open:
            self._turn += 1
            self._open = True
        if not isinstance(name, str):
            self.notes.append(f"call {len(self.calls)} has a name that is not text")
            name = "" if name is None else as_text(name)
        args, raw, error = read_arguments(arguments)
        made = Call(name, args, id, len(self.calls), self._turn, None, raw, error, None, False, t_start, t_end)
        if error is not None:
            self.notes.append(f"call {made.index}: {error}")
        if id is not None:
            if id in self._by_id:
                self.notes.append(f"the call id {id} is used twice")
            self._by_id[id] = made
        self.calls.append(made)
        self._waiting.append(made)
        self.trajectory.final_answer = None
        return made

    def result(self, value: Any, *, id: str | None = None, name: str | None = None, is_error: bool = False) -> None:
        """What a tool answered: to the call of that id, or the oldest call of that name, or the oldest that waits."""
        self._open = False
        found = self._by_id.get(id) if id is not None else None
        if found is None or found.result is not None:
            waiting = [call for call in self._waiting if name is None or call.name == name] if id is None else []
            found = next((call for call in waiting if call.result is None), None) if found is None else None
        if found is None:
            self.notes.append(f"a result without call{f' ({id})' if id else ''}: dangling")
            return
        found.result = read_result("" if value is None else value)
        found.is_error = is_error or (isinstance(found.result, dict) and bool(found.result.get("error")))
        self._waiting.remove(found)

    def usage(self, tokens: Mapping[str, Any] | None) -> None:
        """Tokens that a turn took."""
        for names, kind in (
            (("input_tokens", "prompt_tokens"), "input"),
            (("output_tokens", "completion_tokens"), "output"),
        ):
            for name in names:
                count = (tokens or {}).get(name)
                if isinstance(count, int):
                    self.trajectory.usage[kind] = self.trajectory.usage.get(kind, 0) + count
                    break

    def finish(self) -> Trajectory:
        """The trajectory, with calls that were issued together grouped and calls without result noted."""
        calls = self.calls
        for before, after in itertools.pairwise(calls):
            if before.turn == after.turn:
                before.parallel_group = after.parallel_group = after.turn
        answered = [call for call in calls if call.result is not None]
        if answered:
            self.notes += [f"call {c.index} ({c.name}) has no result: dangling" for c in calls if c.result is None]
        return self.trajectory


def turns_of(trajectory: Trajectory) -> list[list[Call]]:
    """The calls of each turn, in order."""
    turns: list[list[Call]] = []
    for call in trajectory.calls:
        if turns and turns[-1][0].turn == call.turn:
            turns[-1].append(call)
        else:
            turns.append([call])
    return turns


def first_present(record: Mapping[str, Any], keys: Sequence[str]) -> Any:
    """The value of the first key that is there."""
    return next((record[key] for key in keys if key in record), None)
