"""Lists of inputs in BackendBench's text form as operators: one for each `Operator: aten.NAME`, with a case for each line `cnt: N, ARGS` below it.

ARGS is parsed and never evaluated: `((T([8, 16], bf16), 2.0), {'dim': -1})`. The rules of names and cases are in docs/problems.md.
"""

import ast
import functools
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from pairbench.errors import SuiteError
from pairbench.execute.worker.inputs import Make
from pairbench.execute.worker.problems import Candidate, assembled, digest_of_code, function_in
from pairbench.model.operator import Operator
from pairbench.model.plain import Value
from pairbench.suite.definitions import digest_of
from pairbench.suite.load import PROBLEM
from pairbench.suite.modules import be_found, load_module

_DTYPES = {
    "bf16": torch.bfloat16,
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "b8": torch.bool,
    "c32": torch.complex32,
    "c64": torch.complex64,
    "c128": torch.complex128,
    "u8": torch.uint8,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
}
_NAMES: dict[str, Any] = {**_DTYPES, "inf": math.inf, "nan": math.nan}
_LINE = re.compile(r"cnt:\s*\d+\s*,\s*(.+)")
_A_DEVICE = re.compile(r"torch\.device\(.*\)|cpu|cuda(:\d+)?")
_DEVICE = "device of the case"  # takes the place of a device that the text names


_Arguments = tuple[tuple[Any, ...], dict[str, Any]]  # by position and by name


class Form(Value):
    """A tensor as the text gives it, before its values are drawn."""

    sizes: tuple[int, ...]
    dtype: torch.dtype
    strides: tuple[int, ...] | None = None


def operators_of(path: Path, against: str) -> Iterator[Operator]:
    """Yield an operator for each name in a file that torch has, with the candidates in `against`; the first one has what was left out.

    Raises:
        SuiteError: with the reasons, where there is none.
    """
    lines: dict[str, list[tuple[str, str]]] = {}
    be_found()
    name, refused, found = "", list[str](), list[Operator]()
    for number, line in enumerate(map(str.strip, path.read_text(encoding="utf-8").splitlines()), 1):
        if line.startswith("Operator:"):
            name = line.removeprefix("Operator:").strip().removeprefix("aten.")
            lines.setdefault(name, [])
        elif line:
            lines[name].append((f"{path.name}, line {number}", line))
    for name, several in lines.items():
        try:
            found.append(_operator(name, several, Path(against) if against else None))
        except SuiteError as error:
            refused.append(f"problem {error}")
    if not found:
        raise SuiteError(f"suite {path.name}: no operator can be taken: {'; '.join(refused)}")
    vars(found[0]).update(left_out=(*found[0].left_out, *refused))
    yield from found


def _operator(name: str, lines: list[tuple[str, str]], against: Path | None) -> Operator:
    base, _, overload = name.partition(".")
    packet = getattr(torch.ops.aten, base, None) if base.isidentifier() else None
    function = getattr(packet, overload or "default", None)
    if function is None:
        raise SuiteError(f"{name!r} is no operator of this torch (torch.ops.aten)")
    in_place = base.endswith("_") and not base.endswith("__")
    by_key: dict[str, _Arguments] = {}
    left_out: list[str] = []
    for where, line in lines:
        try:
            key, arguments = _parsed(line, in_place=in_place)
            if by_key.setdefault(key, arguments) is not arguments:
                left_out.append(f"workload {where}, {name}: its inputs are those of an earlier line")
        except (ValueError, SyntaxError, TypeError, RecursionError) as error:
            left_out.append(f"workload {where}, {name}: {error}")
    if not by_key:
        raise SuiteError(f"{name}: none of its inputs can be taken: {left_out[-1] if left_out else 'it has none'}")
    elements = {key: sum(math.prod(form.sizes) for form in _forms(one)) for key, one in by_key.items()}
    cases = []
    for key, arguments in by_key.items():
        first = next(iter(_forms(arguments)), None)
        about = {"dtype": str(first.dtype).removeprefix("torch."), "shape": first.sizes} if first else {}
        cases.append({"workload": key, **{axis: value for axis, value in about.items() if value}})
    return assembled(
        name,
        digest=name,
        entry=Applied(function=function),
        made=Drawing(by_key=by_key, in_place=in_place),
        cases=cases,
        smallest=min(range(len(cases)), key=lambda place: elements[str(cases[place]["workload"])]),
        candidates=_candidates(name, against) if against else (),
        left_out=left_out,
        state=["target"] if in_place else [],
        reset=in_place,
        source=f"{PROBLEM} BackendBench: aten.{name}",
    )


def _candidates(name: str, against: Path) -> Iterator[Candidate]:
    """Yield a candidate for a file that is given, or for each of the operator's own folder below one."""
    folder = name.replace(".", "__")
    files = sorted((against / folder).glob(f"{folder}_implementation*.py")) if against.is_dir() else [against]
    for file in files if against.suffix in ("", ".py") or against.is_dir() else ():
        rest = file.stem.removeprefix(f"{folder}_implementation").strip("_")
        load = functools.partial(_load, file.resolve(), f"{folder}_kernel_impl")
        yield Candidate(rest or against.resolve().stem, digest_of_code(file.read_bytes()), load)


def _load(file: Path, function: str, _: Any) -> Callable[..., Any]:
    return Applied(function=function_in(load_module(file), function, file.name))


def _parsed(line: str, *, in_place: bool) -> tuple[str, _Arguments]:
    """Return the arguments of a line after a digest of them; raise a ValueError or SyntaxError where they cannot be taken."""
    match = _LINE.fullmatch(line)
    if not match:
        raise ValueError("expected `cnt: N, ((...), {...})`")
    tree = ast.parse(match[1].strip("'\""), mode="eval")
    digest = digest_of(ast.dump(tree))[:8]
    found = ast.literal_eval(_Known().visit(tree))
    kinds = [type(one) for one in found] if isinstance(found, tuple) else []
    if kinds != [tuple, dict] or not all(isinstance(name, str) for name in found[1]):
        raise ValueError("expected a pair of the arguments by position and by name, ((...), {...})")
    if in_place and not (found[0] and isinstance(found[0][0], Form)):
        raise ValueError("the operator works in place, and its first argument is no tensor")
    if "out" in found[1]:
        raise ValueError("it writes into out=, expected inputs alone")
    return digest, found


class _Known(ast.NodeTransformer):
    """Puts values into the places of tensors, dtypes and devices; `ast.literal_eval` refuses what is left."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Constant(_NAMES[node.id]) if node.id in _NAMES else self._refuse(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        text = node.value if isinstance(node.value, str) else ""
        return ast.Constant(_DEVICE if _A_DEVICE.fullmatch(text) else _DTYPES.get(text, node.value))

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        found = getattr(torch, node.attr, None) if ast.unparse(node.value) in ("torch", "th") else None
        known = isinstance(found, torch.dtype | torch.layout | torch.memory_format)
        return ast.Constant(found) if known else self._refuse(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        called = ast.unparse(node.func)
        if called in ("torch.device", "th.device"):
            return ast.Constant(_DEVICE)
        places = zip(("size", "dtype", "stride", "device"), node.args, strict=False)
        named = {**dict(places), **{str(one.arg): one.value for one in node.keywords}}
        given = {name: ast.literal_eval(self.visit(one)) for name, one in named.items()} if called == "T" else {}
        lists = [given.get("size"), *([given["stride"]] if given.get("stride") is not None else [])]
        whole = all(isinstance(one, list | tuple) and all(type(n) is int and n >= 0 for n in one) for one in lists)
        if not whole or not isinstance(given.get("dtype"), torch.dtype) or len({len(one) for one in lists}) > 1:
            return self._refuse(node)
        sizes, *strides = map(tuple, lists)
        made: Any = Form(sizes=sizes, dtype=given["dtype"], strides=next(iter(strides), None))
        return ast.Constant(made)

    def _refuse(self, node: ast.AST) -> ast.AST:
        expected = "expected T([sizes], dtype), a list, a number or a name of torch"
        raise ValueError(f"{ast.unparse(node)!r:.80} is unknown, {expected}")


def _forms(arguments: Any) -> list[Form]:
    return [leaf for leaf in tree_leaves(arguments) if isinstance(leaf, Form)]


class Drawing(Value):
    """Inputs of a case by its axis `workload`."""

    by_key: dict[str, _Arguments]
    in_place: bool

    def __call__(self, workload: str, make: Make) -> dict[str, Any]:
        """Return the arguments by position and by name; the first one of an operator that works in place is the state `target`."""

        def drawn(leaf: Any) -> Any:
            return _tensor(leaf, make) if isinstance(leaf, Form) else make.device if leaf == _DEVICE else leaf

        positional, named = tree_map(drawn, self.by_key[workload])
        target = {"target": positional[0]} if self.in_place else {}
        return {**target, "args": positional[len(target) :], "named": named, "axis sizes": {}}


def _tensor(form: Form, make: Make) -> torch.Tensor:
    """Return a tensor of random values, of a flat buffer where strides are given: uniform in [0, 1), or small integers."""
    sizes = form.sizes
    if form.strides is not None and 0 not in sizes:
        sizes = (1 + sum((size - 1) * stride for size, stride in zip(form.sizes, form.strides, strict=True)),)
    if form.dtype.is_complex:
        values = make.normal(*sizes, dtype="complex64").to(form.dtype)
    elif form.dtype.is_floating_point:
        values = make.uniform(*sizes, dtype=form.dtype)
    else:
        low, high = {torch.bool: (0, 2), torch.uint8: (0, 10)}.get(form.dtype, (-9, 10))
        values = make.integers(*sizes, low=low, high=high, dtype=form.dtype)
    return values if sizes is form.sizes else values.as_strided(form.sizes, form.strides or ())


class Applied(Value):
    """A function of the arguments that a case's inputs hold. One that works in place is judged by its target, and returns nothing."""

    function: Callable[..., Any]

    def __call__(self, *inputs: Any) -> Any:
        *target, args, named = inputs
        found = self.function(*target, *args, **named)
        return None if target else found
