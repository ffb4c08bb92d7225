"""How every call begins: what was given becomes settings and SELECT arguments, and a suite where there is no file."""

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pairbench.config import Config
from pairbench.errors import UsageError
from pairbench.execute.orphans import VARIABLE
from pairbench.interface.operator_text import Cases, add_operator, with_cases
from pairbench.interface.source import SourceText
from pairbench.model.operator import Operator
from pairbench.own_folders import held_folder
from pairbench.workflow.setup import configure

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
