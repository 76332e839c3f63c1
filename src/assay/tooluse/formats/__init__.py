"""The formats in which runs are recorded: how each is recognised, read and written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from assay.core.errors import InputError
from assay.tooluse.formats import _benchmarks, _chat, _texts, _traces
from assay.tooluse.trajectories import Trajectory

__all__ = ["FORMATS", "Format", "detect", "find_format"]


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
    """

    name: str
    keys: tuple[str, ...]
    detect: Callable[[Any], bool]
    read: Callable[[Any], Iterable[Trajectory]]
    write: Callable[[Trajectory], Any]
    spans: bool = False


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
        Format("sharegpt", ("conversations",), _chat.is_sharegpt, _chat.read_sharegpt, _chat.write_sharegpt),
        Format("gemini", ("contents", "candidates"), _chat.is_gemini, _chat.read_gemini, _chat.write_gemini),
        Format("responses", ("input", "output"), _chat.is_responses, _chat.read_responses, _chat.write_responses),
        Format("langchain", ("messages",), _chat.is_langchain, _chat.read_langchain, _chat.write_langchain),
        Format("anthropic", ("messages",), _chat.is_anthropic, _chat.read_anthropic, _chat.write_anthropic),
        Format("openai", ("messages",), _chat.is_chat, _chat.read_chat, _chat.write_chat),
        Format("bfcl", ("id", "result"), _benchmarks.is_bfcl, _benchmarks.read_bfcl, _benchmarks.write_bfcl),
        Format("tags", ("text", "response", "completion"), _texts.is_tags, _texts.read_tags, _texts.write_tags),
        Format("react", ("text", "response", "completion"), _texts.is_react, _texts.read_react, _texts.write_react),
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


def detect(record: Any) -> Format:
    """The format of a record.

    Raises
    ------
    InputError
        No format fits; the message names the record's keys and the nearest formats.
    """
    for one in FORMATS.values():
        try:
            if one.detect(record):
                return one
        except (AttributeError, TypeError, KeyError, IndexError):
            continue
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
