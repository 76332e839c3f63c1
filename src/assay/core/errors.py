"""The errors that a user can meet, and the exit status that each means.

Every one renders as a single line that says what is wrong, where, and what was expected.
"""

from __future__ import annotations

from os import PathLike, fspath
from typing import ClassVar

__all__ = ["AssayError", "InputError", "MissingPackageError"]


class AssayError(Exception):
    """The work could not be done although the input was right (exit status 1)."""

    exit_status: ClassVar[int] = 1


class InputError(AssayError, ValueError):
    """The input is wrong (exit status 2).

    Parameters
    ----------
    message : str
        What is wrong, naming the argument and the value.
    file : path, optional
        The file that holds the fault.
    row : int, optional
        The row of the fault, counted from 1 as an editor counts lines; for arrays, the index counted from 0
        belongs into `message`.
    column : int or str, optional
        The column of the fault: its name, or its number counted from 1.
    expected : str, optional
        What would be right.

    Examples
    --------
    >>> print(InputError("'x' is not a number", file="points.csv", row=3, column=2, expected="a number"))
    points.csv, row 3, column 2: 'x' is not a number; expected a number
    """

    exit_status: ClassVar[int] = 2

    def __init__(
        self,
        message: str,
        *,
        file: str | PathLike[str] | None = None,
        row: int | None = None,
        column: int | str | None = None,
        expected: str | None = None,
    ) -> None:
        self.message = message
        self.file = None if file is None else fspath(file)
        self.row = row
        self.column = column
        self.expected = expected
        super().__init__(str(self))

    def __str__(self) -> str:
        where = []
        if self.file is not None:
            where.append(self.file)
        if self.row is not None:
            where.append(f"row {self.row}")
        if self.column is not None:
            where.append(f"column {self.column}")
        line = f"{', '.join(where)}: {self.message}" if where else self.message
        if self.expected is not None:
            line += f"; expected {self.expected}"
        return " ".join(line.splitlines())

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_input_error, (self.message, self.file, self.row, self.column, self.expected))


def _rebuild_input_error(
    message: str, file: str | None, row: int | None, column: int | str | None, expected: str | None
) -> InputError:
    return InputError(message, file=file, row=row, column=column, expected=expected)


class MissingPackageError(AssayError, ImportError):
    """A package that an option needs is not installed (exit status 1).

    Parameters
    ----------
    package : str
        The distribution's name, as pip knows it.
    what : str
        What needs it.
    extra : str, optional
        The extra of this project that brings it.
    alone : bool
        Whether it is to be installed without what it asks for itself.

    Examples
    --------
    >>> print(MissingPackageError("rapidfuzz", what="metric='levenshtein'", extra="mst"))
    metric='levenshtein' needs the package rapidfuzz: pip install 'assay[mst]'
    """

    def __init__(self, package: str, *, what: str, extra: str | None = None, alone: bool = False) -> None:
        self.package, self.what, self.extra, self.alone = package, what, extra, alone
        target = f"'assay[{extra}]'" if extra else f"--no-deps {package}" if alone else package
        super().__init__(f"{what} needs the package {package}: pip install {target}")

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_missing_package_error, (self.package, self.what, self.extra, self.alone))


def _rebuild_missing_package_error(package: str, what: str, extra: str | None, alone: bool) -> MissingPackageError:
    return MissingPackageError(package, what=what, extra=extra, alone=alone)
