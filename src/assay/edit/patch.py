"""An edit as a patch: new weights of a block, with the old ones, so that it can be applied, undone, joined and
exported.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assay.core.errors import InputError
from assay.edit.lora import LoraAdapter, to_lora
from assay.edit.storage import load_tensors, save_tensors

__all__ = ["EditPatch", "PatchTargets", "chain", "tensor_hash"]

FORMAT = "assay.edit.patch"
VERSION = 1
NEW, BASE, TARGET = "new.", "base.", "target."
TARGET_PARTS = ("keys", "alpha", "rate")
INFO = {"layers", "rows", "settings", "transposed", "prompts"}


@dataclass(frozen=True)
class PatchTargets:
    """What a patch was fitted to, kept so that several patches can be fitted together.

    Attributes
    ----------
    prompts : list of list of int
        The tokens of each prompt.
    keys : Tensor of float32, shape (prompts, d)
        The residual that the last edited block was to give at each prompt's last token.
    alpha, rate : Tensor of float32, shape (prompts,)
        Each prompt's weights.
    """

    prompts: list[list[int]]
    keys: Tensor
    alpha: Tensor
    rate: Tensor


@dataclass(frozen=True)
class EditPatch:
    """New weights for some of a model's tensors, and the old ones.

    Attributes
    ----------
    tensors : mapping of str to Tensor
        The new weights by dotted name, in the model's dtype.
    base : mapping of str to Tensor
        The weights that they replace.
    layers : tuple of int
        The edited blocks.
    rows : list of dict
        One a request: its texts, scores, weights, losses and status.
    settings : mapping
        With what it was fitted.
    transposed : frozenset of str
        The matrices that the model stores the other way round.
    targets : PatchTargets or None
        What it was fitted to.
    """

    tensors: Mapping[str, Tensor]
    base: Mapping[str, Tensor]
    layers: tuple[int, ...] = ()
    rows: list[dict[str, Any]] = field(default_factory=list)
    settings: Mapping[str, Any] = field(default_factory=dict)
    transposed: frozenset[str] = frozenset()
    targets: PatchTargets | None = None

    @property
    def hashes(self) -> dict[str, str]:
        """The SHA-256 of every tensor that is replaced."""
        return {name: tensor_hash(tensor) for name, tensor in self.base.items()}

    def deltas(self) -> dict[str, Tensor]:
        """New minus old, in float64."""
        return {name: tensor.double() - self.base[name].double() for name, tensor in self.tensors.items()}

    def size(self) -> float:
        """The norm of the difference over the norm of the old weights."""
        moved = sum(float(delta.square().sum()) for delta in self.deltas().values())
        whole = sum(float(tensor.double().square().sum()) for tensor in self.base.values())
        return float((moved / whole) ** 0.5) if whole else 0.0

    def apply_(self, model: Any) -> None:
        """Write the new weights into a model.

        Raises
        ------
        InputError
            The patch is applied already, or the model holds other weights than those that it replaces.
        """
        parameters = self._parameters(model)
        now = {name: tensor_hash(parameter) for name, parameter in parameters.items()}
        wanted = self.hashes
        if now != wanted:
            if all(now[name] == tensor_hash(tensor) for name, tensor in self.tensors.items()):
                raise InputError("the patch is applied already", expected="a model without it")
            name = next(name for name in wanted if now[name] != wanted[name])
            raise InputError(
                f"the patch is for another base: {name} has the SHA-256 {now[name][:16]}… in {parameters[name].dtype}",
                expected=f"{wanted[name][:16]}… in {self.base[name].dtype}",
            )
        self._write(parameters, self.tensors)

    def revert_(self, model: Any) -> None:
        """Write the old weights back, bit for bit.

        Raises
        ------
        InputError
            The model doesn't hold the patch's weights.
        """
        parameters = self._parameters(model)
        for name, tensor in self.tensors.items():
            if not torch.equal(parameters[name].detach().cpu(), tensor.cpu()):
                raise InputError(
                    f"the patch isn't what {name} holds",
                    expected="a model with the patch applied, and nothing after it",
                )
        self._write(parameters, self.base)

    @contextmanager
    def applied(self, model: Any) -> Iterator[None]:
        """Apply the patch for a block of code; afterwards the model is as it was, whatever happens."""
        self.apply_(model)
        try:
            yield
        finally:
            self._write(self._parameters(model), self.base)

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write the patch to a ``.safetensors`` file, with the old weights and what it was fitted to.

        Raises
        ------
        InputError
            The name ends otherwise, or nothing can be written there.
        """
        tensors = {f"{NEW}{name}": tensor for name, tensor in self.tensors.items()}
        tensors |= {f"{BASE}{name}": tensor for name, tensor in self.base.items()}
        prompts: list[list[int]] = []
        if self.targets is not None:
            prompts = self.targets.prompts
            tensors |= {f"{TARGET}{name}": getattr(self.targets, name) for name in TARGET_PARTS}
        info = {
            "layers": list(self.layers),
            "rows": self.rows,
            "settings": dict(self.settings),
            "transposed": sorted(self.transposed),
            "prompts": prompts,
        }
        return save_tensors(path, tensors, kind=FORMAT, version=VERSION, info=info, force=force)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> EditPatch:
        """Read a patch that `save` wrote.

        Raises
        ------
        InputError
            The file is missing, damaged, of another kind or version, or holds what is no number.
        """
        tensors, info = load_tensors(path, kind=FORMAT, version=VERSION, what="a patch")
        parts = {
            prefix: {name.removeprefix(prefix): one for name, one in tensors.items() if name.startswith(prefix)}
            for prefix in (NEW, BASE, TARGET)
        }
        new, base, target = parts[NEW], parts[BASE], parts[TARGET]
        alike = set(new) == set(base) and all(new[name].shape == base[name].shape for name in new)
        if not alike or set(target) not in (set(), set(TARGET_PARTS)) or not set(info) >= INFO:
            raise InputError("lacks some of its parts", file=path, expected="a whole patch")
        targets = None
        if target:
            targets = PatchTargets(info["prompts"], *(target[name] for name in TARGET_PARTS))
        return cls(
            new,
            base,
            tuple(info["layers"]),
            info["rows"],
            info["settings"],
            frozenset(info["transposed"]),
            targets,
        )

    def to_lora(self, rank: int) -> LoraAdapter:
        """The nearest low-rank adapter: a truncated singular value decomposition of each matrix's difference.

        Parameters
        ----------
        rank : int
            Of each matrix; capped by its smaller side.

        Returns
        -------
        LoraAdapter
            With the error of each matrix. Vectors (norms, biases), which an adapter can't change, are left out.
        """
        return to_lora(self.deltas(), rank=rank, transposed=self.transposed)

    def _parameters(self, model: Any) -> dict[str, Tensor]:
        have = dict(model.named_parameters())
        for name, tensor in self.tensors.items():
            if name not in have:
                raise InputError(
                    f"the patch changes {name}, which the model lacks", expected="the model it was made for"
                )
            if have[name].shape != tensor.shape:
                raise InputError(
                    f"{name} has the shape {tuple(have[name].shape)} in the model", expected=f"{tuple(tensor.shape)}"
                )
        return {name: have[name] for name in self.tensors}

    @staticmethod
    def _write(parameters: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(values[name])


def chain(patches: Sequence[EditPatch]) -> EditPatch:
    """One patch that does what several do one after another.

    Parameters
    ----------
    patches : sequence of EditPatch
        Each made on a model with those before it applied.

    Returns
    -------
    EditPatch

    Raises
    ------
    InputError
        There is none, or one doesn't follow on those before it.

    Examples
    --------
    >>> zero, one = torch.zeros(2), torch.ones(2)
    >>> first, second = EditPatch({"w": one}, {"w": zero}), EditPatch({"w": one + one}, {"w": one})
    >>> chain([first, second]).tensors["w"].tolist()
    [2.0, 2.0]
    """
    if not patches:
        raise InputError("there is no patch", expected="at least one")
    tensors: dict[str, Tensor] = {}
    base: dict[str, Tensor] = {}
    for number, patch in enumerate(patches):
        for name, tensor in patch.tensors.items():
            if name in tensors and not torch.equal(tensors[name], patch.base[name]):
                raise InputError(
                    f"patch {number} wasn't made on a model with the patches before it",
                    expected="patches in the order in which they were made",
                )
            base.setdefault(name, patch.base[name])
            tensors[name] = tensor
    return EditPatch(
        tensors,
        base,
        tuple(sorted({layer for patch in patches for layer in patch.layers})),
        [row for patch in patches for row in patch.rows],
        patches[0].settings,
        frozenset().union(*(patch.transposed for patch in patches)),
    )


def tensor_hash(tensor: Tensor) -> str:
    """The SHA-256 of a tensor's dtype, shape and bytes."""
    whole = tensor.detach().cpu().contiguous()
    digest = hashlib.sha256(f"{whole.dtype} {tuple(whole.shape)} ".encode())
    digest.update(whole.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
