"""Training of view models on posed images, what they reach with how many input views, and what that costs."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from assay.core.errors import InputError
from assay.core.interruption import stop_between_steps
from assay.lact.cameras import Cameras, PosedImages, mean_camera_frame
from assay.lact.checkpoints import load_checkpoint, save_checkpoint
from assay.lact.metrics import psnr
from assay.lact.scenes import sphere_views
from assay.lact.views import ViewConfig, ViewSynthesis, make_view_model

__all__ = [
    "SMALL",
    "FolderViews",
    "SphereViews",
    "ViewPlan",
    "ViewSource",
    "evaluate_views",
    "measure_view_costs",
    "train_view_model",
    "train_views",
]

HELD_OUT = 1 << 40
"""Seeds from here on are for scenes that no training sees."""
INPUT_COUNTS = (1, 2, 4, 8)
VIEW_ARMS: Mapping[str, Mapping[str, Any]] = {
    "lact": {},
    "lact-gd": {"rule": "gd"},
    "lact-linear": {"fast_net": "linear"},
    "full": {"memory": "full"},
    "perceiver": {"memory": "perceiver"},
    "none": {"memory": "none"},
}
"""The competitors of a study, as what sets each apart in its configuration."""
SMALL = ViewConfig(dim=64, layers=2, patch=4, head_dim=64, expand=1.0, registers=64, init_std=0.125)
"""Sizes that learn spheres of 16 x 16 pixels within a minute or two: some 600 steps, of which the first 200 go into
finding where in an image a sphere may be. The published standard deviation of 0.02 is for a width of 768; here it had
learned nothing after 300 steps.
"""


class ViewSource(Protocol):
    """Where scenes come from.

    Attributes
    ----------
    size : tuple of int
        Height and width of the images.
    fingerprint : str
        Differs for other data.
    """

    size: tuple[int, int]
    fingerprint: str

    def batch(self, scenes: int, views: int, *, seed: int) -> tuple[Tensor, Cameras]:
        """Scenes with so many views each: images of shape (scenes, views, 3, height, width) and their cameras."""


class SphereViews:
    """Generated scenes of spheres, each new.

    Parameters
    ----------
    size : int
        Height and width of the images.
    spheres : int
        Spheres of a scene.

    Examples
    --------
    >>> images, cameras = SphereViews(8).batch(2, 3, seed=0)
    >>> images.shape
    torch.Size([2, 3, 3, 8, 8])
    """

    def __init__(self, size: int = 16, *, spheres: int = 1) -> None:
        if size < 1:
            raise InputError(f"size is {size}", expected="at least 1")
        self.size = (size, size)
        self.spheres = spheres
        self.fingerprint = f"spheres {spheres} at {size}"

    def batch(self, scenes: int, views: int, *, seed: int) -> tuple[Tensor, Cameras]:
        """New scenes, the same for the same seed."""
        chance = torch.Generator().manual_seed(seed)
        return sphere_views(scenes, views, size=self.size[0], spheres=self.spheres, generator=chance)


class FolderViews:
    """Scenes that were read from folders.

    Parameters
    ----------
    scenes : sequence of PosedImages
        All of one image size.
    normalise : bool
        Bring each scene's poses into the frame of its mean camera.

    Raises
    ------
    InputError
        There is no scene, or sizes differ.

    Examples
    --------
    >>> import torch
    >>> from assay.lact.cameras import PosedImages
    >>> images, cameras = SphereViews(8).batch(1, 4, seed=0)
    >>> scene = PosedImages(images[0], cameras.scenes(0), ("a", "b", "c", "d"))
    >>> FolderViews([scene]).batch(2, 3, seed=1)[0].shape
    torch.Size([2, 3, 3, 8, 8])
    """

    def __init__(self, scenes: Sequence[PosedImages], *, normalise: bool = False) -> None:
        sizes = {(scene.cameras.height, scene.cameras.width) for scene in scenes}
        if len(sizes) != 1:
            said = " and ".join(f"{height} x {width}" for height, width in sorted(sizes))
            raise InputError(f"scenes have images of {said or 'no size'}", expected="scenes of one image size")
        self.size = sizes.pop()
        self.scenes = [
            replace(scene, cameras=mean_camera_frame(scene.cameras).apply(scene.cameras)) if normalise else scene
            for scene in scenes
        ]
        digest = hashlib.sha256(str(normalise).encode())
        for scene in self.scenes:
            digest.update(scene.images.numpy().tobytes() + scene.cameras.c2w.numpy().tobytes())
        self.fingerprint = digest.hexdigest()[:16]

    def batch(self, scenes: int, views: int, *, seed: int) -> tuple[Tensor, Cameras]:
        """Scenes and views of them by chance, the same for the same seed."""
        chance = torch.Generator().manual_seed(seed)
        numbers = torch.randint(len(self.scenes), (scenes,), generator=chance)
        return self._views_of(numbers.tolist(), views, chance)

    def every_scene(self, views: int, *, seed: int) -> tuple[Tensor, Cameras]:
        """Each scene once, with views by chance."""
        return self._views_of(range(len(self.scenes)), views, torch.Generator().manual_seed(seed))

    def _views_of(self, numbers: Iterable[int], views: int, chance: torch.Generator) -> tuple[Tensor, Cameras]:
        chosen = [
            (self.scenes[number], torch.randperm(len(self.scenes[number].images), generator=chance)[:views])
            for number in numbers
        ]
        for scene, rows in chosen:
            if len(rows) < views:
                raise InputError(
                    f"a scene has {len(scene.images)} views", expected=f"at least {views}, inputs and targets together"
                )
        images = torch.stack([scene.images[rows] for scene, rows in chosen])
        poses = torch.stack([scene.cameras.c2w[rows] for scene, rows in chosen])
        intrinsics = torch.stack([scene.cameras.intrinsics[rows] for scene, rows in chosen])
        return images, Cameras(poses, intrinsics, *self.size)


@dataclass(frozen=True)
class ViewPlan:
    """How a view model is trained; the paper's optimiser, with sizes for spheres of 16 x 16 pixels.

    Attributes
    ----------
    steps, batch : int
        Steps, and scenes a step.
    inputs, targets : int
        Input views of a scene, and views to be rendered.
    lr, weight_decay : float
        AdamW's; the decay is for parameters of two axes and more.
    warmup : int
        Steps in which the learning rate rises; it falls as a cosine to nothing after that.
    clip : float
        The norm to which gradients are clipped; 0 for not.
    clip_from : int
        The step from which gradients are clipped and steps are skipped.
    skip_above : float
        Steps whose gradient has a larger norm change nothing; those with infinite or undefined gradients never do.
    perceptual_from : int
        The step from which a perceptual loss is added, where one is given.
    seed : int
        Of the scenes.
    save_every : int
        Steps between checkpoints; 0 for none but that of a stopped run.
    """

    steps: int = 600
    batch: int = 8
    inputs: int = 4
    targets: int = 4
    lr: float = 3e-3
    weight_decay: float = 0.05
    warmup: int = 40
    clip: float = 1.0
    clip_from: int = 1000
    skip_above: float = 4.0
    perceptual_from: int = 5000
    seed: int = 0
    save_every: int = 0

    def factor(self, step: int) -> float:
        """The share of the learning rate at a step."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        return 0.5 * (1 + math.cos(math.pi * (step - self.warmup) / max(1, self.steps - self.warmup)))


def train_view_model(
    model: ViewSynthesis,
    source: ViewSource,
    plan: ViewPlan,
    *,
    checkpoint: Path | None = None,
    resume: bool = False,
    perceptual: Callable[[Tensor, Tensor], Tensor] | None = None,
    watch: Callable[[dict[str, Any]], None] = lambda entry: None,
) -> list[dict[str, Any]]:
    """Train a view model on scenes.

    Parameters
    ----------
    model : ViewSynthesis
        The model.
    source : ViewSource
        The scenes; inputs and targets are views of one scene that don't overlap.
    plan : ViewPlan
        How.
    checkpoint : Path, optional
        The file that a stopped run leaves.
    resume : bool
        Go on from `checkpoint`.
    perceptual : callable, optional
        Added to the squared error from the plan's step on; see `lpips_vgg`.
    watch : callable
        Gets each step's entry.

    Returns
    -------
    list of dict
        One entry a step: step, loss, psnr, gradient_norm, skipped.

    Raises
    ------
    InputError
        A checkpoint of other settings, or scenes with too few views.

    Examples
    --------
    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> model = make_view_model(ViewConfig(dim=16, layers=1, patch=4, head_dim=16, expand=1))
    >>> len(train_view_model(model, SphereViews(8), ViewPlan(steps=2, batch=2)))
    2
    """
    device = next(model.parameters()).device
    optimizer = _adamw(model, plan)
    settings = {
        **{name: value for name, value in asdict(plan).items() if name != "save_every"},
        "model": model.config.digest,
        "data": source.fingerprint,
    }
    history: list[dict[str, Any]] = []
    if resume and checkpoint is not None:
        history = load_checkpoint(checkpoint, model, optimizer, settings=settings)
    model.train()
    with stop_between_steps() as asked_to_stop:
        for step in range(len(history), plan.steps):
            for group in optimizer.param_groups:
                group["lr"] = plan.lr * plan.factor(step)
            images, cameras = source.batch(plan.batch, plan.inputs + plan.targets, seed=_seed_of(plan.seed, step))
            loss_of = perceptual if step >= plan.perceptual_from else None
            entry = _one_step(model, optimizer, images.to(device), cameras.to(device), plan, step, loss_of)
            history.append({"step": step + 1, **entry})
            watch(history[-1])
            due = plan.save_every and (step + 1) % plan.save_every == 0 and step + 1 < plan.steps
            if checkpoint is not None and (due or asked_to_stop()):
                save_checkpoint(checkpoint, model, optimizer, history=history, settings=settings)
            if asked_to_stop():
                raise KeyboardInterrupt
    model.eval()
    return history


def _one_step(
    model: ViewSynthesis,
    optimizer: torch.optim.Optimizer,
    images: Tensor,
    cameras: Cameras,
    plan: ViewPlan,
    step: int,
    perceptual: Callable[[Tensor, Tensor], Tensor] | None,
) -> dict[str, Any]:
    known, asked = slice(0, plan.inputs), slice(plan.inputs, None)
    rendered = model(images[:, known], cameras.views(known), cameras.views(asked))
    error = (rendered - images[:, asked]).square().mean()
    loss = error
    if perceptual is not None:
        loss = loss + perceptual(rendered.flatten(0, 1), images[:, asked].flatten(0, 1))
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    clips = plan.clip > 0 and step >= plan.clip_from
    norm = float(nn.utils.clip_grad_norm_(model.parameters(), plan.clip if clips else math.inf))
    skipped = not math.isfinite(norm) or (step >= plan.clip_from and norm > plan.skip_above)
    if not skipped:
        optimizer.step()
    value = float(error.detach())
    return {
        "loss": float(loss.detach()),
        "psnr": -10 * math.log10(max(value, 1e-12)),
        "gradient_norm": norm,
        "skipped": skipped,
    }


def _adamw(model: nn.Module, plan: ViewPlan) -> torch.optim.AdamW:
    matrices = [parameter for parameter in model.parameters() if parameter.ndim >= 2]
    vectors = [parameter for parameter in model.parameters() if parameter.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": plan.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=plan.lr, betas=(0.9, 0.95), fused=True)


def _seed_of(seed: int, step: int) -> int:
    """A seed for each step of each run; runs with neighbouring seeds share no scene."""
    return (seed << 20) + step


@torch.no_grad()
def evaluate_views(
    model: ViewSynthesis, images: Tensor, cameras: Cameras, *, targets: int, counts: Sequence[int] = INPUT_COUNTS
) -> dict[str, float]:
    """PSNR by the number of input views, always on the same scenes and the same targets.

    Parameters
    ----------
    model : ViewSynthesis
        The model.
    images : Tensor
        Shape (scenes, views, 3, height, width); the last `targets` views are rendered, inputs are taken from the first.
    cameras : Cameras
        Shape (scenes, views).
    targets : int
        Views to be rendered.
    counts : sequence of int
        Numbers of input views; those beyond what there is are left out.

    Returns
    -------
    dict
        ``psnr_1`` and so on, means over scenes, in decibels; ``wrong_scene_1`` and so on for a memory that has read the
        next scene of the batch instead (where there are two scenes).

    Raises
    ------
    InputError
        No view is left for input.

    Examples
    --------
    >>> import torch
    >>> model = make_view_model(ViewConfig(dim=16, layers=1, patch=4, head_dim=16, memory="none"))
    >>> images, cameras = SphereViews(8).batch(2, 3, seed=0)
    >>> sorted(evaluate_views(model, images, cameras, targets=1))
    ['psnr_1', 'psnr_2', 'wrong_scene_1', 'wrong_scene_2']
    """
    free = images.shape[1] - targets
    if targets < 1 or free < 1:
        raise InputError(f"targets is {targets} of {images.shape[1]} views", expected="some, and some for input")
    wanted = images[:, free:]
    asked = cameras.views(slice(free, None))
    found: dict[str, float] = {}
    for count in counts:
        if count > free:
            continue
        state = model.reconstruct(images[:, :count], cameras.views(slice(0, count)))
        found[f"psnr_{count}"] = float(psnr(model.render(state, asked), wanted).mean())
        if len(images) > 1:
            other = state.map(lambda tensor: tensor.roll(1, 0))
            found[f"wrong_scene_{count}"] = float(psnr(model.render(other, asked), wanted).mean())
    return found


def train_views(
    arm: str,
    *,
    seed: int,
    steps: int = 600,
    config: ViewConfig = SMALL,
    plan: ViewPlan | None = None,
    source: ViewSource | None = None,
    scenes: int = 64,
    targets: int = 4,
) -> dict[str, float]:
    """Train one competitor on generated spheres and measure it on scenes that no training sees.

    Parameters
    ----------
    arm : str
        lact, lact-gd, lact-linear, full, perceiver or none.
    seed : int
        Of the initial weights, the training scenes and the measured scenes; arms with one seed share all scenes.
    steps : int
        Of training.
    config : ViewConfig
        Sizes, in which the arm changes what sets it apart.
    plan : ViewPlan, optional
        How it is trained, but for `steps` and `seed`.
    source : ViewSource, optional
        Scenes; spheres of 16 x 16 pixels when left out.
    scenes, targets : int
        Measured scenes, and views of each.

    Returns
    -------
    dict
        As `evaluate_views`; ``constant``, the PSNR of the measured scenes' mean colour, which no scene-blind constant
        exceeds; ``train_psnr`` of the last tenth of the steps; ``seconds`` and ``step_seconds``; ``parameters``.

    Raises
    ------
    InputError
        The arm is unknown.

    Examples
    --------
    >>> found = train_views("none", seed=0, steps=2, config=ViewConfig(16, 1, 4, 16), scenes=4)
    >>> found["psnr_1"] == found["wrong_scene_1"]
    True
    """
    if arm not in VIEW_ARMS:
        raise InputError(f"arm is {arm!r}", expected=f"one of: {', '.join(VIEW_ARMS)}")
    torch.manual_seed(seed)
    model = make_view_model(replace(config, **VIEW_ARMS[arm]))
    source = source or SphereViews()
    start = time.perf_counter()
    history = train_view_model(model, source, replace(plan or ViewPlan(), steps=steps, seed=seed))
    seconds = time.perf_counter() - start
    images, cameras = source.batch(scenes, max(INPUT_COUNTS) + targets, seed=HELD_OUT + seed)
    found = evaluate_views(model, images, cameras, targets=targets)
    wanted = images[:, -targets:]
    constant = wanted.mean((0, 1, 3, 4), keepdim=True).expand_as(wanted)
    last = history[-max(1, steps // 10) :]
    return found | {
        "constant": float(psnr(constant, wanted).mean()),
        "train_psnr": sum(entry["psnr"] for entry in last) / len(last),
        "seconds": seconds,
        "step_seconds": seconds / steps,
        "parameters": float(sum(parameter.numel() for parameter in model.parameters())),
    }


@torch.no_grad()
def measure_view_costs(
    arm: str, *, views: int, size: int = 32, config: ViewConfig = SMALL, repeats: int = 3, seed: int = 0
) -> dict[str, float]:
    """What reading input views and rendering one view from them cost.

    Parameters
    ----------
    arm : str
        As for `train_views`.
    views : int
        Input views of the one scene.
    size : int
        Height and width of the images.
    config : ViewConfig
        Sizes.
    repeats : int
        Runs, of which the fastest counts.
    seed : int
        Of the weights and the scene.

    Returns
    -------
    dict
        ``prefill_seconds``, ``render_seconds``, ``state_bytes``, ``tokens``.

    Raises
    ------
    InputError
        The arm is unknown.

    Examples
    --------
    >>> small = ViewConfig(dim=16, layers=1, patch=4, head_dim=16)
    >>> one, two = (measure_view_costs("lact", views=n, size=8, config=small, repeats=1) for n in (1, 2))
    >>> one["state_bytes"] == two["state_bytes"]
    True
    """
    if arm not in VIEW_ARMS:
        raise InputError(f"arm is {arm!r}", expected=f"one of: {', '.join(VIEW_ARMS)}")
    torch.manual_seed(seed)
    model = make_view_model(replace(config, **VIEW_ARMS[arm])).eval()
    images, cameras = SphereViews(size).batch(1, views + 1, seed=seed)
    known, asked = slice(0, views), cameras.views(slice(views, None))
    prefill, render = math.inf, math.inf
    for _ in range(repeats):
        start = time.perf_counter()
        state = model.reconstruct(images[:, known], cameras.views(known))
        middle = time.perf_counter()
        model.render(state, asked)
        prefill, render = min(prefill, middle - start), min(render, time.perf_counter() - middle)
    return {
        "prefill_seconds": prefill,
        "render_seconds": render,
        "state_bytes": float(state.nbytes),
        "tokens": float(views * (size // config.patch) ** 2),
    }
