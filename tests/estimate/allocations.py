"""Bytes of every tensor that is alive, counted by storage as operators make them and Python lets
them go.

Matrix products give zeros of the right shape and type: their values change no allocation, and many
processors compute them slowly in 16 bits.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Allocations(TorchDispatchMode):
    """While it is on, `live` is what exists and `peak` the most since it was last set back."""

    def __init__(self) -> None:
        super().__init__()
        self.live = 0
        self.peak = 0
        self._sizes: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.mm.default:
            left, right = args
            result = left.new_zeros(left.shape[0], right.shape[1])
        else:
            result = func(*args, **(kwargs or {}))

        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.device.type != "meta":
                self._count(leaf.untyped_storage())
        return result

    def _count(self, storage: Any) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key not in self._sizes:
            weakref.finalize(storage, self._forget, key)
        self.live += size - self._sizes.get(key, 0)
        self._sizes[key] = size
        self.peak = max(self.peak, self.live)

    def _forget(self, key: int) -> None:
        self.live -= self._sizes.pop(key, 0)

    def since(self) -> int:
        """The peak since this was last asked."""
        peak, self.peak = self.peak, self.live
        return peak
