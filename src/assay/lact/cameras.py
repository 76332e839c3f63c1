"""Cameras and posed images: rays, poses, turntables, and folders of images with a file of cameras.

Axes are OpenCV's: x right, y down, z forward. A ray has nine channels: its origin, its unit direction, and their cross
product (the moment of Plücker's coordinates), as the view model reads it (Zhang et al., appendix B.1).
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from assay.core.errors import InputError

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = [
    "Cameras",
    "PoseFrame",
    "PosedImages",
    "camera_rays",
    "choose_views",
    "look_at",
    "mean_camera_frame",
    "read_posed_images",
    "resize_and_crop",
    "turntable",
    "write_posed_images",
]

RAY_CHANNELS = 9
OPENCV_FILE, NERF_FILE = "opencv_cameras.json", "transforms.json"
TIE_BREAK = 1e-6
"""The weight of the mean upward axis beside the horizontal axes, far above rounding and far below what they decide."""
IMAGE_ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
SMALLEST_DETERMINANT = 1e-6
"""Of a pose's 3 x 3 part after its rows are scaled to length one; a rotation has 1."""
PARALLEL = 1e-6
"""Below this length, the cross product of two unit axes gives no direction."""


@dataclass(frozen=True)
class Cameras:
    """Pinhole cameras of images of one size.

    Attributes
    ----------
    c2w : Tensor
        Camera to world, shape (..., views, 4, 4); OpenCV axes.
    intrinsics : Tensor
        fx, fy, cx, cy in pixels, shape (..., views, 4).
    height, width : int
        The images' size in pixels.
    """

    c2w: Tensor
    intrinsics: Tensor
    height: int
    width: int

    def __len__(self) -> int:
        """The number of views."""
        return int(self.c2w.shape[-3])

    def views(self, index: Sequence[int] | slice) -> Cameras:
        """Some of the views."""
        return replace(self, c2w=self.c2w[..., index, :, :], intrinsics=self.intrinsics[..., index, :])

    def scenes(self, index: int | Sequence[int] | slice) -> Cameras:
        """Some of the scenes of a batch, or one without the batch's axis."""
        return replace(self, c2w=self.c2w[index], intrinsics=self.intrinsics[index])

    def to(self, target: torch.device | torch.dtype | str) -> Cameras:
        """The cameras on another device or with another dtype."""
        return replace(self, c2w=self.c2w.to(target), intrinsics=self.intrinsics.to(target))


@dataclass(frozen=True)
class PosedImages:
    """Images of one size with their cameras.

    Attributes
    ----------
    images : Tensor
        Colours in [0, 1], shape (views, 3, height, width).
    cameras : Cameras
        One for each image.
    names : tuple of str
        The images' names.
    """

    images: Tensor
    cameras: Cameras
    names: tuple[str, ...]

    def views(self, index: Sequence[int]) -> PosedImages:
        """Some of the views."""
        return PosedImages(self.images[index], self.cameras.views(index), tuple(self.names[one] for one in index))


def camera_rays(cameras: Cameras) -> Tensor:
    """The ray through the middle of every pixel.

    Parameters
    ----------
    cameras : Cameras
        Shape (..., views) of cameras.

    Returns
    -------
    Tensor
        Shape (..., views, height, width, 9): origin, unit direction, origin x direction.

    Examples
    --------
    >>> import torch
    >>> camera = Cameras(torch.eye(4)[None], torch.tensor([[3.0, 3.0, 1.5, 1.5]]), 3, 3)
    >>> camera_rays(camera)[0, 1, 1, 3:6]
    tensor([0., 0., 1.])
    """
    y, x = torch.meshgrid(
        torch.arange(cameras.height).to(cameras.c2w) + 0.5,
        torch.arange(cameras.width).to(cameras.c2w) + 0.5,
        indexing="ij",
    )
    fx, fy, cx, cy = (one[..., None, None] for one in cameras.intrinsics.unbind(-1))
    right, down = (x - cx) / fx, (y - cy) / fy
    local = torch.stack((right, down, torch.ones_like(right)), dim=-1)
    direction = torch.einsum("...ij,...hwj->...hwi", cameras.c2w[..., :3, :3], local)
    direction = torch.nn.functional.normalize(direction, dim=-1)
    origin = cameras.c2w[..., None, None, :3, 3].expand_as(direction)
    return torch.cat((origin, direction, torch.linalg.cross(origin, direction)), dim=-1)


def look_at(position: Tensor, target: Tensor, *, up: Tensor) -> Tensor:
    """Poses of cameras that look from one point at another.

    Parameters
    ----------
    position, target : Tensor
        Points, shape (..., 3).
    up : Tensor
        What is up, shape (3,) or (..., 3); must not be parallel to the line of sight.

    Returns
    -------
    Tensor
        Camera to world, shape (..., 4, 4).

    Examples
    --------
    >>> import torch
    >>> look_at(torch.tensor([0.0, -2.0, 0.0]), torch.zeros(3), up=torch.tensor([0.0, 0.0, 1.0]))[:3, 2]
    tensor([0., 1., 0.])
    """
    forward = torch.nn.functional.normalize(target - position, dim=-1)
    right = torch.nn.functional.normalize(torch.linalg.cross(forward, up.expand_as(forward)), dim=-1)
    down = torch.linalg.cross(forward, right)
    pose = torch.zeros((*position.shape[:-1], 4, 4), dtype=position.dtype, device=position.device)
    pose[..., :3, :] = torch.stack((right, down, forward, position), dim=-1)
    pose[..., 3, 3] = 1
    return pose


@dataclass(frozen=True)
class PoseFrame:
    """A coordinate system for the poses of a scene, with a scale.

    Attributes
    ----------
    from_world : Tensor
        World to frame, shape (4, 4).
    scale : float
        Positions in the frame are divided by it.
    """

    from_world: Tensor
    scale: float

    def apply(self, cameras: Cameras) -> Cameras:
        """The cameras as seen in the frame."""
        c2w = self.from_world.to(cameras.c2w) @ cameras.c2w
        shift = torch.cat((c2w[..., :3, 3:] / self.scale, c2w[..., 3:, 3:]), dim=-2)
        return replace(cameras, c2w=torch.cat((c2w[..., :3], shift), dim=-1))


def mean_camera_frame(cameras: Cameras) -> PoseFrame:
    """The frame of the mean camera, in which the farthest coordinate of a position is 1.

    Centre: the mean position. z: the mean z axis, normalised. x: mean y axis x z, normalised. y: z x x.

    Parameters
    ----------
    cameras : Cameras
        The views of one scene.

    Returns
    -------
    PoseFrame

    Raises
    ------
    InputError
        The axes cancel out: the views look in opposite directions, and there is no mean camera.

    Examples
    --------
    >>> import torch
    >>> poses = torch.eye(4).repeat(2, 1, 1)
    >>> poses[:, 0, 3] = torch.tensor([1.0, 5.0])
    >>> frame = mean_camera_frame(Cameras(poses, torch.ones(2, 4), 4, 4))
    >>> frame.scale, frame.from_world[:3, 3]
    (2.0, tensor([-3.,  0.,  0.]))
    """
    mean = cameras.c2w.mean(-3)
    forward, lengths = mean[:3, 2], []
    lengths.append(forward.norm())
    forward = forward / forward.norm().clamp_min(PARALLEL)
    right = torch.linalg.cross(mean[:3, 1], forward)
    lengths.append(right.norm())
    if min(lengths) < PARALLEL:
        raise InputError(
            "the cameras' axes cancel out, so that there is no mean camera",
            expected="views that share a side, or poses that are not normalised",
        )
    right = right / right.norm()
    rotation = torch.stack((right, torch.linalg.cross(forward, right), forward))
    frame = torch.eye(4, dtype=mean.dtype, device=mean.device)
    frame[:3, :3] = rotation
    frame[:3, 3] = -rotation @ mean[:3, 3]
    largest = float((frame @ cameras.c2w)[..., :3, 3].abs().max())
    return PoseFrame(frame, largest or 1.0)


def turntable(cameras: Cameras, frames: int) -> Cameras:
    """A circle of cameras around what the given ones look at.

    The centre is the point nearest to all lines of sight; distance and height are the means of the given cameras. Up is
    at right angles to their horizontal axes, as for cameras that are held upright.

    Parameters
    ----------
    cameras : Cameras
        The views of one scene.
    frames : int
        How many cameras, evenly spaced.

    Returns
    -------
    Cameras
        With the intrinsics of the first.

    Examples
    --------
    >>> import torch
    >>> angles = torch.tensor([0.0, 1.0, 2.0])
    >>> points = torch.stack((angles.cos(), angles.sin(), 0.2 * torch.ones(3)), dim=-1)
    >>> poses = look_at(points, torch.zeros(3), up=torch.tensor([0.0, 0.0, 1.0]))
    >>> circle = turntable(Cameras(poses, torch.ones(3, 4), 8, 8), frames=4)
    >>> circle.c2w[:, :3, 3].norm(dim=-1)
    tensor([1.0198, 1.0198, 1.0198, 1.0198])
    """
    position, forward = cameras.c2w[:, :3, 3].double(), cameras.c2w[:, :3, 2].double()
    forward = torch.nn.functional.normalize(forward, dim=-1)
    across = torch.eye(3, dtype=torch.float64, device=position.device) - forward[:, :, None] * forward[:, None, :]
    # Parallel lines of sight leave the point free along them: the least-norm solution takes the one by the origin.
    centre = torch.linalg.pinv(across.sum(0), rtol=1e-9) @ (across @ position[:, :, None]).sum(0)[:, 0]
    up = _upward(cameras)
    offset = position - centre
    height = (offset @ up).mean()
    radius = (offset - (offset @ up)[:, None] * up).norm(dim=-1).mean().clamp_min(PARALLEL)
    first = offset[0] - (offset[0] @ up) * up
    if first.norm() < PARALLEL:
        first = torch.linalg.cross(up, forward[0])
    first = torch.nn.functional.normalize(first, dim=-1)
    second = torch.linalg.cross(up, first)
    angle = torch.arange(frames, dtype=torch.float64, device=position.device)[:, None] * (2 * math.pi / frames)
    points = centre + height * up + radius * (angle.cos() * first + angle.sin() * second)
    return Cameras(
        look_at(points, centre.expand_as(points), up=up).to(cameras.c2w.dtype),
        cameras.intrinsics[:1].expand(frames, 4),
        cameras.height,
        cameras.width,
    )


def _upward(cameras: Cameras) -> Tensor:
    """The direction most at right angles to all x axes; where these leave a choice, near the mean upward axis."""
    right = torch.nn.functional.normalize(cameras.c2w[:, :3, 0].double(), dim=-1)
    mean = torch.nn.functional.normalize(-cameras.c2w[:, :3, 1].double().mean(0), dim=-1)
    found: Tensor = torch.linalg.eigh(right.T @ right - TIE_BREAK * torch.outer(mean, mean)).eigenvectors[:, 0]
    return found if float(found @ mean) >= 0 else -found


def choose_views(cameras: Cameras, count: int) -> list[int]:
    """Views that cover a scene: those nearest to the centres that k-means finds among the camera positions.

    Starts from the farthest points, so that the choice depends on the cameras alone.

    Parameters
    ----------
    cameras : Cameras
        The views of one scene.
    count : int
        How many to choose; all when there are no more.

    Returns
    -------
    list of int
        In rising order.

    Examples
    --------
    >>> import torch
    >>> poses = torch.eye(4).repeat(4, 1, 1)
    >>> poses[:, 0, 3] = torch.tensor([0.0, 0.1, 5.0, 9.0])
    >>> choose_views(Cameras(poses, torch.ones(4, 4), 8, 8), 3)
    [0, 2, 3]
    """
    points = cameras.c2w[:, :3, 3].double()
    if count >= len(points):
        return list(range(len(points)))
    chosen = [int((points - points.mean(0)).norm(dim=-1).argmax())]
    while len(chosen) < count:
        nearest = torch.cdist(points, points[chosen]).amin(1)
        nearest[chosen] = -1
        chosen.append(int(nearest.argmax()))
    centres = points[chosen]
    for _ in range(20):
        owner = torch.cdist(points, centres).argmin(1)
        centres = torch.stack(
            [points[owner == one].mean(0) if bool((owner == one).any()) else centres[one] for one in range(count)]
        )
    distances = torch.cdist(centres, points)
    found: list[int] = []
    for row in distances:
        row = row.clone()
        row[found] = math.inf
        found.append(int(row.argmin()))
    return sorted(found)


def resize_and_crop(image: Image, intrinsics: Sequence[float], *, height: int, width: int) -> tuple[Image, list[float]]:
    """Scale an image until it covers a size, cut out its middle, and adjust the intrinsics.

    Parameters
    ----------
    image : Image
        A picture of Pillow.
    intrinsics : sequence of float
        fx, fy, cx, cy in pixels of `image`.
    height, width : int
        The wanted size.

    Returns
    -------
    tuple
        The picture, and its fx, fy, cx, cy.

    Examples
    --------
    >>> from PIL import Image
    >>> resize_and_crop(Image.new("RGB", (8, 4)), [4.0, 4.0, 4.0, 2.0], height=2, width=2)[1]
    [2.0, 2.0, 1.0, 1.0]
    """
    from PIL.Image import Resampling

    scale = max(height / image.height, width / image.width)
    scaled = max(width, round(image.width * scale)), max(height, round(image.height * scale))
    x_scale, y_scale = scaled[0] / image.width, scaled[1] / image.height
    left, top = (scaled[0] - width) // 2, (scaled[1] - height) // 2
    if scaled != image.size:
        image = image.resize(scaled, Resampling.BICUBIC)
    fx, fy, cx, cy = intrinsics
    return (
        image.crop((left, top, left + width, top + height)),
        [fx * x_scale, fy * y_scale, cx * x_scale - left, cy * y_scale - top],
    )


@dataclass(frozen=True)
class _Frame:
    """What a file of cameras says of one image."""

    label: str
    image: Path
    intrinsics: tuple[float, float, float, float] | None
    angle_x: float | None
    size: tuple[int | None, int | None]
    c2w: list[list[float]]


def read_posed_images(
    folder: str | os.PathLike[str], *, size: tuple[int, int] | None = None, skip_unposed: bool = False
) -> PosedImages:
    """Read a folder of images with ``opencv_cameras.json`` or, as for NeRF, ``transforms.json``.

    ``opencv_cameras.json`` is a list (or an object whose ``frames`` are the list) of objects with ``w``, ``h``,
    ``fx``, ``fy``, ``cx``, ``cy``, ``w2c`` (4 x 4) and ``file_path``. ``transforms.json`` has ``frames`` with
    ``file_path`` and ``transform_matrix`` (camera to world, OpenGL axes), and for all or for each ``camera_angle_x``
    (radians) or ``fl_x``, ``fl_y``, ``cx``, ``cy``. Transparent pixels are laid over white.

    Parameters
    ----------
    folder : path
        The folder, or the file of cameras itself.
    size : tuple of int, optional
        Height and width to which the images are scaled (to cover) and cropped (in the middle).
    skip_unposed : bool
        Leave out images beside the listed ones that have no camera, which are an error otherwise.

    Returns
    -------
    PosedImages
        In the order of the file.

    Raises
    ------
    InputError
        Files are missing or damaged; a camera is incomplete, singular or not finite; an image has no camera; sizes
        differ and no `size` is given.

    Examples
    --------
    >>> import tempfile, torch
    >>> cameras = Cameras(torch.eye(4)[None], torch.tensor([[4.0, 4.0, 2.0, 2.0]]), 4, 4)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_posed_images(folder, torch.rand(1, 3, 4, 4), cameras)
    ...     read_posed_images(folder).names
    ('000.png',)
    """
    file = _camera_file(Path(folder))
    frames = _read_frames(file)
    if not skip_unposed:
        _require_every_image_posed(frames, file)
    pictures, intrinsics, poses = [], [], []
    first: tuple[_Frame, tuple[int, int]] | None = None
    for frame in frames:
        picture = _read_image(frame, file)
        focal = _intrinsics_of(frame, picture, file)
        if size is not None:
            picture, focal = resize_and_crop(picture, focal, height=size[0], width=size[1])
        if first is not None and picture.size != first[1]:
            raise InputError(
                f"{frame.image.name} is {picture.width} x {picture.height}, "
                f"and {first[0].image.name} is {first[1][0]} x {first[1][1]}",
                file=file,
                expected="images of one size, or a size to bring them to",
            )
        first = first or (frame, picture.size)
        pictures.append(as_colours(picture))
        intrinsics.append(focal)
        poses.append(frame.c2w)
    images = torch.stack(pictures)
    height, width = images.shape[-2:]
    cameras = Cameras(torch.tensor(poses), torch.tensor(intrinsics), height, width)
    return PosedImages(images, cameras, tuple(frame.image.name for frame in frames))


def write_posed_images(
    folder: str | os.PathLike[str],
    images: Tensor,
    cameras: Cameras,
    *,
    names: Sequence[str] = (),
    kind: Literal["opencv", "nerf"] = "opencv",
) -> None:
    """Write images and their file of cameras, as `read_posed_images` reads them.

    Parameters
    ----------
    folder : path
        Made when it doesn't exist.
    images : Tensor
        Colours in [0, 1], shape (views, 3, height, width).
    cameras : Cameras
        One for each image.
    names : sequence of str
        File names; numbers when left out.
    kind : {'opencv', 'nerf'}
        ``opencv_cameras.json`` or ``transforms.json``.

    Examples
    --------
    >>> import tempfile, torch
    >>> cameras = Cameras(torch.eye(4)[None], torch.tensor([[4.0, 4.0, 2.0, 2.0]]), 4, 4)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_posed_images(folder, torch.rand(1, 3, 4, 4), cameras, names=["front.png"])
    """
    from assay.core.files import atomic_path, write_text

    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    names = names or [f"{number:03}.png" for number in range(len(images))]
    frames = []
    for name, image, pose, focal in zip(names, images, cameras.c2w, cameras.intrinsics, strict=True):
        with atomic_path(place / name, force=True) as temporary:
            as_picture(image).save(temporary)
        fx, fy, cx, cy = focal.tolist()
        size = {"w": cameras.width, "h": cameras.height, "cx": cx, "cy": cy, "file_path": name}
        if kind == "opencv":
            frames.append(size | {"fx": fx, "fy": fy, "w2c": torch.linalg.inv(pose.double()).tolist()})
        else:
            frames.append(size | {"fl_x": fx, "fl_y": fy, "transform_matrix": _flipped(pose.tolist())})
    if kind == "opencv":
        write_text(place / OPENCV_FILE, json.dumps(frames, indent=1), force=True)
    else:
        write_text(place / NERF_FILE, json.dumps({"frames": frames}, indent=1), force=True)


def as_picture(image: Tensor) -> Image:
    """A picture of Pillow from colours in [0, 1], shape (3, height, width)."""
    from PIL import Image

    array = image.detach().clamp(0, 1).mul(255).round().to(torch.uint8).permute(1, 2, 0).cpu().numpy()
    return Image.fromarray(array)


def as_colours(picture: Image) -> Tensor:
    """Colours in [0, 1], shape (3, height, width), of an RGB picture of Pillow."""
    raw = torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8)
    return raw.view(picture.height, picture.width, 3).permute(2, 0, 1).float() / 255


def _camera_file(place: Path) -> Path:
    from assay.core.files import existing_file

    if not place.exists():
        raise InputError("no such folder", file=place, expected=f"a folder with {OPENCV_FILE} or {NERF_FILE}")
    if place.is_file():
        return existing_file(place, suffixes=(".json",))
    for name in (OPENCV_FILE, NERF_FILE):
        if (place / name).exists():
            return existing_file(place / name)
    raise InputError("holds no file of cameras", file=place, expected=f"{OPENCV_FILE} or {NERF_FILE}")


def _read_frames(file: Path) -> list[_Frame]:
    from assay.core.files import read_lines

    try:
        content = json.loads("\n".join(read_lines(file)))
    except json.JSONDecodeError as error:
        raise InputError(
            f"is not JSON: {error.msg}", file=file, row=error.lineno, column=error.colno, expected="a list of cameras"
        ) from error
    common: Mapping[str, Any] = {}
    entries = content
    if isinstance(content, dict):
        common = {name: value for name, value in content.items() if name != "frames"}
        entries = content.get("frames")
    if not isinstance(entries, list) or not entries:
        raise InputError("lists no cameras", file=file, expected="a list of objects, or an object with 'frames'")
    frames: list[_Frame] = []
    seen: dict[Path, int] = {}
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise InputError(f"camera {number} is {json.dumps(entry)[:40]}", file=file, expected="an object")
        frame = _read_frame(number, {**common, **entry}, file)
        if frame.image in seen:
            raise InputError(
                f"{frame.label} has the image of camera {seen[frame.image]}", file=file, expected="one camera an image"
            )
        seen[frame.image] = number
        frames.append(frame)
    return frames


def _read_frame(number: int, entry: Mapping[str, Any], file: Path) -> _Frame:
    path = entry.get("file_path")
    if not isinstance(path, str) or not path:
        raise InputError(f"camera {number} has no file_path", file=file, expected="the name of its image")
    label = f"camera {number} ({path})"
    if "w2c" in entry:
        c2w = torch.linalg.inv(_matrix(entry["w2c"], f"{label}: w2c", file)).tolist()
    elif "transform_matrix" in entry:
        c2w = _flipped(_matrix(entry["transform_matrix"], f"{label}: transform_matrix", file).tolist())
    else:
        raise InputError(f"{label} has no pose", file=file, expected="w2c or transform_matrix")
    width, height = (_size(entry, name, label, file) for name in ("w", "h"))
    focal = entry.get("fx", entry.get("fl_x"))
    if focal is None:
        angle = _number(entry, "camera_angle_x", label, file)
        if not 0 < angle < math.pi:
            raise InputError(f"{label}: camera_angle_x is {angle}", file=file, expected="radians between 0 and pi")
        return _Frame(label, _image_of(path, file), None, angle, (width, height), c2w)
    fx = _number({**entry, "fx": focal}, "fx", label, file)
    fy = _number({**entry, "fy": entry.get("fy", entry.get("fl_y", focal))}, "fy", label, file)
    for name, value in (("fx", fx), ("fy", fy)):
        if value <= 0:
            raise InputError(f"{label}: {name} is {value}", file=file, expected="a focal length above 0, in pixels")
    if "cx" in entry or "cy" in entry or width is None or height is None:
        cx, cy = (_number(entry, name, label, file) for name in ("cx", "cy"))
    else:
        cx, cy = width / 2, height / 2
    return _Frame(label, _image_of(path, file), (fx, fy, cx, cy), None, (width, height), c2w)


def _matrix(value: Any, label: str, file: Path) -> Tensor:
    expected = "4 x 4 numbers whose last row is 0 0 0 1"
    try:
        matrix = torch.tensor(value, dtype=torch.float64)
    except (ValueError, TypeError, RuntimeError):
        raise InputError(f"{label} is no matrix of numbers", file=file, expected=expected) from None
    if matrix.shape != (4, 4):
        shape = " x ".join(map(str, matrix.shape))
        raise InputError(f"{label} is {shape or 'a number'}", file=file, expected=expected)
    if not bool(matrix.isfinite().all()):
        raise InputError(f"{label} holds NaN or infinity", file=file, expected=expected)
    if not torch.allclose(matrix[3], matrix.new_tensor([0, 0, 0, 1])):
        raise InputError(f"{label} ends in {matrix[3].tolist()}", file=file, expected=expected)
    rows = matrix[:3, :3]
    if float(torch.linalg.det(rows / rows.norm(dim=1, keepdim=True).clamp_min(1e-300)).abs()) < SMALLEST_DETERMINANT:
        raise InputError(f"{label} is singular", file=file, expected="a rotation and a shift")
    return matrix


def _flipped(pose: list[list[float]]) -> list[list[float]]:
    """From OpenGL's axes to OpenCV's or back: the y and z axes of the camera change their sign."""
    return [[x, -y, -z, shift] for x, y, z, shift in pose]


def _number(entry: Mapping[str, Any], name: str, label: str, file: Path) -> float:
    value = entry.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        said = f"has no {name}" if value is None else f"has {name} {json.dumps(value)}"
        raise InputError(f"{label} {said}", file=file, expected="a number")
    return float(value)


def _size(entry: Mapping[str, Any], name: str, label: str, file: Path) -> int | None:
    if name not in entry:
        return None
    value = _number(entry, name, label, file)
    if value < 1 or value != int(value):
        raise InputError(f"{label}: {name} is {value:g}", file=file, expected="a whole number of pixels")
    return int(value)


def _image_of(path: str, file: Path) -> Path:
    """The image's file; NeRF's own scenes leave the ending out."""
    image = file.parent / path
    if image.suffix.lower() not in IMAGE_ENDINGS and not image.exists():
        for ending in IMAGE_ENDINGS:
            if image.with_name(image.name + ending).exists():
                return image.with_name(image.name + ending)
    return image


def _read_image(frame: _Frame, file: Path) -> Image:
    from PIL import Image, UnidentifiedImageError

    if not frame.image.is_file():
        raise InputError(f"{frame.label} has no image", file=file, expected=f"the file {frame.image}")
    try:
        with Image.open(frame.image) as opened:
            picture = opened.convert("RGBA")
    except (OSError, UnidentifiedImageError, SyntaxError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(f"can't be read: {reason}", file=frame.image, expected="an image") from error
    white = Image.new("RGBA", picture.size, "white")
    return Image.alpha_composite(white, picture).convert("RGB")


def _intrinsics_of(frame: _Frame, picture: Image, file: Path) -> list[float]:
    width, height = frame.size
    if (width or picture.width, height or picture.height) != picture.size:
        raise InputError(
            f"{frame.label} is for {width} x {height}, and its image is {picture.width} x {picture.height}",
            file=file,
            expected="the size of the image",
        )
    if frame.intrinsics is not None:
        return list(frame.intrinsics)
    assert frame.angle_x is not None
    focal = picture.width / 2 / math.tan(frame.angle_x / 2)
    return [focal, focal, picture.width / 2, picture.height / 2]


def _require_every_image_posed(frames: Sequence[_Frame], file: Path) -> None:
    posed = {frame.image.resolve() for frame in frames}
    folders = {frame.image.parent for frame in frames}
    for folder in sorted(folders):
        for image in sorted(folder.iterdir()) if folder.is_dir() else ():
            if image.suffix.lower() in IMAGE_ENDINGS and image.resolve() not in posed:
                raise InputError(
                    f"the image {image.name} has no camera", file=file, expected="a camera for every image beside it"
                )
