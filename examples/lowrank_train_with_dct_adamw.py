"""Train a small network with DCT-AdamW in your own loop: groups, a schedule, a checkpoint, and going on from it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from torch import nn

from assay.lowrank import DCTAdamW, low_rank_param_groups


def make(seed: int = 0) -> tuple[nn.Module, DCTAdamW]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64), nn.LayerNorm(64), nn.Linear(64, 1))
    groups, _ = low_rank_param_groups(model, rank=0.25)
    return model, DCTAdamW(groups, lr=3e-3, weight_decay=0.01, error_feedback=8)


def train(model: nn.Module, optimizer: DCTAdamW, steps: range) -> float:
    for step in steps:
        inputs = torch.randn(128, 64, generator=torch.Generator().manual_seed(step))
        loss = (model(inputs)[:, 0] - inputs[:, :8].prod(1).tanh() - inputs[:, 9]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main() -> None:
    model, optimizer = make()
    print(f"loss after 100 steps: {train(model, optimizer, range(100)):.4f}")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "run.pt"
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        train(model, optimizer, range(100, 200))

        saved = torch.load(file, weights_only=True)
        other, resumed = make(seed=1)
        other.load_state_dict(saved["model"])
        resumed.load_state_dict(saved["optimizer"])
        train(other, resumed, range(100, 200))
    same = all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))
    print(f"the resumed run equals the uninterrupted one bit for bit: {same}")

    report = optimizer.memory_report()
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"state {report.state:,} bytes (AdamW: {8 * parameters:,}): {report.as_dict()}")


if __name__ == "__main__":
    main()
