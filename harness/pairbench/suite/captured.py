"""What a program called, as `pairbench capture` saw it: calls, what they have in common, and what a suite cannot make again.

A call is told as JSON: its class or function, the form of its arguments (see `execute.worker.capture`), and how often it was made. Calls that differ
in shapes, dtypes and plain numbers are cases of one operator, others are operators of their own.
"""

import hashlib
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, NamedTuple

from pairbench.model.plain import Value

_CALL = ("kind", "compiled", "name", "made", "training", "args", "kwargs", "dtype", "learned", "grad", "autocast")
"""What tells calls apart."""
_SEEN = ("mean", "scale", "low", "high", "storage", "offset")
"""What is known of a tensor's values and place, which tells no calls apart."""


class Seen(Value):
    """What one process called, or several together."""

    calls: tuple[dict[str, Any], ...]
    device_ns: dict[str, int] = field(default_factory=dict)
    """The device's time by the key of a call, with ` backward` behind for its backward; of other work by `kernel` and its name."""
    busy_ns: float = 0.0
    """The device's time of all kernels and copies; 0 where the profiler has not recorded."""
    wall_ns: float = 0.0
    left_out: dict[str, int] = field(default_factory=dict)
    backwards: int = 0
    """How often the program went backward through a graph; without that, calls need no gradients."""
    has_modules: bool = False
    """Whether the program called modules, so that what was before the first such call is left out."""
    device: str = ""
    """Model of the GPU; empty where the program used none."""
    torch: str = ""
    processes: int = 1

    def to_json(self) -> str:
        """Return all of it as a JSON document."""
        return json.dumps(vars(self))

    @classmethod
    def from_json(cls, text: str) -> "Seen":
        """Return what `to_json` has written."""
        return cls(**json.loads(text))

    def timed_by(self, profiled: "Seen") -> "Seen":
        """Return these calls with the device's times that another run of the program has recorded."""
        return replace(self, device_ns=profiled.device_ns, busy_ns=profiled.busy_ns)

    def ns(self, call: Mapping[str, Any]) -> float:
        """Return the time of a call in ns: the device's if that was recorded, else the host's."""
        if not self.busy_ns:
            return float(call["host_ns"])
        key = key_of(call)
        return float(self.device_ns.get(key, 0) + self.device_ns.get(f"{key} backward", 0))

    @property
    def total_ns(self) -> float:
        """The time of the program that calls are shares of: the device's if it was recorded, else that of all calls on the host."""
        return self.busy_ns or sum(map(self.ns, self.calls)) or 1.0


def key_of(call: Mapping[str, Any]) -> str:
    """Return the key of a call: the same in every process and pass of a program."""
    told = {name: _without_values(call.get(name)) for name in _CALL}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:12]


def _without_values(told: Any) -> Any:
    if isinstance(told, list):
        return [_without_values(one) for one in told]
    if isinstance(told, dict):
        return {name: _without_values(one) for name, one in told.items() if name not in _SEEN}
    return told


def together(parts: Iterable[Seen]) -> Seen:
    """Return what several processes saw as one: counts and times add up."""
    calls, device_ns, left_out, several = dict[str, dict[str, Any]](), Counter[str](), Counter[str](), [*parts]
    for part in several:
        device_ns.update(part.device_ns)
        left_out.update(part.left_out)
        for call in part.calls:
            held = calls.setdefault(key_of(call), {**call, "count": 0, "host_ns": 0.0})
            held["count"] += call["count"]
            held["host_ns"] += call["host_ns"]
    return Seen(
        calls=tuple(calls.values()),
        device_ns=dict(device_ns),
        busy_ns=sum(part.busy_ns for part in several),
        wall_ns=max((part.wall_ns for part in several), default=0.0),
        left_out=dict(left_out),
        backwards=sum(part.backwards for part in several),
        has_modules=any(part.has_modules for part in several),
        device=next((part.device for part in several if part.device), ""),
        torch=next((part.torch for part in several if part.torch), ""),
        processes=sum(bool(part.calls) for part in several),
    )


class RefusedError(Exception):
    """Raised for a call that a suite cannot make again; its text says why."""


def short(name: str) -> str:
    return re.split(r"[.:]", name)[-1]


_Leaf = tuple[tuple[str, ...], Any]


def leaves(told: Any, path: tuple[str, ...] = ()) -> Iterator[_Leaf]:
    """Yield the path and the form of each argument, outermost first; lists and dicts are gone through."""
    kind = told[0] if isinstance(told, list) else None
    if kind in ("list", "tuple"):
        for place, one in enumerate(told[1]):
            yield from leaves(one, (*path, str(place)))
    elif kind == "dict":
        for name, one in told[1].items():
            yield from leaves(one, (*path, name))
    else:
        yield path, told


def group_of(call: Mapping[str, Any], *, trained: bool) -> str:
    """Return what calls of one operator have in common; refuse a call that cannot be made again."""
    whys = {
        "code of torch.compile": call["compiled"],
        "an optimizer's step": call["kind"] == "optimizer",
        "a custom operator that no function of Python declares": call.get("declared") == "",
        "draws random numbers": call.get("random"),
        "made before the recording, so its arguments are not known": call["kind"] == "module" and call["made"] is None,
    }
    if why := next((why for why, applies in whys.items() if applies), None):
        raise RefusedError(why)
    if not any(is_tensor(told) for part in ("args", "kwargs") for _, told in leaves(call[part])):
        raise RefusedError("takes no tensor")
    if "<" in call["name"] or (call["kind"] == "function" and ":" in call["name"]):
        raise RefusedError("not a name that can be imported")
    names = ("kind", "name", "grad", "graph", "autocast", "training", "learned", "writes", "folder")
    common: list[Any] = [trained, *(call.get(name) for name in names)]
    storages = packed(call)
    for part in ("made", "args", "kwargs"):
        for path, told in leaves(call.get(part)):
            where = ".".join(path) or part
            if is_tensor(told):
                tensor = told[1]
                if part == "made" or "kind" in tensor:
                    raise RefusedError(f"{where} is a tensor of {short(tensor.get('kind', 'its class'))}")
                if (trained and needs_graph(call) and tensor.get("needs_grad")) and len(path) > 1:
                    raise RefusedError(f"{where}, a tensor in a list, needs a gradient")
                place = storages.get(tensor.get("storage", 0))
                whole = [tensor["shape"], stride_of(tensor), tensor["offset"] - place.offset] if place else []
                needs = [bool(tensor.get("needs_grad")), "stride" in tensor, kind_of(tensor["dtype"])]
                common.append([part, path, len(tensor["shape"]), needs, whole])
            elif isinstance(told, list):
                if told[0] in ("other", "module"):
                    raise RefusedError(f"{where} is a {short(str(told[1]))}, which cannot be made again")
                common.append([part, path, told])
            else:
                common.append([part, path, type(told).__name__ if _is_axis(told) else told])
    return json.dumps(common)


def needs_graph(call: Mapping[str, Any]) -> bool:
    """Return whether a call has made a graph to go back through: no call under `no_grad` does, nor any whose outputs need no gradient."""
    return bool(call["grad"] and call.get("graph", True))


def is_tensor(told: Any) -> bool:
    return isinstance(told, list) and told[0] == "tensor"


def _is_axis(told: Any) -> bool:
    return isinstance(told, bool | int | float) or (isinstance(told, str) and bool(told) and told.isprintable())


def kind_of(dtype: str) -> str:
    return "float" if "float" in dtype or "complex" in dtype else "int"


def float_dtypes(call: Mapping[str, Any]) -> set[str]:
    found = {one[1]["dtype"] for part in ("args", "kwargs") for _, one in leaves(call[part]) if is_tensor(one)}
    return {one for one in {*found, call.get("dtype") or ""} if kind_of(one) == "float"}


class Packed(NamedTuple):
    name: str
    offset: int
    size: int


def packed(call: Mapping[str, Any]) -> dict[int, Packed]:
    """Return the storages that several tensors of a call are views of, each with a name, the offset of the first and the size of all."""
    views = defaultdict[int, list[dict[str, Any]]](list)
    for part in ("args", "kwargs"):
        for _, one in leaves(call[part]):
            if is_tensor(one) and "storage" in one[1] and kind_of(one[1]["dtype"]) == "float":
                views[one[1]["storage"]].append(one[1])
    found = dict[int, Packed]()
    for storage, several in views.items():
        if len(several) > 1 and all(one["shape"] for one in several):
            first = min(one["offset"] for one in several)
            ends = (
                one["offset"] + sum((n - 1) * step for n, step in zip(one["shape"], stride_of(one), strict=True))
                for one in several
            )
            found[storage] = Packed(f"packed_{len(found)}" if found else "packed", first, max(ends) - first + 1)
    return found


def stride_of(told: Mapping[str, Any]) -> list[int]:
    return told["stride"] if "stride" in told else strides_of(told["shape"])


def strides_of(shape: Sequence[int]) -> list[int]:
    """Return the strides of a contiguous tensor."""
    return [math.prod(shape[place + 1 :]) for place in range(len(shape))]
