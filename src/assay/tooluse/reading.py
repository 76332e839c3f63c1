"""Recorded runs and references from files and folders: streamed, recognised, and faults named by file and line."""

from __future__ import annotations

import gzip
import io
import os
import re
import sys
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any, cast

from assay.core.errors import InputError
from assay.core.files import STREAM, atomic_path, existing_file
from assay.tooluse.formats import FORMATS, Format, detect, find_format
from assay.tooluse.formats._benchmarks import call_from_dict, call_to_dict
from assay.tooluse.formats._builder import UnreadableError, dump, load_json, read_arguments, record_id, whole_text
from assay.tooluse.matchers import make_match
from assay.tooluse.trajectories import Call, Edge, Gold, Structure, Tool, Trajectory, path_steps

__all__ = [
    "SUFFIXES",
    "gold_from_dict",
    "gold_from_trajectory",
    "gold_to_dict",
    "iterate",
    "read",
    "read_gold",
    "read_tools",
    "records",
    "to_anthropic",
    "to_openai",
    "to_otel",
    "tool_from_dict",
    "write",
    "write_records",
]

REFERENCE = "calls with name and args, and a structure"
SUFFIXES = (".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz", ".txt", ".eval")
MESSAGE_KEYS = frozenset({"role", "type", "lc", "from", "parts"})
SPAN_KEYS = frozenset({"attributes", "resourceSpans"})
BLOCK = 1 << 20
TWIN_FILE = re.compile("(simple|hard)_ver")
"""TRAJECT-Bench keeps twins at the same place of two files."""
BOM = b"\xef\xbb\xbf"
CUT = "not JSON"
"""What `load_json` says of a line that was cut off, beside other faults."""


def read(path: str | os.PathLike[str], format: str = "auto") -> list[Trajectory]:
    """Read recorded runs.

    Parameters
    ----------
    path : path
        A file (.json, .jsonl, .ndjson, each perhaps .gz, .txt, .eval), a folder of such files, or ``-``.
    format : str
        A name of `assay.tooluse.formats.FORMATS`; ``auto`` looks at each record.

    Returns
    -------
    list of Trajectory
        In the order of the files' names and lines. A run without an id is called after its file, and its number where
        the file holds several.

    Raises
    ------
    InputError
        A file can't be read, isn't JSON, or has no known format.

    Examples
    --------
    >>> import json, tempfile
    >>> call = {"function": {"name": "weather", "arguments": '{"city": "Paris"}'}}
    >>> with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
    ...     line = {"id": "1", "messages": [{"role": "assistant", "tool_calls": [call]}]}
    ...     _ = file.write(json.dumps(line))
    ...     file.flush()
    ...     read(file.name)[0].calls[0].args
    {'city': 'Paris'}
    """
    return list(iterate(path, format))


def iterate(path: str | os.PathLike[str], format: str = "auto") -> Iterator[Trajectory]:
    """`read`, one trajectory at a time: memory doesn't grow with the file, unless it is one JSON document or of spans.

    Parameters
    ----------
    path : path
        As for `read`.
    format : str
        As for `read`.

    Yields
    ------
    Trajectory

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
    ...     _ = file.write('{"id": "1", "calls": []}')
    ...     file.flush()
    ...     [run.id for run in iterate(file.name)]
    ['1']
    """
    chosen = None if format == "auto" else find_format(format)
    for file in _files(path):
        yield from _iterate_file(file, chosen)


def _files(path: str | os.PathLike[str]) -> list[str | Path]:
    if os.fspath(path) == STREAM:
        return [STREAM]
    folder = Path(path)
    if not folder.is_dir():
        return [existing_file(path, suffixes=SUFFIXES)]
    found = sorted(one for one in folder.rglob("*") if one.is_file() and one.name.lower().endswith(SUFFIXES))
    if not found:
        raise InputError(
            "the folder holds no recorded runs", file=folder, expected=f"files ending in {', '.join(SUFFIXES)}"
        )
    return [existing_file(one) for one in found]


def _iterate_file(file: str | Path, chosen: Format | None) -> Iterator[Trajectory]:
    stem = "run" if file == STREAM else whole_text(Path(file).name.partition(".")[0])
    spans: list[tuple[int, Any]] = []
    waiting: Trajectory | None = None
    count = 0
    known: Format | None = chosen
    for row, record in records(file):
        with naming_record(str(file), row):
            if chosen is None:
                known = detect(record, before=known)
            assert known is not None
            if known.spans:
                spans.append((row, record))
                continue
            found = read_record(known, record)
        for one in found:
            count += 1
            if not one.id:
                # The first run waits until it is known whether the file holds a second one.
                if count == 1:
                    waiting = one
                    continue
                one.id = f"{stem}:{count}"
            if waiting is not None:
                waiting.id = f"{stem}:1"
                yield waiting
                waiting = None
            yield one
    if waiting is not None:
        waiting.id = stem
        yield waiting
    if spans:
        with naming_record(str(file), spans[0][0]):
            together = [record for _, record in spans]
            found = read_record(chosen or detect(together), together)
        for number, one in enumerate(found, start=1):
            one.id = one.id or f"{stem}:{number}"
            yield one


@contextmanager
def naming_record(file: str, row: int | None) -> Iterator[None]:
    """Say of which record an error is."""
    try:
        yield
    except InputError as error:
        raise InputError(error.message, file=file, row=row, expected=error.expected) from error


def read_record(known: Format, record: Any) -> list[Trajectory]:
    """The runs of a record.

    Raises
    ------
    InputError
        A field has another type than the format's.
    """
    try:
        return list(known.read(record))
    except InputError:
        raise
    except (AttributeError, TypeError, KeyError, ValueError, IndexError, OverflowError) as error:
        expected = f"the fields of {known.name} with their types, or another --format"
        raise InputError(f"not a record of the format {known.name} ({error})", expected=expected) from error


def records(file: str | os.PathLike[str]) -> Iterator[tuple[int, Any]]:
    """The records of a file with the line on which each begins.

    A last line that was cut off gets a warning; the rest is kept.

    Parameters
    ----------
    file : path
        JSON lines, one JSON document, a text, or an Inspect log.

    Yields
    ------
    int, object
        Line, counted from 1, and record.

    Raises
    ------
    InputError
        A line isn't JSON, or the file is damaged.
    """
    name = os.fspath(file).lower()
    if name.endswith(".txt"):
        with _open(file) as stream:
            yield 1, _decode(stream.read(), file)
        return
    if name.endswith(".eval"):
        yield from _inspect_samples(Path(file))
        return
    try:
        with _open(file) as stream:
            yield from _json_records(stream, os.fspath(file))
    except (EOFError, gzip.BadGzipFile, zipfile.BadZipFile) as error:
        raise InputError(f"damaged: {error}", file=file, expected="a whole file") from error


def _open(file: str | os.PathLike[str]) -> AbstractContextManager[IO[bytes]]:
    if os.fspath(file) == STREAM:
        return nullcontext(sys.stdin.buffer if sys.stdin else io.BytesIO())
    if os.fspath(file).lower().endswith(".gz"):
        return cast("IO[bytes]", gzip.open(file, "rb"))
    return open(file, "rb", buffering=BLOCK)


def _decode(data: bytes, file: str | os.PathLike[str]) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        row = data[: error.start].count(b"\n") + 1
        raise InputError("not UTF-8", file=file, row=row, expected="UTF-8 text") from error


def _json_records(stream: IO[bytes], file: str) -> Iterator[tuple[int, Any]]:
    first = stream.readline().removeprefix(BOM)
    row = 1
    while first and not first.strip():
        first, row = stream.readline(), row + 1
    if not first:
        raise InputError("nothing to read", file=file, expected="at least one record")
    try:
        record = load_json(first)
    except UnreadableError:
        yield from _document(first + stream.read(), file, row)
        return
    if isinstance(record, list) and not _is_one_run(record):
        yield from _elements(record, stream.read(), file, row)
        return
    yield row, record
    pending: tuple[int, UnreadableError] | None = None
    for line in stream:
        row += 1
        if line.isspace():
            continue
        if pending is not None:
            raise not_a_record(pending[1], file, pending[0]) from pending[1]
        try:
            record = load_json(line)
        except UnreadableError as error:
            if str(error) != CUT:
                raise not_a_record(error, file, row) from error
            pending = row, error
            continue
        yield row, record
    if pending is not None:
        _warn_of_cut(file, pending[0])


def not_a_record(error: UnreadableError, file: str | os.PathLike[str], row: int) -> InputError:
    """What is said of a line that can't be read."""
    return InputError(str(error), file=file, row=row, expected="one JSON record a line")


def _warn_of_cut(file: str, row: int) -> None:
    warnings.warn(f"{file}, row {row}: the last line is cut off and left out", stacklevel=2)


def _document(data: bytes, file: str, row: int) -> Iterator[tuple[int, Any]]:
    """One JSON document of several lines; or JSON lines whose first and only line is cut off."""
    try:
        record = load_json(data)
    except UnreadableError as error:
        where = row if error.line is None else error.line + row - 1
        raise InputError(str(error), file=file, row=where, expected="JSON, or one JSON record a line") from error
    if isinstance(record, list) and not _is_one_run(record):
        yield from _elements(record, b"", file, row)
    else:
        yield row, record


def _elements(found: list[Any], rest: bytes, file: str, row: int) -> Iterator[tuple[int, Any]]:
    if rest.strip():
        raise InputError("text after the list", file=file, row=row + 1, expected="one JSON list, or JSON lines")
    for element in found:
        yield row, element


def _is_one_run(record: Sequence[Any]) -> bool:
    """Whether a list is the messages of one run, and not a list of runs."""
    return (
        bool(record)
        and all(isinstance(one, Mapping) for one in record)
        and bool(MESSAGE_KEYS & record[0].keys() or SPAN_KEYS & record[0].keys())
        and "calls" not in record[0]
        and "messages" not in record[0]
    )


def _inspect_samples(file: Path) -> Iterator[tuple[int, Any]]:
    """The samples of an Inspect log in its packed form."""
    try:
        with zipfile.ZipFile(file) as archive:
            names = [name for name in archive.namelist() if name.startswith("samples/") and name.endswith(".json")]
            for number, name in enumerate(names, start=1):
                yield number, load_json(archive.read(name))
    except NotImplementedError:
        yield from _inspect_read(file)
    except zipfile.BadZipFile as error:
        raise InputError("damaged", file=file, expected="a log of Inspect") from error


def _inspect_read(file: Path) -> Iterator[tuple[int, Any]]:
    """Logs in a compression that Python's zipfile lacks are read by Inspect itself."""
    try:
        from inspect_ai.log import read_eval_log
    except ImportError as error:
        from assay.core.errors import MissingPackageError

        raise MissingPackageError("inspect-ai", what=f"reading {file}", extra="tooluse-inspect") from error
    for number, sample in enumerate(read_eval_log(str(file)).samples or (), start=1):
        yield number, sample.model_dump(mode="json")


def write(
    trajectories: Iterable[Trajectory],
    path: str | os.PathLike[str],
    format: str = "assay",
    *,
    force: bool = False,
) -> int:
    """Write runs, one JSON record a line.

    Parameters
    ----------
    trajectories : iterable of Trajectory
        What is written.
    path : path
        ``.jsonl``, ``.jsonl.gz``, or ``-`` for standard output.
    format : str
        A name of `assay.tooluse.formats.FORMATS`.
    force : bool
        Replace an existing file.

    Returns
    -------
    int
        How many were written.

    Raises
    ------
    InputError
        The format is unknown, or the file exists.

    Examples
    --------
    >>> write([Trajectory(id="1", query="Hello")], "-")
    {"id":"1","query":"Hello","calls":[]}
    1
    """
    writer = find_format(format).write
    return write_records((writer(one) for one in trajectories), path, force=force)


def write_records(found: Iterable[Any], path: str | os.PathLike[str], *, force: bool = False) -> int:
    """Write JSON records, one a line, and say how many."""
    count = 0
    if os.fspath(path) == STREAM:
        for one in found:
            print(dump(one))
            count += 1
        return count
    packed = os.fspath(path).endswith(".gz")
    with atomic_path(path, force=force) as temporary, (gzip.open if packed else open)(temporary, "wb") as stream:
        for one in found:
            stream.write(dump(one).encode() + b"\n")
            count += 1
    return count


def to_openai(run: Trajectory) -> dict[str, Any]:
    """A run as OpenAI chat messages.

    Parameters
    ----------
    run : Trajectory
        The run.

    Returns
    -------
    dict

    Examples
    --------
    >>> to_openai(Trajectory(query="Hello", final_answer="Hi"))["messages"][1]
    {'role': 'assistant', 'content': 'Hi'}
    """
    found: dict[str, Any] = FORMATS["openai"].write(run)
    return found


def to_anthropic(run: Trajectory) -> dict[str, Any]:
    """A run as Anthropic messages with content blocks.

    Parameters
    ----------
    run : Trajectory
        The run.

    Returns
    -------
    dict

    Examples
    --------
    >>> to_anthropic(Trajectory(query="Hello"))["messages"]
    [{'role': 'user', 'content': 'Hello'}]
    """
    found: dict[str, Any] = FORMATS["anthropic"].write(run)
    return found


def to_otel(run: Trajectory) -> dict[str, Any]:
    """A run as an OTLP document with OpenTelemetry's conventions for generative AI.

    Parameters
    ----------
    run : Trajectory
        The run.

    Returns
    -------
    dict

    Examples
    --------
    >>> list(to_otel(Trajectory(query="Hello")))
    ['resourceSpans']
    """
    found: dict[str, Any] = FORMATS["otel"].write(run)
    return found


def gold_from_dict(given: Mapping[str, Any]) -> Gold:
    """A reference in our own format: calls with their structure.

    Raises
    ------
    InputError
        A field is missing or wrong.
    """
    try:
        return Gold(
            calls=[reference_call(one, index) for index, one in enumerate(given["calls"])],
            structure=given.get("structure", "parallel"),
            id=record_id(given),
            query=_text(given, "query"),
            edges=tuple(_edge(one) for one in given.get("edges") or ()),
            order=tuple((int(a), int(b)) for a, b in given.get("order") or ()),
            optional=frozenset(given.get("optional") or ()),
            alternatives=tuple(
                gold_from_dict({"structure": given.get("structure", "parallel"), **one})
                for one in given.get("alternatives") or ()
            ),
            matchers=_rules(given.get("matchers") or {}),
            difficulty=_text(given, "difficulty"),
            twin_id=_text(given, "twin_id"),
            domain=_text(given, "domain"),
            final_answer=_text(given, "final_answer") or None,
            facts=tuple(map(str, given.get("facts") or ())),
            end_state=given.get("end_state"),
        )
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        lacking = "calls" not in given if isinstance(given, Mapping) else True
        message = "not a reference" if not lacking else "not a reference: it has no calls"
        raise InputError(message, expected=REFERENCE) from error


def reference_call(given: Any, index: int) -> Call:
    """A call of a reference in our own format.

    Raises
    ------
    InputError
        It has no name, or arguments that aren't an object.
    """
    if not isinstance(given, Mapping) or not isinstance(given.get("name"), str):
        raise InputError(f"call {index} of the reference has no name", expected=REFERENCE)
    args, _, error = read_arguments(given.get("args"))
    if error is not None:
        raise InputError(f"call {index} of the reference: {error}", expected=REFERENCE)
    return call_from_dict({**given, "args": args}, index)


def _edge(given: Any) -> Edge:
    known = {"producer": int, "consumer": int, "parameter": str, "path": str}
    if not isinstance(given, Mapping) or any(
        name not in known or type(value) is not known[name] for name, value in given.items()
    ):
        raise InputError("an edge that can't be read", expected="producer, consumer (numbers), parameter, path (texts)")
    try:
        path_steps(given.get("path", "$"))
        return Edge(**given)
    except (TypeError, ValueError) as error:
        what = f"path {given['path']}" if "path" in given else ", ".join(given)
        expected = "producer, consumer, parameter, and a path like $.a[0]"
        raise InputError(f"an edge with {what}", expected=expected) from error


def _rules(given: Any) -> dict[str, Any]:
    """Rules for arguments, which are made once to see that they can be."""
    if not isinstance(given, Mapping):
        raise InputError("matchers that aren't an object", expected="rules by tool.parameter")
    for rule in given.values():
        make_match(rule)
    return dict(given)


def _text(given: Mapping[str, Any], field: str) -> str:
    value = given.get(field)
    if isinstance(value, list | dict):
        raise InputError(f"{field} of type {type(value).__name__}", expected="a text")
    return "" if value is None else str(value)


def gold_to_dict(gold: Gold) -> dict[str, Any]:
    """A reference in our own format."""
    fields = ("query", "matchers", "difficulty", "twin_id", "domain", "final_answer", "end_state")
    known = {name: value for name in fields if (value := getattr(gold, name)) not in (None, "", {})}
    return {
        "id": gold.id,
        "structure": gold.structure,
        **known,
        **({"facts": list(gold.facts)} if gold.facts else {}),
        **({"optional": sorted(gold.optional)} if gold.optional else {}),
        **({"order": [list(pair) for pair in gold.order]} if gold.order else {}),
        **(
            {
                "edges": [
                    {"producer": e.producer, "consumer": e.consumer, "parameter": e.parameter, "path": e.path}
                    for e in gold.edges
                ]
            }
            if gold.edges
            else {}
        ),
        **({"alternatives": [gold_to_dict(one) for one in gold.alternatives]} if gold.alternatives else {}),
        "calls": [call_to_dict(call) for call in gold.calls],
    }


def gold_from_trajectory(run: Trajectory, *, structure: Structure = "parallel") -> Gold:
    """A recorded run taken as the reference."""
    return Gold(
        run.calls,
        structure=structure,
        id=run.id,
        query=run.query,
        final_answer=run.final_answer,
    )


def read_gold(path: str | os.PathLike[str], *, structure: Structure | None = None) -> list[Gold]:
    """Read references.

    Parameters
    ----------
    path : path
        Our own format, TRAJECT-Bench files, or recorded runs that count as right; or a folder of them.
    structure : {'parallel', 'sequential', 'dag'}, optional
        Of references that don't say it themselves; ``parallel`` when left out, and ``sequential`` for the sequential
        files of TRAJECT-Bench.

    Returns
    -------
    list of Gold

    Raises
    ------
    InputError
        A file can't be read, or two references share an id.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
    ...     _ = file.write('{"id": "1", "structure": "sequential", "calls": [{"name": "a", "args": {}}]}')
    ...     file.flush()
    ...     read_gold(file.name)[0].structure
    'sequential'
    """
    found: list[Gold] = []
    for file in _files(path):
        stem = Path(file).name.partition(".")[0]
        rows = list(records(file))
        for number, (row, record) in enumerate(rows, start=1):
            gold = _read_gold(record, file, row, structure)
            gold.id = gold.id or (f"{stem}:{number}" if len(rows) > 1 else stem)
            if TWIN_FILE.fullmatch(stem) and not gold.difficulty:
                gold.difficulty = stem.partition("_")[0]
                gold.domain = gold.domain or Path(file).parent.name
                gold.id, gold.twin_id = f"{gold.domain}:{stem}:{number}", f"{gold.domain}:{number}"
            found.append(gold)
    seen: set[str] = set()
    for gold in found:
        if gold.id in seen:
            raise InputError(f"two references have the id '{gold.id}'", file=path, expected="one reference a task")
        seen.add(gold.id)
    return found


def _read_gold(record: Any, file: str | Path, row: int, structure: Structure | None) -> Gold:
    with naming_record(str(file), row):
        if isinstance(record, Mapping) and "structure" in record:
            return gold_from_dict(record)
        known = detect(record)
        runs = read_record(known, record)
    if len(runs) != 1:
        raise InputError(f"{len(runs)} runs in one record", file=str(file), row=row, expected="one reference a record")
    chosen: Structure = structure or (
        "sequential" if known is FORMATS["traject"] and "sequence_name" in record else "parallel"
    )
    gold = gold_from_trajectory(runs[0], structure=chosen)
    if isinstance(record, Mapping):
        gold.domain = str(record.get("domain", ""))
        gold.difficulty = str(record.get("difficulty", ""))
        gold.twin_id = str(record.get("twin_id", ""))
    return gold


SCHEMA_TYPES = {"number": "number", "integer": "integer", "boolean": "boolean", "array": "array", "object": "object",
                "json": "object"}  # fmt: skip


def schema_of_type(kind: Any) -> dict[str, Any]:
    """The JSON Schema of a parameter type of TRAJECT-Bench; a type with parentheses is the part before them."""
    name = str(kind or "").partition("(")[0].strip().lower()
    if name == "date":
        return {"type": "string", "format": "date"}
    return {"type": SCHEMA_TYPES.get(name, "string")}


def tool_from_dict(given: Mapping[str, Any]) -> Tool:
    """A tool in TRAJECT-Bench's, OpenAI's, Anthropic's or MCP's form, or our own.

    Raises
    ------
    InputError
        It has no name.
    """
    try:
        return _tool_from_dict(given)
    except InputError:
        raise
    except (AttributeError, TypeError, KeyError, ValueError) as error:
        shown = given.get("name", given.get("tool name")) if isinstance(given, Mapping) else type(given).__name__
        expected = "a name, and a JSON Schema of its arguments"
        raise InputError(f"the tool {shown} can't be read", expected=expected) from error


def _tool_from_dict(given: Mapping[str, Any]) -> Tool:
    if "tool name" in given:
        return _traject_tool(given)
    given = given.get("function", given)
    schema = next((given[key] for key in ("parameters", "input_schema", "inputSchema") if given.get(key)), None)
    if schema is not None:
        schema = {**schema, "properties": _properties(schema), "required": list(map(str, schema.get("required") or ()))}
    if not isinstance(given.get("name"), str):
        raise InputError(f"a tool without a name, with the keys {', '.join(map(str, given))}", expected="a name")
    return Tool(
        given["name"],
        _text(given, "description"),
        schema or {},
        dict(given.get("returns") or given.get("outputSchema") or {}),
        _text(given, "domain"),
        _text(given, "parent"),
        tuple(map(str, given.get("groups") or ())),
        {name: tuple(map(str, parameters)) for name, parameters in (given.get("connected") or {}).items()},
    )


def _properties(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters' schemas by name; ``true``, which allows everything, as an empty schema."""
    found = {name: {} if one is True else one for name, one in (schema.get("properties") or {}).items()}
    if not all(isinstance(one, Mapping) for one in found.values()):
        raise TypeError("a parameter without schema")
    return found


def _traject_tool(given: Mapping[str, Any]) -> Tool:
    properties: dict[str, Any] = {}
    required: list[str] = []
    for bucket in ("required", "optional"):
        for entry in given.get(f"{bucket}_parameters", given.get(f"{bucket} parameters")) or ():
            schema = schema_of_type(entry.get("type"))
            schema["description"] = entry.get("description", "")
            # In these files the default of a required parameter is an example, and a blank one is none.
            if bucket == "optional" and str(entry.get("default", "")).strip():
                schema["default"] = entry["default"]
            properties[str(entry["name"]).strip()] = schema
            if bucket == "required":
                required.append(str(entry["name"]).strip())
    connected = {
        str(one.get("tool name")): tuple(str(p.get("name")) for p in one.get("connect params") or ())
        for one in given.get("connected tools") or ()
    }
    return Tool(
        str(given["tool name"]),
        _text(given, "tool description"),
        {"type": "object", "properties": properties, "required": required},
        domain=_text(given, "domain name"),
        parent=_text(given, "parent tool name"),
        connected=connected,
    )


def read_tools(path: str | os.PathLike[str]) -> list[Tool]:
    """Read tool definitions from a JSON list or JSON lines, or a folder of such files.

    Parameters
    ----------
    path : path
        Tools in TRAJECT-Bench's, OpenAI's, Anthropic's or MCP's form, or our own.

    Returns
    -------
    list of Tool

    Raises
    ------
    InputError
        A file can't be read, or something in it isn't a tool.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
    ...     _ = file.write('[{"name": "news", "input_schema": {"type": "object"}}]')
    ...     file.flush()
    ...     read_tools(file.name)[0].name
    'news'
    """
    found: list[Tool] = []
    for file in _files(path):
        for row, record in records(file):
            every = record.get("tools", [record]) if isinstance(record, Mapping) else record
            for one in every if isinstance(every, list) else [every]:
                with naming_record(str(file), row):
                    if not isinstance(one, Mapping):
                        raise InputError(f"a tool of type {type(one).__name__}", expected="an object")
                    found.append(tool_from_dict(one))
    return found
