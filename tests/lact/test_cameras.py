"""Rays, poses and folders of posed images: against geometry by hand, and with every fault that a folder can have."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from assay.core.errors import InputError
from assay.lact.cameras import (
    Cameras,
    camera_rays,
    choose_views,
    look_at,
    mean_camera_frame,
    read_posed_images,
    resize_and_crop,
    turntable,
    write_posed_images,
)

Z = torch.tensor([0.0, 0.0, 1.0])


def ring(views: int = 5, *, height: float = 0.6, size: int = 8) -> Cameras:
    angle = torch.arange(views) * 0.7
    points = torch.stack((2 * angle.cos(), 2 * angle.sin(), torch.full_like(angle, height)), -1)
    focal = torch.tensor([9.0, 8.0, size / 2, size / 2]).expand(views, 4)
    return Cameras(look_at(points, torch.zeros(3), up=Z), focal, size, size)


@given(st.integers(0, 10**6), st.sampled_from([3, 5, 7]), st.floats(0.5, 20))
@settings(max_examples=20, deadline=None)
def test_the_middle_ray_of_an_odd_image_looks_along_z_and_moments_are_orthogonal(seed, size, focal):
    chance = torch.Generator().manual_seed(seed)
    rotation = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64, generator=chance)).Q
    pose = torch.eye(4, dtype=torch.float64)
    pose[:3, :3] = rotation
    pose[:3, 3] = torch.randn(3, dtype=torch.float64, generator=chance)
    rays = camera_rays(Cameras(pose[None], torch.tensor([[focal, focal, size / 2, size / 2]]), size, size))[0]
    torch.testing.assert_close(rays[size // 2, size // 2, 3:6], rotation[:, 2])
    torch.testing.assert_close(rays[..., 3:6].norm(dim=-1), torch.ones(size, size, dtype=torch.float64))
    torch.testing.assert_close((rays[..., 3:6] * rays[..., 6:]).sum(-1), torch.zeros(size, size, dtype=torch.float64))
    torch.testing.assert_close(rays[..., 6:], torch.linalg.cross(rays[..., :3], rays[..., 3:6]))


def test_a_ray_by_hand_keeps_width_and_height_apart():
    rays = camera_rays(Cameras(torch.eye(4)[None], torch.tensor([[2.0, 4.0, 1.0, 1.5]]), 3, 2))[0]
    assert rays.shape == (3, 2, 9)
    expected = torch.tensor([(1.5 - 1.0) / 2.0, (0.5 - 1.5) / 4.0, 1.0])
    torch.testing.assert_close(rays[0, 1, 3:6], expected / expected.norm())


def test_a_camera_that_looks_at_a_point_sees_it_in_its_middle_with_up_upwards():
    pose = look_at(torch.tensor([3.0, 1.0, 2.0]), torch.tensor([0.5, 0.5, 0.0]), up=Z)
    seen = torch.linalg.inv(pose) @ torch.tensor([[0.5, 0.5, 0.0, 1.0], [0.5, 0.5, 1.0, 1.0]]).T
    torch.testing.assert_close(seen[:2, 0], torch.zeros(2), atol=1e-6, rtol=0)
    assert seen[2, 0] > 0
    assert seen[1, 1] < 0, "what is above has a smaller y, which points down"
    torch.testing.assert_close(pose[:3, :3].T @ pose[:3, :3], torch.eye(3), atol=1e-6, rtol=0)
    assert torch.linalg.det(pose[:3, :3]) == pytest.approx(1, abs=1e-5)


def test_the_mean_cameras_frame_has_it_at_the_origin_looking_along_z():
    cameras = ring(3)
    frame = mean_camera_frame(cameras)
    normalised = frame.apply(cameras)
    torch.testing.assert_close(normalised.c2w[:, :3, 3].mean(0), torch.zeros(3), atol=1e-6, rtol=0)
    assert normalised.c2w[:, :3, 3].abs().max() == pytest.approx(1, abs=1e-6)
    mean_z = normalised.c2w[:, :3, 2].mean(0)
    torch.testing.assert_close(mean_z / mean_z.norm(), Z, atol=1e-6, rtol=0)
    assert normalised.c2w[:, :3, 1].mean(0)[1] > 0
    torch.testing.assert_close(frame.from_world[:3, :3] @ frame.from_world[:3, :3].T, torch.eye(3), atol=1e-6, rtol=0)


def test_the_mean_frame_does_not_depend_on_where_the_world_has_its_origin():
    cameras = ring(4)
    world = look_at(torch.tensor([5.0, -3.0, 2.0]), torch.zeros(3), up=Z)
    moved = Cameras(world @ cameras.c2w, cameras.intrinsics, 8, 8)
    one, other = (mean_camera_frame(c).apply(c).c2w for c in (cameras, moved))
    torch.testing.assert_close(one, other, atol=2e-6, rtol=0)


def test_cameras_that_look_in_opposite_directions_have_no_mean():
    poses = look_at(torch.tensor([[1.0, 0, 0], [-1.0, 0, 0]]), torch.zeros(3), up=Z)
    with pytest.raises(InputError, match="cancel out"):
        mean_camera_frame(Cameras(poses, torch.ones(2, 4), 4, 4))


def test_a_turntable_goes_around_what_the_cameras_look_at():
    circle = turntable(ring(5), 12)
    positions = circle.c2w[:, :3, 3]
    torch.testing.assert_close(positions[:, 2], torch.full((12,), 0.6), atol=1e-4, rtol=0)
    torch.testing.assert_close(positions[:, :2].norm(dim=-1), torch.full((12,), 2.0), atol=1e-4, rtol=0)
    along = -positions / positions.norm(dim=-1, keepdim=True)
    torch.testing.assert_close(circle.c2w[:, :3, 2], along, atol=1e-4, rtol=0)
    torch.testing.assert_close(positions[0], ring(5).c2w[0, :3, 3], atol=1e-4, rtol=0)
    step = (positions[1, :2] @ positions[0, :2] / 4).acos()
    assert step == pytest.approx(math.tau / 12, abs=1e-4)


def test_a_turntable_of_a_single_camera_starts_there():
    one = ring(1)
    circle = turntable(one, 4)
    assert bool(circle.c2w.isfinite().all())
    assert len(circle) == 4


def test_chosen_views_take_one_from_each_group():
    poses = torch.eye(4).repeat(9, 1, 1)
    chance = torch.Generator().manual_seed(0)
    poses[:, :3, 3] = torch.eye(3).repeat_interleave(3, 0) * 5 + 0.1 * torch.randn(9, 3, generator=chance)
    chosen = choose_views(Cameras(poses, torch.ones(9, 4), 4, 4), 3)
    assert sorted(index // 3 for index in chosen) == [0, 1, 2]
    assert choose_views(Cameras(poses, torch.ones(9, 4), 4, 4), 20) == list(range(9))


@given(st.integers(4, 40), st.integers(4, 40), st.integers(2, 12), st.integers(2, 12))
@settings(max_examples=30, deadline=None)
def test_resizing_and_cropping_moves_the_intrinsics_with_the_picture(width, height, to_width, to_height):
    picture = Image.new("RGB", (width, height))
    focal = [10.0, 11.0, width / 2, height / 2]
    resized, (fx, fy, cx, cy) = resize_and_crop(picture, focal, height=to_height, width=to_width)
    assert resized.size == (to_width, to_height)
    scale = max(to_height / height, to_width / width)
    assert fx == pytest.approx(10 * scale, rel=0.5 / min(width, height) / scale + 1e-9)
    assert abs(cx - to_width / 2) <= 0.5, "what was in the middle stays there, but for half a pixel"
    assert abs(cy - to_height / 2) <= 0.5
    assert fy / fx == pytest.approx(1.1, rel=2 / min(to_width, to_height))


@pytest.mark.parametrize("kind", ["opencv", "nerf"])
def test_what_is_written_is_read_back(tmp_path, kind):
    cameras, images = ring(3), torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    write_posed_images(tmp_path / "scène 1", images, cameras, kind=kind)
    read = read_posed_images(tmp_path / "scène 1")
    assert read.names == ("000.png", "001.png", "002.png")
    torch.testing.assert_close(read.images, (images * 255).round() / 255)
    torch.testing.assert_close(read.cameras.c2w, cameras.c2w, atol=1e-6, rtol=0)
    torch.testing.assert_close(read.cameras.intrinsics, cameras.intrinsics)


def test_nerfs_own_scenes_have_one_angle_no_endings_and_transparency(tmp_path):
    (tmp_path / "train").mkdir()
    Image.new("RGBA", (6, 4), (255, 0, 0, 128)).save(tmp_path / "train" / "r_0.png")
    pose = [[1, 0, 0, 1], [0, 1, 0, 2], [0, 0, 1, 3], [0, 0, 0, 1]]
    content = {"camera_angle_x": math.pi / 2, "frames": [{"file_path": "./train/r_0", "transform_matrix": pose}]}
    (tmp_path / "transforms.json").write_bytes(
        b"\xef\xbb\xbf" + json.dumps(content, indent=1).replace("\n", "\r\n").encode()
    )
    read = read_posed_images(tmp_path)
    assert read.cameras.intrinsics[0].tolist() == pytest.approx([3, 3, 3, 2])
    assert read.cameras.c2w[0].tolist() == [[1, 0, 0, 1], [0, -1, 0, 2], [0, 0, -1, 3], [0, 0, 0, 1]]
    assert read.images[0, :, 0, 0].tolist() == pytest.approx([1, 127 / 255, 127 / 255])


def test_images_of_different_size_need_a_size(tmp_path):
    folder = good(tmp_path)
    Image.new("RGB", (12, 8)).save(folder / "b.png")
    change(folder, 1, w=12, cx=6.0)
    with pytest.raises(
        InputError, match=r"b.png is 12 x 8, and a.png is 8 x 8; expected images of one size, or a size"
    ):
        read_posed_images(folder)
    read = read_posed_images(folder, size=(4, 4))
    assert read.images.shape == (2, 3, 4, 4)
    assert read.cameras.intrinsics.tolist() == [[4, 4, 2, 2], [4, 4, 2, 2]]


def good(tmp_path: Path) -> Path:
    """Two images with cameras."""
    folder = tmp_path / "views"
    folder.mkdir()
    cameras = []
    for name in ("a.png", "b.png"):
        Image.new("RGB", (8, 8)).save(folder / name)
        entry = {"w": 8, "h": 8, "fx": 8.0, "fy": 8.0, "cx": 4.0, "cy": 4.0, "w2c": torch.eye(4).tolist()}
        cameras.append(entry | {"file_path": name})
    (folder / "opencv_cameras.json").write_text(json.dumps(cameras))
    return folder


def change(folder: Path, number: int, *, without: str = "", **values: object) -> None:
    file = folder / "opencv_cameras.json"
    cameras = json.loads(file.read_text())
    cameras[number] |= values
    cameras[number].pop(without, None)
    file.write_text(json.dumps(cameras))


SINGULAR = [[1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
NOT_FINITE = [[math.nan, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
PROJECTIVE = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"w2c": SINGULAR}, "camera 1 (b.png): w2c is singular; expected a rotation and a shift"),
        ({"w2c": NOT_FINITE}, "camera 1 (b.png): w2c holds NaN or infinity"),
        ({"w2c": PROJECTIVE}, "camera 1 (b.png): w2c ends in [0.0, 0.0, 1.0, 1.0]"),
        ({"w2c": [[1, 0], [0, 1]]}, "camera 1 (b.png): w2c is 2 x 2; expected 4 x 4 numbers"),
        ({"w2c": "identity"}, "camera 1 (b.png): w2c is no matrix of numbers"),
        ({"without": "w2c"}, "camera 1 (b.png) has no pose; expected w2c or transform_matrix"),
        ({"without": "fx"}, "camera 1 (b.png) has no camera_angle_x; expected a number"),
        ({"fx": -1.0}, "camera 1 (b.png): fx is -1.0; expected a focal length above 0"),
        ({"fy": "wide"}, 'camera 1 (b.png) has fy "wide"; expected a number'),
        ({"without": "cx"}, "camera 1 (b.png) has no cx; expected a number"),
        ({"w": 9}, "camera 1 (b.png) is for 9 x 8, and its image is 8 x 8"),
        ({"h": 7.5}, "camera 1 (b.png): h is 7.5; expected a whole number of pixels"),
        ({"without": "file_path"}, "camera 1 has no file_path"),
        ({"file_path": "a.png"}, "camera 1 (a.png) has the image of camera 0; expected one camera an image"),
        ({"file_path": "c.png"}, "camera 1 (c.png) has no image"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_camera_is_named(tmp_path, values, said):
    folder = good(tmp_path)
    change(folder, 1, **values)
    with pytest.raises(InputError) as caught:
        read_posed_images(folder, skip_unposed=True)
    assert str(caught.value).startswith(f"{folder / 'opencv_cameras.json'}: {said}")


def test_an_image_without_a_camera_is_named_and_may_be_left_out(tmp_path):
    folder = good(tmp_path)
    Image.new("RGB", (8, 8)).save(folder / "extra.jpg")
    with pytest.raises(InputError, match=r"the image extra.jpg has no camera; expected a camera for every image"):
        read_posed_images(folder)
    assert read_posed_images(folder, skip_unposed=True).names == ("a.png", "b.png")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "the file is empty"),
        ("[{", "row 1, column 3: is not JSON"),
        ("[]", "lists no cameras"),
        ('{"frames": {}}', "lists no cameras"),
        ("[3]", "camera 0 is 3; expected an object"),
        ("7", "lists no cameras"),
    ],
    ids=["empty", "cut", "none", "no-list", "number", "bare"],
)
def test_a_damaged_file_of_cameras_is_named(tmp_path, content, said):
    folder = good(tmp_path)
    (folder / "opencv_cameras.json").write_text(content)
    with pytest.raises(InputError) as caught:
        read_posed_images(folder)
    assert said in str(caught.value)
    assert "opencv_cameras.json" in str(caught.value)


def test_a_truncated_image_is_named(tmp_path):
    folder = good(tmp_path)
    whole = (folder / "b.png").read_bytes()
    (folder / "b.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"b.png: can't be read"):
        read_posed_images(folder)


def test_a_missing_folder_and_one_without_cameras_are_named(tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        read_posed_images(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"holds no file of cameras; expected opencv_cameras.json or transforms.json"):
        read_posed_images(tmp_path)
