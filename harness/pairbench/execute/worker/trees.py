"""Inputs and outputs as trees of tensors: walk, copy, compare to the bit, put new values at the same addresses.

A tree of outputs is a tensor, a module, or a dict, list or tuple of trees; anything else is a leaf, and none of its code is called. A tree of inputs may also be a NumPy
array, a deque, or an object with trees among its attributes; of copies those share memory that share it in the tree.
"""

import copy
import math
import random
import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pairbench.errors import DeclarationError

_SMALL_PART = 0.05  # part of the free memory for copies, so that calls have room
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodType)
_OPAQUE = (type, *_FUNCTIONS, ModuleType, Enum, torch.dtype, torch.device, torch.Generator)
_OPAQUE_PACKAGES = ("builtins", "functools", "triton.", "torch._", "torch.fx.", "torch.cuda.", "torch.distributed.")
"""Packages of classes whose attributes are no inputs, such as the globals of a kernel."""
_OF_MODULE = frozenset(vars(torch.nn.Module()))
DtypeOf = Callable[[torch.dtype], torch.dtype]
PlaceOf = Callable[[Tensor], torch.device]


def leaves(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and value of each leaf, parameters and buffers of modules included, in a fixed order."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from leaves(value, f"{path}.{key}" if path and key != "" else path or str(key))
    elif isinstance(tree, list | tuple):
        for index, value in enumerate(tree):
            yield from leaves(value, f"{path}[{index}]")
    elif isinstance(tree, torch.nn.Module):
        held = {name: value.detach() for name, value in tree.state_dict().items() if isinstance(value, Tensor)}
        yield from leaves(held, path)
    else:
        yield path, tree


def tensors(tree: Any) -> list[Tensor]:
    return [leaf for _, leaf in leaves(tree) if isinstance(leaf, Tensor)]


def map_tensors(tree: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(tree, dict):
        return {key: map_tensors(value, change) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        changed = [map_tensors(value, change) for value in tree]
        return type(tree)(*changed) if hasattr(tree, "_fields") else type(tree)(changed)
    return change(tree) if isinstance(tree, Tensor) else tree


def copy_tree(outputs: Any) -> Any:
    """Return a copy of outputs that are `readable`, so without modules; it shares no memory and keeps every tensor's strides, gaps included."""
    return map_tensors(outputs, copy_tensor)


def copy_tensor(tensor: Tensor) -> Tensor:
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


def dtype_name(tensor: Tensor) -> str:
    """Return a tensor's dtype as suites write it, such as `bfloat16`."""
    return str(tensor.dtype).removeprefix("torch.")


def extent(tensor: Tensor) -> int:
    """Return the number of elements from a tensor's first to its last one in memory, gaps included."""
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def distinct(tensor: Tensor) -> Tensor:
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
    consumes = f"consumes={roots!r} if its caller may lose {'them' if len(roots) > 1 else 'it'}"
    advice = f"declare {consumes}, or state= if what a call leaves there is a result"
    return f"changes its input {names[0]!r}{when}; an operator leaves its inputs alone: {advice}"


def same_bits(left: Tensor, right: Tensor) -> bool:
    """Return whether two tensors are equal, NaNs in the same places counting as equal."""
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    if torch.equal(left, right):
        return True
    if not (left.is_floating_point() or left.is_complex()):
        return False
    return bool(((left == right) | (left.isnan() & right.isnan())).all())


class Node(NamedTuple):
    path: str
    value: Any
    in_object: bool  # whether it is at or below an attribute of an object or module: only tensors there are inputs


def nodes(tree: Any, path: str = "", above: tuple[int, ...] = (), *, in_object: bool = False) -> Iterator[Node]:
    """Yield a tree and all below it, in a fixed order; a tree that contains itself ends there."""
    yield Node(path.removeprefix("."), tree, in_object)
    if id(tree) not in above:
        for name, value, attribute in _children(tree):
            yield from nodes(value, path + name, (*above, id(tree)), in_object=in_object or attribute)


def _children(node: Any) -> list[tuple[str, Any, bool]]:
    """Return the children of a node: end of the path, value, and whether it is an attribute."""
    if isinstance(node, (*_PLAIN, *_OPAQUE, Tensor, np.ndarray)):
        return []
    found: list[tuple[str, Any, bool]] = []
    if isinstance(node, dict):
        found = [(f".{key}" if key != "" else "", value, False) for key, value in node.items()]
    elif isinstance(node, list | tuple | deque):
        found = [(f"[{index}]", value, False) for index, value in enumerate(node)]
    elif isinstance(node, torch.nn.Module):
        plain = torch.nn.Module
        registered = (
            *plain.named_parameters(node, recurse=False, remove_duplicate=False),
            *plain.named_buffers(node, recurse=False, remove_duplicate=False),
            *plain.named_children(node),
        )
        found = [(f".{name}", value, True) for name, value in registered]
    held = {id(value) for _, value, _ in found}
    attributes = _attributes(node).items()
    return found + [(f".{name}", value, True) for name, value in attributes if id(value) not in held]


def _attributes(node: Any) -> dict[str, Any]:
    kind = type(node)
    if kind.__module__.startswith(_OPAQUE_PACKAGES):
        return {}
    slots = [vars(base).get("__slots__", ()) for base in kind.__mro__]
    names = [name for given in slots for name in ((given,) if isinstance(given, str) else given)]
    found = {name: getattr(node, name) for name in names if not name.startswith("__") and hasattr(node, name)}
    found |= getattr(node, "__dict__", {})
    left_out = _OF_MODULE if isinstance(node, torch.nn.Module) else frozenset()
    return {name: value for name, value in found.items() if name not in left_out}


def parts(tree: Any) -> Iterator[tuple[str, Any]]:
    """Yield path and value of each leaf in a fixed order: tensors, arrays as tensors of their memory, and of objects only these."""
    for path, value, in_object in nodes(tree):
        if (tensor := _as_tensor(value)) is not None:
            yield path, tensor
        elif not (in_object or _is_container(value)):
            yield path, value


def _as_tensor(value: Any) -> Tensor | None:
    """Return a tensor itself, an array as a tensor of its memory, and None for all else, such as a sparse tensor in an object."""
    if not isinstance(value, Tensor | np.ndarray) or why_unsupported(value):
        return None
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value


def _is_container(value: Any) -> bool:
    return isinstance(value, dict | list | tuple | deque | torch.nn.Module) or bool(_children(value))


def named_tensors(tree: Any) -> dict[str, Tensor]:
    return {path: leaf for path, leaf in parts(tree) if isinstance(leaf, Tensor)}


def why_unsupported(value: Any) -> str | None:
    """Return what cannot be copied, refilled and compared, and the remedy, in words that follow `as`; None for all else."""
    if isinstance(value, torch.Generator | np.random.Generator | np.random.RandomState | random.Random):
        advice = "draw the numbers in inputs() and pass them as a tensor (of a dropout, the mask)"
        name = f"{type(value).__module__.partition('.')[0]}.{type(value).__name__}"
        return f"a {name}, which moves with every call, so that no two calls compute the same; {advice}"
    if isinstance(value, Iterator):
        return f"a {type(value).__name__}, which every call moves on; pass a list of what it yields"
    if isinstance(value, Tensor) and (value.layout != torch.strided or value.is_nested):
        return f"a {value.layout} tensor, expected dense ones; pass its indices and values, and make it within the call"
    if isinstance(value, np.ndarray):
        if type(value) is not np.ndarray or value.dtype.kind not in "biufc" or not hasattr(torch, value.dtype.name):
            return f"a NumPy {type(value).__name__} of {value.dtype}, expected an array of numbers that torch has; pass a tensor, or a list"
        strides = value.strides
        if not value.flags.writeable or min(strides, default=0) < 0 or any(one % value.itemsize for one in strides):
            return "a NumPy array that is read-only, or a view which torch cannot have; pass numpy.array() of it"
    return None


def check_supported(tree: Any) -> None:
    """Raise a DeclarationError on an input that cannot be copied, refilled and compared; other attributes of objects are copied, the same for all seeds."""
    for path, value, in_object in nodes(tree):
        if not in_object and (why := why_unsupported(value)):
            raise DeclarationError(f"inputs() returned {path!r} as {why}")


def upcast_inputs(tree: Any) -> Any:
    def widest(dtype: torch.dtype) -> torch.dtype:
        return torch.complex128 if dtype.is_complex else torch.float64 if dtype.is_floating_point else dtype

    return copy_inputs(tree, widest)


def copy_inputs(tree: Any, wanted: DtypeOf = lambda dtype: dtype, device: PlaceOf = lambda one: one.device) -> Any:
    """Return a copy that shares no memory with a tree, and shares within itself all that the tree shares; strides and classes stay, and so do objects without tensors that cannot be copied, as a lock.

    Each tensor has the `wanted` dtype and is on a `device`; copies from a GPU to the host are pinned, so that they go back quickly.
    """
    found = {id(value): tensor for _, value, _ in nodes(tree) if (tensor := _as_tensor(value)) is not None}
    arrays = {id(value) for _, value, _ in nodes(tree) if isinstance(value, np.ndarray)}
    copies = _copied(found, wanted, device)
    return with_replaced(tree, {key: new.numpy() if key in arrays else new for key, new in copies.items()})


def with_replaced(tree: Any, replaced: Mapping[int, Any]) -> Any:
    """Return a copy of a tree in which tensors are replaced by the `id` of the original; all other tensors stay themselves."""
    held = [value for _, value, _ in nodes(tree)]
    kept = {id(value): value for value in held if _stays_itself(value)}
    try:
        return copy.deepcopy(tree, {**kept, **replaced})
    except Exception:  # an object without tensors that cannot be copied stays itself
        kept |= {id(value): value for value in held if not named_tensors(value) and _why_no_copy(value) is not None}
    try:
        return copy.deepcopy(tree, {**kept, **replaced})
    except Exception as error:
        raise DeclarationError(_about_copying(tree, {**kept, **replaced}, error)) from error


def _stays_itself(value: Any) -> bool:
    if _as_tensor(value) is not None or isinstance(value, _OPAQUE):
        return not isinstance(value, torch.Generator)
    return callable(value) and not _is_container(value)


def _why_no_copy(value: Any, memo: dict[int, Any] | None = None) -> Exception | None:
    try:
        copy.deepcopy(value, memo)
    except Exception as error:
        return error
    return None


def _about_copying(tree: Any, replaced: Mapping[int, Any], error: Exception) -> str:
    path = type(tree).__name__
    for name, value in tree.items() if isinstance(tree, dict) else ():
        if (again := _why_no_copy(value, dict(replaced))) is not None:
            path, error = repr(name), again
            break
    why = f"cannot be copied ({type(error).__name__}: {str(error).partition(chr(10))[0]})"
    advice = "and each implementation needs a copy; pass its tensors, or give its class a __deepcopy__"
    return f"inputs() returned {path} as something that {why}, {advice}"


def _copied(found: Mapping[int, Tensor], wanted: DtypeOf, device: PlaceOf) -> dict[int, Tensor]:
    """Return copies of tensors by their key; those that share a storage share one again."""
    by_storage = defaultdict[object, list[int]](list)
    for key, tensor in found.items():
        by_storage[storage_of(tensor) or key].append(key)
    copies = dict[int, Tensor]()
    for keys in by_storage.values():
        group = [found[key] for key in keys]
        dtypes = {one.dtype for one in group}
        alone = len(group) == 1 or (len(dtypes) > 1 and any(wanted(dtype) != dtype for dtype in dtypes))
        if alone and (device(group[0]) == group[0].device or storage_of(group[0]) is None):
            held = [one.detach() for one in group]
            made = [copy_tensor(one) if one.dtype == wanted(one.dtype) else one.to(wanted(one.dtype)) for one in held]
        else:
            made = _together(group, wanted, device(group[0]))
        for key, copied, one in zip(keys, made, group, strict=True):
            parameter, needed = isinstance(one, torch.nn.Parameter), one.requires_grad
            copies[key] = torch.nn.Parameter(copied, needed) if parameter else copied.requires_grad_(needed)
    return copies


def has_address(tensor: Tensor) -> bool:
    return type(tensor) in (Tensor, torch.nn.Parameter) and tensor.layout is torch.strided and not tensor.is_meta


def storage_of(tensor: Tensor) -> tuple[torch.device, int] | None:
    """Return the identity of a tensor's storage; None where it has none that could be shared."""
    if not (has_address(tensor) and tensor.numel()) or tensor.is_conj() or tensor.is_neg():
        return None
    return tensor.device, tensor.untyped_storage().data_ptr()


def _together(group: list[Tensor], wanted: DtypeOf, device: torch.device) -> list[Tensor]:
    """Return copies that lie in one storage as the originals do: of all between the first of their elements and the last."""
    storage = max((one.untyped_storage() for one in group), key=torch.UntypedStorage.nbytes)
    dtypes = {one.dtype for one in group}
    dtype = dtypes.pop() if len(dtypes) == 1 else torch.uint8  # read as others, they are copied byte by byte
    begin = min(one.storage_offset() * one.itemsize for one in group) // 16 * 16
    end = max((one.storage_offset() + extent(one)) * one.itemsize for one in group)
    whole = torch.empty(0, dtype=dtype, device=group[0].device)
    whole.set_(storage, begin // dtype.itemsize, (math.ceil((end - begin) / dtype.itemsize),))
    copied = whole.to(device, wanted(dtype), copy=True)
    if whole.is_cuda and device.type == "cpu":
        copied = copied.pin_memory()
    return [
        torch.empty(0, dtype=wanted(one.dtype), device=device).set_(
            copied.untyped_storage(), one.storage_offset() - begin // one.itemsize, one.shape, one.stride()
        )
        for one in group
    ]


def together_with(tree: dict[str, Any], names: Iterable[str]) -> tuple[str, ...]:
    """Return these names, and all others of a tree that share memory with them: they have to be copied together."""
    held = {
        name: {storage_of(own) or id(node) for _, node, _ in nodes(value) if (own := _as_tensor(node)) is not None}
        for name, value in tree.items()
    }
    found = dict.fromkeys(name for name in names if name in tree)
    while more := [name for name in tree if name not in found and any(held[name] & held[chosen] for chosen in found)]:
        found |= dict.fromkeys(more)
    return tuple(found)


def refill(tree: Any, fresh: Any) -> bool:
    """Copy fresh values into the tensors of a tree, at the same addresses; False where the trees differ in form."""
    if fits := same_form(tree, fresh):
        put(refilling(tree, fresh))
    return fits


def put(copies: Iterable[tuple[Tensor, Tensor]]) -> None:
    with torch.no_grad():
        for target, value in copies:
            target.copy_(value)


def refilling(tree: Any, fresh: Any) -> list[tuple[Tensor, Tensor]]:
    """Return pairs of target and source whose copies refill a tree with the values of another tree of the same form."""
    targets, pairs = named_tensors(tree), dict[object, tuple[Tensor, Tensor]]()
    with torch.no_grad():
        for path, source in named_tensors(fresh).items():
            target = targets[path]
            # What is tied is written once.
            key = (storage_of(target), target.data_ptr(), target.shape, target.stride()) if storage_of(target) else path
            pairs[key] = distinct(target), distinct(source)
    return list(pairs.values())


def same_form(tree: Any, fresh: Any) -> bool:
    """Return whether the tensors of two trees agree in shape, dtype and strides; attributes may have been added to objects."""
    added = {one.path for one in nodes(tree) if one.in_object and isinstance(one.value, Tensor | np.ndarray)}
    here, there = named_tensors(tree), named_tensors(fresh)
    same = (path in here and _form(here[path]) == _form(source) for path, source in there.items())
    return here.keys() - there.keys() <= added and all(same)


def _form(tensor: Tensor) -> tuple[object, ...]:
    return tensor.shape, tensor.dtype, tensor.stride()


def changed_inputs(before: Any, after: Any) -> list[str]:
    """Return the paths of the tensors, and of plain values outside of modules, that differ between two trees or that one of them lacks."""
    now = {path: value for path, value, _ in nodes(after)}
    pairs = ((path, old, _as_tensor(now.get(path))) for path, old in named_tensors(before).items())
    changed = [path for path, old, new in pairs if new is None or not same_bits(old, new)]
    modules = tuple(path for path, value, _ in nodes(before) if isinstance(value, torch.nn.Module))
    for path, old, in_object in nodes(before):
        if not isinstance(old, _PLAIN) or (in_object and any(path.startswith(f"{module}.") for module in modules)):
            continue
        new = now.get(path)
        if new is not old and not (type(new) is type(old) and (old == new or old != old)):  # noqa: PLR0124 (NaN)
            changed.append(path)
    return changed


def restore(tree: dict[str, Any], initial: dict[str, Any]) -> bool:
    """Restore everything below a tree's entries, tensors of the same form at the same addresses; False where an entry itself would have to be another object."""
    with torch.no_grad():
        return all(isinstance(was, _PLAIN) or _restored(tree[name], was) is tree[name] for name, was in initial.items())


def _restored(now: Any, was: Any) -> Any:
    """Return the restored value itself, or a copy of the original where the value cannot be restored in place."""
    target, source = _as_tensor(now), _as_tensor(was)
    if source is not None:
        if target is None or _form(target) != _form(source):
            return copy_inputs(was)
        distinct(target).copy_(distinct(source))
        return now
    if isinstance(was, (*_PLAIN, *_OPAQUE)):
        return was
    if type(now) is not type(was) or (isinstance(was, tuple) and len(now) != len(was)):
        return copy_inputs(was)
    if isinstance(was, torch.nn.Module):
        return now if refill(now, was) else copy_inputs(was)
    if isinstance(was, dict):
        _restore_names(now, was, partial(dict.pop, now), now.__setitem__)
    elif isinstance(was, list | deque):
        held = [_restored(*pair) for pair in zip(now, was, strict=False)]
        held += [copy_inputs(value) for value in list(was)[len(held) :]]
        now.clear()
        now.extend(held)
    elif isinstance(was, tuple):
        held = [_restored(*pair) for pair in zip(now, was, strict=True)]
        return now if all(new is old for new, old in zip(held, now, strict=True)) else copy_inputs(was)
    own = partial(object.__delattr__, now), partial(object.__setattr__, now)
    _restore_names(_attributes(now), _attributes(was), *own)
    return now


def _restore_names(
    now: dict[Any, Any], was: dict[Any, Any], drop: Callable[[Any], Any], put: Callable[[Any, Any], Any]
) -> None:
    for name in [name for name in now if name not in was]:
        drop(name)
    for name, value in was.items():
        held = now.get(name)
        if (new := _restored(held, value)) is not held or name not in now:
            put(name, new)


def as_outputs(tree: Any) -> Any:
    """Return an input in the form of an output: itself, or where it has objects, its tensors and plain values by path."""
    found = list(nodes(tree))
    odd = (isinstance(one, np.ndarray | deque) or (within and isinstance(one, Tensor)) for _, one, within in found)
    if not any(odd):
        return tree
    plain = {path: value if (tensor := _as_tensor(value)) is None else tensor for path, value, _ in found}
    return {path: value for path, value in plain.items() if isinstance(value, (Tensor, *_PLAIN))}
