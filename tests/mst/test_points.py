"""Point files of every format are read as they are, and wrong ones are refused in one line."""

from __future__ import annotations

import gzip
import io
import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import sparse

from assay.core.errors import InputError
from assay.mst.points import KIND_OF_METRIC, read_points

VECTORS = np.array([[0.5, 1.0, -2.0], [3.0, 4.25, 5.0]])
WORDS = ["naïve", "kayak", "", "two words"]


def write_vectors(path: Path) -> Path:
    import h5py
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({f"x{column}": VECTORS[:, column] for column in range(3)})
    rows = "\n".join("\t".join(map(str, row)) for row in VECTORS.tolist())
    if path.name.endswith(".npy"):
        np.save(path, VECTORS)
    elif path.name.endswith(".npz"):
        np.savez(path, only=VECTORS)
    elif path.name.endswith(".h5"):
        with h5py.File(path, "w") as archive:
            archive["train"] = VECTORS
    elif path.name.endswith(".parquet"):
        pq.write_table(table, path)
    elif path.name.endswith((".arrow", ".feather")):
        with pa.ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table)
    else:
        text = rows if ".tsv" in path.name else rows.replace("\t", ",")
        data = text.encode()
        path.write_bytes(gzip.compress(data) if path.name.endswith(".gz") else data)
    return path


@pytest.mark.parametrize(
    "name",
    [
        "a.npy",
        "a.npz",
        "a.csv",
        "a.csv.gz",
        "a.tsv",
        "a.tsv.gz",
        "a.parquet",
        "a.arrow",
        "a.feather",
        "a.h5",
        "ü b.CSV",
    ],
)
def test_vectors_are_read_from_every_numeric_format(tmp_path: Path, name: str) -> None:
    points = read_points(write_vectors(tmp_path / name))
    np.testing.assert_array_equal(points.data, VECTORS)
    assert (points.kind, points.metric, len(points)) == ("vectors", "euclidean", 2)


def test_an_array_on_disk_stays_on_disk(tmp_path: Path) -> None:
    assert isinstance(read_points(write_vectors(tmp_path / "a.npy")).data, np.memmap)


def test_crlf_and_byte_order_mark_do_not_reach_the_strings(tmp_path: Path) -> None:
    path = tmp_path / "names with spaces ü.txt"
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(WORDS).encode() + b"\r\n")
    points = read_points(path)
    assert points.data == WORDS
    assert (points.kind, points.metric) == ("strings", "levenshtein")


def test_gzipped_strings_equal_plain_ones(tmp_path: Path) -> None:
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress("\n".join(WORDS).encode()))
    assert read_points(tmp_path / "a.txt.gz", "levenshtein").data == WORDS


@pytest.mark.parametrize(
    ("text", "sep"),
    [("b,a\nb, b ,c\n\n", None), ("b a\nb  b c\n\n", None), ("b|a\nb|b|c\n\n", "|"), ("b\ta\nb\tb\tc\n\n", "\\t")],
)
def test_each_line_is_a_set_whose_repeated_items_count_once(tmp_path: Path, text: str, sep: str | None) -> None:
    (tmp_path / "sets.txt").write_text(text)
    points = read_points(tmp_path / "sets.txt", "jaccard", sep=sep)
    np.testing.assert_array_equal(points.data.toarray(), [[1, 1, 0], [1, 0, 1], [0, 0, 0]])
    assert points.data.dtype == bool


def test_items_that_hold_blanks_stay_whole_between_commas(tmp_path: Path) -> None:
    (tmp_path / "sets.txt").write_text("olive oil,salt\nolive,oil\n")
    assert read_points(tmp_path / "sets.txt", "jaccard").data.sum(axis=1).ravel().tolist() == [[2, 2]]
    assert read_points(tmp_path / "sets.txt", "jaccard").data.shape == (2, 4)


def test_sets_are_read_from_a_sparse_archive(tmp_path: Path) -> None:
    rows = sparse.csr_matrix(np.array([[0, 2, 1], [0, 0, 0]]))
    sparse.save_npz(tmp_path / "sets.npz", rows)
    points = read_points(tmp_path / "sets.npz")
    np.testing.assert_array_equal(points.data.toarray(), [[False, True, True], [False, False, False]])
    assert points.metric == "jaccard"


def write_columns(path: Path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(
        {
            "word": WORDS,
            "items": pa.array([[3, 1, 3], [1], [], [2]], type=pa.list_(pa.int64())),
            "place": pa.array([[0.0, 1.0]] * 4, type=pa.list_(pa.float32(), 2)),
        }
    )
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    else:
        with pa.ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table)
    return path


@pytest.mark.parametrize("name", ["t.parquet", "t.arrow"])
def test_a_column_holds_strings_sets_or_vectors(tmp_path: Path, name: str) -> None:
    path = write_columns(tmp_path / name)
    assert read_points(path, column="word").data == WORDS
    sets = read_points(path, column="items")
    assert sets.data.toarray().astype(int).tolist() == [[1, 1, 0], [0, 1, 0], [0, 0, 0], [0, 0, 1]]
    vectors = read_points(path, column="place")
    assert vectors.data.tolist() == [[0.0, 1.0]] * 4
    assert vectors.kind == "vectors"
    with pytest.raises(InputError, match=r"not all columns hold numbers; .* --column, one of word, items, place"):
        read_points(path)
    with pytest.raises(InputError, match="has no column 'x'; expected one of word, items, place"):
        read_points(path, column="x")


def test_strings_are_read_from_a_csv_column(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('name,born\n"Ada, Countess",1815\nEmmy,1882\n')
    assert read_points(tmp_path / "a.csv", column="name").data == ["Ada, Countess", "Emmy"]
    (tmp_path / "b.csv").write_text("name\nAda\nEmmy\n")
    assert read_points(tmp_path / "b.csv").data == ["Ada", "Emmy"]


def test_aligned_sequences_mean_hamming_and_others_levenshtein(tmp_path: Path) -> None:
    (tmp_path / "a.fasta").write_text(">one first\nACG\nT-\n>two\nACGTA\n")
    points = read_points(tmp_path / "a.fasta")
    assert (points.data, points.names, points.metric) == (["ACGT-", "ACGTA"], ["one", "two"], "hamming")
    (tmp_path / "b.fa.gz").write_bytes(gzip.compress(b">one\nACGT\n>two\nAC\n"))
    assert read_points(tmp_path / "b.fa.gz").metric == "levenshtein"
    with pytest.raises(InputError, match=r"record two has 2 letters, record one has 4; expected one length"):
        read_points(tmp_path / "b.fa.gz", "hamming")


def idx_bytes(array: np.ndarray) -> bytes:
    return b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.mark.parametrize("name", ["train.idx3-ubyte", "train-images-idx3-ubyte.gz"])
def test_images_become_rows_and_can_be_made_codes(tmp_path: Path, name: str) -> None:
    images = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    data = idx_bytes(images)
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    np.testing.assert_array_equal(read_points(tmp_path / name).data, images.reshape(2, 12))
    codes = read_points(tmp_path / name, binarize=20)
    assert (codes.metric, codes.data.dtype) == ("hamming", np.dtype(bool))
    np.testing.assert_array_equal(codes.data, images.reshape(2, 12) >= 20)


def test_a_truncated_image_file_says_what_is_missing(tmp_path: Path) -> None:
    data = idx_bytes(np.zeros((2, 3, 4), dtype=np.uint8))
    (tmp_path / "a.idx3-ubyte").write_bytes(data[:-4])
    with pytest.raises(InputError, match=r"holds 20 bytes of entries; expected 24 for shape \(2, 3, 4\)"):
        read_points(tmp_path / "a.idx3-ubyte")
    (tmp_path / "b-idx3-ubyte.gz").write_bytes(gzip.compress(data)[:-9])
    with pytest.raises(InputError, match="damaged"):
        read_points(tmp_path / "b-idx3-ubyte.gz")


@pytest.mark.parametrize("shape", ["square", "condensed"])
def test_distances_are_read_square_or_condensed(tmp_path: Path, shape: str) -> None:
    distances = np.array([[0.0, 1, 2], [1, 0, 3], [2, 3, 0]])
    stored = distances if shape == "square" else distances[np.triu_indices(3, 1)]
    np.savez(tmp_path / "d.npz", distances=stored)
    points = read_points(tmp_path / "d.npz", "precomputed")
    assert (points.kind, len(points)) == ("precomputed", 3)
    np.testing.assert_array_equal(points.data, stored)


def give_input(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(data)))


def test_standard_input_holds_strings_sets_or_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    give_input(monkeypatch, b"one\ntwo\n")
    assert read_points("-", "levenshtein").data == ["one", "two"]
    give_input(monkeypatch, b"1 2\n2 3\n")
    assert read_points("-", "jaccard").data.shape == (2, 3)
    give_input(monkeypatch, b"x,y\n1,2\n3,4\n")
    np.testing.assert_array_equal(read_points("-", "euclidean").data, [[1, 2], [3, 4]])
    give_input(monkeypatch, b"1,2\n3,four\n")
    with pytest.raises(InputError, match=r"^standard input, row 2, column 2: 'four' is not a number"):
        read_points("-", "euclidean")
    give_input(monkeypatch, b"")
    with pytest.raises(InputError, match="standard input"):
        read_points("-", "levenshtein")


def test_a_format_can_be_named_where_the_ending_does_not_tell(tmp_path: Path) -> None:
    (tmp_path / "words.lst").write_text("one\ntwo\n")
    assert read_points(tmp_path / "words.lst", form="txt").data == ["one", "two"]
    with pytest.raises(InputError, match=r"words.lst: unknown ending '.lst'; expected one of .npy.*--format"):
        read_points(tmp_path / "words.lst")
    with pytest.raises(InputError, match="unknown format 'xml'"):
        read_points(tmp_path / "words.lst", form="xml")


def save(name: str, array: np.ndarray) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        np.save(folder / name, array)
        return folder / name

    return write


def text(name: str, content: bytes) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    return write


BAD_FILES = {
    "missing": (lambda folder: folder / "none.npy", None, "no such file"),
    "folder": (lambda folder: folder, None, "is a folder"),
    "empty text": (text("a.txt", b""), None, "the file is empty"),
    "empty table": (text("a.csv", b"x,y\n"), "euclidean", "the table has no rows"),
    "truncated array": (text("a.npy", b"\x93NUMPY\x01\x00v"), None, "damaged"),
    "truncated archive": (text("a.npz", b"PK\x03\x04 half of it"), None, "damaged"),
    "truncated Parquet": (text("a.parquet", b"PAR1 half of it"), None, "damaged"),
    "truncated Arrow": (text("a.arrow", b"ARROW1 half of it"), None, "damaged"),
    "truncated HDF5": (text("a.h5", b"\x89HDF\r\n\x1a\n half"), None, "damaged"),
    "truncated gzip": (text("a.txt.gz", gzip.compress(b"word\n" * 99)[:-6]), None, "damaged"),
    "no IDX": (text("a.idx3-ubyte", b"image"), None, "doesn't start as an IDX file does"),
    "not UTF-8": (text("a.txt", b"good\nb\xe9d\n"), None, "row 2: byte 0xe9 is not UTF-8"),
    "a word among numbers": (text("a.csv", b"x,y\n1,2\n3,oops\n"), "euclidean", "row 3, column 2: 'oops'"),
    "a short row": (text("a.csv", b"1,2\n3\n"), "euclidean", "row 2: has 1 columns; expected 2"),
    "NaN": (save("a.npy", np.array([[0.0], [np.nan], [np.inf]])), None, "NaN or infinity in the objects 1, 2 "),
    "NaN in a table": (text("a.csv", b"1,2\nnan,3\n"), None, "NaN or infinity in the objects 1 "),
    "no rows": (save("a.npy", np.empty((0, 3))), None, r"shape \(0, 3\); expected at least one object"),
    "one dimension": (save("a.npy", np.arange(3.0)), None, r"shape \(3,\); expected two dimensions"),
    "three dimensions": (save("a.npy", np.ones((2, 2, 2))), None, "expected two dimensions"),
    "complex": (save("a.npy", np.ones((2, 2), dtype=complex)), None, "holds dtype complex128; expected real numbers"),
    "not square": (save("a.npy", np.ones((2, 3))), "precomputed", "expected a square or a condensed matrix"),
    "no triangle": (save("a.npy", np.ones(4)), "precomputed", r"4 distances are no condensed matrix"),
    "no sets": (save("a.npy", np.array([[0, 1], [2, 0]])), "jaccard", r"entry \(1, 0\), counted from 0, is 2"),
    "ragged lines": (text("a.txt", b"abc\nab\n"), "hamming", "line 2 has 2 letters, line 1 has 3"),
    "numbers as strings": (
        save("a.npy", VECTORS),
        "levenshtein",
        "'levenshtein' needs strings, the file holds vectors",
    ),
    "strings as numbers": (text("a.txt", b"one\n"), "euclidean", "'euclidean' needs vectors, the file holds strings"),
    "no header": (text("a.fasta", b"ACGT\n"), None, "row 1: 'ACGT'; expected a header that starts with '>'"),
    "empty record": (text("a.fasta", b">one\n>two\nA\n"), None, "row 1: record one is empty"),
    "no sequence": (text("a.fasta", b">one\nAC1T\n"), None, "row 2: 'AC1T' is no sequence"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_wrong_file_is_refused_in_one_line_that_names_it(tmp_path: Path, case: str) -> None:
    make, metric, message = BAD_FILES[case]
    path = make(tmp_path)
    with pytest.raises(InputError, match=message) as caught:
        read_points(path, metric)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_status == 2


def test_an_archive_of_several_arrays_needs_a_key(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", train=VECTORS, test=VECTORS[:1])
    assert len(read_points(tmp_path / "a.npz", key="test")) == 1
    with pytest.raises(InputError, match="holds 2 arrays; expected --key, one of test, train"):
        read_points(tmp_path / "a.npz")
    with pytest.raises(InputError, match="holds no array 'x'"):
        read_points(tmp_path / "a.npz", key="x")


def test_a_list_column_of_unequal_vectors_names_the_row(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"x": [[1.0, 2.0], [1.0]]}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match="row 2, column x: holds 1 numbers; expected 2 as in the first row"):
        read_points(tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": ["one", None]}), tmp_path / "b.parquet")
    with pytest.raises(InputError, match="row 2, column x: the value is missing"):
        read_points(tmp_path / "b.parquet")


def test_one_object_and_repeated_objects_are_fine(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("alone")
    assert read_points(tmp_path / "one.txt").data == ["alone"]
    (tmp_path / "same.csv").write_text("1,2\n1,2\n1,2\n")
    assert len(read_points(tmp_path / "same.csv")) == 3


def test_every_metric_of_the_library_is_known_to_the_readers() -> None:
    from assay.mst.metrics import METRICS

    assert set(METRICS) <= set(KIND_OF_METRIC)


@pytest.mark.parametrize(("mark", "word"), [(";", "semicolon"), ("\t", "tab")])
@pytest.mark.parametrize("header", ["", "x,y\n"])
def test_a_table_of_numbers_is_read_by_the_delimiter_it_has(tmp_path: Path, mark: str, word: str, header: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(f"{header}1.5,2\n-3e1,4\n".replace(",", mark))
    with pytest.warns(UserWarning, match=f"x.csv is read as a table separated by {word}"):
        points = read_points(path)
    assert points.data.tolist() == [[1.5, 2.0], [-30.0, 4.0]]
    path.write_text(f"{header}1.5,2\n-3e1,4\n1,x\n".replace(",", mark))
    refused = pytest.raises(InputError, match=rf"x\.csv, row {4 if header else 3}, column 2: 'x'")
    with refused, pytest.warns(UserWarning, match="separated by"):
        read_points(path)
    if mark == ";":
        path.write_text("items\n1;2\n2;5\n")
        assert read_points(path, "jaccard").data.sum(axis=1).ravel().tolist() == [[2, 2]]


@pytest.mark.parametrize(("name", "mark"), [("x.csv", ";"), ("x.tsv", "\t")])
def test_decimal_commas_are_named(tmp_path: Path, name: str, mark: str) -> None:
    (tmp_path / name).write_text(f"x{mark}y\n1{mark}0,5\n2{mark}1,5\n")
    with pytest.raises(
        InputError, match=f"{name}, row 2, column 2: '0,5' has a decimal comma; expected decimal points"
    ):
        read_points(tmp_path / name)


@pytest.mark.parametrize("metric", [None, "levenshtein"])
def test_a_table_of_text_and_numbers_asks_for_the_column(tmp_path: Path, metric: str | None) -> None:
    (tmp_path / "x.csv").write_text("name,age\nann,3\nbob,4\n")
    pq.write_table(pa.table({"name": ["ann", "bob"], "age": [3, 4]}), tmp_path / "x.parquet")
    for name in ("x.csv", "x.parquet"):
        with pytest.raises(InputError, match=r"not all columns hold numbers; .*--column, one of name, age"):
            read_points(tmp_path / name, metric)
        assert read_points(tmp_path / name, metric, column="name").data == ["ann", "bob"]
    (tmp_path / "x.csv").write_text("name;age\nann;3\nbob;4\n")
    assert read_points(tmp_path / "x.csv", metric, column="name").data == ["ann", "bob"]


def test_a_distance_matrix_is_not_taken_for_vectors_without_a_word(tmp_path: Path) -> None:
    path = tmp_path / "d.npy"
    distances = np.array([[0.0, 1, 2], [1, 0, 3], [2, 3, 0]])
    np.save(path, distances)
    with pytest.warns(UserWarning, match="looks like a distance matrix .* -m precomputed"):
        assert read_points(path).kind == "vectors"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_points(path, "precomputed").kind == "precomputed"
        np.save(path, distances + np.eye(3))
        read_points(path)


def test_an_empty_line_is_an_empty_string_or_set(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("a,b\n\nb\n")
    assert read_points(tmp_path / "x.txt").data == ["a,b", "", "b"]
    assert read_points(tmp_path / "x.txt", "jaccard").data.sum(axis=1).ravel().tolist() == [[2, 0, 1]]
