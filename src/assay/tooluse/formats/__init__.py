"""The formats in which runs are recorded: how each is recognised, read and written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from assay.core.errors import InputError
from assay.tooluse.formats import _benchmarks, _chat, _texts, _traces
from assay.tooluse.trajectories import Trajectory

__all__ = ["FORMATS", "Format", "detect", "find_format", "fits"]


@dataclass(frozen=True, slots=True)
class Format:
    """A recorded format.

    Attributes
    ----------
    name : str
        What options call it.
    keys : tuple of str
        The keys that tell it, for messages.
    detect, read, write : callable
        Whether a record has it; the trajectories of a record; a record of a trajectory.
    spans : bool
        Whether a trajectory may be spread over several records.
    empty : tuple of str
        Where a run's messages or words are: a run that called nothing has an empty list, or a text, there.
    """

    name: str
    keys: tuple[str, ...]
    detect: Callable[[Any], bool]
    read: Callable[[Any], Iterable[Trajectory]]
    write: Callable[[Trajectory], Any]
    spans: bool = False
    empty: tuple[str, ...] = ()


FORMATS: Mapping[str, Format] = {
    one.name: one
    for one in (
        Format("assay", ("calls",), _benchmarks.is_native, _benchmarks.read_native, _benchmarks.write_native),
        Format(
            "traject", ("tool list", "tool_list"), _benchmarks.is_traject, _benchmarks.read_traject,
            _benchmarks.write_traject,
        ),
        Format(
            "inspect", ("samples", "eval", "epoch"), _benchmarks.is_inspect, _benchmarks.read_inspect,
            _benchmarks.write_inspect,
        ),
        Format(
            "openinference", ("resourceSpans", "attributes"), _traces.is_openinference, _traces.read_spans,
            _traces.write_openinference, spans=True,
        ),
        Format(
            "otel", ("resourceSpans", "attributes"), _traces.is_otel, _traces.read_spans, _traces.write_otel,
            spans=True,
        ),
        Format("sharegpt", ("conversations",), _chat.is_sharegpt, _chat.read_sharegpt, _chat.write_sharegpt,
               empty=("conversations",)),
        Format("gemini", ("contents", "candidates"), _chat.is_gemini, _chat.read_gemini, _chat.write_gemini,
               empty=("contents",)),
        Format("responses", ("input", "output"), _chat.is_responses, _chat.read_responses, _chat.write_responses),
        Format("langchain", ("messages",), _chat.is_langchain, _chat.read_langchain, _chat.write_langchain),
        Format("anthropic", ("messages",), _chat.is_anthropic, _chat.read_anthropic, _chat.write_anthropic),
        Format("openai", ("messages",), _chat.is_chat, _chat.read_chat, _chat.write_chat, empty=("messages",)),
        Format("bfcl", ("id", "result"), _benchmarks.is_bfcl, _benchmarks.read_bfcl, _benchmarks.write_bfcl),
        Format("tags", ("text", "response", "completion"), _texts.is_tags, _texts.read_tags, _texts.write_tags,
               empty=("text", "response", "completion")),
        Format("react", ("text", "response", "completion"), _texts.is_react, _texts.read_react, _texts.write_react,
               empty=("text", "response", "completion")),
    )
}  # fmt: skip
"""In the order in which they are tried: from those that are told most surely."""


def find_format(name: str) -> Format:
    """The format of that name.

    Raises
    ------
    InputError
        There is none.
    """
    if name not in FORMATS:
        raise InputError(f"format '{name}'", expected=f"one of: auto, {', '.join(FORMATS)}")
    return FORMATS[name]


def fits(one: Format, record: Any) -> bool:
    """Whether a record has that format."""
    try:
        return bool(one.detect(record))
    except (AttributeError, TypeError, KeyError, ValueError, IndexError, OverflowError):
        return False


def detect(record: Any, *, before: Format | None = None) -> Format:
    """The format of a record.

    Parameters
    ----------
    record : object
        The record.
    before : Format, optional
        That of the record before it in the file: a run that called nothing may have no other mark than its keys.

    Raises
    ------
    InputError
        No format fits; the message names the record's keys and the nearest formats.
    """
    for one in FORMATS.values():
        if fits(one, record):
            return one
    if isinstance(record, Mapping):
        first = [before] if before is not None else []
        for known in (*first, *FORMATS.values()):
            if any(_says_nothing(record.get(key)) for key in known.empty):
                return known
    if isinstance(record, str):
        raise InputError("text without calls", expected="<tool_call> tags, or Action: lines")
    if not isinstance(record, Mapping):
        raise InputError(f"a record of type {type(record).__name__}", expected="an object, or a list of messages")
    from rapidfuzz.process import extract

    keys = list(record)
    every = sorted({key for one in FORMATS.values() for key in one.keys})
    close = {found[0] for key in keys for found in extract(str(key), every, score_cutoff=60, limit=2)}
    nearest = [one.name for one in FORMATS.values() if set(one.keys) & close]
    shown = ", ".join(str(key) for key in keys[:8]) or "none"
    raise InputError(f"unknown format, with the keys {shown}", expected=f"one of: {', '.join(nearest or FORMATS)}")


def _says_nothing(value: Any) -> bool:
    """Whether it is an empty list of messages, or a text, in which no call was found."""
    return isinstance(value, str) or value == []
