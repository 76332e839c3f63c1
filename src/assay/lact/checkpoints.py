"""What a stopped training goes on from, in one file; and stops that wait for the end of a step."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from assay.core.errors import InputError
from assay.core.files import atomic_path, existing_file

__all__ = ["CHECKPOINT", "load_checkpoint", "save_checkpoint"]

CHECKPOINT = "checkpoint.safetensors"
FORMAT = "assay.lact training 1"


def save_checkpoint(
    path: str | os.PathLike[str],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    history: Sequence[Mapping[str, Any]],
    settings: Mapping[str, Any],
) -> None:
    """Write everything that a training needs to go on, in one piece.

    Parameters
    ----------
    path : path
        A ``.safetensors`` file, which is replaced.
    model : Module
        Its tensors, tied ones once.
    optimizer : Optimizer
        Its state.
    history : sequence of mapping
        An entry for each step that is done.
    settings : mapping
        What a training that goes on from here must share, as JSON values.
    """
    from safetensors.torch import save_file

    saved = optimizer.state_dict()
    tensors = {f"model.{name}": value for name, value in _untied(model).items()}
    for number, state in saved["state"].items():
        tensors |= {f"optimizer.{number}.{name}": value for name, value in state.items() if isinstance(value, Tensor)}
    metadata = {
        "format": FORMAT,
        "groups": json.dumps(saved["param_groups"]),
        "history": json.dumps(list(history)),
        "settings": json.dumps(dict(settings), sort_keys=True),
    }
    copies = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    with atomic_path(path, force=True) as temporary:
        save_file(copies, temporary, metadata=metadata)


def load_checkpoint(
    path: str | os.PathLike[str],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    settings: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Take up a training where `save_checkpoint` left it.

    Parameters
    ----------
    path : path
        The file.
    model : Module
        Gets the tensors.
    optimizer : Optimizer
        Gets the state.
    settings : mapping
        Must be those of the file.

    Returns
    -------
    list of dict
        The entries of the steps that are done.

    Raises
    ------
    InputError
        The file is missing, damaged, of another kind, or of a training with other settings.
    """
    from safetensors import SafetensorError, safe_open

    file = Path(path)
    try:
        with safe_open(existing_file(file), framework="pt") as stored:
            metadata = stored.metadata() or {}
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"damaged: {reason}", file=file, expected="the checkpoint of a stopped training") from error
    if metadata.get("format") != FORMAT:
        raise InputError("is another kind of file", file=file, expected="the checkpoint of a stopped training")
    had = json.loads(metadata["settings"])
    for name, value in json.loads(json.dumps(dict(settings))).items():
        if had.get(name) != value:
            raise InputError(
                f"was made with {name} {had.get(name)}, not {value}",
                file=file,
                expected="the same settings, or --force to begin anew",
            )
    prefix = "model."
    own = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
    model.load_state_dict(own, strict=False)
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith("optimizer."):
            _, number, key = name.split(".", 2)
            state.setdefault(int(number), {})[key] = value
    groups = json.loads(metadata["groups"])
    for group in groups:
        group["betas"] = tuple(group["betas"])  # JSON has lists where torch has tuples
    optimizer.load_state_dict({"state": state, "param_groups": groups})
    history: list[dict[str, Any]] = json.loads(metadata["history"])
    return history


def _untied(model: nn.Module) -> dict[str, Tensor]:
    seen: set[int] = set()
    found = {}
    for name, value in model.state_dict().items():
        if value.data_ptr() not in seen:
            seen.add(value.data_ptr())
            found[name] = value
    return found
