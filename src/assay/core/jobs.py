"""What the commands on a user's files share: how a result is told, and what is said of warnings, files and stops."""

from __future__ import annotations

import json
import math
import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from cyclopts import Group, Parameter

from assay.core.errors import InputError
from assay.core.files import STREAM

__all__ = [
    "STREAM",
    "Flag",
    "Reporting",
    "WholeNumber",
    "naming",
    "naming_options",
    "print_summary",
    "require_other_file",
    "require_streams",
    "shows_progress",
    "stop_that_says",
    "warnings_in_one_line",
]


def _whole_number(_type: Any, tokens: Sequence[Any]) -> int:
    """The whole number that a word is; a fraction is refused and not rounded."""
    text = tokens[0].value
    try:
        return int(text)
    except ValueError:
        raise InputError(f"{tokens[0].keyword or 'a number'} is '{text}'", expected="an integer") from None


Flag: TypeAlias = Annotated[bool, Parameter(negative="")]
WholeNumber: TypeAlias = Annotated[int, Parameter(converter=_whole_number)]


@Parameter(name="*", group=Group("Reporting", sort_key=3))
@dataclass(frozen=True)
class Reporting:
    """How the result is told.

    Parameters
    ----------
    json
        Print the summary as JSON.
    quiet
        Print neither progress nor summary.
    force
        Replace an existing output file.
    """

    json: Flag = False
    quiet: Annotated[bool, Parameter(negative="", alias="-q")] = False
    force: Flag = False


def print_summary(
    summary: Mapping[str, Any], lines: Sequence[str], *, reporting: Reporting, out: str | None = None
) -> None:
    """Print a job's summary: as JSON, or as lines for people; on standard error when `out` is standard output.

    Parameters
    ----------
    summary : mapping
        What a program reads; NaN and infinity become null.
    lines : sequence of str
        What a person reads.
    reporting : Reporting
    out : str, optional
        The output file, which is named in a last line.
    """
    if reporting.quiet and not reporting.json:
        return
    stream = sys.stderr if out == STREAM else sys.stdout
    if reporting.json:
        print(json.dumps(_plain(summary), ensure_ascii=False, allow_nan=False), file=stream)
        return
    wrote = [] if out is None or out == STREAM else [f"wrote        {out}"]
    if lines or wrote:
        print("\n".join([*lines, *wrote]), file=stream)


def _plain(value: Any) -> Any:
    """JSON has no NaN and no infinity: both become null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def shows_progress(reporting: Reporting) -> bool:
    """Whether a person watches and wants to."""
    return not reporting.quiet and not reporting.json and sys.stderr.isatty()


def require_streams(out: str | os.PathLike[str] | None, reporting: Reporting) -> None:
    """Refuse a result and a summary that both go to standard output."""
    if out is not None and os.fspath(out) == STREAM and reporting.json:
        raise InputError("--out - and --json both write to standard output", expected="a file for one of them")


def require_other_file(out: str, *inputs: str) -> None:
    """Refuse to replace an input by the output, which --force alone would do."""
    for given in inputs:
        if (
            STREAM not in (out, given)
            and os.path.exists(out)
            and os.path.exists(given)
            and os.path.samefile(out, given)
        ):
            raise InputError("is also an input", file=out, expected="another name for --out")


@contextmanager
def naming(source: str) -> Iterator[None]:
    """Say of which file an error is that a library raised on what the file holds."""
    try:
        yield
    except InputError as error:
        if error.file is not None:
            raise
        raise InputError(
            error.message, file=source, row=error.row, column=error.column, expected=error.expected
        ) from error


ONLY_PYTHON = re.compile(r",? or None\b.*")
"""What a library takes besides and a command can't: None is to leave the option out."""


@contextmanager
def naming_options(options: Mapping[str, str]) -> Iterator[None]:
    """Let errors name options as they are typed where the library names its arguments, and blame no file for them.

    ``n_bits is 0`` becomes ``--bits is 0``, ``exact is true, and rank is 0`` becomes ``--exact is given, and --rank is
    0``, and ``kind='exp'`` becomes ``--kind exp``.

    Parameters
    ----------
    options : mapping of str to str
        The option for each argument of the library.
    """
    names = "|".join(map(re.escape, sorted(options, key=len, reverse=True)))
    subject = re.compile(rf"(^|, and )({names}) is( true)?\b")
    assignment = re.compile(rf"\b({names})=(?:'([^']*)'|\"([^\"]*)\"|(?=[\w.]))")

    def typed(text: str) -> str:
        return assignment.sub(lambda found: f"{options[found[1]]} {found[2] or found[3] or ''}", text)

    def as_option(found: re.Match[str]) -> str:
        return f"{found[1]}{options[found[2]]} is{' given' if found[3] else ''}"

    try:
        yield
    except InputError as error:
        found = subject.match(error.message)
        message = typed(subject.sub(as_option, error.message) if found else error.message)
        expected = error.expected and ONLY_PYTHON.sub("", typed(error.expected))
        if (message, expected) == (error.message, error.expected):
            raise
        file, row, column = (None, None, None) if found else (error.file, error.row, error.column)
        raise InputError(message, file=file, row=row, column=column, expected=expected) from error


@contextmanager
def warnings_in_one_line(reporting: Reporting) -> Iterator[None]:
    """Show each warning once, as a line on standard error without our source; none with ``--quiet``."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if not reporting.quiet:
            print(f"warning: {' '.join(str(message).split())}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("once", UserWarning)
        # NumPy's words on an overflow name a line of the program; results are looked at where they are made.
        warnings.simplefilter("ignore", RuntimeWarning)
        warnings.showwarning = show
        yield


@contextmanager
def stop_that_says(line: str) -> Iterator[None]:
    """Make Ctrl-C in the block say `line`: what is lost, and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(line) from None
