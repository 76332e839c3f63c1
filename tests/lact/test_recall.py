"""The recall task and the needle: what they hold and what can't be answered without a memory."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.core.errors import InputError
from assay.lact.recall import IGNORED, NAMES, RecallTask, plant_needle, recall_accuracy


def source(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@settings(deadline=None, max_examples=40)
@given(pairs=st.integers(1, 8), gap=st.integers(0, 30), asked=st.integers(1, 8), seed=st.integers(0, 999))
def test_every_question_is_answered_by_a_pair_at_the_beginning(pairs, gap, asked, seed):
    asked = min(asked, pairs)
    task = RecallTask(2 * (pairs + asked) + gap, pairs=pairs, queries=asked, keys=8, values=5, fillers=3)
    assert task.gap == gap
    rows, labels = task.rows(4, generator=source(seed))
    for row, label in zip(rows.tolist(), labels.tolist(), strict=True):
        known = dict(zip(row[0 : 2 * pairs : 2], row[1 : 2 * pairs : 2], strict=True))
        assert len(known) == pairs
        assert all(key < 8 and 8 <= value < 13 for key, value in known.items())
        assert all(13 <= filler < 16 for filler in row[2 * pairs : 2 * pairs + gap])
        judged = [place for place, value in enumerate(label) if value != IGNORED]
        assert judged == list(range(2 * pairs + gap, task.length, 2))
        for place in judged:
            assert label[place] == known[row[place]] == row[place + 1]
        assert len({row[place] for place in judged}) == asked


def test_same_seed_same_rows():
    task = RecallTask(64)
    first, second, other = (task.rows(3, generator=source(seed))[0] for seed in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_a_perfect_memory_scores_one_and_a_guess_scores_chance():
    task = RecallTask(48, values=16)
    _, labels = task.rows(500, generator=source())
    perfect = torch.nn.functional.one_hot(labels.clamp(min=0), task.vocabulary).double()
    assert recall_accuracy(perfect, labels) == 1
    constant = torch.zeros(500, 48, task.vocabulary)
    constant[..., task.keys] = 1
    assert recall_accuracy(constant, labels) == pytest.approx(task.chance, abs=0.02)


@settings(deadline=None, max_examples=30)
@given(length=st.integers(80, 300), depth=st.floats(0, 1), seed=st.integers(0, 99))
def test_a_needle_stands_once_in_its_text_at_the_asked_depth(length, depth, seed):
    haystack = b"".join(b"line %d\n" % number for number in range(2000))
    needle = plant_needle(haystack, length=length, depth=depth, generator=source(seed))
    assert len(needle.text) == length
    assert needle.text.count(needle.answer + b".\n") == 1
    end = needle.text.index(needle.answer + b".\n") + len(needle.answer) + 2
    assert len(needle.text) - end == needle.distance
    name = needle.text.rsplit(b"\n", 1)[1].split()[3].decode()
    assert name in NAMES
    assert f"The number of {name} is {needle.answer.decode()}.".encode() in needle.text
    fact = len(f"\nThe number of {name} is 0000.\n")
    room = length - fact - len(needle.text.rsplit(b"\n", 1)[1]) - 1
    assert end - fact == round(depth * room)


def test_wrong_tasks_are_refused():
    for message, wrong in {
        "pairs is 40; expected from 1 to the number of keys, 32": {"pairs": 40},
        "queries is 9; expected from 1 to the number of pairs, 8": {"queries": 9},
        "length is 31; expected at least 32": {"length": 31},
        "values is 0": {"values": 0},
    }.items():
        with pytest.raises(InputError, match=message):
            RecallTask(**{"length": 64, **wrong})
    for message, wrong in {
        "depth is 1.5; expected from 0 to 1": {"depth": 1.5},
        "length is 20; expected at least": {"length": 20},
        "the text has 50 bytes": {"haystack": b"x" * 50},
    }.items():
        asked = {"haystack": b"x" * 500, "length": 200, "depth": 0.5, **wrong}
        with pytest.raises(InputError, match=message):
            plant_needle(asked.pop("haystack"), generator=source(), **asked)
