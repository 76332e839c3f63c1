"""Patterns and cues from files as people have them, and states back into files.

Read: ``.npy``, ``.npz``, ``.csv``, ``.tsv``, ``.txt`` (rows of 0 and 1, with or without separators; ``?`` is an erased
bit), ``.safetensors``, and a folder of ``.png`` images of one size, made two-level by a threshold.
"""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import InputError
from assay.core.files import STREAM, atomic_path, check_output, existing_file, read_lines, read_matrix

__all__ = ["OUTPUT_SUFFIXES", "Bits", "check_states_output", "read_bits", "two_level_image", "write_states"]

SUFFIXES = (".npy", ".npz", ".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz", ".safetensors")
OUTPUT_SUFFIXES = (".npy", ".npz", ".csv", ".txt", ".safetensors")
ERASED = "?"
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
    """

    values: NDArray[Any]
    source: str
    image_shape: tuple[int, int] | None = None
    names: tuple[str, ...] = ()


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
    if os.fspath(path) == STREAM:
        return Bits(_rows_of_text(read_lines(STREAM), "standard input"), "standard input")
    if Path(path).is_dir():
        return _read_images(Path(path), threshold)
    file = existing_file(path, suffixes=SUFFIXES)
    name = file.name.lower().removesuffix(".gz")
    if name.endswith((".txt", ".csv", ".tsv")):
        return Bits(_rows_of_text(read_lines(file), os.fspath(file)), os.fspath(file))
    if name.endswith(".safetensors"):
        return Bits(_read_tensor(file, key), os.fspath(file))
    values = read_matrix(file, key=key)
    if values.ndim == 3:
        return Bits(np.asarray(values).reshape(len(values), -1), os.fspath(file), image_shape=values.shape[1:])
    return Bits(np.asarray(values), os.fspath(file))


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
            from safetensors.numpy import save_file

            save_file({"states": np.ascontiguousarray(states)}, os.fspath(temporary))


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
    try:
        level = float(threshold)
    except ValueError:
        raise InputError(
            f"threshold is '{threshold}'", expected="otsu, median, or a grey level from 0 to 255"
        ) from None
    if not 0 <= level < GREY_LEVELS:
        raise InputError(f"threshold is {threshold}", expected="otsu, median, or a grey level from 0 to 255")
    return grey >= level


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


def _rows_of_text(lines: list[str], source: str) -> NDArray[np.int8]:
    """Rows of bits; ±1 with 0 for an erased bit where a row has ``?``, else the numbers as they stand."""
    regular = _regular_rows(lines)
    if regular is not None:
        return regular
    rows: list[list[str]] = []
    width = 0
    for number, line in enumerate(lines, start=1):
        cells = _cells(line)
        if not cells or (number == 1 and _is_header(cells)):
            continue
        if width and len(cells) != width:
            raise InputError(f"has {len(cells)} bits", file=source, row=number, expected=f"{width} as above")
        width = len(cells)
        for column, cell in enumerate(cells, start=1):
            if cell not in LEVELS:
                raise InputError(
                    f"'{cell}' is no bit", file=source, row=number, column=column, expected="0 or 1, -1 or 1, or ?"
                )
        rows.append(cells)
    if not rows:
        raise InputError("holds no patterns", file=source, expected="at least one row of 0 and 1")
    values = np.array([[LEVELS[cell] for cell in row] for row in rows], dtype=np.int8)
    erased = values == GAP
    if not erased.any():
        return values
    signs = np.where(values == 1, np.int8(1), np.int8(-1))
    return np.where(erased, np.int8(0), signs)


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
LEVELS = {"0": 0, "1": 1, "-1": -1, "+1": 1, "0.0": 0, "1.0": 1, "-1.0": -1, ERASED: GAP}


def _cells(line: str) -> list[str]:
    for separator in SEPARATORS:
        if separator in line.strip():
            return [cell.strip().strip('"') for cell in line.strip().split(separator)]
    text = line.strip()
    return [text] if text in LEVELS or not set(text) <= set("01?") else list(text)


def _is_header(cells: list[str]) -> bool:
    return not any(cell in LEVELS or _is_number(cell) for cell in cells) and "" not in cells


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
