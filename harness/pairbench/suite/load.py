"""Finds suite files and loads them: a suite is a Python file that declares operators, named by its path."""

import ast
import contextlib
import itertools
import re
import sys
import tomllib
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType

from pairbench.errors import DeclarationError, SuiteError
from pairbench.model.operator import Operator
from pairbench.suite.definitions import is_definition
from pairbench.suite.modules import NAMESPACE, load_module

_MOVED = "moved.toml"
PROBLEM = "problem of"
"""How the source of an operator begins whose file is a problem of another corpus."""


def find_suites(places: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return the suite files among files and folders; of a folder, the files in it and below that declare operators or are problems."""
    # Helpers beside suites, such as kernels, declare none. Hidden folders, virtual environments and caches are passed over.
    files: list[Path] = []
    for place in places:
        if place.is_dir():
            files += filter(_is_suite, _files(place))
        elif place.is_file():
            files.append(place)
        else:
            raise SuiteError(f"suite {str(place)!r} does not exist, expected a file or a folder of suite files")
    return tuple(dict.fromkeys(files))


def _files(folder: Path) -> Iterator[Path]:
    """Yield the Python and JSON files of a folder, then those of its folders, each in the order of their names."""
    entries = sorted(folder.iterdir())
    yield from (entry for entry in entries if entry.suffix in (".py", ".json") and entry.is_file())
    for entry in entries:
        hidden = entry.name.startswith(".") or entry.name in ("__pycache__", "node_modules", "site-packages")
        if entry.is_dir() and not entry.is_symlink() and not hidden and not (entry / "pyvenv.cfg").is_file():
            yield from _files(entry)


def _is_suite(file: Path) -> bool:
    try:
        return declares_operators(file.read_text(errors="replace")) if file.suffix == ".py" else is_definition(file)
    except OSError:  # loading the file reports it
        return True


def declares_operators(text: str) -> bool:
    return ("Operator" in text and "pairbench" in text) or ("def get_inputs(" in text and "class Model(" in text)


def candidate_files(against: str) -> tuple[Path, ...]:
    """Return the files of candidates for problems: a file itself, or those of a folder; none for an empty text."""
    place = Path(against)
    return (tuple(sorted(place.glob("*.py"))) if place.is_dir() else (place,)) if against else ()


def moved_suites(places: tuple[Path, ...]) -> dict[str, str]:
    """Return the new names of moved suites by their old names, both as in records, from the files `moved.toml` of folders."""
    moved: dict[str, str] = {}
    for file in (place / _MOVED for place in places):
        if not file.is_file():
            continue
        try:
            content = tomllib.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise SuiteError(f"{file}: cannot be read: {error}") from error
        for old, new in content.items():
            if not isinstance(new, str) or not new or old == new:
                example = '"suites/conv.py" = "suites/conv/causal.py"'
                raise SuiteError(f"{file}: {old!r} is {new!r}, expected another name of a suite: {example}")
            moved[old] = new
    if chained := sorted(moved.keys() & set(moved.values())):
        expected = "expected the newest name for every old one"
        raise SuiteError(f"{_MOVED}: {chained[0]!r} is an old name and a new one, {expected}")
    return moved


def load_suite(path: Path, problem: Callable[[Path, ModuleType | None], Operator] | None = None) -> dict[str, Operator]:
    """Load a suite file and return its operators by name, in the order of declaration; `problem` makes that of a problem's file."""
    # It imports files beside it by plain names, and other files by relative ones; see `pairbench.suite.modules`.
    path = path.resolve()
    if path.suffix != ".py" and not (problem and is_definition(path)):
        raise SuiteError(
            f"suite {path.name}: not a Python file, expected .py, or a definition of FlashInfer-Trace or SOL-ExecBench"
        )
    try:
        if problem and path.suffix != ".py":
            return {(made := problem(path, None)).name: made}
        module = load_module(path)
    except SuiteError:
        raise
    except BaseException as error:
        raise SuiteError(_sentence(path, error)) from error
    operators: dict[str, Operator] = {}
    several = (value if isinstance(value, list | tuple) else [value] for value in vars(module).values())
    for value in itertools.chain.from_iterable(several):
        if not isinstance(value, Operator):
            continue
        if operators.setdefault(value.name, value) is not value:
            advice = "a name is the key of its history, so give each its own"
            raise SuiteError(f"suite {path.name}: two operators are named {value.name!r}; {advice}")
    if problem and not operators and {"Model", "get_inputs", "get_init_inputs"} <= vars(module).keys():
        made = problem(path, module)
        return {made.name: made}
    if not operators:
        expected = "expected at least one module-level Operator(...), or a list of them"
        raise SuiteError(f"suite {path.name}: declares no operator, {expected}")
    return operators


def refuse_syntax_errors(files: Iterable[Path]) -> None:
    """Raise if all of some suite files have syntax errors, which needs no process that loads torch."""
    errors = []
    for file in files:
        try:
            with contextlib.suppress(OSError, ValueError):  # the worker that loads the file reports it
                ast.parse(file.read_bytes(), str(file))
            return
        except SyntaxError as error:
            errors.append(_sentence(file, error))
    if errors:
        raise SuiteError("; ".join(errors))


def _sentence(path: Path, error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        helper = error.filename and Path(error.filename).resolve() != path.resolve()
        where = f": {Path(error.filename).name}" if helper and error.filename else ""
        return f"suite {path.name}{where}, line {error.lineno}: {type(error).__name__}: {error.msg}"
    where = place_in_suite(path, error)
    if isinstance(error, DeclarationError):
        return f"{where}: {error}"
    return f"{where}: {type(error).__name__}: {_not_found(path, error) if isinstance(error, ImportError) else error}"


def place_in_suite(path: Path, error: BaseException) -> str:
    """Return the innermost line of the suite's own file that raised, like `suite norm.py, line 12`, or no line where none did."""
    trace = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in trace if Path(frame.filename) == path.resolve()]
    return f"suite {path.name}, line {lines[-1]}" if lines else f"suite {path.name}"


def _not_found(path: Path, error: ImportError) -> str:
    """Return the message of a failed import, with the user's names of folders and modules, and the folders that were searched."""
    words = re.sub(r" \(unknown location\)$", "", str(error))
    for quoted in re.findall(rf"'{NAMESPACE}(?:\.\w+)*'", str(error)):
        name = quoted.strip("'")
        folder = next(iter(getattr(sys.modules.get(name), "__path__", ())), None)
        words = words.replace(quoted, f"the folder {folder}" if folder else repr(name.rpartition(".")[2]))
    if isinstance(error, ModuleNotFoundError):
        files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
        beside = next((Path(file).parent for file in reversed(files) if Path(file).is_file()), path.parent)
        searched = " and ".join(dict.fromkeys((str(beside), str(Path.cwd()))))
        return f"{words}; searched were {searched}, PYTHONPATH and what is installed"
    return words
