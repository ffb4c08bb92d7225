"""Which module may import what, read from the import statements; the tables below are the rule.

Imports inside functions and under TYPE_CHECKING count like all others: a deferred import is still a dependency.
"""

import ast
import functools
import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "harness" / "pairbench"

ALL = frozenset(
    {
        "analyze",
        "cli",
        "config",
        "errors",
        "execute",
        "integrations",
        "model",
        "plan",
        "report",
        "stats",
        "store",
        "suite",
        "suite_text",
    }
)

# Room (a folder or a file of the package) -> the rooms of ours that it may import.
OURS: dict[str, frozenset[str]] = {
    "__init__": frozenset({"model"}),
    "__main__": frozenset({"cli"}),
    "errors": frozenset(),
    "stats": frozenset(),
    "model": frozenset({"errors", "model", "stats"}),
    "config": frozenset({"errors", "model"}),
    "suite": frozenset({"errors", "model"}),
    "suite_text": frozenset({"model"}),
    "plan": frozenset({"errors", "model"}),
    # These three meet only in model's values, joined by cli.
    "execute": frozenset({"errors", "execute", "model", "stats", "suite"}),
    "store": frozenset({"errors", "model", "store"}),
    "analyze": frozenset({"analyze", "errors", "model", "stats"}),
    "report": frozenset({"analyze", "errors", "model", "report", "stats"}),
    "integrations": ALL,
    "cli": ALL,
}

# Distribution outside the standard library, by the name it is imported under -> the rooms that may import it.
OTHERS: dict[str, frozenset[str]] = {
    "jinja2": frozenset({"report"}),
    "markupsafe": frozenset({"report"}),
    "matplotlib": frozenset({"report"}),
    "numpy": frozenset({"analyze", "execute", "report", "stats", "store"}),
    "pandas": frozenset({"integrations", "report", "store"}),
    "plotly": frozenset({"report"}),
    "pyarrow": frozenset({"store"}),
    "pynvml": frozenset({"execute"}),
    "pytest": frozenset({"integrations"}),
    "pytest_benchmark": frozenset({"integrations"}),
    "rich": frozenset({"cli", "report"}),
    "scipy": frozenset({"analyze", "execute", "stats"}),
    "torch": frozenset({"execute"}),
    "triton": frozenset({"execute"}),
    "typer": frozenset({"cli"}),
}

DISTRIBUTION = {"pynvml": "nvidia-ml-py", "pytest_benchmark": "pytest-benchmark"}

MAX_LINES = 300
# File -> why it is longer.
LONG: dict[str, str] = {}

FILES = sorted(PACKAGE.rglob("*.py"))


def name_of(file: Path) -> str:
    """Return `execute.worker` for harness/pairbench/execute/worker.py."""
    parts = file.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    return module.split(".", maxsplit=1)[0]


MODULES = {name_of(file): file for file in FILES}


@functools.cache
def imports(file: Path) -> tuple[tuple[int, str], ...]:
    """Return line and full name of everything that a file imports: `from a import b` as `a.b`."""
    found = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: relative import, expected `from pairbench...`"
            found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
    return tuple(found)


def ours(file: Path) -> Iterator[tuple[int, str]]:
    """Yield line and module, such as `model.case`, of what a file imports from the package; '' is its root."""
    for line, name in imports(file):
        root, _, rest = name.partition(".")
        if root == "pairbench":
            candidates = [rest, rest.rpartition(".")[0]]
            yield line, next((module for module in candidates if module in MODULES), "")


def test_the_package_was_found() -> None:
    assert {"__init__", "errors", "model.operator"} <= MODULES.keys()


def test_every_room_has_its_rule() -> None:
    rooms = {room_of(module) for module in MODULES}
    assert rooms <= OURS.keys(), "a new room: say in OURS what it may import, and in ARCHITECTURE.md what it is for"


@pytest.mark.parametrize("module", MODULES)
def test_imports_of_ours_go_one_way(module: str) -> None:
    allowed = OURS.get(room_of(module), frozenset())
    wrong = [
        f"line {line} imports {imported}"
        for line, imported in ours(MODULES[module])
        if imported and room_of(imported) not in allowed
    ]
    assert not wrong, f"{wrong}; {module} may import {sorted(allowed) or 'nothing of ours'}"


@pytest.mark.parametrize("module", MODULES)
def test_nobody_imports_the_root(module: str) -> None:
    """Cycles grow through a package's root; import from the module that owns the name."""
    # Everybody may ask for the version.
    lines = [
        line
        for line, imported in ours(MODULES[module])
        if not imported and (line, "pairbench.__version__") not in imports(MODULES[module])
    ]
    assert not lines


@pytest.mark.parametrize("module", MODULES)
def test_imports_of_others_stay_in_their_rooms(module: str) -> None:
    room = room_of(module)
    wrong = []
    for line, name in imports(MODULES[module]):
        root = name.split(".")[0]
        if root == "pairbench" or root in sys.stdlib_module_names:
            continue
        if room not in OTHERS.get(root, frozenset()):
            wrong.append(f"line {line} imports {root}, which only {sorted(OTHERS.get(root, [])) or 'nobody'} may")
    assert not wrong


def test_what_is_imported_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = project["dependencies"] + project["optional-dependencies"]["pytest"]
    declared = {re.split(r"[^A-Za-z0-9_-]", line)[0] for line in lines}
    assert {DISTRIBUTION.get(name, name) for name in OTHERS} == declared


def test_no_cycles() -> None:
    graph = {module: {to for _, to in ours(file) if to and to != module} for module, file in MODULES.items()}
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join([*path[path.index(module) :], module])
        if module not in done:
            for imported in sorted(graph[module]):
                visit(imported, (*path, module))
            done.add(module)

    for module in graph:
        visit(module, ())


def test_files_stay_short() -> None:
    """A file has one reason to change; past some 250 lines it usually has two."""
    lengths = {str(file.relative_to(ROOT)): len(file.read_text(encoding="utf-8").splitlines()) for file in FILES}
    too_long = {name for name, lines in lengths.items() if lines > MAX_LINES}
    assert too_long == LONG.keys(), (
        f"split it, or give the reason in LONG (longest: {max(lengths.items(), key=lambda item: item[1])})"
    )


def test_workers_are_started_as_modules() -> None:
    """Started by path, a worker would have its own folder first on sys.path, and its siblings would shadow the world."""
    pairs = {
        (first.value, second.value)
        for module, file in MODULES.items()
        if room_of(module) == "execute"
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.List | ast.Tuple)
        for first, second in zip(node.elts, node.elts[1:], strict=False)
        if isinstance(first, ast.Constant) and isinstance(second, ast.Constant)
    }
    started = {str(second).removeprefix("pairbench.") for first, second in pairs if first == "-m"}
    assert started, "execute starts no worker with [sys.executable, '-m', 'pairbench.execute...']"
    assert started <= MODULES.keys()


def test_import_pairbench_is_light() -> None:
    heavy = sorted(OTHERS)
    code = f"import sys, pairbench; print(*[name for name in {heavy} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert loaded == []


def test_help_is_fast(tmp_path: Path) -> None:
    """Under 0.4 s, compiled. The best of several: the question is what the program needs and not how busy the machine is."""
    compiled = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path)}
    compiled.pop("PYTHONDONTWRITEBYTECODE", None)
    best = float("inf")
    for _ in range(8):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "pairbench", "--help"], check=True, capture_output=True, env=compiled)
        best = min(best, time.perf_counter() - start)
        if best < 0.4:
            return
    pytest.fail(f"pairbench --help takes {best:.2f} s; `python -X importtime -m pairbench --help` shows what it loads")
