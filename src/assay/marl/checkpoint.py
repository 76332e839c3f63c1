"""A learner on disk: one safetensors file, whose header holds everything that isn't an array as JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import InputError
from assay.core.files import atomic_path, existing_file

__all__ = ["read_checkpoint", "write_checkpoint"]

FORMAT = "assay.marl.learner"
VERSION = 1


def write_checkpoint(
    path: str | os.PathLike[str], arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any], *, force: bool
) -> None:
    """Write a learner's state in one piece.

    Parameters
    ----------
    path : path
        The file.
    arrays : mapping of str to array
        Weights, moments, episodes.
    facts : mapping
        What JSON can hold; NumPy's numbers and arrays become numbers and lists.
    force : bool
        Replace an existing file.
    """
    from safetensors.numpy import save_file

    header = {"format": FORMAT, "version": str(VERSION), "facts": json.dumps(facts, default=_plain)}
    with atomic_path(path, force=force) as temporary:
        save_file({name: np.asarray(array, order="C") for name, array in arrays.items()}, temporary, metadata=header)


def read_checkpoint(path: str | os.PathLike[str]) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Read what `write_checkpoint` wrote.

    Parameters
    ----------
    path : path
        The file.

    Returns
    -------
    arrays : dict of str to array
        By name.
    facts : dict
        What isn't an array.

    Raises
    ------
    InputError
        The file is missing, damaged, of another kind or of a later version.
    """
    from safetensors import SafetensorError, safe_open

    file = existing_file(path)
    expected = "a checkpoint written by a learner's save"
    try:
        with safe_open(file, framework="numpy") as opened:
            header = opened.metadata() or {}
            if header.get("format") != FORMAT:
                raise InputError("holds something else than a learner", file=file, expected=expected)
            if int(header["version"]) > VERSION:
                raise InputError(
                    f"has version {header['version']} of its format", file=file, expected=f"at most {VERSION}"
                )
            arrays = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (not a mapping)
    except (SafetensorError, OSError) as error:
        raise InputError("is damaged, or no safetensors file", file=file, expected=expected) from error
    return arrays, json.loads(header["facts"])


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} can't be written as JSON")
