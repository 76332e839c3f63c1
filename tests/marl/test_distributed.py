"""Two processes with half of the episodes each learn what one does with all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from assay.marl.losses import S2QLoss
from tests.marl.batches import SPEC, random_batch

SCRIPT = Path(__file__).with_name("two_processes.py")


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")
def test_two_processes_equal_one(tmp_path: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, SCRIPT, str(rank), tmp_path / "store"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    ended = [process.communicate(timeout=200) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], ended[0][1] + ended[1][1]
    loss = S2QLoss(SPEC, K=1, hidden=8, critic_width=8, seed=0).double()
    optimizer = torch.optim.SGD([p for p in loss.parameters() if p.requires_grad], lr=0.05)
    batch = random_batch(lengths=(6, 3, 3, 6), dtype=torch.float64)
    for _ in range(3):
        optimizer.zero_grad()
        loss(**batch)["loss"].backward()
        optimizer.step()
    alone = [float(p.detach().sum()) for p in loss.parameters()]
    for said, _ in ended:
        np.testing.assert_allclose([float(word) for word in said.split()], alone, atol=1e-9)
