"""Files of choices as people have them: tables, rankings as text, PrefLib, sushi orders, JSON lines."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from assay.core.errors import InputError
from assay.core.files import STREAM, existing_file, read_lines
from assay.probit.choices import (
    BEST,
    KIND_NAMES,
    ORDER,
    ChoiceData,
    completion_rankings,
    parse_answer,
    preferred_pairs,
    shown,
    users_of,
)

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ["FORMATS", "choice_text", "read_choices", "read_preflib"]

FORMATS = ("csv", "tsv", "parquet", "txt", "jsonl", "order", "soc", "soi", "toc", "toi")
TABLES = ("csv", "tsv", "parquet")
Values = Literal["auto", "rating", "rank"]

_USER_NAMES = ("user", "user_id", "userid", "respondent", "person", "id")
_ITEM_NAMES = ("item", "item_id", "itemid", "alternative", "movie", "movieid", "title")
_RATING_NAMES = ("rating", "score", "value")
_RANK_NAMES = ("rank", "ranking", "place")
_MISSING = frozenset({"", "na", "nan", "null", "none", "?"})
_ALTERNATIVE = re.compile(r"#\s*ALTERNATIVE NAME (\d+):\s*(.*)")
_GROUP = re.compile(r"\{([^}]*)\}|([^,{}]+)")
LEAST_ITEMS = 3


def read_choices(
    path: str | PathLike[str],
    *,
    format: str | None = None,
    values: Values = "auto",
    user: str | None = None,
    item: str | None = None,
    value: str | None = None,
    max_triples_per_user: int | None = 2000,
    random_state: int = 0,
) -> ChoiceData:
    r"""Read choices from a file.

    Parameters
    ----------
    path : path
        A table (.csv, .tsv, .parquet) with one row a rating or rank (columns such as user, item, rating or rank), or
        one row a person and one column an item; text (.txt) with one ranking a line such as ``a>b~c``; PrefLib (.soc,
        .soi, .toc, .toi); sushi orders (.order); or JSON lines (.jsonl) of prompt, completions, and ranking or
        ratings, or of chosen and rejected. Text may be gzipped; ``-`` is standard input.
    format : str, optional
        One of `FORMATS`, where the name doesn't tell.
    values : {"auto", "rating", "rank"}
        What numbers in a table mean: higher is better, or 1 is best. ``"auto"`` goes by the column's name, and takes
        the cells of a wide table for ratings.
    user, item, value : str, optional
        Columns of a long table, where the names don't tell.
    max_triples_per_user : int, optional
        Keep at most so many triples of a person.
    random_state : int
        The seed of that draw.

    Returns
    -------
    ChoiceData

    Raises
    ------
    InputError
        The file is missing, damaged, or of another kind; a cell isn't a number (naming row and column); a ranking
        holds an item twice; or there are fewer than three items.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> file = Path(mkdtemp(), "drinks.txt")
    >>> _ = file.write_text("tea>milk>beer\nbeer>tea~milk\n")
    >>> read_choices(file).items
    ('beer', 'milk', 'tea')
    """
    name = fspath(path)
    kind = format or _format_of(name)
    if kind not in FORMATS:
        raise InputError(f"unknown format {kind!r}", file=name, expected=f"one of {', '.join(FORMATS)}")
    if values not in ("auto", "rating", "rank"):
        raise InputError(f"values is {values!r}", expected="'auto', 'rating' or 'rank'")
    of_tables = {"user": user, "item": item, "value": value, "values": None if values == "auto" else values}
    for option, given in of_tables.items():
        if given is not None and kind not in TABLES:
            raise InputError(f"{option} is {given!r}, and {kind} is no table", expected="a table, or not that option")
    options: dict[str, Any] = {"max_triples_per_user": max_triples_per_user, "random_state": random_state}
    if kind in TABLES:
        return _of_table(_table(name, kind), values, (user, item, value), options)
    if kind == "jsonl":
        return _of_json(name, options)
    if kind == "order":
        return _of_orders(name, options)
    if kind == "txt":
        return _of_text(name, options)
    return read_preflib(name, **options)


def choice_text(data: ChoiceData) -> Iterator[str]:
    """One line an event, such as ``a>b>c``, ``a>b~c`` or ``a>b``; what `read_choices` reads as text.

    Raises
    ------
    InputError
        An item's text holds a character that separates items.
    """
    names = [str(item) for item in data.items]
    for text in names:
        if ">" in text or "~" in text or text != text.strip() or not text:
            raise InputError(f"the item {text!r} can't be written as text", expected="names without > and ~")
    for (i, j, k), kind in zip(data.triples.tolist(), data.kinds.tolist(), strict=True):
        first, second = (">", ">") if kind == ORDER else (">", "~") if kind == BEST else ("~", ">")
        yield f"{names[i]}{first}{names[j]}{second}{names[k]}"
    for winner, loser in data.pairs.tolist():
        yield f"{names[winner]}>{names[loser]}"


def read_preflib(path: str | PathLike[str], **options: Any) -> ChoiceData:
    """Read a PrefLib file: orders with how many people gave each.

    Parameters
    ----------
    path : path
        The file: .soc, .soi, .toc or .toi.
    **options
        As for `ChoiceData.from_rankings`.

    Returns
    -------
    ChoiceData

    Raises
    ------
    InputError
        The file is damaged (naming the line).
    """
    file = fspath(path)
    lines = read_lines(file)
    names: dict[int, str] = {}
    rankings: list[Any] = []
    seen_names: set[str] = set()
    for row, line in enumerate(lines, start=1):
        text = line.strip()
        if not text:
            continue
        if text.startswith("#"):
            found = _ALTERNATIVE.match(text)
            if found:
                called = found[2].strip()
                names[int(found[1])] = (
                    called if called and called not in seen_names else f"{called} ({found[1]})".strip()
                )
                seen_names.add(called)
            continue
        head, separator, order = text.partition(":")
        if not separator or not head.strip().isdecimal():
            raise InputError(f"{_cut(text)!r} is no order", file=file, row=row, expected="a line such as 12: 3,1,{2,4}")
        rankings += [(row, _preflib_order(order, names, file, row))] * int(head)
    if not rankings:
        raise InputError("holds no order", file=file, expected="lines such as 12: 3,1,{2,4}")
    return _of_rankings(file, rankings, options, items=list(names.values()) if len(names) >= LEAST_ITEMS else None)


def _preflib_order(text: str, names: Mapping[int, str], file: str, row: int) -> list[Any]:
    order: list[Any] = []
    if any(brace in _GROUP.sub("", text) for brace in "{}"):
        raise InputError(f"{_cut(text)!r} has a brace without its other", file=file, row=row, expected="ties as {2,4}")
    for tied, single in _GROUP.findall(text):
        group = []
        for number in (tied if tied else single).split(","):
            number = number.strip()
            if not number:
                continue
            if not number.isdecimal():
                raise InputError(f"{number!r} is no alternative", file=file, row=row, expected="its number")
            if names and int(number) not in names:
                raise InputError(f"alternative {number} has no name", file=file, row=row, expected=f"1 to {len(names)}")
            group.append(names.get(int(number), number))
        if group:
            order.append(group if len(group) > 1 else group[0])
    return order


def _of_text(file: str, options: Mapping[str, Any]) -> ChoiceData:
    rankings = []
    for row, line in enumerate(read_lines(file), start=1):
        if line.strip():
            try:
                rankings.append((row, parse_answer(line)))
            except InputError as error:
                raise InputError(error.message, file=file, row=row, expected=error.expected) from error
    return _of_rankings(file, rankings, options)


def _of_orders(file: str, options: Mapping[str, Any]) -> ChoiceData:
    """Sushi orders: a first line "items 1", then lines "0 m item item ..." from best to worst."""
    lines = read_lines(file)
    head = lines[0].split() if lines else []
    if len(head) != 2 or not all(word.isdecimal() for word in head):
        raise InputError(
            "the first line isn't the number of items and 1", file=file, row=1, expected="a line such as 10 1"
        )
    rankings = []
    for row, line in enumerate(lines[1:], start=2):
        words = line.split()
        if not words:
            continue
        if not all(word.isdecimal() for word in words) or len(words) != 2 + int(words[1]):
            raise InputError(
                f"{_cut(line)!r} is no order", file=file, row=row, expected="0, the number of items, and the items"
            )
        over = [word for word in words[2:] if int(word) >= int(head[0])]
        if over:
            raise InputError(
                f"item {over[0]} is above the number of items", file=file, row=row, expected=f"0 to {int(head[0]) - 1}"
            )
        rankings.append((row, words[2:]))
    return _of_rankings(file, rankings, options)


def _of_json(file: str, options: Mapping[str, Any]) -> ChoiceData:
    rows, lines = [], []
    for row, line in enumerate(read_lines(file), start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except json.JSONDecodeError as error:
            raise InputError(f"not JSON: {error.msg}", file=file, row=row, expected="one JSON object a line") from error
        except RecursionError as error:
            raise InputError("is nested too deeply", file=file, row=row, expected="one JSON object a line") from error
        if not isinstance(entry, dict):
            raise InputError(f"holds a {type(entry).__name__}", file=file, row=row, expected="a JSON object")
        rows.append(entry)
        lines.append(row)
    if not rows:
        raise InputError("holds no row", file=file, expected="at least one JSON object")
    with _in_file(file):
        rankings, missing = (
            (preferred_pairs(rows, lines=lines), 0) if "chosen" in rows[0] else completion_rankings(rows, lines=lines)
        )
        users = users_of(rows, lines=lines)
    data = _of_rankings(file, list(zip(lines, rankings, strict=True)), options, users=users)
    return data.noting_dropped("ratings that are NaN", missing)


@contextmanager
def _in_file(file: str) -> Iterator[None]:
    """Say of an error of the library in which file it is."""
    try:
        yield
    except InputError as error:
        raise InputError(
            error.message, file=file, row=error.row, column=error.column, expected=error.expected
        ) from error


def _of_rankings(
    file: str,
    rankings: Sequence[tuple[int, Any]],
    options: Mapping[str, Any],
    items: list[str] | None = None,
    users: list[Hashable] | None = None,
) -> ChoiceData:
    for row, ranking in rankings:
        flat = [item for group in ranking for item in (group if isinstance(group, list) else [group])]
        if len(set(flat)) < len(flat):
            twice = next(item for place, item in enumerate(flat) if item in flat[:place])
            raise InputError(f"the ranking holds {twice!r} twice", file=file, row=row, expected="each item once")
    with _in_file(file):
        return ChoiceData.from_rankings([ranking for _, ranking in rankings], items=items, users=users, **options)


def _format_of(name: str) -> str:
    if name == STREAM:
        return "txt"
    suffixes = [suffix.lower().lstrip(".") for suffix in Path(name).suffixes]
    if suffixes and suffixes[-1] == "gz":
        suffixes.pop()
    ending = suffixes[-1] if suffixes else ""
    ending = "jsonl" if ending in ("json", "ndjson") else "parquet" if ending == "pq" else ending
    if ending not in FORMATS:
        existing_file(name)
        raise InputError(
            f"unknown ending '.{ending}'" if ending else "the name has no ending",
            file=name,
            expected=f"one of {', '.join(FORMATS)}, or --format",
        )
    return ending


@dataclass(frozen=True)
class _Table:
    """A table as text, whatever it was.

    Attributes
    ----------
    file : str
        Its name.
    header : list of str
        Names of the columns.
    rows : list of list of str
        The cells below.
    numbers : list of int
        Which row of the file each is: a line of text, or a row of a Parquet table counted from 1.
    """

    file: str
    header: list[str]
    rows: list[list[str]]
    numbers: list[int]

    def filled(self) -> Iterator[tuple[int, list[str]]]:
        """The rows that hold something, with their numbers."""
        return ((number, row) for number, row in zip(self.numbers, self.rows, strict=True) if row)


def _table(file: str, kind: str) -> _Table:
    if kind == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            table = pq.read_table(existing_file(file))
        except (pa.ArrowException, OSError) as error:
            reason = (str(error).splitlines() or [""])[0]
            raise InputError(f"damaged: {reason}", file=file, expected="a Parquet file") from error
        columns = [["" if cell is None else str(cell) for cell in column.to_pylist()] for column in table.columns]
        rows = [list(row) for row in zip(*columns, strict=True)]
        return _Table(file, list(table.column_names), rows, list(range(1, len(rows) + 1)))
    reader = csv.reader([text + "\n" for text in read_lines(file)], delimiter="," if kind == "csv" else "\t")
    rows, numbers, line = [], [], 1
    try:
        for row in reader:
            # A quoted cell may hold line ends: a row is where it starts.
            rows.append(row)
            numbers.append(line)
            line = reader.line_num + 1
    except csv.Error as error:
        raise InputError(f"damaged: {error}", file=file, row=line, expected="rows of cells") from error
    if not rows or not rows[0]:
        raise InputError("holds no header", file=file, row=1, expected="names of columns in the first line")
    for number, row in zip(numbers, rows, strict=True):
        if row and len(row) != len(rows[0]):
            raise InputError(
                f"has {len(row)} columns", file=file, row=number, expected=f"{len(rows[0])} as in the header"
            )
    return _Table(file, [name.strip() for name in rows[0]], rows[1:], numbers[1:])


def _of_table(
    table: _Table,
    values: Values,
    columns: tuple[str | None, str | None, str | None],
    options: Mapping[str, Any],
) -> ChoiceData:
    file, header = table.file, table.header
    if len(set(header)) < len(header):
        twice = next(name for place, name in enumerate(header) if name in header[:place])
        raise InputError(f"the header names {twice!r} twice", file=file, row=1, expected="each column once")
    found = _long_columns(file, header, columns)
    if found is None:
        return _of_wide(table, values, options)
    user, item, value, is_rank = found
    if values != "auto":
        is_rank = values == "rank"
    people: list[Hashable] = []
    things: list[Hashable] = []
    numbers: list[float] = []
    at: dict[tuple[str, str], float] = {}
    missing = repeated = 0
    for row_number, row in table.filled():
        number = _number(row[value], file, row_number, header[value])
        if number is None:
            missing += 1
            continue
        key = (row[user], row[item])
        if key in at:
            if at[key] != number:
                raise InputError(
                    f"user {key[0]} gave {key[1]!r} another value above",
                    file=file,
                    row=row_number,
                    expected="one value of an item by a user",
                )
            repeated += 1
            continue
        at[key] = number
        people.append(row[user])
        things.append(row[item])
        numbers.append(-number if is_rank else number)
    return _rated(file, people, things, numbers, missing, repeated, options)


def _long_columns(
    file: str, header: list[str], wanted: tuple[str | None, str | None, str | None]
) -> tuple[int, int, int, bool] | None:
    """Where user, item and value are, and whether the value is a rank; None for a wide table."""
    lower = [name.lower() for name in header]

    def place(name: str | None, known: Sequence[str], option: str) -> int | None:
        if name is not None:
            if name not in header:
                raise InputError(f"no column {name!r}", file=file, row=1, expected=f"{option} of {shown(header)}")
            return header.index(name)
        return next((lower.index(one) for one in known if one in lower), None)

    user, item = place(wanted[0], _USER_NAMES, "--user"), place(wanted[1], _ITEM_NAMES, "--item")
    rating, rank = place(wanted[2], _RATING_NAMES, "--value"), place(None, _RANK_NAMES, "--value")
    value, is_rank = (rating, False) if rating is not None else (rank, True)
    if value is not None and lower[value] in _RANK_NAMES:
        is_rank = True
    if user is None or item is None or value is None:
        if any(one is not None for one in wanted):
            raise InputError(
                "the columns of user, item and value aren't all known",
                file=file,
                row=1,
                expected="--user, --item and --value",
            )
        return None
    return user, item, value, is_rank


def _of_wide(table: _Table, values: Values, options: Mapping[str, Any]) -> ChoiceData:
    file, header = table.file, table.header
    named = header[0].lower() in _USER_NAMES or header[0] == ""
    start = 1 if named else 0
    if len(header) - start < LEAST_ITEMS:
        raise InputError(
            f"has the columns {shown(header)}",
            file=file,
            row=1,
            expected="user, item and rating or rank; or a column for each of 3 items or more",
        )
    people: list[Hashable] = []
    things: list[Hashable] = []
    numbers: list[float] = []
    missing = 0
    seen: set[str] = set()
    for row_number, row in table.filled():
        who = row[0] if named else str(row_number)
        if who in seen:
            raise InputError(f"user {who} has a row above", file=file, row=row_number, expected="one row a user")
        seen.add(who)
        for column in range(start, len(header)):
            number = _number(row[column], file, row_number, header[column])
            if number is None:
                missing += 1
                continue
            people.append(who)
            things.append(header[column])
            numbers.append(-number if values == "rank" else number)
    return _rated(file, people, things, numbers, missing, 0, options)


def _rated(
    file: str,
    people: list[Hashable],
    things: list[Hashable],
    numbers: list[float],
    missing: int,
    repeated: int,
    options: Mapping[str, Any],
) -> ChoiceData:
    if not people:
        raise InputError("holds no value", file=file, expected="rows of numbers below the header")
    table = {
        "user": np.array(people, dtype=object).astype(str),
        "item": np.array(things, dtype=object).astype(str),
        "rating": np.array(numbers, dtype=np.float64),
    }
    with _in_file(file):
        data = ChoiceData.from_ratings(table, **options)
    return data.noting_dropped("values that are missing or NaN", missing).noting_dropped(
        "rows that repeat another", repeated
    )


def _number(text: str, file: str, row: int, column: str) -> float | None:
    cell = text.strip()
    if cell.lower() in _MISSING:
        return None
    try:
        number = float(cell)
    except ValueError:
        raise InputError(
            f"{_cut(cell)!r} is not a number", file=file, row=row, column=column, expected="a number, or nothing"
        ) from None
    if math.isinf(number):
        raise InputError(
            f"{cell!r} is infinite", file=file, row=row, column=column, expected="a finite number, or nothing"
        )
    return number


def _cut(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}…"


def kind_counts(data: ChoiceData) -> dict[str, int]:
    """How many events there are of each kind."""
    counts = {name: int((data.kinds == code).sum()) for code, name in enumerate(KIND_NAMES)}
    return {**counts, "pair": len(data.pairs)}
