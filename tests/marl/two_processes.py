"""One of two processes that train together: python two_processes.py RANK STORE."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parents[2]))

from assay.marl.losses import S2QLoss
from tests.marl.batches import SPEC, random_batch, rows


def main(rank: int, store: str) -> None:
    """Half of the episodes each, as many steps in both halves; the weights after three steps are printed."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    loss = S2QLoss(SPEC, K=1, hidden=8, critic_width=8, seed=0).double()
    together = DistributedDataParallel(loss)
    optimizer = torch.optim.SGD([p for p in loss.parameters() if p.requires_grad], lr=0.05)
    batch = random_batch(lengths=(6, 3, 3, 6), dtype=torch.float64)
    for _ in range(3):
        optimizer.zero_grad()
        together(**rows(batch, [0, 1] if rank == 0 else [2, 3]))["loss"].backward()
        optimizer.step()
    print(*(f"{float(p.detach().sum()):.12f}" for p in loss.parameters()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
