"""PSNR by its formula, SSIM against scikit-image."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from assay.core.errors import InputError, MissingPackageError
from assay.lact.metrics import lpips_vgg, psnr, ssim


@given(st.integers(0, 10**6), st.integers(11, 30), st.integers(11, 30), st.floats(0, 0.5))
@settings(max_examples=15, deadline=None)
def test_both_agree_with_scikit_image(seed, height, width, noise):
    chance = torch.Generator().manual_seed(seed)
    target = torch.rand(2, 3, height, width, generator=chance, dtype=torch.float64)
    rendered = (target + noise * torch.randn(target.shape, generator=chance, dtype=torch.float64)).clamp(0, 1)
    similar, ratio = ssim(rendered, target), psnr(rendered, target)
    for index in range(2):
        a, b = (one[index].numpy() for one in (rendered, target))
        expected = structural_similarity(
            a, b, data_range=1, channel_axis=0, gaussian_weights=True, sigma=1.5, use_sample_covariance=False
        )
        assert float(similar[index]) == pytest.approx(expected, abs=1e-9)
        if noise > 1e-6:
            assert float(ratio[index]) == pytest.approx(peak_signal_noise_ratio(b, a, data_range=1), abs=1e-9)


def test_a_scenes_views_are_pooled_before_the_logarithm():
    target = torch.zeros(1, 2, 3, 4, 4)
    rendered = torch.zeros_like(target)
    rendered[0, 0] = 0.2
    assert float(psnr(rendered, target)) == pytest.approx(-10 * torch.tensor(0.02).log10().item(), abs=1e-5)
    assert float(psnr(target, target)) == float("inf")


def test_the_perceptual_loss_sees_colours_from_minus_one_to_one(monkeypatch):
    """The package's own network is replaced by one that shows what it is given."""

    class Network(torch.nn.Module):
        def forward(self, rendered, target):
            assert (rendered.min(), target.max()) == (-1, 1)
            return (rendered - target).abs().mean((1, 2, 3))

    package = SimpleNamespace(LPIPS=lambda net, verbose: Network())
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(importlib, "import_module", lambda name: package)
    assert float(lpips_vgg()(torch.zeros(2, 3, 4, 4), torch.ones(2, 3, 4, 4))) == 2


def test_shapes_that_differ_and_images_below_the_window_are_refused():
    with pytest.raises(InputError, match="1 x 3 x 4 x 4 and 1 x 3 x 4 x 5"):
        psnr(torch.zeros(1, 3, 4, 4), torch.zeros(1, 3, 4, 5))
    with pytest.raises(InputError, match="from 11 pixels on"):
        ssim(torch.zeros(1, 3, 10, 12), torch.zeros(1, 3, 10, 12))


def test_the_perceptual_loss_names_its_package(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match="the perceptual loss needs the package lpips: pip install lpips"):
        lpips_vgg()
