"""Plan a memory for random codes, build it, and compare what happens with what was predicted."""

from __future__ import annotations

import numpy as np

from assay.memory import DenseAssociativeMemory, plan, theory
from assay.memory.patterns import corrupt, random_patterns

BITS, PATTERNS, CORRUPTION = 512, 8000, 0.15


def main() -> None:
    forecast = plan(BITS, PATTERNS, corruption=CORRUPTION, target_error=0.005, paths=5000)
    print(forecast)

    codes = random_patterns(PATTERNS, BITS, seed=1)
    order = forecast.recommended or 3
    memory = DenseAssociativeMemory(order).fit(codes)
    cues = corrupt(codes[:50], flips=round(CORRUPTION * BITS), rng=np.random.default_rng(0))
    result = memory.recall(cues, history=True, targets=np.arange(50))

    curve = theory.retrieval(order, memory.load_, float(result.history[:, 0].mean()), steps=5)
    print(f"\norder {order}, load {memory.load_:.3f}")
    print("predicted overlap", " ".join(f"{m:.3f}" for m in curve.m))
    print("measured overlap ", " ".join(f"{m:.3f}" for m in result.history[:, :6].mean(axis=0)))
    print(f"{(result.distance == 0).sum()} of 50 cues end in a stored code, after at most {result.sweeps.max()} sweeps")


if __name__ == "__main__":
    main()
