"""Dense associative memory whose recall (its speed, its basins, its capacity) is predicted before it is run.

The names below are loaded when they are first used, so that importing this package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.memory import theory as theory
    from assay.memory.interactions import PrecisionWarning as PrecisionWarning
    from assay.memory.memory import CapacityWarning as CapacityWarning
    from assay.memory.memory import DenseAssociativeMemory as DenseAssociativeMemory
    from assay.memory.memory import DuplicateWarning as DuplicateWarning
    from assay.memory.memory import RecallResult as RecallResult
    from assay.memory.module import AssociativeMemoryModule as AssociativeMemoryModule
    from assay.memory.planner import AuditReport as AuditReport
    from assay.memory.planner import OrderForecast as OrderForecast
    from assay.memory.planner import Plan as Plan
    from assay.memory.planner import audit as audit
    from assay.memory.planner import plan as plan
    from assay.memory.sharded import ShardedMemory as ShardedMemory

__all__ = [
    "AssociativeMemoryModule",
    "AuditReport",
    "CapacityWarning",
    "DenseAssociativeMemory",
    "DuplicateWarning",
    "OrderForecast",
    "Plan",
    "PrecisionWarning",
    "RecallResult",
    "ShardedMemory",
    "audit",
    "plan",
    "theory",
]

_MODULE_OF = {
    "AssociativeMemoryModule": "module",
    "AuditReport": "planner",
    "CapacityWarning": "memory",
    "DenseAssociativeMemory": "memory",
    "DuplicateWarning": "memory",
    "OrderForecast": "planner",
    "Plan": "planner",
    "PrecisionWarning": "interactions",
    "RecallResult": "memory",
    "ShardedMemory": "sharded",
    "audit": "planner",
    "plan": "planner",
}


def __getattr__(name: str) -> Any:
    if name == "theory":
        value: Any = import_module("assay.memory.theory")
    elif name in _MODULE_OF:
        value = getattr(import_module(f"assay.memory.{_MODULE_OF[name]}"), name)
    else:
        raise AttributeError(f"module 'assay.memory' has no attribute '{name}'")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
