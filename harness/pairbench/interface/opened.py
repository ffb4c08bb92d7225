"""How every call begins: what was given becomes settings and SELECT arguments, and a suite where there is no file.

Operators as the text of a suite, for those that no suite file declares.
"""

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pairbench.config import Config
from pairbench.errors import UsageError
from pairbench.execute.orphans import VARIABLE
from pairbench.interface.source import SourceText
from pairbench.model.case import Case
from pairbench.model.operator import Operator, Variant
from pairbench.model.tolerance import Tolerance
from pairbench.own_folders import held_folder
from pairbench.workflow.setup import configure

Cases = Sequence[Mapping[str, Any]] | Mapping[str, Sequence[Mapping[str, Any]]]
"""Cases as `Operator(cases=)` takes them: a list of points, or one for each tier."""


def with_cases(operator: Operator, cases: Cases | None) -> Operator:
    """Return an operator with other cases; itself where none are given.

    Raises:
        DeclarationError: the cases are none of this operator.
    """
    if cases is None:
        return operator
    given: dict[str, Any] = {**vars(operator), "cases": cases, "claims": ()}
    del given["direction"], given["tf32"]  # a worker's
    return Operator(given.pop("name"), **given)


def add_operator(source: SourceText, operator: Operator) -> None:
    """Add the declaration of an operator, and all that it uses, to the text of a suite.

    Raises:
        UsageError: something of it cannot be sent to another process.
    """
    what = f"operator {operator.name!r}"
    callables = {
        "inputs": operator.inputs,
        "oracle": operator.oracle,
        "cost": operator.cost,
        "reset": operator.reset,
    }
    arguments = {
        "baseline": _variant(source, operator.baseline, f"the baseline of {what}"),
        "variants": _variants(source, operator.variants, f"of {what}", "variant"),
        "impostors": operator.impostors and _variants(source, operator.impostors, f"of {what}", "impostor"),
        "cases": _cases(operator.cases),
        **{name: source.expression(value, f"{name}= of {what}") for name, value in callables.items() if value},
        "tolerance": operator.tolerance != Tolerance()
        and source.expression(operator.tolerance, f"tolerance= of {what}"),
        "gradient_tolerance": operator.gradient_tolerance is not None
        and source.expression(operator.gradient_tolerance, f"gradient_tolerance= of {what}"),
        "claims": operator.claims and source.expression(operator.claims, f"claims= of {what}"),
        **{
            name: repr(value)
            for name in ("constants", "state", "gradients", "accepts_constant", "source", "owner")
            if (value := getattr(operator, name))
        },
    }
    lines = "".join(f"    {name}={value},\n" for name, value in arguments.items() if value)
    declared = f"{source.imported('pairbench')}.Operator(\n    {operator.name!r},\n{lines})"
    source.add(f"{source.free_name('_operator')} = {declared}")


def _variants(source: SourceText, variants: Mapping[str, Variant], of: str, what: str) -> str:
    items = (f"{name!r}: {_variant(source, one, f'{what} {name!r} {of}')}" for name, one in variants.items())
    return f"{{{', '.join(items)}}}"


def _variant(source: SourceText, variant: Variant, what: str) -> str:
    function = source.expression(variant.function, what)
    more = {
        "prepare": variant.prepare and source.expression(variant.prepare, f"prepare= of {what}"),
        "valid": variant.valid and source.expression(variant.valid, f"valid= of {what}"),
        "needs": variant.needs and repr(variant.needs),
        "builds_on": variant.builds_on and repr(variant.builds_on),
        "consumes": variant.consumes and repr(variant.consumes),
    }
    given = "".join(f", {name}={text}" for name, text in more.items() if text)
    return f"{source.imported('pairbench')}.Variant({function}{given})" if given else function


def _cases(cases: tuple[Case, ...]) -> str:
    tiers: dict[str, list[dict[str, Any]]] = {}
    for case in cases:
        tiers.setdefault(case.tier, []).append(dict(case.axes))
    return repr(tiers)


Target = str | os.PathLike[str] | Operator
"""A SELECT argument as on the command line, a suite file, or an operator."""
Targets = Target | Iterable[Target] | None
"""What to take, one or several; None for what the command line takes without a SELECT argument."""


@dataclass(frozen=True, kw_only=True)
class Opened:
    """What a call has to do."""

    config: Config
    select: list[str]
    """The SELECT arguments that stand for what was given."""
    text: str = ""
    """The suite that was written for operators without a file; empty where there was none to write."""


def refuse_in_worker(what: str) -> None:
    """Refuse to measure while a suite is being loaded, which would start workers that load it, and so on without an end.

    Raises:
        UsageError: this process is a worker.
    """
    if os.environ.get(VARIABLE):
        raise UsageError(
            f"pairbench.{what} was called while the file that declares the operators was loaded by a worker; "
            f"put the call below `if __name__ == '__main__':`"
        )


@contextlib.contextmanager
def open_targets(targets: Targets, *, cases: Cases | None, catalogue: bool = False, **options: Any) -> Iterator[Opened]:
    """Find what is meant, and hold what has to be written for it until the call is over.

    Args:
        targets: What the user gave.
        cases: Other cases for the operators; None for theirs.
        catalogue: Whether names are those of the pairs that come with pairbench.
        options: Settings by their names on the command line; None for what was not given.

    Raises:
        UsageError: something of an operator cannot be sent to another process, or a setting is wrong.
    """
    several: list[Any]
    if isinstance(targets, Iterable) and not isinstance(targets, str | os.PathLike | Operator):
        several = list(targets)
    else:
        several = [] if targets is None else [targets]
    for one in several:
        if not isinstance(one, str | os.PathLike | Operator):
            raise UsageError(
                f"{one!r:.60} is of type {type(one).__qualname__}, expected an Operator, a suite file or a SELECT argument such as 'ops.py::silu'"
            )
        if cases is not None and not isinstance(one, Operator):
            raise UsageError(f"cases= goes with an Operator; of {str(one)!r} name the cases: 'ops.py::silu[n=1024]'")
    if cases is not None and not several:
        raise UsageError("cases= goes with an Operator, and none is given")
    config = configure(catalogue=catalogue, **options)
    select, unfiled = [], []
    for one in several:
        if not isinstance(one, Operator):
            select.append(str(one))
        elif (file := file_of(one)) is None or cases is not None:
            unfiled.append(with_cases(one, cases))
        else:
            select.append(f"{file}::{one.name}")
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
    """Write a suite, and give its file and the settings under which it goes by its own short name, as long as it is needed."""
    with held_folder() as folder:
        file = folder.resolve() / f"{_name_of_main()}.py"
        file.write_text(text, encoding="utf-8")
        yield replace(config, written=folder), file


def _name_of_main() -> str:
    """Return how records name the suite of this process: after its script, else `notebook` or `shell`."""
    main = vars(sys.modules["__main__"])
    if isinstance(main.get("In"), list):
        return "notebook"
    file = main.get("__file__")
    return Path(file).stem if isinstance(file, str) and "site-packages" not in file else "shell"


def file_of(operator: Operator) -> Path | None:
    """Return the suite file that an operator was imported from; None for one of this notebook, shell or script."""
    files, main = [], sys.modules["__main__"]  # which multiprocessing knows by another name, too
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if module is main or not isinstance(file, str):
            continue
        if any(one is operator for one in list(vars(module).values())):
            files.append((name != getattr(operator.inputs, "__module__", None), file))
    found = [Path(file) for _, file in sorted(files) if file.endswith(".py")]
    return found[0] if found else None
