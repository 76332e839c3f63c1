"""Formats made of chat messages: OpenAI's two, Anthropic's, Gemini's, LangChain's and ShareGPT's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from assay.tooluse.formats._builder import Builder, as_text, dump, record_id, turns_of
from assay.tooluse.trajectories import Call, Trajectory

__all__ = [
    "is_anthropic",
    "is_chat",
    "is_gemini",
    "is_langchain",
    "is_responses",
    "is_sharegpt",
    "read_anthropic",
    "read_chat",
    "read_gemini",
    "read_langchain",
    "read_responses",
    "read_sharegpt",
    "write_anthropic",
    "write_chat",
    "write_gemini",
    "write_langchain",
    "write_responses",
    "write_sharegpt",
]

ANTHROPIC_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")
ANTHROPIC_RESULT = "tool_result"
WRAPPER = "output"
"""Under this key Gemini's API wants an answer that isn't an object."""


def items(record: Any, *keys: str) -> list[Any]:
    """The list of messages in a record, or the record itself where it is one."""
    if isinstance(record, list):
        return record
    for key in keys:
        if isinstance(record.get(key), list):
            found: list[Any] = record[key]
            return found
    return []


def builder(record: Any) -> Builder:
    """A builder with the record's id and trial."""
    if isinstance(record, Mapping):
        return Builder(id=record_id(record), trial=record.get("trial", 0))
    return Builder()


def head(trajectory: Trajectory) -> dict[str, Any]:
    """What a written record says besides its messages."""
    known: dict[str, Any] = {"id": trajectory.id} if trajectory.id else {}
    return {**known, "trial": trajectory.trial} if trajectory.trial else known


def text_of(content: Any) -> str:
    """The text of a content that is text, or a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        parts = [p if isinstance(p, str) else p.get("text") for p in content if isinstance(p, str | Mapping)]
        return "\n".join(part for part in parts if isinstance(part, str))
    return "" if content is None else as_text(content)


def call_id(call: Call) -> str:
    """The call's id; one made of its place where it has none, since the format needs one."""
    return call.id if call.id is not None else f"call_{call.index}"


def _messages(record: Any) -> list[Any]:
    return items(record, "messages", "trajectory", "outputs")


def is_chat(record: Any) -> bool:
    """OpenAI chat messages: roles, and calls under ``tool_calls[].function``."""
    messages = _messages(record)
    return bool(messages) and isinstance(messages[0], Mapping) and "role" in messages[0] and "parts" not in messages[0]


def read_chat(record: Any) -> Iterable[Trajectory]:
    """One trajectory."""
    made = builder(record)
    for message in _messages(record):
        role = message.get("role")
        if role == "user":
            made.user(text_of(message.get("content")))
        elif role == "assistant":
            made.turn()
            made.say(text_of(message.get("content")))
            for one in message.get("tool_calls") or ():
                function = one.get("function") or one
                made.call(function.get("name"), function.get("arguments"), id=one.get("id"))
            if message.get("function_call"):
                made.call(message["function_call"].get("name"), message["function_call"].get("arguments"))
            made.usage(message.get("usage"))
        elif role in ("tool", "function"):
            made.result(text_of(message.get("content")), id=message.get("tool_call_id"), name=message.get("name"))
    if isinstance(record, Mapping):
        made.usage(record.get("usage"))
    yield made.finish()


def write_chat(trajectory: Trajectory) -> dict[str, Any]:
    """Chat messages with tool calls and tool results."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": trajectory.query}] if trajectory.query else []
    for turn in turns_of(trajectory):
        calls = [
            {
                "id": call_id(call),
                "type": "function",
                "function": {"name": call.name, "arguments": call.raw_args if call.parse_error else dump(call.args)},
            }
            for call in turn
        ]
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        messages += [
            {"role": "tool", "tool_call_id": call_id(call), "content": as_text(call.result)}
            for call in turn
            if call.result is not None
        ]
    if trajectory.final_answer is not None:
        messages.append({"role": "assistant", "content": trajectory.final_answer})
    return {**head(trajectory), "messages": messages}


def _responses(record: Any) -> list[Any]:
    if isinstance(record, list):
        return record
    given = record.get("input")
    before = [{"role": "user", "content": given}] if isinstance(given, str) else list(given or ())
    return [*before, *(record.get("output") or record.get("items") or ())]


def is_responses(record: Any) -> bool:
    """Items of OpenAI's Responses."""
    kinds = {one.get("type") for one in _responses(record) if isinstance(one, Mapping)}
    return bool(kinds & {"function_call", "function_call_output"}) or (
        isinstance(record, Mapping)
        and (record.get("object") == "response" or (isinstance(record.get("output"), list) and "message" in kinds))
    )


def read_responses(record: Any) -> Iterable[Trajectory]:
    """One trajectory."""
    made = builder(record)
    for item in _responses(record):
        kind = item.get("type", "message")
        if kind == "function_call":
            made.call(item.get("name"), item.get("arguments"), id=item.get("call_id"))
        elif kind == "function_call_output":
            made.result(text_of(item.get("output")), id=item.get("call_id"))
        elif kind == "message" and item.get("role") == "user":
            made.user(text_of(item.get("content")))
        elif kind == "message" and item.get("role") == "assistant":
            made.turn()
            made.say(text_of(item.get("content")))
    if isinstance(record, Mapping):
        made.usage(record.get("usage"))
    yield made.finish()


def write_responses(trajectory: Trajectory) -> dict[str, Any]:
    """Input and output items."""
    out: list[dict[str, Any]] = []
    for turn in turns_of(trajectory):
        out += [
            {
                "type": "function_call",
                "call_id": call_id(call),
                "name": call.name,
                "arguments": call.raw_args if call.parse_error else dump(call.args),
            }
            for call in turn
        ]
        out += [
            {"type": "function_call_output", "call_id": call_id(call), "output": as_text(call.result)}
            for call in turn
            if call.result is not None
        ]
    if trajectory.final_answer is not None:
        text = [{"type": "output_text", "text": trajectory.final_answer}]
        out.append({"type": "message", "role": "assistant", "content": text})
    given = [{"role": "user", "content": trajectory.query}] if trajectory.query else []
    return {**head(trajectory), "object": "response", "input": given, "output": out}


def _blocks(message: Mapping[str, Any]) -> list[Any]:
    content = message.get("content")
    return [one for one in content if isinstance(one, Mapping)] if isinstance(content, list) else []


def is_anthropic(record: Any) -> bool:
    """Messages whose content has blocks of tool use or tool results."""
    kinds = {
        str(block.get("type"))
        for message in _messages(record)
        if isinstance(message, Mapping)
        for block in _blocks(message)
    }
    return any(kind in ANTHROPIC_CALLS or kind.endswith(ANTHROPIC_RESULT) for kind in kinds)


def read_anthropic(record: Any) -> Iterable[Trajectory]:
    """One trajectory."""
    made = builder(record)
    for message in _messages(record):
        role, content = message.get("role"), message.get("content")
        if role == "assistant":
            made.turn()
        if isinstance(content, str):
            (made.say if role == "assistant" else made.user)(content)
            continue
        for block in _blocks(message):
            kind = block.get("type", "")
            if kind in ANTHROPIC_CALLS:
                made.call(block.get("name"), block.get("input"), id=block.get("id"))
            elif kind.endswith(ANTHROPIC_RESULT):
                inner = block.get("content")
                text = inner if isinstance(inner, str | Mapping) else text_of(inner)
                made.result(text, id=block.get("tool_use_id"), is_error=bool(block.get("is_error")))
            elif kind == "text":
                (made.say if role == "assistant" else made.user)(block.get("text"))
        made.usage(message.get("usage"))
    yield made.finish()


def write_anthropic(trajectory: Trajectory) -> dict[str, Any]:
    """Messages with blocks; arguments that couldn't be parsed stay text."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": trajectory.query}] if trajectory.query else []
    for turn in turns_of(trajectory):
        calls = [
            {
                "type": "tool_use",
                "id": call_id(call),
                "name": call.name,
                "input": call.raw_args if call.parse_error else call.args,
            }
            for call in turn
        ]
        messages.append({"role": "assistant", "content": calls})
        results = [
            {
                "type": "tool_result",
                "tool_use_id": call_id(call),
                "content": as_text(call.result),
                **({"is_error": True} if call.is_error else {}),
            }
            for call in turn
            if call.result is not None
        ]
        if results:
            messages.append({"role": "user", "content": results})
    if trajectory.final_answer is not None:
        messages.append({"role": "assistant", "content": [{"type": "text", "text": trajectory.final_answer}]})
    return {**head(trajectory), "messages": messages}


def _contents(record: Any) -> list[Any]:
    if isinstance(record, Mapping) and "candidates" in record:
        return [one.get("content") for one in record["candidates"][:1]]
    return items(record, "contents", "history")


def is_gemini(record: Any) -> bool:
    """Contents with parts."""
    contents = _contents(record)
    return bool(contents) and isinstance(contents[0], Mapping) and "parts" in contents[0]


def _either(part: Mapping[str, Any], camel: str, snake: str) -> Any:
    return part.get(camel, part.get(snake))


def read_gemini(record: Any) -> Iterable[Trajectory]:
    """One trajectory."""
    made = builder(record)
    for content in _contents(record):
        model = content.get("role") == "model"
        if model:
            made.turn()
        for part in content.get("parts") or ():
            if (call := _either(part, "functionCall", "function_call")) is not None:
                made.call(call.get("name"), call.get("args"), id=call.get("id"))
            elif (answer := _either(part, "functionResponse", "function_response")) is not None:
                response = answer.get("response")
                if isinstance(response, Mapping) and set(response) == {WRAPPER}:
                    response = response[WRAPPER]
                made.result(response, id=answer.get("id"), name=answer.get("name"))
            elif "text" in part and not part.get("thought"):
                (made.say if model else made.user)(part["text"])
    yield made.finish()


def write_gemini(trajectory: Trajectory) -> dict[str, Any]:
    """Contents with parts; an answer that isn't an object is wrapped as the API asks."""
    contents: list[dict[str, Any]] = []
    if trajectory.query:
        contents.append({"role": "user", "parts": [{"text": trajectory.query}]})
    for turn in turns_of(trajectory):
        calls: list[dict[str, Any]] = []
        answers: list[dict[str, Any]] = []
        for call in turn:
            known = {"id": call.id} if call.id is not None else {}
            args = call.raw_args if call.parse_error else call.args
            calls.append({"functionCall": {**known, "name": call.name, "args": args}})
            if call.result is not None:
                plain = not isinstance(call.result, dict) or set(call.result) == {WRAPPER}
                answer = {WRAPPER: call.result} if plain else call.result
                answers.append({"functionResponse": {**known, "name": call.name, "response": answer}})
        contents.append({"role": "model", "parts": calls})
        if answers:
            contents.append({"role": "user", "parts": answers})
    if trajectory.final_answer is not None:
        contents.append({"role": "model", "parts": [{"text": trajectory.final_answer}]})
    return {**head(trajectory), "contents": contents}


LANGCHAIN_KINDS = {
    "HumanMessage": "human",
    "AIMessage": "ai",
    "AIMessageChunk": "ai",
    "ToolMessage": "tool",
    "SystemMessage": "system",
}


def _langchain(message: Any) -> Mapping[str, Any]:
    """A message in its plain form, whether dumped with its constructor, its data, or as it is."""
    if not isinstance(message, Mapping):
        return {}
    if "lc" in message and isinstance(message.get("kwargs"), Mapping):
        kind = LANGCHAIN_KINDS.get(str((message.get("id") or [""])[-1]), "")
        return {"type": kind, **message["kwargs"]}
    if isinstance(message.get("data"), Mapping):
        return {"type": message.get("type"), **message["data"]}
    return message


def is_langchain(record: Any) -> bool:
    """Messages of type human, ai and tool."""
    messages = [_langchain(one) for one in _messages(record)]
    return (
        bool(messages)
        and all("role" not in one for one in messages)
        and any(one.get("type") in ("ai", "human", "tool", *LANGCHAIN_KINDS) for one in messages)
    )


def read_langchain(record: Any) -> Iterable[Trajectory]:
    """One trajectory."""
    made = builder(record)
    for message in map(_langchain, _messages(record)):
        kind = LANGCHAIN_KINDS.get(str(message.get("type")), message.get("type"))
        if kind == "human":
            made.user(text_of(message.get("content")))
        elif kind == "ai":
            made.turn()
            made.say(text_of(message.get("content")))
            for one in message.get("tool_calls") or ():
                made.call(one.get("name"), one.get("args"), id=one.get("id"))
            for one in message.get("invalid_tool_calls") or ():
                made.call(one.get("name"), one.get("args"), id=one.get("id"))
            made.usage(message.get("usage_metadata"))
        elif kind == "tool":
            failed = message.get("status") == "error"
            made.result(text_of(message.get("content")), id=message.get("tool_call_id"), is_error=failed)
    yield made.finish()


def write_langchain(trajectory: Trajectory) -> dict[str, Any]:
    """Messages as LangChain dumps them."""
    messages: list[dict[str, Any]] = [{"type": "human", "content": trajectory.query}] if trajectory.query else []
    for turn in turns_of(trajectory):
        good = [{"name": c.name, "args": c.args, "id": call_id(c)} for c in turn if c.parse_error is None]
        bad = [{"name": c.name, "args": c.raw_args, "id": call_id(c)} for c in turn if c.parse_error is not None]
        messages.append({"type": "ai", "content": "", "tool_calls": good, "invalid_tool_calls": bad})
        messages += [
            {
                "type": "tool",
                "content": as_text(call.result),
                "tool_call_id": call_id(call),
                "name": call.name,
                "status": "error" if call.is_error else "success",
            }
            for call in turn
            if call.result is not None
        ]
    if trajectory.final_answer is not None:
        messages.append({"type": "ai", "content": trajectory.final_answer, "tool_calls": []})
    return {**head(trajectory), "messages": messages}


def is_sharegpt(record: Any) -> bool:
    """Conversations with from and value."""
    found = items(record, "conversations")
    return bool(found) and isinstance(found[0], Mapping) and "from" in found[0]


def read_sharegpt(record: Any) -> Iterable[Trajectory]:
    """One trajectory; a function call's value is an object, or a list of them for calls issued together."""
    from assay.tooluse.formats._builder import load_json

    made = builder(record)
    for message in items(record, "conversations"):
        speaker, value = message.get("from"), message.get("value")
        if speaker in ("human", "user"):
            made.user(value)
        elif speaker == "function_call":
            made.turn()
            try:
                called = load_json(value) if isinstance(value, str) else value
            except ValueError:
                called = {"name": "", "arguments": value}
            for one in called if isinstance(called, list) else [called]:
                made.call(one.get("name"), one.get("arguments"), id=one.get("id"))
        elif speaker in ("observation", "tool"):
            made.result(value)
        elif speaker in ("gpt", "assistant"):
            made.turn()
            made.say(value)
    yield made.finish()


def write_sharegpt(trajectory: Trajectory) -> dict[str, Any]:
    """Conversations."""
    messages: list[dict[str, Any]] = [{"from": "human", "value": trajectory.query}] if trajectory.query else []
    for turn in turns_of(trajectory):
        called = [
            {
                "name": call.name,
                "arguments": call.raw_args if call.parse_error else call.args,
                **({"id": call.id} if call.id is not None else {}),
            }
            for call in turn
        ]
        messages.append({"from": "function_call", "value": dump(called if len(called) > 1 else called[0])})
        messages += [{"from": "observation", "value": as_text(c.result)} for c in turn if c.result is not None]
    if trajectory.final_answer is not None:
        messages.append({"from": "gpt", "value": trajectory.final_answer})
    return {**head(trajectory), "conversations": messages}
