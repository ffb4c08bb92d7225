"""The signature of a call as `pairbench capture` records it: what tells calls apart, and what it takes to make one like it, as JSON."""

import contextlib
import enum
import functools
import inspect
import json
import sys
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any, cast

import torch
from torch._library.custom_ops import OPDEFS
from torch.overrides import resolve_name

from pairbench.execute.worker.trees import dtype_name

_PLAIN = (bool, int, float, str, type(None))
_SAMPLE = 1 << 14  # elements of a tensor that tell its mean and spread
_LONGEST = 256  # items of a list or dict among the arguments that are described
_TOLD_APART = 8  # the first items of a list, as of all tensors of an optimizer, by which signatures are told apart
_NO_DEFAULT = object()


def told_of_module(module: torch.nn.Module, made: Any) -> dict[str, Any]:
    weights = list(module.parameters())
    dtypes = {dtype_name(one) for one in weights if one.is_floating_point()}
    learned = [name for name, one in module.named_parameters() if one.requires_grad] if torch.is_grad_enabled() else []
    told = {"name": class_name(type(module)), "made": made[1] if made else None, "training": module.training}
    told |= {"names": parameter_names(module.forward), "folder": folder_of(type(module))}
    told |= {"elements": sum(one.numel() for one in weights)}
    return {**told, "dtype": dtypes.pop() if len(dtypes) == 1 else None, "learned": learned}


def made_with(module: torch.nn.Module, frame: FrameType | None) -> tuple[str, list[Any]]:
    """Return the arguments of the outermost `__init__` of a module, from the frames in which it runs: what tells them apart, and their form."""
    made: dict[str, Any] = {}
    while frame is not None and frame.f_code.co_name == "__init__" and frame.f_code.co_varnames:
        if frame.f_locals.get(frame.f_code.co_varnames[0]) is not module:
            break
        names, more, keywords, values = inspect.getargvalues(frame)
        made = {name: values[name] for name in names[1:] if name in values}
        made |= {"*": list(values[more])} if more and values.get(more) else {}
        made |= values.get(keywords, {}) if keywords else {}
        frame = frame.f_back
    made = {name: value for name, value in made.items() if name != "device" and not isinstance(value, torch.device)}
    told = form(made)
    usual = _defaults(cast("Any", type(module)))
    defaults = [name for name, value in made.items() if usual.get(name, _NO_DEFAULT) is value]
    return json.dumps(told, sort_keys=True), [*told, defaults]


@functools.cache
def _defaults(kind: Any) -> dict[str, Any]:
    return {name: one.default for name, one in inspect.signature(kind).parameters.items()}


def weights_key(module: torch.nn.Module) -> Any:
    """Return what tells the weights of two modules of one class apart, which their arguments may not."""
    weights = module._parameters.values() if not module._modules else module.parameters()
    return tuple((one.shape, one.dtype, one.device, one.requires_grad) for one in weights if one is not None)


def key_of_values(value: Any) -> Any:
    """Return what tells the form of a value from others, to be hashed: values of tensors do not count."""
    if isinstance(value, torch.Tensor):
        return value.shape, value.stride(), value.dtype, value.device, value.requires_grad
    if type(value) in _PLAIN:  # other classes may have no hash
        return type(value), value
    if isinstance(value, list | tuple):
        return type(value), len(value), tuple(map(key_of_values, value[:_TOLD_APART]))
    if isinstance(value, dict):
        return dict, tuple((str(name), key_of_values(one)) for name, one in value.items())
    return (type(value), value) if isinstance(value, torch.dtype | torch.device | enum.Enum) else type(value)


def form(value: Any, *, values: bool = True) -> Any:
    """Return a value as JSON: plain values as they are, others as a list of their kind and what it takes to make one like it, `values` of tensors included."""
    if isinstance(value, torch.nn.Module):
        return ["module", class_name(type(value)), None]
    if isinstance(value, torch.Tensor):
        return ["tensor", _tensor(value, values=values)]
    if isinstance(value, enum.Enum):
        return ["enum", class_name(type(value)), value.name]
    if isinstance(value, _PLAIN) and type(value) in _PLAIN:
        return value
    if isinstance(value, torch.device):
        return ["device"]
    if isinstance(value, torch.dtype | torch.memory_format | torch.layout):
        return ["torch", str(value)]
    if isinstance(value, dict) and type(value) is dict and len(value) <= _LONGEST:
        return ["dict", {str(name): form(one, values=values) for name, one in value.items()}]
    if isinstance(value, list | tuple) and len(value) <= _LONGEST:
        kind = "list" if isinstance(value, list) else "tuple"  # torch.Size, too
        return [kind, [form(one, values=values) for one in value]]
    if isinstance(value, type | FunctionType | type(len)) and "<" not in value.__qualname__:
        return ["name", f"{value.__module__}:{value.__qualname__}"]
    if callable(plain := getattr(value, "to_dict", None)) and hasattr(type(value), "from_dict"):
        with contextlib.suppress(Exception):  # of the program's own class
            made = json.loads(json.dumps((getattr(value, "to_diff_dict", None) or plain)()))
            return ["from_dict", class_name(type(value)), made]
    return ["other", class_name(type(value))]


def _tensor(tensor: torch.Tensor, *, values: bool) -> dict[str, Any]:
    told: dict[str, Any] = {"shape": list(tensor.shape), "dtype": dtype_name(tensor)}
    told["device"] = tensor.device.type
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout != torch.strided:
        return {**told, "kind": class_name(type(tensor)) if tensor.layout == torch.strided else str(tensor.layout)}
    if not tensor.is_contiguous():
        told["stride"] = list(tensor.stride())
    told |= {"storage": tensor.untyped_storage().data_ptr(), "offset": tensor.storage_offset()}
    told |= {"needs_grad": True} if tensor.requires_grad else {}
    if not values or not tensor.numel() or tensor.device.type == "meta":
        return told
    sample = tensor.detach().flatten()[:: max(1, tensor.numel() // _SAMPLE)]
    if tensor.is_floating_point():
        finite = sample.double()[sample.isfinite()]
        if finite.numel():
            told |= {"mean": float(finite.mean()), "scale": float(finite.std(correction=0))}
    elif not tensor.is_complex():
        negative = sample[sample < 0].unique() if tensor.dtype != torch.bool else sample[:0]
        # One negative number beside others marks what is to be ignored, as a target of cross entropy does.
        kept = sample[sample >= 0] if negative.numel() == 1 and bool((sample >= 0).any()) else sample
        told |= {"low": int(kept.min()), "high": int(kept.max())}
    return told


def version_of(tensor: torch.Tensor) -> Any:
    """Return what changes as a tensor is written to; tensors of inference mode count no versions, so of these some values."""
    if not tensor.is_inference():
        return tensor._version
    with contextlib.suppress(RuntimeError, TypeError, NotImplementedError):  # of sparse and other odd tensors
        return tensor.flatten()[:_SAMPLE].cpu().contiguous().view(torch.uint8).numpy().tobytes()
    return None


def random_state() -> bytes:
    states = [
        torch.default_generator.get_state(),
        *([torch.cuda.get_rng_state()] if torch.cuda.is_initialized() else []),
    ]
    return b"".join(one.numpy().tobytes() for one in states)


def is_capturing() -> bool:
    """Return whether the current stream is captured as a CUDA graph, in which nothing may wait for the device."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def autocast_now() -> tuple[str, str] | None:
    for device in ("cuda", "cpu") if torch._C._is_any_autocast_enabled() else ():
        if torch.is_autocast_enabled(device):
            return device, str(torch.get_autocast_dtype(device)).removeprefix("torch.")
    return None


def class_name(kind: type) -> str:
    if getattr(torch.nn, kind.__name__, None) is kind:
        return f"torch.nn:{kind.__name__}"
    return f"{kind.__module__}:{kind.__qualname__}"


def told_of_function(function: Any) -> dict[str, Any]:
    """Return the name under which a function of torch can be called, and for a custom operator the function that declares it."""
    told = {"names": parameter_names(function), "folder": folder_of(function)}
    if isinstance(function, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        packet = getattr(function, "overloadpacket", function)
        name = str(packet._qualified_op_name)
        declared = getattr(OPDEFS.get(name), "_init_fn", None)
        if declared is not None:
            told |= {"declared": f"{declared.__module__}:{declared.__qualname__}", "folder": folder_of(declared)}
        elif not name.startswith(("aten::", "prims::")):
            told["declared"] = ""
        return {**told, "name": f"torch.ops.{str(function).replace('::', '.')}"}
    named = f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', type(function).__name__)}"
    return {**told, "name": resolve_name(function) or named}


def parameter_names(function: Any) -> list[str]:
    """Return the names of the positional parameters of a function, or none where it does not tell them."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [one.name for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]


def folder_of(called: Any) -> str:
    """Return the folder from which the module of a class or function was imported, where that is none of the installed packages."""
    module = sys.modules.get(getattr(called, "__module__", "") or "")
    file = getattr(module, "__file__", None)
    if not file or "site-packages" in file or "dist-packages" in file:
        return ""
    depth = 0 if module is None or module.__name__ == "__main__" else module.__name__.count(".")
    folder = Path(file).resolve().parents[depth + (Path(file).name == "__init__.py")]
    return str(folder / Path(file).name if module is not None and module.__name__ == "__main__" else folder)
