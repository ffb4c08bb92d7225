"""Outputs as bytes, on their way from the worker that computed them to the judge.

A variant may return anything, even a tensor whose own attribute `detach` computes. So no code of an output is ever called: containers are read by the methods of
`dict`, `list` and `tuple`, tensors by those of `torch.Tensor`, bound here before any suite is loaded, and elements are copied from their address by NumPy, past
torch's dispatcher. Parts that cannot be read so are refused by name and path.

Outputs on a GPU stay there: the judge is given a handle of their memory (CUDA IPC), and copies the bytes. Where the driver gives no handle, they go by the host.
"""

import ctypes
import dataclasses
import functools
import json
import math
import os
import sys
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from pairbench.errors import DeclarationError
from pairbench.execute.worker.trees import dtype_name
from pairbench.execute.worker.trees import leaves as leaves_of
from pairbench.model.case import gradient_of

_TENSOR, _PARAMETER, _MODULE = torch.Tensor, torch.nn.Parameter, torch.nn.Module
_size, _stride, _address, _item_size = _TENSOR.size, _TENSOR.stride, _TENSOR.data_ptr, _TENSOR.element_size
_is_conj, _is_neg = _TENSOR.is_conj, _TENSOR.is_neg
_resolve_conj, _resolve_neg = _TENSOR.resolve_conj, _TENSOR.resolve_neg
_detach, _storage = _TENSOR.detach, _TENSOR.untyped_storage
_OF_TENSORS = frozenset(dir(_TENSOR))
_array, _write, _read, _status, _dumps = np.ndarray, os.pwrite, os.preadv, os.fstat, json.dumps
_char = ctypes.c_char
_empty, _stream, _wait, _on = torch.empty, torch.cuda.current_stream, torch.cuda.synchronize, torch.cuda.device
_name_of = type.__dict__["__qualname__"].__get__
_own, _mro_of, _space_of = object.__getattribute__, type.__dict__["__mro__"].__get__, type.__dict__["__dict__"].__get__
_PLAIN = (bool, int, float, str, type(None))
_NAMES = (torch.dtype, torch.device, torch.layout, torch.memory_format)
_OF_NUMPY = (np.ndarray, *{np.dtype(code).type for code in np.typecodes["All"]})
_FIELD = dataclasses._FIELD  # type: ignore[attr-defined]
_MOST_LEAVES, _LONGEST = 100_000, 400
_PLAIN_TENSOR_WANTED = "a plain torch.Tensor: one of another kind may compute when it is read, or lie about itself"
_PLAIN_VALUE_WANTED = "tensors, numbers, texts or None, or dicts, lists, tuples or dataclasses of them"
_Opened = dict[tuple[str, int], int]  # addresses of another process's allocations, by handle and number of the device
_WORDS = {1: "u1", 2: "u2", 4: "u4", 8: "u8"}
_KEPT_BYTES = 32 << 20


@dataclass(frozen=True)
class Refused:
    """A part of an output that cannot be read as plain data, and why, in words that follow `output is`."""

    why: str


_AS_IT_IS = (*_PLAIN, complex, Refused)


@dataclass(frozen=True)
class Exported:
    leaves: list[Any]  # each leaf's path in the output, with a list of its kind and its description
    pieces: list[Any]  # the bytes of the leaves that are sent through host memory, in the order of the leaves
    held: list[torch.Tensor]  # tensors that own the memory of the pieces, and memory that descriptions have handles of


def together(several: Iterable[Exported]) -> Exported:
    """Return the outputs of several calls as those of one; `read_each` tells them apart."""
    parts = list(several)
    found = [(f"{number}:{path}", one) for number, part in enumerate(parts) for path, one in part.leaves]
    return Exported(found, [one for part in parts for one in part.pieces], [one for part in parts for one in part.held])


def export(outputs: Any, *, copy: bool = True) -> Exported:
    """Return outputs as plain data; without `copy` the bytes are valid until the next call only."""
    leaves, pieces, held = list[Any](), list[Any](), list[torch.Tensor]()
    try:
        for path, leaf in leaves_of(readable(outputs)):
            if len(leaves) == _MOST_LEAVES:
                leaves[:] = [("", ["refused", f"one of more than {_MOST_LEAVES:,} parts"])]
                break
            if isinstance(leaf, _TENSOR):
                described = _described_tensor(leaf, pieces, held, copy=copy)
            elif isinstance(leaf, Refused):
                described = ["refused", leaf.why]
            else:
                described = ["complex", leaf.real, leaf.imag] if isinstance(leaf, complex) else ["value", leaf]
            leaves.append((path, described))
    except RecursionError:
        leaves[:] = [("", ["refused", "nested too deeply"])]
    return Exported(leaves, pieces, held)


def readable(outputs: Any) -> Any:
    """Return outputs as a tree of dicts, lists, dense tensors and plain values, without a call of their own code.

    Modules are dicts of their `state_dict`, dataclasses dicts of their fields. Sparse, nested, quantised and MKL-DNN tensors and NumPy's arrays are dense tensors under
    the name of their kind, so that they are compared only with their like. Anything else is a `Refused`.
    """
    kind = type(outputs)
    if issubclass(kind, dict):
        odd = next((type(key) for key in dict.keys(outputs) if not any(type(key) is one for one in _PLAIN)), None)
        if odd is not None:
            return Refused(f"a dict with a key of the type {_name_of(odd)}, expected texts or numbers")
        return {key: readable(value) for key, value in dict.items(outputs)}
    if issubclass(kind, list | tuple):
        return [readable(value) for value in (list if issubclass(kind, list) else tuple).__iter__(outputs)]
    if issubclass(kind, _MODULE):
        return {name: readable(tensor) for name, tensor in _of_module(outputs, "")}
    if kind is _TENSOR or kind is _PARAMETER:
        return _readable_tensor(outputs)
    if any(kind is plain for plain in _AS_IT_IS):  # not `in`, which asks a metaclass
        return outputs
    if any(kind is name for name in _NAMES):
        return str(outputs)
    if any(kind is array for array in _OF_NUMPY):
        try:
            return {"numpy": torch.from_numpy(np.array(outputs, order="C"))}
        except TypeError:  # of objects, texts or times
            return Refused("a NumPy array of no numbers, expected numbers")
    jagged = sys.modules.get("torch.nested._internal.nested_tensor")
    if type(jagged) is types.ModuleType and kind is dict.get(vars(jagged), "NestedTensor"):
        held = _held(outputs)
        return {"jagged": {name: readable(dict.get(held, f"_{name}")) for name in ("values", "offsets", "lengths")}}
    if type(kind) is type and (fields := _fields_of(kind)):
        return _readable_fields(kind, fields, outputs)
    why = _PLAIN_TENSOR_WANTED if issubclass(kind, _TENSOR) else _PLAIN_VALUE_WANTED
    name = _name_of(kind)
    return Refused(f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}, expected {why}")


def refused(outputs: Any) -> str | None:
    for path, leaf in leaves_of(outputs):
        if isinstance(leaf, Refused):
            return f"{output_name(path) if path else 'its output'} is {leaf.why}"
    return None


def output_name(path: str) -> str:
    """Return the name of an output in a sentence; beside a state, its path begins with it already."""
    named = gradient_of(path) or path == "output" or path.startswith(("output.", "output["))
    return path if named else f"output {path}" if path else "output"


def _computes(kind: type) -> bool:
    """Return whether a class computes `__dict__`."""
    found = [_space_of(base).get("__dict__") for base in _mro_of(kind)]
    return any(one is not None and type(one) is not types.GetSetDescriptorType for one in found)


def _held(part: Any) -> dict[str, Any]:
    """Return an object's own attributes with plain names, without calling its code; none where its class computes them."""
    own = {} if _computes(type(part)) else _own(part, "__dict__")
    return {name: value for name, value in dict.items(own) if type(name) is str}  # others hash and compare by code


def _fields_of(kind: type) -> list[str]:
    """Return the names of a dataclass's fields; none of another class, or where the class computes `__dict__`."""
    parts = [] if _computes(kind) else [vars(part) for part in kind.__mro__]
    fields = next((part["__dataclass_fields__"] for part in parts if "__dataclass_fields__" in part), None)
    found = list(dict.values(fields)) if type(fields) is dict else []
    return [field.name for field in found if type(field) is dataclasses.Field and field._field_type is _FIELD]  # type: ignore[attr-defined]


def _readable_fields(kind: type, names: list[str], outputs: Any) -> Any:
    slots = {name: slot for part in reversed(kind.__mro__) for name, slot in vars(part).items()}
    held = _held(outputs) if "__dict__" in slots else {}
    found = dict[str, Any]()
    for name in names:
        if type(slots.get(name)) is types.MemberDescriptorType:
            found[name] = readable(slots[name].__get__(outputs))
        elif name in held:
            found[name] = readable(held[name])
        else:
            return Refused(f"a dataclass {_name_of(kind)}, whose {name} is computed as it is read; return plain values")
    return found


def _readable_tensor(tensor: torch.Tensor) -> Any:
    # Properties of torch's are not to be shadowed by an attribute of the tensor itself; methods are, and so are called by their class.
    own = _own(tensor, "__dict__")
    if own and (shadowed := next((name for name in own if type(name) is str and name in _OF_TENSORS), None)):
        return Refused(
            f"a tensor with an attribute {shadowed!r} of its own in the place of torch's, which may compute when it is read: return tensors as torch makes them"
        )
    if tensor.is_meta:
        return Refused("on the device meta, where tensors have no values")
    if tensor.is_nested:
        return {"nested": [readable(part) for part in _TENSOR.unbind(_detach(tensor))]}
    if tensor.is_quantized:
        return {dtype_name(tensor): _TENSOR.dequantize(_detach(tensor))}
    if tensor.layout is not torch.strided:
        return {str(tensor.layout).removeprefix("torch.").strip("_"): _TENSOR.to_dense(_detach(tensor))}
    return tensor


def _of_module(module: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    fields = _held(module)
    passing = {name for name in set.__iter__(fields.get("_non_persistent_buffers_set", set())) if type(name) is str}
    for kind, leave_out in (("_parameters", ()), ("_buffers", passing)):
        for name, tensor in dict.items(fields.get(kind, {})):
            if type(name) is str and tensor is not None and name not in leave_out:
                yield prefix + name, tensor
    for name, part in dict.items(fields.get("_modules", {})):
        if type(name) is str and part is not None:
            yield from _of_module(part, f"{prefix}{name}.")


def _described_tensor(tensor: torch.Tensor, pieces: list[Any], held: list[torch.Tensor], *, copy: bool) -> list[Any]:
    device = tensor.device
    if device.type not in ("cpu", "cuda"):
        return ["refused", f"on {device}, expected on cpu or a GPU"]
    lazy = [_is_conj(tensor), _is_neg(tensor)]
    shape, dtype = tuple(_size(tensor)), dtype_name(tensor)
    if any(lazy):
        tensor = _resolve_neg(_resolve_conj(_detach(tensor)))
    strides, item = _stride(tensor), _item_size(tensor)
    distinct = tuple(min(size, 1) if stride == 0 else size for size, stride in zip(shape, strides, strict=True))
    count = math.prod(distinct)
    if count:
        extent = item * (1 + sum((size - 1) * stride for size, stride in zip(distinct, strides, strict=True)))
        storage = _storage(tensor)
        if storage.data_ptr() + storage.nbytes() < _address(tensor) + extent:
            return ["refused", "a tensor whose memory was given back"]
        if device.type == "cuda":
            held.append(_copied_on_gpu(tensor, extent) if copy else tensor)
            if (handle := _driver().handle(_address(held[-1]))) is not None:
                return ["shared", dtype, list(shape), list(strides), *handle, extent, str(device), *lazy]
            memory = _driver().on_host(_address(held[-1]), extent)
        else:
            memory = (_char * extent).from_address(_address(tensor))
        words = _array(distinct, _WORDS.get(item, f"V{item}"), memory, 0, tuple(item * stride for stride in strides))
        dense = words.flags.c_contiguous and not copy
        pieces.append(words if dense else _array.copy(words, "C"))
        held.append(tensor)
    return ["tensor", dtype, list(shape), list(distinct), count * item, str(device), *lazy]


def _copied_on_gpu(tensor: torch.Tensor, extent: int) -> torch.Tensor:
    """Return a copy of a tensor's memory as bytes, from its address on; a GPU makes it behind the work in its stream."""
    with _on(tensor.device):
        copied = _empty(extent, dtype=torch.uint8, device=tensor.device)
        _driver().copy(_address(copied), _address(tensor), extent, _stream().cuda_stream)
    return copied


class _ByValue(ctypes.Structure):
    _fields_ = (("bytes", _char * 64),)


class _Driver(NamedTuple):
    """Functions of CUDA's driver to copy memory and to share it between processes, which nobody can replace. They give 0, or the number of an error."""

    find: Any
    share: Any
    open: Any
    close: Any
    transfer: Any
    to_host: Any

    def handle(self, address: int) -> tuple[str, int] | None:
        """Return a handle of the allocation that an address is in, in hexadecimal digits, and the address's offset; None where the driver gives none, as for virtual memory."""
        first, handle = self._allocation(address)[0], _ByValue()
        if self.share(ctypes.addressof(handle), first):
            return None
        return bytes(handle).hex(), address - first

    def copy(self, to: int, address: int, extent: int, stream: int) -> None:
        self._check(self.transfer(to, address, extent, stream), "copy")

    def on_host(self, address: int, extent: int) -> np.ndarray[Any, Any]:
        _wait()
        found = np.empty(extent, "u1")
        self._check(self.to_host(found.ctypes.data, address, extent), "copy")
        return found

    def read(self, handle: str, offset: int, extent: int, to: torch.Tensor, opened: _Opened) -> None:
        """Begin to copy bytes of another process's allocation into a tensor, and note it in `opened`; a ValueError where the allocation has none there."""
        begin = opened.get((handle, to.get_device()), 0)
        if not begin:
            found = ctypes.c_uint64()
            by_value = _ByValue.from_buffer_copy(bytes.fromhex(handle).ljust(64, b"\0")[:64])
            self._check(self.open(ctypes.byref(found), by_value, 1), "open")
            begin = opened[handle, to.get_device()] = found.value
        first, size = self._allocation(begin)
        if offset + extent > size - (begin - first):
            raise ValueError("bytes that are not there")
        self.copy(_address(to), begin + offset, extent, _stream().cuda_stream)

    def _allocation(self, address: int) -> tuple[int, int]:
        first, size = ctypes.c_uint64(), ctypes.c_size_t()
        self._check(self.find(ctypes.byref(first), ctypes.byref(size), address), "find")
        return first.value, size.value

    def _check(self, error: int, what: str) -> None:
        if error:
            raise ValueError(f"memory that CUDA cannot {what} (error {error})")


@functools.cache
def _driver() -> _Driver:
    cuda = ctypes.CDLL("libcuda.so.1")
    address, size = ctypes.c_uint64, ctypes.c_size_t
    where = ctypes.POINTER(address)

    def function(name: str, *arguments: Any) -> Any:
        found = getattr(cuda, name)
        found.argtypes = arguments
        return found

    return _Driver(
        find=function("cuMemGetAddressRange_v2", where, ctypes.POINTER(size), address),
        share=function("cuIpcGetMemHandle", ctypes.c_void_p, address),
        open=function("cuIpcOpenMemHandle_v2", where, _ByValue, ctypes.c_uint),
        close=function("cuIpcCloseMemHandle", address),
        transfer=function("cuMemcpyDtoDAsync_v2", address, address, size, ctypes.c_void_p),
        to_host=function("cuMemcpyDtoH_v2", ctypes.c_void_p, address, size),
    )


def write(exported: Exported, file: int) -> str:
    """Write the bytes to a file of shared memory, and return the description that `read` needs. Bytes on a GPU stay there: they must not change until they are read."""
    place = 0
    if any(one[0] == "shared" for _, one in exported.leaves):
        _wait()
    for piece in exported.pieces:
        rest = memoryview(piece.reshape(-1).view("u1")).cast("B")
        while rest:
            written = _write(file, rest, place)
            place, rest = place + written, rest[written:]
    return _dumps(exported.leaves)


def read(described: str, file: int) -> dict[str, Any]:
    """Return outputs from shared memory as a dict of their leaves by path; the description is from another process, and may be any text."""
    found, place = dict[str, Any](), 0
    # Small outputs share an allocation, and each is opened once: to open, wait and close took half of reading seven captures.
    opened: _Opened = {}
    try:
        for path, (kind, *rest) in json.loads(described):
            found[str(path)], length = _leaf(file, place, kind, rest, opened)
            place += length
    except Exception as error:  # whatever a description may be wrong in
        why = f"{type(error).__name__}: {str(error)[:200]}"
        raise DeclarationError(f"its worker sent outputs that cannot be read: {why}") from None
    finally:
        for (_, device), begin in opened.items():
            _wait(device)  # for the copies from there
            _driver().close(begin)
    return found


def read_each(described: str, file: int, count: int) -> list[dict[str, Any]]:
    """Return the outputs of so many calls, which were written `together`."""
    each = [dict[str, Any]() for _ in range(count)]
    for path, leaf in read(described, file).items():
        number, _, rest = path.partition(":")
        if not number.isdecimal() or int(number) >= count:
            raise DeclarationError("its worker sent outputs of no call")
        each[int(number)][rest] = leaf
    return each


def _leaf(file: int, place: int, kind: str, rest: list[Any], opened: _Opened) -> tuple[Any, int]:
    """Return a leaf, and the number of its bytes in the file; what it opens of another process's memory is noted."""
    match kind, rest:
        case "value", [bool() | int() | float() | str() | None as value]:
            return value, 0
        case "complex", [float() as real, float() as imaginary]:
            return complex(real, imaginary), 0
        case "refused", [str() as why]:
            return Refused(why[:_LONGEST]), 0
        case "tensor", [str(), list(), list(), int() as length, str() as device, bool() as conj, bool() as neg]:
            return _lazy(_tensor(file, place, *rest[:4]).to(device), conj=conj, neg=neg), length
        case "shared", [str(), list(), list(), str(), int(), int(), str(), bool() as conj, bool() as neg]:
            return _lazy(_shared_tensor(opened, *rest[:7]), conj=conj, neg=neg), 0
    raise ValueError("a part of no known kind")


def _dtype_named(name: str, sizes: list[int]) -> torch.dtype:
    dtype = getattr(torch, name)
    if not isinstance(dtype, torch.dtype) or not all(type(one) is int and one >= 0 for one in sizes):
        raise ValueError("a tensor of no dtype or shape")
    return dtype


def _tensor(file: int, place: int, name: str, shape: list[int], distinct: list[int], length: int) -> torch.Tensor:
    dtype = _dtype_named(name, [*shape, *distinct])
    if len(shape) != len(distinct) or any(few not in (1, size) for size, few in zip(shape, distinct, strict=True)):
        raise ValueError("a tensor of two shapes")
    if math.prod(distinct) * dtype.itemsize != length or length > _status(file).st_size - place:
        raise ValueError("a tensor of another size, or whose bytes are not there")
    raw = torch.empty(length, dtype=torch.uint8)
    content = memoryview(raw.numpy())
    while content:
        got = _read(file, [content], place)
        if not got:
            raise ValueError("bytes that are not there any more")
        content, place = content[got:], place + got
    value = (raw != 0) if dtype is torch.bool else raw.view(dtype)
    return value.reshape(distinct).expand(shape)


def _shared_tensor(
    opened: _Opened, name: str, shape: list[int], strides: list[int], handle: str, offset: int, extent: int, device: str
) -> torch.Tensor:
    dtype = _dtype_named(name, [*shape, *strides, offset])
    if len(shape) != len(strides) or not all(shape):
        raise ValueError("a tensor of two shapes, or of none")
    if extent != dtype.itemsize * (1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))):
        raise ValueError("a tensor of another size")
    with _on(torch.device(device)):
        raw = torch.empty(extent, dtype=torch.uint8, device=device)
        _driver().read(handle, offset, extent, raw, opened)
    value = (raw != 0) if dtype is torch.bool else raw.view(dtype)
    return value.as_strided(shape, strides)


def _lazy(value: torch.Tensor, *, conj: bool, neg: bool) -> torch.Tensor:
    if conj:
        value = torch.conj(value.conj_physical())
    return torch._neg_view(-value) if neg else value


def as_judged(outputs: Any) -> dict[str, Any]:
    """Return outputs of the judge's own calls in the form of those from other processes."""
    plain = readable(outputs)
    if why := refused(plain):
        raise DeclarationError(why)
    return dict(leaves_of(plain))


def clear(file: int) -> None:
    """Free the shared memory if large outputs were in it; to allocate it again for small ones takes longer than is saved."""
    if _status(file).st_size > _KEPT_BYTES:
        os.ftruncate(file, 0)
