"""More patterns than one machine holds: each process keeps a shard, and a sweep costs one all-reduce of units times
states.

The traffic doesn't depend on the number of patterns. Votes are integers, so that any number of processes gives the
same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import InputError
from assay.memory._packed import PackedPatterns, pack_signs, pack_words
from assay.memory.dynamics import Dynamics, decide
from assay.memory.interactions import field_tables, require_kind, require_order
from assay.memory.memory import RecallResult
from assay.memory.patterns import signs_of_cues, signs_of_patterns

__all__ = ["ShardedMemory"]

KINDS = ("krotov", "abbott", "exact", "rectified")


class ShardedMemory:
    """One process's part of a memory that is spread over a torch.distributed group.

    Parameters
    ----------
    patterns : array_like, shape (own patterns, bits)
        This process's patterns. Pattern numbers count through the processes by rank.
    order : int
        n.
    kind : str
        ``"krotov"``, ``"abbott"``, ``"exact"`` or ``"rectified"``: those with integer votes.
    max_sweeps : int
        Where recall stops at the latest.
    group : torch.distributed.ProcessGroup, optional
        The default group when left out; it must be initialised (gloo, or nccl with `device`).
    device : str
        Where the reduced arrays live: ``"cpu"`` for gloo, ``"cuda"`` for nccl.

    Raises
    ------
    InputError
        The shards differ in width, or a parameter has no meaning.

    Examples
    --------
    >>> import torch.distributed as dist
    >>> from tempfile import mkdtemp
    >>> dist.init_process_group("gloo", init_method=f"file://{mkdtemp()}/rendezvous", rank=0, world_size=1)
    >>> memory = ShardedMemory([[1, 1, 1, 1, -1, -1, -1, -1], [1, -1, 1, -1, 1, -1, 1, -1]], order=3)
    >>> memory.recall([[1, 1, 1, -1, -1, -1, -1, -1]]).nearest.tolist()
    [0]
    >>> dist.destroy_process_group()
    """

    def __init__(
        self,
        patterns: ArrayLike,
        order: int = 3,
        *,
        kind: str = "krotov",
        max_sweeps: int = 100,
        group: Any = None,
        device: str = "cpu",
    ) -> None:
        import torch.distributed as dist

        self.order, self.kind = require_order(order), require_kind(kind, among=KINDS)
        self.max_sweeps, self._group, self._device = max_sweeps, group, device
        signs, self._coding = signs_of_patterns(patterns, name="patterns")
        self._patterns = PackedPatterns(pack_words(signs > 0), bits=signs.shape[1])
        rank, world = dist.get_rank(group), dist.get_world_size(group)
        shapes = np.zeros((world, 2), dtype=np.int64)
        shapes[rank] = signs.shape
        shapes = self._reduce(shapes)
        if len(set(shapes[:, 1].tolist())) != 1:
            raise InputError(
                f"shards have {', '.join(map(str, shapes[:, 1].tolist()))} bits", expected="the same width in all"
            )
        self.n_patterns, self.first = int(shapes[:, 0].sum()), int(shapes[:rank, 0].sum())
        self._rank, self._world = rank, world
        tables = field_tables(
            self.kind, self.order, bits=signs.shape[1], known=signs.shape[1], patterns=self.n_patterns
        )
        if not tables.exact:
            raise InputError(
                f"order {order} with {self.n_patterns} patterns of {signs.shape[1]} bits", expected="votes below 2**53"
            )

    def recall(self, cues: ArrayLike) -> RecallResult:
        """Recall in parallel updates; every process gives the same cues and gets the same answer.

        Parameters
        ----------
        cues : array_like, shape (cues, bits)
            As for `DenseAssociativeMemory.recall`; erased bits need the kinds other than ``"abbott"``.

        Returns
        -------
        RecallResult
            States in ±1.
        """
        signs = signs_of_cues(cues, coding=self._coding, bits=self._patterns.bits)
        if self.kind == "abbott" and not signs.all():
            raise InputError("cues have erased bits for kind='abbott'", expected="whole cues")
        dynamics = Dynamics(kind=self.kind, order=self.order)
        states, before, count = signs.copy(), None, len(signs)
        sweeps = np.full(count, self.max_sweeps, dtype=np.int64)
        converged, cycle = np.zeros(count, dtype=np.bool_), np.zeros(count, dtype=np.int64)
        active = np.arange(count)
        for sweep in range(1, self.max_sweeps + 1):
            now = states[active]
            new = decide(self._votes(now), now, dynamics, 1.0, None)
            states[active] = new
            still = (new == now).all(axis=1)
            alternating = (
                np.zeros(len(active), dtype=np.bool_) if before is None else ~still & (new == before).all(axis=1)
            )
            converged[active[still]], sweeps[active[still]] = True, sweep - 1
            cycle[active[alternating]], sweeps[active[alternating]] = 2, sweep
            going = ~still & ~alternating
            active, before = active[going], now[going]
            if not len(active):
                break
        nearest, distance = self._nearest(states)
        return RecallResult(states, sweeps, converged, cycle, nearest, distance)

    def _votes(self, states: NDArray[np.int8]) -> NDArray[np.int64]:
        """The votes of all shards for every unit: the one all-reduce of a sweep."""
        bits = self._patterns.bits
        tables = field_tables(self.kind, self.order, bits=bits, known=bits, patterns=self.n_patterns)
        places = bits - self._patterns.overlaps(*pack_signs(states))
        votes = self._patterns.votes(np.take(tables.plain, places))
        votes += np.take(tables.odd, places).sum(axis=1)[:, None] * states
        gaps = np.flatnonzero((states == 0).any(axis=1))
        if len(gaps):
            erased = self._patterns.votes(np.take(tables.erased, places[gaps]))
            votes[gaps] = np.where(states[gaps] == 0, erased, votes[gaps])
        return self._reduce(votes)

    def _nearest(self, states: NDArray[np.int8]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        overlaps = self._patterns.overlaps(*pack_signs(states))
        found = np.zeros((self._world, 2, len(states)), dtype=np.int64)
        found[self._rank] = overlaps.max(axis=1), overlaps.argmax(axis=1) + self.first
        found = self._reduce(found)
        winner = found[:, 0].argmax(axis=0)
        columns = np.arange(len(states))
        return found[winner, 1, columns], (self._patterns.bits - found[winner, 0, columns]) // 2

    def _reduce(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        import torch
        import torch.distributed as dist

        total = torch.from_numpy(np.ascontiguousarray(values)).to(self._device)
        dist.all_reduce(total, group=self._group)
        return np.asarray(total.cpu().numpy())
