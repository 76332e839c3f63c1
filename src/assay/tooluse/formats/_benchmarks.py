"""Formats of benchmarks and harnesses: our own, TRAJECT-Bench, BFCL's result files, and Inspect's logs."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from typing import Any

from assay.tooluse.formats._builder import (
    Builder,
    as_text,
    first_present,
    read_arguments,
    record_id,
    turns_of,
    whole_text,
)
from assay.tooluse.formats._chat import call_id, head, read_chat, text_of
from assay.tooluse.trajectories import Call, Trajectory

__all__ = [
    "call_from_dict",
    "call_to_dict",
    "is_bfcl",
    "is_inspect",
    "is_native",
    "is_traject",
    "read_bfcl",
    "read_inspect",
    "read_native",
    "read_traject",
    "traject_call",
    "write_bfcl",
    "write_inspect",
    "write_native",
    "write_traject",
]

TOOL_LISTS = ("tool list", "tool_list")
CALL_FIELDS = ("id", "parallel_group", "raw_args", "parse_error", "result", "t_start", "t_end")


def is_native(record: Any) -> bool:
    """Our own: a list of calls."""
    return isinstance(record, Mapping) and isinstance(record.get("calls"), list) and "structure" not in record


def call_from_dict(given: Mapping[str, Any], index: int) -> Call:
    """A call of our own format; without a turn it has one of its own."""
    required = given.get("required")
    args = given.get("args")
    _require_numbers(given, ("turn", "parallel_group"), int)
    _require_numbers(given, ("t_start", "t_end"), int | float)
    return Call(
        given["name"],
        {} if args is None else args,
        given.get("id"),
        index,
        index if given.get("turn") is None else given["turn"],
        given.get("parallel_group"),
        given.get("raw_args"),
        given.get("parse_error"),
        given.get("result"),
        bool(given.get("is_error")),
        given.get("t_start"),
        given.get("t_end"),
        None if required is None else tuple(required),
    )


def _require_numbers(given: Mapping[str, Any], fields: Iterable[str], kind: Any) -> None:
    for name in fields:
        value = given.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, kind)):
            raise TypeError(f"{name} is of type {type(value).__name__}")


def call_to_dict(call: Call) -> dict[str, Any]:
    """A call in our own format, without what is unknown."""
    known = {name: value for name in CALL_FIELDS if (value := getattr(call, name)) is not None}
    error = {"is_error": True} if call.is_error else {}
    buckets = {"required": list(call.required)} if call.required is not None else {}
    return {"name": call.name, "args": call.args, "turn": call.turn, **known, **error, **buckets}


def read_native(record: Any) -> Iterable[Trajectory]:
    """One trajectory, as it was written."""
    calls: list[Call] = []
    notes = list(record.get("notes") or ())
    for index, one in enumerate(record["calls"]):
        if not isinstance(one, Mapping):
            raise TypeError(f"call {index} is of type {type(one).__name__}")
        if not isinstance(one.get("name"), str):
            notes.append(f"call {index} has a name that is not text")
            one = {**one, "name": "" if one.get("name") is None else as_text(one["name"])}
        if not isinstance(one.get("args", {}), dict):
            args, raw, error = read_arguments(one["args"])
            one = {**one, "args": args, "raw_args": raw, "parse_error": error}
        calls.append(call_from_dict(one, index))
    usage = record.get("usage") or {}
    _require_numbers(record, ("trial",), int)
    _require_numbers(usage, usage, int)
    yield Trajectory(
        calls,
        record_id(record),
        as_text(record.get("query") or ""),
        _text_or_none(record.get("final_answer")),
        _text_or_none(record.get("stop_reason")),
        usage,
        record.get("trial") or 0,
        _text_or_none(record.get("error")),
        notes,
        record.get("end_state"),
    )


def _text_or_none(value: Any) -> str | None:
    return None if value is None else as_text(value)


def write_native(trajectory: Trajectory) -> dict[str, Any]:
    """Everything that is known of a trajectory."""
    fields = ("query", "final_answer", "stop_reason", "usage", "error", "notes", "end_state")
    known = {name: value for name in fields if (value := getattr(trajectory, name)) not in (None, "", {}, [])}
    return {**head(trajectory), **known, "calls": [call_to_dict(call) for call in trajectory.calls]}


def is_traject(record: Any) -> bool:
    """TRAJECT-Bench's tool list."""
    return isinstance(record, Mapping) and any(isinstance(record.get(key), list) for key in TOOL_LISTS)


def traject_call(step: Mapping[str, Any], index: int) -> Call:
    """A step of TRAJECT-Bench, with its required and optional parameters told apart."""
    args: dict[str, Any] = {}
    required: list[str] = []
    for bucket in ("required", "optional"):
        for entry in step.get(f"{bucket} parameters", step.get(f"{bucket}_parameters")) or ():
            name = as_text(entry.get("name")).strip()
            args[name] = entry.get("value")
            if bucket == "required":
                required.append(name)
    result = first_present(step, ("executed_output", "executed output"))
    name = step.get("tool name", step.get("tool_name", step.get("name")))
    failed = step.get("execution_status") == "failed"
    return Call(as_text(name), args, None, index, index, None, None, None, result, failed, required=tuple(required))


def read_traject(record: Any) -> Iterable[Trajectory]:
    """One trajectory: its reference calls, one a turn."""
    answer = record.get("final_answer")
    if isinstance(answer, Mapping):
        answer = answer.get("answer")
    steps = first_present(record, TOOL_LISTS) or ()
    calls = [traject_call(step, index) for index, step in enumerate(steps)]
    _require_numbers(record, ("trial",), int)
    made = Trajectory(calls, record_id(record), as_text(record.get("query") or ""), _text_or_none(answer))
    made.trial = record.get("trial") or 0
    yield made


def write_traject(trajectory: Trajectory) -> dict[str, Any]:
    """TRAJECT-Bench's tool list; without a schema all parameters are required ones."""

    def entries(call: Call, *, wanted: bool) -> list[dict[str, Any]]:
        required = call.args.keys() if call.required is None else call.required
        return [{"name": name, "value": value} for name, value in call.args.items() if (name in required) is wanted]

    steps = [
        {
            "tool name": call.name,
            "required parameters": entries(call, wanted=True),
            "optional parameters": entries(call, wanted=False),
            **({} if call.result is None else {"executed_output": call.result}),
            **({"execution_status": "failed"} if call.is_error else {}),
        }
        for call in trajectory.calls
    ]
    answer = {} if trajectory.final_answer is None else {"final_answer": trajectory.final_answer}
    return {**head(trajectory), "query": trajectory.query, "tool list": steps, **answer}


def is_bfcl(record: Any) -> bool:
    """A line of a BFCL result file."""
    return isinstance(record, Mapping) and "id" in record and isinstance(record.get("result"), str | list)


def read_bfcl(record: Any) -> Iterable[Trajectory]:
    """One trajectory; multi-turn results are turns of steps of calls."""
    made = Builder(id=record_id(record), trial=record.get("trial", 0))
    result = record["result"]
    _read_bfcl(made, result)
    made.usage(
        {
            "input_tokens": _total(record.get("input_token_count")),
            "output_tokens": _total(record.get("output_token_count")),
        }
    )
    yield made.finish()


def _total(counts: Any) -> int | None:
    if isinstance(counts, list):
        return sum(_total(one) or 0 for one in counts)
    return counts if isinstance(counts, int) else None


def _read_bfcl(made: Builder, result: Any) -> None:
    if isinstance(result, list) and all(isinstance(one, Mapping) for one in result):
        made.turn()
        for one in result:
            for name, arguments in one.items():
                made.call(name, arguments)
    elif isinstance(result, list):
        for one in result:
            _read_bfcl(made, one)
    elif isinstance(result, str):
        made.turn()
        try:
            calls = list(_python_calls(result))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            made.say(result)
            return
        for name, arguments in calls:
            made.call(name, arguments)


def _python_calls(text: str) -> Iterable[tuple[str, Any]]:
    """The calls of ``[f(a=1), g(b="x")]``; arguments that aren't literals stay text."""
    body = ast.parse(text.strip(), mode="eval").body
    nodes = body.elts if isinstance(body, ast.List | ast.Tuple) else [body]
    if not nodes or not all(isinstance(node, ast.Call) for node in nodes):
        raise ValueError("no calls")
    for node in nodes:
        assert isinstance(node, ast.Call)
        args: dict[str, Any] = {}
        for place, value in enumerate(node.args):
            args[f"arg{place}"] = _literal(value)
        for keyword in node.keywords:
            args[keyword.arg or "kwargs"] = _literal(keyword.value)
        yield ast.unparse(node.func), args


def _literal(node: ast.expr) -> Any:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)
    return whole_text(value) if isinstance(value, str) else value


def write_bfcl(trajectory: Trajectory) -> dict[str, Any]:
    """Turns of calls; results, the query and the answer have no place in this format."""
    turns = [
        [{call.name: call.raw_args if call.parse_error else call.args} for call in turn]
        for turn in turns_of(trajectory)
    ]
    return {"id": trajectory.id, **({"trial": trajectory.trial} if trajectory.trial else {}), "result": turns}


def is_inspect(record: Any) -> bool:
    """An Inspect log, or one of its samples."""
    return isinstance(record, Mapping) and (
        ("samples" in record and "eval" in record) or ("epoch" in record and "messages" in record)
    )


def read_inspect(record: Any) -> Iterable[Trajectory]:
    """One trajectory a sample and epoch."""
    samples = record.get("samples", [record])
    for sample in samples or ():
        messages = [
            {
                **message,
                "tool_calls": [
                    {"id": c.get("id"), "name": c.get("function"), "arguments": c.get("arguments")}
                    for c in message.get("tool_calls") or ()
                ],
            }
            if message.get("role") == "assistant"
            else message
            for message in sample.get("messages") or ()
        ]
        trial = max(0, int(sample.get("epoch", 1)) - 1)
        (made,) = read_chat({"id": sample.get("id"), "trial": trial, "messages": messages})
        failed = {
            m.get("tool_call_id"): m["error"].get("message", "error")
            for m in messages
            if m.get("role") == "tool" and m.get("error")
        }
        for call in made.calls:
            if call.id in failed:
                call.is_error = True
                call.result = call.result or failed[call.id]
        if not made.query:
            given = sample.get("input")
            made.query = given if isinstance(given, str) else text_of((given or [{}])[0].get("content"))
        if sample.get("error"):
            made.error = text_of(sample["error"].get("message", "error"))
        yield made


def write_inspect(trajectory: Trajectory) -> dict[str, Any]:
    """A sample of an Inspect log."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": trajectory.query}] if trajectory.query else []
    for turn in turns_of(trajectory):
        calls = [
            {
                "id": call_id(call),
                "function": call.name,
                "arguments": call.raw_args if call.parse_error else call.args,
                "type": "function",
            }
            for call in turn
        ]
        messages.append({"role": "assistant", "content": "", "tool_calls": calls})
        messages += [
            {
                "role": "tool",
                "tool_call_id": call_id(call),
                "function": call.name,
                "content": as_text(call.result),
                **({"error": {"type": "unknown", "message": as_text(call.result)}} if call.is_error else {}),
            }
            for call in turn
            if call.result is not None
        ]
    if trajectory.final_answer is not None:
        messages.append({"role": "assistant", "content": trajectory.final_answer})
    return {"id": trajectory.id, "epoch": trajectory.trial + 1, "input": trajectory.query, "messages": messages}
