"""Formats that are running text: calls in tags, and ReAct's Thought, Action and Observation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from assay.tooluse.formats._builder import Builder, as_text, dump, first_present, load_json, record_id, turns_of
from assay.tooluse.formats._chat import head
from assay.tooluse.trajectories import Trajectory

__all__ = ["is_react", "is_tags", "read_react", "read_tags", "write_react", "write_tags"]

TEXT_KEYS = ("text", "response", "completion", "generated_text", "output", "content")
QUERY_KEYS = ("query", "question", "prompt", "instruction")
TAG = re.compile(
    r"<(?P<tag>tool_call|tool_response|result|search|python|code|observation|information|answer|think)>"
    r"(?P<body>.*?)</(?P=tag)>",
    re.DOTALL,
)
CALL_TAGS = {"search": "query", "python": "code", "code": "code"}
"""Tags that are a tool by themselves, and the parameter that their text is."""
RESULT_TAGS = frozenset({"tool_response", "result", "observation", "information"})
REACT_LINE = re.compile(
    r"^[ \t]*(Question|Thought|Action Input|Action|Observation|Final Answer)(?: \d+)?:[ \t]*", re.MULTILINE
)
BRACKETED = re.compile(r"^([\w.-]+)\[(.*)\]$", re.DOTALL)


def _text(record: Any) -> str:
    if isinstance(record, str):
        return record
    found = first_present(record, TEXT_KEYS) if isinstance(record, Mapping) else None
    return found if isinstance(found, str) else ""


def _builder(record: Any) -> Builder:
    if not isinstance(record, Mapping):
        return Builder()
    made = Builder(id=record_id(record), trial=record.get("trial", 0))
    made.user(first_present(record, QUERY_KEYS))
    return made


def _head(trajectory: Trajectory) -> dict[str, Any]:
    return {**head(trajectory), **({"query": trajectory.query} if trajectory.query else {})}


def is_tags(record: Any) -> bool:
    """Text with calls in tags."""
    text = _text(record)
    return any(match["tag"] == "tool_call" or match["tag"] in CALL_TAGS for match in TAG.finditer(text))


def read_tags(record: Any) -> Iterable[Trajectory]:
    """One trajectory: consecutive calls without a result between them belong to one turn."""
    made = _builder(record)
    text = _text(record)
    end = 0
    for match in TAG.finditer(text):
        tag, body = match["tag"], match["body"].strip()
        end = match.end()
        if tag == "tool_call":
            try:
                called = load_json(body)
            except ValueError:
                called = None
            if isinstance(called, Mapping):
                arguments = called.get("arguments", called.get("parameters"))
                made.call(called.get("name"), arguments, id=called.get("id"))
            else:
                made.call("", body)
        elif tag in CALL_TAGS:
            made.call(tag, {CALL_TAGS[tag]: body})
        elif tag in RESULT_TAGS:
            made.result(body)
        elif tag == "answer":
            made.say(body)
    rest = text[end:].strip()
    if rest and made.trajectory.final_answer is None:
        made.say(rest)
    yield made.finish()


def write_tags(trajectory: Trajectory) -> dict[str, Any]:
    """Calls in ``<tool_call>``, results in ``<tool_response>``, the answer in ``<answer>``."""
    lines: list[str] = []
    for turn in turns_of(trajectory):
        for call in turn:
            known = {"id": call.id} if call.id is not None else {}
            arguments = call.raw_args if call.parse_error else call.args
            lines.append(f"<tool_call>{dump({'name': call.name, 'arguments': arguments, **known})}</tool_call>")
        lines += [f"<tool_response>{as_text(c.result)}</tool_response>" for c in turn if c.result is not None]
    if trajectory.final_answer is not None:
        lines.append(f"<answer>{trajectory.final_answer}</answer>")
    return {**_head(trajectory), "text": "\n".join(lines)}


def is_react(record: Any) -> bool:
    """Text with lines that begin with ``Action:``."""
    return any(match[1] == "Action" for match in REACT_LINE.finditer(_text(record)))


def read_react(record: Any) -> Iterable[Trajectory]:
    """One trajectory; ``Action: tool[argument]`` is a call with the one argument ``input``."""
    made = _builder(record)
    text = _text(record)
    marks = list(REACT_LINE.finditer(text))
    action: str | None = None
    for number, mark in enumerate(marks):
        end = marks[number + 1].start() if number + 1 < len(marks) else len(text)
        kind, body = mark[1], text[mark.end() : end].strip()
        if action is not None and kind != "Action Input":
            made.turn()
            bracketed = BRACKETED.match(action)
            if bracketed and bracketed[1].lower() == "finish":
                made.say(bracketed[2])
            elif bracketed:
                made.call(bracketed[1], {"input": bracketed[2]})
            else:
                made.call(action, None)
            action = None
        if kind == "Question":
            made.user(body)
        elif kind == "Action":
            action = body
        elif kind == "Action Input" and action is not None:
            made.turn()
            made.call(action, body.removeprefix("```json").removesuffix("```").strip().strip("`"))
            action = None
        elif kind == "Observation":
            made.result(body)
        elif kind == "Final Answer":
            made.say(body)
    if action is not None:
        bracketed = BRACKETED.match(action)
        if bracketed and bracketed[1].lower() == "finish":
            made.say(bracketed[2])
        else:
            made.call(bracketed[1] if bracketed else action, {"input": bracketed[2]} if bracketed else None)
    yield made.finish()


def write_react(trajectory: Trajectory) -> dict[str, Any]:
    """Action, Action Input and Observation lines; calls issued together come one after another."""
    lines = [f"Question: {trajectory.query}"] if trajectory.query else []
    for call in trajectory.calls:
        lines += [f"Action: {call.name}", f"Action Input: {call.raw_args if call.parse_error else dump(call.args)}"]
        if call.result is not None:
            lines.append(f"Observation: {as_text(call.result)}")
    if trajectory.final_answer is not None:
        lines.append(f"Final Answer: {trajectory.final_answer}")
    return {**head(trajectory), "text": "\n".join(lines)}
