"""Text as people have it: plain, JSON lines, Parquet, folders, hub data sets."""

from __future__ import annotations

import json
import os
import sysconfig
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from assay.core.errors import InputError, MissingPackageError
from assay.core.files import STREAM, existing_file, read_lines

__all__ = ["ByteTokens", "Tokens", "hub_documents", "name_of", "read_texts", "standard_library"]

PLAIN = (".txt", ".text", ".md", ".py", ".txt.gz", ".text.gz")
LINES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")
TABLE = (".parquet",)
DOCUMENTS = 20_000
"""Documents of a hub data set that are read at most where it is read whole; it may be endless."""
SHUFFLED = 10_000
"""Documents among which those of a stream are shuffled."""


class Tokens(Protocol):
    """What turns text into numbers."""

    size: int

    def encode(self, text: str) -> Sequence[int]:
        """The tokens of a text."""
        ...


class ByteTokens:
    """UTF-8 bytes as tokens."""

    size = 256

    def encode(self, text: str) -> Sequence[int]:
        """The bytes of a text."""
        return text.encode("utf-8")


def read_texts(source: str, *, column: str = "text", split: str = "train") -> list[str]:
    """Read documents.

    Parameters
    ----------
    source : str
        A file (.txt, .md, .py, .jsonl, .ndjson, .parquet; text may be gzipped), a folder of such files, ``-`` for text
        on standard input, or the name of a hub data set, ``owner/name`` or ``owner/name:config``.
    column : str
        Which field of JSON lines, Parquet or a data set holds the text.
    split : str
        Which part of a hub data set.

    Raises
    ------
    InputError
        The file is missing, empty, damaged, of another kind, or holds no text.
    """
    path = Path(source)
    if not source:
        raise InputError("the text's name is empty", expected="the name of a file or a folder")
    if source == STREAM:
        return _with_text([_joined(STREAM)], "standard input")
    if path.is_dir():
        try:
            files = sorted(
                file
                for file in path.rglob("*")
                if file.name.lower().endswith((*PLAIN, *LINES, *TABLE)) and file.is_file()
            )
            files = [file for file in files if file.stat().st_size]
        except OSError as error:
            raise InputError(
                (error.strerror or str(error)).lower(), file=error.filename or source, expected="a readable folder"
            ) from error
        if not files:
            raise InputError(
                "the folder holds no text",
                file=source,
                expected=f"files that end in {', '.join((*PLAIN, *LINES, *TABLE))}",
            )
        return _with_text([text for file in files for text in _read_file(file, column)], source)
    if not path.exists() and source.count("/") == 1 and not path.suffix and not source.startswith("."):
        return _with_text(_read_hub(source, column, split), source)
    return _with_text(_read_file(existing_file(source, suffixes=(*PLAIN, *LINES, *TABLE)), column), source)


def _with_text(texts: list[str], source: str) -> list[str]:
    if not any(text.strip() for text in texts):
        raise InputError("holds no text", file=source, expected="at least one line of text")
    return texts


def _joined(source: str | Path) -> str:
    return "\n".join(read_lines(source))


def _read_file(file: Path, column: str) -> list[str]:
    name = file.name.lower()
    if name.endswith(LINES):
        return list(_read_json_lines(file, column))
    return _read_table(file, column) if name.endswith(TABLE) else [_joined(file)]


def _read_json_lines(file: Path, column: str) -> Iterator[str]:
    for number, line in enumerate(read_lines(file), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            # Besides what isn't JSON: numbers of too many digits, and lists in lists without end.
            reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error).partition(";")[0]
            raise InputError(
                f"is not JSON: {reason}", file=file, row=number, expected="one JSON value a line"
            ) from error
        text = value.get(column) if isinstance(value, dict) else value
        if not isinstance(text, str):
            fields = ", ".join(value) if isinstance(value, dict) else type(value).__name__
            raise InputError(
                f"has no text in '{column}' ({fields})",
                file=file,
                row=number,
                expected="--column with the field that holds the text",
            )
        if not _is_unicode(text):
            raise InputError("holds half of a surrogate pair", file=file, row=number, expected="whole characters")
        yield text


def _is_unicode(text: str) -> bool:
    """Whether a text holds no lone half of a surrogate pair, which JSON can spell and UTF-8 can't."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _read_table(file: Path, column: str) -> list[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        names = pq.read_schema(file).names
        if column not in names:
            raise InputError(f"has no column '{column}'", file=file, expected=f"--column, one of: {', '.join(names)}")
        values = pq.read_table(file, columns=[column]).column(column)
        if pa.types.is_dictionary(values.type) and _is_text(values.type.value_type):
            values = values.cast(values.type.value_type)
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"damaged: {str(error).splitlines()[0]}", file=file, expected="a Parquet file") from error
    if not _is_text(values.type):
        raise InputError(f"holds {values.type}", file=file, column=column, expected="a column of text")
    return [text for text in values.to_pylist() if text is not None]


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _read_hub(source: str, column: str, split: str) -> list[str]:
    return list(islice(hub_documents(source, column=column, split=split), DOCUMENTS))


def hub_documents(source: str, *, column: str = "text", split: str = "train", seed: int | None = None) -> Iterator[str]:
    """The documents of a hub data set as they come over the network.

    Parameters
    ----------
    source : str
        ``owner/name`` or ``owner/name:config``.
    column, split : str
        Which field of which part.
    seed : int, optional
        Shuffle within a buffer of documents.

    Raises
    ------
    InputError
        There is no such data set, or it has no such field.
    MissingPackageError
        datasets isn't installed.
    """
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise MissingPackageError("datasets", what=f"the hub data set {source}", extra="peers") from error
    name, _, config = source.partition(":")
    try:
        rows = load_dataset(name, config or None, split=split, streaming=True)
        if seed is not None:
            rows = rows.shuffle(seed=seed, buffer_size=SHUFFLED)
        for row in rows:
            if column not in row:
                raise InputError(
                    f"the data set {source} has no field '{column}'", expected=f"--column, one of: {', '.join(row)}"
                )
            yield str(row[column])
    except InputError:
        raise
    except Exception as error:  # the hub's client raises errors of many kinds
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(
            f"neither a file nor a data set of the hub: {reason}",
            file=source,
            expected="a text file, a folder, or owner/name",
        ) from error


def standard_library(limit: int) -> str:
    """The running interpreter's own library as one text of at least `limit` characters where it has so many."""
    folder = Path(sysconfig.get_path("stdlib"))
    parts: list[str] = []
    size = 0
    for file in sorted(folder.glob("*.py")):
        text = file.read_text(encoding="utf-8", errors="ignore")
        parts.append(text)
        size += len(text)
        if size >= limit:
            break
    return "\n".join(parts)


def name_of(source: str) -> str:
    """A source in words."""
    return "standard input" if source == STREAM else os.fspath(source)
