"""Live runs: agents against a server that speaks OpenAI's protocol, resumption, judges, servers and plug-ins."""

from __future__ import annotations

import asyncio
import json
import math
import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assay.core.errors import InputError
from assay.tooluse.agents import parse_calls, select_tools
from assay.tooluse.clients import EndpointClient, LocalClient
from assay.tooluse.judging import judge_many
from assay.tooluse.plugins import assert_trajectory, make_evaluator
from assay.tooluse.reading import read
from assay.tooluse.retrieval import Retriever, parse_pool, pool_tools
from assay.tooluse.running import evaluate, parse_part
from assay.tooluse.scoring import score
from assay.tooluse.tasks import make_tasks
from assay.tooluse.trajectories import Gold, Tool, Trajectory, make_calls
from assay.tooluse.world import ToolWorld
from tests.tooluse.server import serving

ASSAY = (sys.executable, "-m", "assay", "tooluse")
WORLD = ToolWorld.load()
TASKS = make_tasks((2, 3), "sequential", "simple", per_n=2, seed=21, world=WORLD)
BY_QUERY = {task.query: task for task in TASKS}


def right(body: dict[str, Any]) -> dict[str, Any]:
    """A model that knows the references: one call a turn, then an answer."""
    task = BY_QUERY[body["messages"][0]["content"]]
    turn = sum(message["role"] == "tool" for message in body["messages"])
    if turn == len(task.calls):
        return {"content": "Done."}
    call = task.calls[turn]
    function = {"name": call.name, "arguments": json.dumps(call.args)}
    return {"content": None, "tool_calls": [{"id": f"c{turn}", "type": "function", "function": function}]}


def endpoint(url: str) -> EndpointClient:
    return EndpointClient(url, "m", retries=0)


def test_native_tool_calling_against_an_endpoint() -> None:
    with serving(right) as (url, requests):
        runs = evaluate(endpoint(url), TASKS, "domain", "native", concurrency=3)
    assert [run.id for run in runs] == [task.id for task in TASKS]
    for run, task in zip(runs, TASKS, strict=True):
        found = score(run, task, tools=WORLD.tools())
        assert (found["call_em"], found["dependency_satisfaction"], found.labels) == (1, 1, ())
        assert run.final_answer == "Done."
        assert run.usage == {"input": 7 * (len(task.calls) + 1), "output": 3 * (len(task.calls) + 1)}
    assert all(request["temperature"] == 0 and request["tools"] for request in requests)


def test_a_stopped_run_goes_on_and_failures_of_the_service_are_run_again(tmp_path: Path) -> None:
    failing = TASKS[1].query

    def sometimes(body: dict[str, Any]) -> dict[str, Any] | int:
        return 500 if body["messages"][0]["content"] == failing else right(body)

    out = tmp_path / "runs.jsonl"
    with serving(sometimes) as (url, _):
        first = evaluate(endpoint(url), TASKS, out=out, trials=2, settings="s")
    assert [run.error is not None for run in first] == [False, False, True, True, False, False, False, False]
    assert math.isnan(score(first[2], TASKS[1])["call_f1"])
    with out.open("a") as stream:
        stream.write('{"id": "cut off", "ca')
    with serving(right) as (url, requests):
        again = evaluate(endpoint(url), TASKS, out=out, trials=2, settings="s")
        assert len(requests) == 2 * (len(TASKS[1].calls) + 1)
    assert all(run.error is None for run in again)
    assert sorted((run.id, run.trial) for run in read(out)) == sorted((run.id, run.trial) for run in again)
    with pytest.raises(InputError, match=r"row 1: was made with other settings \(s\); expected t"):
        evaluate(right_function, TASKS, out=out, settings="t")


def right_function(messages: Sequence[Any], tools: Any) -> dict[str, Any]:
    return right({"messages": messages})


def test_parts_make_the_whole() -> None:
    parts = [evaluate(right_function, TASKS, part=f"{i}/3") for i in (1, 2, 3)]
    assert sorted(run.id for part in parts for run in part) == sorted(task.id for task in TASKS)
    for wrong in ("0/3", "4/3", "1", "a/b"):
        with pytest.raises(InputError, match="part is"):
            parse_part(wrong)


def test_one_prompt_agents_read_a_list_of_calls() -> None:
    task = TASKS[0]
    listed = json.dumps([{"name": call.name, "arguments": call.args} for call in task.calls])
    for agent, text in (("direct", f"```json\n{listed}\n```"), ("cot", f"I think [so].\nCALLS {listed}")):
        (run,) = evaluate(lambda messages, tools, text=text: text, [task], "all", agent)
        assert score(run, task)["call_em"] == 1
        assert [call.result for call in run.calls] == [call.result for call in task.calls]
    (run,) = evaluate(lambda messages, tools: "I can't.", [task], "all", "direct")
    assert (run.calls, run.final_answer, run.notes) == ([], "I can't.", ["no list of calls in the answer"])


@pytest.mark.parametrize("agent", ["react", "dynamic"])
def test_thoughts_actions_and_observations(agent: str) -> None:
    task = TASKS[-1]

    def model(messages: Sequence[Any], tools: Any) -> str:
        done = messages[0]["content"].count("\nObservation:") - 0
        if done == len(task.calls):
            return "Thought: ready\nFinal Answer: yes"
        call = task.calls[done]
        return f"Thought: next\nAction: {call.name}\nAction Input: {json.dumps(call.args)}\nObservation: made up"

    (run,) = evaluate(model, [task], "retrieval:5", agent, retriever=Retriever("bm25"))
    assert (score(run, task)["call_em"], run.final_answer) == (1, "yes")


def test_long_chains_get_the_turns_they_need_and_endless_runs_are_stopped() -> None:
    def endless(messages: Sequence[Any], tools: Any) -> dict[str, Any]:
        return {"tool_calls": [{"function": {"name": "cart_total", "arguments": "{}"}}]}

    (run,) = evaluate(endless, [replace(TASKS[0], calls=TASKS[0].calls * 5, edges=())])
    assert (len(run.calls), run.stop_reason) == (22, "max_turns")


def test_states_are_apart_and_the_end_state_is_scored() -> None:
    calls = make_calls([("cart_add", {"article": "pen", "quantity": 2})])
    goal = {"mail": {}, "events": {}, "cart": {"pen": 2}, "next": {"mail": 1, "event": 1}}
    tasks = [Gold(calls, id=str(i), query="Buy pens", end_state=goal) for i in range(3)]

    def buyer(messages: Sequence[Any], tools: Any) -> Any:
        if messages[-1]["role"] == "tool":
            return "Bought."
        return {"tool_calls": [{"id": "1", "function": {"name": "cart_add", "arguments": calls[0].args}}]}

    for run, task in zip(evaluate(buyer, tasks), tasks, strict=True):
        assert score(run, task)["end_state"] == 1
    assert score(replace(run, end_state={}), task)["end_state"] == 0


def test_calls_in_text() -> None:
    assert parse_calls('[{"tool": "a", "args": {"x": 1}}] and more') == [("a", {"x": 1})]
    assert parse_calls('{"name": "a", "parameters": {}}') == [("a", {})]
    assert parse_calls("nothing [here]") == []


@pytest.mark.parametrize("encoder", ["bm25", "minilm"])
def test_retrievers_find_what_is_described(encoder: str) -> None:
    tools = [Tool("a", "Weather of a city"), Tool("b", "Price of a share"), Tool("c", "Time of day in a place")]
    retriever = Retriever(encoder)
    assert retriever.top("the price of this share", tools, k=2)[0] == "b"
    assert select_tools("1. The price of a share? 2. The weather of the city?", tools, retriever.scores) == ["b", "a"]


def test_pools() -> None:
    task = TASKS[0]
    needed = {call.name for call in task.calls}
    every = WORLD.tools()
    assert pool_tools("all", task, every) == every
    fixed = pool_tools("fixed:9", replace(task, domain=""), every, seed=1)
    assert needed <= {tool.name for tool in fixed}
    assert fixed == pool_tools("fixed:9", task, every, seed=1)
    assert len(pool_tools("retrieval:4", task, every, retriever=Retriever("bm25"))) == 4
    assert {t.domain for t in pool_tools("domain", task, every)} == {t.domain for t in every if t.name in needed}
    for wrong in ("some", "all:3", "fixed:0", "retrieval:x"):
        with pytest.raises(InputError, match="pool is"):
            parse_pool(wrong)
    with pytest.raises(InputError, match="encoder is 'glove'"):
        Retriever("glove")
    with pytest.raises(InputError, match="k is 0"):
        Retriever("bm25").top("q", every, k=0)


def test_wrong_options_are_refused() -> None:
    for options, message in (({"agent": "magic"}, "agent 'magic'"), ({"trials": 0}, "trials is 0")):
        with pytest.raises(InputError, match=message):
            evaluate(right_function, TASKS, **options)  # type: ignore[arg-type]


def test_the_embedded_model_answers_and_its_runs_are_kept(tmp_path: Path) -> None:
    task = make_tasks(1, difficulty="simple", per_n=1, seed=2)[0]
    client = LocalClient("random-llama", max_tokens=8)
    runs = evaluate(client, [task], "fixed:2", "direct", out=tmp_path / "runs.jsonl", concurrency=1)
    assert runs[0].error is None
    assert runs[0].calls == []
    assert runs[0].notes == ["no list of calls in the answer"]
    assert [run.id for run in read(tmp_path / "runs.jsonl")] == [task.id]


# --- Judges


def test_judges_read_clamp_cache_and_miss(tmp_path: Path) -> None:
    run, task = TASKS[0].as_trajectory(), TASKS[0]
    asked: list[str] = []

    def says(text: str) -> Any:
        def judge(messages: Sequence[Any], tools: Any) -> str:
            asked.append(messages[0]["content"])
            return text

        return judge

    def value(text: str, kind: Any = "brief", **more: Any) -> float:
        return judge_many(says(text), [run], [task], kind, tools=WORLD.tools(), **more)[0].value

    assert value('Sure: {"score": 14}') == 10
    assert value('{"relevance": 3, "arguments": 9, "completeness": 1}', "full") == 8
    assert value('{"same": true}', "answer") == 1
    assert math.isnan(value("no idea"))
    assert len(asked) == 3 + 3
    assert value('{"better": "S1"}', "compare", others=[run]) == 0.5
    first = value('{"score": 5}', cache=tmp_path)
    count = len(asked)
    assert value('{"score": 9}', cache=tmp_path) == first == 5
    assert len(asked) == count
    with pytest.raises(InputError, match="the judge compare has one run"):
        value("x", "compare")


def test_the_brief_judge_sees_no_arguments_and_the_full_one_does() -> None:
    task = Gold(make_calls([("weekday_of", {"date": "2024-02-29"})]), id="1", query="Which day?")
    seen: dict[str, str] = {}
    for kind in ("brief", "full"):

        def model(messages: Sequence[Any], tools: Any, kind: str = kind) -> str:
            seen[kind] = messages[0]["content"]
            return '{"score": 1}'

        judge_many(model, [task.as_trajectory()], [task], kind, tools=WORLD.tools())  # type: ignore[arg-type]
    assert "2024-02-29" not in seen["brief"]
    assert "2024-02-29" in seen["full"]


# --- Servers and plug-ins


def test_the_world_speaks_the_model_context_protocol() -> None:
    from mcp import Client

    from assay.tooluse.serving import make_server

    async def talk() -> None:
        async with Client(make_server()) as client:
            listed = await client.list_tools()
            assert [one.name for one in listed.tools] == list(WORLD.declarations)
            good = await client.call_tool("weekday_of", {"date": "2024-02-29"})
            bad = await client.call_tool("weekday_of", {"date": "2023-02-29"})
            assert json.loads(good.content[0].text) == {"value": "Thursday"}
            assert bad.content[0].text == "2023-02-29 is not a day of the calendar"

    asyncio.run(talk())


def test_the_world_is_served_over_http_by_the_command() -> None:
    from mcp import Client

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        taken = subprocess.run(
            [*ASSAY, "world", "serve", "--mcp", "--http", "--port", str(port)],
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert taken.returncode == 1
    assert f"assay: can't listen at 127.0.0.1:{port}: " in taken.stderr

    async def talk(address: str) -> list[Any]:
        async with Client(address) as client:
            listed = await client.list_tools()
            good = await client.call_tool("weekday_of", {"date": "2024-02-29"})
            bad = await client.call_tool("no_such_tool", {})
            return [len(listed.tools), good.content[0].text, bad.is_error]

    words = [*ASSAY, "world", "serve", "--mcp", "--http", "--port", str(port)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as serving_:
        assert serving_.stderr is not None
        try:
            address = re.search(r"http://\S+", serving_.stderr.readline())
            assert address is not None
            assert asyncio.run(talk(address[0])) == [len(WORLD.declarations), '{"value":"Thursday"}', True]
        finally:
            serving_.terminate()


class _Score:
    """What inspect-ai keeps of a sample's score; a stand-in, since that package asks for another fsspec than ours."""

    def __init__(self, value: Any, explanation: str, metadata: dict[str, Any]) -> None:
        self.value, self.explanation, self.metadata = value, explanation, metadata


def test_the_scorer_of_inspect_scores_a_sample_by_its_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.tooluse.plugins import inspect_scorer

    registered: dict[str, Any] = {}

    def scorer(*, metrics: list[Any], name: str) -> Any:
        registered[name] = metrics
        return lambda function: function

    stand_in = SimpleNamespace(Score=_Score, mean=lambda: "mean", stderr=lambda: "stderr", scorer=scorer)
    monkeypatch.setitem(sys.modules, "inspect_ai.scorer", stand_in)
    gold = Gold(make_calls([("a", {"x": 1}), ("b", {})]), id="7", query="q")
    calls = [{"id": "c", "function": "a", "arguments": {"x": 1}, "type": "function"}]
    messages = [
        SimpleNamespace(model_dump=lambda mode, one=one: one)
        for one in (
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": "", "tool_calls": calls},
            {"role": "tool", "tool_call_id": "c", "function": "a", "content": "5"},
        )
    ]
    judged = inspect_scorer([gold])
    found = asyncio.run(judged(SimpleNamespace(sample_id=7, epoch=2, messages=messages), None))
    assert registered == {"trajectory_call_f1": ["mean", "stderr"]}
    assert (found.value, found.metadata["labels"]) == (pytest.approx(2 / 3), ["missing_call"])
    assert found.explanation.endswith("= a(x=1)\n- b()")
    assert (found.metadata["trajectory"]["trial"], found.metadata["trajectory"]["calls"][0]["result"]) == (1, "5")
    with pytest.raises(InputError, match="no reference for the sample '8'"):
        asyncio.run(judged(SimpleNamespace(sample_id=8, epoch=1, messages=messages), None))


def test_the_assertion_tells_the_difference() -> None:
    gold = Gold(make_calls([("news", {"topic": "tea"})]), query="News of tea")
    assert_trajectory(gold.as_trajectory(), gold)
    assert_trajectory(make_calls([("news", {})]), gold, min_call_f1=0)
    with pytest.raises(
        AssertionError, match=r"call_f1 is below 1\n.*\n~ news\(topic='pea'\)\n    topic: 'pea', expected"
    ):
        assert_trajectory(make_calls([("news", {"topic": "pea"})]), gold)
    with pytest.raises(AssertionError, match="not scored: timeout"):
        assert_trajectory(Trajectory(error="timeout"), gold)


def test_the_evaluator_has_the_signature_of_agentevals_and_grades() -> None:
    from agentevals.trajectory.match import create_trajectory_match_evaluator

    def messages(*arguments: str) -> list[dict[str, Any]]:
        tool_calls = [{"id": str(i), "function": {"name": "f", "arguments": one}} for i, one in enumerate(arguments)]
        return [{"role": "user", "content": "q"}, {"role": "assistant", "content": "", "tool_calls": tool_calls}]

    theirs = create_trajectory_match_evaluator(trajectory_match_mode="unordered", tool_args_match_mode="exact")
    ours = make_evaluator()
    for outputs in (messages('{"x": 1}', '{"x": 2}'), messages('{"x": 2}', '{"x": 1}'), messages('{"x": 1}')):
        given = {"outputs": outputs, "reference_outputs": messages('{"x": 1}', '{"x": 2}')}
        assert (ours(**given)["score"] == 1) is theirs(**given)["score"]
    assert ours(outputs=messages('{"x": 1}'), reference_outputs=messages('{"x": 1}', '{"x": 2}'))[
        "score"
    ] == pytest.approx(2 / 3)


def test_a_harness_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.core.errors import MissingPackageError
    from assay.tooluse.plugins import inspect_scorer

    monkeypatch.setitem(sys.modules, "inspect_ai.scorer", None)
    with pytest.raises(
        MissingPackageError, match=r"needs the package inspect-ai: pip install 'assay\[tooluse-inspect\]'"
    ):
        inspect_scorer([])
