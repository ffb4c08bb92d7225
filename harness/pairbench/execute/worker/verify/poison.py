"""Poisons memory that a call is to write: with NaN, or the largest integer."""

from typing import Any

import torch

from pairbench.execute.worker.modules import TransparentMode
from pairbench.execute.worker.trees import distinct, tensors

_EMPTY = {
    torch.ops.aten.empty.memory_format,
    torch.ops.aten.empty_like.default,
    torch.ops.aten.empty_strided.default,
    torch.ops.aten.new_empty.default,
    torch.ops.aten.new_empty_strided.default,
}
_HANDED_BACK = 32 << 20
"""Size in bytes above which freed blocks of the host's memory go back to the kernel, and the next ones are zero."""


class PoisonEmpty(TransparentMode):
    """Fills every tensor from `torch.empty` and its kin with NaN, or the largest integer, while it is active."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in _EMPTY and isinstance(result, torch.Tensor) and result.device.type != "meta":
            poison(result)
        return result


def poison(tensor: torch.Tensor) -> None:
    """Overwrite a tensor with NaN, True, or the largest integer of its dtype; elements that share memory once."""
    with torch.no_grad():
        tensor = distinct(tensor)
        if tensor.is_floating_point() or tensor.is_complex():
            tensor.fill_(float("nan"))
        elif tensor.dtype == torch.bool:
            tensor.fill_(True)
        else:
            tensor.fill_(torch.iinfo(tensor.dtype).max)


def poison_freed(like: Any, copies: int = 3) -> None:
    """Leave freed blocks of the outputs' sizes full of 0xFF behind, which the allocator hands to the next call."""
    blocks = [
        torch.full((max(1, tensor.nbytes),), 0xFF, dtype=torch.uint8, device=tensor.device)
        for tensor in tensors(like)
        if tensor.device.type != "cpu" or tensor.nbytes <= _HANDED_BACK
        for _ in range(copies)
    ]
    del blocks
