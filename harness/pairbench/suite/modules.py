"""Suite files are found and loaded, they and their helpers as Python modules, each under a name made of its path, so that no two files ever share one.

A suite imports what lies beside it by its plain name (`import kernels`), and what lies elsewhere among the suites by a relative
one (`from ..conv.kernels import gather`). Under plain names in `sys.modules`, the `kernels.py` of one folder would be served
to the suites of all others, and a wrong kernel would be measured. So a file's imports of its neighbours are made
relative while it is compiled, and every folder is a package of the namespace `pairbench_suites`, the root folder at the top.

The current folder is searched for suites, and for what lies in it: a file `queue.py` there must not become the `queue` of a library.
"""

import ast
import contextlib
import functools
import importlib
import importlib.abc
import importlib.util
import itertools
import re
import symtable
import sys
import sysconfig
import tomllib
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from pairbench.errors import DeclarationError, SuiteError
from pairbench.model.operator import Operator
from pairbench.suite.definitions import is_problem

NAMESPACE = "pairbench_suites"

_LIBRARIES = sys.stdlib_module_names | {"numpy", "pairbench", "torch", "triton"}
"""Modules that a plain name means even if a file beside the suite has that name, unless the file has all that the suite takes from it."""

STATEMENTS = ("body", "orelse", "handlers", "finalbody", "cases")
"""The fields of `ast` in which a statement holds further ones."""
_NOT_OWN = (sysconfig.get_path("stdlib"), str(Path(__file__).parents[1]))  # folders of code that is no suite's
_MOVED = "moved.toml"
PROBLEM = "problem of"  # how the source of an operator begins whose file is a problem of another corpus


def load_module(path: Path) -> ModuleType:
    """Load a Python file, or return its module if it is loaded. A file that raises leaves nothing behind."""
    if path.suffix != ".py":
        raise ImportError(f"{path.name} is not a Python file")
    name = NAMESPACE
    for folder in reversed(path.parent.parents):
        _make_package(name, folder)
        name = f"{name}.{_word(path.parent.parts[len(folder.parts)])}"
    _make_package(name, path.parent)
    return importlib.import_module(f"{name}.{_word(path.stem)}")


def file_of(module: str) -> str | None:
    """Return the file of a module that is a suite or a helper of one; None for all other modules."""
    loaded = sys.modules.get(module) if module.startswith(f"{NAMESPACE}.") else None
    return getattr(loaded, "__file__", None)


def search(folder: str) -> None:
    """Have suites, and what they import from a folder, find packages in that folder before installed ones."""
    sys.meta_path[:] = [_Current(folder), *(finder for finder in sys.meta_path if not isinstance(finder, _Current))]


def find_package(name: str) -> ModuleSpec | None:
    """Return the spec of the package that a plain name means in a suite."""
    # Raises ImportError, ValueError, AttributeError or OSError where a module of that name, or a finder, is no ordinary one.
    folder = next((finder.folder for finder in sys.meta_path if isinstance(finder, _Current)), str(Path.cwd()))
    found = None if name in _LIBRARIES else PathFinder.find_spec(name, [folder, *sys.path])
    return found or importlib.util.find_spec(name)


def parse_module(path: Path) -> ast.Module:
    """Return a file's tree as it is compiled: with imports of neighbours made relative."""
    tree = ast.parse(path.read_bytes(), filename=str(path))
    _Relative(path, tree).visit(tree)
    return tree


def file_beside(folder: Path, name: str) -> Path | None:
    """Return the file of a module in a folder, whose name may be no identifier; None where there is none."""
    if (file := folder / f"{name}.py").is_file():
        return file
    return next((file for file in folder.glob("*.py") if _word(file.stem) == name), None)


def _word(part: str) -> str:
    """Return the name of a folder or file as an identifier: other characters become their code points."""
    return re.sub(r"\W", lambda character: f"_{ord(character[0]):x}_", part)


def _make_package(name: str, folder: Path) -> None:
    """Make a folder importable under a name, without running an `__init__.py`."""
    if name in sys.modules:
        return
    spec = ModuleSpec(name, None, is_package=True)
    spec.submodule_search_locations = [str(folder)]
    package = importlib.util.module_from_spec(spec)
    sys.modules[name] = package
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, package)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if path is None or not name.startswith(f"{NAMESPACE}."):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is None:  # the name of a file that is no identifier
            (folder, *_) = path
            file = file_beside(Path(folder), name.rpartition(".")[2])
            spec = importlib.util.spec_from_file_location(name, file) if file else None
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


sys.meta_path.insert(0, _Finder())  # before a candidate is loaded, which must change nothing that all share


class _Current(importlib.abc.MetaPathFinder):
    """Finds modules in the folder of the command, for suites and for packages that are no libraries."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if path is not None or name in _LIBRARIES or not _asked_by_own_code():
            return None
        return PathFinder.find_spec(name, [self.folder, *sys.path], target)


def _asked_by_own_code() -> bool:
    """Return whether the import statement stands in a suite, or in a package that is neither installed nor of the standard library."""
    frame = sys._getframe(1)  # noqa: SLF001 (the documented way to know who imports)
    importing = ("<frozen importlib", __file__, str(importlib.__file__))
    while frame.f_back and frame.f_code.co_filename.startswith(importing):
        frame = frame.f_back
    file = frame.f_code.co_filename
    if str(frame.f_globals.get("__name__")).startswith(f"{NAMESPACE}."):
        return True
    installed = {"site-packages", "dist-packages"} & {*Path(file).parts}
    return file.startswith("/") and not file.startswith(_NOT_OWN) and not installed


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType | None:  # noqa: ARG002 (a loader's signature)
        # From the source each time: an import by the file's plain name would take our bytecode for that of the file as it stands.
        code: CodeType = compile(parse_module(Path(self.path)), self.path, "exec", dont_inherit=True)
        return code


class _Relative(ast.NodeVisitor):
    """Turns `import kernels` into `from . import kernels` wherever `kernels` lies beside the file; visits return the nodes that replace one."""

    def __init__(self, file: Path, tree: ast.Module) -> None:
        # Inside of a package (a folder with an `__init__.py`) plain names start beside the outermost package.
        folder, self._level = file.parent, 1
        while (folder / "__init__.py").is_file():
            folder, self._level = folder.parent, self._level + 1
        self._folder, self._file, self._tree = folder, file, tree

    def generic_visit(self, node: ast.AST) -> list[ast.AST]:
        for field in STATEMENTS:  # expressions import nothing, and visiting them takes as long as compiling the file
            inner = getattr(node, field, [])
            inner[:] = [made for one in inner for made in self.visit(one)]
        return [node]

    def visit_Import(self, node: ast.Import) -> list[ast.AST]:
        made = (one for alias in node.names for one in self._import(alias))
        return [ast.fix_missing_locations(ast.copy_location(one, node)) for one in made]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> list[ast.AST]:
        names = {alias.name for alias in node.names}
        if node.level == 0 and node.module and self._is_beside(node.module, lambda: names):
            node.level = self._level
        return [node]

    def _import(self, alias: ast.alias) -> Iterator[ast.stmt]:
        if not self._is_beside(alias.name, functools.partial(self._used, alias)):
            yield ast.Import(names=[alias])
            return
        package, _, last = alias.name.rpartition(".")
        if alias.asname or not package:
            yield ast.ImportFrom(package or None, [ast.alias(last, alias.asname)], self._level)
            return
        # `import package.module` loads the module and binds the package.
        yield ast.ImportFrom(package, [ast.alias(last, "_loaded")], self._level)
        yield ast.ImportFrom(None, [ast.alias(alias.name.partition(".")[0])], self._level)

    def _used(self, alias: ast.alias) -> set[str]:
        """Return the names that the file takes from a module that it imports, as far as its text tells."""
        first, _, rest = alias.name.partition(".")
        if rest:
            return {rest.partition(".")[0]}
        if first not in _LIBRARIES:
            return set()
        name = alias.asname or first
        places = (node for node in ast.walk(self._tree) if isinstance(node, ast.Attribute))
        return {one.attr for one in places if isinstance(one.value, ast.Name) and one.value.id == name}

    def _is_beside(self, name: str, used: Callable[[], set[str]]) -> bool:
        first = name.partition(".")[0]
        module, package = self._folder / f"{first}.py", self._folder / first
        if first in _LIBRARIES:
            # Finding the names that a file takes means reading all of it, and hardly any folder has such files.
            taken = used() if module.is_file() or package.is_dir() else set()
            if not taken or not taken <= _made_in(module) | _made_in(package / "__init__.py"):
                return False
        if module.is_file():
            return module != self._file  # a suite called triton.py means the library by `import triton`
        if (package / "__init__.py").is_file():
            # A package that Python finds here by itself (installed, or below the current folder) keeps its own name: imported twice
            # in one process, it would register its operators twice.
            found = find_package(first)
            return not (found and found.origin and Path(found.origin).resolve() == (package / "__init__.py").resolve())
        # A folder without `__init__.py` comes after all packages that have one, as in Python.
        return any(package.glob("*.py")) and find_package(first) is None


def _made_in(file: Path) -> set[str]:
    """Return the names that a file defines; those of the files beside it, too, if it is the `__init__.py` of a package."""
    try:
        table = symtable.symtable(file.read_text(encoding="utf-8"), str(file), "exec")
    except (OSError, SyntaxError, ValueError):
        return set()
    names = {name.get_name() for name in table.get_symbols() if name.is_assigned() and not name.is_imported()}
    if file.name == "__init__.py":
        return names | {name.get_name() for name in table.get_symbols()} | {one.stem for one in file.parent.iterdir()}
    return names


def find_suites(places: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return the suite files that some paths name: a file as it is, and of a folder the files in and below it that declare operators or are problems."""
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
    """Yield the Python, JSON and text files of a folder, then those of its folders, each in the order of their names."""
    entries = sorted(folder.iterdir())
    yield from (entry for entry in entries if entry.suffix in (".py", ".json", ".txt") and entry.is_file())
    for entry in entries:
        hidden = entry.name.startswith(".") or entry.name in ("__pycache__", "node_modules", "site-packages")
        if entry.is_dir() and not entry.is_symlink() and not hidden and not (entry / "pyvenv.cfg").is_file():
            yield from _files(entry)


def _is_suite(file: Path) -> bool:
    try:
        return declares_operators(file.read_text(errors="replace")) if file.suffix == ".py" else is_problem(file)
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


def load_suite(
    path: Path, problems: Callable[[Path, ModuleType | None], Iterable[Operator]] | None = None
) -> dict[str, Operator]:
    """Load a suite file and return its operators by name, in the order of declaration; `problems` makes those of a problem's file."""
    # It imports files beside it by plain names, and other files by relative ones; see `pairbench.suite.modules`.
    path = path.resolve()
    if path.suffix != ".py" and not (problems and is_problem(path)):
        expected = "a definition of FlashInfer-Trace or SOL-ExecBench, or a list of inputs of BackendBench"
        raise SuiteError(f"suite {path.name}: not a Python file, expected .py, {expected}")
    try:
        if problems and path.suffix != ".py":
            return {made.name: made for made in problems(path, None)}
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
    missing = [name for name in ("Model", "get_inputs", "get_init_inputs") if name not in vars(module)]
    if problems and not operators and not missing:
        return {made.name: made for made in problems(path, module)}
    if not operators:
        expected = "expected at least one module-level Operator(...), or a list of them"
        expected += f"; to be a problem of KernelBench, it lacks {missing[0]}" if len(missing) == 1 else ""
        raise SuiteError(f"suite {path.name}: declares no operator, {expected}")
    return operators


def refuse_syntax_errors(files: Iterable[Path]) -> None:
    """Raise a SuiteError if every one of these suite files has a syntax error, before a process is started that loads torch."""
    errors = []
    for file in files:
        try:
            with contextlib.suppress(OSError, ValueError):  # the worker that loads the file reports it
                if file.suffix == ".py":
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
        line = f", line {error.lineno}" if error.lineno else ""
        return f"suite {path.name}{where}{line}: {type(error).__name__}: {error.msg}"
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
