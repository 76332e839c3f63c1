"""Formats made of spans: OpenTelemetry's conventions for generative AI, and OpenInference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from assay.tooluse.formats._builder import Builder, as_text, dump, load_json, read_result, turns_of
from assay.tooluse.formats._chat import call_id, text_of
from assay.tooluse.trajectories import Call, Trajectory

__all__ = ["is_openinference", "is_otel", "read_spans", "span_list", "write_openinference", "write_otel"]

NANO = 1e9
OLD_MESSAGES = ("gen_ai.user.message", "gen_ai.assistant.message", "gen_ai.tool.message")
"""Events of older versions of the conventions."""


def span_list(record: Any) -> list[dict[str, Any]]:
    """The spans of a record: an OTLP document, a list, or a single span; attributes as plain dictionaries."""
    if isinstance(record, list):
        return [span for one in record for span in span_list(one)]
    if not isinstance(record, Mapping):
        return []
    if "resourceSpans" in record:
        raw = [
            span
            for resource in record["resourceSpans"]
            for scope in resource.get("scopeSpans") or resource.get("instrumentationLibrarySpans") or ()
            for span in scope.get("spans") or ()
        ]
        return [_plain(span) for span in raw]
    return [_plain(record)] if "attributes" in record else []


def _plain(span: Mapping[str, Any]) -> dict[str, Any]:
    context = span.get("context") or {}
    return {
        "trace": str(span.get("traceId") or span.get("trace_id") or context.get("trace_id") or ""),
        "start": _seconds(span.get("startTimeUnixNano") or span.get("start_time")),
        "end": _seconds(span.get("endTimeUnixNano") or span.get("end_time")),
        "error": (span.get("status") or {}).get("code") in (2, "ERROR", "STATUS_CODE_ERROR"),
        "attributes": _attributes(span.get("attributes")),
        "events": [
            {"name": event.get("name"), "attributes": _attributes(event.get("attributes"))}
            for event in span.get("events") or ()
        ],
    }


def _seconds(value: Any) -> float | None:
    from datetime import datetime

    try:
        return int(value) / NANO
    except (TypeError, ValueError):
        pass
    try:
        return datetime.fromisoformat(str(value)).timestamp()
    except ValueError:
        return None


def _attributes(given: Any) -> dict[str, Any]:
    if isinstance(given, Mapping):
        return dict(given)
    return {str(one.get("key")): _value(one.get("value")) for one in given or () if isinstance(one, Mapping)}


def _value(given: Any) -> Any:
    if not isinstance(given, Mapping):
        return given
    if "intValue" in given:
        return int(given["intValue"])
    if "arrayValue" in given:
        return [_value(one) for one in given["arrayValue"].get("values") or ()]
    if "kvlistValue" in given:
        return _attributes(given["kvlistValue"].get("values"))
    return next(iter(given.values()), None)


def is_otel(record: Any) -> bool:
    """Spans with attributes or events of ``gen_ai``."""
    return _has_prefix(record, "gen_ai.") and not is_openinference(record)


def is_openinference(record: Any) -> bool:
    """Spans with attributes of OpenInference."""
    return _has_prefix(record, "openinference.")


def _has_prefix(record: Any, prefix: str) -> bool:
    if isinstance(record, list):
        record = record[:50]
    return any(
        key.startswith(prefix)
        for span in span_list(record)
        for key in (*span["attributes"], *(str(event["name"]) for event in span["events"]))
    )


def read_spans(record: Any) -> Iterable[Trajectory]:
    """One trajectory a trace, in the order in which the traces begin."""
    traces: dict[str, list[dict[str, Any]]] = {}
    for span in span_list(record):
        traces.setdefault(span["trace"], []).append(span)
    for trace, spans in traces.items():
        spans.sort(key=lambda span: (span["start"] is None, span["start"] or 0.0))
        yield _trace(trace, spans)


def _trace(trace: str, spans: Sequence[Mapping[str, Any]]) -> Trajectory:
    """The model's messages say what was called together; tool spans add results, times, and calls of their own."""
    id_ = next((str(v) for s in spans if (v := s["attributes"].get("task.id")) is not None), trace)
    trial = next((v for s in spans if (v := s["attributes"].get("task.trial")) is not None), 0)
    made = Builder(id=id_, trial=trial)
    tools = [span for span in spans if _is_tool(span["attributes"])]
    spans_by_id = {_tool_id(span["attributes"]): span for span in tools}
    used: set[int] = set()
    known: set[str] = set()
    answered: set[str] = set()
    last_text = None
    for span in spans:
        attributes = span["attributes"]
        if _is_tool(attributes):
            if id(span) in used or _tool_id(attributes) in known:
                continue
            made.turn()
            _call_of_span(made, span)
            used.add(id(span))
            continue
        for role, message in _messages(span):
            if role == "user":
                made.user(message["text"])
            elif role == "tool":
                for one in message["results"]:
                    if one["id"] in known and one["id"] not in answered:
                        made.result(one["result"], id=one["id"])
                        answered.add(one["id"])
            elif role == "assistant":
                fresh = [one for one in message["calls"] if one["id"] not in known]
                if fresh:
                    made.turn()
                for one in fresh:
                    own = spans_by_id.get(one["id"])
                    made.call(
                        one["name"],
                        one["arguments"],
                        id=one["id"],
                        t_start=own["start"] if own else None,
                        t_end=own["end"] if own else None,
                    )
                    known.add(one["id"])
                for one in fresh:
                    if (own := spans_by_id.get(one["id"])) is not None:
                        used.add(id(own))
                        _result_of_span(made, own, one["id"])
                        answered.add(one["id"])
                if message["text"] and not message["calls"]:
                    last_text = message["text"]
        made.usage(
            {
                "input_tokens": attributes.get("gen_ai.usage.input_tokens", attributes.get("llm.token_count.prompt")),
                "output_tokens": attributes.get(
                    "gen_ai.usage.output_tokens", attributes.get("llm.token_count.completion")
                ),
            }
        )
    made.say(last_text)
    return made.finish()


def _is_tool(attributes: Mapping[str, Any]) -> bool:
    return (
        attributes.get("gen_ai.operation.name") == "execute_tool"
        or attributes.get("openinference.span.kind") == "TOOL"
        or ("gen_ai.tool.name" in attributes and "gen_ai.operation.name" not in attributes)
    )


def _tool_id(attributes: Mapping[str, Any]) -> Any:
    return attributes.get("gen_ai.tool.call.id", attributes.get("tool_call.id", attributes.get("tool.id")))


def _call_of_span(made: Builder, span: Mapping[str, Any]) -> None:
    attributes = span["attributes"]
    name = attributes.get("gen_ai.tool.name", attributes.get("tool.name"))
    arguments = attributes.get(
        "gen_ai.tool.call.arguments", attributes.get("tool.parameters", attributes.get("input.value"))
    )
    id_ = _tool_id(attributes)
    made.call(name, arguments, id=id_, t_start=span["start"], t_end=span["end"])
    _result_of_span(made, span, id_)


def _result_of_span(made: Builder, span: Mapping[str, Any], id_: str | None) -> None:
    attributes = span["attributes"]
    value = attributes.get("gen_ai.tool.call.result", attributes.get("output.value"))
    if value is None:
        value = next(
            (e["attributes"].get("content") for e in span["events"] if e["name"] == "gen_ai.tool.message"), None
        )
    if value is not None or span["error"]:
        made.result(value, id=id_, is_error=span["error"])


def _messages(span: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Messages in any of the spellings: structured attributes, events of older conventions, flattened keys."""
    attributes = span["attributes"]
    for key in ("gen_ai.input.messages", "gen_ai.output.messages"):
        given = attributes.get(key)
        for message in (load_json(given) if isinstance(given, str) else given) or ():
            yield str(message.get("role")), _parts_message(message)
    for event in span["events"]:
        kind = str(event["name"])
        content = event["attributes"]
        if kind == "gen_ai.choice":
            message = read_result(content.get("message", content))
            yield "assistant", _flat_message(message if isinstance(message, Mapping) else {"content": message})
        elif kind in OLD_MESSAGES and not _is_tool(attributes):
            yield kind.split(".")[1], _flat_message(content)
    for side in ("llm.input_messages.", "llm.output_messages."):
        yield from _openinference_messages(attributes, side)


def _parts_message(message: Mapping[str, Any]) -> dict[str, Any]:
    parts = message.get("parts") or ()
    return {
        "text": "\n".join(str(p.get("content", "")) for p in parts if p.get("type") == "text"),
        "calls": [
            {"id": p.get("id"), "name": p.get("name"), "arguments": p.get("arguments")}
            for p in parts
            if p.get("type") == "tool_call"
        ],
        "results": [
            {"id": p.get("id"), "result": p.get("response", p.get("result"))}
            for p in parts
            if p.get("type") == "tool_call_response"
        ],
    }


def _flat_message(message: Mapping[str, Any]) -> dict[str, Any]:
    calls = message.get("tool_calls") or ()
    calls = load_json(calls) if isinstance(calls, str) else calls
    return {
        "text": text_of(message.get("content")),
        "calls": [
            {
                "id": one.get("id"),
                "name": (one.get("function") or one).get("name"),
                "arguments": (one.get("function") or one).get("arguments"),
            }
            for one in calls
        ],
        "results": [{"id": message.get("id", message.get("tool_call_id")), "result": message.get("content")}],
    }


def _openinference_messages(attributes: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, dict[str, Any]]]:
    nested: dict[int, dict[str, Any]] = {}
    for key, value in attributes.items():
        if key.startswith(prefix):
            number, _, rest = key[len(prefix) :].partition(".message.")
            if number.isdecimal():
                nested.setdefault(int(number), {})[rest] = value
    for _, fields in sorted(nested.items()):
        calls: dict[int, dict[str, Any]] = {}
        for key, value in fields.items():
            if key.startswith("tool_calls."):
                number, _, rest = key.removeprefix("tool_calls.").partition(".tool_call.")
                calls.setdefault(int(number), {})[rest] = value
        yield (
            str(fields.get("role")),
            {
                "text": text_of(fields.get("content")),
                "calls": [
                    {"id": one.get("id"), "name": one.get("function.name"), "arguments": one.get("function.arguments")}
                    for _, one in sorted(calls.items())
                ],
                "results": [{"id": fields.get("tool_call_id"), "result": fields.get("content")}],
            },
        )


def _otlp(spans: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {"name": "assay"}, "spans": list(spans)}]}]}


def _wrapped(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    def value(one: Any) -> dict[str, Any]:
        if isinstance(one, bool):
            return {"boolValue": one}
        return {"intValue": str(one)} if isinstance(one, int) else {"stringValue": one}

    return [{"key": key, "value": value(one)} for key, one in attributes.items() if one is not None]


def _span(
    trajectory: Trajectory, name: str, attributes: Mapping[str, Any], *, of: Sequence[Call] = (), **more: Any
) -> dict[str, Any]:
    """A span; it has times where all of the run's calls have, since spans are read in the order of their times."""
    known: dict[str, Any] = {}
    if trajectory.calls and all(call.t_start is not None and call.t_end is not None for call in trajectory.calls):
        begin = min((call.t_start or 0.0 for call in of), default=trajectory.calls[-1].t_end or 0.0)
        end = max((call.t_end or 0.0 for call in of), default=begin)
        known = {"startTimeUnixNano": str(round(begin * NANO)), "endTimeUnixNano": str(round(end * NANO))}
    return {
        "traceId": trajectory.id,
        "name": name,
        **known,
        "attributes": _wrapped({"task.id": trajectory.id, "task.trial": trajectory.trial, **attributes}),
        **more,
    }


def _status(is_error: bool) -> dict[str, Any]:
    return {"status": {"code": "STATUS_CODE_ERROR"}} if is_error else {}


def write_otel(trajectory: Trajectory) -> dict[str, Any]:
    """An OTLP document: a chat span a turn, and a tool span a call."""
    spans: list[dict[str, Any]] = []
    query = [{"role": "user", "parts": [{"type": "text", "content": trajectory.query}]}]
    for number, turn in enumerate(turns_of(trajectory)):
        parts = [
            {
                "type": "tool_call",
                "id": call_id(call),
                "name": call.name,
                "arguments": call.raw_args if call.parse_error else call.args,
            }
            for call in turn
        ]
        messages = {
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": dump(query) if number == 0 and trajectory.query else None,
            "gen_ai.output.messages": dump([{"role": "assistant", "parts": parts}]),
        }
        spans.append(_span(trajectory, "chat", messages, of=turn))
        for call in turn:
            if call.result is None:
                continue
            attributes = {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": call.name,
                "gen_ai.tool.call.id": call_id(call),
                "gen_ai.tool.call.arguments": call.raw_args if call.parse_error else dump(call.args),
                "gen_ai.tool.call.result": as_text(call.result),
            }
            spans.append(
                _span(trajectory, f"execute_tool {call.name}", attributes, of=[call], **_status(call.is_error))
            )
    if trajectory.final_answer is not None or not spans:
        said = [{"type": "text", "content": trajectory.final_answer or ""}]
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": dump(query) if not spans and trajectory.query else None,
            "gen_ai.output.messages": dump([{"role": "assistant", "parts": said}]),
        }
        spans.append(_span(trajectory, "chat", attributes))
    return _otlp(spans)


def write_openinference(trajectory: Trajectory) -> dict[str, Any]:
    """An OTLP document with OpenInference's flattened messages and tool spans."""
    spans: list[dict[str, Any]] = []
    asked = {"llm.input_messages.0.message.role": "user", "llm.input_messages.0.message.content": trajectory.query}
    for number, turn in enumerate(turns_of(trajectory)):
        attributes: dict[str, Any] = {"openinference.span.kind": "LLM"}
        if number == 0 and trajectory.query:
            attributes.update(asked)
        attributes["llm.output_messages.0.message.role"] = "assistant"
        for place, call in enumerate(turn):
            base = f"llm.output_messages.0.message.tool_calls.{place}.tool_call"
            attributes[f"{base}.id"] = call_id(call)
            attributes[f"{base}.function.name"] = call.name
            attributes[f"{base}.function.arguments"] = call.raw_args if call.parse_error else dump(call.args)
        spans.append(_span(trajectory, "llm", attributes, of=turn))
        for call in turn:
            if call.result is None:
                continue
            attributes = {
                "openinference.span.kind": "TOOL",
                "tool.name": call.name,
                "tool_call.id": call_id(call),
                "tool.parameters": call.raw_args if call.parse_error else dump(call.args),
                "output.value": as_text(call.result),
            }
            spans.append(_span(trajectory, call.name, attributes, of=[call], **_status(call.is_error)))
    if trajectory.final_answer is not None or not spans:
        said = {
            "openinference.span.kind": "LLM",
            **(asked if not spans and trajectory.query else {}),
            "llm.output_messages.0.message.role": "assistant",
            "llm.output_messages.0.message.content": trajectory.final_answer or "",
        }
        spans.append(_span(trajectory, "llm", said))
    return _otlp(spans)
