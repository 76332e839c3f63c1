"""Baselines that solve for new MLP weights in closed form: ROME, MEMIT and AlphaEdit.

Each takes the MLP's second matrix for a memory of keys and values, and writes new values beside a covariance of old
keys.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from assay.core.errors import InputError
from assay.core.lm.anatomy import Anatomy
from assay.core.lm.scoring import encode, pad_token
from assay.edit.fitting import record_rows
from assay.edit.patch import EditPatch
from assay.edit.pipe import PIPE
from assay.edit.requests import EditRequest, check_requests
from assay.edit.storage import load_tensors, save_tensors
from assay.edit.targets import Drift, find_targets

__all__ = ["KeyStatistics", "closed_form_edit"]

Method: TypeAlias = Literal["rome", "memit", "alphaedit"]
FORMAT = "assay.edit.statistics"
MEMORIES = ("mlp.down_proj", "mlp.c_proj", "mlp.fc2", "mlp.dense_4h_to_h", "fc2")
"""What architectures call the MLP's second matrix."""

COVARIANCE_WEIGHT = 15_000.0
NULL_SPACE = 2e-2
L2 = 10.0
DRIFT = 0.0625
"""MEMIT's weight of the old keys, AlphaEdit's threshold of the null space and its ridge, and the weight of the drift of
the subject's essence, as their authors set them."""
ESSENCE = " is a"
"""What follows a subject where its essence is looked at (ROME)."""


class KeyStatistics:
    """Second moments of what the MLPs' second matrices are given, by block.

    Parameters
    ----------
    moments : dict of int to Tensor of float64, shape (width, width)
        ``E[k kᵀ]``.
    tokens : int
        Over how many tokens.

    Examples
    --------
    >>> KeyStatistics({1: torch.eye(2, dtype=torch.float64)}, 40).tokens
    40
    """

    def __init__(self, moments: dict[int, Tensor], tokens: int) -> None:
        self.moments, self.tokens = moments, tokens

    @staticmethod
    def of(editor: PIPE, rows: Sequence[list[int]], layers: Sequence[int]) -> KeyStatistics:
        """Gather them on sequences of tokens."""
        sums = {layer: torch.zeros((), dtype=torch.float64) for layer in layers}
        tokens = 0
        for begin in range(0, len(rows), 16):
            keys, real = _keys(editor, list(rows[begin : begin + 16]), tuple(layers))
            tokens += int(real.sum())
            for layer in layers:
                found = keys[layer][real].double()
                sums[layer] = sums[layer] + found.T @ found
        return KeyStatistics({layer: total / tokens for layer, total in sums.items()}, tokens)

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write a ``.safetensors`` file."""
        tensors = {str(layer): one for layer, one in self.moments.items()}
        return save_tensors(path, tensors, kind=FORMAT, version=1, info={"tokens": self.tokens}, force=force)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> KeyStatistics:
        """Read what `save` wrote.

        Raises
        ------
        InputError
            The file is missing, damaged, or of another kind.
        """
        moments, info = load_tensors(path, kind=FORMAT, version=1, what="key statistics")
        return cls({int(name): one for name, one in moments.items()}, int(info["tokens"]))


def closed_form_edit(
    editor: PIPE,
    requests: Sequence[EditRequest],
    *,
    method: Method = "memit",
    statistics: KeyStatistics | None = None,
    covariance_weight: float = COVARIANCE_WEIGHT,
    null_space: float = NULL_SPACE,
    ridge: float = L2,
    drift_weight: float = DRIFT,
) -> EditPatch:
    """Edit the MLPs' second matrices in closed form.

    Parameters
    ----------
    editor : PIPE
        With the model, the blocks (one for ROME, usually several for the others), and how to search target keys.
    requests : sequence of EditRequest
        A batch; ROME takes them one after another. The key is taken at the last token of the subject where the question
        holds it, else at the last token of the prompt.
    method : str
        ``"rome"`` (Meng et al. 2022), ``"memit"`` (2023) or ``"alphaedit"`` (Fang et al. 2025).
    statistics : KeyStatistics, optional
        Of old keys; from the texts to preserve without.
    covariance_weight, null_space, ridge : float
        MEMIT's weight of the old keys, and AlphaEdit's threshold and ridge.
    drift_weight : float
        Of the divergence, after the subject and `ESSENCE`, of the next token with the shift from that without it, which
        the search for target keys keeps small for requests with a subject.

    Returns
    -------
    EditPatch

    Raises
    ------
    InputError
        The method is unknown, ROME gets several blocks, a block has no such matrix, or a request is wrong.

    Examples
    --------
    >>> from assay.core.lm import random_llama
    >>> lm = random_llama()
    >>> editor = PIPE(lm.model, lm.tokenizer, target_steps=3)
    >>> patch = closed_form_edit(editor, [EditRequest("Who wrote it?", "Ann did.")], method="rome")
    >>> list(patch.tensors)
    ['model.layers.1.mlp.down_proj.weight']
    """
    if method not in ("rome", "memit", "alphaedit"):
        raise InputError(f"method is {method!r}", expected="'rome', 'memit' or 'alphaedit'")
    if method == "rome" and len(editor.layers) > 1:
        raise InputError(f"layer is {editor.layers}", expected="one block for ROME")
    requests = check_requests(requests)
    anatomy, layers = editor.anatomy, editor.layers
    memories = {layer: _memory(anatomy, layer) for layer in layers}
    if statistics is None:
        texts = [
            editor.prompts.exchange(*one) if not isinstance(one, str) else encode(editor.tokenizer, one)
            for one in editor.preserve
        ]
        statistics = KeyStatistics.of(editor, texts, layers)
    batches = [[request] for request in requests] if method == "rome" else [requests]
    base = {layer: memory.weight.detach().clone() for layer, (_, memory) in memories.items()}
    solve = {"rome": _rome, "memit": _memit, "alphaedit": _alphaedit}[method]
    options = {"weight": covariance_weight, "threshold": null_space, "ridge": ridge}
    with ExitStack() as undone:
        for layer, (_, memory) in memories.items():
            undone.callback(_restore, memory.weight, base[layer])
        for batch in batches:
            rows, ats, keys = _targets(editor, batch, drift_weight)
            for number, layer in enumerate(layers):
                inputs, real = _keys(editor, rows, (layer,))
                outputs, _ = record_rows(
                    anatomy=anatomy,
                    model=editor.model,
                    rows=rows,
                    layers=(layers[-1],),
                    pad=pad_token(editor.tokenizer),
                )
                index = torch.arange(len(rows), device=real.device)
                k = inputs[layer][index, ats].double()
                missing = keys - outputs.outputs[layers[-1]][index, ats].float()
                residual = missing.double() / (len(layers) - number)
                change = solve(k, residual, statistics.moments[layer].to(k.device), **options)
                memory = memories[layer][1]
                with torch.no_grad():
                    moved = memory.weight.double() + (change.T if _is_transposed(memory) else change)
                    memory.weight.copy_(moved.to(memory.weight.dtype))
        tensors = {
            f"{anatomy.block_name(layer)}.{name}.weight": memory.weight.detach().clone()
            for layer, (name, memory) in memories.items()
        }
    lines = [{"id": one.id, "question": one.question, "answer": one.answer, "status": "edited"} for one in requests]
    return EditPatch(
        tensors,
        {f"{anatomy.block_name(layer)}.{name}.weight": base[layer] for layer, (name, _) in memories.items()},
        layers,
        lines,
        {"method": method, "tokens": statistics.tokens},
        frozenset(name for name, (_, memory) in zip(tensors, memories.values(), strict=True) if _is_transposed(memory)),
    )


def _rome(k: Tensor, residual: Tensor, moment: Tensor, *, weight: float, threshold: float, ridge: float) -> Tensor:
    """One key: ``residual uᵀ / (uᵀ k)`` with ``u = C⁻¹ k``, which moves the key's value by the residual exactly."""
    del weight, threshold, ridge
    u = torch.linalg.lstsq(_regular(moment), k.T).solution[:, 0]
    change: Tensor = torch.outer(residual[0], u) / (u @ k[0])
    return change


def _memit(k: Tensor, residual: Tensor, moment: Tensor, *, weight: float, threshold: float, ridge: float) -> Tensor:
    """``R K (λ C + Kᵀ K)⁻¹`` with keys as rows."""
    del threshold, ridge
    solution: Tensor = torch.linalg.solve(weight * _regular(moment) + k.T @ k, k.T @ residual)
    return solution.T


def _alphaedit(k: Tensor, residual: Tensor, moment: Tensor, *, weight: float, threshold: float, ridge: float) -> Tensor:
    """``R K P (Kᵀ K P + I)⁻¹`` with P on the directions that old keys hardly use."""
    del weight
    values, vectors = torch.linalg.eigh(moment)
    unused = vectors[:, values < threshold]
    projector = unused @ unused.T
    eye = torch.eye(len(moment), dtype=k.dtype, device=k.device)
    solution: Tensor = torch.linalg.solve(projector @ k.T @ k + ridge * eye, projector @ k.T @ residual)
    return solution.T


def _regular(moment: Tensor) -> Tensor:
    """Few tokens leave directions unseen: they get a millionth of the mean."""
    return moment + 1e-6 * moment.diagonal().mean() * torch.eye(len(moment), dtype=moment.dtype, device=moment.device)


def _targets(
    editor: PIPE, requests: Sequence[EditRequest], drift_weight: float
) -> tuple[list[list[int]], Tensor, Tensor]:
    """Prompts up to the token with the key, the column of that token, and the target key of each."""
    rows, ats, keys = [], [], []
    for request in requests:
        [question], [answer] = editor.prompts.pairs([request])
        at = _subject_end(editor, request, question)
        drift = None
        if request.subject and drift_weight and at < len(question) - 1:
            subject, rest = (encode(editor.tokenizer, text) for text in (request.subject, ESSENCE))
            drift = Drift([subject], [rest], drift_weight)
        # The search shifts the last token of what it takes for a prompt: the rest of the prompt goes with the answer.
        found = find_targets(
            editor.model,
            editor.anatomy,
            editor.layers[-1],
            [question[: at + 1]],
            [question[at + 1 :] + answer],
            settings=editor.config.target,
            pad=pad_token(editor.tokenizer),
            scored=[len(answer)],
            drift=drift,
        )
        rows.append(question)
        ats.append(at)
        keys.append(found.keys[0])
    return rows, torch.tensor(ats, device=editor.anatomy.device), torch.stack(keys)


def _subject_end(editor: PIPE, request: EditRequest, question: list[int]) -> int:
    """The last token of the subject in the prompt; the prompt's last token where it isn't found."""
    if request.subject and request.subject in request.question:
        text = editor.prompts.text(request.question)
        before = text[: text.rindex(request.subject) + len(request.subject)]
        tokens = encode(editor.tokenizer, before)
        if tokens and tokens == question[: len(tokens)]:
            return len(tokens) - 1
    return len(question) - 1


def _keys(editor: PIPE, rows: list[list[int]], layers: tuple[int, ...]) -> tuple[dict[int, Tensor], Tensor]:
    """What the MLPs' second matrices are given, by block, and which tokens are real."""
    found: dict[int, Tensor] = {}
    with ExitStack() as hooks:
        for layer in layers:

            def take(_module: Any, args: tuple[Any, ...], layer: int = layer) -> None:
                found[layer] = args[0].detach()

            hooks.callback(_memory(editor.anatomy, layer)[1].register_forward_pre_hook(take).remove)
        recording, real = record_rows(editor.model, editor.anatomy, rows, layers, pad=pad_token(editor.tokenizer))
    width = recording.inputs[layers[0]].shape[:2]
    return {layer: one.reshape(*width, -1) for layer, one in found.items()}, real


def _memory(anatomy: Anatomy, layer: int) -> tuple[str, Any]:
    for name in MEMORIES:
        try:
            return name, anatomy.blocks[layer].get_submodule(name)
        except AttributeError:
            continue
    raise InputError(f"block {layer} has no {MEMORIES[0]}", expected="an MLP with a second matrix")


def _is_transposed(memory: nn.Module) -> bool:
    return type(memory).__name__ == "Conv1D"


def _restore(weight: Tensor, value: Tensor) -> None:
    with torch.no_grad():
        weight.copy_(value)
