"""Where did the agent's tool use go wrong? Scores of recorded runs and live models against reference trajectories.

The names below are loaded when they are first used, so that importing this package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.tooluse.alignment import Alignment as Alignment
    from assay.tooluse.alignment import align as align
    from assay.tooluse.alignment import count_calls as count_calls
    from assay.tooluse.auditing import Audit as Audit
    from assay.tooluse.auditing import audit as audit
    from assay.tooluse.batch import Report as Report
    from assay.tooluse.batch import score_many as score_many
    from assay.tooluse.matchers import Matcher as Matcher
    from assay.tooluse.matchers import make_match as make_match
    from assay.tooluse.plugins import assert_trajectory as assert_trajectory
    from assay.tooluse.plugins import inspect_scorer as inspect_scorer
    from assay.tooluse.plugins import make_evaluator as make_evaluator
    from assay.tooluse.reading import iterate as iterate
    from assay.tooluse.reading import read as read
    from assay.tooluse.reading import read_gold as read_gold
    from assay.tooluse.reading import read_tools as read_tools
    from assay.tooluse.reading import to_anthropic as to_anthropic
    from assay.tooluse.reading import to_openai as to_openai
    from assay.tooluse.reading import to_otel as to_otel
    from assay.tooluse.reading import write as write
    from assay.tooluse.resampling import Estimate as Estimate
    from assay.tooluse.resampling import cluster_bootstrap as cluster_bootstrap
    from assay.tooluse.resampling import mcnemar as mcnemar
    from assay.tooluse.resampling import paired_difference as paired_difference
    from assay.tooluse.resampling import pass_at_k as pass_at_k
    from assay.tooluse.resampling import pass_hat_k as pass_hat_k
    from assay.tooluse.retrieval import Retriever as Retriever
    from assay.tooluse.running import evaluate as evaluate
    from assay.tooluse.scoring import Scores as Scores
    from assay.tooluse.scoring import explain as explain
    from assay.tooluse.scoring import score as score
    from assay.tooluse.tasks import make_tasks as make_tasks
    from assay.tooluse.trajectories import Call as Call
    from assay.tooluse.trajectories import Edge as Edge
    from assay.tooluse.trajectories import Gold as Gold
    from assay.tooluse.trajectories import Tool as Tool
    from assay.tooluse.trajectories import Trajectory as Trajectory
    from assay.tooluse.world import ToolWorld as ToolWorld

_MODULE_OF = {
    "Alignment": "alignment",
    "Audit": "auditing",
    "Call": "trajectories",
    "Edge": "trajectories",
    "Estimate": "resampling",
    "Gold": "trajectories",
    "Matcher": "matchers",
    "Report": "batch",
    "Retriever": "retrieval",
    "Scores": "scoring",
    "Tool": "trajectories",
    "ToolWorld": "world",
    "Trajectory": "trajectories",
    "align": "alignment",
    "assert_trajectory": "plugins",
    "audit": "auditing",
    "cluster_bootstrap": "resampling",
    "count_calls": "alignment",
    "evaluate": "running",
    "explain": "scoring",
    "inspect_scorer": "plugins",
    "iterate": "reading",
    "make_evaluator": "plugins",
    "make_match": "matchers",
    "make_tasks": "tasks",
    "mcnemar": "resampling",
    "paired_difference": "resampling",
    "pass_at_k": "resampling",
    "pass_hat_k": "resampling",
    "read": "reading",
    "read_gold": "reading",
    "read_tools": "reading",
    "score": "scoring",
    "score_many": "batch",
    "to_anthropic": "reading",
    "to_openai": "reading",
    "to_otel": "reading",
    "write": "reading",
}

__all__ = [
    "Alignment",
    "Audit",
    "Call",
    "Edge",
    "Estimate",
    "Gold",
    "Matcher",
    "Report",
    "Retriever",
    "Scores",
    "Tool",
    "ToolWorld",
    "Trajectory",
    "align",
    "assert_trajectory",
    "audit",
    "cluster_bootstrap",
    "count_calls",
    "evaluate",
    "explain",
    "inspect_scorer",
    "iterate",
    "make_evaluator",
    "make_match",
    "make_tasks",
    "mcnemar",
    "paired_difference",
    "pass_at_k",
    "pass_hat_k",
    "read",
    "read_gold",
    "read_tools",
    "score",
    "score_many",
    "to_anthropic",
    "to_openai",
    "to_otel",
    "write",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'assay.tooluse' has no attribute '{name}'")
    value = getattr(import_module(f"assay.tooluse.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
