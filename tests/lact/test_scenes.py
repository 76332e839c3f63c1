"""Generated scenes: silhouettes and shading against geometry by hand."""

from __future__ import annotations

import math

import pytest
import torch

from assay.core.errors import InputError
from assay.lact.cameras import Cameras, look_at
from assay.lact.scenes import SphereScenes, random_spheres, render_spheres, shell_cameras, sphere_views

Z = torch.tensor([0.0, 0.0, 1.0])


def one_sphere(*, centre=(0.0, 0.0, 0.0), radius=0.5, colour=(0.8, 0.2, 0.1)) -> SphereScenes:
    return SphereScenes(torch.tensor([[centre]]), torch.tensor([[radius]]), torch.tensor([[colour]]))


def camera(size: int = 101, *, distance: float = 3.0, focal: float = 100.0) -> Cameras:
    pose = look_at(torch.tensor([0.0, -distance, 0.0]), torch.zeros(3), up=Z)
    return Cameras(pose[None, None], torch.tensor([focal, focal, size / 2, size / 2]).view(1, 1, 4), size, size)


def test_a_spheres_silhouette_is_the_disc_of_its_tangent_cone():
    image = render_spheres(one_sphere(), camera())[0, 0]
    y, x = torch.meshgrid(torch.arange(101) - 50.0, torch.arange(101) - 50.0, indexing="ij")
    radius = 100 * math.tan(math.asin(0.5 / 3.0))
    inside = (x.square() + y.square()).sqrt() < radius
    assert torch.equal((image != 1).any(0), inside)


def test_shading_is_lamberts_at_the_middle_of_the_sphere():
    image = render_spheres(one_sphere(), camera())[0, 0]
    light = torch.tensor([0.4, 0.3, 0.85])
    cosine = max(0.0, float((light / light.norm()) @ torch.tensor([0.0, -1.0, 0.0])))
    expected = torch.tensor([0.8, 0.2, 0.1]) * (0.35 + 0.65 * cosine)
    torch.testing.assert_close(image[:, 50, 50], expected)
    assert image[:, 40, 50].sum() > image[:, 60, 50].sum(), "the light comes from above"


def test_the_nearer_of_two_spheres_hides_the_other_and_spheres_behind_are_not_seen():
    both = SphereScenes(
        torch.tensor([[[0.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, -9.0, 0.0]]]),
        torch.tensor([[0.5, 0.3, 0.5]]),
        torch.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]]),
    )
    image = render_spheres(both, camera())[0, 0]
    assert image[0, 50, 50] == 0
    assert image[1, 50, 50] > 0
    edge = image[:, 50, 34]
    assert edge[0] > 0
    assert edge[1] == 0
    assert not ((image[2] > 0) & (image[0] == 0)).any()


def test_cameras_are_on_the_shell_within_their_elevation():
    cameras = shell_cameras(3, 50, size=8, generator=torch.Generator().manual_seed(1))
    position = cameras.c2w[..., :3, 3]
    torch.testing.assert_close(position.norm(dim=-1), torch.full((3, 50), 2.7))
    elevation = torch.rad2deg((position[..., 2] / 2.7).asin())
    assert elevation.min() >= -10.01
    assert elevation.max() <= 50.01
    assert elevation.max() - elevation.min() > 40
    across = 2 * math.degrees(math.atan(4 / float(cameras.intrinsics[0, 0, 0])))
    assert across == pytest.approx(50)


def test_scenes_are_a_function_of_the_seed():
    one, same, other = (
        sphere_views(2, 3, size=8, spheres=2, generator=torch.Generator().manual_seed(seed)) for seed in (4, 4, 5)
    )
    assert torch.equal(one[0], same[0])
    assert torch.equal(one[1].c2w, same[1].c2w)
    assert not torch.equal(one[0], other[0])


def test_a_scene_alone_looks_as_in_a_batch():
    chance = torch.Generator().manual_seed(3)
    scenes, cameras = random_spheres(3, 4, generator=chance), shell_cameras(3, 2, size=9, generator=chance)
    alone = SphereScenes(scenes.centres[1:2], scenes.radii[1:2], scenes.colours[1:2])
    assert torch.equal(render_spheres(alone, cameras.scenes([1])), render_spheres(scenes, cameras)[1:2])


def test_most_images_show_the_sphere():
    images, _ = sphere_views(50, 2, size=16, generator=torch.Generator().manual_seed(0))
    shown = (images < 1).any(2).float().mean((-1, -2))
    assert (shown > 0.02).float().mean() > 0.95


def test_no_scene_is_refused():
    with pytest.raises(InputError, match="spheres is 0; expected at least 1"):
        random_spheres(1, 0, generator=torch.Generator())
