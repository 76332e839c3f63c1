"""Window attention against explicit band masks, and its buffer against one pass over everything."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from assay.lact.attention import (
    apply_rope,
    empty_buffer,
    rope_tables,
    window_attention,
    window_attention_step,
)


def qkv(length: int, *, batch: int = 2, heads: int = 2, dim: int = 4, seed: int = 0) -> torch.Tensor:
    return torch.randn(3, batch, heads, length, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def band(length: int, window: int) -> torch.Tensor:
    distance = torch.arange(length)[:, None] - torch.arange(length)
    return (distance >= 0) & (distance < window)


@settings(deadline=None, max_examples=30)
@given(length=st.integers(1, 40), window=st.integers(1, 45))
def test_equals_softmax_attention_under_a_band_mask(length, window):
    q, k, v = qkv(length)
    expected = functional.scaled_dot_product_attention(q, k, v, attn_mask=band(length, window))
    torch.testing.assert_close(window_attention(q, k, v, window), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("window", [20, 21, 100])
def test_a_window_as_long_as_the_text_is_full_causal_attention(window):
    q, k, v = qkv(20)
    expected = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(window_attention(q, k, v, window), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("window", [3, 8, 50])
def test_segments_do_not_see_one_another(window):
    q, k, v = qkv(23)
    segments = torch.tensor([[0] * 9 + [1] * 14, [0] * 4 + [1] * 5 + [2] * 14])
    mask = band(23, window) & (segments[:, :, None] == segments[:, None, :])
    expected = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None])
    got = window_attention(q, k, v, window, segments_BL=segments)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


@settings(deadline=None, max_examples=30)
@given(window=st.integers(1, 9), pieces=st.lists(st.integers(1, 14), min_size=1, max_size=6))
def test_any_split_through_the_buffer_equals_one_pass(window, pieces):
    q, k, v = qkv(sum(pieces))
    buffer = empty_buffer(2, 2, window, 4, dtype=torch.float64, device="cpu")
    parts = []
    for part in zip(*(x.split(pieces, dim=2) for x in (q, k, v)), strict=True):
        out, buffer = window_attention_step(*part, buffer)
        parts.append(out)
    torch.testing.assert_close(torch.cat(parts, 2), window_attention(q, k, v, window), rtol=0, atol=1e-12)
    assert buffer.position.tolist() == [sum(pieces)] * 2


def test_rows_of_different_lengths_keep_their_own_positions():
    q, k, v = qkv(12)
    window = 5
    lengths = torch.tensor([7, 3])
    buffer = empty_buffer(2, 2, window, 4, dtype=torch.float64, device="cpu")
    first, buffer = window_attention_step(*(x[:, :, :7] for x in (q, k, v)), buffer, lengths_B=lengths)
    assert buffer.position.tolist() == [7, 3]
    later = []
    for t in range(7, 12):
        out, buffer = window_attention_step(*(x[:, :, t : t + 1] for x in (q, k, v)), buffer)
        later.append(out)
    for row, length in enumerate(lengths.tolist()):
        alone = [torch.cat([x[row : row + 1, :, :length], x[row : row + 1, :, 7:]], 2) for x in (q, k, v)]
        expected = window_attention(*alone, window)
        got = torch.cat([first[row : row + 1, :, :length], *(out[row : row + 1] for out in later)], 2)
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


def test_decoding_in_place_gives_the_same_and_keeps_the_memory():
    q, k, v = qkv(9)
    kept = empty_buffer(2, 2, 4, 4, dtype=torch.float64, device="cpu")
    written = empty_buffer(2, 2, 4, 4, dtype=torch.float64, device="cpu")
    address = written.keys.data_ptr()
    for t in range(9):
        part = [x[:, :, t : t + 1] for x in (q, k, v)]
        expected, kept = window_attention_step(*part, kept)
        got, written = window_attention_step(*part, written, in_place=True)
        assert torch.equal(got, expected)
    assert written.keys.data_ptr() == address


def test_rope_turns_the_two_halves_by_the_angle_of_the_position():
    x = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64).view(1, 1, 1, 4)
    got = apply_rope(x, rope_tables(torch.tensor([5]), 4, base=100.0)).flatten()
    angles = (5.0, 5.0 / 10)
    expected = [math.cos(angles[i]) * (i + 1) - math.sin(angles[i]) * (i + 3) for i in (0, 1)]
    expected += [math.cos(angles[i]) * (i + 3) + math.sin(angles[i]) * (i + 1) for i in (0, 1)]
    torch.testing.assert_close(got, torch.tensor(expected, dtype=torch.float64))


@settings(deadline=None, max_examples=20)
@given(shift=st.integers(0, 10**6))
def test_scores_depend_on_the_distance_alone(shift):
    q, k = qkv(1)[0], qkv(1, seed=1)[1]

    def score(start: int) -> torch.Tensor:
        of_query, of_key = (rope_tables(torch.tensor([place]), 4, base=1e4) for place in (start + 9, start))
        return (apply_rope(q, of_query) * apply_rope(k, of_key)).sum(-1)

    torch.testing.assert_close(score(0), score(shift), rtol=0, atol=1e-8)


def test_gradients_stay_inside_the_window():
    q, k, v = qkv(30).requires_grad_().unbind(0)
    grads = torch.autograd.grad(window_attention(q, k, v, 7)[0, 0, 20].sum(), v)[0][0, 0].abs().sum(-1)
    assert grads.nonzero().flatten().tolist() == list(range(14, 21))
