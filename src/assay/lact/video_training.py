"""A small video diffusion model around the interleaved layer, trained on moving shapes and measured chunk by chunk.

The square is hidden for longer than the attention's window, so that what it looks like and where it is reaches the
later chunks through the memory alone. With the default sizes the first chunk after that repeats the first of all.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from assay.core.errors import InputError
from assay.lact.video import (
    InterleavedVideoLaCT,
    add_noise,
    interleaved,
    logit_normal_weight,
    moving_shapes,
    noise_chunks,
    shift_time,
    video_rope_tables,
)

__all__ = ["VideoPlan", "evaluate_video", "train_video"]

HELD_OUT = 1 << 40
"""Seeds from here on are for videos that no training sees."""
VIDEO_ARMS: Mapping[str, Mapping[str, Any]] = {
    "lact": {},
    "lact-muon": {"rule": "muon"},
    "swa": {"memory": False},
    "full": {"memory": False, "block_causal": True},
}
"""The competitors of a study, as what sets each apart in its layer."""
MEASURED_TIMES = (0.6, 0.8, 0.95)
"""Noise levels of a measurement: high ones, where the past says more than the noisy chunk itself."""
TIME_FREQUENCIES = 8
SMALLEST_TIME = 0.05
"""Velocities are computed as at this time where the noise is less: what is left of it would be divided by nearly 0."""


@dataclass(frozen=True)
class VideoPlan:
    """A small video model, its videos and its training.

    Attributes
    ----------
    size, patch : int
        Pixels of a frame's side and of a patch's.
    chunks, frames : int
        Chunks of a video, and frames of a chunk.
    hidden : tuple of int
        First hidden chunk, and the first that shows the square again.
    dim, layers, heads : int
        Width, blocks, attention heads.
    batch, steps : int
        Videos a step, and steps.
    lr, weight_decay : float
        AdamW's.
    warmup : int
        Steps in which the learning rate rises; it falls as a cosine to nothing after that.
    base_lr : float
        A token's rate in the memory before training.
    shift : float
        Of the times of training.
    """

    size: int = 8
    patch: int = 4
    chunks: int = 5
    frames: int = 4
    hidden: tuple[int, int] = (2, 4)
    dim: int = 64
    layers: int = 2
    heads: int = 2
    batch: int = 16
    steps: int = 300
    lr: float = 2e-3
    weight_decay: float = 0.01
    warmup: int = 20
    base_lr: float = 0.1
    shift: float = 3.0

    @property
    def chunk_tokens(self) -> int:
        """Tokens of a chunk."""
        return self.frames * (self.size // self.patch) ** 2

    def videos(self, count: int, *, seed: int) -> Tensor:
        """Videos by chance, as chunks of patches: (videos, chunks, tokens, channels)."""
        chance = torch.Generator().manual_seed(seed)
        hidden = range(self.hidden[0] * self.frames, self.hidden[1] * self.frames)
        video = moving_shapes(count, self.chunks * self.frames, size=self.size, hidden=hidden, generator=chance)
        cells = video.unflatten(3, (-1, self.patch)).unflatten(5, (-1, self.patch))  # (B, F, 3, h, p, w, p)
        patches = cells.permute(0, 1, 3, 5, 4, 6, 2).flatten(4).flatten(2, 3)  # (B, F, h w, p p 3)
        tokens: Tensor = patches.flatten(1, 2).unflatten(1, (self.chunks, self.chunk_tokens))
        return tokens


class _VideoModel(nn.Module):
    """Patches and their noise level in, velocities out; the host that the interleaved layer sits in.

    It guesses the clean patches, from which the velocity follows.
    """

    def __init__(self, plan: VideoPlan, arm: Mapping[str, Any]) -> None:
        super().__init__()
        channels, dim = 3 * plan.patch**2, plan.dim
        self.plan = plan
        self.embed = nn.Linear(channels + 2 * TIME_FREQUENCIES, dim)
        settings = {"base_lr": plan.base_lr, **arm}
        self.mixers = nn.ModuleList(InterleavedVideoLaCT(dim, plan.heads, **settings) for _ in range(plan.layers))
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.RMSNorm(dim), nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
            for _ in range(plan.layers)
        )
        self.norms = nn.ModuleList(nn.RMSNorm(dim) for _ in range(plan.layers))
        self.decode = nn.Sequential(nn.RMSNorm(dim), nn.Linear(dim, channels))

    def forward(self, noisy: Tensor, clean: Tensor, times: Tensor) -> Tensor:
        """Velocities of noisy chunks, (B, chunks, tokens, channels), at the times (B, chunks)."""
        plan = self.plan
        frequency = math.pi * 2.0 ** torch.arange(TIME_FREQUENCIES) / 4

        def with_time(patches: Tensor, at: Tensor) -> Tensor:
            angle = at[..., None] * frequency
            waves = torch.cat((angle.sin(), angle.cos()), dim=-1)[:, :, None].expand(*patches.shape[:3], -1)
            return torch.cat((patches, waves), dim=-1)

        sequence = interleaved(with_time(noisy, times)[:, :, None], with_time(clean, torch.zeros_like(times)))
        x = self.embed(sequence)
        rope = self._rope()
        for norm, mixer, mlp in zip(self.norms, self.mixers, self.mlps, strict=True):
            x = x + mixer(norm(x), rope, chunks=plan.chunks, chunk_size=plan.chunk_tokens)
            x = x + mlp(x)
        clean_again = self.decode(noise_chunks(x, plan.chunks, chunk_size=plan.chunk_tokens)[:, :, 0])
        found: Tensor = (noisy - clean_again) / times.clamp_min(SMALLEST_TIME)[..., None, None]
        return found

    def _rope(self) -> tuple[Tensor, Tensor]:
        plan = self.plan
        side = plan.size // plan.patch
        frames = torch.arange(plan.chunks * plan.frames).view(plan.chunks, 1, plan.frames)
        order = frames.expand(-1, 2, -1).flatten()[: -plan.frames]
        cosine, sine = video_rope_tables(order, side, side, plan.dim // plan.heads, base=100.0)
        return cosine.float(), sine.float()


def train_video(arm: str, *, seed: int, plan: VideoPlan | None = None, videos: int = 128) -> dict[str, float]:
    """Train one competitor on moving shapes, and measure it on videos that no training sees.

    Parameters
    ----------
    arm : str
        lact, lact-muon, swa (the window alone) or full (attention to all clean chunks before).
    seed : int
        Of the weights, the training videos and the measured videos; arms with one seed share all videos.
    plan : VideoPlan, optional
        Sizes and training.
    videos : int
        Measured videos.

    Returns
    -------
    dict
        As `evaluate_video`; ``train_loss`` of the last tenth of the steps; ``seconds``, ``parameters``.

    Raises
    ------
    InputError
        The arm is unknown.

    Examples
    --------
    >>> tiny = VideoPlan(size=4, chunks=3, frames=1, hidden=(1, 2), dim=16, layers=1, heads=1, batch=2, steps=2)
    >>> sorted(train_video("swa", seed=0, plan=tiny, videos=4))[:4]
    ['loss_0', 'loss_1', 'loss_2', 'loss_after']
    """
    if arm not in VIDEO_ARMS:
        raise InputError(f"arm is {arm!r}", expected=f"one of: {', '.join(VIDEO_ARMS)}")
    plan = plan or VideoPlan()
    torch.manual_seed(seed)
    model = _VideoModel(plan, VIDEO_ARMS[arm])
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=plan.lr, betas=(0.9, 0.95), weight_decay=plan.weight_decay, fused=True
    )
    chance = torch.Generator().manual_seed(HELD_OUT - 1 - seed)
    losses = []
    start = time.perf_counter()
    for step in range(plan.steps):
        rise = min(1.0, (step + 1) / max(1, plan.warmup))
        fall = 0.5 * (1 + math.cos(math.pi * max(0, step - plan.warmup) / max(1, plan.steps - plan.warmup)))
        for group in optimizer.param_groups:
            group["lr"] = plan.lr * rise * fall
        clean = plan.videos(plan.batch, seed=(seed << 20) + step)
        times = shift_time(torch.rand(clean.shape[:2], generator=chance), shift=plan.shift)
        noisy, velocity = add_noise(clean, torch.randn(clean.shape, generator=chance), times[..., None, None])
        error = (model(noisy, clean, times) - velocity).square().mean((2, 3))
        loss = (logit_normal_weight(times) * error).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
    last = losses[-max(1, plan.steps // 10) :]
    seconds = time.perf_counter() - start
    return evaluate_video(model, plan, videos=videos, seed=HELD_OUT + seed) | {
        "train_loss": sum(last) / len(last),
        "seconds": seconds,
        "parameters": float(sum(parameter.numel() for parameter in model.parameters())),
    }


@torch.no_grad()
def evaluate_video(model: nn.Module, plan: VideoPlan, *, videos: int, seed: int) -> dict[str, float]:
    """The denoising loss of each chunk at high noise levels, on videos and noise that the seed fixes.

    Parameters
    ----------
    model : Module
        Takes noisy chunks, clean chunks and times, and gives velocities.
    plan : VideoPlan
        Sizes.
    videos : int
        How many.
    seed : int
        Of the videos and the noise.

    Returns
    -------
    dict
        ``loss_0`` and so on, the squared error of the velocity by chunk; ``loss_after``, that of the first chunk after
        the square was hidden; ``loss_before``, that of the last chunk before it.

    Examples
    --------
    >>> import torch
    >>> tiny = VideoPlan(size=4, chunks=3, frames=1, hidden=(1, 2))
    >>> class Blind(torch.nn.Module):
    ...     def forward(self, noisy, clean, times):
    ...         return torch.zeros_like(noisy)
    >>> evaluate_video(Blind(), tiny, videos=64, seed=0)["loss_0"] > 1
    True
    """
    clean = plan.videos(videos, seed=seed)
    noise = torch.randn(clean.shape, generator=torch.Generator().manual_seed(seed))
    losses = torch.zeros(plan.chunks)
    for level in MEASURED_TIMES:
        times = torch.full(clean.shape[:2], level)
        noisy, velocity = add_noise(clean, noise, times[..., None, None])
        losses += F.mse_loss(model(noisy, clean, times), velocity, reduction="none").mean((0, 2, 3))
    by_chunk = (losses / len(MEASURED_TIMES)).tolist()
    return {f"loss_{number}": value for number, value in enumerate(by_chunk)} | {
        "loss_before": by_chunk[plan.hidden[0] - 1],
        "loss_after": by_chunk[plan.hidden[1]],
    }
