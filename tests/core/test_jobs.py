"""What the commands share: how a library's words become those of the command line."""

from __future__ import annotations

import pytest

from assay.core.errors import InputError
from assay.core.jobs import naming_options

OPTIONS = {"bits": "--bits", "n_bits": "--all-bits", "kind": "--kind"}


def said(error: InputError) -> str:
    with pytest.raises(InputError) as caught, naming_options(OPTIONS):
        raise error
    return str(caught.value)


def test_an_argument_is_named_as_the_option_that_is_typed_and_no_file_is_blamed():
    assert said(InputError("n_bits is 0", file="p.npy", expected="at least 1")) == (
        "--all-bits is 0; expected at least 1"
    )
    assert said(InputError("bits is 5 for kind='exp'", expected='kind="abbott"')) == (
        "--bits is 5 for --kind exp; expected --kind abbott"
    )
    assert said(InputError("bits is 0", expected="at least 1, or None")) == "--bits is 0; expected at least 1"
    assert said(InputError("bits is true, and kind is 'exp'")) == "--bits is given, and --kind is 'exp'"


def test_what_is_wrong_with_a_file_stays_as_it_is():
    error = InputError("is 3, and kinds is a word", file="p.npy", row=2, column=7, expected="0 or 1")
    assert said(error) == "p.npy, row 2, column 7: is 3, and kinds is a word; expected 0 or 1"
    assert (
        said(InputError("has 7 bits", file="kind is a name", expected="8")) == "kind is a name: has 7 bits; expected 8"
    )
