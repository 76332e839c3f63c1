"""Knowledge edits of language models as patches, with a score that says beforehand which are hard.

The names below are loaded when they are first used, so that importing this package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.edit.benchmarks import counterfact_scores as counterfact_scores
    from assay.edit.benchmarks import kebench_scores as kebench_scores
    from assay.edit.closed_form import KeyStatistics as KeyStatistics
    from assay.edit.closed_form import closed_form_edit as closed_form_edit
    from assay.edit.composing import compose as compose
    from assay.edit.fine_tuning import fine_tune as fine_tune
    from assay.edit.fine_tuning import fine_tune_lora as fine_tune_lora
    from assay.edit.gated import GatedPatch as GatedPatch
    from assay.edit.gated import fit_gated as fit_gated
    from assay.edit.harness import harness_scores as harness_scores
    from assay.edit.lora import LoraAdapter as LoraAdapter
    from assay.edit.metrics import Locality as Locality
    from assay.edit.metrics import evaluate_edits as evaluate_edits
    from assay.edit.metrics import locality as locality
    from assay.edit.patch import EditPatch as EditPatch
    from assay.edit.patch import chain as chain
    from assay.edit.pipe import PIPE as PIPE
    from assay.edit.pipe import PipeConfig as PipeConfig
    from assay.edit.request_files import read_requests as read_requests
    from assay.edit.requests import EditRequest as EditRequest
    from assay.edit.tangle import Calibration as Calibration
    from assay.edit.tangle import TangleReport as TangleReport
    from assay.edit.tangle import tangle_score as tangle_score
    from assay.edit.windows import any_edit as any_edit

__all__ = [  # noqa: RUF022 - in the order of sorted()
    "Calibration",
    "EditPatch",
    "EditRequest",
    "GatedPatch",
    "KeyStatistics",
    "Locality",
    "LoraAdapter",
    "PIPE",
    "PipeConfig",
    "TangleReport",
    "any_edit",
    "chain",
    "closed_form_edit",
    "compose",
    "counterfact_scores",
    "evaluate_edits",
    "fine_tune",
    "fine_tune_lora",
    "fit_gated",
    "harness_scores",
    "kebench_scores",
    "locality",
    "read_requests",
    "tangle_score",
]

_MODULE_OF = {
    "PIPE": "pipe",
    "Calibration": "tangle",
    "EditPatch": "patch",
    "EditRequest": "requests",
    "GatedPatch": "gated",
    "KeyStatistics": "closed_form",
    "Locality": "metrics",
    "LoraAdapter": "lora",
    "PipeConfig": "pipe",
    "TangleReport": "tangle",
    "any_edit": "windows",
    "chain": "patch",
    "closed_form_edit": "closed_form",
    "compose": "composing",
    "counterfact_scores": "benchmarks",
    "evaluate_edits": "metrics",
    "fine_tune": "fine_tuning",
    "fine_tune_lora": "fine_tuning",
    "fit_gated": "gated",
    "harness_scores": "harness",
    "kebench_scores": "benchmarks",
    "locality": "metrics",
    "read_requests": "request_files",
    "tangle_score": "tangle",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'assay.edit' has no attribute '{name}'")
    value = getattr(import_module(f"assay.edit.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
