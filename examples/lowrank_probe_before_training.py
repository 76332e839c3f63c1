"""Ask before the run what low rank would keep of your model's gradients, and what it would save.

Two layers are compared: one whose inputs are exchangeable features, and one that reads a signal, whose neighbouring
inputs are alike. Only along the second do cosines do better than random directions.
"""

from __future__ import annotations

import torch
from torch import nn

from assay.lowrank import estimate_memory, probe_projection


def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    inputs, targets = batch
    return (model(inputs) - targets).square().mean()


def main() -> None:
    torch.manual_seed(0)
    steps = torch.randn(256, 128)
    kinds = {"features": steps, "a smooth signal": steps.cumsum(1) / 128**0.5}
    for name, inputs in kinds.items():
        model = nn.Sequential(nn.Linear(128, 256), nn.Tanh(), nn.Linear(256, 8))
        batch = (inputs, torch.randn(256, 8))
        report = probe_projection(model, [batch], [1 / 16, 1 / 4], ["dct2", "random", "svd"], 1, loss=loss)
        print(f"{name}: the first layer's axis is {'ordered' if report.ordered['0.weight'] else 'not ordered'}")
        for row in report.rows:
            if row["layer"] == "0.weight":
                print(f"  {row['basis']:7} rank {row['rank']:3d} keeps {row['energy']:.1%} of the gradient's energy")

    print("\nwhat it saves for this model:")
    for row in estimate_memory(model, optimizers=["adamw", "ldadamw", "dct-adamw-ef8", "dct-adamw"], rank=[1 / 4]):
        print(f"  {row['optimizer']:14} {row['bytes']:9,} bytes, {row['share_of_adamw']:.0%} of AdamW's")


if __name__ == "__main__":
    main()
