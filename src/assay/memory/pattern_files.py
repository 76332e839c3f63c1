"""Patterns and cues from files as people have them, and states back into files.

Read: ``.npy``, ``.npz``, ``.csv``, ``.tsv``, ``.txt`` (rows of 0 and 1, with or without separators; ``?`` is an erased
bit), ``.safetensors``, and a folder of ``.png`` images of one size, made two-level by a threshold.
"""

from __future__ import annotations

import io
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import InputError
from assay.core.files import STREAM, atomic_path, check_output, existing_file, read_lines, read_matrix
from assay.memory.interactions import counted

__all__ = [
    "OUTPUT_SUFFIXES",
    "Bits",
    "check_states_output",
    "read_bits",
    "require_cues",
    "require_patterns",
    "two_level_image",
    "write_states",
]

SUFFIXES = (".npy", ".npz", ".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz", ".safetensors")
OUTPUT_SUFFIXES = (".npy", ".npz", ".csv", ".txt", ".safetensors")
ERASED = "?"
SHOWN_CHARACTERS = 20
GREY_LEVELS = 256


@dataclass(frozen=True)
class Bits:
    """What a file holds.

    Attributes
    ----------
    values : ndarray, shape (rows, bits)
        As `DenseAssociativeMemory` reads them.
    source : str
        The file's name, for messages.
    image_shape : tuple of int or None
        Height and width where rows are images.
    names : tuple of str
        The images' file names.
    lines : ndarray of int64, shape (rows,), or None
        For text: the line of each row, counted from 1.
    gaps : bool
        For text: whether a bit is marked as erased.
    """

    values: NDArray[Any]
    source: str
    image_shape: tuple[int, int] | None = None
    names: tuple[str, ...] = ()
    lines: NDArray[np.int64] | None = None
    gaps: bool = False

    def row(self, index: int) -> int:
        """The row of a pattern as an editor counts, from 1."""
        return index + 1 if self.lines is None else int(self.lines[index])

    def place(self, index: int) -> str:
        """What the user calls a pattern: the image's name, or its row."""
        return self.names[index] if self.names else f"row {self.row(index)}"

    def fault(self, message: str, at: tuple[int, int] | None = None, *, expected: str) -> InputError:
        """The error that something is wrong with the file, or with one bit of it."""
        row, column = (None, None) if at is None else (self.row(at[0]), at[1] + 1)
        return InputError(message, file=self.source, row=row, column=column, expected=expected)


def read_bits(path: str | os.PathLike[str], *, key: str | None = None, threshold: str = "otsu") -> Bits:
    """Read patterns or cues.

    Parameters
    ----------
    path : path
        A file, a folder of PNG images, or ``-`` for rows of 0 and 1 on standard input.
    key : str, optional
        Which array of an ``.npz`` or ``.safetensors`` file; may be left out when there is one.
    threshold : str
        For images: ``"otsu"``, ``"median"``, or a grey level from 0 to 255 at which white begins.

    Returns
    -------
    Bits

    Raises
    ------
    InputError
        The file is missing, empty, damaged or of an unknown kind; or a value is no bit (naming row and column).
    """
    _require_threshold(threshold)
    if os.fspath(path) == STREAM:
        return _read_text(read_lines(STREAM), "standard input")
    if os.fspath(path) and Path(path).is_dir():
        return _read_images(Path(path), threshold)
    file = existing_file(path, suffixes=SUFFIXES)
    name = file.name.lower().removesuffix(".gz")
    if key is not None and not name.endswith((".npz", ".safetensors")):
        raise InputError(f"holds nothing named '{key}'", file=file, expected="--key with .npz or .safetensors only")
    if name.endswith((".txt", ".csv", ".tsv")):
        return _read_text(read_lines(file), os.fspath(file))
    values = np.asarray(_read_tensor(file, key) if name.endswith(".safetensors") else read_matrix(file, key=key))
    held = Bits(values, os.fspath(file))
    if values.dtype.kind not in "biuf":
        raise held.fault(f"holds dtype {values.dtype}", expected="truth values or real numbers")
    if values.ndim not in (2, 3):
        raise held.fault(
            f"holds an array of shape {values.shape}", expected="a matrix with a pattern a row, or a stack of images"
        )
    if values.size == 0:
        raise held.fault(f"holds no bits: its shape is {values.shape}", expected="at least one pattern of one bit")
    if values.ndim == 3:
        return replace(held, values=values.reshape(len(values), -1), image_shape=values.shape[1:])
    return held


def require_patterns(held: Bits, *, packed: bool = False, bits: int | None = None) -> None:
    """Refuse what can't be stored, naming the first wrong place as the file counts it.

    Parameters
    ----------
    held : Bits
        What was read.
    packed : bool
        Whether rows are octets as ``numpy.packbits`` writes them.
    bits : int, optional
        With `packed`, how many bits of a row count.

    Raises
    ------
    InputError
        A value is none of two levels, or the octets aren't octets or fewer or many more than the bits need.
    """
    if packed:
        _require_octets(held, bits)
        return
    if held.gaps:
        row, column = np.argwhere(held.values == 0)[0]
        raise held.fault("'?' marks an erased bit", (row, column), expected="0 or 1, since patterns are stored whole")
    minus, zero = _require_levels(held, expected="0 or 1, or -1 or 1")
    if minus.any() and zero.any():
        row, column = np.argwhere(zero)[0]
        raise held.fault("is 0 among -1 and 1", (row, column), expected="two levels: 0 and 1, or -1 and 1")


def require_cues(held: Bits, *, bits: int, coding: str, continuous: bool = False, packed: bool = False) -> Bits:
    """Cues that a memory can read, naming the first wrong place as the file counts it.

    Parameters
    ----------
    held : Bits
        What was read.
    bits : int
        The bits of the memory's patterns.
    coding : str
        Their coding.
    continuous : bool
        Whether any finite number is a cue.
    packed : bool
        Whether rows of octets are cues too.

    Returns
    -------
    Bits
        The cues; rows of text without -1 as truth values, since text marks erased bits by ``?``.

    Raises
    ------
    InputError
        They are of another width, a value is no level, or 0 and 1 could mean bits or erasures.
    """
    width = held.values.shape[1]
    if packed and held.values.dtype == np.uint8 and width != bits:
        _require_octets(held, bits)
        return held
    if width != bits:
        raise held.fault(f"has {counted(width, 'bit')} a row", expected=f"{bits:,}, as the memory's patterns have")
    if continuous:
        _require_finite(held, expected="a finite number")
        return held
    minus, zero = _require_levels(held, expected="0 or 1, or -1, 1, or 0 for an erased bit")
    if held.lines is not None and not held.gaps and not minus.any():
        return replace(held, values=held.values == 1)
    if held.values.dtype != np.bool_ and coding == "pm1" and zero.any() and not minus.any() and not zero.all():
        raise held.fault(
            "has 0 and 1 only, and the memory's patterns -1 and 1",
            expected="-1 and 1, with 0 for an erased bit; or truth values",
        )
    return held


def _require_octets(held: Bits, bits: int | None) -> None:
    if held.values.dtype != np.uint8 or held.image_shape is not None or held.lines is not None:
        kind = "text" if held.lines is not None else "images" if held.image_shape is not None else held.values.dtype
        raise held.fault(f"holds {kind}, and --packed reads octets", expected="an array of uint8, a pattern a row")
    most = 8 * held.values.shape[1]
    if bits is not None and not most - 8 < bits <= most:
        raise held.fault(
            f"has {counted(held.values.shape[1], 'octet')} a row",
            expected=f"{-(-bits // 8):,} for {counted(bits, 'bit')}",
        )


def _require_finite(held: Bits, *, expected: str) -> None:
    if held.values.dtype.kind == "f" and not np.isfinite(held.values).all():
        row, column = np.argwhere(~np.isfinite(held.values))[0]
        value = "NaN" if np.isnan(held.values[row, column]) else "infinite"
        raise held.fault(f"is {value}", (row, column), expected=expected)


def _require_levels(held: Bits, *, expected: str) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Where the values are -1 and where 0; all others must be 1."""
    if held.values.dtype == np.bool_:
        none = np.zeros((1, 1), dtype=np.bool_)
        return none, none
    _require_finite(held, expected=expected)
    minus, zero = held.values == -1, held.values == 0
    known = minus | zero | (held.values == 1)
    if not known.all():
        row, column = np.argwhere(~known)[0]
        raise held.fault(f"is {held.values[row, column]:g}", (row, column), expected=expected)
    return minus, zero


def check_states_output(path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Refuse a name that no states can be written to, before any work is done."""
    if os.fspath(path) == STREAM:
        return
    if not os.fspath(path).lower().endswith(OUTPUT_SUFFIXES):
        raise InputError(
            f"unknown ending '{Path(path).suffix}'",
            file=path,
            expected=f"a name that ends in {', '.join(OUTPUT_SUFFIXES)}",
        )
    check_output(path, force=force)


def write_states(path: str | os.PathLike[str], states: NDArray[Any], *, force: bool = False) -> None:
    """Write states, whole or not at all; ``-`` writes rows of text to standard output.

    ``.csv`` has a number a cell; ``.txt`` has rows of 0 and 1 without separators, ``?`` for an undecided unit.
    """
    name = os.fspath(path).lower()
    if os.fspath(path) == STREAM:
        print(_text(states), end="")
        return
    check_states_output(path, force=force)
    with atomic_path(path, force=force) as temporary:
        if name.endswith(".npy"):
            np.save(temporary, states)
        elif name.endswith(".npz"):
            np.savez_compressed(temporary, states=states)
        elif name.endswith(".csv"):
            lines = (",".join(f"{value:g}" for value in row) for row in np.asarray(states, dtype=np.float64))
            temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        elif name.endswith(".txt"):
            temporary.write_text(_text(states), encoding="utf-8")
        else:
            from safetensors.numpy import save

            temporary.write_bytes(save({"states": np.ascontiguousarray(states)}))


def two_level_image(grey: NDArray[np.uint8], threshold: str = "otsu") -> NDArray[np.bool_]:
    """White where a grey image is above a threshold.

    Parameters
    ----------
    grey : ndarray of uint8
        The image.
    threshold : str
        ``"otsu"`` (the level that separates two classes best, Otsu 1979), ``"median"``, or a level.

    Returns
    -------
    ndarray of bool
    """
    if threshold == "median":
        return grey > np.median(grey)
    if threshold == "otsu":
        return grey > _otsu(grey)
    _require_threshold(threshold)
    return grey >= float(threshold)


def _require_threshold(threshold: str) -> None:
    if threshold in ("otsu", "median"):
        return
    try:
        known = 0 <= float(threshold) < GREY_LEVELS
    except ValueError:
        known = False
    if not known:
        raise InputError(f"threshold is '{threshold}'", expected="otsu, median, or a grey level from 0 to 255")


def _otsu(grey: NDArray[np.uint8]) -> int:
    """The level that maximises the variance between those up to it and those above."""
    share = np.bincount(grey.ravel(), minlength=GREY_LEVELS) / grey.size
    below = np.cumsum(share)
    mean_below = np.cumsum(share * np.arange(GREY_LEVELS))
    weight = below * (1 - below)
    between = np.zeros(GREY_LEVELS)
    inside = weight > 0
    between[inside] = (mean_below[-1] * below[inside] - mean_below[inside]) ** 2 / weight[inside]
    return int(between.argmax())


def _read_images(folder: Path, threshold: str) -> Bits:
    from PIL import Image, UnidentifiedImageError

    files = sorted(file for file in folder.iterdir() if file.suffix.lower() == ".png")
    if not files:
        raise InputError("holds no .png file", file=folder, expected="a folder of PNG images of one size, or a file")
    rows, shape = [], None
    for file in files:
        try:
            with Image.open(file) as image:
                grey = np.asarray(image.convert("L"))
        except (UnidentifiedImageError, OSError, SyntaxError) as error:
            raise InputError(f"damaged or no image: {error}", file=file, expected="a PNG image") from error
        if shape is not None and grey.shape != shape:
            raise InputError(
                f"is {grey.shape[1]} x {grey.shape[0]} pixels",
                file=file,
                expected=f"{shape[1]} x {shape[0]} as the others",
            )
        shape = (grey.shape[0], grey.shape[1])
        rows.append(two_level_image(grey, threshold).ravel())
    return Bits(np.array(rows), os.fspath(folder), image_shape=shape, names=tuple(file.name for file in files))


def _read_tensor(file: Path, key: str | None) -> NDArray[Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(os.fspath(file), framework="numpy") as opened:
            names = sorted(opened.keys())
            if key is None and len(names) != 1:
                raise InputError(
                    f"holds {len(names)} tensors", file=file, expected=f"--key, one of {', '.join(names) or 'none'}"
                )
            if key is not None and key not in names:
                raise InputError(
                    f"holds no tensor '{key}'", file=file, expected=f"--key of {', '.join(names) or 'none'}"
                )
            return np.asarray(opened.get_tensor(key or names[0]))
    except (SafetensorError, TypeError) as error:
        raise InputError(
            f"damaged: {' '.join(str(error).split())}", file=file, expected="a safetensors file"
        ) from error


def _read_text(lines: list[str], source: str) -> Bits:
    """Rows of bits; ±1 with 0 for an erased bit where a row has ``?``, else the numbers as they stand."""
    regular = _regular_rows(lines)
    if regular is not None:
        return Bits(regular, source, lines=np.arange(1, len(regular) + 1))
    rows: list[list[int]] = []
    numbers: list[int] = []
    width, header = 0, True
    for number, line in enumerate(lines, start=1):
        cells = _cells(line)
        if not cells:
            continue
        if header and _is_header(cells):
            header, width = False, len(cells)
            continue
        header = False
        if width and len(cells) != width:
            raise InputError(
                f"has {counted(len(cells), 'bit')}", file=source, row=number, expected=f"{width:,} as above"
            )
        width = len(cells)
        levels = [_level(cell) for cell in cells]
        if None in levels:
            column = levels.index(None)
            raise InputError(
                f"'{_short(cells[column])}' is no bit",
                file=source,
                row=number,
                column=column + 1,
                expected="0 or 1, -1 or 1, or ?",
            )
        rows.append([level for level in levels if level is not None])
        numbers.append(number)
    if not rows:
        raise InputError("holds no patterns", file=source, expected="at least one row of 0 and 1")
    values = np.array(rows, dtype=np.int8)
    erased = values == GAP
    if erased.any():
        signs = np.where(values == 1, np.int8(1), np.int8(-1))
        values = np.where(erased, np.int8(0), signs)
    return Bits(values, source, lines=np.array(numbers), gaps=bool(erased.any()))


def _short(cell: str) -> str:
    """A cell as a message shows it."""
    return cell if len(cell) <= SHOWN_CHARACTERS else f"{cell[:SHOWN_CHARACTERS]}…"


def _regular_rows(lines: list[str]) -> NDArray[np.int8] | None:
    """Rows of single 0 and 1, all alike, with one separator or none: read at once. None where they aren't."""
    width = len(lines[0]) if lines else 0
    if not width or any(len(line) != width for line in lines):
        return None
    try:
        marks = np.frombuffer("".join(lines).encode("ascii"), dtype=np.uint8).reshape(len(lines), width)
    except UnicodeEncodeError:
        return None
    if width > 1 and chr(marks[0, 1]) in SEPARATORS:
        if width % 2 == 0 or (marks[:, 1::2] != marks[0, 1]).any():
            return None
        marks = marks[:, ::2]
    bits = marks - ord("0")
    return None if (bits > 1).any() else bits.astype(np.int8)


SEPARATORS = (",", ";", "\t", " ")
GAP = 9
LEVELS = {"0": 0, "1": 1, "-1": -1, "+1": 1, ERASED: GAP, "true": 1, "false": 0}


def _cells(line: str) -> list[str]:
    for separator in SEPARATORS:
        if separator in line.strip():
            return [cell.strip().strip('"') for cell in line.strip().split(separator)]
    text = line.strip()
    if not text:
        return []
    return [text] if text in LEVELS or not set(text) <= set("01?") else list(text)


def _level(cell: str) -> int | None:
    """The level that a cell means, in whatever way it is written; None for none."""
    if cell in LEVELS:
        return LEVELS[cell]
    if _is_number(cell):
        return int(float(cell)) if float(cell) in (-1.0, 0.0, 1.0) else None
    return LEVELS.get(cell.lower())


def _is_header(cells: list[str]) -> bool:
    return not any(_level(cell) is not None or _is_number(cell) for cell in cells) and "" not in cells


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _text(states: NDArray[Any]) -> str:
    """Rows of 0 and 1; ``?`` for 0 among ±1."""
    array = np.asarray(states)
    signed = array.dtype.kind != "b" and bool((array < 0).any())
    stream = io.StringIO()
    for row in array:
        marks = [ERASED if signed and value == 0 else "1" if value > 0 else "0" for value in row]
        stream.write("".join(marks) + "\n")
    return stream.getvalue()
