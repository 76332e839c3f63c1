"""How a model is led through a task: by one prompt, by its own tool calling, or by thoughts and actions in turn."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from assay.core.errors import InputError
from assay.tooluse.clients import Client, Messages, Reply
from assay.tooluse.formats._builder import dump, load_json, read_arguments
from assay.tooluse.retrieval import Retriever
from assay.tooluse.trajectories import Call, Gold, Tool, Trajectory
from assay.tooluse.world import ToolWorld, tool_as

__all__ = ["AGENTS", "AgentName", "Setting", "find_agent", "parse_calls", "run_task", "select_tools"]

AgentName: TypeAlias = Literal["direct", "cot", "native", "react", "dynamic", "select"]
AGENTS: tuple[AgentName, ...] = get_args(AgentName)
Execute: TypeAlias = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]
SENTENCE = re.compile(r"(?<=[.?!])\s+")
FENCE = re.compile(r"```(?:json)?\s*(.*?)```", re.DOTALL)
ACTION = re.compile(r"Action:[ \t]*(?P<name>[^\n]+)\n+[ \t]*Action Input:[ \t]*(?P<input>.*)", re.DOTALL)
FINAL = re.compile(r"Final Answer:[ \t]*(.*)", re.DOTALL)

DIRECT = """You can use these tools. Each line has a name, what the tool does, and its parameters as JSON Schema.

{tools}

Answer the request by listing the calls to make, in order. Write nothing but a JSON list of objects with "name" and
"arguments". Where an argument is the result of an earlier call, write what you expect it to be.

Request: {query}"""

COT = """You can use these tools. Each line has a name, what the tool does, and its parameters as JSON Schema.

{tools}

First think about what the request needs, step by step. Then write, after the word CALLS, a JSON list of objects with
"name" and "arguments".

Example. Request: How hot are 20 and 30 degrees Celsius in Fahrenheit?
The request has two temperatures, and one tool converts a temperature, so it is called twice.
CALLS [{{"name": "to_fahrenheit", "arguments": {{"celsius": 20}}}}, {{"name": "to_fahrenheit", "arguments": \
{{"celsius": 30}}}}]

Example. Request: What day of the week was 1 May 2020?
One date, one question: one call.
CALLS [{{"name": "weekday_of", "arguments": {{"date": "2020-05-01"}}}}]

Request: {query}"""

REACT = """Answer the request with these tools. Each line has a name, what the tool does, and its parameters.

{tools}

Go step by step. In each step write exactly
Thought: what you need next
Action: the name of one tool
Action Input: its arguments as a JSON object
and stop there. You will be given the line Observation. When nothing is left to do, write
Final Answer: the answer to the request

Request: {query}"""


@dataclass(frozen=True, slots=True)
class Setting:
    """What an agent works with.

    Attributes
    ----------
    client : Client
        What answers.
    tools : tuple of Tool
        The tools that it is shown.
    execute : callable
        Runs a call: name and arguments to result.
    max_turns : int
        After how many turns it is stopped.
    retriever, all_tools, k
        For the agent `dynamic`: which tools are shown anew after each thought.
    """

    client: Client
    tools: tuple[Tool, ...]
    execute: Execute
    max_turns: int
    retriever: Retriever | None = None
    all_tools: tuple[Tool, ...] = ()
    k: int = 20


class _Recorder:
    """Runs calls and keeps them."""

    def __init__(self, run: Trajectory, execute: Execute) -> None:
        self.run, self.execute = run, execute

    def call(self, name: Any, arguments: Any, *, id: str | None, turn: int, group: int | None = None) -> str:
        """Run one call and give its result as text."""
        known = name if isinstance(name, str) else dump(name)
        args, raw, error = read_arguments(arguments)
        begin = time.time()
        result = {"error": error} if error is not None else dict(self.execute(known, args))
        made = Call(known, args, id, len(self.run.calls), turn, group, raw, error, result, "error" in result)
        made.t_start, made.t_end = begin, time.time()
        self.run.calls.append(made)
        return dump(result)

    def count(self, reply: Reply) -> None:
        """Add a reply's tokens."""
        for kind, tokens in reply.usage.items():
            self.run.usage[kind] = self.run.usage.get(kind, 0) + tokens


def listing(tools: Sequence[Tool]) -> str:
    """Tools for a prompt, one a line."""
    return "\n".join(f"{one.name}: {one.description} {dump(one.parameters.get('properties', {}))}" for one in tools)


def parse_calls(text: str) -> list[tuple[Any, Any]]:
    """The calls in a model's text: the first JSON list or object of calls, fenced or not.

    Parameters
    ----------
    text : str
        What the model wrote.

    Returns
    -------
    list of (name, arguments)
        Empty where there is none.
    """
    body = text.rpartition("CALLS")[2]
    fenced = FENCE.search(body)
    body = fenced[1] if fenced else body
    for opening, closing in ("[]", "{}"):
        start, end = body.find(opening), body.rfind(closing)
        if start == -1 or end <= start:
            continue
        try:
            found = load_json(body[start : end + 1])
        except ValueError:
            continue
        every = found if isinstance(found, list) else [found]
        if all(isinstance(one, Mapping) and ("name" in one or "tool" in one) for one in every):
            return [
                (one.get("name", one.get("tool")), one.get("arguments", one.get("parameters", one.get("args"))))
                for one in every
            ]
    return []


async def _one_prompt(prompt: str, query: str, setting: Setting, run: Trajectory) -> None:
    recorder = _Recorder(run, setting.execute)
    text = prompt.format(tools=listing(setting.tools), query=query)
    reply = await setting.client.complete([{"role": "user", "content": text}])
    recorder.count(reply)
    calls = parse_calls(reply.text)
    for turn, (name, arguments) in enumerate(calls):
        recorder.call(name, arguments, id=None, turn=turn)
    run.stop_reason = reply.stop_reason or None
    if not calls:
        run.final_answer = reply.text or None
        run.notes.append("no list of calls in the answer")


async def direct(query: str, setting: Setting, run: Trajectory) -> None:
    """One prompt, one list of calls."""
    await _one_prompt(DIRECT, query, setting, run)


async def cot(query: str, setting: Setting, run: Trajectory) -> None:
    """One prompt with examples, thoughts, and one list of calls."""
    await _one_prompt(COT, query, setting, run)


async def native(query: str, setting: Setting, run: Trajectory) -> None:
    """The endpoint's own tool calling, until it calls nothing more."""
    recorder = _Recorder(run, setting.execute)
    definitions = [tool_as(one, "openai") for one in setting.tools]
    messages: list[dict[str, Any]] = [{"role": "user", "content": query}]
    for turn in range(setting.max_turns):
        reply = await setting.client.complete(messages, definitions)
        recorder.count(reply)
        if not reply.calls:
            run.final_answer, run.stop_reason = reply.text or None, reply.stop_reason or None
            return
        ids = [id_ or f"call_{turn}_{place}" for place, (id_, _, _) in enumerate(reply.calls)]
        asked = [
            {
                "id": id_,
                "type": "function",
                "function": {"name": name, "arguments": args if isinstance(args, str) else dump(args)},
            }
            for id_, (_, name, args) in zip(ids, reply.calls, strict=True)
        ]
        messages.append({"role": "assistant", "content": reply.text, "tool_calls": asked})
        group = turn if len(reply.calls) > 1 else None
        for id_, (_, name, arguments) in zip(ids, reply.calls, strict=True):
            result = recorder.call(name, arguments, id=id_, turn=turn, group=group)
            messages.append({"role": "tool", "tool_call_id": id_, "content": result})
    run.stop_reason = "max_turns"


async def react(query: str, setting: Setting, run: Trajectory) -> None:
    """Thought, action and observation, over and over."""
    recorder = _Recorder(run, setting.execute)
    tools = setting.tools
    steps = ""
    for turn in range(setting.max_turns):
        prompt = REACT.format(tools=listing(tools), query=query)
        messages: Messages = [{"role": "user", "content": prompt + (f"\n\n{steps}" if steps else "")}]
        reply = await setting.client.complete(messages)
        recorder.count(reply)
        said = reply.text.partition("\nObservation:")[0].strip()
        action = ACTION.search(said)
        final = FINAL.search(said)
        if action is None or (final is not None and final.start() < action.start()):
            run.final_answer = final[1].strip() if final else said or None
            run.stop_reason = "final" if final else "no action"
            return
        arguments = action["input"].strip().removeprefix("```json").strip("`").strip()
        observed = recorder.call(action["name"].strip(), arguments, id=None, turn=turn)
        steps += f"{said}\nObservation: {observed}\n"
        if setting.retriever is not None:
            thought = said.partition("Action:")[0].removeprefix("Thought:").strip() or query
            names = set(setting.retriever.top(f"{query} {thought}", setting.all_tools, k=setting.k))
            tools = tuple(one for one in setting.all_tools if one.name in names)
    run.stop_reason = "max_turns"


def select_tools(
    query: str, tools: Sequence[Tool], scores: Callable[[Sequence[str], Sequence[Tool]], Any]
) -> list[str]:
    """The best tool for each sentence of a query.

    Parameters
    ----------
    query : str
        The query.
    tools : sequence of Tool
        What there is.
    scores : callable
        ``scores(sentences, tools)``: how well each tool fits each sentence, as rows.

    Returns
    -------
    list of str
        A tool's name a sentence, in order.

    Examples
    --------
    >>> tools = [Tool("a", "Weather"), Tool("b", "Price")]
    >>> select_tools("The price? The weather?", tools, Retriever("bm25").scores)
    ['b', 'a']
    """
    parts = split_sentences(query)
    rows = scores(parts, tools)
    return [tools[max(range(len(tools)), key=lambda i: (row[i], -i))].name for row in rows]


def split_sentences(query: str) -> list[str]:
    """The sentences of a query without their numbers."""
    parts = [re.sub(r"^\d+\.\s*", "", part).strip() for part in SENTENCE.split(query)]
    return [part for part in parts if re.search(r"[A-Za-z]", part)]


async def select(query: str, setting: Setting, run: Trajectory) -> None:
    """The nearest tool for each sentence, without arguments: what a retriever alone can do."""
    recorder = _Recorder(run, setting.execute)
    retriever = setting.retriever or Retriever()
    for turn, name in enumerate(select_tools(query, setting.tools, retriever.scores)):
        recorder.call(name, {}, id=None, turn=turn)


Agent: TypeAlias = Callable[[str, Setting, Trajectory], Awaitable[None]]
_AGENT_OF: Mapping[str, Agent] = {
    "direct": direct,
    "cot": cot,
    "native": native,
    "react": react,
    "dynamic": react,
    "select": select,
}


def find_agent(name: str) -> Agent:
    """The agent of that name.

    Raises
    ------
    InputError
        There is none.
    """
    if name not in _AGENT_OF:
        raise InputError(f"agent '{name}'", expected=f"one of: {', '.join(_AGENT_OF)}")
    return _AGENT_OF[name]


async def run_task(
    task: Gold, setting: Setting, agent: Agent, *, world: ToolWorld | None = None, trial: int = 0
) -> Trajectory:
    """Let an agent work on a task once; a failing service becomes the trajectory's `error`."""
    from assay.tooluse.clients import ServiceError

    run = Trajectory(id=task.id, query=task.query, trial=trial)
    try:
        await agent(task.query, setting, run)
    except (ServiceError, OSError) as error:
        run.error = str(error) or type(error).__name__
    if world is not None and task.end_state is not None:
        run.end_state = world.snapshot()
    return run
