"""Files as people have them: readers that name what is wrong and where, and writes that are whole or absent."""

from __future__ import annotations

import csv
import errno
import gzip
import io
import os
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.core.errors import AssayError, InputError, MissingPackageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "atomic_path",
    "check_output",
    "existing_file",
    "read_lines",
    "read_matrix",
    "write_bytes",
    "write_text",
]

STREAM = "-"
MATRIX_SUFFIXES = (".npy", ".npz", ".csv", ".tsv", ".parquet", ".h5", ".hdf5")


def existing_file(path: str | os.PathLike[str], *, suffixes: Sequence[str] | None = None) -> Path:
    """Return `path` when it is a readable file with something in it.

    Parameters
    ----------
    path : path
        What the user gave.
    suffixes : sequence of str, optional
        Accepted endings, such as ``(".csv", ".csv.gz")``; compared without regard to case.

    Raises
    ------
    InputError
        The file is missing, a folder, empty, unreadable, or has another ending.
    """
    file = _named(path)
    expected = f"a file that ends in {', '.join(suffixes)}" if suffixes else "a file"
    try:
        if not file.exists():
            raise InputError("no such file", file=file, expected=expected)
        if file.is_dir():
            raise InputError("is a folder", file=file, expected=expected)
        if suffixes and not file.name.lower().endswith(tuple(suffixes)):
            raise InputError(f"unknown ending '{file.suffix}'", file=file, expected=expected)
        with file.open("rb") as stream:
            if file.is_file() and not stream.read(1):
                raise InputError("the file is empty", file=file, expected="at least one record")
    except OSError as error:
        raise InputError(_reason(error), file=file, expected="a readable file") from error
    return file


def check_output(path: str | os.PathLike[str], *, force: bool = False) -> Path:
    """Return `path` when a file may be written there, before any work is done.

    Raises
    ------
    InputError
        The file exists and `force` is false, is a folder, or its folder is missing or not writable.
    """
    file = _named(path)
    folder = file.parent
    try:
        if file.is_dir():
            raise InputError("is a folder", file=file, expected="the name of a file to write")
        if file.exists() and not force:
            raise InputError("exists already", file=file, expected="another name, or --force")
        if not folder.is_dir():
            raise InputError(f"the folder {folder} doesn't exist", file=file, expected="an existing folder")
    except OSError as error:
        raise InputError(_reason(error), file=file, expected="a name that can be written") from error
    if not os.access(folder, os.W_OK):
        raise InputError(f"no permission to write in {folder}", file=file, expected="a writable folder")
    return file


@contextmanager
def atomic_path(path: str | os.PathLike[str], *, force: bool = False) -> Iterator[Path]:
    """Give a temporary name beside `path`; what is written there becomes `path` only when the block ends well.

    The temporary file keeps the suffixes of `path`, so that writers that look at the ending work. When the block
    raises, or the process is killed, an existing `path` stays as it was.

    Parameters
    ----------
    path : path
        The final name.
    force : bool
        Replace an existing file.

    Yields
    ------
    Path
        The name to write to.

    Raises
    ------
    InputError
        As `check_output`, and when the folder refuses the write.
    AssayError
        The disk is full, or the write failed for another reason of the machine.
    """
    file = check_output(path, force=force)
    if file.is_symlink():
        # What a link points to is written, and the link stays.
        file = file.resolve()
    try:
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=".", suffix=f".part{''.join(file.suffixes[-2:])}")
        os.close(handle)
    except OSError as error:
        raise _write_error(error, file) from error
    temporary = Path(name)
    try:
        yield temporary
        os.chmod(temporary, 0o666 & ~_umask())
        with temporary.open("rb") as stream:
            os.fsync(stream.fileno())
        if force:
            os.replace(temporary, file)
        else:
            _rename_new(temporary, file)
    except OSError as error:
        raise _write_error(error, file) from error
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str, *, force: bool = False) -> Path:
    """Write `text` as UTF-8 to `path` in one piece, or to standard output when `path` is ``"-"``."""
    if os.fspath(path) == STREAM:
        sys.stdout.write(text)
        return Path(path)
    return write_bytes(path, text.encode("utf-8"), force=force)


def write_bytes(path: str | os.PathLike[str], data: bytes, *, force: bool = False) -> Path:
    """Write `data` to `path` in one piece."""
    with atomic_path(path, force=force) as temporary:
        temporary.write_bytes(data)
    return Path(path)


def read_lines(path: str | os.PathLike[str]) -> list[str]:
    """Read a text file (plain, ``.gz``, or ``"-"`` for standard input) as lines without their ends.

    A byte-order mark and CR LF ends are removed. One final line end doesn't make an empty last line.

    Raises
    ------
    InputError
        The file can't be read, isn't UTF-8 (naming the line), or is a damaged gzip file.
    """
    if os.fspath(path) == STREAM:
        name, data = "standard input", sys.stdin.buffer.read() if sys.stdin else b""
        if not data:
            raise InputError("nothing to read", file=name, expected="at least one line")
    else:
        name = os.fspath(path)
        data = _read_bytes(existing_file(path))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        row = data[: error.start].count(b"\n") + 1
        raise InputError(
            f"byte {data[error.start]:#04x} is not UTF-8", file=name, row=row, expected="UTF-8 text"
        ) from error
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    return lines


def read_matrix(path: str | os.PathLike[str], *, key: str | None = None) -> NDArray[Any]:
    """Read a numeric array from ``.npy``, ``.npz``, ``.csv``, ``.tsv``, ``.parquet`` or ``.h5``.

    Parameters
    ----------
    path : path
        The file; ``.csv`` and ``.tsv`` may have one header line and may be gzipped.
    key : str, optional
        Which array of an ``.npz`` or ``.h5`` file. May be left out when the file holds a single array.

    Returns
    -------
    ndarray
        As stored. ``.npy`` is memory-mapped (read-only); tables are float64 of shape (rows, columns).

    Raises
    ------
    InputError
        The file is missing, damaged, holds something else than numbers (naming row and column), or `key` is unknown.
    """
    file = existing_file(path, suffixes=(*MATRIX_SUFFIXES, ".csv.gz", ".tsv.gz"))
    name = file.name.lower()
    if name.endswith((".csv", ".csv.gz")):
        return _read_delimited(file, delimiter=",")
    if name.endswith((".tsv", ".tsv.gz")):
        return _read_delimited(file, delimiter="\t")
    if name.endswith(".npy"):
        return _load_numpy(file)
    if name.endswith(".npz"):
        return _load_member(file, key)
    if name.endswith(".parquet"):
        return _read_parquet(file)
    return _read_hdf5(file, key)


def _load_numpy(file: Path) -> NDArray[Any]:
    import numpy as np

    try:
        array: NDArray[Any] = np.load(file, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise InputError("damaged, or not an array of numbers", file=file, expected="a .npy array") from error
    return _require_numbers(array, file)


def _load_member(file: Path, key: str | None) -> NDArray[Any]:
    import numpy as np

    try:
        with np.load(file, allow_pickle=False) as archive:
            name = _choose(file, sorted(archive.files), key)
            array: NDArray[Any] = archive[name]
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            "damaged, or not an archive of number arrays", file=file, expected="an .npz archive of arrays"
        ) from error
    return _require_numbers(array, file)


def _read_hdf5(file: Path, key: str | None) -> NDArray[Any]:
    try:
        import h5py
    except ImportError as error:
        raise MissingPackageError("h5py", what=f"reading {file}") from error
    try:
        with h5py.File(file, "r") as archive:
            names: list[str] = []
            archive.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
            array: NDArray[Any] = archive[_choose(file, sorted(names), key)][()]
    except OSError as error:
        raise InputError(f"damaged: {_first_line(error)}", file=file, expected="an HDF5 file") from error
    return _require_numbers(array, file)


def _choose(file: Path, names: list[str], key: str | None) -> str:
    if key is not None:
        if key not in names:
            raise InputError(f"holds no array '{key}'", file=file, expected=f"--key of {', '.join(names)}")
        return key
    if not names:
        raise InputError("holds no array", file=file, expected="at least one array of numbers")
    if len(names) != 1:
        raise InputError(f"holds {len(names)} arrays", file=file, expected=f"--key, one of {', '.join(names)}")
    return names[0]


def _require_numbers(array: NDArray[Any], file: Path) -> NDArray[Any]:
    if array.dtype.kind not in "biuf":
        raise InputError(f"holds dtype {array.dtype}", file=file, expected="real numbers")
    return array


def _read_parquet(file: Path) -> NDArray[np.float64]:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(file)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"damaged: {_first_line(error)}", file=file, expected="a Parquet file") from error
    columns = []
    for column_name, column in zip(table.column_names, table.columns, strict=True):
        kind = column.type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
            raise InputError(f"holds {kind}", file=file, column=column_name, expected="a column of numbers")
        if column.null_count:
            row = column.is_null().index(True).as_py() + 1
            raise InputError("the value is missing", file=file, row=row, column=column_name, expected="a number")
        columns.append(column.to_numpy())
    if not columns or not len(columns[0]):
        raise InputError("the table has no rows", file=file, expected="at least one row of numbers")
    return np.column_stack(columns).astype(np.float64, copy=False)


def _read_delimited(file: Path, *, delimiter: str) -> NDArray[np.float64]:
    import numpy as np
    from pyarrow import ArrowException
    from pyarrow import csv as arrow_csv

    text = "\n".join(read_lines(file))
    first = next(csv.reader(io.StringIO(text), delimiter=delimiter), [])
    header = bool(first) and not any(_is_number(cell) for cell in first)
    options = arrow_csv.ReadOptions(autogenerate_column_names=not header)
    try:
        table = arrow_csv.read_csv(
            io.BytesIO(text.encode()),
            read_options=options,
            parse_options=arrow_csv.ParseOptions(delimiter=delimiter),
            convert_options=arrow_csv.ConvertOptions(null_values=[], strings_can_be_null=False),
        )
        columns = [column.to_numpy().astype(np.float64, copy=False) for column in table.columns]
    except (ArrowException, ValueError):
        columns = []
    if not columns or not len(columns[0]):
        return _read_delimited_slowly(file, text, delimiter=delimiter, header=header)
    return np.column_stack(columns)


def _read_delimited_slowly(file: Path, text: str, *, delimiter: str, header: bool) -> NDArray[np.float64]:
    """Read cell by cell: slower, understands every spelling that ``float`` does, and names the first wrong cell."""
    import numpy as np

    rows: list[list[float]] = []
    width = 0
    for number, cells in enumerate(csv.reader(io.StringIO(text), delimiter=delimiter), start=1):
        if (header and number == 1) or not cells:
            width = width or len(cells)
            continue
        width = width or len(cells)
        if len(cells) != width:
            raise InputError(f"has {len(cells)} columns", file=file, row=number, expected=f"{width} as above")
        for column, cell in enumerate(cells, start=1):
            if not _is_number(cell):
                raise InputError(f"'{cell}' is not a number", file=file, row=number, column=column, expected="a number")
        rows.append([float(cell) for cell in cells])
    if not rows:
        raise InputError("the table has no rows", file=file, expected="at least one row of numbers")
    return np.array(rows, dtype=np.float64)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _read_bytes(file: Path) -> bytes:
    try:
        if file.name.lower().endswith(".gz"):
            with gzip.open(file, "rb") as stream:
                return stream.read()
        return file.read_bytes()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"damaged: {_first_line(error)}", file=file, expected="a whole gzip file") from error
    except OSError as error:
        raise InputError(_reason(error), file=file, expected="a readable file") from error


def _named(path: str | os.PathLike[str]) -> Path:
    if not os.fspath(path):
        raise InputError("the file's name is empty", expected="the name of a file")
    return Path(path)


def _rename_new(temporary: Path, file: Path) -> None:
    """Give `temporary` its final name, and refuse when somebody else took that name meanwhile."""
    try:
        os.link(temporary, file)
    except FileExistsError as error:
        raise InputError("exists already", file=file, expected="another name, or --force") from error
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        os.replace(temporary, file)


def _write_error(error: OSError, file: Path) -> AssayError:
    if isinstance(error, InputError):
        return error
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return AssayError(f"{file}: no space left on the disk; nothing was written")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.EINVAL, errno.ENOTDIR):
        return InputError(_reason(error), file=file, expected="a name that can be written")
    return AssayError(f"{file}: {_reason(error)}; nothing was written")


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
