"""A new method's package, written by ``assay new NAME``: small, whole, and passing all checks before it is changed."""

from __future__ import annotations

import importlib.resources
import keyword
import os
import re
import shutil
import tempfile
from pathlib import Path
from string import Template

from assay import __version__
from assay.core.card import COMMANDS, load_cards
from assay.core.errors import AssayError, InputError

__all__ = ["write_template"]

FILES = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "src/{package}/__init__.py": "__init__.py",
    "src/{package}/blocks.py": "blocks.py",
    "src/{package}/card.toml": "card.toml",
    "src/{package}/jobs.py": "jobs.py",
    "src/{package}/study.py": "study.py",
    "tests/test_blocks.py": "test_blocks.py",
    "tests/test_room.py": "test_room.py",
}
"""Where each file of the template goes."""


def write_template(name: str, folder: str | os.PathLike[str] | None = None) -> Path:
    """Write a package that is a method of this project's, with all parts of the floor plan.

    Parameters
    ----------
    name : str
        The method's name and command: lower-case letters, digits and underscores.
    folder : path, optional
        Where the package goes; ``assay-NAME`` in the working folder when left out. Must not exist.

    Returns
    -------
    Path
        The folder, which is written whole or not at all.

    Raises
    ------
    InputError
        The name isn't usable, or the folder exists or has no parent.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as parent:
    ...     folder = write_template("wobble", f"{parent}/assay-wobble")
    ...     sorted(path.name for path in folder.iterdir())
    ['README.md', 'pyproject.toml', 'src', 'tests']
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name) or name in COMMANDS:
        raise InputError(f"name '{name}'", expected="lower-case letters, digits and underscores, and no command's name")
    if name in load_cards():
        raise InputError(f"a method '{name}' is installed already", expected="another name")
    distribution = f"assay-{name.replace('_', '-')}"
    target = Path(distribution if folder is None else folder)
    if target.exists() or target.is_symlink():
        raise InputError("exists already", file=target, expected="the name of a new folder")
    if not target.absolute().parent.is_dir():
        raise InputError(f"the folder {target.parent} doesn't exist", file=target, expected="an existing folder")
    words = {"name": name, "package": f"assay_{name}", "distribution": distribution, "version": __version__}
    try:
        unfinished = Path(tempfile.mkdtemp(dir=target.absolute().parent, prefix=f".{target.name}."))
        try:
            _write(unfinished, words)
            unfinished.chmod(0o755)
            unfinished.rename(target)
        except OSError:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
    except OSError as error:
        raise AssayError(f"{target} can't be written: {error.strerror or error}") from error
    return target


def _write(folder: Path, words: dict[str, str]) -> None:
    template = importlib.resources.files("assay.core") / "method_template"
    for place, source in FILES.items():
        file = folder / place.format(**words)
        file.parent.mkdir(parents=True, exist_ok=True)
        text = (template / f"{source}.in").read_text(encoding="utf-8")
        file.write_text(Template(text).substitute(words), encoding="utf-8")
