"""The commands for posed images, end to end: what they read, write and print, and how they refuse what is wrong."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
from pathlib import Path

import imageio.v3
import pytest
import torch
from PIL import Image

from assay.cli import run
from assay.lact import view_jobs, view_training
from assay.lact.cameras import Cameras, PosedImages, read_posed_images, write_posed_images
from assay.lact.metrics import psnr
from assay.lact.pictures import contact_sheet
from assay.lact.state import LaCTState
from assay.lact.view_training import SphereViews
from assay.lact.views import ViewConfig, load_view_model, make_view_model, save_view_model

SMALL = ("--steps", "3", "--batch", "2", "--width", "16", "--head-dim", "16", "--layers", "1", "--size", "8x8")
TINY = ViewConfig(dim=16, layers=1, patch=4, head_dim=16, expand=1.0, init_std=0.3)


@pytest.fixture(autouse=True)
def _in_a_folder_with_a_difficult_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "dátà with spaces"
    folder.mkdir()
    monkeypatch.chdir(folder)


def lact(*arguments: str) -> int:
    return run(["lact", *arguments])


def summary_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    assert lact(*arguments, "--json") == 0
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)


def refusal_of(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 2) -> str:
    before = sorted(path.name for path in Path().iterdir())
    assert lact(*arguments) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("assay: ")
    assert err.count("\n") == 1
    assert sorted(path.name for path in Path().iterdir()) == before
    return err


def a_scene(folder: str = "scène", *, views: int = 6, seed: int = 3, kind: str = "opencv") -> PosedImages:
    images, cameras = SphereViews(8).batch(1, views, seed=seed)
    write_posed_images(folder, images[0], cameras.scenes(0), kind=kind)
    return read_posed_images(folder)


def a_model(folder: str = "model", *, normalise: bool = False, seed: int = 0, config: ViewConfig = TINY) -> None:
    torch.manual_seed(seed)
    save_view_model(make_view_model(config), folder, size=(8, 8), normalise=normalise)


def rows_of(file: str) -> list[dict[str, str]]:
    with open(file, encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_from_generated_scenes_to_a_turntable(capsys):
    summary = summary_of(capsys, "train-nvs", "spheres", *SMALL, "-o", "views")
    assert summary["steps"] == 3
    assert [row["inputs"] for row in summary["psnr"]] == [1, 2, 4, 8]
    assert {path.name for path in Path("views").iterdir()} == {
        "config.json", "contact.png", "metrics.jsonl", "model.safetensors", "psnr.csv", "scene"
    }  # fmt: skip
    assert [json.loads(line)["step"] for line in Path("views/metrics.jsonl").read_text().splitlines()] == [1, 2, 3]
    assert [float(row["psnr"]) for row in rows_of("views/psnr.csv")] == [row["psnr"] for row in summary["psnr"]]
    assert Image.open("views/contact.png").size == (3 * 100 - 4, 8 * 100 - 4)

    summary = summary_of(capsys, "reconstruct", "views/scene", "-m", "views", "--hold-out", "4", "-o", "a.safetensors")
    assert summary["views"] == 9
    assert summary["held_out"] == ["003.png", "007.png", "011.png"]
    assert summary["state_bytes"] == 3 * 16 * 16 * 4

    found = summary_of(
        capsys,
        "render",
        "a.safetensors",
        "--cameras",
        "views/scene",
        "-o",
        "new",
        "--turntable",
        "a.gif",
        "--frames",
        "5",
    )
    assert imageio.v3.imread("a.gif").shape[:3] == (5, 96, 96)
    assert found["psnr_new_views"] == 3
    assert found["psnr_input_views"] == 9
    rows = rows_of("new/psnr.csv")
    assert [row["view"] for row in rows if row["input"] == "False"] == ["003.png", "007.png", "011.png"]
    assert {f"{number:03}.png" for number in range(12)} | {"contact.png", "psnr.csv"} == set(os.listdir("new"))


def test_what_is_rendered_is_what_the_model_renders(capsys):
    posed = a_scene()
    a_model()
    summary_of(capsys, "reconstruct", "scène", "-m", "model", "-o", "a.safetensors")
    found = summary_of(capsys, "render", "a.safetensors", "--cameras", "scène", "-o", "out")
    model = load_view_model("model").model
    cameras = Cameras(posed.cameras.c2w[None], posed.cameras.intrinsics[None], 8, 8)
    with torch.no_grad():
        expected = model.render(model.reconstruct(posed.images[None], cameras), cameras)[0]
    written = read_posed_images_of("out", posed.names)
    torch.testing.assert_close(written, expected, atol=0.51 / 255, rtol=0)
    for row, one, target in zip(found["views"], expected, posed.images, strict=True):
        assert row["psnr"] == pytest.approx(float(psnr(one[None], target[None])), abs=1e-3)
        assert row["input"] is True
        assert row["ssim"] is None, "smaller than the window"


def read_posed_images_of(folder: str, names: tuple[str, ...]) -> torch.Tensor:
    from assay.lact.cameras import as_colours

    return torch.stack([as_colours(Image.open(Path(folder, name)).convert("RGB")) for name in names])


def test_poses_are_normalised_as_the_model_was_trained_and_rendered_in_the_world(capsys):
    """Moving the world changes nothing for a model of normalised poses."""
    posed = a_scene()
    a_model(normalise=True)
    world = torch.eye(4)
    world[:3, :3] = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(0))).Q
    world[:3, :3] *= torch.linalg.det(world[:3, :3])
    world[:3, 3] = torch.tensor([4.0, -2.0, 1.0])
    moved = Cameras(world @ posed.cameras.c2w, posed.cameras.intrinsics, 8, 8)
    write_posed_images("moved", posed.images, moved, kind="nerf")
    for name in ("scène", "moved"):
        summary_of(capsys, "reconstruct", name, "-m", "model", "--hold-out", "3", "-o", f"{name}.safetensors")
        summary_of(capsys, "render", f"{name}.safetensors", "--cameras", name, "-o", f"{name}-out")
    one, other = (read_posed_images_of(f"{name}-out", posed.names) for name in ("scène", "moved"))
    torch.testing.assert_close(one, other, atol=1.01 / 255, rtol=0)
    summary_of(capsys, "reconstruct", "moved", "-m", "model", "--no-normalise", "-o", "raw.safetensors")
    assert json.loads(LaCTState.note_of("raw.safetensors")["frame"]) is None


def test_views_are_chosen_and_sizes_changed(capsys):
    a_scene()
    a_model()
    found = summary_of(
        capsys, "reconstruct", "scène", "-m", "model", "--count", "2", "--size", "12x4", "-o", "a.safetensors"
    )
    assert (found["views"], found["height"], found["width"]) == (2, 12, 4)
    assert summary_of(capsys, "render", "a.safetensors", "--turntable", "a.png", "--frames", "3")["frames"] == 3
    assert Image.open("a.png").size == (2 * 100 - 4, 2 * 292 - 4)


def test_a_published_checkpoint_is_a_model(capsys):
    a_scene()
    a_model()
    model = load_view_model("model").model
    torch.save({"model": model.to_published()}, "obj.pt")
    for source in ("model", "obj.pt"):
        summary_of(capsys, "reconstruct", "scène", "-m", source, "-o", f"{source}.safetensors")
        summary_of(capsys, "render", f"{source}.safetensors", "--cameras", "scène", "-o", f"{source}-out")
    names = tuple(f"{number:03}.png" for number in range(6))
    assert torch.equal(read_posed_images_of("model-out", names), read_posed_images_of("obj.pt-out", names))


def test_training_on_folders_holds_scenes_out(capsys):
    for number in range(3):
        a_scene(f"scenes/{number}", seed=number, kind="nerf" if number else "opencv")
    found = summary_of(
        capsys, "train-nvs", "scenes", *SMALL, "--inputs", "2", "--targets", "2", "--normalise", "-o", "model"
    )
    assert found["held_out_scenes"] == 1
    assert [row["inputs"] for row in found["psnr"]] == [1, 2]
    assert found["psnr"][0]["psnr_wrong_scene"] is None, "one scene has no other"
    assert load_view_model("model").normalise
    assert not Path("model/scene").exists()
    alone = summary_of(capsys, "train-nvs", "scenes/1", *SMALL, "--inputs", "2", "--targets", "2", "-o", "alone")
    assert alone["held_out_scenes"] == 0


def test_words_for_people_and_silence(capsys):
    a_scene()
    a_model()
    assert lact("train-nvs", "spheres", *SMALL, "-o", "views") == 0
    out, err = capsys.readouterr()
    assert "measured on  new scenes" in out
    assert "wrote        views" in out
    assert err == ""
    assert lact("reconstruct", "scène", "-m", "model", "-o", "a.safetensors") == 0
    assert "read         6 of 6 views of 8 x 8 pixels" in capsys.readouterr().out
    assert lact("render", "a.safetensors", "--turntable", "a.gif", "--frames", "2") == 0
    assert "2 frames in a.gif" in capsys.readouterr().out
    assert lact("render", "a.safetensors", "--turntable", "a.gif", "--frames", "2", "--force", "-q") == 0
    assert capsys.readouterr() == ("", "")


def test_a_stopped_training_says_how_to_go_on_and_does(capsys, monkeypatch):
    summary_of(capsys, "train-nvs", "spheres", *SMALL, "-o", "straight")
    step = view_training._one_step

    def stopping(*arguments, **named):
        if len(calls) == 1:
            os.kill(os.getpid(), signal.SIGINT)
        calls.append(1)
        return step(*arguments, **named)

    calls: list[int] = []
    monkeypatch.setattr(view_training, "_one_step", stopping)
    assert lact("train-nvs", "spheres", *SMALL, "-o", "views") == 130
    said = capsys.readouterr().err
    assert "holds the last step, and the same command with --resume goes on" in said
    assert os.listdir("views") == ["checkpoint.safetensors"]
    assert "--resume to go on, or --force" in refusal_of(capsys, "train-nvs", "spheres", *SMALL, "-o", "views")
    other = refusal_of(capsys, "train-nvs", "spheres", *SMALL, "--lr", "0.1", "-o", "views", "--resume")
    assert "was made with lr 0.003, not 0.1" in other
    summary_of(capsys, "train-nvs", "spheres", *SMALL, "-o", "views", "--resume")
    assert Path("views/model.safetensors").read_bytes() == Path("straight/model.safetensors").read_bytes()
    assert not Path("views/checkpoint.safetensors").exists()


def test_a_stopped_rendering_keeps_its_views_and_goes_on(capsys, monkeypatch):
    posed = a_scene()
    a_model()
    summary_of(capsys, "reconstruct", "scène", "-m", "model", "-o", "a.safetensors")
    summary_of(capsys, "render", "a.safetensors", "--cameras", "scène", "-o", "straight")
    whole = view_jobs._render_one

    def stopping(*arguments):
        if len(calls) == 2:
            raise KeyboardInterrupt
        calls.append(1)
        return whole(*arguments)

    calls: list[int] = []
    monkeypatch.setattr(view_jobs, "_render_one", stopping)
    assert lact("render", "a.safetensors", "--cameras", "scène", "-o", "out") == 130
    assert "out holds 2 of 6 views, and the same command with --resume goes on" in capsys.readouterr().err
    assert sorted(os.listdir("out")) == ["000.png", "001.png", "render.json"]
    monkeypatch.setattr(view_jobs, "_render_one", whole)
    summary_of(capsys, "reconstruct", "scène", "-m", "model", "--count", "3", "-o", "b.safetensors")
    refusal = refusal_of(capsys, "render", "b.safetensors", "--cameras", "scène", "-o", "out", "--resume")
    assert "is of another scene or other cameras" in refusal
    os.utime("out/000.png", (1, 1))
    summary_of(capsys, "render", "a.safetensors", "--cameras", "scène", "-o", "out", "--resume")
    assert os.stat("out/000.png").st_mtime == 1, "rendered before, and not again"
    assert torch.equal(read_posed_images_of("out", posed.names), read_posed_images_of("straight", posed.names))
    assert sorted(os.listdir("out")) == sorted(os.listdir("straight"))


def test_a_stopped_turntable_keeps_its_frames(capsys, monkeypatch):
    a_scene()
    a_model()
    summary_of(capsys, "reconstruct", "scène", "-m", "model", "-o", "a.safetensors")
    whole = view_jobs._render_one

    def stopping(*arguments):
        if len(calls) == stop_at:
            raise KeyboardInterrupt
        calls.append(1)
        return whole(*arguments)

    monkeypatch.setattr(view_jobs, "_render_one", stopping)
    calls: list[int] = []
    stop_at = 0
    assert lact("render", "a.safetensors", "--turntable", "a.gif") == 130
    assert "stopped; nothing was written" in capsys.readouterr().err
    assert not Path("a.gif").exists()
    stop_at = 3
    assert lact("render", "a.safetensors", "--turntable", "a.gif") == 130
    assert "a.gif holds the first 3 of 24 frames" in capsys.readouterr().err
    assert len(imageio.v3.imread("a.gif")) == 3


def test_films_name_their_package_and_are_written_with_even_sides(capsys, monkeypatch):
    import importlib.util

    a_scene()
    a_model()
    summary_of(capsys, "reconstruct", "scène", "-m", "model", "-o", "a.safetensors")
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if "ffmpeg" in name else find(name, *rest)
    )
    refusal = refusal_of(capsys, "render", "a.safetensors", "--turntable", "a.mp4", status=1)
    assert "writing a.mp4 needs the package imageio-ffmpeg: pip install imageio-ffmpeg" in refusal
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: name)
    written = {}

    def write(path, frames, **named):
        written.update(shape=frames.shape, **named)
        Path(path).write_bytes(b"film")

    monkeypatch.setattr(imageio.v3, "imwrite", write)
    summary_of(capsys, "render", "a.safetensors", "--turntable", "a.mp4", "--frames", "2", "--fps", "5")
    assert written["shape"] == (2, 96, 96, 3)
    assert written["fps"] == 5
    assert Path("a.mp4").read_bytes() == b"film"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("train-nvs", "nowhere", "-o", "m"), "nowhere: no such folder; expected a folder of scenes, or spheres"),
        (("train-nvs", "empty", "-o", "m"), "empty: holds no scene"),
        (("train-nvs", "scène/000.png", "-o", "m"), "000.png: is a file; expected a folder of scenes"),
        (("train-nvs", "scène", "-o", "m"), "a scene has 6 views (the first is 000.png); expected at least 8"),
        (
            ("train-nvs", "spheres", "--size", "8x12", "-o", "m"),
            "--size is 8x12; expected generated scenes to be square",
        ),
        (("train-nvs", "spheres", "--size", "10x10", "-o", "m"), "spheres: images are 10 x 10 (height x width)"),
        (("train-nvs", "spheres", "--size", "big", "-o", "m"), "--size is 'big'; expected HEIGHTxWIDTH"),
        (("train-nvs", "spheres", "--steps", "0", "-o", "m"), "--steps is 0; expected at least 1"),
        (("train-nvs", "spheres", "--lr", "nan", "-o", "m"), "--lr is nan; expected a number from 0 on"),
        (("train-nvs", "spheres", "--seed", "-1", "-o", "m"), "--seed is -1"),
        (("train-nvs", "spheres", "--width", "60", "-o", "m"), "--width is 60; expected a multiple of"),
        (("train-nvs", "spheres", "--batch", "1.5", "-o", "m"), "--batch is '1.5'; expected an integer"),
        (("train-nvs", "spheres", "--normalise", "-o", "m"), "--normalise with spheres"),
        (("train-nvs", "spheres", "-o", "no/m"), "the folder no doesn't exist"),
        (("train-nvs", "spheres", "-o", "model"), "model: exists already"),
        (("train-nvs", "spheres", "-o", "-"), "--out is '-'; expected the name of a folder"),
        (("train-nvs", "spheres", "-o", "m", "--resume"), "m: holds no checkpoint.safetensors"),
        (("reconstruct", "empty", "-m", "model", "-o", "b.safetensors"), "empty: holds no file of cameras"),
        (("reconstruct", "scène", "-m", "nowhere", "-o", "b.safetensors"), "nowhere: no such folder"),
        (("reconstruct", "scène", "-m", "model", "-o", "b.bin"), "b.bin: unknown ending '.bin'"),
        (("reconstruct", "scène", "-m", "model", "-o", "a.safetensors"), "a.safetensors: exists already"),
        (("reconstruct", "scène", "-m", "model", "--count", "0", "-o", "b.safetensors"), "--count is 0"),
        (("reconstruct", "scène", "-m", "model", "--hold-out", "1", "-o", "b.safetensors"), "--hold-out is 1"),
        (
            ("reconstruct", "scène", "-m", "model", "--size", "9x8", "-o", "b.safetensors"),
            "scène: images are 9 x 8 (height x width); expected multiples of the patch, 4; the nearest are 8 x 8",
        ),
        (("render", "nowhere.safetensors", "--turntable", "a.gif"), "nowhere.safetensors: no such file"),
        (("render", "scène/000.png", "--turntable", "a.gif"), "unknown ending '.png'"),
        (("render", "model/model.safetensors", "--turntable", "a.gif"), "holds no state of a memory"),
        (("render", "text.safetensors", "--turntable", "a.gif"), "text.safetensors: holds no scene"),
        (("render", "a.safetensors", "--turntable", "a.jpg"), "a.jpg: unknown ending '.jpg'"),
        (("render", "a.safetensors"), "neither --turntable nor --cameras is given"),
        (("render", "a.safetensors", "-o", "m"), "neither --turntable nor --cameras is given"),
        (("render", "a.safetensors", "--cameras", "scène"), "--cameras alone; expected --cameras and --out together"),
        (("render", "a.safetensors", "--turntable", "a.gif", "--frames", "0"), "--frames is 0"),
        (("render", "a.safetensors", "--turntable", "a.gif", "--fps", "0"), "--fps is 0.0"),
        (("render", "a.safetensors", "--turntable", "a.gif", "-m", "wide"), "the state is of another configuration"),
        (("render", "a.safetensors", "--turntable", "a.gif", "-m", "other"), "by a model with other weights"),
        (("render", "a.safetensors", "--turntable", "a.gif", "--device", "cuda:9"), "device 'cuda:9'"),
        (("render", "cut.safetensors", "--turntable", "a.gif"), "cut.safetensors: damaged"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_input_is_named_in_one_line(capsys, arguments, said):
    a_scene()
    a_model()
    a_model("other", seed=1)
    a_model("wide", config=ViewConfig(dim=32, layers=1, patch=4, head_dim=16))
    Path("empty").mkdir()
    LaCTState({"x": torch.zeros(1)}).save("text.safetensors")
    summary_of(capsys, "reconstruct", "scène", "-m", "model", "-o", "a.safetensors")
    Path("cut.safetensors").write_bytes(Path("a.safetensors").read_bytes()[:60])
    assert said in refusal_of(capsys, *arguments)


def test_a_scene_whose_model_is_gone_asks_for_it(capsys):
    a_scene()
    a_model()
    summary_of(capsys, "reconstruct", "scène", "-m", "model", "-o", "a.safetensors")
    shutil.move("model", "moved")
    assert "is gone; expected --model with" in refusal_of(capsys, "render", "a.safetensors", "--turntable", "a.gif")
    assert summary_of(capsys, "render", "a.safetensors", "--turntable", "a.gif", "-m", "moved", "--frames", "1")


def test_an_image_without_a_camera_is_refused_or_skipped(capsys):
    a_scene()
    a_model()
    shutil.copy("scène/000.png", "scène/extra.png")
    arguments = ("reconstruct", "scène", "-m", "model", "-o", "a.safetensors")
    assert "the image extra.png has no camera" in refusal_of(capsys, *arguments)
    assert summary_of(capsys, *arguments, "--skip-unposed")["views"] == 6


def test_a_contact_sheet_shows_target_rendering_and_error():
    target, rendered = torch.full((1, 3, 96, 96), 0.8), torch.full((1, 3, 96, 96), 0.6)
    sheet = contact_sheet(target, rendered)
    assert [sheet.getpixel((48 + 100 * column, 48)) for column in range(3)] == [(204,) * 3, (153,) * 3, (51,) * 3]
