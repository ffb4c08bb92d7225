"""Inputs and outputs as trees of tensors: copy, refill, upcast, compare to the bit.

A tree is a tensor, a module, or a dict, list or tuple of trees; anything else is a leaf that is passed through.
"""

import copy
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

_SMALL_PART = 0.05
"""So that a copy leaves room for what the calls themselves need."""


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
    """Return the tensors of a tree."""
    return [leaf for _, leaf in leaves(tree) if isinstance(leaf, torch.Tensor)]


def named_tensors(tree: Any, path: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of a tree, and the parameters of its modules themselves, by name."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from named_tensors(value, f"{path}.{key}" if path else str(key))
    elif isinstance(tree, list | tuple):
        for index, value in enumerate(tree):
            yield from named_tensors(value, f"{path}[{index}]")
    elif isinstance(tree, torch.nn.Module):
        for name, parameter in tree.named_parameters():
            yield f"{path}.{name}", parameter
    elif isinstance(tree, torch.Tensor):
        yield path, tree


def map_tensors(
    tree: Any,
    change: Callable[[torch.Tensor], torch.Tensor],
    change_module: Callable[[torch.nn.Module], torch.nn.Module],
) -> Any:
    """Return the tree with every tensor and module replaced."""
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
    return map_tensors(tree, _copy_tensor, copy.deepcopy)


def _copy_tensor(tensor: torch.Tensor) -> torch.Tensor:
    # clone() would make a sliced tensor dense, and an implementation that is slow or wrong on strides would be missed.
    extent = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    if tensor.numel() == 0 or extent == tensor.numel():
        result = tensor.detach().clone()
    else:
        result = torch.zeros(extent, dtype=tensor.dtype, device=tensor.device).as_strided(tensor.shape, tensor.stride())
        if 0 not in tensor.stride():
            result.copy_(tensor.detach())
        else:  # an expanded tensor: elements share memory, so write the distinct ones only
            distinct(result).copy_(distinct(tensor.detach()))
    return result.requires_grad_(tensor.requires_grad)


def distinct(tensor: torch.Tensor) -> torch.Tensor:
    """Return a view in which no two elements share an address: of an expanded dimension it has the first index."""
    return tensor[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in tensor.stride())]


def upcast_tree(tree: Any) -> Any:
    """Return a copy in which floats are float64 and complex numbers complex128; what requires a gradient still does."""

    def upcast(tensor: torch.Tensor) -> torch.Tensor:
        wanted = torch.complex128 if tensor.is_complex() else torch.float64
        exact = tensor.dtype == wanted or not (tensor.is_complex() or tensor.is_floating_point())
        copied = _copy_tensor(tensor.detach()) if exact else tensor.detach().to(wanted)  # to() alone may not copy
        return copied.requires_grad_(tensor.requires_grad)

    return map_tensors(tree, upcast, lambda module: copy.deepcopy(module).double())


def has_room(tree: Any, *, copies: int = 1) -> bool:
    """Return whether copies of a tree's tensors take a small part of the device's free memory; on a CPU they always fit."""
    found = tensors(tree)
    size = sum(tensor.numel() * tensor.element_size() for tensor in found)
    return not any(tensor.is_cuda for tensor in found) or copies * size <= _SMALL_PART * torch.cuda.mem_get_info()[0]


def about_changed_inputs(names: Sequence[str], when: str = "") -> str:
    """Return what is said of an implementation that writes to inputs.

    Args:
        names: The inputs.
        when: Words on when it does so, with a space before them; none where it does so in any call.
    """
    roots = tuple(dict.fromkeys(re.split(r"[.\[]", name, maxsplit=1)[0] for name in names))
    return (
        f"changes its input {names[0]!r}{when}; an operator leaves its inputs alone: declare consumes={roots!r} if its caller may lose "
        f"{'them' if len(roots) > 1 else 'it'}, or state= if what a call leaves there is a result"
    )


def refill(tree: Any, fresh: Any) -> bool:
    """Copy fresh values into the tensors of a tree, at the same addresses; False where the trees differ in form."""
    if not same_form(tree, fresh):
        return False
    with torch.no_grad():
        for target, value in refilling(tree, fresh):
            target.copy_(value)
    return True


def refilling(tree: Any, fresh: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return pairs of target and source: copying each source refills a tree with the values of another tree of the same form."""
    with torch.no_grad():
        return [
            (distinct(target), distinct(source)) for target, source in zip(tensors(tree), tensors(fresh), strict=True)
        ]


def same_form(left: Any, right: Any) -> bool:
    """Return whether the tensors of two trees agree, one by one, in shape, dtype and strides."""

    def forms(tree: Any) -> list[tuple[object, ...]]:
        return [(tensor.shape, tensor.dtype, tensor.stride()) for tensor in tensors(tree)]

    return forms(left) == forms(right)


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Return whether two tensors are equal, NaNs in the same places counting as equal."""
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    if torch.equal(left, right):
        return True
    if not (left.is_floating_point() or left.is_complex()):
        return False
    return bool(((left == right) | (left.isnan() & right.isnan())).all())


def changed_inputs(before: Any, after: Any) -> list[str]:
    """Return the paths of the tensors that differ, or are no longer there."""
    now = dict(leaves(after))
    return [
        path
        for path, old in leaves(before)
        if isinstance(old, torch.Tensor)
        and not (isinstance(new := now.get(path), torch.Tensor) and same_bits(old, new))
    ]
