"""Run the main job on real inputs, once each, and write what it took and what its certificate says to ``jobs.json``.

All words of a dictionary and all surnames of a census under edit distance, all baskets of a grocery under Jaccard, all
images of FashionMNIST under Euclidean distance: each with the command line's own defaults, on two threads.

    python docs/results/mst/run_jobs.py [words surnames all-baskets fashion]
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from assay.core.files import write_bytes
from assay.core.ledger import describe_environment
from assay.core.measure import stopwatch
from assay.mst import MetricMST, check_tree
from assay.mst.datasets import load

OUT = Path(__file__).with_name("jobs.json")
INPUTS = ("words", "surnames", "all-baskets", "fashion")
WARM_UP = 300
THREADS = 2


def build(name: str) -> dict[str, Any]:
    """Build the certified tree of one input, and check it."""
    objects, metric = load(name)
    settings: dict[str, Any] = {"n_forests": 3, "certify": 200, "random_state": 0, "n_jobs": THREADS, "progress": False}
    MetricMST(metric, algorithm="mfc", **settings).fit(objects[:WARM_UP])
    with stopwatch() as watch:
        tree = MetricMST(metric, **settings).fit(objects)
    n = len(tree.labels_)
    report = check_tree(objects, tree.edges_, tree.weights_, metric=metric, samples=0)
    if not report.ok:
        raise SystemExit(f"{name}: not a spanning tree with right weights")
    calls = sum(tree.n_distance_calls_.values())
    return {
        "objects": n,
        "metric": metric,
        "forests": len(tree.forest_weights_),
        "weight": tree.total_weight_,
        "weights_after_each_forest": tree.forest_weights_,
        "certified_ratio": tree.mst_ratio_upper_,
        "confidence": tree.confidence,
        "alpha": tree.alpha_,
        "beta": tree.beta_,
        "largest_component": tree.largest_component_,
        "calls": calls,
        "calls_share": calls / (n * (n - 1) / 2),
        "seconds": round(watch.seconds, 2),
        "cpu_seconds": round(watch.cpu_seconds, 2),
        "threads": THREADS,
        "date": datetime.now(UTC).date().isoformat(),
    }


def main(names: list[str]) -> None:
    """Run the inputs that are named, or all, and keep the others' results."""
    results: dict[str, Any] = json.loads(OUT.read_text()) if OUT.exists() else {}
    for name in names or INPUTS:
        results[name] = build(name)
        print(name, json.dumps(results[name], indent=1), flush=True)
        results["environment"] = describe_environment()
        write_bytes(OUT, (json.dumps(results, indent=1, sort_keys=True) + "\n").encode(), force=True)


if __name__ == "__main__":
    main(sys.argv[1:])
