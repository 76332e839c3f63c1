"""Point files: vectors, strings, sets and distance matrices, in the formats in which people have them."""

from __future__ import annotations

import csv
import gzip
import math
import os
import re
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from assay.core.errors import InputError
from assay.core.files import existing_file, read_lines, read_matrix

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix

__all__ = ["Kind", "Points", "damage", "read_points", "standing_in"]

Kind: TypeAlias = Literal["vectors", "strings", "sets", "precomputed"]
"""What one object of a file is."""

STREAM = "-"
STANDARD_INPUT = "standard input"
VECTOR_METRICS = (
    *("euclidean", "l2", "sqeuclidean", "cityblock", "manhattan", "l1", "chebyshev", "linf"),
    *("minkowski", "haversine", "cosine"),
)
STRING_METRICS = ("levenshtein", "levenshtein_normalized", "osa", "jaro_winkler")
KIND_OF_METRIC: dict[str, tuple[Kind, ...]] = {
    **dict.fromkeys(VECTOR_METRICS, ("vectors",)),
    **dict.fromkeys(STRING_METRICS, ("strings",)),
    "hamming": ("vectors", "strings"),
    "jaccard": ("sets", "vectors"),
    "precomputed": ("precomputed",),
}
DEFAULT_METRIC: dict[Kind, str] = {
    "vectors": "euclidean",
    "strings": "levenshtein",
    "sets": "jaccard",
    "precomputed": "precomputed",
}

SUFFIXES: dict[str, tuple[str, ...]] = {
    "npy": (".npy",),
    "npz": (".npz",),
    "csv": (".csv", ".csv.gz"),
    "tsv": (".tsv", ".tsv.gz"),
    "parquet": (".parquet",),
    "arrow": (".arrow", ".feather", ".ipc"),
    "hdf5": (".h5", ".hdf5"),
    "txt": (".txt", ".txt.gz"),
    "fasta": (".fasta", ".fasta.gz", ".fa", ".fa.gz"),
}
IDX_NAME = re.compile(r"[.-]idx\d-ubyte(\.gz)?$")
IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
ALL_SUFFIXES = tuple(suffix for group in SUFFIXES.values() for suffix in group)
DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab"}
DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")
FIRST_ROWS = 10
"""Rows of a table by which its delimiter is recognised."""

SQUARE_LOOKED_AT = 1000
"""Rows and columns of a square array that are compared to see whether it is a distance matrix."""

EXPECTED_SUFFIX = f"one of {', '.join(ALL_SUFFIXES)}, -idx3-ubyte, -idx3-ubyte.gz"


@dataclass(frozen=True, slots=True)
class Points:
    """The objects of one file, ready for `make_metric`.

    Attributes
    ----------
    data : ndarray or memmap (n, d), list of str, or csr_matrix (n, vocabulary)
        The objects. Sets are the rows of a boolean CSR matrix.
    kind : {"vectors", "strings", "sets", "precomputed"}
        What one object is.
    metric : str
        The metric that was asked for, or the one that fits the file.
    source : str
        The file's name, or ``"standard input"``.
    names : list of str, optional
        A name for every object: record identifiers of FASTA files, the strings themselves.
    """

    data: Any
    kind: Kind
    metric: str
    source: str
    names: list[str] | None = None

    def __len__(self) -> int:
        if self.kind == "precomputed" and self.data.ndim == 1:
            return _condensed_size(len(self.data))
        return int(self.data.shape[0]) if hasattr(self.data, "shape") else len(self.data)


def read_points(
    source: str | os.PathLike[str],
    metric: str | None = None,
    *,
    key: str | None = None,
    column: str | None = None,
    sep: str | None = None,
    form: str | None = None,
    binarize: float | None = None,
) -> Points:
    """Read the objects of a file.

    Parameters
    ----------
    source : path or "-"
        Numbers, one object a row: ``.npy`` (memory-mapped), ``.npz``, ``.csv``, ``.tsv``, ``.parquet``, ``.arrow``,
        ``.h5``, or an IDX file of images such as ``train-images-idx3-ubyte.gz``. Strings or sets, one a line:
        ``.txt``, or a column of a table. Sequences: ``.fasta``. A distance matrix, square or condensed: ``.npy``,
        ``.npz``, ``.h5``, with ``metric="precomputed"``. Text formats may be gzipped; ``"-"`` is standard input
        (text only). Numbers in text may be separated by comma, semicolon or tab, whatever the name; a warning says when
        that isn't what the name promises. An empty line of a ``.txt`` file is an empty string, or an empty set.
    metric : str, optional
        Decides how a ``.txt`` line is read: as one string, or as a set for ``"jaccard"``. Left out, the file decides:
        Euclidean for numbers, Levenshtein for strings, Hamming for sequences of one length, Jaccard for sets.
    key : str, optional
        Which array of an ``.npz`` or ``.h5`` file.
    column : str, optional
        Which column of a table holds the strings, the sets or the vectors. Needed where a table has more than one
        column and not all are numbers.
    sep : str, optional
        What stands between the items of a set. Left out: a tab, a semicolon or a comma when the file holds one (in
        this order), else white space. Items are compared as text, without the blanks around them.
    form : str, optional
        The format, when the name doesn't tell: ``csv``, ``tsv``, ``txt``, ``fasta``, ``npy``, ``npz``, ``parquet``,
        ``arrow``, ``hdf5`` or ``idx``.
    binarize : float, optional
        Replace every number by whether it is at least this large: codes for Hamming, or sets for Jaccard.

    Returns
    -------
    Points
        The objects with their kind, metric and names.

    Raises
    ------
    InputError
        The file can't be read or doesn't hold what the metric needs; the message names the file and the row.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> file = Path(mkdtemp()) / "baskets.txt"
    >>> size = file.write_text("milk,bread" + chr(10) + "bread,milk,salt")
    >>> read_points(file, "jaccard").data.toarray().astype(int).tolist()
    [[1, 1, 0], [1, 1, 1]]
    """
    name = STANDARD_INPUT if os.fspath(source) == STREAM else os.fspath(source)
    kind_of_file = form or _form(source, metric)
    if kind_of_file not in (*SUFFIXES, "idx"):
        raise InputError(f"unknown format '{form}'", expected=f"one of {', '.join(SUFFIXES)}, idx")
    with _readable(source, kind_of_file) as file:
        points = _read(file, name, kind_of_file, metric=metric, key=key, column=column, sep=sep)
    if binarize is not None:
        points = _binarized(points, binarize, metric=metric)
    _require_kind(points)
    return points


def _form(source: str | os.PathLike[str], metric: str | None) -> str:
    name = os.fspath(source).lower()
    if name == STREAM:
        return "csv" if metric in (*VECTOR_METRICS, "precomputed") else "txt"
    for form, suffixes in SUFFIXES.items():
        if name.endswith(suffixes):
            return form
    if IDX_NAME.search(name):
        return "idx"
    existing_file(source)
    raise InputError(
        f"unknown ending '{Path(name).suffix}'", file=source, expected=f"{EXPECTED_SUFFIX}; or --format says what it is"
    )


@contextmanager
def standing_in(source: str | os.PathLike[str], suffix: str) -> Iterator[Path]:
    """Give a file with the ending `suffix` that holds what `source`, a file or ``"-"``, holds.

    Errors raised inside the block name `source` instead of the stand-in.
    """
    with tempfile.TemporaryDirectory() as folder:
        stand_in = Path(folder) / f"points{suffix}"
        if os.fspath(source) == STREAM:
            name = STANDARD_INPUT
            stand_in.write_bytes(sys.stdin.buffer.read() if sys.stdin else b"")
        else:
            name = os.fspath(source)
            stand_in.symlink_to(existing_file(source).resolve())
        try:
            yield existing_file(stand_in)
        except InputError as error:
            raise InputError(
                error.message, file=name, row=error.row, column=error.column, expected=error.expected
            ) from error


@contextmanager
def _readable(source: str | os.PathLike[str], form: str) -> Iterator[Path]:
    """Give a name whose ending the readers know, or ``"-"`` where they read standard input themselves."""
    name = os.fspath(source)
    if name == STREAM and form in ("txt", "fasta"):
        yield Path(STREAM)
    elif name == STREAM and form not in ("csv", "tsv"):
        raise InputError(f"standard input can't hold {form}", expected="text: csv, tsv, txt or fasta")
    elif form == "idx" or name.lower().endswith(SUFFIXES[form]):
        yield existing_file(source)
    else:
        packed = ".gz" if name.lower().endswith(".gz") else ""
        with standing_in(source, SUFFIXES[form][0] + packed) as file:
            yield file


def _read(
    file: Path, name: str, form: str, *, metric: str | None, key: str | None, column: str | None, sep: str | None
) -> Points:
    if form == "txt":
        return _from_lines(read_lines(file), name, metric=metric, sep=sep)
    if form == "fasta":
        return _read_fasta(file, name, metric=metric)
    if form == "idx":
        return Points(_read_idx(file), "vectors", metric or "euclidean", name)
    if form == "arrow" or column is not None or (form == "parquet" and _has_objects(file)):
        table = _read_table(file, form, column)
        return _from_table(table, name, metric=metric, column=column, sep=sep)
    if form in ("csv", "tsv"):
        return _read_text_table(file, name, form, metric=metric, sep=sep)
    if form == "npz":
        rows = _read_sparse(file)
        if rows is not None:
            return Points(rows, "sets", metric or "jaccard", name)
    return _from_array(read_matrix(file, key=key), name, metric=metric)


def _read_text_table(file: Path, name: str, form: str, *, metric: str | None, sep: str | None) -> Points:
    """Read numbers, or a single column of text, from a table without a word on its columns."""
    lines = read_lines(file)
    promised = "\t" if form == "tsv" else ","
    # For strings and sets other marks are part of the text.
    others = (
        [] if metric == "jaccard" or metric in STRING_METRICS else [mark for mark in DELIMITERS if mark != promised]
    )
    delimiter = _delimiter_of_numbers(lines, name, promised, others)
    if delimiter is None and metric not in (*VECTOR_METRICS, "precomputed"):
        header, first = _first_rows(lines, promised)
        if metric in STRING_METRICS or (len(first) == 1 and not _are_numbers(first)):
            return _from_table(_read_table(file, form), name, metric=metric, column=None, sep=sep)
        if len(first) > 1 and not _are_numbers(header) and not _are_numbers(first):
            raise InputError(
                "not all columns hold numbers",
                file=name,
                expected=f"numbers alone, or --column, one of {', '.join(header)}",
            )
    if delimiter is None or delimiter == promised:
        return _from_array(read_matrix(file), name, metric=metric)
    warnings.warn(f"{name} is read as a table separated by {DELIMITERS[delimiter]}", UserWarning, stacklevel=2)
    with tempfile.TemporaryDirectory() as folder:
        usual = Path(folder) / "points.csv"
        with usual.open("w", encoding="utf-8", newline="") as stream:
            csv.writer(stream, lineterminator="\n").writerows(csv.reader(lines, delimiter=delimiter))
        try:
            return _from_array(read_matrix(usual), name, metric=metric)
        except InputError as error:
            raise InputError(
                error.message, file=name, row=error.row, column=error.column, expected=error.expected
            ) from error


def _delimiter_of_numbers(lines: Sequence[str], name: str, promised: str, others: Sequence[str]) -> str | None:
    """What separates the numbers of a table: the delimiter that its ending promises where that fits; None for text."""
    for delimiter in (promised, *others):
        header, *_ = rows = _rows(lines, delimiter)
        body = rows[1:] if len(rows) > 1 and not _are_numbers(header) else rows
        if delimiter != promised and len(header) < 2:
            continue
        # Of several columns the first row tells, so that a wrong cell below is named; a word may look like a number.
        looked_at = body[:1] if len(header) > 1 else body
        if all(map(_are_numbers, looked_at)) and all(len(row) == len(header) for row in body):
            return delimiter
        cells = body[0]
        commas = next((cell for cell in cells if delimiter != "," and DECIMAL_COMMA.fullmatch(cell.strip())), None)
        if commas is not None and all(_are_numbers([cell.replace(",", ".")]) for cell in cells):
            raise InputError(
                f"'{commas}' has a decimal comma",
                file=name,
                row=2 if body is not rows else 1,
                column=cells.index(commas) + 1,
                expected="decimal points",
            )
    return None


def _rows(lines: Sequence[str], delimiter: str) -> list[list[str]]:
    """The cells of the first rows that aren't empty."""
    return list(islice((row for row in csv.reader(lines, delimiter=delimiter) if row), FIRST_ROWS)) or [[]]


def _first_rows(lines: Sequence[str], delimiter: str) -> tuple[list[str], list[str]]:
    """The first row, and the one under it where there is one."""
    rows = _rows(lines, delimiter)
    return rows[0], rows[1] if len(rows) > 1 else rows[0]


def _are_numbers(cells: Sequence[str]) -> bool:
    try:
        return bool([float(cell) for cell in cells])
    except ValueError:
        return False


def damage(error: BaseException) -> str:
    """What an error of a reader says in its first line; numpy's advice to unpickle a foreign file is no help."""
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    return "not numpy's format, or Python objects" if "pickle" in text else text


def _from_array(array: NDArray[Any], name: str, *, metric: str | None) -> Points:
    if not array.size:
        raise InputError(f"holds an array of shape {array.shape}", file=name, expected="at least one object")
    if metric == "precomputed":
        if array.ndim == 2 and array.shape[0] != array.shape[1]:
            raise InputError(
                f"the distance matrix has shape {array.shape}", file=name, expected="a square or a condensed matrix"
            )
        if array.ndim == 1 and _condensed_size(len(array)) < 0:
            raise InputError(
                f"{len(array)} distances are no condensed matrix", file=name, expected="n (n - 1) / 2 distances"
            )
        if array.ndim not in (1, 2):
            raise InputError(f"has {array.ndim} dimensions", file=name, expected="a square or a condensed matrix")
        return Points(array, "precomputed", metric, name)
    if array.ndim != 2:
        raise InputError(f"the array has shape {array.shape}", file=name, expected="two dimensions: one object a row")
    if array.dtype.kind == "f":
        _require_finite(array, name)
    if _looks_like_distances(array):
        warnings.warn(
            f"{name} looks like a distance matrix and is read as vectors; -m precomputed reads distances",
            UserWarning,
            stacklevel=2,
        )
    if metric == "jaccard" and array.dtype != bool:
        _require_binary(array, name)
        array = array.astype(bool)
    return Points(array, "vectors", metric or "euclidean", name)


def _looks_like_distances(array: NDArray[Any]) -> bool:
    """Whether an array is square and, as far as it is looked at, symmetric with zeros on its diagonal alone."""
    if array.shape[0] != array.shape[1] or len(array) < 3 or array.dtype == bool:
        return False
    part = np.asarray(array[:SQUARE_LOOKED_AT, :SQUARE_LOOKED_AT])
    return bool((part.diagonal() == 0).all() and (part >= 0).all() and part.any() and (part == part.T).all())


def _require_binary(array: NDArray[Any], name: str) -> None:
    wrong = np.argwhere((array != 0) & (array != 1))
    if len(wrong):
        row, column = wrong[0]
        raise InputError(
            f"entry ({row}, {column}), counted from 0, is {array[row, column]}",
            file=name,
            expected="0 or 1 for metric jaccard; --binarize makes them from numbers",
        )


def _require_finite(array: NDArray[Any], name: str, *, shown: int = 5, block_rows: int = 65_536) -> None:
    """Refuse NaN and infinity, naming the first rows; in blocks, so that a memory map stays on disk."""
    bad: list[int] = []
    for start in range(0, len(array), block_rows):
        block = array[start : start + block_rows]
        if not np.isfinite(block.sum()):  # a sum is cheap, and finite only when every entry is (or overflows)
            bad.extend((np.flatnonzero(~np.isfinite(block).all(axis=1)) + start).tolist())
        if len(bad) > shown:
            break
    if bad:
        rows = ", ".join(map(str, bad[:shown])) + (", …" if len(bad) > shown else "")
        raise InputError(
            f"NaN or infinity in the objects {rows} (counted from 0)", file=name, expected="finite numbers"
        )


def _from_lines(lines: Sequence[str], name: str, *, metric: str | None, sep: str | None) -> Points:
    if not lines:
        raise InputError("holds no line", file=name, expected="at least one object")
    if metric == "jaccard" or (metric is None and sep is not None):
        return Points(_sets_of_words(_split(lines, sep)), "sets", metric or "jaccard", name, list(lines))
    strings = list(lines)
    if metric == "hamming":
        _require_one_length(strings, name, what=lambda index: f"line {index + 1}")
    return Points(strings, "strings", metric or "levenshtein", name, strings)


def _split(lines: Sequence[str], sep: str | None) -> Iterator[list[str]]:
    if sep is None:
        sep = next((mark for mark in "\t;," if any(mark in line for line in lines)), None)
    else:
        sep = {"\\t": "\t", "": None, " ": None}.get(sep, sep)
    for line in lines:
        yield [item for item in (part.strip() for part in line.split(sep)) if item]


def _sets_of_words(rows: Iterator[list[str]] | Sequence[Sequence[Any]]) -> csr_matrix:
    """Rows of items as a boolean matrix: sorted columns, each item once, vocabulary in the order of appearance."""
    from scipy.sparse import csr_matrix

    vocabulary: dict[Any, int] = {}
    indices: list[int] = []
    ends = [0]
    for row in rows:
        indices.extend(sorted({vocabulary.setdefault(item, len(vocabulary)) for item in row}))
        ends.append(len(indices))
    columns = np.array(indices, dtype=np.int32)
    shape = (len(ends) - 1, max(1, len(vocabulary)))
    return csr_matrix((np.ones(len(columns), dtype=bool), columns, np.array(ends, dtype=np.int64)), shape=shape)


def _require_one_length(strings: Sequence[str], name: str, *, what: Any) -> None:
    length = len(strings[0])
    for index, string in enumerate(strings):
        if len(string) != length:
            raise InputError(
                f"{what(index)} has {len(string)} letters, {what(0)} has {length}",
                file=name,
                expected="one length for metric hamming; levenshtein compares any lengths",
            )


def _read_fasta(file: Path, name: str, *, metric: str | None) -> Points:
    names: list[str] = []
    sequences: list[list[str]] = []
    rows: list[int] = []
    for row, line in enumerate(read_lines(file), start=1):
        text = line.strip()
        if text.startswith(">"):
            header = text[1:].split()
            names.append(header[0] if header else f"record{len(names) + 1}")
            sequences.append([])
            rows.append(row)
        elif text and not sequences:
            raise InputError(f"'{text[:20]}'", file=name, row=row, expected="a header that starts with '>'")
        elif text:
            if not re.fullmatch(r"[A-Za-z.*-]+", text):
                raise InputError(f"'{text[:20]}' is no sequence", file=name, row=row, expected="letters, '-', '*', '.'")
            sequences[-1].append(text)
    strings = ["".join(parts) for parts in sequences]
    if not strings:
        raise InputError("holds no record", file=name, expected="at least one line that starts with '>'")
    for index, string in enumerate(strings):
        if not string:
            raise InputError(f"record {names[index]} is empty", file=name, row=rows[index], expected="a sequence")
    aligned = len({len(string) for string in strings}) == 1
    if metric == "hamming":
        _require_one_length(strings, name, what=lambda index: f"record {names[index]}")
    return Points(strings, "strings", metric or ("hamming" if aligned else "levenshtein"), name, names)


def _read_idx(file: Path) -> NDArray[Any]:
    """Read an IDX array: four magic bytes (0, 0, type, dimensions), big-endian sizes, then the entries."""
    try:
        with gzip.open(file) if file.name.lower().endswith(".gz") else file.open("rb") as stream:
            data = stream.read()
    except (EOFError, OSError, zipfile.BadZipFile) as error:
        raise InputError(f"damaged: {error}", file=file, expected="a whole gzip file") from error
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in IDX_TYPES or not data[3]:
        raise InputError("doesn't start as an IDX file does", file=file, expected="an IDX file of images or vectors")
    dimensions = data[3]
    header = 4 + 4 * dimensions
    shape = tuple(int(size) for size in np.frombuffer(data[4:header], dtype=">u4"))
    kind = np.dtype(IDX_TYPES[data[2]])
    size = math.prod(shape) * kind.itemsize
    entries = max(0, len(data) - header)
    if len(shape) != dimensions or entries != size:
        raise InputError(f"holds {entries} bytes of entries", file=file, expected=f"{size} for shape {shape}")
    if not size:
        raise InputError(f"holds an array of shape {shape}", file=file, expected="at least one image")
    array = np.frombuffer(data, dtype=kind, offset=header).reshape(shape[0], -1)
    return array.astype(kind.newbyteorder("="))


def _read_sparse(file: Path) -> csr_matrix | None:
    """Read what ``scipy.sparse.save_npz`` wrote; None when the archive holds plain arrays."""
    from scipy import sparse

    try:
        with np.load(file, allow_pickle=False) as archive:
            if not {"format", "shape", "data"} <= set(archive.files):
                return None
        rows = sparse.csr_matrix(sparse.load_npz(file))
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise InputError(f"damaged: {damage(error)}", file=file, expected="an .npz archive") from error
    if not rows.shape[0]:
        raise InputError("the sparse matrix has no rows", file=file, expected="at least one object")
    rows.eliminate_zeros()
    rows.sum_duplicates()
    return rows.astype(bool)


def _has_objects(file: Path) -> bool:
    """Whether a Parquet file holds a column of strings or lists."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(file)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"damaged: {str(error).splitlines()[0]}", file=file, expected="a Parquet file") from error
    return any(_is_string(field.type) or _is_list(field.type) for field in schema)


def _is_string(kind: pa.DataType) -> bool:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_list(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_number(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _delimiter_of_names(lines: Sequence[str], promised: str, column: str | None) -> str:
    """What separates the names of columns: the delimiter with which `column` is one of them."""
    others = [mark for mark in DELIMITERS if mark != promised]
    return next((mark for mark in (promised, *others) if column in _rows(lines, mark)[0]), promised)


def _read_table(file: Path, form: str, column: str | None = None) -> pa.Table:
    import pyarrow as pa
    import pyarrow.csv as arrow_csv
    import pyarrow.parquet as pq

    try:
        if form == "parquet":
            return pq.read_table(file)
        if form == "arrow":
            with pa.memory_map(str(file)) as mapped:
                return pa.ipc.open_file(mapped).read_all()
        if form in ("csv", "tsv"):
            lines = read_lines(file)
            options = arrow_csv.ParseOptions(
                delimiter=_delimiter_of_names(lines, "\t" if form == "tsv" else ",", column), newlines_in_values=True
            )
            return arrow_csv.read_csv(pa.BufferReader("\n".join(lines).encode()), parse_options=options)
    except (pa.ArrowException, OSError) as error:
        if form == "arrow" and (table := _read_arrow_stream(file)) is not None:
            return table
        reason = str(error).splitlines()[0]
        raise InputError(f"damaged: {reason}", file=file, expected=f"a whole {form} file") from error
    raise InputError(f"a {form} file has no columns", file=file, expected="--column with csv, tsv, parquet or arrow")


def _read_arrow_stream(file: Path) -> pa.Table | None:
    import pyarrow as pa

    try:
        with pa.memory_map(str(file)) as mapped:
            return pa.ipc.open_stream(mapped).read_all()
    except (pa.ArrowException, OSError):
        return None


def _from_table(table: pa.Table, name: str, *, metric: str | None, column: str | None, sep: str | None) -> Points:
    if not table.num_rows:
        raise InputError("the table has no rows", file=name, expected="at least one object")
    chosen = column if column is not None else _object_column(table, name)
    if chosen is None:
        return _from_number_columns(table, name, metric=metric)
    if chosen not in table.column_names:
        raise InputError(f"has no column '{chosen}'", file=name, expected=f"one of {', '.join(table.column_names)}")
    values = table[chosen]
    if values.null_count:
        row = values.is_null().index(True).as_py() + 1
        raise InputError("the value is missing", file=name, row=row, column=chosen, expected="an object in every row")
    if _is_list(values.type):
        return _from_list_column(values, name, chosen, metric=metric)
    if _is_string(values.type) or (metric in STRING_METRICS and _is_number(values.type)):
        return _from_lines([str(value) for value in values.to_pylist()], name, metric=metric, sep=sep)
    if _is_number(values.type):
        array = values.to_numpy().astype(np.float64, copy=False)[:, None]
        return _from_array(array, name, metric=metric)
    raise InputError(f"holds {values.type}", file=name, column=chosen, expected="strings, lists or numbers")


def _object_column(table: pa.Table, name: str) -> str | None:
    """The only column; None when all columns are numbers and make up vectors."""
    if table.num_columns == 1:
        return str(table.column_names[0])
    objects = [str(field.name) for field in table.schema if not _is_number(field.type)]
    if objects:
        raise InputError(
            "not all columns hold numbers",
            file=name,
            expected=f"numbers alone, or --column, one of {', '.join(table.column_names)}",
        )
    return None


def _from_number_columns(table: pa.Table, name: str, *, metric: str | None) -> Points:
    columns = []
    for column_name, values in zip(table.column_names, table.columns, strict=True):
        if values.null_count:
            row = values.is_null().index(True).as_py() + 1
            raise InputError("the value is missing", file=name, row=row, column=column_name, expected="a number")
        columns.append(values.to_numpy())
    return _from_array(np.column_stack(columns), name, metric=metric)


def _from_list_column(values: pa.ChunkedArray, name: str, column: str, *, metric: str | None) -> Points:
    import pyarrow as pa

    inner = values.type.value_type
    wants_vectors = metric in VECTOR_METRICS or metric in ("hamming", "precomputed")
    if not (wants_vectors or (metric is None and pa.types.is_floating(inner))):
        return Points(_sets_of_words(values.to_pylist()), "sets", metric or "jaccard", name)
    if not _is_number(inner):
        raise InputError(f"holds lists of {inner}", file=name, column=column, expected="lists of numbers")
    flat = values.combine_chunks()
    width = len(flat[0].as_py())
    if not pa.types.is_fixed_size_list(values.type):
        lengths = pa.compute.list_value_length(flat).to_numpy()
        ragged = np.flatnonzero(lengths != width)
        if len(ragged):
            raise InputError(
                f"holds {lengths[ragged[0]]} numbers",
                file=name,
                row=int(ragged[0]) + 1,
                column=column,
                expected=f"{width} as in the first row",
            )
    entries = flat.flatten()
    if entries.null_count:
        row = int(entries.is_null().index(True).as_py()) // width + 1
        raise InputError("a number is missing", file=name, row=row, column=column, expected="numbers only")
    return _from_array(entries.to_numpy(zero_copy_only=False).reshape(len(values), width), name, metric=metric)


def _binarized(points: Points, threshold: float, *, metric: str | None) -> Points:
    if points.kind != "vectors":
        raise InputError(f"binarize={threshold} with {points.kind}", file=points.source, expected="numbers")
    codes = np.asarray(points.data) >= threshold
    return Points(codes, "vectors", metric or "hamming", points.source)


def _require_kind(points: Points) -> None:
    wanted = KIND_OF_METRIC.get(points.metric)
    if wanted is not None and points.kind not in wanted:
        raise InputError(
            f"metric '{points.metric}' needs {' or '.join(wanted)}, the file holds {points.kind}",
            file=points.source,
            expected=f"another file, or metric {DEFAULT_METRIC[points.kind]}",
        )


def _condensed_size(count: int) -> int:
    """The n of n (n - 1) / 2 distances, or -1."""
    size = (1 + math.isqrt(1 + 8 * count)) // 2
    return size if size * (size - 1) // 2 == count else -1
