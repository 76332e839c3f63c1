"""Folders that appear whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from assay.core.errors import InputError

__all__ = ["atomic_folder", "check_folder"]


def check_folder(path: str | os.PathLike[str], *, force: bool = False) -> Path:
    """Return `path` when a folder may be written there, before any work is done.

    Raises
    ------
    InputError
        It exists and `force` is false, is a file, or lies in a folder that is missing or not writable.
    """
    target = Path(path)
    if target.is_file():
        raise InputError("is a file", file=target, expected="the name of a folder to write")
    if target.exists() and not force:
        raise InputError("exists already", file=target, expected="another name, or --force")
    if not target.parent.is_dir():
        raise InputError(f"the folder {target.parent} doesn't exist", file=target, expected="an existing folder")
    if not os.access(target.parent, os.W_OK):
        raise InputError(f"no permission to write in {target.parent}", file=target, expected="a writable folder")
    return target


@contextmanager
def atomic_folder(path: str | os.PathLike[str], *, force: bool = False) -> Iterator[Path]:
    """Give a temporary folder beside `path`, which becomes `path` only when the block ends well."""
    target = check_folder(path, force=force)
    temporary = Path(tempfile.mkdtemp(prefix=".", dir=target.parent))
    try:
        yield temporary
        temporary.chmod(0o755)
        if target.exists():
            old = Path(tempfile.mkdtemp(prefix=".", dir=target.parent))
            target.rename(old / "replaced")
            temporary.rename(target)
            shutil.rmtree(old)
        else:
            temporary.rename(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
