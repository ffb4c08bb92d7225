"""Lists of inputs in BackendBench's text form as operators: of each `Operator: aten.NAME`, a case for each line `cnt: N, ARGS`.

ARGS is parsed, and never evaluated: `((T([8, 16], bf16), 2.0), {'dim': -1})`. The rules of names and cases are in docs/problems.md.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from pairbench.errors import SuiteError
from pairbench.execute.worker.inputs import Make
from pairbench.execute.worker.problems import bound, name_of
from pairbench.model.operator import Operator, Variant
from pairbench.model.plain import Value
from pairbench.model.tolerance import REASSOCIATED
from pairbench.suite import traces
from pairbench.suite.load import PROBLEM, candidate_files

_DTYPES = {
    **{
        "bf16": torch.bfloat16,
        "f64": torch.float64,
        "f32": torch.float32,
        "f16": torch.float16,
        "c32": torch.complex32,
    },
    **{"c64": torch.complex64, "c128": torch.complex128, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32},
    **{"i64": torch.int64, "b8": torch.bool, "u8": torch.uint8},
}
_LINE = re.compile(r"cnt:\s*(\d+)\s*,\s*(.+)")


class Form(NamedTuple):
    """A tensor as the text gives it, before its values are drawn."""

    sizes: tuple[int, ...]
    dtype: torch.dtype
    strides: tuple[int, ...] | None


class Arguments(NamedTuple):
    positional: tuple[Any, ...]
    named: dict[str, Any]

    def forms(self) -> list[Form]:
        return [one for value in (*self.positional, *self.named.values()) for one in _forms(value)]


def operators_of(path: Path, against: str) -> Iterator[Operator]:
    """Yield an operator for each name in the file that torch has, with the candidates in `against`."""
    lines: dict[str, list[tuple[int, str]]] = {}
    name = ""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise SuiteError(f"suite {path.name}: cannot be read: {error}") from error
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if line.startswith("Operator:"):
            name = line.removeprefix("Operator:").strip().removeprefix("aten.")
            lines.setdefault(name, [])
        elif line:
            if not name:
                raise SuiteError(f"suite {path.name}, line {number}: expected `Operator: NAME` before the first inputs")
            lines[name].append((number, line))
    refused: list[str] = []
    found: dict[str, Operator] = {}
    for name, several in lines.items():
        try:
            found[name] = _operator(path, name, several, against)
        except SuiteError as error:
            refused.append(str(error))
    if not found:
        raise SuiteError(f"suite {path.name}: no operator can be taken: {'; '.join(refused) or 'it names none'}")
    first = next(iter(found.values()))
    vars(first).update(left_out=(*first.left_out, *(("operator", why) for why in refused)))
    yield from found.values()


def _operator(path: Path, name: str, lines: list[tuple[int, str]], against: str) -> Operator:
    base, _, overload = name.partition(".")
    called = getattr(getattr(torch.ops.aten, base, None), overload or "default", None) if base.isidentifier() else None
    if called is None:
        raise SuiteError(f"{name!r} is no operator of this torch (torch.ops.aten)")
    by_key: dict[str, Arguments] = {}
    cases: list[dict[str, Any]] = []
    left_out = []
    for number, line in lines:
        try:
            arguments = _parsed(line)
            key = traces.digest_of(ast.dump(ast.parse(_LINE.fullmatch(line)[2].strip("'\""), mode="eval")))[:8]  # type: ignore[index]
            if key in by_key:
                raise ValueError("the inputs are those of an earlier line")
            if base.endswith("_") and not any(_forms(arguments.positional[:1])):
                raise ValueError("the operator works in place, and its first argument is no tensor")
            if "out" in arguments.named:
                raise ValueError("it writes into out=, expected inputs alone")
        except (ValueError, SyntaxError, TypeError, RecursionError) as error:
            left_out.append(("workload", f"{path.name}, line {number}, {name}: {error}"))
            continue
        by_key[key] = arguments
        first = next(iter(arguments.forms()), None)
        about = {"dtype": str(first.dtype).removeprefix("torch."), "shape": first.sizes} if first else {}
        cases.append({"args": key, **{axis: value for axis, value in about.items() if value}})
    if not cases:
        raise SuiteError(f"{name}: none of its inputs can be taken: {left_out[-1][1] if left_out else 'it has none'}")
    smallest = min(cases, key=lambda one: sum(torch.Size(form.sizes).numel() for form in by_key[one["args"]].forms()))
    space = {"__name__": "pairbench_suites.backendbench", "problem_digest": name, "called": called}
    space["drawing"] = Drawing(by_key=by_key, in_place=base.endswith("_"))
    variants = {"compiled": Variant(bound(_aten, space), prepare=bound(_compiled, space), kind="library")}
    for variant, file in _candidates(name, against):
        own = {"__name__": space["__name__"], "solution_digest": traces.code_of(file.read_text(errors="replace"))}
        own |= {"file": Source(path=file.resolve(), function=f"{_folder(name)}_kernel_impl")}
        variants[variant] = Variant(bound(_call, own), prepare=bound(_prepare, own))
    operator = Operator(
        name_of(name, "op"),
        baseline=bound(_aten, space),
        variants=variants,
        inputs=bound(_inputs, space),
        cases={"smoke": [smallest], "real": [one for one in cases if one is not smallest]},
        constants=["settings"],
        state=["target"] if base.endswith("_") else [],
        reset=base.endswith("_"),
        tolerance=REASSOCIATED,
        source=f"{PROBLEM}BackendBench's form: aten.{name}",
    )
    vars(operator).update(left_out=tuple(left_out))
    return operator


def _folder(name: str) -> str:
    return name.replace(".", "__")


def _candidates(name: str, against: str) -> Iterator[tuple[str, Path]]:
    """Yield the name and the file of each candidate: a file that is given, or those of the operator's folder."""
    begin = f"{_folder(name)}_implementation"
    for file in candidate_files(against):
        if file.suffix == ".py" and (
            file == Path(against) or (file.stem.startswith(begin) and file.parent.name == _folder(name))
        ):
            alone = Path(against).resolve().name
            rest = file.stem.removeprefix(begin).strip("_") if file.stem.startswith(begin) else file.stem
            yield name_of(rest or alone.removesuffix(".py"), "candidate"), file


def _parsed(line: str) -> Arguments:
    """Return the arguments of a line; raise a ValueError or SyntaxError where it is no such line."""
    match = _LINE.fullmatch(line)
    if not match:
        raise ValueError("expected `cnt: N, ((...), {...})`")
    found = _value(ast.parse(match[2].strip("'\""), mode="eval").body)
    if not (
        isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], tuple) and isinstance(found[1], dict)
    ):  # noqa: PLR2004
        raise ValueError("expected a pair of the arguments by position and by name, ((...), {...})")
    return Arguments(*found)


class _Device(str):
    """A device that the text names; the device under test takes its place."""


def _value(node: ast.AST) -> Any:
    match node:
        case ast.Constant(value=str() as text) if re.fullmatch(r"torch\.device\(.*\)", text):
            return _Device()
        case ast.Constant(value=str() as text) if text in _DTYPES:
            return _DTYPES[text]
        case ast.Constant(value=str() | int() | float() | None):
            return node.value
        case ast.Tuple():
            return tuple(map(_value, node.elts))
        case ast.List():
            return list(map(_value, node.elts))
        case ast.Dict() if all(isinstance(key, ast.Constant) and isinstance(key.value, str) for key in node.keys):
            return {key.value: _value(one) for key, one in zip(node.keys, node.values, strict=True)}  # type: ignore[union-attr]
        case ast.UnaryOp(op=ast.USub()):
            return -_value(node.operand)
        case ast.Name(id="inf" | "nan"):
            return float(node.id)
        case ast.Name() if node.id in _DTYPES:
            return _DTYPES[node.id]
        case ast.Call(func=ast.Attribute(value=ast.Name(id="torch" | "th"), attr="device")):
            return _Device()
        case ast.Attribute(value=ast.Name(id="torch" | "th")):
            found = getattr(torch, node.attr, None)
            if isinstance(found, torch.dtype | torch.layout | torch.memory_format):
                return found
        case ast.Call(func=ast.Name(id="T")):
            given = dict(zip(("size", "dtype", "stride", "device"), map(_value, node.args), strict=False))
            given |= {str(one.arg): _value(one.value) for one in node.keywords}
            sizes, dtype, strides = (given.get(name) for name in ("size", "dtype", "stride"))
            lists = [one for one in (sizes, strides) if one is not None]
            if (
                not isinstance(dtype, torch.dtype)
                or not lists
                or not all(
                    isinstance(one, list | tuple) and all(type(size) is int and size >= 0 for size in one)
                    for one in lists
                )
            ):
                raise ValueError(f"{ast.unparse(node)} is no tensor, expected T([sizes], dtype)")
            return Form(tuple(sizes), dtype, None if strides is None else tuple(strides))
    raise ValueError(f"{ast.unparse(node)!r:.80} is neither a tensor T(...), nor a list, number or name that is known")


def _forms(value: Any) -> Iterator[Form]:
    if isinstance(value, Form):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _forms(one)


class Drawing(Value):
    by_key: dict[str, Arguments]
    in_place: bool

    def inputs(self, key: str, make: Make) -> dict[str, Any]:
        """Return a case's inputs; the first argument of an operator that works in place is the state `target`."""
        positional, named = self.by_key[key]
        args = [_drawn(one, make) for one in positional]
        target = {"target": args.pop(0)} if self.in_place else {}
        return {
            **target,
            "args": args,
            "named": {name: _drawn(one, make) for name, one in named.items()},
            "settings": {},
        }


def _drawn(value: Any, make: Make) -> Any:
    if isinstance(value, Form):
        return _tensor(value, make)
    if isinstance(value, _Device):
        return make.device
    return [_drawn(one, make) for one in value] if isinstance(value, list | tuple) else value


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
    return values if sizes is form.sizes else values.as_strided(form.sizes, form.strides)  # type: ignore[arg-type]


class Source(Value):
    """A candidate's file, which only the process that calls it loads."""

    path: Path
    function: str

    def load(self) -> Any:
        from pairbench.suite.modules import load_module

        if (found := getattr(load_module(self.path), self.function, None)) is None:
            raise SuiteError(f"{self.path.name} defines no function {self.function}")
        return found


# The next ones run in a namespace of the operator or of the candidate, see `problems.bound`. A target is changed, and so is no output.


def _aten(args, named, settings, target=None, function=None):  # type: ignore[no-untyped-def]
    assert problem_digest  # type: ignore[name-defined]  # noqa: F821
    function = function or called  # type: ignore[name-defined]  # noqa: F821
    if target is None:
        return function(*args, **named)
    function(target, *args, **named)


def _call(args, named, settings, function, target=None):  # type: ignore[no-untyped-def]
    if target is None:
        return function(*args, **named)
    function(target, *args, **named)


def _inputs(make, args, **about):  # type: ignore[no-untyped-def]
    assert problem_digest  # type: ignore[name-defined]  # noqa: F821
    return drawing.inputs(args, make)  # type: ignore[name-defined]  # noqa: F821


def _compiled(settings):  # type: ignore[no-untyped-def]
    import torch

    return {"function": torch.compile(called)}  # type: ignore[name-defined]  # noqa: F821


def _prepare(settings):  # type: ignore[no-untyped-def]
    assert solution_digest  # type: ignore[name-defined]  # noqa: F821
    return {"function": file.load()}  # type: ignore[name-defined]  # noqa: F821
