"""Which parameters of a model are projected: groups for an optimiser, and a table to read."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from assay.core.errors import InputError
from assay.lowrank.selection import resolve_rank

__all__ = ["GroupTable", "low_rank_param_groups"]

EXCLUDE = r"(embed|lm_head|norm)"
HEAD = re.compile(r"(lm_head|embed_out|output_projection|classifier|(^|\.)head)(\.|$)")
BLOCK = re.compile(r"\.\d+\.")
"""Parameters of numbered blocks aren't heads, whatever their size."""
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(frozen=True)
class GroupTable:
    """Which parameter goes where.

    Attributes
    ----------
    rows : tuple of (str, tuple of int, str, str)
        Name, shape, ``low rank`` or ``AdamW``, and why.
    """

    rows: tuple[tuple[str, tuple[int, ...], str, str], ...]

    def __str__(self) -> str:
        width = max((len(row[0]) for row in self.rows), default=0)
        return "\n".join(f"{name:{width}}  {shape!s:16}  {where:8}  {why}" for name, shape, where, why in self.rows)


def low_rank_param_groups(
    model: nn.Module,
    *,
    rank: float = 0.25,
    include: str = r"",
    exclude: str = EXCLUDE,
    convolutions: bool = False,
    **settings: Any,
) -> tuple[list[dict[str, Any]], GroupTable]:
    """Divide a model's parameters into those that are projected and those that get AdamW.

    Weights of ``nn.Linear`` are projected; embeddings, whatever is tied to them, norms, biases and names that match
    `exclude` are not.

    Parameters
    ----------
    model : Module
        The model; parameters that don't require gradients are left out.
    rank : int or float
        For the projected group.
    include : str
        A regular expression that names of projected parameters must match.
    exclude : str
        One that they must not match.
    convolutions : bool
        Whether weights of convolutions are projected too, as matrices (out, rest).
    **settings
        More settings of the projected group, such as ``lr``.

    Returns
    -------
    groups : list of dict
        For DCTAdamW, Trion and the others; the projected group first.
    table : GroupTable
        Print it to see where each parameter went.

    Warns
    -----
    UserWarning
        Nothing is projected, or a head or an embedding is.

    Raises
    ------
    InputError
        A wrong rank or regular expression.

    Examples
    --------
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Embedding(50, 16), nn.Linear(16, 32), nn.LayerNorm(32))
    >>> groups, table = low_rank_param_groups(model, rank=4)
    >>> [row[0] for row in table.rows if row[2] == "low rank"]
    ['1.weight']
    """
    resolve_rank(rank, 1 << 62)
    try:
        wanted, unwanted = re.compile(include), re.compile(exclude)
    except re.error as error:
        raise InputError(
            f"include is {include!r}, exclude is {exclude!r}: {error}", expected="regular expressions"
        ) from None
    embeddings, linear = _owners(model, convolutions)
    sizes = {module.num_embeddings for module in model.modules() if isinstance(module, nn.Embedding)}
    low: list[tuple[str, Tensor]] = []
    rest: list[tuple[str, Tensor]] = []
    rows = []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        why = ""
        if parameter.ndim < 2:
            why = "not a matrix"
        elif id(parameter) in embeddings:
            why = "an embedding, or tied to one"
        elif id(parameter) not in linear:
            why = "not the weight of a linear layer"
        elif unwanted.search(name) is not None and exclude:
            why = f"matches {exclude}"
        elif wanted.search(name) is None:
            why = f"doesn't match {include}"
        (rest if why else low).append((name, parameter))
        rows.append((name, tuple(parameter.shape), "AdamW" if why else "low rank", why))
        whole_vocabulary = parameter.shape[0] in sizes and BLOCK.search(name) is None
        if not why and (HEAD.search(name) or whole_vocabulary):
            warnings.warn(f"{name} looks like a head and is projected; exclude it unless you mean it", stacklevel=2)
    if not low:
        warnings.warn("no parameter is projected: nothing matches include, or everything matches exclude", stacklevel=2)
    groups: list[dict[str, Any]] = []
    if low:
        groups.append({"params": low, "low_rank": True, "rank": rank, **settings})
    if rest:
        groups.append({"params": rest, "low_rank": False})
    return groups, GroupTable(tuple(rows))


def _owners(model: nn.Module, convolutions: bool) -> tuple[set[int], set[int]]:
    """The parameters of embeddings, and the weights of linear layers."""
    embeddings, linear = set(), set()
    kinds: tuple[type, ...] = (nn.Linear, *(CONVOLUTIONS if convolutions else ()))
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            embeddings.add(id(module.weight))
        # Hugging Face's Conv1D is a linear layer whose weight is stored the other way round.
        elif isinstance(module, kinds) or type(module).__name__ == "Conv1D":
            linear.add(id(module.weight))
    return embeddings, linear
