"""Files: what is wrong is named with its place, and what is written is whole or absent."""

from __future__ import annotations

import gzip
import io
import os
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from assay.core.errors import AssayError, InputError
from assay.core.files import atomic_path, check_output, existing_file, read_lines, read_matrix, write_text


def _write(path, data):
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: folder / "none.csv", "no such file"),
        (lambda folder: folder, "is a folder"),
        (lambda folder: _write(folder / "empty.csv", ""), "the file is empty"),
        (lambda folder: _write(folder / "x.docx", "x"), "unknown ending '.docx'"),
    ],
)
def test_unusable_input_file_is_named(tmp_path, make, message):
    with pytest.raises(InputError, match=message) as caught:
        existing_file(make(tmp_path), suffixes=(".csv",))
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_ending_is_compared_without_case(tmp_path):
    assert existing_file(_write(tmp_path / "X.CSV", "1"), suffixes=(".csv",)).name == "X.CSV"


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("a,b\n1,2\n3,4\n", [[1, 2], [3, 4]]),
        ("1,2\n3,4", [[1, 2], [3, 4]]),
        ("\ufeff1,2\r\n3,4\r\n", [[1, 2], [3, 4]]),
        ("5\n", [[5]]),
        ("1e3,-0.5\n\n2,nan\n", [[1000, -0.5], [2, np.nan]]),
        ("1_0,inf\n", [[10, np.inf]]),
        ("x\n7\n", [[7]]),
    ],
)
def test_delimited_text_is_read(tmp_path, text, rows):
    for name, delimiter in (("a b.csv", ","), ("ü.tsv", "\t")):
        path = _write(tmp_path / name, text.replace(",", delimiter))
        np.testing.assert_array_equal(read_matrix(path), np.array(rows, dtype=float))
    packed = _write(tmp_path / "z.csv.gz", gzip.compress(text.encode()))
    np.testing.assert_array_equal(read_matrix(packed), np.array(rows, dtype=float))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("1,2\n3,x\n", "row 2, column 2: 'x' is not a number"),
        ("a,b\n1,2\n,3\n", "row 3, column 1: '' is not a number"),
        ("1,2\n3\n", "row 2: has 1 columns"),
        ("1,2\n3,4,5\n", "row 2: has 3 columns"),
        ("a,b\n", "the table has no rows"),
    ],
)
def test_wrong_cell_is_named_by_row_and_column(tmp_path, text, place):
    with pytest.raises(InputError) as caught:
        read_matrix(_write(tmp_path / "points.csv", text))
    assert place in str(caught.value)


@pytest.mark.filterwarnings("ignore")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(
    hnp.arrays(np.float64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=6), elements=st.floats(allow_nan=False))
)
def test_table_comes_back_from_text_and_parquet(tmp_path, array):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "t.csv"
    path.write_text("\n".join(",".join(repr(float(value)) for value in row) for row in array) + "\n")
    np.testing.assert_array_equal(read_matrix(path), array)
    pq.write_table(pa.table({f"c{number}": column for number, column in enumerate(array.T)}), tmp_path / "t.parquet")
    np.testing.assert_array_equal(read_matrix(tmp_path / "t.parquet"), array)


def test_arrays_are_read_by_key(tmp_path):
    import h5py

    first, second = np.arange(6.0).reshape(3, 2), np.ones(3)
    np.save(tmp_path / "a.npy", first)
    np.savez(tmp_path / "one.npz", first=first)
    np.savez(tmp_path / "two.npz", first=first, second=second)
    with h5py.File(tmp_path / "h.h5", "w") as file:
        file["deep/train"] = first
    assert isinstance(read_matrix(tmp_path / "a.npy"), np.memmap)
    for path, key in [("a.npy", None), ("one.npz", None), ("two.npz", "first"), ("h.h5", None), ("h.h5", "deep/train")]:
        np.testing.assert_array_equal(read_matrix(tmp_path / path, key=key), first)
    with pytest.raises(InputError, match=r"holds 2 arrays; expected --key, one of first, second"):
        read_matrix(tmp_path / "two.npz")
    with pytest.raises(InputError, match="holds no array 'third'"):
        read_matrix(tmp_path / "two.npz", key="third")


@pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.h5", "x.parquet", "x.csv.gz"])
def test_truncated_file_is_one_line(tmp_path, name):
    import h5py
    import pyarrow as pa
    import pyarrow.parquet as pq

    path, array = tmp_path / name, np.arange(4000.0).reshape(-1, 2)
    if name.endswith(".npy"):
        np.save(path, array)
    elif name.endswith(".npz"):
        np.savez(path, array)
    elif name.endswith(".h5"):
        with h5py.File(path, "w") as file:
            file["x"] = array
    elif name.endswith(".parquet"):
        pq.write_table(pa.table({"x": array[:, 0]}), path)
    else:
        path.write_bytes(gzip.compress(b"1,2\n" * 4000))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(InputError) as caught:
        read_matrix(path)
    assert name in str(caught.value) and "\n" not in str(caught.value)


def test_pickles_and_text_arrays_are_refused(tmp_path):
    np.save(tmp_path / "o.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.save(tmp_path / "s.npy", np.array(["a"]))
    with pytest.raises(InputError, match="damaged or not an array"):
        read_matrix(tmp_path / "o.npy")
    with pytest.raises(InputError, match="expected real numbers"):
        read_matrix(tmp_path / "s.npy")


def test_parquet_with_text_or_gaps_names_the_column(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"a": [1.0], "name": ["x"]}), tmp_path / "t.parquet")
    with pytest.raises(InputError, match="column name: holds string"):
        read_matrix(tmp_path / "t.parquet")
    pq.write_table(pa.table({"a": [1.0, None]}), tmp_path / "g.parquet")
    with pytest.raises(InputError, match="row 2, column a: the value is missing"):
        read_matrix(tmp_path / "g.parquet")


def test_lines_lose_marks_and_ends(tmp_path):
    assert read_lines(_write(tmp_path / "w.txt", "\ufeffé\r\nb\rc\n\nd")) == ["é", "b", "c", "", "d"]
    assert read_lines(_write(tmp_path / "w.txt.gz", gzip.compress(b"a\nb\n"))) == ["a", "b"]


def test_bad_utf8_is_named_by_line(tmp_path):
    with pytest.raises(InputError, match="row 2: byte 0xff is not UTF-8"):
        read_lines(_write(tmp_path / "w.txt", b"good\n\xff\n"))


def test_standard_input_is_read(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\nb\n")))
    assert read_lines("-") == ["a", "b"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    with pytest.raises(InputError, match="standard input: nothing to read"):
        read_lines("-")


def test_existing_output_is_kept_without_force(tmp_path):
    path = write_text(tmp_path / "out.txt", "first")
    with pytest.raises(InputError, match="exists already; expected another name, or --force"):
        write_text(path, "second")
    assert path.read_text() == "first"
    write_text(path, "second", force=True)
    assert path.read_text() == "second"


def test_file_that_appears_meanwhile_is_kept(tmp_path):
    writing = atomic_path(tmp_path / "out.txt")
    writing.__enter__().write_text("ours")
    (tmp_path / "out.txt").write_text("theirs")
    with pytest.raises(InputError, match="exists already"):
        writing.__exit__(None, None, None)
    assert (tmp_path / "out.txt").read_text() == "theirs"
    assert os.listdir(tmp_path) == ["out.txt"]


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt()])
def test_failed_write_leaves_nothing_and_keeps_the_old_file(tmp_path, error):
    path = write_text(tmp_path / "out.csv", "old")
    writing = atomic_path(path, force=True)
    temporary = writing.__enter__()
    assert temporary.suffix == ".csv"
    temporary.write_text("half")
    assert not writing.__exit__(type(error), error, None)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.csv"]


def test_full_disk_is_one_line_and_keeps_the_old_file(tmp_path):
    path = write_text(tmp_path / "out.csv", "old")
    with pytest.raises(AssayError, match="no space left on the disk"), atomic_path(path, force=True):
        raise OSError(28, "No space left on device")
    assert path.read_text() == "old"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: folder, "is a folder"),
        (lambda folder: folder / "no" / "out.csv", "doesn't exist"),
        (lambda folder: folder / ("x" * 300), "file name too long"),
    ],
)
def test_unusable_output_is_refused_before_work(tmp_path, make, message):
    with pytest.raises(InputError, match=message):
        check_output(make(tmp_path))


def test_folder_without_permission_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(InputError, match="no permission to write in"):
        check_output(tmp_path / "out.csv")


def test_permissions_follow_the_umask(tmp_path):
    earlier = os.umask(0o022)
    try:
        path = write_text(tmp_path / "out.txt", "x")
    finally:
        os.umask(earlier)
    assert path.stat().st_mode & 0o777 == 0o644
