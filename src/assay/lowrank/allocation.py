"""Counts the bytes of tensors that are alive, on any device, by watching every operation."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

__all__ = ["LiveBytes"]


class LiveBytes(TorchDispatchMode):
    """While it is active, counts the bytes of the tensors that were made within it and are still alive.

    Attributes
    ----------
    live, peak : int
        Now, and at the highest.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = self.peak = 0
        self._seen: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = {
            one.untyped_storage()._cdata for one in tree_flatten((args, kwargs))[0] if isinstance(one, torch.Tensor)
        }
        result = func(*args, **(kwargs or {}))
        for one in tree_flatten(result)[0]:
            if isinstance(one, torch.Tensor):
                storage = one.untyped_storage()
                if storage._cdata not in given and storage._cdata not in self._seen:
                    self._note(storage)
        return result

    def _note(self, storage: Any) -> None:
        key, size = storage._cdata, storage.nbytes()
        self._seen.add(key)
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._gone, key, size)

    def _gone(self, key: int, size: int) -> None:
        self._seen.discard(key)
        self.live -= size
