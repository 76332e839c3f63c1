"""The commands for posed images: ``assay lact train-nvs``, ``reconstruct`` and ``render``, which ``jobs.py`` mounts."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from cyclopts import Group, Parameter

from assay.core.errors import InputError
from assay.core.jobs import (
    Flag,
    Reporting,
    WholeNumber,
    naming,
    naming_options,
    print_summary,
    require_other_file,
    stop_that_says,
    warnings_in_one_line,
)
from assay.lact.run_folder import check_folder, progress, write_lines, write_table

if TYPE_CHECKING:
    from torch import Tensor

    from assay.lact.cameras import Cameras
    from assay.lact.state import LaCTState
    from assay.lact.view_training import FolderViews, SphereViews
    from assay.lact.views import TrainedViews, ViewSynthesis

__all__ = ["reconstruct", "render", "train_nvs"]

Source: TypeAlias = Annotated[str, Parameter(allow_leading_hyphen=True)]
Model: TypeAlias = Annotated[str, Parameter(alias="-m", allow_leading_hyphen=True)]
Out: TypeAlias = Annotated[str, Parameter(alias="-o", allow_leading_hyphen=True)]

SPHERES = "spheres"
SCENE_KIND = "assay.lact scene 1"
"""What a scene's file says it is; another number means other contents."""
METRICS, TABLE, SHEET, SAMPLE, RENDERED_FROM = "metrics.jsonl", "psnr.csv", "contact.png", "scene", "render.json"
SHEET_ROWS = 8
MEASURED_SCENES, MEASURED_TARGETS = 32, 4
HELD_OUT_SHARE = 10
"""One scene in so many is held out of training."""


@Parameter(name="*", group=Group("Learning", sort_key=2))
@dataclass(frozen=True)
class Learning:
    """How the model learns.

    Parameters
    ----------
    steps
        How many steps.
    batch
        Scenes of a step.
    inputs
        Input views of a scene.
    targets
        Views of a scene that are to be rendered.
    lr
        AdamW's learning rate at its highest.
    weight_decay
        Decoupled weight decay of the matrices.
    warmup
        Steps in which the learning rate rises; then it falls as a cosine to nothing.
    clip_from
        The step from which gradients are clipped to the norm 1 and steps with a norm above 4 are skipped.
    lpips_from
        The step from which the perceptual loss LPIPS is added (needs the package lpips); never when left out.
    save_every
        Steps between checkpoints; 0 for none but that of a stopped run.
    """

    steps: WholeNumber = 600
    batch: WholeNumber = 8
    inputs: WholeNumber = 4
    targets: WholeNumber = 4
    lr: float = 3e-3
    weight_decay: float = 0.05
    warmup: WholeNumber = 40
    clip_from: WholeNumber = 1000
    lpips_from: WholeNumber | None = None
    save_every: WholeNumber = 0


@Parameter(name="*", group=Group("The model", sort_key=2))
@dataclass(frozen=True)
class Sizes:
    """The model.

    Parameters
    ----------
    memory
        lact: fast weights. Or to compare with: full (attention over all input tokens), perceiver, none.
    rule
        The memory's step: muon, gd, momentum or muon_momentum.
    patch
        Pixels of a patch's side.
    width
        Size of the model's hidden state.
    layers
        Its blocks.
    head_dim
        Width of an attention head.
    fast_heads
        Heads of the memory.
    expand
        Hidden units of the memory over its keys' width.
    registers
        Of the Perceiver.
    init_std
        Standard deviation of the initial weights; the published models, which are twelve times as wide, have 0.02.
    """

    memory: Literal["lact", "full", "perceiver", "none"] = "lact"
    rule: Literal["muon", "gd", "momentum", "muon_momentum"] = "muon"
    patch: WholeNumber = 4
    width: WholeNumber = 64
    layers: WholeNumber = 2
    head_dim: WholeNumber = 64
    fast_heads: WholeNumber = 1
    expand: float = 1.0
    registers: WholeNumber = 64
    init_std: float = 0.125


BY_DEFAULT, USUAL_SIZES, AS_USUAL = Learning(), Sizes(), Reporting()


def train_nvs(
    scenes: Source,
    /,
    *,
    out: Out,
    size: str | None = None,
    spheres: WholeNumber = 1,
    normalise: Flag = False,
    skip_unposed: Flag = False,
    seed: WholeNumber = 0,
    device: str = "auto",
    resume: Flag = False,
    learning: Learning = BY_DEFAULT,
    sizes: Sizes = USUAL_SIZES,
    reporting: Reporting = AS_USUAL,
) -> None:
    """Train a model that reads posed images of a scene into its memory and renders new views from it.

    Reads a folder of scenes: each a folder of images with opencv_cameras.json (w, h, fx, fy, cx, cy, w2c, file_path) or
    NeRF's transforms.json. One scene in ten is held out. The word spheres stands for generated scenes, of which one
    that no training saw is written too, as a folder to try the other commands on.

    Example: ``assay lact train-nvs spheres --steps 600 -o views``

    Parameters
    ----------
    scenes
        The folder, or spheres.
    out
        The folder to write: model.safetensors, config.json, metrics.jsonl, psnr.csv (by the number of input views) and
        contact.png (target, rendered, error). A stopped run leaves checkpoint.safetensors, from which --resume goes on.
    size
        HEIGHTxWIDTH to which images are scaled and cropped; as they are when left out, and 16x16 for spheres.
    spheres
        Spheres of a generated scene.
    normalise
        Bring the poses of each scene into the frame of its mean camera.
    skip_unposed
        Leave out images that have no camera.
    seed
        Of the initial weights and the order of the scenes.
    device
        auto, cpu, cuda or cuda:N.
    resume
        Go on from the checkpoint of a stopped run with the same settings.
    """
    import torch

    from assay.core.device import resolve_device
    from assay.lact.checkpoints import CHECKPOINT
    from assay.lact.metrics import lpips_vgg
    from assay.lact.view_training import ViewPlan, train_view_model
    from assay.lact.views import ViewConfig, make_view_model, save_view_model

    _require_learning(learning, seed=seed, init_std=sizes.init_std)
    shape = _size_of(size)
    place = resolve_device(device)
    folder = check_folder(out, marker=CHECKPOINT, resume=resume, force=reporting.force)
    plan = ViewPlan(
        steps=learning.steps,
        batch=learning.batch,
        inputs=learning.inputs,
        targets=learning.targets,
        lr=learning.lr,
        weight_decay=learning.weight_decay,
        warmup=learning.warmup,
        clip_from=learning.clip_from,
        perceptual_from=learning.steps if learning.lpips_from is None else learning.lpips_from,
        seed=seed,
        save_every=learning.save_every,
    )
    perceptual = None if learning.lpips_from is None else lpips_vgg()
    with naming_options({"dim": "--width", "memory": "--memory", "registers": "--registers", "layers": "--layers"}):
        config = ViewConfig(
            dim=sizes.width,
            layers=sizes.layers,
            patch=sizes.patch,
            head_dim=sizes.head_dim,
            fast_heads=sizes.fast_heads,
            expand=sizes.expand,
            rule=sizes.rule,
            memory=sizes.memory,
            registers=sizes.registers,
            init_std=sizes.init_std,
        )
        torch.manual_seed(seed)
        model = make_view_model(config).to(place)
    training, measured, held_out = _sources(
        scenes, shape, spheres=spheres, normalise=normalise, skip_unposed=skip_unposed
    )
    with naming(scenes):
        model.require_size(*training.size)
    _require_views(training, learning.inputs + learning.targets, scenes)
    folder.mkdir(exist_ok=True)
    way_on = f"stopped; {folder / CHECKPOINT} holds the last step, and the same command with --resume goes on"
    with (
        warnings_in_one_line(reporting),
        progress(learning.steps, reporting) as advance,
        stop_that_says(way_on),
    ):
        history = train_view_model(
            model,
            training,
            plan,
            checkpoint=folder / CHECKPOINT,
            resume=resume,
            perceptual=perceptual,
            watch=lambda entry: advance(entry["step"], f"PSNR {entry['psnr']:.2f} dB"),
        )
    save_view_model(model, folder, size=training.size, normalise=normalise)
    rows = _measure(model, measured, inputs=learning.inputs, folder=folder)
    write_lines(folder / METRICS, history)
    if scenes == SPHERES:
        _write_sample(measured, folder / SAMPLE)
    (folder / CHECKPOINT).unlink(missing_ok=True)
    last = history[-max(1, len(history) // 10) :]
    summary = {
        "steps": len(history),
        "skipped": sum(entry["skipped"] for entry in history),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "memory": sizes.memory,
        "train_psnr": sum(entry["psnr"] for entry in last) / len(last),
        "held_out_scenes": held_out,
        "psnr": rows,
        "output": out,
    }
    print_summary(summary, _training_lines(summary, learning), reporting=reporting, out=out)


def reconstruct(
    views: Source,
    /,
    *,
    model: Model,
    out: Out,
    count: WholeNumber | None = None,
    hold_out: WholeNumber = 0,
    size: str | None = None,
    normalise: bool | None = None,
    skip_unposed: Flag = False,
    device: str = "auto",
    reporting: Reporting = AS_USUAL,
) -> None:
    """Read posed images of a scene into a memory file, from which assay lact render shows it.

    With fast weights the file's size doesn't depend on the number of images.

    Example: ``assay lact reconstruct views/scene --model views -o scene.safetensors``

    Parameters
    ----------
    views
        A folder of images with opencv_cameras.json or NeRF's transforms.json.
    model
        A folder of assay lact train-nvs, or a published .pt file of view-synthesis weights.
    out
        The .safetensors file to write.
    count
        How many images to read, chosen so that their cameras cover the scene; all when left out.
    hold_out
        Every so-manieth image is not read, so that renderings can be compared with it; 0 for none.
    size
        HEIGHTxWIDTH to which images are scaled and cropped; as the model was trained when left out.
    normalise
        Bring the poses into the frame of the mean camera; as the model was trained when left out.
    skip_unposed
        Leave out images that have no camera.
    device
        auto, cpu, cuda or cuda:N.
    """
    import time

    import torch

    from assay.core.device import resolve_device
    from assay.core.files import check_output
    from assay.lact.cameras import choose_views, mean_camera_frame, read_posed_images
    from assay.lact.views import load_view_model

    if not out.lower().endswith(".safetensors"):
        raise InputError(f"unknown ending '{Path(out).suffix}'", file=out, expected="a name that ends in .safetensors")
    check_output(out, force=reporting.force)
    _require_at_least(0, hold_out=hold_out)
    _require_at_least(1, **({} if count is None else {"count": count}))
    if hold_out == 1:
        raise InputError("--hold-out is 1", expected="0, or at least 2: every image would be held out")
    place = resolve_device(device)
    trained = load_view_model(model)
    posed = read_posed_images(views, size=_size_of(size) or trained.size, skip_unposed=skip_unposed)
    kept = [number for number in range(len(posed.names)) if not hold_out or (number + 1) % hold_out]
    if count is not None:
        kept = [kept[number] for number in choose_views(posed.cameras.views(kept), count)]
    chosen = posed.views(kept)
    aligned = trained.normalise if normalise is None else normalise
    with naming(views):
        frame = mean_camera_frame(chosen.cameras) if aligned else None
        cameras = frame.apply(chosen.cameras) if frame else chosen.cameras
        start = time.perf_counter()
        with torch.no_grad():
            state = trained.model.to(place).reconstruct(chosen.images[None].to(place), _batched(cameras, place))
        seconds = time.perf_counter() - start
    note = {
        "kind": SCENE_KIND,
        "model": str(Path(model).resolve()),
        "weights": _fingerprint(trained.model),
        "inputs": json.dumps(list(chosen.names)),
        "folder": str(Path(views).resolve()),
        "frame": json.dumps(None if frame is None else {"from_world": frame.from_world.tolist(), "scale": frame.scale}),
        "cameras": json.dumps(
            {
                "c2w": chosen.cameras.c2w.tolist(),
                "intrinsics": chosen.cameras.intrinsics.tolist(),
                "size": [chosen.cameras.height, chosen.cameras.width],
            }
        ),
    }
    state.save(out, force=reporting.force, note=note)
    summary = {
        "views": len(chosen.names),
        "inputs": list(chosen.names),
        "held_out": [name for name in posed.names if name not in chosen.names],
        "height": chosen.cameras.height,
        "width": chosen.cameras.width,
        "state_bytes": state.nbytes,
        "seconds": seconds,
        "output": out,
    }
    lines = [
        f"read         {len(chosen.names)} of {len(posed.names)} views of {chosen.cameras.height} x "
        f"{chosen.cameras.width} pixels",
        f"memory       {state.nbytes:,} bytes in {seconds:.2f} s",
    ]
    print_summary(summary, lines, reporting=reporting, out=out)


def render(
    scene: Source,
    /,
    *,
    turntable: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    frames: WholeNumber = 24,
    fps: float = 12.0,
    cameras: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    out: Annotated[str | None, Parameter(alias="-o", allow_leading_hyphen=True)] = None,
    model: Annotated[str | None, Parameter(alias="-m", allow_leading_hyphen=True)] = None,
    skip_unposed: Flag = False,
    device: str = "auto",
    resume: Flag = False,
    reporting: Reporting = AS_USUAL,
) -> None:
    """Show a scene that assay lact reconstruct has read: from cameras around it, or from those of a folder.

    With --cameras, each view is written as a PNG as soon as it is rendered, and compared with the folder's image in
    contact.png (target, rendered, error) and psnr.csv, input views apart from others.

    Example: ``assay lact render scene.safetensors --turntable round.gif``

    Parameters
    ----------
    scene
        The file of assay lact reconstruct.
    turntable
        A .gif or .mp4 file, or a .png with all frames, for a walk around the scene. A stopped run leaves the frames
        that it has.
    frames
        Frames of the turntable.
    fps
        Its frames a second.
    cameras
        A folder of images with their file of cameras, whose views are rendered.
    out
        The folder for these renderings.
    model
        The model, if it has moved since.
    skip_unposed
        Leave out images that have no camera.
    device
        auto, cpu, cuda or cuda:N.
    resume
        Render only the views that a stopped run left out.
    """
    from assay.core.device import resolve_device
    from assay.core.files import check_output
    from assay.lact.pictures import check_turntable

    if turntable is None and cameras is None:
        raise InputError("neither --turntable nor --cameras is given", expected="what to render")
    if (cameras is None) != (out is None):
        raise InputError(f"--{'out' if out else 'cameras'} alone", expected="--cameras and --out together")
    _require_at_least(1, frames=frames)
    if not 0 < fps < math.inf:
        raise InputError(f"--fps is {fps}", expected="a number above 0")
    place = resolve_device(device)
    if turntable is not None:
        check_turntable(turntable)
        check_output(turntable, force=reporting.force)
        require_other_file(turntable, scene)
    folder = None if out is None else check_folder(out, marker=RENDERED_FROM, resume=resume, force=reporting.force)
    stored = _load_scene(scene, model)
    synthesis = stored.trained.model.to(place)
    state = stored.state.to(place)
    summary: dict[str, Any] = {"scene": scene}
    lines: list[str] = []
    with warnings_in_one_line(reporting):
        if cameras is not None and folder is not None:
            found = _render_folder(stored, synthesis, state, cameras, folder, skip_unposed, reporting)
            summary |= found
            lines += [
                f"{kind:12} {found[name]:.2f} dB PSNR over {found[f'{name}_views']} views"
                for kind, name in (("new views", "psnr_new"), ("input views", "psnr_input"))
                if found[f"{name}_views"]
            ]
        if turntable is not None:
            rendered = _render_turntable(stored, synthesis, state, turntable, frames, fps, reporting)
            summary |= {"turntable": turntable, "frames": rendered}
            lines.append(f"turntable    {rendered} frames in {turntable}")
    summary["output"] = out
    print_summary(summary, lines, reporting=reporting, out=out)


@dataclass(frozen=True)
class _Scene:
    """A scene's file and the model that wrote it."""

    state: LaCTState
    trained: TrainedViews
    cameras: Cameras
    inputs: tuple[str, ...]
    folder: str
    frame: Mapping[str, Any] | None
    digest: str


def _load_scene(scene: str, model: str | None) -> _Scene:
    import torch

    from assay.lact.cameras import Cameras
    from assay.lact.state import LaCTState
    from assay.lact.views import load_view_model

    state, note = LaCTState.load(scene), LaCTState.note_of(scene)
    if note.get("kind") != SCENE_KIND:
        raise InputError("holds no scene", file=scene, expected="a file of assay lact reconstruct")
    if model is None and not Path(note["model"]).exists():
        raise InputError(f"its model {note['model']} is gone", file=scene, expected="--model with the model's folder")
    trained = load_view_model(model or note["model"])
    with naming(scene):
        state.require(trained.model.config.digest)
    if _fingerprint(trained.model) != note["weights"]:
        raise InputError(
            "was reconstructed by a model with other weights", file=scene, expected=f"{note['model']} as it was then"
        )
    seen = json.loads(note["cameras"])
    cameras = Cameras(torch.tensor(seen["c2w"]), torch.tensor(seen["intrinsics"]), *seen["size"])
    digest = hashlib.sha256(json.dumps(note, sort_keys=True).encode()).hexdigest()
    return _Scene(
        state, trained, cameras, tuple(json.loads(note["inputs"])), note["folder"], json.loads(note["frame"]), digest
    )


def _render_folder(
    scene: _Scene,
    synthesis: ViewSynthesis,
    state: LaCTState,
    views: str,
    folder: Path,
    skip_unposed: bool,
    reporting: Reporting,
) -> dict[str, Any]:
    import torch

    from assay.core.files import atomic_path, write_text
    from assay.lact.cameras import as_picture, read_posed_images
    from assay.lact.metrics import WINDOW, psnr, ssim
    from assay.lact.pictures import contact_sheet

    posed = read_posed_images(views, size=(scene.cameras.height, scene.cameras.width), skip_unposed=skip_unposed)
    names = _png_names(posed.names, views)
    origin = {"scene": scene.digest, "views": names}
    marker = folder / RENDERED_FROM
    if marker.is_file() and not reporting.force and json.loads(marker.read_text(encoding="utf-8")) != origin:
        raise InputError("is of another scene or other cameras", file=marker, expected="those of the stopped run")
    fresh = reporting.force or not marker.is_file()
    folder.mkdir(exist_ok=True)
    write_text(marker, json.dumps(origin), force=True)
    rendered: list[Tensor] = []
    done = 0
    with progress(len(names), reporting) as advance:
        try:
            for number, name in enumerate(names):
                file = folder / name
                image = None if fresh else _already(file, posed.images[number])
                if image is None:
                    image = _render_one(scene, synthesis, state, posed.cameras.views([number]))
                    with atomic_path(file, force=True) as temporary:
                        as_picture(image).save(temporary)
                rendered.append(image)
                done += 1
                advance(done, name)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"stopped; {folder} holds {done} of {len(names)} views, and the same command with --resume goes on"
            ) from None
    images = torch.stack(rendered)
    own = Path(views).resolve() == Path(scene.folder)
    large = min(images.shape[-2:]) >= WINDOW
    rows: list[dict[str, Any]] = [
        {
            "view": name,
            "input": own and name in scene.inputs,
            "psnr": float(psnr(one[None], target[None])),
            "ssim": float(ssim(one[None], target[None])) if large else None,
        }
        for name, one, target in zip(posed.names, images, posed.images, strict=True)
    ]
    write_table(rows, str(folder / TABLE), force=True)
    shown = sorted(range(len(rows)), key=lambda number: bool(rows[number]["input"]))[:SHEET_ROWS]
    with atomic_path(folder / SHEET, force=True) as temporary:
        contact_sheet(posed.images[shown], images[shown]).save(temporary)
    marker.unlink()
    found: dict[str, Any] = {"views": rows}
    for kind, wanted in (("new", False), ("input", True)):
        values = [float(row["psnr"]) for row in rows if row["input"] is wanted]
        found[f"psnr_{kind}"] = sum(values) / len(values) if values else None
        found[f"psnr_{kind}_views"] = len(values)
    return found


def _render_turntable(
    scene: _Scene,
    synthesis: ViewSynthesis,
    state: LaCTState,
    out: str,
    frames: int,
    fps: float,
    reporting: Reporting,
) -> int:
    from assay.lact.cameras import turntable
    from assay.lact.pictures import write_turntable

    circle = turntable(scene.cameras, frames)
    images: list[Tensor] = []
    with progress(frames, reporting) as advance:
        try:
            for number in range(frames):
                images.append(_render_one(scene, synthesis, state, circle.views([number])))
                advance(number + 1, "turntable")
        except KeyboardInterrupt:
            if not images:
                raise KeyboardInterrupt("stopped; nothing was written") from None
            write_turntable(images, out, fps=fps, force=reporting.force)
            raise KeyboardInterrupt(f"stopped; {out} holds the first {len(images)} of {frames} frames") from None
    write_turntable(images, out, fps=fps, force=reporting.force)
    return len(images)


def _render_one(scene: _Scene, synthesis: ViewSynthesis, state: LaCTState, camera: Cameras) -> Tensor:
    """One view in the coordinates of the world, as colours of shape (3, height, width) on the CPU."""
    import torch

    from assay.lact.cameras import PoseFrame

    if scene.frame is not None:
        camera = PoseFrame(torch.tensor(scene.frame["from_world"]), scene.frame["scale"]).apply(camera)
    with torch.no_grad():
        images = synthesis.render(state, _batched(camera, next(synthesis.parameters()).device))
    return images[0, 0].cpu()


def _already(file: Path, like: Tensor) -> Tensor | None:
    """A view that a stopped run has rendered; None when it hasn't, or not at this size."""
    from PIL import Image

    from assay.lact.cameras import as_colours

    if not file.is_file():
        return None
    try:
        with Image.open(file) as picture:
            image = as_colours(picture.convert("RGB"))
    except OSError:
        return None
    return image if image.shape == like.shape else None


def _png_names(names: Sequence[str], views: str) -> list[str]:
    """A file for each view, under its image's name."""
    found = [f"{Path(name).stem}.png" for name in names]
    if SHEET in found or len(set(found)) != len(found):
        raise InputError(
            "images share a name but for folder or ending, or one is called contact", file=views, expected="other names"
        )
    return found


def _batched(cameras: Cameras, place: Any) -> Cameras:
    from dataclasses import replace

    return replace(cameras, c2w=cameras.c2w[None], intrinsics=cameras.intrinsics[None]).to(place)


def _fingerprint(model: ViewSynthesis) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        digest.update(name.encode() + value.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _sources(
    scenes: str, shape: tuple[int, int] | None, *, spheres: int, normalise: bool, skip_unposed: bool
) -> tuple[SphereViews | FolderViews, SphereViews | FolderViews, int | None]:
    """Scenes for training, scenes for measuring, and how many of these were held out (None: all are new)."""
    from assay.lact.cameras import NERF_FILE, OPENCV_FILE, read_posed_images
    from assay.lact.view_training import FolderViews, SphereViews

    if scenes == SPHERES:
        if normalise:
            raise InputError("--normalise with spheres", expected="a folder of scenes")
        side = shape or (16, 16)
        if side[0] != side[1]:
            raise InputError(f"--size is {side[0]}x{side[1]}", expected="generated scenes to be square")
        _require_at_least(1, spheres=spheres)
        source = SphereViews(side[0], spheres=spheres)
        return source, source, None
    place = Path(scenes)
    if not place.is_dir():
        said = "is a file" if place.exists() else "no such folder"
        raise InputError(said, file=scenes, expected="a folder of scenes, or spheres")
    posed = [one for one in (place, *sorted(place.iterdir())) if one.is_dir() and _has_cameras(one)]
    if not posed:
        raise InputError("holds no scene", file=scenes, expected=f"folders with {OPENCV_FILE} or {NERF_FILE}")
    read = [read_posed_images(one, size=shape, skip_unposed=skip_unposed) for one in posed]
    held_out = max(1, len(read) // HELD_OUT_SHARE) if len(read) > 1 else 0
    with naming(scenes):
        measured = FolderViews(read[len(read) - held_out :] if held_out else read, normalise=normalise)
        return FolderViews(read[: len(read) - held_out], normalise=normalise), measured, held_out


def _has_cameras(folder: Path) -> bool:
    from assay.lact.cameras import NERF_FILE, OPENCV_FILE

    return any((folder / name).exists() for name in (OPENCV_FILE, NERF_FILE))


def _require_views(source: SphereViews | FolderViews, wanted: int, scenes: str) -> None:
    for scene in getattr(source, "scenes", ()):
        if len(scene.names) < wanted:
            raise InputError(
                f"a scene has {len(scene.names)} views (the first is {scene.names[0]})",
                file=scenes,
                expected=f"at least {wanted}: --inputs and --targets together",
            )


def _measure(
    model: ViewSynthesis, source: SphereViews | FolderViews, *, inputs: int, folder: Path
) -> list[dict[str, Any]]:
    """PSNR by the number of input views, as rows and as a file, with a contact sheet beside."""
    import torch

    from assay.core.files import atomic_path
    from assay.lact.pictures import contact_sheet
    from assay.lact.view_training import HELD_OUT, INPUT_COUNTS, FolderViews, evaluate_views

    smallest = min((len(scene.names) for scene in getattr(source, "scenes", ())), default=1 << 30)
    counts = sorted({*INPUT_COUNTS, inputs})
    targets = max(1, min(MEASURED_TARGETS, smallest - 1))
    counts = [count for count in counts if count + targets <= smallest]
    views = max(counts) + targets
    if isinstance(source, FolderViews):
        images, cameras = source.every_scene(views, seed=HELD_OUT)
    else:
        images, cameras = source.batch(MEASURED_SCENES, views, seed=HELD_OUT)
    place = next(model.parameters()).device
    images, cameras = images.to(place), cameras.to(place)
    found = evaluate_views(model, images, cameras, targets=targets, counts=counts)
    rows = [
        {"inputs": count, "psnr": found[f"psnr_{count}"], "psnr_wrong_scene": found.get(f"wrong_scene_{count}")}
        for count in counts
    ]
    write_table(rows, str(folder / TABLE), force=True)
    known, asked, few = slice(0, min(inputs, max(counts))), slice(max(counts), None), cameras.scenes(slice(0, 2))
    with torch.no_grad():
        rendered = model(images[:2, known], few.views(known), few.views(asked))
    with atomic_path(folder / SHEET, force=True) as temporary:
        contact_sheet(images[:2, asked].flatten(0, 1).cpu(), rendered.flatten(0, 1).cpu()).save(temporary)
    return rows


def _write_sample(source: SphereViews | FolderViews, folder: Path) -> None:
    from assay.lact.cameras import write_posed_images
    from assay.lact.view_training import HELD_OUT

    images, cameras = source.batch(1, 12, seed=HELD_OUT + 1)
    write_posed_images(folder, images[0], cameras.scenes(0))


def _training_lines(summary: Mapping[str, Any], learning: Learning) -> list[str]:
    measured = {None: "new scenes", 0: "the training scene"}.get(
        summary["held_out_scenes"], f"{summary['held_out_scenes']} held-out scenes"
    )
    lines = [
        f"model        {summary['parameters']:,} parameters, memory {summary['memory']}, {summary['steps']} steps",
        f"training     {summary['train_psnr']:.2f} dB PSNR with {learning.inputs} input views",
        f"measured on  {measured}",
        f"{'input views':>12} {'PSNR dB':>9} {'memory of another scene':>25}",
    ]
    for row in summary["psnr"]:
        wrong = "" if row["psnr_wrong_scene"] is None else f"{row['psnr_wrong_scene']:25.2f}"
        lines.append(f"{row['inputs']:12} {row['psnr']:9.2f} {wrong}")
    return lines


def _size_of(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    found = re.fullmatch(r"([1-9]\d{0,4})x([1-9]\d{0,4})", text.strip())
    if found is None:
        raise InputError(f"--size is '{text}'", expected="HEIGHTxWIDTH, such as 256x256")
    return int(found[1]), int(found[2])


def _require_learning(learning: Learning, *, seed: int, init_std: float) -> None:
    _require_at_least(1, steps=learning.steps, batch=learning.batch, inputs=learning.inputs, targets=learning.targets)
    _require_at_least(0, warmup=learning.warmup, clip_from=learning.clip_from, save_every=learning.save_every)
    if learning.lpips_from is not None:
        _require_at_least(0, lpips_from=learning.lpips_from)
    for name, value in (("lr", learning.lr), ("weight-decay", learning.weight_decay), ("init-std", init_std)):
        if not 0 <= value < math.inf:
            raise InputError(f"--{name} is {value}", expected="a number from 0 on")
    if not 0 <= seed < 1 << 20:
        raise InputError(f"--seed is {seed}", expected=f"a whole number from 0 to {(1 << 20) - 1}")


def _require_at_least(least: int, **values: int) -> None:
    for name, value in values.items():
        if value < least:
            raise InputError(f"--{name.replace('_', '-')} is {value}", expected=f"at least {least}")
