"""Edit requests as people have them: UnKEBench, AKEW, CounterFact, MQuAKE-CF, WikiUpdate, zsRE, EasyEdit, CSV and
JSON lines.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from assay.core.errors import InputError
from assay.core.files import STREAM, existing_file, read_lines
from assay.edit.requests import EditRequest

__all__ = ["read_preserve", "read_requests"]

SUFFIXES = (".json", ".jsonl", ".csv", ".tsv", ".json.gz", ".jsonl.gz", ".csv.gz", ".tsv.gz")
MOST_SUB_QUESTIONS = 5
TABLE_SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
LONGEST_CELL = 2**31 - 1
LOCALITY_PREFIX = "nq question: "
Record = Mapping[str, Any]


def read_requests(path: str | os.PathLike[str], *, last_wins: bool = False) -> list[EditRequest]:
    r"""Read edit requests from a file, whatever its format.

    Parameters
    ----------
    path : path
        ``.json`` (a list of records, or one), ``.jsonl`` (one a line), ``.csv`` or ``.tsv`` (with a header line), plain
        or gzipped; ``"-"`` is CSV or JSON on standard input. The format of a record is seen by its fields: UnKEBench
        (``para_question``), AKEW and its MQuAKE-CF and WikiUpdate (``requested_rewrite`` with ``fact_new_uns``),
        CounterFact (``requested_rewrite`` with ``target_new``), zsRE (``src``), EasyEdit (``prompt`` and
        ``target_new``), or ``question`` and ``answer``.
    last_wins : bool
        Of several answers to one question, keep the last one.

    Returns
    -------
    list of EditRequest

    Raises
    ------
    InputError
        The file can't be read, a record is of no known format or lacks a field (naming both), or two records disagree.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "facts.csv"
    ...     _ = file.write_text("question,answer\nWho wrote it?,Ann did.\n")
    ...     read_requests(file)[0].answer
    'Ann did.'
    """
    name = "standard input" if os.fspath(path) == STREAM else os.fspath(path)
    if os.fspath(path) != STREAM:
        existing_file(path, suffixes=SUFFIXES)
    lines = read_lines(path)
    rows = _rows(lines, name)
    found: list[EditRequest] = []
    places: list[int] = []
    for place, record in rows:
        for request in _requests(record, file=name, row=place):
            for field in ("question", "answer"):
                if not getattr(request, field).strip():
                    raise InputError(f"the {field} is empty", file=name, row=place, column=field, expected="some text")
            _require_text(request, file=name, row=place)
            found.append(request)
            places.append(place)
    if not found:
        raise InputError("holds no record", file=name, expected="at least one edit request")
    seen: dict[str, int] = {}
    for index, request in enumerate(found):
        other = seen.get(request.question.strip())
        if other is not None and found[other].answer != request.answer and not last_wins:
            raise InputError(
                f"rows {places[other]} and {places[index]} give {request.question!r} two answers: "
                f"{found[other].answer!r} and {request.answer!r}",
                file=name,
                expected="one answer a question, or --last-wins",
            )
        seen[request.question.strip()] = index
    return [found[index] for index in sorted(seen.values())]


def read_preserve(path: str | os.PathLike[str]) -> list[str | tuple[str, str]]:
    """Read texts to preserve: Alpaca's JSON (instruction, input, output), or plain text with one a line.

    Parameters
    ----------
    path : path
        ``.json``, ``.jsonl`` or ``.txt``.

    Returns
    -------
    list of str or (str, str)

    Raises
    ------
    InputError
        The file can't be read, or a record lacks a field.
    """
    file = existing_file(path, suffixes=(".json", ".jsonl", ".txt", ".json.gz", ".jsonl.gz", ".txt.gz"))
    lines = read_lines(file)
    if ".txt" in file.name.lower():
        return [line for line in lines if line.strip()]
    texts: list[str | tuple[str, str]] = []
    for place, record in _json_rows(lines, str(file)):
        for field in ("instruction", "output"):
            _text(record, field, file=str(file), row=place)
        given = str(record.get("input") or "").strip()
        texts.append((record["instruction"] + (f"\n{given}" if given else ""), record["output"]))
    return texts


def _rows(lines: list[str], name: str) -> list[tuple[int, Record]]:
    first = next((line.lstrip() for line in lines if line.strip()), "")
    lowered = os.path.basename(name).lower()
    if ".json" in lowered or (first[:1] in ("[", "{") and not lowered.endswith(TABLE_SUFFIXES)):
        if first[:1] not in ("[", "{"):
            raise InputError("begins with neither [ nor {", file=name, expected="JSON")
        return _json_rows(lines, name)
    return _table_rows(lines, name, "\t" if ".tsv" in lowered else ",")


def _json_rows(lines: list[str], name: str) -> list[tuple[int, Record]]:
    """A list of records, one record, or one a line."""
    text = "\n".join(lines)
    if text.lstrip().startswith("["):
        rows = list(enumerate(_parsed(text, name), start=1))
    else:
        filled = [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
        if len(filled) > 1 and not _is_json(filled[0][1]):
            rows = [(1, _parsed(text, name))]
        else:
            rows = [(number, _parsed(line, name, row=number)) for number, line in filled]
    for place, record in rows:
        if not isinstance(record, dict):
            raise InputError(f"is a {type(record).__name__}", file=name, row=place, expected="a record {…}")
    return rows


def _parsed(text: str, name: str, *, row: int = 1) -> Any:
    """JSON that begins in line `row`."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = row + error.lineno - 1
        raise InputError(
            f"damaged JSON: {error.msg}", file=name, row=place, column=error.colno, expected="whole JSON"
        ) from error
    except (ValueError, RecursionError) as error:
        raise InputError(
            "damaged JSON: a number too long or records too deep", file=name, row=row, expected="whole JSON"
        ) from error


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _table_rows(lines: list[str], name: str, delimiter: str) -> list[tuple[int, Record]]:
    # Answers may be longer than the module's own limit on a cell.
    csv.field_size_limit(LONGEST_CELL)
    reader = csv.reader(io.StringIO("\n".join(lines)), delimiter=delimiter, strict=True)
    rows: list[tuple[int, Record]] = []
    header: list[str] = []
    begin = 1
    try:
        for cells in reader:
            place, begin = begin, reader.line_num + 1
            if not any(cell.strip() for cell in cells):
                continue
            if not header:
                header = _header(cells, name, place)
                continue
            if len(cells) != len(header):
                raise InputError(f"has {len(cells)} cells", file=name, row=place, expected=f"{len(header)} as above")
            row: dict[str, Any] = {"paraphrases": []}
            for column, cell in zip(header, cells, strict=True):
                if column.startswith("paraphrase"):
                    row["paraphrases"] += [cell] if cell.strip() else []
                else:
                    row[column] = cell
            rows.append((place, row))
    except csv.Error as error:
        raise InputError(f"damaged: {error}", file=name, row=begin, expected="cells between delimiters") from error
    return rows


def _header(cells: list[str], name: str, place: int) -> list[str]:
    header = [cell.strip() for cell in cells]
    for field in ("question", "answer"):
        if header.count(field) != 1:
            has = f"has {header.count(field)} columns '{field}'" if field in header else f"has no column '{field}'"
            raise InputError(has, file=name, row=place, expected="a header with question and answer")
    return header


def _requests(record: Record, *, file: str, row: int) -> list[EditRequest]:
    rewrite = record.get("requested_rewrite")
    if rewrite is not None:
        several = rewrite if isinstance(rewrite, list) else [rewrite]
        for one in several:
            _require_record(one, "requested_rewrite", file=file, row=row)
        return [_rewritten(record, one, file=file, row=row) for one in several]
    reader: Callable[..., EditRequest]
    if "src" in record:
        reader = _zsre
    elif "prompt" in record and "target_new" in record:
        reader = _easyedit
    elif "question" in record:
        reader = _plain
    else:
        fields = ", ".join(list(record)[:6]) or "no field"
        raise InputError(
            f"is of no known format: it has {fields}",
            file=file,
            row=row,
            expected="question and answer, or a known benchmark",
        )
    return [reader(record, file=file, row=row)]


def _plain(record: Record, *, file: str, row: int) -> EditRequest:
    """Question and answer; UnKEBench's further fields where they are."""
    paraphrases = (
        _list(record.get("para_question")) + _list(record.get("paraphrases")) + _list(record.get("paraphrase"))
    )
    return EditRequest(
        _text(record, "question", file=file, row=row),
        _text(record, "answer", file=file, row=row),
        tuple(paraphrases),
        _pairs(record, "sub_question", "sub_answer"),
        _optional(record.get("ground_truth")),
        subject=_optional(record.get("subject")),
        id=_optional(record.get("id")),
        source_questions=_pairs(record, "source_question", "source_answer"),
        target_questions=_pairs(record, "target_question", "target_answer"),
    )


def _rewritten(record: Record, rewrite: Record, *, file: str, row: int) -> EditRequest:
    """CounterFact, and AKEW's unstructured versions of it, MQuAKE-CF and WikiUpdate."""
    subject = _optional(rewrite.get("subject"))
    old, new = rewrite.get("target_true"), rewrite.get("target_new")
    ground_truth = _optional(old.get("str") if isinstance(old, Mapping) else old)
    paraphrases = _list(record.get("paraphrase_prompts"))
    locality = tuple((prompt, ground_truth or "") for prompt in _list(record.get("neighborhood_prompts")))
    if "fact_new_uns" in rewrite:
        field = "prompt_full" if "prompt_full" in rewrite else "question"
        triples = rewrite.get("unsfact_triplets_GPT") or record.get("unsfact_triplets_GPT") or []
        return EditRequest(
            _text(rewrite, field, file=file, row=row),
            _text(rewrite, "fact_new_uns", file=file, row=row),
            tuple(paraphrases[:1]),
            tuple(_triple(one, file=file, row=row) for one in _items(triples)[:MOST_SUB_QUESTIONS]),
            ground_truth,
            locality,
            subject,
            _optional(record.get("case_id")),
        )
    answer = _optional(new.get("str") if isinstance(new, Mapping) else new)
    if answer is None:
        raise InputError("the field is missing", file=file, row=row, column="target_new", expected="the new answer")
    return EditRequest(
        _text(rewrite, "prompt", file=file, row=row).replace("{}", subject or ""),
        answer,
        tuple(paraphrases),
        (),
        ground_truth,
        locality,
        subject,
        _optional(record.get("case_id")),
    )


def _zsre(record: Record, *, file: str, row: int) -> EditRequest:
    field = "alt" if "alt" in record else "answers"
    answers = _list(record.get(field))
    if not answers:
        raise InputError("the field is missing", file=file, row=row, column=field, expected="the new answer")
    question = str(record.get("loc") or "")
    locality = ((question.removeprefix(LOCALITY_PREFIX), str(record.get("loc_ans") or "")),) if question else ()
    old = _list(record.get("answers")) if field == "alt" else []
    return EditRequest(
        _text(record, "src", file=file, row=row),
        answers[0],
        tuple(_list(record.get("rephrase"))),
        (),
        old[0] if old else None,
        locality,
        _optional(record.get("subject")),
    )


def _easyedit(record: Record, *, file: str, row: int) -> EditRequest:
    named = {
        field: [
            _pairs(_require_record(one, field, file=file, row=row), "prompt", "ground_truth")
            for one in _require_record(record.get(field) or {}, field, file=file, row=row).values()
        ]
        for field in ("locality", "portability")
    }
    return EditRequest(
        _text(record, "prompt", file=file, row=row),
        _text(record, "target_new", file=file, row=row),
        tuple(_list(record.get("rephrase_prompt"))),
        tuple(pair for pairs in named["portability"] for pair in pairs),
        _optional(record.get("ground_truth")),
        tuple(pair for pairs in named["locality"] for pair in pairs),
        _optional(record.get("subject")),
    )


def _text(record: Record, field: str, *, file: str, row: int) -> str:
    if field not in record or record[field] is None:
        raise InputError("the field is missing", file=file, row=row, column=field, expected="some text")
    value = record[field]
    if not isinstance(value, str) or not value.strip():
        what = "is empty" if isinstance(value, str) else f"is {value!r}"
        raise InputError(f"the {field} {what}", file=file, row=row, column=field, expected="some text")
    return value


def _optional(value: Any) -> str | None:
    if isinstance(value, list):
        value = value[0] if value else None
    return None if value is None or not str(value).strip() else str(value)


def _list(value: Any) -> list[str]:
    if value is None:
        return []
    given = value if isinstance(value, list) else [value]
    return [str(one) for one in given if str(one).strip()]


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _pairs(record: Record, questions: str, answers: str) -> tuple[tuple[str, str], ...]:
    """Two fields of a record, scalars or lists, one beside the other. A pair that lacks a side is left out."""
    asked, right = record.get(questions), record.get(answers)
    if not isinstance(asked, list):
        asked, right = [asked], [right]
    # Benchmarks give several right answers as a list of their own: the first one counts.
    pairs = [(_optional(one), _optional(other)) for one, other in zip(asked, _items(right), strict=False)]
    return tuple((one, other) for one, other in pairs if one is not None and other is not None)


def _triple(triple: Any, *, file: str, row: int) -> tuple[str, str]:
    """A question about a part of the answer, from a prompt with a gap for its subject."""
    record = _require_record(triple, "unsfact_triplets_GPT", file=file, row=row)
    prompt, target = (_text(record, field, file=file, row=row) for field in ("prompt", "target"))
    return prompt.replace("{}", _optional(record.get("subject")) or ""), target


def _require_record(value: Any, field: str, *, file: str, row: int) -> Record:
    if not isinstance(value, dict):
        raise InputError(f"is a {type(value).__name__}", file=file, row=row, column=field, expected="a record {…}")
    return value


def _require_text(request: EditRequest, *, file: str, row: int) -> None:
    """Half a surrogate pair, which JSON can spell, is no text: no tokenizer takes it and no file can hold it."""
    texts = [request.question, request.answer, request.ground_truth or "", request.subject or "", request.id or ""]
    texts += request.paraphrases
    for pairs in (request.sub_questions, request.locality, request.source_questions, request.target_questions):
        texts += [text for pair in pairs for text in pair]
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"{text[:40]!r} holds half a surrogate pair", file=file, row=row, expected="whole characters"
            ) from error
