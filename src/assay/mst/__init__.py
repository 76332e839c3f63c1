"""Near-minimum spanning trees in any metric, with a certificate, in far fewer than n²/2 distances.

The names below are loaded when they are first used, so that importing this package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.mst.certificate import check_tree as check_tree
    from assay.mst.completion import Completion as Completion
    from assay.mst.completion import complete_forest as complete_forest
    from assay.mst.completion import exact_mfc as exact_mfc
    from assay.mst.dendrogram import single_linkage as single_linkage
    from assay.mst.estimator import MetricMST as MetricMST
    from assay.mst.exact import exact_mst as exact_mst
    from assay.mst.forest import Forest as Forest
    from assay.mst.forest import kcenter as kcenter
    from assay.mst.metrics import Metric as Metric
    from assay.mst.metrics import MetricWarning as MetricWarning
    from assay.mst.metrics import check_metric as check_metric
    from assay.mst.metrics import make_metric as make_metric

__all__ = [
    "Completion",
    "Forest",
    "Metric",
    "MetricMST",
    "MetricWarning",
    "check_metric",
    "check_tree",
    "complete_forest",
    "exact_mfc",
    "exact_mst",
    "kcenter",
    "make_metric",
    "single_linkage",
]

_MODULE_OF = {
    "Completion": "completion",
    "Forest": "forest",
    "Metric": "metrics",
    "MetricMST": "estimator",
    "MetricWarning": "metrics",
    "check_metric": "metrics",
    "check_tree": "certificate",
    "complete_forest": "completion",
    "exact_mfc": "completion",
    "exact_mst": "exact",
    "kcenter": "forest",
    "make_metric": "metrics",
    "single_linkage": "dendrogram",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'assay.mst' has no attribute '{name}'")
    value = getattr(import_module(f"assay.mst.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
