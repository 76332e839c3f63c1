"""Plans: the named ones, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.core.errors import InputError
from assay.lact.plans import Plan, Segment


@given(length=st.integers(0, 50), chunk=st.integers(1, 12), mode=st.sampled_from(["full", "block", "shifted"]))
def test_named_plans_answer_every_token_once_in_order(length: int, chunk: int, mode: str) -> None:
    plan = Plan.of_mode(mode, length, chunk_size=chunk)
    assert [t for s in plan if s.apply for t in range(s.start, s.end)] == list(range(length))


def test_block_updates_first_and_shifted_applies_first() -> None:
    block, shifted = (Plan.of_mode(mode, 10, chunk_size=4) for mode in ("block", "shifted"))
    assert [(s.start, s.end) for s in block] == [(s.start, s.end) for s in shifted] == [(0, 4), (4, 8), (8, 10)]
    assert {s.order for s in block} == {"update_first"} and all(s.update for s in block)
    assert {s.order for s in shifted} == {"apply_first"} and [s.update for s in shifted] == [True, True, False]


def test_strided_updates_on_the_chosen_tokens_and_asks_all() -> None:
    plan = Plan.strided([(0, 4), (6, 8)], length=10)
    assert [(s.start, s.end, s.update, s.apply) for s in plan] == [
        (0, 4, True, False),
        (6, 8, True, False),
        (0, 10, False, True),
    ]


def test_video_interleaves_noise_and_clean_frames() -> None:
    plan = Plan.interleaved_video(3, chunk_size=2, repeats=2)
    assert [(s.start, s.end, s.update) for s in plan] == [
        (0, 4, False),
        (4, 6, True),
        (6, 10, False),
        (10, 12, True),
        (12, 16, False),
    ]
    assert all(s.apply and s.order == "update_first" for s in plan)


@pytest.mark.parametrize(
    ("segments", "message"),
    [
        ([Segment(0, 0)], "expected 0 <= start < end"),
        ([Segment(-1, 3)], "expected 0 <= start < end"),
        ([Segment(0, 4), Segment(3, 6)], "overlaps tokens that changed the memory before, up to 4"),
        ([Segment(4, 8), Segment(0, 4)], "updates in ascending order"),
        ([Segment(0, 4, update=False), Segment(3, 6, update=False)], "each token applied at most once"),
        ([Segment(0, 4, update=False, apply=False)], "does nothing"),
        ([Segment(0, 4, order="last")], "order is 'last'"),
    ],
)
def test_bad_plans_are_refused(segments: list[Segment], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Plan(segments)


def test_bad_settings_are_refused() -> None:
    with pytest.raises(InputError, match="chunk_size is 0; expected at least 1"):
        Plan.shifted(5, chunk_size=0)
    with pytest.raises(InputError, match="mode is 'causal'"):
        Plan.of_mode("causal", 5, chunk_size=2)
    with pytest.raises(InputError, match="repeats 0"):
        Plan.interleaved_video(2, chunk_size=3, repeats=0)
