"""Lists of inputs in BackendBench's text form as operators: of each `Operator: aten.NAME`, a case for each line `cnt: N, ARGS`.

ARGS is parsed, and never evaluated: `((T([8, 16], bf16), 2.0), {'dim': -1})`. The rules of names and cases are in docs/problems.md.
"""

import ast
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from pairbench.errors import SuiteError
from pairbench.execute.worker.corpora.assemble import Candidate, assembled
from pairbench.execute.worker.inputs import Make
from pairbench.model.operator import Operator
from pairbench.model.plain import Value
from pairbench.suite import traces
from pairbench.suite.load import PROBLEM, candidate_files
from pairbench.suite.modules import be_found, load_module

_FLOATS = {"bf16": torch.bfloat16, "f64": torch.float64, "f32": torch.float32, "f16": torch.float16}
_COMPLEX = {"c32": torch.complex32, "c64": torch.complex64, "c128": torch.complex128}
_INTEGERS = {"i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64}
_DTYPES = {**_FLOATS, **_COMPLEX, **_INTEGERS, "b8": torch.bool, "u8": torch.uint8}
_LINE = re.compile(r"cnt:\s*\d+\s*,\s*(.+)")
_DEVICE = object()  # a device that the text names; that under test takes its place


class Form(NamedTuple):
    """A tensor as the text gives it, before its values are drawn."""

    sizes: tuple[int, ...]
    dtype: torch.dtype
    strides: tuple[int, ...] | None


class Arguments(NamedTuple):
    positional: tuple[Any, ...]
    named: dict[str, Any]


def operators_of(path: Path, against: str) -> Iterator[Operator]:
    """Yield an operator for each name in the file that torch has, with the candidates in `against`."""
    lines: dict[str, list[tuple[int, str]]] = {}
    be_found()
    name, refused, found = "", list[tuple[str, str]](), list[Operator]()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise SuiteError(f"suite {path.name}: cannot be read: {error}") from error
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if line.startswith("Operator:"):
            name = line.removeprefix("Operator:").strip().removeprefix("aten.")
        elif line and not name:
            raise SuiteError(f"suite {path.name}, line {number}: expected `Operator: NAME` before the first inputs")
        several = lines.setdefault(name, [])
        several += [(number, line)] if line and not line.startswith("Operator:") else []
    for name, several in lines.items():
        try:
            found.append(_operator(path, name, several, against))
        except SuiteError as error:
            refused.append(("problem", str(error)))
    if not found:
        why = "; ".join(why for _, why in refused) or "it names none"
        raise SuiteError(f"suite {path.name}: no operator can be taken: {why}")
    vars(found[0]).update(left_out=(*found[0].left_out, *refused))
    yield from found


def _operator(path: Path, name: str, lines: list[tuple[int, str]], against: str) -> Operator:
    base, _, overload = name.partition(".")
    function = (
        getattr(getattr(torch.ops.aten, base, None), overload or "default", None) if base.isidentifier() else None
    )
    if function is None:
        raise SuiteError(f"{name!r} is no operator of this torch (torch.ops.aten)")
    by_key: dict[str, Arguments] = {}
    cases, left_out = list[dict[str, Any]](), list[tuple[str, str]]()
    in_place = base.endswith("_") and not base.endswith("__")
    for number, line in lines:
        try:
            key, arguments = _parsed(line, in_place=in_place)
        except (ValueError, SyntaxError, TypeError, RecursionError) as error:
            left_out.append(("workload", f"{path.name}, line {number}, {name}: {error}"))
            continue
        if key in by_key:
            left_out.append(
                ("workload", f"{path.name}, line {number}, {name}: its inputs are those of an earlier line")
            )
            continue
        by_key[key] = arguments
        first = next(_forms(arguments), None)
        about = {"dtype": str(first.dtype).removeprefix("torch."), "shape": first.sizes} if first else {}
        cases.append({"workload": key, **{axis: value for axis, value in about.items() if value}})
    if not cases:
        raise SuiteError(f"{name}: none of its inputs can be taken: {left_out[-1][1] if left_out else 'it has none'}")
    return assembled(
        name,
        home="pairbench_suites.backendbench",
        digest=name,
        entry=Applied(function=function),
        made=Drawing(by_key=by_key, in_place=in_place),
        cases=cases,
        sizes=[sum(math.prod(form.sizes) for form in _forms(by_key[case["workload"]])) for case in cases],
        candidates=_candidates(name, against),
        left_out=left_out,
        state=["target"] if in_place else [],
        reset=in_place,
        source=f"{PROBLEM}BackendBench's form: aten.{name}",
    )


def _candidates(name: str, against: str) -> Iterator[Candidate]:
    """Yield each candidate: a file that is given, or those of the operator's folder."""
    folder = name.replace(".", "__")
    begin = f"{folder}_implementation"
    for file in candidate_files(against):
        beside = file.parent.name == folder and file.stem.startswith(begin)
        if file.suffix == ".py" and (file == Path(against) or beside):
            rest = file.stem.removeprefix(begin).strip("_")
            digest = traces.code_of(file.read_text(errors="replace"))
            source = Source(path=file.resolve(), function=f"{folder}_kernel_impl")
            yield Candidate(rest or Path(against).resolve().stem, digest, source)


def _parsed(line: str, *, in_place: bool) -> tuple[str, Arguments]:
    """Return the arguments of a line after a digest of them; raise a ValueError or SyntaxError where they cannot be taken."""
    match = _LINE.fullmatch(line)
    if not match:
        raise ValueError("expected `cnt: N, ((...), {...})`")
    tree = ast.parse(match[1].strip("'\""), mode="eval")
    digest = traces.digest_of(ast.dump(tree))[:8]
    found = ast.literal_eval(_Known().visit(tree))
    kinds = [type(one) for one in found] if isinstance(found, tuple) else []
    if kinds != [tuple, dict] or not all(isinstance(name, str) for name in found[1]):
        raise ValueError("expected a pair of the arguments by position and by name, ((...), {...})")
    if in_place and not (found[0] and next(_forms(found[0][0]), None)):
        raise ValueError("the operator works in place, and its first argument is no tensor")
    if "out" in found[1]:
        raise ValueError("it writes into out=, expected inputs alone")
    return digest, Arguments(*found)


class _Known(ast.NodeTransformer):
    """Puts values into the places of tensors, dtypes and devices; `ast.literal_eval` refuses what is left."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        known = {**_DTYPES, "inf": math.inf, "nan": math.nan}
        return ast.Constant(known[node.id]) if node.id in known else self._refuse(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str) and node.value.startswith("torch.device("):
            return ast.Constant(_DEVICE)  # type: ignore[arg-type]
        return ast.Constant(_DTYPES[node.value]) if node.value in _DTYPES else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        found = getattr(torch, node.attr, None) if ast.unparse(node.value) in ("torch", "th") else None
        known = isinstance(found, torch.dtype | torch.layout | torch.memory_format)
        return ast.Constant(found) if known else self._refuse(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        called = ast.unparse(node.func)
        if called in ("torch.device", "th.device"):
            return ast.Constant(_DEVICE)  # type: ignore[arg-type]
        places = zip(("size", "dtype", "stride", "device"), node.args, strict=False)
        named = {**dict(places), **{str(one.arg): one.value for one in node.keywords}}
        given = {name: ast.literal_eval(self.visit(one)) for name, one in named.items()} if called == "T" else {}
        sizes, strides = given.get("size"), given.get("stride")
        lists = [sizes, *([] if strides is None else [strides])]
        whole = all(isinstance(one, list | tuple) and all(type(n) is int and n >= 0 for n in one) for one in lists)
        if not whole or not isinstance(given.get("dtype"), torch.dtype) or len({len(one) for one in lists}) > 1:
            self._refuse(node)
        return ast.Constant(Form(tuple(sizes), given["dtype"], None if strides is None else tuple(strides)))  # type: ignore[arg-type]

    def _refuse(self, node: ast.AST) -> ast.AST:
        raise ValueError(
            f"{ast.unparse(node)!r:.80} is unknown, expected T([sizes], dtype), a list, a number or a name of torch"
        )


def _forms(value: Any) -> Iterator[Form]:
    if isinstance(value, Form):
        yield value
    elif isinstance(value, list | tuple | dict):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _forms(one)


class Drawing(Value):
    by_key: dict[str, Arguments]
    in_place: bool

    def __call__(self, workload: str, make: Make) -> dict[str, Any]:
        """Return a case's inputs; the first argument of an operator that works in place is the state `target`."""
        positional, named = (_drawn(one, make) for one in self.by_key[workload])
        target = {"target": positional.pop(0)} if self.in_place else {}
        return {**target, "args": positional, "named": named, "case axes": {}}


def _drawn(value: Any, make: Make) -> Any:
    if isinstance(value, Form):
        return _tensor(value, make)
    if isinstance(value, dict):
        return {name: _drawn(one, make) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_drawn(one, make) for one in value]
    return make.device if value is _DEVICE else value


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
    """A function of the arguments that a case's inputs hold; one that works in place is judged by its target, and returns nothing."""

    function: Callable[..., Any]

    def __call__(self, *inputs: Any) -> Any:
        *target, args, named = inputs
        found = self.function(*target, *args, **named)
        return None if target else found


class Source(Value):
    path: Path
    function: str

    def entry(self, _: dict[str, Any]) -> Callable[..., Any]:
        """Load the candidate's file, and return its function of a case's inputs."""
        function = getattr(load_module(self.path), self.function, None)
        if function is None:
            raise SuiteError(f"{self.path.name} defines no function {self.function}")
        return Applied(function=function)
