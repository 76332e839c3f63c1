"""Group shopping baskets by what they share: a tree of sets under Jaccard distance, HDBSCAN's clusters, a picture.

Each basket is a set of articles. Households that shop from the same list buy similar baskets; some baskets are random.
The tree is built once, and every way of cutting it is then cheap.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import mkdtemp

import numpy as np

from assay.mst import MetricMST
from assay.mst.plots import plot_tree, save_figure, tree_layout


def baskets(*, rng: np.random.Generator) -> tuple[list[set[int]], np.ndarray]:
    """Baskets drawn from six shopping lists of 20 articles, and some at random; with the list that each came from."""
    lists = [rng.choice(300, size=20, replace=False) for _ in range(6)]
    source = rng.integers(-1, 6, size=1500)
    drawn = [rng.choice(300 if i < 0 else lists[i], size=rng.integers(10, 16), replace=False) for i in source]
    return [set(basket.tolist()) for basket in drawn], source


def main() -> None:
    sets, source = baskets(rng=np.random.default_rng(0))
    tree = MetricMST(metric="jaccard", random_state=0, progress=False).fit(sets)
    kind = "a minimum" if tree.exact_ else "a near-minimum"
    print(f"{kind} spanning tree of {len(sets)} baskets: weight {tree.total_weight_:.2f}")

    labels, _ = tree.hdbscan(min_cluster_size=40)
    for label in sorted(set(labels.tolist())):
        origin = Counter(source[labels == label].tolist()).most_common(1)[0]
        name = "noise    " if label < 0 else f"cluster {label}"
        print(f"{name}: {(labels == label).sum():4d} baskets, {origin[1]} of them from list {origin[0]}")

    picture = Path(mkdtemp()) / "baskets.png"
    positions = tree_layout(tree.edges_, tree.weights_)
    save_figure(plot_tree(positions, tree.edges_, weights=tree.weights_, title="baskets by Jaccard distance"), picture)
    print(f"the tree as a picture: {picture}")


if __name__ == "__main__":
    main()
