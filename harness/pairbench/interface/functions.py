"""Bare functions as a suite: an operator that is made of them, and of the arguments that they are called with."""

import contextlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pairbench.errors import DeclarationError, UsageError
from pairbench.interface.lookup import function_of, literal_of
from pairbench.interface.opened import Cases, Opened, open_targets, written_suite
from pairbench.interface.source import INTO_A_FILE, SourceText
from pairbench.model.operator import Operator
from pairbench.model.tolerance import Tolerance
from pairbench.workflow.setup import configure

Arguments = Any
"""A tensor, a list of arguments, a dict of them by name, or a function `inputs(make, ...)`."""
_VALUES = "values.pt"
_SUITE = '''
_values = {torch}.load({path}.Path(__file__).with_name({file!r}), map_location="cpu", weights_only=True)


def _placed(value, device):
    """Return a copy of a value on a device; a tensor that has room between its elements keeps it."""
    if isinstance(value, {torch}.Tensor):
        if value.is_contiguous() or any(step == 0 for step in value.stride()):
            return value.to(device, copy=True)
        return {torch}.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=device).copy_(value)
    if isinstance(value, dict):
        return {{key: _placed(item, device) for key, item in value.items()}}
    return type(value)(_placed(item, device) for item in value) if isinstance(value, (list, tuple)) else value


def _inputs(make, **axes):
    """Return the arguments that were given: the same in every call."""
    return {{name: _placed(value, make.device) for name, value in _values.items()}}
'''


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
) -> Iterator[tuple[Opened, str]]:
    """Make an operator of functions, and hold its suite until the call is over.

    Args:
        functions: By name, the baseline first.
        args: What they are called with.
        cases: The points for `args`, where that is a function.
        name: Of the operator; the first function's where not given.
        tolerance: How far outputs may differ.
        gradients: Arguments, by name, of which backward is measured too.
        options: Settings by their names on the command line.

    Raises:
        UsageError: these are no functions, or something cannot be sent to another process.
    """
    if not isinstance(functions, Mapping) or len(functions) < 2:
        raise UsageError(
            f"functions is {functions!r:.80}, expected two and more by name, the plain one first: {{'plain': f, 'mine': g}}"
        )
    first, *others = functions
    called = name or _name_of(first, functions[first])
    if _is_inputs(args):
        variants = {key: functions[key] for key in others}
        if cases is None:
            raise UsageError(
                "args is a function inputs(make, ...), so cases= has to say with which axes: cases=grid(n=[1024])"
            )
        operator = Operator(
            called,
            baseline=functions[first],
            variants=variants,
            inputs=args,
            cases=cases,
            tolerance=tolerance,
            gradients=gradients,
        )
        with open_targets(operator, cases=None, **options) as opened:
            yield opened, "auto"
        return
    if cases is not None:
        raise UsageError("cases= goes with a function inputs(make, ...) as args, and values are given")
    values = _by_name(functions, args)
    axes = _axes(values)
    # Checks names, functions and tolerance as a declaration in a file is checked.
    declared = Operator(
        called,
        baseline=functions[first],
        variants={key: functions[key] for key in others},
        inputs=lambda make, **_axes: {},  # noqa: ARG005 (the suite has another)
        cases=[axes],
        tolerance=tolerance,
        gradients=gradients,
    )
    source = SourceText()
    calls = _calls(source, functions, list(values))
    names = {"torch": source.imported("torch"), "path": source.imported("pathlib")}
    given = "" if tolerance is None else f"    tolerance={source.expression(declared.tolerance, 'tolerance=')},\n"
    given += f"    gradients={declared.gradients!r},\n" if declared.gradients else ""
    source.add(_SUITE.format(file=_VALUES, **names))
    variants_text = ", ".join(f"{key!r}: {calls[key]}" for key in others)
    source.add(
        f"{source.free_name('_operator')} = {source.imported('pairbench')}.Operator(\n    {called!r},\n    baseline={calls[first]},\n"
        f"    variants={{{variants_text}}},\n    inputs=_inputs,\n    cases=[{axes!r}],\n{given})"
    )
    with written_suite(source.text(), configure(**options)) as (config, file):
        _save(values, file.with_name(_VALUES))
        yield Opened(config=config, select=[f"{file}::{called}"], text=source.text()), _device_of(values)


def _name_of(key: str, function: Any) -> str:
    own = getattr(function_of(function) or function, "__name__", "")
    return own if re.fullmatch(r"[A-Za-z]\w*", own) else key


def _is_inputs(args: Any) -> bool:
    return callable(args) and not isinstance(args, Mapping | Sequence) and not _is_tensor(args)


def _torch() -> Any:
    """Return torch where this process has loaded it, as it has where there are tensors."""
    return sys.modules.get("torch")


def _is_tensor(value: Any) -> bool:
    torch = _torch()
    return torch is not None and isinstance(value, torch.Tensor)


def _by_name(functions: Mapping[str, Callable[..., Any]], args: Any) -> dict[str, Any]:
    """Return the arguments by the names of the first function's parameters, or by their places where that has none."""
    if isinstance(args, Mapping):
        values = dict(args)
    else:
        several = (
            (args,) if _is_tensor(args) or not isinstance(args, Sequence) or isinstance(args, str) else tuple(args)
        )
        names = next(filter(None, (_parameters(one, len(several)) for one in functions.values())), None)
        values = dict(zip(names or [f"x{place}" for place in range(len(several))], several, strict=True))
    for key, value in values.items():
        if not (isinstance(key, str) and key.isidentifier()):
            raise UsageError(f"args has the name {key!r}, expected the name of a parameter")
        _check(f"argument {key!r}", value)
    return values


def _check(what: str, value: Any) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            _check(f"{what}[{key!r}]", item)
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            _check(f"{what}[{place}]", item)
    elif not _is_tensor(value) and literal_of(value) is None:
        raise UsageError(
            f"{what} is a {type(value).__qualname__}, expected tensors, numbers, words, and lists, tuples or dicts of these; "
            "make anything else in a function: args=inputs, with def inputs(make, n): return {...}"
        )


def _parameters(function: Any, count: int) -> list[str] | None:
    """Return the names of a function's first parameters; None where they are not known, or cannot be given by name."""
    try:
        parameters = list(inspect.signature(function_of(function) or function).parameters.values())
    except (TypeError, ValueError):  # a C function
        return None
    named = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
    return named[:count] if len(named) >= count else None


def _calls(source: SourceText, functions: Mapping[str, Callable[..., Any]], names: list[str]) -> dict[str, str]:
    """Return an expression for each function, all called by the same names: through a line of Python each where theirs differ."""
    texts = {key: source.expression(one, f"function {key!r}") for key, one in functions.items()}
    if all(_parameters(one, len(names)) == names for one in functions.values()):
        return texts
    listed = ", ".join(names)
    for key, text in texts.items():
        if not re.fullmatch(r"\w+", key):
            raise DeclarationError(f"function {key!r}: expected a name of letters, digits and _")
        target = source.free_name(f"_{key}_function")
        called = source.free_name(f"_{key}")
        source.add(f"{target} = {text}\n\n\ndef {called}({listed}):\n    return {target}({listed})\n")
        texts[key] = called
    return texts


def _axes(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what tells the case from others: shapes, numbers and the dtype."""
    axes: dict[str, Any] = {}
    dtypes: dict[str, None] = {}
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


def _device_of(values: Mapping[str, Any]) -> str:
    """Return the device that tensors are on; `auto` where there are none."""
    found = {f"cuda:{value.device.index or 0}" if value.is_cuda else value.device.type for value in _tensors(values)}
    if len(found) > 1:
        raise UsageError(f"args are on {' and '.join(sorted(found))}, expected one device; name it: device='cuda:0'")
    return found.pop() if found else "auto"


def _tensors(value: Any) -> Iterator[Any]:
    if _is_tensor(value):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)


def _save(values: Mapping[str, Any], file: Path) -> None:
    """Write the arguments, without what else a tensor's memory holds."""
    torch = _torch()

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

    if torch is None:
        import importlib

        torch = importlib.import_module("torch")
    torch.save({name: copied(value) for name, value in values.items()}, file)
