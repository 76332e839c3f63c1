"""Folders that appear whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from assay.core.errors import AssayError, InputError
from assay.edit.storage import NO_SPACE

__all__ = ["atomic_folder", "check_folder"]

MARKERS = ("config.json", "adapter_config.json")
"""What tells a folder with a model or an adapter, which may be replaced."""


def check_folder(path: str | os.PathLike[str], *, force: bool = False) -> Path:
    """Return `path` when a folder may be written there, before any work is done.

    Raises
    ------
    InputError
        It exists and `force` is false, holds something else than a model or an adapter, is a file, or lies in a folder
        that is missing or not writable.
    """
    if not os.fspath(path):
        raise InputError("the folder's name is empty", expected="the name of a folder to write")
    target = Path(path)
    if target.is_file():
        raise InputError("is a file", file=target, expected="the name of a folder to write")
    if target.exists() and not force:
        raise InputError("exists already", file=target, expected="another name, or --force")
    if target.exists() and not _is_replaceable(target):
        raise InputError("holds something else than a model", file=target, expected="another name")
    if not target.parent.is_dir():
        raise InputError(f"the folder {target.parent} doesn't exist", file=target, expected="an existing folder")
    if not os.access(target.parent, os.W_OK):
        raise InputError(f"no permission to write in {target.parent}", file=target, expected="a writable folder")
    return target


@contextmanager
def atomic_folder(path: str | os.PathLike[str], *, force: bool = False) -> Iterator[Path]:
    """Give a temporary folder beside `path`, which becomes `path` only when the block ends well.

    Raises
    ------
    InputError
        As `check_folder`.
    AssayError
        The disk is full, or the write failed for another reason of the machine.
    """
    from safetensors import SafetensorError

    target = check_folder(path, force=force)
    temporary = None
    try:
        temporary = Path(tempfile.mkdtemp(prefix=".", dir=target.parent))
        yield temporary
        temporary.chmod(0o755)
        if target.exists():
            old = Path(tempfile.mkdtemp(prefix=".", dir=target.parent))
            target.rename(old / "replaced")
            temporary.rename(target)
            shutil.rmtree(old)
        else:
            temporary.rename(target)
    except (OSError, SafetensorError) as error:
        reason = "no space left on the disk" if NO_SPACE in str(error) else str(error).splitlines()[0]
        raise AssayError(f"{target}: {reason}; nothing was written") from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def _is_replaceable(folder: Path) -> bool:
    """Whether all that would be lost with a folder is a model or an adapter, or nothing."""
    held = list(folder.iterdir())
    ours = any(one.name in MARKERS for one in held) and all(one.is_file() for one in held)
    return not held or ours
