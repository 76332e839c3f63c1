"""The commands of ``assay tooluse``: score, diff, convert, audit, world, tasks, run and judge."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from cyclopts import App, Group, Parameter

from assay.core.errors import AssayError, InputError
from assay.core.jobs import (
    STREAM,
    Flag,
    Reporting,
    WholeNumber,
    naming,
    naming_options,
    print_summary,
    require_other_file,
    require_streams,
    shows_progress,
    stop_that_says,
    warnings_in_one_line,
)

if TYPE_CHECKING:
    from assay.tooluse.batch import Report
    from assay.tooluse.matchers import Matcher
    from assay.tooluse.trajectories import Gold, Tool

__all__ = ["app", "audit", "convert", "diff", "judge", "run", "score", "tasks_make", "world_call", "world_list"]

app = App(
    name="tooluse",
    help="Where did the agent's tool use go wrong? Scores of recorded runs and live models against references.",
    help_format="rst",
    version_flags=[],
)

world_app = App(
    name="world",
    help="""The offline world of tools: list them, call one, or serve them all.

Example: ``assay tooluse world call weekday_of date=2024-02-29``""",
    help_format="rst",
    version_flags=[],
)
tasks_app = App(
    name="tasks",
    help="""Tasks over the offline world, with executed references.

Example: ``assay tooluse tasks make tasks.jsonl --structure sequential --n 3,4,5``""",
    help_format="rst",
    version_flags=[],
)
app.command(world_app)
app.command(tasks_app)

STOPPED = "stopped; nothing was written"
AS_USUAL = Reporting()
InFile: TypeAlias = Annotated[str, Parameter(allow_leading_hyphen=True)]
OptionalFile: TypeAlias = Annotated[str | None, Parameter(allow_leading_hyphen=True)]
OutFile: TypeAlias = Annotated[str | None, Parameter(alias="-o", allow_leading_hyphen=True)]
ProfileName: TypeAlias = Literal["exact", "official"]
ArgumentsMode: TypeAlias = Literal["exact", "superset", "subset", "ignore"]
StructureName: TypeAlias = Literal["parallel", "sequential", "dag"]
OUTPUTS = (".html", ".json", ".csv", ".parquet")
LINES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")
"""What files of one JSON record a line are called."""


def _require_ending(out: str | None, endings: Sequence[str]) -> None:
    if out is not None and out != STREAM and not out.lower().endswith(tuple(endings)):
        raise InputError("unknown ending", file=out, expected=f"one of: {', '.join(endings)}")


def _thresholds(given: Sequence[str]) -> dict[str, float]:
    """``call_f1=0.9,name_em=0.5`` as numbers by metric."""
    found: dict[str, float] = {}
    for part in (one for text in given for one in text.split(",")):
        metric, separator, number = part.partition("=")
        try:
            found[metric.strip()] = float(number)
        except ValueError:
            separator = ""
        if not separator or not math.isfinite(found[metric.strip()]):
            raise InputError(f"--fail-under is '{part}'", expected="a metric and a number, such as call_f1=0.9")
    return found


def _matching(path: str | None, tools: Sequence[Tool], arguments: ArgumentsMode) -> Matcher:
    from assay.tooluse.formats._builder import UnreadableError, load_json
    from assay.tooluse.matchers import Matcher

    if path is None:
        return Matcher(tools=tools, arguments=arguments)
    from assay.core.files import existing_file

    file = existing_file(path)
    expected = 'rules by tool.parameter, such as {"search.q": "casefold"}'
    with naming(path):
        try:
            rules = load_json(file.read_bytes())
        except UnreadableError as error:
            raise InputError(str(error), row=error.line, expected=expected) from error
        if not isinstance(rules, Mapping):
            raise InputError("not an object", expected=expected)
        if wrong := [name for name in rules if "." not in name]:
            raise InputError(f"a rule for '{wrong[0]}'", expected=expected)
        return Matcher(rules, tools=tools, arguments=arguments)


def _read_tools(path: str | None) -> list[Tool]:
    from assay.tooluse.reading import read_tools

    return [] if path is None else read_tools(path)


def _scored(
    runs: str,
    gold: str,
    *,
    format: str,
    structure: StructureName | None,
    profile: ProfileName,
    matcher: Matcher,
    tools: Sequence[Tool],
    partial: bool,
    jobs: int,
) -> Report:
    from assay.tooluse.batch import score_many
    from assay.tooluse.reading import iterate, read_gold

    golds = read_gold(gold, structure=structure)
    return score_many(
        iterate(runs, format), golds, n_jobs=jobs, profile=profile, matcher=matcher, tools=tools, partial=partial
    )


@app.command
def score(
    runs: InFile,
    /,
    *,
    gold: OptionalFile = None,
    out: OutFile = None,
    junit: str | None = None,
    profile: ProfileName = "exact",
    tools: str | None = None,
    matchers: str | None = None,
    arguments: ArgumentsMode = "exact",
    structure: StructureName | None = None,
    format: str = "auto",
    fail_under: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    partial: Flag = False,
    stream: Flag = False,
    jobs: WholeNumber = 1,
    on: str = "local",
    reporting: Reporting = AS_USUAL,
) -> None:
    """Score recorded runs against reference trajectories.

    Reads runs in any of the known formats, which it recognises record by record: OpenAI chat and Responses, Anthropic,
    Gemini, LangChain, OpenTelemetry, OpenInference, ShareGPT, tags, ReAct, TRAJECT-Bench, BFCL, Inspect, and our own.

    Example: ``assay tooluse score runs.jsonl --gold gold.jsonl -o report.html --fail-under call_f1=0.9``

    Parameters
    ----------
    runs
        A file (.json, .jsonl, each perhaps .gz, .txt, .eval), a folder of them, or - for standard input.
    gold
        The references: our own format, TRAJECT-Bench files, or runs that count as right. A run and its reference have
        the same id; a file with a single run is called after the file.
    out
        Where the result goes: .html for a page with the differences, .json, or .csv and .parquet for a row a run.
    junit
        Where JUnit's XML goes; a run fails below the thresholds of --fail-under, by default below call_f1=1.
    profile
        exact, or official for the metrics of the paper's released code.
    tools
        The tools that were on offer (.json, .jsonl): for types, defaults, and labels that need their schemas.
    matchers
        Rules for arguments by tool.parameter (.json), such as {"search.q": "casefold"}.
    arguments
        Whether a call may have more arguments than the reference (superset), fewer (subset), or any (ignore).
    structure
        Of references that don't say it themselves.
    format
        The runs' format, where it can't be told from the record.
    fail_under
        End with status 1 where a metric's mean is below: call_f1=0.9; several with commas.
    partial
        Leave out runs without reference and references without runs, which else are errors.
    stream
        Only names and calls, for a file of JSON lines of any size: each record may bring its own reference.
    jobs
        Processes; -1 for all cores.
    on
        Where the processes are: local, ray, dask, or the address of a cluster that sees the files.
    """
    from assay.core.files import check_output
    from assay.tooluse.batch import HEADLINE, failing
    from assay.tooluse.pages import lines_of
    from assay.tooluse.streaming import workers

    thresholds = _thresholds(fail_under)
    if jobs < 1 and jobs != -1:
        raise InputError(f"--jobs is {jobs}", expected="at least 1, or -1 for all cores")
    require_streams(out, reporting)
    if STREAM == runs == gold:
        raise InputError("runs and --gold are both standard input", expected="a file for one of them")
    for path in (out, junit):
        if path is not None and path != STREAM:
            require_other_file(path, runs, *([gold] if gold else []))
            check_output(path, force=reporting.force)
    _require_ending(out, OUTPUTS)
    offered = _read_tools(tools)
    if stream:
        for option, given in (("--out", out), ("--junit", junit)):
            if given is not None:
                raise InputError("--stream keeps no row a run", file=given, expected=f"no {option}")
        if profile != "exact":
            raise InputError(f"--profile is {profile}", expected="exact, which --stream needs")
        with warnings_in_one_line(reporting), stop_that_says(STOPPED), workers(on, jobs=jobs):
            _score_stream(
                runs,
                gold,
                thresholds,
                format=format,
                structure=structure,
                matcher=_matching(matchers, offered, arguments),
                partial=partial,
                jobs=jobs,
                reporting=reporting,
            )
        return
    if gold is None:
        raise InputError("--gold is missing", expected="the references, or --stream for records that bring their own")
    with warnings_in_one_line(reporting), stop_that_says(STOPPED), workers(on, jobs=jobs):
        report = _scored(
            runs,
            gold,
            format=format,
            structure=structure,
            profile=profile,
            matcher=_matching(matchers, offered, arguments),
            tools=offered,
            partial=partial,
            jobs=jobs,
        )
        means = report.summary()
        told = report.as_dict()
    below = list(failing(report, thresholds))
    if out is not None:
        _write_report(report, out, force=reporting.force)
    if junit is not None:
        report.to_junit(junit, thresholds=thresholds or None, force=reporting.force)
    shown = HEADLINE if profile == "exact" else tuple(means)
    lines = [
        f"runs         {told['runs']} of {told['tasks']} tasks ({_counts(told['structures'])})",
        *_of_errors(told["errors"]),
        *([f"unparsable   {told['unparsable_calls']} calls"] if told["unparsable_calls"] else []),
        *([f"notes        {told['notes']} oddities in the recordings"] if told["notes"] else []),
        *lines_of(means, shown),
        *([f"labels       {_counts(told['labels'])}"] if told["labels"] else []),
        *([f"wrote        {junit}"] if junit is not None else []),
    ]
    summary = {**told, "output": out, "below": [list(one) for one in below]}
    print_summary(summary, lines, reporting=reporting, out=out)
    _require_above(below)


def _of_errors(count: int) -> list[str]:
    return [f"errors       {count} runs failed for the service and count in no mean"] if count else []


def _require_above(below: Sequence[tuple[str, float, float]]) -> None:
    if below:
        raise AssayError("; ".join(f"{metric} {mean:.3f} is below {least:g}" for metric, mean, least in below))


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def _write_report(report: Report, out: str, *, force: bool) -> None:
    import json

    from assay.core.files import atomic_path, write_text

    ending = os.path.splitext(out)[1].lower()
    if ending == ".html":
        report.to_html(out, force=force)
    elif ending == ".csv" or out == STREAM:
        write_text(out, report.table.to_csv(index=False), force=force)
    elif ending == ".parquet":
        import pyarrow.parquet as pq

        with atomic_path(out, force=force) as temporary:
            pq.write_table(report.to_arrow(), temporary)
    else:
        rows = report.table.to_dict("records")
        text = json.dumps(_plain({**report.as_dict(), "rows": rows}), ensure_ascii=False, allow_nan=False)
        write_text(out, text + "\n", force=force)


def _plain(value: Any) -> Any:
    """NaN and infinity as null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _score_stream(
    runs: str,
    gold: str | None,
    thresholds: Mapping[str, float],
    *,
    format: str,
    structure: StructureName | None,
    matcher: Matcher,
    partial: bool,
    jobs: int,
    reporting: Reporting,
) -> None:
    from assay.core.files import existing_file
    from assay.tooluse.pages import lines_of
    from assay.tooluse.reading import read_gold
    from assay.tooluse.streaming import STREAM_METRICS, score_stream

    for metric in thresholds:
        if metric not in STREAM_METRICS:
            raise InputError(f"metric '{metric}'", expected=f"one of: {', '.join(STREAM_METRICS)}")
    if runs != STREAM:
        existing_file(runs, suffixes=(".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz"))
    golds: dict[str, Gold] | None = None
    if gold is not None:
        golds = {one.id: one for one in read_gold(gold, structure=structure)}
    totals = score_stream(runs, golds, matcher=matcher, format=format, partial=partial, n_jobs=jobs)
    if not totals.runs:
        raise InputError("no run could be scored", file=runs, expected="runs with references that didn't fail")
    means = totals.estimates()
    below = [(name, means[name].mean, least) for name, least in thresholds.items() if not means[name].mean >= least]
    summary = {
        "runs": totals.runs,
        "calls": totals.calls,
        "errors": totals.errors,
        "unparsable_calls": totals.unparsable,
        "metrics": {name: {"mean": one.mean, "low": one.low, "high": one.high} for name, one in means.items()},
    }
    lines = [
        f"runs         {totals.runs} with {totals.calls} calls",
        *_of_errors(totals.errors),
        *([f"unparsable   {totals.unparsable} calls"] if totals.unparsable else []),
        *lines_of(means, STREAM_METRICS),
    ]
    print_summary(summary, lines, reporting=reporting)
    _require_above(below)


@app.command
def diff(
    first: InFile,
    second: InFile,
    /,
    *,
    gold: OptionalFile = None,
    tools: str | None = None,
    structure: StructureName | None = None,
    format: str = "auto",
    partial: Flag = False,
    show: WholeNumber = 5,
    reporting: Reporting = AS_USUAL,
) -> None:
    """Compare two sets of runs on the same tasks: which metrics differ, and on which tasks.

    Example: ``assay tooluse diff before.jsonl after.jsonl --gold gold.jsonl``

    Parameters
    ----------
    first
        Runs, as for assay tooluse score.
    second
        Other runs of the same tasks.
    gold
        The references. Without them the first runs are the references of the second.
    tools
        The tools that were on offer.
    structure
        Of references that don't say it themselves.
    format
        The runs' format, where it can't be told from the record.
    partial
        Compare the tasks that both have, where the sets differ.
    show
        How many differing tasks are shown call by call.
    """
    from assay.tooluse.batch import HEADLINE, score_many
    from assay.tooluse.reading import gold_from_trajectory, read, read_gold
    from assay.tooluse.resampling import mcnemar, paired_difference
    from assay.tooluse.scoring import explain

    offered = _read_tools(tools)
    with warnings_in_one_line(reporting):
        before, after = read(first, format), read(second, format)
    if gold is not None:
        golds = read_gold(gold, structure=structure)
    else:
        golds = [gold_from_trajectory(run, structure=structure or "sequential") for run in before]
    if partial:
        both = {run.id for run in before} & {run.id for run in after}
        before, after = [r for r in before if r.id in both], [r for r in after if r.id in both]
        golds = [one for one in golds if one.id in both]
    reports = [score_many(runs, golds, tools=offered) for runs in (before, after)]
    tables = [report.table.groupby("id", sort=True).mean(numeric_only=True) for report in reports]
    ids = list(tables[0].index)
    clusters = [reports[0].golds[id_].cluster for id_ in ids]
    rows: dict[str, Any] = {}
    for metric in HEADLINE:
        a, b = tables[0][metric], tables[1][metric]
        change = paired_difference(b.to_list(), a.to_list(), clusters)
        rows[metric] = {"first": a.mean(), "second": b.mean(), "change": change.mean, "low": change.low,
                        "high": change.high}  # fmt: skip
    solved = [table["call_em"] == 1 for table in tables]
    p = mcnemar(solved[0].to_list(), solved[1].to_list())
    worse = [id_ for id_ in ids if tables[1]["call_f1"][id_] < tables[0]["call_f1"][id_]]
    better = [id_ for id_ in ids if tables[1]["call_f1"][id_] > tables[0]["call_f1"][id_]]
    lines = [f"tasks        {len(ids)}: {len(better)} better, {len(worse)} worse by call_f1; McNemar p = {p:.3g}"]
    lines += [
        f"{metric:<24} {row['first']:.3f} -> {row['second']:.3f}  ({row['low']:+.3f} to {row['high']:+.3f})"
        for metric, row in rows.items()
        if row["first"] == row["first"] and row["second"] == row["second"]
    ]
    by_id = {run.id: run for run in reports[1].runs}
    for id_ in worse[: max(0, show)]:
        lines += ["", f"worse: {id_}", explain(by_id[id_], reports[1].golds[id_], tools=offered)]
    summary = {"tasks": len(ids), "better": better, "worse": worse, "mcnemar_p": p, "metrics": rows}
    print_summary(summary, lines, reporting=reporting)


@app.command
def convert(
    runs: InFile,
    out: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    to: str = "openai",
    format: str = "auto",
    as_gold: Flag = False,
    structure: StructureName = "parallel",
    reporting: Reporting = AS_USUAL,
) -> None:
    """Convert recorded runs from any known format into another, one JSON record a line.

    Example: ``assay tooluse convert runs.jsonl out.jsonl --to otel``

    Parameters
    ----------
    runs
        Runs, as for assay tooluse score.
    out
        Where they go (.jsonl, .jsonl.gz), or - for standard output.
    to
        assay, openai, responses, anthropic, gemini, langchain, otel, openinference, sharegpt, tags, react, traject,
        bfcl or inspect. Some formats hold less than others: bfcl has no results, react no calls issued together.
    format
        The runs' format, where it can't be told from the record.
    as_gold
        Write references instead, which count as right, for assay tooluse score --gold.
    structure
        Of such references.
    """
    from assay.core.files import check_output
    from assay.tooluse.formats import find_format
    from assay.tooluse.reading import gold_from_trajectory, gold_to_dict, iterate, write, write_records

    find_format(to)
    require_streams(out, reporting)
    _require_ending(out, LINES)
    if out != STREAM:
        require_other_file(out, runs)
        check_output(out, force=reporting.force)
    with warnings_in_one_line(reporting), stop_that_says(STOPPED):
        found = iterate(runs, format)
        if as_gold:
            golds = (gold_to_dict(gold_from_trajectory(run, structure=structure)) for run in found)
            count = write_records(golds, out, force=reporting.force)
        else:
            count = write(found, out, to, force=reporting.force)
    print_summary({"runs": count, "output": out}, [f"runs         {count}"], reporting=reporting, out=out)


@app.command
def audit(data: InFile, /, *, reporting: Reporting = AS_USUAL) -> None:
    """Look for faults in a data set of tools and reference trajectories; status 1 where there are any.

    Example: ``assay tooluse audit public_data/``

    Parameters
    ----------
    data
        A folder of tool and trajectory files in TRAJECT-Bench's layout or our own, one file, or - for standard input.
    """
    from assay.tooluse.auditing import audit as look

    with stop_that_says(STOPPED):
        found = look(data)
    mistakes = found.mistakes
    width = max(map(len, found.findings))
    lines = [
        f"{'! ' if name in mistakes else '  '}{name:<{width}} {one.count:>6} of {one.of} {one.unit}"
        + (f", such as {one.examples[0]}" if one.count and one.examples else "")
        for name, one in found.findings.items()
    ]
    summary = {"files": found.files, "findings": found.as_dict(), "mistakes": list(mistakes)}
    print_summary(summary, lines, reporting=reporting)
    if mistakes:
        total = sum(one.count for one in mistakes.values())
        raise AssayError(f"{total} faults of {len(mistakes)} kinds: {', '.join(mistakes)}")


@world_app.command(name="list")
def world_list(
    domain: str | None = None,
    /,
    *,
    to: Literal["names", "openai", "anthropic", "mcp"] = "names",
    reporting: Reporting = AS_USUAL,
) -> None:
    """List the tools of the offline world.

    Example: ``assay tooluse world list astronomy``

    Parameters
    ----------
    domain
        Only those of one domain.
    to
        Names with descriptions, or definitions as an API takes them, as JSON.
    """
    import json

    from assay.tooluse.world import ToolWorld, tool_as

    tools = ToolWorld.load().tools()
    domains = list(dict.fromkeys(one.domain for one in tools))
    if domain is not None and domain not in domains:
        raise InputError(f"domain '{domain}'", expected=f"one of: {', '.join(domains)}")
    chosen = [one for one in tools if domain in (None, one.domain)]
    if to != "names":
        print(json.dumps([tool_as(one, to) for one in chosen], ensure_ascii=False, indent=1))
        return
    lines = [f"{one.domain:<10} {one.name:<26} {one.description}" for one in chosen]
    summary = {"tools": [{"name": one.name, "domain": one.domain, "description": one.description} for one in chosen]}
    print_summary(summary, lines, reporting=reporting)


@world_app.command(name="call")
def world_call(
    name: str,
    arguments: Annotated[tuple[str, ...], Parameter(allow_leading_hyphen=True)] = (),
    /,
    *,
    reporting: Reporting = AS_USUAL,
) -> None:
    """Call a tool of the offline world and print its result as JSON; status 1 where the tool says it can't.

    Example: ``assay tooluse world call convert_on_date amount=100 source=EUR target=USD date=2020-01-02``

    Parameters
    ----------
    name
        The tool.
    arguments
        parameter=value, or one JSON object.
    """
    import json

    from assay.tooluse.world import ToolWorld

    world = ToolWorld.load()
    if name not in world.declarations:
        from rapidfuzz.process import extract

        near = ", ".join(found[0] for found in extract(name, list(world.declarations), limit=3))
        raise InputError(f"no tool is called '{name}'", expected=f"one of: {near}, or another that world list shows")
    result = world.call(name, _arguments(arguments, world.declarations[name].tool))
    if "error" in result:
        raise AssayError(f"{name}: {result['error']}")
    if not reporting.quiet:
        print(json.dumps(result, ensure_ascii=False))


def _arguments(given: Sequence[str], tool: Tool) -> dict[str, Any]:
    """``lat=47 city=Zurich``, or one JSON object, by the tool's types."""
    from assay.tooluse.formats._builder import load_json

    if len(given) == 1 and given[0].lstrip().startswith("{"):
        try:
            found: dict[str, Any] = load_json(given[0])
        except ValueError as error:
            raise InputError("the arguments are not JSON", expected="a JSON object, or parameter=value") from error
        return found
    args: dict[str, Any] = {}
    for one in given:
        name, separator, text = one.partition("=")
        if not separator:
            raise InputError(f"argument '{one}'", expected="parameter=value, or one JSON object")
        kind = tool.properties.get(name, {}).get("type")
        try:
            args[name] = text if kind in (None, "string") else load_json(text)
        except ValueError as error:
            raise InputError(f"{name} is '{text}'", expected=f"a value of type {kind}") from error
    return args


@world_app.command(name="serve")
def world_serve(
    *,
    mcp: Flag = False,
    openai_tools: Flag = False,
    http: Flag = False,
    host: str = "127.0.0.1",
    port: WholeNumber = 8000,
) -> None:
    """Serve the tools: as a server of the Model Context Protocol, or print their definitions for an OpenAI endpoint.

    Example: ``assay tooluse world serve --openai-tools``

    Parameters
    ----------
    mcp
        Speak the Model Context Protocol on standard input and output.
    openai_tools
        Print the definitions that an OpenAI endpoint takes.
    http
        With --mcp: speak over HTTP at /mcp instead.
    host
        Where to listen.
    port
        The port.
    """
    if mcp == openai_tools:
        raise InputError("world serve", expected="one of --mcp and --openai-tools")
    if openai_tools:
        world_list(to="openai")
        return
    from assay.tooluse.serving import serve_http, serve_stdio

    if http:
        with naming_options({"port": "--port"}):
            serve_http(host=host, port=port)
    else:
        serve_stdio()


@tasks_app.command(name="make")
def tasks_make(
    out: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    structure: StructureName = "parallel",
    n: str = "3-10",
    difficulty: Literal["simple", "hard", "both"] = "both",
    per_n: WholeNumber = 40,
    seed: WholeNumber = 0,
    reporting: Reporting = AS_USUAL,
) -> None:
    """Make tasks over the offline world, with references that were executed.

    Example: ``assay tooluse tasks make tasks.jsonl --structure sequential --n 3-5 --per-n 2``

    Parameters
    ----------
    out
        Where they go (.jsonl), or - for standard output.
    structure
        Independent calls, a chain, or two chains that meet.
    n
        How many calls: 4, 3,5,7 or 3-10.
    difficulty
        Queries that name tools and values, queries that hide both, or twins of both kinds.
    per_n
        Trajectories for each number of calls.
    seed
        The same seed gives the same tasks.
    """
    from assay.core.files import check_output
    from assay.tooluse.reading import gold_to_dict, write_records
    from assay.tooluse.tasks import make_tasks

    require_streams(out, reporting)
    _require_ending(out, LINES)
    if out != STREAM:
        check_output(out, force=reporting.force)
    options = {"n_tools": "--n", "per_n": "--per-n", "seed": "--seed"}
    with stop_that_says(STOPPED), naming_options(options):
        made = make_tasks(_sizes(n), structure, difficulty, seed, per_n=per_n)
    write_records(map(gold_to_dict, made), out, force=reporting.force)
    calls = sum(len(one.calls) for one in made)
    lines = [f"tasks        {len(made)} with {calls} calls"]
    print_summary({"tasks": len(made), "calls": calls, "output": out}, lines, reporting=reporting, out=out)


def _sizes(text: str) -> tuple[int, ...]:
    """``3-10`` or ``3,5,7`` as numbers."""
    first, dash, last = text.partition("-")
    try:
        return tuple(range(int(first), int(last) + 1)) if dash else tuple(map(int, text.split(",")))
    except ValueError:
        raise InputError(
            f"--n is '{text}'", expected="a number, numbers with commas, or a range such as 3-10"
        ) from None


@Parameter(name="*", group=Group("Model", sort_key=2))
@dataclass(frozen=True)
class ModelOptions:
    """Who answers.

    Parameters
    ----------
    model
        The endpoint's name of the model. Without --base-url a model on this machine: smollm2 from its package, a
        folder, a .gguf file, or a name on the hub.
    base_url
        An endpoint that speaks OpenAI's protocol.
    key_variable
        The environment variable with the endpoint's key.
    max_tokens
        The longest answer; 4096, and 128 for a model on this machine.
    timeout
        Seconds that an endpoint may take for one answer.
    retries
        How often a request that failed is repeated before the run counts as an error.
    """

    model: str = "smollm2"
    base_url: str | None = None
    key_variable: str = "OPENAI_API_KEY"
    max_tokens: WholeNumber | None = None
    timeout: float = 120.0
    retries: WholeNumber = 2

    def client(self, *, temperature: float = 0.0) -> Any:
        """What these options name."""
        from assay.tooluse.clients import DEFAULT_TOKENS, EndpointClient, LocalClient

        with naming_options({name: f"--{name.replace('_', '-')}" for name in (*vars(self), "temperature")}):
            if self.base_url is None:
                tokens = 128 if self.max_tokens is None else self.max_tokens
                return LocalClient(self.model, temperature=temperature, max_tokens=tokens)
            return EndpointClient(
                self.base_url,
                self.model,
                os.environ.get(self.key_variable, "none"),
                temperature=temperature,
                max_tokens=DEFAULT_TOKENS if self.max_tokens is None else self.max_tokens,
                timeout=self.timeout,
                retries=self.retries,
            )


AS_BY_DEFAULT = ModelOptions()


@app.command
def run(
    tasks: InFile,
    /,
    *,
    out: Annotated[str, Parameter(alias="-o")],
    model: ModelOptions = AS_BY_DEFAULT,
    agent: Literal["native", "direct", "cot", "react", "dynamic", "select"] = "native",
    pool: str = "domain",
    encoder: Literal["minilm", "bm25"] = "minilm",
    trials: WholeNumber = 1,
    concurrency: WholeNumber = 8,
    max_turns: WholeNumber | None = None,
    temperature: float = 0.0,
    part: str = "1/1",
    seed: WholeNumber = 0,
    reporting: Reporting = AS_USUAL,
) -> None:
    """Let a model work on tasks with the tools of the offline world; the same command goes on where it stopped.

    Example: ``assay tooluse run tasks.jsonl -o runs.jsonl --base-url http://localhost:8000/v1 --model mine``

    Parameters
    ----------
    tasks
        From assay tooluse tasks make, or references in our own format.
    out
        Finished runs, one line each. An existing file is gone on with; --force begins anew.
    agent
        native: the endpoint's tool calling. direct and cot: one prompt. react: thoughts and actions; dynamic: react
        that looks for tools anew after each thought. select: the nearest tool a sentence, by the encoder alone.
    pool
        Which tools are shown: all, domain, fixed:20, retrieval:20.
    encoder
        What retrieves tools.
    trials
        Repetitions of each task.
    concurrency
        Runs under way at once.
    max_turns
        After how many turns a run is stopped; by default max(8, 2n + 2).
    temperature
        0 for the likeliest answer.
    part
        i/N: only that part of the tasks, for several machines. The files of all parts together are the whole.
    seed
        Of fixed pools.
    """
    from pathlib import Path

    from assay.tooluse.reading import read_gold
    from assay.tooluse.retrieval import Retriever
    from assay.tooluse.running import evaluate

    golds = read_gold(tasks)
    if out == STREAM:
        raise InputError("--out is -", expected="a file, which a stopped run goes on from")
    _require_ending(out, LINES[:2])
    require_other_file(out, tasks)
    from assay.core.files import check_output

    check_output(out, force=True)
    client = model.client(temperature=temperature)
    if reporting.force:
        Path(out).unlink(missing_ok=True)
    settings = (
        f"model={model.model} agent={agent} pool={pool} encoder={encoder} temperature={temperature:g} "
        f"max_turns={max_turns or 'auto'} max_tokens={model.max_tokens or 'auto'} seed={seed}"
    )

    def watch(done: int, total: int) -> None:
        print(f"\r{done} of {total} runs", end="" if done < total else "\n", file=sys.stderr, flush=True)

    options = {
        name: f"--{name.replace('_', '-')}" for name in ("trials", "concurrency", "max_turns", "seed", "pool", "part")
    }
    with stop_that_says(f"stopped; finished runs are in {out}, and the same command goes on"), naming_options(options):
        found = evaluate(
            client,
            golds,
            pool,
            agent,
            trials,
            concurrency,
            retriever=Retriever(encoder),
            max_turns=max_turns,
            seed=seed,
            out=out,
            part=part,
            settings=settings,
            watch=watch if shows_progress(reporting) else None,
        )
    errors = sum(one.error is not None for one in found)
    calls = sum(len(one.calls) for one in found)
    lines = [f"runs         {len(found)} with {calls} calls"]
    if errors:
        lines.append(f"errors       {errors}, run again by the same command")
    summary = {"runs": len(found), "calls": calls, "errors": errors, "settings": settings, "output": out}
    print_summary(summary, lines, reporting=reporting, out=out)
    if errors == len(found) and errors:
        raise AssayError(f"every run failed: {found[0].error}")


@app.command
def judge(
    runs: InFile,
    /,
    *,
    gold: str,
    out: OutFile = None,
    kind: Literal["brief", "full", "answer", "compare"] = "brief",
    other: str | None = None,
    model: ModelOptions = AS_BY_DEFAULT,
    tools: str | None = None,
    cache: str | None = None,
    format: str = "auto",
    concurrency: WholeNumber = 8,
    reporting: Reporting = AS_USUAL,
) -> None:
    """Let a model judge runs; a judgement that fails is missing and counts in no mean.

    Example: ``assay tooluse judge runs.jsonl --gold gold.jsonl --base-url http://localhost:8000/v1 --model judge``

    Parameters
    ----------
    runs
        Runs, as for assay tooluse score.
    gold
        The tasks with their reference answers.
    out
        Where the judgements go, one JSON record a line, with the judge, a hash of what was asked, and its raw replies.
    kind
        brief: can these tools satisfy the request (0 to 10). full: tools, arguments, completeness (0 to 10). answer: is
        the final answer the reference's. compare: which of two runs is better, asked in both orders.
    other
        The second runs for --kind compare.
    tools
        The tools that were on offer, for their descriptions; those of the offline world without it.
    cache
        A folder of earlier judgements.
    format
        The runs' format, where it can't be told from the record.
    concurrency
        Judgements under way at once.
    """
    from pathlib import Path

    from assay.core.files import check_output
    from assay.tooluse.judging import judge_many, judgement_to_dict
    from assay.tooluse.reading import read, read_gold, write_records
    from assay.tooluse.resampling import cluster_bootstrap
    from assay.tooluse.world import ToolWorld

    require_streams(out, reporting)
    _require_ending(out, LINES)
    if out is not None and out != STREAM:
        require_other_file(out, runs, gold)
        check_output(out, force=reporting.force)
    tasks = read_gold(gold)
    given = [one for one in read(runs, format) if one.error is None]
    stopped = "stopped; judgements so far are in the cache, if one was given"
    with stop_that_says(stopped), naming_options({"concurrency": "--concurrency"}):
        found = judge_many(
            model.client(),
            given,
            tasks,
            kind,
            tools=_read_tools(tools) if tools else ToolWorld.load().tools(),
            others=read(other, format) if other else (),
            cache=Path(cache) if cache else None,
            concurrency=concurrency,
        )
    if out is not None:
        write_records(map(judgement_to_dict, found), out, force=reporting.force)
    clusters = {task.id: task.cluster for task in tasks}
    mean = cluster_bootstrap([one.value for one in found], [clusters[one.id] for one in found])
    missing = len(found) - mean.n
    lines = [f"judgements   {mean.n} of {len(found)}, {missing} failed and are missing"]
    if mean.n:
        lines.append(f"mean         {mean.mean:.3f} ({mean.low:.3f} to {mean.high:.3f})")
    summary = {"kind": kind, "judgements": mean.n, "missing": missing, "mean": mean.mean, "low": mean.low,
               "high": mean.high, "output": out}  # fmt: skip
    print_summary(summary, lines, reporting=reporting, out=out)
    if found and missing == len(found):
        raise AssayError(f"every judgement failed: {found[0].replies[-1] if found[0].replies else 'no reply'}")
