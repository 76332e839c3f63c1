"""Two gloo processes equal one: FSDP2 with its rows divided, DDP, and ZeRO-1."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from assay.lowrank.sharding import owners

SCRIPT = Path(__file__).with_name("two_processes.py")


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    store = tmp_path_factory.mktemp("gloo") / "store"
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


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")
@pytest.mark.parametrize(
    "mode",
    [f"fsdp-{name}" for name in ("adamw", "adamw8", "adamw-left", "trion", "galore", "frugal", "fira", "svd-left")]
    + [f"ddp-{name}" for name in ("galore", "frugal", "fira")]
    + [f"ddp-{name}-{mode}" for name in ("adamw", "trion") for mode in ("None", "zero1")],
)
def test_two_processes_equal_one_to_1e_5(said, mode):
    """Uneven rows, a parameter with fewer rows than processes; under FSDP2 saved and loaded on the way."""
    assert said[mode] == "ok"


def test_owners_hold_a_part_of_the_state_each(said):
    assert said["shares-adamw"] == said["shares-trion"] == "ok"


def test_references_refuse_divided_parameters(said):
    assert "refused" in said


def test_a_bad_gradient_in_one_process_stops_all_before_anything_changes(said):
    assert "nan-everywhere" in said


def test_the_largest_parameters_go_round():
    assert owners([5, 9, 1, 7], 2) == [0, 0, 1, 1]
