"""The commands, end to end: inputs of every kind, outputs, statuses and what wrong input is told."""

from __future__ import annotations

import asyncio
import csv
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow.parquet as pq
import pytest

from assay.core.errors import AssayError, InputError
from assay.tooluse.auditing import audit
from assay.tooluse.batch import score_many
from assay.tooluse.clients import LocalClient
from assay.tooluse.formats import FORMATS
from assay.tooluse.jobs import app
from assay.tooluse.reading import gold_to_dict, read, read_gold, write, write_records
from assay.tooluse.resampling import pass_at_k
from assay.tooluse.scripted import wrong_arguments, wrong_names
from assay.tooluse.tasks import make_tasks
from assay.tooluse.trajectories import Gold, Trajectory, make_calls
from tests.tooluse.server import serving

TASKS = make_tasks((2, 3), "sequential", per_n=2, seed=31)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """References, perfect runs in several formats, and runs with one wrong tool each."""
    write_records(map(gold_to_dict, TASKS), tmp_path / "gold.jsonl")
    runs = [task.as_trajectory() for task in TASKS]
    (tmp_path / "runs").mkdir()
    for name, run in zip(
        ("assay", "anthropic", "otel", "openai", "gemini", "langchain", "sharegpt", "tags"), runs, strict=True
    ):
        write([run], tmp_path / "runs" / f"{name} lauf.jsonl", name)
    for run in runs:
        run.calls[-1].name = "no_such_tool"
    write(runs, tmp_path / "wrong.jsonl")
    return tmp_path


def command(*words: Any) -> None:
    app([str(word) for word in words], exit_on_error=False, print_error=False, result_action="return_value")


def told(capsys: pytest.CaptureFixture[str], *words: Any) -> dict[str, Any]:
    command(*words, "--json")
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_folder_of_mixed_formats_is_scored_with_page_table_and_junit(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = told(
        capsys, "score", folder / "runs", "--gold", folder / "gold.jsonl", "-o", folder / "report.html",
        "--junit", folder / "junit.xml", "--fail-under", "call_f1=1",
    )  # fmt: skip
    assert found["runs"] == found["tasks"] == 8
    assert found["structures"] == {"sequential": 8}
    for metric in ("name_em", "call_em", "call_f1", "order_accuracy", "dependency_satisfaction"):
        assert found["metrics"][metric]["mean"] == 1
    assert found["labels"] == {}
    suite = ElementTree.parse(folder / "junit.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("8", "0")
    page = (folder / "report.html").read_text()
    assert "http" not in re.sub(r'content="[^"]*"', "", page).replace("http://www.w3.org", "")
    assert all(task.id in page for task in TASKS)


def test_wrong_runs_fail_below_the_threshold_and_show_their_difference(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(AssayError, match=r"call_f1 0\.\d+ is below 0\.9"):
        command(
            "score", folder / "wrong.jsonl", "--gold", folder / "gold.jsonl", "-o", folder / "rows.csv",
            "--junit", folder / "junit.xml", "--fail-under", "call_f1=0.9,name_f1=0.1",
        )  # fmt: skip
    shown = capsys.readouterr().out
    assert "8 of 8 tasks (8 sequential)" in shown
    assert "8 missing_call, 8 redundant" in shown
    rows = list(csv.DictReader((folder / "rows.csv").open()))
    assert [row["id"] for row in rows] == [task.id for task in TASKS]
    assert {row["first_error"] for row in rows} == {"missing_call"}
    failure = ElementTree.parse(folder / "junit.xml").getroot().find("testcase/failure")
    assert failure is not None
    assert failure.text is not None
    assert "+ no_such_tool(" in failure.text


@pytest.mark.parametrize("name", ["out.json", "out.parquet"])
def test_other_outputs(folder: Path, name: str) -> None:
    command("score", folder / "wrong.jsonl", "--gold", folder / "gold.jsonl", "-o", folder / name, "-q")
    if name.endswith("json"):
        assert len(json.loads((folder / name).read_text())["rows"]) == 8
    else:
        assert pq.read_table(folder / name).num_rows == 8
    with pytest.raises(InputError, match="exists already"):
        command("score", folder / "wrong.jsonl", "--gold", folder / "gold.jsonl", "-o", folder / name)


def test_the_official_profile(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, "score", folder / "wrong.jsonl", "--gold", folder / "gold.jsonl", "--profile", "official")
    assert found["metrics"]["em"]["mean"] == 0
    assert 0.4 < found["metrics"]["inclusion"]["mean"] < 0.7
    assert found["metrics"]["usage"]["mean"] == 1


def test_streamed_scores_are_those_of_the_whole(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = told(capsys, "score", folder / "wrong.jsonl", "--gold", folder / "gold.jsonl")
    stream = told(capsys, "score", folder / "wrong.jsonl", "--gold", folder / "gold.jsonl", "--stream")
    for metric in ("call_f1", "call_precision", "call_recall", "call_em", "name_recall", "name_precision"):
        assert stream["metrics"][metric]["mean"] == pytest.approx(whole["metrics"][metric]["mean"])
    own = [
        {**FORMATS["assay"].write(run), "reference": gold_to_dict(task)}
        for run, task in zip(read(folder / "wrong.jsonl"), TASKS, strict=True)
    ]
    write_records(own * 50, folder / "own.jsonl")
    again = told(capsys, "score", folder / "own.jsonl", "--stream", "--jobs", "2")
    assert again["runs"] == 400
    assert again["metrics"]["call_f1"]["mean"] == pytest.approx(stream["metrics"]["call_f1"]["mean"])


def test_two_sets_are_compared(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [task.as_trajectory() for task in TASKS]
    write(runs, folder / "right.jsonl")
    found = told(capsys, "diff", folder / "right.jsonl", folder / "wrong.jsonl", "--gold", folder / "gold.jsonl")
    assert (found["better"], sorted(found["worse"])) == ([], sorted(task.id for task in TASKS))
    assert found["mcnemar_p"] == pytest.approx(2 * 0.5**8)
    assert found["metrics"]["call_em"]["change"] == -1
    command("diff", folder / "right.jsonl", folder / "wrong.jsonl", "--show", "1")
    assert "+ no_such_tool(" in capsys.readouterr().out


@pytest.mark.parametrize("name", list(FORMATS))
def test_conversion_into_every_format_and_back(folder: Path, name: str) -> None:
    command("convert", folder / "wrong.jsonl", folder / "there.jsonl", "--to", name, "-q")
    command("convert", folder / "there.jsonl", folder / "back.jsonl.gz", "--to", "assay", "-q")
    names = [[call.name for call in run.calls] for run in read(folder / "back.jsonl.gz")]
    assert names == [[call.name for call in run.calls] for run in read(folder / "wrong.jsonl")]


def test_runs_become_references(folder: Path) -> None:
    command("convert", folder / "wrong.jsonl", folder / "as gold.jsonl", "--as-gold", "--structure", "sequential", "-q")
    command("score", folder / "wrong.jsonl", "--gold", folder / "as gold.jsonl", "--fail-under", "call_em=1", "-q")


def test_an_audit_counts_every_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tools = [
        {"tool name": name, "required_parameters": [{"name": "x", "type": "STRING"}],
         "optional_parameters": [{"name": "y", "type": "NUMBER"}], "domain name": domain}
        for name, domain in (("A", "one"), ("A", "two"), ("B", "one"))
    ]  # fmt: skip

    def step(
        name: str, required: dict[str, Any], optional: dict[str, Any], output: str = "", **more: Any
    ) -> dict[str, Any]:
        lists = [[{"name": k, "value": v} for k, v in one.items()] for one in (required, optional)]
        return {"tool name": name, "required parameters": lists[0], "optional parameters": lists[1],
                "executed_output": output, **more}  # fmt: skip

    data = [
        {
            "query": "Find alpha",
            "sequence_name": "s",
            "tool list": [
                step("A", {"x": "alpha"}, {}, "gives 4711"),
                step("B", {}, {"x": "4711"}),
                step("B", {"x": "alpha"}, {"z": " "}),
                step("C", {}, {}, execution_status="failed"),
                step("B", {"x": "error: the service was not found"}, {"y": float("nan")}),
                step("B", {"x": "alpha"}, {"z": " "}),
            ],
        },
        {"query": "Nothing", "tool list": []},
    ]
    (tmp_path / "tools.json").write_text(json.dumps(tools))
    (tmp_path / "data.json").write_text(json.dumps(data))
    with pytest.raises(AssayError, match=r"\d+ faults of \d+ kinds: tool_name_repeated"):
        command("audit", tmp_path)
    assert "! wrong_bucket" in capsys.readouterr().out
    counts = {name: one.count for name, one in audit(tmp_path).findings.items()}
    expected = {
        "tools": 3, "distinct_tool_names": 2, "tool_name_repeated": 1, "tool_name_across_domains": 1,
        "empty_reference": 1, "repeats_a_tool": 1, "repeats_a_call": 1, "failed_step": 1, "unknown_tool": 1,
        "wrong_bucket": 1, "undeclared_parameter": 2, "missing_required": 0, "blank_value": 2, "error_as_value": 1,
        "not_a_number": 1, "later_step": 5, "later_without_arguments": 1, "later_all_in_query": 2,
        "later_true_dependency": 1, "official_inclusion_below_one": 1,
    }  # fmt: skip
    assert {name: counts[name] for name in expected} == expected


def test_an_audit_of_good_tasks_passes(folder: Path) -> None:
    command("audit", folder / "gold.jsonl", "-q")


def test_the_world_is_listed_called_and_defined(capsys: pytest.CaptureFixture[str]) -> None:
    command("world", "list", "astronomy")
    assert "sunrise_at" in capsys.readouterr().out
    command("world", "call", "convert_on_date", "amount=100", "source=EUR", "target=USD", "date=2020-01-02")
    assert json.loads(capsys.readouterr().out) == {"amount": 111.93}
    command("world", "call", "timezone_at", '{"lat": -33.86, "lon": 151.2}')
    assert json.loads(capsys.readouterr().out) == {"timezone": "Australia/Sydney"}
    command("world", "serve", "--openai-tools")
    assert len(json.loads(capsys.readouterr().out)) >= 72


def test_a_live_run_against_an_endpoint_is_kept_scored_and_judged(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    by_query = {task.query: task for task in TASKS}

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        task = by_query.get(body["messages"][0]["content"])
        if task is None:
            return {"content": '{"score": 7}'}
        turn = sum(message["role"] == "tool" for message in body["messages"])
        if turn == len(task.calls):
            return {"content": "Done."}
        function = {"name": task.calls[turn].name, "arguments": json.dumps(task.calls[turn].args)}
        return {"content": None, "tool_calls": [{"id": f"c{turn}", "type": "function", "function": function}]}

    out = folder / "live.jsonl"
    with serving(answer) as (url, requests):
        words = ("run", folder / "gold.jsonl", "-o", out, "--base-url", url, "--model", "m", "--trials", "2")
        assert told(capsys, *words)["runs"] == 16
        asked = len(requests)
        assert told(capsys, *words)["errors"] == 0
        assert len(requests) == asked
        judged = told(capsys, "judge", out, "--gold", folder / "gold.jsonl", "--base-url", url, "--model", "j",
                      "-o", folder / "judged.jsonl")  # fmt: skip
    assert (judged["judgements"], judged["missing"], judged["mean"]) == (16, 0, 7)
    assert json.loads((folder / "judged.jsonl").read_text().splitlines()[0])["judge"] == "j"
    found = told(capsys, "score", out, "--gold", folder / "gold.jsonl", "--fail-under", "call_em=1")
    assert found["runs"] == 16
    with pytest.raises(InputError, match="was made with other settings"):
        command(*words, "--temperature", "1")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("score", "none.jsonl", "--gold", "gold.jsonl"), "none.jsonl: no such file"),
        (("score", "runs"), "--gold is missing"),
        (("score", "wrong.jsonl", "--gold", "gold.jsonl", "-o", "x.pdf"), "unknown ending; expected one of: .html"),
        (("score", "wrong.jsonl", "--gold", "gold.jsonl", "--fail-under", "f1"), "--fail-under is 'f1'"),
        (
            ("score", "wrong.jsonl", "--gold", "gold.jsonl", "--fail-under", "f1=1"),
            "metric 'f1'; expected one of: name_em",
        ),
        (("score", "wrong.jsonl", "--gold", "gold.jsonl", "--format", "xml"), "format 'xml'; expected one of: auto"),
        (("score", "wrong.jsonl", "--gold", "half.jsonl"), "no reference for the runs 'sequential"),
        (("score", "half-runs.jsonl", "--gold", "gold.jsonl"), "no run for the references 'sequential"),
        (("score", "wrong.jsonl", "--gold", "gold.jsonl", "-o", "wrong.jsonl", "--force"), "is also an input"),
        (("score", "wrong.jsonl", "--gold", "gold.jsonl", "--matchers", "rules.json"), "matcher kind 'fuzzy'"),
        (("convert", "wrong.jsonl", "out.jsonl", "--to", "xml"), "format 'xml'"),
        (("audit", "empty"), "the folder holds no .json"),
        (("world", "list", "magic"), "domain 'magic'"),
        (("world", "call", "sunrise"), "no tool is called 'sunrise'; expected one of: sunrise_in_city, sunrise_at"),
        (("world", "call", "weekday_of", "2024-01-01"), "argument '2024-01-01'"),
        (("world", "serve"), "expected one of --mcp and --openai-tools"),
        (("tasks", "make", "t.jsonl", "--n", "x"), "--n is 'x'"),
        (("tasks", "make", "t.jsonl", "--n", "0"), "--n is (0,)"),
        (("run", "gold.jsonl", "--out=-"), "--out is -"),
        (("run", "gold.jsonl", "-o", "o.jsonl", "--pool", "some", "--agent", "select"), "pool is 'some'"),
        (("run", "gold.jsonl", "-o", "o.jsonl", "--part", "3/2"), "part is '3/2'"),
    ],
)
def test_wrong_input_is_told_in_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(folder)
    (folder / "empty").mkdir()
    lines = (folder / "gold.jsonl").read_text().splitlines(keepends=True)
    (folder / "half.jsonl").write_text("".join(lines[:4]))
    (folder / "half-runs.jsonl").write_text("".join((folder / "wrong.jsonl").read_text().splitlines(keepends=True)[:4]))
    (folder / "rules.json").write_text('{"a.b": "fuzzy"}')
    with pytest.raises(InputError, match=re.escape(message)):
        command(*words)


def test_the_command_ends_with_the_status_of_its_kind(folder: Path, run: Any) -> None:
    good = run("assay", "tooluse", "score", "wrong.jsonl", "--gold", "gold.jsonl", folder=folder)
    below = run(
        "assay", "tooluse", "score", "wrong.jsonl", "--gold", "gold.jsonl", "--fail-under", "call_f1=1", folder=folder
    )
    wrong = run("assay", "tooluse", "score", "none.jsonl", "--gold", "gold.jsonl", folder=folder)
    assert (good.returncode, below.returncode, wrong.returncode) == (0, 1, 2)
    assert len(wrong.stderr.strip().splitlines()) == 1


# --- Reports


def test_scores_of_known_error_rates_are_those_that_the_rates_say() -> None:
    """Oracle 7: 2000 runs, four standard errors."""
    rng = np.random.default_rng(1000)
    n, q, r, count = 5, 0.2, 0.3, 2000
    gold = Gold(make_calls([(f"t{i}", {"x": i}) for i in range(n)]), id="g")
    names = [f"t{i}" for i in range(30)]
    by_name = score_many([wrong_names(gold, rng, rate=q, names=names) for _ in range(count)], [gold]).table
    by_args = score_many([wrong_arguments(gold, rng, rate=r) for _ in range(count)], [gold]).table
    for values, mean, trials in (
        (by_name["name_recall"], 1 - q, count * n),
        (by_name["name_em"], (1 - q) ** n, count),
        (by_args["args_accuracy"], 1 - r, count * n),
    ):
        assert abs(values.mean() - mean) < 4 * (mean * (1 - mean) / trials) ** 0.5


def test_hard_twins_that_fail_where_the_simple_one_passes_are_labelled_intent() -> None:
    simple, hard = TASKS[0], TASKS[1]
    report = score_many([simple.as_trajectory(), Trajectory(id=hard.id)], [simple, hard])
    assert [one.labels for one in report.scores] == [(), ("no_tool_used", "intent")]


def test_repeated_trials_errors_groups_and_confusions() -> None:
    golds = [Gold(make_calls([("a", {}), ("b", {})]), id=str(i)) for i in range(3)]
    runs = [gold.as_trajectory() for gold in golds for _ in range(2)]
    runs[0].calls[0].name = "c"
    runs.append(Trajectory(id="2", error="timeout"))
    report = score_many(runs, golds)
    assert [one.trial for one in report.scores] == [0, 1, 0, 1, 0, 1, 2]
    assert report.as_dict()["errors"] == 1
    assert report.summary()["call_em"].n == 6
    assert report.passes(2)["pass@k"].mean == pytest.approx((pass_at_k(2, 1, 2) + 1 + 1) / 3)
    assert report.passes(2)["pass^k"].mean == pytest.approx(2 / 3)
    assert report.confusion().loc["a", "c"] == 1
    assert report.by("n_tools")["runs"].to_list() == [6]
    assert report.failures()["id"].to_list() == ["0", "2"]
    with pytest.raises(InputError, match="k is 3; expected at most 2"):
        report.passes(3)
    with pytest.raises(InputError, match="column 'colour'"):
        report.by("colour")


def test_the_result_does_not_depend_on_the_number_of_processes() -> None:
    runs = [task.as_trajectory() for task in TASKS for _ in range(80)]
    one, two = (score_many(runs, TASKS, n_jobs=jobs) for jobs in (1, 2))
    assert one.table.equals(two.table)


def test_pages_escape_what_runs_contain() -> None:
    gold = Gold(make_calls([("<script>alert(1)</script>", {"x": "<b>"})]), id="g\x00", query="<i>")
    report = score_many([Trajectory(id="g\x00")], [gold])
    assert "<script>alert" not in report.to_html()
    assert "\x00" not in report.to_junit()


# --- TRAJECT-Bench's own layout


@pytest.fixture
def traject(tmp_path: Path) -> Path:
    """A data set in the layout of TRAJECT-Bench."""
    steps = [
        {"tool name": "P: a", "required parameters": [{"name": "x", "value": "1"}], "optional parameters": []},
        {"tool name": "P: a", "required_parameters": [{"name": "x", "value": "2"}]},
    ]
    for kind in ("simple", "hard"):
        file = tmp_path / "parallel" / "Weather" / f"{kind}_ver.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps([{"query": kind, "tool list": steps, "trajectory_type": "parallel"}]))
    chain = tmp_path / "sequential" / "Weather" / "traj_query.json"
    chain.parent.mkdir(parents=True)
    chain.write_text(json.dumps([{"query": "q", "tool_list": steps, "sequence_name": "s", "domain": "Weather"}]))
    return tmp_path


def test_references_in_the_papers_layout_have_structure_and_twins(traject: Path) -> None:
    golds = read_gold(traject)
    assert [(g.structure, g.difficulty, g.twin_id) for g in golds] == [
        ("parallel", "hard", "Weather:1"),
        ("parallel", "simple", "Weather:1"),
        ("sequential", "", ""),
    ]
    for gold in golds:
        exact = score_many([gold.as_trajectory()], [gold])
        assert exact.summary()["call_em"].mean == 1
        assert exact.labels() == {}
        official = score_many([gold.as_trajectory()], [gold], profile="official").summary()
        assert official["inclusion"].mean == 0.5


def test_a_local_model_works_by_command_alone_and_behind_an_endpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command("tasks", "make", tmp_path / "t.jsonl", "--n", "2", "--per-n", "1", "--difficulty", "simple", "-q")
    words = ("run", tmp_path / "t.jsonl", "--agent", "direct", "--pool", "fixed:2", "--max-tokens", "6")
    local = told(capsys, *words, "-o", tmp_path / "local.jsonl", "--model", "random-llama")
    assert (local["runs"], local["errors"]) == (1, 0)
    model = LocalClient("random-llama", max_tokens=6)

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        assert (body["max_tokens"], body["model"]) == (6, "random-llama")
        return {"content": asyncio.run(model.complete(body["messages"])).text}

    with serving(answer) as (url, requests):
        served = told(
            capsys, *words, "-o", tmp_path / "served.jsonl", "--model", "random-llama", "--base-url", url
        )  # fmt: skip
        assert (served["runs"], served["errors"], len(requests)) == (1, 0, 1)
    here, there = read(tmp_path / "local.jsonl")[0], read(tmp_path / "served.jsonl")[0]
    assert (here.final_answer, here.calls) == (there.final_answer, there.calls)
    assert (
        told(capsys, "score", tmp_path / "local.jsonl", "--gold", tmp_path / "t.jsonl")["labels"]["no_tool_used"] == 1
    )
    assert told(capsys, *words, "-o", tmp_path / "local.jsonl", "--model", "random-llama")["runs"] == 1
