"""Texts as people have them, and what is said of those that can't be read."""

from __future__ import annotations

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assay.core.errors import InputError
from assay.core.texts import read_texts

KINDS = {"string": pa.string(), "large": pa.large_string(), "view": pa.string_view()}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_kind_of_text_column_is_read(tmp_path, kind):
    pq.write_table(pa.table({"text": pa.array(["one", None, "two"], kind)}), tmp_path / "t.parquet")
    assert read_texts(str(tmp_path / "t.parquet")) == ["one", "two"]


def test_a_column_of_categories_is_text_when_they_are(tmp_path):
    for values, name in ((["one", "two", "one"], "text"), ([1, 2, 1], "number")):
        pq.write_table(pa.table({"text": pa.array(values).dictionary_encode()}), tmp_path / f"{name}.parquet")
    assert read_texts(str(tmp_path / "text.parquet")) == ["one", "two", "one"]
    with pytest.raises(InputError, match="column text: holds int64"):
        read_texts(str(tmp_path / "number.parquet"))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (json.dumps({"text": "a\ud800b"}), "holds half of a surrogate pair"),
        ('{"text": "x", "n": ' + "9" * 5000 + "}", "is not JSON: Exceeds the limit"),
        ("[" * 100_000 + "]" * 100_000, "is not JSON: maximum recursion depth exceeded"),
        ("{", "is not JSON: Expecting property name"),
    ],
    ids=["surrogate", "digits", "depth", "cut"],
)
def test_lines_that_can_not_be_read_are_named_by_their_row(tmp_path, line, said):
    (tmp_path / "t.jsonl").write_text(f'{{"text": "good"}}\n{line}\n')
    with pytest.raises(InputError, match=rf"t\.jsonl, row 2: {said}"):
        read_texts(str(tmp_path / "t.jsonl"))


def test_a_damaged_gzip_file_is_said_to_be_so(tmp_path):
    whole = bytearray(gzip.compress(b"text that is long enough to be packed, " * 50))
    for place in range(12, len(whole) - 8, 7):
        damaged = bytearray(whole)
        damaged[place] ^= 0xFF
        (tmp_path / "t.txt.gz").write_bytes(damaged)
        with pytest.raises(InputError, match="damaged"):
            read_texts(str(tmp_path / "t.txt.gz"))


def test_no_name_and_a_folder_that_can_not_be_read(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="the text's name is empty"):
        read_texts("")
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(InputError, match="the folder holds no text"):
        read_texts(str(tmp_path))
    (tmp_path / "a.txt").write_text("text")
    assert read_texts(str(tmp_path)) == ["text"]

    def refuse(self):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr("pathlib.Path.is_file", refuse)
    with pytest.raises(InputError, match="txt: permission denied; expected a readable folder"):
        read_texts(str(tmp_path))
