"""Turn a clustering that you have into a spanning tree, and watch the guarantee improve with the budget.

The clusters stay connected inside; what is added between them is certified: the tree weighs at most `beta` times the
best one that keeps the clusters' trees. More representatives cost more distances and bring `beta` closer to 1.
"""

from __future__ import annotations

import numpy as np
from sklearn.cluster import MiniBatchKMeans

from assay.mst import complete_forest


def main() -> None:
    rng = np.random.default_rng(0)
    centres = 4 * rng.normal(size=(30, 16))
    points = centres[rng.integers(0, 30, size=4000)] + rng.normal(size=(4000, 16))
    labels = MiniBatchKMeans(n_clusters=40, random_state=0).fit_predict(points)

    best = complete_forest(points, labels=labels, mode="exact_mfc")
    print(f"the best completion of {best.forest.n_components} clusters weighs {best.total_weight:.2f}")
    print("budget      calls    weight  over best   beta  alpha")
    for budget in ("0t", "1t", "4t", "16t"):
        tree = complete_forest(points, labels=labels, budget=budget)
        calls = sum(tree.n_distance_calls.values())
        excess = tree.total_weight / best.total_weight - 1
        print(f"{budget:>6} {calls:10,d} {tree.total_weight:9.2f} {excess:9.3%} {tree.beta:6.4f} {tree.alpha:6.4f}")


if __name__ == "__main__":
    main()
