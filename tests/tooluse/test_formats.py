"""Reading and writing every format: round trips, foreign spellings, and what is wrong with a recording."""

from __future__ import annotations

import copy
import gzip
import json
import math
import warnings
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.core.errors import InputError
from assay.tooluse.formats import FORMATS, detect
from assay.tooluse.reading import (
    gold_from_dict,
    gold_to_dict,
    iterate,
    read,
    read_gold,
    read_tools,
    tool_from_dict,
    write,
)
from assay.tooluse.scoring import score
from assay.tooluse.trajectories import Call, Edge, Gold, Trajectory

RUN = Trajectory(
    calls=[
        Call("locate", {"city": "Zürich", "n": 3}, "c0", 0, 0, 0, result={"lat": 47.37, "names": ["a", "b"]}),
        Call("locate", {"city": "Bern"}, "c1", 1, 0, 0, result='not "found"'),
        Call(
            "zone",
            {"lat": 47.37, "deep": {"x": [1, None, True]}},
            "c2",
            2,
            1,
            None,
            result={"error": "no"},
            is_error=True,
        ),
        Call("zone", {}, "c3", 3, 2, None, result="Europe/Zurich"),
    ],
    id="task-1",
    query="Which zone is Zürich in?",
    final_answer="Europe/Zurich",
    trial=2,
)
NO_IDS = {"bfcl", "react", "traject"}
ALONE = {"react", "traject"}
NO_RESULTS = {"bfcl"}


def as_held_by(name: str, run: Trajectory) -> Trajectory:
    """What a format can hold of a run."""
    run = copy.deepcopy(run)
    for call in run.calls:
        if name in NO_IDS:
            call.id = None
        if name in ALONE:
            call.turn, call.parallel_group = call.index, None
        if name in NO_RESULTS:
            call.result, call.is_error = None, False
        if name == "traject":
            call.required = tuple(call.args)
    if name in NO_RESULTS:
        run.query, run.final_answer = "", None
    return run


@pytest.mark.parametrize("name", list(FORMATS))
def test_what_is_written_is_read_again(name: str, tmp_path: Path) -> None:
    expected = as_held_by(name, RUN)
    write([expected, replace(expected, id="task-2")], tmp_path / "runs.jsonl", name)
    assert read(tmp_path / "runs.jsonl") == [expected, replace(expected, id="task-2")]
    assert read(tmp_path / "runs.jsonl", name)[0] == expected


@pytest.mark.parametrize("name", ["otel", "openinference", "assay"])
def test_times_are_kept_where_the_format_has_them(name: str, tmp_path: Path) -> None:
    run = copy.deepcopy(RUN)
    for call in run.calls:
        call.t_start, call.t_end = 1.7e9 + call.index, 1.7e9 + call.index + 0.5
    write([run], tmp_path / "runs.jsonl", name)
    assert read(tmp_path / "runs.jsonl") == [run]


@pytest.mark.parametrize("name", list(FORMATS))
def test_every_record_is_recognised_as_its_own_format(name: str) -> None:
    assert detect(FORMATS[name].write(RUN)).name == name


def test_the_same_run_scores_identically_in_every_format(tmp_path: Path) -> None:
    run = as_held_by("react", RUN)
    gold = Gold(
        [
            replace(RUN.calls[0], turn=0, parallel_group=None),
            replace(RUN.calls[3], index=1, turn=1, args={"lat": 47.37}),
        ],
        structure="sequential",
        id="task-1",
        query=RUN.query,
        edges=(Edge(0, 1, "lat", "$.lat"),),
        facts=("Europe/Zurich",),
    )
    found = {}
    for name in FORMATS:
        if name in NO_RESULTS:
            continue
        write([run], tmp_path / f"{name}.jsonl", name)
        (again,) = read(tmp_path / f"{name}.jsonl")
        scored = score(again, gold)
        found[name] = (
            {key: value for key, value in scored.values.items() if not math.isnan(value)},
            scored.labels,
            scored.alignment,
        )
    assert len(found) == 13
    assert all(one == found["assay"] for one in found.values())


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"messages": [{"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}]}, "openai"),
        ({"output": [{"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}]}, "responses"),
        (
            [{"role": "assistant", "content": [{"type": "mcp_tool_use", "id": "1", "name": "f", "input": {}}]}],
            "anthropic",
        ),
        (
            {"candidates": [{"content": {"role": "model", "parts": [{"function_call": {"name": "f", "args": {}}}]}}]},
            "gemini",
        ),
        (
            {
                "messages": [
                    {
                        "lc": 1,
                        "type": "constructor",
                        "id": ["langchain", "schema", "messages", "AIMessage"],
                        "kwargs": {"content": "", "tool_calls": [{"name": "f", "args": {}, "id": "1"}]},
                    }
                ]
            },
            "langchain",
        ),
        (
            {"messages": [{"type": "ai", "data": {"content": "", "tool_calls": [{"name": "f", "args": {}}]}}]},
            "langchain",
        ),
        (
            {
                "trace_id": "t",
                "attributes": {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "f"},
            },
            "otel",
        ),
        (
            {
                "traceId": "t",
                "attributes": [{"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}}],
                "events": [
                    {
                        "name": "gen_ai.choice",
                        "attributes": {
                            "message": '{"tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]}'
                        },
                    }
                ],
            },
            "otel",
        ),
        (
            {
                "context": {"trace_id": "t"},
                "attributes": {"openinference.span.kind": "TOOL", "tool.name": "f", "input.value": "{}"},
            },
            "openinference",
        ),
        ({"id": "1", "result": "[f()]"}, "bfcl"),
        ({"id": "1", "result": [[["f()"]]]}, "bfcl"),
        ({"text": "Thought: hm\nAction: f\nAction Input: {}\nObservation: 1"}, "react"),
        ({"tool_list": [{"tool name": "f", "required_parameters": []}], "query": "q"}, "traject"),
        (
            {
                "epoch": 1,
                "id": "1",
                "messages": [{"role": "assistant", "tool_calls": [{"function": "f", "arguments": {}}]}],
            },
            "inspect",
        ),
    ],
)
def test_other_spellings(record: Any, expected: str) -> None:
    known = detect(record)
    assert known.name == expected
    (run,) = known.read(record)
    assert [(call.name, call.args) for call in run.calls] == [("f", {})]


@pytest.mark.parametrize("result", ["text", {"result": "x"}, {"output": "x"}, ["a"]])
@pytest.mark.parametrize("name", [name for name in FORMATS if name not in NO_RESULTS])
def test_results_of_every_shape_come_back(name: str, result: Any) -> None:
    run = Trajectory([Call("f", {}, result=result)], id="1")
    (again,) = FORMATS[name].read(FORMATS[name].write(run))
    assert again.calls[0].result == result


def test_tags_of_search_and_python_are_tools() -> None:
    text = "<think>x</think><search>zone of Zürich</search><information>UTC+1</information><python>1+1</python>"
    (run,) = FORMATS["tags"].read({"text": text + "<result>2</result> It is 2."})
    assert [(call.name, call.args, call.result) for call in run.calls] == [
        ("search", {"query": "zone of Zürich"}, "UTC+1"),
        ("python", {"code": "1+1"}, "2"),
    ]
    assert run.final_answer == "It is 2."


def test_react_brackets_and_finish() -> None:
    (run,) = FORMATS["react"].read({"text": "Thought: a\nAction: Search[Rome]\nObservation: b\nAction: Finish[Rome]"})
    assert [(call.name, call.args, call.result) for call in run.calls] == [("Search", {"input": "Rome"}, "b")]
    assert run.final_answer == "Rome"


def test_bfcl_python_calls() -> None:
    (run,) = FORMATS["bfcl"].read({"id": "1", "result": "[a.f(x=1, y=['b']), g(z=-2.5)]"})
    assert [(call.name, call.args, call.parallel_group) for call in run.calls] == [
        ("a.f", {"x": 1, "y": ["b"]}, 0),
        ("g", {"z": -2.5}, 0),
    ]


def chat(*calls: Any, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "assistant", "tool_calls": list(calls)}, *more.get("after", ())]}


def call(arguments: Any, *, id: str | None = None, name: Any = "f") -> dict[str, Any]:
    return {"id": id, "function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("{", "the arguments are not JSON"),
        ("[1]", "the arguments are of type list"),
        (5, "the arguments are of type int"),
    ],
)
def test_arguments_that_are_no_object_are_kept_and_flagged(arguments: Any, reason: str) -> None:
    (run,) = FORMATS["openai"].read(chat(call(arguments)))
    assert run.calls[0].args == {}
    assert run.calls[0].raw_args == str(arguments)
    assert run.calls[0].parse_error == reason
    assert run.notes == [f"call 0: {reason}"]


def test_empty_arguments_are_no_arguments() -> None:
    (run,) = FORMATS["openai"].read(chat(call("")))
    assert (run.calls[0].args, run.calls[0].parse_error) == ({}, None)


def test_dangling_calls_and_results_and_ids_used_twice_are_noted() -> None:
    after = [
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "z", "content": "2"},
    ]
    (run,) = FORMATS["openai"].read(chat(call("{}", id="a"), call("{}", id="a"), call("{}", id="b"), after=after))
    assert run.notes == [
        "the call id a is used twice",
        "a result without call (z): dangling",
        "call 0 (f) has no result: dangling",
        "call 2 (f) has no result: dangling",
    ]


def test_names_that_are_not_text_are_noted() -> None:
    (run,) = FORMATS["openai"].read(chat(call("{}", name=5)))
    assert (run.calls[0].name, run.notes) == ("5", ["call 0 has a name that is not text"])


def test_large_numbers_stay_exact_and_nan_is_read(tmp_path: Path) -> None:
    big = 123456789012345678901234567890
    file = tmp_path / "runs.jsonl"
    file.write_text(
        f'{{"id": "1", "calls": [{{"name": "f", "args": {{"n": {big}, "deep": [{{"m": -{big}}}]}}}}]}}\n'
        '{"id": "2", "calls": [{"name": "f", "args": {"n": NaN, "m": Infinity}}]}\n'
        f'{{"id": "3", "messages": [{{"role": "assistant", "tool_calls": [{{"function": {{"name": "f", '
        f'"arguments": "{{\\"n\\": {big}}}"}}}}]}}]}}\n'
    )
    first, second, third = read(file)
    assert first.calls[0].args == {"n": big, "deep": [{"m": -big}]}
    assert math.isnan(second.calls[0].args["n"])
    assert third.calls[0].args == {"n": big}
    write([first], tmp_path / "again.jsonl")
    assert read(tmp_path / "again.jsonl")[0].calls == first.calls


def test_a_cut_off_last_line_is_left_out_with_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    file.write_text('{"id": "1", "calls": []}\n{"id": "2", "calls": []}\n{"id": "3", "cal')
    with pytest.warns(UserWarning, match=r"row 3: the last line is cut off"):
        assert [run.id for run in read(file)] == ["1", "2"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"id": 1, "calls": []}\n{"x\n{"id": 2, "calls": []}\n', "a.jsonl, row 2: not JSON"),
        (
            "a.jsonl",
            '{"mesages": [], "id": 1}',
            r"row 1: unknown format, with the keys mesages, id; expected one of: .*openai",
        ),
        ("a.json", "hello", r"a.json, row 1: not JSON"),
        ("a.json", "[1, 2]", "a record of type int"),
        ("a.json", "\n\n", "nothing to read"),
        ("a.json", "", "the file is empty"),
        ("a.txt", "no calls here", "text without calls"),
        ("a.csv", "x", "unknown ending '.csv'"),
        ("a.jsonl", '{"calls": [5]}', "row 1: not a record of the format assay \\(call 0 is of type int\\)"),
        ("a.json", '[{"calls": []}] x', "a.json, row 1: not JSON"),
    ],
)
def test_bad_files_are_named_with_the_row(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        read(tmp_path / name)


def test_a_missing_or_empty_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read(tmp_path / "none.jsonl")
    with pytest.raises(InputError, match="the folder holds no recorded runs"):
        read(tmp_path)


def test_a_damaged_gzip_file_is_named(tmp_path: Path) -> None:
    data = gzip.compress(b'{"id": "1", "calls": []}\n' * 10_000)
    (tmp_path / "a.jsonl.gz").write_bytes(data[:-20])
    with pytest.raises(InputError, match="damaged"):
        read(tmp_path / "a.jsonl.gz")


def test_a_folder_of_mixed_formats_with_byte_order_mark_and_crlf(tmp_path: Path) -> None:
    folder = tmp_path / "läufe 1"
    folder.mkdir()
    (folder / "a.json").write_text(json.dumps(FORMATS["openai"].write(replace(RUN, id="")), indent=2))
    (folder / "b.jsonl").write_bytes(
        b"\xef\xbb\xbf" + json.dumps(FORMATS["anthropic"].write(RUN)).encode() + b"\r\n\r\n"
    )
    with gzip.open(folder / "c.jsonl.gz", "wt") as stream:
        stream.write(json.dumps(FORMATS["gemini"].write(replace(RUN, id=""))) + "\n")
        stream.write(json.dumps(FORMATS["otel"].write(RUN)) + "\n")
    (folder / "d.txt").write_text(FORMATS["react"].write(RUN)["text"])
    (folder / "e.json").write_text(json.dumps([FORMATS["assay"].write(RUN), FORMATS["sharegpt"].write(RUN)]))
    (folder / "f.json").write_text(json.dumps(FORMATS["openai"].write(RUN)["messages"]))
    runs = read(folder)
    assert [run.id for run in runs] == ["a", "task-1", "c", "task-1", "d", "task-1", "task-1", "f"]
    assert all([call.name for call in run.calls] == ["locate", "locate", "zone", "zone"] for run in runs)


def test_packed_inspect_logs(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "log.eval", "w") as archive:
        archive.writestr("header.json", "{}")
        archive.writestr("samples/1_epoch_1.json", json.dumps(FORMATS["inspect"].write(RUN)))
    assert read(tmp_path / "log.eval") == [RUN]


def test_a_whole_inspect_log_in_json(tmp_path: Path) -> None:
    log = {"eval": {"task": "t"}, "samples": [FORMATS["inspect"].write(RUN), FORMATS["inspect"].write(RUN)]}
    (tmp_path / "log.json").write_text(json.dumps(log, indent=1))
    assert read(tmp_path / "log.json") == [RUN, RUN]


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    import tracemalloc

    line = json.dumps(FORMATS["assay"].write(RUN)) + "\n"
    peaks = []
    for count in (2_000, 20_000):
        (tmp_path / "runs.jsonl").write_text(line * count)
        tracemalloc.start()
        assert sum(1 for _ in iterate(tmp_path / "runs.jsonl")) == count
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


def test_references_are_written_and_read_again(tmp_path: Path) -> None:
    gold = Gold(
        RUN.calls,
        structure="dag",
        id="g",
        query="q",
        edges=(Edge(0, 2, "lat", "$.lat"),),
        order=((1, 2),),
        optional=frozenset({3}),
        alternatives=(Gold(RUN.calls[:1], id="other"),),
        matchers={"locate.city": "casefold"},
        difficulty="hard",
        twin_id="t",
        domain="d",
        final_answer="a",
        facts=("x",),
        end_state={"mail": []},
    )
    assert gold_from_dict(gold_to_dict(gold)) == gold
    (tmp_path / "gold.jsonl").write_text(json.dumps(gold_to_dict(gold)))
    assert read_gold(tmp_path / "gold.jsonl") == [gold]


def test_two_references_with_one_id_are_refused(tmp_path: Path) -> None:
    (tmp_path / "gold.jsonl").write_text('{"id": "a", "structure": "parallel", "calls": []}\n' * 2)
    with pytest.raises(InputError, match="two references have the id 'a'"):
        read_gold(tmp_path / "gold.jsonl")


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"structure": "tree", "calls": []}, "structure is 'tree'"),
        ({"structure": "dag"}, "not a reference: it has no calls"),
        (
            {"structure": "dag", "calls": [], "edges": [{"producer": 0}]},
            "an edge with producer; expected producer, consumer, parameter",
        ),
    ],
)
def test_bad_references_are_named_with_the_row(tmp_path: Path, record: Any, message: str) -> None:
    (tmp_path / "gold.jsonl").write_text(json.dumps(record))
    with pytest.raises(InputError, match=f"row 1: {message}"):
        read_gold(tmp_path / "gold.jsonl")


def test_tools_in_every_form(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
    forms = [
        {"type": "function", "function": {"name": "f", "description": "d", "parameters": schema}},
        {"name": "f", "description": "d", "input_schema": schema},
        {"name": "f", "description": "d", "inputSchema": schema},
        {"name": "f", "description": "d", "parameters": schema},
    ]
    assert all(tool_from_dict(form) == tool_from_dict(forms[0]) for form in forms)
    (tmp_path / "tools.json").write_text(json.dumps(forms))
    assert len(read_tools(tmp_path / "tools.json")) == 4
    traject = {
        "tool name": "P: e",
        "tool description": "d",
        "parent tool name": "P",
        "domain name": "Weather",
        "required_parameters": [{"name": "day", "type": "DATE (YYYY-MM-DD)", "default": "2021-01-01"}],
        "optional_parameters": [{"name": "n", "type": "NUMBER", "default": "5"}, {"name": "s", "type": "ENUM"}],
    }
    tool = tool_from_dict(traject)
    assert tool.required == ("day",)
    assert tool.properties["day"]["format"] == "date"
    assert "default" not in tool.properties["day"]
    assert tool.properties["n"] == {"type": "number", "description": "", "default": "5"}
    with pytest.raises(InputError, match="a tool without a name"):
        tool_from_dict({"function": {}})


def test_no_warning_for_a_whole_file(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": "1", "calls": []}')
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(read(tmp_path / "a.jsonl")) == 1
