"""Edits beside the model: a shift of the residual stream where a prompt is recognised, and no change of weights."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assay.core.errors import InputError
from assay.core.lm.anatomy import find_anatomy
from assay.core.lm.scoring import pad_token
from assay.edit.fitting import record_rows
from assay.edit.pipe import PIPE
from assay.edit.requests import EditRequest, check_requests
from assay.edit.storage import load_tensors, save_tensors

__all__ = ["GatedPatch", "fit_gated"]

FORMAT = "assay.edit.gates"
PARTS = ("keys", "deltas", "thresholds", "overlaps")


@dataclass(frozen=True)
class GatedPatch:
    """Shifts of the residual after one block, each behind a gate (after GRACE).

    Attributes
    ----------
    layer : int
        The block.
    keys : Tensor of float32, shape (edits, d)
        The block's output at each prompt's last token, scaled to length 1.
    deltas : Tensor of float32, shape (edits, d)
        The shifts.
    thresholds : Tensor of float32, shape (edits,)
        The least cosine with a key at which its gate opens.
    overlaps : Tensor of bool, shape (edits,)
        Whether some text to preserve looks more like the prompt than one of its paraphrases does.
    """

    layer: int
    keys: Tensor
    deltas: Tensor
    thresholds: Tensor
    overlaps: Tensor

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write the gates to a ``.safetensors`` file.

        Raises
        ------
        InputError
            The name ends otherwise, or nothing can be written there.
        """
        tensors = {name: getattr(self, name) for name in PARTS}
        return save_tensors(path, tensors, kind=FORMAT, version=1, info={"layer": self.layer}, force=force)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> GatedPatch:
        """Read gates that `save` wrote.

        Raises
        ------
        InputError
            The file is missing, damaged, or of another kind or version.
        """
        tensors, info = load_tensors(path, kind=FORMAT, version=1, what="a gated patch")
        if set(tensors) != set(PARTS) or not isinstance(info.get("layer"), int):
            raise InputError("lacks some of its parts", file=path, expected="a whole gated patch")
        return cls(info["layer"], *(tensors[name] for name in PARTS))

    @contextmanager
    def applied(self, model: Any) -> Iterator[None]:
        """Put the gates behind their block for a block of code. No weight changes.

        Raises
        ------
        InputError
            The model has no such block, or a residual stream of another width.
        """
        anatomy = find_anatomy(model)
        count, width = len(anatomy.blocks), anatomy.vectors.shape[1]
        if self.layer >= count or self.keys.shape[1] != width:
            raise InputError(
                f"the gates stand behind block {self.layer} at width {self.keys.shape[1]}; "
                f"the model has {count} blocks of width {width}",
                expected="the model they were made for",
            )
        block = anatomy.blocks[self.layer]
        hook = block.register_forward_hook(self._shift)
        try:
            yield
        finally:
            hook.remove()

    def open_gates(self, hidden: Tensor) -> Tensor:
        """The edit whose gate opens, or -1, for residuals of shape (…, d)."""
        unit = torch.nn.functional.normalize(hidden.float(), dim=-1)
        margins = unit @ self.keys.to(hidden.device).T - self.thresholds.to(hidden.device)
        best, which = margins.max(-1)
        return torch.where(best >= 0, which, -1)

    def _shift(self, _block: Any, _args: Any, output: Any) -> Any:
        hidden = output[0] if isinstance(output, tuple) else output
        opened = self.open_gates(hidden)
        if not bool((opened >= 0).any()):
            return None
        shift = self.deltas.to(hidden.device)[opened.clamp(min=0)] * (opened >= 0)[..., None]
        moved = (hidden.float() + shift).to(hidden.dtype)
        return (moved, *output[1:]) if isinstance(output, tuple) else moved


def fit_gated(
    editor: PIPE, requests: Sequence[EditRequest], *, negatives: Sequence[str] = (), targets: Any = None
) -> GatedPatch:
    """Find shifts and gates for requests.

    A gate's threshold lies half way between the lowest cosine of a paraphrase's last token and the highest cosine of
    any token of the texts to preserve and of the negatives.

    Parameters
    ----------
    editor : PIPE
        With the model, one block, and the texts to preserve.
    requests : sequence of EditRequest
        The edits; their paraphrases open the gates, and without one the question alone does.
    negatives : sequence of str
        Further questions that must not open a gate.
    targets : TargetKeys, optional
        The requests' target keys, where they are known already.

    Returns
    -------
    GatedPatch

    Raises
    ------
    InputError
        The editor edits several blocks or shares shifts over wordings, or a request is wrong.

    Examples
    --------
    >>> from assay.core.lm import random_llama
    >>> lm = random_llama()
    >>> editor = PIPE(lm.model, lm.tokenizer, target_steps=3)
    >>> fit_gated(editor, [EditRequest("Who wrote it?", "Ann.")]).deltas.shape[0]
    1
    """
    if len(editor.layers) > 1 or editor.config.wrap > 1:
        raise InputError(f"layer is {editor.layers} and wrap {editor.config.wrap}", expected="one block, and wrap=1")
    requests = check_requests(requests)
    [layer] = editor.layers
    found = targets if targets is not None else editor.find_targets(requests)
    unit = torch.nn.functional.normalize(found.base, dim=1)
    texts = [editor.prompts.question(text) for text in negatives]
    texts += [editor.prompts.exchange(*one) for one in editor.preserve if not isinstance(one, str)]
    highest = torch.full((len(requests),), -1.0, device=unit.device)
    if texts:
        outside, real = _outputs(editor, texts, layer)
        highest = (unit @ torch.nn.functional.normalize(outside[real], dim=1).T).amax(1)
    lowest = torch.ones_like(highest)
    for index, request in enumerate(requests):
        others = [editor.prompts.question(text) for text in request.paraphrases]
        if others:
            outputs, real = _outputs(editor, others, layer)
            last = outputs[torch.arange(len(others)), real.sum(1) - 1]
            lowest[index] = (torch.nn.functional.normalize(last, dim=1) @ unit[index]).min()
    return GatedPatch(layer, unit, found.delta, (lowest + highest) / 2, lowest < highest)


def _outputs(editor: PIPE, rows: list[list[int]], layer: int) -> tuple[Tensor, Tensor]:
    recording, real = record_rows(editor.model, editor.anatomy, rows, (layer,), pad=pad_token(editor.tokenizer))
    return recording.outputs[layer].float(), real
