"""What each of two processes does in test_distributed: one mode, compared with one process alone."""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from assay.core.errors import InputError
from assay.lowrank import DCTAdamW, DCTFiraAdamW, DCTFrugalAdamW, DCTGaLoreAdamW, Dion, Trion

SETTINGS = {
    "adamw": lambda p: DCTAdamW(p, 1e-2, rank=3, side="right"),
    "adamw8": lambda p: DCTAdamW(p, 1e-2, rank=3, side="right", error_feedback=8, age_correction=True, update_gap=2),
    "adamw-ordered": lambda p: DCTAdamW(p, 1e-2, rank=3, side="right", order="leading", order_gap=4),
    "adamw-left": lambda p: DCTAdamW(p, 1e-2, rank=3, side="left"),
    "trion": lambda p: Trion(p, 1e-2, rank=3, side="right", ns_impl="gram"),
    "galore": lambda p: DCTGaLoreAdamW(p, 1e-2, rank=3, side="right", update_gap=4),
    "frugal": lambda p: DCTFrugalAdamW(p, 1e-3, rank=3, side="right", update_gap=4),
    "fira": lambda p: DCTFiraAdamW(p, 1e-2, rank=3, side="right", update_gap=4),
    "svd-left": lambda p: DCTGaLoreAdamW(p, 1e-2, rank=3, side="left", projection="svd", update_gap=4),
}


def make_model() -> nn.Module:
    """Uneven rows, a wide layer, and a parameter with fewer rows than processes."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 13), nn.Tanh(), nn.Linear(13, 5), nn.Tanh(), nn.Linear(5, 1))


def loss_of(model: nn.Module, step: int, part: slice) -> torch.Tensor:
    x = torch.randn(8, 6, generator=torch.Generator().manual_seed(100 + step))
    return (model(x[part]) - x[part, :1]).square().mean()


def alone(make: Callable, steps: int) -> list[torch.Tensor]:
    model = make_model()
    optimizer = make(model.parameters())
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(model, step, slice(None)).backward()
        optimizer.step()
    return [parameter.detach() for parameter in model.parameters()]


def whole(parameter: torch.Tensor) -> torch.Tensor:
    return parameter.full_tensor() if isinstance(parameter, DTensor) else parameter.detach()


def compare(name: str, mine: nn.Module, expected: list[torch.Tensor], tolerance: float) -> None:
    error = max((whole(p).detach() - q).abs().max().item() for p, q in zip(mine.parameters(), expected, strict=True))
    if dist.get_rank() == 0:
        print(f"{name} {error:.3g} {'ok' if error <= tolerance else 'DIFFERS'}", flush=True)


def fsdp(part: slice) -> None:
    mesh = init_device_mesh("cpu", (2,))
    for name, make in SETTINGS.items():
        model = make_model()
        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        optimizer = make(model.parameters())
        for step in range(6):
            if step == 3:
                saved = get_optimizer_state_dict(model, optimizer)
                low = saved["state"]["0.weight"]
                moments = low["momentum" if name == "trion" else "exp_avg"]
                assert isinstance(moments, DTensor) != name.endswith("-left"), name
                optimizer = make(model.parameters())
                set_optimizer_state_dict(model, optimizer, saved)
            optimizer.zero_grad()
            loss_of(model, step, part).backward()
            optimizer.step()
        compare(f"fsdp-{name}", model, alone(make, 6), 1e-5)
    try:
        optimizer = Dion(model.parameters(), rank=2)
        optimizer.step()
    except InputError as error:
        if dist.get_rank() == 0:
            print("refused" if "divided over processes" in str(error) else error, flush=True)
    optimizer = SETTINGS["adamw"](model.parameters())
    before = [whole(p).clone() for p in model.parameters()]
    held = next(iter(model.parameters())).grad.to_local()
    if dist.get_rank() == 1 and held.numel():
        held.view(-1)[0] = float("nan")
    try:
        optimizer.step()
    except InputError as error:
        unchanged = all(torch.equal(whole(p), q) for p, q in zip(model.parameters(), before, strict=True))
        if dist.get_rank() == 0:
            print("nan-everywhere" if "NaN" in str(error) and unchanged else error, flush=True)


def ddp(part: slice) -> None:
    for name in ("galore", "frugal", "fira"):
        model = DistributedDataParallel(make_model())
        optimizer = SETTINGS[name](model.parameters())
        for step in range(6):
            optimizer.zero_grad()
            loss_of(model, step, part).backward()
            optimizer.step()
        compare(f"ddp-{name}", model.module, alone(SETTINGS[name], 6), 1e-5)
    for name, kind in (("adamw", DCTAdamW), ("trion", Trion)):
        for mode in (None, "zero1"):

            def make(p, kind=kind, mode=mode):
                return kind(p, 1e-2, rank=3, shard_update=mode)

            model = DistributedDataParallel(make_model())
            optimizer = make(model.parameters())
            for step in range(5):
                optimizer.zero_grad()
                loss_of(model, step, part).backward()
                optimizer.step()
            compare(f"ddp-{name}-{mode}", model.module, alone(lambda p, kind=kind: kind(p, 1e-2, rank=3), 5), 1e-5)
            held = torch.tensor(float(optimizer.memory_report().state))
            if mode == "zero1":
                largest, total = held.clone(), held.clone()
                dist.all_reduce(largest, op=dist.ReduceOp.MAX)
                dist.all_reduce(total)
                if dist.get_rank() == 0:
                    print(f"shares-{name} {'ok' if largest < 0.8 * total else 'UNEVEN'}", flush=True)


if __name__ == "__main__":
    rank, store = int(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    half = slice(4 * rank, 4 * rank + 4)
    fsdp(half)
    ddp(half)
    dist.destroy_process_group()
