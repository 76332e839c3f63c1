"""Errors: one line each, whole after a journey between processes."""

from __future__ import annotations

import pickle

import pytest

from assay.core.errors import AssayError, InputError, MissingPackageError


@pytest.mark.parametrize(
    ("error", "line", "status"),
    [
        (InputError("x is 3", expected="at most 2"), "x is 3; expected at most 2", 2),
        (InputError("bad", file="a b.csv", row=2, column="é"), "a b.csv, row 2, column é: bad", 2),
        (InputError("two\nlines"), "two lines", 2),
        (MissingPackageError("numba", what="this"), "this needs the package numba: pip install numba", 1),
        (
            MissingPackageError("big", what="this", alone=True),
            "this needs the package big: pip install --no-deps big",
            1,
        ),
        (AssayError("it failed"), "it failed", 1),
    ],
)
def test_error_is_one_line_with_its_status_and_survives_pickling(error, line, status):
    for one in (error, pickle.loads(pickle.dumps(error))):
        assert (str(one), one.exit_status) == (line, status)
