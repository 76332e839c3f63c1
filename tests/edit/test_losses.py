"""The terms that a block is fitted with, against closed forms, and the presets against each other."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from assay.core.errors import InputError
from assay.edit.losses import PRESETS, LossSettings, Parts, block_loss, purge_term, weights
from assay.edit.tangle import Calibration


def one_coordinate(key: float, *, alpha: float, rate: float, settings: LossSettings):
    """A free parameter in place of a block: one prompt of one token in one dimension, whose old output is 0."""
    parts = Parts(
        keys=torch.full((1, 1, 1), key, dtype=torch.float64),
        original=torch.zeros(1, 1, 1, dtype=torch.float64),
        real=torch.ones(1, 1, dtype=torch.bool),
        edited=torch.ones(1, 1, dtype=torch.bool),
    )
    a, r = torch.tensor([alpha], dtype=torch.float64), torch.tensor([rate], dtype=torch.float64)
    return lambda output: block_loss(output.reshape(1, 1, 1), None, parts, alpha=a, rate=r, settings=settings)


@pytest.mark.parametrize(
    ("alpha", "rate", "key", "expected"),
    [(0.5, 0.1, 0.3, 0.416667), (0.7, 0.01, -0.2, -0.211268), (0.5, 0.5, 0.9, 0.95), (0.5, 0.1, 1.4, 1.4)],
)
def test_the_purged_optimum_of_one_coordinate_is_its_closed_form(alpha, rate, key, expected):
    closed = np.sign(key) * (alpha * abs(key) + rate) / (alpha + rate) if abs(key) < 1 else key
    assert closed == pytest.approx(expected, abs=1e-6)
    settings = LossSettings(clamp=1.0, scaled=False)
    loss = one_coordinate(key, alpha=alpha, rate=rate, settings=settings)
    output = torch.tensor(key, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.SGD([output], lr=0.2)
    for _ in range(400):
        optimiser.zero_grad()
        loss(output).backward()
        optimiser.step()
    assert output.item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("preset", ["paper", "adaptive"])
def test_at_the_first_step_the_purge_gives_no_gradient_whatever_its_rate(preset):
    original = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    edited = torch.zeros(2, 3, dtype=torch.bool)
    edited[:, -1] = True
    keys = original.clone()
    keys[edited] += 1
    parts = Parts(keys, original, torch.ones(2, 3, dtype=torch.bool), edited)
    gradients = []
    for rate in (0.0, 1e6):
        output = original.clone().requires_grad_(True)
        total = block_loss(
            output, None, parts, alpha=torch.full((2,), 0.5), rate=torch.full((2,), rate), settings=PRESETS[preset]
        )
        gradients.append(torch.autograd.grad(total, output)[0])
    assert torch.equal(*gradients)


@given(
    st.lists(st.floats(-5, 5), min_size=1, max_size=6),
    st.floats(0.1, 3),
)
def test_the_purge_s_gradient_is_bounded_and_ends_at_the_clamp(values, clamp):
    output = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    [gradient] = torch.autograd.grad(purge_term(output, torch.zeros_like(output), clamp=clamp), output)
    assert float(gradient.abs().max()) <= 2 / (clamp * len(values)) * (1 + 1e-12)
    assert bool((gradient[output.detach().abs() >= clamp] == 0).all())


def test_without_a_bound_the_purge_s_gradient_grows_with_the_distance():
    output = torch.tensor([1000.0], requires_grad=True)
    [gradient] = torch.autograd.grad(purge_term(output, torch.zeros(1), clamp=1.0, bounded=False), output)
    assert gradient.item() == -2000.0


@pytest.mark.parametrize(
    ("score", "expected"), [(0, 1.0), (0.5, 0.0749894), (1, 0.00562341), (4 / 3, 1e-3), (16 / 9, 1e-4)]
)
def test_the_published_schedule_falls_as_the_score_rises(score, expected):
    _, rate = weights(np.array([score]), PRESETS["paper"], Calibration(()))
    assert rate[0] == pytest.approx(expected, rel=1e-6)


def test_the_other_schedules_rise_with_the_score():
    scores = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8])
    calibration = Calibration.of(scores.tolist())
    alpha, rate = weights(scores, PRESETS["official"], calibration)
    assert rate == pytest.approx(0.1 * scores)
    assert (alpha > 0.5).all()
    alpha, rate = weights(scores, PRESETS["adaptive"], calibration)
    assert (np.diff(rate) > 0).all()
    assert (np.diff(alpha) > 0).all()
    assert rate.min() >= 1e-4
    assert rate.max() <= 1e-3
    assert alpha.min() < 0.5 < alpha.max()
    _, gained = weights(scores, dataclasses.replace(PRESETS["adaptive"], gain=10.0), calibration)
    assert gained == pytest.approx(10 * rate)
    assert weights(scores, dataclasses.replace(PRESETS["adaptive"], purge=False), calibration)[1].tolist() == [0] * 8


def random_parts(seed: int = 0):
    draw = torch.Generator().manual_seed(seed)
    original = torch.randn(3, 5, 8, generator=draw, dtype=torch.float64)
    real = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 1, 1, 0]]).bool()
    edited = torch.zeros_like(real)
    edited[[0, 1, 2], real.sum(1) - 1] = True
    keys = original.clone()
    keys[edited] += torch.randn(3, 8, generator=draw, dtype=torch.float64)
    preserved = torch.randn(2, 6, 8, generator=draw, dtype=torch.float64)
    parts = Parts(keys, original, real, edited, preserved, torch.ones(2, 6, dtype=torch.bool))
    outputs = original + 0.3 * torch.randn(original.shape, generator=draw, dtype=torch.float64)
    said = preserved + 0.3 * torch.randn(preserved.shape, generator=draw, dtype=torch.float64)
    alpha, rate = (
        torch.tensor([0.6, 0.7, 0.9], dtype=torch.float64),
        torch.tensor([0.1, 0.2, 0.05], dtype=torch.float64),
    )
    return parts, outputs, said, alpha, rate


def test_the_official_preset_is_the_released_loop_over_requests_in_one_evaluation():
    """As released: for every request the losses of the whole batch, padding included, are evaluated again and added."""
    parts, outputs, said, alpha, rate = random_parts()
    gradients = []
    for looped in (False, True):
        f, p = outputs.clone().requires_grad_(True), said.clone().requires_grad_(True)
        if looped:
            total = torch.zeros((), dtype=torch.float64)
            for a, r in zip(alpha, rate, strict=True):
                edit = nn.functional.mse_loss(f, parts.keys)
                keep = nn.functional.mse_loss(p, parts.preserved)
                push = torch.relu(1 - (f - parts.keys).abs()).square().mean()
                total = total + a * edit + (1 - a) * keep + r * push
        else:
            total = block_loss(f, p, parts, alpha=alpha, rate=rate, settings=PRESETS["official"])
        gradients.append((total.detach(), *torch.autograd.grad(total, (f, p))))
    for one, other in zip(*gradients, strict=True):
        assert torch.allclose(one, other, rtol=1e-6, atol=0)


def fitted(settings: LossSettings, *, weight: float, steps: int = 50):
    """A linear block under AdamW, with a preset's loss."""
    parts, *_ = random_parts(1)
    torch.manual_seed(0)
    block = nn.Linear(8, 8).double()
    inputs, texts = torch.randn(3, 5, 8, dtype=torch.float64), torch.randn(2, 6, 8, dtype=torch.float64)
    optimiser = torch.optim.AdamW(block.parameters(), lr=2e-4, weight_decay=0.01)
    path = []
    a, r = torch.full((3,), weight, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    for _ in range(steps):
        optimiser.zero_grad()
        block_loss(block(inputs), block(texts), parts, alpha=a, rate=r, settings=settings).backward()
        optimiser.step()
        path.append(torch.cat([one.detach().flatten() for one in block.parameters()]))
    return torch.stack(path)


def test_the_official_preset_without_purge_and_weights_is_unke():
    """Three requests at one half make 3/2 of UnKE's loss, to which AdamW is blind but for its epsilon."""
    official = dataclasses.replace(PRESETS["official"], purge=False, alpha=0.5, decay_norms=False)
    unke = dataclasses.replace(PRESETS["unke"], padding=True)
    assert torch.allclose(fitted(official, weight=0.5), fitted(unke, weight=0.5), rtol=1e-5, atol=1e-9)


def test_means_leave_padding_out_unless_asked():
    parts, outputs, said, alpha, rate = random_parts()
    garbage = outputs.clone()
    garbage[~parts.real] += 100
    for preset, same in (("adaptive", True), ("paper", True), ("unke", True), ("official", False)):
        one, other = (
            block_loss(f, said, parts, alpha=alpha, rate=rate, settings=PRESETS[preset]) for f in (outputs, garbage)
        )
        assert bool(torch.isclose(one, other)) is same


@pytest.mark.parametrize("preset", ["adaptive", "paper"])
def test_without_imprint_the_new_key_attracts_no_more(preset):
    parts, outputs, said, alpha, rate = random_parts()
    settings = dataclasses.replace(PRESETS[preset], imprint=False)
    moved = dataclasses.replace(parts, keys=torch.where(parts.edited[..., None], parts.keys + 7, parts.keys))
    one, other = (block_loss(outputs, said, each, alpha=alpha, rate=rate, settings=settings) for each in (parts, moved))
    assert torch.equal(one, other)


def test_without_texts_to_preserve_nothing_is_preserved():
    parts, outputs, said, alpha, rate = random_parts()
    without = dataclasses.replace(parts, preserved=None, preserved_real=None)
    whole = block_loss(outputs, said, parts, alpha=alpha, rate=rate, settings=PRESETS["adaptive"])
    bare = block_loss(outputs, None, without, alpha=alpha, rate=rate, settings=PRESETS["adaptive"])
    scale = parts.original[parts.edited].square().mean()
    keep = (1 - alpha).mean() * (said - parts.preserved).square().mean() / scale
    assert torch.allclose(whole - bare, keep)


@pytest.mark.parametrize(
    ("switch", "message"),
    [
        ({"combination": "other"}, "combination is 'other'"),
        ({"alpha": 1.5}, "alpha is 1.5"),
        ({"rate": "rising"}, "rate is 'rising'"),
        ({"clamp": 0.0}, "clamp is 0.0"),
        ({"gain": -1.0}, "gain is -1.0"),
        ({"reference": "base"}, "reference is 'base'"),
        ({"gain": float("nan")}, "gain is nan"),
    ],
)
def test_switches_out_of_range_are_refused(switch, message):
    with pytest.raises(InputError, match=message):
        LossSettings(**switch)
