"""The inputs of a workload: random ones by their dtype, or by their name as in SOL-ExecBench, numbers, tensors of a file, and a problem's own."""

import math
import re
from collections.abc import Callable
from typing import Any

import torch

from pairbench.errors import DeclarationError
from pairbench.execute.worker.inputs import Make
from pairbench.suite import traces


def inputs_of(
    problem: traces.Problem, workload: traces.Workload, make: Make, custom: Callable[..., Any] | None
) -> dict[str, Any]:
    """Return the inputs in the order of the definition, and the sizes of the case's axes with the device, which a candidate needs to make outputs."""
    found: dict[str, Any] = {}
    own: dict[str, Any] = {}
    kinds = {name: workload.inputs.get(name, {}) for name in problem.inputs}
    if custom and any(one.get("type") == "custom" for one in kinds.values()):
        scalars = {name: one["value"] for name, one in kinds.items() if one.get("type") == "scalar"}
        own = custom({**workload.sizes, **scalars}, make.device)
        if not isinstance(own, dict):
            raise DeclarationError(f"{problem.custom} returned {type(own).__name__}, expected a dict of inputs")
    for name, spec in problem.inputs.items():
        shape, given = problem.shape(spec, workload.sizes), kinds[name]
        match given.get("type", "random"):
            case "scalar":
                value = given["value"]
                found[name] = (
                    value
                    if shape is None or value is None
                    else torch.full(shape, value, dtype=dtype_of(spec), device=make.device)
                )
            case "safetensors":
                found[name] = _stored(problem, name, given).to(make.device)
            case "custom":
                if name not in own:
                    raise DeclarationError(
                        f"{problem.custom} returned no {name!r}, expected a value for each custom input"
                    )
                value = own[name]
                found[name] = value.to(make.device) if isinstance(value, torch.Tensor) else value
            case _:
                found[name] = _random(problem, name, spec, shape, make)
    found["case axes"] = {"sizes": dict(workload.sizes), "device": str(make.device)}
    return found


def dtype_of(spec: traces.Spec) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, spec.dtype)
    return dtype


def _random(problem: traces.Problem, name: str, spec: traces.Spec, shape: tuple[int, ...] | None, make: Make) -> Any:
    if shape is None:
        return _drawn(spec.dtype, (), make).item()
    value = _by_name(name, spec, shape, make) if problem.form == traces.SOL else None
    value = _drawn(spec.dtype, shape, make) if value is None else value
    return value.softmax(-1) if problem.op_type == "sampling" and name == "probs" else value


def _drawn(dtype: str, shape: tuple[int, ...], make: Make) -> torch.Tensor:
    if dtype == "bool":
        return make.integers(*shape, high=2, dtype="bool")
    if dtype.startswith(("int", "uint")):
        low, high = {"int8": (-128, 128), "uint8": (0, 256)}.get(dtype, (-1024, 1024))
        return make.integers(*shape, low=low, high=high, dtype=dtype)
    if dtype.startswith("float8"):
        return make.normal(*shape).clamp_(-2, 2).to(getattr(torch, dtype))
    return make.normal(*shape, dtype=dtype)


_MATRIX = re.compile(r"weight\d*|.*_(weights?|projs?|weight_matrix)\d*")


def _by_name(name: str, spec: traces.Spec, shape: tuple[int, ...], make: Make) -> torch.Tensor | None:
    """Return the values that SOL-ExecBench gives a floating-point input of a name; None where the name says nothing."""
    dtype, said = dtype_of(spec), spec.description.lower()
    if not dtype.is_floating_point or dtype.itemsize == 1:
        return None
    base = name.rstrip("0123456789")
    normed = re.fullmatch(r"(?:norm|.*_norm|.*layernorm|.*norm\d+)_(weight|bias)", name)
    if normed:
        return (make.ones if normed[1] == "weight" else make.zeros)(*shape, dtype=dtype)
    square = len(shape) > 1 and shape[-1] == shape[-2]
    if square and (name in ("attention_mask", "causal_mask") or ("attention mask" in said and "causal" in said)):
        above = torch.ones(shape[-2:], dtype=torch.bool, device=make.device).triu(1)
        return make.zeros(*shape, dtype=dtype).masked_fill_(above, torch.finfo(dtype).min)
    binary = ("binary", "{0, 1}", "0 or 1", "1.0 for valid", "0.0 for masked")
    if name in ("x_mask", "text_mask", "aspect_ratio_mask", "drop_mask", "attention_mask") or (
        name.endswith("_mask") and any(word in said for word in binary)
    ):
        return make.integers(*shape, high=2).to(dtype)
    if name in ("cos", "cos_cached", "rope_cos", "sin", "sin_cached", "rope_sin"):
        angle = make.normal(*shape).clamp_(-math.pi, math.pi)
        return (angle.cos() if "cos" in name else angle.sin()).to(dtype)
    if base.split("_")[-1] in ("rstd", "std", "var") or name.rsplit("_", maxsplit=1)[-1] == "variance":
        return make.normal(*shape, dtype=dtype).abs_() + 0.1
    ranges = {"A_cumsum": (-0.1, 0.0), "A_log": (-5.0, -1.0), "A": (-1.0, -0.001), "g": (-5.0, 0.0)}
    if name in ranges:
        low, high = ranges[name]
        decay = make.uniform(*shape, low=low, high=high, dtype=dtype)
        return decay.cumsum(-1) if name == "A_cumsum" else decay
    if name in ("attn_weights", "attention_weights", "routing_weights") or ("softmax" in said and "output" in said):
        return make.normal(*shape).softmax(-1).to(dtype)
    if len(shape) > 1 and _MATRIX.fullmatch(name):
        return make.normal(*shape, dtype=dtype) / math.sqrt(shape[-1])
    return None


def _stored(problem: traces.Problem, name: str, given: dict[str, Any]) -> torch.Tensor:
    """Return a tensor of a safetensors file, on the host; its form was checked when the problem was read."""
    path = problem.blob(given["path"], f"the input {name!r}")
    header, start = traces.blob_header(path, f"the input {name!r}")
    entry = header[given["tensor_key"]]
    begin, end = entry["data_offsets"]
    with path.open("rb") as file:
        file.seek(start + begin)
        content = bytearray(file.read(end - begin))
    dtype = getattr(torch, traces.DTYPES[entry["dtype"]])
    return (torch.frombuffer(content, dtype=dtype) if content else torch.empty(0, dtype=dtype)).reshape(entry["shape"])
