"""The folder that a job writes, the tables in it, and the line that shows how far it is."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from assay.core.errors import InputError
from assay.core.files import atomic_path, write_text
from assay.core.jobs import STREAM, Reporting, shows_progress

__all__ = ["check_folder", "progress", "write_lines", "write_table"]

TABLES = (".csv", ".json", ".parquet")


def check_folder(out: str, *, marker: str, resume: bool, force: bool) -> Path:
    """The folder to write, new or of a stopped run, which holds a file `marker`.

    Parameters
    ----------
    out, marker : str
    resume, force : bool
        What the user asked for.

    Returns
    -------
    Path

    Raises
    ------
    InputError
        It can't be written, is in use, or isn't of a stopped run.
    """
    if out == STREAM or not out:
        raise InputError(f"--out is '{out}'", expected="the name of a folder to write")
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise InputError("is a file", file=out, expected="the name of a folder to write")
    if not folder.parent.is_dir():
        raise InputError(f"the folder {folder.parent} doesn't exist", file=out, expected="an existing folder")
    if not os.access(folder if folder.is_dir() else folder.parent, os.W_OK):
        raise InputError("no permission to write", file=out, expected="a writable folder")
    if resume:
        if not (folder / marker).is_file():
            raise InputError(f"holds no {marker}", file=out, expected="the folder of a stopped run, or no --resume")
    elif folder.is_dir() and any(folder.iterdir()) and not force:
        hint = "--resume to go on, or --force" if (folder / marker).is_file() else "another name, or --force"
        raise InputError("exists already", file=out, expected=hint)
    return folder


def write_lines(file: Path, entries: Sequence[Mapping[str, Any]]) -> None:
    """One JSON value a line."""
    write_text(file, "".join(json.dumps(entry) + "\n" for entry in entries), force=True)


def write_table(rows: Sequence[Mapping[str, Any]], out: str, *, force: bool) -> None:
    """A table as CSV, JSON or Parquet, by the name's ending."""
    name = out.lower()
    if name.endswith(".parquet"):
        import pyarrow as pa
        import pyarrow.parquet as pq

        with atomic_path(out, force=force) as temporary:
            pq.write_table(pa.Table.from_pylist(list(rows)), temporary)
        return
    if name.endswith(".json"):
        write_text(out, json.dumps(list(rows), indent=1), force=force)
        return
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(out, stream.getvalue(), force=force)


@contextmanager
def progress(total: int, reporting: Reporting) -> Iterator[Callable[[int, str], None]]:
    """A line that is renewed on a terminal; nothing in a pipe. It is told how much is done, and some words."""
    if not shows_progress(reporting):
        yield lambda done, said: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        line = bar.add_task("", total=total)
        yield lambda done, said: bar.update(line, completed=done, description=said)
