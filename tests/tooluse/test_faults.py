"""Damaged and hostile input: whatever a file or an endpoint holds, the answer is a result or one line."""

from __future__ import annotations

import asyncio
import copy
import gzip
import inspect
import io
import json
import math
import os
import random
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.core.errors import AssayError, InputError
from assay.tooluse import jobs
from assay.tooluse.alignment import count_calls
from assay.tooluse.auditing import audit
from assay.tooluse.batch import score_many
from assay.tooluse.clients import LocalClient, Reply, ServiceError, read_completion
from assay.tooluse.formats import FORMATS, detect
from assay.tooluse.formats._builder import dump, load_json
from assay.tooluse.jobs import app
from assay.tooluse.judging import judge_many
from assay.tooluse.matchers import Matcher, make_match
from assay.tooluse.pages import junit, page
from assay.tooluse.reading import gold_from_dict, gold_to_dict, read, read_gold, read_tools, write
from assay.tooluse.running import Kept, evaluate
from assay.tooluse.streaming import score_stream
from assay.tooluse.tasks import make_tasks
from assay.tooluse.trajectories import Call, Gold, Trajectory, make_calls
from assay.tooluse.world import ToolWorld, tool_as

WORLD = ToolWorld.load()
TOOLS = WORLD.tools()[:6]
GOLD = make_tasks(3, "sequential", "simple", seed=3, per_n=1, world=WORLD)[0]
RUN = GOLD.as_trajectory()
WRONG: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, math.nan, math.inf, 10**30, "", "x", "{", '{"a": 1}', [], [None], [1], ["x"], [[]], {},
    {"a": 1}, {"a": None}, "\ud800", "\x00", [{}],
)  # fmt: skip
MUTATIONS = 40


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something is in a JSON value."""
    yield at
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, one in steps:
        yield from places(one, (*at, step))


def mutated(value: Any, rng: random.Random) -> Any:
    """The value with one part of it missing, or of another kind."""
    value = copy.deepcopy(value)
    *path, last = rng.choice([at for at in places(value) if at])
    inner = value
    for step in path:
        inner = inner[step]
    if rng.random() < 0.2:
        del inner[last]
    else:
        inner[last] = copy.deepcopy(rng.choice(WRONG))
    return value


@pytest.mark.parametrize("name", list(FORMATS))
def test_a_damaged_record_is_read_or_refused_in_one_line(name: str, tmp_path: Path) -> None:
    rng = random.Random(f"records of {name}")
    file = tmp_path / "runs.jsonl"
    read_again = 0
    refused: list[str] = []
    for _ in range(MUTATIONS):
        record = mutated(FORMATS[name].write(RUN), rng)
        file.write_text(json.dumps(record) + "\n")
        try:
            runs = read(file)
        except InputError as error:
            refused.append(str(error))
            continue
        for run in runs:
            run.id = GOLD.id
        if runs:
            report = score_many(runs, [GOLD], tools=TOOLS)
            assert "</html>" in page(report)
            assert "</testsuite>" in junit(report, {"call_f1": 1})
            for other in ("openai", "otel", "react", "bfcl"):
                for run in runs:
                    (again,) = FORMATS[other].read(load_json(dump(FORMATS[other].write(run))))
                    assert other != "openai" or len(again.calls) == len(run.calls)
            read_again += 1
    assert read_again > MUTATIONS // 4
    assert all(str(file) in line and "\n" not in line for line in refused)


def test_a_damaged_reference_is_read_or_refused_in_one_line(tmp_path: Path) -> None:
    rng = random.Random("references")
    file = tmp_path / "gold.jsonl"
    refused: list[str] = []
    for _ in range(4 * MUTATIONS):
        file.write_text(json.dumps(mutated(gold_to_dict(GOLD), rng)) + "\n")
        try:
            (gold,) = read_gold(file)
            audit(file)
            RUN.id = gold.id
            report = score_many([RUN], [gold], tools=TOOLS)
            page(report)
            junit(report, {"call_f1": 1})
            assert read_gold(file)[0] == gold_from_dict({**gold_to_dict(gold), "id": gold.id})
        except InputError as error:
            refused.append(str(error))
        finally:
            RUN.id = GOLD.id
    assert refused
    assert not any("\n" in line for line in refused)


@pytest.mark.parametrize("form", ["openai", "anthropic", "mcp", "traject"])
def test_a_damaged_tool_is_read_or_refused_in_one_line(form: Any, tmp_path: Path) -> None:
    rng = random.Random(f"tools of {form}")
    good: Any = [tool_as(tool, form) for tool in TOOLS[:2]] if form != "traject" else [
        {
            "tool name": "a", "tool description": "d", "required_parameters": [{"name": "x", "type": "STRING"}],
            "optional parameters": [{"name": "y", "type": "NUMBER", "default": "5"}],
            "connected tools": [{"tool name": "b", "connect params": [{"name": "x"}]}], "domain name": "q",
        }
    ]  # fmt: skip
    file = tmp_path / "tools.json"
    refused: list[str] = []
    for _ in range(MUTATIONS):
        file.write_text(json.dumps(mutated(good, rng)))
        try:
            score_many([RUN], [GOLD], tools=read_tools(file))
            audit(file)
        except InputError as error:
            refused.append(str(error))
    assert all(str(file) in line and "\n" not in line for line in refused)


# --- JSON that isn't quite JSON


def test_numbers_that_are_none_survive_conversion_and_equal_themselves(tmp_path: Path) -> None:
    run = Trajectory(make_calls([("f", {"x": math.nan, "y": [math.inf, {"z": -math.inf}]})]), id="1")
    for name in FORMATS:
        write([run], tmp_path / f"{name}.jsonl", name)
        (again,) = read(tmp_path / f"{name}.jsonl")
        assert count_calls(again.calls, Gold(run.calls)).f1 == 1
    assert count_calls(make_calls([("f", {"x": 1.0, "y": []})]), Gold(run.calls)).f1 == 0
    assert make_match("number")("nan", math.nan)
    assert dump({"a": None, "b": math.nan}) == '{"a":null,"b":NaN}'
    assert dump({"a": None}) == '{"a":null}'


def test_half_a_character_becomes_a_replacement_and_can_be_written(tmp_path: Path) -> None:
    assert load_json(r'{"\ud800": ["\udfff!"]}') == {"\ufffd": ["\ufffd!"]}
    assert load_json('"\\ud83d\\ude00"') == "\U0001f600"
    run = Trajectory([Call("f", {"x": "\ud800"})], id="1")
    for name in FORMATS:
        write([run], tmp_path / f"{name}.jsonl", name)
        assert read(tmp_path / f"{name}.jsonl")[0].calls[0].name == "f"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"id": "caf\xe9", "calls": []}\n', "row 1: not UTF-8"),
        (b'{"id": "1", "calls": []}\n{"id": "caf\xe9", "calls": []}', "row 2: not UTF-8"),
        (b"[" * 100_000, "row 1: nested more than 100 deep"),
        (b'{"calls": [{"name": "f", "args": {"x": ' + b"[" * 300 + b"]" * 300 + b"}}]}", "nested more than 100 deep"),
        (b'{"calls": [{"name": "f", "args": {"x": ' + b"9" * 5000 + b"}}]}", "a number with too many digits"),
        (b'{"calls": [5]}', "not a record of the format assay (call 0 is of type int)"),
        (b'{"calls": [{"name": "f", "turn": "x"}]}', "not a record of the format assay (turn is of type str)"),
        (b'{"id": "1", "messages": [{"role": "assistant", "tool_calls": ["x"]}]}', "not a record of the format openai"),
    ],
    ids=["latin", "latin-below", "open", "deep", "digits", "calls", "turn", "tool-calls"],
)
def test_what_is_wrong_with_a_line_is_said(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(content)
    with pytest.raises(InputError) as caught:
        read(tmp_path / "a.jsonl")
    assert message in str(caught.value)
    if content.startswith(b"{"):
        with pytest.raises(InputError) as streamed:
            score_stream(tmp_path / "a.jsonl", {})
        assert message in str(streamed.value)


def test_arguments_that_nobody_can_read_stay_as_they_were_recorded() -> None:
    for raw, why in (
        ("[" * 500 + "]" * 500, "nested more than 100 deep"),
        ("9" * 5000, "a number with too many digits"),
    ):
        call = {"id": "1", "function": {"name": "f", "arguments": raw}}
        (run,) = FORMATS["openai"].read([{"role": "assistant", "tool_calls": [call]}])
        assert (run.calls[0].args, run.calls[0].raw_args, run.calls[0].parse_error) == (
            {},
            raw,
            f"the arguments are {why}",
        )


@pytest.mark.parametrize(
    ("record", "name"),
    [
        ({"id": "1", "messages": []}, "openai"),
        ({"id": "1", "contents": []}, "gemini"),
        ({"id": "1", "conversations": []}, "sharegpt"),
        ({"id": "1", "text": "I can't."}, "tags"),
        ({"input": "q", "output": [{"type": "message", "role": "assistant", "content": "I can't."}]}, "responses"),
    ],
)
def test_a_run_that_called_nothing_is_a_run(record: Any, name: str) -> None:
    assert detect(record).name == name
    (run,) = FORMATS[name].read(record)
    assert run.calls == []


def test_a_run_that_called_nothing_has_the_format_of_its_file(tmp_path: Path) -> None:
    lines = [{"id": "1", "text": 'Action: f\nAction Input: {"x": 1}'}, {"id": "2", "text": "Final words"}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert [len(run.calls) for run in read(tmp_path / "a.jsonl")] == [1, 0]
    assert detect(lines[1], before=FORMATS["react"]).name == "react"


# --- References and rules


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ({"calls": [{"name": "a", "args": [1]}]}, "call 0 of the reference: the arguments are of type list"),
        ({"calls": [{"name": 5}]}, "call 0 of the reference has no name"),
        ({"optional": [2]}, "the optional call 2; expected calls from 0 to 1"),
        ({"edges": [{"producer": 0, "consumer": 0, "parameter": "x"}]}, "joins call 0 with itself"),
        ({"edges": [{"producer": "0", "consumer": 1, "parameter": "x"}]}, "an edge that can't be read"),
        ({"edges": [{"producer": 0, "consumer": 1, "parameter": "x", "path": "$.[x"}]}, "an edge with path $.[x"),
        ({"matchers": {"a.x": "fuzzy"}}, "matcher kind 'fuzzy'"),
        ({"matchers": ["a"]}, "matchers that aren't an object"),
        ({"query": ["q"]}, "query of type list"),
    ],
)
def test_wrong_parts_of_a_reference_are_named(tmp_path: Path, field: dict[str, Any], message: str) -> None:
    good = {"id": "1", "structure": "dag", "calls": [{"name": "a", "args": {}}, {"name": "b", "args": {"x": 1}}]}
    (tmp_path / "gold.jsonl").write_text(json.dumps({**good, **field}))
    with pytest.raises(InputError) as caught:
        read_gold(tmp_path / "gold.jsonl")
    assert f"gold.jsonl, row 1: {'gold ' if message.startswith('the optional') else ''}" in str(caught.value)
    assert message in str(caught.value)


def test_arguments_of_a_reference_may_be_json_in_a_text() -> None:
    gold = gold_from_dict({"structure": "parallel", "calls": [{"name": "a", "args": '{"x": 1}'}]})
    assert gold.calls[0].args == {"x": 1}


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"kind": "regex", "pattern": "("}, "matcher regex with pattern (; expected pattern, a regular expression"),
        ({"kind": "number", "rtol": "x"}, "matcher number with rtol x; expected rtol and atol"),
        ({"kind": "number", "atol": -1}, "matcher number with atol -1"),
        ({"kind": "datetime", "tz": "Mars/Phobos"}, "matcher datetime with tz Mars/Phobos"),
        ({"kind": "datetime", "tz": "../etc"}, "matcher datetime with tz ../etc"),
        ({"kind": "text", "min_ratio": 2}, "matcher text with min_ratio 2"),
        ({"kind": "semantic", "min_cos": "a"}, "matcher semantic with min_cos a"),
        ({"kind": "any_of", "values": 5}, "matcher any_of with values 5"),
        ({"kind": "geo", "tol_km": -1}, "matcher geo with tol_km -1"),
        ({"kind": "custom", "function": "f"}, "matcher custom with function f"),
        ({"kind": "exact", "strict": 1}, "matcher exact with strict; expected no option"),
        (5, "matcher kind '5'"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_when_it_is_made(rule: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        make_match(rule)
    assert message in str(caught.value)


def test_rules_look_at_any_value() -> None:
    values = [*WRONG, 10**400, "12,13", [1, 2]]
    for kind in ("exact", "number", "date", "datetime", "casefold", "text", "set", "any", "json_subset", "geo"):
        match = make_match({"kind": kind, "rtol": 0.1} if kind == "number" else kind)
        assert all(match(got, want) in (True, False) for got in values for want in values)
    with pytest.raises(InputError, match=r"the reference '\(' is no regular expression"):
        make_match("regex")("x", "(")
    assert Matcher({"f.x": "geo"}).args_equal("f", {"x": 5}, {"x": 5}) is False


# --- Streams


def lines(*records: Any, end: str = "\n") -> bytes:
    return ("\n".join(json.dumps(record) for record in records) + end).encode()


FIRST = {"id": "1", "calls": [{"name": "f", "args": {"x": 1}}]}
OWN = {"f": Gold(make_calls([("f", {"x": 1})]), id="1")}


def test_a_stream_leaves_a_cut_line_out_and_names_a_wrong_one(tmp_path: Path) -> None:
    golds = {"1": OWN["f"]}
    (tmp_path / "a.jsonl").write_bytes(lines(FIRST) + b'{"id": "1", "ca')
    with pytest.warns(UserWarning, match="the last line is cut off and left out"):
        assert score_stream(tmp_path / "a.jsonl", golds).runs == 1
    (tmp_path / "a.jsonl").write_bytes(lines(FIRST) + b'{"id": "1", "ca\n' + lines(FIRST))
    for count in (1, 2):
        with pytest.raises(InputError, match="row 2: not JSON"):
            score_stream(tmp_path / "a.jsonl", golds, n_jobs=count)


def test_the_row_of_a_fault_is_counted_over_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.tooluse import streaming

    monkeypatch.setattr(streaming, "BLOCK_BYTES", 400)
    good = lines(*[FIRST] * 100)
    for name, packed in (("a.jsonl", bytes), ("a.jsonl.gz", gzip.compress)):
        (tmp_path / name).write_bytes(packed(good + b'{"id": "1", "calls": [5]}\n' + good))
        with pytest.raises(InputError, match="row 101: not a record"):
            score_stream(tmp_path / name, {"1": OWN["f"]})
        (tmp_path / name).write_bytes(packed(good))
        assert score_stream(tmp_path / name, {"1": OWN["f"]}).runs == 100


def test_a_stream_takes_what_the_whole_takes(tmp_path: Path) -> None:
    golds = {"1": OWN["f"], "2": Gold([], id="2")}
    failed = {**FIRST, "id": "1", "error": "timeout", "calls": []}
    loose = {"id": "1", "calls": [{"name": "f", "args": {"x": 1, "y": 2}}]}
    (tmp_path / "a.jsonl").write_bytes(lines(failed, loose, {**FIRST, "id": "stranger"}))
    with pytest.raises(InputError, match="no reference for the runs 'stranger'"):
        score_stream(tmp_path / "a.jsonl", golds)
    totals = score_stream(tmp_path / "a.jsonl", golds, partial=True, matcher=Matcher(arguments="superset"))
    assert (totals.runs, totals.errors, totals.estimates()["call_f1"].mean) == (1, 1, 1.0)
    (tmp_path / "a.jsonl").write_bytes(lines(FIRST))
    with pytest.raises(InputError, match="no run for the references '2'"):
        score_stream(tmp_path / "a.jsonl", golds)
    samples = {"eval": {}, "samples": [{"id": "1", "epoch": n, "messages": []} for n in (1, 2, 3)]}
    (tmp_path / "a.jsonl").write_bytes(lines(samples))
    assert score_stream(tmp_path / "a.jsonl", {"1": OWN["f"]}).runs == 3


def test_a_reference_that_a_record_brings_is_looked_at(tmp_path: Path) -> None:
    for reference, message in (("x", "a reference of type str"), ([5], "call 0 of the reference has no name")):
        (tmp_path / "a.jsonl").write_bytes(lines({**FIRST, "reference": reference}))
        with pytest.raises(InputError, match=f"row 1: {message}"):
            score_stream(tmp_path / "a.jsonl")


@pytest.mark.parametrize("on", ["dask", "ray"])
def test_a_cluster_scores_as_this_process_does(on: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("distributed" if on == "dask" else on)
    wrong = {**FIRST, "calls": [{"name": "f", "args": {"x": 2}}]}
    (tmp_path / "a.jsonl").write_bytes(lines(*[FIRST, wrong] * 50))
    (tmp_path / "gold.jsonl").write_text(json.dumps(gold_to_dict(OWN["f"])))
    command(
        "score", tmp_path / "a.jsonl", "--gold", tmp_path / "gold.jsonl", "--stream", "--jobs", 2, "--on", on, "--json"
    )
    found = json.loads(capsys.readouterr().out)
    assert (found["runs"], found["metrics"]["call_f1"]["mean"]) == (100, 0.5)


# --- Commands


def command(*words: Any) -> None:
    app([str(word) for word in words], exit_on_error=False, print_error=False, result_action="return_value")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write([RUN], tmp_path / "runs.jsonl")
    (tmp_path / "gold.jsonl").write_text(json.dumps(gold_to_dict(GOLD)) + "\n")
    (tmp_path / "none.json").write_text("[]")
    (tmp_path / "rules.json").write_text('{"x": "exact"}')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def given(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_runs_and_references_come_through_a_pipe(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = (here / "runs.jsonl").read_bytes()
    for more in ((), ("--stream",), ("--stream", "--jobs", "2")):
        given(monkeypatch, data)
        command("score", "-", "--gold", "gold.jsonl", "--fail-under", "call_f1=1", *more)
        assert "call_f1" in capsys.readouterr().out
    given(monkeypatch, (here / "gold.jsonl").read_bytes())
    command("score", "runs.jsonl", "--gold", "-", "--fail-under", "call_f1=1")
    given(monkeypatch, (here / "gold.jsonl").read_bytes())
    command("audit", "-", "-q")
    given(monkeypatch, b"")
    with pytest.raises(InputError, match="-: nothing to read"):
        command("score", "-", "--gold", "gold.jsonl", "--stream")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("score", "-", "--gold", "-"), "runs and --gold are both standard input"),
        (
            ("score", "runs.jsonl", "--gold", "gold.jsonl", "--fail-under", "call_f1=nan"),
            "--fail-under is 'call_f1=nan'",
        ),
        (("score", "runs.jsonl", "--gold", "gold.jsonl", "--jobs", "0"), "--jobs is 0"),
        (("score", "runs.jsonl", "--gold", "gold.jsonl", "--on", "mars"), "on is 'mars'"),
        (("score", "runs.jsonl", "--gold", "gold.jsonl", "--matchers", "rules.json"), "rules.json: a rule for 'x'"),
        (("score", "runs.jsonl", "--gold", "gold.jsonl", "--stream", "--profile", "official"), "--profile is official"),
        (
            ("score", "runs.jsonl", "--gold", "gold.jsonl", "--stream", "--junit", "x.xml"),
            "--stream keeps no row a run",
        ),
        (("score", "runs.jsonl", "--gold", "gold.jsonl", "--stream", "--format", "xml"), "format 'xml'"),
        (("score", "none.json", "--gold", "gold.jsonl"), "there are no runs"),
        (("score", "runs.jsonl", "--gold", "none.json", "--partial"), "are runs, there are no references"),
        (("convert", "runs.jsonl", "out.csv"), "out.csv: unknown ending"),
        (("tasks", "make", "t.txt"), "t.txt: unknown ending"),
        (("tasks", "make", "t.jsonl", "--seed", "-1"), "--seed is -1"),
        (("run", "gold.jsonl", "-o", "o.jsonl.gz"), "o.jsonl.gz: unknown ending"),
        (("run", "none.json", "-o", "o.jsonl", "--agent", "select"), "there are no tasks"),
        (
            ("run", "gold.jsonl", "-o", "o.jsonl", "--agent", "native"),
            "the agent native needs an endpoint's tool calling",
        ),
        (("run", "gold.jsonl", "-o", "o.jsonl", "--agent", "select", "--max-turns", "0"), "--max-turns is 0"),
        (("run", "gold.jsonl", "-o", "o.jsonl", "--temperature", "nan"), "--temperature is nan"),
        (("run", "gold.jsonl", "-o", "o.jsonl", "--max-tokens", "0"), "--max-tokens is 0"),
        (("run", "gold.jsonl", "-o", "o.jsonl", "--base-url", "localhost"), "--base-url is 'localhost'"),
        (("run", "gold.jsonl", "-o", "o.jsonl", "--base-url", "http://x", "--timeout", "0"), "--timeout is 0"),
        (("judge", "runs.jsonl", "--gold", "gold.jsonl", "--concurrency", "0"), "--concurrency is 0"),
        (("world", "serve", "--mcp", "--http", "--port", "0"), "--port is 0"),
    ],
)
def test_wrong_words_are_told(here: Path, words: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError) as caught:
        command(*words)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "job",
    [jobs.score, jobs.diff, jobs.convert, jobs.audit, jobs.world_list, jobs.world_call, jobs.world_serve,
     jobs.tasks_make, jobs.run, jobs.judge, jobs.ModelOptions],
    ids=lambda job: job.__name__,
)  # fmt: skip
def test_every_option_says_what_it_is(job: Any) -> None:
    told = re.findall(
        r"^    ([a-z_]+)\n        \S", inspect.cleandoc(job.__doc__).replace("\n", "\n    "), re.MULTILINE
    )
    assert told == [name for name in inspect.signature(job).parameters if name not in ("model", "reporting")] or (
        job is jobs.ModelOptions and told == list(inspect.signature(job).parameters)
    )


# --- Live runs


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>busy</html>", b"null", b"[]", b'"x"', b"{}", b'{"choices": []}', b'{"choices": [null]}',
     b'{"choices": {"a": 1}}', b'{"choices": [{"message": null}]}',
     b'{"choices": [{"message": {"tool_calls": ["x"]}}]}',
     b'{"choices": [{"message": {"tool_calls": [{"function": null}]}}]}'],
)  # fmt: skip
def test_an_answer_that_is_no_completion_is_the_service_s_fault(body: bytes) -> None:
    with pytest.raises(ServiceError, match="the endpoint's answer is no chat completion"):
        read_completion(body)


def test_a_completion_is_read_as_servers_write_it() -> None:
    call = {"id": 7, "function": {"name": "f", "arguments": {"x": 1}}}
    message = {"content": [{"type": "text", "text": "so"}], "tool_calls": [call, {"type": "custom"}]}
    found = {"choices": [{"message": message}], "usage": {"prompt_tokens": "9", "completion_tokens": 2}}
    assert read_completion(json.dumps(found).encode()) == Reply("so", [("7", "f", {"x": 1})], {"output": 2}, "")


def test_one_odd_answer_leaves_the_other_runs_alone() -> None:
    from tests.tooluse.server import serving

    tasks = make_tasks((2, 3), "sequential", "simple", per_n=2, seed=5, world=WORLD)
    odd = tasks[1].query

    def answer(body: dict[str, Any]) -> Any:
        return b"<html>busy</html>" if body["messages"][0]["content"] == odd else {"content": "Done."}

    from assay.tooluse.clients import EndpointClient

    with serving(answer) as (url, _):
        runs = evaluate(EndpointClient(url, "m", retries=0), tasks)
    assert [run.final_answer for run in runs] == ["Done.", None, "Done.", "Done."]
    assert runs[1].error == "the endpoint's answer is no chat completion: <html>busy</html>"


@pytest.mark.parametrize("status", [429, 500, "drop", "half"])
def test_a_failing_service_is_asked_again_before_the_run_is_an_error(status: Any) -> None:
    from assay.tooluse.clients import EndpointClient
    from tests.tooluse.server import serving

    asked = 0

    def answer(body: dict[str, Any]) -> Any:
        nonlocal asked
        asked += 1
        return status if asked == 1 else {"content": "Done."}

    with serving(answer) as (url, _):
        (run,) = evaluate(EndpointClient(url, "m", retries=1), [GOLD])
        assert (run.error, run.final_answer, asked) == (None, "Done.", 2)
        asked = 0
        (run,) = evaluate(EndpointClient(url, "m", retries=0), [GOLD])
    assert run.error is not None
    assert run.calls == []


def test_a_service_that_hangs_is_given_up() -> None:
    from assay.tooluse.clients import EndpointClient
    from tests.tooluse.server import serving

    waits = threading.Event()
    with serving(lambda body: waits.wait(20) and {}) as (url, _):
        (run,) = evaluate(EndpointClient(url, "m", retries=0, timeout=0.3), [GOLD])
        waits.set()
    assert run.error == "APITimeoutError: Request timed out."


def test_an_error_of_the_program_comes_as_itself() -> None:
    def broken(messages: Any, tools: Any) -> Any:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        evaluate(broken, [GOLD])
    with pytest.raises(InputError, match="the task '' has no query"):
        evaluate(broken, [Gold([])])


def test_a_full_disk_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(tmp_path / "runs.jsonl")
    kept.append(RUN)
    before = kept.path.read_bytes()
    write_all = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: write_all(handle, data[:10]))
    with pytest.raises(AssayError, match=r"runs\.jsonl: No space left on device; finished runs are kept"):
        kept.append(RUN)
    monkeypatch.undo()
    assert kept.path.read_bytes() == before
    kept.append(Trajectory(RUN.calls, id="2"))
    assert len(kept.load()) == 2


@pytest.mark.parametrize("content", ["hello", "hello\n", '{\n "a": 1\n}', '{"a": 1}'])
def test_a_file_of_something_else_is_not_gone_on_with(tmp_path: Path, content: str) -> None:
    (tmp_path / "mine.jsonl").write_text(content)
    if content == '{"a": 1}':
        content = content + "\n"
        (tmp_path / "mine.jsonl").write_text(content)
    with pytest.raises(InputError, match=r"mine\.jsonl, row 1: not a finished run"):
        Kept(tmp_path / "mine.jsonl").load()
    assert (tmp_path / "mine.jsonl").read_text() == content


def test_a_local_model_answers_one_at_a_time_and_stops_when_told(monkeypatch: pytest.MonkeyPatch) -> None:
    client = LocalClient("random-llama")
    under_way = most = answered = 0
    begun, go_on = threading.Event(), threading.Event()

    def generate(messages: Any) -> Reply:
        nonlocal under_way, most, answered
        under_way += 1
        most = max(most, under_way)
        begun.set()
        go_on.wait(10)
        under_way -= 1
        answered += 1
        return Reply("x")

    monkeypatch.setattr(client, "_generate", generate)

    async def stopped() -> None:
        every = [asyncio.create_task(client.complete([])) for _ in range(4)]
        await asyncio.to_thread(begun.wait, 10)
        for one in every:
            one.cancel()
        await asyncio.gather(*every, return_exceptions=True)
        go_on.set()

    asyncio.run(stopped())
    assert (most, answered) == (1, 1)


@pytest.mark.parametrize("score", ["NaN", "Infinity", '"none"'])
def test_a_judgement_without_a_number_is_missing(score: str) -> None:
    (found,) = judge_many(lambda messages, tools: f'{{"score": {score}}}', [RUN], [GOLD])
    assert math.isnan(found.value)


def test_a_damaged_judgement_in_the_cache_is_asked_again(tmp_path: Path) -> None:
    def judge(messages: Any, tools: Any) -> str:
        return '{"score": 5}'

    judge_many(judge, [RUN], [GOLD], cache=tmp_path)
    (file,) = tmp_path.glob("*.json")
    for damaged in ("", "[", "5", "[]", "[5]"):
        file.write_text(damaged)
        assert judge_many(judge, [RUN], [GOLD], cache=tmp_path)[0].value == 5
    assert json.loads(file.read_text()) == ['{"score": 5}']
