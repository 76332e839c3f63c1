"""Cards: read without importing the method, and wrong ones named."""

from __future__ import annotations

import sys

import pytest

from assay.core.card import find_card, load_cards, read_card
from assay.core.errors import InputError

CARD = """
name = "sample"
title = "A sample"
job = "Do a thing."
summary = "It does a thing."
extra = ""
needs = ["numpy", "no_such_module"]

[paper]
title = "On things"
authors = ["A. Author"]
venue = "ICLR 2026"
year = 2026

[[jobs]]
verb = "do"
summary = "Do it."
example = "assay sample do x.csv"
"""


def test_card_is_data(tmp_path):
    (tmp_path / "card.toml").write_text(CARD)
    card = read_card(tmp_path, package="sample")
    assert (card.name, card.paper.authors, card.jobs[0].verb) == ("sample", ("A. Author",), "do")
    assert card.missing == ("no_such_module",)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('title = "A sample"', "", "lacks the field title"),
        ("year = 2026", "", "lacks the field paper.year"),
        ("year = 2026", 'year = "2026"', "paper.year is '2026'; expected a value of type int"),
        ('extra = ""', 'extra = ""\ncolour = "red"', "unknown field colour"),
        ('verb = "do"', "", r"lacks the field jobs\[1\]\.verb"),
        ('name = "sample"', "name = sample", "expected TOML"),
    ],
)
def test_wrong_card_is_named(tmp_path, old, new, message):
    (tmp_path / "card.toml").write_text(CARD.replace(old, new))
    with pytest.raises(InputError, match=message) as caught:
        read_card(tmp_path, package="sample")
    assert "card.toml" in str(caught.value)


def test_missing_card_is_named(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_card(tmp_path, package="sample")


def test_cards_of_this_package_are_found_without_importing_the_methods():
    loaded = set(sys.modules)
    cards = load_cards()
    assert "mst" in cards and list(cards) == sorted(cards)
    assert not {card.package for card in cards.values()} & (set(sys.modules) - loaded)
    assert find_card("mst") == cards["mst"]
    with pytest.raises(InputError, match="no method 'nothing'"):
        find_card("nothing")
