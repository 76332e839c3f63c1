"""Two gloo processes equal one: tokens of a chunk divided, and heads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.lact.problems import RULES

SCRIPT = "tests.lact.two_processes"
SAID = (
    *(f"context-{rule}-{mode}" for rule in RULES for mode in ("shifted", "block", "full")),
    *(f"heads-{rule}" for rule in RULES),
    "exchange",
    "refused",
)


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")
def test_two_processes_equal_one(tmp_path: Path, root: Path) -> None:
    """Answers and gradients to 1e-10; one test, since two processes are started for it."""
    command = [sys.executable, "-m", SCRIPT]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "store")],
            cwd=root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    ended = [process.communicate(timeout=200) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], ended[0][1] + ended[1][1]
    said = dict(line.split(maxsplit=1) for line in ended[0][0].splitlines())
    assert {name: said.get(name) for name in SAID} == dict.fromkeys(SAID, "ok")
