"""Pictures of what a view model renders: contact sheets and turntables."""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from assay.core.errors import InputError, MissingPackageError
from assay.lact.cameras import as_picture

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["check_turntable", "contact_sheet", "write_turntable"]

TURNTABLE_ENDINGS = (".gif", ".mp4", ".png")
SMALLEST_SIDE = 96
"""Smaller images are enlarged by a whole number until their shorter side has so many pixels."""
GAP = 4


def contact_sheet(targets: Tensor, rendered: Tensor) -> Image:
    """A row for each view: the real image, the rendered one, and how far they are apart (black where they agree).

    Parameters
    ----------
    targets, rendered : Tensor
        Colours in [0, 1], shape (views, 3, height, width).

    Returns
    -------
    Image
        A picture of Pillow.

    Examples
    --------
    >>> import torch
    >>> contact_sheet(torch.rand(2, 3, 96, 96), torch.rand(2, 3, 96, 96)).size
    (296, 196)
    """
    error = (rendered - targets).abs()
    return _grid([image for row in zip(targets, rendered, error, strict=True) for image in row], columns=3)


def check_turntable(path: str | os.PathLike[str]) -> None:
    """Refuse a turntable that can't be written.

    Parameters
    ----------
    path : path
        The output.

    Raises
    ------
    InputError
        The ending is unknown.
    MissingPackageError
        What writes films isn't installed.

    Examples
    --------
    >>> check_turntable("round.gif")
    """
    ending = Path(path).suffix.lower()
    if ending not in TURNTABLE_ENDINGS:
        raise InputError(
            f"unknown ending '{ending}'", file=path, expected=f"a file that ends in {', '.join(TURNTABLE_ENDINGS)}"
        )
    if ending == ".mp4" and importlib.util.find_spec("imageio_ffmpeg") is None:
        raise MissingPackageError("imageio-ffmpeg", what=f"writing {os.fspath(path)}")


def write_turntable(images: Sequence[Tensor], path: str | os.PathLike[str], *, fps: float, force: bool = False) -> None:
    """Write images as a film or, as ``.png``, side by side.

    Parameters
    ----------
    images : sequence of Tensor
        Colours in [0, 1], shape (3, height, width) each.
    path : path
        A ``.gif``, ``.mp4`` or ``.png``.
    fps : float
        Frames a second.
    force : bool
        Replace an existing file.

    Raises
    ------
    InputError
        The ending is unknown, or the file exists.

    Examples
    --------
    >>> import tempfile, torch
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_turntable(list(torch.rand(3, 3, 8, 8)), f"{folder}/round.gif", fps=10)
    """
    from assay.core.files import atomic_path

    check_turntable(path)
    ending = Path(path).suffix.lower()
    with atomic_path(path, force=force) as temporary:
        if ending == ".png":
            _grid(images, columns=math.ceil(math.sqrt(len(images)))).save(temporary)
        elif ending == ".gif":
            first, *rest = [_enlarged(as_picture(image)) for image in images]
            duration = max(20, round(1000 / fps))
            first.save(temporary, save_all=True, append_images=rest, duration=duration, loop=0)
        else:
            _write_film(images, temporary, fps=fps)


def _write_film(images: Sequence[Tensor], path: Path, *, fps: float) -> None:
    import imageio.v3 as imageio
    import numpy as np

    frames = np.stack([np.asarray(_enlarged(as_picture(image))) for image in images])
    even = frames[:, : frames.shape[1] // 2 * 2, : frames.shape[2] // 2 * 2]  # the codec takes even sizes only
    imageio.imwrite(path, even, fps=fps, codec="libx264", macro_block_size=2)


def _grid(images: Sequence[Tensor], *, columns: int) -> Image:
    from PIL import Image

    pictures = [_enlarged(as_picture(image)) for image in images]
    width, height = pictures[0].size
    rows = -(-len(pictures) // columns)
    sheet = Image.new("RGB", (columns * (width + GAP) - GAP, rows * (height + GAP) - GAP), "white")
    for number, picture in enumerate(pictures):
        row, column = divmod(number, columns)
        sheet.paste(picture, (column * (width + GAP), row * (height + GAP)))
    return sheet


def _enlarged(picture: Image) -> Image:
    from PIL.Image import Resampling

    factor = -(-SMALLEST_SIDE // min(picture.size))
    if factor == 1:
        return picture
    return picture.resize((picture.width * factor, picture.height * factor), Resampling.NEAREST)
