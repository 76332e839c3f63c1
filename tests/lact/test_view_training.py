"""Training on views: it learns, it goes on from where it stopped, and its measurements have their controls."""

from __future__ import annotations

import math
import os
import signal
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from assay.core.errors import InputError
from assay.lact.cameras import PosedImages
from assay.lact.checkpoints import load_checkpoint, save_checkpoint
from assay.lact.metrics import psnr
from assay.lact.view_training import (
    FolderViews,
    SphereViews,
    ViewPlan,
    evaluate_views,
    measure_view_costs,
    train_view_model,
    train_views,
)
from assay.lact.views import ViewConfig, make_view_model

TINY = ViewConfig(dim=16, layers=2, patch=4, head_dim=16, expand=1.0, registers=4)
PLAN = ViewPlan(steps=6, batch=2, inputs=2, targets=1, warmup=2)


def model_of(**changes: object):
    torch.manual_seed(0)
    return make_view_model(replace(TINY, **changes))


def folder_views(scenes: int = 3, views: int = 4) -> FolderViews:
    images, cameras = SphereViews(8).batch(scenes, views, seed=1)
    names = tuple(f"{number}.png" for number in range(views))
    return FolderViews([PosedImages(images[one], cameras.scenes(one), names) for one in range(scenes)])


def test_training_teaches_the_white_of_the_background():
    model = model_of(memory="none")
    history = train_view_model(model, SphereViews(8), replace(PLAN, steps=60, lr=1e-2, batch=4))
    assert history[-1]["psnr"] > history[0]["psnr"] + 2
    assert [entry["step"] for entry in history] == list(range(1, 61))


@pytest.mark.parametrize("source", [SphereViews(8), folder_views()], ids=["spheres", "folders"])
def test_a_stopped_training_goes_on_bit_for_bit(tmp_path, source):
    straight = model_of()
    whole = train_view_model(straight, source, PLAN)

    def stop(entry):
        if entry["step"] == 3:
            os.kill(os.getpid(), signal.SIGINT)

    checkpoint = tmp_path / "checkpoint.safetensors"
    with pytest.raises(KeyboardInterrupt):
        train_view_model(model_of(), source, PLAN, checkpoint=checkpoint, watch=stop)
    torch.manual_seed(99)
    resumed = make_view_model(TINY)
    history = train_view_model(resumed, source, PLAN, checkpoint=checkpoint, resume=True)
    assert history == whole
    for name, value in straight.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], value), name


def test_a_checkpoint_of_other_settings_or_none_is_refused(tmp_path):
    model, checkpoint = model_of(), tmp_path / "checkpoint.safetensors"
    optimizer = torch.optim.AdamW(model.parameters())
    save_checkpoint(checkpoint, model, optimizer, history=[], settings={"lr": 0.1, "seed": 1})
    assert load_checkpoint(checkpoint, model, optimizer, settings={"seed": 1}) == []
    with pytest.raises(InputError, match=r"was made with seed 1, not 2; expected the same settings, or --force"):
        load_checkpoint(checkpoint, model, optimizer, settings={"seed": 2})
    save_file({"a": torch.zeros(1)}, tmp_path / "other.safetensors")
    (tmp_path / "cut.safetensors").write_bytes(checkpoint.read_bytes()[:50])
    for name, said in (("other", "is another kind"), ("cut", "damaged"), ("none", "no such file")):
        with pytest.raises(InputError, match=said):
            load_checkpoint(tmp_path / f"{name}.safetensors", model, optimizer, settings={})


def test_checkpoints_are_written_as_often_as_asked(tmp_path):
    checkpoint = tmp_path / "checkpoint.safetensors"
    seen: list[bool] = []
    plan = replace(PLAN, save_every=2)
    train_view_model(
        model_of(), SphereViews(8), plan, checkpoint=checkpoint, watch=lambda _: seen.append(checkpoint.exists())
    )
    assert seen == [False, False, True, True, True, True]
    assert len(load_file(checkpoint)) > 10


def test_undefined_and_huge_gradients_change_nothing():
    model = model_of()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    plan = replace(PLAN, steps=1, perceptual_from=0)
    history = train_view_model(model, SphereViews(8), plan, perceptual=lambda a, b: a.sum() * math.nan)
    assert history[0]["skipped"]
    huge = replace(plan, clip_from=0)
    history = train_view_model(model, SphereViews(8), huge, perceptual=lambda a, b: 1e4 * a.sum())
    assert history[0]["skipped"]
    assert history[0]["gradient_norm"] > 4
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    late = replace(plan, clip_from=1)
    assert not train_view_model(model, SphereViews(8), late, perceptual=lambda a, b: 1e4 * a.sum())[0]["skipped"]


def test_the_perceptual_loss_is_added_from_its_step_on():
    plan = replace(PLAN, steps=2, perceptual_from=1)
    history = train_view_model(model_of(), SphereViews(8), plan, perceptual=lambda a, b: 7 + 0 * a.sum())
    assert history[0]["loss"] == pytest.approx(10 ** (-history[0]["psnr"] / 10))
    assert history[1]["loss"] == pytest.approx(7 + 10 ** (-history[1]["psnr"] / 10), rel=1e-5)


def test_every_count_is_measured_on_the_same_targets_and_the_wrong_scene_is_the_next_one():
    model = model_of(init_std=0.3)
    images, cameras = SphereViews(8).batch(3, 6, seed=4)
    found = evaluate_views(model, images, cameras, targets=2, counts=(1, 4, 8))
    assert sorted(found) == ["psnr_1", "psnr_4", "wrong_scene_1", "wrong_scene_4"]
    asked = cameras.views(slice(4, None))
    with torch.no_grad():
        right = model(images[:, :1], cameras.views(slice(0, 1)), asked)
        others = [2, 0, 1]
        wrong = model(images[others, :1], cameras.scenes(others).views(slice(0, 1)), asked)
    assert found["psnr_1"] == pytest.approx(float(psnr(right, images[:, 4:]).mean()), abs=1e-4)
    assert found["wrong_scene_1"] == pytest.approx(float(psnr(wrong, images[:, 4:]).mean()), abs=1e-4)
    assert found["psnr_1"] != found["wrong_scene_1"]
    with pytest.raises(InputError, match="targets is 6 of 6 views"):
        evaluate_views(model, images, cameras, targets=6)


def test_the_constant_is_the_best_one():
    found = train_views("none", seed=0, steps=1, config=TINY, plan=PLAN, source=SphereViews(8), scenes=8)
    images, _ = SphereViews(8).batch(8, 12, seed=1 << 40)
    wanted = images[:, -4:]
    mean = wanted.mean((0, 1, 3, 4), keepdim=True)
    assert found["constant"] == pytest.approx(float(psnr(mean.expand_as(wanted), wanted).mean()), abs=1e-5)
    assert (mean - wanted).square().mean() < (mean + 0.01 - wanted).square().mean()


@pytest.mark.parametrize("arm", ["lact", "lact-gd", "lact-linear", "full", "perceiver", "none"])
def test_each_arm_is_a_function_of_the_seed_and_sees_the_same_scenes(arm):
    runs = [
        train_views(arm, seed=seed, steps=2, config=TINY, plan=PLAN, source=SphereViews(8), scenes=4)
        for seed in (5, 5, 6)
    ]
    one, same, other = ({name: value for name, value in run.items() if "seconds" not in name} for run in runs)
    assert one == same
    assert other["psnr_1"] != one["psnr_1"]
    images, _ = SphereViews(8).batch(4, 12, seed=(1 << 40) + 5)
    wanted = images[:, -4:]
    assert one["constant"] == pytest.approx(
        float(psnr(wanted.mean((0, 1, 3, 4), keepdim=True).expand_as(wanted), wanted).mean()), abs=1e-5
    )


def test_costs_are_counted_and_states_stay_small():
    few, many = (measure_view_costs("lact", views=n, size=8, config=TINY, repeats=1) for n in (1, 5))
    assert few["state_bytes"] == many["state_bytes"] == 2 * 3 * 16 * 16 * 4
    assert many["tokens"] == 20
    assert min(many["prefill_seconds"], many["render_seconds"]) > 0
    attended = measure_view_costs("full", views=5, size=8, config=TINY, repeats=1)
    assert attended["state_bytes"] == 2 * 2 * 20 * 16 * 4


def test_scenes_of_folders_are_drawn_by_the_seed_and_need_enough_views():
    source = folder_views()
    images, cameras = source.batch(5, 4, seed=3)
    assert torch.equal(images, source.batch(5, 4, seed=3)[0])
    assert not torch.equal(images, source.batch(5, 4, seed=4)[0])
    assert images.shape == (5, 4, 3, 8, 8)
    every, _ = source.every_scene(2, seed=0)
    assert len(every) == 3
    with pytest.raises(InputError, match="a scene has 4 views; expected at least 5"):
        source.batch(1, 5, seed=0)
    for image, pose in zip(images[0], cameras.c2w[0], strict=True):
        found = [
            torch.equal(image, scene.images[row]) and torch.equal(pose, scene.cameras.c2w[row])
            for scene in source.scenes
            for row in range(4)
        ]
        assert sum(found) == 1, "an image keeps its camera"


def test_scenes_of_different_size_or_none_are_refused():
    small, large = SphereViews(8).batch(1, 2, seed=0), SphereViews(16).batch(1, 2, seed=0)
    posed = [PosedImages(images[0], cameras.scenes(0), ("a", "b")) for images, cameras in (small, large)]
    with pytest.raises(InputError, match="scenes have images of 8 x 8 and 16 x 16"):
        FolderViews(posed)
    with pytest.raises(InputError, match="scenes have images of no size"):
        FolderViews([])


def test_normalised_scenes_have_their_cameras_within_the_unit_cube():
    images, cameras = SphereViews(8).batch(1, 5, seed=2)
    scene = PosedImages(images[0], cameras.scenes(0), ("a", "b", "c", "d", "e"))
    found = FolderViews([scene], normalise=True)
    assert float(found.scenes[0].cameras.c2w[:, :3, 3].abs().max()) == pytest.approx(1)
    assert found.fingerprint != FolderViews([scene]).fingerprint


def test_unknown_arms_are_refused():
    for call in (lambda: train_views("gs", seed=0), lambda: measure_view_costs("gs", views=1)):
        with pytest.raises(InputError, match="arm is 'gs'; expected one of: lact, lact-gd"):
            call()


def test_the_learning_rate_rises_and_falls():
    plan = ViewPlan(steps=100, warmup=10)
    assert plan.factor(0) == pytest.approx(0.1)
    assert plan.factor(9) == plan.factor(10) == 1
    assert plan.factor(55) == pytest.approx(0.5)
    assert plan.factor(99) < 0.001
