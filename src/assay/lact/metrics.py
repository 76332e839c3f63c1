"""How near a rendered image is to the real one: PSNR, SSIM, and LPIPS where its package is installed."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable

import torch
from torch import Tensor

from assay.core.errors import InputError, MissingPackageError

__all__ = ["lpips_vgg", "psnr", "ssim"]

WINDOW, SIGMA = 11, 1.5
STABILISERS = (0.01**2, 0.03**2)


def psnr(rendered: Tensor, target: Tensor) -> Tensor:
    """Peak signal-to-noise ratio of each scene, all its pixels pooled.

    Parameters
    ----------
    rendered, target : Tensor
        Colours in [0, 1], shape (scenes, ...).

    Returns
    -------
    Tensor
        Decibels, shape (scenes,); infinite where the images are equal.

    Raises
    ------
    InputError
        The shapes differ.

    Examples
    --------
    >>> import torch
    >>> psnr(torch.full((1, 3, 4, 4), 0.1), torch.zeros(1, 3, 4, 4))
    tensor([20.])
    """
    _require_same_shape(rendered, target)
    return -10 * (rendered - target).square().flatten(1).mean(1).log10()


def ssim(rendered: Tensor, target: Tensor) -> Tensor:
    """Structural similarity of each image, with a Gaussian window of 11 x 11 pixels (Wang et al., 2004).

    Parameters
    ----------
    rendered, target : Tensor
        Colours in [0, 1], shape (images, channels, height, width); at least 11 x 11 pixels.

    Returns
    -------
    Tensor
        Shape (images,); 1 where the images are equal.

    Raises
    ------
    InputError
        The shapes differ, or the images are smaller than the window.

    Examples
    --------
    >>> import torch
    >>> image = torch.rand(1, 3, 16, 16)
    >>> ssim(image, image)
    tensor([1.])
    """
    _require_same_shape(rendered, target)
    if rendered.dim() != 4 or min(rendered.shape[-2:]) < WINDOW:
        shape = " x ".join(map(str, rendered.shape))
        raise InputError(f"images are {shape}", expected=f"images x channels x height x width, from {WINDOW} pixels on")
    taps = torch.arange(WINDOW, dtype=rendered.dtype, device=rendered.device) - WINDOW // 2
    taps = torch.softmax(-taps.square() / (2 * SIGMA**2), dim=0)
    images, channels = rendered.shape[:2]

    def blurred(image: Tensor) -> Tensor:
        flat = image.reshape(images * channels, 1, *image.shape[-2:])
        rows = torch.nn.functional.conv2d(flat, taps.view(1, 1, -1, 1))
        return torch.nn.functional.conv2d(rows, taps.view(1, 1, 1, -1))

    mean_a, mean_b = blurred(rendered), blurred(target)
    variance_a = blurred(rendered.square()) - mean_a.square()
    variance_b = blurred(target.square()) - mean_b.square()
    covariance = blurred(rendered * target) - mean_a * mean_b
    luminance = (2 * mean_a * mean_b + STABILISERS[0]) / (mean_a.square() + mean_b.square() + STABILISERS[0])
    structure = (2 * covariance + STABILISERS[1]) / (variance_a + variance_b + STABILISERS[1])
    return (luminance * structure).reshape(images, -1).mean(1)


def lpips_vgg() -> Callable[[Tensor, Tensor], Tensor]:
    """The perceptual distance LPIPS with VGG's features, of the package ``lpips``, which downloads its weights once.

    Returns
    -------
    callable
        Takes two batches of images with colours in [0, 1], shape (images, 3, height, width), and gives their mean
        distance, through which gradients flow.

    Raises
    ------
    MissingPackageError
        The package isn't installed.

    Examples
    --------
    >>> distance = lpips_vgg()  # doctest: +SKIP
    >>> distance(rendered, target)  # doctest: +SKIP
    """
    if importlib.util.find_spec("lpips") is None:
        raise MissingPackageError("lpips", what="the perceptual loss")
    network = importlib.import_module("lpips").LPIPS(net="vgg", verbose=False)
    network.requires_grad_(False)

    def distance(rendered: Tensor, target: Tensor) -> Tensor:
        found: Tensor = network.to(rendered.device)(2 * rendered - 1, 2 * target - 1).mean()
        return found

    return distance


def _require_same_shape(rendered: Tensor, target: Tensor) -> None:
    if rendered.shape != target.shape:
        shapes = " and ".join(" x ".join(map(str, one.shape)) for one in (rendered, target))
        raise InputError(f"images are {shapes}", expected="images of one shape")
