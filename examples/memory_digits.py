"""Restore damaged handwritten digits: store 1750 images of 64 pixels, damage some, recall them, draw before and after.

The images are far from random, so the audit comes first. It says that the theory doesn't apply, and what does work.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from sklearn.datasets import load_digits

from assay.memory import DenseAssociativeMemory, audit
from assay.memory.patterns import corrupt
from assay.memory.plots import plot_images, save_figure


def main() -> None:
    images = np.unique(load_digits().data > 7, axis=0)
    stored = np.where(images, np.int8(1), np.int8(-1))
    rng = np.random.default_rng(0)
    chosen = rng.choice(len(stored), size=100, replace=False)
    damaged = corrupt(stored[chosen], flips=3, erasures=6, rng=rng)

    answers = {}
    for kind in ("krotov", "exp"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the memory says that the patterns are too many for random ones
            memory = DenseAssociativeMemory(order=3, kind=kind).fit(stored)
        if kind == "krotov":
            print(audit(memory))
        result = memory.recall(damaged)
        answers[kind] = result.states
        right = (result.nearest == chosen).mean()
        print(f"\nkind {kind}: {100 * right:.0f} % of the damaged digits end nearest to their own image")

    rows = {"damaged": damaged, "order 3": answers["krotov"], "exponential": answers["exp"], "stored": stored[chosen]}
    with TemporaryDirectory() as folder:
        picture = Path(folder) / "digits.png"
        save_figure(plot_images(rows, (8, 8)), picture)
        print(f"before and after: a picture of {picture.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
