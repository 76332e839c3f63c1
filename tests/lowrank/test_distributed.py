"""Two gloo processes equal one: FSDP2 with its rows divided, DDP, and ZeRO-1."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from assay.lowrank.sharding import owners

SCRIPT = Path(__file__).with_name("two_processes.py")


FSDP = ("adamw", "adamw8", "adamw-ordered", "adamw-left", "trion", "galore", "frugal", "fira", "svd-left")
MODES = (
    *(f"fsdp-{name}" for name in FSDP),
    *(f"ddp-{name}" for name in ("galore", "frugal", "fira")),
    *(f"ddp-{name}-{mode}" for name in ("adamw", "trion") for mode in ("None", "zero1")),
)


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")
def test_two_processes_equal_one_to_1e_5(tmp_path):
    """Uneven rows, a parameter with fewer rows than processes; under FSDP2 saved and loaded on the way.

    One test, since two processes are started for it: owners hold a part of the state each, the references refuse
    divided parameters, and a bad gradient in one process stops all before anything changes.
    """
    said = words_of_two_processes(tmp_path / "store")
    assert {mode: said.get(mode) for mode in MODES} == dict.fromkeys(MODES, "ok")
    assert said["shares-adamw"] == said["shares-trion"] == "ok"
    assert "refused" in said
    assert "nan-everywhere" in said


def words_of_two_processes(store: Path) -> dict[str, str]:
    processes = [
        subprocess.Popen(
            [sys.executable, SCRIPT, str(rank), store], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    ended = [process.communicate(timeout=200) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], ended[0][1] + ended[1][1]
    lines = [line.split() for line in ended[0][0].splitlines() if line]
    return {line[0]: line[-1] for line in lines}


def test_the_largest_parameters_go_round():
    assert owners([5, 9, 1, 7], 2) == [0, 0, 1, 1]
