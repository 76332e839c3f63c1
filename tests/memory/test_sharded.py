"""A memory that is spread over two gloo processes gives the bits of one process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

WORKER = """
import sys
import numpy as np
import torch.distributed as dist
from assay.memory import DenseAssociativeMemory, ShardedMemory
from assay.memory.patterns import corrupt, random_patterns

rank, rendezvous = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
X = random_patterns(2001, 150, seed=7)
own = X[:900] if rank == 0 else X[900:]
for order, kind, erased in ((3, "krotov", 10), (4, "exact", 0), (3, "abbott", 0), (3, "rectified", 5)):
    cues = corrupt(X[880:930], flips=25, erasures=erased, rng=np.random.default_rng(0))
    spread = ShardedMemory(own, order, kind=kind).recall(cues)
    whole = DenseAssociativeMemory(order, kind).fit(X).recall(cues)
    for name in ("states", "sweeps", "converged", "cycle", "distance", "nearest"):
        assert np.array_equal(getattr(spread, name), getattr(whole, name)), (kind, name)
dist.destroy_process_group()
print("same")
"""


def test_two_processes_give_the_bits_of_one(tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    command = [sys.executable, "-W", "ignore", str(script)]
    workers = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "rendezvous")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for rank in range(2)
    ]
    answers = [worker.communicate(timeout=120) for worker in workers]
    assert [out.strip() for out, _ in answers] == ["same", "same"], answers
