"""Memory-lean optimisers for large models, whose low-rank subspace is a few columns of one fixed cosine basis.

The names below are loaded when they are first used, so that importing this package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.lowrank.adamw import DCTAdamW as DCTAdamW
    from assay.lowrank.groups import GroupTable as GroupTable
    from assay.lowrank.groups import low_rank_param_groups as low_rank_param_groups
    from assay.lowrank.memory import MemoryReport as MemoryReport
    from assay.lowrank.memory import estimate_memory as estimate_memory
    from assay.lowrank.orthogonal import newton_schulz as newton_schulz
    from assay.lowrank.probe import ProjectionReport as ProjectionReport
    from assay.lowrank.probe import probe_projection as probe_projection
    from assay.lowrank.projector import DCTProjector as DCTProjector
    from assay.lowrank.references import Dion as Dion
    from assay.lowrank.references import LDAdamW as LDAdamW
    from assay.lowrank.selection import select_columns as select_columns
    from assay.lowrank.trainer import projection_callback as projection_callback
    from assay.lowrank.trainer import trainer_optimizer as trainer_optimizer
    from assay.lowrank.transforms import dct as dct
    from assay.lowrank.transforms import idct as idct
    from assay.lowrank.trion import Trion as Trion
    from assay.lowrank.variants import DCTFiraAdamW as DCTFiraAdamW
    from assay.lowrank.variants import DCTFrugalAdamW as DCTFrugalAdamW
    from assay.lowrank.variants import DCTGaLoreAdamW as DCTGaLoreAdamW

__all__ = [
    "DCTAdamW",
    "DCTFiraAdamW",
    "DCTFrugalAdamW",
    "DCTGaLoreAdamW",
    "DCTProjector",
    "Dion",
    "GroupTable",
    "LDAdamW",
    "MemoryReport",
    "ProjectionReport",
    "Trion",
    "dct",
    "estimate_memory",
    "idct",
    "low_rank_param_groups",
    "newton_schulz",
    "probe_projection",
    "projection_callback",
    "select_columns",
    "trainer_optimizer",
]

_MODULE_OF = {
    "DCTAdamW": "adamw",
    "DCTFiraAdamW": "variants",
    "DCTFrugalAdamW": "variants",
    "DCTGaLoreAdamW": "variants",
    "DCTProjector": "projector",
    "Dion": "references",
    "GroupTable": "groups",
    "LDAdamW": "references",
    "MemoryReport": "memory",
    "ProjectionReport": "probe",
    "Trion": "trion",
    "dct": "transforms",
    "estimate_memory": "memory",
    "idct": "transforms",
    "low_rank_param_groups": "groups",
    "newton_schulz": "orthogonal",
    "probe_projection": "probe",
    "projection_callback": "trainer",
    "select_columns": "selection",
    "trainer_optimizer": "trainer",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'assay.lowrank' has no attribute '{name}'")
    value = getattr(import_module(f"assay.lowrank.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
