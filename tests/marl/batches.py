"""Random batches of episodes for tests: of different lengths, padded with what must not matter."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.marl.spec import EnvSpec

SPEC = EnvSpec(n_agents=2, n_actions=3, obs_size=4, state_size=5, horizon=6)


def random_batch(
    spec: EnvSpec = SPEC, *, lengths: tuple[int, ...] = (6, 3, 1), steps: int = 6, seed: int = 0, dtype: torch.dtype
) -> dict[str, Tensor]:
    """Episodes that end in turn truly and at a time limit; some actions are not available."""
    g = torch.Generator().manual_seed(seed)
    size, n, actions = len(lengths), spec.n_agents, spec.n_actions
    avail = torch.rand(size, steps + 1, n, actions, generator=g) < 0.7
    avail[..., 0] = True
    filled = torch.zeros(size, steps)
    terminated = torch.zeros(size, steps)
    for row, length in enumerate(lengths):
        filled[row, :length] = 1
        terminated[row, length - 1] = row % 2
    scores = torch.rand(size, steps, n, actions, generator=g).masked_fill(~avail[:, :-1], -1)
    real = torch.cat([filled, torch.zeros(size, 1)], 1)
    real[:, 1:] = torch.maximum(real[:, 1:], filled)
    batch = {
        "obs": torch.randn(size, steps + 1, n, spec.obs_size, generator=g, dtype=dtype) * real[..., None, None],
        "state": torch.randn(size, steps + 1, spec.state_size, generator=g, dtype=dtype) * real[..., None],
        "actions": scores.argmax(-1) * filled[..., None].long(),
        "avail": avail & (real[..., None, None] > 0),
        "reward": torch.randn(size, steps, generator=g, dtype=dtype) * 3 * filled,
        "terminated": terminated,
        "filled": filled,
    }
    return batch


def rows(batch: dict[str, Tensor], keep: slice | list[int], *, steps: int | None = None) -> dict[str, Tensor]:
    """Some episodes of a batch, cut to `steps`."""
    cut = {}
    for name, value in batch.items():
        extra = 1 if name in ("obs", "state", "avail") else 0
        cut[name] = value[keep] if steps is None else value[keep][:, : steps + extra]
    return cut
