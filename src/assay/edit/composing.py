"""Several patches as one: added up, or fitted together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch

from assay.core.errors import InputError
from assay.edit.patch import EditPatch
from assay.edit.pipe import PIPE

__all__ = ["compose"]


def compose(
    patches: Sequence[EditPatch], *, mode: Literal["add", "joint"] = "add", editor: PIPE | None = None
) -> EditPatch:
    """Join patches that were made on the same base.

    Parameters
    ----------
    patches : sequence of EditPatch
        Two or more.
    mode : str
        ``"add"`` adds the changes of weights up, which interferes where patches change the same block. ``"joint"``
        fits the block anew to all target keys, which the patches keep: slower than adding, faster than editing anew.
    editor : PIPE, optional
        Fits for ``"joint"``; it holds the base model.

    Returns
    -------
    EditPatch

    Raises
    ------
    InputError
        There are fewer than two patches, their bases differ, or ``"joint"`` lacks its editor.

    Examples
    --------
    >>> from assay.core.lm import random_llama
    >>> from assay.edit import EditRequest
    >>> lm = random_llama()
    >>> editor = PIPE(lm.model, lm.tokenizer, target_steps=3, fit_steps=2)
    >>> patches = [editor.fit([EditRequest(asked, "Ann.", ground_truth="Bo.")]) for asked in ("Who?", "By whom?")]
    >>> len(compose(patches).rows)
    2
    """
    if mode not in ("add", "joint"):
        raise InputError(f"mode is {mode!r}", expected="'add' or 'joint'")
    if len(patches) < 2:
        raise InputError(f"there is {len(patches)} patch", expected="at least two")
    base = dict(patches[0].base)
    for number, patch in enumerate(patches[1:], start=1):
        for name, tensor in patch.base.items():
            if name in base and not torch.equal(base[name], tensor):
                raise InputError(
                    f"patches 0 and {number} have different bases: {name}", expected="patches of one model"
                )
            base.setdefault(name, tensor)
    if mode == "joint":
        if editor is None:
            raise InputError("a joint fit lacks its editor", expected="a PIPE with the base model")
        return editor.refit(patches)
    tensors = {}
    for name, tensor in base.items():
        changed = [patch.tensors[name] for patch in patches if name in patch.tensors]
        if len(changed) == 1:
            tensors[name] = changed[0]
            continue
        total = tensor.double() + sum(one.double() - tensor.double() for one in changed)
        tensors[name] = total.to(tensor.dtype)
    return EditPatch(
        tensors,
        base,
        tuple(sorted({layer for patch in patches for layer in patch.layers})),
        [row for patch in patches for row in patch.rows],
        {"composed": len(patches), "mode": mode},
        frozenset().union(*(patch.transposed for patch in patches)),
    )
