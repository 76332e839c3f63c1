"""Interleaved video: who may depend on whom, attention against explicit masks, and flow matching's formulas."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from torch import Tensor

from assay.core.errors import InputError
from assay.lact.attention import apply_rope
from assay.lact.video import (
    InterleavedVideoLaCT,
    add_noise,
    block_causal_attention,
    interleaved,
    interleaved_window_attention,
    logit_normal_weight,
    moving_shapes,
    noise_chunks,
    shift_time,
    video_rope_tables,
)
from assay.lact.video_training import VideoPlan, evaluate_video, train_video

CHUNKS, TOKENS, DIM = 4, 3, 12


def layer_of(**settings: object) -> InterleavedVideoLaCT:
    torch.manual_seed(0)
    layer = InterleavedVideoLaCT(DIM, 2, 2, base_lr=0.3, **settings).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return layer


def rope_of(repeats: int) -> tuple[Tensor, Tensor]:
    frames = torch.arange(CHUNKS)[:, None].expand(-1, repeats + 1).flatten()[:-1]
    tables = video_rope_tables(frames, 1, TOKENS, DIM // 2)
    return tables[0], tables[1]


def positions(repeats: int) -> tuple[dict[tuple[int, int], slice], dict[int, slice]]:
    """Where the noisy versions (chunk, version) and the clean chunks stand."""
    noisy, clean, place = {}, {}, 0
    for chunk in range(CHUNKS):
        for version in range(repeats):
            noisy[chunk, version] = slice(place, place + TOKENS)
            place += TOKENS
        clean[chunk] = slice(place, place + TOKENS)
        place += TOKENS
    clean.pop(CHUNKS - 1)
    return noisy, clean


@pytest.mark.parametrize("repeats", [1, 2])
@pytest.mark.parametrize("rule", ["gd", "muon"])
def test_noise_depends_on_itself_and_on_the_clean_chunks_before_it_alone(repeats, rule):
    layer = layer_of(rule=rule)
    noisy, clean = positions(repeats)
    x = torch.randn(1, max(part.stop for part in noisy.values()), DIM, dtype=torch.float64, requires_grad=True)
    out = layer(x, rope_of(repeats), chunks=CHUNKS, chunk_size=TOKENS, repeats=repeats)
    for (chunk, version), own in noisy.items():
        (gradient,) = torch.autograd.grad(out[:, own].square().sum(), x, retain_graph=True)
        reaches = gradient.abs().sum((0, 2)) > 0
        for key, part in noisy.items():
            assert reaches[part].all() == (key == (chunk, version)), (key, chunk, version)
            assert reaches[part].any() == (key == (chunk, version)), (key, chunk, version)
        for number, part in clean.items():
            assert reaches[part].all() == (number < chunk), (number, chunk)
            assert reaches[part].any() == (number < chunk), (number, chunk)


@pytest.mark.parametrize("repeats", [1, 2])
def test_clean_chunks_depend_on_themselves_and_earlier_clean_ones_alone(repeats):
    layer = layer_of()
    noisy, clean = positions(repeats)
    x = torch.randn(1, max(part.stop for part in noisy.values()), DIM, dtype=torch.float64, requires_grad=True)
    out = layer(x, rope_of(repeats), chunks=CHUNKS, chunk_size=TOKENS, repeats=repeats)
    for chunk, own in clean.items():
        (gradient,) = torch.autograd.grad(out[:, own].square().sum(), x, retain_graph=True)
        reaches = gradient.abs().sum((0, 2)) > 0
        assert not any(reaches[part].any() for part in noisy.values())
        assert [bool(reaches[part].all()) for part in clean.values()] == [number <= chunk for number in clean]


def explicit_mask(repeats: int, window: int) -> Tensor:
    noisy, clean = positions(repeats)
    length = max(part.stop for part in noisy.values())
    seen = torch.zeros(length, length, dtype=torch.bool)
    for (chunk, _), own in noisy.items():
        seen[own, own] = True
        for number, part in clean.items():
            seen[own, part] |= chunk - window <= number < chunk
    for chunk, own in clean.items():
        seen[own, own] = True
        for number, part in clean.items():
            if window > 1:
                seen[own, part] |= number < chunk
    return seen


@pytest.mark.parametrize("repeats", [1, 3])
@pytest.mark.parametrize(
    ("attend", "window"), [(interleaved_window_attention, 1), (block_causal_attention, CHUNKS)], ids=["window", "all"]
)
def test_attention_equals_that_with_an_explicit_mask(repeats, attend, window):
    mask = explicit_mask(repeats, window)
    q, k, v = torch.randn(3, 2, 2, len(mask), 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    found = attend(q, k, v, CHUNKS, chunk_size=TOKENS, repeats=repeats)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)


def test_a_fresh_memory_changes_nothing_and_learns():
    torch.manual_seed(0)
    layer = InterleavedVideoLaCT(DIM, 2)
    host = InterleavedVideoLaCT(DIM, 2, memory=False)
    missing = host.load_state_dict(layer.state_dict(), strict=False)
    assert missing.missing_keys == []
    x = torch.randn(2, (2 * CHUNKS - 1) * TOKENS, DIM)
    out = layer(x, rope_of(1), chunks=CHUNKS, chunk_size=TOKENS)
    assert torch.equal(out, host(x, rope_of(1), chunks=CHUNKS, chunk_size=TOKENS))
    out.square().sum().backward()
    assert layer.gate.weight.grad is not None
    assert layer.gate.weight.grad.abs().sum() > 0


def test_the_sequence_is_taken_apart_as_it_was_put_together():
    noisy, clean = torch.randn(2, CHUNKS, 2, TOKENS, 5), torch.randn(2, CHUNKS, TOKENS, 5)
    sequence = interleaved(noisy, clean)
    assert sequence.shape == (2, (3 * CHUNKS - 1) * TOKENS, 5)
    assert torch.equal(noise_chunks(sequence, CHUNKS, chunk_size=TOKENS, repeats=2), noisy)
    places, cleans = positions(2)
    assert torch.equal(sequence[:, places[2, 1]], noisy[:, 2, 1])
    assert torch.equal(sequence[:, cleans[1]], clean[:, 1])


def test_lengths_rules_and_widths_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="the sequence has 20 tokens; expected 21 for 4 chunks of 3"):
        layer_of()(torch.zeros(1, 20, DIM).double(), None, chunks=CHUNKS, chunk_size=TOKENS)
    with pytest.raises(InputError, match="rule is 'momentum'; expected gd or muon"):
        InterleavedVideoLaCT(DIM, 2, rule="momentum")
    with pytest.raises(InputError, match="dim is 12; expected a multiple of num_heads, 5"):
        InterleavedVideoLaCT(DIM, 5)


def test_rotary_products_depend_on_distances_along_each_axis():
    frames, height, width, dim = torch.tensor([0, 1, 5, 6]), 2, 3, 16
    tables = video_rope_tables(frames, height, width, dim)
    q, k = torch.randn(2, 1, 1, 1, dim, dtype=torch.float64)
    turned_q, turned_k = (
        apply_rope(one.expand(-1, -1, 4 * height * width, -1), tables)[0, 0].view(4, height, width, dim)
        for one in (q, k)
    )
    product = torch.einsum("tyxd,suvd->tyxsuv", turned_q, turned_k)
    torch.testing.assert_close(product[1, :, :, 0], product[3, :, :, 2])
    torch.testing.assert_close(product[0, 0, 1, 0, 0, 0], product[2, 1, 2, 2, 1, 1])
    assert not torch.allclose(product[1, :, :, 0], product[2, :, :, 0])
    for axis in (product[0, 0, 0, 1, 0, 0], product[0, 0, 0, 0, 1, 0], product[0, 0, 0, 0, 0, 1]):
        assert not torch.isclose(axis, product[0, 0, 0, 0, 0, 0])
    with pytest.raises(InputError, match="head_dim is 4"):
        video_rope_tables(frames, 1, 1, 4)


def test_flow_matchings_line_and_shift():
    clean, noise = torch.randn(2, 5, dtype=torch.float64)
    noisy, velocity = add_noise(clean, noise, torch.tensor(0.3, dtype=torch.float64))
    torch.testing.assert_close(noisy + 0.7 * velocity, noise)
    torch.testing.assert_close(noisy - 0.3 * velocity, clean)
    time = torch.linspace(0, 1, 11)
    torch.testing.assert_close(shift_time(time, shift=1), time)
    torch.testing.assert_close(shift_time(torch.tensor(0.5), shift=3), torch.tensor(0.75))
    with pytest.raises(InputError, match="shift is 0"):
        shift_time(time, shift=0)


@pytest.mark.parametrize("mean", [0.0, 0.5])
def test_weights_are_the_logit_normal_mass_of_each_bin(mean):
    bins = 50
    time = (torch.arange(bins, dtype=torch.float64) + 0.5) / bins
    weights = logit_normal_weight(time, mean=mean, std=0.8, bins=bins)
    assert float(weights.mean()) == pytest.approx(1, abs=1e-12)

    def share(edge: float) -> float:
        return float(
            stats.norm.cdf(math.log(edge / (1 - edge)) if 0 < edge < 1 else (edge - 0.5) * math.inf, mean, 0.8)
        )

    expected = [bins * (share((number + 1) / bins) - share(number / bins)) for number in range(bins)]
    torch.testing.assert_close(weights, torch.tensor(expected, dtype=torch.float64))
    assert bool(logit_normal_weight(torch.tensor([0.0, 1.0])).isfinite().all())


def test_a_square_moves_on_while_it_is_hidden():
    videos = moving_shapes(6, 12, size=9, hidden=range(3, 8), generator=torch.Generator().manual_seed(0))
    shown = moving_shapes(6, 12, size=9, generator=torch.Generator().manual_seed(0))
    assert (videos[:, 3:8] == 0).all()
    assert torch.equal(videos[:, :3], shown[:, :3])
    assert torch.equal(videos[:, 8:], shown[:, 8:])
    for video in shown:
        areas = (video[:, 0] != 0).flatten(1).sum(1)
        assert len(set(areas.tolist())) == 1, "a torus has no border"
        assert math.isqrt(int(areas[0])) ** 2 == areas[0]
        assert len({tuple(frame[:, frame[0] != 0][:, 0].tolist()) for frame in video}) == 1, "the colour stays"
        assert not torch.equal(video[0], video[3])
    assert (videos.abs() <= 1).all()


TINY = VideoPlan(size=4, patch=2, chunks=4, frames=1, hidden=(1, 3), dim=16, layers=1, heads=1, batch=4, steps=12)


@pytest.mark.parametrize("arm", ["lact", "lact-muon", "swa", "full"])
def test_what_is_measured_is_a_function_of_the_seed(arm):
    found, same = (train_video(arm, seed=3, plan=TINY, videos=8) for _ in range(2))
    other = train_video(arm, seed=4, plan=TINY, videos=8)
    assert found | {"seconds": 0} == same | {"seconds": 0}
    assert other["loss_0"] != found["loss_0"]
    assert found["loss_after"] == found["loss_3"]
    assert found["loss_before"] == found["loss_0"]


def test_training_lowers_the_loss():
    short, long = (train_video("lact", seed=3, plan=replace(TINY, steps=steps), videos=32) for steps in (1, 60))
    assert long["loss_0"] < 0.9 * short["loss_0"]
    assert long["train_loss"] < short["train_loss"]


def test_the_measured_loss_is_zero_for_one_who_knows():
    class Knows(torch.nn.Module):
        def forward(self, noisy: Tensor, clean: Tensor, times: Tensor) -> Tensor:
            return (noisy - clean) / times[..., None, None]

    measured = evaluate_video(Knows(), TINY, videos=8, seed=5)
    assert max(measured.values()) < 1e-8


def test_an_unknown_arm_is_refused():
    with pytest.raises(InputError, match="arm is 'mamba'; expected one of: lact, lact-muon, swa, full"):
        train_video("mamba", seed=0, plan=TINY)
