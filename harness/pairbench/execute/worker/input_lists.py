"""Lists of inputs in BackendBench's text form: an operator for each `Operator: aten.NAME`, a case for each `cnt: N, ARGS`.

ARGS is parsed and never evaluated: `((T([8, 16], bf16), 2.0), {'dim': -1})`. The rules are in docs/problems.md.
"""

import ast
import functools
import math
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.fx.graph import dtype_abbrs
from torch.utils._pytree import tree_leaves, tree_map

from pairbench.errors import SuiteError
from pairbench.execute.worker import corpora
from pairbench.execute.worker.calls import Make
from pairbench.execute.worker.corpora import Candidate, assembled, function_in
from pairbench.execute.worker.problems import digest_of_code, name_of
from pairbench.model.operator import Operator
from pairbench.model.plain import Value
from pairbench.suite.definitions import digest_of
from pairbench.suite.modules import NAMESPACE, PROBLEM, load_module

_LINE = re.compile(r"cnt:\s*\d+\s*,\s*(.+)")
_DEVICE = re.compile(r"torch\.device\(.*\)|cpu|cuda(:\d+)?")
_META = torch.device("meta")
"""The device of tensors before their values are drawn; it takes the place of every device that a line names."""
_NAMES: dict[str, Any] = {"inf": math.inf, "nan": math.nan, **{text: dtype for dtype, text in dtype_abbrs.items()}}


def operators_of(path: Path, module: ModuleType | None, against: str) -> Iterable[Operator]:
    """Return the operators of a problem's file of any form, with the candidates in `against`; `module` is as in `corpora`.

    The first operator of a list has the reasons why others were left out.

    Raises:
        SuiteError: with those reasons, where there is none.
    """
    if path.suffix != ".txt":
        return [corpora.operator_of(path, module, against)]
    lines: dict[str, list[tuple[str, str]]] = {}
    refused, found = list[str](), list[Operator]()
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        if line.lstrip().startswith("Operator:"):
            several = lines.setdefault(line.partition(":")[2].strip().removeprefix("aten."), [])
        elif line.strip():
            several.append((f"{path.name}, line {number}", line.strip()))
    for name, several in lines.items():
        try:
            found.append(_operator(name, several, against))
        except SuiteError as error:
            refused.append(f"problem {error}")
    if not found:
        raise SuiteError(f"suite {path.name}: no operator can be taken: {'; '.join(refused)}")
    vars(found[0]).update(left_out=(*found[0].left_out, *refused))
    return found


def _operator(name: str, lines: Iterable[tuple[str, str]], against: str) -> Operator:
    base, _, overload = name.partition(".")
    function = getattr(getattr(torch.ops.aten, base, None), overload or "default", None)
    if not isinstance(function, torch._ops.OpOverload):
        raise SuiteError(f"{name!r} is no operator of this torch (torch.ops.aten)")
    names = [one.name for one in function._schema.arguments]
    written = [one.name for one in function._schema.arguments if one.alias_info and one.alias_info.is_write]
    if written not in ([], names[:1]):
        raise SuiteError(f"{name!r} writes into {', '.join(written)}, expected into its first argument, or into none")
    by_key, left_out = dict[str, Any](), list[str]()
    for where, line in lines:
        try:
            key, arguments = _parsed(line, names, in_place=bool(written))
            if by_key.setdefault(key, arguments) is not arguments:
                left_out.append(f"workload {where}: its inputs are those of an earlier line")
        except Exception as error:
            left_out.append(f"workload {where}: {error}")
    if not by_key:
        raise SuiteError(f"{name}: none of its inputs can be taken: {left_out[-1] if left_out else 'it has none'}")
    cases, sizes = list[dict[str, Any]](), list[float]()
    for key, arguments in by_key.items():
        tensors = [leaf for leaf in tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]
        about = [{"dtype": str(one.dtype).removeprefix("torch."), "shape": tuple(one.shape)} for one in tensors[:1]]
        cases.append({axis: value for one in about for axis, value in one.items() if value} | {"workload": key})
        sizes.append(sum(one.numel() for one in tensors))
    made, entry = Drawing(by_key=by_key, in_place=bool(written)), Applied(function=function)
    space = {"__name__": f"{NAMESPACE}.problem", "made": made, "problem_digest": name, "entry": entry}
    candidates = _candidates(name.replace(".", "__"), Path(against)) if against else ()
    more = {"state": ["target"] if written else [], "reset": bool(written)}
    source = f"{PROBLEM} BackendBench: aten.{name}"
    operator = assembled(name_of(name, "op"), space, cases, sizes, candidates, source=source, **more)
    vars(operator).update(left_out=tuple(left_out))
    return operator


def _candidates(name: str, against: Path) -> Iterator[Candidate]:
    """Yield the candidate in a given file, or one for each implementation in the operator's folder below a given folder."""
    given = [against] if against.suffix == ".py" else []
    for file in sorted((against / name).glob(f"{name}_implementation*.py")) if against.is_dir() else given:
        rest = file.stem.removeprefix(f"{name}_implementation").strip("_")
        load = functools.partial(_load, file.resolve(), f"{name}_kernel_impl")
        yield Candidate(name_of(rest or against.resolve().stem, "candidate"), digest_of_code(file.read_bytes()), load)


def _load(file: Path, function: str, _: Mapping[str, int]) -> Callable[..., Any]:
    return Applied(function=function_in(load_module(file), function, file.name))


def _parsed(line: str, names: Container[str], *, in_place: bool) -> tuple[str, Any]:
    """Return a digest of a line's arguments, and these by position and by name, with tensors that have no values yet."""
    match = _LINE.fullmatch(line)
    tree = ast.parse(match[1].strip("'\""), mode="eval").body if match else None
    if not isinstance(tree, ast.Tuple) or [type(one) for one in tree.elts] != [ast.Tuple, ast.Dict]:
        raise ValueError("expected `cnt: N, ((...), {...})`, the arguments by position and by name")
    positional, named = _value(tree)
    if unknown := [one for one in named if one not in names]:
        raise ValueError(f"the operator has no {unknown[0]!r}")
    if in_place and not isinstance(next(iter(positional), None), torch.Tensor):
        raise ValueError("the operator works in place, and its first argument is no tensor")
    return digest_of(ast.unparse(tree))[:8], (positional, named)


def _value(node: Any) -> Any:
    match node:
        case ast.Tuple(elts=several):
            return tuple(map(_value, several))
        case ast.List(elts=several):
            return list(map(_value, several))
        case ast.Dict(keys=names, values=several):
            return {_value(name): _value(one) for name, one in zip(names, several, strict=True)}
        case ast.UnaryOp(op=ast.USub(), operand=number):
            return -_value(number)
        case ast.Constant(value=str(text)):
            return _META if _DEVICE.fullmatch(text) else _NAMES.get(text, text)
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name) if name in _NAMES:
            return _NAMES[name]
        case ast.Call(func=ast.Name(id="T"), args=places, keywords=named):
            return _form(*map(_value, places), **{str(one.arg): _value(one.value) for one in named})
        case ast.Call(func=ast.Attribute(value=ast.Name(id="torch" | "th"), attr="device")):
            return _META
        case ast.Attribute(value=ast.Name(id="torch" | "th"), attr=name):
            if isinstance(found := getattr(torch, name, None), torch.dtype | torch.layout | torch.memory_format):
                return found
    expected = "expected T([sizes], dtype), a list, a number or a name of torch"
    raise ValueError(f"{ast.unparse(node)!r:.80} is unknown, {expected}")


def _form(size: Any, dtype: torch.dtype, stride: Any = None, device: object = None) -> torch.Tensor:
    del device  # it is that of the case
    if stride is None:
        return torch.empty(size, dtype=dtype, device=_META)
    return torch.empty_strided(size, stride, dtype=dtype, device=_META)


class Drawing(Value):
    """Inputs of a case by its axis `workload`."""

    by_key: dict[str, Any]
    in_place: bool

    def __call__(self, workload: str, make: Make) -> dict[str, Any]:
        """Return the arguments by position and by name; of an operator in place the first is the state `target`."""
        positional, named = tree_map(functools.partial(_drawn, make), self.by_key[workload])
        target = {"target": positional[0]} if self.in_place else {}
        return {**target, "args": positional[len(target) :], "named": named, "axis sizes": {}}


def _drawn(make: Make, leaf: Any) -> Any:
    """Return a view of a buffer of random values for a tensor, uniform in [0, 1) or small integers, and other leaves as they are."""
    if not isinstance(leaf, torch.Tensor):
        return make.device if leaf == _META else leaf  # the case's for any device
    size, dtype = leaf.untyped_storage().nbytes() // leaf.itemsize, leaf.dtype
    if dtype.is_complex:
        values = make.normal(size, dtype="complex64").to(dtype)
    elif dtype.is_floating_point:
        values = make.uniform(size, dtype=dtype)
    else:
        high = 2 if dtype is torch.bool else 10
        values = make.integers(size, low=-9 if dtype.is_signed else 0, high=high, dtype=dtype)
    return values.as_strided(leaf.shape, leaf.stride())


class Applied(Value):
    """A function of a case's inputs. One that works in place is judged by its target, and returns nothing."""

    function: Callable[..., Any]

    def __call__(self, *inputs: Any) -> Any:
        *target, args, named = inputs
        found = self.function(*target, *args, **named)
        return None if target else found
