"""Outputs as trees of tensors: walk, copy, compare to the bit. A tree is a tensor, a module, or a dict, list or tuple of trees; anything else is a leaf."""

import copy
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

_SMALL_PART = 0.05
"""Part of the free memory for copies, so that calls have room."""


def leaves(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and value of each leaf, parameters and buffers of modules included, in a fixed order."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from leaves(value, f"{path}.{key}" if path and key != "" else path or str(key))
    elif isinstance(tree, list | tuple):
        for index, value in enumerate(tree):
            yield from leaves(value, f"{path}[{index}]")
    elif isinstance(tree, torch.nn.Module):
        yield from leaves({name: tensor.detach() for name, tensor in tree.state_dict().items()}, path)
    else:
        yield path, tree


def tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for _, leaf in leaves(tree) if isinstance(leaf, torch.Tensor)]


def map_tensors(
    tree: Any,
    change: Callable[[torch.Tensor], torch.Tensor],
    change_module: Callable[[torch.nn.Module], torch.nn.Module],
) -> Any:
    if isinstance(tree, dict):
        return {key: map_tensors(value, change, change_module) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        changed = [map_tensors(value, change, change_module) for value in tree]
        return type(tree)(*changed) if hasattr(tree, "_fields") else type(tree)(changed)
    if isinstance(tree, torch.nn.Module):
        return change_module(tree)
    return change(tree) if isinstance(tree, torch.Tensor) else tree


def copy_tree(tree: Any) -> Any:
    """Return a copy that shares no memory and keeps every tensor's strides, gaps included."""
    return map_tensors(tree, copy_tensor, copy.deepcopy)


def copy_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of a tensor that has its strides, gaps included."""
    # clone() would make a sliced tensor dense, and an implementation that is slow or wrong on strides would be missed.
    length = extent(tensor)
    if tensor.numel() == 0 or length == tensor.numel():
        result = tensor.detach().clone()
    else:
        result = torch.zeros(length, dtype=tensor.dtype, device=tensor.device).as_strided(tensor.shape, tensor.stride())
        if 0 not in tensor.stride():
            result.copy_(tensor.detach())
        else:  # an expanded tensor: elements share memory, so write the distinct ones only
            distinct(result).copy_(distinct(tensor.detach()))
    return result.requires_grad_(tensor.requires_grad)


def extent(tensor: torch.Tensor) -> int:
    """Return the number of elements from a tensor's first to its last one in memory, gaps included."""
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def distinct(tensor: torch.Tensor) -> torch.Tensor:
    """Return a view in which no two elements share an address: of an expanded dimension it has the first index."""
    return tensor[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in tensor.stride())]


def has_room(tree: Any, *, copies: int = 1) -> bool:
    """Return whether copies of a tree's tensors take a small part of the device's free memory; on a CPU they always fit."""
    found = tensors(tree)
    size = sum(tensor.numel() * tensor.element_size() for tensor in found)
    return not any(tensor.is_cuda for tensor in found) or copies * size <= _SMALL_PART * torch.cuda.mem_get_info()[0]


def about_changed_inputs(names: Sequence[str], when: str = "") -> str:
    """Return a sentence on an implementation that writes to inputs; `when` is put into it, with a space before."""
    roots = tuple(dict.fromkeys(re.split(r"[.\[]", name, maxsplit=1)[0] for name in names))
    return (
        f"changes its input {names[0]!r}{when}; an operator leaves its inputs alone: declare consumes={roots!r} if its caller may lose "
        f"{'them' if len(roots) > 1 else 'it'}, or state= if what a call leaves there is a result"
    )


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Return whether two tensors are equal, NaNs in the same places counting as equal."""
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    if torch.equal(left, right):
        return True
    if not (left.is_floating_point() or left.is_complex()):
        return False
    return bool(((left == right) | (left.isnan() & right.isnan())).all())
