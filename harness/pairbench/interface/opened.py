"""The beginning of every call: its arguments become settings and SELECT arguments, and a suite file is written where none declares an operator.

An operator of a notebook or script is written as the text that declares it, and bare functions as an operator made of them.
"""

import contextlib
import functools
import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from pairbench.config import Config
from pairbench.errors import DeclarationError, UsageError
from pairbench.execute.orphans import VARIABLE
from pairbench.interface.source import INTO_A_FILE, SourceText, function_of, literal_of
from pairbench.model.case import Tolerance
from pairbench.model.operator import Operator, Variant
from pairbench.model.plain import Value, grouped
from pairbench.own_folders import held_folder
from pairbench.workflow.setup import configure

Cases = Sequence[Mapping[str, Any]] | Mapping[str, Sequence[Mapping[str, Any]]]
"""Cases as `Operator(cases=)` takes them: a list of points, or one for each tier."""
Target = str | os.PathLike[str] | Operator
"""A SELECT argument as on the command line, a suite file, or an operator."""
Targets = Target | Iterable[Target] | None
"""What to take, one or several; None for what the command line takes without a SELECT argument."""
Arguments = Any
"""A tensor, a list of arguments, a dict of them by name, or a function `inputs(make, ...)`."""
_VALUES = "values.pt"
_SUITE = '''

def {inputs}(make, **axes):
    """Return copies of the arguments that were given, as they lie in memory: the same in every call."""
    return {torch}.load({path}.Path(__file__).with_name({file!r}), map_location=make.device, weights_only=True)
'''


def add_operator(source: SourceText, operator: Operator) -> None:
    """Add the declaration of an operator, and all definitions that it uses, to the text of a suite."""
    what = f"operator {operator.name!r}"
    tiers = grouped((case.tier, dict(case.axes)) for case in operator.cases)
    written = {
        "baseline": _variant(source, operator.baseline, f"the baseline of {what}"),
        "variants": _variants(source, operator.variants, f"of {what}", "variant"),
        "impostors": _variants(source, operator.impostors, f"of {what}", "impostor"),
    }
    others = {one.name: getattr(operator, one.name) for one in fields(operator) if one.init and one.name != "name"}
    for name, value in (others | {"cases": dict(tiers)}).items():
        if name not in written and value and (name, value) != ("tolerance", Tolerance()):
            written[name] = source.expression(value, f"{name}= of {what}")
    lines = "".join(f"    {name}={value},\n" for name, value in written.items())
    call = f"{source.imported('pairbench')}.Operator(\n    {operator.name!r},\n{lines})"
    source.add(f"{source.free_name('_operator')} = {call}")


def _variants(source: SourceText, variants: Mapping[str, Variant], of: str, what: str) -> str:
    items = (f"{name!r}: {_variant(source, one, f'{what} {name!r} {of}')}" for name, one in variants.items())
    return f"{{{', '.join(items)}}}"


def _variant(source: SourceText, variant: Variant, what: str) -> str:
    function = source.expression(variant.function, what)
    others = [(name, value) for name, value in vars(variant).items() if value and name != "function"]
    given = "".join(f", {name}={source.expression(value, f'{name}= of {what}')}" for name, value in others)
    return f"{source.imported('pairbench')}.Variant({function}{given})" if given else function


class Opened(Value):
    """The settings and the SELECT arguments of a call."""

    config: Config
    select: list[str]
    text: str = ""  # of the suite that was written for operators without a file, if any
    device: str = "auto"  # of the arguments that were given


def refuse_in_worker(what: str) -> None:
    """Refuse to measure while a worker loads a suite: its workers would load the suite, and so on without end."""
    if os.environ.get(VARIABLE):
        called = f"pairbench.{what} was called while the file that declares the operators was loaded by a worker"
        raise UsageError(f"{called}; put the call below `if __name__ == '__main__':`")


@contextlib.contextmanager
def open_targets(targets: Targets, *, cases: Cases | None, catalogue: bool = False, **options: Any) -> Iterator[Opened]:
    """Yield the settings and SELECT arguments of some targets; suites that have to be written for them are held until the end."""
    # `cases` replaces the cases of operators, and `options` are settings by their names on the command line.
    several = isinstance(targets, Iterable) and not isinstance(targets, str | os.PathLike | Operator)
    given: list[Any] = list(targets) if several else [] if targets is None else [targets]  # type: ignore[arg-type]
    for target in given:
        if not isinstance(target, str | os.PathLike | Operator):
            expected = "expected an Operator, a suite file or a SELECT argument such as 'ops.py::silu'"
            raise UsageError(f"{target!r:.60} is of type {type(target).__qualname__}, {expected}")
        if cases is not None and not isinstance(target, Operator):
            raise UsageError(f"cases= goes with an Operator; of {str(target)!r} name the cases: 'ops.py::silu[n=1024]'")
    if cases is not None and not given:
        raise UsageError("cases= goes with an Operator, and none is given")
    config = configure(catalogue=catalogue, **options)
    select, unfiled, changes = [], [], dict[str, Any](cases=cases, claims=())
    for target in given:
        if not isinstance(target, Operator):
            select.append(str(target))
        elif cases is not None:
            unfiled.append(replace(target, **changes))
        elif (file := file_of(target)) is None:
            unfiled.append(target)
        else:
            select.append(f"{file}::{target.name}")
    if not unfiled:
        yield Opened(config=config, select=select)
        return
    source = SourceText()
    for operator in unfiled:
        add_operator(source, operator)
    with written_suite(source.text(), config) as (written, file):
        select += [f"{file}::{operator.name}" for operator in unfiled]
        yield Opened(config=written, select=select, text=source.text())


@contextlib.contextmanager
def written_suite(text: str, config: Config) -> Iterator[tuple[Config, Path]]:
    """Write a suite into a temporary folder, and yield the settings under which records name it without the folder, and its file."""
    main = vars(sys.modules["__main__"])
    script = main.get("__file__")
    name = Path(script).stem if isinstance(script, str) and "site-packages" not in script else "shell"
    with held_folder() as folder:
        file = folder.resolve() / f"{'notebook' if isinstance(main.get('In'), list) else name}.py"
        file.write_text(text, encoding="utf-8")
        yield replace(config, written=folder), file


def file_of(operator: Operator) -> Path | None:
    """Return the suite file that an operator was imported from; None for operators of this notebook, shell or script."""
    files, main = [], sys.modules["__main__"]  # which multiprocessing knows by another name, too
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if module is main or not isinstance(file, str):
            continue
        if any(one is operator for one in list(vars(module).values())):
            files.append((name != getattr(operator.inputs, "__module__", None), file))
    return next((Path(file) for _, file in sorted(files) if file.endswith(".py")), None)


@contextlib.contextmanager
def open_functions(
    functions: Mapping[str, Callable[..., Any]],
    args: Arguments,
    *,
    cases: Cases | None,
    name: str | None,
    tolerance: Tolerance | Mapping[str, Tolerance] | None,
    gradients: Sequence[str] = (),
    **options: Any,
) -> Iterator[Opened]:
    """Yield the settings and the SELECT argument of an operator that is made of functions, and the device of its arguments."""
    # The suite that is written for it is held until the end; `options` are settings by their names on the command line.
    if not isinstance(functions, Mapping) or len(functions) < 2:
        expected = "expected two and more by name, the plain one first: {'plain': f, 'mine': g}"
        raise UsageError(f"functions is {functions!r:.80}, {expected}")
    first, *others = functions
    own = getattr(function_of(functions[first]) or functions[first], "__name__", "")
    called = name or (own if re.fullmatch(r"[A-Za-z]\w*", own) else first)
    variants = {key: functions[key] for key in others}
    declare = functools.partial(
        Operator, called, baseline=functions[first], variants=variants, tolerance=tolerance, gradients=gradients
    )
    if callable(args) and not isinstance(args, Mapping | Sequence) and not _is_tensor(args):
        if cases is None:
            which = "cases= has to say with which axes: cases=grid(n=[1024])"
            raise UsageError(f"args is a function inputs(make, ...), so {which}")
        with open_targets(declare(inputs=args, cases=cases), cases=None, **options) as opened:
            yield opened
        return
    if cases is not None:
        raise UsageError("cases= goes with a function inputs(make, ...) as args, and values are given")
    values = _by_name(functions, args)
    source = SourceText()
    operator = declare(inputs=lambda make, **_axes: {}, cases=[_axes(values)])  # noqa: ARG005
    _write(source, functions, list(values))
    source.written[id(operator.inputs)] = inputs = source.free_name("_inputs")
    needed = {"torch": source.imported("torch"), "path": source.imported("pathlib")}
    source.add(_SUITE.format(inputs=inputs, file=_VALUES, **needed))
    add_operator(source, operator)
    tensors = [one for _, one in _leaves("", values) if _is_tensor(one)]
    devices = {f"cuda:{one.device.index or 0}" if one.is_cuda else one.device.type for one in tensors}
    if len(devices) > 1:
        raise UsageError(f"args are on {' and '.join(sorted(devices))}, expected one device; name it: device='cuda:0'")
    with written_suite(source.text(), configure(**options)) as (config, file):
        _save(values, file.with_name(_VALUES))
        device = next(iter(devices), "auto")
        yield Opened(config=config, select=[f"{file}::{called}"], text=source.text(), device=device)


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")  # loaded where there are tensors
    return torch is not None and isinstance(value, torch.Tensor)


def _by_name(functions: Mapping[str, Callable[..., Any]], args: Any) -> dict[str, Any]:
    """Return the arguments by the names of the first function's parameters, or by their positions where these have no names."""
    if isinstance(args, Mapping):
        values = dict(args)
    else:
        listed = isinstance(args, Sequence) and not _is_tensor(args) and not isinstance(args, str)
        given = tuple(args) if listed else (args,)
        names = next(filter(None, (_parameters(one, len(given)) for one in functions.values())), None)
        values = dict(zip(names or [f"x{index}" for index in range(len(given))], given, strict=True))
    for key, value in values.items():
        if not (isinstance(key, str) and key.isidentifier()):
            raise UsageError(f"args has the name {key!r}, expected the name of a parameter")
        for where, leaf in _leaves(f"argument {key!r}", value):
            if not _is_tensor(leaf) and literal_of(leaf) is None:
                expected = "expected tensors, numbers, words, and lists, tuples or dicts of these"
                advice = "make anything else in a function: args=inputs, with def inputs(make, n): return {...}"
                raise UsageError(f"{where} is a {type(leaf).__qualname__}, {expected}; {advice}")
    return values


def _leaves(where: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what lists, tuples and dicts hold in the end, and where."""
    if not isinstance(value, dict | list | tuple):
        yield where, value
        return
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        yield from _leaves(f"{where}[{key!r}]", item)


def _parameters(function: Any, count: int) -> list[str] | None:
    """Return the names of a function's first parameters; None where they are unknown, or cannot be given by name."""
    try:
        parameters = list(inspect.signature(function_of(function) or function).parameters.values())
    except (TypeError, ValueError):  # a C function
        return None
    named = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
    return named[:count] if len(named) >= count else None


def _write(source: SourceText, functions: Mapping[str, Callable[..., Any]], names: list[str]) -> None:
    """Write functions; where their parameters have other names, as wrappers that have the names of the arguments."""
    texts = {key: source.expression(one, f"function {key!r}") for key, one in functions.items()}
    same, listed = all(_parameters(one, len(names)) == names for one in functions.values()), ", ".join(names)
    for key, text in texts.items():
        called = text
        if not same:
            if not re.fullmatch(r"\w+", key):
                raise DeclarationError(f"function {key!r}: expected a name of letters, digits and _")
            target, called = source.free_name(f"_{key}_function"), source.free_name(f"_{key}")
            source.add(f"{target} = {text}\n\n\ndef {called}({listed}):\n    return {target}({listed})\n")
        source.written[id(functions[key])] = called


def _axes(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the axes of the case: shapes, numbers and the dtype of the arguments."""
    axes, dtypes = dict[str, Any](), dict[str, None]()
    for name, value in values.items():
        if _is_tensor(value):
            axes[name] = tuple(value.shape) or 1
            dtypes[str(value.dtype).removeprefix("torch.")] = None
        elif isinstance(value, bool | int | float) and value == value and abs(value) != float("inf"):  # noqa: PLR0124 (not NaN)
            axes[name] = value
    floating = [one for one in dtypes if "float" in one] or list(dtypes)
    if floating and "dtype" not in values:
        axes["dtype"] = floating[0]
    return axes


def _save(values: Mapping[str, Any], file: Path) -> None:
    """Write the arguments to a file, each tensor without the rest of its storage."""
    torch = importlib.import_module("torch")

    def copied(value: Any) -> Any:
        if _is_tensor(value):
            if value.layout is not torch.strided:
                raise UsageError(f"an argument is a {value.layout} tensor, expected dense ones; {INTO_A_FILE}")
            plain = value.detach().cpu()
            if plain.is_contiguous() or any(step == 0 for step in plain.stride()):
                return plain.clone()
            return torch.empty_strided(plain.size(), plain.stride(), dtype=plain.dtype).copy_(plain)
        if isinstance(value, dict):
            return {key: copied(item) for key, item in value.items()}
        return type(value)(map(copied, value)) if type(value) in (list, tuple) else value

    torch.save({name: copied(value) for name, value in values.items()}, file)
