"""What a model has read, as named tensors: kept in a file, moved, forked, cut from the graph.

Every tensor has the batch as its first axis. Merging two states is not offered, since it would not be exact.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assay.core.errors import InputError
from assay.core.files import atomic_path, existing_file
from assay.lact.fast_weights import FastState, FastWeights

__all__ = ["LaCTState", "config_hash"]

FORMAT, VERSION = "assay.lact.state", "1"
MATRICES = ("w0", "w1", "w2")
SETS = ("weights", "norms", "main", "momentum", "pending")


def config_hash(settings: Mapping[str, Any]) -> str:
    """A digest of the settings on which the meaning of a state depends (JSON values)."""
    text = json.dumps(settings, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


class LaCTState(Mapping[str, Tensor]):
    """A mapping of names to tensors, with the digest of the configuration that they belong to.

    Parameters
    ----------
    tensors : mapping of str to Tensor
        Each of shape (batch, ...). Whole numbers stay on the CPU.
    config : str
        The digest of the configuration; see `config_hash`.

    Examples
    --------
    >>> state = LaCTState({"layer.weights": torch.zeros(2, 3)}, config="abc")
    >>> state.index_select([0, 0, 1])["layer.weights"].shape
    torch.Size([3, 3])
    >>> state.nbytes
    24
    """

    def __init__(self, tensors: Mapping[str, Tensor], *, config: str = "") -> None:
        self._tensors = dict(tensors)
        self.config = config

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __repr__(self) -> str:
        return f"LaCTState({len(self)} tensors, {self.nbytes} bytes, config={self.config[:12]!r})"

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.nbytes for tensor in self.values())

    @property
    def batch_size(self) -> int:
        """Sequences that it holds."""
        return next((tensor.shape[0] for tensor in self.values()), 0)

    def map(self, change: Callable[[Tensor], Tensor]) -> LaCTState:
        """`change` of every tensor."""
        return LaCTState({name: change(tensor) for name, tensor in self.items()}, config=self.config)

    def clone(self) -> LaCTState:
        """A copy that shares no memory: to fork what was read."""
        return self.map(Tensor.clone)

    def detach(self) -> LaCTState:
        """The same, cut from the graph."""
        return self.map(Tensor.detach)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> LaCTState:
        """The same on a device, in a dtype; whole numbers stay as they are, on the CPU."""
        return self.map(lambda one: one.to(device=device, dtype=dtype) if one.is_floating_point() else one)

    def index_select(self, rows: Tensor | list[int]) -> LaCTState:
        """The sequences of these numbers, in this order: beams."""
        chosen = torch.as_tensor(rows, dtype=torch.int64)
        return self.map(lambda one: one.index_select(0, chosen.to(one.device)))

    @classmethod
    def of_parts(cls, parts: Mapping[str, LaCTState], *, config: str = "") -> LaCTState:
        """One state of several, each under a name."""
        joined = {f"{part}.{name}": tensor for part, state in parts.items() for name, tensor in state.items()}
        return cls(joined, config=config)

    def part(self, name: str) -> LaCTState:
        """What stands under a name."""
        begin = f"{name}."
        found = {key.removeprefix(begin): tensor for key, tensor in self.items() if key.startswith(begin)}
        return LaCTState(found, config=self.config)

    @classmethod
    def of_fast(cls, state: FastState, *, heads: int, config: str = "") -> LaCTState:
        """The state of one memory, whose rows are sequences times `heads`."""

        def unfold(tensor: Tensor) -> Tensor:
            return tensor.reshape(-1, heads, *tensor.shape[1:])

        tensors = {"filled": unfold(state.filled), "beta_sum": unfold(state.beta_sum)}
        for set_name in SETS:
            matrices: FastWeights | None = getattr(state, set_name)
            for name, matrix in zip(MATRICES, matrices or (), strict=False):
                if matrix is not None:
                    tensors[f"{set_name}.{name}"] = unfold(matrix)
        return cls(tensors, config=config)

    def fast(self) -> FastState:
        """The state of one memory, as `of_fast` took it.

        Raises
        ------
        InputError
            It holds something else.
        """

        def fold(name: str) -> Tensor | None:
            return self._tensors[name].flatten(0, 1) if name in self._tensors else None

        def matrices(set_name: str) -> FastWeights | None:
            found = [fold(f"{set_name}.{name}") for name in MATRICES]
            return None if found[1] is None else FastWeights(found[0], found[1], found[2])

        weights, norms, pending = matrices("weights"), matrices("norms"), matrices("pending")
        beta_sum, filled = fold("beta_sum"), fold("filled")
        if weights is None or norms is None or pending is None or beta_sum is None or filled is None:
            raise InputError("the state holds no fast weights", expected="one that this layer returned")
        return FastState(weights, norms, matrices("main"), matrices("momentum"), pending, beta_sum, filled)

    def require(self, config: str) -> None:
        """Refuse to serve another configuration.

        Raises
        ------
        InputError
            The state is of another configuration.
        """
        if self.config != config:
            raise InputError(
                f"the state is of another configuration ({self.config[:12] or 'none'})", expected=f"{config[:12]}"
            )

    def save(self, path: str | os.PathLike[str], *, force: bool = False, note: Mapping[str, str] | None = None) -> Path:
        """Write it to a ``.safetensors`` file.

        Parameters
        ----------
        path : path
        force : bool
            Whether a file of that name is replaced.
        note : mapping of str to str, optional
            What else the file says, read by `note_of`.

        Raises
        ------
        InputError
            The name ends otherwise, the file is there already, or nothing can be written there.
        """
        from safetensors.torch import save_file

        file = Path(path)
        if file.suffix != ".safetensors":
            raise InputError(f"unknown ending '{file.suffix}'", file=file, expected="a name that ends in .safetensors")
        metadata = {"format": FORMAT, "version": VERSION, "config": self.config, "note": json.dumps(dict(note or {}))}
        with atomic_path(file, force=force) as temporary:
            # Zeros of a memory that has no open chunk share one number: clone gives each tensor its own memory.
            whole = {
                name: one.detach().cpu().clone(memory_format=torch.contiguous_format) for name, one in self.items()
            }
            save_file(whole, str(temporary), metadata=metadata)
        return file

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, config: str | None = None) -> LaCTState:
        """Read what `save` wrote.

        Parameters
        ----------
        path : path
        config : str, optional
            The digest of the configuration that the state must be of.

        Raises
        ------
        InputError
            The file is missing, damaged, of another kind, version or configuration.
        """
        file = existing_file(path, suffixes=(".safetensors",))
        tensors, metadata = _read(file)
        state = cls(tensors, config=metadata.get("config", ""))
        if config is not None and state.config != config:
            raise InputError(
                f"is of another configuration ({state.config[:12] or 'none'})", file=file, expected=config[:12]
            )
        return state

    @staticmethod
    def note_of(path: str | os.PathLike[str]) -> dict[str, str]:
        """What the file says besides its tensors."""
        _, metadata = _read(existing_file(path, suffixes=(".safetensors",)))
        note: dict[str, str] = json.loads(metadata.get("note", "{}"))
        return note


def _read(file: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(file), framework="pt") as stored:
            metadata = stored.metadata() or {}
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(f"damaged: {str(error).splitlines()[0]}", file=file, expected="a saved state") from error
    if metadata.get("format") != FORMAT:
        raise InputError("holds no state of a memory", file=file, expected="a file that LaCTState.save wrote")
    if metadata.get("version") != VERSION:
        raise InputError(f"is of version {metadata.get('version')}", file=file, expected=f"version {VERSION}")
    return tensors, metadata
