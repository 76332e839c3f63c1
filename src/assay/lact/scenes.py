"""Generated scenes: shaded spheres on white, traced exactly and in whole batches, and cameras around them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.errors import InputError
from assay.lact.cameras import Cameras, camera_rays, look_at

__all__ = ["SphereScenes", "random_spheres", "render_spheres", "shell_cameras", "sphere_views"]

DISTANCE = 2.7
ELEVATION = (-10.0, 50.0)
FIELD_OF_VIEW = 50.0
RADIUS = (0.35, 0.55)
AMBIENT = 0.35
LIGHT = (0.4, 0.3, 0.85)


@dataclass(frozen=True)
class SphereScenes:
    """A batch of scenes of spheres.

    Attributes
    ----------
    centres : Tensor
        Shape (scenes, spheres, 3).
    radii : Tensor
        Shape (scenes, spheres).
    colours : Tensor
        In [0, 1], shape (scenes, spheres, 3).
    """

    centres: Tensor
    radii: Tensor
    colours: Tensor


def random_spheres(scenes: int, spheres: int = 1, *, generator: torch.Generator) -> SphereScenes:
    """Scenes whose spheres have their centres in a cube of side 1 around the origin.

    Parameters
    ----------
    scenes : int
        How many scenes.
    spheres : int
        How many spheres in each.
    generator : Generator
        Where chance comes from.

    Returns
    -------
    SphereScenes
        With radii from 0.35 to 0.55 for one sphere; smaller by the cube root of their number for more.

    Raises
    ------
    InputError
        No scene or no sphere.

    Examples
    --------
    >>> import torch
    >>> random_spheres(2, 3, generator=torch.Generator().manual_seed(0)).centres.shape
    torch.Size([2, 3, 3])
    """
    for name, value in (("scenes", scenes), ("spheres", spheres)):
        if value < 1:
            raise InputError(f"{name} is {value}", expected="at least 1")
    numbers = torch.rand(scenes, spheres, 7, generator=generator)
    low, high = (one / spheres ** (1 / 3) for one in RADIUS)
    return SphereScenes(numbers[..., :3] - 0.5, low + (high - low) * numbers[..., 3], numbers[..., 4:])


def shell_cameras(
    scenes: int,
    views: int,
    *,
    size: int,
    generator: torch.Generator,
    distance: float = DISTANCE,
    elevation: tuple[float, float] = ELEVATION,
    field_of_view: float = FIELD_OF_VIEW,
) -> Cameras:
    """Cameras at random places of a shell that look at the origin; z is up.

    Parameters
    ----------
    scenes, views : int
        How many scenes, and cameras for each.
    size : int
        Height and width of the images, in pixels.
    generator : Generator
        Where chance comes from.
    distance : float
        From the origin.
    elevation : tuple of float
        Lowest and highest elevation, degrees.
    field_of_view : float
        Horizontal, degrees.

    Returns
    -------
    Cameras
        Shape (scenes, views).

    Examples
    --------
    >>> import torch
    >>> cameras = shell_cameras(1, 2, size=8, generator=torch.Generator().manual_seed(0))
    >>> cameras.c2w[0, :, :3, 3].norm(dim=-1)
    tensor([2.7000, 2.7000])
    """
    numbers = torch.rand(scenes, views, 2, generator=generator)
    around = 2 * math.pi * numbers[..., 0]
    up = torch.deg2rad(elevation[0] + (elevation[1] - elevation[0]) * numbers[..., 1])
    position = distance * torch.stack((up.cos() * around.cos(), up.cos() * around.sin(), up.sin()), dim=-1)
    poses = look_at(position, torch.zeros(3), up=torch.tensor([0.0, 0.0, 1.0]))
    focal = size / 2 / math.tan(math.radians(field_of_view) / 2)
    intrinsics = torch.tensor([focal, focal, size / 2, size / 2]).expand(scenes, views, 4)
    return Cameras(poses, intrinsics, size, size)


def render_spheres(scenes: SphereScenes, cameras: Cameras) -> Tensor:
    """Trace scenes through cameras: the nearest sphere with Lambert's shading, one light for all scenes, white behind.

    Parameters
    ----------
    scenes : SphereScenes
        As many scenes as `cameras` has.
    cameras : Cameras
        Shape (scenes, views).

    Returns
    -------
    Tensor
        Colours in [0, 1], shape (scenes, views, 3, height, width).

    Examples
    --------
    >>> import torch
    >>> chance = torch.Generator().manual_seed(0)
    >>> scenes, cameras = random_spheres(2, generator=chance), shell_cameras(2, 3, size=8, generator=chance)
    >>> render_spheres(scenes, cameras).shape
    torch.Size([2, 3, 3, 8, 8])
    """
    rays = camera_rays(cameras)
    origin, direction = rays[..., None, :3], rays[..., None, 3:6]  # (scenes, views, h, w, 1, 3)
    centres, colours = (one[:, None, None, None] for one in (scenes.centres, scenes.colours))
    radii = scenes.radii[:, None, None, None]
    offset = origin - centres
    along = (offset * direction).sum(-1)
    under_root = along.square() - offset.square().sum(-1) + radii.square()
    depth = -along - under_root.clamp_min(0).sqrt()
    depth = torch.where((under_root > 0) & (depth > 0), depth, torch.inf)
    nearest, which = depth.min(-1, keepdim=True)
    hit = nearest.isfinite()
    which = which[..., None].expand(*which.shape, 3)
    everywhere = depth.shape
    centre = centres.expand(*everywhere, 3).gather(-2, which)[..., 0, :]
    colour = colours.expand(*everywhere, 3).gather(-2, which)[..., 0, :]
    point = rays[..., :3] + torch.where(hit, nearest, 0.0) * rays[..., 3:6]
    normal = torch.nn.functional.normalize(point - centre, dim=-1)
    light = torch.nn.functional.normalize(torch.tensor(LIGHT, dtype=normal.dtype, device=normal.device), dim=0)
    shade = AMBIENT + (1 - AMBIENT) * (normal @ light).clamp_min(0)
    return torch.where(hit, colour * shade[..., None], 1.0).movedim(-1, -3)


def sphere_views(
    scenes: int, views: int, *, size: int, spheres: int = 1, generator: torch.Generator
) -> tuple[Tensor, Cameras]:
    """Images of random scenes from random cameras.

    Parameters
    ----------
    scenes, views : int
        How many scenes, and images of each.
    size : int
        Height and width of the images, in pixels.
    spheres : int
        Spheres of a scene.
    generator : Generator
        Where chance comes from.

    Returns
    -------
    images : Tensor
        Colours in [0, 1], shape (scenes, views, 3, size, size).
    cameras : Cameras
        Shape (scenes, views).

    Examples
    --------
    >>> import torch
    >>> images, cameras = sphere_views(2, 3, size=8, generator=torch.Generator().manual_seed(0))
    >>> images.shape, len(cameras)
    (torch.Size([2, 3, 3, 8, 8]), 3)
    """
    found = random_spheres(scenes, spheres, generator=generator)
    cameras = shell_cameras(scenes, views, size=size, generator=generator)
    return render_spheres(found, cameras), cameras
