"""Read posed images of a scene into a memory file, open it elsewhere, and look at the scene from around it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

from assay.lact import LaCTState, load_view_model, make_view_model, read_posed_images, save_view_model, turntable
from assay.lact.cameras import Cameras, write_posed_images
from assay.lact.metrics import psnr
from assay.lact.pictures import write_turntable
from assay.lact.view_training import SphereViews, ViewPlan, train_view_model
from assay.lact.views import ViewConfig


def batch_of_one(cameras: Cameras) -> Cameras:
    return Cameras(cameras.c2w[None], cameras.intrinsics[None], cameras.height, cameras.width)


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = make_view_model(ViewConfig(dim=32, layers=2, patch=4, head_dim=32, expand=1.0, init_std=0.125))
    plan = ViewPlan(steps=30, batch=4, lr=5e-3)
    history = train_view_model(model, SphereViews(16), plan)
    print(f"trained for {len(history)} steps, which is far too few for sharp pictures: {history[-1]['psnr']:.1f} dB")

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        save_view_model(model, folder / "model", size=(16, 16))
        images, cameras = SphereViews(16).batch(1, 8, seed=12345)
        write_posed_images(folder / "scene", images[0], cameras.scenes(0))

        posed = read_posed_images(folder / "scene")
        inputs, asked = posed.views(range(6)), posed.views([6, 7])
        with torch.no_grad():
            state = model.reconstruct(inputs.images[None], batch_of_one(inputs.cameras))
        state.save(folder / "scene.safetensors")
        print(f"{len(inputs.names)} images are now {state.nbytes:,} bytes, as many as any other number would be")

        again = load_view_model(folder / "model").model
        kept = LaCTState.load(folder / "scene.safetensors", config=again.config.digest)
        with torch.no_grad():
            rendered = again.render(kept, batch_of_one(asked.cameras))
            around = again.render(kept, batch_of_one(turntable(inputs.cameras, 12)))
        print(f"two views that it hasn't read: {float(psnr(rendered, asked.images[None])[0]):.1f} dB PSNR")
        write_turntable(list(around[0]), folder / "round.gif", fps=12)
        print(f"a turntable of {around.shape[1]} frames in {(folder / 'round.gif').stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
