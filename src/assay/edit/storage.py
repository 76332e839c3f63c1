"""Tensors and what is known of them in ``.safetensors`` files, each of a kind and a version."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assay.core.errors import InputError
from assay.core.files import atomic_path, existing_file

__all__ = ["load_tensors", "save_tensors", "stored_kind", "write_tensors"]

SUFFIX = ".safetensors"
NO_SPACE = "No space left on device"


def save_tensors(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Tensor],
    *,
    kind: str,
    version: int,
    info: Mapping[str, Any],
    force: bool = False,
) -> Path:
    """Write tensors with JSON values beside them, whole or not at all.

    Raises
    ------
    InputError
        The name ends otherwise, or nothing can be written there.
    AssayError
        The disk is full.
    """
    file = Path(path)
    if file.suffix != SUFFIX:
        raise InputError(f"unknown ending '{file.suffix}'", file=file, expected=f"a name that ends in {SUFFIX}")
    metadata = {"format": kind, "version": str(version), "info": json.dumps(info, ensure_ascii=False)}
    with atomic_path(file, force=force) as temporary:
        write_tensors(temporary, tensors, metadata=metadata)
    return file


def write_tensors(path: Path, tensors: Mapping[str, Tensor], *, metadata: Mapping[str, str] | None = None) -> None:
    """Write a file; what goes wrong on the disk is an `OSError`, as with every other writer."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    try:
        save_file(whole, str(path), metadata=dict(metadata) if metadata else None)
    except SafetensorError as error:
        full = NO_SPACE in str(error)
        raise OSError(errno.ENOSPC if full else errno.EIO, NO_SPACE if full else str(error)) from error


def stored_kind(path: str | os.PathLike[str]) -> str | None:
    """The kind of what a file holds; None for a file of somebody else.

    Raises
    ------
    InputError
        The file is missing or damaged.
    """
    from safetensors import SafetensorError, safe_open

    file = existing_file(path, suffixes=(SUFFIX,))
    try:
        with safe_open(str(file), framework="pt") as stored:
            return (stored.metadata() or {}).get("format")
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(f"damaged: {str(error).splitlines()[0]}", file=file, expected="a .safetensors file") from error


def load_tensors(
    path: str | os.PathLike[str], *, kind: str, version: int, what: str
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `save_tensors` wrote.

    Parameters
    ----------
    path : path
        The file.
    kind, version
        What it must be.
    what : str
        The kind in words, such as "a patch".

    Returns
    -------
    tensors : dict of str to Tensor
    info : dict

    Raises
    ------
    InputError
        The file is missing, damaged, of another kind or version, or holds what is no number.
    """
    from safetensors import SafetensorError, safe_open

    file = existing_file(path, suffixes=(SUFFIX,))
    try:
        with safe_open(str(file), framework="pt") as stored:
            metadata = stored.metadata() or {}
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(f"damaged: {str(error).splitlines()[0]}", file=file, expected=what) from error
    if metadata.get("format") != kind:
        raise InputError(f"isn't {what}", file=file, expected=f"{what} that this package wrote")
    if metadata.get("version") != str(version):
        raise InputError(f"is of version {metadata.get('version')}", file=file, expected=f"{what} of version {version}")
    wrong = [name for name, tensor in tensors.items() if not bool(torch.isfinite(tensor).all())]
    if wrong:
        raise InputError(f"{wrong[0]} holds NaN or infinity", file=file, expected="numbers")
    try:
        info = json.loads(metadata["info"])
    except (KeyError, ValueError, RecursionError) as error:
        raise InputError("damaged: what belongs to its tensors can't be read", file=file, expected=what) from error
    if not isinstance(info, dict):
        raise InputError("damaged: what belongs to its tensors can't be read", file=file, expected=what)
    return tensors, info
