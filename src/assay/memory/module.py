"""The memory as a torch module: batched, on the device of its inputs, differentiable where its states are
continuous.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from assay.core.errors import InputError
from assay.memory.interactions import EXACT_BITS, field_tables, require_kind, require_order
from assay.memory.patterns import signs_of_patterns

__all__ = ["AssociativeMemoryModule", "softmax_recall"]

BLOCK = 4096
"""Patterns of a matrix product."""
TOLERANCE = 1e-6


class AssociativeMemoryModule(nn.Module):
    """A dense associative memory in a network.

    Parameters
    ----------
    patterns : tensor or array_like, shape (patterns, bits)
        0/1 or ±1 for the discrete kinds; any real numbers for ``softmax``.
    order : int
        n.
    kind : str
        As for `DenseAssociativeMemory`.
    beta : float
        The steepness of ``exp`` and ``softmax``.
    max_sweeps : int
        Where recall stops at the latest; 1 for ``softmax`` is one attention read-out.
    trainable : bool
        For ``softmax``: make the patterns parameters.

    Notes
    -----
    The discrete kinds update in parallel and give the bits of `DenseAssociativeMemory`, since their sums are exact; no
    gradient passes them. ``softmax`` is differentiable in cues and patterns.

    Raises
    ------
    InputError
        A parameter has no meaning, or votes would exceed 2**53.

    Examples
    --------
    >>> import torch
    >>> X = torch.tensor([[1.0, 1, 1, 1, -1, -1, -1, -1], [1, -1, 1, -1, 1, -1, 1, -1]])
    >>> memory = AssociativeMemoryModule(X, order=3)
    >>> memory(torch.tensor([[1.0, 1, 1, 0, 0, 0, -1, 1]])).tolist()
    [[1.0, 1.0, 1.0, 1.0, -1.0, -1.0, -1.0, -1.0]]
    """

    patterns: Tensor

    def __init__(
        self,
        patterns: Any,
        order: int = 3,
        *,
        kind: str = "krotov",
        beta: float = 1.0,
        max_sweeps: int = 100,
        trainable: bool = False,
    ) -> None:
        super().__init__()
        self.order, self.kind = require_order(order), require_kind(kind)
        self.beta, self.max_sweeps = float(beta), int(max_sweeps)
        if self.beta <= 0 or self.max_sweeps < 1:
            raise InputError(
                f"beta is {beta} and max_sweeps {max_sweeps}", expected="a positive number, and at least 1"
            )
        if kind == "softmax":
            held = torch.as_tensor(patterns)
            held = held if held.is_floating_point() else held.to(torch.get_default_dtype())
            if trainable:
                self.patterns = nn.Parameter(held.clone())
                return
        else:
            if trainable:
                raise InputError(f"trainable is True for kind={kind!r}", expected="kind='softmax'")
            values = patterns.detach().cpu().numpy() if isinstance(patterns, Tensor) else np.asarray(patterns)
            held = torch.from_numpy(signs_of_patterns(values, name="patterns")[0].copy())
            if isinstance(patterns, Tensor):
                held = held.to(patterns.device)
        self.register_buffer("patterns", held)

    def forward(self, cues: Tensor) -> Tensor:
        """Recall.

        Parameters
        ----------
        cues : tensor, shape (..., bits)
            ±1, and 0 for an erased bit; real numbers for ``softmax``.

        Returns
        -------
        tensor, shape (..., bits)
            Of the cues' dtype and on their device.
        """
        if cues.shape[-1] != self.patterns.shape[1]:
            raise InputError(
                f"cues has {cues.shape[-1]} features, but the memory is expecting {self.patterns.shape[1]} "
                f"features as input"
            )
        flat = cues.reshape(-1, cues.shape[-1])
        if self.kind == "softmax":
            states, _, _ = softmax_recall(
                flat, self.patterns.to(flat.device), beta=self.beta, max_sweeps=self.max_sweeps
            )
        else:
            states = self._recall_signs(flat)
        return states.reshape(cues.shape)

    def sweep(self, states: Tensor) -> Tensor:
        """One parallel update of ±1 states (0 where erased), shape (states, bits), without gradient."""
        with torch.no_grad():
            return self._sweep(states)

    def _recall_signs(self, cues: Tensor) -> Tensor:
        states, before = cues.detach(), None
        with torch.no_grad():
            for _ in range(self.max_sweeps):
                new = self._sweep(states)
                if torch.equal(new, states) or (before is not None and torch.equal(new, before)):
                    return new if torch.equal(new, states) else states
                states, before = new, states
        return states

    def _sweep(self, states: Tensor) -> Tensor:
        X = self.patterns.to(states.device)
        bits = X.shape[1]
        overlaps = (
            torch.cat([states.double() @ block.double().T for block in torch.split(X, BLOCK)], dim=1).round().long()
        )
        known = (states != 0).sum(dim=1)
        votes = torch.zeros(states.shape, dtype=torch.float64, device=states.device)
        for count in torch.unique(known) if self.kind == "abbott" else known[:1]:
            rows = known == count if self.kind == "abbott" else torch.ones_like(known, dtype=torch.bool)
            tables = field_tables(
                self.kind,
                self.order,
                bits=bits,
                known=int(count) if self.kind == "abbott" else bits,
                patterns=len(X),
                beta=self.beta,
            )
            if not tables.exact and not tables.relative:
                raise InputError(
                    f"order {self.order} with {bits} bits and {len(X)} patterns",
                    expected=f"votes below 2**{EXACT_BITS}",
                )
            plain, odd, erased = (
                torch.from_numpy(table).double().to(states.device)
                for table in (tables.plain, tables.odd, tables.erased)
            )
            chosen, part = states[rows].double(), overlaps[rows]
            places = (part.amax(dim=1, keepdim=True) if tables.relative else bits) - part
            known_votes = _product(plain[places], X) + chosen * odd[places].sum(dim=1, keepdim=True)
            votes[rows] = torch.where(chosen == 0, _product(erased[places], X), known_votes)
        signs = torch.sign(votes).to(states.dtype)
        return torch.where(signs == 0, states, signs)


def softmax_recall(cues: Tensor, patterns: Tensor, *, beta: float, max_sweeps: int) -> tuple[Tensor, Tensor, Tensor]:
    """Iterate ``softmax(beta X s) X`` until no entry moves by more than 1e-6.

    Parameters
    ----------
    cues : tensor, shape (cues, bits)
        Real numbers.
    patterns : tensor, shape (patterns, bits)
        X.
    beta : float
        The steepness.
    max_sweeps : int
        Where it stops at the latest.

    Returns
    -------
    states : tensor, shape (cues, bits)
        Differentiable.
    sweeps : tensor of int64, shape (cues,)
        Sweeps until each cue rested.
    converged : tensor of bool, shape (cues,)

    Examples
    --------
    >>> import torch
    >>> X = torch.tensor([[1.0, 1.0], [-1.0, 1.0]])
    >>> softmax_recall(torch.tensor([[0.9, 0.2]]), X, beta=8.0, max_sweeps=1)[0].round(decimals=3)
    tensor([[1., 1.]])
    """
    states = cues.to(patterns.dtype)
    sweeps = torch.full((len(cues),), max_sweeps, dtype=torch.int64, device=cues.device)
    converged = torch.zeros(len(cues), dtype=torch.bool, device=cues.device)
    for sweep in range(max_sweeps):
        new = torch.softmax(beta * states @ patterns.T, dim=-1) @ patterns
        resting = ((new - states).abs().amax(dim=1) <= TOLERANCE) & ~converged
        sweeps[resting], converged = sweep, converged | resting
        states = new
        if bool(converged.all()):
            break
    return states.to(cues.dtype), sweeps, converged


def _product(weights: Tensor, patterns: Tensor) -> Tensor:
    parts = (
        part @ block.double()
        for part, block in zip(torch.split(weights, BLOCK, dim=1), torch.split(patterns, BLOCK), strict=True)
    )
    total = torch.zeros((len(weights), patterns.shape[1]), dtype=torch.float64, device=weights.device)
    for part in parts:
        total += part
    return total
