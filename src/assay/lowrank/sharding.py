"""What divides a parameter over processes: FSDP2's rows, and ZeRO-1's owners.

Under ``fully_shard`` a parameter is a DTensor whose rows are divided. A right projection transforms every row by
itself, so only the n powers of the columns are summed over the processes (and one r × r Gram matrix for Trion).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from assay.core.errors import InputError

__all__ = ["RowSharding", "local", "owners", "sharding_of"]


@dataclass(frozen=True)
class RowSharding:
    """A DTensor's rows, divided over one dimension of a mesh as ``torch.chunk`` divides them.

    Attributes
    ----------
    mesh, placements
        The DTensor's.
    group : ProcessGroup
        The processes among which the rows are divided.
    rows : int
        Rows of the whole parameter.
    first : int
        The first row of this process.
    """

    mesh: Any
    placements: tuple[Any, ...]
    group: Any
    rows: int
    first: int

    def sum(self, tensor: Tensor) -> None:
        """Sum a tensor over the processes, in place."""
        dist.all_reduce(tensor, group=self.group)

    def largest(self, tensor: Tensor) -> None:
        """The largest of a tensor over the processes, in place."""
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=self.group)

    def wrap(self, rows: Tensor) -> Tensor:
        """A DTensor of this process's rows, divided as the parameter is."""
        from torch.distributed.tensor import DTensor

        shape = torch.Size((self.rows, *rows.shape[1:]))
        stride = torch.empty(shape, device="meta").stride()
        whole: Tensor = DTensor.from_local(
            rows, self.mesh, self.placements, run_check=False, shape=shape, stride=stride
        )
        return whole


def sharding_of(parameter: Tensor, name: str) -> RowSharding | None:
    """How a parameter's rows are divided; None for a plain tensor or one that every process holds whole.

    Raises
    ------
    InputError
        It is divided otherwise than by rows over one dimension of the mesh, as in tensor parallelism.
    """
    if not _is_dtensor(parameter):
        return None
    mesh, placements = parameter.device_mesh, parameter.placements  # type: ignore[attr-defined]
    divided = [number for number, one in enumerate(placements) if not one.is_replicate()]
    if not divided:
        return None
    if len(divided) > 1 or not placements[divided[0]].is_shard(dim=0):
        raise InputError(
            f"{name} has the placements {placements}", expected="whole rows over one dimension of the mesh (FSDP2)"
        )
    dimension = divided[0]
    size, place = mesh.size(dimension), mesh.get_local_rank(dimension)
    rows = parameter.shape[0]
    first = min(rows, place * -(-rows // size))
    return RowSharding(mesh, tuple(placements), mesh.get_group(dimension), rows, first)


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that this process holds."""
    if _is_dtensor(tensor):
        part: Tensor = tensor.to_local()  # type: ignore[attr-defined]
        return part
    return tensor


def _is_dtensor(tensor: Tensor) -> bool:
    if torch.compiler.is_compiling() or type(tensor) in (Tensor, torch.nn.Parameter):
        return False
    if not dist.is_available():
        return False
    from torch.distributed.tensor import DTensor

    return isinstance(tensor, DTensor)


def owners(sizes: Sequence[int], processes: int) -> list[int]:
    """Which process updates which parameter: the largest first, each to the next process in turn."""
    order = sorted(range(len(sizes)), key=lambda number: (-sizes[number], number))
    found = [0] * len(sizes)
    for place, number in enumerate(order):
        found[number] = place % processes
    return found
