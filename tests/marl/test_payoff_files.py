"""Payoff tables as people have them, and what is said of those that are none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from assay.core.errors import InputError
from assay.marl.payoff_files import parse_shift, read_game, read_payoff

SQUARE = np.array([[8.0, 0.0, -1.5], [0.0, 4.0, 0.0], [2.0, 0.0, 6.0]])
PLAIN = "8,0,-1.5\n0,4,0\n2,0,6\n"
NAMED = "meet,park,cafe,home\npark,8,0,-1.5\ncafe,0,4,0\nhome,2,0,6\n"


def write(folder: Path, name: str, text: str | bytes) -> Path:
    file = folder / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("plain.csv", PLAIN),
        ("spaces and ümlauts.csv", "8, 0, -1.5\n\n0,4,0\n2,0,6"),
        ("windows.csv", b"\xef\xbb\xbf" + PLAIN.replace("\n", "\r\n").encode()),
        ("tabs.tsv", PLAIN.replace(",", "\t")),
        ("named.csv", NAMED),
        ("header.csv", "park,cafe,home\n" + PLAIN),
        ("labels.csv", "park,8,0,-1.5\ncafe,0,4,0\nhome,2,0,6\n"),
        ("numbered.csv", ",0,1,2\n0,8,0,-1.5\n1,0,4,0\n2,2,0,6\n"),
    ],
    ids=lambda value: value if isinstance(value, str) and "." in value[-5:] else "",
)
def test_a_square_table_is_a_game_of_two(tmp_path: Path, name: str, text: str | bytes) -> None:
    np.testing.assert_array_equal(read_payoff(write(tmp_path, name, text)), SQUARE)


def test_names_of_actions_are_kept(tmp_path: Path) -> None:
    game = read_game(write(tmp_path, "named.csv", NAMED))
    assert game.actions == (("park", "cafe", "home"), ("park", "cafe", "home"))
    assert game.named((0, 2)) == "(park, home)"
    assert read_game(write(tmp_path, "plain.csv", PLAIN)).named((0, 2)) == "(0, 2)"
    crossed = read_game(write(tmp_path, "header.csv", "left,right\n1,2\n3,4\n"))
    assert crossed.named((1, 0)) == "(1, left)"


def test_a_long_table_is_a_game_of_any_number(tmp_path: Path) -> None:
    payoff = np.random.default_rng(0).normal(size=(2, 2, 2)).round(3)
    lines = [f"{i},{j},{k},{payoff[i, j, k]}" for i, j, k in np.ndindex(2, 2, 2)]
    for order in (lines, lines[::-1]):
        text = "a,b,c,payoff\n" + "\n".join(order)
        np.testing.assert_array_equal(read_payoff(write(tmp_path, "long.csv", text)), payoff)
    worded = "first,second,payoff\nup,up,1\nup,down,2\ndown,up,3\ndown,down,4\n"
    game = read_game(write(tmp_path, "worded.csv", worded))
    np.testing.assert_array_equal(game.payoff, [[1, 2], [3, 4]])
    assert game.actions == (("up", "down"), ("up", "down"))


def test_arrays_are_read(tmp_path: Path) -> None:
    payoff = np.arange(16).reshape(2, 2, 2, 2)
    np.save(tmp_path / "game.npy", payoff)
    np.testing.assert_array_equal(read_payoff(tmp_path / "game.npy"), payoff)
    np.savez(tmp_path / "game.npz", payoff=SQUARE)
    np.testing.assert_array_equal(read_payoff(tmp_path / "game.npz"), SQUARE)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("absent.csv", None, "no such file"),
        ("empty.csv", "", "expected"),
        ("blank.csv", "\n\n", "holds no rows"),
        ("header.csv", "a,b,c\n", "holds a header alone"),
        ("oblong.csv", "1,2,3\n4,5,6\n", r"payoff has the shape \(2, 3\); expected a square, or a hypercube"),
        ("corner.csv", "x,2,3\n4,5,6\n7,8,9\n", "row 1, column 1: 'x' is not a number"),
        ("ragged.csv", "1,2\n3\n", "row 2: has 1 cells; expected 2"),
        ("worded.csv", "1,2\n3,four\n", "row 2, column 2: 'four' is not a number"),
        ("named.csv", "x,a,b\na,1,2\nb,3,-\n", "row 3, column 3: '-' is not a number"),
        ("nan.csv", "1,nan\n3,4\n", "row 1, column 2: 'nan' is not finite"),
        ("infinite.csv", "1,2\n3,inf\n", "row 2, column 2: 'inf' is not finite"),
        ("payoff.txt", PLAIN, "ends in .csv, .tsv, .npy, .npz"),
        ("long.csv", "a,b,payoff\n0,0,1\n0,1,2\n1,0,3\n", "has no payoff of 1, 1"),
        ("twice.csv", "a,b,payoff\n0,0,1\n0,0,2\n", "row 3: 0, 0 is there twice"),
        ("uneven.csv", "a,b,payoff\n0,0,1\n0,1,2\n", "has 1 x 2 actions"),
        ("hole.csv", "a,b,payoff\n0,0,\n", "row 2, column payoff: '' is not a finite number"),
        ("short.csv", "a,b,payoff\n0,0\n", "row 2: has 2 cells; expected 3"),
        ("torn.npy", b"\x93NUMPY\x01\x00v\x00{'de", "can't be read as an array"),
    ],
    ids=lambda value: value if isinstance(value, str) and value[-4:] in (".csv", ".npy", ".txt") else "",
)
def test_what_is_no_payoff_is_refused_with_its_place(
    tmp_path: Path, name: str, text: str | bytes | None, says: str
) -> None:
    file = tmp_path / name if text is None else write(tmp_path, name, text)
    with pytest.raises(InputError, match=says) as refused:
        read_payoff(file)
    assert name in str(refused.value)


def test_arrays_of_other_shapes_and_kinds_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "box.npy", np.zeros((2, 2, 3)))
    with pytest.raises(InputError, match=r"box.npy: payoff has the shape \(2, 2, 3\)"):
        read_payoff(tmp_path / "box.npy")
    np.save(tmp_path / "words.npy", np.array([["a", "b"], ["c", "d"]]))
    with pytest.raises(InputError, match="holds values of type <U1"):
        read_payoff(tmp_path / "words.npy")
    np.save(tmp_path / "objects.npy", np.array([[1, None], [2, 3]], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="can't be read as an array"):
        read_payoff(tmp_path / "objects.npy")


def test_a_shift_is_a_file_and_an_update() -> None:
    assert parse_shift("a@b/later.csv@20") == ("a@b/later.csv", 20)
    for wrong in ("later.csv", "later.csv@", "@5", "later.csv@soon", "later.csv@0", "later.csv@-3"):
        with pytest.raises(InputError, match="expected a file, @ and the update from which it holds"):
            parse_shift(wrong)
